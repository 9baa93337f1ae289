# SPDX-License-Identifier: MIT
"""Small filesystems that a test fills up."""
import contextlib
import os
import shutil

import pytest

from wfs_testlib.program import tool


def _mount_tmpfs(folder, disk, n_mib):
    tool('mount', '-t', 'tmpfs', '-o', 'size=%dm' % n_mib, 'tmpfs', disk)


def _mount_image(make, folder, disk, n_mib):
    if shutil.which(make[0]) is None:
        pytest.skip('no %s' % make[0])
    with open(folder / 'image', 'wb') as file:
        file.truncate(n_mib << 20)
    tool(*make, folder / 'image')
    if tool('mount', '-o', 'loop', folder / 'image', disk, code=None).code != 0:
        pytest.skip('no loop devices, or no such filesystem')


def _mount_ext4(folder, disk, n_mib):
    _mount_image(['mkfs.ext4', '-q', '-m', '0', '-O', '^has_journal'], folder, disk, n_mib)


def _mount_xfs(folder, disk, n_mib):
    _mount_image(['mkfs.xfs', '-q'], folder, disk, max(n_mib, 300))


MOUNTS = {'tmpfs': _mount_tmpfs, 'ext4': _mount_ext4, 'xfs': _mount_xfs}


@contextlib.contextmanager
def small(folder, kind, n_mib):
    """A directory with a filesystem of its own of about that size."""
    if os.geteuid() != 0:
        pytest.skip('only for root')
    disk = folder / 'disk'
    disk.mkdir()
    MOUNTS[kind](folder, disk, n_mib)
    try:
        yield disk
    finally:
        tool('umount', '-l', disk)


def fill(disk):
    """Leaves not a byte."""
    with open(disk / 'filler', 'ab', buffering=0) as file:
        for n_bytes in 1 << 20, 4096, 1:
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(n_bytes))
        os.fsync(file.fileno())
