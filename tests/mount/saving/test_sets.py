# SPDX-License-Identifier: MIT
"""Commits of several files through a mount: what is written, what stays, and what a dead driver leaves."""
import json
import os
import resource

import pytest

from wfs_testlib import checkpoints, program, pth, sets, st
from wfs_testlib.program import weightfs
from wfs_testlib.sets import INDEX, name


@pytest.fixture
def model(folder):
    """Three shards with a tensor `layerN.w` of 4000 bytes and a small one each."""
    return sets.write(folder / 'model', [
        {'layer%d.w' % i: ('F32', [1000], st.f32(*range(i, i + 1000))), 'layer%d.b' % i: ('F32', [1], st.f32(i))} for i in (1, 2, 3)])


def load(folder, index=INDEX):
    weight_map = json.loads((folder / index).read_text())['weight_map']
    tensors = {}
    for file in set(weight_map.values()):
        found = st.read(folder / file).tensors
        assert all(weight_map[key] == file for key in found)
        tensors.update(found)
    assert set(tensors) == set(weight_map)
    return tensors


def files(folder):
    """Without the staging directory of a mount that is still there."""
    return sorted(file for file in os.listdir(folder) if not file.startswith('.'))


def inodes(folder):
    return {file: (folder / file).stat().st_ino for file in files(folder)}


def test_rw_writes_only_the_shard_that_was_edited(mount, model):
    before, wanted = inodes(model), load(model)
    mnt = mount(model, 'rw')
    (mnt / 'layer2/b').write_bytes(st.f32(20))
    mnt.commit()
    wanted['layer2.b'] = ('F32', [1], st.f32(20))
    assert load(model) == wanted
    assert files(model) == sorted([name(1, 3), name(2, 3, '.v2'), name(3, 3), INDEX])
    assert inodes(model)[name(1, 3)] == before[name(1, 3)] and inodes(model)[name(3, 3)] == before[name(3, 3)]
    (mnt / 'layer2/b').write_bytes(st.f32(21))
    os.rename(mnt / 'layer3', mnt / 'layer4')
    mnt.commit()
    wanted['layer2.b'] = ('F32', [1], st.f32(21))
    wanted.update({'layer4.w': wanted.pop('layer3.w'), 'layer4.b': wanted.pop('layer3.b')})
    assert load(model) == wanted and inodes(model)[name(1, 3)] == before[name(1, 3)]
    assert len(files(model)) == 4
    mnt.unmount()
    assert sorted(os.listdir(model)) == files(model)


def test_the_mount_reads_on_after_its_files_are_gone(mount, model):
    mnt = mount(model / INDEX, 'rw')
    (mnt / 'layer2/b').write_bytes(st.f32(20))
    mnt.commit()
    assert (mnt / 'layer2/w').read_bytes() == st.f32(*range(2, 1002))


def test_another_directory_gets_a_set(mount, model, folder):
    before, wanted = inodes(model), load(model)
    mnt = mount(model, 'output=%s/out/' % folder)
    os.unlink(mnt / 'layer1/b')
    (mnt / 'layer3/new').write_bytes(st.f32(7))
    os.setxattr(mnt / 'layer3/new', 'user.weightfs.dtype', b'F32')
    os.setxattr(mnt / 'layer3/new', 'user.weightfs.shape', b'[1]')
    mnt.commit()
    del wanted['layer1.b']
    wanted['layer3.new'] = ('F32', [1], st.f32(7))
    assert load(folder / 'out') == wanted and inodes(model) == before
    assert files(folder / 'out') == sorted([INDEX] + [name(i, 3) for i in (1, 2, 3)])
    (mnt / 'layer1/w').write_bytes(st.f32(*range(1000)))
    mnt.commit()
    wanted['layer1.w'] = ('F32', [1000], st.f32(*range(1000)))
    assert load(folder / 'out') == wanted and len(files(folder / 'out')) == 4


def test_a_file_name_merges(mount, model, folder):
    mnt = mount(model, 'output=%s' % (folder / 'whole.safetensors'))
    mnt.commit()
    assert st.read(folder / 'whole.safetensors').tensors == load(model)


def test_a_size_cuts_anew(mount, model, folder):
    mnt = mount(model, 'output=%s/out/' % folder, 'max_shard_size=8500')
    mnt.commit()
    assert load(folder / 'out') == load(model) and len(files(folder / 'out')) == 3


def test_an_overlay_is_committed_in_the_shard_that_it_covers(mount, model, folder):
    over = st.write(folder / 'over.safetensors', {'layer2.w': ('F16', [1], b'ab')})
    mnt = mount(model, 'rw', 'overlay=%s' % over)
    (mnt / 'layer2/b').write_bytes(st.f32(20))
    mnt.commit()
    assert load(model)['layer2.w'] == ('F16', [1], b'ab')
    assert files(model) == sorted([name(1, 3), name(2, 3, '.v2'), name(3, 3), INDEX])


def test_a_dead_driver_after_a_commit_in_place(mount, model):
    """Edits that follow a commit stand on the files that it replaced."""
    mnt = mount(model, 'rw')
    (mnt / 'layer2/b').write_bytes(st.f32(20))
    mnt.commit()
    with open(mnt / 'layer3/b', 'wb') as file:
        file.write(st.f32(30))
        file.flush()
        os.fsync(file.fileno())
    mnt.kill()
    mnt.forget()
    program.weightfs('recover', '--publish', model / INDEX)
    found = load(model)
    assert found['layer2.b'][2] == st.f32(20) and found['layer3.b'][2] == st.f32(30)
    assert len(found) == 6 and sorted(os.listdir(model)) == files(model)


@pytest.mark.parametrize('options, words', [
    (['output=%s/x.safetensors', 'max_shard_size=5GB'], 'directory'), (['output=%s', 'max_shard_size=lots'], 'size like 5GB')])
def test_what_is_refused(model, tmp_path, options, words):
    before = files(model)
    options = ','.join(option % model if '%' in option else option for option in options)
    assert words in program.weightfs(model, tmp_path, '-o', options, code=program.EXIT_USAGE).error
    assert files(model) == before


def test_an_index_that_is_a_link_is_not_replaced(model, tmp_path, folder):
    (model / INDEX).rename(folder / 'blob')
    (model / INDEX).symlink_to(folder / 'blob')
    assert 'symbolic link' in program.weightfs(model, tmp_path, '-o', 'rw', code=program.EXIT_MOUNT).error


def test_shards_without_an_index_are_not_replaced(model, tmp_path):
    (model / INDEX).unlink()
    assert 'output=DIR' in program.weightfs(model, tmp_path, '-o', 'rw', code=program.EXIT_USAGE).error


def test_a_mount_of_more_shards_than_may_be_open_by_default(mount, folder):
    n = 1500
    if 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4 * n:
        pytest.skip('the hard limit of open files is too low')
    made = folder / 'many'
    made.mkdir()
    weight_map = {'layer%d.w' % i: name(i + 1, n) for i in range(n)}
    for i, (key, file) in enumerate(weight_map.items()):
        st.write(made / file, {key: ('F32', [1], st.f32(i))})
    (made / INDEX).write_text(json.dumps({'weight_map': weight_map}))
    before = inodes(made)
    mnt = mount(made, 'rw', wrap=['sh', '-c', 'ulimit -Sn 256; exec "$@"', '-'])
    assert (mnt / 'layer1499/w').read_bytes() == st.f32(1499)
    (mnt / 'layer700/w').write_bytes(st.f32(7))
    mnt.commit()
    after = inodes(made)
    assert load(made)['layer700.w'][2] == st.f32(7)
    assert {file for file in before if after.get(file) != before[file]} == {name(701, n), INDEX}


@pytest.fixture
def pickled(folder):
    """Two shards of PyTorch, each with a value beside its tensor."""
    made = folder / 'pickled'
    made.mkdir()
    names = ['pytorch_model-%05d-of-00002.bin' % i for i in (1, 2)]
    for i, name_ in enumerate(names):
        one = checkpoints.write(folder / 'one.pth', {'layer%d.w' % i: ('F32', [2], st.f32(i, i))}, **{'epoch%d' % i: pth.number(i)})
        one.rename(made / name_)
    (made / 'pytorch_model.bin.index.json').write_text(json.dumps({'weight_map': {'layer0.w': names[0], 'layer1.w': names[1]}}))
    return made, names


def left_out(mnt):
    return sorted((one['kind'], one['name']) for one in json.loads((mnt / '.weightfs/report.json').read_text())['left_out'])


def test_values_of_a_file_that_is_written_anew_are_named_and_others_stay(mount, pickled, folder):
    source, names = pickled
    mnt = mount(source, 'output=%s/out/' % folder)
    (mnt / 'layer1/w').write_bytes(st.f32(5, 6))
    mnt.commit()
    assert left_out(mnt) == [('value', 'epoch1')]
    assert (folder / 'out' / names[0]).read_bytes() == (source / names[0]).read_bytes()
    assert checkpoints.read(folder / 'out' / names[1]) == {'layer1.w': ('F32', [2], st.f32(5, 6))}


def test_values_of_files_that_are_merged_are_named(mount, pickled, folder):
    mnt = mount(pickled[0], 'output=%s' % (folder / 'whole.safetensors'))
    mnt.commit()
    assert left_out(mnt) == [('value', 'epoch0'), ('value', 'epoch1')]
    said = program.weightfs('convert', pickled[0], folder / 'other.safetensors').stdout
    assert 'left out' in said and "'epoch0'" in said and "'epoch1'" in said


def test_the_status_of_a_mount_of_many_files_is_read_whole(mount, folder):
    """Every file is in status.json, which is larger than one read here."""
    source = sets.write(folder / ('d' * 200), [{'w%d' % i: ('F32', [1], bytes(4))} for i in range(900)])
    mounted = mount(source, 'output=%s/' % (folder / 'out'))
    assert len((mounted / '.weightfs/status.json').read_bytes()) > 1 << 18
    (mounted / 'w7').write_bytes(b'four')
    assert 'state        dirty\n' in weightfs('status', mounted.path).stdout
    assert len(json.loads(weightfs('status', '--json', mounted.path).stdout)['sources']) == 900
    (mounted / 'w7').write_bytes(bytes(4))


@pytest.mark.parametrize('options', ['force', 'top_level_key=none', 'max_shard_size=lots', 'format=none'])
def test_a_directory_that_was_made_goes_with_a_mount_that_fails(model, tmp_path, options):
    """Before or after the source was read; one that was there stays."""
    if options == 'force':
        os.truncate(model / name(3, 3), 4)
        options = 'strict'
    for is_there in (False, True):
        if is_there:
            (tmp_path / 'out').mkdir()
        program.weightfs(model, tmp_path / 'mnt', '-o', 'output=%s/out/,%s' % (tmp_path, options), code=None)
        assert not (tmp_path / 'mnt').exists() and (tmp_path / 'out').exists() == is_there
    assert os.listdir(tmp_path / 'out') == []
