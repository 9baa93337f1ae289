# SPDX-License-Identifier: MIT
"""Mounts of URLs."""
import os
import pathlib
import random

import pytest

from wfs_testlib import st
from wfs_testlib.mount import children

MIB = 1 << 20


@pytest.fixture
def files(folder):
    """A folder to serve."""
    root = folder / 'served'
    root.mkdir()
    tensors = {'t%d' % i: ('U8', [3 * MIB + i], random.Random(i).randbytes(3 * MIB + i)) for i in range(4)}
    st.write(root / 'one.safetensors', tensors)
    return root


def test_a_mount_of_a_url_shows_the_bytes_of_the_file_and_fetches_none_twice(files, serve, mount):
    server = serve(files)
    mounted = mount(server.url('one.safetensors'))
    for key, (_, _, data) in st.read(files / 'one.safetensors').tensors.items():
        assert (mounted.path / key).read_bytes() == data
        assert (mounted.path / key).read_bytes() == data
    assert server.n_bytes() < os.path.getsize(files / 'one.safetensors') * 1.02
    assert server.requests()[-1].status == 206


def test_no_process_of_a_mount_has_what_is_secret_of_its_url(files, serve, mount):
    url = serve(files).url('one.safetensors').replace('//', '//alice:hunter2@') + '?sig=tok3n'
    mounted = mount(url, 'like=' + url)
    processes = [mounted.process.pid, *children(mounted.process.pid)]
    processes += [child for pid in processes[1:] for child in children(pid)]
    assert len(processes) >= 3
    texts = [pathlib.Path('/proc/%d/cmdline' % pid).read_bytes() for pid in processes] + [pathlib.Path('/proc/self/mounts').read_bytes()]
    texts += [path.read_bytes() for path in (mounted.path / '.weightfs').iterdir() if path.is_file()]
    texts += [os.getxattr(mounted.path / 't0', name) for name in os.listxattr(mounted.path / 't0')]
    assert not any(secret in text for text in texts for secret in (b'alice', b'hunter2', b'tok3n'))
