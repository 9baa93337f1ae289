# SPDX-License-Identifier: MIT
"""The state of optimizers, which records of Burn and Burnpacks of Burn 0.22 name differently."""
import hashlib
import json

import pytest

from wfs_testlib import burnpack, golden_records as golden, mpk, pth_read, shared, st
from wfs_testlib.burnpack import Burnpack, Tensor
from wfs_testlib.mpk import f32, metadata, pack, param, record, tensor, values
from wfs_testlib.program import EXIT_COMMIT, weightfs

UUID = '00000001-1234-4abc-8def-000013579bdf'
PACKS = shared.FOLDER / 'golden/burn/burnpack/optim-v0.22.1'
OPTIMIZERS = ['adam', 'adamw', 'sgd', 'sgd-momentum', 'rmsprop']


def put(folder, item, meta=None):
    (folder / 'in.mpk').write_bytes(pack(record(item, meta)))
    return folder / 'in.mpk'


def convert(source, target, *options):
    weightfs('convert', '--overwrite', *options, source, target)
    return target


def number_of(digits):
    """What Burn 0.15 and later read from the digits of an id: the inverse of mpk.param_id, by bytes."""
    bits = ''.join('{:05b}'.format(mpk.DIGITS.index(digit)) for digit in digits)
    n = len(bits) // 8
    return int.from_bytes(bytes(int(bits[8 * i:8 * i + 8], 2) for i in range(n)), 'little')


def flat_of(path):
    """The name in a Burnpack of what a record has at the path, and the rank."""
    digits, version, rank, *rest = path.split('.')
    assert version == 'V1' and rank.startswith('Rank')
    return number_of(digits), int(rank[4:]), '.'.join(rest)


@pytest.mark.parametrize('version', [version for version in golden.VERSIONS if version != 'v0.13.2'])
@pytest.mark.parametrize('name', OPTIMIZERS)
def test_a_record_of_an_optimizer_gets_the_names_of_burn_0_22(folder, version, name):
    source = golden.FOLDER / version / ('optim-%s.mpk' % name)
    text = json.loads(source.with_suffix('.json').read_text())
    found = burnpack.read(convert(source, folder / 'out.bpk'))
    tensors, scalars = {}, {}
    for one in text['tensors']:
        number, rank, rest = flat_of(one['key'])
        tensors['%d.%s' % (number, rest)] = (number, one['shape'], one['sha256'])
        scalars['%d.__rank' % number] = {'UInt': rank}
    for one in text['values']:
        number, rank, rest = flat_of(one['path'])
        scalars['%d.__rank' % number] = {'UInt': rank}
        if one['value'] is not None:
            scalars['%d.%s' % (number, rest)] = {'UInt': one['value']}
    assert {key: (one.param_id, one.shape, hashlib.sha256(one.data).hexdigest()) for key, one in found.tensors.items()} == tensors
    assert found.scalars == scalars and len(scalars) >= 2


@pytest.mark.parametrize('name', ['adam', 'adam-amsgrad', 'adamw', 'sgd', 'sgd-momentum'])
def test_a_burnpack_of_an_optimizer_becomes_a_record_and_back(folder, name):
    if not shared.IS_THERE:
        pytest.skip(shared.WHY_NOT)
    source = burnpack.read(PACKS / ('optim-%s.bpk' % name))
    back = burnpack.read(convert(convert(PACKS / ('optim-%s.bpk' % name), folder / 'out.mpk'), folder / 'back.bpk'))
    assert {key: (one.param_id, one.shape, one.data) for key, one in back.tensors.items()} == \
        {key: (one.param_id, one.shape, one.data) for key, one in source.tensors.items()}
    assert back.scalars == source.scalars
    assert {key: path for key, path in back.metadata.items() if key.isdigit()} == source.metadata


def state(**fields):
    return {'V1': {'Rank1': fields}}


def test_the_state_of_a_burnpack_has_no_parameters_in_a_record(folder):
    burnpack.write(folder / 'in.bpk', Burnpack({
        '7.momentum.moment_1': Tensor('F32', [1], f32(1), 7), '7.history.0': Tensor('F32', [1], f32(2), 7),
        '7.history.1': Tensor('F32', [1], f32(3), 7)}, {},
        {'7.__rank': {'UInt': 1}, '7.momentum.time': {'UInt': 3}, '9.__rank': {'UInt': 8}}))
    found = convert(folder / 'in.bpk', folder / 'out.mpk').read_bytes()
    one, two, three = (tensor(f32(n), [1]) for n in (1, 2, 3))
    assert found == pack(record({
        mpk.param_id(7): state(momentum={'moment_1': one, 'time': 3}, history=[two, three]), mpk.param_id(9): {'V1': {'Rank8': {}}}},
        metadata('0.20.1')))


@pytest.mark.parametrize('scalars', [{'7.__rank': {'UInt': 1}, 'x': {'UInt': 1}}, {'7.__rank': {'UInt': 9}}, {'7.__rank': {'Float': 1.0}},
                                     {'8.__rank': {'UInt': 1}}, {'07.__rank': {'UInt': 1}}, {'18446744073709551616.__rank': {'UInt': 1}}])
def test_what_is_no_state_or_not_only_one_is_refused(folder, scalars):
    burnpack.write(folder / 'in.bpk', Burnpack({'7.momentum.velocity': Tensor('F32', [1], f32(1), 7)}, {}, scalars))
    error = weightfs('convert', folder / 'in.bpk', folder / 'out.mpk', code=EXIT_COMMIT).error
    assert 'optimizer' in error and '__rank' in error and not (folder / 'out.mpk').exists()


def test_ids_of_old_records_are_those_that_their_models_get(folder):
    model = put(folder, {'w': param(UUID, values([mpk.F32(1)], [1]))}, metadata('0.13.2'))
    number = burnpack.read(convert(model, folder / 'model.bpk')).tensors['w'].param_id
    path = put(folder, {UUID: state(momentum={'velocity': values([mpk.F32(1)], [1])})}, metadata('0.13.2'))
    found = burnpack.read(convert(path, folder / 'optim.bpk'))
    assert list(found.tensors) == ['%d.momentum.velocity' % number] and found.scalars == {'%d.__rank' % number: {'UInt': 1}}


@pytest.mark.parametrize('item', [
    {mpk.param_id(5): state(m={'v': tensor(f32(1), [1])}), 'other': 3},
    {mpk.param_id(5): {'V1': {'Rank9': {'v': tensor(f32(1), [1])}}}},
    {mpk.param_id(5): {'V1': {'Rank1': tensor(f32(1), [1])}}},
    {mpk.param_id(5): {'V1': {'Rank1': {'v': tensor(f32(1), [1])}, 'Rank2': {'v': tensor(f32(1), [1])}}}},
    {'not an id!!!!': state(v=tensor(f32(1), [1]))}])
def test_names_of_records_that_are_not_only_state_stay(folder, item):
    path = put(folder, item)
    keys = [one['key'] for one in json.loads(weightfs('ls', '--json', path).stdout)['tensors']]
    assert sorted(burnpack.read(convert(path, folder / 'out.bpk')).tensors) == sorted(keys)


def test_other_formats_keep_the_names_of_the_record(folder):
    path = put(folder, {mpk.param_id(5): state(momentum={'time': 4, 'moment_1': tensor(f32(1), [1]), 'max_moment_2': None})})
    key = mpk.param_id(5) + '.V1.Rank1.momentum.moment_1'
    assert list(st.read(convert(path, folder / 'out.safetensors')).tensors) == [key]
    assert list(pth_read.tensors(pth_read.load(convert(path, folder / 'out.pth')))) == [key]
    assert convert(path, folder / 'out.mpk').read_bytes() == path.read_bytes()


def test_values_that_are_no_numbers_are_left_out_of_a_burnpack_by_name(folder):
    path = put(folder, {mpk.param_id(5): state(a={'b': 1.5, 'c': 'text', 'd': -2, 'e': True, 'f': None}, v=tensor(f32(1), [1]))})
    lines = weightfs('convert', path, folder / 'out.bpk').stdout.splitlines()
    assert [line for line in lines if 'no place' in line] == ["left out, because burnpack has no place for them: '5.a.c'"]
    assert burnpack.read(folder / 'out.bpk').scalars == {'5.__rank': {'UInt': 1}, '5.a.b': {'Float': 1.5}, '5.a.d': {'Int': -2}, '5.a.e': {'Bool': True}}
