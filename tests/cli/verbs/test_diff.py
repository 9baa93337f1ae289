# SPDX-License-Identifier: MIT
"""Two checkpoints compared; numpy says what the answer is."""
import json
import struct

import numpy
import pytest

from wfs_testlib import burnpack, pth, st, terminal
from wfs_testlib.program import EXIT_DAMAGED, EXIT_FOUND, EXIT_SOURCE, EXIT_USAGE, IS_INSTRUMENTED, run_measured, weightfs

CODES = {'F16': '<f2', 'F32': '<f4', 'F64': '<f8', 'I8': '<i1', 'U8': '<u1', 'I16': '<i2', 'U16': '<u2', 'I32': '<i4',
         'U32': '<u4', 'I64': '<i8', 'U64': '<u8', 'C64': '<c8'}


def pair(folder, a, b, metadata=(None, None)):
    return (st.write(folder / 'a.safetensors', a, metadata[0]), st.write(folder / 'b.safetensors', b, metadata[1]))


def differ(*args, code=EXIT_FOUND):
    return json.loads(weightfs('diff', '--json', *args, code=code).stdout)


def tensor(array, dtype):
    return (dtype, list(array.shape), array.astype(CODES[dtype]).tobytes())


def oracle(x, y):
    """What differs of two arrays: how many elements, how many NaN in one only, the largest differences."""
    wide = numpy.clongdouble if x.dtype.kind == 'c' else numpy.longdouble
    x, y = x.astype(wide).ravel(), y.astype(wide).ravel()
    same = (x == y) | (numpy.isnan(x) & numpy.isnan(y))
    nan = ~same & (numpy.isnan(x) | numpy.isnan(y))
    left = ~same & ~nan
    gap = numpy.abs(x[left] - y[left])
    size = numpy.maximum(numpy.abs(x[left]), numpy.abs(y[left]))
    return int((~same).sum()), int(nan.sum()), gap, gap / size


def test_equal_files_are_equal_and_nothing_is_printed(small, folder):
    other = folder / 'other.safetensors'
    other.write_bytes(small.read_bytes())
    assert weightfs('diff', small, other).stdout == ''
    none = {'n_only_a': 0, 'n_only_b': 0, 'n_renamed': 0, 'n_changed': 0, 'n_equal': 5, 'is_equal': True}
    assert differ(small, other, code=0) == {'schema': 1, 'only_a': [], 'only_b': [], 'renamed': [], 'changed': [], **none}
    assert terminal.screen('diff', small, other, columns=500).text == 'A %s, B %s: 0 only in A, 0 only in B, 0 changed, 5 equal' % (small, other)


def test_the_order_of_the_data_and_the_format_are_no_difference(small, folder):
    parts = [(key, *value) for key, value in reversed(st.read(small).tensors.items())]
    other = st.write_parts(folder / 'other', parts)
    weightfs('diff', small, other)
    weightfs('convert', small, folder / 'other.bpk')
    weightfs('diff', small, folder / 'other.bpk')


def test_keys_in_one_only_are_told_with_dtype_and_shape(folder):
    files = pair(folder, {'same': ('U8', [1], b'x'), 'old\n': ('F32', [2], st.f32(1, 2))},
                 {'same': ('U8', [1], b'x'), 'new': ('I64', [], bytes(8)), 'newer': ('U8', [0, 3], b'')})
    result = differ(*files)
    assert result['only_a'] == [{'key': 'old\n', 'dtype': 'F32', 'shape': [2]}]
    assert result['only_b'] == [{'key': 'new', 'dtype': 'I64', 'shape': []}, {'key': 'newer', 'dtype': 'U8', 'shape': [0, 3]}]
    assert (result['changed'], result['n_equal']) == ([], 1)
    assert weightfs('diff', *files, code=EXIT_FOUND).stdout.splitlines() == [
        'only in A: old\\x0a F32 [2]', 'only in B: new I64 []', 'only in B: newer U8 [0, 3]',
        '1 only in A, 2 only in B, 0 changed, 1 equal']


def test_what_has_another_key_only_was_renamed(folder):
    """Not where dtype or shape differ; of several that are equal, in the order of keys."""
    x, y, z = (tensor(numpy.arange(6, dtype='<f4') + n, 'F32') for n in range(3))
    files = pair(folder, {'layer.%d.w' % i: x for i in (10, 9)} | {'y': y, 'shape': z, 'dtype': z, 'same': x, 'empty': ('F32', [0], b'')},
                 {'new.%d.w' % i: x for i in (10, 9)} | {'b.y': y, 'shape2': ('F32', [2, 3], z[2]), 'dtype2': ('I32', [6], z[2]), 'same': x,
                                                         'empty2': ('F32', [0], b'')})
    result = differ(*files)
    assert {row['key']: row['new_key'] for row in result['renamed']} == {'layer.9.w': 'new.9.w', 'layer.10.w': 'new.10.w', 'y': 'b.y'}
    assert {row['key'] for row in result['only_a']} == {'shape', 'dtype', 'empty'} and {row['key'] for row in result['only_b']} == {'shape2', 'dtype2', 'empty2'}
    assert (result['n_renamed'], result['n_equal'], result['changed']) == (3, 1, [])
    text = weightfs('diff', *files, code=EXIT_FOUND).stdout
    assert 'renamed: layer.9.w -> new.9.w\n' in text and text.endswith('3 only in A, 3 only in B, 3 renamed, 0 changed, 1 equal\n')
    words = [line.split() for line in terminal.screen('diff', *files, code=EXIT_FOUND, columns=200).lines]
    assert any(row[:1] == ['y'] and below == ['->', 'b.y'] for row, below in zip(words, words[1:])), words
    table = weightfs('diff', '--long', '--sort=key', *files, code=EXIT_FOUND).stdout
    assert 'layer.10.w -> new.10.w\trenamed\t-\t-\t-\t-\t0\t6\tF32\t[6]\n' in table
    moved = pair(folder, {'y': y}, {'b.y': y})
    assert weightfs('diff', *moved, code=EXIT_FOUND).stdout == 'renamed: y -> b.y\n0 only in A, 0 only in B, 1 renamed, 0 changed, 0 equal\n'


@pytest.mark.parametrize('dtype', CODES)
def test_differences_are_those_that_numpy_finds(folder, dtype):
    random = numpy.random.default_rng(7)
    n = 70000  # more than one piece
    if numpy.dtype(CODES[dtype]).kind in 'iu':
        limits = numpy.iinfo(CODES[dtype])
        x = random.integers(limits.min, limits.max, n, CODES[dtype], endpoint=True)
        y = x.copy()
        y[::1000] = random.integers(limits.min, limits.max, len(y[::1000]), CODES[dtype], endpoint=True)
        y[-1] = x[-1] ^ y.dtype.type(1)
    else:
        x = random.standard_normal(n).astype(CODES[dtype])
        y = x.copy()
        y[::1000] += 0.25
        x[[5, 6, 7]], y[[5, 7]] = numpy.nan, numpy.nan
        x[9] = numpy.nan
        x[11], y[11] = 0.0, -0.0
    (change,) = differ(*pair(folder, {'w': tensor(x.reshape(7, -1), dtype)}, {'w': tensor(y.reshape(7, -1), dtype)}))['changed']
    n_changed, n_nan, gap, rel = oracle(x, y)
    assert (change['compared'], change['changed'], change['nan_in_one']) == (n, n_changed, n_nan)
    assert change['max_abs'] == pytest.approx(float(gap.max()), rel=1e-14)
    assert change['max_rel'] == pytest.approx(float(rel.max()), rel=1e-14)


def test_integers_beyond_what_a_double_holds_are_told_apart(folder):
    for dtype, one, other in [('I64', -2 ** 63, -2 ** 63 + 1), ('U64', 2 ** 64 - 1, 2 ** 64 - 2)]:
        files = pair(folder, {'n': (dtype, [], (one % 2 ** 64).to_bytes(8, 'little'))},
                     {'n': (dtype, [], (other % 2 ** 64).to_bytes(8, 'little'))})
        assert differ(*files)['changed'][0]['max_abs'] == 1


def test_not_a_number_equals_itself_and_zero_minus_zero_unless_bits_count(folder):
    files = pair(folder, {'w': ('F32', [3], struct.pack('<3I', 0x7fc00000, 0x80000000, 0x3f800000))},
                 {'w': ('F32', [3], struct.pack('<3I', 0xffc00001, 0, 0x3f800000))})
    weightfs('diff', *files)
    (change,) = differ('--exact', *files)['changed']
    assert (change['changed'], change['nan_in_one'], change['max_abs']) == (2, 0, 0)


def test_infinities(folder):
    inf = float('inf')
    files = pair(folder, {'w': ('F32', [4], st.f32(inf, inf, 1, inf))}, {'w': ('F32', [4], st.f32(inf, -inf, 1, 1))})
    (change,) = differ(*files)['changed']
    assert (change['changed'], change['max_abs'], change['max_rel']) == (2, 'Infinity', 'Infinity')


def test_a_cast_is_a_change_that_tells_what_it_cost(folder):
    x = numpy.random.default_rng(3).standard_normal((5, 6)).astype('f4')
    files = pair(folder, {'w': tensor(x, 'F32'), 'whole': ('I32', [1], bytes(4))},
                 {'w': tensor(x, 'F16'), 'whole': ('I64', [1], bytes(8))})
    first, second = differ(*files)['changed']
    _, _, gap, rel = oracle(x, x.astype('f2'))
    assert (first['a']['dtype'], first['b']['dtype']) == ('F32', 'F16')
    assert (first['max_abs'], first['max_rel']) == (float(gap.max()), pytest.approx(float(rel.max()), rel=1e-14))
    assert (second['changed'], second['max_abs']) == (0, None)
    assert 'F32 [5, 6] -> F16 [5, 6], ' in weightfs('diff', *files, code=EXIT_FOUND).stdout


def test_another_shape_is_a_change_without_numbers(folder):
    files = pair(folder, {'w': ('F32', [2, 3], bytes(24))}, {'w': ('F32', [3, 2], bytes(24))})
    (change,) = differ(*files)['changed']
    assert change == {'key': 'w', 'a': {'dtype': 'F32', 'shape': [2, 3]}, 'b': {'dtype': 'F32', 'shape': [3, 2]},
                      'max_abs': None, 'max_rel': None}
    assert weightfs('diff', *files, code=EXIT_FOUND).stdout.startswith('w: F32 [2, 3] -> F32 [3, 2]\n')


def test_scalars_empty_tensors_and_sub_byte_elements(folder):
    files = pair(folder, {'s': ('F32', [], st.f32(1)), 'e': ('F32', [0, 9], b''), 'q': ('F4', [4], b'\x21\x43')},
                 {'s': ('F32', [], st.f32(2)), 'e': ('F32', [0, 9], b''), 'q': ('F4', [4], b'\x21\x53')})
    result = differ(*files)
    by_key = {change['key']: change for change in result['changed']}
    assert (by_key['s']['max_abs'], by_key['s']['max_rel'], result['n_equal']) == (1, 0.5, 1)
    assert (by_key['q']['changed'], by_key['q']['max_abs']) == (1, 1)  # 2 and 3


def test_quantized_tensors_are_compared_by_their_bytes_and_their_scheme(folder, need_shared):
    source = next(path for path in burnpack_files() if any('QFloat' in str(t.dtype) for t in burnpack.read(path).tensors.values()))
    pack = burnpack.read(source)
    key, old = next((key, t) for key, t in pack.tensors.items() if 'QFloat' in str(t.dtype))
    data = bytearray(old.data)
    data[0] ^= 1
    old.data = bytes(data)
    other = folder / 'other.bpk'
    burnpack.write(other, pack)
    (change,) = differ(source, other)['changed']
    assert (change['key'], change['unit'], change['changed'], change['max_abs']) == (key, 'bytes', 1, None)


def burnpack_files():
    from wfs_testlib import shared
    return [path for path in sorted((shared.FOLDER / 'golden').rglob('*.bpk')) if b'QFloat' in path.read_bytes()[:100000]]


def test_the_view_goes_for_both(folder):
    files = pair(folder, {'a.w': ('F32', [1], st.f32(1)), 'x': ('U8', [1], b'a')}, {'a.w': ('F32', [1], st.f32(1)), 'x': ('U8', [1], b'b')})
    weightfs('diff', '--include=^a', *files)
    files = pair(folder, {'a.w': ('F32', [1], st.f32(1))}, {'b.w': ('F32', [1], st.f32(1))})
    weightfs('diff', '--remap', '^[ab]=>c', *files)


def test_metadata_and_values_are_compared_when_asked_for(folder):
    same = {'w': ('U8', [1], b'x')}
    files = pair(folder, same, same, ({'k': '1', 'gone': 'x', 'same': ''}, {'k': '2', 'new': 'y', 'same': ''}))
    weightfs('diff', *files)
    assert differ('--all', *files)['texts'] == [
        {'kind': 'metadata', 'name': 'gone', 'change': 'only in A'}, {'kind': 'metadata', 'name': 'k', 'change': 'changed'},
        {'kind': 'metadata', 'name': 'new', 'change': 'only in B'}]
    saved = []
    for epoch in (3, 4):
        saved.append(folder / ('%d.pth' % epoch))
        saved[-1].write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(), epoch=pth.number(epoch))))
    weightfs('diff', *saved)
    assert weightfs('diff', '--all', *saved, code=EXIT_FOUND).stdout.splitlines()[0] == 'value changed: epoch'


def test_problems_name_the_file(small, folder):
    assert weightfs('diff', small, folder / 'none', code=EXIT_SOURCE).error.startswith(str(folder / 'none'))
    (folder / 'cut').write_bytes(small.read_bytes()[:-1])
    assert weightfs('diff', folder / 'cut', small, code=EXIT_DAMAGED).error.startswith(str(folder / 'cut'))
    weightfs('diff', small, code=EXIT_USAGE)


@pytest.mark.skipif(IS_INSTRUMENTED, reason='memory is not the program\'s own')
def test_memory_does_not_grow_with_the_tensors(folder):
    path = folder / 'large.safetensors'
    n = 256 << 20
    head = json.dumps({'w': {'dtype': 'F32', 'shape': [n // 4], 'data_offsets': [0, n]}}).encode()
    for name in ('large', 'larger'):
        path = folder / (name + '.safetensors')
        with open(path, 'wb') as file:
            file.write(len(head).to_bytes(8, 'little') + head)
            file.truncate(8 + len(head) + n)
    with open(path, 'r+b') as file:
        file.seek(-4, 2)
        file.write(st.f32(1))
    assert '1 changed' in weightfs('diff', folder / 'large.safetensors', path, code=EXIT_FOUND).stdout
    code, memory = run_measured('diff', folder / 'large.safetensors', path)
    assert code == EXIT_FOUND and memory < 64 << 20
