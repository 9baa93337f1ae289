# SPDX-License-Identifier: MIT
"""What `show` prints of a tensor beside its statistics: percentiles, slices, a histogram in one line; numpy is the judge."""
import json
import os
import pathlib
import random
import resource
import signal
import subprocess

import numpy
import pytest

from wfs_testlib import program, pth, st, terminal
from wfs_testlib.mount import wait_for
from wfs_testlib.program import EXIT_RULES, EXIT_USAGE, weightfs

RANKS = [1, 5, 25, 50, 75, 95, 99]
NUMBERS = {'F64': '<f8', 'F32': '<f4', 'F16': '<f2', 'I8': 'i1', 'U8': 'u1', 'I16': '<i2', 'U16': '<u2', 'I32': '<i4', 'U32': '<u4', 'I64': '<i8', 'U64': '<u8'}


def write(path, array, dtype):
    return st.write(path, {'w': (dtype, list(array.shape), array.tobytes())})


def percentiles_of(array):
    """The smallest element that so many percent are not above."""
    finite = array[numpy.isfinite(array)]
    return [float(value) for value in numpy.percentile(finite, RANKS, method='inverted_cdf')]


def shown(path, *options):
    return json.loads(weightfs('show', '--json', '--percentiles', *options, path, 'w').stdout)['tensors'][0]


@pytest.mark.parametrize('dtype', NUMBERS)
def test_percentiles_are_elements(folder, dtype):
    kind = numpy.dtype(NUMBERS[dtype])
    generator = numpy.random.default_rng(len(dtype) + kind.itemsize)
    for n in (2, 3, 99, 100, 101, 30000):
        if kind.kind == 'f':
            array = (generator.standard_normal(n) * 10.0 ** generator.integers(-3, 4, n)).astype(kind)
        else:
            limits = numpy.iinfo(kind)
            # A double holds these: above 2^53 neighbours are one number to the statistics.
            array = generator.integers(max(limits.min, -2 ** 52), min(limits.max, 2 ** 52), n, dtype='i8').astype(kind)
        path = write(folder / 'x', array, dtype)
        assert list(shown(path)['percentiles']) == [str(rank) for rank in RANKS]
        assert list(shown(path)['percentiles'].values()) == percentiles_of(array), n


@pytest.mark.parametrize('values', [
    [numpy.nan, 1, 2, numpy.inf, -numpy.inf, 3], [0.0, -0.0, 1e-45, -1e-45], [-1, 1], [3.4e38, -3.4e38, 0, 1, 1, 1], [5] * 1000 + [6],
])
def test_percentiles_of_odd_numbers(folder, values):
    array = numpy.array(values, '<f4')
    assert list(shown(write(folder / 'x', array, 'F32'))['percentiles'].values()) == percentiles_of(array)


def test_percentiles_of_nothing(folder):
    for array in (numpy.array([], '<f4'), numpy.array([numpy.nan], '<f4'), numpy.array([2, 2], '<f4')):
        assert 'percentiles' not in shown(write(folder / 'x', array, 'F32'))


def test_percentiles_count_repeated_elements(folder):
    """A view shows 2^40 elements of a few."""
    of = pth.storage(numel=4)
    path = folder / 'x.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(of, 0, (1 << 38, 4), (0, 1))), r0=st.f32(1, 2, 3, 4)))
    assert list(shown(path)['percentiles'].values()) == [1, 1, 1, 2, 3, 4, 4]


def test_pipes_get_what_they_got(folder):
    path = write(folder / 'x', numpy.arange(100, dtype='<f4'), 'F32')
    text = weightfs('show', path, 'w').stdout
    assert 'percentiles' not in text and text.count('\n  from ') == 16
    assert 'percentiles' not in json.loads(weightfs('show', '--json', path, 'w').stdout)['tensors'][0]
    assert '\npercentiles: 1% 0, 5% 4, 25% 24, 50% 49, 75% 74, 95% 94, 99% 98\n' in weightfs('show', '--percentiles', path, 'w').stdout


def test_a_terminal_gets_a_histogram_in_one_line(folder):
    array = numpy.repeat(numpy.arange(16), [0, 1, 100, 50] + [0] * 11 + [1]).astype('<f4')
    array[0] = 0
    path = write(folder / 'x', array, 'F32')
    (line,) = [line for line in terminal.screen('show', path, 'w').lines if line.startswith('histogram: ')]
    assert line == 'histogram: 0 \u2581 \u2588\u2584' + ' ' * 11 + '\u2581 15'
    assert 'percentiles: 1% 2' in terminal.screen('show', path, 'w').text
    assert '  from 0 ' in terminal.screen('show', '--histogram', path, 'w').text


# ---- slices ----

def random_part(chance, n):
    """A part of a slice for a dimension of n, as it is spelled and as Python has it."""
    def number():
        return chance.randint(-n - 1, n + 1)
    if n > 0 and chance.random() < 0.3:
        index = chance.randint(-n, n - 1)
        return str(index), index
    start, stop, step = [number() if chance.random() < 0.5 else None for _ in range(2)] + [chance.randint(1, 3) if chance.random() < 0.3 else None]
    text = ':'.join(['' if value is None else str(value) for value in (start, stop)])
    return text + ('' if step is None else ':%d' % step), slice(start, stop, step)


def test_slices_are_those_of_numpy(folder):
    chance = random.Random(7)
    for _ in range(60):
        shape = [chance.randint(0, 5) for _ in range(chance.randint(1, 4))]
        array = numpy.arange(numpy.prod(shape, dtype=int), dtype='<i4').reshape(shape)
        path = write(folder / 'x', array, 'I32')
        parts = [random_part(chance, n) for n in shape[:chance.randint(1, len(shape))]]
        expected = array[tuple(part for _, part in parts)]
        found = shown(path, '--slice', ','.join(text for text, _ in parts))
        assert found['slice_shape'] == list(expected.shape) and found['values'] == expected.ravel().tolist(), parts
        text = weightfs('show', '--slice', ','.join(text for text, _ in parts), path, 'w').stdout.split('values:\n')[1]
        rows = [line.split() for line in text.splitlines() if not line.endswith(':')]
        assert [int(word) for row in rows for word in row] == expected.ravel().tolist()
        if expected.size and expected.ndim:
            assert {len(row) for row in rows} == {expected.shape[-1]}


def test_the_matrices_of_a_slice_have_headings(folder):
    array = numpy.arange(24, dtype='u1').reshape(2, 3, 4)
    text = weightfs('show', '--slice', '::1,1:,:2', write(folder / 'x', array, 'U8'), 'w').stdout
    assert text.split('values:\n')[1] == ('[0, :, :]:\n             4            5\n             8            9\n'
                                          '[1, :, :]:\n            16           17\n            20           21\n')


def test_slices_of_scalars_and_of_elements_below_a_byte(folder):
    path = st.write(folder / 'x', {'s': ('F32', [], st.f32(2.5)), 'w': ('F4', [2, 4], bytes([0x10, 0x32, 0x54, 0x76]))})
    assert json.loads(weightfs('show', '--json', '--slice=1,1:3', path, 'w').stdout)['tensors'][0]['values'] == [3, 4]
    assert "it has 0 dimensions" in weightfs('show', '--slice=0', path, 's', code=EXIT_RULES).error
    assert json.loads(weightfs('show', '--json', '--slice=', path, 's').stdout)['tensors'][0]['values'] == [2.5]


@pytest.mark.parametrize('text, why', [
    ('2', 'out of range'), ('-3', 'out of range'), ('0,0,0', 'it has 2 dimensions'), ('', 'START:STOP:STEP'), ('x', 'START:STOP:STEP'),
    ('0:1:0', 'at least 1'), ('::-1', 'at least 1'), ('1:2:3:4', 'START:STOP:STEP'), ('0,', 'comma'), (':,', 'comma'), ('--1', 'START:STOP:STEP'),
    ('99999999999999999999', 'START:STOP:STEP'), ('0 ', 'START:STOP:STEP'), (',0', 'START:STOP:STEP'),
])
def test_a_wrong_slice_is_refused(folder, text, why):
    path = write(folder / 'x', numpy.zeros((2, 3), '<f4'), 'F32')
    error = weightfs('show', '--slice', text, path, 'w', code=EXIT_RULES).error
    assert "--slice '%s' of tensor 'w': " % text in error and why in error


# ---- several, large ----

def test_several_keys(small):
    text = weightfs('show', small, 'a.b.bias', 'step').stdout
    assert text == weightfs('show', small, 'a.b.bias').stdout + '\n' + weightfs('show', small, 'step').stdout
    both = json.loads(weightfs('show', '--json', small, 'a.b.bias', 'step').stdout)['tensors']
    assert both == [json.loads(weightfs('show', '--json', small, key).stdout)['tensors'][0] for key in ('a.b.bias', 'step')]
    assert weightfs('show', small, 'a.b.bias', 'nosuch', code=EXIT_RULES).stdout == ''


@pytest.fixture
def vast(folder):
    """2^36 elements, none of which are on the disk."""
    path = folder / 'vast.safetensors'
    st.write_parts(path, [], head='{"w":{"dtype":"F32","shape":[262144,262144],"data_offsets":[0,274877906944]}}')
    with open(path, 'r+b') as file:
        file.truncate(path.stat().st_size + 274877906944)
    return path


def test_a_slice_reads_no_more_than_itself(vast):
    limits = (resource.RLIMIT_CPU, (5, 5))
    done = weightfs('show', '--slice=-2:,-3:', vast, 'w', preexec_fn=lambda: resource.setrlimit(*limits))
    assert done.stdout.endswith('values:\n             0            0            0\n             0            0            0\n')


def n_read(pid):
    (line,) = [line for line in pathlib.Path('/proc/%d/io' % pid).read_text().splitlines() if line.startswith('rchar')]
    return int(line.split()[1])


@pytest.mark.parametrize('options', [[], ['--slice=:']])
def test_it_can_be_interrupted(vast, options):
    with subprocess.Popen([*program.COMMAND, 'show', *options, vast, 'w'], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(lambda: process.poll() is not None or n_read(process.pid) > 1 << 20 or (options and os.read(process.stdout.fileno(), 1 << 16)),
                 'the reading of the tensor')
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        assert process.wait(program.PATIENCE) == -signal.SIGINT
