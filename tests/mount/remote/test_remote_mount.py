# SPDX-License-Identifier: MIT
"""Mounts of checkpoints behind nginx: what the file shows, also when the server goes away or has another object, and no byte twice."""
import concurrent.futures
import errno
import json
import os
import signal
import subprocess
import threading

import pytest

from wfs_testlib import checkpoints, disks, look, program, sets, shared, st
from wfs_testlib.mount import children, is_alive, wait_for
from wfs_testlib.program import tool

MIB = 1 << 20
SLOW = 'limit_rate 500k;'  # of each connection
N_EACH = 8 * MIB
N_PARTS = 64


@pytest.fixture
def random_file(folder):
    return st.write(folder / 'random.safetensors', {name: ('U8', [N_EACH], os.urandom(N_EACH)) for name in 'ab'})


def fetchers(mnt):
    """The processes that fetch, each behind its parent."""
    parents = [child for worker in mnt.workers for child in children(worker)]
    return [pid for parent in parents for pid in [parent, *children(parent)]]


def content_or_error(path):
    try:
        return path.read_bytes()
    except OSError as error:  # damaged files have such tensors
        return error.errno


def shown(mount, source):
    """{path: (content, attributes)} of all files of a mount."""
    mnt = mount(source).allow('.')
    found = {name: (content_or_error(mnt / name), {key: os.getxattr(mnt / name, key) for key in os.listxattr(mnt / name)})
             for name in look.files(mnt.path)}
    mnt.unmount()
    return found


@pytest.mark.parametrize('tls', [False, True], ids=['http', 'TLS'])
def test_every_format_shows_what_the_file_shows(serve, mount, folder, tls):
    server = serve(folder)
    tensors = {'a.weight': ('F32', [300, 200], os.urandom(240000)), 'a.bias': ('F32', [3], st.f32(1, 2, 3)), 'n': ('I64', [], bytes(8))}
    paths = [checkpoints.write(folder / ('one.' + ending), tensors) for ending in checkpoints.ENDINGS]
    paths.append(sets.write(folder / 'set', [dict([item]) for item in tensors.items()]) / sets.INDEX)
    for path in paths:
        found = shown(mount, server.url(path, tls))
        assert found == shown(mount, path)
        assert {name.replace('/', '.'): data for name, (data, _) in found.items()} == {key: data for key, (_, _, data) in tensors.items()}


CASES = [path for path, _, _ in shared.checkpoints()]


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('path', shared.each(CASES[::90], lambda path: path.stem))
def test_a_sample_of_files_of_other_programs(serve, mount, path):
    assert shown(mount, serve(shared.FOLDER.resolve()).url(path.resolve())) == shown(mount, path)


FOLDERS = sorted({path.parent for path in shared.everything() if path.name == '.metadata' and 'dcp' in path.parts})


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('path', shared.each(FOLDERS[::12], lambda path: path.name))
def test_a_sample_of_distributed_checkpoints_of_other_programs(serve, mount, path):
    if program.weightfs('ls', path, code=None).code == 0 and 'huge' not in path.name:
        assert shown(mount, serve(shared.FOLDER.resolve()).url(path.resolve()) + '/') == shown(mount, path)


@pytest.mark.usefixtures('need_shared')
def test_parts_that_are_opened_by_the_first_read_are_waited_for(serve, mount):
    """With more chunks than the limit, none is looked at when the checkpoint is loaded."""
    path = next(path for path in FOLDERS if path.name == 'mesh-2d')
    url = serve(shared.FOLDER.resolve()).url(path.resolve()) + '/'
    expected = {key: value[0] for key, value in shown(mount, path).items()}
    mounted = mount(url, 'limit.items=0')
    found = {key: content_or_error(mounted / key) for key in expected}
    assert found == expected


@pytest.mark.slow
@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('start', range(N_PARTS))
def test_every_file_of_other_programs(serve, mount, start):
    server = serve(shared.FOLDER.resolve())
    for path in shared.everything()[start::N_PARTS]:
        path = path.resolve()
        if 'dcp' not in path.parts and '11-dag' not in path.name and program.weightfs('ls', path, code=None).code == 0:
            theirs = shown(mount, path)
            for tls in False, True:
                assert shown(mount, server.url(path, tls)) == theirs, path


def test_edits_of_a_url_are_committed_as_those_of_the_file(serve, mount, sample, folder):
    server = serve(folder)
    for name, source in ('ours', server.url(sample)), ('theirs', sample):
        mnt = mount(source, 'output=%s' % (folder / (name + '.safetensors')))
        os.rename(mnt / 'encoder', mnt / 'renamed')
        with open(mnt / 'pooler' / 'dense' / 'bias', 'r+b') as file:
            file.write(b'\1\2\3\4')
        os.unlink(mnt / 'temperature')
        mnt.commit()
        mnt.unmount()
    assert (folder / 'ours.safetensors').read_bytes() == (folder / 'theirs.safetensors').read_bytes()


# ---- what goes over the wire ----

def test_no_byte_is_fetched_twice(serve, mount, random_file, folder):
    server = serve(folder)
    mnt = mount(server.url(random_file))
    for name in 'abab':
        with open(mnt / name, 'rb') as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        tool('cp', mnt / name, '/dev/null')
    assert server.n_bytes() <= random_file.stat().st_size + MIB


def test_readers_of_the_same_bytes_wait_for_one_fetch(serve, mount, random_file, folder):
    server = serve(folder, more=SLOW)
    mnt = mount(server.url(random_file))
    readers = [subprocess.Popen(['cat', mnt / 'a'], stdout=subprocess.DEVNULL) for _ in range(8)]
    assert [reader.wait(program.PATIENCE) for reader in readers] == [0] * 8
    assert server.n_bytes() <= random_file.stat().st_size / 2 + 2 * MIB


def test_cp_of_one_tensor_costs_its_bytes(serve, mount, random_file, folder):
    server = serve(folder)
    mnt = mount(server.url(random_file))
    tool('cp', mnt / 'a', folder / 'copy')
    assert (folder / 'copy').read_bytes() == st.read(random_file).tensors['a'][2]
    assert server.n_bytes() <= N_EACH + 2 * MIB


def test_scattered_small_reads_cost_small_pieces(serve, mount, folder):
    tensors = {}
    for i in range(100):
        tensors['t%d' % i] = ('U8', [4096], bytes([i]) * 4096)
        tensors['gap%d' % i] = ('U8', [MIB], bytes(MIB))
    server = serve(folder)
    mnt = mount(server.url(st.write(folder / 'x.safetensors', tensors)))
    for i in range(0, 700, 7):
        assert (mnt / ('t%d' % (i % 100))).read_bytes() == bytes([i % 100]) * 4096
    assert server.n_bytes() <= 100 * 36000 + MIB


def test_scattered_readers_keep_their_connections(serve, mount, folder):
    """One that is idle for a moment is not closed: another one would cost a round trip."""
    tensors = {}
    for i in range(400):
        tensors['t%d' % i] = ('U8', [4096], bytes([i % 256]) * 4096)
        tensors['gap%d' % i] = ('U8', [64 << 10], bytes(64 << 10))
    server = serve(folder)
    mnt = mount(server.url(st.write(folder / 'x.safetensors', tensors)))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda i: (mnt / ('t%d' % i)).read_bytes(), [i * 79 % 400 for i in range(400)]))
    assert found == [bytes([i * 79 % 400 % 256]) * 4096 for i in range(400)]
    requests = server.requests()
    assert len(requests) <= 400 + 4
    assert len({request.connection for request in requests}) <= 16


def test_a_mount_of_100_shards_costs_two_requests_each(serve, mount, folder):
    place = sets.write(folder / 'set', [{'t%d' % i: ('U8', [3], b'abc')} for i in range(100)])
    server = serve(folder)
    mnt = mount(server.url(place / sets.INDEX))
    assert len(os.listdir(mnt.path)) == 100
    assert len(server.requests()) <= 210


# ---- a server that goes away, an object that changes ----

class Copy:
    """A cp that goes on while the test does something."""

    def __init__(self, source, target):
        self.target = target
        self.process = subprocess.Popen(['cp', source, target], stderr=subprocess.PIPE)

    def wait_for_some(self, n_bytes=MIB):
        wait_for(lambda: self.process.poll() is not None or (self.target.exists() and self.target.stat().st_size >= n_bytes), 'a copy')
        assert self.process.poll() is None, 'it is over before anything happened'

    def end(self):
        try:
            _, stderr = self.process.communicate(timeout=4 * program.PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, stderr.decode()


@pytest.mark.parametrize('seconds', [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_copy_goes_on_when_the_server_comes_back(serve, mount, random_file, folder, seconds):
    server = serve(folder, more=SLOW)
    mnt = mount(server.url(random_file))
    copy = Copy(mnt / 'a', folder / 'copy')
    copy.wait_for_some()
    server.die()
    with pytest.raises(subprocess.TimeoutExpired):
        copy.process.wait(seconds)
    server.revive()
    assert copy.end() == (0, '')
    assert (folder / 'copy').read_bytes() == st.read(random_file).tensors['a'][2]


def begin(*words):
    return subprocess.Popen([*program.COMMAND, *map(os.fspath, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def start_commit(mount, url, small, output):
    mnt = mount(url, 'output=%s' % output)
    (mnt / 'a').write_bytes(b'x' * N_EACH)
    return begin('commit', mnt.path)


# What reads all of a URL, and whether it writes the output, with what else in it.
READERS = {
    'convert': lambda mount, url, small, output: begin('convert', url, output),
    'sum': lambda mount, url, small, output: begin('sum', url),
    'overlay': lambda mount, url, small, output: begin('convert', '--overlay=' + url, small, output),
    'commit': start_commit,
}


@pytest.mark.slow
@pytest.mark.parametrize('seconds', [1, 20])
@pytest.mark.parametrize('reader', READERS)
def test_readers_go_on_when_the_server_comes_back(serve, mount, small, random_file, folder, reader, seconds):
    server = serve(folder, more=SLOW)
    url, output = server.url(random_file), folder / 'out.safetensors'
    process = READERS[reader](mount, url, small, output)
    wait_for(lambda: server.n_writing() > 2 or process.poll() is not None, 'several answers at a time')
    server.die()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(seconds)
    server.revive()
    stdout, stderr = process.communicate(timeout=4 * program.PATIENCE)
    assert (process.returncode, stderr) == (0, b'')
    tensors = st.read(random_file).tensors
    if reader == 'sum':
        assert stdout.decode() == server.in_urls(tool(*program.COMMAND, 'sum', random_file).stdout, random_file)
    else:
        expected = {'overlay': {**st.read(small).tensors, **tensors}, 'commit': {**tensors, 'a': ('U8', [N_EACH], b'x' * N_EACH)}}
        assert st.read(output).tensors == expected.get(reader, tensors)


def test_bytes_of_two_versions_are_never_mixed(serve, mount, random_file, folder):
    server = serve(folder, more=SLOW)
    old = st.read(random_file).tensors['a'][2]
    mnt = mount(server.url(random_file)).allow('changed|another')
    copy = Copy(mnt / 'a', folder / 'copy')
    copy.wait_for_some()
    st.write(folder / 'other', {name: ('U8', [N_EACH], bytes(N_EACH)) for name in 'ab'})
    os.utime(folder / 'other', (1, 1))
    os.rename(folder / 'other', random_file)
    code, stderr = copy.end()
    got = (folder / 'copy').read_bytes()
    assert got == old[:len(got)]
    assert (code == 0 and len(got) == len(old)) or os.strerror(errno.EIO) in stderr  # what was under way is of the old one
    with pytest.raises(OSError) as caught:
        (mnt / 'b').read_bytes()
    assert caught.value.errno == errno.EIO
    assert mnt.status()['sources'][0]['state'] != 'ok'


def test_a_fetcher_that_was_killed_is_started_again(serve, mount, random_file, folder):
    """In the middle of a copy, and while nobody reads; also of the shards of a set, which only its index describes."""
    tensors = st.read(random_file).tensors
    sets.write(folder / 'set', [{'a': tensors['a']}, {'b': tensors['b']}])
    server = serve(folder, more=SLOW)
    for source in random_file, folder / 'set' / sets.INDEX:
        mnt = mount(server.url(source))
        copy = Copy(mnt / 'a', folder / 'copy')
        copy.wait_for_some()
        _, fetcher = fetchers(mnt)
        os.kill(fetcher, signal.SIGKILL)
        assert copy.end()[0] == 0 and (folder / 'copy').read_bytes() == tensors['a'][2]
        parent, second = fetchers(mnt)
        assert second != fetcher
        os.kill(second, signal.SIGKILL)
        wait_for(lambda: children(parent) not in ([], [second]), 'another process that fetches')
        assert (mnt / 'b').read_bytes() == tensors['b'][2]
        mnt.unmount()
        wait_for(lambda: not is_alive(parent), 'the parent ends with its mount')
        os.unlink(folder / 'copy')


def stored(source, folder, kind):
    """The tensors of a file in a folder of that kind, and what of it is mounted."""
    if kind == 'pipeline':
        for name in 'ab':
            (folder / kind / name).mkdir(parents=True)
            program.weightfs('convert', source, folder / kind / name / 'diffusion_pytorch_model.safetensors', '--include=^%s$' % name)
        (folder / kind / 'model_index.json').write_text(json.dumps({name: ['diffusers', 'A'] for name in 'ab'}))
        return folder / kind / 'model_index.json'
    program.weightfs('convert', source, '%s/' % (folder / kind), '--format=%s' % {'set': 'safetensors'}.get(kind, kind), '--max-shard-size=9MB')
    return folder / kind / {'set': sets.INDEX, 'dcp': '.metadata'}[kind]


@pytest.mark.parametrize('kind, option', [('set', 'rw'), ('dcp', 'rw'), ('dcp', 'limit.items=0'), ('pipeline', 'rw')])
def test_another_fetcher_fetches_what_the_first_one_never_read(serve, mount, random_file, folder, kind, option):
    """Shards, parts and components, also those that a discarded edit brings back."""
    path = stored(random_file, folder, kind)
    mnt = mount(serve(folder).url(path), 'output=%s' % (folder / 'out.safetensors') if option == 'rw' else option)
    names = sorted(look.files(mnt.path))
    assert len(names) == 2
    if option == 'rw':
        os.rename(mnt / names[0], mnt / 'renamed')
        os.unlink(mnt / names[1])
    parent, first = fetchers(mnt)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: children(parent) not in ([], [first]), 'another process that fetches')
    if option == 'rw':
        program.weightfs('discard', mnt.path)
    assert [(mnt / name).read_bytes() for name in names] == [st.read(random_file).tensors[key][2] for key in 'ab']


def test_a_source_that_changed_while_the_fetcher_was_killed_is_an_error(serve, mount, random_file, folder):
    server = serve(folder)
    mnt = mount(server.url(random_file)).allow('.')
    head = (mnt / 'a').open('rb').read(1000)
    assert head == st.read(random_file).tensors['a'][2][:1000]
    parent, fetcher = fetchers(mnt)
    os.kill(fetcher, signal.SIGKILL)
    wait_for(lambda: children(parent) not in ([], [fetcher]), 'another process that fetches')
    st.write(random_file, {name: ('U8', [N_EACH], os.urandom(N_EACH)) for name in 'ab'})
    os.utime(random_file, (1, 1))
    with pytest.raises(OSError) as caught:
        (mnt / 'b').read_bytes()
    assert caught.value.errno == errno.EIO


def test_when_its_parent_was_killed_too_it_is_an_error_and_no_hang(serve, mount, random_file, folder):
    server = serve(folder, more=SLOW)
    old = st.read(random_file).tensors['a'][2]
    mnt = mount(server.url(random_file)).allow('.')
    copy = Copy(mnt / 'a', folder / 'copy')
    copy.wait_for_some()
    for pid in fetchers(mnt):
        os.kill(pid, signal.SIGKILL)
    code, stderr = copy.end()
    got = (folder / 'copy').read_bytes()
    assert got == old[:len(got)]
    assert (code == 0 and len(got) == len(old)) or os.strerror(errno.EIO) in stderr
    assert sorted(os.listdir(mnt.path)) == ['a', 'b']


def test_nothing_stays_when_everything_is_killed(serve, mount, random_file, folder):
    server = serve(folder)
    mnt = mount(server.url(random_file))
    tool('head', '-c', '1000', mnt / 'a')
    processes = fetchers(mnt)
    assert processes
    mnt.kill()
    wait_for(lambda: not any(map(is_alive, processes)), 'the fetcher ends with its mount')


def test_the_fetcher_ends_with_its_mount(serve, mount, random_file, folder):
    mnt = mount(serve(folder).url(random_file))
    processes = fetchers(mnt)
    assert processes
    mnt.unmount()
    wait_for(lambda: not any(map(is_alive, processes)), 'the fetcher ends with its mount')


def test_a_reader_that_waits_can_be_killed(serve, mount, random_file, folder):
    server = serve(folder, more='if ($http_range ~ "bytes=[1-9]") { set $limit_rate 100; }')
    mnt = mount(server.url(random_file))
    reader = subprocess.Popen(['cat', mnt / 'a'], stdout=subprocess.DEVNULL)
    with pytest.raises(subprocess.TimeoutExpired):
        reader.wait(0.3)
    reader.kill()
    reader.wait(program.PATIENCE)
    server.die()
    mnt.unmount()


# ---- what it costs here ----

def test_memory_does_not_grow_with_what_was_read(serve, mount, folder):
    path = st.write_hole(folder / 'hole.safetensors', 256 << 20)
    mnt = mount(serve(folder).url(path))
    tool('cp', mnt / 'w', '/dev/null')
    for pid in mnt.workers + fetchers(mnt):
        status = open('/proc/%d/status' % pid, encoding='ascii').read()
        peak = int(status.split('VmHWM:')[1].split()[0]) * 1024
        assert program.IS_INSTRUMENTED or peak < 64 * MIB, status


@pytest.mark.root
def test_a_full_cache_disk_is_an_error_of_the_read(serve, mount, random_file, folder, monkeypatch):
    server = serve(folder)
    with disks.small(folder, 'tmpfs', 4) as disk:
        monkeypatch.setenv('TMPDIR', str(disk))
        mnt = mount(server.url(random_file)).allow('cache')
        failed = tool('cp', mnt / 'a', '/dev/null', code=1).stderr
        assert os.strerror(errno.ENOSPC) in failed or os.strerror(errno.EIO) in failed
        assert sorted(os.listdir(mnt.path)) == ['a', 'b']
        with open(mnt / 'a', 'rb') as file:
            assert file.read(4096) == st.read(random_file).tensors['a'][2][:4096]
        mnt.unmount()


def test_many_readers_at_once_get_their_bytes(serve, mount, random_file, folder):
    mnt = mount(serve(folder).url(random_file))
    tensors = st.read(random_file).tensors
    wrong = []

    def read(i):
        with open(mnt / 'ab'[i % 2], 'rb', buffering=0) as file:
            for k in range(60):
                at = (i * 7919 + k * 104729 * 13) % (N_EACH - 5000)
                if os.pread(file.fileno(), 5000, at) != tensors['ab'[i % 2]][2][at:at + 5000]:
                    wrong.append((i, at))

    threads = [threading.Thread(target=read, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
