# SPDX-License-Identifier: MIT
"""Mounts of URLs."""
import errno
import os
import pathlib
import random
import re
import signal
import subprocess

import pytest

from wfs_testlib import disks, program, st
from wfs_testlib.mount import children, is_alive, wait_for
from wfs_testlib.program import EXIT_USAGE, weightfs

MIB = 1 << 20


@pytest.fixture
def files(folder):
    """A folder to serve."""
    root = folder / 'served'
    root.mkdir()
    tensors = {'t%d' % i: ('U8', [3 * MIB + i], random.Random(i).randbytes(3 * MIB + i)) for i in range(4)}
    st.write(root / 'one.safetensors', tensors)
    return root


def test_a_mount_of_a_url_shows_the_bytes_of_the_file_and_fetches_none_twice(files, serve, mount):
    server = serve(files)
    mounted = mount(server.url('one.safetensors'))
    for key, (_, _, data) in st.read(files / 'one.safetensors').tensors.items():
        assert (mounted.path / key).read_bytes() == data
        assert (mounted.path / key).read_bytes() == data
    assert server.n_bytes() < os.path.getsize(files / 'one.safetensors') * 1.02
    assert server.requests()[-1].status == 206


def test_no_process_of_a_mount_has_what_is_secret_of_its_url(files, serve, mount):
    url = serve(files).url('one.safetensors').replace('//', '//alice:hunter2@') + '?sig=tok3n'
    mounted = mount(url, 'like=' + url)
    texts = [pathlib.Path('/proc/%d/cmdline' % pid).read_bytes() for pid in processes(mounted)] + [pathlib.Path('/proc/self/mounts').read_bytes()]
    texts += [path.read_bytes() for path in (mounted.path / '.weightfs').iterdir() if path.is_file()]
    texts += [os.getxattr(mounted.path / 't0', name) for name in os.listxattr(mounted.path / 't0')]
    assert not any(secret in text for text in texts for secret in (b'alice', b'hunter2', b'tok3n'))


def processes(mounted):
    """Pids of the supervisor, the worker, the process that fetches and the parent of that."""
    (worker,) = children(mounted.process.pid)
    (parent,) = children(worker)
    (fetcher,) = children(parent)
    return mounted.process.pid, worker, fetcher, parent


def seccomp(pid):
    return pathlib.Path('/proc/%d/status' % pid).read_text().split('\nSeccomp:\t')[1][0]


@pytest.mark.skipif(program.IS_INSTRUMENTED, reason='sanitizers have no sandbox')
def test_worker_and_fetcher_are_confined_and_the_worker_has_no_connection(files, serve, mount):
    mounted = mount(serve(files).url('one.safetensors', tls=True).replace('127.0.0.1', 'localhost'))
    (mounted.path / 't1').read_bytes()
    _, worker, fetcher, _ = processes(mounted)
    assert [seccomp(worker), seccomp(fetcher)] == ['2', '2']
    inodes = [re.search(r'socket:\[(\d+)\]', os.readlink(path)) for path in pathlib.Path('/proc/%d/fd' % worker).iterdir()]
    tcp = pathlib.Path('/proc/net/tcp').read_text() + pathlib.Path('/proc/net/tcp6').read_text()
    assert not any(inode and ' %s ' % inode[1] in tcp for inode in inodes)


def test_the_fetcher_keeps_no_file_terminal_or_directory_of_the_caller(files, serve, mount):
    _, _, fetcher, parent = processes(mount(serve(files).url('one.safetensors')))
    opened = [os.readlink(path) for pid in (fetcher, parent) for path in pathlib.Path('/proc/%d/fd' % pid).iterdir()]
    assert all(name == '/dev/null' or name.startswith(('socket:', 'anon_inode:', 'pipe:')) or '(deleted)' in name for name in opened)
    assert os.readlink('/proc/%d/cwd' % fetcher) == '/'


def test_a_killed_fetcher_is_an_error_and_what_is_cached_stays(files, serve, mount):
    mounted = mount(serve(files).url('one.safetensors')).allow('the process that fetches it has ended')
    data = st.read(files / 'one.safetensors').tensors['t0'][2]
    assert (mounted.path / 't0').read_bytes() == data
    for pid in processes(mounted)[:1:-1]:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(OSError) as caught:
        (mounted.path / 't3').read_bytes()
    assert caught.value.errno == errno.EIO
    assert (mounted.path / 't0').read_bytes() == data


def test_no_process_is_left_of_a_mount_or_of_a_killed_verb(files, serve, mount):
    server = serve(files)
    mounted = mount(server.url('one.safetensors'))
    pids = processes(mounted)
    mounted.close()
    wait_for(lambda: not any(is_alive(pid) for pid in pids), 'the end of all processes')


def test_a_source_that_changed_is_an_error_from_then_on(files, serve, mount):
    mounted = mount(serve(files).url('one.safetensors')).allow('has changed since it was mounted')
    (mounted.path / 't0').read_bytes()
    tensors = st.read(files / 'one.safetensors').tensors
    st.write(files / 'other', {key: (dtype, shape, data[::-1]) for key, (dtype, shape, data) in tensors.items()})
    os.utime(files / 'other', (1, 1))  # nginx makes the ETag of the second and the size
    os.replace(files / 'other', files / 'one.safetensors')
    for key in ('t3', 't2', 't3'):
        with pytest.raises(OSError) as caught:
            (mounted.path / key).read_bytes()
        assert caught.value.errno == errno.EIO
    assert 'changed' in mounted.status()['text']


def test_a_killed_reader_ends_at_once_and_others_go_on(files, serve, mount):
    server = serve(files)
    mounted = mount(server.url('one.safetensors'))
    stopped = [server._process.pid, *children(server._process.pid)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    readers = [subprocess.Popen(['cat', mounted.path / ('t%d' % i)], stdout=subprocess.PIPE) for i in (1, 2)]
    try:
        wait_for(lambda: all('R' not in state(reader.pid) for reader in readers), 'readers that wait')
        readers[0].kill()
        readers[0].wait(program.PATIENCE)
        assert sorted(os.listdir(mounted.path))[-1] == 't3'
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert readers[1].communicate(timeout=program.PATIENCE)[0] == st.read(files / 'one.safetensors').tensors['t2'][2]


def state(pid):
    return pathlib.Path('/proc/%d/stat' % pid).read_text().rsplit(')', 1)[1].split()[0]


def test_a_mount_of_a_url_writes_an_output(files, serve, mount):
    url = serve(files).url('one.safetensors')
    mounted = mount(url, 'output=%s' % (files.parent / 'out.safetensors'))
    (mounted.path / 't0').write_bytes(b'x' * 3 * MIB)
    os.remove(mounted.path / 't1')
    mounted.commit()
    expected = dict(st.read(files / 'one.safetensors').tensors, t0=('U8', [3 * MIB], b'x' * 3 * MIB))
    del expected['t1']
    assert st.read(files.parent / 'out.safetensors').tensors == expected
    assert 'output=' in weightfs(url, mounted.path.parent, '-o', 'rw', code=EXIT_USAGE).error


def test_a_full_cache_disk_is_an_error_of_that_read_and_not_of_the_mount(files, serve, mount, monkeypatch):
    tensors = st.read(files / 'one.safetensors').tensors
    with disks.small(files.parent, 'tmpfs', 4) as disk:
        monkeypatch.setenv('TMPDIR', str(disk))
        mounted = mount(serve(files).url('one.safetensors')).allow('No space left on device; free some space, or set TMPDIR')
        assert (mounted.path / 't0').read_bytes() == tensors['t0'][2]
        for _ in range(2):
            with pytest.raises(OSError) as caught:
                (mounted.path / 't1').read_bytes()
            assert caught.value.errno in (errno.EIO, errno.ENOSPC)
        assert (mounted.path / 't0').read_bytes() == tensors['t0'][2]
        assert 'TMPDIR' in mounted.status()['text']
        mounted.close()


def test_status_tells_how_much_is_cached(files, serve, mount):
    mounted = mount(serve(files).url('one.safetensors'))
    (before,) = mounted.status()['sources']
    (mounted.path / 't2').read_bytes()
    (after,) = mounted.status()['sources']
    assert before['bytes'] == os.path.getsize(files / 'one.safetensors')
    assert before['cached'] <= 128 << 10 and 3 * MIB <= after['cached'] - before['cached'] < 4 * MIB


def test_status_tells_how_much_is_fetched_of_what_is_needed(files, serve, mount):
    server = serve(files, more='limit_rate 300k;')
    mounted = mount(server.url('one.safetensors'))
    assert 'needed' not in mount(files / 'one.safetensors').status()
    server.forget()
    with subprocess.Popen(['cat', mounted.path / 't1'], stdout=subprocess.DEVNULL) as reader:
        def is_shown():
            status = mounted.status()
            return status['fetched'] + 100000 < status['needed'] <= 4 * MIB
        wait_for(is_shown, 'a read that is under way')
        assert re.search(r'^fetched +[\d.]+ [KM]iB of [\d.]+ [KM]iB$', weightfs('status', mounted.path).stdout, re.M)
        reader.kill()


@pytest.mark.slow
def test_memory_does_not_grow_with_what_was_read(folder, serve, mount):
    root = folder / 'served'
    root.mkdir()
    st.write_hole(root / 'large.safetensors', 2 << 30)
    mounted = mount(serve(root).url('large.safetensors'))
    (name,) = [name for name in os.listdir(mounted.path) if not name.startswith('.')]

    def peak():
        return sum(int(pathlib.Path('/proc/%d/status' % pid).read_text().split('VmHWM:')[1].split()[0]) for pid in processes(mounted)[1:])

    with open(mounted.path / name, 'rb', buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        sizes = []
        for _ in range(4):
            for _ in range(512):
                assert len(file.read(MIB)) > 0
            sizes.append(peak())
    assert sizes[-1] - sizes[0] < 16 << 10, sizes
