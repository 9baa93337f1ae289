# SPDX-License-Identifier: MIT
"""What the HTTP engine makes of servers that keep to the protocol and of those that break it: the right bytes or one line that says why
not, and nothing secret in it."""
import email.utils
import random
import socket
import threading
import time

import pytest

from wfs_testlib.bad_server import (MODIFIED, BadServer, chunked, cut, flood, honest, http_date, raw, redirect, silent, slow, status,
                                    until_closed, with_headers)
from wfs_testlib.engine import WHY_NOT, fetch

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
CONTENT = random.Random(1).randbytes(200000)
USER = 'alice:hunter2@'
PATH = '/folder/model.bin?sig=tok3n'


def run(behaviours, *words, content=CONTENT, forever=False, **options):
    """Fetches from a server that behaves so, by a URL with secrets. Returns what came and what was asked for."""
    with BadServer(content, behaviours, forever) as server:
        return fetch(server.url(PATH, USER), *words, **options), server.requests


def ranges(requests):
    return [request.headers.get('range') for request in requests]


# ---- the first request ----

def test_the_first_request_gives_size_validator_and_head():
    got, requests = run([])
    assert got.data == CONTENT[:1000] and got.opened == 'URL: 200000, etag'
    assert ranges(requests) == ['bytes=0-999'] and requests[0].headers['accept-encoding'] == 'identity'
    assert 'if-match' not in requests[0].headers


def test_later_requests_carry_the_validator():
    got, requests = run([], '5+10', '100000+100000')
    assert got.data == CONTENT[5:15] + CONTENT[100000:]
    assert sorted(ranges(requests)) == ['bytes=0-999', 'bytes=100000-199999', 'bytes=5-14']
    assert [request.headers.get('if-match') for request in requests] == [None, '"v1"', '"v1"']


@pytest.mark.parametrize('is_long', [True, False])
def test_a_server_without_ranges_is_read_whole(is_long):
    def whole(exchange):
        length = {'Content_Length': len(CONTENT)} if is_long else {'Content_Length': None, 'Connection': 'close'}
        exchange.answer('200 OK', CONTENT, ETag='"w"', **length)
        if not is_long:
            exchange.close()
    got, _ = run([whole], forever=True)
    assert got.data == CONTENT and got.opened.endswith(': 200000, etag, whole')
    got, requests = run([whole], '7+9', '199990+10', forever=True)
    assert got.data == CONTENT[7:16] + CONTENT[-10:] and ranges(requests)[1:] == [None, None]


def test_a_server_without_ranges_is_not_read_whole_when_that_is_much():
    got, requests = run([status('200 OK', Content_Length=(64 << 20) + 1)])
    assert got.failures[0][0] == 'EOPNOTSUPP' and 'does not send ranges' in got.failures[0][1] and len(requests) == 1


def test_a_whole_object_whose_length_is_not_announced_ends_at_the_limit():
    endless = flood(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n', b'100000\r\n' + bytes(1 << 20) + b'\r\n')
    got, _ = run([endless])
    assert got.failures[0][0] == 'EOPNOTSUPP' and got.opened is None


@pytest.mark.parametrize('answer', [honest, status('416 Range Not Satisfiable'), status('200 OK', Content_Length=0)],
                         ids=['416 with a size', '416 without one', '200'])
def test_an_empty_object_is_empty(answer):
    got, _ = run([answer], content=b'')
    assert got.data == b'' and ': 0, ' in got.opened and not got.failures


# ---- what is right in the end ----

REPAIRED = {
    'cut': cut(300),
    'cut before the first byte': cut(0),
    'chunked, ended early': cut(300, is_chunked=True),
    'another beginning': with_headers(Content_Range='bytes 1-1000/200000'),
    'another end': with_headers(Content_Range='bytes 0-1000/200000'),
    'no Content-Range': with_headers(Content_Range=None),
    'a Content-Range without a size': with_headers(Content_Range='bytes 0-999/*'),
    'a Content-Range that is nonsense': with_headers(Content_Range='bytes 0-99999999999999999999/x'),
    'two ranges at once': with_headers(Content_Range=None, Content_Type='multipart/byteranges; boundary=x'),
    'another length': with_headers(Content_Length=999),
    'nothing': raw(b''),
    'nonsense': raw(b'SSH-2.0-OpenSSH_9.2\r\n'),
    'half a header': raw(b'HTTP/1.1 206 Partial Content\r\nContent-Le'),
    **{text[:3]: status(text) for text in ('408 Request Timeout', '425 Too Early', '429 Too Many Requests', '500 Internal Server Error',
                                           '502 Bad Gateway', '503 Service Unavailable', '504 Gateway Timeout')},
}


@pytest.mark.parametrize('is_first', [True, False], ids=['head', 'range'])
@pytest.mark.parametrize('behaviour', REPAIRED.values(), ids=list(REPAIRED))
def test_an_answer_that_is_wrong_once_is_asked_for_again(behaviour, is_first):
    if is_first:
        got, requests = run([behaviour])
        assert got.data == CONTENT[:1000]
    else:
        got, requests = run([honest, behaviour], '0+1000')
        assert got.data == CONTENT[:1000]
    # libcurl asks once more where the server has closed a connection that was kept.
    assert not got.failures and len(requests) in ((2, 3) if is_first else (3, 4))


@pytest.mark.parametrize('behaviour', REPAIRED.values(), ids=list(REPAIRED))
def test_an_answer_that_stays_wrong_is_an_error_after_the_retries(behaviour):
    got, requests = run([honest, behaviour], '0+1000', forever=True)
    assert len(got.failures) == 1 and got.failures[0][0] == 'EIO'
    # What came before the cut is right, and the rest is asked for.
    assert CONTENT.startswith(got.data) and len(requests) <= 1 + 4 and got.failures[0][1].endswith('tried 3 times')


def test_a_cut_transfer_goes_on_where_it_was():
    got, requests = run([honest, cut(50000), cut(30000)], '100000+100000')
    assert got.data == CONTENT[100000:] and ranges(requests)[1:] == ['bytes=%d-199999' % at for at in (100000, 150000, 180000)]


@pytest.mark.parametrize('behaviour', [chunked, until_closed, slow(100, 0.01)], ids=['chunked', 'until closed', 'slow'])
def test_an_odd_answer_that_is_right_is_taken(behaviour):
    got, _ = run([behaviour], '500+1000', forever=True)
    assert got.data == CONTENT[500:1500] and not got.failures


def test_a_long_range_without_a_length_is_asked_for_in_pieces():
    content = random.Random(2).randbytes(9 << 20)
    got, requests = run([honest, chunked], '1+%d' % ((9 << 20) - 1), content=content, forever=True)
    assert got.data == content[1:] and len(requests) == 2 + 3


def test_an_object_that_is_too_slow_is_given_up():
    got, requests = run([silent], timeout=1, retries=1, forever=True)
    assert got.failures == [('EIO', 'the server sent nothing for 1 s; tried 2 times')] and len(requests) == 2


def test_the_server_decides_how_long_to_wait():
    got, requests = run([status('429 Too Many Requests', Retry_After=1)])
    assert got.data == CONTENT[:1000] and requests[1].time - requests[0].time >= 1


def test_a_server_that_comes_back_is_asked_again():
    with socket.create_server(('127.0.0.1', 0)) as port:
        origin = 'http://127.0.0.1:%d/' % port.getsockname()[1]
    threading.Timer(0.1, lambda: port_server(origin)).start()
    assert fetch(origin, retries=6).data == CONTENT[:1000]


def test_a_server_that_nobody_is_at_is_not_reached():
    with socket.create_server(('127.0.0.1', 0)) as port:
        origin = 'http://127.0.0.1:%d/' % port.getsockname()[1]
    assert fetch(origin).failures == [('EHOSTUNREACH', 'cannot connect: Connection refused; tried 3 times')]
    assert fetch('http://no.such.invalid/').failures[0][0] == 'EHOSTUNREACH'


def port_server(origin):
    server = BadServer.__new__(BadServer)
    listening = socket.create_server(('127.0.0.1', int(origin.rstrip('/').rpartition(':')[2])))
    create, socket.create_server = socket.create_server, lambda _: listening
    try:
        server.__init__(CONTENT)
    finally:
        socket.create_server = create


@pytest.mark.slow
def test_the_server_does_not_decide_to_wait_for_ever():
    got, requests = run([status('503 Service Unavailable', Retry_After=100000)], patience=300)
    assert got.data == CONTENT[:1000] and 59 <= requests[1].time - requests[0].time


@pytest.mark.parametrize('behaviour', [honest, chunked, slow(1000, 0.001), status('503 No')], ids=['good', 'chunked', 'slow', 'failing'])
def test_a_transfer_that_is_cancelled_disturbs_no_other(behaviour):
    words = ['0+50000!', '50000+50000', '7+9-', '100000+100000!', '1+99999-', '150000+50000']
    got, _ = run([honest] + [behaviour] * 3, *words)
    assert got.data == CONTENT[50000:100000] + CONTENT[150000:] and not got.failures


@pytest.mark.parametrize('encoding', ['', 'identity', 'aws-chunked', 'binary', 'UTF-8', 'none', 'aws-chunked,binary', 'aws-chunked, '])
def test_an_encoding_that_changes_no_byte_is_ignored(encoding):
    got, requests = run([with_headers(Content_Encoding=encoding)], '5+10', forever=True)
    assert got.data == CONTENT[5:15] and not got.failures and len(requests) == 2


@pytest.mark.parametrize('encoding, named', [('gzip', 'gzip'), ('aws-chunked, gzip', 'gzip'), ('br', 'br'), ('zstd,binary', 'zstd'), ('new', 'new'),
                                             ('a b', None), ('x' * 100, None)])
def test_an_encoding_that_may_change_bytes_is_final(encoding, named):
    for behaviours, n in (([with_headers(Content_Encoding=encoding)], 1), ([honest, with_headers(Content_Encoding=encoding)], 2)):
        got, requests = run(behaviours, '5+10', forever=True)
        assert {code for code, _ in got.failures} == {'EOPNOTSUPP'} and len(requests) == n and got.data == b''
        assert 'encoded%s, which' % (' with ' + named if named else '') in got.failures[0][1]


# ---- what never ends ----

HEADER = b'HTTP/1.1 206 Partial Content\r\n'
ENDLESS = {
    'headers': flood(HEADER, b'X-A: b\r\n' * 1000),
    'one header': flood(HEADER + b'X-A: ', b'b' * 10000),
    'a status line': flood(b'HTTP/1.1 206 ', b'b' * 10000),
    'early answers': flood(b'', b'HTTP/1.1 100 Continue\r\n\r\n' * 100),
    'trailers': flood(HEADER + b'Content-Range: bytes 0-999/200000\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n', b'X-A: b\r\n' * 1000),
    'a chunked body': flood(HEADER + b'Content-Range: bytes 0-999/200000\r\nTransfer-Encoding: chunked\r\n\r\n',
                            b'10000\r\n' + bytes(65536) + b'\r\n'),
    'a body until closed': flood(HEADER + b'Content-Range: bytes 0-999/200000\r\n\r\n', bytes(65536)),
    'an error': flood(b'HTTP/1.1 404 Not Found\r\n\r\n', bytes(65536)),
    'an error that is announced': flood(b'HTTP/1.1 503 No\r\nContent-Length: 99999999999\r\n\r\n', bytes(65536)),
}


@pytest.mark.parametrize('behaviour', ENDLESS.values(), ids=list(ENDLESS))
def test_what_never_ends_is_given_up(behaviour):
    got, _ = run([behaviour], forever=True, retries=1)
    assert len(got.failures) == 1 and got.failures[0][0] in ('EIO', 'ENOENT') and got.data == b''


def test_an_error_that_drips_does_not_hold_up():
    def drip(exchange):
        exchange.send(b'HTTP/1.1 404 Not Found\r\nContent-Length: 1000\r\n\r\n')
        while not exchange.server.is_closing:
            exchange.send(b'x')
            time.sleep(0.1)
    got, _ = run([drip])
    assert got.failures[0][0] == 'ENOENT'


def test_a_body_that_goes_on_behind_its_length_is_cut():
    long = flood(HEADER + b'ETag: "v1"\r\nContent-Range: bytes 0-999/200000\r\nContent-Length: 1000\r\n\r\n' + CONTENT[:1000], bytes(65536))
    got, _ = run([long])
    assert got.data == CONTENT[:1000] and not got.failures


# ---- validators ----

CHANGED = {
    'another ETag': with_headers(ETag='"v2"'),
    'another size': with_headers(Content_Range='bytes 0-999/200001'),
    '412': status('412 Precondition Failed'),
    '416': status('416 Range Not Satisfiable', Content_Range='bytes */10'),
}


@pytest.mark.parametrize('behaviour', CHANGED.values(), ids=list(CHANGED))
def test_an_object_that_was_replaced_is_stale_from_then_on(behaviour, folder):
    with BadServer(CONTENT, [honest, behaviour]) as server:
        signs = Signs(folder, 'later')
        got = signs.run(server.url(PATH), '0+1000', signs['later'], '5+5')
        assert [code for code, _ in got.failures] == ['ESTALE', 'ESTALE'] and got.data == b''
        assert len(server.requests) == 2  # the second one is not even asked for


class Signs:
    """Files by which the engine waits between groups of ranges; each is removed by `then`, or at once."""

    def __init__(self, folder, *names, then=None):
        self.folder, self.names, self.then = folder, names, then or {}

    def __getitem__(self, name):
        return self.folder / name

    def _watch(self):
        for name in self.names:
            while not self[name].exists():
                time.sleep(0.005)
            self.then.get(name, lambda: None)()
            self[name].unlink()

    def run(self, *args, **options):
        threading.Thread(target=self._watch, daemon=True).start()
        return fetch(*args, **options)


def test_an_object_without_an_etag_goes_by_its_date():
    got, requests = run([with_headers(ETag=None)] * 2, '0+1000')
    assert got.data == CONTENT[:1000] and got.opened.endswith(', date')
    assert requests[1].headers['if-unmodified-since'] == MODIFIED
    got, _ = run([with_headers(ETag=None), with_headers(ETag=None, Last_Modified='Sat, 05 Sep 2026 10:11:13 GMT')], '0+1000')
    assert got.failures[0][0] == 'ESTALE'


class Replaced:
    """An object that is replaced by another one of its size, in the second in which it was written, after its first answer."""
    OTHER = bytes(reversed(CONTENT))

    def __init__(self, tag):
        self.tag, self.second, self.data = tag, int(time.time()), CONTENT

    def __call__(self, exchange):
        exchange.content = self.data
        exchange.partial(ETag=self.tag and self.tag % self.second, Last_Modified=email.utils.formatdate(self.second, usegmt=True))
        if time.time() < self.second + 1:
            self.data = self.OTHER


@pytest.mark.parametrize('tag', [None, 'W/"%d"', '"%x-30d40"'], ids=['a date', 'a weak tag', 'a tag made of the date'])
def test_two_versions_of_one_second_are_never_mixed(tag):
    time.sleep(1 - time.time() % 1)
    server = Replaced(tag)
    got, requests = run([server], '0+1000', '100000+1000', forever=True)
    assert got.data == server.data[:1000] + server.data[100000:101000] and not got.failures and ', weak' not in got.opened
    if server.data is Replaced.OTHER:  # a machine that is busy may miss the second
        assert len(requests) == 4 and requests[1].time - requests[0].time >= 1.9


LATER = 'in an hour'


@pytest.mark.parametrize('headers, kind, n_requests', [
    ({'ETag': None, 'Last_Modified': LATER}, 'date, weak', 1), ({'ETag': None, 'Date': None}, 'date', 1),
    ({'ETag': None, 'Date': None, 'Last_Modified': LATER}, 'date, weak', 1), ({'Last_Modified': LATER}, 'etag', 1),
    ({'ETag': None, 'Date': MODIFIED}, 'date, weak', 2), ({'ETag': 'W/"v1"', 'Last_Modified': LATER}, 'weak tag, weak', 1),
    ({'ETag': 'W/"v1"'}, 'date', 1), ({'Date': 'soon'}, 'etag', 1), ({'ETag': None, 'Date': 'soon'}, 'date, weak', 1)], ids=str)
def test_a_validator_is_as_strong_as_its_age(headers, kind, n_requests):
    headers = {name: http_date(3600) if value == LATER else value for name, value in headers.items()}
    got, requests = run([with_headers(**headers)], forever=True)
    assert got.data == CONTENT[:1000] and got.opened.endswith(': 200000, ' + kind) and len(requests) == n_requests


def test_a_weak_tag_that_changes_is_another_version():
    weak = {'Last_Modified': None, 'ETag': 'W/"v1"'}
    got, requests = run([with_headers(**weak), with_headers(**{**weak, 'ETag': '"v1"'})], '0+1000')
    assert got.data == CONTENT[:1000] and not {'if-match', 'if-unmodified-since'} & set(requests[1].headers)
    got, _ = run([with_headers(**weak), with_headers(**{**weak, 'ETag': 'W/"v2"'})], '0+1000')
    assert got.failures[0][0] == 'ESTALE'


@pytest.mark.parametrize('tag', [None, 'v1', '"v1', '"' + 'x' * 300 + '"'], ids=lambda tag: str(tag)[:8])
def test_an_object_with_nothing_better_goes_by_its_size(tag):
    weak = with_headers(ETag=tag, Last_Modified=None)
    got, requests = run([weak] * 2, '0+1000')
    assert got.data == CONTENT[:1000] and got.opened.endswith(', size')
    assert not {'if-match', 'if-unmodified-since'} & set(requests[1].headers)
    got, _ = run([weak, with_headers(ETag=None, Last_Modified=None, Content_Range='bytes 0-999/200002')], '0+1000')
    assert got.failures[0][0] == 'ESTALE'


def test_a_validator_that_is_missing_later_is_not_trusted():
    got, _ = run([honest, with_headers(ETag=None)], '0+1000', forever=True)
    assert got.failures[0][0] == 'EIO' and 'validator' in got.failures[0][1]


def test_a_server_that_has_no_ranges_any_more_is_an_error():
    got, _ = run([honest, status('200 OK', ETag='"v1"')], '0+1000', forever=True)
    assert got.failures[0][0] == 'EIO' and got.data == b''


# ---- what is not asked for again ----

@pytest.mark.parametrize('text, code, hint', [
    ('401 Unauthorized', 'EACCES', '~/.netrc'), ('403 Forbidden', 'EACCES', '~/.netrc'), ('404 Not Found', 'ENOENT', ''),
    ('410 Gone', 'ENOENT', ''), ('400 Bad Request', 'EIO', ''), ('418 Teapot', 'EIO', ''), ('501 Not Implemented', 'EIO', '')])
def test_a_refusal_is_final(text, code, hint):
    got, requests = run([status(text)], forever=True)
    assert len(requests) == 1 and got.failures[0][0] == code
    assert text[:3] in got.failures[0][1] and hint in got.failures[0][1]


# ---- redirects ----

def test_redirects_are_followed_and_the_last_place_is_kept():
    with BadServer(CONTENT) as store:
        with BadServer(CONTENT, [redirect('/other'), redirect('next?x'), redirect('//127.0.0.1:%d/a b?sig=tok3n' % store.port)],
                       default=status('500 No')) as first:
            got = fetch(first.url(PATH, USER), '0+10', '20+30')
            assert got.data == CONTENT[:10] + CONTENT[20:50]
            assert [request.path for request in first.requests] == [PATH, '/other', '/next?x']
            assert [request.path for request in store.requests] == ['/a%20b?sig=tok3n'] * 3


def test_credentials_go_to_the_first_host_only(folder):
    (folder / '.netrc').write_text('machine 127.0.0.1 login alice password hunter2\n')
    for user, home in ((USER, '/nonexistent'), ('', folder)):
        with BadServer(CONTENT) as store:
            with BadServer(CONTENT, [redirect('/other'), redirect(store.url().replace('//', '//bob:hunter2@'))]) as first:
                assert fetch(first.url(PATH, user), '0+10', home=home).data == CONTENT[:10]
            assert {request.headers.get('authorization') for request in first.requests} == {'Basic YWxpY2U6aHVudGVyMg=='}
            assert {request.headers.get('authorization') for request in store.requests} == {None}


def count_to(n):
    def behave(exchange):
        at = int(exchange.request.path.rpartition('/')[2])
        if at == n:
            honest(exchange)
        else:
            redirect('/%d' % (at + 1), '307 Temporary Redirect')(exchange)
    return behave


def test_five_redirects_are_followed_and_six_are_not():
    with BadServer(CONTENT, [count_to(5)], forever=True) as server:
        assert fetch(server.url('/0')).data == CONTENT[:1000]
    with BadServer(CONTENT, [count_to(6)], forever=True) as server:
        assert fetch(server.url('/0')).failures == [('EIO', 'the server redirects more than 5 times')]
    with BadServer(CONTENT, [redirect('/0')], forever=True) as server:
        assert fetch(server.url('/0')).failures and len(server.requests) == 6


@pytest.mark.parametrize('location, text', [
    ('file:///etc/passwd', "'file'"), ('ftp://127.0.0.1/', "'ftp'"), ('gopher://x/', "'gopher'"), ('javascript:1', "'javascript'"),
    ('http://', 'malformed'), ('http://[::1', 'malformed'), ('http://a b/', 'malformed'), (None, 'without a Location'),
    ('x' * 20000, 'malformed')], ids=lambda value: str(value)[:20])
def test_a_redirect_to_something_else_is_refused(location, text):
    got, requests = run([redirect(location)], forever=True)
    assert got.failures[0][0] == 'EIO' and text in got.failures[0][1] and len(requests) == 1


def test_a_redirect_to_two_places_is_refused():
    got, requests = run([raw(b'HTTP/1.1 302 Found\r\nLocation: /a\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n')], forever=True)
    assert got.failures[0][0] == 'EIO' and 'malformed' in got.failures[0][1] and len(requests) == 1


def expire_once(folder, second):
    """A store whose URLs expire, behind a server that gives new ones."""
    store = BadServer(CONTENT)
    first = BadServer(CONTENT, default=redirect(lambda _: store.url('/signed?sig=tok3n')))
    signs = Signs(folder, 'expire', then={'expire': lambda: store.expire(second)})

    def expire(behaviours):
        store._behaviours = list(behaviours)
    store.expire = expire
    with store, first:
        return signs.run(first.url(PATH), '0+10', signs['expire'], '20+30'), first, store


@pytest.mark.parametrize('text', ['403 Forbidden', '401 Unauthorized', '410 Gone', '400 Bad Request'])
def test_a_location_that_has_expired_is_asked_for_once_more(folder, text):
    got, first, store = expire_once(folder, [status(text)])
    assert got.data == CONTENT[:10] + CONTENT[20:50] and len(first.requests) == 2 and len(store.requests) == 4


def test_a_location_that_is_dropped_may_still_redirect():
    def store_behaviour(exchange):
        first = exchange.range[0]
        if first == 20 and not exchange.server.has_refused:
            exchange.server.has_refused = True
            exchange.answer('403 Forbidden')
        elif first == 100 and exchange.request.path.startswith('/signed'):
            time.sleep(0.3)
            redirect('moved?sig=tok3n')(exchange)
        else:
            honest(exchange)
    with BadServer(CONTENT, default=store_behaviour) as store:
        store.has_refused = False
        signed = redirect(store.url('/signed?sig=tok3n'))

        def late(exchange):  # the place is not known while the other answer redirects
            time.sleep(0.6)
            signed(exchange)
        with BadServer(CONTENT, [signed], default=late) as server:
            got = fetch(server.url(PATH), '100+20', '20+30')
    assert got.data == CONTENT[100:120] + CONTENT[20:50] and not got.failures
    assert [request.path for request in store.requests if request.path.startswith('/moved')] == ['/moved?sig=tok3n']


def test_a_location_that_stays_refused_is_an_error(folder):
    got, first, store = expire_once(folder, [status('403 Forbidden')] * 2)
    assert got.data == CONTENT[:10] and got.failures[0][0] == 'EACCES' and len(first.requests) == 2 and len(store.requests) == 4
    assert 'redirects' in got.failures[0][1]
