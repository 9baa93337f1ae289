# SPDX-License-Identifier: MIT
"""Verbs on servers that misbehave: the bytes of the file, or one line and the exit code for it."""
import random
import time

import pytest

from wfs_testlib import st
from wfs_testlib.bad_server import BadServer, chunked, cut, flood, honest, raw, redirect, status, with_headers
from wfs_testlib.engine import SECRETS, WHY_NOT
from wfs_testlib.hub_server import hub
from wfs_testlib.program import EXIT_DAMAGED, EXIT_FOREIGN, EXIT_SOURCE, EXIT_UNSUPPORTED, weightfs
from wfs_testlib.served import make_certificate

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
MIB = 1 << 20
DATA = random.Random(5).randbytes(3 * MIB)


@pytest.fixture
def content(folder):
    st.write(folder / 'x', {'w': ('U8', [len(DATA)], DATA)})
    return (folder / 'x').read_bytes()


def url(server):
    return server.url('/folder/model.bin?sig=tok3n', 'alice:hunter2@')


def keeps_secrets(result):
    return not any(secret in result.stdout + result.stderr for secret in SECRETS)


def whole(exchange):
    exchange.answer('200 OK', exchange.content, ETag='"v1"')


@pytest.mark.parametrize('behaviours', [
    [honest, cut(MIB // 2)], [honest, cut(1000, is_chunked=True)], [status('503 Service Unavailable'), status('429 Too Many Requests')],
    [honest, with_headers(Content_Encoding='aws-chunked')], [with_headers(Content_Range='bytes 1-5/9')], [raw(b'')], [whole] * 9, [chunked] * 9],
    ids=['cut', 'ended early', 'busy', 'encoded', 'another range', 'closed', 'no ranges', 'no lengths'])
def test_a_verb_reads_what_the_file_has(behaviours, content):
    with BadServer(content, behaviours) as server:
        assert weightfs('cat', url(server), 'w').raw == DATA


def test_a_long_header_that_comes_slowly_costs_no_more(folder):
    """Its last part is not there when its turn comes: nothing behind it is asked for."""
    st.write(folder / 'x', {'w': ('U8', [6 * MIB], bytes(6 * MIB))}, {'note': 'x' * 6 * MIB})
    content = (folder / 'x').read_bytes()
    n_header = 8 + int.from_bytes(content[:8], 'little')

    def late(exchange):
        if exchange.range[0] >= n_header // (4 * MIB) * (4 * MIB):
            time.sleep(0.3)
        honest(exchange)

    with BadServer(content, default=late) as server:
        assert weightfs('ls', url(server)).stdout.startswith('w')
        ranges = [request.headers['range'].removeprefix('bytes=').split('-') for request in server.requests]
        assert sum(int(last) + 1 - int(first) for first, last in ranges) <= 1.1 * n_header


def test_a_verb_reads_through_a_redirect(content):
    with BadServer(content) as store, BadServer(content, default=redirect(store.url('/x?sig=tok3n'))) as server:
        assert weightfs('cat', url(server), 'w').raw == DATA
        assert len(server.requests) == 1 and not any('authorization' in request.headers for request in store.requests)


def test_paths_of_the_environment_may_be_relative(content, folder, monkeypatch):
    make_certificate(folder, '127.0.0.1')
    (folder / 'token').write_text('hf_s3cret')
    with BadServer(content, certificate=folder, default=hub('a/b', ['m'], 'hf_s3cret')) as server:
        monkeypatch.setenv('HF_ENDPOINT', server.origin)
        monkeypatch.setenv('HF_TOKEN_PATH', 'token')
        for name in ('CURL_CA_BUNDLE', 'SSL_CERT_FILE', 'SSL_CERT_DIR'):
            monkeypatch.delenv(name, raising=False)
        for name in ('CURL_CA_BUNDLE', 'SSL_CERT_FILE'):
            with monkeypatch.context() as here:
                here.setenv(name, 'certificate')
                assert weightfs('cat', 'hf://a/b/m', 'w', cwd=folder).raw == DATA
        assert 'certificate' in weightfs('ls', 'hf://a/b/m', cwd=folder, code=EXIT_SOURCE).error


@pytest.mark.parametrize('behaviour, code, text', [
    (status('404 Not Found'), EXIT_SOURCE, '404'), (status('403 Forbidden'), EXIT_SOURCE, 'refused'),
    (status('416 Range Not Satisfiable'), EXIT_FOREIGN, 'empty'), (status('500 No'), EXIT_DAMAGED, '500'),
    (status('200 OK', Content_Length=65 * MIB), EXIT_UNSUPPORTED, 'ranges'), (redirect('file:///etc/passwd'), EXIT_DAMAGED, "'file'"),
    (flood(b'HTTP/1.1 206 P\r\n', b'X-A: b\r\n' * 1000), EXIT_DAMAGED, 'headers')],
    ids=['missing', 'forbidden', 'empty', 'failing', 'no ranges', 'to a file', 'endless'])
def test_a_verb_reports_what_is_wrong(behaviour, code, text, content):
    with BadServer(content, [behaviour], forever=True) as server:
        result = weightfs('ls', '--retries=1', url(server), code=code)
        assert text in result.error and result.error.startswith(server.origin + '/folder/model.bin: ') and keeps_secrets(result)


@pytest.mark.parametrize('behaviour', [with_headers(ETag='"v2"'), status('412 Precondition Failed')], ids=['another ETag', '412'])
def test_a_verb_mixes_no_versions(behaviour, content):
    with BadServer(content, [honest, behaviour], forever=True) as server:
        result = weightfs('cat', url(server), 'w', code=EXIT_DAMAGED)
        assert DATA.startswith(result.raw) and len(result.raw) < len(DATA) and keeps_secrets(result)
