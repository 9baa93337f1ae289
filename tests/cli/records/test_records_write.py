# SPDX-License-Identifier: MIT
"""Records that are written, and what becomes of records in other formats: against files of Burn, the keys of burn-store, and an
independent encoder."""
import hashlib
import json
import struct

import pytest

from wfs_testlib import burnpack, golden_records as golden, mpk, pth_read, shared, st
from wfs_testlib.burnpack import Burnpack, Tensor
from wfs_testlib.mpk import F32, f32, metadata, pack, param, record, tensor, values
from wfs_testlib.program import EXIT_COMMIT, EXIT_USAGE, weightfs

UUID = '00000001-1234-4abc-8def-000013579bdf'
KEYS = [json.loads(line) for line in (golden.FOLDER / 'burnstore-keys-0.21.0.jsonl').read_text().splitlines()] if shared.IS_THERE else []


def put(folder, item, meta=None, name='in.mpk'):
    (folder / name).write_bytes(pack(record(item, meta)))
    return folder / name


def convert(source, target, *options):
    weightfs('convert', '--overwrite', *options, source, target)
    return target.read_bytes()


# ---- untouched

@pytest.mark.parametrize('version', golden.VERSIONS)
def test_what_burn_wrote_is_written_with_the_same_bytes(folder, version):
    for path, _ in golden.described(version):
        if path.suffix == '.mpk' and 'bytesrecorder' not in path.name:
            assert convert(path, folder / 'out.mpk') == path.read_bytes(), path


@pytest.mark.parametrize('version', golden.VERSIONS)
def test_other_containers_become_what_the_plain_recorder_writes(folder, version):
    for path, _ in golden.described(version):
        plain = path.parent.parent / (path.name.split('.')[0] + '.mpk')
        if path.parent.name == 'other' and 'bytesrecorder' not in path.name and ('json' not in path.name or version != 'v0.13.2'):
            assert convert(path, folder / 'out.mpk') == plain.read_bytes(), path


@pytest.mark.parametrize('suffix', ['.mpk', '.pth'])
def test_duplicate_keys_read_with_force_are_written_with_different_names(folder, suffix):
    twins = mpk.pairs([('k', 1), ('k', 2), ('k~2', 3), ('k', 4), ('', 5), ('', 6)])
    around = mpk.pairs([('k', {'k': 1}), ('l', {'k': 2}), ('k', {'k': 3})])
    path = put(folder, {'v': [twins, twins, around], 'w': tensor(b'', [0])})
    convert(path, folder / ('out' + suffix), '--force')
    found = json.loads(weightfs('config', folder / ('out' + suffix)).stdout)['v']
    assert found == [{'k': 1, 'k~2': 2, 'k~2~2': 3, 'k~3': 4, '': 5, '~2': 6}] * 2 + [{'k': {'k': 1}, 'l': {'k': 2}, 'k~2': {'k': 3}}]


# ---- keys of burn-store, and other formats

@pytest.mark.parametrize('version', golden.VERSIONS)
def test_a_burnpack_has_the_keys_of_burn_store(folder, version):
    for module in KEYS:
        path = golden.FOLDER / version / (module['name'] + '.mpk')
        if not path.exists():
            continue
        convert(path, folder / 'out.bpk')
        found = {key: (one.name, one.shape) for key, one in burnpack.read(folder / 'out.bpk').tensors.items()}
        expected = {key: (dtype, shape) for key, dtype, shape in module['keys']}
        if module['name'] == 'lstm' and version < 'v0.20':  # newer ones have the same parameters
            assert set(found) <= set(expected)
        expected = {key: (golden.DTYPES.get(dtype.split('(')[0], dtype), shape) for key, (dtype, shape) in expected.items()}
        assert set(found) == set(expected) and all(found[key][1] == expected[key][1] for key in found), path


@pytest.mark.parametrize('version', golden.VERSIONS)
def test_every_format_gets_the_tensors_of_a_record(folder, version):
    for path, text in golden.described(version):
        if any(one['dtype'] == 'QFloat' for one in text['tensors']):
            continue
        wanted = {golden.key_of(one['key']): one for one in text['tensors']}
        convert(path, folder / 'out.safetensors')
        found = {key: data for key, (_, _, data) in st.read(folder / 'out.safetensors').tensors.items()}
        assert {key: hashlib.sha256(data).hexdigest() for key, data in found.items()} == {key: one['sha256'] for key, one in wanted.items()}, path
        if path.name.startswith('optim-') and 'model' not in path.name:
            continue  # its names change, see test_records_optimizer.py
        convert(path, folder / 'out.bpk')
        tensors = burnpack.read(folder / 'out.bpk').tensors
        assert {key: hashlib.sha256(one.data).hexdigest() for key, one in tensors.items()} == {key: one['sha256'] for key, one in wanted.items()}, path
        assert {key: str(one.param_id) for key, one in tensors.items() if 'param_id_u64' in wanted[key]} == \
            {key: one['param_id_u64'] for key, one in wanted.items() if 'param_id_u64' in one}, path


def test_constants_of_a_module_are_not_reported_as_left_out(folder):
    path = put(folder, {'conv': {'weight': param(1, tensor(f32(1), [1])), 'stride': [None, None], 'groups': None}, 'act': None, 'n': 'x'})
    for name in ('out.bpk', 'out.safetensors'):
        lines = weightfs('convert', path, folder / name).stdout.splitlines()
        assert [line for line in lines if 'no place' in line] == ["left out, because %s has no place for them: 'n'" % (
            'burnpack' if 'bpk' in name else 'safetensors')]


def test_values_of_a_record_are_in_a_pytorch_file(folder):
    convert(put(folder, {'w': param(1, tensor(f32(1), [1])), 'stride': None, 'time': 3, 'list': [1.5, 'x']}), folder / 'out.pth')
    assert json.loads(weightfs('config', folder / 'out.pth').stdout) == {'time': 3, 'list': [1.5, 'x']}


# ---- new records

def expected_of(item, version='0.20.1', **more):
    return pack(record(item, metadata(version, **more)))


def write_pack(folder, tensors, scalars=None, meta=None):
    burnpack.write(folder / 'in.bpk', Burnpack(tensors, meta if meta is not None else {}, scalars or {}))
    return folder / 'in.bpk'


@pytest.mark.parametrize('option, version, spelled', [((), '0.20.1', 'Bool'), (('--burn-version=0.14',), '0.14.0', 'Bool'),
                                                      (('--burn-version', '0.18.3'), '0.18.3', 'Bool'),
                                                      (('--burn-version=0.21',), '0.21.0', {'Bool': 'Native'})])
def test_a_burnpack_becomes_the_record_of_a_version(folder, option, version, spelled):
    path = write_pack(folder, {'blocks.0.weight': Tensor('F32', [2], f32(1, 2), 7), 'blocks.1.weight': Tensor('I64', [1], bytes(8), 8),
                               'mask': Tensor({'Bool': 'Native'}, [2], b'\0\1', 9),
                               'r#type.weight': Tensor('F16', [1], b'\0\x3c', 2**64 - 1)})
    item = {'blocks': [{'weight': param(7, tensor(f32(1, 2), [2]))}, {'weight': param(8, tensor(bytes(8), [1], 'I64'))}],
            'mask': param(9, tensor(b'\0\1', [2], spelled)), 'type': {'weight': param(2**64 - 1, tensor(b'\0\x3c', [1], 'F16'))}}
    assert convert(path, folder / 'out.mpk', *option) == expected_of(item, version)


def test_parameters_without_an_id_get_different_ones(folder):
    st.write(folder / 'in.safetensors', {'a': ('F32', [1], f32(1)), 'b': ('F32', [1], f32(2))})
    first = convert(folder / 'in.safetensors', folder / 'out.mpk')
    assert first == convert(folder / 'in.safetensors', folder / 'again.mpk')
    ids = [one['param_id'] for one in burnpack_of(folder, folder / 'out.mpk')]
    assert len(set(ids)) == 2


def burnpack_of(folder, path):
    convert(path, folder / 'ids.bpk')
    return [{'param_id': one.param_id} for one in burnpack.read(folder / 'ids.bpk').tensors.values()]


@pytest.mark.parametrize('dtype, settings', [('F16', ('half::binary16::f16', 'i16', 'HalfPrecisionSettings')),
                                             ('F64', ('f64', 'i64', 'DoublePrecisionSettings')), ('BF16', ('f32', 'i32', 'FullPrecisionSettings'))])
def test_the_settings_follow_the_floats(folder, dtype, settings):
    st.write(folder / 'in.safetensors', {'a': (dtype, [0], b'')})
    convert(folder / 'in.safetensors', folder / 'out.mpk')
    meta = json.loads(weightfs('info', '--json', folder / 'out.mpk').stdout)['sources'][0]['metadata']
    assert (meta['float'], meta['int'], meta['settings']) == settings
    assert meta['format'] == 'burn_core::record::file::NamedMpkFileRecorder<burn_core::record::settings::%s>' % settings[2]


def test_like_gives_ids_and_constants(folder):
    like = {'conv': {'weight': param(5, tensor(bytes(16), [1, 1, 2, 2])), 'bias': None, 'stride': [None, None], 'groups': None},
            'gate': {'Tanh': None}, 'act': None, 'count': 4}
    st.write(folder / 'in.safetensors', {'conv.weight': ('F32', [1, 1, 2, 2], f32(1, 2, 3, 4))})
    error = weightfs('convert', folder / 'in.safetensors', folder / 'out.mpk', code=EXIT_COMMIT).error
    assert "'conv.weight'" in error and 'like' in error and 'burn_version 0.21' in error
    content = convert(folder / 'in.safetensors', folder / 'out.mpk', '--like', put(folder, like, name='like.mpk'))
    assert content == expected_of({
        'conv': {'weight': param(5, tensor(f32(1, 2, 3, 4), [1, 1, 2, 2])), 'bias': None, 'stride': [None, None], 'groups': None},
        'gate': {'Tanh': None}, 'act': None}, '0.18.0')
    convert(folder / 'in.safetensors', folder / 'out.mpk', '--burn-version=0.21')


@pytest.mark.parametrize('tensors, words', [
    ({'list.0': 1, 'list.2': 1}, "'list' would have no item 1"), ({'a': 1, 'a.b': 1}, 'has the place of another'),
    ({'a.b.c': 1, 'a.b': 1}, 'has the place of another'), ({'.'.join('a' * 1001): 1}, '1000 parts')])
def test_what_no_record_can_hold_is_refused_by_name(folder, tensors, words):
    st.write(folder / 'in.safetensors', {key: ('F32', [1], f32(1)) for key in tensors})
    assert words in weightfs('convert', folder / 'in.safetensors', folder / 'out.mpk', code=EXIT_COMMIT).error
    assert not (folder / 'out.mpk').exists()


def test_lists_are_in_the_order_of_their_numbers(folder):
    st.write(folder / 'in.safetensors', {'l.%d' % i: ('U8', [1], bytes([i])) for i in (10, 2, 0, 1, 9, 8, 7, 6, 5, 4, 3)})
    convert(folder / 'in.safetensors', folder / 'out.mpk')
    assert list(json.loads(weightfs('ls', '--json', folder / 'out.mpk').stdout)['tensors'][i]['key'] for i in (0, 1, 10)) == ['l.0', 'l.1', 'l.10']


def test_a_tensor_of_4_gib_is_refused(folder):
    n = 1 << 32
    head = json.dumps({'w': {'dtype': 'U8', 'shape': [n], 'data_offsets': [0, n]}}).encode()
    with open(folder / 'in.safetensors', 'wb') as file:
        file.write(struct.pack('<Q', len(head)) + head)
        file.truncate(8 + len(head) + n)
    assert 'less than 4 GiB' in weightfs('convert', folder / 'in.safetensors', folder / 'out.mpk', code=EXIT_COMMIT).error


def test_old_records_are_copied_and_converted(folder):
    item = {'w': param(UUID, values([F32(1), F32(2)], [2])), 'i': param(UUID, values([-5, 300], [2])), 'e': param(UUID, values([], [0])), 'n': [None, F32(0.5), 0.5]}
    path = put(folder, item, metadata('0.13.2'))
    assert convert(path, folder / 'out.mpk') == path.read_bytes()
    assert convert(path, folder / 'out.mpk', '--burn-version=0.18') == expected_of({
        'w': param(UUID, tensor(f32(1, 2), [2])), 'i': param(UUID, tensor(struct.pack('<2i', -5, 300), [2], 'I32')), 'e': param(UUID, tensor(b'', [0])),
        'n': [None, F32(0.5), 0.5]}, '0.18.0')


def one_width(marker, code, numbers):
    """Numbers with the marker of their dtype, however small they are."""
    return [mpk.Raw(bytes([marker]) + struct.pack('>' + code, number)) for number in numbers]


HALF = metadata('0.13.0', 'HalfPrecisionSettings', float='half::binary16::f16', int='i16',
                format=mpk.FORMAT.replace('FullPrecision', 'HalfPrecision'))
DOUBLE = metadata('0.13.0', 'DoublePrecisionSettings', float='f64', int='i64', format=mpk.FORMAT.replace('FullPrecision', 'DoublePrecision'))


@pytest.mark.parametrize('dtype, code, numbers, lists, meta', [
    ('F32', 'f', [1, -2.5, 0], lambda numbers: [F32(n) for n in numbers], metadata('0.13.0')),
    ('F64', 'd', [1, -2.5, 1e300], lambda numbers: [float(n) for n in numbers], DOUBLE),
    ('BOOL', '?', [False, True, True], list, metadata('0.13.0')),
    ('I32', 'i', [0, -1, 2**31 - 1], lambda numbers: one_width(0xd2, 'i', numbers), metadata('0.13.0')),
    ('F16', 'e', [1, -2.5, 0], lambda numbers: one_width(0xcd, 'e', numbers), HALF)])
@pytest.mark.parametrize('n', [3, 230000])  # more than is written at once
def test_lists_of_numbers_are_written_for_burn_0_13(folder, dtype, code, numbers, lists, meta, n):
    numbers = (numbers * n)[:n]
    data = struct.pack('<%d%s' % (n, code), *numbers)
    st.write(folder / 'in.safetensors', {'w': (dtype, [n], data)})
    content = convert(folder / 'in.safetensors', folder / 'out.mpk', '--burn-version=0.13')
    number = burnpack_of(folder, folder / 'out.mpk')[0]['param_id']
    assert content == pack(record({'w': param(number, values(lists(numbers), [n]))}, meta))
    assert weightfs('cat', folder / 'out.mpk', 'w').raw == data


def test_changed_tensors_of_an_old_record_become_lists(folder):
    path = put(folder, {'a': {'w': param(UUID, values([F32(n) for n in (1, 2, 3, 4, 5, 6)], [3, 2]))}, 'i': param(UUID, values([-5, 300], [2])),
                        'n': None}, metadata('0.13.2'))
    content = convert(path, folder / 'out.mpk', '--transpose', '^b', '--rename', 'a', 'b')
    assert content == pack(record({'b': {'w': param(UUID, values([F32(n) for n in (1, 3, 5, 2, 4, 6)], [2, 3]))},
                                   'i': param(UUID, values([-5, 300], [2])), 'n': None}, metadata('0.13.2')))
    assert weightfs('convert', '--cast', 'f16', path, folder / 'no.mpk', code=EXIT_COMMIT).error.count("'a.w' is F16") == 1


@pytest.mark.parametrize('dtype, data, more', [('I16', bytes(2), {}), ('I64', bytes(8), {}), ('U8', b'x', {}), ('F16', bytes(2), {'x': ('F32', [1], f32(1))}),
                                               ('BF16', bytes(2), {}), ('I32', b'', {}), ('BOOL', b'', {}),
                                               ('I16', bytes(2), {'x': ('F16', [1], bytes(2))}), ('F8_E4M3', b'x', {})])
def test_what_burn_0_13_would_read_as_another_dtype_is_refused(folder, dtype, data, more):
    st.write(folder / 'in.safetensors', {'w': (dtype, [1 if data else 0], data), **more})
    error = weightfs('convert', '--burn-version=0.13', folder / 'in.safetensors', folder / 'no.mpk', code=EXIT_COMMIT).error
    assert "'w'" in error and (dtype == 'F8_E4M3' or (' is %s: ' % dtype in error and 'burn_version 0.14' in error))
    assert not (folder / 'no.mpk').exists()


def test_burn_version_is_checked(folder):
    path = put(folder, {})
    for value in ('0.7', '0.22', '1.0', '', 'x', '0.18x'):
        assert 'from 0.8 to 0.21' in weightfs('convert', '--burn-version', value, path, folder / 'out.mpk', code=EXIT_USAGE).error
    assert '.mpk files only' in weightfs('convert', '--burn-version=0.18', path, folder / 'out.bpk', code=EXIT_USAGE).error


@pytest.mark.parametrize('value', [None, True, 0, 127, 128, 255, 256, 65535, 65536, 2**32, 2**64 - 1, -1, -32, -33, -128, -129, -32769, -2**31 - 1, -2**63,
                                   0.0, -0.0, 1.5, float('inf'), F32(0.1), 'a' * 31, 'a' * 32, 'a' * 256, 'a' * 65536, [], {}, list(range(15)), list(range(16)),
                                   list(range(40)), {str(i) + 'k': i for i in range(16)}, [[1, [2]], {'a': {'b': []}}]])
def test_values_are_written_in_their_shortest_form(folder, value):
    path = put(folder, {'x': value, 'w': tensor(b'', [0])})
    assert convert(path, folder / 'out.mpk') == path.read_bytes()


def test_quantization_survives_a_burnpack(folder):
    scheme = {'value': 'Q8S', 'store': 'Native', 'level': {'Block': {'storage': [4, 1, 1, 1, 1], 'len': 1}}, 'scale': 0.25}
    path = put(folder, {'w': param(3, tensor(b'abcd', [2, 2], {'QFloat': scheme}))}, metadata('0.20.1'))
    convert(path, folder / 'out.bpk')
    assert weightfs('diff', path, folder / 'out.bpk').stdout == ''
    item = convert(folder / 'out.bpk', folder / 'out.mpk').partition(b'\xa4item')[2]
    assert item == path.read_bytes().partition(b'\xa4item')[2]


def test_texts_that_somebody_added_to_the_metadata_stay(folder):
    path = put(folder, {}, metadata('0.18.0', note='mine'))
    assert convert(path, folder / 'out.mpk') == path.read_bytes()
    assert json.loads(weightfs('info', '--json', path).stdout)['sources'][0]['metadata']['note'] == 'mine'


@pytest.mark.parametrize('text', ['f32', '', 'x' * 70000], ids=['short', 'empty', 'long'])
def test_a_text_called_bytes_is_a_text_where_there_is_no_tensor(folder, text):
    source = put(folder, {'w': param(mpk.param_id(5), tensor(b'abcd', [1])), 'conf': {'bytes': text}}, metadata('0.18.0', bytes=text))
    assert json.loads(weightfs('config', source).stdout)['conf'] == {'bytes': text}
    assert json.loads(weightfs('info', '--json', source).stdout)['sources'][0]['metadata']['bytes'] == text
    convert(source, folder / 'out.mpk')
    assert (folder / 'out.mpk').read_bytes() == source.read_bytes()
    convert(source, folder / 'out.pth')


@pytest.mark.parametrize('text', ['é"\n\0 four', '', 'x' * 70000], ids=['short', 'empty', 'long'])
def test_a_text_called_bytes_is_a_tensor_in_json_as_in_messagepack(folder, text):
    content = text.encode()
    shaped = {'bytes': text, 'shape': [len(content)], 'dtype': 'U8'}
    other = [{'bytes': text, 'shape': 'wide', 'dtype': 'U8'}, {'bytes': text, 'shape': [1]}, {'bytes': text, 'dtype': 'U8'}]
    source = folder / 'in.json'
    source.write_text(json.dumps(record({'w': param(mpk.param_id(5), shaped), 'conf': other}, metadata('0.18.0'))))
    for path in (source, folder / 'out.mpk', folder / 'again.mpk'):
        if path != source:
            convert(previous, path)
        assert [one['key'] for one in json.loads(weightfs('ls', '--json', path).stdout)['tensors']] == ['w'], path
        assert weightfs('cat', path, 'w').raw == content, path
        assert json.loads(weightfs('config', path).stdout)['conf'] == other, path
        previous = path


@pytest.mark.parametrize('fields', [
    {'id': 'mine', 'data': tensor(b'abcd', [1])}, {'data': tensor(b'abcd', [1])},
    {'id': 'mine', 'data': {'shape': param(mpk.param_id(6), tensor(b'abcd', [1]))}}])
def test_what_is_no_tensor_and_would_be_read_as_one_is_refused(folder, fields):
    source = put(folder, {'w': param(mpk.param_id(5), tensor(b'abcd', [1])), 'conf': fields})
    convert(source, folder / 'out.mpk')
    refused = weightfs('convert', '--overwrite', '--remap', 's/data/param/', source, folder / 'out.mpk', code=EXIT_COMMIT)
    assert "'conf' is not a tensor and would be read as one" in refused.error
    assert (folder / 'out.mpk').read_bytes() == source.read_bytes()


def test_ids_are_written_as_they_were(folder):
    path = put(folder, {'a': param('T41G000000000', tensor(b'', [0])), 'b': param('not an id!', tensor(b'', [0])), 'c': param('', tensor(b'', [0])),
                        'd': param(mpk.param_id(5), tensor(b'', [0]))})
    assert convert(path, folder / 'out.mpk') == path.read_bytes()


@pytest.mark.peers
@pytest.mark.parametrize('version', golden.VERSIONS)
def test_torch_reads_what_a_record_became(folder, version):
    import torch
    for path, text in golden.described(version):
        if any(one['dtype'] == 'QFloat' for one in text['tensors']) or not text['tensors']:
            continue
        convert(path, folder / 'out.pth')
        state = torch.load(folder / 'out.pth')
        for one in text['tensors']:
            found = state[golden.key_of(one['key'])]
            assert list(found.shape) == one['shape']
            data = found.contiguous().view(torch.int16).numpy().tobytes() if found.dtype == torch.bfloat16 else found.numpy().tobytes()
            assert hashlib.sha256(data).hexdigest() == one['sha256'], (path, one['key'])


def test_a_pytorch_file_of_a_record_is_read_independently(folder):
    item = {'a': {'w': param(1, tensor(f32(1, 2), [2]))}, 'b': param(2, tensor(b'\1\0', [2], 'Bool'))}
    convert(put(folder, item), folder / 'out.pth')
    found = pth_read.tensors(pth_read.load(folder / 'out.pth'))
    assert set(found) == {'a.w', 'b'}
