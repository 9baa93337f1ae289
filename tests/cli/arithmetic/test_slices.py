# SPDX-License-Identifier: MIT
"""Modules whose product is for several tensors: experts apart, joint projections of Flux; configurations in metadata. Beside numpy."""
import json

import numpy
import pytest

from wfs_testlib import merging, st
from wfs_testlib.program import weightfs

RANDOM = numpy.random.default_rng(1)


def tensors(values):
    return {key: ('F32', list(one.shape), one.astype('<f4').tobytes()) for key, one in values.items()}


def some(*shape):
    return RANDOM.standard_normal(shape).astype('<f4').astype('<f8')


def convert(folder, adapter, base, *options, code=0, **known):
    st.write(folder / 'base.safetensors', tensors(base))
    done = weightfs('convert', '--overwrite', '--lora=%s' % adapter, *options, folder / 'base.safetensors', folder / 'out.safetensors', code=code, **known)
    return done.error if code != 0 else {key: one for key, (_, one) in merging.arrays(folder / 'out.safetensors').items()}


def check(found, exact):
    for key, one in exact.items():
        assert merging.differences(found[key], one, 'F32', numpy.abs(one) + 50) == 0, key


@pytest.fixture
def experts(memory):
    """A folder of an adapter for 3 experts of rank 2, hidden size 6 and inner size 4, and what it adds to gate, up and down of each."""
    folder = memory / 'adapter'
    folder.mkdir()
    factors = {'base_layer.lora_A': some(6, 6), 'base_layer.lora_B': some(8, 6), 'lora_A': some(6, 4), 'lora_B': some(6, 6)}
    st.write(folder / 'adapter_model.safetensors',
             tensors({'base_model.model.l.0.mlp.experts.%s.weight' % name: one for name, one in factors.items()}))
    (folder / 'adapter_config.json').write_text(json.dumps({'peft_type': 'LORA', 'r': 2, 'lora_alpha': 3, 'target_parameters': [
        'mlp.experts.gate_up_proj', 'mlp.experts.down_proj']}))

    def product(name, i):
        a, b = factors[name + 'lora_A'].reshape(3, 2, -1), factors[name + 'lora_B'].reshape(-1, 2, 3)
        return 1.5 * b[:, :, i] @ a[i]

    return folder, [(product('base_layer.', i)[:4], product('base_layer.', i)[4:], product('', i)) for i in range(3)]


@pytest.mark.parametrize('front, names', [('l.0.block_sparse_moe.experts', ('w1', 'w3', 'w2')), ('l.0.mlp.experts', ('gate_proj', 'up_proj', 'down_proj')),
                                          ('model.l.0.mlp.experts', ('gate_proj', 'up_proj', 'down_proj'))])
def test_experts_of_which_the_base_has_a_tensor_each(memory, experts, front, names):
    folder, added = experts
    base = {'%s.%d.%s.weight' % (front, i, name): some(*added[i][k].shape) for i in range(3) for k, name in enumerate(names)}
    found = convert(memory, folder, base, has_notices=True)
    check(found, {key: one + added[int(key.split('.')[-3])][names.index(key.split('.')[-2])] for key, one in base.items()})
    # The one of another size is named.
    base['%s.2.%s.weight' % (front, names[1])] = some(5, 6)
    assert "'%s.2.%s.weight' [5, 6]" % (front, names[1]) in convert(memory, folder, base, code=7)
    del base['%s.2.%s.weight' % (front, names[1])]
    assert "is for '%s.2.%s.weight', which the base does not have" % (front, names[1]) in convert(memory, folder, base, code=7)


def test_flux_of_kohya_on_names_of_diffusers(memory):
    base = {'transformer_blocks.7.attn.%s.weight' % name: some(4, 5) for name in ('to_q', 'to_k', 'to_v')}
    single = {'single_transformer_blocks.0.attn.%s.weight' % name: some(4, 5) for name in ('to_q', 'to_k', 'to_v')}
    single['single_transformer_blocks.0.proj_mlp.weight'] = some(16, 5)
    down, up = [some(3, 5), some(3, 5)], [some(12, 3), some(28, 3)]
    names = ('lora_unet_double_blocks_7_img_attn_qkv', 'lora_unet_single_blocks_0_linear1')
    factors = {}
    for name, a, b in zip(names, down, up):
        factors |= {name + '.lora_down.weight': a, name + '.lora_up.weight': b, name + '.alpha': numpy.array(1.5)}
    adapter = st.write(memory / 'flux.safetensors', tensors(factors))
    whole = [0.5 * b @ a for a, b in zip(down, up)]
    exact = {key: one + whole[0][4 * i:4 * i + 4] for i, (key, one) in enumerate(base.items())}
    exact |= {key: one + whole[1][4 * i:4 * i + len(one)] for i, (key, one) in enumerate(single.items())}
    check(convert(memory, adapter, base | single), exact)
    # In the names of the original model they need nothing.
    original = {'double_blocks.7.img_attn.qkv.weight': some(12, 5), 'single_blocks.0.linear1.weight': some(28, 5)}
    check(convert(memory, adapter, original), {key: one + whole[i] for i, (key, one) in enumerate(original.items())})
    base['transformer_blocks.7.attn.to_v.weight'] = some(3, 5)
    assert 'it has rows for no tensor' in convert(memory, adapter, base | single, code=7)
    st.write(adapter, tensors(factors | {names[0] + '.dora_scale': some(12, 1)}))
    assert 'dora_scale' in convert(memory, adapter, exact, code=7)


def test_a_configuration_in_the_metadata_of_diffusers(memory):
    base = {'a.to_q.weight': some(4, 5), 'a.to_k.weight': some(4, 5)}
    factors = {name: (some(rank, 5), some(4, rank)) for name, rank in (('a.to_q', 2), ('a.to_k', 3))}
    adapter = memory / 'pytorch_lora_weights.safetensors'

    def write(**config):
        values = {'unet.%s.lora_%s.weight' % (name, 'AB'[i]): one for name, pair in factors.items() for i, one in enumerate(pair)}
        st.write(adapter, tensors(values), {'lora_adapter_metadata': json.dumps({'unet.' + key: value for key, value in config.items()})})

    write(r=2, lora_alpha=5, rank_pattern={'to_k': 3}, alpha_pattern={'to_k': 7}, peft_type='LORA')
    check(convert(memory, adapter, base), {key: one + (2.5, 7 / 3)['k.' in key] * factors[key[:-7]][1] @ factors[key[:-7]][0] for key, one in base.items()})
    write(r=2, lora_alpha=4, use_rslora=True, rank_pattern={'to_k': 3})
    check(convert(memory, adapter, base), {key: one + 4 / numpy.sqrt(2 + ('k.' in key)) * factors[key[:-7]][1] @ factors[key[:-7]][0]
                                           for key, one in base.items()})
    write(r=2, lora_alpha=4)
    assert 'its rank is 3, in the configuration it is 2' in convert(memory, adapter, base, code=7)
    write(r=2, lora_alpha=4, peft_type='BOFT')
    assert "lora_adapter_metadata: peft_type 'BOFT' cannot be merged" in convert(memory, adapter, base, code=None)
    st.write(adapter, tensors({'unet.a.to_q.lora_A.weight': some(2, 5), 'unet.a.to_q.lora_B.weight': some(4, 2)}), {'lora_adapter_metadata': '[{'})
    assert 'lora_adapter_metadata is not an object of JSON' in convert(memory, adapter, base, code=None)


def test_adalora_keeps_the_scale_of_ranks_that_were_pruned(memory):
    folder = memory / 'adapter'
    folder.mkdir()
    a, b, e, base = some(2, 5), some(4, 2), some(2, 1), {'m.q.weight': some(4, 5)}
    st.write(folder / 'adapter_model.safetensors', tensors({'base_model.model.m.q.lora_%s' % name: one for name, one in (('A', a), ('B', b), ('E', e))}))
    config = {'peft_type': 'ADALORA', 'r': 8, 'init_r': 5, 'lora_alpha': 3, 'rank_pattern': {'m.q.lora_E': [True, False, False, True, False]}}
    (folder / 'adapter_config.json').write_text(json.dumps(config))
    check(convert(memory, folder, base), {'m.q.weight': base['m.q.weight'] + 3 / (5 + 1e-5) * b @ (e * a)})
    config['rank_pattern']['m.q.lora_E'][1] = True
    (folder / 'adapter_config.json').write_text(json.dumps(config))
    assert 'rank_pattern has another rank' in convert(memory, folder, base, code=7)
