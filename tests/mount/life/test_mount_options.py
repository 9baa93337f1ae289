# SPDX-License-Identifier: MIT
"""Options of mount(8): what they do, and mount -o remount."""
import errno
import os
import subprocess

import pytest

from wfs_testlib import crash, st
from wfs_testlib.mount import is_mounted, wait_for
from wfs_testlib.program import COMMAND, EXIT_MOUNT, EXIT_USAGE, PATIENCE, tool, weightfs


def test_options_of_every_filesystem_are_taken(mount, small):
    mnt = mount(small, 'ro,sync,dirsync,async,lazytime,nolazytime,nosymfollow,symfollow,strictatime,nostrictatime,silent,loud')
    assert (mnt / 'a/c').read_bytes() == b'hello'


@pytest.mark.parametrize('option', ['user_id=0', 'group_id=7', 'max_read=4096', 'blksize=512'])
def test_options_that_only_the_kernel_shows_are_for_remounts(small, folder, option):
    assert "unknown mount option '%s'" % option in weightfs(small, folder, '-f', '-o', option, code=EXIT_USAGE).error


# A value that none of them takes.
WRONG = {'remap': 'x', 'include': '(', 'exclude': '(', 'cast': 'foo', 'lora': '', 'lora_remap': 'x', 'lora_alpha': 'x', 'average': '', 'weight': 'x', 'add': '',
         'minus': '', 'task': '', 'slerp': 'x', 'join': '0', 'slice': 'x', 'split': 'x', 'fuse': 'x', 'transpose': '(', 'overlay': '', 'contiguous': 'x',
         'dequantize': '(', 'from': 'x', 'to': 'x', 'rename': 'x'}


@pytest.mark.parametrize('option', WRONG)
def test_a_wrong_value_is_reported_with_the_option_as_it_was_typed(small, folder, option):
    (folder / 'mnt').mkdir()
    typed = '--' + option.replace('_', '-')
    of_verb = weightfs('ls', '%s=%s' % (typed, WRONG[option]), small, code=None).error
    of_mount = weightfs(small, folder / 'mnt', '-f', '-o', '%s=%s' % (option, WRONG[option]), code=None).error
    assert typed + ': ' in of_verb and '-o %s: ' % option in of_mount
    assert of_verb[of_verb.index(typed) + len(typed):] == of_mount[of_mount.index('-o ' + option) + len('-o ' + option):]


class Watched:
    """A writable mount whose calls that make something durable are counted."""

    def __init__(self, mount, small, folder, *options):
        if not crash.LIBRARY.exists():
            pytest.skip('there is no %s' % crash.LIBRARY)
        (folder / 'disk').mkdir()
        self.injection = crash.Injection(folder / 'disk', folder / 'inject', 'count', 0)
        words = ['%s=%s' % (name, value) for name, value in self.injection.environment.items() if os.environ.get(name) != value]
        self.mnt = mount(small, 'output=%s' % (folder / 'disk' / 'out.safetensors'), *options, wrap=['env', *words])
        self.mnt.allow('committed')

    def syncs(self, change):
        """What of the journal and of contents is synced before the change returns."""
        before = len(self.injection.calls())
        change()
        calls = self.injection.calls()[before:]
        return {'journal' if '/journal' in path else 'content' for name, path in calls
                if name in ('fdatasync', 'fsync') and ('/data/' in path or '/journal' in path)}


def changes_of(mnt):
    def write():
        fd = os.open(mnt / 'a/b/weight', os.O_RDWR)
        os.pwrite(fd, st.f32(9), 4)
        os.close(fd)
    return {
        'write': write,
        'truncate': lambda: os.truncate(mnt / 'step', 0),
        'setxattr': lambda: os.setxattr(mnt / 'a/b/bias', 'user.weightfs.shape', b'[3, 1]'),
        'create': lambda: os.close(os.open(mnt / 'made', os.O_CREAT | os.O_WRONLY)),
        'mkdir': lambda: os.mkdir(mnt / 'new'),
        'rmdir': lambda: os.rmdir(mnt / 'new'),
        'link': lambda: os.link(mnt / 'a/c', mnt / 'a/tie'),
        'rename': lambda: os.rename(mnt / 'a/c', mnt / 'a/d'),
        'unlink': lambda: os.unlink(mnt / 'none'),
    }


NAMES = {'create', 'mkdir', 'rmdir', 'link', 'rename', 'unlink'}


@pytest.mark.parametrize('option', ['async', 'dirsync', 'sync'])
def test_sync_makes_changes_durable_before_they_return(mount, small, folder, option):
    watched = Watched(mount, small, folder, option)
    synced = {name: watched.syncs(change) for name, change in changes_of(watched.mnt).items()}
    for name, found in synced.items():
        if option == 'sync' or (option == 'dirsync' and name in NAMES):
            assert 'journal' in found, name
        else:
            assert not found, name
    assert option != 'sync' or ('content' in synced['write'] and 'content' in synced['truncate'])
    os.unlink(watched.mnt / 'made')
    (watched.mnt / 'step').write_bytes((7).to_bytes(8, 'little'))
    watched.mnt.commit()


def remount(mnt, source, access, **more):
    """What mount(8) runs for `mount -o remount,ro MNT`, by way of mount.fuse."""
    return weightfs(source, mnt.path, '-o', access + ',nosuid,nodev,noexec,relatime,remount,user_id=0,group_id=0,default_permissions', **more)


@pytest.mark.root
def test_a_mount_is_remounted_read_only_and_back(mount, small, folder):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    (mnt / 'a/c').write_bytes(b'HELLO')
    remount(mnt, small, 'ro')
    assert (mnt / 'a/c').read_bytes() == b'HELLO'
    for change in (lambda: (mnt / 'a/c').write_bytes(b'hollo'), lambda: os.unlink(mnt / 'a/c'), lambda: os.mkdir(mnt / 'new')):
        with pytest.raises(OSError) as caught:
            change()
        assert caught.value.errno == errno.EROFS
    assert mnt.status()['edits'] == 1
    mnt.commit()
    assert st.read(folder / 'out.safetensors').tensors['a.c'][2] == b'HELLO'
    remount(mnt, small, 'rw')
    (mnt / 'a/c').write_bytes(b'again')
    with open(mnt / 'a/c', 'r+b'):
        assert 'open for writing' in remount(mnt, small, 'ro', code=EXIT_MOUNT).error
    mnt.commit()
    assert st.read(folder / 'out.safetensors').tensors['a.c'][2] == b'again'


@pytest.mark.root
def test_what_was_mounted_read_only_stays_so(mount, small):
    mnt = mount(small)
    assert 'without an output' in weightfs(small, mnt.path, '-o', 'remount,rw', code=EXIT_MOUNT).error
    weightfs(small, mnt.path, '-o', 'remount,ro')
    weightfs(small, mnt.path, '-o', 'remount,files=npy,noatime')
    with pytest.raises(OSError) as caught:
        (mnt / 'a/c').write_bytes(b'hollo')
    assert caught.value.errno == errno.EROFS


def test_only_a_mount_is_remounted(small, folder):
    assert 'not a weightfs mount point' in weightfs(small, folder, '-o', 'remount,ro', code=EXIT_MOUNT).error
    assert tool('mountpoint', '-q', folder, code=None).code != 0


@pytest.mark.parametrize('flags', ['-f', '-v'])
def test_each_commit_is_a_line_in_the_foreground(small, folder, flags, among_mounts):
    """-v alone goes to the background, and its lines to the system log."""
    mnt, out = folder / 'mnt', folder / 'out.safetensors'
    mnt.mkdir()
    with open(folder / 'log', 'w') as log:
        process = subprocess.Popen([*COMMAND, small, mnt, flags, '-o', 'output=%s' % out], stderr=log)
        wait_for(lambda: is_mounted(mnt) and (mnt / 'step').exists(), 'the mount')
        try:
            for name in ('step', 'none'):
                (mnt / name).unlink()
                weightfs('commit', mnt)
            weightfs('commit', mnt)  # nothing is left
        finally:
            weightfs('umount', mnt)
            assert process.wait(PATIENCE) == 0
    lines = (folder / 'log').read_text().splitlines()
    assert len(lines) == (2 if 'f' in flags else 0)
    assert all(line.startswith("weightfs: %s: committed to '%s': " % (small, out)) for line in lines)


def test_a_verbose_mount_in_the_foreground(small, folder, among_mounts):
    mnt = folder / 'mnt'
    mnt.mkdir()
    with open(folder / 'log', 'w') as log:
        process = subprocess.Popen([*COMMAND, small, mnt, '-fv', '-o', 'output=%s' % (folder / 'out.safetensors')], stderr=log)
        wait_for(lambda: is_mounted(mnt) and (mnt / 'step').exists(), 'the mount')
        (mnt / 'step').unlink()
        weightfs('umount', mnt)
        assert process.wait(PATIENCE) == 0
    assert (folder / 'log').read_text().count('committed to') == 1 and 'unique:' not in (folder / 'log').read_text()
