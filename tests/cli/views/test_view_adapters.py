# SPDX-License-Identifier: MIT
"""The adapters of Burn, type by type and parameter by parameter, where the type of a module is said. `Struct:` is what Burn calls
it and does; without that, two types get the names that their modules look for."""
import json

import pytest

from wfs_testlib import burnpack, mpk, st
from wfs_testlib.burnpack import Burnpack, Tensor
from wfs_testlib.mpk import f32
from wfs_testlib.program import EXIT_RULES, weightfs

NORMS = ['BatchNorm', 'LayerNorm', 'GroupNorm', 'RmsNorm']
ALIKE = ['Embedding', 'Conv1d', 'Conv2d', 'ConvTranspose1d', 'PRelu', 'InstanceNorm']
# type, direction, parameter and shape in the source, parameter and shape in the tree
ROWS = [('Linear', 'burn', 'weight', [2, 3], 'weight', [3, 2]), ('Linear', 'torch', 'weight', [2, 3], 'weight', [3, 2]),
        ('Linear', 'burn', 'weight', [2, 3, 1], 'weight', [2, 3, 1]), ('Linear', 'burn', 'weight', [6], 'weight', [6]),
        ('Linear', 'burn', 'bias', [2], 'bias', [2]), ('Linear', 'torch', 'bias', [2], 'bias', [2]),
        ('BatchNorm', 'burn', 'running_mean', [4], 'running_mean', [4]), ('BatchNorm', 'torch', 'running_var', [4], 'running_var', [4]),
        ('InstanceNorm', 'torch', 'gamma', [4], 'gamma', [4]), ('PRelu', 'torch', 'alpha', [4], 'alpha', [4])]
ROWS += [(name, 'burn', old, shape, new, shape) for name in NORMS for old, new in (('weight', 'gamma'), ('bias', 'beta'))
         for shape in ([4], [1, 4])]
ROWS += [(name, 'torch', old, [4], new, [4]) for name in NORMS for old, new in (('gamma', 'weight'), ('beta', 'bias'))]
ROWS = [('Struct:' + row[0], *row[1:]) for row in ROWS]
ROWS += [('Struct:' + name, direction, 'weight', shape, 'weight', shape) for name in ALIKE for direction in ('burn', 'torch')
         for shape in ([4], [5, 4], [2, 3, 4])]
ROWS += [('InstanceNorm', 'burn', 'weight', [4], 'gamma', [4]), ('InstanceNorm', 'torch', 'beta', [4], 'bias', [4]),
         ('PRelu', 'burn', 'weight', [4], 'alpha', [4]), ('PRelu', 'torch', 'alpha', [4], 'weight', [4]),
         ('Linear', 'burn', 'weight', [2, 3], 'weight', [3, 2]), ('Embedding', 'burn', 'weight', [2, 3], 'weight', [2, 3])]


@pytest.mark.parametrize('kind, direction, leaf, shape, new_leaf, new_shape', ROWS)
def test_each_row(tmp_path, kind, direction, leaf, shape, new_leaf, new_shape):
    count = 1
    for dim in shape:
        count *= dim
    data = bytes(range(4 * count))
    path = st.write(tmp_path / 'in.safetensors', {'model.part.' + leaf: ('F32', shape, data)})
    options = ['--class', r'^model\.part$=>' + kind, '--to', direction]
    tensor, = json.loads(weightfs('ls', '--json', *options, path).stdout)['tensors']
    assert (tensor['key'], tensor['shape']) == ('model.part.' + new_leaf, new_shape)
    if shape == new_shape:
        assert weightfs('cat', *options, path, tensor['key']).raw == data


# ---- whose conventions a file of Burn's has

BATCH_NORM = {'down.1.' + leaf: ([4], bytes(16)) for leaf in ('weight', 'bias', 'running_mean', 'running_var')}
LINEAR = {'fc.weight': ([2, 3], f32(1, 2, 3, 4, 5, 6))}
TURNED = f32(1, 4, 2, 5, 3, 6)


def write_burn(path, tensors):
    """A file of either format of Burn's."""
    if path.suffix == '.bpk':
        burnpack.write(path, Burnpack({key: Tensor('F32', shape, data) for key, (shape, data) in tensors.items()}))
        return path
    item = {}
    for key, (shape, data) in tensors.items():
        *parents, leaf = key.split('.')
        at = item
        for parent in parents:
            at = at.setdefault(parent, {})
        at[leaf] = mpk.tensor(data, shape)
    path.write_bytes(mpk.pack(mpk.record(item)))
    return path


def shown(path, *options):
    return {t['key']: (t['shape'], weightfs('cat', *options, path, t['key']).raw)
            for t in json.loads(weightfs('ls', '--json', *options, path).stdout)['tensors']}


@pytest.mark.parametrize('suffix', ['.bpk', '.mpk'])
@pytest.mark.parametrize('norm', [BATCH_NORM, {'norm.weight': ([3], bytes(12))}, {'1.weight': ([3], bytes(12)), '1.bias': ([3], bytes(12))}],
                         ids=['running statistics', 'norm word', 'two vectors'])
def test_norms_with_names_of_pytorch_decide_on_all(tmp_path, suffix, norm):
    path = write_burn(tmp_path / ('in' + suffix), {**norm, **LINEAR})
    assert shown(path, '--to=torch') == shown(path)
    found = shown(path, '--to=burn')
    names = {key.replace('weight', 'gamma').replace('bias', 'beta') for key in norm}
    assert set(found) == names | set(LINEAR) and found['fc.weight'] == ([3, 2], TURNED)


@pytest.mark.parametrize('suffix', ['.bpk', '.mpk'])
def test_without_evidence_a_file_of_burn_is_a_guess_until_it_is_stated(tmp_path, suffix):
    path = write_burn(tmp_path / ('in' + suffix), LINEAR)
    assert shown(path, '--to=burn') == shown(path) and shown(path, '--to=torch')['fc.weight'] == ([3, 2], TURNED)
    assert 'a guess' in weightfs('ls', '--strict', '--to=torch', path, code=EXIT_RULES).error
    for whose in ('burn', 'torch'):
        assert shown(path, '--strict', '--from', whose, '--to', whose) == shown(path)
        other = {'burn': 'torch', 'torch': 'burn'}[whose]
        assert shown(path, '--strict', '--from', whose, '--to', other)['fc.weight'] == ([3, 2], TURNED)


def test_from_is_for_any_source_and_for_like(tmp_path):
    source = st.write(tmp_path / 'in.safetensors', {'fc.weight': ('F32', [2, 2], f32(1, 2, 3, 4))})
    like = write_burn(tmp_path / 'like.bpk', {'fc.weight': ([2, 2], bytes(16)), 'norm.gamma': ([2], bytes(8))})
    assert shown(source, '--to=burn', '--from=burn') == shown(source)
    assert shown(source, '--partial', '--like', like)['fc.weight'][1] == f32(1, 3, 2, 4)
    assert shown(source, '--partial', '--like', like, '--from=burn')['fc.weight'][1] == f32(1, 2, 3, 4)


def test_a_file_of_burn_with_names_of_pytorch_asks_for_these_as_like(tmp_path):
    source = write_burn(tmp_path / 'in.bpk', {'fc.weight': ([2, 2], f32(1, 2, 3, 4)), 'norm.gamma': ([2], bytes(8))})
    like = write_burn(tmp_path / 'like.bpk', {'fc.weight': ([2, 2], bytes(16)), 'norm.weight': ([2], bytes(8))})
    assert shown(source, '--like', like) == {'fc.weight': ([2, 2], f32(1, 3, 2, 4)), 'norm.weight': ([2], bytes(8))}


# ---- what PyTorch has in one tensor

PARTS = {'Lstm': ['cell_gate.hidden_transform.weight'], 'Gru': ['reset_gate.hidden_transform.weight'],
         'MultiHeadAttention': [part + '.weight' for part in ('query', 'key', 'value', 'output')]}


@pytest.mark.parametrize('kind', PARTS)
@pytest.mark.parametrize('prefixes', [('',), ('a.b.', 'c.')], ids=['root', 'two'])
@pytest.mark.parametrize('suffix', ['.bpk', '.mpk'])
def test_modules_that_stay_in_parts_are_named(tmp_path, kind, prefixes, suffix):
    keys = [prefix + part for prefix in prefixes for part in PARTS[kind]]
    tensors = {key: ([2, 2], bytes(16)) for key in keys}
    path = write_burn(tmp_path / ('in' + suffix), {**tensors, 'norm.gamma': ([2], bytes(8))})
    notice, = [n for n in json.loads(weightfs('plan', '--json', '--to=torch', path, has_notices=True).stdout)['notices']]
    assert notice['about'] == keys[0] and 'module %s of Burn' % kind in notice['text'] and ('1 more' in notice['text']) == (len(prefixes) == 2)
    assert json.loads(weightfs('plan', '--json', '--to=burn', path).stdout)['notices'] == []
    if len(keys) > len(prefixes):
        path = write_burn(tmp_path / ('in' + suffix), {**{key: tensors[key] for key in keys[:-1]}, 'norm.gamma': ([2], bytes(8))})
        assert len(json.loads(weightfs('plan', '--json', '--to=torch', path, has_notices=True).stdout)['notices']) == len(prefixes) - 1


@pytest.mark.parametrize('fused', ['weight_ih_l0', 'bias_hh_l1_reverse', 'in_proj_weight'])
def test_a_missing_tensor_that_burn_has_in_parts_is_explained(tmp_path, fused):
    source = write_burn(tmp_path / 'in.bpk', {'rnn.gate.weight': ([4], bytes(16)), 'norm.gamma': ([2], bytes(8))})
    like = st.write(tmp_path / 'like.safetensors', {'rnn.' + fused: ('F32', [4], bytes(16)), 'norm.weight': ('F32', [2], bytes(8))})
    assert 'Burn has it in parts' in weightfs('ls', '--like', like, source, code=EXIT_RULES).error
