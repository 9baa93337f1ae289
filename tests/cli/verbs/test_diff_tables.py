# SPDX-License-Identifier: MIT
"""`diff --long` and `diff --stat`: numpy computes the norms and angles."""
import json
import csv
import io
import json
import math

import numpy
import pytest

from wfs_testlib import checkpoints, pth, st, terminal
from wfs_testlib.program import EXIT_FOUND, EXIT_USAGE, weightfs

CODES = {'F16': '<f2', 'F32': '<f4', 'F64': '<f8', 'I8': '<i1', 'U8': '<u1', 'I16': '<i2', 'I32': '<i4', 'I64': '<i8', 'U64': '<u8', 'C64': '<c8'}
LONG = ['key', 'change', 'relative', 'cosine', 'l2', 'max', 'changed', 'elements', 'dtype', 'shape']
STAT = ['module', 'relative', 'changed', 'removed', 'added', 'tensors', 'cosine', 'l2', 'renamed']
COUNTS = ' only in A, '


def tensor(array, dtype):
    return (dtype, list(array.shape), array.astype(CODES[dtype]).tobytes())


def pair(folder, a, b):
    return st.write(folder / 'a.safetensors', a), st.write(folder / 'b.safetensors', b)


def rows(names, *words, code=EXIT_FOUND):
    """The rows of a table in a pipe, and the line of counts."""
    lines = weightfs('diff', *words, code=code).stdout.splitlines()
    if not code:
        assert lines == []
        return []
    assert COUNTS in lines[-1]
    return [dict(zip(names, line.split('\t'), strict=True)) for line in lines[:-1]]


def measures(x, y):
    """L2, that of A's norm, cosine, over what is finite in both."""
    wide = numpy.clongdouble if x.dtype.kind == 'c' else numpy.longdouble
    x, y = x.astype(wide).ravel(), y.astype(wide).ravel()
    both = numpy.isfinite(x) & numpy.isfinite(y)
    x, y = x[both], y[both]
    l2, a, b = (numpy.sqrt((abs(v) ** 2).sum()) for v in (x - y, x, y))
    with numpy.errstate(all='ignore'):
        return float(l2), float(l2 / a) if l2 else 0.0, float((x * y.conj()).real.sum() / (a * b))


def judge(row, x, y, rel=1e-8):
    for name, value in zip(('l2', 'relative', 'cosine'), measures(x, y)):
        if math.isnan(value):
            assert row[name] in ('-', None), name
        else:
            assert math.isclose(float(row[name]), value, rel_tol=rel, abs_tol=1e-12), name


@pytest.mark.parametrize('dtype', CODES)
def test_measures_are_those_of_numpy(folder, dtype):
    random = numpy.random.default_rng(5)
    n = 70000  # more than one piece
    if numpy.dtype(CODES[dtype]).kind in 'iu':
        limits = numpy.iinfo(CODES[dtype])
        x = random.integers(limits.min, limits.max, n, CODES[dtype], endpoint=True)
    else:
        x = random.standard_normal(n).astype(CODES[dtype])
    y = x.copy()
    y[::7] = y[::7] // 2 if x.dtype.kind in 'iu' else y[::7] * 2
    files = pair(folder, {'w': tensor(x, dtype), 'same': tensor(x, dtype)}, {'w': tensor(y, dtype), 'same': tensor(x, dtype)})
    row, = rows(LONG, '--long', *files)
    judge(row, x, y)
    assert (row['key'], row['change'], row['dtype'], row['shape']) == ('w', 'changed', dtype, '[70000]')
    assert (int(row['changed']), int(row['elements'])) == (int((x != y).sum()), n)
    judge(json.loads(weightfs('diff', '--json', '-l', *files, code=EXIT_FOUND).stdout)['changed'][0], x, y, 1e-14)


def test_what_is_not_finite_is_left_out(folder):
    x = numpy.array([1, numpy.nan, numpy.inf, 2, 3, numpy.nan], '<f4')
    y = numpy.array([1, numpy.nan, 5, -numpy.inf, 4, 2], '<f4')
    files = pair(folder, {'w': tensor(x, 'F32')}, {'w': tensor(y, 'F32')})
    row, = rows(LONG, '--long', *files)
    judge(row, x, y)
    assert row['changed'] == '4' and row['max'] == 'inf'
    zero = numpy.zeros(3, '<f4')
    row, = rows(LONG, '--long', *pair(folder, {'w': tensor(zero, 'F32')}, {'w': tensor(zero + 2, 'F32')}))
    assert (row['relative'], row['cosine'], float(row['l2'])) == ('inf', '-', pytest.approx(12 ** 0.5))
    found = json.loads(weightfs('diff', '--long', '--json', *pair(folder, {'w': tensor(zero, 'F32')}, {'w': tensor(zero + 2, 'F32')}), code=EXIT_FOUND).stdout)
    assert found['changed'][0]['relative'] == 'Infinity' and found['changed'][0]['cosine'] is None


def test_huge_numbers_do_not_overflow(folder):
    x = numpy.array([1e300, -1e300, 5e-324], '<f8')
    row, = rows(LONG, '--long', *pair(folder, {'w': tensor(x, 'F64')}, {'w': tensor(x / 2, 'F64')}))
    judge(row, x, x / 2)


def test_repeated_elements_count_as_often_as_they_are_shown(folder):
    stored = {name: numpy.arange(4, dtype='<f4') + more for name, more in (('a', 1), ('b', 1.5))}
    for name, array in stored.items():
        (folder / name).write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(pth.storage(numel=4), size=(1000, 4), stride=(0, 1))), r0=array.tobytes()))
    row, = rows(LONG, '--long', folder / 'a', folder / 'b')
    judge(row, *(numpy.tile(stored[name], 1000) for name in 'ab'))


def test_casts_and_formats(folder):
    x = numpy.random.default_rng(2).standard_normal(500).astype('<f4')
    a = checkpoints.write(folder / 'a.pth', {'w': tensor(x, 'F32')})
    b = checkpoints.write(folder / 'b.bpk', {'w': tensor(x, 'F16')})
    row, = rows(LONG, '--long', a, b)
    judge(row, x, x.astype('<f2'))
    assert row['dtype'] == 'F32 -> F16'


def changes(folder):
    x = numpy.linspace(1, 2, 10).astype('<f4')
    a, b = {}, {}
    for i in range(12):
        a['layer.%d.w' % i] = tensor(x, 'F32')
        b['layer.%d.w' % i] = tensor(x * (1 + (i % 6) / 100), 'F32')
        a['layer.%d.b' % i] = b['layer.%d.b' % i] = tensor(x, 'F32')
    a.update({'gone\n': tensor(x, 'F32'), 'shape': tensor(x, 'F32'), 'bits': ('F8_E4M3', [4], b'abcd')})
    b.update({'new': tensor(x + 9, 'F32'), 'shape': tensor(x.reshape(2, 5), 'F32'), 'bits': ('F8_E4M3', [4], b'abcd')})
    return pair(folder, a, b)


def test_the_largest_change_is_first(folder):
    files = changes(folder)
    found = rows(LONG, '--long', *files)
    assert [(row['key'], row['change']) for row in found[:3]] == [('gone\\x0a', 'removed'), ('new', 'added'), ('shape', 'changed')]
    assert [row['key'] for row in found[3:]] == ['layer.%d.w' % i for i in (5, 11, 4, 10, 3, 9, 2, 8, 1, 7)]
    assert all(float(one['relative']) >= float(other['relative']) * (1 - 1e-6) for one, other in zip(found[3:], found[4:]))
    assert found[2]['shape'] == '[10] -> [2, 5]' and {found[2][name] for name in ('relative', 'cosine', 'l2', 'max', 'changed', 'elements')} == {'-'}
    assert [row['key'] for row in rows(LONG, '--long', '--sort=key', *files)] == [
        'gone\\x0a', *['layer.%d.w' % i for i in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11)], 'new', 'shape']


def test_a_row_for_each_module_in_natural_order(folder):
    files = changes(folder)
    found = rows(STAT, '--stat', *files)
    layers = [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert [row['module'] for row in found] == ['gone\\x0a', *['layer.%d' % i for i in layers], 'new', 'shape']
    a, b = (st.read(path).tensors for path in files)
    for row in found[1:-2]:
        x, y = (numpy.frombuffer(side[row['module'] + '.w'][2] + side[row['module'] + '.b'][2], '<f4') for side in (a, b))
        judge(row, x, y)
        assert [row[name] for name in ('changed', 'removed', 'added', 'tensors')] == ['1', '0', '0', '2']
    assert [found[0][name] for name in ('changed', 'removed', 'added', 'relative')] == ['0', '1', '0', '-']
    assert [found[-2][name] for name in ('changed', 'removed', 'added')] == ['0', '0', '1'] and found[-1]['changed'] == '1'
    assert [row['module'] for row in rows(STAT, '--stat', '--sort=change', *files)][:4] == ['layer.5', 'layer.11', 'layer.4', 'layer.10']


def test_equal_checkpoints_print_nothing(small):
    assert rows(LONG, '--long', small, small, code=0) == rows(STAT, '--stat', small, small, code=0) == []
    assert terminal.screen('diff', '--stat', small, small, columns=500).lines == ['A %s, B %s: 0 only in A, 0 only in B, 0 changed, 5 equal' % (small, small)]


@pytest.mark.parametrize('columns', [40, 80, 200])
def test_tables_fit_the_terminal_and_bars_show_the_change(folder, columns):
    files = changes(folder)
    for words in (['-l'], ['--stat'], ['--stat', '--sort=change']):
        screen = terminal.screen('diff', *words, *files, columns=columns, code=EXIT_FOUND)
        assert all(terminal.width(line) <= columns for line in screen.lines)
        assert screen.lines[0].startswith('key ' if words == ['-l'] else 'module ') and COUNTS in screen.text.replace('\n    ', ' ')
    bars = {line.split()[0]: line.count('#') for line in terminal.screen('diff', '--stat', *files, columns=columns, code=EXIT_FOUND).lines[1:]}
    n = 20 if columns >= 100 else 8
    assert {key: bars[key] for key in ('layer.5', 'layer.11', 'new', 'gone\\x0a')} == {'layer.5': n, 'layer.11': n, 'new': 0, 'gone\\x0a': 0}
    assert n / 5 - 1 <= bars['layer.1'] <= n / 5 and bars['layer.1'] > 0 and 'layer.0' not in bars
    assert '\033[' not in terminal.screen('diff', '--stat', *files, columns=columns, code=EXIT_FOUND, NO_COLOR='1').left


def test_all_and_wrong_usage(small, folder):
    other = st.write(folder / 'o.safetensors', st.read(small).tensors, {'format': 'pt', 'by': 'another'})
    assert 'by' in weightfs('diff', '--long', '--all', small, other, code=EXIT_FOUND).stdout
    for words in (['--stat', '--long'], ['--stat', '--json', '--all'], ['--csv', '--json'], ['--csv', '--all'], ['--sort=key'], ['--long', '--json', '--sort=key'], ['--long', '--sort=size']):
        weightfs('diff', *words, small, other, code=EXIT_USAGE)


def test_modules_as_json(folder):
    """The numbers are those of the table, with all digits."""
    files = changes(folder)
    found = json.loads(weightfs('diff', '--stat', '--json', *files, code=EXIT_FOUND).stdout)
    table = rows(STAT, '--stat', *files)
    assert [row['module'] for row in found['modules']] == [row['module'].replace('\\x0a', '\n') for row in table]
    for row, line in zip(found['modules'], table, strict=True):
        assert [str(row[name]) for name in ('changed', 'removed', 'added', 'renamed', 'tensors')] == [line[name] for name in ('changed', 'removed', 'added', 'renamed', 'tensors')]
        assert row['relative'] is None if line['relative'] == '-' else row['relative'] == pytest.approx(float(line['relative']))
        assert row['one_minus_cosine'] is None or row['one_minus_cosine'] == pytest.approx(1 - float(line['cosine']), abs=1e-8)
    assert (found['n_only_a'], found['n_only_b'], found['is_equal']) == (1, 1, False)


def test_the_angle_has_digits_that_its_cosine_has_lost(folder):
    x = numpy.random.default_rng(1).standard_normal(4096)
    y = x.copy()
    y[0] += 1e-6
    files = pair(folder, {'w': tensor(x, 'F64')}, {'w': tensor(y, 'F64')})
    row, = csv.DictReader(io.StringIO(weightfs('diff', '--csv', *files, code=EXIT_FOUND).stdout))
    wide_x, wide_y = x.astype('longdouble'), y.astype('longdouble')
    turn = 1 - (wide_x * wide_y).sum() / numpy.sqrt((wide_x ** 2).sum() * (wide_y ** 2).sum())
    assert 0 < float(turn) < 1e-15 and float(row['one_minus_cosine']) == pytest.approx(float(turn), rel=0.01)
    assert (row['key'], row['change'], row['dtype'], row['shape']) == ('w', 'changed', 'F64', '[4096]')
    found = list(csv.DictReader(io.StringIO(weightfs('diff', '--csv', '--stat', *changes(folder), code=EXIT_FOUND).stdout)))
    assert [row['module'] for row in found][1:3] == ['layer.1', 'layer.2'] and found[0]['removed'] == '1'


def test_a_terminal_gets_the_table_and_words_for_what_cannot_be_compared(folder):
    files = changes(folder)
    lines = terminal.screen('diff', *files, columns=200, code=EXIT_FOUND).lines
    assert lines[:-1] == terminal.screen('diff', '--long', *files, columns=200, code=EXIT_FOUND).lines[:-1]
    assert any(line.startswith('shape ') and ' new shape ' in line for line in lines)
    assert lines[-1].startswith('A %s, B %s: 1 only in A, ' % files)
    stat = terminal.screen('diff', '--stat', *files, columns=200, code=EXIT_FOUND).lines
    assert 'renamed' not in stat[0] and 'removed' in stat[0]


def test_a_new_dtype_is_named_where_its_column_has_no_room(folder):
    a = st.write(folder / 'a', {'w': ('F32', [2], st.f32(1, 1e-9)), 'v': ('F32', [2], st.f32(1, 2))})
    weightfs('convert', '--cast=w:F16', '--format=safetensors', a, folder / 'b')
    lines = terminal.screen('diff', a, folder / 'b', columns=40, code=EXIT_FOUND).lines
    assert 'new dtype' in lines[1] + lines[2] and 'no room for' in ' '.join(lines)
    assert ',changed,' in weightfs('diff', '--csv', a, folder / 'b', code=EXIT_FOUND).stdout
