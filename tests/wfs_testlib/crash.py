# SPDX-License-Identifier: MIT
"""A mount under the fault injector (tests/inject), with a script of edits and a model of what it has to keep."""
import ctypes
import errno
import os
import pathlib
import shutil
import subprocess
import time

from wfs_testlib import mount, program
from wfs_testlib.crash_kinds import START, TENSORS, TEXT, change_text

LIBRARY = program.BUILD / 'tests' / 'inject' / 'inject.so'
KILLS = ('kill-before', 'kill-after')
# What a caller is told in the other modes: what went wrong, and nothing else.
ERRORS = {'count': set(), 'half': {errno.ENOSPC}, 'enospc-once': {errno.ENOSPC}, 'enospc-on': {errno.ENOSPC}, 'edquot-on': {errno.EDQUOT},
          'eio-once': {errno.EIO}}
libc = ctypes.CDLL(None, use_errno=True)


class Injection:
    """Environment of a process in which call number `at` below the folder goes wrong."""

    def __init__(self, folder, file, mode, at):
        self.file, self.mode = file, mode
        file.write_bytes(bytes(8))
        self.environment = dict(os.environ, LD_PRELOAD=str(LIBRARY), INJECT_FOLDER=os.path.realpath(folder), INJECT_FILE=str(file),
                                INJECT_MODE=mode, INJECT_AT=str(at))
        # To fill all that is allocated takes as long as the rest: at a fourth of the calls, of each mode at other ones.
        if (at + len(mode)) % 4 == 0:
            self.environment['MALLOC_PERTURB_'] = '165'

    def n_calls(self):
        return int.from_bytes(self.file.read_bytes()[:8], 'little')

    def calls(self):
        """(name, path) of each call."""
        return [tuple(line.split(' ', 1)) for line in self.file.read_bytes()[8:].decode().splitlines()]


def changed(tensors, **changes):
    """A copy with other tensors; None removes one. `_` in a name stands for a dot."""
    result = dict(tensors)
    for name, tensor in changes.items():
        result.pop(name.replace('_', '.'), None)
        if tensor is not None:
            result[name.replace('_', '.')] = tensor
    return result


def content(tensors, key, data, at=0):
    dtype, shape, old = tensors[key]
    return dtype, shape, old[:at] + data + old[at + len(data):]


# The script: what is done, and what it does to the model. Each step is acknowledged or not.

def rename(mnt, _):
    os.rename(mnt / 'd', mnt / 'e')


def write_in_place(mnt, _):
    fd = os.open(mnt / 'a' / 'w', os.O_RDWR)
    try:
        os.pwrite(fd, b'sixteen in place', 16)
    finally:
        os.close(fd)


def sync_in_place(mnt, _):
    sync(mnt / 'a' / 'w', os.O_RDWR)


def prepare(mnt, _):
    """As an editor does: a new file beside the old one. Part of no commit."""
    fd = os.open(mnt / 'a' / '.b', os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        n = 0
        while n < 16:
            n += os.pwrite(fd, (b'written anew ...')[n:], n)
        os.fsync(fd)
    finally:
        os.close(fd)


def replace(mnt, _):
    os.rename(mnt / 'a' / '.b', mnt / 'a' / 'b')


def remove(mnt, _):
    os.unlink(mnt / 'c')


def commit(mnt, _):
    sync(mnt, os.O_RDONLY | os.O_DIRECTORY)


def write_again(mnt, _):
    fd = os.open(mnt / 'a' / 'w', os.O_RDWR)
    try:
        os.pwrite(fd, b'later', 0)
    finally:
        os.close(fd)


SCRIPT = [
    (rename, lambda t: changed(t, d=None, e=t['d'])),
    (write_in_place, lambda t: changed(t, a_w=content(t, 'a.w', b'sixteen in place', 16))),
    (sync_in_place, None),
    (prepare, None),
    (replace, lambda t: changed(t, a_b=content(t, 'a.b', b'written anew ...'))),
    (remove, lambda t: changed(t, c=None)),
    (change_text, lambda t: {**t, TEXT: 4}),
    (commit, None),
    (write_again, lambda t: changed(t, a_w=content(t, 'a.w', b'later'))),
]


class Run:
    """One life of a mount, from its start to its end or death. `states` are the models that may be found afterwards."""

    def __init__(self, kind, source, output, options, injection):
        self.kind, self.injection, self.source, self.output, self.options = kind, injection, source, output, options
        self.mnt = injection.file.parent / 'mnt'
        self.mnt.mkdir(exist_ok=True)
        self.old = kind.found(output)
        self.now = dict(START)
        self.history = [self.now]  # everything that was acknowledged, in its order
        self.acknowledged = []  # the steps that made it, from the second one on
        self.doubtful = None  # what a step that was not answered would have made
        self.committed = None  # the model of the last commit that was acknowledged
        self.process = subprocess.Popen([*program.COMMAND, source, self.mnt, '-f', '-o', ','.join(options)],
                                        env=injection.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE)
        self.errors = []  # that steps ended with
        self.wrong = []  # what was read that should not be
        self.device, self.code, self.stderr = 0, None, b''
        if self._waits():
            self._play()
        self._end()

    def _waits(self):
        deadline = time.monotonic() + program.PATIENCE
        while self.process.poll() is None:
            try:
                self.device = os.stat(self.mnt).st_dev
                if self.device != os.stat(self.mnt.parent).st_dev:
                    return True
            except OSError:
                pass
            assert time.monotonic() < deadline, 'no mount'
            time.sleep(0.002)
        return False

    def _play(self):
        done = set()
        for step, change in SCRIPT:
            if (step is replace and prepare not in done) or (step is change_text and not self.kind.text):
                continue
            after = self.now if change is None else change(self.now)
            try:
                step(self.mnt, self.kind)
            except OSError as error:
                if self._is_dead():
                    self.doubtful = after
                    return
                self.errors.append(error)
                continue
            done.add(step)
            self.now = after
            self.history.append(after)
            self.acknowledged.append(step)
            if step is commit:
                self.committed = len(self.history) - 1
        self._look()

    def _look(self):
        """What can be read of the mount is what was acknowledged."""
        for key in set(TENSORS) | {'e'}:
            try:
                data = (self.mnt / key.replace('.', '/')).read_bytes()
            except OSError:
                continue
            if key not in self.now or data != self.now[key][2]:
                self.wrong.append((key, data))

    def _is_dead(self):
        """Does the mount answer no more? An error of the injector is one of a mount that goes on."""
        if self.injection.mode not in KILLS:
            return False
        try:
            os.statvfs(self.mnt)
            return os.stat(self.mnt).st_dev == os.stat(self.mnt.parent).st_dev
        except OSError:
            return True

    def _end(self):
        if self.process.poll() is None and mount.is_mounted(self.mnt):
            if os.geteuid() == 0:
                self._unmount()
            else:
                subprocess.run(['fusermount3', '-u', self.mnt], check=False)
        try:
            _, self.stderr = self.process.communicate(timeout=program.PATIENCE)
        except subprocess.TimeoutExpired:
            found = 'still mounted for: %s\n%s' % (mount.holders(self.device), mount.waits(self.process.pid))
            self.process.kill()
            raise RuntimeError('the driver does not end: %s\n%s' % (self.show(), found)) from None
        mount.force_unmount(self.mnt)
        self.code = self.process.returncode

    def _unmount(self):
        """Whoever asks all filesystems how full they are makes each busy for a moment."""
        deadline = time.monotonic() + program.PATIENCE
        while libc.umount2(os.fsencode(self.mnt), 0) < 0 and ctypes.get_errno() == errno.EBUSY and time.monotonic() < deadline:
            time.sleep(mount.POLL)

    def states(self):
        return [self.now] + ([self.doubtful] if self.doubtful is not None else [])

    def show(self):
        return '%s at %s of %s: exit code %s, %s' % (self.injection.mode, self.injection.environment['INJECT_AT'],
                                                     self.injection.calls()[-1:], self.code, self.stderr.decode())


OLDER = {'older': ('U8', [5], b'older'), TEXT: 0}


def live(kind, target, disk, mode, at, *options, is_durable=False):
    """A run in the emptied folder, with a source and, but for a new output, an older one of the kind, and a backup of that. These
    are to survive a loss of power if they are durable: a kill of the process takes nothing of theirs."""
    for path in disk.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    source = kind.path(disk, 'source')
    kind.write(source, START)
    output = source if target == 'rw' else kind.path(disk, 'out')
    if target == 'overwrite':
        kind.write(output, {'old': ('U8', [3], b'old'), TEXT: 1})
    if 'backup=simple' in options:
        kind.write(backup_of(output), OLDER)
    if is_durable:
        for root, folders, names in os.walk(disk):
            for name in [*folders, *names, '.']:
                sync(os.path.join(root, name))
    words = {'new': ['output=%s' % output], 'overwrite': ['output=%s' % output, 'overwrite'], 'rw': ['rw']}[target]
    injection = Injection(disk, disk.parent / 'inject', mode, at)
    return Run(kind, source, output, [*words, *options], injection)


def check_manners(run):
    """Who was not killed ends with a code and a line, told the right error, and showed nothing wrong before."""
    program.demand_manners(run.stderr.decode())
    told = ERRORS.get(run.injection.mode)
    assert run.wrong == [], (run.wrong, run.show())
    if told is not None:
        assert run.code in (0, program.EXIT_MOUNT, program.EXIT_COMMIT), run.show()
        assert {error.errno for error in run.errors} <= told, (run.errors, run.show())


def backup_of(path):
    return path.with_name(path.name + '~')


def check_backup(run, now):
    """Whole, and of what the mount found, once that is gone."""
    if 'backup=simple' in run.options:
        kept = run.kind.found(backup_of(run.output))
        assert kept == run.old or (kept == OLDER and now == run.old), (kept, run.show())


def check_output(run):
    """Old or new, whole: never anything between, and never older than what a commit acknowledged."""
    check_manners(run)
    now = run.kind.found(run.output)
    check_backup(run, now)
    allowed = run.history + run.states()
    if run.committed is None:
        allowed = [run.old] + allowed
    else:
        allowed = allowed[run.committed:]
    assert now in allowed, (now, run.show())
    return now


def publish(run, *options, environment=None):
    """Everything is named again: nothing is taken from the staging directory."""
    named = [] if run.output == run.source else ['--source', run.source]
    given = [word for word in run.options if word not in ('rw', 'overwrite') and not word.startswith('output=')]
    if named:
        given.append('overwrite')  # what the mount itself has published, too
    return recover(run.output, '--publish', *named, '--options', ','.join(given), *options, environment=environment)


def recover(output, *options, environment=None):
    environment = environment or dict(os.environ, MALLOC_PERTURB_='165')
    done = subprocess.run([*program.COMMAND, 'recover', output, *options], env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=program.PATIENCE, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def check_recovery(run, *options):
    """Publishes what is left: that is every acknowledged edit, and nothing stays behind."""
    code, text = publish(run, *options)
    assert code == 0, run.show() + text
    now = run.kind.found(run.output)
    is_untouched = run.now == START and now == run.old
    assert now in run.states() or is_untouched, (now, run.show() + text)
    check_backup(run, now)
    check_left(run)


def check_left(run):
    """The source is what it was, and nothing is beside it and the output."""
    assert run.output == run.source or run.kind.read(run.source) == START, run.show()
    wanted = set().union(*(run.kind.names(path) for path in (run.source, run.output, backup_of(run.output))
                           if path.parent == run.output.parent and path.exists()))
    left = {path.name for path in run.output.parent.iterdir() if path.is_file() or path.name.startswith('.')}
    assert left == wanted, (left, run.show())


def sync(path, flags=os.O_RDONLY):
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def folder_for(parent, name='disk'):
    path = pathlib.Path(parent) / name
    path.mkdir()
    return path


def flipping(folder, name, at):
    """The environment of a process in which byte `at` of the new file `name` flips on its way to the disk."""
    injection = Injection(folder, folder / 'inject', 'count', 0)
    return dict(injection.environment, INJECT_NAME=name, INJECT_FLIP=str(at))
