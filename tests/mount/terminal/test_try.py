# SPDX-License-Identifier: MIT
"""tools/try: the first thing that a visitor runs, here on a system without /etc/mtab and on one without /dev/fuse."""
import os
import subprocess

import pytest

from wfs_testlib.mount import UNSHARE, has_namespaces, mount_points
from wfs_testlib.program import ROOT

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures('alone')]

BARE = ('set -e; mkdir etc tmp; mount -t tmpfs etc etc; cp -a /etc/. etc; rm -f etc/mtab; mount --bind etc /etc; mount --bind tmp /tmp\n')
WITHOUT_DEVICE = ('mkdir dev; mount -t tmpfs dev dev; cp -a /dev/null /dev/zero /dev/urandom dev; ln -s /proc/self/fd dev/fd; mount --bind dev /dev\n')


def run(folder, lines):
    """Runs tools/try in a mount namespace that a few lines prepare. Its words after the build."""
    if not has_namespaces():
        pytest.skip('no mount namespace of our own, as in a chroot')
    done = subprocess.run([*UNSHARE, 'sh', '-c', BARE + lines + '"$0"/tools/try; ! grep -q "fuse.weightfs.* $PWD\\|/tmp/tmp" /proc/self/mounts', ROOT],
                          cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    assert os.listdir(folder / 'tmp') == [] and not [point for point in mount_points() if str(folder) in point]
    said = done.stdout.split('\n== ', 1)[1]
    assert said.rstrip().splitlines()[-1].startswith('== done; nothing is left mounted'), said
    return said


def test_it_edits_in_a_mount_and_leaves_none(folder):
    said = run(folder, '')
    assert "\n$ mv mnt/pooler/dense/weight mnt/pooler/dense/kernel\n" in said
    assert 'pooler.dense.kernel\tBF16\t[32, 32]\t2048\n\n$ weightfs umount mnt\n' in said


def test_it_edits_without_a_mount_where_there_is_no_device(folder):
    said = run(folder, WITHOUT_DEVICE)
    assert '== /dev/fuse is missing or not accessible' in said and 'pooler.dense.kernel\tBF16\t[32, 32]\t2048\n' in said
