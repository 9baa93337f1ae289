# SPDX-License-Identifier: MIT
"""What is printed for a key is taken by the verbs that expect one, and is the true key where a terminal cannot act on it."""
import re

import pytest

from wfs_testlib import pth, st
from wfs_testlib.program import EXIT_RULES, EXIT_USAGE, weightfs

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
