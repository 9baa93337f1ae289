# SPDX-License-Identifier: MIT
"""What real libraries merged (golden/arithmetic), as commands of ours: a base and options for each case; and what becomes of those without."""
import json

from wfs_testlib import shared
from wfs_testlib.merging import arrays
from wfs_testlib.program import weightfs

FOLDER = shared.FOLDER / 'golden/arithmetic'
EXPECTED = json.loads((FOLDER / 'expected.json').read_text()) if shared.IS_THERE else {}

# The exact result has no number in it: mergekit writes infinity and NaN without a word.
NO_NUMBER = {
    'linear-nan-weight': "weight: 'nan' is not a number",
    'linear-weights-sum-0': "'lm_head.weight' has weights whose sum is 0",
}
# Computed once the files are what the message asks for.
AFTER_ADVICE = {
    'linear-vocab-truncated': "'lm_head.weight' has another shape there: [18, 8], here [16, 8]; a conversion with slice can cut rows off first",
    'linear-tied-and-untied': "'lm_head.weight' is in it, and the source has its embedding in its place: with the two files exchanged",
}
# Methods that are not computed.
OTHER_METHODS = {
    'boft': "peft_type 'BOFT' cannot be merged here", 'fourierft': "peft_type 'FOURIERFT' cannot be merged here",
    'hra': "peft_type 'HRA' cannot be merged here", 'vera-noprojection': 'they come from random numbers of torch and cannot be computed',
    'lycoris-diag-oft-f32': "'lycoris_block_0.oft_blocks' is not a name that an adapter of a known method has",
    'lycoris-glora-f32': "'lycoris_block_0.a1.weight' is not a name that an adapter of a known method has",
    **{'%s-%s' % (method, dtype): "unknown option '--merge-method=%s'" % option
       for method, option in (('ties', 'ties'), ('dare-linear', 'dare_linear')) for dtype in ('f32', 'f16', 'bf16')},
}
# diffusers ignores the file; what it says is done.
IGNORED = {'diffusers-attn-procs-f32'}
# The library drops a part, or counts a part twice: the exact values are what its documents say.
DEVIATING = {name for name, one in EXPECTED.items() if 'library_deviates' in one}
EXACT = sorted(set(EXPECTED) - set(NO_NUMBER) - set(OTHER_METHODS) - IGNORED)


def adapters(case, about):
    options = []
    for one in about['adapters'] if about.get('combination') in (None, 'sequence') else [{'path': 'mix', 'weight': 1.0}]:
        path = case / one['path'] if one['path'] else case
        options.append('--lora=%s:%r' % (path, one['weight']))
    return FOLDER / about['base'], options


def weights_of(model):
    """[(regex or None, weight)]"""
    weights = model['parameters']['weight']
    if not isinstance(weights, list):
        return [(None, weights)]
    if isinstance(weights[0], dict):
        return [(one.get('filter'), one['value']) for one in weights]
    steps = len(weights) - 1
    found = []
    for layer in range(2):
        at = layer * steps
        found.append((r'layers[.]%d[.]' % layer, weights[min(int(at), steps)]))
    return found + [(None, weights[0])]


def sums(config):
    models, options = config['models'], []
    if config['merge_method'] == 'linear':
        first, *rest = models
        if (config.get('parameters') or {}).get('normalize', True) is False:
            options = ['--weight=%r' % first['parameters']['weight']]
            return FOLDER / first['model'], options + ['--add=%s:%r' % (FOLDER / model['model'], model['parameters']['weight']) for model in rest]
        options += ['--weight=%s' % (repr(weight) if regex is None else '%s:%r' % (regex, weight)) for regex, weight in weights_of(first)]
        for model in rest:
            options += ['--average=%s' % ('%s:%r' % (FOLDER / model['model'], weight) if regex is None else '%s:%s:%r' % (regex, FOLDER / model['model'], weight))
                        for regex, weight in weights_of(model)]
        return FOLDER / first['model'], options
    if config['merge_method'] not in ('slerp', 'task_arithmetic'):
        return FOLDER / models[0]['model'], ['--merge-method=' + config['merge_method']]
    base = FOLDER / config['base_model']
    if config['merge_method'] == 'slerp':
        other = next(model['model'] for model in models if model['model'] != config['base_model'])
        return base, ['--slerp=%s:%r' % (FOLDER / other, config['parameters']['t'])]
    return base, ['--task=%s:%r' % (FOLDER / model['model'], model['parameters']['weight']) for model in models]


def averages(about):
    """torch.optim.swa_utils, without its rounding at each step: the mean, or what the decay leaves of each model."""
    first, *rest = about['models']
    decay, n = about['decay'], len(rest)
    weights = [1] * n if decay is None else [(1 - decay) * decay ** (n - 1 - i) for i in range(n)]
    options = ['--weight=%r' % (1 if decay is None else decay ** n)]
    return FOLDER / first, options + ['--average=%s:%r' % (FOLDER / model, weight) for model, weight in zip(rest, weights)]


def command(name):
    """(base, options), as the case has them."""
    case = FOLDER / 'cases' / name
    about = json.loads((case / 'case.json').read_text())
    if about['kind'] == 'swa':
        return averages(about)
    if about['kind'] != 'sum':
        return adapters(case, about)
    base, options = sums(about['config'])
    types = {dtype for dtype, _ in arrays(case / 'merged.safetensors').values()} - {dtype for dtype, _ in arrays(base).values()}
    return base, options + ['--cast=' + dtype for dtype in types]


def advised(name, folder):
    """(base, options), after what the message of AFTER_ADVICE says was done."""
    base, options = command(name)
    if name in AFTER_ADVICE:
        config = json.loads((FOLDER / 'cases' / name / 'case.json').read_text())['config']
        if 'slice' in AFTER_ADVICE[name]:
            other = config['models'][1]
            weightfs('convert', '--slice=(lm_head|embed_tokens):0:16', FOLDER / other['model'], folder / 'cut.safetensors')
            other['model'] = folder / 'cut.safetensors'
        else:
            config['models'].reverse()
        base, options = sums(config)
    return base, options


def merged(name, folder):
    """The base, the options, and the file that a conversion with them makes."""
    base, options = advised(name, folder)
    weightfs('convert', *options, base, folder / 'out.safetensors', has_notices=True)
    return base, options, folder / 'out.safetensors'


def exact(name):
    """{key: (dtype, array of doubles)}"""
    return arrays(FOLDER / 'cases' / name / 'exact.safetensors')
