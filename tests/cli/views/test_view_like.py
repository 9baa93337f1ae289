# SPDX-License-Identifier: MIT
"""`like` together with options that change single tensors: these see its keys, and what they make is what is compared. Parts of a
split fill its keys. Quantized tensors are floats."""
import itertools
import json
import struct

import pytest

from wfs_testlib import burnpack, mpk, st
from wfs_testlib.burnpack import Burnpack, Tensor
from wfs_testlib.mpk import f32
from wfs_testlib.program import EXIT_RULES, weightfs

SCHEME = {'QFloat': {'value': 'Q8S', 'store': 'Native', 'mode': 'Symmetric', 'tensor': 'F32', 'block': None}}
NUMBERS = f32(*range(8))


def floats(shape, data=NUMBERS):
    return 'F32', shape, data


@pytest.fixture
def fill(tmp_path):
    """fill(source, keys of like, options...) -> {key: (dtype, shape, bytes)} of what is written."""
    def run(source, like, *options, code=0):
        st.write(tmp_path / 'in.safetensors', source)
        st.write(tmp_path / 'like.safetensors', like)
        target = tmp_path / 'out.safetensors'
        done = weightfs('convert', '--overwrite', '--like', tmp_path / 'like.safetensors', *options, tmp_path / 'in.safetensors', target,
                        code=code)
        return st.read(target).tensors if code == 0 else done.error
    return run


def turned(data, n_rows):
    values = struct.unpack('<%df' % (len(data) // 4), data)
    n = len(values) // n_rows
    return f32(*itertools.chain.from_iterable(values[column::n] for column in range(n)))


# ---- one tensor, changed

@pytest.mark.parametrize('cast', ['^norm.gamma$:F32', 'F32'])
def test_a_cast_sees_the_key_of_like_and_makes_the_dtype_that_is_compared(fill, cast):
    source = {'norm.weight': ('F16', [2], struct.pack('<2e', 1, 2))}
    assert fill(source, {'norm.gamma': floats([2], bytes(8))}, '--cast', cast) == {'norm.gamma': ('F32', [2], f32(1, 2))}


@pytest.mark.parametrize('dtype, data', [('I64', struct.pack('<2q', 0, 1)), ('F32', f32(0, 1))])
def test_a_cast_makes_what_has_another_kind_fit(fill, dtype, data):
    source, like = {'mask': (dtype, [2], data)}, {'mask': ('BOOL', [2], bytes(2))}
    assert 'dtype mismatch' in fill(source, like, code=EXIT_RULES)
    assert fill(source, like, '--cast', 'mask:BOOL') == {'mask': ('BOOL', [2], bytes([0, 1]))}


def test_a_cast_can_make_what_does_not_fit(fill):
    assert 'expected F32, found I64' in fill({'w': floats([8])}, {'w': floats([8])}, '--cast', 'w:I64', code=EXIT_RULES)


@pytest.mark.parametrize('option', ['--transpose=^w$', '--permute=^w$:1,0'])
def test_what_a_rule_has_reordered_is_compared_and_not_turned_back(fill, option):
    like = {'w': floats([4, 2], bytes(32)), 'norm.gamma': floats([2], bytes(8))}
    source = {'v': floats([2, 4]), 'norm.weight': floats([2], bytes(8))}
    assert fill(source, like, '--rename', 'v', 'w', option)['w'] == floats([4, 2], turned(NUMBERS, 2))
    square = {'w': floats([2, 2], bytes(16)), 'norm.gamma': floats([2], bytes(8))}
    source = {'w': floats([2, 2], f32(1, 2, 3, 4)), 'norm.weight': floats([2], bytes(8))}
    assert fill(source, square, option, '--class=^w$:Linear')['w'] == floats([2, 2], f32(1, 3, 2, 4))


def test_dimensions_are_permuted_before_they_are_compared(fill):
    assert list(fill({'w': floats([2, 1, 4])}, {'w': floats([4, 2, 1], bytes(32))}, '--permute=^w$:2,0,1').values()) == [floats([4, 2, 1], turned(NUMBERS, 2))]


# ---- parts

def test_parts_of_a_split_fill_the_keys_of_like(fill):
    source = {'attn.qkv.weight': floats([4, 2]), 'attn.qkv.bias': floats([4], f32(1, 2, 3, 4)), 'attn.fc.weight': floats([4, 2])}
    like = {'attn.fc.weight': floats([4, 2]), 'attn.q.bias': floats([2], bytes(8)), 'attn.k.bias': floats([2], bytes(8)),
            'attn.k.weight': floats([2, 2], bytes(16)), 'attn.q.weight': floats([2, 2], bytes(16)), 'norm.gamma': floats([1], bytes(4))}
    parts = fill(source, like, '--partial', '--split', 'qkv:q,k')
    assert list(parts) == sorted(parts) and parts['attn.k.bias'] == floats([2], f32(3, 4))
    assert parts['attn.k.weight'] == floats([2, 2], f32(4, 6, 5, 7)) and parts['attn.q.weight'] == floats([2, 2], f32(0, 2, 1, 3))
    assert fill(source, like, '--partial', '--split', 'qkv:q,k', '--class', 'attn.[qk]$:Other')['attn.k.weight'] == floats([2, 2], f32(4, 5, 6, 7))


FUSED = {'rnn.weight_ih_l0': ('weight_(ih_l0):input_gate.$1.weight,forget_gate.$1.weight', ['rnn.input_gate.ih_l0.weight', 'rnn.forget_gate.ih_l0.weight']),
         'attn.in_proj_weight': ('in_proj_weight:query.weight,key.weight', ['attn.query.weight', 'attn.key.weight'])}


@pytest.mark.parametrize('key', FUSED)
@pytest.mark.parametrize('suffix', ['.bpk', '.mpk'])
def test_square_parts_of_a_fused_matrix_are_those_of_a_linear(tmp_path, key, suffix):
    rule, names = FUSED[key]
    st.write(tmp_path / 'in.safetensors', {key: floats([4, 2]), 'head.weight': floats([1, 2], f32(1, 2)), 'head.bias': floats([1], f32(1))})
    burnpack.write(tmp_path / 'like.bpk', Burnpack({name: Tensor('F32', [2, 2], bytes(16)) for name in names}))
    weightfs('convert', tmp_path / 'like.bpk', tmp_path / 'like.mpk')
    options = ['--like', tmp_path / ('like' + suffix), '--partial', '--split', rule, tmp_path / 'in.safetensors']
    for name, wanted in zip(names, (f32(0, 2, 1, 3), f32(4, 6, 5, 7))):
        assert weightfs('cat', *options, name).raw == wanted
    assert json.loads(weightfs('plan', '--json', *options).stdout)['adapted']['likely']
    assert 'strict' in weightfs('ls', '--strict', *options, code=EXIT_RULES).error
    told = ['--strict', '--class', r'(gate\.ih_l0|query|key)$:Linear', *options]
    assert weightfs('cat', *told, names[1]).raw == f32(4, 6, 5, 7)


def test_a_matrix_that_was_renamed_to_a_weight_is_one_of_a_linear(tmp_path):
    st.write(tmp_path / 'in.safetensors', {'rnn.weight_hh_l0': floats([2, 2], f32(1, 2, 3, 4))})
    (tmp_path / 'like.mpk').write_bytes(mpk.pack(mpk.record({'rnn': {'gate': {'weight': mpk.tensor(bytes(16), [2, 2])}}})))
    options = ['--rename', 'rnn.weight_hh_l0', 'rnn.gate.weight', '--like', tmp_path / 'like.mpk', tmp_path / 'in.safetensors']
    assert weightfs('cat', *options, 'rnn.gate.weight').raw == f32(1, 3, 2, 4)
    assert weightfs('cat', '--to=none', *options, 'rnn.gate.weight').raw == f32(1, 2, 3, 4)
    assert weightfs('cat', '--from=burn', *options, 'rnn.gate.weight').raw == f32(1, 2, 3, 4)


# ---- quantized

@pytest.mark.parametrize('is_quantized', [True, False])
def test_a_quantized_tensor_and_floats_fill_each_other(tmp_path, is_quantized):
    packs = {True: Tensor(SCHEME, [4, 2], bytes(range(12))), False: Tensor('F32', [4, 2], NUMBERS)}
    for name, tensor in (('in', packs[is_quantized]), ('like', packs[not is_quantized])):
        burnpack.write(tmp_path / (name + '.bpk'), Burnpack({'fc.weight': tensor, 'fc.bias': Tensor('F32', [2], bytes(8))}))
    weightfs('convert', '--like', tmp_path / 'like.bpk', tmp_path / 'in.bpk', tmp_path / 'out.bpk')
    found = burnpack.read(tmp_path / 'out.bpk').tensors['fc.weight']
    assert (found.name, found.data) == (('OPAQUE', bytes(range(12))) if is_quantized else ('F32', NUMBERS))


def test_long_keys_get_fewer_suggestions(folder):
    """Each costs the product of the lengths of two keys, for all pairs: 200 of these would take a minute."""
    paths = [st.write(folder / (name + '.safetensors'), {'%s%s%d' % (name, 'p' * 600, i): ('U8', [1], b'x') for i in range(5000)}) for name in 'ab']
    missing = json.loads(weightfs('plan', '--json', '--like=%s' % paths[1], paths[0], code=EXIT_RULES).stdout)['missing']
    assert len(missing) == 5000 and sum(one['suggestion'] is not None for one in missing) == 4
