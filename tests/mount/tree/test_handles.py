# SPDX-License-Identifier: MIT
"""File handles, as NFS servers and backup programs keep them: they lead to their file or nowhere."""
import errno
import os
import pathlib
import random
import struct

import pytest

from wfs_testlib import st
from wfs_testlib.handles import LIBC, MS_RDONLY, handle_of, make_kernel_forget, open_handle, read_handle
from wfs_testlib.mount import wait_for

pytestmark = pytest.mark.root

OTHER = 65533
PR_SET_KEEPCAPS, CAPABILITY_VERSION, CAP_DAC_READ_SEARCH = 8, 0x20080522, 1 << 2


def is_stale(mnt, handle):
    try:
        os.close(open_handle(mnt, handle))
    except OSError as error:
        assert error.errno == errno.ESTALE
        return True
    return False


def wait_until_stale(mnt, handle):
    """The kernel closes files of FUSE in the background."""
    wait_for(lambda: is_stale(mnt, handle), 'the end of a file')


@pytest.fixture
def writable(mount, small, folder):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    mnt.allow('edits are kept')
    return mnt


@pytest.mark.parametrize('kind', ['file', 'directory'])
def test_the_handle_of_a_removed_file_opens_no_other(writable, kind):
    make, remove = (os.mkdir, os.rmdir) if kind == 'directory' else (lambda path: path.touch(), os.unlink)
    old, numbers = [], set()
    for i in range(20):
        path = writable / ('made%d' % i)
        make(path)
        handle = handle_of(path)
        assert handle.number not in numbers
        numbers.add(handle.number)
        remove(path)
        make(writable / 'next')
        handle_of(writable / 'next')
        assert is_stale(writable.path, handle)
        old.append(handle)
        remove(writable / 'next')
    assert all(is_stale(writable.path, handle) for handle in old)


@pytest.mark.parametrize('access', ['ro', 'output'])
def test_handles_outlive_what_the_kernel_remembers(mount, small, folder, access):
    mnt = mount(small, 'ro' if access == 'ro' else 'output=%s' % (folder / 'out.safetensors'))
    names = ['a/b/weight', 'a/b/bias', 'a/c', 'step', 'none', '.weightfs/tensors.csv', '.weightfs/out/model.safetensors']
    expected = {name: (mnt / name).read_bytes() for name in names}
    handles = {name: handle_of(mnt / name) for name in names}
    directories = {name: handle_of(mnt / name) for name in ('', 'a', 'a/b')}
    numbers = {name: os.stat(mnt / name).st_ino for name in names}
    for _ in range(3):
        make_kernel_forget(mnt.path, *([MS_RDONLY] if access == 'ro' else []))
        for name in reversed(names):
            assert read_handle(mnt.path, handles[name]) == expected[name]
        assert {name: os.stat(mnt / name).st_ino for name in names} == numbers
        make_kernel_forget(mnt.path, *([MS_RDONLY] if access == 'ro' else []))
        for name, handle in directories.items():
            fd = open_handle(mnt.path, handle, os.O_RDONLY | os.O_DIRECTORY)
            assert os.readlink('/proc/self/fd/%d' % fd) == str((mnt / name).resolve())
            assert sorted(os.listdir(fd)) == sorted(os.listdir(mnt / name))
            os.close(fd)


def test_handles_outlive_drop_caches(mount, small):
    mnt = mount(small)
    handle = handle_of(mnt / 'a/b/weight')
    expected = (mnt / 'a/b/weight').read_bytes()
    for _ in range(2):
        pathlib.Path('/proc/sys/vm/drop_caches').write_text('2')
        assert read_handle(mnt.path, handle) == expected


def test_a_handle_follows_its_file(writable):
    """Moved, linked, edited, replaced, open without a name."""
    handle = handle_of(writable / 'a/b/weight')
    (writable / 'new').mkdir()
    os.rename(writable / 'a/b/weight', writable / 'new/weight')
    make_kernel_forget(writable.path)
    assert read_handle(writable.path, handle) == st.f32(1, 2, 3, 4, 5, 6)
    os.link(writable / 'new/weight', writable / 'twin')
    os.unlink(writable / 'new/weight')
    make_kernel_forget(writable.path)
    assert read_handle(writable.path, handle) == st.f32(1, 2, 3, 4, 5, 6)
    fd = open_handle(writable.path, handle, os.O_RDWR)
    os.pwrite(fd, st.f32(9), 0)
    os.close(fd)
    make_kernel_forget(writable.path)
    assert (writable / 'twin').read_bytes() == read_handle(writable.path, handle) == st.f32(9, 2, 3, 4, 5, 6)
    with open(writable / 'twin', 'rb') as file:
        (writable / 'other').write_bytes(st.f32(0, 0, 0, 0, 0, 0))
        os.rename(writable / 'other', writable / 'twin')
        make_kernel_forget(writable.path)
        assert file.read() == read_handle(writable.path, handle)
    wait_until_stale(writable.path, handle)


def test_made_up_handles_open_nothing_else(writable):
    rng = random.Random(5)
    names = ['a/b/weight', 'a/b/bias', 'a/c', 'step', 'none', 'a', 'a/b', '']
    handles = {name: handle_of(writable / name) for name in names}
    known = {(handle.number, handle.generation) for handle in handles.values()}
    handle = handles['step']
    (writable / 'gone').touch()
    gone = handle_of(writable / 'gone').number
    os.unlink(writable / 'gone')
    numbers = [0, gone, handle.number | 1 << 32, handle.number | 1 << 63, 1 << 32 | 1, 2**32 - 1, 2**32, 2**64 - 1,
               *range(2, 64), *(rng.getrandbits(64) for _ in range(200)), *(rng.getrandbits(32) for _ in range(200)),
               *(handle.number ^ 1 << bit for bit in range(64))]
    make_kernel_forget(writable.path)
    for number in numbers:
        for generation in (0, 1, handle.generation, rng.getrandbits(32)):
            if (number, generation) not in known:
                assert is_stale(writable.path, handle.forged(number, generation))
    assert (writable / 'step').read_bytes() == (42).to_bytes(8, 'little')


def test_handles_are_good_in_the_next_mount_of_the_same_file_only(mount, small, folder):
    output = 'output=%s' % (folder / 'out.safetensors')
    first = mount(small, output).allow('edits are kept|committed')
    old = {name: handle_of(first / name) for name in ('a/b/weight', 'a/b', 'step')}
    (first / 'made').write_bytes(b'1')
    made = handle_of(first / 'made')
    os.unlink(first / 'made')
    first.unmount()
    (folder / 'out.safetensors').unlink(missing_ok=True)
    second = mount(small, output, at=first.path)
    (second / 'other').write_bytes(b'2')
    handle_of(second / 'other')
    assert read_handle(second.path, old['a/b/weight']) == st.f32(1, 2, 3, 4, 5, 6)
    assert read_handle(second.path, old['step']) == (42).to_bytes(8, 'little')
    assert is_stale(second.path, made)
    os.unlink(second / 'other')
    second.unmount()
    (folder / 'out.safetensors').unlink(missing_ok=True)
    another = st.write(folder / 'another.safetensors', {'x.%d' % i: ('U8', [1], bytes([i])) for i in range(20)})
    third = mount(another, at=first.path)
    assert all((third / 'x' / str(i)).read_bytes() == bytes([i]) for i in range(20))
    assert all(is_stale(third.path, handle) for handle in old.values())


def test_numbers_are_not_used_twice_while_names_come_and_go(writable):
    """Files stay open while their names go, and the kernel forgets in between."""
    rng = random.Random(7)
    seen, live = {}, {}
    for step in range(600):
        name = 'n%d' % step
        path = writable / name
        path.write_bytes(name.encode())
        handle = handle_of(path)
        assert seen.setdefault(handle.number, name) == name
        live[name] = handle, open(path, 'rb') if rng.random() < 0.2 else None
        if len(live) > 20:
            name = rng.choice(list(live))
            handle, file = live.pop(name)
            os.unlink(writable / name)
            if file:
                assert file.read() == read_handle(writable.path, handle) == name.encode()
                file.close()
            wait_until_stale(writable.path, handle)
        if step % 100 == 99:
            make_kernel_forget(writable.path)
            for name, (handle, _) in live.items():
                assert read_handle(writable.path, handle) == name.encode()
    for name, (_, file) in live.items():
        os.unlink(writable / name)
        if file:
            file.close()


def become_reader():
    """Another user, with no right but the one to open handles."""
    LIBC.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(OTHER, OTHER, OTHER)
    os.setresuid(OTHER, OTHER, OTHER)
    rights = struct.pack('=6I', CAP_DAC_READ_SEARCH, CAP_DAC_READ_SEARCH, 0, 0, 0, 0)
    assert LIBC.capset(struct.pack('=Ii', CAPABILITY_VERSION, 0), rights) == 0


def read_as_other(mnt, handle):
    """The content, or the errno."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become_reader()
            result = read_handle(mnt, handle)
        except OSError as error:
            result = b'errno %d' % error.errno
        except BaseException as error:
            result = repr(error).encode()
        os.write(writing, result[:64])
        os._exit(0)
    os.close(writing)
    try:
        return os.read(reading, 64)
    finally:
        os.close(reading)
        os.waitpid(pid, 0)


def test_other_users_do_not_reach_the_control_directory_by_handle(mount, small):
    mnt = mount(small, 'allow_other')
    control, tensor = handle_of(mnt / '.weightfs/tensors.csv'), handle_of(mnt / 'step')
    make_kernel_forget(mnt.path, MS_RDONLY)
    assert read_as_other(mnt.path, tensor) == (42).to_bytes(8, 'little')
    assert read_as_other(mnt.path, control) == b'errno %d' % errno.ESTALE
