# SPDX-License-Identifier: MIT
"""What the program prints of names, values and metadata holds nothing that a terminal would act on; the verbs take a key as it is printed."""
import json
import re

import pytest

from wfs_testlib import pth, st
from wfs_testlib.program import EXIT_RULES, EXIT_USAGE, weightfs

EVIL = 'w\x1b[31m\x7f\x9b1m\r\n\x85\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ufeff\xe9'
# Shows nothing: joiners and fillers, variations, tags.
EVIL += '\xad\u200b\u200c\u200d\u2060\u2064\u3164\ufe0f\ufff9\U000e0001\U000e0041\U000e0100'
ACTED_ON = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\xad\u200b-\u200d\u3164\ufe0f\ufff9'
                      '\U000e0000-\U000e0fff]')

VERBS = {
    'ls': ['ls'], 'ls as JSON': ['ls', '--json'], 'ls as a tree': ['ls', '--tree'], 'ls in long': ['ls', '--long'],
    'info': ['info'], 'info as JSON': ['info', '--json'], 'check': ['check'], 'check as JSON': ['check', '--json'],
    'plan': ['plan', '--remap', '1m=>2m'], 'plan as JSON': ['plan', '--json', '--remap', '1m=>2m'],
    'plan as text': ['plan', '--report', '--remap', '1m=>2m', '--format', 'burnpack'], 'config': ['config'],
}


@pytest.fixture
def evil(folder):
    """A checkpoint of each kind with such names, metadata and values."""
    st.write(folder / (EVIL.replace('/', '') + '.safetensors'), {EVIL: ('F32', [1], bytes(4)), 'a.' + EVIL: ('F32', [1], bytes(4))},
             {EVIL: EVIL, 'format': EVIL})
    value = pth.pairs((pth.text(EVIL), pth.text(EVIL)), (pth.text('state'), pth.pairs((pth.text(EVIL), pth.tensor()))))
    (folder / 'evil.pth').write_bytes(pth.checkpoint(value))
    return sorted(folder.glob('*.safetensors')) + [folder / 'evil.pth']


def demand_harmless(text):
    assert ACTED_ON.search(text) is None, ascii(text)


@pytest.mark.parametrize('verb', VERBS, ids=str)
def test_no_verb_prints_what_a_terminal_acts_on(evil, verb):
    for path in evil:
        ran = weightfs(*VERBS[verb], path, code=None)
        demand_harmless(ran.stdout + ran.stderr)


def test_diff_and_show_print_nothing_of_the_kind(evil, folder):
    other = st.write(folder / 'other.safetensors', {EVIL: ('F32', [2], bytes(8))}, {EVIL: 'x'})
    for words in (['diff', '--all', evil[0], other], ['diff', '--all', '--json', evil[0], other], ['show', evil[0], EVIL],
                  ['show', evil[0], 'a.' + EVIL + '.'], ['convert', evil[1], folder / 'made.safetensors']):
        ran = weightfs(*words, code=None)
        demand_harmless(ran.stdout + ran.stderr)


def test_values_are_the_same_JSON(evil):
    assert json.loads(weightfs('config', evil[1]).stdout)[EVIL] == EVIL


def test_a_key_without_such_characters_is_printed_as_it_is(folder):
    path = st.write(folder / 'x.safetensors', {'caf\xe9.\u4e2d\u6587.\U0001f600': ('F32', [1], bytes(4))})
    assert weightfs('ls', path).stdout.startswith('caf\xe9.\u4e2d\u6587.\U0001f600\t')


# ---- printed keys ----

KEYS = ["ModelCheckpoint{'monitor': 'loss'}.best", 'a\\b', 'a\nb', '\\x41', "'", 'a\x7fb', '\u202ea', 'g\u00f6\u00dfe', 'plain']


def printed(path):
    return [line.split('\t')[0] for line in weightfs('ls', path).stdout.splitlines() if not line.startswith('other')]


def unescape(name):
    return re.sub(rb'\\x([0-9a-fA-F]{2})', lambda m: bytes([int(m[1], 16)]), name.encode())


@pytest.mark.parametrize('key', KEYS)
def test_a_printed_key_is_taken(tmp_path, key):
    data = st.f32(1, float('nan'))
    path = st.write(tmp_path / 'in.safetensors', {key: ('F32', [2], data), 'other': ('F32', [1], bytes(4))})
    (name,) = printed(path)
    (planned,) = [line.split('\t')[1] for line in weightfs('plan', path).stdout.splitlines()[1:] if not line.startswith('other')]
    quoted = re.search("tensor '(.*)': 1 of 2 elements is NaN", weightfs('check', '--values', path, code=1).stdout)[1]
    assert planned == name
    for spelling in (name, quoted, key):
        assert weightfs('cat', path, spelling).raw == data
        assert 'F32' in weightfs('show', path, spelling).stdout
        assert weightfs('ls', path, spelling).stdout.startswith(name + '\t')


@pytest.mark.parametrize('key', KEYS)
def test_a_key_that_no_terminal_acts_on_is_printed_as_it_is(tmp_path, key):
    path = st.write(tmp_path / 'in.safetensors', {key: ('F32', [1], bytes(4))})
    (name,) = printed(path)
    if key.isprintable() and not re.search(r'\\x[0-9a-fA-F]{2}', key):
        assert name == key
    assert unescape(name) == key.encode()


def test_null_ends_true_keys(tmp_path):
    path = st.write(tmp_path / 'in.safetensors', {key: ('F32', [1], bytes(4)) for key in KEYS})
    keys = sorted(key.encode() for key in KEYS)
    assert sorted(weightfs('ls', '-0', path).raw.split(b'\0')) == [b'', *keys]
    assert weightfs('ls', '--null', path, 'plain').raw == b'plain\0'
    rows = weightfs('ls', '-0', '--long', path).raw.split(b'\0')[:-1]
    assert sorted(row.split(b'\t')[0] for row in rows) == keys and all(row.split(b'\t')[1:4] == [b'F32', b'[1]', b'4'] for row in rows)
    rows = weightfs('plan', '-0', '--remap', 'plain=>p\n', path).raw.split(b'\0')[:-1]
    assert {tuple(row.split(b'\t')[:2]) for row in rows} == {(key, b'p\n' if key == b'plain' else key) for key in keys}
    for words in (['ls', '-0', '--json', path], ['ls', '-0', '--tree', path], ['cat', '-0', path, 'plain']):
        weightfs(*words, code=EXIT_USAGE)


def test_values_are_found_by_printed_names(tmp_path):
    path = tmp_path / 'in.pth'
    path.write_bytes(pth.checkpoint(pth.pairs((pth.text("a\nb'c"), pth.number(7)), (pth.text('w'), pth.tensor()))))
    for name in ("a\nb'c", "a\\x0ab'c", 'a\\x0ab\\x27c'):
        assert weightfs('config', path, name).stdout == '7\n'
    assert 'no value is called' in weightfs('config', path, 'a\\x0ab', code=EXIT_RULES).error


def test_a_key_that_looks_printed_is_taken_as_it_is_first(tmp_path):
    path = st.write(tmp_path / 'in.safetensors', {'\\x41': ('U8', [1], b'1'), 'A': ('U8', [1], b'2')})
    assert weightfs('cat', path, '\\x41').raw == b'1' and weightfs('cat', path, 'A').raw == b'2'
    assert weightfs('cat', path, '\\x5cx41').raw == b'1'
    for name in ('\\x', '\\x4', '\\x00', '\\x4g', '\\'):
        weightfs('cat', path, name, code=EXIT_RULES)


@pytest.mark.parametrize('numbers', [0, 4])
def test_two_dtypes_over_one_storage_are_odd_only_where_there_are_bytes(tmp_path, numbers):
    path = tmp_path / 'in.pth'
    other = pth.storage(cls=pth.name('torch', 'IntStorage'), numel=numbers)
    path.write_bytes(pth.checkpoint(pth.dictionary(a=pth.tensor(pth.storage(numel=numbers), size=(numbers,)), b=pth.tensor(other, size=(numbers,))),
                                    r0=bytes(4 * numbers)))
    found = weightfs('check', path, code=1 if numbers else 0).stdout
    assert ('two different types' in found) == bool(numbers)
