# SPDX-License-Identifier: MIT
"""Calls that fail or have fine print: a mount answers as a directory of the machine does."""
import ctypes
import fcntl
import mmap
import os
import shutil

import pytest

from wfs_testlib import crash
from wfs_testlib.mount import wait_for

LIBC = ctypes.CDLL(None, use_errno=True)
NOREPLACE, EXCHANGE = 1, 2
LONG, TOO_LONG, DEEP = 'x' * 255, 'x' * 256, '/'.join(['x' * 200] * 21)


def renameat2(a, b, flags):
    if LIBC.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), flags) != 0:
        raise OSError(ctypes.get_errno(), 'renameat2')


def opened(path, flags, act=lambda fd: None):
    fd = os.open(path, flags, 0o600)
    try:
        return act(fd)
    finally:
        os.close(fd)


def content(path):
    with open(path, 'rb') as file:
        return file.read()


def append(path):
    def act(fd):
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, b'xy')
        return os.lseek(fd, 0, os.SEEK_CUR)
    return opened(path, os.O_WRONLY | os.O_APPEND, act), content(path)


def map_and_write(path):
    def act(fd):
        with mmap.mmap(fd, 8) as memory:
            memory[2:4] = b'zz'
            memory.flush()
    opened(path, os.O_RDWR, act)
    return content(path)


def hole(path, mode, offset, n):
    def act(fd):
        if LIBC.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(n)) != 0:
            raise OSError(ctypes.get_errno(), 'fallocate')
    opened(path, os.O_RDWR, act)
    return content(path)


def copy_range(a, b):
    with open(a, 'rb') as source, open(b, 'r+b') as target:
        n = os.copy_file_range(source.fileno(), target.fileno(), 5, 1, 3)
    return n, content(b)


def at_no_address(call, *arguments):
    """The system call with a path where no memory is."""
    result = LIBC.syscall(ctypes.c_long(call), *[ctypes.c_long(argument) for argument in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), 'at no address')
    return result


def calls_of_this_machine():
    """Numbers of system calls; the old ones that take a path alone are missing on newer machines."""
    names = 'truncate', 'mkdirat', 'openat', 'renameat2', 'unlinkat'
    numbers = {'x86_64': (76, 258, 257, 316, 263), 'aarch64': (45, 34, 56, 276, 35)}.get(os.uname().machine)
    return dict(zip(names, numbers or [-1] * 5))


CALL, HERE, NOWHERE = calls_of_this_machine(), -100, -1


def large(path, offset):
    """Beyond what 31 or 32 bits tell: written, read, cut."""
    def act(fd):
        os.pwrite(fd, b'far', offset)
        found = os.pread(fd, 8, offset - 4), os.fstat(fd).st_size, os.lseek(fd, -3, os.SEEK_END)
        os.ftruncate(fd, 8)
        return found
    return opened(path, os.O_RDWR, act)


def links(at, *names):
    return [os.stat(at / name).st_nlink for name in names]


def moved_directory(at):
    before = links(at, 'd', 'n', 'd/e')
    os.rename(at / 'd/e', at / 'n/e')
    return before, links(at, 'd', 'n', 'n/e'), os.stat(at / 'n/e/..').st_ino == os.stat(at / 'n').st_ino


def read_what_is_gone(path):
    def act(fd):
        os.unlink(path)
        os.pwrite(fd, b'xyz', 8)
        return os.pread(fd, 20, 0), os.fstat(fd).st_size
    return opened(path, os.O_RDWR, act)


def times_of_parent(at, act):
    before = os.stat(at)
    os.utime(at, ns=(0, 0))
    act()
    return os.stat(at).st_mtime_ns >= before.st_mtime_ns


# "f" and "g" are files of 8 bytes, "d" is a directory with a file "d/f" and a directory "d/e", "n" is an empty one.
CALLS = {
    'truncate of nothing': lambda at: os.truncate(at / 'no', 0),
    'truncate of a directory': lambda at: os.truncate(at / 'd', 0),
    'truncate below a file': lambda at: os.truncate(at / 'f/x', 0),
    'truncate of a name too long': lambda at: os.truncate(at / TOO_LONG, 0),
    'truncate of a path too long': lambda at: os.truncate(at / DEEP, 0),
    'truncate to less than nothing': lambda at: os.truncate(at / 'f', -1),
    'truncate to more': lambda at: (os.truncate(at / 'f', 12), content(at / 'f')),
    'truncate to less': lambda at: (os.truncate(at / 'f', 3), content(at / 'f')),
    'ftruncate of what is open for reading': lambda at: opened(at / 'f', os.O_RDONLY, lambda fd: os.ftruncate(fd, 1)),
    'ftruncate to less than nothing': lambda at: opened(at / 'f', os.O_RDWR, lambda fd: os.ftruncate(fd, -1)),
    'ftruncate of what has no name': lambda at: opened(at / 'f', os.O_RDWR, lambda fd: (os.unlink(at / 'f'), os.ftruncate(fd, 2), os.fstat(fd).st_size)),
    'mkdir over a file': lambda at: os.mkdir(at / 'f'),
    'mkdir over a directory': lambda at: os.mkdir(at / 'd'),
    'mkdir below nothing': lambda at: os.mkdir(at / 'no/x'),
    'mkdir below a file': lambda at: os.mkdir(at / 'f/x'),
    'mkdir of a long name': lambda at: os.mkdir(at / LONG),
    'mkdir of a name too long': lambda at: os.mkdir(at / TOO_LONG),
    'mkdir of a path too long': lambda at: os.mkdir(at / DEEP),
    'mkdir of dot': lambda at: os.mkdir(os.path.join(at, '.')),
    'open of nothing': lambda at: opened(at / 'no', os.O_RDONLY),
    'open below a file': lambda at: opened(at / 'f/x', os.O_RDONLY),
    'open below nothing': lambda at: opened(at / 'no/x', os.O_WRONLY | os.O_CREAT),
    'open of a name too long': lambda at: opened(at / TOO_LONG, os.O_WRONLY | os.O_CREAT),
    'open of a directory for writing': lambda at: opened(at / 'd', os.O_WRONLY),
    'open of a directory with creation': lambda at: opened(at / 'd', os.O_RDONLY | os.O_CREAT),
    'open of a file as a directory': lambda at: opened(at / 'f', os.O_RDONLY | os.O_DIRECTORY),
    'open of a new file alone': lambda at: opened(at / 'new', os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    'open of an old file alone': lambda at: opened(at / 'f', os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    'open of a directory alone': lambda at: opened(at / 'd', os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    'open with truncation': lambda at: (opened(at / 'f', os.O_WRONLY | os.O_TRUNC), content(at / 'f')),
    'reading what is open for writing': lambda at: opened(at / 'f', os.O_WRONLY, lambda fd: os.read(fd, 1)),
    'writing what is open for reading': lambda at: opened(at / 'f', os.O_RDONLY, lambda fd: os.write(fd, b'x')),
    'writing to the end': lambda at: append(at / 'f'),
    'writing behind the end': lambda at: (opened(at / 'f', os.O_RDWR, lambda fd: os.pwrite(fd, b'xy', 12)), content(at / 'f')),
    'writing through a mapping': lambda at: map_and_write(at / 'f'),
    'reading behind the end': lambda at: opened(at / 'f', os.O_RDONLY, lambda fd: os.pread(fd, 9, 100)),
    'allocating': lambda at: hole(at / 'f', 0, 4, 8),
    'reserving': lambda at: hole(at / 'f', 1, 4, 8),
    'punching a hole': lambda at: hole(at / 'f', 3, 2, 3),
    'a hole that could change the size': lambda at: hole(at / 'f', 2, 2, 3),
    'allocating nothing': lambda at: hole(at / 'f', 0, 0, 0),
    'allocating before the start': lambda at: hole(at / 'f', 0, -1, 2),
    'copying a range': lambda at: copy_range(at / 'f', at / 'g'),
    'copying a range of one file': lambda at: copy_range(at / 'f', at / 'f'),
    'locking': lambda at: opened(at / 'f', os.O_RDWR, lambda fd: (fcntl.flock(fd, fcntl.LOCK_EX), fcntl.lockf(fd, fcntl.LOCK_EX))),
    'rename of nothing': lambda at: os.rename(at / 'no', at / 'x'),
    'rename to below nothing': lambda at: os.rename(at / 'f', at / 'no/x'),
    'rename to below a file': lambda at: os.rename(at / 'f', at / 'g/x'),
    'rename to a name too long': lambda at: os.rename(at / 'f', at / TOO_LONG),
    'rename of a directory into itself': lambda at: os.rename(at / 'd', at / 'd/e/x'),
    'rename of a directory over one above': lambda at: os.rename(at / 'd/e', at / 'd'),
    'rename of a file over a directory': lambda at: os.rename(at / 'f', at / 'n'),
    'rename of a directory over a file': lambda at: os.rename(at / 'n', at / 'f'),
    'rename over a directory with something': lambda at: os.rename(at / 'n', at / 'd'),
    'rename over an empty directory': lambda at: os.rename(at / 'd', at / 'n'),
    'rename to the same name': lambda at: os.rename(at / 'f', at / 'f'),
    'rename over another link': lambda at: (os.link(at / 'f', at / 'h'), os.rename(at / 'f', at / 'h')),
    'rename of dot': lambda at: os.rename(os.path.join(at, 'd/.'), at / 'x'),
    'rename of dots': lambda at: os.rename(os.path.join(at, 'd/e/..'), at / 'x'),
    'rename over nothing only': lambda at: renameat2(at / 'f', at / 'g', NOREPLACE),
    'rename where nothing is': lambda at: renameat2(at / 'f', at / 'x', NOREPLACE),
    'exchange': lambda at: renameat2(at / 'f', at / 'd', EXCHANGE),
    'exchange with nothing': lambda at: renameat2(at / 'f', at / 'x', EXCHANGE),
    'exchange with what is above': lambda at: renameat2(at / 'd', at / 'd/e', EXCHANGE),
    'exchange and no replacement': lambda at: renameat2(at / 'f', at / 'g', NOREPLACE | EXCHANGE),
    'rmdir of nothing': lambda at: os.rmdir(at / 'no'),
    'rmdir of a file': lambda at: os.rmdir(at / 'f'),
    'rmdir below a file': lambda at: os.rmdir(at / 'f/x'),
    'rmdir of a directory with something': lambda at: os.rmdir(at / 'd'),
    'rmdir': lambda at: os.rmdir(at / 'n'),
    'rmdir of dot': lambda at: os.rmdir(os.path.join(at, 'n/.')),
    'rmdir of dots': lambda at: os.rmdir(os.path.join(at, 'd/e/..')),
    'rmdir of a name too long': lambda at: os.rmdir(at / TOO_LONG),
    'unlink of nothing': lambda at: os.unlink(at / 'no'),
    'unlink of a directory': lambda at: os.unlink(at / 'n'),
    'unlink below a file': lambda at: os.unlink(at / 'f/x'),
    'unlink of a name too long': lambda at: os.unlink(at / TOO_LONG),
    'unlink of what is open': lambda at: opened(at / 'f', os.O_RDWR, lambda fd: (os.unlink(at / 'f'), os.write(fd, b'x'), os.fstat(fd).st_nlink)),
    'link': lambda at: (os.link(at / 'f', at / 'h'), os.stat(at / 'h').st_nlink),
    'link over a file': lambda at: os.link(at / 'f', at / 'g'),
    'link of a directory': lambda at: os.link(at / 'd', at / 'x'),
    'link of nothing': lambda at: os.link(at / 'no', at / 'x'),
    'link of a name too long': lambda at: os.link(at / 'f', at / TOO_LONG),
    'truncate of a long name': lambda at: (os.rename(at / 'f', at / LONG), os.truncate(at / LONG, 3), content(at / LONG)),
    'truncate to more than can be': lambda at: os.truncate(at / 'f', 999999999999999),
    'ftruncate to more than can be': lambda at: opened(at / 'f', os.O_RDWR, lambda fd: os.ftruncate(fd, 999999999999999)),
    'truncate at no address': lambda at: at_no_address(CALL['truncate'], NOWHERE, 0),
    'ftruncate of a directory': lambda at: opened(at / 'd', os.O_RDONLY, lambda fd: os.ftruncate(fd, 0)),
    'ftruncate of a long name': lambda at: (os.rename(at / 'f', at / LONG), opened(at / LONG, os.O_RDWR, lambda fd: os.ftruncate(fd, 3)), content(at / LONG)),
    'mkdir at no address': lambda at: at_no_address(CALL['mkdirat'], HERE, NOWHERE, 0o700),
    'open at no address': lambda at: at_no_address(CALL['openat'], HERE, NOWHERE, 0),
    'open of a long name': lambda at: opened(at / LONG, os.O_WRONLY | os.O_CREAT),
    'open of a path too long': lambda at: opened(at / DEEP, os.O_WRONLY | os.O_CREAT),
    'more than two gigabytes': lambda at: large(at / 'f', (2 << 30) + 5),
    'more than four gigabytes': lambda at: large(at / 'f', (4 << 30) + 5),
    'rename to a long name': lambda at: os.rename(at / 'f', at / LONG),
    'rename of a name too long': lambda at: os.rename(at / TOO_LONG, at / 'x'),
    'rename to a path too long': lambda at: os.rename(at / 'f', at / DEEP),
    'rename of a path too long': lambda at: os.rename(at / DEEP, at / 'x'),
    'rename at no address': lambda at: at_no_address(CALL['renameat2'], HERE, NOWHERE, HERE, NOWHERE, 0),
    'rename of a directory into another': lambda at: moved_directory(at),
    'rename over dot': lambda at: os.rename(at / 'n', os.path.join(at, 'd/.')),
    'rename over dots': lambda at: os.rename(at / 'n', os.path.join(at, 'd/e/..')),
    'mkdir and links of what is above': lambda at: (os.mkdir(at / 'n/x'), links(at, 'n', 'n/x')),
    'rmdir and links of what is above': lambda at: (os.rmdir(at / 'd/e'), links(at, 'd')),
    'rmdir and times of what is above': lambda at: times_of_parent(at, lambda: os.rmdir(at / 'n')),
    'unlink and times of what is above': lambda at: times_of_parent(at / 'd', lambda: os.unlink(at / 'd/f')),
    'rmdir of a long name': lambda at: (os.mkdir(at / LONG), os.rmdir(at / LONG)),
    'rmdir of a path too long': lambda at: os.rmdir(at / DEEP),
    'rmdir at no address': lambda at: at_no_address(CALL['unlinkat'], HERE, NOWHERE, 0x200),
    'rmdir below nothing': lambda at: os.rmdir(at / 'no/x'),
    'unlink of a long name': lambda at: (os.rename(at / 'f', at / LONG), os.unlink(at / LONG)),
    'unlink of a path too long': lambda at: os.unlink(at / DEEP),
    'unlink at no address': lambda at: at_no_address(CALL['unlinkat'], HERE, NOWHERE, 0),
    'unlink below nothing': lambda at: os.unlink(at / 'no/x'),
    'unlink of what is open and read on': lambda at: read_what_is_gone(at / 'f'),
    'listing of a file': lambda at: os.listdir(at / 'f'),
}


def furnish(at):
    for name in ('d', 'd/e', 'n'):
        (at / name).mkdir(parents=True)
    for name in ('f', 'g', 'd/f'):
        (at / name).write_bytes(name[-1:].encode() + b'1234567')


def outcome(call, at):
    """What it gives or its errno, and what is there afterwards."""
    try:
        result = call(at)
    except OSError as error:
        result = os.strerror(error.errno)
    except ValueError as error:
        result = str(error)
    there = sorted((str(path.relative_to(at)), None if path.is_dir() else path.read_bytes()) for path in at.rglob('*'))
    return result, there


@pytest.fixture
def places(mount, sample, folder):
    """The same in a directory of the machine and, as scratch that no commit takes, in a mount."""
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    both = folder / 'plain', mnt / '.scratch'
    for at in both:
        furnish(at)
    return both


@pytest.mark.parametrize('name', CALLS)
def test_it_answers_as_a_directory_of_the_machine(places, name):
    plain, mounted = (outcome(CALLS[name], at) for at in places)
    assert mounted == plain


@pytest.mark.skipif(not crash.LIBRARY.exists(), reason='no fault injector in this build')
def test_a_listing_that_did_not_arrive_holds_no_file(small, folder, mount):
    """What it took for the kernel is given back: once removed, the file is gone from the staging directory too."""
    mnt = mount(small, 'output=' + str(folder / 'out.safetensors'),
                wrap=('env', 'LD_PRELOAD=%s' % crash.LIBRARY, 'INJECT_REPLY=lost.bin'))
    (mnt / 'new').mkdir()
    for i in range(8):
        (mnt / 'new' / ('kept%d.bin' % i)).write_bytes(b'x')
    (mnt / 'new' / 'lost.bin').write_bytes(b'x' * 4321)
    with pytest.raises(OSError):
        os.listdir(mnt / 'new')
    assert len(os.listdir(mnt / 'new')) == 9
    (mnt / 'new' / 'lost.bin').unlink()
    shutil.rmtree(mnt / 'new')
    sizes = lambda: [path.stat().st_size for path in (folder / '.out.safetensors.weightfs').rglob('*')]
    wait_for(lambda: 4321 not in sizes(), 'the content of the removed file to go')
