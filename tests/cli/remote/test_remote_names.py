# SPDX-License-Identifier: MIT
"""Where names of sources lead: plain URLs, the Hub, S3; who asks there, by what of the environment and the home directory."""
import json
import random

import pytest

from wfs_testlib import st
from wfs_testlib.bad_server import BadServer, basic, honest, redirect, status
from wfs_testlib.engine import WHY_NOT, fetch
from wfs_testlib.hub_server import COMMIT, hub
from wfs_testlib.program import EXIT_SOURCE, weightfs
from wfs_testlib.served import make_certificate

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
CONTENT = random.Random(3).randbytes(5000)
TOKEN = 'hf_s3cret'
# In the order in which the libraries take them, as for a local folder.
FILES = ['.metadata', 'model.safetensors', 'model.safetensors.index.json', 'model_index.json', 'diffusion_pytorch_model.safetensors.index.json',
         'diffusion_pytorch_model.safetensors', 'pytorch_model.bin', 'pytorch_model.bin.index.json', 'diffusion_pytorch_model.bin.index.json',
         'diffusion_pytorch_model.bin', 'adapter_model.safetensors', 'adapter_model.bin', 'adapters.safetensors', 'pytorch_lora_weights.safetensors',
         'pytorch_lora_weights.bin', 'open_clip_model.safetensors', 'open_clip_pytorch_model.bin', 'model_optim_rng.pt', 'pytorch_model_fsdp.bin',
         'consolidated.00.pth', 'consolidated.00.pt', 'mp_rank_00/model_optim_rng.pt', 'mp_rank_00_model_states.pt']

REPOSITORY = FILES[1:] + FILES[:1]  # which is hardly ever a distributed checkpoint itself

INDEX = 'model.safetensors.index.json'


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def check_tried(server, names):
    paths = [request.path for request in server.requests]
    assert len(paths) == len(names) and all(path.endswith('/' + name) for path, name in zip(paths, names)), paths


# ---- the Hub ----

@pytest.mark.parametrize('i', range(len(REPOSITORY)), ids=REPOSITORY)
def test_the_files_of_a_repository_are_tried_in_turn(i):
    with BadServer(CONTENT, default=hub('a/b.c', REPOSITORY[i:])) as server:
        got = fetch('hf://a/b.c', '5+10', env={'HF_ENDPOINT': server.origin + '/'})
    assert got.data == CONTENT[5:15] and got.opened == 'hf://a/b.c@%s/%s: 5000, etag' % (COMMIT, REPOSITORY[i])
    check_tried(server, REPOSITORY[:i + 1] + [REPOSITORY[i]])


def test_a_repository_without_a_model_is_an_error():
    with BadServer(CONTENT, default=hub('a/b', ['README.md'])) as server:
        got = fetch('hf://a/b', env={'HF_ENDPOINT': server.origin})
    assert got.failures[0][0] == 'ENOENT' and 'no file of a known name, such as model.safetensors' in got.failures[0][1]
    check_tried(server, REPOSITORY)


@pytest.mark.parametrize('name', ['hf://a/b/x/y/', 'hf://a/b@main/x/y/', 'http', 's3://bucket/x/y/'])
@pytest.mark.parametrize('i', range(0, len(FILES), 4))
def test_the_files_of_a_folder_are_tried_in_turn(name, i):

    def by_path(exchange):
        # S3 answers 403 for what is not there, where the list of objects is not public.
        missing = '403 Forbidden' if name.startswith('s3') else '404 Not Found'
        exchange.extra = {'X_Repo_Commit': COMMIT}
        (honest if exchange.request.path.endswith('/x/y/' + FILES[i]) else lambda one: one.answer(missing, b'no'))(exchange)

    with BadServer(CONTENT, default=by_path) as server:
        got = fetch(server.url('/x/y/') if name == 'http' else name, '5+10', env={'HF_ENDPOINT': server.origin, 'AWS_ENDPOINT_URL': server.origin})
    assert got.data == CONTENT[5:15] and (name == 'http' or '/x/y/%s: 5000' % FILES[i] in got.opened)
    check_tried(server, FILES[:i + 1] + [FILES[i]])


@pytest.mark.parametrize('path', ['/x/?a=b', '/x/#part', '/x'])
def test_what_does_not_end_in_a_slash_is_no_folder(path):
    with BadServer(CONTENT) as server:
        assert fetch(server.url(path), '5+10').data == CONTENT[5:15]
        assert {request.path for request in server.requests} == {path.partition('#')[0]}

def test_a_large_file_comes_from_elsewhere_without_the_token():
    with BadServer(CONTENT) as store:
        with BadServer(CONTENT, default=hub('a/b', FILES[1:], TOKEN, store.origin)) as server:
            got = fetch('hf://a/b/', '5+10', env={'HF_ENDPOINT': server.origin, 'HF_TOKEN': TOKEN + '\n'})
    assert got.data == CONTENT[5:15] and len(server.requests) == 1 and len(store.requests) == 2
    assert {request.headers.get('authorization') for request in server.requests} == {'Bearer ' + TOKEN}
    assert {request.headers.get('authorization') for request in store.requests} == {None}


@pytest.mark.parametrize('where, env', [
    ('token', {'HF_TOKEN_PATH': 'token'}), ('hf/token', {'HF_HOME': 'hf'}), ('huggingface/token', {'XDG_CACHE_HOME': ''}),
    ('.cache/huggingface/token', {}), (None, {'HF_TOKEN': TOKEN}), (None, {'HUGGING_FACE_HUB_TOKEN': TOKEN})])
def test_the_token_is_where_the_programs_of_the_hub_keep_it(where, env, folder):
    if where is not None:
        write(folder / where, TOKEN + '\n')
        env = {name: str(folder / value) for name, value in env.items()}
    with BadServer(CONTENT, default=hub('a/b', FILES, TOKEN)) as server:
        got = fetch('hf://a/b/model.safetensors', env={'HF_ENDPOINT': server.origin, **env}, home=folder)
        assert got.data == CONTENT[:1000]
        # A URL of the Hub is the same place; another server is not.
        url = '/a/b/resolve/main/model.safetensors'
        assert fetch(server.url(url), env={'HF_ENDPOINT': server.origin, **env}, home=folder).data == CONTENT[:1000]
        with BadServer(CONTENT) as other:
            assert fetch(other.url(url), env={'HF_ENDPOINT': server.origin, **env}, home=folder).data == CONTENT[:1000]
    assert 'authorization' not in other.requests[0].headers


def test_all_requests_are_for_the_commit_of_the_first_one():
    with BadServer(CONTENT, default=hub('a/b', FILES)) as server:
        fetch('hf://a/b@main/model.safetensors', '5+10', env={'HF_ENDPOINT': server.origin})
    assert [request.path for request in server.requests] == ['/a/b/resolve/%s/model.safetensors' % revision for revision in ('main', COMMIT)]


@pytest.mark.parametrize('name, revision', [('v1.0', 'v1.0'), ('refs/pr/12', 'refs/pr/12'), ('a%2Fb', 'a/b'), (COMMIT, COMMIT)])
def test_a_revision_may_have_a_slash(name, revision):
    with BadServer(CONTENT, default=hub('a/b', ['x y/m.pt'], revisions=(revision, COMMIT))) as server:
        assert fetch('hf://a/b@%s/x y/m.pt' % name, env={'HF_ENDPOINT': server.origin}).data == CONTENT[:1000]
    assert server.requests[0].path == '/a/b/resolve/%s/x%%20y/m.pt' % revision.replace('/', '%2F')


@pytest.mark.parametrize('token, options, code, hint', [
    (None, {'token': TOKEN}, 'EACCES', 'set HF_TOKEN'), ('hf_s3cretwrong', {'token': TOKEN}, 'EACCES', 'check HF_TOKEN'),
    (TOKEN, {'token': TOKEN, 'has_access': False}, 'EACCES', 'page of the repository'), (None, {'has_access': False}, 'EACCES', 'HF_TOKEN'),
    (TOKEN, {}, 'ENOENT', 'the repository has no such file in this revision')])
def test_a_refusal_of_the_hub_says_what_to_do(token, options, code, hint):
    with BadServer(CONTENT, default=hub('a/b', [], **options)) as server:
        got = fetch('hf://a/b/model.bin', env={'HF_ENDPOINT': server.origin, **({'HF_TOKEN': token} if token else {})})
    assert got.failures[0][0] == code and hint in got.failures[0][1] and len(server.requests) == 1


@pytest.mark.parametrize('name, hint', [
    ('hf://a/b@old', 'the repository has no such revision'), ('hf://a/b@old/model.bin', 'the repository has no such revision'),
    ('hf://a/c', 'the Hub has no such repository, or shows it to others only'), ('hf://a/b', 'the repository has no file of a known name'),
    ('hf://a/b/x/', 'the folder has no file of a known name'), ('hf://a/b/x', 'the repository has no such file in this revision')])
def test_what_the_hub_does_not_have_is_told_apart(name, hint):
    with BadServer(CONTENT, default=hub('a/b', ['README.md'])) as server:
        got = fetch(name, env={'HF_ENDPOINT': server.origin, 'HF_TOKEN': TOKEN})
    assert got.failures[0][0] == 'ENOENT' and hint in got.failures[0][1]
    assert len(server.requests) == (len(FILES) if 'known name' in hint else 1)


@pytest.mark.parametrize('variable', ['HF_HUB_OFFLINE', 'TRANSFORMERS_OFFLINE'])
@pytest.mark.parametrize('value, is_set', [('1', True), ('true', True), ('ON', True), ('0', False), ('no', False)])
def test_offline_means_that_nothing_is_asked_of_the_hub(variable, value, is_set):
    with BadServer(CONTENT, default=hub('a/b', FILES)) as server:
        got = fetch('hf://a/b', env={'HF_ENDPOINT': server.origin, variable: value})
    assert (not server.requests) == is_set and ([code for code, text in got.failures if variable in text] == ['EINVAL'] * is_set)


def test_a_token_is_kept_back_where_the_user_says_so(folder):
    write(folder / '.cache/huggingface/token', TOKEN + '\n')
    env = {'HF_HUB_DISABLE_IMPLICIT_TOKEN': '1', 'HF_TOKEN': TOKEN}
    with BadServer(CONTENT, default=hub('a/b', FILES)) as server:
        assert fetch('hf://a/b', env={'HF_ENDPOINT': server.origin, **env}, home=folder).data == CONTENT[:1000]
    assert all('authorization' not in request.headers for request in server.requests)
    with BadServer(CONTENT, default=hub('a/b', FILES, TOKEN)) as server:
        got = fetch('hf://a/b', env={'HF_ENDPOINT': server.origin, **env}, home=folder)
    assert 'unset HF_HUB_DISABLE_IMPLICIT_TOKEN' in got.failures[0][1]


def test_an_archived_object_is_not_passed_over():
    """Of a folder of S3, too: the next file is not the one that is meant."""
    def archived(exchange):
        exchange.answer('403 Forbidden', b'<Error><Code>InvalidObjectState</Code></Error>')
    for name in ('s3://bucket/key', 's3://bucket/folder/'):
        with BadServer(CONTENT, default=archived) as server:
            got = fetch(name, env={'AWS_ENDPOINT_URL': server.origin})
        assert got.failures[0][0] == 'EACCES' and 'the object is archived' in got.failures[0][1] and len(server.requests) == 1


@pytest.mark.parametrize('name, env, text', [
    ('hf://a', {}, 'hf://OWNER/NAME'), ('hf:///b', {}, 'hf://OWNER/NAME'), ('hf://a/b@/c', {}, 'hf://OWNER/NAME'),
    ('hf://a/b/../c', {}, 'hf://OWNER/NAME'), ('hf://a/b//c', {}, 'hf://OWNER/NAME'), ('hf://a b/c', {}, 'hf://OWNER/NAME'),
    ('hf://a/b@refs/pr/', {}, 'hf://OWNER/NAME'),
    ('hf://a/b/c', {'HF_ENDPOINT': 'ftp://x'}, 'HF_ENDPOINT'), ('hf://a/b/c', {'HF_TOKEN': 'hf_s3cret x'}, 'HF_TOKEN'),
    ('hf://a/b/c', {'HF_TOKEN_PATH': '/'}, "'/'"),
    ('s3://b', {}, 's3://BUCKET/KEY'), ('s3:///k', {}, 's3://BUCKET/KEY'), ('s3://b/', {}, 's3://BUCKET/KEY'), ('s3://b/a/../k', {}, "'..'"),
    ('s3://b/k', {'AWS_PROFILE': 'none'}, "'none'"), ('s3://b/k', {'AWS_ACCESS_KEY_ID': 'x'}, 'AWS_SECRET_ACCESS_KEY'),
    ('s3://b/k', {'AWS_ACCESS_KEY_ID': 'x', 'AWS_SECRET_ACCESS_KEY': 'aws5ecret\nx: y'}, 'unusual'),
    ('s3://b/k', {'AWS_REGION': 'x/y'}, 'AWS_REGION'), ('s3://b/k', {'AWS_ENDPOINT_URL': 'host'}, 'AWS_ENDPOINT_URL_S3'),
    ('http://', {}, 'well-formed'), ('http://a:x/', {}, 'well-formed'), ('http://[::1', {}, 'well-formed'), ('ftp://x', {}, 'https')])
def test_a_name_that_is_wrong_is_a_message(name, env, text):
    got = fetch(name, env=env)
    assert got.failures[0][0] in ('EINVAL', 'EOPNOTSUPP') and text in got.failures[0][1]


@pytest.fixture
def checkpoint(folder):
    """A set of two shards, as files."""
    names = {}
    for i in range(2):
        name = 'model-%05d-of-00002.safetensors' % (i + 1)
        st.write(folder / name, {'t%d.w' % i: ('U8', [1000], random.Random(i).randbytes(1000))})
        names['t%d.w' % i] = name
    (folder / INDEX).write_text(json.dumps({'metadata': {}, 'weight_map': names}))
    return folder


def test_a_repository_is_a_source_of_verbs(checkpoint, monkeypatch):
    files = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    with BadServer(b'', default=hub('a/b', files, TOKEN)) as server:
        monkeypatch.setenv('HF_ENDPOINT', server.origin)
        monkeypatch.setenv('HF_TOKEN', TOKEN)
        shown = [weightfs('ls', 'hf://a/b'), weightfs('info', '--json', 'hf://a/b')]
        assert shown[0].stdout == weightfs('ls', checkpoint / INDEX).stdout
        for i in range(2):
            assert weightfs('cat', 'hf://a/b@main/' + INDEX, 't%d.w' % i).raw == random.Random(i).randbytes(1000)
        # All shards are of one commit, although the name does not say which.
        assert all(COMMIT in request.path for request in server.requests if 'model-' in request.path)
        monkeypatch.setenv('HF_TOKEN', TOKEN + '2')
        shown.append(weightfs('ls', 'hf://a/b', code=EXIT_SOURCE))
        assert 'HF_TOKEN' in shown[-1].error and shown[-1].error.startswith('hf://a/b: ')
    assert not any(TOKEN in result.stdout + result.stderr for result in shown)


# ---- who asks ----

NETRC = '''# a comment
machine other.example login bob password no
macdef init
machine 127.0.0.1 login macro password no

machine 127.0.0.1
    login alice
    password "hunter2 \\" x"
machine 127.0.0.1 login carol password hunter2
default login anybody password hunter2default
'''


@pytest.mark.parametrize('user, expected', [('', ('alice', 'hunter2 " x')), ('carol@', ('carol', 'hunter2')),
                                            ('dave:hunter2%40@', ('dave', 'hunter2@')), ('eve@', ('eve', ''))])
def test_netrc_has_the_password_for_a_host(user, expected, folder):
    write(folder / '.netrc', NETRC)
    with BadServer(CONTENT) as server:
        fetch(server.url(user=user), home=folder)
        assert server.requests[0].headers['authorization'] == basic(*expected)
        fetch(server.url(user=user).replace('127.0.0.1', 'localhost'), home=folder)
        if user == '':
            assert server.requests[1].headers['authorization'] == basic('anybody', 'hunter2default')


@pytest.mark.parametrize('user, path, hint', [('', '/', '~/.netrc'), ('alice:hunter2@', '/', 'refused'), ('', '/?sig=tok3n', 'expired')])
def test_a_refusal_says_what_to_do(user, path, hint):
    with BadServer(CONTENT, [status('401 Unauthorized')]) as server:
        assert hint in fetch(server.url(path, user)).failures[0][1]


# ---- servers of S3 ----

SERVICES = '[profile work]\nservices = mine\nendpoint_url = http://profile.example\n[services mine]\ns3 =\n  endpoint_url = http://services.example\n'
QUOTED = '[profile "my work"]\nregion = eu-west-3\nendpoint_url = http://quoted.example\n'
WORK = {'AWS_PROFILE': 'work'}
# The configuration, variables, and the server that is asked; None: that of Amazon. botocore 1.43 asks the same, but refuses blanks in brackets.
SERVERS = {
    'services of the profile': (SERVICES, WORK, 'services.example/bucket/key'),
    'a variable before them': (SERVICES, {**WORK, 'AWS_ENDPOINT_URL': 'http://variable.example'}, 'variable.example/bucket/key'),
    'services without s3': (SERVICES.replace('s3 =', 'sts ='), WORK, 'profile.example/bucket/key'),
    'ignored': (SERVICES, {**WORK, 'AWS_IGNORE_CONFIGURED_ENDPOINT_URLS': 'true', 'AWS_ENDPOINT_URL': 'http://variable.example'}, None),
    'ignored by the profile': (SERVICES.replace('services =', 'ignore_configured_endpoint_urls = true\nservices ='), WORK, None),
    'a quoted profile': (QUOTED, {'AWS_PROFILE': 'my work'}, 'quoted.example/bucket/key'),
    'blanks in a section': (QUOTED.replace('profile "my work"', ' profile \t\'my work\' '), {'AWS_PROFILE': 'my work'}, 'quoted.example/bucket/key'),
    'another variable': (SERVICES, {'AWS_DEFAULT_PROFILE': 'work'}, 'services.example/bucket/key'),
    'which goes first': (SERVICES + QUOTED, {'AWS_DEFAULT_PROFILE': 'work', 'AWS_PROFILE': 'my work'}, 'services.example/bucket/key'),
    'profile default': ('[profile default]\nendpoint_url = http://default.example\n', {}, 'default.example/bucket/key'),
    'virtual': (SERVICES.replace('services =', 's3 =\n  addressing_style = virtual\nservices ='), WORK, 'bucket.services.example/key'),
    'path': ('[default]\ns3 =\n    addressing_style = path\n', {'AWS_ENDPOINT_URL': 'http://s3.eu-west-3.amazonaws.com'},
             's3.eu-west-3.amazonaws.com/bucket/key'),
    'not virtual, of another profile': (SERVICES + '[profile x]\ns3 =\n  addressing_style = virtual\n', WORK, 'services.example/bucket/key'),
}


@pytest.mark.parametrize('name', SERVERS)
def test_the_server_of_s3_is_the_one_that_boto3_asks(name, folder):
    config, env, expected = SERVERS[name]
    write(folder / '.aws/config', config)
    with BadServer(CONTENT) as server:
        env = {'http_proxy': server.origin, 'https_proxy': 'http://127.0.0.1:1', **env}
        got = fetch('s3://bucket/key', env=env, home=folder, retries=0)
    if expected is None:  # that of Amazon, by https
        assert not server.requests and got.failures[0][0] == 'EHOSTUNREACH'
    else:
        assert got.data == CONTENT[:1000] and server.requests[0].path == 'http://' + expected


@pytest.mark.parametrize('config, env, word', [
    ('[default]\nuse_dualstack_endpoint = true\n', {}, 'use_dualstack_endpoint'), ('[default]\nuse_fips_endpoint=True\n', {}, 'use_fips_endpoint'),
    ('[default]\ns3 =\n use_accelerate_endpoint = true\n', {}, 'use_accelerate_endpoint'),
    ('[default]\ns3 =\n use_dualstack_endpoint = true\n', {}, 'use_dualstack_endpoint'),
    ('', {'AWS_USE_FIPS_ENDPOINT': 'true'}, 'AWS_USE_FIPS_ENDPOINT'), ('', {'AWS_USE_DUALSTACK_ENDPOINT': '1'}, 'AWS_USE_DUALSTACK_ENDPOINT'),
    ('[default]\ns3 =\n addressing_style = other\n', {}, 'addressing_style'),
    ('', {'AWS_DEFAULT_PROFILE': 'none'}, "AWS_DEFAULT_PROFILE names the profile 'none'")])
def test_a_server_of_s3_that_is_not_asked_is_refused_by_name(config, env, word, folder):
    write(folder / '.aws/config', config)
    with BadServer(CONTENT) as server:
        proxies = {'http_proxy': server.origin, 'https_proxy': server.origin}
        got = fetch('s3://bucket/key', env={**proxies, **env}, home=folder, retries=0)
        assert got.failures[0][0] == 'EINVAL' and word in got.failures[0][1] and not server.requests
        if 'use_' in config:  # a server that is named is the one
            env = {**proxies, **env, 'AWS_ENDPOINT_URL_S3': 'http://s3.example'}
            assert fetch('s3://bucket/key', env=env, home=folder).data == CONTENT[:1000]


def test_a_version_of_an_object_is_refused_by_name():
    assert 'a version of an object cannot be named' in fetch('s3://bucket/key?versionId=abc').failures[0][1]


# ---- connections ----

def test_requests_share_a_connection_where_they_can(folder, serve):
    (folder / 'x').write_bytes(CONTENT * 100)
    server = serve(folder)
    words = ['%d+10000' % (i * 10000) for i in range(40)]
    for is_tls, protocol in ((True, 'HTTP/2.0'), (False, 'HTTP/1.1')):
        server.forget()
        assert fetch(server.url('x', is_tls), *words, env={'CURL_CA_BUNDLE': str(server.certificate)}).data == (CONTENT * 100)[:400000]
        requests = server.requests()
        assert len(requests) == 41 and {request.protocol for request in requests} == {protocol}
        n_connections = len({request.connection for request in requests})
        assert n_connections == 1 if is_tls else n_connections <= 16


# ---- TLS and proxies ----

@pytest.fixture(scope='module')
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp('tls')
    make_certificate(folder, '127.0.0.1')
    return folder


def test_a_certificate_is_verified_and_the_environment_says_by_what(certificate):
    with BadServer(CONTENT, certificate=certificate) as server:
        got = fetch(server.url())
        assert got.failures[0][0] == 'EACCES' and 'CURL_CA_BUNDLE' in got.failures[0][1] and not server.requests
        assert server.n_connections == 1  # it is not tried again
        for name in ('CURL_CA_BUNDLE', 'SSL_CERT_FILE'):
            assert fetch(server.url(), '1+2', env={name: str(certificate / 'certificate')}).data == CONTENT[1:3]
        got = fetch(server.url(), env={'CURL_CA_BUNDLE': '/nonexistent'})
        assert got.failures[0][0] == 'EINVAL' and 'CURL_CA_BUNDLE' in got.failures[0][1]


def test_a_certificate_for_another_host_is_refused(folder):
    make_certificate(folder, '127.0.0.9')
    with BadServer(CONTENT, certificate=folder) as server:
        got = fetch(server.url(), env={'CURL_CA_BUNDLE': str(folder / 'certificate')})
    assert got.failures[0][0] == 'EACCES' and not server.requests


def test_a_redirect_from_https_to_http_is_refused(certificate):
    trust = {'CURL_CA_BUNDLE': str(certificate / 'certificate')}
    with BadServer(CONTENT) as plain, BadServer(CONTENT, [redirect(plain.url())], certificate=certificate) as server:
        got = fetch(server.url(), env=trust)
        assert got.failures == [('EIO', 'the server redirects from https to http, which is not followed')] and not plain.requests
        with BadServer(CONTENT, [redirect(server.url())]) as first:
            assert fetch(first.url(), env=trust).data == CONTENT[:1000]


def test_the_proxy_of_the_environment_is_used():
    def proxy(exchange):
        assert exchange.request.headers['proxy-authorization'] == basic('alice', 'hunter2')
        honest(exchange)
    with BadServer(CONTENT, default=proxy) as server:
        env = {'http_proxy': server.url('', 'alice:hunter2@')}
        assert fetch('http://no.such.example/x', '1+2', env=env).data == CONTENT[1:3]
        assert server.requests[0].path == 'http://no.such.example/x'
        assert fetch('http://no.such.example/x', env={**env, 'no_proxy': 'example'}).failures and len(server.requests) == 2


@pytest.mark.parametrize('proxy, text', [('http://alice:hunter2@no.such.example:1', 'proxy'), ('hunter2://alice:hunter2@x', ''),
                                         ('http://alice:hunter2@x:y', '')])
def test_a_proxy_that_is_wrong_shows_no_password(proxy, text):
    got = fetch('https://no.such.example/x', env={'https_proxy': proxy})
    assert len(got.failures) == 1 and text in got.failures[0][1]


def test_a_proxy_that_refuses_is_named():
    with BadServer(CONTENT, [status('407 Proxy Authentication Required')], forever=True) as server:
        for scheme in ('http', 'https'):
            got = fetch(scheme + '://no.such.example/x', env={scheme + '_proxy': server.url('', 'alice:hunter2@')})
            assert got.failures[0][0] == 'EACCES' and 'proxy' in got.failures[0][1]
    assert len(server.requests) == 2
