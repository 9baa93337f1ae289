# SPDX-License-Identifier: MIT
"""Adapters and sums that do not fit: one line that names the file, the key, and what is wrong; and mistakes that libraries accept."""
import json

import pytest

from wfs_testlib import shared, st
from wfs_testlib.program import weightfs

FOLDER = shared.FOLDER / 'golden/arithmetic'
pytestmark = pytest.mark.skipif(not shared.IS_THERE, reason='the golden files are not here')

# What is said, as an error: code 7, or another one.
ERRORS = {
    'bias-without-bias': "v_proj.lora_B.bias' is for a bias, which 'layers.0.attn.v_proj' does not have",
    'diffusers-unknown-module': "the base has no 'down_blocks.7.attentions.0.proj_in.weight', which it has factors for; it has 5 others",
    'dora-without-magnitude': "'layers.0.attn.q_proj' has no magnitudes, which use_dora needs",
    'doubled-prefix': "none of its 6 modules is in the base; it names 'base_model.model.layers.0.attn.q_proj', the base 'c_attn.bias'; --lora-remap 's/^([^.]*\\.){2}//' makes them fit",
    'empty-adapter': 'has no tensors',
    'integer-adapter': "lora_A.weight' is I32, factors are floats",
    'kohya-alpha-only': "the base has no 'down_blocks_0_x.weight', which it has factors for",
    'kohya-no-up': 'has no second factor (lora_B or lora_up)',
    'kohya-rank-mismatch': "lora_up.weight' [8, 3] does not fit 'down_blocks.1.attentions.0.proj_in.weight' [8, 8, 1, 1]: the ranks of its two factors differ",
    'kohya-unknown-module': "the base has no 'down_blocks_9_attentions_0_proj_in.weight'",
    'kohya-wrong-shape': "lora_down.weight' [4, 9] does not fit 'down_blocks.1.attentions.0.proj_in.weight' [8, 8, 1, 1]",
    'magnitude-without-dora': "'layers.0.attn.q_proj' has magnitudes, but adapter_config.json has no use_dora",
    'missing-a': "'layers.0.attn.q_proj' has no first factor (lora_A or lora_down)",
    'missing-b': "'layers.0.attn.q_proj' has no second factor (lora_B or lora_up)",
    'no-alpha': 'adapter_config.json has no lora_alpha, for which each version of peft takes another: state lora_alpha=N',
    'no-config': 'has no adapter_config.json, which has its alpha: state lora_alpha=N',
    'no-prefix': "'layers.0.attn.q_proj.lora_A.weight' does not begin with 'base_model.model.'",
    'no-r': 'adapter_config.json has no r',
    'r-0': "alpha 6 and rank 0 of 'layers.0.attn.q_proj' cannot be",
    'rank-mismatch': "lora_B.weight' [8, 3] does not fit 'layers.0.attn.q_proj.weight' [8, 8]: the ranks of its two factors differ",
    'rank-of-config': "lora_A.weight' [4, 8] does not fit 'layers.0.attn.q_proj.weight' [8, 8]: its rank is 4, in the configuration it is 8",
    'unknown-module': "the base has no 'layers.0.attn.w_proj.weight', which it has factors for; it has 5 others",
    'wrong-in': "lora_A.weight' [4, 9] does not fit 'layers.0.attn.q_proj.weight' [8, 8]",
    'wrong-out': "lora_B.weight' [9, 4] does not fit 'layers.0.attn.q_proj.weight' [8, 8]",
    'no-type': 'adapter_config.json: it has neither peft_type nor fine_tune_type, by which its kind is known',
    'inf-alpha': 'adapter_config.json: line 23, column 23 is not JSON (which has no Infinity and NaN)',
    'unknown-type': "adapter_config.json: peft_type 'LORRA' cannot be merged here; LORA, ADALORA, LOHA, LOKR, IA3, OFT and VERA can",
}
# Accepted, with a notice.
NOTICES = {
    'half-target': '4 modules are not in target_modules, where peft would leave the factors out',
    'one-target-absent': "target_modules has 'nothing', and there are no factors for it",
    'target-absent': "target_modules has 'nothing', and there are no factors for it",
    'unknown-config-key': "'use_future' of adapter_config.json is not known, and ignored",
    'pattern-not-matching': "the pattern 'nothing' of adapter_config.json matches no module",
}
# Accepted as they are: what the file says is done.
FINE = ['adapter-name-kept', 'diffusers-no-prefix', 'fan-in-wrong', 'kohya-loha', 'missing-layer', 'nan', 'no-target-modules', 'overflow-f16']

# What mergekit refuses: options, and the error; None: it is done.
NORM, UP = 'model.norm.weight', 'model.layers.1.mlp.up_proj.weight'
SUMS = {
    'linear-same-1.1': (['weight=0.1', 'average=SAME:1.0'], None),  # twice the same: the mean is the same
    'linear-vocab': (['weight=0.3', 'average=VOCAB:0.9'], "average 'VOCAB': 'lm_head.weight' has another shape there: [18, 8], here [16, 8]; a conversion with slice can cut rows off first"),
    'slerp-three': (['slerp=OTHER:0.3', 'slerp=SAME:0.3'], None),  # one arc after the other
    'slerp-nobase': (None, 'missing TARGET; usage: weightfs convert SOURCE TARGET'),
    'slerp-not': (['slerp=OTHER'], "--slerp: 'OTHER' is not of the form FILE:T"),
    'linear-noweight': (['average=OTHER:0.9'], None),  # 1
    'linear-unknown-method': (['lienar=OTHER:0.9'], "unknown option '--lienar=OTHER:0.9'"),
    'linear-weight-text': (['weight=much', 'average=OTHER'], "--weight: 'much' is not a number"),
    'linear-missing-key': (['average=MISSING'], "average 'MISSING': '%s' is not in it; `partial` leaves it as it is" % UP),
    'task-missing-key': (['task=MISSING:0.7'], "task 'MISSING': '%s' is not in it; `partial` leaves it as it is" % UP),
    'linear-shape': (['average=SHORT'], "average 'SHORT': '%s' has another shape there: [11, 8], here [12, 8]" % UP),
    'linear-transposed': (['average=TURNED'], "average 'TURNED': '%s' has another shape there: [8, 12], here [12, 8]" % UP),
    'linear-ints': (['average=INTS'], "average 'INTS': '%s' is BF16 here and I64 there, and differs" % NORM),
}


def paths(name):
    folder = FOLDER / 'refused' / name
    base = 'unet-f32' if name.startswith(('kohya', 'diffusers')) else 'toy-f16' if name == 'overflow-f16' else 'toy-f32'
    files = [path for path in folder.glob('*.safetensors') if path.name != 'adapter_model.safetensors']
    return (files or [folder])[0], FOLDER / 'base' / (base + '.safetensors')


def merge(memory, name, *options, **expected):
    adapter, base = paths(name)
    return weightfs('convert', '--lora=%s' % adapter, *options, base, memory / 'out.safetensors', has_notices=True, **expected)


def test_all_are_here():
    assert {path.name for path in (FOLDER / 'refused').iterdir()} == {*ERRORS, *NOTICES, *FINE}
    said = {library: json.loads((FOLDER / ('refused-%s.json' % library)).read_text()) for library in ('peft', 'diffusers', 'mergekit')}
    assert {one['name'] for one in said['peft'] + said['diffusers']} == {*ERRORS, *NOTICES, *FINE}
    assert {one['name'] for one in said['mergekit']} == set(SUMS)
    assert sum(one.get('refuses', True) for all_of in said.values() for one in all_of) == 30 and sum(map(len, said.values())) == 53


@pytest.mark.parametrize('name', ERRORS)
def test_an_error_that_names_what_is_wrong(memory, name):
    done = merge(memory, name, code=None)
    assert done.code in (3, 5, 6, 7), done.stderr
    assert ERRORS[name] in done.error and str(paths(name)[0]) in done.error
    assert not (memory / 'out.safetensors').exists()


@pytest.mark.parametrize('name', NOTICES)
def test_a_notice_of_what_a_library_does_in_silence(memory, name):
    assert NOTICES[name] in merge(memory, name).stderr
    adapter, base = paths(name)
    assert NOTICES[name] in weightfs('convert', '--lora=%s' % adapter, '--strict', base, memory / 'other.safetensors', code=7).error


@pytest.mark.parametrize('name', FINE)
def test_what_is_right_is_done(memory, name):
    assert merge(memory, name).stderr == ''


def test_alpha_where_no_file_has_it(memory):
    merge(memory, 'no-config', '--lora-alpha=6')
    weightfs('convert', '--lora=%s' % (FOLDER / 'cases/lora-linear-f32'), FOLDER / 'base/toy-f32.safetensors', memory / 'other.safetensors')
    assert (memory / 'out.safetensors').read_bytes() == (memory / 'other.safetensors').read_bytes()


@pytest.mark.parametrize('name', ['nan', 'overflow-f16'])
def test_what_is_no_number_afterwards_is_counted(name):
    adapter, base = paths(name)
    counts = json.loads(weightfs('plan', '--json', '--values', '--lora=%s' % adapter, base).stdout)['computed'][0]
    assert (counts['nan'], counts['overflow']) == ((64, 0) if name == 'nan' else (0, 64))


@pytest.fixture
def models(memory):
    """Those of SUMS, by their names there."""
    tensors = st.read(FOLDER / 'base/llama-bf16-1.safetensors').tensors
    changed = {'MISSING': {UP: None}, 'SHORT': {UP: ('BF16', [11, 8], bytes(176))}, 'TURNED': {UP: ('BF16', [8, 12], bytes(192))},
               'INTS': {NORM: ('I64', [8], bytes(64))}}
    made = {name: st.write(memory / (name + '.safetensors'), {key: one for key, one in {**tensors, **change}.items() if one is not None})
            for name, change in changed.items()}
    return {**made, **{name: FOLDER / 'base' / (file + '.safetensors') for name, file in (('SAME', 'llama-bf16-1'), ('OTHER', 'llama-bf16-2'), ('VOCAB', 'llama-vocab18'))}}


@pytest.mark.parametrize('name', SUMS)
def test_sums_that_do_not_fit(memory, models, name):
    options, text = SUMS[name]
    options, out = ['--' + option for option in options or []], memory / 'out.safetensors'
    for word, path in models.items():
        options = [option.replace(word, str(path)) for option in options]
        text = text and text.replace(word, str(path))
    done = weightfs('convert', *options, *([models['SAME']] if SUMS[name][0] is not None else []), out, code=None)
    if text is None:
        assert done.code == 0 and (out.read_bytes() == models['SAME'].read_bytes()) == (name == 'linear-same-1.1')
    else:
        assert done.code in (2, 7) and text in done.error and not out.exists()
