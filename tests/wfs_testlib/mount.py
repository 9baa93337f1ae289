# SPDX-License-Identifier: MIT
"""A mount under the control of a test: waits for it, watches its end, leaves nothing behind."""
import ctypes
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

from wfs_testlib import program

# What a mount in the foreground says of each commit.
COMMITTED = re.compile(": committed to '.*': ")
POLL = 0.01  # seconds between two looks
UNSHARE = ['unshare', '-m', '--propagation', 'private']


def has_namespaces():
    """In a chroot there are none."""
    return subprocess.run([*UNSHARE, 'true'], stderr=subprocess.DEVNULL, check=False).returncode == 0


def wait_for(is_so, what, patience=None):
    """Polls until it is so; fails after a while."""
    deadline = time.monotonic() + (patience or program.PATIENCE)
    while not is_so():
        assert time.monotonic() < deadline, 'waited in vain: ' + what
        time.sleep(POLL)


def mount_points():
    """Where something of FUSE is mounted. Reads no mount: a dead one answers nothing."""
    with open('/proc/self/mountinfo', encoding='utf-8', errors='surrogateescape') as file:
        lines = [line.split(' - ') for line in file]
    return [re.sub(r'\\([0-7]{3})', lambda m: chr(int(m[1], 8)), left.split()[4])
            for left, right in lines if right.startswith('fuse')]


def is_mounted(path):
    return os.path.realpath(path) in mount_points()


def force_unmount(path):
    if is_mounted(path):
        command = ['umount', '-l', path] if os.geteuid() == 0 else ['fusermount3', '-uz', path]
        subprocess.run(command, stderr=subprocess.DEVNULL, check=False)


def holders(device):
    """'PID PLACE' of every process whose namespace still shows a filesystem: one of each namespace."""
    found = {}
    for folder in pathlib.Path('/proc').glob('[0-9]*'):
        try:
            lines = [line.split() for line in (folder / 'mountinfo').read_text(errors='surrogateescape').splitlines()]
            places = [line[4] for line in lines if line[2] == '%d:%d' % (os.major(device), os.minor(device))]
            if places:
                found.setdefault(os.readlink(folder / 'ns/mnt'), '%s %s' % (folder.name, ' '.join(places)))
        except OSError:
            pass
    return sorted(found.values())


def hold_in_a_namespace(path):
    """A process whose mount namespace is a copy of this one. Of the mounts of FUSE it keeps that at a path only: the others
    belong to tests that run at the same time, and would not end before it does."""
    others = [point for point in mount_points() if point != os.path.realpath(path)]
    holder = subprocess.Popen([*UNSHARE, 'sh', '-c', 'for point; do umount -l "$point"; done 2>/dev/null; exec sleep 60', 'sh', *others])
    wait_for(lambda: pathlib.Path('/proc/%d/comm' % holder.pid).read_text() == 'sleep\n', 'a namespace')
    return holder


def open_to_all(folder):
    """Lets other users reach what is in the folder of a test."""
    for path in [folder, *folder.parents]:
        if path.is_relative_to(program.folder_of_folders()):
            os.chmod(path, path.stat().st_mode | 0o011)


def children(pid):
    try:
        return [int(child) for child in pathlib.Path('/proc/%d/task/%d/children' % (pid, pid)).read_text().split()]
    except OSError:
        return []


def is_alive(pid):
    """A zombie is dead, once its threads are: until then, they hold what is open."""
    try:
        state = pathlib.Path('/proc/%d/stat' % pid).read_text().rsplit(')', 1)[1].split()[0]
        return state != 'Z' or len(os.listdir('/proc/%d/task' % pid)) > 1
    except OSError:
        return False


def waits(pid):
    """What each thread of a process and of its children waits for: for the message about one that does not end."""
    def text(path):
        try:
            return path.read_text().strip().replace('\n', ' < ')
        except OSError as error:
            return str(error)

    threads = sorted(pathlib.Path('/proc/%d/task' % pid).glob('*'))
    lines = ['%s %s: %s' % (thread.name, text(thread / 'comm'), text(thread / 'stack')) for thread in threads]
    return '\n'.join([*lines, *map(waits, children(pid))])


class Reply(ctypes.Structure):
    """struct wfs_control_reply."""
    _fields_ = [('error', ctypes.c_int32), ('pid', ctypes.c_int32), ('n_edits', ctypes.c_uint64),
                ('text', ctypes.c_char * 4096)]


def _ioctl_number(number):
    return 2 << 30 | ctypes.sizeof(Reply) << 16 | ord('W') << 8 | number


class Mount:
    """`weightfs SOURCE DIR -f -o ...` as a child. Use as a context manager, or through the fixture."""

    def __init__(self, source, path, *options, cwd=None, stdin=subprocess.DEVNULL, wrap=(), patience=4 * program.PATIENCE):
        self.path = pathlib.Path(path)
        self.command = [*wrap, *program.COMMAND, os.fspath(source), os.fspath(path), '-f']
        if options:
            self.command += ['-o', ','.join(options)]
        self._stderr = tempfile.TemporaryFile()
        self.expected = None  # a regular expression: lines of stderr that are allowed
        self.process = subprocess.Popen(self.command, stdin=stdin, stdout=subprocess.DEVNULL,
                                        stderr=self._stderr, cwd=cwd)
        self._handles = []
        # Whatever blocks in a test blocks until its driver is dead.
        self._watchdog = threading.Timer(patience, self.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
        wait_for(self._has_started, 'the mount of ' + self.show())
        if self.process.poll() is not None:
            self._watchdog.cancel()
            raise AssertionError('early exit: ' + self.show())
        self.workers = children(self.process.pid)
        self._handles = [os.pidfd_open(pid) for pid in self.workers]
        self.device = os.stat(self.path).st_dev

    def show(self):
        return '%s\nexit code: %s\nstderr: %s' % (program.show(self.command), self.process.poll(), self.stderr())

    def stderr(self):
        return os.pread(self._stderr.fileno(), 1 << 20, 0).decode(errors='replace')

    def _has_started(self):
        return self.process.poll() is not None or self._answers()

    def _answers(self):
        try:
            os.statvfs(self.path)  # asks the driver; stat of a dead root is answered from what the kernel remembers
            return os.stat(self.path).st_dev != os.stat(self.path.parent).st_dev
        except OSError:
            return False  # a dead mount that is not cleared yet

    def forget(self):
        """For a test that leaves a dead mount to another one."""
        self._watchdog.cancel()
        self._stderr.close()

    def __truediv__(self, name):
        return self.path / name

    def status(self):
        return json.loads((self.path / '.weightfs' / 'status.json').read_text())

    def commit(self, code=0):
        """`sync MNT`: the result of the program sync."""
        return program.tool('sync', self.path, code=code)

    def control(self, number=1):
        """The ioctl of the program's own verbs: 1 commits, 2 only asks."""
        reply = Reply()
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _ioctl_number(number), reply)
        finally:
            os.close(fd)
        return reply

    def allow(self, pattern):
        """Lines on stderr that match are expected."""
        self.expected = pattern if self.expected is None else '%s|%s' % (self.expected, pattern)
        return self

    def wait(self, code=0):
        """Waits for the end of the driver and demands its exit code and a clean stderr."""
        self._watchdog.cancel()
        try:
            self.process.wait(program.PATIENCE)
        except subprocess.TimeoutExpired:
            held = 'still mounted for: %s\n%s' % (holders(self.device), waits(self.process.pid))
            self.kill()
            raise AssertionError('the driver does not end, %s\n%s' % (held, self.show())) from None
        force_unmount(self.path)
        assert self.process.returncode == code, self.show()
        stderr = self.stderr()
        program.demand_manners(stderr)
        for line in stderr.splitlines():
            assert (self.expected and re.search(self.expected, line)) or COMMITTED.search(line) or program.UNKNOWN.search(line), 'unexpected on stderr: ' + self.show()
        return stderr

    def unmount(self, code=0):
        """An ordinary unmount; waits for the driver. The exit code is the driver's."""
        program.unmount(self.path)
        return self.wait(code)

    def terminate(self, code=0, signum=signal.SIGTERM):
        self.process.send_signal(signum)
        return self.wait(code)

    def kill(self):
        """Ends everything now. Never fails. By handles: a number may belong to another process by now."""
        self._watchdog.cancel()
        for handle in self._handles or [os.pidfd_open(pid) for pid in self.workers_now()]:
            try:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            except ProcessLookupError:
                pass
            os.close(handle)
        self._handles = []
        self.process.kill()
        self.process.wait()
        force_unmount(self.path)

    def workers_now(self):
        """The workers of a driver that has not ended."""
        return children(self.process.pid) if self.process.poll() is None else []

    def close(self):
        """At the end of a test: an orderly end if it is still running, a violent one if that fails."""
        try:
            if self.process.poll() is None:
                self.unmount()
        finally:
            self._watchdog.cancel()
            self.kill()
            self._stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.close()
        else:
            self.kill()
