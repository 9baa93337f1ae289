# SPDX-License-Identifier: MIT
"""Burn's records through the program: what nine releases of Burn wrote, what they read and refuse, and what is ambiguous."""
import gzip
import hashlib
import json
import struct

import pytest

from wfs_testlib import burnpack, golden_records as golden, make_reject_records as reject, mpk, program, shared
from wfs_testlib.mpk import F32, f32, metadata, pack, param, record, tensor, values
from wfs_testlib.program import (EXIT_DAMAGED, EXIT_FOREIGN, EXIT_FOUND, EXIT_UNSUPPORTED, ROOT, listing, run_measured, tool, weightfs)

UUID = '00000001-1234-4abc-8def-000013579bdf'
HALF = metadata('0.13.2', 'HalfPrecisionSettings', float='half::binary16::f16', int='i16')
BF16 = metadata('0.13.2', 'Own', float='half::bfloat::bf16', int='u8')
OLD = metadata('0.13.2')


def put(folder, content, name='model.mpk'):
    (folder / name).write_bytes(content)
    return folder / name


def put_item(folder, item, meta=None, name='model.mpk'):
    return put(folder, pack(record(item, meta)), name)


def findings(path, code=EXIT_FOUND, *options):
    return [(one['severity'], one['text']) for one in json.loads(weightfs('check', '--json', *options, path, code=code).stdout)['sources'][0]['findings']]


def brief(path, *options):
    return {key: (one['dtype'], one['shape'], one['bytes']) for key, one in listing(path, *options).items()}


# ---- what Burn wrote

@pytest.mark.parametrize('version', golden.VERSIONS)
def test_what_burn_wrote_is_listed_with_its_values_and_metadata(version):
    files = golden.described(version)
    assert len(files) > 35
    for path, text in files:
        found = listing(path)
        assert [(key, one['dtype'], one['shape'], one['bytes']) for key, one in found.items()] == golden.listing(text), path
        config = json.loads(weightfs('config', path).stdout)
        assert repr(golden.flat(config) if config else {}) == repr(golden.values(text)), path
        if text['metadata']:
            assert json.loads(weightfs('info', '--json', path).stdout)['sources'][0]['metadata'] == text['metadata'], path


@pytest.mark.parametrize('version', golden.VERSIONS)
def test_what_burn_wrote_is_read(version):
    for path, text in golden.described(version):
        for one in text['tensors']:
            raw = weightfs('cat', path, golden.key_of(one['key'])).raw
            assert hashlib.sha256(raw).hexdigest() == one['sha256'], (path, one['key'])


def test_binary_records_are_refused_by_name():
    if not shared.IS_THERE:
        pytest.skip(shared.WHY_NOT)
    for version in golden.VERSIONS:
        for path in sorted((golden.FOLDER / version / 'other').glob('*.bin*')):
            error = weightfs('ls', path, code=EXIT_UNSUPPORTED).error
            recorder = 'BinBytesRecorder' if 'bytesrecorder' in path.name else 'BinGzFileRecorder' if '.gz' in path.name else 'BinFileRecorder'
            settings = 'HalfPrecisionSettings' if 'half' in path.name or path.name == 'convbn.bin.gz' else 'FullPrecisionSettings'
            assert "Burn's %s (Burn %s, %s)" % (recorder, version[1:], settings) in error
            assert 'NamedMpkFileRecorder' in error


# ---- what Burn reads and refuses

# Files that every Burn of the dialect refuses, and that are read. In most cases the reason is that Burn knows the type of the module
# and the recorder beforehand, and the file alone does not say them.
READ = {
    'gz-plain-inside.mpk.gz': 'the content decides, not the name',
    'gzip-inside.mpk': 'the content decides, not the name',
    'gz-two-members.mpk.gz': 'gzip files may have several members; there is a finding',
    'item-nil.mpk': 'a record of a scheduler without a state',
    'weight-missing.mpk': 'which parameters a module needs is not in the file',
    'weight-nil.mpk': 'an absent option is null',
    'old-dialect.mpk': 'the dialect of an older Burn',
    'new-dialect.mpk': 'the dialect of a newer Burn',
}
# Files that some Burn reads, and that are refused.
REFUSED = {
    'keys-as-index.mpk': 'the fields have numbers instead of names',
    'structs-as-arrays.mpk': 'the fields have no names',
}
# Files with which Burn panics, and those that it reads in its own way: the words of our finding; '': there is none.
ODD = {
    'bytes-long.mpk': 'the file has 28', 'bytes-odd-length.mpk': 'the file has 25', 'bytes-short.mpk': 'the file has 20',
    'shape-empty.mpk': 'shape []', 'shape-huge.mpk': 'passes 2^64 bytes', 'shape-product-wrong.mpk': 'shape [3, 3]',
    'value-long.mpk': 'the file has 7', 'value-short.mpk': 'the file has 5',
    'shape-rank1.mpk': '', 'shape-rank3.mpk': '',  # the rank of a parameter is not in the file
    'id-bad-last-digit.mpk': 'its id', 'id-invalid.mpk': 'its id', 'id-sixteen-bytes.mpk': 'its id', 'id-empty.mpk': 'its id',
}


def verdicts():
    if not shared.IS_THERE:
        return {}
    result = {}
    for name, answers in json.loads((golden.FOLDER / 'crafted/verdicts.json').read_text()).items():
        is_old = name.startswith('old/')
        own = [answer for answer in answers if any(burn.startswith('0.13') == is_old and 'compat' not in burn for burn in answer['burn'])]
        result[name] = {'ok' if answer['ok'] else 'panic' if answer['text'].startswith('panic') else 'error' for answer in own}
    return result


@pytest.mark.parametrize('dialect', ['old', 'new'])
def test_what_every_burn_refuses_is_refused_with_one_line(dialect):
    for name, answers in verdicts().items():
        folder, file = name.split('/')
        if folder != dialect:
            continue
        found = weightfs('ls', golden.FOLDER / 'crafted' / name, code=None)
        if file == 'value-as-bin.mpk':  # Burn takes the bytes for numbers, of which there are too many then, and panics
            assert found.code == EXIT_DAMAGED and "'weight'" in found.error
        elif (answers == {'error'} and file not in READ) or file in REFUSED:
            assert found.code in (EXIT_DAMAGED, EXIT_UNSUPPORTED, EXIT_FOREIGN), name
            assert found.error
        else:
            assert found.code == 0 and (answers != {'error'} or file in READ), name


@pytest.mark.parametrize('name', [name for name in verdicts() if name.split('/')[1] in ODD])
def test_where_burn_panics_the_tensor_is_named_and_the_others_are_read(name):
    path = golden.FOLDER / 'crafted' / name
    words = ODD[name.split('/')[1]]
    if words and not (name.startswith('old/id-') and words == 'its id'):
        assert [text for _, text in findings(path) if words in text and "'weight'" in text]
    assert weightfs('cat', path, 'bias').raw == f32(2, 2.1)


def test_a_good_file_of_each_dialect_has_no_severe_finding():
    for name in ('new', 'old'):
        if shared.IS_THERE:
            assert all(one[0] == 'info' for one in findings(golden.FOLDER / 'crafted' / name / 'ok.mpk', 0))


REJECTED = sorted((ROOT / 'tests/data/reject/records').glob('*.expect'))


@pytest.mark.parametrize('path', REJECTED, ids=lambda path: path.stem)
def test_a_damaged_record_is_refused_with_the_expected_words(path):
    code, message = path.read_text().splitlines()
    found = weightfs('ls', path.with_suffix('.mpk'), code=int(code))
    assert found.error == program.refusal(path.with_suffix('.mpk'), message)


def test_the_damaged_records_are_what_the_script_makes():
    tool('/usr/bin/python3', reject.__file__, '--check')


def test_every_cut_is_refused_and_with_force_the_front_is_read(folder):
    content = pack(record({'a': param(1, tensor(f32(1, 2), [2])), 'b': param(2, tensor(f32(3), [1]))}))
    path = folder / 'cut.mpk'
    seen = set()
    for n in range(len(content)):
        path.write_bytes(content[:n])
        found = weightfs('ls', path, code=None)
        assert found.code in (EXIT_DAMAGED, EXIT_FOREIGN) and found.error
        forced = weightfs('ls', '--force', '--json', path, code=None)
        if forced.code == 0:
            seen.add(tuple(one['key'] for one in json.loads(forced.stdout)['tensors']))
    assert {(), ('a',), ('a', 'b')} <= seen


@pytest.mark.parametrize('content', [b'\x83\xa8metadata\xc0\xa4item\xdd\xff\xff\xff\xff', b'\x83\xa8metadata\xdf\xff\xff\xff\xff',
                                     b'\x82\xa4item\xc6\xff\xff\xff\xff', b'\x82\xa4item\xdb\xff\xff\xff\xff'])
def test_counts_that_lie_take_no_memory(folder, content):
    code, memory = run_measured('ls', put(folder, content + bytes(1000)))
    assert code == EXIT_DAMAGED and memory < 64 << 20


def test_a_record_of_another_kind_of_msgpack_is_named(folder):
    error = weightfs('ls', put(folder, pack({'params': {'w': 1}, 'step': 3})), code=EXIT_FOREIGN).error
    assert 'msgpack' in error and 'Flax' in error


def test_the_content_decides_and_not_the_name(folder):
    content = pack(record({'w': param(1, tensor(f32(1), [1]))}))
    for name, what in (('model.bin', content), ('model.safetensors', content), ('x', gzip.compress(content))):
        path = put(folder, what, name)
        assert brief(path) == {'w': ('F32', [1], 4)}
    assert any('name ends like' in text for _, text in findings(folder / 'model.safetensors', 0))


def test_an_index_of_shards_is_not_taken_for_a_record(folder):
    index = {'metadata': {'total_size': 4, 'float': '1'}, 'weight_map': {}}
    assert 'a record of Burn' not in weightfs('ls', put(folder, json.dumps(index).encode(), 'model.safetensors.index.json'), code=None).stderr


# ---- ids

@pytest.mark.parametrize('number', [0, 1, 123456, 2**63, 2**64 - 1, 0x9E3779B97F4A7C15])
def test_an_id_is_the_number_that_burn_reads(folder, number):
    path = put_item(folder, {'w': param(number, tensor(f32(1), [1]))})
    assert number != 123456 or mpk.param_id(number) == '83h0200000000'
    weightfs('convert', path, folder / 'out.bpk')
    assert burnpack.read(folder / 'out.bpk', True).tensors['w'].param_id == number


@pytest.mark.parametrize('text, number', [('3uu5e6vv7c', int.from_bytes(bytes.fromhex('1fbc571bff3b'), 'little')), ('T41G000000000', 1001), ('', 0),
                                          ('t41g00000000', 1001)])
def test_shorter_ids_and_upper_case_are_what_burn_reads(folder, text, number):
    path = put_item(folder, {'w': param(text, tensor(f32(1), [1]))})
    weightfs('convert', path, folder / 'out.bpk')
    assert burnpack.read(folder / 'out.bpk', True).tensors['w'].param_id == number


# ---- what is ambiguous

@pytest.mark.parametrize('numbers, meta, dtype, content, words', [
    ([F32(1), F32(2)], OLD, 'F32', f32(1, 2), ''),
    ([1.0, 2.0], OLD, 'F64', struct.pack('<2d', 1, 2), ''),
    ([True, False], OLD, 'BOOL', b'\1\0', ''),
    ([1, -2], OLD, 'I32', struct.pack('<2i', 1, -2), ''),
    ([1, 2], metadata('0.13.2', int='i64', float='f64'), 'I64', struct.pack('<2q', 1, 2), ''),
    ([1, -2], HALF, 'I16', struct.pack('<2h', 1, -2), ''),
    ([0x3c00, 0xbc00], HALF, 'F16', struct.pack('<2e', 1, -1), ''),
    ([0x3c00, 0x4000], HALF, 'F16', struct.pack('<2e', 1, 2), 'can be the bits of F16, or numbers of I16'),
    ([0x3f80, 0x4000], BF16, 'BF16', b'\x80\x3f\x00\x40', ''),
    ([1, 2], BF16, 'BF16', b'\1\0\2\0', 'can be the bits of BF16, or numbers of U8'),
    ([F32(1), 2, 3.0], OLD, 'F32', f32(1, 2, 3), 'of several kinds'),
    ([], OLD, 'F32', b'', 'no elements'),
    ([], HALF, 'F16', b'', 'no elements'),
])
def test_the_dtype_of_a_list_of_numbers(folder, numbers, meta, dtype, content, words):
    path = put_item(folder, {'w': param(UUID, values(numbers, [len(numbers)]))}, meta)
    assert brief(path)['w'] == (dtype, [len(numbers)], len(content))
    assert weightfs('cat', path, 'w').raw == content
    texts = [text for severity, text in findings(path, None) if severity != 'info' or 'UUID' not in text]
    assert [words in text for text in texts] == ([True] if words else [])


def test_integers_up_to_burn_0_11_are_floats(folder):
    path = put(folder, pack({'metadata': metadata('0.11.1', int='f32'), 'item': {'w': param(UUID, values([F32(1), F32(-2)], [2]))}}))
    assert weightfs('cat', path, 'w').raw == f32(1, -2)


def test_long_lists_are_read_from_any_offset(folder):
    numbers = [(i * 7919) % 70000 - 20000 for i in range(20011)]
    path = put_item(folder, {'w': param(UUID, values(numbers, [20011]))}, OLD)
    whole = struct.pack('<20011i', *numbers)
    assert weightfs('cat', path, 'w').raw == whole
    text = json.dumps(record({'w': param(UUID, values(numbers, [20011]))}, OLD))
    assert weightfs('cat', put(folder, text.encode(), 'x.json'), 'w').raw == whole
    assert weightfs('cat', put(folder, gzip.compress(text.encode()), 'x.json.gz'), 'w').raw == whole


@pytest.mark.parametrize('version, number, dtype', [('0.14.1', 2, 'F16'), ('0.15.0', 10, 'U8'), ('0.16.1', 10, 'U16'), ('0.18.0', 2, 'FLEX32'),
                                                    ('0.18.0', 13, 'BOOL'), ('0.21.0', 0, 'F64')])
def test_a_dtype_by_number_is_that_of_its_burn(folder, version, number, dtype):
    size = {'F16': 2, 'U8': 1, 'U16': 2, 'FLEX32': 4, 'BOOL': 1, 'F64': 8}[dtype]
    path = put_item(folder, {'w': param(1, tensor(bytes(2 * size), [2], number))}, metadata(version))
    assert brief(path)['w'] == (dtype, [2], 2 * size)


@pytest.mark.parametrize('name, size', [('F64', 8), ('F32', 4), ('Flex32', 4), ('F16', 2), ('BF16', 2), ('I64', 8), ('I32', 4), ('I16', 2),
                                        ('I8', 1), ('U64', 8), ('U32', 4), ('U16', 2), ('U8', 1), ('Bool', 1)])
def test_every_dtype(folder, name, size):
    content = bytes(i % 2 for i in range(3 * size))
    path = put_item(folder, {'w': param(1, tensor(content, [3], name)), 'v': tensor(content, [3], {name: 'Native' if name == 'Bool' else None})})
    assert brief(path) == {key: ({'Bool': 'BOOL', 'Flex32': 'FLEX32'}.get(name, name), [3], 3 * size) for key in 'wv'}
    assert weightfs('cat', path, 'w').raw == content


def test_bytes_beyond_the_shape_are_shown_only_with_force(folder):
    path = put_item(folder, {'w': param(1, tensor(f32(1, 2, 3), [2])), 'v': param(2, tensor(f32(4), [2]))})
    assert "takes 8 bytes, the file has 12" in weightfs('cat', path, 'w', code=EXIT_DAMAGED).error
    assert weightfs('cat', '--force', path, 'w').raw == f32(1, 2)
    weightfs('cat', '--force', path, 'v', code=EXIT_DAMAGED)
    weightfs('convert', path, folder / 'out.safetensors', code=None)
    assert not (folder / 'out.safetensors').exists()


def test_a_length_that_the_writer_cut_is_found_again(folder):
    n = (1 << 32) + 8
    head, tail = pack(record({'a': param(1, tensor(b'', [0])), 'w': param(2, tensor(b'@@@@@@@@', [n // 4])), 'z': param(3, tensor(f32(5), [1]))})).split(
        b'@@@@@@@@')
    path = folder / 'large.mpk'
    with open(path, 'wb') as file:
        file.write(head + f32(1, 2))
        file.seek(n - 4 - 8, 1)
        file.write(f32(3) + tail)
    assert brief(path) == {'a': ('F32', [0], 0), 'w': ('F32', [n // 4], n), 'z': ('F32', [1], 4)}
    assert any('%d, but Burn has written a length of 8' % n in text for _, text in findings(path))
    assert weightfs('cat', path, 'z').raw == f32(5)


# ---- names and values

def test_struct_fields_of_any_name(folder):
    item = {name: param(i, tensor(f32(i), [1])) for i, name in enumerate(('id', 'param', 'bytes', 'shape', 'dtype', 'value', 'item', 'metadata', 'type', 'fn'))}
    path = put_item(folder, item)
    assert list(brief(path)) == ['id', 'param', 'bytes', 'shape', 'dtype', 'value', 'item', 'metadata', 'r#type', 'r#fn']


def test_constants_called_like_fields_of_a_tensor_are_values(folder):
    path = put_item(folder, {'m': {'shape': None, 'dtype': None, 'bytes': None}, 'n': {'id': 'x', 'param': {'a': 1}}, 's': {'shape': [1, 2], 'value': None}})
    assert brief(path) == {}
    assert json.loads(weightfs('config', path).stdout) == {
        'm': {'shape': None, 'dtype': None, 'bytes': None}, 'n': {'id': 'x', 'param': {'a': 1}}, 's': {'shape': [1, 2], 'value': None}}


@pytest.mark.parametrize('item, expected', [(param(1, tensor(f32(1), [1])), {'item': ('F32', [1], 4)}), (tensor(f32(1), [1]), {'item': ('F32', [1], 4)}),
                                            ([tensor(f32(1), [1])], {'0': ('F32', [1], 4)}), (5, {}), (None, {}), ([], {}), ({}, {})])
def test_the_whole_item_can_be_anything(folder, item, expected):
    path = put_item(folder, item)
    assert brief(path) == expected
    if not expected:
        assert json.loads(weightfs('config', path).stdout) == {'item': item}


def test_values_have_the_largest_parts_without_a_tensor(folder):
    item = {'conv': {'weight': param(1, tensor(f32(1), [1])), 'stride': [None, None], 'groups': None}, 'heads': [{'Act': None}, {'Fc': param(2, tensor(b'', [0]))}],
            'list': list(range(100)), 'mixed': [1, 'x', 2.5, F32(0.5), -7, 2**64 - 1, True], 'none': []}
    path = put_item(folder, item)
    assert list(brief(path)) == ['conv.weight', 'heads.1.Fc']
    assert json.loads(weightfs('config', path).stdout) == {
        'conv.stride': [None, None], 'conv.groups': None, 'heads.0': {'Act': None}, 'list': list(range(100)),
        'mixed': [1, 'x', 2.5, 0.5, -7, 2**64 - 1, True], 'none': []}


def test_quantized_tensors_are_opaque_with_their_scheme(folder):
    scheme = {'level': {'Block': [2, 1]}, 'mode': 'Symmetric', 'scale': 0.5, 'text': 'a\n "b'}
    path = put_item(folder, {'w': param(1, tensor(b'abcdef', [2, 2], {'QFloat': scheme}))})
    assert brief(path)['w'] == ('OPAQUE', [2, 2], 6)
    weightfs('convert', path, folder / 'out.bpk')
    assert burnpack.read(folder / 'out.bpk', True).tensors['w'].dtype == {'QFloat': scheme}


@pytest.mark.parametrize('change, words', [
    (lambda data: data[:-8] + bytes([data[-8] ^ 1]) + data[-7:], 'another checksum'), (lambda data: data[:-4] + bytes(4), 'another length'),
    (lambda data: data[:-8], 'ends before its trailer'), (lambda data: data[:-3], 'ends before its trailer'), (lambda data: data + b'xyz', '3 bytes follow'),
    (lambda data: data, '')])
def test_oddities_of_gzip_are_findings(folder, change, words):
    content = pack(record({'w': param(1, tensor(f32(1, 2), [2]))}))
    path = put(folder, change(gzip.compress(content, mtime=0)), 'model.mpk.gz')
    assert weightfs('cat', path, 'w').raw == f32(1, 2)
    assert [words in text for _, text in findings(path, None)] == ([True] if words else [])


def test_several_members_of_gzip_are_one_record(folder):
    numbers = list(range(50000))
    content = pack(record({'w': param(1, tensor(struct.pack('<50000i', *numbers), [50000], 'I32'))}))
    pieces = [gzip.compress(content[i:i + 60007]) for i in range(0, len(content), 60007)] + [gzip.compress(b'')]
    path = put(folder, b''.join(pieces), 'model.mpk.gz')
    assert weightfs('cat', path, 'w').raw == struct.pack('<50000i', *numbers)


@pytest.mark.parametrize('limit, item', [('record_depth=5', [[[[[[None]]]]]]), ('values=50', [None] * 60), ('values=50', list(range(60))), ('key=4', {'abcde': 1}),
                                         ('text=3', 'abcd'), ('tensors=1', [tensor(b'', [0])] * 2), ('rank=2', tensor(b'', [0, 1, 2])),
                                         ('names=5', [tensor(b'', [0])] * 9)])
def test_limits_are_named(folder, limit, item):
    path = put_item(folder, item)
    if limit.startswith(('key', 'text')):  # the metadata are texts too
        assert 'limit' in weightfs('ls', '--limit', limit, path, code=EXIT_UNSUPPORTED).error
        return
    weightfs('ls', path)
    assert '(limit %s)' % limit.split('=')[0] in weightfs('ls', '--limit', limit, path, code=EXIT_UNSUPPORTED).error


def test_json_above_its_limit_is_refused(folder):
    path = put(folder, json.dumps(record({})).encode(), 'x.json')
    weightfs('ls', path)
    assert '(limit record_json)' in weightfs('ls', '--limit', 'record_json=10', path, code=EXIT_UNSUPPORTED).error
