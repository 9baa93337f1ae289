# SPDX-License-Identifier: MIT
"""Adapters and sums that the real libraries merged: every element is the exact value, rounded once.

The exact values are doubles that numpy computed with 64 bits of mantissa. An element may differ only where the exact value lies within
2^-50 of its terms of the middle between two neighbours: there two correct programs differ."""
import json

import numpy
import pytest

from wfs_testlib import shared
from wfs_testlib.merging import arrays, differences, rounded
from wfs_testlib.program import weightfs

FOLDER = shared.FOLDER / 'golden/arithmetic'
CASES = sorted(path.parent for path in FOLDER.glob('cases/*/exact.safetensors')) if shared.IS_THERE else []
# What mergekit accepts and this program refuses, and the reason that it names.
REFUSED = {
    'linear-nan-weight': "weight: 'nan' is not a number",
    'linear-weights-sum-0': "'lm_head.weight' has weights whose sum is 0",
    'linear-vocab-truncated': "'lm_head.weight' has another shape there: [18, 8], here [16, 8]; a conversion with slice can cut rows off first",
    'linear-tied-and-untied': "'lm_head.weight' is in it, and the source has its embedding in its place: with the two files exchanged",
}

pytestmark = pytest.mark.skipif(not shared.IS_THERE, reason='the golden files are not here')


def adapters(case, about):
    options = []
    for one in about['adapters'] if about.get('combination') in (None, 'sequence') else [{'path': 'mix', 'weight': 1.0}]:
        path = case / one['path'] if one['path'] else case
        options.append('--lora=%s:%r' % (path, one['weight']))
    return FOLDER / about['base'], options


def sum_rules(name, models, about):
    """The weights of one model as options."""
    weights = models['parameters']['weight']
    if not isinstance(weights, list):
        return [(None, weights)]
    if isinstance(weights[0], dict):
        return [(one.get('filter'), one['value']) for one in weights]
    steps = len(weights) - 1
    found = []
    for layer in range(2):
        at = layer * steps
        found.append((r'layers\.%d\.' % layer, weights[min(int(at), steps)]))
    return found + [(None, weights[0])]


def sums(about):
    config = about['config']
    models, options = config['models'], []
    if config['merge_method'] == 'linear':
        if (config.get('parameters') or {}).get('normalize', True) is False:
            first, *rest = models
            options = ['--weight=%r' % first['parameters']['weight']]
            return FOLDER / first['model'], options + ['--add=%s:%r' % (FOLDER / model['model'], model['parameters']['weight']) for model in rest]
        first, *rest = models
        options += ['--weight=%s' % (repr(weight) if regex is None else '%s:%r' % (regex, weight)) for regex, weight in sum_rules('weight', first, about)]
        for model in rest:
            options += ['--average=%s' % ('%s:%r' % (FOLDER / model['model'], weight) if regex is None else '%s:%s:%r' % (regex, FOLDER / model['model'], weight))
                        for regex, weight in sum_rules('average', model, about)]
        return FOLDER / first['model'], options
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


RULES = {'sum': lambda case, about: sums(about), 'swa': lambda case, about: averages(about)}


# One element is what is left of terms that cancel, which doubles have to 2^-52 of these.
CANCELLED = {'linear-vocab-truncated'}


@pytest.mark.parametrize('case', CASES, ids=lambda path: path.name)
def test_the_exact_value_rounded_once(memory, case):
    about = json.loads((case / 'case.json').read_text())
    base, options = RULES.get(about['kind'], adapters)(case, about)
    exact, merged, before = arrays(case / 'exact.safetensors'), arrays(case / 'merged.safetensors'), arrays(base)
    types = {dtype for dtype, _ in merged.values()} - {dtype for dtype, _ in before.values()}
    if about['kind'] == 'sum' and types:
        options.append('--cast=' + types.pop())
    out = memory / 'out.safetensors'
    done = weightfs('convert', *options, base, out, '--overwrite', has_notices=True, code=None)
    if case.name in REFUSED:
        assert done.code == 7 and REFUSED[case.name] in done.error
        if 'slice' in REFUSED[case.name]:
            models = about['config']['models']
            weightfs('convert', '--slice=(lm_head|embed_tokens):0:16', FOLDER / models[1]['model'], memory / 'cut.safetensors', '--overwrite')
            models[1]['model'] = memory / 'cut.safetensors'
        elif 'exchanged' not in REFUSED[case.name]:
            return
        else:
            about['config']['models'].reverse()
        base, options = sums(about)
        done = weightfs('convert', *options, base, out, '--overwrite')
        other = arrays(about['config']['models'][1]['model'] if 'slice' in REFUSED[case.name] else base)
        before = {key: (dtype, numpy.abs(values) + numpy.abs(other[key][1])) for key, (dtype, values) in arrays(base).items()}
    assert done.code == 0, done.stderr
    found = arrays(out)
    wrong = {key: differences(found[key][1], values, found[key][0], before.get(key, (0, 0 * values))[1] if before.get(key, (0, values))[1].shape == values.shape else 0)
             for key, (_, values) in exact.items() if key in found}
    if case.name in CANCELLED:
        (key,) = [key for key, n in wrong.items() if n > 0]
        (other,) = numpy.flatnonzero(found[key][1] != rounded(exact[key][1], found[key][0])[0])
        distance = numpy.abs(found[key][1] - exact[key][1]).flat[other]
        assert wrong.pop(key) == 1 and distance <= 2.0 ** -52 * before[key][1].flat[other]
    assert not any(wrong.values()), wrong
    assert set(exact) - set(found) <= {'lm_head.weight'}
    # What the adapter is not about stays as it was, bit for bit.
    untouched = set(before) - set(exact)
    for key in untouched:
        assert numpy.array_equal(found[key][1], before[key][1], equal_nan=True)
