# SPDX-License-Identifier: MIT
"""Burn's records through a mount: every tensor of what Burn wrote, ids and values."""
import gzip
import hashlib
import json
import os

import pytest

from wfs_testlib import burnpack, golden_records as golden, mpk, paths, pth, pth_read
from wfs_testlib.mpk import f32, metadata, pack, param, record, tensor, values
from wfs_testlib.program import EXIT_COMMIT, EXIT_USAGE, weightfs

UUID = '00000001-1234-4abc-8def-000013579bdf'
QUICK = {'blocks.mpk', 'convbn-half.mpk', 'convbn.mpk.gz', 'convbn.json', 'linear.json.gz'}


def files(is_quick):
    result = []
    for version in golden.VERSIONS:
        for path, text in golden.described(version):
            if text['tensors'] and (path.name in QUICK and version in ('v0.13.2', 'v0.21.0')) == is_quick:
                result.append(pytest.param(path, text, id='%s/%s' % (version, path.name)))
    return result


def check(mnt, text):
    places = paths.plain_paths([golden.key_of(one['key']) for one in text['tensors']])
    for one in text['tensors']:
        file = mnt / places[golden.key_of(one['key'])]
        assert hashlib.sha256(file.read_bytes()).hexdigest() == one['sha256'], file
        if one['param_id'] is not None:
            assert os.getxattr(file, 'user.weightfs.record_id').decode() == one['param_id']
        if 'param_id_u64' in one:
            assert os.getxattr(file, 'user.weightfs.param_id').decode() == one['param_id_u64']


@pytest.mark.parametrize('path, text', files(True))
def test_what_burn_wrote_is_in_the_mount(mount, path, text):
    check(mount(path), text)


@pytest.mark.slow
@pytest.mark.parametrize('path, text', files(False))
def test_everything_that_burn_wrote_is_in_the_mount(mount, path, text):
    check(mount(path), text)


def test_tensors_values_and_ids_are_files_and_attributes(mount, folder):
    item = {'conv': {'weight': param(7, tensor(f32(1, 2), [2])), 'stride': [None, None]}, 'time': 3}
    (folder / 'in.mpk').write_bytes(pack(record(item)))
    mnt = mount(folder / 'in.mpk')
    assert (mnt / 'conv/weight').read_bytes() == f32(1, 2)
    assert json.loads((mnt / 'conv/stride.json').read_text()) == [None, None]
    assert json.loads((mnt / 'time.json').read_text()) == 3
    assert os.getxattr(mnt / 'conv/weight', 'user.weightfs.param_id') == b'7'


def test_the_state_of_an_optimizer_is_committed_with_the_names_of_a_burnpack(mount, folder):
    state = {'V1': {'Rank1': {'momentum': {'time': 3, 'moment_1': tensor(f32(1, 2), [2]), 'max_moment_2': None}}}}
    (folder / 'in.mpk').write_bytes(pack(record({mpk.param_id(7): state})))
    mnt = mount(folder / 'in.mpk', 'rw', 'output=%s' % (folder / 'out.bpk'))
    at = mnt / mpk.param_id(7) / 'V1/Rank1/momentum'
    (at / 'moment_1').write_bytes(f32(3, 4))
    (at / 'time.json').write_text('4')
    weightfs('commit', mnt.path)
    found = burnpack.read(folder / 'out.bpk')
    assert {key: (one.data, one.param_id) for key, one in found.tensors.items()} == {'7.momentum.moment_1': (f32(3, 4), 7)}
    assert found.scalars == {'7.__rank': {'UInt': 1}, '7.momentum.time': {'UInt': 4}}


def test_old_lists_are_read_at_any_offset(mount, folder):
    numbers = [i * 37 % 65536 for i in range(30000)]
    meta = metadata('0.13.2', 'HalfPrecisionSettings', float='half::binary16::f16', int='i16')
    (folder / 'in.mpk').write_bytes(pack(record({'w': param(UUID, values(numbers, [30000]))}, meta)))
    whole = b''.join(number.to_bytes(2, 'little') for number in numbers)
    with open(mount(folder / 'in.mpk') / 'w', 'rb', buffering=0) as file:
        for offset in (0, 1, 8191, 8193, 59999, 12345, 3, 40000):
            assert os.pread(file.fileno(), 5000, offset) == whole[offset:offset + 5000]


def item_of(weight=f32(1, 2), name='conv', time=3):
    return {name: {'weight': param(7, tensor(weight, [2])), 'bias': None, 'stride': [None, None]},
            'blocks': [{'w': param(8, tensor(f32(3), [1]))}, {'Act': None}], 'time': time}


def test_an_edited_record_is_written_with_only_that_changed(mount, folder):
    (folder / 'in.mpk').write_bytes(pack(record(item_of())))
    mnt = mount(folder / 'in.mpk', 'output=%s' % (folder / 'out.mpk'))
    with open(mnt / 'conv/weight', 'r+b') as file:
        file.write(f32(9))
    (mnt / 'time.json').write_text('300')
    mnt.commit()
    assert (folder / 'out.mpk').read_bytes() == pack(record(item_of(f32(9, 2), time=300)))
    assert (mnt / '.weightfs/out/model.mpk').read_bytes() == (folder / 'out.mpk').read_bytes()


def test_renamed_and_removed_parts_of_a_record(mount, folder):
    (folder / 'in.mpk').write_bytes(pack(record(item_of())))
    mnt = mount(folder / 'in.mpk', 'output=%s' % (folder / 'out.mpk'))
    os.rename(mnt / 'conv', mnt / 'stem')
    os.remove(mnt / 'time.json')
    mnt.commit()
    item = item_of(name='stem')
    del item['time']
    assert (folder / 'out.mpk').read_bytes() == pack(record(item))


def test_a_record_replaces_itself(mount, folder):
    path = folder / 'in.mpk'
    path.write_bytes(pack(record(item_of())))
    mnt = mount(path, 'rw')
    (mnt / 'blocks/0/w').write_bytes(f32(5))
    mnt.commit()
    item = item_of()
    item['blocks'][0]['w']['param']['bytes'] = f32(5)
    assert path.read_bytes() == pack(record(item))


def test_an_untouched_old_record_is_written_as_it_was(mount, folder):
    content = pack(record({'w': param(UUID, values([1.5, -2.5], [2])), 'i': param(UUID, values([1, -200], [2]))}, metadata('0.13.2')))
    (folder / 'in.mpk').write_bytes(content)
    assert (mount(folder / 'in.mpk') / '.weightfs/out/model.mpk').read_bytes() == content


@pytest.mark.parametrize('value', [{'value': [1.5], 'shape': [1]}, [{'bytes': 'ab', 'shape': [2], 'dtype': 'U8'}]])
def test_a_value_that_would_be_read_as_a_tensor_is_not_committed(mount, folder, value):
    (folder / 'in.mpk').write_bytes(pack(record(item_of())))
    mnt = mount(folder / 'in.mpk', 'output=%s' % (folder / 'out.mpk')).allow('cannot commit')
    (mnt / 'time.json').write_text(json.dumps(value))
    assert "the value 'time' has a map that would be read as a tensor" in weightfs('commit', mnt.path, code=EXIT_COMMIT).error
    os.remove(mnt / 'time.json')
    mnt.commit()


def test_a_training_run_is_one_tree(mount, folder):
    for epoch in (1, 2):
        (folder / ('model-%d.mpk' % epoch)).write_bytes(pack(record({'w': param(7, tensor(f32(epoch), [1]))})))
        (folder / ('optim-%d.mpk' % epoch)).write_bytes(pack(record({'x': {'time': epoch, 'm': tensor(f32(epoch), [1])}})))
        (folder / ('scheduler-%d.mpk' % epoch)).write_bytes(pack(record(epoch)))
    (folder / 'away').mkdir()
    for options, epoch in ((), 2), (('epoch=1',), 1):
        mnt = mount(folder, *options, at=folder / 'away')
        assert sorted(os.listdir(mnt.path)) == ['model', 'optim', 'scheduler.json']
        assert (mnt / 'model/w').read_bytes() == f32(epoch) and (mnt / 'optim/x/m').read_bytes() == f32(epoch)
        assert json.loads((mnt / 'scheduler.json').read_text()) == json.loads((mnt / 'optim/x/time.json').read_text()) == epoch
        mnt.unmount()


@pytest.mark.parametrize('name, options, words', [
    ('in.mpk.gz', ['rw'], "'rw' cannot replace a record in gzip"), ('in.json', ['rw'], "'rw' cannot replace a record in gzip"),
    ('in.mpk', ['output=out.bpk', 'burn_version=0.18'], 'applies to .mpk files only')])
def test_options_that_do_not_fit_a_record_are_refused(folder, name, options, words):
    plain = record({'w': param(7, {'bytes': list(f32(1)), 'shape': [1], 'dtype': 'F32'})})
    content = json.dumps(plain).encode() if name.endswith('json') else gzip.compress(pack(plain)) if name.endswith('gz') else pack(plain)
    (folder / name).write_bytes(content)
    (folder / 'mnt').mkdir()
    assert words in weightfs(folder / name, folder / 'mnt', '-f', '-o', ','.join(options), code=EXIT_USAGE, cwd=folder).error
    assert (folder / name).read_bytes() == content


def test_a_commit_has_the_constants_of_like(mount, folder):
    like = {'conv': {'weight': param(5, tensor(bytes(16), [1, 1, 2, 2])), 'stride': [None, None]}, 'act': {'Tanh': None}}
    (folder / 'like.mpk').write_bytes(pack(record(like)))
    conv = pth.tensor(size=(1, 1, 2, 2), stride=(4, 4, 2, 1))
    (folder / 'in.pth').write_bytes(pth.checkpoint(pth.dictionary(**{'conv.weight': conv})))
    mnt = mount(folder / 'in.pth', 'like=%s' % (folder / 'like.mpk'), 'output=%s' % (folder / 'out.mpk'))
    (mnt / 'conv/weight').write_bytes(f32(1, 2, 3, 4))
    mnt.commit()
    like['conv']['weight'] = param(5, tensor(f32(1, 2, 3, 4), [1, 1, 2, 2]))
    assert (folder / 'out.mpk').read_bytes() == pack(record(like))
    assert (mnt / '.weightfs/out/model.mpk').read_bytes() == pack(record(like))
    assert list(pth_read.load(mnt / '.weightfs/out/model.pth')) == ['conv.weight']
