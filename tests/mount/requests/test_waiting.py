# SPDX-License-Identifier: MIT
"""Work that waits for a commit: many changes, which hold nobody else up and end when they are killed, and `status --watch`."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess

import pytest

from wfs_testlib import program, st, terminal
from wfs_testlib.mount import wait_for
from wfs_testlib.program import EXIT_COMMIT, EXIT_MOUNT, EXIT_USAGE, weightfs

# ---- changes ----

N = 64
N_HUGE = 16 << 30  # bytes: the checksum of a hole of that size takes seconds
KINDS = {
    'write': 'fd = os.open(t, os.O_WRONLY); os.pwrite(fd, bytes([i]), 0)',
    'large write': 'fd = os.open(t, os.O_WRONLY); os.pwrite(fd, bytes([i]) * (1 << 16), 0)',
    'mode': 'os.chmod(t, 0o600)',
    'rename': 'os.rename(t, t + "r")',
    'removal': 'os.unlink(t)',
    'attribute': 'os.setxattr(t, "user.note", b"x")',
    'directory': 'os.mkdir(t + "d")',
    'new file': 'open(os.path.dirname(t) + "/.new", "x")',
    'sync': 'fd = os.open(t, os.O_RDWR); os.fsync(fd)',
}
# Each child makes one change, of the tensor with its number.
FORKS = '''
import os, sys
os.chdir(sys.argv[1])
for i, code in enumerate(eval(sys.argv[2])):
    pid = os.fork()
    if pid == 0:
        t = 't%d/w' % i
        try:
            exec(code)
        except OSError as problem:
            os._exit(problem.errno)
        os._exit(0)
    print(pid, flush=True)
for i in range(len(eval(sys.argv[2]))):
    print(*os.wait(), flush=True)
'''


def make(path):
    """64 small tensors, and a hole."""
    head, at = {}, 0
    for i in range(N):
        head['t%d.w' % i] = {'dtype': 'U8', 'shape': [1 << 16], 'data_offsets': [at, at + (1 << 16)]}
        at += 1 << 16
    head['other.w'] = {'dtype': 'U8', 'shape': [5], 'data_offsets': [at, at + 5]}
    head['huge'] = {'dtype': 'U8', 'shape': [N_HUGE], 'data_offsets': [at + 5, at + 5 + N_HUGE]}
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, 'little') + text + bytes(at) + b'other')
    os.truncate(path, 8 + len(text) + at + 5 + N_HUGE)
    return path


class Waiters:
    """Processes that change something while a commit runs."""

    def __init__(self, mnt, codes):
        self.process = subprocess.Popen(['/usr/bin/python3', '-SEc', FORKS, mnt.path, repr(codes)], stdout=subprocess.PIPE, text=True)
        self.pids = [int(self.process.stdout.readline()) for _ in codes]
        wait_for(lambda: all(self.is_waiting(pid) for pid in self.pids), 'all changes to wait')

    @staticmethod
    def is_waiting(pid):
        return pathlib.Path('/proc/%d/wchan' % pid).read_text() in ('request_wait_answer', '__fuse_simple_request', 'fuse_simple_request')

    def ended(self, n):
        """{pid: status} of the next n that end."""
        return dict(map(int, self.process.stdout.readline().split()) for _ in range(n))


@pytest.fixture
def committing(mount, folder):
    mnt = mount(make(folder / 'a.safetensors'), 'output=%s' % (folder / 'out.pth'), patience=30)
    os.rename(mnt / 'other', mnt / 'another')
    mnt.committer = subprocess.Popen([*program.COMMAND, 'commit', mnt.path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: mnt.status()['state'] == 'committing', 'the commit to begin')
    return mnt


def still_commits(mnt):
    return mnt.committer.poll() is None and mnt.status()['state'] == 'committing'


def stop(mnt):
    mnt.committer.send_signal(signal.SIGINT)
    mnt.committer.wait(program.PATIENCE)
    mnt.allow('stopped by the user')


def leave(mnt, waiters):
    """Without the hole the commit at the end is short."""
    waiters.process.wait(program.PATIENCE)  # its working directory is in the mount
    (mnt / 'huge').unlink()
    mnt.unmount()


def test_readers_go_on_while_many_changes_wait(committing, folder):
    names = list(KINDS)
    codes = [KINDS[names[i % len(names)]] for i in range(N)]
    waiters = Waiters(committing, codes)
    assert (committing / 'another/w').read_bytes() == b'other'
    assert len(os.listdir(committing.path)) == N + 2
    assert still_commits(committing), 'the commit was too short for this test, or the reader had to wait for it'
    stop(committing)
    assert set(waiters.ended(N).values()) == {0}
    leave(committing, waiters)
    # What each change has done is in the output.
    found = st.read(convert(folder)).tensors
    for i, code in enumerate(codes):
        kind, size = names[i % len(names)], 1 << 16
        if kind == 'removal':
            assert 't%d.w' % i not in found
        else:
            key = 't%d.wr' % i if kind == 'rename' else 't%d.w' % i
            n_written = {'write': 1, 'large write': size}.get(kind, 0)
            assert found[key][2] == bytes([i]) * n_written + bytes(size - n_written), (kind, key)


def convert(folder):
    program.weightfs('convert', folder / 'out.pth', folder / 'o.safetensors')
    return folder / 'o.safetensors'


@pytest.mark.parametrize('kind', ['write', 'rename'])
def test_killed_changes_end_at_once_and_do_not_happen(committing, kind):
    waiters = Waiters(committing, [KINDS[kind]] * N)
    killed = waiters.pids[::2]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert waiters.ended(len(killed)) == dict.fromkeys(killed, signal.SIGKILL)
    assert still_commits(committing), 'the commit was too short for this test, or the killed had to wait for it'
    stop(committing)
    assert waiters.ended(N - len(killed)) == dict.fromkeys(waiters.pids[1::2], 0)
    for i in range(N):
        if kind == 'rename':
            assert os.listdir(committing / ('t%d' % i)) == (['w'] if i % 2 == 0 else ['wr'])
        else:
            assert (committing / ('t%d/w' % i)).read_bytes()[0] == (0 if i % 2 == 0 else i)
    leave(committing, waiters)


def test_changes_that_wait_end_with_the_mount(committing):
    waiters = Waiters(committing, [KINDS['rename']] * N)
    os.kill(committing.process.pid, signal.SIGKILL)
    for pid in committing.workers:
        os.kill(pid, signal.SIGKILL)
    assert 0 not in waiters.ended(N).values()


# ---- status --watch ----

N_BYTES = 1 << 28


@pytest.fixture
def slow(mount, folder):
    """A mount whose commit has to cast a hole of 256 MiB."""
    path = st.write_hole(folder / 'in.safetensors', N_BYTES)
    mounted = mount(path, 'cast=F8_E4M3', 'output=%s' % (folder / 'out.safetensors'))
    (mounted / 'w').rename(mounted / 'v')
    return mounted


@contextlib.contextmanager
def watch(*words):
    with subprocess.Popen([*program.COMMAND, 'status', '--watch', *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # it would wait for a mount that a test that fails leaves


def wait_until_it_watches(process):
    """The staging directory is open."""
    fds = pathlib.Path('/proc/%d/fd' % process.pid)

    def is_open():
        with contextlib.suppress(FileNotFoundError):  # one that was closed meanwhile
            return any(os.readlink(fd).endswith('.weightfs') for fd in fds.iterdir())
        return False
    wait_for(is_open, 'the staging directory to be open')


def test_it_waits_for_a_mount_that_is_gone(slow, folder):
    out = folder / 'out.safetensors'
    program.unmount(slow.path)
    assert not out.exists(), 'the commit has to take longer than the unmount'
    text = weightfs('status', '--watch', out).stdout
    assert out.exists() and slow.process.wait(program.PATIENCE) == 0
    assert text in ("the mount has ended; its edits are committed to '%s'\n" % out, 'the mount has ended; no edits are left\n')
    assert list(st.read(out).tensors) == ['v']
    assert weightfs('status', '--watch', out).stdout == 'no mount saves edits there\n'


def test_it_does_not_keep_a_mount_from_being_unmounted(slow, folder):
    with watch(slow.path) as process:
        wait_until_it_watches(process)
        slow.unmount()
        stdout, stderr = process.communicate(timeout=program.PATIENCE)
    assert (process.returncode, stderr) == (0, '') and stdout == "the mount has ended; its edits are committed to '%s'\n" % (folder / 'out.safetensors')


def test_a_terminal_gets_progress(slow, folder):
    terminal.need()
    program.unmount(slow.path)
    screen = terminal.screen('status', '--watch', folder / 'out.safetensors', columns=40, NO_COLOR='1')
    assert all(terminal.width(line) <= 40 for line in screen.raw.replace('\r', '\n').split('\n'))
    last = ''.join(line.strip() for line in screen.lines)
    assert last.endswith("'%s'" % (folder / 'out.safetensors')) or 'no edits' in screen.text
    slow.wait()


def test_edits_that_cannot_be_saved_are_reported(mount, sample, folder):
    mounted = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    with watch(mounted.path) as process:
        wait_until_it_watches(process)
        os.truncate(mounted / 'temperature', 3)
        program.unmount(mounted.path)
        _, stderr = process.communicate(timeout=program.PATIENCE)
    assert process.returncode == EXIT_COMMIT
    assert 'the mount has ended, but its last edits are not committed: ' in stderr and 'temperature' in stderr and stderr.count('\n') == 1
    mounted.allow('not committed|cannot commit').wait(EXIT_COMMIT)
    assert 'not committed: ' in weightfs('status', '--watch', folder / 'out.safetensors', code=EXIT_COMMIT).error


def test_a_mount_without_edits(mount, sample, folder):
    mounted = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    with watch(mounted.path) as process:
        wait_until_it_watches(process)
        mounted.unmount()
        assert process.communicate(timeout=program.PATIENCE) == ('the mount has ended; no edits are left\n', '')


@pytest.mark.parametrize('columns', [40, 80])
def test_what_the_verbs_of_mounts_print_fits_a_terminal(mount, sample, folder, columns):
    mounted = mount(sample, 'output=%s' % (folder / ('a_long_name' * 9 + '.safetensors')))
    (mounted / 'temperature').unlink()
    for words in (['status'], ['commit'], ['status'], ['umount']):
        screen = terminal.screen(*words, mounted.path, columns=columns)
        assert all(terminal.width(line) <= columns for line in screen.lines)
    mounted.wait()


def test_what_cannot_be_watched(mount, sample, folder):
    assert 'read-only' in weightfs('status', '--watch', mount(sample).path, code=EXIT_MOUNT).error
    assert weightfs('status', '--watch', folder / 'nosuch' / 'x', code=EXIT_MOUNT).error.endswith('is neither a weightfs mount point nor the output of one')
    weightfs('status', '--watch', code=EXIT_USAGE)
