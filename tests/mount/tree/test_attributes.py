# SPDX-License-Identifier: MIT
"""Times and modes of files and directories, as stat(2) shows them, compared with what POSIX asks for."""
import os
import stat
import subprocess
import time

import pytest

from wfs_testlib import st

OLD = 1000000000  # seconds
KINDS = ['a', 'edited', '.new', 'dir', 'fresh']


@pytest.fixture
def tree(mount, folder):
    source = st.write(folder / 'in.safetensors', {'a': ('U8', [4], b'abcd'), 'edited': ('U8', [4], b'efgh'), 'dir.x': ('U8', [1], b'x')})
    os.utime(source, (OLD, OLD))
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors'), 'umask=077')
    (mnt / 'edited').write_bytes(b'EFGH')
    (mnt / '.new').write_bytes(b'new')
    (mnt / 'fresh').mkdir()
    return mnt.path


def write(path):
    if path.is_dir():
        (path / '.made').write_bytes(b'')
    else:
        with open(path, 'rb+') as file:
            file.write(b'1')


def truncate(path):
    if path.is_dir():
        (path / '.sub').mkdir()
    else:
        os.truncate(path, os.stat(path).st_size + 1)
        os.truncate(path, os.stat(path).st_size - 1)


def rename(path):
    os.rename(path, path.parent / '.moved')
    os.rename(path.parent / '.moved', path)


def link(path):
    (path / '.link').mkdir() if path.is_dir() else os.link(path, path.parent / '.link')


def unlink(path):
    os.rmdir(path / '.link') if path.is_dir() else os.unlink(path.parent / '.link')


def exchange(path):
    other = path.parent / '.other'
    other.mkdir() if path.is_dir() else other.write_bytes(b'')
    for _ in range(2):
        before = os.stat(path).st_ctime_ns, os.stat(other).st_ctime_ns
        subprocess.run(['/usr/bin/python3', '-c', EXCHANGE, path, other], check=True)
        assert os.stat(other).st_ctime_ns > before[0] and os.stat(path).st_ctime_ns > before[1]


EXCHANGE = """import ctypes, os, sys
code = ctypes.CDLL(None, use_errno=True).renameat2(-100, os.fsencode(sys.argv[1]), -100, os.fsencode(sys.argv[2]), 2)
sys.exit(code)"""

CHANGES = {
    'chmod': lambda path: os.chmod(path, 0o750 if path.is_dir() else 0o640),
    'chown': lambda path: os.chown(path, os.stat(path).st_uid, -1),
    'setxattr': lambda path: os.setxattr(path, 'user.note', b'1'),
    'removexattr': lambda path: (os.setxattr(path, 'user.gone', b'1'), os.removexattr(path, 'user.gone')),
    'mtime': lambda path: os.utime(path, ns=(OLD * 10**9, 5)),
    'atime': lambda path: os.utime(path, ns=(7, os.stat(path).st_mtime_ns)),
    'write': write,
    'truncate': truncate,
    'rename': rename,
    'link': link,
    'unlink': unlink,
    'exchange': exchange,
}


@pytest.mark.parametrize('kind', KINDS)
def test_ctime_moves_with_every_change_and_never_back(tree, kind):
    path = tree / kind
    for name, change in CHANGES.items():
        before = os.stat(path).st_ctime_ns
        wall = time.time_ns()
        change(path)
        after = os.stat(path).st_ctime_ns
        assert after > before and wall - 10**7 <= after <= time.time_ns(), name


@pytest.mark.parametrize('kind', KINDS)
def test_what_changes_nothing_moves_no_time(tree, kind):
    path = tree / kind
    before = os.stat(path)
    os.listdir(path) if path.is_dir() else path.read_bytes()
    with pytest.raises(OSError):
        os.chown(path, 1234, -1)
    with pytest.raises(OSError):
        os.rename(path, tree / 'no/where')
    assert os.stat(path) == before


@pytest.mark.parametrize('name', ['user.weightfs.dtype', 'user.weightfs.shape', 'user.weightfs.param_id'])
def test_attributes_of_tensors_move_the_ctime_alone(tree, name):
    value = {'user.weightfs.dtype': b'I8', 'user.weightfs.shape': b'[2, 2]', 'user.weightfs.param_id': b'p'}[name]
    before = os.stat(tree / 'a')
    os.setxattr(tree / 'a', name, value)
    between = os.stat(tree / 'a')
    os.removexattr(tree / 'a', name)
    after = os.stat(tree / 'a')
    assert before.st_ctime_ns < between.st_ctime_ns < after.st_ctime_ns
    assert before.st_mtime_ns == after.st_mtime_ns == OLD * 10**9


@pytest.mark.parametrize('kind', KINDS)
def test_atime_and_mtime_are_set_apart(tree, kind):
    path = tree / kind
    os.utime(path, ns=(1234567890123456789, 987654321012345678))
    assert (os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns) == (1234567890123456789, 987654321012345678)
    subprocess.run(['touch', '-a', '-d', '@5', path], check=True)
    subprocess.run(['touch', '-m', '-d', '@6', path], check=True)
    assert (os.stat(path).st_atime, os.stat(path).st_mtime) == (5, 6)


@pytest.mark.parametrize('umask, file_mode, dir_mode', [(0o022, 0o644, 0o755), (0o077, 0o600, 0o700), (0, 0o666, 0o777)])
def test_new_files_get_the_umask_of_their_creator(tree, umask, file_mode, dir_mode):
    subprocess.run(['sh', '-c', 'umask %o; echo >.f; mkdir d; mknod .g p 2>/dev/null; cp a .h; ln .f .i' % umask], cwd=tree, check=True)
    assert stat.S_IMODE(os.stat(tree / '.f').st_mode) == file_mode
    assert stat.S_IMODE(os.stat(tree / '.i').st_mode) == file_mode
    assert stat.S_IMODE(os.stat(tree / 'd').st_mode) == dir_mode
    assert stat.S_IMODE(os.stat(tree / '.h').st_mode) == stat.S_IMODE(os.stat(tree / 'a').st_mode) & ~umask
    assert not (tree / '.g').exists()


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('mode', [0o1777, 0o2755, 0o4755, 0o7644, 0])
def test_all_bits_of_a_mode_are_kept(tree, kind, mode):
    os.chmod(tree / kind, mode)
    assert stat.S_IMODE(os.stat(tree / kind).st_mode) == mode
    os.chmod(tree / kind, 0o755)


def test_setgid_is_inherited_by_directories_only(tree):
    os.chmod(tree / 'dir', 0o2755)
    (tree / 'dir/sub/below').mkdir(parents=True)
    (tree / 'dir/sub/.file').write_bytes(b'')
    assert [os.stat(tree / 'dir' / name).st_mode & 0o7000 for name in ('sub', 'sub/below', 'sub/.file')] == [0o2000, 0o2000, 0]


@pytest.mark.parametrize('change', [write, truncate, lambda path: os.chown(path, os.stat(path).st_uid, -1)])
def test_a_change_takes_setuid_away(tree, change):
    os.chmod(tree / 'a', 0o6755)
    change(tree / 'a')
    assert stat.S_IMODE(os.stat(tree / 'a').st_mode) == 0o755
