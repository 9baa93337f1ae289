# SPDX-License-Identifier: MIT
"""Processes that share a file see what they wrote themselves, whatever others do to it meanwhile."""
import os
import random
import time

import numpy
import pytest

from wfs_testlib import st

N_WRITERS, N_SLOTS, N_SLOT_BYTES, START, N_FILE_BYTES = 4, 128, 64, 4096, 16384  # the slots of the writers alternate in two pages
SECONDS = 4
TENSOR = {'a': ('F32', [4096], bytes(N_FILE_BYTES))}


def write_and_read(path, which):
    """Returns the number of own writes that a read right after did not see."""
    n_stale, rng = 0, random.Random(which)
    end = time.monotonic() + SECONDS
    file = os.open(path, os.O_RDWR)
    while time.monotonic() < end:
        at = START + (rng.randrange(N_SLOTS // N_WRITERS) * N_WRITERS + which) * N_SLOT_BYTES
        text = rng.randbytes(N_SLOT_BYTES)
        os.pwrite(file, text, at)
        n_stale += os.pread(file, N_SLOT_BYTES, at) != text
    return n_stale


def start(function, *args):
    pid = os.fork()
    if pid == 0:
        os._exit(min(function(*args), 100))
    return pid


def leave_alone(path):
    time.sleep(0.05)


def open_and_close(path):
    os.close(os.open(path, os.O_RDONLY))


def grow(path):
    with open(path, 'ab') as file:
        file.write(b'x')
    os.stat(path)


@pytest.mark.parametrize('disturb', [leave_alone, open_and_close, grow])
@pytest.mark.parametrize('name, files', [('a', 'raw'), ('.new', 'raw'), ('a.npy', 'npy')])
def test_own_writes_are_read_back_in_shared_pages(mount, folder, name, files, disturb):
    if files == 'npy' and disturb is grow:
        pytest.skip('the kernel drops pages of files that may have a generated header when their size changes')
    source = st.write(folder / 'in.safetensors', TENSOR)
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors'), 'files=%s' % files)
    path = mnt / name
    if not path.exists():
        path.write_bytes(bytes(N_FILE_BYTES))
    pids = [start(write_and_read, path, which) for which in range(N_WRITERS)]
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        disturb(path)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    os.truncate(path, N_FILE_BYTES if files == 'raw' else N_FILE_BYTES + 128)
    assert codes == [0] * N_WRITERS


@pytest.mark.parametrize('is_edited', [False, True])
def test_a_header_is_read_again_after_its_shape_was_set(mount, folder, is_edited):
    source = st.write(folder / 'in.safetensors', TENSOR)
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors'), 'files=npy')
    with open(mnt / 'a.npy', 'rb+') as file:
        assert numpy.load(mnt / 'a.npy').shape == (4096,)
        os.setxattr(file.fileno(), 'user.weightfs.shape', b'[64, 64]')
        if is_edited:  # the content is a file with that header from now on
            os.pwrite(file.fileno(), b'\0\0\x80\x3f', 16380)
    assert numpy.load(mnt / 'a.npy').shape == (64, 64)
    os.setxattr(mnt / 'a.npy', 'user.weightfs.shape', b'[64, 64]')
    assert numpy.load(mnt / 'a.npy', mmap_mode='r').shape == (64, 64)
