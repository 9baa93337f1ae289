# SPDX-License-Identifier: MIT
"""The table that `show` prints without a whole key: statistics of all tensors, equal layers folded; numpy is the judge."""
import csv
import io
import json
import re

import numpy
import pytest

from wfs_testlib import st, terminal
from wfs_testlib.program import EXIT_RULES, EXIT_USAGE, weightfs

BLOCKS = ' ▁▂▃▄▅▆▇█'


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    """Keys and arrays of twelve layers of four experts, and the file of them."""
    generator = numpy.random.default_rng(27)
    arrays = {}
    for layer in range(12):
        arrays['model.layers.%d.up_proj.weight' % layer] = (generator.standard_normal((64, 48)) * 0.02).astype('<f4')
        for expert in range(4):
            arrays['model.layers.%d.experts.%d.w1' % (layer, expert)] = generator.standard_normal((8, 8)).astype('<f4')
        arrays['model.layers.%d.norm.weight' % layer] = numpy.ones(48, '<f4')
    arrays['model.layers.5.up_proj.weight'][3, 4] = numpy.nan
    arrays['model.layers.10.experts.3.w1'][0, 0] = -numpy.inf
    arrays['model.embed.weight'] = generator.standard_normal((100, 48)).astype('<f4')
    arrays['ids'] = numpy.array([1, 2, 3], '<i8')
    kinds = {'<f4': 'F32', '<i8': 'I64'}
    path = tmp_path_factory.mktemp('table') / 'model.safetensors'
    st.write(path, {key: (kinds[array.dtype.str], list(array.shape), array.tobytes()) for key, array in arrays.items()})
    return path, arrays


def rows(text):
    return {line.split('\t')[0]: line.split('\t')[1:] for line in text.splitlines()}


def check_numbers(cells, array):
    finite = array[numpy.isfinite(array)].astype('f8')
    for cell, value in zip(cells, [finite.min(), finite.max(), finite.mean(), finite.std()], strict=True):
        assert float(cell) == pytest.approx(value, rel=1e-7, abs=1e-9)


def test_a_line_for_each_tensor(model):
    path, arrays = model
    found = rows(weightfs('show', path).stdout)
    assert list(found) == list(st.read(path).tensors) and set(found) == set(arrays)
    for key, (dtype, shape, *numbers, zeros, nan, infinite, spark) in found.items():
        array = arrays[key]
        assert (dtype, shape) == ({'f': 'F32', 'i': 'I64'}[array.dtype.kind], str(list(array.shape)))
        check_numbers(numbers, array)
        assert (int(zeros), int(nan), int(infinite)) == ((array == 0).sum(), numpy.isnan(array).sum(), numpy.isinf(array).sum())
        if 'norm' in key:
            assert spark == ''
            continue
        finite = array[numpy.isfinite(array)].astype('f8')
        counts, _ = numpy.histogram(finite, 8, (finite.min(), finite.max()))
        assert len(spark) == 8 and [c == ' ' for c in spark] == [n == 0 for n in counts]
        assert all(abs(BLOCKS.index(c) - 1 - 7 * n / counts.max()) <= 1 for c, n in zip(spark, counts, strict=True) if n)


def test_equal_layers_are_one_line(model):
    path, arrays = model
    found = rows(weightfs('show', '--fold', path).stdout)
    assert list(found) == ['ids', 'model.embed.weight', 'model.layers.{0..11}.experts.{0..3}.w1', 'model.layers.{0..11}.norm.weight',
                           'model.layers.{0..11}.up_proj.weight']
    layers = [arrays['model.layers.%d.up_proj.weight' % layer] for layer in range(12)]
    finite = [layer[numpy.isfinite(layer)].astype('f8') for layer in layers]
    _, shape, least, most, mean, std, zeros, nan, infinite, _ = found['model.layers.{0..11}.up_proj.weight']
    assert (shape, zeros, nan, infinite) == ('12 x [64, 48]', '0', '1', '0')
    assert float(least) == pytest.approx(min(layer.min() for layer in finite))
    assert float(most) == pytest.approx(max(layer.max() for layer in finite))
    assert float(mean) == pytest.approx(numpy.mean([layer.mean() for layer in finite]), abs=1e-9)
    middle = numpy.mean([layer.std() for layer in finite])
    assert std == '%.3g ±%.1g' % (middle, max(abs(layer.std() - middle) for layer in finite))
    assert found['model.layers.{0..11}.norm.weight'][5] == '0'
    assert found['model.layers.{0..11}.experts.{0..3}.w1'][1] == '48 x [8, 8]'


@pytest.mark.parametrize('width', [80, 160])
def test_a_terminal_gets_folded_layers_and_where_nan_is(model, width):
    path, arrays = model
    screen = terminal.screen('show', path, columns=width)
    text = screen.text
    assert all(terminal.width(line) <= width for line in screen.lines), text
    assert 'NaN in 5' in text and ('infinite in 10.3' in text or width == 80)
    assert re.search('%d tensors, .* NaN in 1, infinities in 1' % len(arrays), text)
    assert len(text.splitlines()) < 10
    assert 'in all rows: ' in text and 'zeros 0' in text
    unfolded = terminal.screen('show', '--no-fold', path, columns=width)
    assert unfolded.text.count('norm') == 12


def test_globs_and_modules_choose(model):
    path, arrays = model
    below = [key for key in arrays if key.startswith('model.layers.1.')]
    assert set(rows(weightfs('show', path, 'model.layers.1').stdout)) == set(below)
    assert set(rows(weightfs('show', path, '*.norm.weight', 'ids').stdout)) == {'ids', *(key for key in arrays if 'norm' in key)}
    assert weightfs('show', path, 'ids').stdout.startswith('key:      ids\n')
    assert rows(weightfs('show', '--sort=key', path, 'ids').stdout).keys() == {'ids'}
    done = weightfs('show', path, 'ids', 'model.layer', code=EXIT_RULES)
    assert "no tensor has the key 'model.layer'" in done.stderr and done.stdout == ''


def test_json_has_what_is_known_of_one(model):
    path, arrays = model
    shown = json.loads(weightfs('show', '--json', path).stdout)['tensors']
    assert {one['key'] for one in shown} == set(arrays)
    for one in shown[:5]:
        alone = json.loads(weightfs('show', '--json', path, one['key']).stdout)['tensors'][0]
        assert one == {name: alone[name] for name in one}
        assert {'key', 'dtype', 'shape', 'bytes', 'n_elems', 'stats', 'histogram'} == set(one)


def test_csv(model):
    path, arrays = model
    found = list(csv.DictReader(io.StringIO(weightfs('show', '--csv', path).stdout)))
    assert [row['key'] for row in found] == list(st.read(path).tensors)
    for row in found:
        array = arrays[row['key']]
        check_numbers([row['min'], row['max'], row['mean'], row['std']], array)
        assert json.loads(row['shape']) == list(array.shape) and int(row['nan']) == numpy.isnan(array).sum()


@pytest.mark.parametrize('order', ['size', 'min', 'max', 'mean', 'std', 'zeros', 'nan'])
def test_sorted(model, order):
    path, arrays = model
    found = list(csv.DictReader(io.StringIO(weightfs('show', '--csv', '--sort', order, path).stdout)))
    values = [float(row[order]) if order != 'size' else arrays[row['key']].nbytes for row in found]
    assert values == sorted(values, reverse=True) and len(found) == len(arrays)


def test_elements_that_are_not_numbers_have_no_statistics(folder):
    path = st.write(folder / 'x', {'c': ('C64', [2], bytes(16)), 'b': ('BOOL', [2], b'\0\1'), 'e': ('F32', [0], b'')})
    assert rows(weightfs('show', path).stdout) == {
        'c': ['C64', '[2]', *'-------', ''], 'b': ['BOOL', '[2]', '0', '1', '0.5', '0.5', '1', '0', '0', ''],
        'e': ['F32', '[0]', *'----', '0', '0', '0', '']}


@pytest.mark.parametrize('options, text', [
    (['--fold', '--json'], '--fold cannot be combined with --json'), (['--fold', '--no-fold'], '--fold cannot be combined with --no-fold'),
    (['--csv', '--json'], '--json cannot be combined with --csv'), (['--sort=nosuch'], "--sort must be key, none, size"),
    (['--fold', '--sort=none'], '--fold cannot be combined with --sort=none'), (['--slice=0'], 'missing KEY, which --slice needs'),
])
def test_what_does_not_fit_together(model, options, text):
    assert text in weightfs('show', *options, model[0], code=EXIT_USAGE).stderr
