# SPDX-License-Identifier: MIT
"""Memory of views: a tensor of 4 GiB, which is a hole, read in ranges under each option."""
import json
import os
import random

import pytest

from wfs_testlib import program

N = 32768
LIMIT = 112 << 10  # KiB: what is made of bands across the stored order is at most 64 MiB
OPTIONS = {
    'as it is': ([], 'w', 4 * N * N), 'transpose': (['transpose=.'], 'w', 4 * N * N), 'cast down': (['cast=BF16'], 'w', 2 * N * N),
    'cast up': (['cast=F64'], 'w', 8 * N * N), 'split': (['split=w=>a\\,b'], 'b', 2 * N * N),
    'transpose and cast': (['transpose=.', 'cast=F16'], 'w', 2 * N * N), 'permute': (['permute=c=>1\\,2\\,0'], 'c', 4 * N * N),
    'like': (['like=%s', 'partial'], 'w', 4 * N * N), 'overlay': (['overlay=%s'], 'w', 4 * N * N), 'npy': (['transpose=.', 'files=npy'], 'w.npy', 4 * N * N),
}


def write_hole(path, tensors):
    entries, at = {}, 0
    for key, shape in tensors.items():
        entries[key] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [at, at + 4 * N * N]}
        at += 4 * N * N
    head = json.dumps(entries).encode()
    with open(path, 'wb') as file:
        file.write(len(head).to_bytes(8, 'little') + head)
        file.truncate(8 + len(head) + at)
    return path


@pytest.fixture(scope='module')
def hole(tmp_path_factory):
    return write_hole(tmp_path_factory.mktemp('hole') / 'in.safetensors', {'c': [N // 4, 4, N], 'w': [N, N]})


@pytest.fixture(scope='module')
def other(tmp_path_factory):
    return write_hole(tmp_path_factory.mktemp('other') / 'other.safetensors', {'w': [N, N]})


def ranges(n_bytes):
    """Forward for a while, at the end, at random places."""
    chance = random.Random(7)
    yield from ((offset, 1 << 20) for offset in range(0, 96 << 20, 1 << 20))
    yield n_bytes - 5000, 10000
    yield from ((chance.randrange(n_bytes), 4096) for _ in range(16))


@pytest.mark.parametrize('name', OPTIONS)
def test_memory_does_not_follow_the_bytes(mount, hole, other, name):
    options, path, n_bytes = OPTIONS[name]
    mnt = mount(hole, *(option.replace('%s', str(other)) for option in options))
    assert n_bytes <= os.stat(mnt / path).st_size <= n_bytes + 4096
    with open(mnt / path, 'rb', buffering=0) as file:
        for offset, n in ranges(n_bytes):
            content = os.pread(file.fileno(), n, offset)
            assert len(content) == min(n, os.stat(mnt / path).st_size - offset)
            assert path.endswith('.npy') or content.count(0) == len(content)
    if program.IS_INSTRUMENTED:
        return
    for pid in mnt.workers:
        with open('/proc/%d/status' % pid, encoding='ascii') as file:
            assert next(int(line.split()[1]) for line in file if line.startswith('VmHWM')) < LIMIT
