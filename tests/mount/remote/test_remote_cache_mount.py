# SPDX-License-Identifier: MIT
"""Mounts that share a cache directory, one after the other and at the same time."""
import os

import pytest

from wfs_testlib import disks, look, program, st

MIB = 1 << 20
N_EACH = 4 * MIB
HEAD = 70000


@pytest.fixture
def random_file(folder):
    place = folder / 'served'
    place.mkdir()
    return st.write(place / 'x.safetensors', {name: ('U8', [N_EACH], os.urandom(N_EACH)) for name in 'ab'})


def test_a_later_mount_finds_what_an_earlier_one_fetched(serve, mount, random_file, folder):
    server = serve(random_file.parent)
    for limit in 2 * N_EACH + 2 * HEAD, HEAD, HEAD:
        server.forget()
        mnt = mount(server.url(random_file), 'cache=cache', cwd=folder)  # relative to where it was typed
        assert look.tensors(mnt.path) == {key: tuple(tensor) for key, tensor in st.read(random_file).tensors.items()}
        mnt.unmount()
        assert server.n_bytes() <= limit
    assert os.listdir(folder / 'cache') == ['weightfs.cache']


def test_mounts_at_the_same_time_share_it(serve, mount, random_file, folder):
    server = serve(random_file.parent)
    first, second = (mount(server.url(random_file), 'cache=%s' % (folder / 'cache')) for _ in range(2))
    assert (first / 'a').read_bytes() == (second / 'a').read_bytes() == st.read(random_file).tensors['a'][2]
    assert server.n_bytes() <= N_EACH + 4 * HEAD


def test_a_cache_that_is_cleared_under_a_mount_does_no_harm(serve, mount, random_file, folder):
    server = serve(random_file.parent)
    mnt = mount(server.url(random_file), 'cache=%s' % (folder / 'cache'))
    assert (mnt / 'a').read_bytes() == st.read(random_file).tensors['a'][2]
    program.weightfs('cache', 'clear', folder / 'cache')
    assert look.tensors(mnt.path) == {key: tuple(tensor) for key, tensor in st.read(random_file).tensors.items()}


def test_a_cache_that_is_damaged_under_a_mount_does_no_harm(serve, mount, random_file, folder):
    server = serve(random_file.parent)
    mnt = mount(server.url(random_file), 'cache=%s' % (folder / 'cache'))
    with open(mnt / 'a', 'rb') as file:
        assert file.read() == st.read(random_file).tensors['a'][2]
        path = folder / 'cache' / 'weightfs.cache'
        with open(path, 'r+b') as store:
            store.write(os.urandom(path.stat().st_size))
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert look.tensors(mnt.path) == {key: tuple(tensor) for key, tensor in st.read(random_file).tensors.items()}


@pytest.mark.root
def test_a_full_disk_of_the_cache_is_an_error_of_the_read(serve, mount, random_file, folder):
    server = serve(random_file.parent)
    with disks.small(folder, 'tmpfs', 2) as disk:
        (disk / 'cache').mkdir(mode=0o700)
        mnt = mount(server.url(random_file), 'cache=%s' % (disk / 'cache')).allow('cache')
        program.tool('cp', mnt / 'a', '/dev/null', code=1)
        with open(mnt / 'a', 'rb') as file:
            assert file.read(4096) == st.read(random_file).tensors['a'][2][:4096]
        mnt.unmount()
