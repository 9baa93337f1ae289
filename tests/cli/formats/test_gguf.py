# SPDX-License-Identifier: MIT
"""GGUF: files of the reference package with what it reads in them, malformed ones with the verdicts of both reference readers."""
import array
import hashlib
import json
import re
import struct

import numpy
import pytest

from wfs_testlib import gguf, make_reject_gguf as reject, program, shared, st
from wfs_testlib.program import EXIT_COMMIT, EXIT_DAMAGED, EXIT_DONE, EXIT_FOREIGN, EXIT_UNSUPPORTED, ROOT, tool, weightfs

GOLDEN = shared.FOLDER / 'golden/gguf'
EXPECTED = json.loads((GOLDEN / 'expected.json').read_text())['files'] if shared.IS_THERE else {}
VERDICTS = json.loads((GOLDEN / 'bad/verdicts.json').read_text()) if shared.IS_THERE else {}
# gguf-py has 40 bytes in a block where ggml has 36.
OTHER_BLOCKS = ('types/q8_1.gguf',)

# Where the verdict is that of one of the two, or of neither.
READ = {
    'array-nested': 'legal by the specification; only gguf-py reads it, flattened', 'array-nested-mixed': 'the same',
    'bool-2': 'both read it', 'dims-5': 'gguf-py reads it', 'name-64': 'gguf-py reads it',
    'elements-overflow-then-0': 'it has no elements: ggml reads it', 'key-version-virtual': 'ggml reads it',
    'kv-count-minus-1': 'ggml reads it', 'q8_1-40-bytes': 'the second tensor follows a block of 36 bytes, and its padding',
    'offset-gap': 'gguf-py reads it', 'offset-gap-between': 'gguf-py reads it', 'offset-order': 'gguf-py reads it',
    'type-42': 'newer than gguf-py: ggml reads it', 'type-43': 'a type of a fork is bytes', 'type-unknown-max': 'the same',
    'version-1': 'read here, by no reference any more',
}
ODD = {
    'array-nested': "metadata 'k' is an array of arrays, which llama.cpp refuses", 'bool-2': 'is 2 instead of 0 or 1',
    'dims-5': "tensor 't' has 5 dimensions, which llama.cpp refuses", 'name-64': 'has 64 bytes, more than the 63',
    'offset-gap': "a gap of 32 bytes lies before tensor 't'", 'offset-order': 'is not in the order of the header',
    'type-43': "tensor 't' has the unknown type 43", 'version-1': 'is a GGUF of version 1', 'trailing-gguf': '160 bytes follow the data',
}
REFUSED = {
    'array-empty-type-13': 'ggml refuses it',
    'data-cut': 'no program can use it', 'data-none': 'the same', 'elements-overflow': '2^64 elements, ggml counts 0', 'key-empty': 'ggml refuses it',
    'key-not-utf8': 'no key of a mount; gguf-py refuses it', 'key-nul': 'needs escape_nul', 'name-not-utf8': 'gguf-py refuses it',
    'name-nul': 'needs escape_nul', 'names-equal-to-nul': 'the same', 'offset-max': 'no program can use it', 'offset-overlap': 'ggml refuses it',
    'offset-unaligned': 'ggml refuses it', 'string-length-max': 'gguf-py cuts the text', 'string-past-end': 'the same',
    'array-past-end': 'gguf-py cuts the array', 'tensor-count-plus-1': 'padding is read as a tensor; ggml refuses it',
}


def listing(path, *options):
    return [(tensor['key'], tensor['dtype'], tensor['shape'], tensor['bytes'])
            for tensor in json.loads(weightfs('ls', '--json', *options, path).stdout)['tensors']]


def plain(value):
    return value['$float'] if isinstance(value, dict) and '$float' in value else value


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('name', shared.each([name for name, entry in EXPECTED.items() if 'tensors' in entry], str))
def test_every_tensor_is_listed_and_has_its_bytes(name):
    tensors = EXPECTED[name]['tensors']
    if name in OTHER_BLOCKS:
        tensors = tensors[:0]
    found = listing(GOLDEN / name)
    assert found[:len(tensors)] == [(one['name'], one['type'], one['shape'], one['bytes']) for one in tensors]
    for one in tensors:
        content = weightfs('cat', GOLDEN / name, '--', one['name']).raw
        dtype, size = one['type'], one['bytes']
        if EXPECTED[name].get('endian') == 'BIG' and dtype in SIZES:
            content = b''.join(content[i:i + SIZES[dtype]][::-1] for i in range(0, size, SIZES[dtype]))
        if name != 'endian/big-as-written.gguf' or dtype != 'BF16':  # gguf-py does not swap it in a big-endian file, ggml does
            assert hashlib.sha256(content).hexdigest() == one['raw'], one['name']


SIZES = {'F32': 4, 'F16': 2, 'BF16': 2, 'I16': 2, 'I32': 4, 'I64': 8, 'F64': 8}


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('name', shared.each([name for name, entry in EXPECTED.items() if 'kv' in entry], str))
def test_metadata_is_values(name):
    pairs = EXPECTED[name]['kv']
    found = json.loads(weightfs('config', GOLDEN / name).stdout)
    assert list(found) == [pair['key'] for pair in pairs]
    for pair in pairs:
        value = found[pair['key']]
        if 'value_sha256_json' in pair:
            assert hashlib.sha256(json.dumps(value).encode()).hexdigest() == pair['value_sha256_json'], pair['key']
        elif 'nested' not in pair and pair.get('value') is not None:
            assert plain(value) == pair['value'] and type(plain(value)) is type(pair['value']), pair['key']
        if pair['type'] == 'ARRAY':
            assert len(value) == pair['n']


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('name', shared.each(VERDICTS, str))
def test_verdicts_on_malformed_files(name):
    verdicts = [VERDICTS[name][reader].split(':')[0] == 'reads' for reader in ('gguf-py', 'llama.cpp')]
    if verdicts[0] != verdicts[1]:
        assert name in READ or name in REFUSED
    is_read = name in READ or name not in REFUSED and all(verdicts)
    found = weightfs('ls', GOLDEN / 'bad' / (name + '.gguf'), code=None)
    assert found.code in ([EXIT_DONE] if is_read else [EXIT_FOREIGN, EXIT_DAMAGED, EXIT_UNSUPPORTED]), found.error


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('name', shared.each(ODD, str))
def test_what_only_one_of_them_reads_is_a_finding(name):
    assert ODD[name] in weightfs('check', GOLDEN / 'bad' / (name + '.gguf'), code=None).stdout


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('name, n', [('model', 5), ('small', 3)])
def test_shards_are_merged_with_the_metadata_of_the_first(name, n, folder):
    first = GOLDEN / ('split/%s-00001-of-00003.gguf' % name)
    weightfs('convert', '--shards', first, folder / 'out.gguf')
    found, parts = gguf.Reader((folder / 'out.gguf').read_bytes()), [
        gguf.Reader((GOLDEN / ('split/%s-%05d-of-00003.gguf' % (name, i))).read_bytes()) for i in (1, 2, 3)]
    assert found.pairs == [pair for pair in parts[0].pairs if not pair[0].startswith('split.')] and len(found.pairs) > 1
    assert found.tensors == [tensor for part in parts for tensor in part.tensors] and len(found.tensors) == n
    assert list(json.loads(weightfs('config', '--shards', first).stdout)) == [key for key, *_ in found.pairs]
    weightfs('edit', '--shards', '--set-value', 'general.name="other"', first, folder / 'other.gguf')
    assert ('general.name', gguf.STRING, 'other') in gguf.Reader((folder / 'other.gguf').read_bytes()).pairs


@pytest.mark.usefixtures('need_shared')
def test_shards_are_one_checkpoint():
    found = listing(GOLDEN / 'split/model-00001-of-00003.gguf', '--shards')
    assert [key for key, *_ in found] == ['blk.%d.weight' % i for i in range(5)]
    assert [key for key, *_ in listing(GOLDEN / 'split/small-00001-of-00003.gguf', '--shards')] == ['blk.%d.weight' % i for i in range(3)]


CASES = sorted(name.removesuffix('.expect') for name in reject.files() if name.endswith('.expect'))


@pytest.mark.parametrize('name', CASES)
def test_rejected(name, folder):
    code, message = reject.files()[name + '.expect'].decode().splitlines()
    path = folder / (name + '.gguf')
    path.write_bytes(reject.files()[name + '.gguf'])
    for verb in ('ls', 'check'):
        assert weightfs(verb, path, code=int(code)).error == program.refusal(path, message)


def test_the_corpus_is_what_the_script_makes():
    tool('/usr/bin/python3', reject.__file__, '--check')


@pytest.mark.parametrize('name', ['good', 'good-big', 'good-first', 'good-aligned'])
def test_byte_orders_and_versions_show_the_same(name, folder):
    path = folder / 'x.gguf'
    path.write_bytes(reject.files()[name + '.gguf'])
    assert listing(path) == [('t', 'F32', [4], 16), ('blk.0.q', 'Q8_0', [2, 32], 68), ('blk.0.k', 'Q4_K', [1, 256], 144), ('one', 'I64', [], 8)]
    assert weightfs('cat', path, 't').raw == (reject.DATA if name != 'good-big' else
                                              b''.join(reject.DATA[i:i + 4][::-1] for i in range(0, 16, 4)))
    found = json.loads(weightfs('config', path).stdout)
    found.pop('general.alignment', None)
    assert found == {'general.architecture': 'x', 'u8': 255, 'i64': -1 << 63, 'u64': (1 << 64) - 1, 'f32': 0.5, 'f64': 0.1, 'yes': True,
                     'tokens': ['a', {'$bytes': '/w=='}, ''], 'nested': [[1], []]}


def test_a_type_of_a_fork_is_bytes_up_to_the_next_tensor(folder):
    path = folder / 'x.gguf'
    path.write_bytes(reject.files()['good-unknown.gguf'])
    assert listing(path) == [('t', 'OPAQUE', [64], 64), ('u', 'F32', [4], 16)]
    assert "tensor 't' has the unknown type 97" in weightfs('check', path, code=None).stdout


def test_a_nul_in_a_name_is_escaped_on_demand(folder):
    path = folder / 'x.gguf'
    path.write_bytes(reject.files()['name-nul.gguf'])
    assert listing(path, '--escape-nul') == [('a%00', 'F32', [4], 16)]
    assert listing(path, '--force') == []


def test_force_shows_what_is_there_of_a_file_that_is_cut(folder):
    path = folder / 'x.gguf'
    path.write_bytes(reject.files()['data-cut.gguf'])
    assert listing(path, '--force') == [('t', 'F32', [4], 16)]
    assert 'past its end' in weightfs('check', '--force', path, code=None).stdout


def test_a_large_vocabulary_is_loaded_in_little_memory(folder):
    tokens = ['<%d>' % i for i in range(150000)]
    path = folder / 'x.gguf'
    path.write_bytes(gguf.Writer().file([('tokenizer.ggml.tokens', gguf.ARRAY, (gguf.STRING, tokens)),
                                         ('tokenizer.ggml.scores', gguf.ARRAY, (gguf.F32, [0.5] * len(tokens)))]))
    assert json.loads(weightfs('config', path, 'tokenizer.ggml.tokens').stdout) == tokens
    too_many = weightfs('ls', '--limit', 'values=200000', path, code=EXIT_UNSUPPORTED).error
    assert "metadata 'tokenizer.ggml.scores': the array at byte" in too_many and 'limit values' in too_many


# ---- blocks as numbers ----

def canonical(content, has_nan):
    if not has_nan:
        return content
    words = array.array('I', content)
    return array.array('I', [0x7fc00000 if word & 0x7fffffff > 0x7f800000 else word for word in words]).tobytes()


def decoded():
    return [(name, one) for name, entry in EXPECTED.items() if entry.get('endian') != 'BIG' and name not in OTHER_BLOCKS
            for one in entry.get('tensors', []) if one.get('f32')]


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('name', shared.each(sorted({name for name, _ in decoded()}), str))
def test_blocks_are_decoded_bit_for_bit(name, folder):
    weightfs('convert', '--cast', 'F32', GOLDEN / name, folder / 'out.safetensors', '--values', 'drop')
    found = st.read(folder / 'out.safetensors').tensors
    for one in [one for other, one in decoded() if other == name]:
        dtype, shape, content = found[one['name']]
        assert (dtype, shape) == ('F32', one['shape'])
        has_nan = 'f32_nan7fc00000' in one
        assert hashlib.sha256(canonical(content, has_nan)).hexdigest() == one['f32_nan7fc00000' if has_nan else 'f32'], one['name']


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('dtype', ['F16', 'BF16'])
def test_a_cast_of_blocks_rounds_once(dtype, folder):
    source = GOLDEN / 'types/q4_k.gguf'
    weightfs('convert', '--cast', 'F32', source, folder / 'wide.safetensors', '--values', 'drop')
    weightfs('convert', '--cast', dtype, source, folder / 'once.safetensors', '--values', 'drop')
    weightfs('convert', '--cast', dtype, folder / 'wide.safetensors', folder / 'twice.safetensors')
    assert st.read(folder / 'once.safetensors').tensors == st.read(folder / 'twice.safetensors').tensors


def q8(numbers, scale=0x3c00):
    """Blocks of Q8_0 of whole numbers, with the scale 1."""
    return b''.join(struct.pack('<H32b', scale, *numbers[i:i + 32]) for i in range(0, len(numbers), 32))


@pytest.fixture(name='blocks')
def fixture_blocks(folder):
    path = folder / 'blocks.gguf'
    numbers = [i % 100 - 50 for i in range(256)]
    path.write_bytes(gguf.Writer().file([('a.n', gguf.U32, 7), ('a.name', gguf.STRING, 'x'), ('a.f', gguf.F32, 0.5)],
                                        [('w', 'Q8_0', [4, 64], q8(numbers)), ('b', 'F32', [2], struct.pack('<2f', 1, 2))]))
    return path


def test_numbers_of_blocks_are_shown_counted_and_compared(blocks, folder):
    told = json.loads(weightfs('show', '--json', blocks, 'w').stdout)['tensors'][0]
    told = told[0] if isinstance(told, list) else told
    assert (told['stats']['min'], told['stats']['max'], told['dtype'], told['shape'], told['bytes']) == (-50, 49, 'Q8_0', [4, 64], 272)
    assert weightfs('show', '--slice', '1,3:6', blocks, 'w').stdout.split()[-3:] == ['17', '18', '19']
    bad = folder / 'nan.gguf'
    bad.write_bytes(blocks.read_bytes().replace(q8([i % 100 - 50 for i in range(256)])[:34], struct.pack('<H32b', 0x7e00, *[1] * 32), 1))
    assert "tensor 'w': 32 of 256 elements are NaN" in weightfs('check', '--values', bad, code=None).stdout
    weightfs('convert', '--cast', 'F32', blocks, folder / 'wide.gguf')
    told = weightfs('diff', '--long', blocks, folder / 'wide.gguf', code=None).stdout
    assert 'Q8_0' in told and 'F32' in told
    weightfs('diff', blocks, blocks)


def test_rows_of_blocks_are_split_and_blocks_are_not(blocks, folder):
    weightfs('convert', '--split', '^w$:p,q', blocks, folder / 'out.gguf')
    whole, parts = gguf.Reader(blocks.read_bytes()).tensors, gguf.Reader((folder / 'out.gguf').read_bytes()).tensors
    assert [(name, shape) for name, _, shape, _ in parts] == [('p', [2, 64]), ('q', [2, 64]), ('b', [2])]
    assert parts[0][3] + parts[1][3] == whole[0][3]
    for rule in ('--transpose=^w$', '--slice=^w$::,0:16', '--permute=^w$:1,0'):
        error = weightfs('convert', rule, blocks, folder / 'no.gguf', code=None)
        assert error.code != 0 and 'its elements lie in blocks of 32' in error.error
    weightfs('convert', '--cast', '^w$:F32', '--transpose=^w$', blocks, folder / 'turned.gguf')
    assert gguf.Reader((folder / 'turned.gguf').read_bytes()).tensors[0][2] == [64, 4]
    for dtype in ('Q4_K', 'IQ2_XS', 'MXFP4'):
        error = weightfs('convert', '--cast', '^w$:' + dtype, blocks, folder / 'no.gguf', code=None)
        assert error.code != 0 and 'there is no one result for these blocks' in error.error


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('dtype', ['Q8_0', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1'])
def test_blocks_are_made_as_both_reference_writers_do(dtype, folder):
    wanted = json.loads((GOLDEN / 'expected.json').read_text())['quantise']['types'][dtype]
    numbers = (GOLDEN / 'quantise/input-8x512.f32').read_bytes()
    st.write(folder / 'in.safetensors', {'w': ('F32', [8, 512], numbers), 'norm': ('F32', [2], bytes(8))})
    weightfs('convert', '--cast', dtype, folder / 'in.safetensors', folder / 'out.gguf')
    assert listing(folder / 'out.gguf')[0][1] == 'F32'  # a vector stays as it is without a REGEX
    content = next(content for name, _, _, content in gguf.Reader((folder / 'out.gguf').read_bytes()).tensors if name == 'w')
    assert hashlib.sha256(content).hexdigest() == wanted['raw']
    found = weightfs('cat', '--cast', 'F32', folder / 'out.gguf', 'w').raw
    assert hashlib.sha256(found).hexdigest() == wanted['f32']


def test_a_row_that_is_not_of_blocks_is_not_made_into_them(folder):
    st.write(folder / 'in.safetensors', {'w': ('F32', [2, 33], bytes(264))})
    error = weightfs('convert', '--cast', 'Q8_0', folder / 'in.safetensors', folder / 'out.gguf', code=None)
    assert error.code != 0 and 'its rows of 33 elements are not whole blocks of 32' in error.error


def test_safetensors_have_no_blocks(blocks, folder):
    error = weightfs('convert', blocks, folder / 'out.safetensors', code=None)
    assert error.code != 0 and not (folder / 'out.safetensors').exists()
    assert ("tensor 'w' is Q8_0, which safetensors cannot store: cast=BF16 decodes blocks (520 bytes in all), "
            'cast=F32 does so exactly (1032 bytes)') in error.error


# ---- writing ----

# What the writer makes of these is not what they are.
OTHER_BYTES = ('version/v2.gguf', 'kv/bool-other-bytes.gguf', 'tensors/kv-unpadded.gguf', 'tensors/no-kv-no-tensors.gguf',
               'tensors/no-tail-padding.gguf', 'tensors/nonzero-padding.gguf', 'tensors/trailing-bytes.gguf', *OTHER_BLOCKS)
UNWRITABLE = ('tensors/name-64.gguf', 'tensors/rank-5.gguf', 'endian/big.gguf', 'endian/big-as-written.gguf')


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('name', shared.each([name for name in EXPECTED if name not in UNWRITABLE], str))
def test_a_file_is_written_as_it_was(name, folder):
    weightfs('convert', GOLDEN / name, folder / 'out.gguf')
    content = (folder / 'out.gguf').read_bytes()
    assert (content == (GOLDEN / name).read_bytes()) == (name not in OTHER_BYTES)
    weightfs('convert', folder / 'out.gguf', folder / 'again.gguf')
    assert (folder / 'again.gguf').read_bytes() == content


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('name, message', [('tensors/name-64.gguf', 'its name has 64 bytes, and llama.cpp reads up to 63'),
                                           ('tensors/rank-5.gguf', "tensor 'r5' has 5 dimensions"),
                                           ('endian/big.gguf', "tensor 'q4_0': its blocks are of a big-endian file")])
def test_what_llama_cpp_does_not_read_is_not_written(name, message, folder):
    found = weightfs('convert', GOLDEN / name, folder / 'out.gguf', code=None)
    assert found.code != 0 and message in found.error and not (folder / 'out.gguf').exists()


def test_blocks_of_a_big_endian_file_are_known_where_they_are_bytes(folder):
    path = folder / 'x.gguf'
    blocks = bytes([127, *range(16), 130, *range(16, 32)])
    path.write_bytes(gguf.Writer(big=True).file(tensors=[('w', 'MXFP4', [2, 32], blocks)]))
    twice = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]
    expected = [twice[j] / 2 for j in range(16)] + [0] * 16 + [twice[j] * 4 for j in range(16)] + [4] * 16
    assert weightfs('cat', '--cast', 'F32', path, 'w').raw == struct.pack('<64f', *expected)
    assert weightfs('check', path).stdout == ''
    weightfs('convert', path, folder / 'out.gguf')
    assert (folder / 'out.gguf').read_bytes() == gguf.Writer().file(tensors=[('w', 'MXFP4', [2, 32], blocks)])


def test_an_edited_value_keeps_its_type(blocks, folder):
    weightfs('edit', '--set-metadata', 'a.n=9', '--set-metadata', 'a.name=other', '--set-value', 'a.f=2', '--set-value', 'new=[1, -2]',
             '--set-metadata', 'text=5', blocks, folder / 'out.gguf')
    found = gguf.Reader((folder / 'out.gguf').read_bytes())
    assert found.pairs == [('a.n', gguf.U32, 9), ('a.name', gguf.STRING, 'other'), ('a.f', gguf.F32, 2.0),
                           ('new', gguf.ARRAY, (gguf.I32, [1, -2])), ('text', gguf.STRING, '5')]
    assert found.tensors == gguf.Reader(blocks.read_bytes()).tensors


@pytest.mark.parametrize('edit, message', [
    ('--set-metadata=a.n=x', "value 'a.n' has the type U32 in the GGUF: the text is not JSON"),
    ('--set-value=a.n=-1', "value 'a.n' has the type U32 in the GGUF: the number is out of its range"),
    ('--set-value=a.n=1.5', "value 'a.n' has the type U32 in the GGUF: it is a number with a fraction"),
    ('--set-value=a.n=[1]', "value 'a.n' has the type U32 in the GGUF: it is a list"),
    ('--set-value=a.name=3', "value 'a.name' has the type STRING in the GGUF: it is a number"),
    ('--set-value=a.f="x"', "value 'a.f' has the type F32 in the GGUF: the text is not JSON"),
    ('--set-value=new=[1, "x"]', "value 'new' cannot be stored in a GGUF: the items of a list must have one type"),
    ('--set-value=new={"x": 1}', "value 'new' cannot be stored in a GGUF: it is not a number, a text or a list of them"),
    ('--set-value=new=null', "value 'new' cannot be stored in a GGUF: it is not a number, a text or a list of them"),
    ('--set-value=general.alignment=3', "value 'general.alignment' must be a U32 and a power of 2"),
])
def test_a_value_of_another_type_is_refused(edit, message, blocks, folder):
    found = weightfs('edit', edit, blocks, folder / 'out.gguf', code=None)
    assert found.code != 0 and message in found.error and not (folder / 'out.gguf').exists()


@pytest.mark.parametrize('text, kind', [('1', gguf.U32), ('-1', gguf.I32), ('4294967296', gguf.U64), ('-4294967296', gguf.I64),
                                        ('0.25', gguf.F32), ('true', gguf.BOOL), ('"x"', gguf.STRING)])
def test_types_of_new_values(text, kind, blocks, folder):
    weightfs('edit', '--set-value', 'new=' + text, blocks, folder / 'out.gguf')
    key, found, value = gguf.Reader((folder / 'out.gguf').read_bytes()).pairs[-1]
    assert (key, found, value) == ('new', kind, json.loads(text))


def test_an_alignment_that_is_edited_moves_the_data(blocks, folder):
    weightfs('edit', '--set-value', 'general.alignment=128', blocks, folder / 'out.gguf')
    found = gguf.Reader((folder / 'out.gguf').read_bytes())
    assert found.alignment == 128 and found.data % 128 == 0 and found.tensors == gguf.Reader(blocks.read_bytes()).tensors
    assert (folder / 'out.gguf').stat().st_size % 128 == 0


def test_from_and_to_safetensors(blocks, folder):
    weightfs('convert', '--include', '^b$', '--values=metadata', blocks, folder / 'out.safetensors')
    found = st.read(folder / 'out.safetensors')
    assert found.tensors == {'b': ('F32', [2], struct.pack('<2f', 1, 2))} and found.metadata == {'a.n': '7', 'a.name': 'x', 'a.f': '0.5'}
    weightfs('convert', folder / 'out.safetensors', folder / 'back.gguf')
    back = gguf.Reader((folder / 'back.gguf').read_bytes())
    assert sorted(back.pairs) == [('a.f', gguf.STRING, '0.5'), ('a.n', gguf.STRING, '7'), ('a.name', gguf.STRING, 'x')]
    assert [(name, shape, content) for name, _, shape, content in back.tensors] == [('b', [2], struct.pack('<2f', 1, 2))]
    st.write(folder / 'wide.safetensors', {'c': ('U16', [1], b'ab'), 'ok': ('F32', [1], bytes(4))})
    refused = weightfs('convert', folder / 'wide.safetensors', folder / 'no.gguf', code=EXIT_COMMIT).error
    assert refused.endswith("tensor 'c': GGUF has no dtype U16: cast=REGEX:DTYPE converts it, exclude=REGEX leaves it out")
    for advice in (['--cast=^c$:I32'], ['--exclude=^c$']):
        weightfs('convert', *advice, folder / 'wide.safetensors', folder / 'no.gguf', '--overwrite')


def test_a_patch_carries_types_and_blocks(blocks, folder):
    weightfs('edit', '--set-value', 'a.n=9', '--set-value', 'list=[1, 2]', '--rename', 'w', 'v', '--remove', 'b', blocks, folder / 'b.gguf')
    assert weightfs('diff', blocks, folder / 'b.gguf', code=1).stdout.splitlines()[-1].startswith('1 only in A, 0 only in B, 1 renamed')
    told = weightfs('diff', '--all', blocks, folder / 'b.gguf', code=1).stdout
    assert 'a.n' in told and 'list' in told
    weightfs('patch', 'make', blocks, folder / 'b.gguf', folder / 'p.safetensors')
    weightfs('patch', 'apply', folder / 'p.safetensors', blocks, folder / 'c.gguf')
    assert (folder / 'c.gguf').read_bytes() == (folder / 'b.gguf').read_bytes()


def test_an_overlay_brings_blocks(blocks, folder):
    (folder / 'over.gguf').write_bytes(gguf.Writer().file(tensors=[('w', 'Q8_0', [1, 32], q8(range(32))), ('new', 'Q8_0', [1, 32], q8(range(32)))]))
    weightfs('convert', '--overlay', folder / 'over.gguf', '--exclude', '^b$', blocks, folder / 'out.gguf')
    found = gguf.Reader((folder / 'out.gguf').read_bytes())
    assert [(name, shape, content) for name, _, shape, content in found.tensors] == [(name, [1, 32], q8(range(32))) for name in ('w', 'new')]
    assert found.pairs == gguf.Reader(blocks.read_bytes()).pairs


def test_what_readers_expect_is_reported(blocks, folder):
    told = weightfs('convert', '--cast', 'F32', blocks, folder / 'out.safetensors').stdout.splitlines()
    assert told[-1] == 'names of tensors, and the order of rows in attn_q and attn_k, are those of llama.cpp: see docs/formats/gguf.md'
    told = weightfs('convert', folder / 'out.safetensors', folder / 'out.gguf').stdout
    assert told == "the output has no value 'general.architecture', which readers of GGUF need: weightfs edit --set-value 'general.architecture=\"NAME\"' adds it\n"
    edit = ('edit', '--set-value', told.split("'")[-2], '--set-value', 'empty=[]', folder / 'out.gguf', folder / 'whole.gguf')
    assert weightfs(*edit).stdout == '' and weightfs('convert', folder / 'whole.gguf', folder / 'again.gguf').stdout == ''
    told = weightfs('convert', folder / 'whole.gguf', folder / 'again.safetensors').stdout
    assert "left out, because safetensors has no place for them: 'empty', 'general.architecture'" in told


def test_rows_of_heads_are_put_back_by_the_formula(folder):
    formula = re.search(r'```\n(w\.reshape.*)\n```', (ROOT / 'docs/formats/gguf.md').read_text())[1]
    heads, half = 3, 4
    stored = numpy.array([head * 2 * half + part * half + i for head in range(heads) for i in range(half) for part in range(2)])
    found = eval(formula, {'w': numpy.stack([stored, stored], axis=1), 'H': heads})  # pylint: disable=eval-used
    assert found[:, 0].tolist() == list(range(2 * heads * half))


# ---- sets ----

PAIRS = [('general.architecture', gguf.STRING, 'x'), ('a.n', gguf.U16, 7), ('a.list', gguf.ARRAY, (gguf.U8, [1, 2]))]
PARTS = [[('a%d' % i, 'F32', [8], struct.pack('<8f', *range(i, i + 8))), ('b%d' % i, 'Q8_0', [1, 32], q8(range(i, i + 32)))] for i in range(3)]


@pytest.fixture(name='split')
def fixture_split(folder):
    return gguf.write_set(folder / 'split', PAIRS, PARTS).parent


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == '.gguf'}


def test_a_split_file_is_written_as_it_was(split, folder):
    first = split / gguf.set_name(1, 3)
    weightfs('convert', '--shards', '--format=gguf', first, str(folder / 'same') + '/')
    assert files(folder / 'same') == files(split) and (folder / 'same/model.gguf.index.json').exists()
    weightfs('convert', '--shards', first, folder / 'whole.gguf')
    weightfs('convert', '--max-shard-size=66', '--format=gguf', folder / 'whole.gguf', str(folder / 'cut') + '/')
    assert files(folder / 'cut') == files(split)
    for path in (folder / 'same', folder / 'cut', folder / 'cut' / gguf.set_name(1, 3)):
        assert weightfs('check', '--shards', path).stdout == ''


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('options', [(), ('--max-shard-size=64',)])
def test_a_split_file_of_the_reference_is_written_as_it_was(options, folder):
    weightfs('convert', '--shards', '--format=gguf', *options, GOLDEN / 'split/model-00001-of-00003.gguf', str(folder / 'out') + '/')
    assert files(folder / 'out') == {path.name: path.read_bytes() for path in GOLDEN.glob('split/model*')}


def test_edits_of_a_split_file_keep_types_and_leave_no_old_name(split, folder):
    weightfs('edit', '--set-value', 'a.n=9', '--set-value', 'a.list=[3]', '--remove', 'b1', '--format=gguf', split, str(folder / 'out') + '/')
    pairs = [PAIRS[0], ('a.n', gguf.U16, 9), ('a.list', gguf.ARRAY, (gguf.U8, [3]))]
    gguf.write_set(folder / 'expected', pairs, [PARTS[0], PARTS[1][:1], PARTS[2]])
    assert files(folder / 'out') == files(folder / 'expected')
    weightfs('edit', '--set-value', 'a.n=7', '--set-value', 'a.list=[1, 2]', '--overwrite', str(folder / 'out') + '/', str(folder / 'out') + '/')
    gguf.write_set(folder / 'again', PAIRS, [PARTS[0], PARTS[1][:1], PARTS[2]], 'model.v2')
    assert files(folder / 'out') == files(folder / 'again')
    found = weightfs('edit', '--set-value', 'a.n=70000', split, folder / 'no.gguf', code=None)
    assert "value 'a.n' has the type U16 in the GGUF: the number is out of its range" in found.error


def test_parts_without_change_are_not_written_again(split, folder):
    weightfs('edit', '--set-value', 'a.n=9', '--format=gguf', split, str(folder / 'out') + '/')
    same = [(folder / 'out' / gguf.set_name(i, 3)).stat().st_ino == (split / gguf.set_name(i, 3)).stat().st_ino for i in (1, 2, 3)]
    assert same[0] is False and same[1] == same[2]
    assert [(split / gguf.set_name(i, 3)).read_bytes() == files(folder / 'out')[gguf.set_name(i, 3)] for i in (1, 2, 3)] == [False, True, True]


def test_one_part_by_itself_stays_what_it_is(split, folder):
    part = split / gguf.set_name(2, 3)
    weightfs('convert', part, folder / 'out.gguf')
    assert (folder / 'out.gguf').read_bytes() == part.read_bytes()
    weightfs('convert', '--max-shard-size=1', '--format=gguf', part, str(folder / 'out') + '/')
    assert files(folder / 'out') == files(gguf.write_set(folder / 'expected', (), [[one] for one in PARTS[1]]).parent)


def test_parts_that_describe_other_places_are_findings(split, folder):
    gguf.write_set(folder / 'split', PAIRS, PARTS)
    other = gguf.write_set(folder / 'other', PAIRS, [[('z', 'F32', [1], bytes(4))]] * 2)
    (split / gguf.set_name(2, 3)).write_bytes((other.parent / gguf.set_name(2, 2)).read_bytes())
    (split / gguf.set_name(3, 3)).write_bytes(gguf.Writer().file([], PARTS[2]))
    assert weightfs('check', split, code=None).stdout.splitlines() == [
        "medium: shard 'model-00002-of-00003.gguf' describes itself as file 2 of 2, but is file 2 of 3",
        "medium: shard 'model-00003-of-00003.gguf' describes itself as a checkpoint of its own",
        "medium: shard 'model-00001-of-00003.gguf' states a number of tensors of 6, but all shards together have 5"]


def test_a_type_of_a_fork_is_written_again(folder):
    (folder / 'x.gguf').write_bytes(reject.files()['good-unknown.gguf'] + bytes(16))
    weightfs('convert', '--remap', 's/^t$/r/', folder / 'x.gguf', folder / 'out.gguf')
    assert (folder / 'out.gguf').read_bytes() == (folder / 'x.gguf').read_bytes().replace(b't', b'r', 1)


NAMES = {'model.embed_tokens.weight': 'token_embd.weight', 'model.norm.weight': 'output_norm.weight', 'lm_head.weight': 'output.weight',
         'model.layers.1.self_attn.q_proj.weight': 'blk.1.attn_q.weight', 'model.layers.1.self_attn.o_proj.weight': 'blk.1.attn_output.weight',
         'model.layers.10.mlp.gate_proj.weight': 'blk.10.ffn_gate.weight', 'model.layers.0.input_layernorm.weight': 'blk.0.attn_norm.weight',
         'model.layers.0.post_attention_layernorm.weight': 'blk.0.ffn_norm.weight'}


def test_the_rules_for_llama_lead_there_and_back(folder):
    there, back = re.findall(r'```json\n(.*?)```', (ROOT / 'docs/formats/gguf.md').read_text(), re.S)
    (folder / 'there.json').write_text(there)
    (folder / 'back.json').write_text(back)
    st.write(folder / 'in.safetensors', {name: ('F32', [2], bytes(8)) for name in NAMES})
    weightfs('convert', '--rules', folder / 'there.json', folder / 'in.safetensors', folder / 'out.gguf')
    assert sorted(key for key, *_ in listing(folder / 'out.gguf')) == sorted(NAMES.values())
    weightfs('convert', '--rules', folder / 'back.json', folder / 'out.gguf', folder / 'back.safetensors')
    assert sorted(st.read(folder / 'back.safetensors').tensors) == sorted(NAMES)


def test_npy_f32_leaves_blocks_of_a_big_endian_file(folder):
    (folder / 'm.gguf').write_bytes(gguf.Writer(big=True).file(tensors=[('q', 'Q4_0', [1, 32], bytes(18)), ('f', 'F16', [1], b'\x3c\x00')]))
    raw = weightfs('cat', '--npy=f32', folder / 'm.gguf', 'f').raw
    assert b"'<f4'" in raw and raw.endswith(struct.pack('<f', 1))
    weightfs('extract', '--npy=f32', folder / 'm.gguf', '-d', folder / 'out')
    assert (folder / 'out/f.npy').read_bytes() == raw and (folder / 'out/q.npy').exists()
