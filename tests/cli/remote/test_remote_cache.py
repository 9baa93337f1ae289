# SPDX-License-Identifier: MIT
"""What is fetched is kept in a directory, found there by later runs and by runs at the same time, and never taken when it is damaged."""
import contextlib
import json
import os
import shutil
import signal
import subprocess

import pytest

from wfs_testlib import program, st
from wfs_testlib.bad_server import BadServer, http_date, with_headers
from wfs_testlib.mount import wait_for
from wfs_testlib.program import EXIT_FOUND, EXIT_SOURCE, EXIT_USAGE, weightfs

MIB = 1 << 20
N_EACH = 4 * MIB
STORE = 'weightfs.cache'
HEAD = 70000  # what each run asks of the server again


@pytest.fixture
def random_file(folder):
    place = folder / 'served'
    place.mkdir()
    return st.write(place / 'x.safetensors', {name: ('U8', [N_EACH], os.urandom(N_EACH)) for name in 'ab'})


@pytest.fixture
def server(serve, random_file):
    return serve(random_file.parent)


def content(path, key):
    return st.read(path).tensors[key][2]


def cat(server, path, cache, key='a', **more):
    """What a run gives, and how many bytes went over the wire for it."""
    server.forget()
    data = weightfs('cat', '--cache', cache, *more.get('options', []), server.url(path), key).raw
    assert data == content(path, key)
    return server.n_bytes()


def test_a_second_run_fetches_the_head_only(server, random_file, folder):
    assert cat(server, random_file, folder / 'cache') > N_EACH
    assert cat(server, random_file, folder / 'cache') < HEAD
    assert cat(server, random_file, folder / 'cache', 'b') < N_EACH + HEAD
    assert cat(server, random_file, folder / 'cache', 'b') < HEAD
    assert os.stat(folder / 'cache').st_mode & 0o777 == 0o700
    assert os.listdir(folder / 'cache') == [STORE]


def test_without_the_option_nothing_is_kept(server, random_file, folder, monkeypatch):
    monkeypatch.setenv('TMPDIR', str(folder))
    before = sorted(os.listdir(folder))
    weightfs('cat', server.url(random_file), 'a')
    assert sorted(os.listdir(folder)) == before
    server.forget()
    weightfs('cat', server.url(random_file), 'a')
    assert server.n_bytes() > N_EACH


def usual(server, path, *options):
    """The bytes that go over the wire for a read of 'a' without a word about a cache."""
    server.forget()
    assert weightfs('cat', *options, server.url(path), 'a').raw == content(path, 'a')
    return server.n_bytes()


@pytest.mark.parametrize('variables, place', [
    ({'HOME': 'home'}, 'home/.cache/weightfs'), ({'HOME': 'home', 'XDG_CACHE_HOME': 'xdg'}, 'xdg/weightfs'), ({'HOME': 'home', 'WEIGHTFS_CACHE': 'own'}, 'own')])
def test_what_is_fetched_is_kept_where_programs_keep_such_things(server, random_file, folder, monkeypatch, variables, place):
    for name in ('WEIGHTFS_CACHE', 'XDG_CACHE_HOME'):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(folder / value))
        (folder / value).mkdir()
    assert weightfs('cache', 'list').stdout == '' and not (folder / place / STORE).exists()
    assert usual(server, random_file) > N_EACH and usual(server, random_file) < HEAD
    assert os.stat(folder / place / STORE).st_mode & 0o777 == 0o600
    assert place == 'own' or os.stat(folder / place).st_mode & 0o777 == 0o700
    assert server.url(random_file) in weightfs('cache', 'list').stdout
    assert weightfs('cache', 'verify').stdout.startswith('verified: ')
    assert usual(server, random_file, '--cache=none') > N_EACH
    weightfs('cache', 'clear')
    assert usual(server, random_file) > N_EACH


def readable(folder):
    folder.chmod(0o777)


def linked(folder):
    folder.rmdir()
    folder.symlink_to(folder.parent)


@pytest.mark.parametrize('spoil', [readable, linked])
def test_a_usual_cache_that_cannot_be_used_is_done_without(server, random_file, folder, monkeypatch, spoil):
    place = folder / 'cache'
    place.mkdir()
    spoil(place)
    monkeypatch.setenv('WEIGHTFS_CACHE', str(place))
    assert usual(server, random_file) > N_EACH and usual(server, random_file) > N_EACH
    assert not (folder / STORE).exists() and not (place / STORE).exists()


def test_nothing_is_kept_in_the_home_of_somebody_else(server, random_file, folder, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip('only for root')
    monkeypatch.delenv('WEIGHTFS_CACHE')
    monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
    monkeypatch.setenv('HOME', str(folder / 'home'))
    (folder / 'home').mkdir()
    os.chown(folder / 'home', 1000, 1000)
    usual(server, random_file)
    assert os.listdir(folder / 'home') == []


def test_what_a_server_forbids_to_store_is_kept_only_where_the_user_names_a_cache(serve, random_file, folder, monkeypatch):
    server = serve(random_file.parent, more='add_header Cache-Control "private, No-Store" always;')
    monkeypatch.setenv('WEIGHTFS_CACHE', str(folder / 'cache'))
    assert usual(server, random_file) > N_EACH and usual(server, random_file) > N_EACH
    assert usual(server, random_file, '--cache', folder / 'named') > N_EACH and usual(server, random_file, '--cache', folder / 'named') < HEAD


def test_another_version_of_the_object_is_another_object(server, random_file, folder):
    cat(server, random_file, folder / 'cache')
    st.write(random_file, {name: ('U8', [N_EACH], os.urandom(N_EACH)) for name in 'ab'})
    os.utime(random_file, (1, 1))
    assert cat(server, random_file, folder / 'cache') > N_EACH
    assert cat(server, random_file, folder / 'cache') < HEAD
    assert len(weightfs('cache', 'list', folder / 'cache').stdout.splitlines()) == 1


def damage(path, data, at, bytes_=b'damaged!'):
    """Writes over a place in the store that holds this piece of data."""
    place = path.read_bytes().find(data[at:at + 64])
    assert place > 0
    with open(path, 'r+b') as file:
        file.seek(place)
        file.write(bytes_)


def test_damaged_pieces_are_fetched_again(server, random_file, folder):
    cat(server, random_file, folder / 'cache')
    for at in 0, N_EACH // 2, N_EACH - 64:
        damage(folder / 'cache' / STORE, content(random_file, 'a'), at)
    assert cat(server, random_file, folder / 'cache') < HEAD + 4 * 17000
    assert cat(server, random_file, folder / 'cache') < HEAD


@pytest.mark.parametrize('part', ['magic', 'entries', 'sums', 'tail', 'everything', 'empty'])
def test_whatever_is_damaged_no_wrong_byte_comes_out(server, random_file, folder, part):
    cat(server, random_file, folder / 'cache')
    path = folder / 'cache' / STORE
    n = path.stat().st_size
    with open(path, 'r+b') as file:
        if part in ('tail', 'empty'):
            file.truncate(n - 5000 if part == 'tail' else 0)
        else:
            begin, n_bytes = {'magic': (0, 10), 'entries': (4096, 2000), 'sums': (n - 12288, 8192), 'everything': (0, n)}[part]
            file.seek(begin)
            file.write(os.urandom(n_bytes))
    cat(server, random_file, folder / 'cache')
    assert cat(server, random_file, folder / 'cache') < HEAD


def test_list_verify_and_clear(server, random_file, folder):
    cache = folder / 'cache'
    cat(server, random_file, cache)
    (row,) = [line.split('\t') for line in weightfs('cache', 'list', cache).stdout.splitlines()]
    assert row[0] == server.url(random_file) and int(row[1]) == random_file.stat().st_size
    assert N_EACH <= int(row[2]) <= N_EACH + 3 * HEAD
    assert weightfs('cache', 'verify', cache).stdout.startswith('verified: ')
    damage(cache / STORE, content(random_file, 'a'), 100000)
    assert '1 damaged' in weightfs('cache', 'verify', cache, code=EXIT_FOUND).stdout
    weightfs('cache', 'verify', cache)
    weightfs('cache', 'clear', cache)
    assert os.listdir(cache) == []
    weightfs('cache', 'clear', cache)
    weightfs('cache', 'list', cache, code=EXIT_SOURCE)
    assert cat(server, random_file, cache) > N_EACH


def test_the_list_shows_no_secret(server, random_file, folder):
    url = server.url(random_file).replace('http://', 'http://user:geheim@') + '?signature=geheim'
    weightfs('cat', '--cache', folder / 'cache', url, 'a')
    assert 'geheim' not in weightfs('cache', 'list', folder / 'cache').stdout
    assert b'geheim' not in (folder / 'cache' / STORE).read_bytes()


@pytest.mark.parametrize('how', ['others may write', 'link', 'file is a link', 'file of others to read', 'file has two names'])
def test_what_others_can_write_is_refused(server, random_file, folder, how):
    cache = folder / 'cache'
    cat(server, random_file, cache)
    if how == 'others may write':
        cache.chmod(0o777)
    elif how == 'link':
        cache.rename(folder / 'other')
        cache.symlink_to('other')
    elif how == 'file is a link':
        (cache / STORE).rename(folder / 'store')
        (cache / STORE).symlink_to(folder / 'store')
    elif how == 'file of others to read':
        (cache / STORE).chmod(0o644)
    else:
        os.link(cache / STORE, folder / 'store')
    server.forget()
    assert 'cache' in weightfs('cat', '--cache', cache, server.url(random_file), 'a', code=EXIT_SOURCE).error
    assert server.requests() == []


@pytest.mark.root
def test_a_directory_of_another_user_is_refused(server, random_file, folder):
    (folder / 'cache').mkdir()
    shutil.chown(folder / 'cache', 'nobody')
    assert 'belong to you' in weightfs('cat', '--cache', folder / 'cache', server.url(random_file), 'a', code=EXIT_SOURCE).error


@pytest.mark.parametrize('size', ['1M', 'much', '0', '-5G'])
def test_a_size_is_checked(server, random_file, size):
    assert '128M' in weightfs('ls', '--cache-size=' + size, server.url(random_file), code=EXIT_USAGE).error


@pytest.mark.parametrize('is_kept', [pytest.param(False, marks=pytest.mark.slow), True], ids=['temporary', 'kept'])
def test_the_size_is_kept_to(serve, folder, is_kept):
    place = folder / 'served'
    place.mkdir()
    path = st.write_hole(place / 'hole', 200 * MIB)
    with open(path, 'r+b') as file:
        for i in range(200):
            file.seek(200 + i * MIB)
            file.write(os.urandom(1000))
    server = serve(place)
    options = ['--cache', folder / 'cache'] if is_kept else []
    with open(folder / 'out', 'wb') as out:
        weightfs('cat', '--cache-size=128M', *options, server.url(path), 'w', stdout=out)
    assert (folder / 'out').read_bytes() == content(path, 'w')
    assert server.n_bytes() < 1.1 * path.stat().st_size
    if is_kept:
        used = os.stat(folder / 'cache' / STORE).st_blocks * 512
        assert 64 * MIB < used < 160 * MIB


def test_an_object_larger_than_any_disk_takes_no_longer(memory, monkeypatch):
    """A server can claim any size, and some filesystems make such a sparse file."""
    n_bytes = 1 << 59
    head = json.dumps({'w': {'dtype': 'U8', 'shape': [n_bytes], 'data_offsets': [0, n_bytes]}}).encode()
    content = (len(head).to_bytes(8, 'little') + head).ljust(1 << 16, b'\0')
    monkeypatch.setenv('TMPDIR', str(memory))
    total = 'bytes 0-65535/%d' % (8 + len(head) + n_bytes)
    with BadServer(content, [with_headers(Content_Range=total)], forever=True) as server:
        for options in ([], ['--cache', memory / 'cache', '--cache-size=128M']):
            (source,) = json.loads(weightfs('info', '--json', *options, server.url()).stdout)['sources'][0]['files']
            assert source['cached'] == 1 << 16 and source['bytes'] > n_bytes
    (row,) = weightfs('cache', 'list', memory / 'cache').stdout.splitlines()
    assert row.split('\t')[2] == str(1 << 16)
    assert weightfs('cache', 'verify', memory / 'cache').stdout.startswith('verified: 64')


def test_runs_at_the_same_time_share_it(server, random_file, folder):
    command = [*program.COMMAND, 'cat', '--cache', folder / 'cache', server.url(random_file)]
    runs = [(key, subprocess.Popen([*command, key], stdout=subprocess.PIPE)) for key in 'abab']
    for key, run in runs:
        assert run.communicate(timeout=program.PATIENCE)[0] == content(random_file, key)
    for key in 'ab':
        assert cat(server, random_file, folder / 'cache', key) < HEAD


@pytest.mark.parametrize('n', range(3))
def test_killed_at_any_moment_it_is_right_or_not_used(serve, random_file, folder, n):
    server = serve(random_file.parent, more='limit_rate 1m;')
    url = server.url(random_file)
    run = subprocess.Popen([*program.COMMAND, 'cat', '--cache', folder / 'cache', url, 'a'], stdout=subprocess.DEVNULL, start_new_session=True)
    path = folder / 'cache' / STORE
    wait_for(lambda: run.poll() is not None or (path.exists() and path.stat().st_blocks * 512 > (n + 1) * 200000), 'some bytes')
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    weightfs('cache', 'verify', folder / 'cache', code=None)
    assert weightfs('cat', '--cache', folder / 'cache', url, 'a').raw == content(random_file, 'a')
    weightfs('cache', 'verify', folder / 'cache')


@pytest.mark.parametrize('headers', [{'Last_Modified': http_date(3600)}, {'Last_Modified': None}, {'ETag': 'W/"v1"', 'Last_Modified': None}],
                         ids=['a date to come', 'a size', 'a weak tag'])
def test_what_may_change_without_notice_is_not_kept(random_file, folder, headers):
    with BadServer(random_file.read_bytes(), [with_headers(**{'ETag': None, **headers})], forever=True) as server:
        assert weightfs('cat', '--cache', folder / 'cache', server.url(), 'a').raw == content(random_file, 'a')
        assert 'may not be noticed' in weightfs('check', server.url(), code=None).stdout
    assert weightfs('cache', 'list', folder / 'cache').stdout == ''


class Claimed:
    """An object of which only the head exists: the server claims a size."""

    def __init__(self, name, n_bytes):
        head = json.dumps({name: {'dtype': 'U8', 'shape': [n_bytes], 'data_offsets': [0, n_bytes]}}).encode()
        self.content = (len(head).to_bytes(8, 'little') + head).ljust(1 << 16, b'\0')
        total = 'bytes 0-65535/%d' % (8 + len(head) + n_bytes)
        self.server = BadServer(self.content, [with_headers(Content_Range=total)], forever=True)


@pytest.mark.parametrize('is_first', [True, False])
def test_a_claim_of_all_room_takes_it_from_nobody_else(folder, is_first):
    """The file of the cache cannot be longer than its filesystem allows, here than a limit of the process."""
    sizes = {'small': 40 * MIB, 'claim': 950 * MIB, 'honest': 60 * MIB, 'other': 60 * MIB}
    order = ['claim', 'small', 'honest', 'other'] if is_first else ['small', 'honest', 'claim', 'other']
    with contextlib.ExitStack() as stack:
        urls = {name: stack.enter_context(Claimed(name, size).server).url('/' + name) for name, size in sizes.items()}
        said = {}
        for name in order:
            said[name] = program.tool('prlimit', '--fsize=%d' % (1000 * MIB), *program.COMMAND, 'info', '--cache', folder / 'cache', urls[name])
    kept = {row.split('\t')[0] for row in weightfs('cache', 'list', folder / 'cache').stdout.splitlines()}
    assert kept == {urls[name] for name in ('small', 'honest', 'other')}
    assert {name for name, out in said.items() if 'it is not kept in the cache' in out.stdout} == (set() if is_first else {'claim'})
