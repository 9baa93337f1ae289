# SPDX-License-Identifier: MIT
"""A source on the network that stops to answer: a read waits, and nobody waits for that read."""
import contextlib
import os
import pathlib
import random
import signal
import subprocess

import pytest

from wfs_testlib import program, st
from wfs_testlib.mount import is_alive, wait_for
from wfs_testlib.program import weightfs
from wfs_testlib.stalling import StallingServer

N_STALLED = 3 << 20
N_SMALL = 5000

# What a process can do beside the read that hangs, to tensors that the server gives out; each as `root` and `own`, a folder of its own.
KINDS = {
    'rename': lambda own: os.rename(own / 'w', own / 'renamed'),
    'rename over': lambda own: os.rename(own / 'w', own / 'v'),
    'removal': lambda own: os.unlink(own / 'w'),
    'link': lambda own: os.link(own / 'w', own / 'tied'),
    'directory': lambda own: (os.mkdir(own / 'new'), os.rmdir(own / 'new')),
    'new file': lambda own: (own / '.new').write_bytes(b'x'),
    'first write': lambda own: write_at(own / 'w', 10, b'abc'),
    'write of the whole': lambda own: write_at(own / 'w', 0, bytes(N_SMALL)),
    'truncate': lambda own: os.truncate(own / 'w', 100),
    'truncate to nothing': lambda own: os.truncate(own / 'w', 0),
    'allocate': lambda own: allocate(own / 'w'),
    'mode': lambda own: os.chmod(own / 'w', 0o600),
    'times': lambda own: os.utime(own / 'w', (1, 1)),
    'attribute': lambda own: os.setxattr(own / 'w', 'user.note', b'x'),
    'shape': lambda own: os.setxattr(own / 'w', 'user.weightfs.shape', b'[50, 100]'),
    'dtype of a transposed one': lambda own: os.setxattr(own / 'turned', 'user.weightfs.dtype', b'I8'),
    'copy': lambda own: copy_range(own / 'w', own / 'copied'),
    'copy onto another': lambda own: copy_range(own / 'w', own / 'v'),
    'sync of a file': lambda own: sync(own / 'w'),
}


def write_at(path, offset, data):
    with open(path, 'r+b', buffering=0) as file:
        os.pwrite(file.fileno(), data, offset)


def allocate(path):
    with open(path, 'r+b', buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, 6000)


def copy_range(source, target):
    with open(source, 'rb') as one, open(target, 'wb') as other:
        assert os.copy_file_range(one.fileno(), other.fileno(), N_SMALL) == N_SMALL


def sync(path):
    with open(path, 'r+b', buffering=0) as file:
        os.pwrite(file.fileno(), b'q', 0)
        os.fsync(file.fileno())


def make(folder):
    """{key: bytes} of the small tensors, and the file: the one that stalls lies at its end."""
    made = random.Random(7)
    tensors = {}
    for i in range(len(KINDS)):
        for key in ('w', 'v', 'turned'):
            shape = [50, 100] if key == 'turned' else [N_SMALL]
            tensors['k%d.%s' % (i, key)] = ('U8', shape, made.randbytes(N_SMALL))
    tensors['zy.between'] = ('U8', [1 << 21], made.randbytes(1 << 21))  # no reader of the others reads ahead as far as behind it
    tensors['zz.stalled'] = ('U8', [N_STALLED >> 10, 1 << 10], made.randbytes(N_STALLED))
    st.write(folder / 'model.safetensors', tensors)
    return {key: data for key, (_, _, data) in tensors.items()}


def waits(pid):
    """Whether a process has opened a file of a mount, and waits."""
    folder = pathlib.Path('/proc/%d' % pid)
    return (folder / 'stat').read_text().rsplit(')', 1)[1].split()[0] in 'SD' and any('/mnt' in os.readlink(path) for path in (folder / 'fd').iterdir())


class Stalled:
    """A mount whose source is a URL, or, as on a disk that is slow, a file of another such mount."""

    def __init__(self, servers, mount, folder, is_local, *options):
        self.data = make(folder)
        self.output = folder / 'out.safetensors'
        content = (folder / 'model.safetensors').read_bytes()
        self.server = servers.enter_context(StallingServer(content, (len(content) - N_STALLED, len(content))))
        self.readers = []
        source = self.server.url()
        if is_local:
            source = mount(source, patience=90) / '.weightfs/out/source.safetensors'
        self.mount = mount(source, 'output=%s' % self.output, 'transpose=turned', *options, patience=60)

    def read(self, path='zz/stalled', command=('cat',), is_open=True):
        """A process that reads what does not come."""
        self.server.stop()
        self.readers.append(subprocess.Popen([*command, self.mount / path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        wait_for(lambda: self.server.n_waiting > 0 and (waits(self.readers[-1].pid) or not is_open), 'a read that hangs')
        return self.readers[-1]

    def still_hangs(self):
        return self.server.n_waiting > 0 and all(reader.poll() is None for reader in self.readers)

    def goes_on(self):
        """What the readers get, now that the server answers."""
        self.server.go_on()
        return [reader.communicate(timeout=program.PATIENCE)[0] for reader in self.readers]

    def close(self):
        self.server.go_on()
        for reader in self.readers:
            reader.kill()
            reader.communicate()


@pytest.fixture
def servers():
    """They end after the mounts."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def stalled(servers, mount, folder):
    with contextlib.ExitStack() as stack:
        def start(*options, is_local=False):
            one = Stalled(servers, mount, folder, is_local, *options)
            stack.callback(one.close)
            return one
        yield start


@pytest.mark.parametrize('is_local', [False, True], ids=['URL', 'slow disk'])
def test_every_change_and_every_look_goes_on_beside_a_read_that_hangs(stalled, is_local):
    it = stalled(is_local=is_local)
    it.read()
    root = it.mount.path
    for i, (name, change) in enumerate(KINDS.items()):
        change(root / ('k%d' % i))
        assert it.still_hangs(), name
    look(it, root)
    assert it.goes_on() == [it.data['zz.stalled']]
    for i, name in enumerate(KINDS):
        if name in ('truncate', 'truncate to nothing', 'allocate'):
            os.unlink(root / ('k%d/w' % i))
    it.mount.unmount()
    found = {key: data for key, (_, _, data) in st.read(it.output).tensors.items()}
    assert found == expected_of(it.data)


def look(it, root):
    """Names, sizes, attributes, digests, other tensors, what is generated, the program's own verbs."""
    assert 'zz' in os.listdir(root) and os.stat(root / 'zz/stalled').st_size == N_STALLED
    assert os.getxattr(root / 'zz/stalled', 'user.weightfs.dtype') == b'U8'
    assert len(os.listxattr(root / 'zz/stalled')) >= 3
    assert len(os.getxattr(root / 'k3/v', 'user.weightfs.xxh3')) == 16
    assert (root / 'k5/v').read_bytes() == it.data['k5.v']
    assert (root / '.weightfs/tensors.csv').read_bytes().count(b'\n') > 50
    assert os.statvfs(root).f_blocks > 0
    with open(root / '.weightfs/out/source.safetensors', 'rb') as file:
        assert file.read(9)[8:] == b'{'
    for words in (('status', root), ('status', '--edits', root), ('status', '--json', root)):
        weightfs(*words)
    assert it.still_hangs()


def expected_of(data):
    """{key: bytes} after the changes."""
    made = dict(data)
    for i, name in enumerate(KINDS):
        own, w = 'k%d.' % i, data['k%d.w' % i]
        turned = data[own + 'turned']
        made[own + 'turned'] = bytes(turned[at // 50 + at % 50 * 100] for at in range(N_SMALL))
        if name in ('rename', 'rename over', 'removal', 'truncate', 'truncate to nothing', 'allocate'):
            del made[own + 'w']
        made.update({'rename': {own + 'renamed': w}, 'rename over': {own + 'v': w}, 'link': {own + 'tied': w}, 'first write': {own + 'w': w[:10] + b'abc' + w[13:]},
                     'write of the whole': {own + 'w': bytes(N_SMALL)}, 'copy': {own + 'copied': w}, 'copy onto another': {own + 'v': w},
                     'sync of a file': {own + 'w': b'q' + w[1:]}}.get(name, {}))
    return made


@pytest.mark.parametrize('change', [
    lambda root, new: os.rename(root / 'zz/stalled', root / 'zz/renamed'),
    lambda root, new: os.unlink(root / 'zz/stalled'),
    lambda root, new: os.rename(new, root / 'zz/stalled'),
    lambda root, new: os.setxattr(root / 'zz/stalled', 'user.weightfs.shape', b'[3145728]'),
    lambda root, new: os.setxattr(root / 'zz/stalled', 'user.weightfs.dtype', b'I8'),
], ids=['rename', 'removal', 'replacement', 'shape', 'dtype'])
def test_a_reader_gets_the_old_bytes_of_what_is_changed_meanwhile(stalled, change):
    it = stalled()
    new = it.mount / '.new'
    new.write_bytes(b'n' * N_STALLED)
    it.read()
    change(it.mount.path, new)
    assert it.still_hangs()
    if not new.exists():
        assert (it.mount / 'zz/stalled').read_bytes() == b'n' * N_STALLED
        assert it.still_hangs()
    assert it.goes_on() == [it.data['zz.stalled']]


def test_a_change_that_needs_the_bytes_waits_for_them_alone_and_ends_when_it_is_killed(stalled):
    it = stalled()
    path = it.mount / 'zz/stalled'
    it.server.stop()
    code = 'import os, sys; os.pwrite(os.open(sys.argv[1], os.O_RDWR), b"w" * 8, 100)'
    for i in range(2):
        writer = subprocess.Popen(['/usr/bin/python3', '-SEc', code, path])
        wait_for(lambda: it.server.n_waiting > 0, 'a write that hangs')
        os.rename(it.mount / ('k%d/w' % i), it.mount / ('k%d/moved' % i))
        write_at(it.mount / ('k%d/v' % i), 3, b'x')
        assert writer.poll() is None
        if i == 0:
            writer.kill()
            writer.wait(program.PATIENCE)
    it.server.go_on()
    assert writer.wait(program.PATIENCE) == 0
    data = it.data['zz.stalled']
    assert path.read_bytes() == data[:100] + b'w' * 8 + data[108:]


DIRECT = ('/usr/bin/python3', '-SEc', """
import mmap, os, sys
room, fd = mmap.mmap(-1, 1 << 16), os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
at = 0
while (n := os.preadv(fd, [room], at)) > 0:
    os.write(1, room[:n])
    at += n
""")


@pytest.mark.parametrize('command', [('cat',), DIRECT], ids=['cat', 'O_DIRECT'])
def test_readers_of_the_same_bytes_end_when_they_are_killed_and_the_others_get_them(stalled, command):
    it = stalled('transpose=stalled')
    readers = [it.read(command=command) for _ in range(4)]
    for reader in readers[:3]:
        reader.kill()
        reader.wait(program.PATIENCE)
    data = it.data['zz.stalled']
    assert it.goes_on()[3] == b''.join(data[column::1 << 10] for column in range(1 << 10))


def test_a_save_waits_while_reads_go_on_and_can_be_stopped(stalled):
    it = stalled()
    os.rename(it.mount / 'k0/w', it.mount / 'k0/moved')
    it.server.stop()
    save = subprocess.Popen([*program.COMMAND, 'commit', it.mount.path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for(lambda: it.server.n_waiting > 0, 'a save that hangs')
    assert (it.mount / 'k1/w').read_bytes() == it.data['k1.w']
    assert it.mount.status()['state'] == 'committing' and 'zz' in os.listdir(it.mount.path)
    save.send_signal(signal.SIGINT)
    assert b'stopped by the user' in save.communicate(timeout=program.PATIENCE)[1]
    it.mount.allow('stopped by the user')
    os.rename(it.mount / 'k2/w', it.mount / 'k2/moved')
    it.server.go_on()
    weightfs('commit', it.mount.path)
    assert {'k0.moved', 'k2.moved'} <= set(st.read(it.output).tensors)


def test_generated_files_are_read_and_grow_without_keeping_others_waiting(stalled):
    it = stalled()
    out, edits = (it.mount / '.weightfs/out' / name for name in ('model.safetensors', 'edits.safetensors'))
    os.setxattr(it.mount / 'zz/stalled', 'user.weightfs.shape', b'[3145728]')  # the patch has the digest of what it was
    it.server.stop()
    with open(out, 'rb') as file:
        front = file.read(1 << 16)
    it.read('.weightfs/out/model.safetensors')
    it.read('.weightfs/out/edits.safetensors', is_open=False)  # its digests wait
    os.rename(it.mount / 'k0/w', it.mount / 'k0/moved')
    write_at(it.mount / 'k1/w', 3, b'x')
    assert os.stat(out).st_size > N_STALLED and os.stat(edits).st_size > N_SMALL
    assert it.server.n_waiting > 0
    whole, _ = it.goes_on()
    assert whole[:len(front)] == front[:len(whole)] and len(whole) < N_STALLED, 'a mixture, after a change'
    copied = it.output.parent / 'copied.safetensors'
    copied.write_bytes(out.read_bytes())
    found = st.read(copied).tensors
    assert found['zz.stalled'] == ('U8', [N_STALLED], it.data['zz.stalled']) and found['k0.moved'][2] == it.data['k0.w']
    patch = it.output.parent / 'patch.safetensors'
    patch.write_bytes(edits.read_bytes())
    assert 'k1.w' in st.read(patch).tensors


@pytest.mark.parametrize('how', ['a signal', 'umount'])
def test_a_mount_ends_beside_reads_that_hang(stalled, how):
    it = stalled()
    it.read()
    if how == 'a signal':
        it.mount.terminate()
        return
    assert subprocess.run(['umount', it.mount.path], stderr=subprocess.DEVNULL, check=False).returncode != 0
    it.readers[0].kill()
    it.readers[0].wait(program.PATIENCE)
    it.mount.unmount()
    assert it.server.n_waiting > 0


# Each child reads a piece of its own, by a request for which it waits itself.
MANY = """
import mmap, os, sys
for i in range(int(sys.argv[1])):
    if os.fork() == 0:
        room, fd = mmap.mmap(-1, 4096), os.open(sys.argv[2], os.O_RDONLY | os.O_DIRECT)
        n = os.preadv(fd, [room], i * 8192)
        os._exit(0 if room[:n] == open(sys.argv[3], 'rb').read()[i * 8192:i * 8192 + n] else 1)
print(flush=True)
print(*[os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(int(sys.argv[1]))])
"""


def test_more_reads_than_threads_hang_and_others_go_on(stalled, folder):
    n = 100
    it = stalled()
    (folder / 'expected').write_bytes(it.data['zz.stalled'])
    for name in ('k1/w', 'k3/v', 'k5/v'):
        (it.mount / name).read_bytes()
    it.server.stop()
    many = subprocess.Popen(['/usr/bin/python3', '-SEc', MANY, str(n), it.mount / 'zz/stalled', folder / 'expected'], stdout=subprocess.PIPE)
    many.stdout.readline()
    cats = [it.read() for _ in range(4)]
    children = [int(pid) for pid in pathlib.Path('/proc/%d/task/%d/children' % (many.pid, many.pid)).read_text().split()]
    wait_for(lambda: all(waits(pid) for pid in children), 'all reads to hang')
    assert subprocess.run([*DIRECT, it.mount / 'k5/v'], stdout=subprocess.PIPE, check=True).stdout == it.data['k5.v']
    assert 'zz' in os.listdir(it.mount.path) and it.mount.status()['state'] == 'clean'
    write_at(it.mount / 'k1/w', 3, b'x')
    os.rename(it.mount / 'k0/w', it.mount / 'k0/moved')
    for pid in children[::2]:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(is_alive(pid) for pid in children[::2]), 'the end of readers that are killed')
    assert len(os.getxattr(it.mount / 'k3/v', 'user.weightfs.xxh3')) == 16
    it.server.go_on()
    codes = many.communicate(timeout=program.PATIENCE)[0].split()
    assert sorted(codes) == sorted([b'-9'] * (n // 2) + [b'0'] * (n // 2))
    assert it.goes_on() == [it.data['zz.stalled']] * len(cats)
