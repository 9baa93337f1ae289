# SPDX-License-Identifier: MIT
"""A server of one object that keeps to the protocol of HTTP ranges, or breaks it on order.

What it does with each request is a behaviour: a function of the exchange, which writes bytes. `BadServer(content, [a, b])` answers the
first request with `a`, the second with `b`, and all later ones as it should (or with the last one, if `forever`)."""
import base64
import collections
import contextlib
import email.utils
import socket
import ssl
import threading
import time

Request = collections.namedtuple('Request', 'method path headers time')
ETAG = '"v1"'
MODIFIED = 'Sat, 05 Sep 2026 10:11:12 GMT'


class Exchange:
    """One request, and the connection that its answer goes to."""

    def __init__(self, server, connection, request):
        self.server, self.connection, self.request = server, connection, request
        self.content = server.content
        self.extra = {}  # headers of each good answer

    @property
    def range(self):
        """(first, last) of what is asked for, inside of the object; None for the whole."""
        text = self.request.headers.get('range')
        if text is None:
            return None
        first, last = text.removeprefix('bytes=').split('-')
        return int(first), min(int(last), len(self.content) - 1)

    def send(self, data):
        self.connection.sendall(data)

    def head(self, status, headers):
        lines = ['HTTP/1.1 %s' % status] + ['%s: %s' % item for item in headers.items() if item[1] is not None]
        self.send(('\r\n'.join(lines) + '\r\n\r\n').encode('latin-1'))

    def answer(self, status, body=b'', **headers):
        named = {'Content-Length': len(body)}
        named.update({key.replace('_', '-'): value for key, value in headers.items()})
        self.head(status, named)
        self.send(body)

    def range_headers(self, **changes):
        first, last = self.range
        headers = {'Content-Length': last - first + 1, 'Content-Range': 'bytes %d-%d/%d' % (first, last, len(self.content)),
                   'ETag': ETAG, 'Last-Modified': MODIFIED, 'Date': email.utils.formatdate(usegmt=True), 'Accept-Ranges': 'bytes'}
        headers.update({key.replace('_', '-'): value for key, value in {**self.extra, **changes}.items()})
        return headers

    def wanted(self):
        first, last = self.range
        return self.content[first:last + 1]

    def partial(self, body=None, **changes):
        """A good answer for a range, but for what is changed; None leaves a header out."""
        self.head('206 Partial Content', self.range_headers(**changes))
        self.send(self.wanted() if body is None else body)

    def close(self):
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def honest(exchange):
    """As a server should."""
    headers = exchange.request.headers
    if headers.get('if-match', ETAG) != ETAG or headers.get('if-unmodified-since', MODIFIED) != MODIFIED:
        exchange.answer('412 Precondition Failed')
    elif exchange.range is None:
        exchange.answer('200 OK', exchange.content, ETag=ETAG)
    elif exchange.range[0] >= len(exchange.content):
        exchange.answer('416 Range Not Satisfiable', Content_Range='bytes */%d' % len(exchange.content))
    else:
        exchange.partial()


def with_headers(**changes):
    """A good answer with other headers."""
    return lambda exchange: exchange.partial(**changes)


def status(text, **headers):
    return lambda exchange: exchange.answer(text, b'<html>no</html>', **headers)


def redirect(location, code='302 Found', **headers):
    return lambda exchange: exchange.answer(code, b'moved', Location=location(exchange) if callable(location) else location, **headers)


def cut(n_bytes, is_chunked=False):
    """Closes the connection after n bytes of the body, or ends a chunked body there."""
    def behave(exchange):
        if is_chunked:
            exchange.partial(b'', Content_Length=None, Transfer_Encoding='chunked')
            exchange.send(b'%x\r\n%s\r\n0\r\n\r\n' % (n_bytes, exchange.wanted()[:n_bytes]))
        else:
            exchange.partial(exchange.wanted()[:n_bytes])
            exchange.close()
    return behave


def chunked(exchange):
    exchange.partial(b'', Content_Length=None, Transfer_Encoding='chunked')
    body = exchange.wanted()
    for at in range(0, len(body), 1000):
        piece = body[at:at + 1000]
        exchange.send(b'%x\r\n%s\r\n' % (len(piece), piece))
    exchange.send(b'0\r\n\r\n')


def until_closed(exchange):
    """An answer of HTTP/1.0, which ends with the connection."""
    exchange.partial(Content_Length=None, Connection='close')
    exchange.close()


def raw(data):
    def behave(exchange):
        exchange.send(data)
        exchange.close()
    return behave


def flood(head, piece):
    """Sends a piece again and again, for as long as it is taken."""
    def behave(exchange):
        exchange.send(head)
        while not exchange.server.is_closing:
            exchange.send(piece)
    return behave


def silent(exchange):
    """Says nothing, for as long as the client is there."""
    exchange.connection.settimeout(None)
    exchange.connection.recv(1)


def slow(n_at_once, seconds):
    def behave(exchange):
        exchange.partial(b'')
        body = exchange.wanted()
        for at in range(0, len(body), n_at_once):
            exchange.send(body[at:at + n_at_once])
            time.sleep(seconds)
    return behave


class BadServer:
    def __init__(self, content, behaviours=(), forever=False, default=honest, certificate=None):
        self.content, self.default = content, default
        self._behaviours = list(behaviours)
        self._forever = forever
        self.requests, self.is_closing, self.n_connections = [], False, 0
        self._lock = threading.Lock()
        self._context = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate / 'certificate', certificate / 'key')
        self._socket = socket.create_server(('127.0.0.1', 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def origin(self):
        return '%s://127.0.0.1:%d' % ('http' if self._context is None else 'https', self.port)

    def url(self, path='/model.bin', user=''):
        return self.origin.replace('://', '://' + user) + path

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends what waits for a connection
        self._socket.close()

    def _next(self):
        with self._lock:
            if not self._behaviours:
                return self.default
            return self._behaviours[0] if self._forever and len(self._behaviours) == 1 else self._behaviours.pop(0)

    def _accept(self):
        while not self.is_closing:
            try:
                connection = self._socket.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError, ValueError):
            self.n_connections += 1
            connection.settimeout(60)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            reader = connection.makefile('rb')
            while not self.is_closing:
                line = reader.readline().decode('latin-1').split()
                if len(line) != 3:
                    break
                headers = {}
                while (text := reader.readline().decode('latin-1').strip()):
                    name, _, value = text.partition(':')
                    headers[name.lower()] = value.strip()
                request = Request(line[0], line[1], headers, time.monotonic())
                self.requests.append(request)
                self._next()(Exchange(self, connection, request))
        connection.close()


def basic(user, password):
    """What a request says of a user."""
    return 'Basic ' + base64.b64encode(('%s:%s' % (user, password)).encode()).decode()


def http_date(seconds):
    return email.utils.formatdate(time.time() + seconds, usegmt=True)
