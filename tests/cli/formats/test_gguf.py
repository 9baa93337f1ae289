# SPDX-License-Identifier: MIT
"""GGUF: files of the reference package with what it reads in them, malformed ones with the verdicts of both reference readers."""
import hashlib
import json

import pytest

from wfs_testlib import gguf, make_reject_gguf as reject, shared
from wfs_testlib.program import EXIT_DAMAGED, EXIT_DONE, EXIT_FOREIGN, EXIT_UNSUPPORTED, tool, weightfs

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
        assert weightfs(verb, path, code=int(code)).error == '%s: %s' % (path, message)


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
