# SPDX-License-Identifier: MIT
"""Large matrices, shown across the order in which they are stored: whatever reads them, at any offset and length, numpy has the same bytes."""
import os
import random

import numpy
import pytest

from wfs_testlib import st
from wfs_testlib.program import tool, weightfs

SHAPES = {'F32': (4096, 4096), 'F16': (3001, 2050), 'U8': (2000, 5003), 'I64': (1025, 1031)}
NUMPY = {'F32': '<f4', 'F16': '<f2', 'U8': 'u1', 'I64': '<i8'}


@pytest.fixture(scope='module', params=SHAPES)
def matrix(request, tmp_path_factory):
    """A checkpoint with one matrix of random bits, and its transpose as bytes."""
    shape, dtype = SHAPES[request.param], numpy.dtype(NUMPY[request.param])
    content = numpy.random.default_rng(1).integers(0, 256, shape[0] * shape[1] * dtype.itemsize, 'u1').tobytes()
    path = tmp_path_factory.mktemp('matrix') / 'in.safetensors'
    st.write(path, {'w': (request.param, list(shape), content)})
    # As plain bytes, so that no NaN is touched on the way.
    turned = numpy.frombuffer(content, 'V%d' % dtype.itemsize).reshape(shape).T.tobytes()
    return path, turned


@pytest.fixture
def shown(matrix, mount):
    path, wanted = matrix
    return mount(path, 'transpose=.') / 'w', wanted


def test_dd_of_one_mebibyte(shown, folder):
    path, wanted = shown
    tool('dd', 'if=%s' % path, 'of=out', 'bs=1M', 'status=none', cwd=folder)
    assert (folder / 'out').read_bytes() == wanted


def test_cp(shown, folder):
    path, wanted = shown
    tool('cp', path, folder / 'out')
    assert (folder / 'out').read_bytes() == wanted


def test_dd_of_four_kibibytes(shown, folder):
    path, wanted = shown
    tool('dd', 'if=%s' % path, 'of=out', 'bs=4k', 'status=none', cwd=folder)
    assert (folder / 'out').read_bytes() == wanted


@pytest.mark.parametrize('longest', [4, 4096, 131072, 3 << 20])
def test_any_offset_and_length(shown, longest):
    path, wanted = shown
    chance = random.Random(longest)
    fd = os.open(path, os.O_RDONLY)
    try:
        for _ in range(60):
            offset, n_bytes = chance.randrange(len(wanted)), chance.randrange(1, longest + 1)
            assert os.pread(fd, n_bytes, offset) == wanted[offset:offset + n_bytes]
    finally:
        os.close(fd)


def test_backwards(shown):
    path, wanted = shown
    fd = os.open(path, os.O_RDONLY)
    try:
        for offset in range(len(wanted) // 100000 * 100000, -1, -100000):
            assert os.pread(fd, 100000, offset) == wanted[offset:offset + 100000]
    finally:
        os.close(fd)


def test_the_same_with_a_header_for_numpy(matrix, mount):
    path, wanted = matrix
    shown = mount(path, 'transpose=.', 'files=npy') / 'w.npy'
    assert numpy.load(shown).tobytes() == wanted
    mapped = numpy.load(shown, mmap_mode='r')
    n_row = len(wanted) // len(mapped)
    assert mapped[5:50].tobytes() == wanted[5 * n_row:50 * n_row]


def test_cat(matrix):
    path, wanted = matrix
    assert weightfs('cat', '--transpose', '.', path, 'w').raw == wanted


def test_convert(matrix, folder):
    path, wanted = matrix
    weightfs('convert', '--transpose', '.', path, folder / 'out.safetensors')
    assert st.read(folder / 'out.safetensors').tensors['w'][2] == wanted


@pytest.mark.parametrize('options', [[], ['--cast', 'BF16'], ['--transpose', '.']])
def test_cat_of_a_source_that_ends_early_says_what_is_missing_after_what_is_there(folder, options):
    path = folder / 'in.safetensors'
    st.write(path, {'w': ('F32', [2048, 4096], bytes(32 << 20))})
    os.truncate(path, path.stat().st_size - (9 << 20))
    result = weightfs('cat', '--force', *options, path, 'w', code=5)
    assert 'w' in result.error
