# SPDX-License-Identifier: MIT
"""ApplyResult of Burn, row by row: the lists of `like=`, when it fails, suggestions, and the printed form.

Not here: `validate(false)`, which keeps what a module had before (a file has nothing to keep: an error is always one);
AdapterError, which Burn never makes; the containers beside a missing path (a file has none); a module that has changed in part
after a failure (nothing is written then)."""
import json
import math
import random

import pytest

from wfs_testlib import pth, st
from wfs_testlib.program import EXIT_RULES, weightfs

SIZES = {'F64': 8, 'F32': 4, 'F16': 2, 'BF16': 2, 'I64': 8, 'I32': 4, 'U32': 4, 'U8': 1, 'BOOL': 1}


def written(path, keys):
    """In this order. keys: a text of keys, each a vector of two floats, or {key: (dtype, shape)}."""
    keys = keys if isinstance(keys, dict) else {key: ('F32', [2]) for key in keys.split()}
    return st.write_parts(path, [(key, dtype, shape, bytes(math.prod(shape) * SIZES[dtype])) for key, (dtype, shape) in keys.items()])


@pytest.fixture
def fill(tmp_path):
    """fill(source, module, options...) -> Result, whose report is what `plan` prints."""
    def run(source, module, *options, code=0, form='--json'):
        like = written(tmp_path / 'like.safetensors', module)
        path = source if hasattr(source, 'exists') else written(tmp_path / 'in.safetensors', source)
        done = weightfs('plan', form, '--like', like, *options, path, code=code, has_notices=True)
        done.report = json.loads(done.stdout) if form == '--json' else None
        return done
    return run


# ---- the lists ----

def test_applied_is_in_the_order_of_the_module(fill):
    assert fill('a b c', 'c a b').report['applied'] == ['c', 'a', 'b']


def test_skipped_is_what_the_source_has_and_the_filter_takes_away_sorted(fill):
    report = fill('x y z b', 'z y x b', '--exclude=^[xyz]$').report
    assert (report['skipped'], report['applied']) == (['x', 'y', 'z'], ['b'])


def test_missing_is_sorted(fill):
    report = fill('b', 'z b y x', '--partial').report
    assert [entry['key'] for entry in report['missing']] == ['x', 'y', 'z']
    assert report['applied'] == ['b'] and report['skipped'] == []


def test_missing_is_missing_even_where_the_filter_would_skip_it(fill):
    report = fill('a b', 'a b gone', '--exclude=^gone$', '--partial').report
    assert [entry['key'] for entry in report['missing']] == ['gone'] and report['skipped'] == []


def test_missing_is_not_what_is_wrong(fill):
    report = fill({'a': ('F32', [3])}, 'a b', '--partial', code=EXIT_RULES).report
    assert [entry['key'] for entry in report['missing']] == ['b'] and [e['tensor'] for e in report['errors']] == ['a']


def test_unused_is_what_no_parameter_asked_for_sorted(fill):
    report = fill('z a y b x', 'a b').report
    assert report['unused'] == ['x', 'y', 'z']


def test_unused_is_not_what_was_skipped_or_is_wrong(fill):
    report = fill({'a': ('F32', [3]), 'b': ('F32', [2]), 'c': ('F32', [2])}, 'a b', '--exclude=^b$', code=EXIT_RULES).report
    assert (report['unused'], report['skipped']) == (['c'], ['b'])


def test_unused_is_not_what_was_found_under_another_name(fill):
    """Burn 0.21 lists it as unused too."""
    report = fill('n.weight n.bias', 'n.gamma n.beta', '--to=burn', '--class=^n$=>LayerNorm').report
    assert (report['applied'], report['unused']) == (['n.gamma', 'n.beta'], [])


def test_errors_are_in_the_order_of_the_module(fill):
    wrong = {key: ('F32', [3]) for key in 'abc'}
    report = fill(wrong, 'c a b', code=EXIT_RULES).report
    assert [entry['tensor'] for entry in report['errors']] == ['c', 'a', 'b']


def test_errors_of_shape_have_both_shapes(fill):
    report = fill({'w': ('F32', [2, 3])}, {'w': ('F32', [4, 3])}, code=EXIT_RULES).report
    assert report['errors'] == [{'tensor': 'w', 'reason': 'shape mismatch: expected [4, 3], found [2, 3]'}]


def test_errors_of_reading_have_their_reason(fill, tmp_path):
    path = tmp_path / 'in.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(good=pth.tensor(size=(2,)), bad=pth.tensor(pth.storage('1'), size=(2,))), r0=bytes(16)))
    report = fill(path, 'good bad', '--force', code=EXIT_RULES).report
    assert report['applied'] == ['good'] and report['missing'] == [] and report['unused'] == []
    assert [entry['tensor'] for entry in report['errors']] == ['bad']
    assert report['errors'][0]['reason'].startswith('cannot be read: ')


# ---- dtypes: the kind has to be the same, and that of the source stays ----

FLOATS, INTEGERS, BOOLS = ['F64', 'F32', 'F16', 'BF16'], ['I64', 'I32', 'U32', 'U8'], ['BOOL']
PAIRS = [(wanted, found) for wanted in ('F32', 'F16', 'I64', 'U8', 'BOOL') for found in SIZES]


@pytest.mark.parametrize('wanted, found', PAIRS)
def test_each_pair_of_dtypes(fill, tmp_path, wanted, found):
    is_same = any(wanted in kind and found in kind for kind in (FLOATS, INTEGERS, BOOLS)) or (wanted == 'BOOL' and found in ('U8', 'U32'))
    report = fill({'w': (found, [2])}, {'w': (wanted, [2])}, code=0 if is_same else EXIT_RULES).report
    if is_same:
        tensor, = json.loads(weightfs('ls', '--json', '--like', tmp_path / 'like.safetensors', tmp_path / 'in.safetensors').stdout)['tensors']
        assert tensor['dtype'] == found and report['errors'] == []
    else:
        assert report['errors'] == [{'tensor': 'w', 'reason': 'dtype mismatch: expected %s, found %s' % (wanted, found)}]


def test_a_wrong_shape_is_told_before_a_wrong_dtype(fill):
    report = fill({'w': ('I64', [3])}, {'w': ('F32', [2])}, code=EXIT_RULES).report
    assert report['errors'][0]['reason'].startswith('shape')


# ---- success and failure ----

OK, WRONG = ('F32', [2]), ('F32', [3])
OUTCOMES = {
    'all is there': ({'a': OK, 'b': OK}, 'a b', [], 0, True),
    'more is there: never an error': ({'a': OK, 'b': OK, 'c': OK}, 'a b', [], 0, True),
    'a missing one': ({'a': OK}, 'a b', [], EXIT_RULES, True),
    'a missing one, partial': ({'a': OK}, 'a b', ['--partial'], 0, True),
    'an error': ({'a': OK, 'b': WRONG}, 'a b', [], EXIT_RULES, False),
    'an error, partial': ({'a': OK, 'b': WRONG}, 'a b', ['--partial'], EXIT_RULES, False),
    'an error and a missing one': ({'b': WRONG}, 'a b', [], EXIT_RULES, False),
    'an error that the filter takes away': ({'a': OK, 'b': WRONG}, 'a b', ['--exclude=^b$'], 0, True),
    'a filter on a full file': ({'a': OK, 'b': OK}, 'a b', ['--include=^a$'], 0, True),
    'a filtered file': ({'a': OK}, 'a b', ['--include=^a$'], EXIT_RULES, True),
    'a filtered file, partial': ({'a': OK}, 'a b', ['--include=^a$', '--partial'], 0, True),
    'none of them, partial': ({'x': OK}, 'a b', ['--partial'], 0, True),
}


@pytest.mark.parametrize('row', OUTCOMES)
def test_each_outcome(fill, tmp_path, row):
    source, module, options, code, is_success = OUTCOMES[row]
    assert fill(source, module, *options, code=code).report['is_success'] == is_success
    target = tmp_path / 'out.safetensors'
    weightfs('convert', '--like', tmp_path / 'like.safetensors', *options, tmp_path / 'in.safetensors', target, code=code)
    assert target.exists() == (code == 0)


def test_an_error_is_told_before_what_is_missing(fill):
    error = fill({'b': WRONG, 'c': WRONG}, 'a b c', code=EXIT_RULES).error
    assert "'b': shape mismatch: expected [2], found [3]; 2 tensors do not fit" in error


def test_what_is_missing_is_told_with_its_number_the_suggestion_and_the_cure(fill):
    error = fill('encoder.weigth', 'encoder.weight head.w', code=EXIT_RULES).error
    assert "2 tensors are missing, first 'encoder.weight' (did you mean 'encoder.weigth'?); use the option 'partial' to accept that" in error


# ---- suggestions ----

def jaro(a, b):
    """As the reference describes it."""
    if len(a) == len(b) == 1:
        return float(a == b)
    reach, taken, places = max(len(a), len(b)) // 2 - 1, set(), []
    for i, letter in enumerate(a):
        for j in range(max(0, i - reach), min(len(b), i + reach + 1)):
            if j not in taken and b[j] == letter:
                taken.add(j)
                places.append(j)
                break
    if not places:
        return 0
    m, turned = len(places), sum(y < x for x, y in zip(places, places[1:]))
    return (m / len(a) + m / len(b) + (m - turned) / m) / 3


def suggestion(fill, missing, unused):
    entry, = fill(unused, missing, '--partial').report['missing']
    assert entry['key'] == missing
    return entry['suggestion']


SUGGESTIONS = {
    'without the variant': ('feature.BaseConv.weight', 'feature.weight other', 'feature.weight'),
    'without the variant, though another is more alike': ('feature.BaseConv.weight', 'feature.weight feature.BaseConv.weights', 'feature.weight'),
    'the first inner variant only': ('a.OneB.TwoC.w', 'a.TwoC.w a.w', 'a.TwoC.w'),
    'two variants: not both': ('a.OneB.TwoC.wwwwwwwwwwwwwwww', 'a.wwwwwwwwwwwwwwww zzz', 'a.wwwwwwwwwwwwwwww'),
    'a first segment is no variant': ('BaseConv.w', 'w', None),
    'a last segment is no variant': ('x.Weightweight', 'x', None),
    'capitals alone are no variant': ('q.XY.w', 'q.w', None),
    'a single letter is no variant': ('q.X.w', 'q.w', None),
    'a small letter is no variant': ('q.conv.w', 'q.w', None),
    'the variant is not there: the most alike': ('feature.BaseConv.weight', 'feature.OtherConv.weight zzz', 'feature.OtherConv.weight'),
    'the most alike': ('encoder.layer.weight', 'encoder.layers.weight encoder.weight', 'encoder.layers.weight'),
    'nothing is alike': ('abc', 'xyz', None),
    'nothing is unused': ('abc', '', None),
    'one letter each, another one': ('a', 'b', None),
    'one letter of two': ('a', 'ab', 'ab'),
    'two letters, turned': ('ab', 'ba', None),
}


@pytest.mark.parametrize('row', SUGGESTIONS)
def test_each_suggestion(fill, row):
    missing, unused, wanted = SUGGESTIONS[row]
    assert suggestion(fill, missing, unused or {'kept': OK}) == (wanted if unused else None)


@pytest.mark.parametrize('n_missing, n_unused, n_suggested', [(199, 3, 199), (300, 3, 200), (60, 25000, 39), (12, 110000, 10)])
def test_suggestions_do_not_take_for_ever(fill, n_missing, n_unused, n_suggested):
    report = fill({'u%06d' % i: ('F32', [0]) for i in range(n_unused)}, ' '.join('m%06d' % i for i in range(n_missing)), '--partial').report
    has_one = [entry['suggestion'] is not None for entry in report['missing']]
    assert has_one == [True] * n_suggested + [False] * (n_missing - n_suggested)


def test_suggestions_are_the_most_alike_from_seven_tenths_on(fill):
    chance = random.Random(12)
    words = sorted({''.join(chance.choice('abcdefghijkl') for _ in range(chance.randrange(1, 14))) for _ in range(160)})
    missing, unused = words[0::2], words[1::2]
    report = fill(' '.join(unused), ' '.join(missing), '--partial').report
    assert [entry['key'] for entry in report['missing']] == missing
    has_one = 0
    for entry in report['missing']:
        best = max(jaro(entry['key'], word) for word in unused)
        has_one += best >= 0.7
        if best < 0.7:
            assert entry['suggestion'] is None
        else:
            assert jaro(entry['key'], entry['suggestion']) == best
    assert 10 < has_one < len(missing)


@pytest.mark.parametrize('module, source, is_near', [
    # m/10 + m/12 + 1 with six common letters: 2.1 of 3
    ('abcdefuvwx', 'abcdef123456', True),
    ('abcdefuvwx', 'abcdef1234567', False),
])
def test_the_edge_of_what_is_alike(fill, module, source, is_near):
    assert (jaro(module, source) >= 0.7) == is_near
    assert suggestion(fill, module, source) == (source if is_near else None)


def test_variants_among_the_missing_are_counted_with_the_cure(fill):
    report = fill('f.conv.w f.norm.w', 'f.BaseConv.conv.w f.BaseConv.norm.w g.w', '--partial').report
    notice, = (entry for entry in report['notices'] if entry['about'] == 'missing')
    assert notice['text'].startswith('2 of these have a segment that looks like an enum variant') and 'drop_variants' in notice['text']
    report = fill('f.conv.w f.norm.w', 'f.BaseConv.conv.w f.BaseConv.norm.w g.w', '--partial', '--drop_variants=auto').report
    assert report['notices'] == [] and report['applied'] == ['f.conv.w', 'f.norm.w']


# ---- the printed form ----

def test_the_counters_come_first_in_their_order(fill):
    text = fill({'a': OK, 'b': OK, 'c': WRONG, 'd': OK}, 'a b c e', '--partial', '--exclude=^b$', form='--report', code=EXIT_RULES).stdout
    assert text.splitlines()[:5] == ['applied: 1', 'skipped by filter: 1', 'missing: 1', 'unused: 1', 'errors: 1']


def list_of(text, title):
    lines = text.split('\n%s:\n' % title)[1].split('\n\n')[0].rstrip('\n').split('\n')
    assert all(line.startswith('  ') for line in lines)
    return [line[2:] for line in lines]


@pytest.mark.parametrize('n, n_shown, rest', [(10, 10, []), (11, 10, ['and 1 more']), (13, 10, ['and 3 more'])])
def test_lists_are_cut_at_ten(fill, n, n_shown, rest):
    names = ['%02d' % i for i in range(n)]
    source = {**{'u' + i: OK for i in names}, **{'wrong' + i: WRONG for i in names}}
    module = {**{'zzzz.M' + i: OK for i in names}, **{'wrong' + i: OK for i in names}}
    text = fill(source, module, '--partial', form='--report', code=EXIT_RULES).stdout
    assert list_of(text, 'missing') == ['zzzz.M' + i for i in names[:n_shown]] + rest
    assert list_of(text, 'unused') == ['u' + i for i in names[:n_shown]] + rest
    assert list_of(text, 'errors') == ['wrong%s: shape mismatch: expected [2], found [3]' % i for i in names[:n_shown]] + rest
    report = fill(source, module, '--partial', code=EXIT_RULES).report
    assert [len(report[name]) for name in ('missing', 'unused', 'errors')] == [n, n, n]


def test_a_missing_key_is_followed_by_one_suggestion_at_most(fill):
    text = fill('encoder.weigth encoder.wieght', 'encoder.weight zzz', '--partial', form='--report').stdout
    assert list_of(text, 'missing') == ['encoder.weight; did you mean encoder.weigth', 'zzz']


def test_empty_lists_are_not_printed(fill):
    text = fill('a', 'a', form='--report').stdout
    assert '\nmissing:\n' not in text and '\nunused:\n' not in text and '\nerrors:\n' not in text
