# SPDX-License-Identifier: MIT
"""URLs. The server is a thread of this process: it answers only because calls of the library release the lock of Python."""
import contextlib
import http.server
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

weightfs = pytest.importorskip('weightfs')


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the working directory, and ranges of its files."""
    n_sent = 0

    def do_GET(self):
        data = pathlib.Path(self.path.lstrip('/')).read_bytes()
        found = re.fullmatch(r'bytes=(\d+)-(\d*)', self.headers.get('Range', ''))
        first, last = (int(found[1]), min(int(found[2] or len(data)), len(data) - 1)) if found else (0, len(data) - 1)
        self.send_response(206 if found else 200)
        if found:
            self.send_header('Content-Range', 'bytes %d-%d/%d' % (first, last, len(data)))
        self.send_header('Accept-Ranges', 'bytes')
        self.send_header('ETag', '"1"')
        self.send_header('Content-Length', str(last + 1 - first))
        self.end_headers()
        Handler.n_sent += last + 1 - first
        self.wfile.write(data[first:last + 1])

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def address(sample):
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Handler.n_sent = 0
    yield 'http://127.0.0.1:%d' % server.server_port
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def opened(url, **options):
    try:
        ckpt = weightfs.open(url, **options)
    except weightfs.Error as error:
        if 'libcurl' in str(error):
            pytest.skip(str(error))
        raise
    with ckpt:
        yield ckpt


def test_a_url_is_a_checkpoint(address, sample):
    local = weightfs.open(sample)
    with opened('%s/%s' % (address, sample), remap='s/^pooler/head/') as ckpt:
        assert len(ckpt) == 41
        assert ckpt['head.dense.weight'].tobytes() == local['pooler.dense.weight'].tobytes()
        assert ckpt['head.dense.bias'][3:5].tolist() == local['pooler.dense.bias'][3:5].tolist()


def test_a_child_is_refused_or_reads(address, sample):
    """No hang, and nothing wrong: a child has the bytes, or an error; the parent goes on."""
    with opened('%s/%s' % (address, sample)) as ckpt:
        expected = weightfs.open(sample)['embeddings.word.weight'].tobytes()
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(0 if ckpt['embeddings.word.weight'].tobytes() == expected else 1)
            except weightfs.Error:
                os._exit(0)
            finally:
                os._exit(2)
        assert os.waitpid(pid, 0)[1] == 0
        assert ckpt['embeddings.word.weight'].tobytes() == expected


def test_errors(address):
    with pytest.raises(weightfs.Error, match='none.safetensors'):
        with opened(address + '/none.safetensors', retries=0):
            pass


@pytest.mark.parametrize('answer', [b'', b'HTTP/1.1 206 \r\nContent-Range: bytes 0-99999/900000\r\nETag: "1"\r\nContent-Length: 100000\r\n\r\n\x40\x42\x0f'],
                         ids=['silent', 'half'])
@pytest.mark.parametrize('call', ['weightfs.open(url)', 'weightfs.open(path, lora=url)', 'weightfs.convert(url, "out.pth")'])
def test_ctrl_c_ends_the_wait_for_a_server(sample, answer, call):
    """One that says nothing, and one that stops in the middle."""
    code = ('import signal, sys, weightfs\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n_, url, path = sys.argv\n'
            'try:\n    %s\nexcept KeyboardInterrupt: print("stopped")\nexcept weightfs.Error as error: print(error)' % call)
    with socket.create_server(('127.0.0.1', 0)) as server:
        server.settimeout(0.1)
        url = 'http://127.0.0.1:%d/a.safetensors' % server.getsockname()[1]
        child = subprocess.Popen([sys.executable, '-c', code, url, sample], stdout=subprocess.PIPE, encoding='utf-8')
        try:
            connection = None
            for _ in range(200):
                with contextlib.suppress(socket.timeout):
                    connection = server.accept()[0]
                    break
                if child.poll() is not None:
                    text = child.stdout.read()
                    assert 'libcurl' in text
                    pytest.skip(text)
            connection.settimeout(20)
            connection.recv(1)
            connection.sendall(answer)
            child.send_signal(signal.SIGINT)
            assert child.communicate(timeout=10)[0] == 'stopped\n'
            connection.close()
        finally:
            child.kill()
            child.wait()
    assert not os.path.exists('out.pth')
