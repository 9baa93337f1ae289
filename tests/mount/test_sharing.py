# SPDX-License-Identifier: MIT
"""Where files can share blocks, what was not edited takes no space a second time."""
import os
import shutil

import pytest

from wfs_testlib import program, st
from wfs_testlib.program import tool, weightfs

pytestmark = pytest.mark.root

N_DISK = 320 << 20  # mkfs.xfs wants 300 MiB
N_LAYERS, N_WEIGHT = 40, 4 << 20  # 160 MiB: twice of it has no room


@pytest.fixture
def disk(folder):
    """An XFS in a file."""
    if shutil.which('mkfs.xfs') is None:
        pytest.skip('no mkfs.xfs')
    place = folder / 'disk'
    place.mkdir()
    with open(folder / 'image', 'wb') as file:
        file.truncate(N_DISK)
    tool('mkfs.xfs', '-q', '-m', 'reflink=1', folder / 'image')
    if tool('mount', '-o', 'loop', folder / 'image', place, code=None).code != 0:
        pytest.skip('no loop devices, or no XFS')
    yield place
    program.unmount(place)


@pytest.fixture
def source(disk):
    tensors = {}
    for i in range(N_LAYERS):
        tensors['layers.%d.bias' % i] = ('F32', [100], os.urandom(400))
        tensors['layers.%d.weight' % i] = ('F32', [1024, 1024], os.urandom(N_WEIGHT))
    return st.write(disk / 'in.safetensors', tensors)


def n_free(disk):
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def test_a_renamed_key_costs_next_to_no_space(mount, disk, source):
    want = st.read(source).tensors
    os.sync()
    before = n_free(disk)
    mnt = mount(source, 'output=%s' % (disk / 'out.safetensors'))
    # Behind all others, so that everything in between moves by the 400 bytes of a bias.
    os.rename(mnt / 'layers/9/weight', mnt / 'layers/9/weight_of_another_length')
    mnt.unmount()
    os.sync()
    want['layers.9.weight_of_another_length'] = want.pop('layers.9.weight')
    assert st.read(disk / 'out.safetensors').tensors == want
    assert before - n_free(disk) < N_LAYERS * N_WEIGHT // 10


def test_untouched_canonical_file_is_the_same_and_shared(disk, source):
    os.sync()
    before = n_free(disk)
    weightfs('convert', source, disk / 'out.safetensors')
    os.sync()
    assert (disk / 'out.safetensors').read_bytes() == source.read_bytes()
    assert before - n_free(disk) < 1 << 20


def test_what_cannot_be_shared_is_copied(disk, source):
    weightfs('convert', source, disk / 'out.safetensors', '--include', '^layers.1')
    whole, part = st.read(source).tensors, st.read(disk / 'out.safetensors').tensors
    assert part == {key: whole[key] for key in whole if key.startswith('layers.1')}
