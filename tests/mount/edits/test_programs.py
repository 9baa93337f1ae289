# SPDX-License-Identifier: MIT
"""Programs of every day change a mount of each format; what is committed is read by code that is none of ours."""
import os
import pathlib
import shutil

import numpy
import pytest

from wfs_testlib import checkpoints, st
from wfs_testlib.checkpoints import ENDINGS
from wfs_testlib.program import tool
from wfs_testlib.ways import WAYS, remove_and_anew

TENSORS = {
    'enc.0.weight': ('F32', [2, 3], st.f32(1, 2, 3, 4, 5, 6)),
    'enc.0.bias': ('F16', [3], b'abcdef'),
    'enc.1.weight': ('F32', [2, 2], st.f32(9, 8, 7, 6)),
    'enc.1.bias': ('BF16', [1], b'xy'),
    'head': ('I64', [2], bytes(range(16))),
    'mask': ('U8', [5], b'12345'),
}


def need(program):
    if shutil.which(program) is None:
        pytest.skip('there is no program %s' % program)


@pytest.fixture(params=ENDINGS)
def edit(request, mount, folder):
    """A mount of the tensors in one of the formats; edit.result() commits and gives what is in the output."""
    source = checkpoints.write(folder / ('in.' + request.param), TENSORS)
    out = folder / ('out.' + request.param)
    mnt = mount(source, 'output=%s' % out)

    def result():
        mnt.commit()
        return checkpoints.read(out)

    mnt.result, mnt.source = result, source
    return mnt


def renamed(old, new):
    return {key.replace(old, new): tensor for key, tensor in TENSORS.items()}


# ---- renaming ----

RENAMES = {
    'rename': ('rename', "find . -name weight -print0 | xargs -0 rename 's/weight$/kernel/'"),
    'prename': ('prename', "prename 's/weight/kernel/' enc/*/weight"),
    'a loop of mv': ('mv', 'for f in enc/*/weight; do mv "$f" "${f%weight}kernel"; done'),
    'find with mv': ('find', "find . -depth -name weight -execdir mv -n '{}' kernel ';'"),
}


@pytest.mark.parametrize('how', RENAMES)
def test_many_files_are_renamed(edit, how):
    program, command = RENAMES[how]
    need(program)
    tool('sh', '-ec', command, cwd=edit.path)
    assert edit.result() == renamed('weight', 'kernel')


def test_directories_are_renamed_by_a_pattern(edit):
    need('rename')
    tool('sh', '-ec', "rename 's/^(\\d)$/layer$1/' *", cwd=edit / 'enc')
    assert edit.result() == renamed('enc.', 'enc.layer')


THOUSANDS = {
    'one by one': 'for f in t00*; do mv "$f" "moved/$f"; done; mv t* moved',
    'in batches': "find . -maxdepth 1 -name 't*' -exec mv -t moved '{}' +",
    'by rename': "find . -maxdepth 1 -name 't*' -printf '%f\\0' | xargs -0 rename 's,^,moved/,'",
}


@pytest.mark.parametrize('how', THOUSANDS)
def test_ten_thousand_files_are_moved(mount, folder, how):
    if 'rename' in how:
        need('rename')
    tensors = {'t%05d' % i: ('U16', [1], i.to_bytes(2, 'little')) for i in range(10_000)}
    mnt = mount(st.write(folder / 'x.safetensors', tensors), 'output=%s' % (folder / 'out.safetensors'))
    os.mkdir(mnt / 'moved')
    tool('sh', '-ec', THOUSANDS[how], cwd=mnt.path)
    mnt.commit()
    assert st.read(folder / 'out.safetensors').tensors == {'moved.' + key: tensor for key, tensor in tensors.items()}


# ---- removing ----

@pytest.mark.parametrize('command', [['find', 'enc/1', '-delete'], ['find', '.', '-path', './enc/1/*', '-delete'], ['rm', '-r', 'enc/1']], ids=' '.join)
def test_a_directory_is_removed(edit, command):
    tool(*command, cwd=edit.path)
    assert edit.result() == {key: tensor for key, tensor in TENSORS.items() if not key.startswith('enc.1.')}


# ---- copying ----

OTHER = {'enc.0.weight': ('F16', [4], b'ABCDEFGH'), 'enc.2.weight': ('I32', [1], b'four'), 'tail': ('F64', [1], b'8 bytes.')}
PAIRS = [(a, b) for a in ENDINGS for b in ENDINGS if a != b]


@pytest.mark.parametrize('ending', PAIRS, ids='-'.join)
@pytest.mark.parametrize('options', [[], ['--delete'], ['--inplace'], ['--inplace', '--delete']], ids=' '.join)
def test_rsync_there_and_back_between_formats(mount, folder, ending, options):
    mounts = []
    for i, tensors in enumerate([TENSORS, OTHER]):
        source = checkpoints.write(folder / ('in%d.%s' % (i, ending[i])), tensors)
        os.utime(source, (10 ** 9 + i, 10 ** 9 + i))
        mounts.append(mount(source, 'output=%s' % (folder / ('out%d.%s' % (i, ending[i])))))
    first, second = mounts
    tool('rsync', '-aX', *options, '%s/' % first.path, second.path)
    os.rename(second / 'enc/1', second / 'enc/one')
    (second / 'mask').write_bytes(b'54321')
    tool('rsync', '-aX', *options, '%s/' % second.path, first.path)
    again = tool('rsync', '-aXc', '--itemize-changes', '%s/' % second.path, first.path).stdout
    assert again in ('', '.d........x ./\n')  # the attribute that tells the format of the whole
    there = {**TENSORS, 'mask': ('U8', [5], b'54321')}
    there.update({key.replace('.1.', '.one.'): there.pop(key) for key in list(there) if key.startswith('enc.1.')})
    if '--delete' not in options:
        there.update({key: OTHER[key] for key in OTHER if key not in there})
    back = there if '--delete' in options else {**there, **{key: TENSORS[key] for key in TENSORS if key.startswith('enc.1.')}}
    for mnt, expected, i in ((second, there, 1), (first, back, 0)):
        mnt.commit()
        assert checkpoints.read(folder / ('out%d.%s' % (i, ending[i]))) == expected


@pytest.mark.parametrize('ending', PAIRS, ids='-'.join)
def test_cp_archive_between_mounts(mount, folder, ending):
    other = mount(checkpoints.write(folder / ('other.' + ending[0]), OTHER), at=folder / 'other')
    mnt = mount(checkpoints.write(folder / ('in.' + ending[1]), TENSORS), 'output=%s' % (folder / ('out.' + ending[1])))
    tool('cp', '-a', other / 'enc', mnt / 'more')
    tool('cp', '-a', '%s/enc/.' % other.path, mnt / 'enc')
    mnt.commit()
    expected = {**TENSORS, **{key: OTHER[key] for key in OTHER if key.startswith('enc.')}}
    expected.update({key.replace('enc', 'more'): OTHER[key] for key in OTHER if key.startswith('enc.')})
    assert checkpoints.read(folder / ('out.' + ending[1])) == expected


def test_cp_archive_within_a_mount(edit):
    tool('cp', '-a', 'enc/0', 'enc/2', cwd=edit.path)
    tool('cp', '-a', 'enc', 'dec', cwd=edit.path)
    expected = {**TENSORS, **{key.replace('.0.', '.2.'): TENSORS[key] for key in TENSORS if '.0.' in key}}
    expected.update({key.replace('enc.', 'dec.'): expected[key] for key in list(expected) if key.startswith('enc.')})
    assert edit.result() == expected


@pytest.mark.parametrize('options', [['--no-overwrite-dir'], ['--overwrite'], ['--recursive-unlink'],
                                     ['--xattrs', '--xattrs-include=user.*']], ids=lambda options: options[0])
def test_tar_is_unpacked_over_the_tree(edit, folder, options):
    """Packed with attributes or without: what is unpacked over a tensor has its dtype and shape."""
    copy = folder / 'copy'
    tool('rsync', '-aX', '%s/' % edit.path, copy)
    (copy / 'enc/0/bias').write_bytes(b'ABCDEF')
    (copy / 'head').write_bytes(bytes(16))
    tool('tar', '-C', copy, *[word for word in options if 'xattrs' in word], '-cf', folder / 'x.tar', '.')
    tool('tar', '-C', edit.path, *options, '-xf', folder / 'x.tar')
    result = edit.result()
    assert result == {**TENSORS, 'enc.0.bias': ('F16', [3], b'ABCDEF'), 'head': ('I64', [2], bytes(16))}
    if edit.source.suffix != '.bpk':
        assert list(result) == list(checkpoints.read(edit.source))


# ---- numpy ----

def test_numpy_saves_under_a_new_name(edit):
    numpy.save(edit / 'enc/0/scale.npy', numpy.arange(4, dtype='<f4').reshape(2, 2))
    assert edit.result() == {**TENSORS, 'enc.0.scale': ('F32', [2, 2], st.f32(0, 1, 2, 3))}


def test_numpy_writes_over_a_tensor(edit):
    numpy.array([3, 1, 2, 1, 1, 1], '<f4').tofile(edit / 'enc/0/weight')
    mapped = numpy.memmap(edit / 'head', '<i8', 'r+')
    mapped[1] = -1
    mapped.flush()
    del mapped
    assert edit.result() == {**TENSORS, 'enc.0.weight': ('F32', [2, 3], st.f32(3, 1, 2, 1, 1, 1)),
                             'head': ('I64', [2], TENSORS['head'][2][:8] + b'\xff' * 8)}


@pytest.mark.parametrize('ending', ENDINGS)
def test_numpy_saves_over_an_old_tensor_in_the_npy_view(mount, folder, ending):
    out = folder / ('out.' + ending)
    mnt = mount(checkpoints.write(folder / ('in.' + ending), TENSORS), 'files=npy', 'output=%s' % out)
    numpy.save(mnt / 'enc/0/weight.npy', numpy.arange(8, dtype='<f8').reshape(4, 2))
    numpy.save(mnt / 'fresh.npy', numpy.array([True, False]))
    mapped = numpy.load(mnt / 'head.npy', mmap_mode='r+')
    mapped[0] = 5
    mapped.flush()
    del mapped
    mnt.commit()
    assert checkpoints.read(out) == {
        **TENSORS, 'enc.0.weight': ('F64', [4, 2], numpy.arange(8, dtype='<f8').tobytes()), 'fresh': ('BOOL', [2], b'\1\0'),
        'head': ('I64', [2], (5).to_bytes(8, 'little') + TENSORS['head'][2][8:])}


def test_numpy_that_saves_beside_the_tensor_is_told(edit):
    """`w.npy` is a new file that gives the key of `w`: never one of the two in silence."""
    edit.allow("both give the key 'head'")
    numpy.save(edit / 'head.npy', numpy.arange(2))
    edit.commit(code=1)
    assert "'head' and 'head.npy' both give the key 'head'" in edit.status()['text']
    os.rename(edit / 'head.npy', edit / 'head')
    edit.allow('contains a .npy file')
    edit.commit(code=1)
    os.rename(edit / 'head', edit / 'head.npy')
    assert edit.result() == {**TENSORS, 'head': ('I64', [2], numpy.arange(2).tobytes())}


# ---- what editors do ----

@pytest.mark.parametrize('way', WAYS, ids=lambda way: way.__name__.replace('_', ' '))
def test_a_tensor_keeps_type_and_place_when_its_bytes_are_saved_anew(edit, way):
    before = list(checkpoints.read(edit.source))
    way(edit / 'enc/0/weight', st.f32(6, 5, 4, 3, 2, 1))
    result = edit.result()
    assert result == {**TENSORS, 'enc.0.weight': ('F32', [2, 3], st.f32(6, 5, 4, 3, 2, 1))}
    assert list(result) == before


@pytest.mark.parametrize('way', WAYS, ids=lambda way: way.__name__.replace('_', ' '))
def test_a_type_that_numpy_lacks_stays_in_the_npy_view(mount, folder, way):
    out = folder / 'out.safetensors'
    mnt = mount(checkpoints.write(folder / 'in.safetensors', TENSORS), 'files=npy', 'output=%s' % out)
    way(mnt / 'enc/1/bias.npy', (mnt / 'enc/1/bias.npy').read_bytes()[:-2] + b'zw')
    mnt.commit()
    assert checkpoints.read(out) == {**TENSORS, 'enc.1.bias': ('BF16', [1], b'zw')}


def test_a_tensor_that_was_moved_away_leaves_its_type_and_not_its_place(edit):
    os.rename(edit / 'head', edit / 'enc/old')
    (edit / 'head').write_bytes(bytes(16))
    result = edit.result()
    assert result == {**renamed('head', 'enc.old'), 'head': ('I64', [2], bytes(16))}


def test_a_file_of_another_size_has_no_type_to_take(edit):
    remove_and_anew(edit / 'head', bytes(15))
    edit.allow("'head' has 15 bytes, but I64 .* takes 16")
    edit.commit(code=1)
    pathlib.Path(edit / 'head').unlink()
    assert edit.result() == {key: tensor for key, tensor in TENSORS.items() if key != 'head'}


SOURCES = {
    'another mount': lambda mnt, other: (other / 'pooler/dense/weight', mnt / 'pooler/dense/weight'),
    'the same mount': lambda mnt, other: (mnt / 'encoder/layer/0/attention/query/weight', mnt / 'pooler/dense/weight'),
}


@pytest.mark.parametrize('command, copies', [
    (['cp'], True), (['cp', '-u'], False), (['rsync', '-a'], False), (['rsync', '-a', '-c'], True), (['rsync', '-a', '-I'], True),
], ids=str)
@pytest.mark.parametrize('paths', SOURCES)
def test_tools_that_compare_times_need_to_compare_contents(mount, sample, folder, paths, command, copies):
    """All files have the time of the source. What docs/semantics.md says of tools that decide by it."""
    tensors = st.read(sample).tensors
    changed = {key: (dtype, shape, bytes(byte ^ 0xff for byte in data)) for key, (dtype, shape, data) in tensors.items()}
    other = st.write(folder / 'other.safetensors', changed)
    os.utime(other, ns=(0, os.stat(sample).st_mtime_ns))
    mnt, from_mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors')), mount(other)
    old, new = SOURCES[paths](mnt, from_mnt)
    assert old.stat().st_size == new.stat().st_size and old.read_bytes() != new.read_bytes()
    tool(*command, old, new)
    assert (old.read_bytes() == new.read_bytes()) == copies


def test_a_backup_sees_unchanged_files_as_unchanged(mount, sample, folder):
    tool('rsync', '-a', '%s/' % mount(sample).path, folder / 'copy')
    again = tool('rsync', '-ai', '%s/' % mount(sample).path, folder / 'copy').stdout
    assert '>f' not in again
