# SPDX-License-Identifier: MIT
"""map_indices_contiguous of Burn, row by row."""
import json

import pytest

from wfs_testlib import pth, st
from wfs_testlib.program import EXIT_RULES, weightfs

# name: keys, what they become
ROWS = {
    'a list with gaps': ('fc.0.weight fc.2.weight fc.4.weight', 'fc.0.weight fc.1.weight fc.2.weight'),
    'lists in lists': ('a.0.b.0.c.0.w a.0.b.0.c.2.w a.0.b.2.c.0.w a.2.b.0.c.0.w',
                       'a.0.b.0.c.0.w a.0.b.0.c.1.w a.0.b.1.c.0.w a.1.b.0.c.0.w'),
    'each list by itself': ('encoder.0.weight encoder.2.weight decoder.1.weight decoder.5.weight',
                            'encoder.0.weight encoder.1.weight decoder.0.weight decoder.1.weight'),
    'no number': ('out.weight', 'out.weight'),
    'a list that does not begin at 0': ('decoder.1.w decoder.5.w', 'decoder.0.w decoder.1.w'),
    'sorted as numbers': ('l.10.w l.9.w l.100.w', 'l.1.w l.0.w l.2.w'),
    'the leaf too': ('q.3 q.1 q.x', 'q.1 q.0 q.x'),
    'the first segment too': ('4.2.w 4.0.w 9.1.w', '0.1.w 0.0.w 1.0.w'),
    'prefixes have the old numbers': ('a.5.b.3 a.7.b.3 a.7.b.4', 'a.0.b.0 a.1.b.0 a.1.b.1'),
    'leading zeros': ('x.007.w x.9.w', 'x.0.w x.1.w'),
    'a leading plus': ('x.+5.w x.6.w', 'x.0.w x.1.w'),
    'a minus is no number': ('x.-1.w x.3.w', 'x.-1.w x.0.w'),
    'spaces are no number': ('x. 1.w x.3.w', 'x. 1.w x.0.w'),
    'digits of other scripts are no number': ('w.３.w w.5.w', 'w.３.w w.0.w'),
    'the largest number': ('z.18446744073709551615.w z.18446744073709551616.w', 'z.0.w z.18446744073709551616.w'),
    'a plus alone is no number': ('x.+.w x.3.w', 'x.+.w x.0.w'),
    'letters at a number': ('h1.w h22.5x.w 0x10.w', 'h1.w h22.5x.w 0x10.w'),
    'empty segments': ('a..3.b .7 7.', 'a..0.b .0 0.'),
    'buffers and optimizer state as well': ('state.3.exp_avg state.7.exp_avg', 'state.0.exp_avg state.1.exp_avg'),
}


def split(text):
    # A space belongs to the key of one row.
    return text.replace('. 1', '.\0').split(' ') if '. 1' in text else text.split(' ')


def written(folder, keys):
    return st.write(folder / 'in.safetensors', {key: ('U8', [1], bytes([i])) for i, key in enumerate(keys)})


def renumbered(path, *options):
    """new key of each old one"""
    listed = json.loads(weightfs('ls', '--json', '--long', *options, path, has_notices=True).stdout)['tensors']
    return {tensor.get('source_key') or tensor['key']: tensor['key'] for tensor in listed}


@pytest.mark.parametrize('row', ROWS)
def test_each_row(tmp_path, row):
    before, after = ([key.replace('\0', ' 1') for key in split(text)] for text in ROWS[row])
    path = written(tmp_path, before)
    assert renumbered(path, '--contiguous=on') == dict(zip(before, after))


def test_two_spellings_of_a_number_are_refused(tmp_path):
    """Burn keeps either of them, at random."""
    error = weightfs('ls', '--contiguous=on', written(tmp_path, ['x.1.w', 'x.01.w']), code=EXIT_RULES).error
    assert "'x.1.w'" in error and "'x.01.w'" in error


def test_after_remap_and_before_filters(tmp_path):
    path = written(tmp_path, ['h.2.w', 'h.5.w', 'h.9.b'])
    assert renumbered(path, '--contiguous=on', '--remap=^h=>layers', '--include=b$') == {'h.9.b': 'layers.2.b'}
    assert renumbered(path, '--contiguous=on', r'--remap=\.(\d+)\.=>.x$1.')['h.2.w'] == 'h.x2.w'


def test_exceptions_by_the_path_before_the_number(tmp_path):
    keys = ['a.3.b.5.w', 'a.3.b.7.w', 'c.4.w']
    path = written(tmp_path, keys)
    assert renumbered(path, '--contiguous=on', '--contiguous_except=^a$') == dict(zip(keys, ['a.3.b.0.w', 'a.3.b.1.w', 'c.0.w']))
    assert renumbered(path, '--contiguous=on', r'--contiguous_except=^a\.3\.b$') == dict(zip(keys, ['a.0.b.5.w', 'a.0.b.7.w', 'c.0.w']))
    assert renumbered(path, '--contiguous=on', r'--contiguous_except=a|c') == dict(zip(keys, keys))


@pytest.mark.parametrize('name, options, wanted', [
    ('in.pth', [], '2'), ('in.pth', ['--to=torch'], '2'), ('in.pth', ['--to=burn'], '0'),
    ('in.pth', ['--to=burn', '--contiguous=off'], '2'), ('in.pth', ['--contiguous=on'], '0'),
    ('in.safetensors', [], '2'), ('in.safetensors', ['--to=burn'], '2'), ('in.safetensors', ['--contiguous=on'], '0'),
])
def test_when_it_is_on_by_itself(tmp_path, name, options, wanted):
    path = tmp_path / name
    if name.endswith('pth'):
        path.write_bytes(pth.checkpoint(pth.dictionary(**{'l.2.conv': pth.tensor()})))
    else:
        st.write(path, {'l.2.conv': ('F32', [2, 2], bytes(16))})
    key, = renumbered(path, *options).values()
    assert key == 'l.%s.conv' % wanted


@pytest.mark.parametrize('options, is_told', [(['--to=burn'], True), (['--to=burn', '--strict', '--class=^fc:Embedding'], True), (['--to=burn', '--contiguous=on'], False), (['--to=burn', '--contiguous=off'], False)])
def test_numbers_that_change_unasked_are_told(tmp_path, options, is_told):
    path = tmp_path / 'in.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(**{'fc.%d.weight' % i: pth.tensor() for i in (0, 2, 5)})))
    done = weightfs('convert', *options, path, tmp_path / 'out.bpk', has_notices=True)
    assert ("fc.2.weight: is 'fc.1.weight' for burn, which numbers lists without gaps (and 1 more)" in done.stderr) == is_told, done.stderr


def test_a_conversion_writes_the_new_numbers(tmp_path):
    path = written(tmp_path, ['fc.0.w', 'fc.2.w'])
    target = tmp_path / 'out.safetensors'
    weightfs('convert', '--contiguous=on', path, target)
    assert sorted(st.read(target).tensors) == ['fc.0.w', 'fc.1.w']
