# SPDX-License-Identifier: MIT
"""S3 as a behaviour of BadServer: every signature is computed again by botocore, from what the client has sent."""
import collections
import datetime
import re
import urllib.parse

from botocore.auth import SIGV4_TIMESTAMP, S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.utils import percent_encode

from .bad_server import honest

AUTHORIZATION = re.compile(r'AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)')
Account = collections.namedtuple('Account', 'key secret token region', defaults=(None, 'us-east-1'))


def signature(account, request, host, path, names):
    """What botocore signs for the headers of these names."""
    signed = AWSRequest(method=request.method, url='http://%s%s' % (host, path),
                        headers={name: request.headers[name] for name in names if name != 'host'})
    signed.context['timestamp'] = request.headers['x-amz-date']
    signer = S3SigV4Auth(Credentials(account.key, account.secret), 's3', account.region)
    return signer.signature(signer.string_to_sign(signed, signer.canonical_request(signed)), signed)


def refuse(exchange, status, code, **headers):
    body = '<?xml version="1.0"?>\n<Error><Code>%s</Code><Message>No</Message></Error>' % code
    exchange.answer(status, body.encode(), Content_Type='application/xml', **headers)


def problem(account, request, path):
    """The code of S3 for a request that is not signed as it should be, or None."""
    match = AUTHORIZATION.fullmatch(request.headers.get('authorization', ''))
    if account is None or match is None:
        return None if account is None and 'authorization' not in request.headers else 'AccessDenied'
    key, day, region, names, got = match.groups()
    names = names.split(';')
    when = datetime.datetime.strptime(request.headers['x-amz-date'], SIGV4_TIMESTAMP)
    if key != account.key or region != account.region:
        return 'InvalidAccessKeyId'
    if day != when.strftime('%Y%m%d') or abs(datetime.datetime.utcnow() - when) > datetime.timedelta(minutes=15):
        return 'RequestTimeTooSkewed'
    if request.headers.get('x-amz-security-token') != account.token or 'x-amz-content-sha256' not in request.headers:
        return 'InvalidToken'
    if not {'host', *(name for name in request.headers if name.startswith('x-amz-'))} <= set(names):
        return 'AccessDenied'
    host = request.headers['host']
    return None if got == signature(account, request, host, path, names) else 'SignatureDoesNotMatch'


def bucket(account, name, key, style='path'):
    """Serves one object; account None: to everybody, and then nothing may be signed."""
    def behave(exchange):
        request = exchange.request
        url = urllib.parse.urlsplit(request.path)
        path = urllib.parse.unquote(url.path)
        host = request.headers['host']
        expected = '/%s/%s' % (name, key) if style == 'path' else '/' + key
        # The service writes the path as it should be written, whatever the client has written.
        why = problem(account, request, percent_encode(path, safe='/~'))
        if why is not None:
            refuse(exchange, '403 Forbidden', why)
        elif path != expected or (style == 'host' and not host.startswith(name + '.s3.')):
            refuse(exchange, '404 Not Found', 'NoSuchKey')
        else:
            honest(exchange)
    return behave
