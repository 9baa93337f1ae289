# SPDX-License-Identifier: MIT
"""Time and memory of every request on a mount are bounded by the bytes of the file, whatever the file claims."""
import os
import re

import pytest

from wfs_testlib import bounds, program
from wfs_testlib.mount import Mount, is_mounted

N_FILES = 40  # of each mount that are looked at one by one
N_READ = 1 << 20


def used(pid):
    """Processor time in seconds and the largest memory in bytes of a process so far."""
    status = open('/proc/%d/status' % pid, encoding='ascii').read()
    return bounds.used_seconds(pid), int(re.search(r'VmHWM:\s+(\d+) kB', status)[1]) << 10


class Judge:
    def __init__(self, mnt):
        self.mnt, self.bad = mnt, []

    def ask(self, what, function, *args):
        """One request or a few; whatever the answer is, it has to come."""
        before, _ = used(self.mnt.workers[0])
        answer = None
        try:
            answer = function(*args)
        except OSError:
            pass
        after, peak = used(self.mnt.workers[0])
        if after - before > bounds.N_SECONDS or (peak > bounds.N_BYTES and not program.IS_INSTRUMENTED):
            self.bad.append('%s: %.1f s, %d bytes' % (what, after - before, peak))
        return answer


def list_long(path):
    """What ls -lR does, up to some files."""
    found = []
    for folder, folders, files in os.walk(path):
        for name in [*folders, *files]:
            os.lstat(os.path.join(folder, name))
        found += [os.path.join(folder, name) for name in files]
    return found


def read_ends(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.pread(fd, N_READ, 0)
        os.pread(fd, N_READ, max(0, os.fstat(fd).st_size - N_READ))
        os.pread(fd, 4096, os.fstat(fd).st_size // 2 + 1)
    finally:
        os.close(fd)


def read_all(path):
    with open(path, 'rb') as file:
        while file.read(N_READ) and file.tell() < 64 << 20:
            pass


def change(path):
    fd = os.open(path, os.O_RDWR)
    try:
        os.pwrite(fd, b'x', 1)
        os.ftruncate(fd, 1)
    finally:
        os.close(fd)


def judge_mount(mnt):
    judge = Judge(mnt)
    files = judge.ask('list', list_long, mnt.path) or []
    for path in files[:N_FILES]:
        judge.ask('read ' + path[-50:], read_ends, path)
        for name in 'stats', 'xxh3', 'key', 'shape', 'changes':
            judge.ask(name + ' of ' + path[-50:], os.getxattr, path, 'user.weightfs.' + name)
        judge.ask('attributes of ' + path[-50:], os.listxattr, path)
    for path in judge.ask('control', list_long, mnt / '.weightfs') or []:
        judge.ask('read ' + path, read_all, path)
    for path in files[:4]:
        judge.ask('shape', os.setxattr, path, 'user.weightfs.shape', b'[1]')
        judge.ask('rename', os.rename, path, path + 'x')
        judge.ask('change ' + path, change, path + 'x')
    judge.ask('commit', mnt.commit, None)
    return judge.bad


def judge_file(folder, path):
    """Mounts, asks for everything, unmounts; a refusal to mount is an answer too."""
    point = folder / 'mnt'
    point.mkdir()
    options = [*bounds.options_of(path), 'output=' + str(folder / 'out.safetensors')]
    try:
        mnt = Mount(bounds.as_source(path, folder), point, *options)
    except AssertionError as problem:
        assert 'early exit' in str(problem) and not is_mounted(point), problem
        return
    try:
        bad = judge_mount(mnt)
    finally:
        mnt.kill()
    assert not bad, '\n'.join(bad)


# Others take some seconds each, and what they ask of a mount is what these ask.
QUICK = ('repeated-zip', 'repeated-program', 'windows', 'doubled-text', 'one-list-in-many.', 'one-text-encoded.', 'nan-keys', 'deep-keys')


@pytest.mark.parametrize('path', [path for path in bounds.slow_files() if path.name.startswith(QUICK)], ids=lambda path: path.name)
def test_requests_end_soon_on_a_slow_file(folder, path):
    judge_file(folder, path)


@pytest.mark.slow
@pytest.mark.parametrize('path', [*bounds.slow_files(), *bounds.reject_files()], ids=lambda path: path.parent.name + '-' + path.name)
def test_requests_end_soon_on_a_hostile_file(folder, path):
    judge_file(folder, path)
