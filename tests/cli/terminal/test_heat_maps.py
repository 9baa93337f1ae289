# SPDX-License-Identifier: MIT
"""What `show --slice` draws of a matrix on a terminal, against means by numpy."""
import numpy
import pytest

from wfs_testlib import st, terminal
from wfs_testlib.program import weightfs

SHADES = '·░▒▓█'


def write(folder, array, dtype='F32'):
    return st.write(folder / 'm.safetensors', {'m': (dtype, list(array.shape), array.tobytes())})


def drawn(screen):
    """The lines of the map, and the legend below them."""
    start = screen.lines.index('values:') + 1
    end = next(i for i in range(start, len(screen.lines)) if screen.lines[i].startswith(('  · ', '  no finite')) and ';' in screen.lines[i])
    return [line[2:] for line in screen.lines[start:end]], screen.lines[end]


def shades(means):
    low, high = numpy.nanmin(means), numpy.nanmax(means)
    shares = numpy.clip(((means - low) / (high - low) * len(SHADES)).astype(int), 0, len(SHADES) - 1)
    return [''.join(SHADES[share] for share in row) for row in shares]


@pytest.mark.parametrize('columns', [40, 80, 200])
def test_each_character_is_the_mean_of_its_elements(folder, columns):
    """24 rows, and no more columns than the terminal has: of 96 by 2 (columns - 4) elements, 4 by 2 are one."""
    array = numpy.random.default_rng(columns).normal(size=(96, 2 * (columns - 4))).astype('<f4')
    lines, legend = drawn(terminal.screen('show', write(folder, array), 'm', '--slice=:,:', columns=columns))
    assert lines == shades(array.astype('f8').reshape(24, 4, columns - 4, 2).mean(axis=(1, 3)))
    assert legend.startswith('  · -') and ' means of 4 x 2;' in legend


def test_a_small_matrix_has_its_numbers_below(folder):
    array = numpy.arange(12, dtype='<f4').reshape(3, 4)
    path = write(folder, array)
    screen = terminal.screen('show', path, 'm', '--slice=:,:')
    lines, legend = drawn(screen)
    assert lines == shades(array) and legend.startswith('  · 0 to █ 11;')
    plain = weightfs('show', path, 'm', '--slice=:,:').stdout
    assert screen.text.endswith(plain[plain.index('values:\n') + 8:].rstrip('\n')) and '█' not in plain


def test_what_is_not_finite_is_seen(folder):
    array = numpy.zeros((40, 300), '<f4')
    array[0, 0], array[39, 299] = numpy.nan, numpy.inf
    lines, _ = drawn(terminal.screen('show', write(folder, array), 'm', '--slice=:,:'))
    assert (lines[0][0], lines[-1][-1]) == ('×', '×') and ''.join(lines).count('×') == 2
    array[:] = numpy.nan
    lines, legend = drawn(terminal.screen('show', write(folder, array), 'm', '--slice=:,:'))
    assert set(''.join(lines)) == {'×'} and 'no finite element' in legend


def test_each_matrix_of_a_larger_slice_is_drawn(folder):
    array = numpy.arange(2 * 3 * 50, dtype='<f4').reshape(2, 3, 50)
    text = terminal.screen('show', write(folder, array), 'm', '--slice=:,:,:').text
    assert text.count('·') > 2 and '[0, :, :]:\n' in text and '[1, :, :]:\n' in text and text.count(' to █ ') == 2


@pytest.mark.parametrize('ranges', [':1,:', ':,0', '0', '3:3,:'])
def test_a_vector_and_nothing_are_not_drawn(folder, ranges):
    array = numpy.arange(30, dtype='<f4').reshape(5, 6)
    path = write(folder, array)
    assert terminal.screen('show', path, 'm', '--slice=' + ranges, NO_COLOR='1').text == weightfs('show', path, 'm', '--slice=' + ranges).stdout.rstrip('\n')


def test_complex_numbers_are_printed_only(folder):
    array = numpy.ones((4, 6), '<c8')
    assert ' to █ ' not in terminal.screen('show', write(folder, array, 'C64'), 'm', '--slice=:,:').text
