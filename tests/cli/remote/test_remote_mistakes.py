# SPDX-License-Identifier: MIT
"""Mistakes that people make with URLs: one line, which names what is wrong and what to do, the exit code of its kind, and no secret."""
import pathlib
import socket
import subprocess
import threading

import pytest

from wfs_testlib import program, st
from wfs_testlib.bad_server import BadServer, redirect, status
from wfs_testlib.engine import CLEAN, WHY_NOT
from wfs_testlib.hub_server import hub
from wfs_testlib.mount import children, wait_for
from wfs_testlib.program import EXIT_COMMIT, EXIT_DAMAGED, EXIT_SOURCE, EXIT_UNSUPPORTED, EXIT_USAGE, weightfs
from wfs_testlib.served import make_certificate

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
SECRETS = ('hunter2', 'alice', 'tok3n', 'hf_s3cret', 'AKIAS3CRET', 'aws5ecret')
KEYS = {'AWS_ACCESS_KEY_ID': 'AKIAS3CRET', 'AWS_SECRET_ACCESS_KEY': 'aws5ecret', 'AWS_SESSION_TOKEN': 'tok3n'}
NOT_READ = 'cannot open it: URLs of this kind are not read, only https, http, s3 and hf; download it first'
HUB_NAME = 'expected hf://OWNER/NAME[@REVISION][/PATH], a repository of a model'
CODES = '; in a user or password, / ? # @ are written %2F %3F %23 %40'
PORT = 'the URL is not well-formed: Port number was not a decimal number between 0 and 65535'
NOT_LOCAL = 'cannot open the directory of the output: No such file or directory; an output is a local file, not a URL'


def run(*words, code, env=None, cwd=None):
    done = weightfs(words[0], '--retries=0', *words[1:], code=code, env={**CLEAN, 'HOME': '/nonexistent', **(env or {})}, cwd=cwd)
    assert not any(secret in done.stdout + done.stderr for secret in SECRETS), done.stderr
    return done.error


# What is wrong can be seen without a server, or there is none: the URL, what of it is shown, exit code, message.
NAMES = [
    ('http://no.such.invalid/x', None, EXIT_SOURCE, 'Could not resolve host: no.such.invalid'),
    ('http://[::1]:1/x', None, EXIT_SOURCE, 'cannot connect: '),
    ('http://[fe80::1%25lo]:1/x', None, EXIT_SOURCE, 'cannot connect: '),
    ('http://127.0.0.1:0/x', None, EXIT_SOURCE, 'cannot connect: '),
    (' http://h/x', None, EXIT_SOURCE, 'cannot open it: leave out the blank before the URL'),
    ('http://h/x\n', 'http://h/x\\x0a', EXIT_USAGE, 'the URL is not well-formed: '),
    ('http://', None, EXIT_USAGE, 'the URL is not well-formed: No host part in the URL'),
    ('http://h:99999/x', None, EXIT_USAGE, PORT),
    ('http://h:-1/x', None, EXIT_USAGE, PORT),
    ('http://h:http/x', None, EXIT_USAGE, PORT),
    ('http://::1/x', None, EXIT_USAGE, PORT),
    ('http://[fe80::1%25l o]/x', None, EXIT_USAGE, 'the URL is not well-formed'),
    ('http://[fe80::1%25lo\r\nX: y]/x', 'http://[fe80::1%25lo\\x0d\\x0aX: y]/x', EXIT_USAGE, 'the URL is not well-formed'),
    ('http://[::1/x', None, EXIT_USAGE, 'the URL is not well-formed: Bad IPv6 address'),
    ('http://münchen.example/x', None, EXIT_USAGE, 'the host has letters that are not ASCII: write it as xn--...'),
    ('http:/h/x', None, EXIT_SOURCE, "cannot open it: No such file or directory; a URL has '://' after its scheme"),
    ('hf:a/b', None, EXIT_SOURCE, "cannot open it: No such file or directory; a URL has '://' after its scheme"),
    ('http://alice:hunter2/x@h/x', 'http://h/x', EXIT_USAGE, PORT + CODES),
    ('http://alice:hunter2#x@h/x', 'http://h/x', EXIT_USAGE, PORT + CODES),
    ('http://alice:hunter2?x@h/x', 'http://h/x', EXIT_USAGE, PORT + CODES),
    ('http://alice:hunter2@x@h/x', 'http://h/x', EXIT_USAGE, 'the URL is not well-formed: Bad hostname' + CODES),
    ('ftp://alice:hunter2@h/x?sig=tok3n', 'ftp://h/x', EXIT_SOURCE, NOT_READ),
    ('htp://alice:hunter2@h/x#tok3n', 'htp://h/x', EXIT_SOURCE, NOT_READ),
    ('gs://bucket/key', None, EXIT_SOURCE, NOT_READ),
    ('file:///x', None, EXIT_SOURCE, "cannot open it: name the file without 'file://'"),
    ('hf://a', None, EXIT_USAGE, HUB_NAME),
    ('hf://', None, EXIT_USAGE, HUB_NAME),
    ('hf://datasets/a/b/c', None, EXIT_USAGE, HUB_NAME),
    ('hf://models/a/b', None, EXIT_USAGE, HUB_NAME),
    ('https://huggingface.co/a/b', None, EXIT_USAGE, 'it is the page of a repository; write hf://OWNER/NAME'),
    ('https://huggingface.co/a/b/tree/main', None, EXIT_USAGE, 'it is the page of a repository; write hf://OWNER/NAME'),
    ('https://huggingface.co/a/b/blob/main/model.safetensors', None, EXIT_USAGE, "it is the page of a file; write 'resolve' in place of 'blob'"),
    ('s3://bucket', None, EXIT_USAGE, 'expected s3://BUCKET/KEY'),
    ('s3://bucket/', None, EXIT_USAGE, 'expected s3://BUCKET/KEY'),
    ('s3://arn:aws:s3:::bucket/key', None, EXIT_USAGE, 'expected s3://BUCKET/KEY'),
    ('http://h/' + 'x' * 20000, None, EXIT_USAGE, 'the URL is longer than 16384 bytes'),
]


@pytest.mark.parametrize('url, shown, code, text', NAMES, ids=[row[0][:40].strip() for row in NAMES])
def test_each_mistake_in_a_url(url, shown, code, text):
    assert run('ls', url, code=code).startswith('%s: %s' % (shown or url, text))


# Malformed, with what of it is shown and what the message says.
MALFORMED = [
    (' https://alice:hunter2@h/x?sig=tok3n', ' https://h/x', 'leave out the blank before the URL'),
    ("'https://alice:hunter2@h/x?sig=tok3n'", "'https://h/x", 'a URL has nothing before its scheme'),
    ('\u201chttps://alice:hunter2@h/x?sig=tok3n\u201d', '\u201chttps://h/x', 'a URL has nothing before its scheme'),
    ('=https://alice:hunter2@h/x#tok3n', '=https://h/x', 'a URL has nothing before its scheme'),
    ('(see s3://alice:hunter2@h/x)', '(see s3://h/x)', 'a URL has nothing before its scheme'),
    ('1https://alice:hunter2@h/x', '1https://h/x', 'a URL has nothing before its scheme'),
    ('https:/alice:hunter2@h/x?sig=tok3n', 'https:/h/x', "a URL has '://' after its scheme"),
    ('https:alice:hunter2@h/x?sig=tok3n', 'https:h/x', "a URL has '://' after its scheme"),
    ('https:\\\\alice:hunter2@h/x?sig=tok3n', 'https:h/x', "a URL has '://' after its scheme"),
    ('https:///alice:hunter2@h/x?sig=tok3n', 'https:///h/x', 'Could not resolve host: h'),
    ('htps://alice:hunter2@h/x?sig=tok3n', 'htps://h/x', 'URLs of this kind are not read'),
]


@pytest.mark.parametrize('url, shown, text', MALFORMED, ids=[row[1] for row in MALFORMED])
@pytest.mark.parametrize('words', [['ls'], ['convert', '--like'], ['check', '--overlay'], ['MOUNT'], ['-o', 'like=']], ids=lambda words: words[-1])
def test_a_malformed_url_keeps_its_secrets(url, shown, text, words, small):
    """In the message, and from the first moment on in the command line."""
    command = {'ls': ['ls', url], 'convert': ['convert', '--like', url, small, 'out.safetensors'], 'check': ['check', '--overlay', '(x)=>' + url, small],
               'MOUNT': [url, 'mnt'], '-o': [small, 'mnt', '-o', 'format=burnpack,like=' + url]}[words[0]]
    (small.parent / 'mnt').mkdir()
    done = subprocess.run([*program.COMMAND, *command], capture_output=True, env={**CLEAN, 'HOME': '/nonexistent'}, cwd=small.parent, check=False,
                          timeout=program.PATIENCE)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode != 0 and not any(secret in said for secret in SECRETS), said
    if words == ['ls']:
        assert shown in said and text in said.replace("Couldn't", 'Could not')


OPTIONS = [
    ('--cache-size=abc', EXIT_USAGE, "--cache-size must be a size of at least 128M, such as 20G, not 'abc'"),
    ('--cache-size=0', EXIT_USAGE, "--cache-size must be a size of at least 128M, such as 20G, not '0'"),
    ('--retries=-1', EXIT_USAGE, "--retries must be a number from 0 to 100, not '-1'"),
    ('--timeout=5m', EXIT_USAGE, "--timeout must be a number from 0 to 86400, not '5m'"),
    ('--endpoint=alice:hunter2@h', EXIT_USAGE, '--endpoint must be a URL with http or https, such as http://HOST:9000'),
    ('--cache=', EXIT_USAGE, '--cache must be a directory'),
    ('--cache=~/x', EXIT_SOURCE, "http://h/x: cannot make the directory of the cache '~/x': No such file or directory; the shell did not expand "
     "the '~', write $HOME"),
    ('--cache=none/x', EXIT_SOURCE, "http://h/x: cannot make the directory of the cache 'none/x': No such file or directory"),
    ('--cache=/dev/null', EXIT_SOURCE, "http://h/x: cannot open the directory of the cache '/dev/null': Not a directory"),
]


@pytest.mark.parametrize('option, code, text', OPTIONS, ids=[row[0] for row in OPTIONS])
def test_each_mistake_in_an_option(option, code, text, folder):
    assert run('ls', option, 'http://h/x', code=code, cwd=folder).startswith(text)


# Variable names and values; a name; exit code and message. HERE is an address where nobody answers.
SETTINGS = [
    ({'http_proxy': 'http://alice:hunter2@HERE'}, 'http://h.invalid/x', EXIT_SOURCE, 'cannot connect: Connection refused; http_proxy names a proxy'),
    ({'https_proxy': 'http://alice:hunter2@HERE'}, 'https://h.invalid/x', EXIT_SOURCE, 'cannot connect: Connection refused; https_proxy names a proxy'),
    ({'all_proxy': 'alice:hunter2@HERE'}, 'https://h.invalid/x', EXIT_SOURCE, 'cannot connect: Connection refused; all_proxy names a proxy'),
    ({'http_proxy': 'foo://alice:hunter2@h'}, 'http://h.invalid/x', EXIT_SOURCE, 'cannot connect; http_proxy names a proxy'),
    ({'http_proxy': 'http://alice:hunter2@no.such.invalid'}, 'http://h.invalid/x', EXIT_SOURCE, "Could not resolve proxy name; http_proxy or "),
    ({'CURL_CA_BUNDLE': '/nonexistent'}, 'https://HERE/x', EXIT_SOURCE, 'cannot connect: '),
    ({'HF_ENDPOINT': 'huggingface.co'}, 'hf://a/b', EXIT_USAGE, 'HF_ENDPOINT is not a URL of http or https'),
    ({'HF_TOKEN': 'hf_s3cret x'}, 'hf://a/b', EXIT_USAGE, 'the token of the Hub has blanks or other unusual characters in it; set HF_TOKEN'),
    ({'AWS_PROFILE': 'none'}, 's3://b/k', EXIT_USAGE, "AWS_PROFILE names the profile 'none', which is neither in "),
    ({'AWS_ACCESS_KEY_ID': 'AKIAS3CRET'}, 's3://b/k', EXIT_USAGE, 'one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set; set both or none'),
    ({'AWS_REGION': 'us east 1'}, 's3://b/k', EXIT_USAGE, "the AWS region 'us east 1' is malformed; set AWS_REGION"),
    ({'AWS_ENDPOINT_URL': 'alice:hunter2@h'}, 's3://b/k', EXIT_USAGE, 'the endpoint for s3:// is not a URL of http or https; '),
]


@pytest.mark.parametrize('env, url, code, text', SETTINGS, ids=['%s %s' % (row[1], *row[0]) for row in SETTINGS])
def test_each_mistake_in_the_environment(env, url, code, text):
    with socket.create_server(('127.0.0.1', 0)) as port:
        here = '127.0.0.1:%d' % port.getsockname()[1]
    env = {name: value.replace('HERE', here) for name, value in env.items()}
    said = run('ls', url.replace('HERE', here), code=code, env=env)
    assert ': ' + text in said.replace("Couldn't", 'Could not')  # as newer versions of libcurl say


ANSWERS = [
    ('http', '401 Unauthorized', None, EXIT_SOURCE, '; put a user and password for this host into ~/.netrc'),
    ('user', '403 Forbidden', None, EXIT_SOURCE, '; the user and password of the URL or of ~/.netrc are refused'),
    ('query', '403 Forbidden', None, EXIT_SOURCE, '; if the URL is signed, it has expired: get a new one'),
    ('directory', '403 Forbidden', None, EXIT_SOURCE, '; the URL names a directory: name a file in it'),
    ('directory', '404 Not Found', None, EXIT_SOURCE, '; the URL names a directory: name a file in it'),
    ('http', '404 Not Found', None, EXIT_SOURCE, 'the server answers 404 (not found)'),
    ('http', '302 Found', None, EXIT_DAMAGED, 'the server answers 302 (moved) without a Location'),
    ('http', '204 No Content', None, EXIT_DAMAGED, 'the server answers 204'),
    ('s3', '400 Bad Request', 'ExpiredToken', EXIT_SOURCE, '; renew AWS_SESSION_TOKEN and the keys that belong to it'),
    ('s3', '400 Bad Request', 'InvalidToken', EXIT_SOURCE, '; AWS_SESSION_TOKEN is not the one that belongs to the keys'),
    ('s3', '301 Moved', 'PermanentRedirect', EXIT_SOURCE, '; the bucket is in another region, which AWS_REGION sets'),
    ('s3', '403 Forbidden', 'AccessDenied', EXIT_SOURCE, '; the keys of AWS_PROFILE or AWS_ACCESS_KEY_ID give no access, or there is no such object'),
    ('unsigned', '403 Forbidden', 'AccessDenied', EXIT_SOURCE, '; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (the role of a machine is not used)'),
    ('s3', '404 Not Found', 'NoSuchBucket', EXIT_SOURCE, 'NoSuchBucket'),
    ('proxy', '407 No', None, EXIT_SOURCE, 'the proxy answers 407; https_proxy names it, with user and password'),
    ('proxy', '403 No', None, EXIT_SOURCE, 'the proxy answers 403; https_proxy names it, with user and password'),
    ('proxy', '502 No', None, EXIT_SOURCE, 'the proxy answers 502; https_proxy names it, with user and password'),
]


@pytest.mark.parametrize('kind, answer, body, code, text', ANSWERS, ids=['%s %s %s' % (row[0], row[1], row[2]) for row in ANSWERS])
def test_each_refusal_says_what_to_do(kind, answer, body, code, text):
    def behave(exchange):
        exchange.answer(answer, b'<Error><Code>%s</Code></Error>' % body.encode() if body else b'')
    with BadServer(b'x' * 100, [behave], forever=True) as server:
        names = {'user': server.url('/x', 'alice:hunter2@'), 'query': server.url('/x?sig=tok3n'), 'directory': server.url('/x/?sig=tok3n'),
                 's3': 's3://bucket/key', 'unsigned': 's3://bucket/key',
                 'proxy': 'https://h.invalid/x'}
        env = {'AWS_ENDPOINT_URL': server.origin, 'https_proxy': server.url('', 'alice:hunter2@') if kind == 'proxy' else '',
               **(KEYS if kind == 's3' else {})}
        assert text in run('ls', names.get(kind, server.url('/x')), code=code, env=env)


@pytest.mark.parametrize('token, options, text', [
    (None, {'token': 'hf_s3cret'}, '; the repository is private or gated, or does not exist; set HF_TOKEN'),
    ('hf_s3cretX', {'token': 'hf_s3cret'}, '; the token is not valid, or the repository does not exist; check HF_TOKEN'),
    (None, {}, '; the repository has no file of a known name, such as model.safetensors: name the file')], ids=['no token', 'wrong token', 'no model'])
def test_a_repository_that_cannot_be_read(token, options, text):
    with BadServer(b'x', default=hub('a/b', [], **options)) as server:
        env = {'HF_ENDPOINT': server.origin, **({'HF_TOKEN': token} if token else {})}
        assert run('ls', 'hf://a/b', code=EXIT_SOURCE, env=env).endswith(text)
        # The page that shows the file in a browser, of a Hub that is another server.
        page = server.url('/a/b/blob/main/model.safetensors')
        assert "write 'resolve'" in run('ls', page, code=EXIT_USAGE, env=env)


def test_a_certificate_for_another_host(folder):
    make_certificate(folder, '127.0.0.9')
    with BadServer(b'x', certificate=folder) as server:
        error = run('ls', server.url(), code=EXIT_SOURCE, env={'CURL_CA_BUNDLE': str(folder / 'certificate')})
    assert 'certificate' in error and error.endswith('; CURL_CA_BUNDLE=FILE names the certificates to trust')


def test_https_where_the_server_speaks_http(serve, folder):
    url = serve(folder).url('x').replace('http:', 'https:')
    assert run('ls', url, code=EXIT_SOURCE).endswith('; does the server speak https there?')


def test_a_page_in_place_of_the_file_and_a_redirect_to_one():
    page = b'<!DOCTYPE html><html><body>Log in</body></html>'
    with BadServer(page) as login, BadServer(b'', default=redirect(login.url('/?sig=tok3n'))) as server:
        assert 'is an HTML page' in run('ls', server.url('/x'), code=program.EXIT_FOREIGN)


@pytest.mark.parametrize('words', [['convert', 'small.safetensors', 'http://alice:hunter2@h/x.safetensors'],
                                   ['convert', 'small.safetensors', 's3://bucket/x.safetensors'],
                                   ['edit', '--set-metadata=a=b', 'small.safetensors', 'ftp://alice:hunter2@h/x.safetensors']], ids=lambda words: words[0])
def test_an_output_by_url(words, small):
    assert run(*words, code=EXIT_COMMIT, cwd=small.parent).endswith(': ' + NOT_LOCAL)


def test_other_names_by_url(small):
    url = 'http://alice:hunter2@h/x?sig=tok3n'
    assert 'http://h/x' in run('ls', '--rules', url, small, code=EXIT_SOURCE)
    assert 'http://h/x' in run('sum', '--check', url, small, code=EXIT_SOURCE)
    assert 'ftp://h/x' in run('plan', '--like', url.replace('http', 'ftp'), small, code=EXIT_SOURCE)


def test_a_server_that_is_busy_or_has_no_ranges():
    with BadServer(b'x', [status('503 Service Unavailable')], forever=True) as server:
        assert 'the server answers 503 (service unavailable)' in run('ls', server.url(), code=EXIT_DAMAGED)
    with BadServer(b'x', [status('200 OK', Content_Length=65 << 20)]) as server:
        assert '; download it' in run('ls', server.url(), code=EXIT_UNSUPPORTED)


def test_what_is_written_as_it_is_keeps_its_url(folder, small):
    text = 'https://alice:hunter2@h/x?sig=tok3n#f'
    for i, words in enumerate((['--set-metadata=from=' + text], ['--set-metadata', 'from=' + text])):
        target = folder / ('%d.safetensors' % i)
        weightfs('edit', *words, small, target)
        assert st.read(target).metadata['from'] == text


def command_lines(parent):
    """Of a process and its children."""
    return [pathlib.Path('/proc/%d/cmdline' % pid).read_bytes() for pid in (parent, *children(parent))]


def test_no_command_line_has_what_is_secret_while_a_verb_runs():
    is_seen = threading.Event()

    def wait(exchange):
        is_seen.wait(program.PATIENCE)
        exchange.answer('404 Not Found')
    with BadServer(b'x', [wait], forever=True) as server:
        url = server.url('/x?sig=tok3n', 'alice:hunter2@')
        verb = subprocess.Popen([*program.COMMAND, 'ls', '--overlay=' + url, '--include', ' ' + url, '--include', url.replace('://', ':/'), url],
                                env=CLEAN, stderr=subprocess.DEVNULL)
        wait_for(lambda: server.requests, 'a request')
        texts = command_lines(verb.pid)
        is_seen.set()
        assert verb.wait(program.PATIENCE) == EXIT_SOURCE
    assert len(texts) == 2 and not any(secret.encode() in text for secret in SECRETS for text in texts)
