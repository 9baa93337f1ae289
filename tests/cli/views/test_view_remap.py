# SPDX-License-Identifier: MIT
"""KeyRemapper of Burn, row by row: the rule, the dialect of its patterns, its replacements."""
import json

import pytest

from wfs_testlib import st
from wfs_testlib.program import EXIT_RULES, weightfs


def remapped(folder, key, *rules):
    path = st.write(folder / 'in.safetensors', {key: ('U8', [1], b'x')})
    options = [word for pattern, text in rules for word in ('--remap', '%s=>%s' % (pattern, text))]
    tensor, = json.loads(weightfs('ls', '--json', *options, path, has_notices=True).stdout)['tensors']
    return tensor['key']


# ---- replacements ----

REPLACEMENTS = [
    (r'^transformer\.h\.(\d+)\.', 'transformer.layer$1.', 'transformer.h.0.attn.weight', 'transformer.layer0.attn.weight'),
    (r'norm(\d+)', 'norm_$1', 'blk.norm1.weight', 'blk.norm_1.weight'),
    (r'norm(\d+)', '$1_x', 'norm7.w', '.w'),
    (r'norm(\d+)', '${1}_x', 'norm7.w', '7_x.w'),
    (r'norm(\d+)', '$1x', 'norm7.w', '.w'),
    (r'norm(\d+)', '$1-x', 'norm7.w', '7-x.w'),
    (r'norm(\d+)', '$$1', 'norm7.w', '$1.w'),
    (r'norm(\d+)', 'a$', 'norm7.w', 'a$.w'),
    (r'norm(\d+)', '${1', 'norm7.w', '${1.w'),
    (r'norm(\d+)', '$9', 'norm7.w', '.w'),
    (r'norm(\d+)', '$01', 'norm7.w', '7.w'),
    (r'norm(?P<n>\d+)', '${n}z', 'norm7.w', '7z.w'),
    ('a', 'b', 'banana', 'bbnbnb'),
    ('(a)|(b)', '[$1|$2]', 'ab', '[a|][|b]'),
    ('^', 'm.', 'x.y', 'm.x.y'),
    ('$', '.x', 'a.b', 'a.b.x'),
    # What the rules beside the table say.
    (r'norm(\d+)', '$$$1', 'norm7.w', '$7.w'),
    (r'norm(\d+)', '$.', 'norm7.w', '$..w'),
    (r'norm(\d+)', '${+1}', 'norm7.w', '7.w'),
    (r'norm(\d+)', '${name}', 'norm7.w', '.w'),
    (r'norm(\d+)', '[$0]', 'norm7.w', '[norm7].w'),
    (r'norm(\d+)(x)?', '<$1$2>', 'norm7.w', '<7>.w'),
    (r'norm(\d+)', r'a\b', 'norm7.w', r'a\b.w'),
    (r'norm(\d+)', '${}', 'norm7.w', '.w'),
]


@pytest.mark.parametrize('pattern, text, key, wanted', REPLACEMENTS, ids=['%s => %s on %s' % row[:3] for row in REPLACEMENTS])
def test_each_replacement(tmp_path, pattern, text, key, wanted):
    assert remapped(tmp_path, key, (pattern, text)) == wanted


def test_a_backslash_is_a_dollar_here_and_said(tmp_path):
    r"""Burn takes \1 for text, which nobody means."""
    assert remapped(tmp_path, 'norm7.w', (r'norm(\d+)', r'\1')) == '7.w'
    report = json.loads(weightfs('plan', '--json', '--remap', r'norm(\d+)=>\1', tmp_path / 'in.safetensors').stdout)
    assert report['notices'] == [{'about': 'remap', 'text': r'\1 in a replacement is read as ${1}'}]


# ---- the rule ----

RULES = {
    'in the order given': ('a.w', [('^a', 'b'), ('^b', 'c')], 'c.w'),
    'not in the other': ('a.w', [('^b', 'c'), ('^a', 'b')], 'b.w'),
    'no stop after the first hit': ('a.b', [('a', 'x'), ('b', 'y')], 'x.y'),
    'each sees what the former made': ('a.w', [('a', 'aa'), ('a', 'b')], 'bb.w'),
    'found anywhere': ('x.enc.y', [('enc', 'dec')], 'x.dec.y'),
    'all matches': ('h.1.h.2', [('h', 'layer')], 'layer.1.layer.2'),
    'not overlapping': ('aaa', [('aa', 'b')], 'ba'),
    'a pattern that is not found does nothing': ('a.w', [('zzz', 'y')], 'a.w'),
    'levels are added': ('a_b.w', [('_', '.')], 'a.b.w'),
    'levels are removed': ('a.b.w', [(r'a\.b', 'ab')], 'ab.w'),
}


@pytest.mark.parametrize('row', RULES)
def test_each_rule(tmp_path, row):
    key, rules, wanted = RULES[row]
    assert remapped(tmp_path, key, *rules) == wanted


def test_pairs_of_new_and_old_are_in_the_report(tmp_path):
    remapped(tmp_path, 'a.w')
    report = json.loads(weightfs('plan', '--json', '--remap', '^a=>b', tmp_path / 'in.safetensors').stdout)
    assert report['renamed'] == [{'from': 'a.w', 'to': 'b.w'}]


def test_two_keys_that_become_one_are_refused_by_name(tmp_path):
    """Burn keeps either, at random."""
    path = st.write(tmp_path / 'in.safetensors', {'a.w': ('U8', [1], b'x'), 'b.w': ('U8', [1], b'y')})
    error = weightfs('ls', '--remap', '^a=>b', path, code=EXIT_RULES).error
    assert "'a.w'" in error and "'b.w'" in error
    keys = weightfs('ls', '--remap', '^a=>b', '--on_collision=suffix', path).stdout
    assert sorted(line.split('\t')[0] for line in keys.splitlines()) == ['b.w', 'b.w_2']


# ---- the dialect ----

REFUSED = {'look-ahead': 'a(?=b)', 'negative look-ahead': 'a(?!b)', 'look-behind': '(?<=a)b', 'negative look-behind': '(?<!a)b',
           'back reference': r'(a)\1', 'atomic group': '(?>a)', 'recursion': '(a(?1))', 'horizontal space': r'\h', 'end before a line feed': r'\Z',
           'no lower bound': 'a{,2}', 'open group': '(a', 'open class': '[a', 'nothing to repeat': '*a', 'unknown escape': r'\y',
           'unknown property': r'\p{Nonsense}', 'bounds the wrong way': 'a{3,2}'}


# These Burn has.
NOT_HERE = {'flag R': '(?R)a', 'Unicode turned off': '(?-u)a', 'edges of another kind': r'\b{start}a', 'negated class of POSIX': '[[:^alpha:]]'}
REFUSED.update(NOT_HERE)


@pytest.mark.parametrize('row', REFUSED)
def test_what_the_dialect_does_not_have(tmp_path, row):
    path = st.write(tmp_path / 'in.safetensors', {'ab': ('U8', [1], b'x')})
    for option in (['--remap', REFUSED[row] + '=>x'], ['--include', REFUSED[row]]):
        assert 'bad regex' in weightfs('ls', *option, path, code=EXIT_RULES).error


UNICODE = 'größe٣'
TAKEN = {
    'repeated repetition': ('a++b', '-', 'aaab', '-'),
    'start of a word': (r'\<b', '-', 'ab b', 'ab -'),
    'end of a word': (r'b\>', '-', 'ba b', 'ba -'),
    'named group of Python': ('(?P<n>a)', '<$n>', 'ab', '<a>b'),
    'named group': ('(?<n>a)', '<$n>', 'ab', '<a>b'),
    'group that is not kept': ('(?:a)(b)', '$1', 'ab', 'b'),
    'flag i': ('(?i)A', '-', 'ab', '-b'),
    'flag i for a part': ('(?i:A)b', '-', 'ab', '-'),
    'flag m': ('(?m)^', '-', 'a\nb', '-a\n-b'),
    'flag s': ('(?s)a.b', '-', 'a\nb', '-'),
    'flag U': ('(?U)a+', '-', 'aa', '--'),
    'flag x': ('(?x) a # text', '-', 'ab', '-b'),
    'lazy': ('a+?', '-', 'aa', '--'),
    'a dot is no line feed': ('a.b', '-', 'a\nb', 'a\nb'),
    'a dollar is the very end': ('b$', '-', 'ab\n', 'ab\n'),
    'digits of all scripts': (r'\d', '-', UNICODE, 'größe-'),
    'words of all scripts': (r'\w+', '-', UNICODE, '-'),
    'spaces of all scripts': (r'\s', '-', 'a\u2003b', 'a-b'),
    'edges of words of all scripts': (r'\b', '|', 'ößa', '|ößa|'),
    'property': (r'\p{Greek}', '-', 'aλ', 'a-'),
    'not a property': (r'\P{L}', '-', 'a1', 'a-'),
    'intersection': ('[a-z&&[^aeiou]]', '-', 'abe', 'a-e'),
    'difference': ('[a-z--[aeiou]]', '-', 'abe', 'a-e'),
    'symmetric difference': ('[a-c~~[b-d]]', '-', 'abcd', '-bc-'),
    'beginning': (r'\Aa', '-', 'aa', '-a'),
    'end': (r'a\z', '-', 'aa', 'a-'),
    'leftmost, then the first alternative': ('a|ab', '-', 'ab', '-b'),
    'empty matches': ('a*', '-', 'baab', '-b-b-'),
    'empty matches in text of two bytes': ('x*', '-', 'öß', '-ö-ß-'),
}


@pytest.mark.parametrize('row', TAKEN)
def test_what_the_dialect_has(tmp_path, row):
    pattern, text, key, wanted = TAKEN[row]
    assert remapped(tmp_path, key, (pattern, text)) == wanted


def test_a_program_that_grows_too_large_is_refused(tmp_path):
    path = st.write(tmp_path / 'in.safetensors', {'ab': ('U8', [1], b'x')})
    assert 'regex' in weightfs('ls', '--include', '((a{1000}){1000}){1000}', path, code=EXIT_RULES).error
