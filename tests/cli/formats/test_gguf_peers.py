# SPDX-License-Identifier: MIT
"""GGUF files between weightfs and the reference package: each reads what the other one writes."""
import json
import struct
import subprocess
import sys

import numpy
import pytest

from wfs_testlib import gguf, shared, st
from wfs_testlib.program import weightfs

pytestmark = pytest.mark.peers
reference = pytest.importorskip('gguf', reason='needs the gguf package: tools/test --peers gets it')
TYPES = reference.GGMLQuantizationType
# Q8_1 has another size in ggml; it and Q8_K are never in files. Some have no function there.
BLOCKS = [one for one in TYPES if reference.GGML_QUANT_SIZES[one][0] > 1 and one.name not in ('Q8_1', 'Q8_K')]
DECODED = [one for one in BLOCKS if one.name != 'Q1_0']
MADE = [TYPES[name] for name in ('Q8_0', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1')]
PAIRS = [('general.architecture', 'STRING', 'llama'), ('a.u8', 'UINT8', 255), ('a.i8', 'INT8', -128), ('a.u16', 'UINT16', 65535),
         ('a.i16', 'INT16', -32768), ('a.u32', 'UINT32', 2**32 - 1), ('a.i32', 'INT32', -2**31), ('a.f32', 'FLOAT32', 0.5),
         ('a.bool', 'BOOL', True), ('a.text', 'STRING', 'naïve \U0001f600'), ('a.u64', 'UINT64', 2**64 - 1), ('a.i64', 'INT64', -2**63),
         ('a.f64', 'FLOAT64', 0.1), ('a.texts', 'STRING', ['a', 'bc', 'ü']), ('a.ints', 'INT32', [1, -2, 3]), ('a.floats', 'FLOAT32', [0.5, -1]),
         ('a.bools', 'BOOL', [True, False])]


def made_by_reference(path, pairs=PAIRS, tensors=None, endian='LITTLE', **options):
    """tensors: {name: array of numbers, or (array of the bytes of rows, type)}"""
    writer = reference.GGUFWriter(path, 'llama', endianess=reference.GGUFEndian[endian], **options)
    for key, kind, value in pairs[1:]:
        if isinstance(value, list):
            writer.add_key_value(key, value, reference.GGUFValueType.ARRAY, sub_type=reference.GGUFValueType[kind])
        else:
            writer.add_key_value(key, value, reference.GGUFValueType[kind])
    for name, one in (tensors or {}).items():
        writer.add_tensor(name, one[0], raw_dtype=one[1]) if isinstance(one, tuple) else writer.add_tensor(name, one)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def bytes_of(field):
    return [field.parts[i].tobytes() for i in field.data]


def read(path, content_of=reference.ReaderField.contents):
    """(pairs, {name: (type, shape, numbers or bytes of rows)}) by the reference."""
    reader = reference.GGUFReader(path)
    pairs = [(field.name, field.types[-1].name, content_of(field)) for field in reader.fields.values() if not field.name.startswith('GGUF.')]
    return pairs, {one.name: (one.tensor_type, one.shape.tolist()[::-1], numpy.array(one.data)) for one in reader.tensors}


def is_same(found, expected):
    return list(found) == list(expected) and all(
        found[name][:2] == expected[name][:2] and found[name][2].tobytes() == expected[name][2].tobytes() for name in expected)


def random_blocks(kind, n_rows=3, n_blocks=5, seed=1):
    """Rows of any bytes."""
    n_bytes = reference.GGML_QUANT_SIZES[kind][1] * n_blocks
    return numpy.random.default_rng([seed, kind.value]).integers(0, 256, (n_rows, n_bytes), dtype=numpy.uint8)


def without_payloads(numbers):
    """The sign of a NaN depends on the processor."""
    return numpy.where(numpy.isnan(numbers), numpy.float32('nan'), numbers).tobytes()


def run_script(name, *arguments):
    return subprocess.run([sys.executable, '-B', '-m', 'gguf.scripts.' + name, *map(str, arguments)], stdin=subprocess.DEVNULL, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300).stdout


def tensors_of_all_types():
    some = numpy.random.default_rng(2)
    plain = {'f32': some.standard_normal((3, 5), numpy.float32), 'f16': some.standard_normal(7).astype(numpy.float16),
             'f64': some.standard_normal((2, 2, 2)), **{'i%d' % (8 * n): some.integers(-100, 100, (2, 3)).astype('i%d' % n) for n in (1, 2, 4, 8)},
             'bf16': (some.integers(0, 256, (2, 6), dtype=numpy.uint8), TYPES.BF16)}
    return {**plain, **{kind.name: (random_blocks(kind), kind) for kind in BLOCKS}}


@pytest.mark.parametrize('kind', DECODED, ids=lambda kind: kind.name)
def test_random_blocks_are_decoded_to_the_numbers_of_the_reference(kind, folder):
    rows = random_blocks(kind, 64, 8)
    path = made_by_reference(folder / 'in.gguf', tensors={'w': (rows, kind)})
    with numpy.errstate(all='ignore'):
        expected = reference.dequantize(rows, kind)
    found = numpy.frombuffer(weightfs('cat', '--cast', 'F32', path, 'w').raw, numpy.float32).reshape(expected.shape)
    assert without_payloads(found) == without_payloads(expected)
    weightfs('convert', '--cast', 'F32', path, folder / 'out.gguf')
    assert without_payloads(read(folder / 'out.gguf')[1]['w'][2]) == without_payloads(expected)


@pytest.mark.parametrize('kind', MADE, ids=lambda kind: kind.name)
def test_casts_make_the_blocks_of_the_reference(kind, folder):
    some = numpy.random.default_rng(kind.value)
    numbers = (some.standard_normal((40, 320), numpy.float32) * numpy.exp2(some.integers(-12, 8, (40, 1)))).astype(numpy.float32)
    numbers[0], numbers[1, ::3] = 0, 0
    path = made_by_reference(folder / 'in.gguf', tensors={'w': numbers})
    weightfs('convert', '--cast', kind.name, path, folder / 'out.gguf')
    found = read(folder / 'out.gguf')[1]['w']
    assert found[:2] == (kind, [40, 320]) and found[2].tobytes() == reference.quants.quantize(numbers, kind).tobytes()


def test_a_file_of_the_reference_is_read_and_written_byte_for_byte(folder):
    path = made_by_reference(folder / 'in.gguf', tensors=tensors_of_all_types())
    weightfs('convert', path, folder / 'out.gguf')
    assert (folder / 'out.gguf').read_bytes() == path.read_bytes()
    listed = [(one['key'], one['dtype'], one['shape']) for one in json.loads(weightfs('ls', '--json', path).stdout)['tensors']]
    assert listed == [(name, kind.name, shape) for name, (kind, shape, _) in read(path)[1].items()]
    assert json.loads(weightfs('config', path).stdout) == {key: value for key, _, value in read(path)[0]} == {key: value for key, _, value in PAIRS}


def test_a_big_endian_file_becomes_a_little_endian_one(folder):
    tensors = {name: one for name, one in tensors_of_all_types().items() if not isinstance(one, tuple) or one[1] in (TYPES.MXFP4, TYPES.NVFP4)}
    path = made_by_reference(folder / 'in.gguf', tensors=tensors, endian='BIG')
    weightfs('convert', path, folder / 'out.gguf')
    assert (folder / 'out.gguf').read_bytes() == made_by_reference(folder / 'little.gguf', tensors=tensors).read_bytes()


def test_an_edited_file_is_read_by_the_reference(folder):
    path = made_by_reference(folder / 'in.gguf', tensors=tensors_of_all_types())
    weightfs('edit', '--set-metadata', 'a.text=other', '--set-value', 'a.u8=7', '--set-value', 'a.texts=["x", "y"]', '--set-value', 'a.f32=3',
             '--set-value', 'new.list=[1, 2]', '--remove', 'f64', '--rename', 'i8', 'j8', path, folder / 'out.gguf')
    pairs, tensors = read(path)
    changes = {'a.text': 'other', 'a.u8': 7, 'a.texts': ['x', 'y'], 'a.f32': 3.0}
    found = read(folder / 'out.gguf')
    assert found[0] == [(key, kind, changes.get(key, value)) for key, kind, value in pairs] + [('new.list', 'INT32', [1, 2])]
    assert is_same(found[1], {'j8' if name == 'i8' else name: one for name, one in tensors.items() if name != 'f64'})


def test_tensors_of_another_format_are_read_by_the_reference(folder):
    some = numpy.random.default_rng(3)
    content = {'a.weight': ('F32', [2, 3], some.bytes(24)), 'b': ('BF16', [4], some.bytes(8)), 'c': ('I64', [], some.bytes(8)), 'd': ('F16', [0, 2], b'')}
    st.write(folder / 'in.safetensors', content, metadata={'format': 'pt', 'general.architecture': 'x'})
    weightfs('convert', folder / 'in.safetensors', folder / 'out.gguf')
    pairs, found = read(folder / 'out.gguf')
    assert ('general.architecture', 'STRING', 'x') in pairs
    assert {name: (kind.name, shape, numbers.tobytes()) for name, (kind, shape, numbers) in found.items()} == content


def every_golden():
    """Files that weightfs writes again as they were, without types that the reference does not know."""
    left_out = ('q8_1.gguf', 'q2_0.gguf', 'name-64.gguf', 'rank-5.gguf', 'big.gguf', 'big-as-written.gguf', 'bool-other-bytes.gguf')
    found = sorted((shared.FOLDER / 'golden/gguf').glob('*/*.gguf')) if shared.IS_THERE else []
    return [path for path in found if path.parent.name != 'bad' and path.name not in left_out]


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('path', shared.each(every_golden(), lambda path: '%s/%s' % (path.parent.name, path.name)))
def test_goldens_written_again_are_read_as_before(path, folder):
    weightfs('convert', path, folder / 'out.gguf')
    before, after = read(path, bytes_of), read(folder / 'out.gguf', bytes_of)
    assert after[0] == before[0] and is_same(after[1], before[1])


@pytest.mark.parametrize('options', [{'split_max_tensors': 4}, {'split_max_size': 2000}, {'split_max_size': 2000, 'small_first_shard': True}], ids=str)
def test_split_files_are_those_of_the_reference(options, folder):
    tensors = tensors_of_all_types()
    (folder / 'in').mkdir()
    made_by_reference(folder / 'in/model.gguf', tensors=tensors, **options)
    first = min((folder / 'in').iterdir())
    weightfs('convert', '--shards', first, folder / 'whole.gguf')
    assert (folder / 'whole.gguf').read_bytes() == made_by_reference(folder / 'one.gguf', tensors=tensors).read_bytes()
    assert weightfs('check', '--shards', first).stdout == ''
    for size in [options['split_max_size']] if 'split_max_size' in options and len(options) == 1 else []:
        weightfs('convert', '--max-shard-size', str(size), '--format', 'gguf', folder / 'whole.gguf', str(folder / 'out') + '/')
        found = {path.name: path.read_bytes() for path in (folder / 'out').glob('*.gguf')}
        assert found == {path.name: path.read_bytes() for path in (folder / 'in').iterdir()}


def test_the_dump_of_the_reference_shows_what_is_written(folder):
    path = made_by_reference(folder / 'in.gguf', tensors=tensors_of_all_types())
    weightfs('convert', '--cast', 'F32', '--remap', 's/^/x./', path, folder / 'out.gguf')
    told = json.loads(run_script('gguf_dump', '--json', '--json-array', folder / 'out.gguf'))
    assert list(told['tensors']) == ['x.' + name for name in tensors_of_all_types()]
    assert {one['type'] for one in told['tensors'].values()} == {'F32', 'I8', 'I16', 'I32', 'I64'}
    assert told['metadata']['a.texts']['value'] == ['a', 'bc', 'ü']
