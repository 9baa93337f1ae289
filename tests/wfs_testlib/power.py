# SPDX-License-Identifier: MIT
"""Small filesystems whose power fails when the fault injector says so."""
import os
import shutil
import time

import pytest

from wfs_testlib import crash, program
from wfs_testlib.program import tool

FILESYSTEMS = {
    # Where ext4 would help without being asked, it must not.
    'ext4': (64 << 20, ['mkfs.ext4', '-q', '-F', '-b', '1024'], 'loop,noauto_da_alloc,commit=600'),
    'xfs': (320 << 20, ['mkfs.xfs', '-q', '-f'], 'loop'),
}


class Power:
    """A small filesystem on a loop device that can lose its power: what was not synced is gone. Its image is where nothing waits for
    a disk."""

    def __init__(self, disk, filesystem):
        self.size, self.make, self.options = FILESYSTEMS[filesystem]
        self.image, self.disk = disk.parent / 'image', disk
        if os.geteuid() != 0 or shutil.which(self.make[0]) is None:
            pytest.skip('only for root, with %s' % self.make[0])

    def __enter__(self):
        with open(self.image, 'wb') as file:
            file.truncate(self.size)
        tool(*self.make, self.image)
        self.on()
        return self

    def __exit__(self, *_):
        tool('umount', '-l', self.disk, code=None)

    def on(self):
        for _ in range(20):  # another test may be taking the same loop device
            if tool('mount', '-o', self.options, self.image, self.disk, code=None).code == 0:
                return
            time.sleep(0.05)
        pytest.skip('no loop devices, or no such filesystem')

    def off(self):
        program.unmount(self.disk)

    def calls(self, kind, target):
        return crash.live(kind, target, self.disk, 'count', 0).injection.calls()
