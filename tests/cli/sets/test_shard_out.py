# SPDX-License-Identifier: MIT
"""Checkpoints written as several files: how they are cut and called, what is taken over, and what is removed."""
import hashlib
import json
import os
import re

import pytest

from wfs_testlib import program, pth, sets, st
from wfs_testlib.program import tool, weightfs
from wfs_testlib.sets import INDEX, name


def vector(first):
    return 'F32', [100], st.f32(*range(first, first + 100))


def slashed(path):
    """A directory that may have to be made."""
    return '%s/' % path


@pytest.fixture
def model(tmp_path):
    """Three shards of two tensors, 400 bytes each."""
    return sets.write(tmp_path / 'model', [
        {'layer%d.%s' % (i, leaf): vector(10 * i + j) for j, leaf in enumerate(('a', 'b'))} for i in (1, 2, 3)], metadata={'total_size': 1})


def load(folder, index=INDEX):
    """All tensors as the index says, each shard read in full; and the index."""
    found = json.loads((folder / index).read_text())
    shards = {file: st.read(folder / file) for file in set(found['weight_map'].values())}
    tensors = {key: shards[file].tensors[key] for key, file in found['weight_map'].items()}
    assert sum(len(shard.tensors) for shard in shards.values()) == len(tensors)
    assert found['metadata'] == {'total_size': sum(len(data) for _, _, data in tensors.values())}
    assert list(found['weight_map']) == sorted(found['weight_map'])
    assert all(shard.metadata == {'format': 'pt'} for shard in shards.values())
    return tensors, found['weight_map']


def files(folder):
    return sorted(os.listdir(folder))


def digests(folder):
    return {file: hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in files(folder)}


def read_all(folder):
    tensors = {}
    for path in folder.glob('*.safetensors'):
        tensors.update(st.read(path).tensors)
    return tensors


def test_an_untouched_set_is_taken_over_file_by_file(model, tmp_path):
    before = digests(model)
    weightfs('convert', model, slashed(tmp_path / 'out'))
    assert load(tmp_path / 'out')[0] == read_all(model)
    after = digests(tmp_path / 'out')
    assert {file: after[file] for file in before if file != INDEX} == {file: before[file] for file in before if file != INDEX}
    assert files(tmp_path / 'out') == files(model) and digests(model) == before


def test_a_shard_that_is_taken_over_takes_no_room(model, tmp_path):
    weightfs('convert', model, slashed(tmp_path / 'out'), '--remap', '^layer2=>second')
    own = [(tmp_path / 'out' / name(i, 3)).stat() for i in (1, 2, 3)]
    old = [(model / name(i, 3)).stat() for i in (1, 2, 3)]
    if own[0].st_ino != old[0].st_ino:
        pytest.skip('this filesystem has reflinks, which stat does not show')
    assert [a.st_ino == b.st_ino for a, b in zip(own, old)] == [True, False, True]
    assert {key.split('.')[0] for key in load(tmp_path / 'out')[0]} == {'layer1', 'second', 'layer3'}


def test_in_place_only_what_changed_gets_a_new_file(model):
    inodes = {file: (model / file).stat().st_ino for file in files(model)}
    weightfs('convert', '--overwrite', '--remap', '^layer2=>second', model, model)
    assert files(model) == sorted([name(1, 3), name(2, 3, '.v2'), name(3, 3), INDEX])
    for file in (name(1, 3), name(3, 3)):
        assert (model / file).stat().st_ino == inodes[file]
    tensors, weight_map = load(model)
    assert weight_map['second.a'] == name(2, 3, '.v2') and tensors['second.a'] == vector(20)
    weightfs('convert', '--overwrite', '--remap', '^second=>layer2', model, model)
    assert files(model) == sorted(inodes) and set(load(model)[0]) == {'layer%d.%s' % (i, x) for i in (1, 2, 3) for x in 'ab'}


def test_a_shard_without_tensors_goes_away(model):
    weightfs('convert', '--overwrite', '--exclude', '^layer2', model, model)
    assert files(model) == sorted([name(1, 3), name(3, 3), INDEX])
    assert len(load(model)[0]) == 4


def test_files_that_are_not_in_the_index_stay(model):
    (model / 'config.json').write_text('{}')
    st.write(model / 'other.safetensors', {'x': vector(1)})
    weightfs('convert', '--overwrite', '--remap', '^layer=>l', model, model)
    assert {'config.json', 'other.safetensors'} <= set(files(model))
    assert files(model) == sorted([INDEX, 'config.json', 'other.safetensors'] + [name(i, 3, '.v2') for i in (1, 2, 3)])


@pytest.mark.parametrize('size, wanted', [('800', 3), ('799', 6), ('1600B', 2), ('1KB', 3), ('1KiB', 3), ('5GB', 1), ('1', 6)])
def test_files_of_at_most_a_size(model, tmp_path, size, wanted):
    weightfs('convert', model, slashed(tmp_path / 'out'), '--max-shard-size', size)
    tensors, weight_map = load(tmp_path / 'out')
    assert tensors == read_all(model)
    assert files(tmp_path / 'out') == sorted([name(i + 1, wanted) for i in range(wanted)] + [INDEX])
    assert [weight_map[key] for key in sorted(weight_map)] == sorted(weight_map.values())


def test_one_file_is_cut_and_merged_again(tmp_path):
    source = st.write(tmp_path / 'one.safetensors', {'t%d' % i: vector(i) for i in range(7)}, {'format': 'pt'})
    weightfs('convert', source, slashed(tmp_path / 'out'), '--max-shard-size=1000')
    assert len(files(tmp_path / 'out')) == 5
    weightfs('convert', tmp_path / 'out', tmp_path / 'again.safetensors')
    assert (tmp_path / 'again.safetensors').read_bytes() == source.read_bytes()


def test_the_name_of_an_index_says_how_the_files_are_called(model, tmp_path):
    weightfs('convert', model, tmp_path / 'diffusion.safetensors.index.json')
    assert [file for file in files(tmp_path) if 'diffusion' in file] == \
        ['diffusion-%05d-of-00003.safetensors' % i for i in (1, 2, 3)] + ['diffusion.safetensors.index.json']
    assert load(tmp_path, 'diffusion.safetensors.index.json')[0] == read_all(model)
    weightfs('convert', tmp_path / 'diffusion.safetensors.index.json', slashed(tmp_path / 'copy'))
    assert 'diffusion.safetensors.index.json' in files(tmp_path / 'copy')


def test_formats_have_their_own_names(model, tmp_path):
    weightfs('convert', model, slashed(tmp_path / 'torch'), '--format', 'pytorch')
    assert files(tmp_path / 'torch') == sorted(
        ['pytorch_model-%05d-of-00003.bin' % i for i in (1, 2, 3)] + ['pytorch_model.bin.index.json'])
    weightfs('diff', model, tmp_path / 'torch')
    weightfs('convert', tmp_path / 'torch', slashed(tmp_path / 'again'))
    assert digests(tmp_path / 'again').items() >= {
        file: value for file, value in digests(tmp_path / 'torch').items() if file.endswith('.bin')}.items()
    weightfs('convert', tmp_path / 'torch', slashed(tmp_path / 'pack'), '--format', 'burnpack')
    weightfs('diff', model, tmp_path / 'pack')


def test_tied_tensors_stay_together(tmp_path):
    source = tmp_path / 'tied.pth'
    of = pth.storage('0', numel=200)
    source.write_bytes(pth.checkpoint(pth.dictionary(
        a=pth.tensor(of, size=(200,)), m=pth.tensor(pth.storage('1', numel=200), size=(200,)), z=pth.tensor(of, size=(200,))),
        r0=st.f32(*range(200)), r1=st.f32(*range(200))))
    weightfs('convert', source, slashed(tmp_path / 'out'), '--max-shard-size', '800', '--format', 'safetensors')
    weight_map = json.loads((tmp_path / 'out' / INDEX).read_text())['weight_map']
    assert weight_map['a'] == weight_map['z'] != weight_map['m']


def test_an_existing_set_needs_overwrite(model, tmp_path):
    (tmp_path / 'out').mkdir()
    weightfs('convert', model, tmp_path / 'out')
    before = digests(tmp_path / 'out')
    weightfs('convert', '--remap', 'a$=>c', model, tmp_path / 'out', code=program.EXIT_COMMIT)
    weightfs('convert', model, model, code=program.EXIT_COMMIT)
    assert digests(tmp_path / 'out') == before
    weightfs('convert', '--overwrite', '--remap', 'a$=>c', model, tmp_path / 'out')
    assert files(tmp_path / 'out') == sorted([name(i, 3, '.v2') for i in (1, 2, 3)] + [INDEX])


def test_metadata_is_that_of_the_whole(model, tmp_path):
    """A text that only one shard has is kept, and a shard that has it stays as it is."""
    st.write(model / name(2, 3), st.read(model / name(2, 3)).tensors, {'format': 'pt', 'author': 'me'})
    weightfs('convert', model, slashed(tmp_path / 'out'), '--exclude', r'^layer1\.b')
    found = [st.read(tmp_path / 'out' / name(i, 3)).metadata for i in (1, 2, 3)]
    assert found == [{'format': 'pt', 'author': 'me'}, {'format': 'pt', 'author': 'me'}, {'format': 'pt'}]
    weightfs('convert', model, slashed(tmp_path / 'less'), '--exclude', '^layer2')
    assert {'format': 'pt', 'author': 'me'} == st.read(tmp_path / 'less' / name(1, 2)).metadata


def test_an_index_that_is_a_link_is_not_replaced(model, tmp_path):
    (model / INDEX).rename(tmp_path / 'blob')
    (model / INDEX).symlink_to(tmp_path / 'blob')
    before = digests(model)
    error = weightfs('convert', '--overwrite', '--remap', 'a$=>c', model, model, code=program.EXIT_COMMIT).error
    assert 'not a regular file' in error and digests(model) == before


@pytest.mark.parametrize('options, words', [
    (['--max-shard-size', 'lots'], 'must be a size'), (['--max-shard-size', '0'], 'must be a size'),
    (['--max-shard-size', '99999999999999999999GB'], 'must be a size')])
def test_sizes_that_are_none(model, tmp_path, options, words):
    assert words in weightfs('convert', *options, model, slashed(tmp_path / 'out'), code=program.EXIT_USAGE).error


def test_a_size_wants_several_files(model, tmp_path):
    error = weightfs('convert', '--max-shard-size', '5GB', model, tmp_path / 'x.safetensors', code=program.EXIT_USAGE).error
    assert re.search('directory', error)


def test_nothing_is_left_when_it_fails(model, tmp_path):
    before = digests(model)
    (tmp_path / 'out').mkdir()
    os.truncate(model / name(3, 3), (model / name(3, 3)).stat().st_size - 1)
    weightfs('convert', model, tmp_path / 'out', code=program.EXIT_DAMAGED)
    assert files(tmp_path / 'out') == [] and len(before) == len(files(model))


@pytest.mark.parametrize('options, code', [
    (['--max-shard-size', '0'], program.EXIT_USAGE), (['--remap', '('], program.EXIT_RULES), (['--ties', 'x'], program.EXIT_USAGE),
    (['--exclude', '.'], program.EXIT_RULES), (['--remap', '^layer1.a$=>__metadata__'], program.EXIT_COMMIT),
    (['--limit', 'header=1'], program.EXIT_UNSUPPORTED), ([], program.EXIT_DAMAGED)])
def test_a_directory_that_was_made_goes_with_a_conversion_that_fails(model, tmp_path, options, code):
    """Whatever fails, before or after the source is read. One that was there stays."""
    if not options:
        os.truncate(model / name(3, 3), (model / name(3, 3)).stat().st_size - 1)
    weightfs('convert', model, slashed(tmp_path / 'out'), *options, code=code)
    assert not (tmp_path / 'out').exists()
    (tmp_path / 'out').mkdir()
    weightfs('convert', model, slashed(tmp_path / 'out'), *options, code=code)
    assert files(tmp_path / 'out') == []


def test_a_directory_that_was_made_goes_when_the_disk_is_full(tmp_path, disk):
    """The space that taken files need is known before the first is written: they cannot be linked to another device."""
    model = sets.write(tmp_path / 'model', [{'a%d' % i: ('F32', [100000], bytes(400000))} for i in range(4)])
    run = weightfs('convert', model, slashed(disk / 'out'), code=program.EXIT_COMMIT)
    needed = sum(path.stat().st_size for path in model.glob('*.safetensors'))
    assert 'needs %d bytes' % needed in run.error and os.listdir(disk) == []


@pytest.fixture
def disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip('only for root')
    path = tmp_path / 'disk'
    path.mkdir()
    tool('mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', path)
    yield path
    program.unmount(path)


def damage_trailing(folder):
    """Bytes that no tensor has: refused, read by force."""
    with open(folder / name(2, 3), 'ab') as file:
        file.write(b'more')


def damage_missing(folder):
    (folder / name(2, 3)).unlink()


def damage_dtype(folder):
    text = (folder / name(2, 3)).read_bytes()
    (folder / name(2, 3)).write_bytes(text.replace(b'"F32"', b'"F99"', 1))


@pytest.mark.parametrize('damage, code, options, keys', [
    (damage_trailing, program.EXIT_DAMAGED, [], 6), (damage_missing, program.EXIT_SOURCE, ['--exclude', '^layer2'], 4),
    (damage_dtype, program.EXIT_UNSUPPORTED, ['--exclude', r'layer2\.a'], 5)])
@pytest.mark.parametrize('more', [[], ['--max-shard-size', '500'], ['--format', 'burnpack']])
def test_a_set_that_is_read_by_force_can_be_written_as_a_set(model, tmp_path, damage, code, options, keys, more):
    damage(model)
    weightfs('convert', model, slashed(tmp_path / 'out'), *more, code=code)
    weightfs('convert', model, slashed(tmp_path / 'out'), '--force', *options, *more)
    index = next((tmp_path / 'out').glob('*.index.json'))
    found = json.loads(index.read_text())['weight_map']
    assert len(found) == keys and set(found.values()) == {path.name for path in (tmp_path / 'out').iterdir()} - {index.name}
    weightfs('ls', tmp_path / 'out')
    if not more:
        tensors = read_all(tmp_path / 'out')
        assert all(tensors[key] == vector(10 * int(key[5]) + 'ab'.index(key[-1])) for key in found)


def tree_of(folder):
    return {path: (path.lstat().st_ino, path.is_file() and path.read_bytes()) for path in sorted(folder.rglob('*'))}


@pytest.mark.parametrize('is_published', [False, True])
@pytest.mark.parametrize('version', [1, 2, 3])
def test_the_note_of_a_stranger_removes_no_file(model, tmp_path, version, is_published):
    """Not another checkpoint, and not a file that has the name or the inode of a part, but not both."""
    out = tmp_path / 'out'
    weightfs('convert', model, slashed(out))
    others = [st.write(out / other, {'x': vector(i)}) for i, other in enumerate(
        ['other.safetensors', 'lora-00001-of-00001.safetensors', 'model-00009-of-00009.safetensors', 'model-1-of-2.safetensors'])]
    others[2].with_name('whole.safetensors').write_bytes(b'')
    lines = ['weightfs-set %d' % version, 'index %d' % ((out / INDEX).stat().st_ino if is_published else 1)]
    for other in [*others, out / 'whole.safetensors', *(model / name(i, 3) for i in (1, 2, 3))]:
        inode = other.stat().st_ino + (other == others[2])
        lines += [word % {'inode': inode if version < 3 else '%d %d' % (inode, other.stat().st_mtime_ns), 'name': path} for path in (other.name, '../%s/%s' % (other.parent.name, other.name), str(other))
                  for word in ('new %(name)s', 'old %(name)s', 'old %(inode)s %(name)s', 'made %(inode)s %(name)s')]
    made = ['made ' + line[4:] for line in lines if line.startswith('old ')]
    note = out / ('.%s.weightfs.set' % INDEX)
    note.write_text('\n'.join([*lines, 'end', *(made if version > 1 else []), '']))
    note.chmod(0o600)
    before = tree_of(out), tree_of(model)
    weightfs('convert', '--overwrite', model, slashed(out))
    after = tree_of(out), tree_of(model)
    assert after[1] == before[1] and not note.exists()
    for other in [*others, out / 'whole.safetensors']:
        assert after[0][other] == before[0][other]


@pytest.mark.parametrize('how', ['mode', 'link', 'second name'])
def test_a_note_that_is_not_ours_is_refused(model, tmp_path, how):
    out = tmp_path / 'out'
    weightfs('convert', model, slashed(out))
    note, text = out / ('.%s.weightfs.set' % INDEX), tmp_path / 'text'
    text.write_text('weightfs-set 3\nindex 1\nend\n')
    text.chmod(0o666 if how == 'mode' else 0o600)
    {'mode': os.rename, 'link': os.symlink, 'second name': os.link}[how](text, note)
    before = tree_of(out)
    weightfs('convert', '--overwrite', model, slashed(out), code=9)
    assert tree_of(out) == before
