# SPDX-License-Identifier: MIT
"""Sums of checkpoints beside numpy, between formats; what does not fit; scales of blocks."""
import json

import numpy
import pytest

from wfs_testlib import merging, st
from wfs_testlib.program import weightfs

KEYS = {'a.w': (33, 70), 'b.w': (5, 4, 3), 'b.b': (70,)}


def write(path, seed, dtype='BF16', keys=KEYS, extra=()):
    values = {key: merging.rounded(numpy.random.default_rng(seed).standard_normal(shape), dtype)[0] for key, shape in keys.items()}
    tensors = {key: (dtype, list(one.shape), merging.encode(one, dtype)) for key, one in values.items()}
    st.write(path, {**tensors, **dict(extra)})
    return values


@pytest.fixture
def three(memory):
    return [memory / name for name in ('one.safetensors', 'two.safetensors', 'three.safetensors')]


def result(memory, source, *options, **expected):
    weightfs('convert', *options, source, memory / 'out.safetensors', '--overwrite', has_notices=True, **expected)
    return merging.arrays(memory / 'out.safetensors')


def check(found, exact, dtype='BF16'):
    for key, values in exact.items():
        assert found[key][0] == dtype
        assert merging.differences(found[key][1], values.astype('<f8'), dtype, numpy.abs(values).astype('<f8') + 4) == 0, key


def wide(values):
    return {key: one.astype(numpy.longdouble) for key, one in values.items()}


def test_a_mean_of_three_formats(memory, three):
    values = [wide(write(path, seed)) for path, seed in zip(three, (1, 2, 3))]
    weightfs('convert', three[1], memory / 'two.pth')
    weightfs('convert', '--max-shard-size=4K', '--format=safetensors', three[2], '%s/' % (memory / 'shards'))
    found = result(memory, three[0], '--average=%s:2' % (memory / 'two.pth'), '--average=%s:0.5' % (memory / 'shards'), '--weight=1.5')
    check(found, {key: (1.5 * values[0][key] + 2 * values[1][key] + 0.5 * values[2][key]) / 4 for key in KEYS})
    # The value that is cast has not been rounded.
    found = result(memory, three[0], '--average=%s' % three[1], '--cast=F32')
    check(found, {key: (values[0][key] + values[1][key]) / 2 for key in KEYS}, 'F32')


def test_weights_by_key_and_tasks(memory, three):
    values = [wide(write(path, seed, 'F32')) for path, seed in zip(three, (1, 2, 3))]
    found = result(memory, three[0], '--add=^a:%s:0.25' % three[1], '--task=!^a:%s:-0.5' % three[2], '--task=b$:%s:2' % three[1])
    check(found, {'a.w': values[0]['a.w'] + 0.25 * values[1]['a.w'], 'b.w': values[0]['b.w'] - 0.5 * (values[2]['b.w'] - values[0]['b.w']),
                  'b.b': values[0]['b.b'] - 0.5 * (values[2]['b.b'] - values[0]['b.b']) + 2 * (values[1]['b.b'] - values[0]['b.b'])}, 'F32')


def test_an_arc(memory, three):
    one, two = (wide(write(path, seed, 'F32'))['a.w'] for path, seed in zip(three, (1, 2)))
    cosine = (one * two).sum() / numpy.sqrt((one * one).sum()) / numpy.sqrt((two * two).sum())
    angle = numpy.arccos(cosine)
    found = result(memory, three[0], '--slerp=a:%s:0.3' % three[1])
    exact = numpy.sin(0.7 * angle) / numpy.sin(angle) * one + numpy.sin(0.3 * angle) / numpy.sin(angle) * two
    assert numpy.abs(found['a.w'][1] - exact).max() < 1e-6


def test_what_does_not_fit_is_named(memory, three):
    write(three[0], 1, extra={'n': ('I64', [1], b'\1' * 8)})
    write(three[1], 2, extra={'n': ('I64', [1], b'\2' * 8)})
    for options, text in ((['--add=%s' % three[1]], "add '%s': 'n' is I64 here and I64 there, and differs" % three[1]),
                          (['--average=a:%s:-1' % three[1]], 'has weights whose sum is 0'),
                          (['--average=%s:inf' % three[1]], 'inf'), (['--slerp=%s' % three[1]], 'is not of the form FILE:T'),
                          (['--add=nothing:%s' % three[1]], 'it changes no tensor')):
        assert text in weightfs('ls', *options, three[0], code=None).error
    write(three[2], 3, keys={'a.w': (33, 70), 'b.w': (5, 4, 4)})
    assert "'b.w' has another shape there: [5, 4, 4], here [5, 4, 3]" in weightfs('ls', '--add=%s' % three[2], '--partial', three[0], code=7).error
    assert "'b.b' is not in it" in weightfs('ls', '--add=^b.b:%s' % three[2], three[0], code=7).error
    found = result(memory, three[0], '--add=^(a.w|b.b):%s' % three[2], '--partial')
    assert numpy.array_equal(found['b.b'][1], merging.arrays(three[0])['b.b'][1])


def test_integers_that_are_equal_stay(memory, three):
    for path, seed in zip(three, (1, 2)):
        write(path, seed, extra={'n': ('I64', [1], b'\1' * 8)})
    weightfs('convert', '--average=%s' % three[1], three[0], memory / 'out.safetensors')
    assert st.read(memory / 'out.safetensors').tensors['n'][2] == b'\1' * 8


def test_scales_of_blocks_whose_last_ones_are_short(memory):
    codes = numpy.arange(130 * 140, dtype='u1').reshape(130, 140) & 0x77
    scales = numpy.array([[0.1, 0.2], [0.3, 0.4]], '<f4')
    st.write(memory / 'in.safetensors', {'m.weight': ('F8_E4M3', [130, 140], codes.tobytes()), 'm.weight_scale_inv': ('F32', [2, 2], scales.tobytes()),
                                         'm.input_scale': ('F32', [], st.f32(1)), 'n': ('F32', [1], st.f32(1))})
    found = result(memory, memory / 'in.safetensors', '--dequantize', '--cast=F32')
    exponent, mantissa = (codes >> 3 & 15).astype(int), (codes & 7).astype('<f4')
    values = numpy.where(exponent == 0, mantissa / 8 * 2.0 ** -6, (1 + mantissa / 8) * 2.0 ** (exponent - 7)).astype('<f4')
    exact = values * scales.repeat(128, 0).repeat(128, 1)[:130, :140]
    assert numpy.array_equal(found['m.weight'][1].astype('<f4'), exact) and set(found) == {'m.weight', 'n'}
    plan = json.loads(weightfs('plan', '--json', '--dequantize', memory / 'in.safetensors').stdout)
    assert [one['key'] for one in plan['computed']] == ['m.weight']


def test_what_is_fused_is_rounded_once(memory, three):
    keys = {'m.k_proj.weight': (8, 16), 'm.q_proj.weight': (8, 16)}
    one, two = (wide(write(path, seed, keys=keys)) for path, seed in zip(three, (1, 2)))
    mean = {key: (one[key] + two[key]) / 2 for key in keys}
    for average in three[1], 'q_proj:%s' % three[1]:
        found = result(memory, three[0], '--average=%s' % average, '--fuse=qkv.weight:q_proj.weight,k_proj.weight', '--cast=F32')
        other = mean if average == three[1] else one
        check(found, {'m.qkv.weight': numpy.concatenate([mean['m.q_proj.weight'], other['m.k_proj.weight']])}, 'F32')
