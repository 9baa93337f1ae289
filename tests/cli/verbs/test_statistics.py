# SPDX-License-Identifier: MIT
"""Statistics against exact sums, whatever the size, the order of magnitude, and the number of processors."""
import fractions
import json
import math
import os
import subprocess

import numpy
import pytest

from wfs_testlib import program, pth, st
from wfs_testlib.program import weightfs

EPSILON = 2.0 ** -53
LAYOUTS = {'F64': '<f8', 'F32': '<f4', 'F16': '<f2', 'I8': 'i1', 'U16': '<u2', 'I32': '<i4', 'I64': '<i8'}
# Around blocks of 2^11 elements, pieces of 2^15 and parts of 2^20.
SIZES = [1, 2, 31, 32, 33, 2047, 2048, 2049, 32769, 100003, (1 << 20) - 1, (1 << 20) + 2049, (5 << 20) + 77]


def write(path, array, dtype):
    return st.write(path, {'w': (dtype, list(array.shape), array.tobytes())})


def shown(path, prefix=()):
    ran = subprocess.run([*prefix, *program.COMMAND, 'show', '--json', path, 'w'], stdout=subprocess.PIPE, check=True)
    return json.loads(ran.stdout)['tensors'][0]


def judge(stats, array):
    numbers = array.astype('f8')
    finite = numbers[numpy.isfinite(numbers)]
    counts = [finite.size, int((finite == 0).sum()), int(numpy.isnan(numbers).sum()), int((numbers == numpy.inf).sum()), int((numbers == -numpy.inf).sum())]
    assert [stats[name] for name in ('finite', 'zero', 'nan', 'positive_inf', 'negative_inf')] == counts
    if finite.size == 0:
        return
    assert (stats['min'], stats['max']) == (finite.min(), finite.max())
    mean = math.fsum(finite) / finite.size
    assert abs(stats['mean'] - mean) <= 16 * EPSILON * abs(finite).max()
    # The distances of rounded numbers from a rounded mean are exact enough: its error counts as its square.
    std = math.sqrt(math.fsum((finite - mean) ** 2) / finite.size)
    assert abs(stats['std'] - std) <= 64 * EPSILON * std + 4 * EPSILON * abs(mean)


@pytest.mark.parametrize('dtype', LAYOUTS)
@pytest.mark.parametrize('n', SIZES)
def test_sums_are_exact_but_for_the_last_bits(folder, dtype, n):
    kind = numpy.dtype(LAYOUTS[dtype])
    generator = numpy.random.default_rng(n)
    if kind.kind == 'f':
        array = (generator.standard_normal(n) * 3 + 1).astype(kind)
    else:
        limits = numpy.iinfo(kind)
        array = generator.integers(max(limits.min, -2 ** 52), min(limits.max, 2 ** 52), n).astype(kind)
    judge(shown(write(folder / 'x', array, dtype))['stats'], array)


@pytest.mark.parametrize('name', ['offset', 'outlier', 'sorted', 'alternating', 'ramps', 'subnormal'])
def test_sums_that_cancel(folder, name):
    n = 300_001
    generator = numpy.random.default_rng(7)
    array = {
        'offset': 1e8 + generator.standard_normal(n),
        'outlier': numpy.concatenate([[1e18], generator.standard_normal(n - 2), [-1e18]]),
        'sorted': numpy.sort(generator.standard_normal(n) * 1e6),
        'alternating': numpy.resize([1e12, -1e12, 1.0], n),
        'ramps': numpy.arange(n) % 4096 * 0.1,
        'subnormal': generator.integers(1, 99, n) * 5e-324,
    }[name].astype('<f8')
    stats = shown(write(folder / 'x', array, 'F64'))['stats']
    if name == 'subnormal':
        exact = fractions.Fraction(0)
        for number in array:
            exact += fractions.Fraction(float(number))
        assert stats['mean'] == float(exact / n)
    else:
        judge(stats, array)


@pytest.mark.parametrize('number', [0.1, -0.1, 1e300, 1.7e308, 5e-324, 3.0, 0.0, -0.0])
@pytest.mark.parametrize('n', [1, 3, 2049, 70_001])
def test_equal_numbers_have_their_mean_and_do_not_deviate(folder, number, n):
    stats = shown(write(folder / 'x', numpy.full(n, number, '<f8'), 'F64'))['stats']
    assert (stats['min'], stats['max'], stats['mean'], stats['std']) == (number, number, number, 0)
    assert math.copysign(1, stats['min']) == (-1 if number < 0 else 1)


def test_numbers_whose_sum_is_too_large(folder):
    array = numpy.resize(numpy.array([1.7e308, 1.6e308, 1.5e308], '<f8'), 30_000)
    array[5] = numpy.nan
    stats = shown(write(folder / 'x', array, 'F64'))['stats']
    exact = sum(fractions.Fraction(float(number)) for number in array if not math.isnan(number)) / 29_999
    assert abs(stats['mean'] / float(exact) - 1) <= 16 * EPSILON
    assert stats['nan'] == 1


@pytest.mark.parametrize('share', [0.00001, 0.3, 1])
def test_what_is_not_finite_is_left_out(folder, share):
    generator = numpy.random.default_rng(3)
    array = generator.standard_normal(200_000).astype('<f4')
    odd = generator.random(array.size) < share
    odd[77] = True
    array[odd] = generator.choice(numpy.array([numpy.nan, numpy.inf, -numpy.inf], '<f4'), int(odd.sum()))
    judge(shown(write(folder / 'x', array, 'F32'))['stats'], array)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason='needs two processors')
def test_one_processor_and_all_print_the_same(folder):
    generator = numpy.random.default_rng(5)
    array = (generator.standard_normal((3001, 1499)) * 10.0 ** generator.integers(-8, 8, (3001, 1499))).astype('<f4')
    other = array.copy()
    other[::7] *= numpy.float32(1.01)
    a = write(folder / 'a.safetensors', array, 'F32')
    b = write(folder / 'b.safetensors', other, 'F32')
    for command in (['show', '--json', a, 'w'], ['show', a], ['diff', '--long', a, b], ['diff', '--json', a, b], ['sum', a], ['check', '--values', '--json', a],
                    ['show', '--percentiles', '--json', a, 'w']):
        outputs = {subprocess.run([*prefix, *program.COMMAND, *command], stdout=subprocess.PIPE).stdout for prefix in (['taskset', '-c', '0'], [])}
        assert len(outputs) == 1, command


def test_the_order_of_a_transposed_tensor_is_that_of_what_is_shown(folder):
    """The same elements in the same order have the same sums, however they are stored."""
    array = numpy.random.default_rng(1).standard_normal((1500, 1100)).astype('<f4')
    stored = folder / 'x.pth'
    stored.write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(pth.storage(numel=array.size), 0, (1100, 1500), (1, 1100))), r0=array.tobytes()))
    dense = write(folder / 'dense.safetensors', numpy.ascontiguousarray(array.T), 'F32')
    assert shown(stored)['stats'] == shown(dense)['stats']


# ---- classes by bits: each code of the narrow types ----

# exponent bits, mantissa bits, has infinities, and the codes without a sign that are NaN in the types that have none
NARROW = {
    'F16': (5, 10, True), 'BF16': (8, 7, True), 'F8_E5M2': (5, 2, True), 'F8_E4M3': (4, 3, False), 'F8_E8M0': None, 'F8_E4M3FNUZ': None, 'F8_E5M2FNUZ': None,
}


def class_of(dtype, code):
    """'nan', 'inf' or ''."""
    if dtype == 'F8_E8M0':
        return 'nan' if code == 255 else ''
    if dtype.endswith('FNUZ'):
        return 'nan' if code == 128 else ''
    n_exponent, n_mantissa, has_inf = NARROW[dtype]
    exponent, mantissa = code >> n_mantissa & (1 << n_exponent) - 1, code & (1 << n_mantissa) - 1
    if exponent != (1 << n_exponent) - 1:
        return ''
    if has_inf:
        return 'nan' if mantissa else 'inf'
    return 'nan' if mantissa == (1 << n_mantissa) - 1 else ''


@pytest.mark.parametrize('dtype', NARROW)
def test_each_code_of_a_narrow_float_is_in_its_class(folder, dtype):
    n_bytes = 2 if dtype in ('F16', 'BF16') else 1
    codes = range(256 ** n_bytes)
    array = numpy.array(codes, '<u2' if n_bytes == 2 else 'u1')
    classes = [class_of(dtype, code) for code in codes]
    found = weightfs('check', '--values', write(folder / 'x', array, dtype), code=None).stdout
    for kind, text in (('nan', 'NaN'), ('inf', 'infinite')):
        n = classes.count(kind)
        expected = '%d of %d elements %s %s, first at [%d]' % (n, len(codes), 'is' if n == 1 else 'are', text, classes.index(kind)) if n else ''
        assert expected in found and (n or text not in found), found


@pytest.mark.parametrize('n', [2, 2048, 2049, 40_000, (1 << 20) + 5])
@pytest.mark.parametrize('dtype', ['F32', 'BF16', 'I8', 'U64', 'F64'])
def test_equal_elements_are_found_in_tensors_of_any_size(folder, dtype, n):
    n_bytes = {'F32': 4, 'BF16': 2, 'I8': 1, 'U64': 8, 'F64': 8}[dtype]
    one = numpy.array([64] * n_bytes, 'u1')

    def line(change=None):
        array = numpy.tile(one, n)
        if change is not None:
            array[change * n_bytes:(change + 1) * n_bytes] = 63
        return 'the same number' in weightfs('check', '--values', st.write(folder / 'x', {'w': (dtype, [n], array.tobytes())})).stdout

    assert line()
    assert not line(n - 1) and not line(0) and not line(n // 2)


def test_zeros_of_both_signs_are_only_zeros(folder):
    array = numpy.zeros(5000, '<f4')
    array[1::2] *= -1
    array[4000] = -0.0
    assert 'has only zeros' in weightfs('check', '--values', write(folder / 'x', array, 'F32')).stdout


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason='needs two processors')
@pytest.mark.parametrize('options', [['--cast=BF16'], ['--cast=F64'], ['--average=b.safetensors'], ['--lora=adapter']])
def test_one_processor_and_all_write_the_same(folder, options):
    generator = numpy.random.default_rng(6)
    arrays = {key: generator.standard_normal(shape).astype('<f4') for key, shape in (('a.weight', (2047, 1031)), ('b.weight', (1, 3)), ('c.weight', (1500001,)))}
    for name, factor in (('a', 1), ('b', 3)):
        st.write(folder / (name + '.safetensors'), {key: ('F32', list(array.shape), (array * numpy.float32(factor)).tobytes()) for key, array in arrays.items()})
    (folder / 'adapter').mkdir()
    (folder / 'adapter/adapter_config.json').write_text('{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["a"]}')
    factors = {'A': generator.standard_normal((4, 1031)).astype('<f4'), 'B': generator.standard_normal((2047, 4)).astype('<f4')}
    st.write(folder / 'adapter/adapter_model.safetensors',
             {'base_model.model.a.lora_%s.weight' % name: ('F32', list(array.shape), array.tobytes()) for name, array in factors.items()})
    outputs = set()
    for prefix in (['taskset', '-c', '0'], []):
        subprocess.run([*prefix, *program.COMMAND, 'convert', '--overwrite', *options, 'a.safetensors', 'out.safetensors'], cwd=folder, check=True)
        outputs.add((folder / 'out.safetensors').read_bytes())
    assert len(outputs) == 1 and (folder / 'a.safetensors').read_bytes() not in outputs
