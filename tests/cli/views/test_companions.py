# SPDX-License-Identifier: MIT
"""Codes whose scales are tensors of their own: no verb applies scales, so what would change the meaning is refused or said."""
import json
import os

import pytest

from wfs_testlib import st
from wfs_testlib.program import EXIT_FOUND, EXIT_RULES, weightfs

# Key, dtype and shape of the codes, of their scales, and of what else comes with them.
FORMS = {
    'deepseek': [('x.weight', 'F8_E4M3', [4, 4]), ('x.weight_scale_inv', 'F32', [1, 1])],
    'ue8m0': [('x.weight', 'F8_E4M3', [4, 4]), ('x.weight_scale_inv', 'F8_E8M0', [1, 1])],
    'compressed-tensors': [('x.weight', 'F8_E4M3', [4, 4]), ('x.weight_scale', 'BF16', [4, 1]), ('x.input_scale', 'F32', [1])],
    'comfy': [('x.weight', 'F8_E4M3', [4, 4]), ('x.scale_weight', 'F32', []), ('x.scale_input', 'F32', [])],
    'int8': [('x.weight', 'I8', [4, 4]), ('x.weight_scale', 'F32', [4, 1]), ('x.weight_zero_point', 'I8', [4, 1])],
    'packed': [('x.weight_packed', 'I32', [4, 4]), ('x.weight_scale', 'F16', [4, 1])],
    'nvfp4': [('x.weight_packed', 'U8', [4, 4]), ('x.weight_scale', 'F8_E4M3', [4, 1]), ('x.weight_global_scale', 'F32', [1])],
    'modelopt': [('x.weight', 'U8', [4, 4]), ('x.weight_scale', 'F8_E4M3', [4, 1]), ('x.weight_scale_2', 'F32', [])],
    'gpt-oss': [('x_blocks', 'U8', [4, 4]), ('x_scales', 'U8', [4, 1])],
    'gptq': [('x.qweight', 'I32', [4, 4]), ('x.scales', 'F16', [1, 4]), ('x.qzeros', 'I32', [1, 4])],
    'bitsandbytes': [('x.weight', 'U8', [4, 4]), ('x.weight.absmax', 'F32', [1]), ('x.weight.quant_map', 'F32', [16])],
    'nested': [('x.weight', 'U8', [4, 4]), ('x.weight.absmax', 'U8', [1]), ('x.weight.nested_absmax', 'F32', [1])],
    'int8 of bitsandbytes': [('x.weight', 'I8', [4, 4]), ('x.SCB', 'F32', [4])],
    'experts': [('x.gate_up_proj', 'F8_E4M3', [4, 4]), ('x.gate_up_proj_scale_inv', 'F32', [1, 1])],
}
N_BYTES = {'F32': 4, 'I32': 4, 'F16': 2, 'BF16': 2}


def written(path, form, extra=()):
    tensors = {}
    for key, dtype, shape in FORMS[form] + [('norm.weight', 'F32', [4])] + list(extra):
        n = N_BYTES.get(dtype, 1)
        for dim in shape:
            n *= dim
        tensors[key] = (dtype, shape, bytes(range(16)) * (n // 16) + bytes(range(n % 16)))
    return st.write(path, tensors)


def dtypes(*args, **named):
    out = weightfs('ls', '--json', *args, **named)
    return {row['key']: row['dtype'] for row in json.loads(out.stdout)['tensors']}


@pytest.mark.parametrize('form', FORMS)
def test_a_cast_of_all_floats_leaves_codes_and_scales_and_says_so(tmp_path, form):
    path = written(tmp_path / 'in.safetensors', form)
    got = dtypes('--cast', 'BF16', path, has_notices=True)
    assert got == {**{key: dtype for key, dtype, _ in FORMS[form]}, 'norm.weight': 'BF16'}
    said = weightfs('convert', '--cast', 'BF16', path, tmp_path / 'out.safetensors', has_notices=True).error
    assert 'a cast does not apply scales' in said
    assert 'a cast does not apply scales' in weightfs('convert', '--strict', '--cast', 'BF16', path, tmp_path / 'no.safetensors', code=EXIT_RULES).error
    assert not (tmp_path / 'no.safetensors').exists()


@pytest.mark.parametrize('form', FORMS)
def test_a_cast_of_codes_is_refused_with_the_name_of_the_scales(tmp_path, form):
    path = written(tmp_path / 'in.safetensors', form)
    (codes, _, _), (scales, _, _) = FORMS[form][:2]
    for verb in (['ls', path], ['plan', path], ['extract', path, '-d', tmp_path / 'out'], ['convert', path, tmp_path / 'out.safetensors']):
        error = weightfs(*verb, '--cast', '^%s$:F64' % codes.replace('.', r'\.'), code=EXIT_RULES).error
        assert "cannot cast '%s'" % codes in error and "its scales are in '%s'" % scales in error
    assert sorted(os.listdir(tmp_path)) == ['in.safetensors']
    got = dtypes('--cast', '.:F64', '--keep', '^x', path)
    assert got == {**{key: dtype for key, dtype, _ in FORMS[form]}, 'norm.weight': 'F64'}


def test_codes_without_scales_beside_them_can_be_cast(tmp_path):
    path = written(tmp_path / 'in.safetensors', 'deepseek', [('y.weight', 'F8_E4M3', [4, 4])])
    assert dtypes('--cast', '^y:F32', path)['y.weight'] == 'F32'
    error = weightfs('ls', '--cast', 'BF16', path, has_notices=True).stderr
    assert 'y.weight: stays as it is: a cast without a REGEX is for F64, F32, F16 and BF16' in error
    error = weightfs('ls', '--exclude', 'scale', '--cast', '^x:F32', path, has_notices=True).error
    assert 'x.weight: has lost its scales' in error


@pytest.mark.parametrize('options, text', [
    (['--cast', 'scale_inv$:F16'], 'x.weight_scale_inv: is cast'),
    (['--transpose', r'x\.weight$'], 'x.weight: is codes whose scales'),
    (['--permute', r'x\.weight$:1,0'], 'x.weight: is codes whose scales'),
    (['--rename', 'x.weight', 'y.weight'], 'y.weight: has lost its scales'),
    (['--split', r'x\.weight$:q.weight,k.weight'], 'q.weight: has lost its scales (and 1 more)'),
])
def test_what_parts_codes_from_their_scales_is_said(tmp_path, options, text):
    path = written(tmp_path / 'in.safetensors', 'deepseek')
    assert text in weightfs('ls', *options, path, has_notices=True).error


@pytest.mark.parametrize('options', [['--rename', 'x', 'y'], ['--transpose', '^x'], ['--exclude', 'scale'], ['--remap', 's/^/model./']])
def test_what_keeps_them_together_is_not(tmp_path, options):
    weightfs('ls', *options, written(tmp_path / 'in.safetensors', 'deepseek'))


def test_statistics_and_comparisons_name_the_scales(tmp_path):
    one = written(tmp_path / 'a.safetensors', 'deepseek')
    other = st.write(tmp_path / 'b.safetensors', {'x.weight': ('F32', [4, 4], bytes(64))})
    assert 'scales:   x.weight_scale_inv (not applied' in weightfs('show', one, 'x.weight').stdout
    assert 'scales:' not in weightfs('show', one, 'norm.weight').stdout
    assert json.loads(weightfs('show', '--json', one, 'x.weight').stdout)['tensors'][0]['scale'] == 'x.weight_scale_inv'
    for form in ((), ('--long',), ('--stat',), ('--json',)):
        error = weightfs('diff', *form, other, one, code=EXIT_FOUND, has_notices=True).error
        assert "x.weight: compared as stored: its scales, in 'x.weight_scale_inv', are not applied" in error
    weightfs('diff', one, one)
