# SPDX-License-Identifier: MIT
"""on_collision=suffix: no two tensors, and no tensor and value, have one name afterwards, in any format."""
import json
import zipfile

import pytest

from wfs_testlib import program, pth, pth_read, st
from wfs_testlib.program import weightfs

SUFFIX = '--on-collision=suffix'


def keys(*args):
    return [line.split('\t')[0] for line in weightfs('ls', *args, has_notices=True).stdout.splitlines()]


def numbers(value):
    return st.f32(*[value] * 4)


@pytest.mark.parametrize('target', ['out.safetensors', 'out.pth', 'out.bpk'])
def test_numbers_are_given_when_all_keys_are_known(tmp_path, target):
    """z_2 is in the file, after the two tensors that become z."""
    path = st.write(tmp_path / 'in.safetensors', {'alpha': ('F32', [4], numbers(0)), 'x.1': ('F32', [4], numbers(1)),
                                                  'y.1': ('F32', [4], numbers(2)), 'z_2': ('F32', [4], numbers(3))})
    view = ['--remap', r'^[xy]\.1$=>z', SUFFIX]
    assert keys(*view, path) == ['alpha', 'z', 'z_3', 'z_2']
    weightfs('convert', *view, path, tmp_path / target)
    held = {key: weightfs('cat', tmp_path / target, key).raw for key in keys(tmp_path / target)}
    assert held == {'alpha': numbers(0), 'z': numbers(1), 'z_3': numbers(2), 'z_2': numbers(3)}


def test_a_tensor_does_not_take_the_name_of_a_value(tmp_path):
    source, target = tmp_path / 'in.pth', tmp_path / 'out.pth'
    source.write_bytes(pth.checkpoint(pth.dictionary(epoch=pth.number(3), epoch_2=pth.number(4), x=pth.tensor(),
                                                     y=pth.tensor(pth.storage('1'))), r0=bytes(16), r1=bytes(16)))
    view = ['--remap', '^[xy]$=>epoch', SUFFIX]
    assert keys(*view, source) == ['epoch_3', 'epoch_4']
    weightfs('convert', *view, source, target, has_notices=True)
    assert {key: value for key, value in pth_read.load(target).items() if isinstance(value, int)} == {'epoch': 3, 'epoch_2': 4}
    assert keys(target) == ['epoch_3', 'epoch_4']


def test_a_value_does_not_take_the_name_of_a_tensor(tmp_path):
    """The values of a container are called after it; one of them would be called as a tensor is."""
    source = tmp_path / 'in.pth'
    source.write_bytes(pth.checkpoint(pth.dictionary(
        a=pth.dictionary(w=pth.tensor(), step=pth.number(7)), other=pth.tensor(pth.storage('1'))), r0=bytes(16), r1=bytes(16)))
    view = ['--remap', r'^a\.=>b.', '--remap', '^other$=>b.step']
    assert keys(*view, source) == ['b.w', 'b.step']
    assert json.loads(weightfs('config', *view, source, has_notices=True).stdout) == {'a.step': 7}


def test_tied_names_are_numbered_and_stay_tied(tmp_path):
    source, target = tmp_path / 'in.pth', tmp_path / 'out.pth'
    source.write_bytes(pth.checkpoint(pth.dictionary(alpha=pth.tensor(), beta=pth.tensor(), w_2=pth.tensor(pth.storage('1'))),
                                      r0=numbers(5), r1=numbers(6)))
    view = ['--remap', '^(alpha|beta)$=>w', SUFFIX]
    assert keys(*view, source) == ['w', 'w_3', 'w_2']
    weightfs('convert', *view, source, target, has_notices=True)
    assert {key: weightfs('cat', target, key).raw for key in keys(target)} == {
        'w': numbers(5), 'w_3': numbers(5), 'w_2': numbers(6)}
    with zipfile.ZipFile(target) as archive:
        assert len([name for name in archive.namelist() if '/data/' in name]) == 2


def test_parts_of_a_split_are_numbered(tmp_path):
    path = st.write(tmp_path / 'in.safetensors', {'a': ('F32', [4], numbers(0)), 'qkv': ('F32', [4], numbers(1)),
                                                  'r_2': ('F32', [4], numbers(2))})
    assert keys('--split', 'qkv=>r,r', SUFFIX, path) == ['a', 'r', 'r_3', 'r_2']


def test_an_error_names_both(tmp_path):
    path = st.write(tmp_path / 'in.safetensors', {'a.w': ('U8', [1], b'x'), 'b.w': ('U8', [1], b'y')})
    error = weightfs('ls', '--remap', '^a=>b', path, code=program.EXIT_RULES).error
    assert "'a.w' and 'b.w' would both be called 'b.w'" in error
