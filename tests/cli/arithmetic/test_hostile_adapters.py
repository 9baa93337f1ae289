# SPDX-License-Identifier: MIT
"""Adapters that nobody made in good faith: bounded, and one line."""
import json
import os

import pytest

from wfs_testlib import st
from wfs_testlib.program import run_measured, weightfs

GOOD = {'peft_type': 'LORA', 'r': 4, 'lora_alpha': 8}


def write(folder, config, rank=4, n_modules=1, huge=False):
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
    base = st.write(folder / 'base.safetensors', {'m%d.weight' % i: ('F32', [8, 8], bytes(256)) for i in range(n_modules)})
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
