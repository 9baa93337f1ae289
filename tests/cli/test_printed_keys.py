# SPDX-License-Identifier: MIT
"""What `ls` prints for a key is taken by the verbs that want one."""
import pytest

from wfs_testlib import pth, st
from wfs_testlib.program import EXIT_RULES, weightfs

KEYS = ["ModelCheckpoint{'monitor': 'loss'}.best", 'a\\b', 'a\nb', '\\x41', "'", 'a\x7fb', '\u202ea', 'g\u00f6\u00dfe', 'plain']


@pytest.mark.parametrize('key', KEYS)
def test_a_printed_key_is_taken(tmp_path, key):
    data = st.f32(1, 2)
    path = st.write(tmp_path / 'in.safetensors', {key: ('F32', [2], data), 'other': ('F32', [1], bytes(4))})
    printed = [line.split('\t')[0] for line in weightfs('ls', path).stdout.splitlines() if not line.startswith('other')]
    for name in (*printed, key):
        assert weightfs('cat', path, name).raw == data
        assert 'F32' in weightfs('show', path, name).stdout


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
