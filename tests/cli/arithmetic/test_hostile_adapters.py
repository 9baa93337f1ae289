# SPDX-License-Identifier: MIT
"""Adapters that nobody made in good faith: bounded, and one line."""
import json
import os

import pytest

from wfs_testlib import pth, st
from wfs_testlib.program import run_measured, weightfs

GOOD = {'peft_type': 'LORA', 'r': 4, 'lora_alpha': 8}


def write(folder, config, rank=4, n_modules=1, n_base=None):
    """An adapter of some modules; the files are holes."""
    adapter = folder / 'adapter'
    adapter.mkdir()
    (adapter / 'adapter_config.json').write_text(config if isinstance(config, str) else json.dumps(config))
    entries, offset = {}, 0
    for i in range(n_modules):
        for name, shape in (('lora_A', [rank, 8]), ('lora_B', [8, rank])):
            n_bytes = 32 * rank
            entries['base_model.model.m%d.%s.weight' % (i, name)] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [offset, offset + n_bytes]}
            offset += n_bytes
    header = json.dumps(entries).encode()
    with open(adapter / 'adapter_model.safetensors', 'wb') as file:
        file.write(len(header).to_bytes(8, 'little') + header)
        os.truncate(file.fileno(), 8 + len(header) + offset)
    base = st.write(folder / 'base.safetensors', {'m%d.weight' % i: ('F32', [8, 8], bytes(256)) for i in range(n_base or n_modules)})
    return adapter, base


@pytest.mark.parametrize('config,rank,text', [
    ('[' * 100000, 4, 'is not JSON'), ('{"peft_type": "LORA", "r": 4, "lora_alpha": 1e400}', 4, 'is not JSON'),
    ({**GOOD, 'rank_pattern': {'(': 4}}, 4, "'rank_pattern': "), ({**GOOD, 'rank_pattern': {'m': 'x'}}, 4, 'is not a number'),
    ({**GOOD, 'rank_pattern': {'z%d' % i: 4 for i in range(5000)}}, 4, 'has more than 4096 patterns'),
    ({**GOOD, 'target_parameters': ['e.p%d' % i for i in range(5000)]}, 4, 'has more than 256 names'),
    ({**GOOD, 'rank_pattern': [1]}, 4, 'is not an object'), ({**GOOD, 'r': -4}, 4, 'cannot be'), ({**GOOD, 'r': 1 << 28}, 1 << 28, 'factors take more than'),
    ({**GOOD, 'use_dora': True, 'arrow_config': {'x': 1}}, 4, "'arrow_config' cannot be merged"), ({'peft_type': 7}, 4, 'has neither peft_type nor')])
def test_one_line_for_what_cannot_be(folder, config, rank, text):
    adapter, base = write(folder, config, rank)
    done = weightfs('ls', '--lora=%s' % adapter, base, code=None)
    assert done.code in (5, 6, 7) and text in done.error


@pytest.mark.parametrize('config, text', [
    ('{"peft_type": "LORA", "r": 4, "lora_alpha": NaN}', 'is not JSON (which has no Infinity and NaN)'),
    ({**GOOD, 'r': 1 << 31}, 'its rank is 4, in the configuration it is 2.14748e+09'),
    ({**GOOD, 'rank_pattern': {'(m|mm|mmm)+(m|mm)+$x|(a|a?)+$': 4}}, None)], ids=['NaN', 'rank', 'regex'])
def test_numbers_and_patterns_out_of_hand(folder, config, text):
    adapter, base = write(folder, config)
    done = weightfs('ls', '--lora=%s' % adapter, base, code=None, has_notices=True)
    assert done.code == 0 if text is None else text in done.error


def test_a_pattern_that_explodes_ends(folder):
    name = 'm' * 3000
    adapter = folder / 'adapter'
    adapter.mkdir()
    (adapter / 'adapter_config.json').write_text(json.dumps({**GOOD, 'rank_pattern': {'(m+m*)+(m+)+[xy]': 4}}))
    st.write(adapter / 'adapter_model.safetensors', {'base_model.model.%s.lora_%s.weight' % (name, half): ('F32', shape, bytes(128))
                                                     for half, shape in (('A', [4, 8]), ('B', [8, 4]))})
    base = st.write(folder / 'base.safetensors', {name + '.weight': ('F32', [8, 8], bytes(256))})
    assert 'the regex' in weightfs('ls', '--lora=%s' % adapter, base, code=None).error


@pytest.mark.parametrize('shapes', [([1 << 62, 8], [8, 4]), ([4, 1 << 63], [8, 4]), ([1 << 32, 1 << 32], [1 << 32, 1 << 32])])
def test_shapes_that_overflow(folder, shapes):
    adapter, base = write(folder, GOOD)
    entries = {'base_model.model.m0.lora_%s.weight' % half: {'dtype': 'F32', 'shape': shape, 'data_offsets': [0, 0]} for half, shape in zip('AB', shapes)}
    header = json.dumps(entries).encode()
    (adapter / 'adapter_model.safetensors').write_bytes(len(header).to_bytes(8, 'little') + header)
    assert 'lora_A.weight' in weightfs('ls', '--lora=%s' % adapter, base, code=5).error


@pytest.mark.parametrize('leaf, bits, text', [
    ('alpha', 0x7fc00000, "alpha nan and rank 4 of 'm0' cannot be"), ('alpha', 0x7f800000, "alpha inf and rank 4 of 'm0' cannot be"),
    ('scalar', 0x7fc00000, "'m0' has a scale of nan"), ('scalar', 0xff800000, "'m0' has a scale of -inf")])
def test_a_scale_in_the_file_that_is_no_number(folder, leaf, bits, text):
    path = st.write(folder / 'kohya.safetensors', {'lora_unet_m0.lora_down.weight': ('F32', [4, 8], bytes(128)), 'lora_unet_m0.lora_up.weight': ('F32', [8, 4], bytes(128)),
                                                   'lora_unet_m0.' + leaf: ('F32', [], bits.to_bytes(4, 'little'))})
    base = st.write(folder / 'base.safetensors', {'m0.weight': ('F32', [8, 8], bytes(256))})
    assert text in weightfs('ls', '--lora=%s' % path, base, code=7).error


@pytest.mark.parametrize('key', ['m0.weight', 'm0.base_layer.weight', 'm0.bias'])
def test_a_whole_tensor_of_another_kind(folder, key):
    adapter, _ = write(folder, GOOD)
    base = st.write(folder / 'base.safetensors', {'m0.weight': ('I64', [2, 4], bytes(64)), 'm0.bias': ('F32', [8], bytes(32))})
    shape, n_bytes = ([8], 64) if 'bias' in key else ([2, 4], 64)
    st.write(adapter / 'adapter_model.safetensors', {'base_model.model.' + key: ('C64' if 'weight' in key else 'I64', shape, bytes(n_bytes))})
    error = weightfs('ls', '--lora=%s' % adapter, base, code=7).error
    assert "is C64, and 'm0.weight' of the base I64" in error or "is I64, and 'm0.bias' of the base F32" in error


@pytest.mark.slow
def test_a_million_keys_are_one_line(folder):
    adapter, base = write(folder, GOOD, n_modules=500000, n_base=1)
    code, peak = run_measured('ls', '--lora=%s' % adapter, base)
    assert code == 6 and peak < 400 << 20  # more than the limit of a header
    error = weightfs('ls', '--limit=header=200000000', '--lora=%s' % adapter, base, code=7).error
    assert "the base has no 'm1.weight', which it has factors for; it has 1 other" in error


def test_a_pickled_adapter_runs_nothing(folder):
    adapter, base = write(folder, GOOD)
    (adapter / 'adapter_model.safetensors').unlink()
    run = pth.call(pth.name('os', 'system'), pth.text('touch %s' % (folder / 'ran')))
    (adapter / 'adapter_model.bin').write_bytes(pth.checkpoint(pth.dictionary(x=run), r0=bytes(16)))
    assert "'adapter_model.bin' has no tensors" in weightfs('ls', '--lora=%s' % adapter, base, code=3).error
    assert not (folder / 'ran').exists()


def test_many_modules_take_bounded_memory(folder):
    adapter, base = write(folder, GOOD, n_modules=20000)
    code, peak = run_measured('ls', '--lora=%s' % adapter, base)
    assert code == 0 and peak < 400 << 20


def test_factors_for_many_wrappers_of_many_experts_end_soon(folder):
    names = ['m.mlp.experts' + '.base_layer' * i for i in range(300)]
    adapter = folder / 'adapter'
    adapter.mkdir()
    (adapter / 'adapter_config.json').write_text(json.dumps({**GOOD, 'target_parameters': ['mlp.experts.down_proj']}))
    st.write(adapter / 'adapter_model.safetensors', {'base_model.model.%s.lora_%s.weight' % (name, half): ('F32', [1, 1], bytes(4))
                                                     for name in names for half in 'AB'})
    base = st.write(folder / 'base.safetensors', {'m.mlp.experts.%d.down_proj.weight' % i: ('F32', [1, 1], bytes(4)) for i in range(20000)})
    assert 'base_layer' in weightfs('ls', '--lora=%s' % adapter, base, code=7).error
