# SPDX-License-Identifier: MIT
"""A device that fails to write: fsync says so once and may succeed the next time for what is not on the disk. Never a success after
a write that was lost."""
import errno
import os
import shutil
import subprocess

import pytest

from wfs_testlib import crash_kinds, program
from wfs_testlib.crash import sync
from wfs_testlib.mount import is_alive, wait_for
from wfs_testlib.program import tool

TOOLS = ('nbdkit', 'nbdfuse', 'losetup', 'mkfs.ext4')
KIND = crash_kinds.SAFETENSORS

pytestmark = [pytest.mark.root, pytest.mark.slow,
              pytest.mark.skipif(any(shutil.which(name) is None for name in TOOLS), reason='needs %s' % ', '.join(TOOLS))]


class Device:
    """ext4 on a loop device on a network block device, whose writes fail as long as there is a certain file."""

    def __init__(self, folder):
        self.failing, self.disk, self.nbd = folder / 'failing', folder / 'disk', folder / 'nbd'
        self.disk.mkdir()
        self.nbd.mkdir()
        self.server = subprocess.Popen(
            ['nbdfuse', self.nbd, '--command', 'nbdkit', '-s', '--exit-with-parent', '--filter=error', 'memory', '64M',
             'error-pwrite=EIO', 'error-pwrite-rate=100%', 'error-file=%s' % self.failing])
        wait_for(lambda: (self.nbd / 'nbd').exists(), 'the block device')
        tool('mkfs.ext4', '-q', '-O', '^has_journal', self.nbd / 'nbd')
        self.loop = tool('losetup', '-f', '--show', self.nbd / 'nbd').stdout.strip()
        self.on()

    def on(self):
        tool('mount', '-o', 'errors=continue', self.loop, self.disk)

    def off(self):
        program.unmount(self.disk)
        tool('blockdev', '--flushbufs', self.loop)

    def fail(self):
        self.failing.touch()

    def mend(self):
        self.failing.unlink()

    def done(self):
        self.failing.unlink(missing_ok=True)
        tool('umount', '-l', self.disk, code=None)
        tool('losetup', '-d', self.loop)
        tool('fusermount3', '-u', self.nbd)
        self.server.wait(program.PATIENCE)


@pytest.fixture
def device(folder):
    made = Device(folder)
    yield made
    made.done()


@pytest.fixture
def edited(mount, folder, device):
    """A mount whose edits and output are on the device, with a change of names that is synced, and content that is not."""
    source = KIND.path(folder, 'source')
    KIND.write(source, crash_kinds.START)
    made = mount(source, 'output=%s' % KIND.path(device.disk, 'out')).allow('cannot commit|last commit|of an earlier mount')
    os.rename(made / 'd', made / 'e')
    sync(made / 'a' / 'w')
    write(made, b'before the failure')
    return made


WANTED = {**crash_kinds.TENSORS, crash_kinds.TEXT: 3}
WANTED['e'] = WANTED.pop('d')


def write(mnt, data):
    with open(mnt / 'a' / 'w', 'r+b') as file:
        file.write(data)


def wanted(data):
    dtype, shape, old = WANTED['a.w']
    return {**WANTED, 'a.w': (dtype, shape, data + old[len(data):])}


def fails(path):
    with pytest.raises(OSError) as caught:
        sync(path)
    assert caught.value.errno == errno.EIO


def anew(device):
    """What is on the disk, and not what the kernel remembers."""
    device.off()
    device.on()


def test_the_device_makes_fsync_lie(device):
    """The control: who only tries again is told of a success, and has lost what was written."""
    plain = device.disk / 'plain'
    plain.write_bytes(b'old')
    sync(plain)
    plain.write_bytes(b'new')
    device.fail()
    fails(plain)
    device.mend()
    sync(plain)
    anew(device)
    assert not plain.exists() or plain.read_bytes() != b'new'


@pytest.mark.parametrize('n_failures', [1, 3])
def test_what_fsync_says_after_it_failed_is_true(edited, device, folder, n_failures):
    device.fail()
    for _ in range(n_failures):
        fails(edited / 'a' / 'w')
    device.mend()
    sync(edited / 'a' / 'w')
    workers = edited.workers_now()
    edited.kill()
    wait_for(lambda: not any(map(is_alive, workers)), 'the end of the driver')
    edited.forget()
    anew(device)
    out = KIND.path(device.disk, 'out')
    program.weightfs('recover', out, '--publish', '--source', KIND.path(folder, 'source'))
    assert KIND.read(out) == wanted(b'before the failure')


@pytest.mark.parametrize('n_failures', [1, 3])
def test_a_commit_after_one_that_failed_is_on_the_disk(edited, device, n_failures):
    out = KIND.path(device.disk, 'out')
    device.fail()
    for _ in range(n_failures):
        fails(edited.path)
        assert not out.exists()
    device.mend()
    write(edited, b'afterwards')
    edited.commit()
    edited.unmount()
    anew(device)
    assert KIND.read(out) == wanted(b'afterwards' + b'before the failure'[10:])
    assert sorted(os.listdir(device.disk)) == ['lost+found', out.name]
