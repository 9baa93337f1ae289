# SPDX-License-Identifier: MIT
"""Files behind nginx on the loopback: ranges, ETags, TLS with a certificate of its own, HTTP/2, and a log of what went over the wire."""
import collections
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse

PATIENCE = 60
NGINX = shutil.which('nginx', path='/usr/sbin:/usr/bin:' + os.environ.get('PATH', ''))
WHY_NOT = None if NGINX and shutil.which('openssl') else 'no nginx or no openssl'

# One answer: n_sent counts its header too, as it went over the wire (before TLS); range is None where none was asked.
Request = collections.namedtuple('Request', 'seconds method path range match status n_body n_sent protocol connection')

CONF = """
%(user)s
daemon off;
worker_processes 1;
pid pid;
error_log error.log;
events { worker_connections 1024; }
http {
    client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp; uwsgi_temp_path temp; scgi_temp_path temp;
    default_type application/octet-stream;
    types { }
    sendfile on;
    tcp_nopush on;
    keepalive_requests 100000;
    log_format wire escape=json '["$msec","$request_method","$request_uri","$http_range","$http_if_match$http_if_unmodified_since",'
                                '"$status","$body_bytes_sent","$bytes_sent","$server_protocol","$connection"]';
    ssl_certificate certificate;
    ssl_certificate_key key;
    server {
        listen %(address)s:%(port)d;
        listen %(address)s:%(tls_port)d ssl http2;
        root "%(root)s";
        access_log access.log wire;
        %(more)s
    }
    server {
        listen unix:status;
        access_log off;
        location / { stub_status; }
    }
}
"""


def make_certificate(folder, address):
    """A certificate for localhost and the address, signed by itself: its own authority."""
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2',
                    '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:' + address,
                    '-keyout', folder / 'key', '-out', folder / 'certificate'], stderr=subprocess.DEVNULL, check=True)


def free_ports(n):
    sockets = [socket.create_server(('127.0.0.1', 0)) for _ in range(n)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Nginx:
    """Serves the files below a folder until it is closed. `more` are directives of its server; `wrap` is put before the command, for a
    namespace of its own, where `address` is then the server's."""

    def __init__(self, root, more='', address='127.0.0.1', wrap=()):
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix='served'))
        self._process = None
        self.address, self.wrap, self.root, self.more = address, wrap, pathlib.Path(root).resolve(), more
        self.certificate = self._folder / 'certificate'
        make_certificate(self._folder, address)
        self._ask_for_ports()

    def _ask_for_ports(self):
        for _ in range(5):
            self.port, self.tls_port = free_ports(2)
            if self._begin():
                return
        raise AssertionError('nginx does not start: ' + (self._folder / 'error.log').read_text())

    def _begin(self):
        words = dict(vars(self), user='user root;' if os.geteuid() == 0 else '')
        (self._folder / 'conf').write_text(CONF % words)
        (self._folder / 'status').unlink(missing_ok=True)
        self._process = subprocess.Popen([*self.wrap, 'setpriv', '--pdeathsig', 'TERM', NGINX, '-p', '.', '-c', 'conf', '-e', 'error.log'],
                                         cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE
        while self.n_writing() is None:
            if self._process.poll() is not None:
                return False
            assert time.monotonic() < deadline, 'nginx does not answer'
            time.sleep(0.01)
        return True

    def n_writing(self):
        """Answers under way, this one among them; None while nobody answers."""
        try:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.connect(os.fspath(self._folder / 'status'))
                asking.sendall(b'GET / HTTP/1.0\r\n\r\n')
                text = b''.join(iter(lambda: asking.recv(4096), b''))
            return int(text.split(b'Writing:')[1].split()[0])
        except (OSError, IndexError):
            return None

    def url(self, path='', tls=False):
        """The URL of a file below the root, given by its path there or by its path. What lies there is not new any more: a reader waits
        two seconds for the validator of a new one."""
        self.age()
        path = pathlib.Path(path)
        if path.is_absolute():
            path = (path.parent.resolve() / path.name).relative_to(self.root)
        host = 'https://%s:%d' % (self.address, self.tls_port) if tls else 'http://%s:%d' % (self.address, self.port)
        return host + '/' + urllib.parse.quote(os.fspath(path))

    def age(self, seconds=3600):
        """Dates what was written just now earlier."""
        for path in self.root.rglob('*'):
            if path.is_file() and path.stat().st_mtime > time.time() - 10:
                os.utime(path, (time.time(), path.stat().st_mtime - seconds))

    def in_urls(self, text, path, tls=False):
        """A text about a file, and files beside it, as it is about their URLs."""
        for one in (path, path.parent):
            text = text.replace(os.fspath(one), self.url(one, tls))
        return text

    def requests(self):
        """Every answer so far, once none is under way."""
        deadline = time.monotonic() + PATIENCE
        while self._process.poll() is None and self.n_writing() != 1:
            assert time.monotonic() < deadline, 'an answer does not end'
            time.sleep(0.01)
        lines = (self._folder / 'access.log').read_text().splitlines()
        return [self._request(*json.loads(line)) for line in lines]

    @staticmethod
    def _request(seconds, method, path, asked, match, status, n_body, n_sent, protocol, connection):
        return Request(float(seconds), method, urllib.parse.unquote(path).lstrip('/'), asked or None, match or None, int(status), int(n_body),
                       int(n_sent), protocol, int(connection))

    def forget(self):
        """Later counts begin here."""
        self.requests()
        os.truncate(self._folder / 'access.log', 0)

    def n_bytes(self):
        return sum(request.n_sent for request in self.requests())

    def die(self):
        """As a machine does: connections are cut, and new ones refused."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE)

    def revive(self):
        """On the same ports."""
        assert self._begin(), (self._folder / 'error.log').read_text()

    def close(self):
        if self._process and self._process.poll() is None:
            self.die()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
