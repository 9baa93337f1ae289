# SPDX-License-Identifier: MIT
"""Ranks of model parallelism in a mount: any range of a joined tensor, edits on top of it, and what the sandbox lets it open."""
import os
import random
import subprocess

import numpy
import pytest

from wfs_testlib import st
from wfs_testlib.program import weightfs

WHOLE = numpy.random.default_rng(1).integers(0, 65536, (70, 900), '<u2')
CUTS = (0, 300, 301, 900)


def write(folder, axis, pattern='consolidated.%02d.pth'):
    """The whole, cut into three; a name with a folder gets it."""
    for rank, ends in enumerate(zip(CUTS, CUTS[1:])):
        ends = [end * WHOLE.shape[axis] // 900 for end in ends]
        part = numpy.ascontiguousarray(numpy.take(WHOLE, range(*ends), axis))
        path = folder / (pattern % rank)
        path.parent.mkdir(exist_ok=True)
        st.write(path, {'m.w': ('BF16', list(part.shape), part.tobytes()), 'm.n': ('F32', [1], st.f32(1))})
    return folder / (pattern % 0)


@pytest.mark.parametrize('axis', [0, 1])
def test_every_range_of_a_joined_tensor(mount, folder, axis):
    mnt = mount(write(folder, axis), 'join=w:%d' % axis)
    path, whole = mnt / 'm/w', WHOLE.tobytes()
    assert path.read_bytes() == whole
    with open(path, 'rb', buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for seed in range(300):
            start = random.Random(seed).randrange(len(whole))
            n = random.Random(seed + 1000).choice((1, 3, 601, 4096, 50000))
            assert os.pread(file.fileno(), n, start) == whole[start:start + n]
    subprocess.run(['cp', '-r', mnt / 'm', folder / 'copy'], check=True)
    assert (folder / 'copy/w').read_bytes() == whole


@pytest.mark.parametrize('is_folder', [False, True])
def test_ranks_in_folders_beside_each_other(mount, folder, is_folder):
    source = write(folder, 0, 'mp_rank_%02d/model_optim_rng.pt')
    mnt = mount(folder if is_folder else source, 'join=w:0,sandbox=auto')
    assert (mnt / 'm/w').read_bytes() == WHOLE.tobytes()


def test_edits_on_top_are_committed(mount, folder):
    output = folder / 'out.safetensors'
    source = write(folder, 1)
    mnt = mount(source, 'join=w:1,rw,output=%s' % output)
    with open(mnt / 'm/w', 'r+b') as file:
        file.seek(4)
        file.write(b'\1\2')
    weightfs('commit', mnt.path)
    expected = bytearray(WHOLE.tobytes())
    expected[4:6] = b'\1\2'
    assert st.read(output).tensors['m.w'] == ('BF16', [70, 900], bytes(expected))
    assert (mnt / 'm/n').read_bytes() == st.f32(1)


def test_a_rank_that_changes_is_an_error(mount, folder):
    mnt = mount(write(folder, 1), 'join=w:1').allow('changed')
    os.truncate(folder / 'consolidated.02.pth', 300)
    with pytest.raises(OSError):
        (mnt / 'm/w').read_bytes()
