# SPDX-License-Identifier: MIT
"""Objects of S3: every request is checked by botocore's signer, for odd keys, tokens, profiles, and both kinds of host."""
import importlib.util
import random

import pytest

from wfs_testlib.bad_server import BadServer, redirect
from wfs_testlib.engine import WHY_NOT, fetch

if importlib.util.find_spec('botocore'):
    from wfs_testlib.s3_server import Account, bucket, refuse

pytestmark = [pytest.mark.peers, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
              pytest.mark.skipif(importlib.util.find_spec('botocore') is None, reason='no botocore')]
CONTENT = random.Random(4).randbytes(5000)
ODD = ['plain', 'a b', 'a+b', 'a%b', 'a%20b', 'a%2Fb', 'h\u00e9/\u65e5\u672c', 'x=y&z', "q?r#s;t:u@v!$'()*,[]", 'dir//file', '~-._', 'a\\b', 'a"b<>^`{|}']


def environment(account, **more):
    env = {'AWS_ACCESS_KEY_ID': account.key, 'AWS_SECRET_ACCESS_KEY': account.secret, 'AWS_REGION': account.region, **more}
    return {**env, 'AWS_SESSION_TOKEN': account.token} if account.token else env


@pytest.fixture
def account():
    return Account('AKIDEXAMPLE', 'aws5ecret/with+signs', None, 'eu-central-1')


@pytest.mark.parametrize('token', [None, 's3ssion/+=token'])
@pytest.mark.parametrize('key', ODD)
def test_a_key_is_signed_as_it_should_be(key, token, account):
    account = account._replace(token=token)
    with BadServer(CONTENT, default=bucket(account, 'b.ucket', key)) as server:
        got = fetch('s3://b.ucket/' + key, '5+10', env=environment(account, AWS_ENDPOINT_URL_S3=server.origin, AWS_ENDPOINT_URL='http://x'))
    assert got.data == CONTENT[5:15], got.stderr
    assert 'if-match' in server.requests[1].headers


@pytest.mark.parametrize('key', ODD)
def test_a_bucket_of_amazon_is_a_host(key, account):
    with BadServer(CONTENT, default=bucket(account, 'bucket', key, 'host')) as server:
        env = environment(account, AWS_ENDPOINT_URL='http://s3.eu-central-1.amazonaws.com', http_proxy=server.origin)
        got = fetch('s3://bucket/' + key, '5+10', env=env)
    assert got.data == CONTENT[5:15], got.stderr
    assert server.requests[0].headers['host'] == 'bucket.s3.eu-central-1.amazonaws.com'


@pytest.mark.parametrize('name', ['with.dots', 'With_Case'])
def test_a_bucket_that_is_no_host_is_a_path(name, account):
    with BadServer(CONTENT, default=bucket(account, name, 'key')) as server:
        env = environment(account, AWS_ENDPOINT_URL='http://s3.eu-central-1.amazonaws.com', http_proxy=server.origin)
        assert fetch('s3://%s/key' % name, env=env).data == CONTENT[:1000]


def test_nothing_is_signed_without_keys(account):
    with BadServer(CONTENT, default=bucket(None, 'bucket', 'key')) as server:
        assert fetch('s3://bucket/key', '1+2', env={'AWS_ENDPOINT_URL': server.origin}).data == CONTENT[1:3]
    with BadServer(CONTENT, default=bucket(account, 'bucket', 'key')) as server:
        got = fetch('s3://bucket/key', env={'AWS_ENDPOINT_URL': server.origin})
    assert got.failures[0][0] == 'EACCES' and 'AccessDenied' in got.failures[0][1] and 'AWS_PROFILE' in got.failures[0][1]


CREDENTIALS = '''[default]
aws_access_key_id = no
aws_secret_access_key = aws5ecret0
# [work]
[ work ]
aws_access_key_id=AKIDEXAMPLE
  aws_secret_access_key = nested
aws_secret_access_key = aws5ecret/with+signs
aws_session_token =s3ssion
'''
CONFIG = '''[default]
region = us-west-2
[profile work]
region = eu-central-1\r
s3 =
  region = no
endpoint_url = %s
[profile sso]
sso_session = x
'''


@pytest.mark.parametrize('is_elsewhere', [False, True])
def test_a_profile_has_keys_region_and_endpoint(is_elsewhere, account, folder):
    account = account._replace(token='s3ssion')
    with BadServer(CONTENT, default=bucket(account, 'bucket', 'key')) as server:
        places = [folder / 'x', folder / 'y'] if is_elsewhere else [folder / '.aws' / 'credentials', folder / '.aws' / 'config']
        places[0].parent.mkdir(exist_ok=True)
        places[0].write_text(CREDENTIALS)
        places[1].write_text(CONFIG % server.origin)
        env = dict(zip(('AWS_SHARED_CREDENTIALS_FILE', 'AWS_CONFIG_FILE'), map(str, places))) if is_elsewhere else {}
        assert fetch('s3://bucket/key', env={'AWS_PROFILE': 'work', **env}, home=folder).data == CONTENT[:1000]
        assert 'sso_session' in fetch('s3://bucket/key', env={'AWS_PROFILE': 'sso', **env}, home=folder).failures[0][1]
        # Keys of the environment go before those of a profile, all of them.
        plain = account._replace(token=None)
        server.default = bucket(plain, 'bucket', 'key')
        both = environment(plain, AWS_PROFILE='work', **env)
        assert fetch('s3://bucket/key', env=both, home=folder).data == CONTENT[:1000]


KEYS = 'aws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = aws5ecret\n'


@pytest.mark.parametrize('what, config, credentials, env', [
    ('role_arn', '[profile work]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\n', '[base]\n' + KEYS, {'AWS_PROFILE': 'work'}),
    ('role_arn', '[profile work]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = work\n', '[work]\n' + KEYS, {'AWS_PROFILE': 'work'}),
    ('role_arn', '[profile work]\nrole_arn = arn:aws:iam::1:role/r\ncredential_source = Ec2InstanceMetadata\n', '', {'AWS_PROFILE': 'work'}),
    ('role_arn', '[default]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\n', '[base]\n' + KEYS, {}),
    ('credential_process', '[default]\ncredential_process = /bin/keys\n', '', {}),
    ('sso_session', '[profile work]\nsso_session = x\n', '[work]\n' + KEYS, {'AWS_PROFILE': 'work'}),
    ('AWS_WEB_IDENTITY_TOKEN_FILE', '', '[default]\n' + KEYS, {'AWS_WEB_IDENTITY_TOKEN_FILE': '/token', 'AWS_ROLE_ARN': 'arn:aws:iam::1:role/r'}),
    ('AWS_CONTAINER_CREDENTIALS_RELATIVE_URI', '', '', {'AWS_CONTAINER_CREDENTIALS_RELATIVE_URI': '/v2/credentials/1'}),
    ('AWS_CONTAINER_CREDENTIALS_FULL_URI', '', '', {'AWS_CONTAINER_CREDENTIALS_FULL_URI': 'http://169.254.170.23/v1/credentials'}),
])
def test_keys_that_are_got_elsewhere_are_refused_and_no_request_is_made_without_them(what, config, credentials, env, account, folder):
    with BadServer(CONTENT, default=bucket(account, 'bucket', 'key')) as server:
        (folder / '.aws').mkdir()
        (folder / '.aws/config').write_text(config)
        (folder / '.aws/credentials').write_text(credentials)
        env = {'AWS_ENDPOINT_URL': server.origin, **env}
        ((code, text),) = fetch('s3://bucket/key', env=env, home=folder).failures
        assert code == 'EINVAL' and what in text and 'set AWS_ACCESS_KEY_ID' in text and not server.requests
        assert fetch('s3://bucket/key', env={**environment(account), **env}, home=folder).data == CONTENT[:1000]


def test_keys_of_a_profile_and_of_the_role_of_a_machine(account, folder):
    account = account._replace(token=None)
    with BadServer(CONTENT, default=bucket(account, 'bucket', 'key')) as server:
        (folder / '.aws').mkdir()
        (folder / '.aws/credentials').write_text('[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' % (account.key, account.secret))
        env = {'AWS_ENDPOINT_URL': server.origin, 'AWS_REGION': account.region, 'AWS_CONTAINER_CREDENTIALS_FULL_URI': 'http://169.254.170.23/'}
        assert fetch('s3://bucket/key', env=env, home=folder).data == CONTENT[:1000]
        (folder / '.aws/credentials').unlink()
        text = fetch('s3://bucket/key', env={'AWS_ENDPOINT_URL': server.origin}, home=folder).failures[0][1]
        assert 'the role of a machine is not used' in text


@pytest.mark.parametrize('change, code', [({'AWS_SECRET_ACCESS_KEY': 'aws5ecret'}, 'SignatureDoesNotMatch'),
                                          ({'AWS_SESSION_TOKEN': 's3ssion'}, 'InvalidToken'), ({'AWS_REGION': 'x'}, 'InvalidAccessKeyId')])
def test_a_signature_that_is_wrong_is_refused(change, code, account):
    with BadServer(CONTENT, default=bucket(account, 'bucket', 'key')) as server:
        got = fetch('s3://bucket/key', env={**environment(account, AWS_ENDPOINT_URL=server.origin), **change})
    assert got.failures[0][0] == 'EACCES' and code in got.failures[0][1] and len(server.requests) == 1


@pytest.mark.parametrize('status, code, headers, hint', [
    ('301 Moved Permanently', 'PermanentRedirect', {'X_Amz_Bucket_Region': 'eu-west-3'}, 'eu-west-3'),
    ('301 Moved Permanently', 'PermanentRedirect', {}, 'AWS_REGION'),
    ('400 Bad Request', 'AuthorizationHeaderMalformed', {'X_Amz_Bucket_Region': 'eu-west-3'}, 'eu-west-3'),
    ('403 Forbidden', 'RequestTimeTooSkewed', {}, 'clock'), ('400 Bad Request', 'ExpiredToken', {}, 'AWS_SESSION_TOKEN'),
    ('404 Not Found', 'NoSuchBucket', {}, 'NoSuchBucket')])
def test_what_s3_says_is_passed_on(status, code, headers, hint, account):
    with BadServer(CONTENT, [lambda exchange: refuse(exchange, status, code, **headers)]) as server:
        got = fetch('s3://bucket/key', env=environment(account, AWS_ENDPOINT_URL=server.origin))
    assert hint in got.failures[0][1] and len(server.requests) == 1


def test_a_signature_goes_to_the_first_host_only(account):
    with BadServer(CONTENT) as other, BadServer(CONTENT, [redirect(other.url('/key'), '307 Temporary Redirect')]) as server:
        assert fetch('s3://bucket/key', '1+2', env=environment(account, AWS_ENDPOINT_URL=server.origin)).data == CONTENT[1:3]
    assert all('authorization' not in request.headers and 'x-amz-security-token' not in request.headers for request in other.requests)
