# SPDX-License-Identifier: MIT
"""Edits through a mount, then a commit: the output has exactly what the tree showed."""
import ctypes
import errno
import json
import mmap
import os
import shutil
import subprocess

import numpy
import pytest

from wfs_testlib import look, st
from wfs_testlib.mount import Mount
from wfs_testlib.program import EXIT_COMMIT, tool, weightfs


@pytest.fixture
def edit(mount, sample, folder):
    """The sample, mounted with an output; edit.result() commits and returns what an independent reader finds, after comparing
    it with what the tree shows."""
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    mnt.before = st.read(sample).tensors

    def result():
        shown = {key: tensor for key, tensor in look.tensors(mnt.path).items() if not is_scratch(key)}
        mnt.commit()
        written = st.read(folder / 'out.safetensors')
        assert written.tensors == shown
        assert (folder / 'out.safetensors').read_bytes() == st.canonical(written.tensors, written.metadata)
        return written

    mnt.result = result
    return mnt


def is_scratch(key):
    return any(part == '' for part in key.split('.'))


def changed(edit, **changes):
    """The tensors as they were, with some replaced (None: gone). Dots are written as two underscores."""
    tensors = dict(edit.before)
    for name, tensor in changes.items():
        key = name.replace('__', '.')
        tensors.pop(key, None)
        if tensor is not None:
            tensors[key] = tensor
    return tensors


def test_untouched(edit, sample):
    edit.commit()
    assert (sample.parent / 'out.safetensors').read_bytes() == sample.read_bytes()


def test_rename(edit):
    tool('mv', edit / 'pooler/dense/weight', edit / 'pooler/dense/kernel')
    weight = edit.before['pooler.dense.weight']
    assert edit.result().tensors == changed(edit, pooler__dense__weight=None, pooler__dense__kernel=weight)


def test_rename_of_a_directory(edit):
    tool('mv', edit / 'encoder/layer', edit / 'encoder/block')
    expected = {key.replace('encoder.layer.', 'encoder.block.'): tensor for key, tensor in edit.before.items()}
    assert edit.result().tensors == expected
    assert look.attribute(edit / 'encoder/block/0/attention/query/weight', 'key') == 'encoder.block.0.attention.query.weight'
    assert look.attribute(edit / 'encoder/block/0/attention/query/weight', 'source_key') == 'encoder.layer.0.attention.query.weight'


def test_swap_of_two_layers(edit):
    for old, new in (('0', 'x'), ('1', '0'), ('x', '1')):
        tool('mv', '-T', edit / 'encoder/layer' / old, edit / 'encoder/layer' / new)
    swap = {'0': '1', '1': '0'}
    expected = {}
    for key, tensor in edit.before.items():
        parts = key.split('.')
        if key.startswith('encoder.layer.'):
            parts[2] = swap[parts[2]]
        expected['.'.join(parts)] = tensor
    assert edit.result().tensors == expected


def test_remove(edit):
    tool('rm', edit / 'temperature')
    assert edit.result().tensors == changed(edit, temperature=None)


def test_remove_of_a_directory(edit):
    tool('rm', '-r', edit / 'encoder/layer/1')
    expected = {key: tensor for key, tensor in edit.before.items() if not key.startswith('encoder.layer.1.')}
    assert edit.result().tensors == expected


def test_find_delete_of_everything(edit):
    tool('find', edit.path, '-mindepth', '1', '-delete')
    written = edit.result()
    assert written.tensors == {} and written.metadata['format'] == 'pt'


def test_overwrite_in_part(edit):
    old = edit.before['embeddings.word.weight'][2]
    tool('sh', '-c', 'printf abcd | dd of="$1" bs=1 seek=1001 conv=notrunc', 'sh', edit / 'embeddings/word/weight')
    new = old[:1001] + b'abcd' + old[1005:]
    assert edit.result().tensors == changed(edit, embeddings__word__weight=('F16', [48, 32], new))


def test_overwrite_through_a_mapping(edit):
    with open(edit / 'embeddings/word/weight', 'r+b') as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[10:14] = b'wxyz'
        mapped.flush()
    old = edit.before['embeddings.word.weight'][2]
    assert edit.result().tensors['embeddings.word.weight'][2] == old[:10] + b'wxyz' + old[14:]


def test_replace_by_bytes_of_the_same_size(edit, folder):
    (folder / 'new').write_bytes(st.f32(7))
    tool('cp', folder / 'new', edit / 'temperature')
    assert edit.result().tensors == changed(edit, temperature=('F32', [], st.f32(7)))


@pytest.mark.parametrize('n_before, n_after', [(8, 3), (8, 0), (20 << 20, 17 << 20), (20 << 20, 1), (20 << 20, 20 << 20), (8, 9)])
def test_a_truncation_alone_is_an_edit(mount, folder, n_before, n_after):
    mnt = mount(st.write_hole(folder / 'in.safetensors', n_before), 'output=%s' % (folder / 'out.safetensors'))
    os.truncate(mnt / 'w', n_after)
    assert mnt.status()['edits'] == (n_before != n_after) and os.stat(mnt / 'w').st_size == n_after
    if n_before != n_after:
        assert "'w' has %d byte" % n_after in weightfs('umount', mnt.path, code=EXIT_COMMIT).error
        assert os.stat(mnt / 'w').st_size == n_after
        weightfs('umount', '--discard', mnt.path)
        mnt.allow('cannot commit')


def test_append_and_truncate_until_it_fits_again(edit):
    path = edit / 'temperature'
    with open(path, 'ab') as file:
        file.write(b'more')
    assert os.stat(path).st_size == 8
    os.truncate(path, 2)
    assert os.stat(path).st_size == 2
    os.truncate(path, 4)
    data = edit.before['temperature'][2][:2] + b'\0\0'
    assert edit.result().tensors == changed(edit, temperature=('F32', [], data))


def test_dtype_and_shape_are_reinterpreted(edit):
    tool('setfattr', '-n', 'user.weightfs.dtype', '-v', 'U32', edit / 'pooler/dense/bias')
    tool('setfattr', '-n', 'user.weightfs.shape', '-v', '[4,8]', edit / 'pooler/dense/bias')
    data = edit.before['pooler.dense.bias'][2]
    assert json.loads(look.attribute(edit / 'pooler/dense/bias', 'shape')) == [4, 8]
    assert edit.result().tensors == changed(edit, pooler__dense__bias=('U32', [4, 8], data))


@pytest.mark.parametrize('name, value', [
    ('dtype', 'nonsense'), ('dtype', ''), ('shape', '4'), ('shape', '[-1]'), ('shape', '[1.5]'), ('shape', '[18446744073709551616]'),
    ('shape', '["1"]'), ('shape', '[1'), ('shape', '{}'),
])
def test_wrong_values_of_attributes_are_refused(edit, name, value):
    before = look.attribute(edit / 'temperature', name)
    with pytest.raises(OSError) as caught:
        look.set_attribute(edit / 'temperature', name, value)
    assert caught.value.errno in (errno.EINVAL, errno.ERANGE)
    assert look.attribute(edit / 'temperature', name) == before


@pytest.mark.parametrize('name', ['key', 'source_key', 'source_dtype', 'file', 'offset', 'xxh3', 'changes'])
def test_attributes_that_cannot_be_set_take_any_value(edit, name):
    look.set_attribute(edit / 'temperature', name, 'whatever')
    assert edit.result().tensors == edit.before


def test_foreign_attributes_are_kept(edit):
    os.setxattr(edit / 'temperature', 'user.comment', b'hot')
    assert os.getxattr(edit / 'temperature', 'user.comment') == b'hot'
    assert 'user.comment' in os.listxattr(edit / 'temperature')
    os.removexattr(edit / 'temperature', 'user.comment')
    assert 'user.comment' not in os.listxattr(edit / 'temperature')


def test_metadata_by_attribute(edit):
    tool('setfattr', '-n', 'user.weightfs.metadata.note', '-v', 'renamed by hand', edit.path)
    tool('setfattr', '-x', 'user.weightfs.metadata.license', edit.path)
    metadata = edit.result().metadata
    assert metadata == {'format': 'pt', 'architecture': 'encoder, 2 layers of width 32', 'note': 'renamed by hand'}
    assert json.loads((edit / '.weightfs/metadata.json').read_text()) == metadata


EDITORS = {
    'sed': ['sed', '-i', 's/MIT/BSD/', 'metadata.json'],
    'ed': ['sh', '-c', 'printf ",s/MIT/BSD/\\nwq\\n" | ed -s metadata.json'],
    'vim': ['vim', '-es', '-N', '-u', 'NONE', '-c', 'set backup writebackup backupdir=. directory=.', '-c', '%s/MIT/BSD/', '-c', 'wq', 'metadata.json'],
    'vim in place': ['vim', '-es', '-N', '-u', 'NONE', '-c', 'set nobackup backupcopy=yes', '-c', '%s/MIT/BSD/', '-c', 'wq', 'metadata.json'],
    'shell': ['sh', '-c', 'sed s/MIT/BSD/ metadata.json >/dev/shm/wfs-$$ && cat /dev/shm/wfs-$$ > metadata.json; rm /dev/shm/wfs-$$'],
}


@pytest.mark.parametrize('editor', EDITORS)
def test_metadata_by_editor(edit, editor):
    command = list(EDITORS[editor])
    if command[0] == 'vim':
        command[0] = shutil.which('vim') or shutil.which('vi') or 'vim'
    if shutil.which(command[0]) is None or 'ed -s' in command[-1] and shutil.which('ed') is None:
        pytest.skip('there is no %s' % editor)
    tool(*command, cwd=edit / '.weightfs')
    written = edit.result()
    assert written.metadata == {'format': 'pt', 'architecture': 'encoder, 2 layers of width 32', 'license': 'BSD'}
    assert written.tensors == edit.before


def test_sed_keeps_dtype_and_shape_of_a_tensor(edit):
    with open(edit / 'temperature', 'wb') as file:
        file.write(b'abcd')
    tool('sed', '-i', 's/b/x/', edit / 'temperature')
    assert edit.result().tensors == changed(edit, temperature=('F32', [], b'axcd'))


def test_new_npy_file(edit, folder):
    array = numpy.arange(12, dtype='<i2').reshape(3, 4)
    numpy.save(folder / 'new.npy', array)
    tool('cp', folder / 'new.npy', edit / 'encoder/table.npy')
    edit.commit()
    assert st.read(folder / 'out.safetensors').tensors == changed(edit, encoder__table=('I16', [3, 4], array.tobytes()))


@pytest.mark.parametrize('dtype, name', [
    ('<f4', 'F32'), ('<f8', 'F64'), ('<f2', 'F16'), ('|i1', 'I8'), ('|u1', 'U8'), ('<u2', 'U16'), ('<u4', 'U32'), ('<i4', 'I32'),
    ('<i8', 'I64'), ('<u8', 'U64'), ('|b1', 'BOOL'), ('<c8', 'C64'),
])
def test_numpy_saves_into_the_mount(edit, folder, dtype, name):
    array = numpy.ones((2, 3), dtype)
    numpy.save(edit / 'saved.npy', array)
    edit.commit()
    assert st.read(folder / 'out.safetensors').tensors['saved'] == (name, [2, 3], array.tobytes())


def test_numpy_scalar_and_empty_array(edit, folder):
    numpy.save(edit / 'scalar.npy', numpy.array(5, '<i8'))
    numpy.save(edit / 'empty.npy', numpy.zeros((0, 3), '<f4'))
    edit.commit()
    tensors = st.read(folder / 'out.safetensors').tensors
    assert tensors['scalar'] == ('I64', [], (5).to_bytes(8, 'little'))
    assert tensors['empty'] == ('F32', [0, 3], b'')


def test_npy_files_of_a_version_that_numpy_writes_for_long_headers(edit, folder):
    array = numpy.zeros((1,) * 30, '<f4')
    with open(edit / 'v2.npy', 'wb') as file:
        numpy.lib.format.write_array(file, array, version=(2, 0))
    edit.commit()
    assert st.read(folder / 'out.safetensors').tensors['v2'][1] == [1] * 30


@pytest.mark.parametrize('make', [
    lambda: numpy.asfortranarray(numpy.arange(6, dtype='<f4').reshape(2, 3)), lambda: numpy.arange(3, dtype='>f4'),
    lambda: numpy.array([object()]), lambda: numpy.array(['text']), lambda: numpy.zeros(2, [('a', '<f4')]),
], ids=['fortran', 'big-endian', 'objects', 'text', 'records'])
def test_npy_files_that_are_no_plain_tensor_fail_the_commit_or_come_right(edit, folder, make):
    edit.allow('cannot commit to')
    array = make()
    numpy.save(edit / 'odd.npy', array)
    result = edit.commit(code=None)
    if result.code == 0:
        _, shape, data = st.read(folder / 'out.safetensors').tensors['odd']
        assert shape == list(array.shape) and data == numpy.ascontiguousarray(array).astype('<f4').tobytes()
    else:
        assert "'odd" in edit.status()['text']
        assert not (folder / 'out.safetensors').exists()
        os.unlink(edit / 'odd.npy')
        edit.commit()


def test_edits_in_the_npy_view(mount, sample, folder):
    mnt = mount(sample, 'files=npy', 'output=%s' % (folder / 'out.safetensors'))
    array = numpy.load(mnt / 'pooler/dense/bias.npy') * 2
    numpy.save(mnt / 'pooler/dense/bias.npy', array)
    os.rename(mnt / 'temperature.npy', mnt / 'heat.npy')
    numpy.save(mnt / 'new.npy', numpy.zeros((2, 2), '<i4'))
    assert numpy.array_equal(numpy.load(mnt / 'pooler/dense/bias.npy'), array)
    mnt.commit()
    expected = dict(st.read(sample).tensors)
    expected['pooler.dense.bias'] = 'F32', [32], array.tobytes()
    expected['heat'] = expected.pop('temperature')
    expected['new'] = 'I32', [2, 2], bytes(16)
    assert st.read(folder / 'out.safetensors').tensors == expected


OTHER = {'a.weight': ('BF16', [2, 2], b'12345678'), 'a.bias': ('F32', [], st.f32(3)), 'none': ('I8', [0], b'')}


@pytest.fixture
def other(mount, folder):
    """Another checkpoint, mounted read-only."""
    return mount(st.write(folder / 'other.safetensors', OTHER), at=folder / 'other')


@pytest.mark.parametrize('command', [
    ['cp', '-a', '--', 'FROM/.', 'TO'], ['cp', '-r', '--preserve=xattr', 'FROM/.', 'TO'], ['rsync', '-aX', 'FROM/', 'TO'],
    ['rsync', '-aX', '--inplace', 'FROM/', 'TO'], ['rsync', '-aX', '--delay-updates', 'FROM/', 'TO'],
    ['rsync', '-rX', '--partial', 'FROM/', 'TO'], ['rsync', '-aXS', 'FROM/', 'TO'],
    ['sh', '-c', 'tar -C "$0" --xattrs --xattrs-include=user.* -cf - . | tar -C "$1" --xattrs --xattrs-include=user.* --no-overwrite-dir -xf -', 'FROM', 'TO'],
], ids=['cp-a', 'cp-r', 'rsync', 'rsync-inplace', 'rsync-delay', 'rsync-partial', 'rsync-sparse', 'tar'])
def test_copy_from_another_mount(edit, other, command):
    tool(*[word.replace('FROM', str(other.path)).replace('TO', str(edit / 'grafted')) for word in prepare(edit, command)])
    expected = {**edit.before, **{'grafted.' + key: tensor for key, tensor in OTHER.items()}}
    assert edit.result().tensors == expected


def prepare(edit, command):
    os.mkdir(edit / 'grafted')
    return command


@pytest.mark.parametrize('options', [['-a'], ['-a', '--inplace'], ['-aX'], ['-a', '--checksum'], ['-rt', '--delay-updates'], ['-a', '-S']])
def test_rsync_of_changed_bytes_onto_tensors(edit, folder, options):
    """Out of the mount with attributes, changed there, and back: dtype and shape stay with the name."""
    copy = folder / 'copy'
    os.utime(edit / 'pooler/dense/weight', (10 ** 9, 10 ** 9))
    tool('rsync', '-aX', '%s/' % edit.path, copy)
    new = bytes(reversed(edit.before['pooler.dense.weight'][2]))
    (copy / 'pooler/dense/weight').write_bytes(new)
    tool('rsync', *options, '%s/' % copy, edit.path)
    assert edit.result().tensors == changed(edit, pooler__dense__weight=('BF16', [32, 32], new))
    assert tool('rsync', *options, '--itemize-changes', '%s/' % copy, edit.path).stdout == ''


def test_rsync_delete_makes_the_tree_equal(edit, other):
    tool('rsync', '-aX', '--delete', '%s/' % other.path, edit.path)
    assert edit.result().tensors == OTHER


def test_mv_from_outside(edit, folder):
    (folder / 'x').write_bytes(st.f32(9))
    os.setxattr(folder / 'x', 'user.weightfs.dtype', b'F32')
    os.setxattr(folder / 'x', 'user.weightfs.shape', b'[1]')
    tool('mv', folder / 'x', edit / 'x')
    assert edit.result().tensors == changed(edit, x=('F32', [1], st.f32(9)))


def test_cp_inside_the_mount(edit):
    tool('cp', '--preserve=xattr', edit / 'pooler/dense/weight', edit / 'pooler/dense/copy')
    assert edit.result().tensors == changed(edit, pooler__dense__copy=edit.before['pooler.dense.weight'])


def test_hard_link_is_a_second_name(edit):
    os.link(edit / 'temperature', edit / 'heat')
    assert os.stat(edit / 'heat').st_nlink == 2
    with open(edit / 'heat', 'r+b') as file:
        file.write(b'abcd')
    with open(edit / 'temperature', 'rb') as file:
        assert file.read() == b'abcd'
    edit.commit()
    tensors = st.read(edit.path.parent / 'out.safetensors').tensors
    assert tensors == changed(edit, heat=('F32', [], b'abcd'), temperature=('F32', [], b'abcd'))


def test_leaf_and_prefix_at_once(mount, folder):
    """A key that is the beginning of others, in the file and made by an edit."""
    source = st.write(folder / 'x', {'w': ('F32', [1], st.f32(1)), 'w.absmax': ('F32', [1], st.f32(2)), 'v': ('U8', [1], b'v')})
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors'))
    assert look.files(mnt.path) == ['v', 'w/%self', 'w/absmax']
    mnt.commit()
    assert (folder / 'out.safetensors').read_bytes() == source.read_bytes()
    os.mkdir(mnt / 'x')
    os.rename(mnt / 'v', mnt / 'x/%self')
    with pytest.raises(OSError) as caught:
        os.rename(mnt / 'w/%self', mnt / 'w2/%self')
    assert caught.value.errno == errno.ENOENT
    os.rename(mnt / 'w', mnt / 'moved')
    mnt.commit()
    assert {key: data for key, (_, _, data) in st.read(folder / 'out.safetensors').tensors.items()} == {
        'moved': st.f32(1), 'moved.absmax': st.f32(2), 'x': b'v'}


def test_reserved_name_is_refused_at_once(edit):
    for make in (lambda: os.rename(edit / 'temperature', edit / '__metadata__'), lambda: open(edit / '__metadata__', 'xb'),
                 lambda: os.link(edit / 'temperature', edit / '__metadata__')):
        with pytest.raises(OSError) as caught:
            make()
        assert caught.value.errno == errno.EINVAL
    os.rename(edit / 'temperature', edit / '__metadata___')
    assert edit.result().tensors == changed(edit, temperature=None, __metadata___=None) | {'__metadata___': edit.before['temperature']}


@pytest.mark.parametrize('name', ['50%', '%zz', '%2f', '%00', '%41'])
def test_names_that_no_key_has_are_refused(edit, name):
    with pytest.raises(OSError) as caught:
        open(edit / name, 'xb')
    assert caught.value.errno == errno.EINVAL


def test_scratch_files_are_no_tensors(edit):
    for name in ('.DS_Store', '.temperature.swp', '.x.ABCDEF', 'pooler/.hidden', '.dir/x'):
        path = edit / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b'scratch')
        assert path.read_bytes() == b'scratch'
    edit.commit()
    assert st.read(edit.path.parent / 'out.safetensors').tensors == edit.before


def test_empty_directories_are_no_tensors(edit):
    (edit / 'a/b/c').mkdir(parents=True)
    os.rmdir(edit / 'a/b/c')
    with pytest.raises(OSError) as caught:
        os.rmdir(edit / 'pooler')
    assert caught.value.errno == errno.ENOTEMPTY
    assert edit.result().tensors == edit.before


def renameat2(old, new, flags):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags) < 0:
        raise OSError(ctypes.get_errno(), 'renameat2')


def test_rename_with_flags(edit):
    with pytest.raises(OSError) as caught:
        renameat2(edit / 'temperature', edit / 'scaled_fp8', 1)
    assert caught.value.errno == errno.EEXIST
    renameat2(edit / 'pooler', edit / 'embeddings', 2)
    swap = {'pooler': 'embeddings', 'embeddings': 'pooler'}
    expected = {'.'.join([swap.get(key.split('.')[0], key.split('.')[0])] + key.split('.')[1:]): tensor for key, tensor in edit.before.items()}
    assert edit.result().tensors == expected


def test_rename_over_a_tensor_takes_its_place(edit):
    os.rename(edit / 'pooler/dense/bias', edit / 'embeddings/norm/bias')
    tensors = changed(edit, pooler__dense__bias=None, embeddings__norm__bias=edit.before['pooler.dense.bias'])
    assert edit.result().tensors == tensors


def test_open_files_outlive_their_names(edit):
    path = edit / 'temperature'
    with open(path, 'rb') as reader, open(path, 'r+b') as writer:
        os.unlink(path)
        writer.write(b'wxyz')
        writer.flush()
        assert os.pread(reader.fileno(), 10, 0) == b'wxyz'
        assert os.fstat(reader.fileno()).st_nlink == 0
    assert edit.result().tensors == changed(edit, temperature=None)


def test_ten_thousand_renames(mount, folder):
    tensors = {'t%05d' % i: ('U16', [1], i.to_bytes(2, 'little')) for i in range(10000)}
    mnt = mount(st.write(folder / 'x', tensors), 'output=%s' % (folder / 'out.safetensors'))
    os.mkdir(mnt / 'moved')
    for i in range(10000):
        os.rename(mnt / ('t%05d' % i), mnt / ('moved/%d' % (9999 - i)))
    mnt.commit()
    expected = {'moved.%d' % (9999 - i): ('U16', [1], i.to_bytes(2, 'little')) for i in range(10000)}
    assert st.read(folder / 'out.safetensors').tensors == expected


def test_work_goes_on_after_a_commit(edit):
    tool('mv', edit / 'temperature', edit / 'heat')
    edit.result()
    tool('mv', edit / 'heat', edit / 'warmth')
    tool('rm', edit / 'scaled_fp8')
    assert edit.result().tensors == changed(edit, temperature=None, scaled_fp8=None, warmth=edit.before['temperature'])


def test_replacing_the_source_itself(mount, sample):
    before = st.read(sample).tensors
    sample.chmod(0o640)
    mnt = mount(sample, 'rw')
    with open(mnt / 'pooler/dense/bias', 'rb') as held:
        for name in ('heat', 'warmth'):
            os.rename(mnt / ('temperature' if name == 'heat' else 'heat'), mnt / name)
            mnt.commit()
            assert set(st.read(sample).tensors) == set(before) - {'temperature'} | {name}
        assert held.read() == before['pooler.dense.bias'][2]
    assert look.tensors(mnt.path) == st.read(sample).tensors
    assert sample.stat().st_mode & 0o777 == 0o640


def test_replacing_the_source_while_another_mount_reads_it(mount, sample):
    before = st.read(sample).tensors
    reader, writer = mount(sample), mount(sample, 'rw')
    os.unlink(writer / 'temperature')
    writer.commit()
    assert 'temperature' not in st.read(sample).tensors
    assert look.tensors(reader.path) == before


def test_a_link_as_output_stays_and_its_target_is_replaced(mount, sample, folder):
    (folder / 'real').mkdir()
    (folder / 'real/out.safetensors').write_text('old')
    (folder / 'out.safetensors').symlink_to('real/out.safetensors')
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'), 'overwrite')
    mnt.commit()
    assert (folder / 'out.safetensors').is_symlink()
    assert (folder / 'real/out.safetensors').read_bytes() == sample.read_bytes()


def test_verbs_commit_and_tell(edit):
    tool('mv', edit / 'temperature', edit / 'heat')
    status = weightfs('status', edit.path).stdout
    assert 'dirty' in status and 'edits' in status
    assert weightfs('commit', edit.path).code == 0
    assert 'published' in weightfs('status', edit.path).stdout
    assert st.read(edit.path.parent / 'out.safetensors').tensors == changed(edit, temperature=None, heat=edit.before['temperature'])


def test_the_ioctl_commits_and_tells(edit):
    tool('mv', edit / 'temperature', edit / 'heat')
    hello = edit.control(2)
    assert hello.error == 0 and hello.n_edits > 0 and hello.pid in (edit.process.pid, *edit.workers)
    assert not (edit.path.parent / 'out.safetensors').exists()
    assert edit.control(1).error == 0
    assert 'heat' in st.read(edit.path.parent / 'out.safetensors').tensors


def test_status_of_the_mount(edit):
    assert edit.status()['state'] == 'clean'
    with open(edit / 'temperature', 'r+b') as file:
        file.write(b'abcd')
    assert edit.status()['state'] == 'dirty' and edit.status()['edits'] == 1
    edit.commit()
    status = edit.status()
    assert (status['state'], status['edits'], status['errno']) == ('published', 0, 0)
    assert status['output'] == str(edit.path.parent.resolve() / 'out.safetensors')


def test_time_stamps_stay_as_they_are_set(edit):
    os.utime(edit / 'temperature', ns=(10 ** 18, 10 ** 18))
    assert os.stat(edit / 'temperature').st_mtime_ns == 10 ** 18
    before = os.stat(edit / 'scaled_fp8').st_mtime_ns
    with open(edit / 'scaled_fp8', 'wb') as file:
        file.write(b'x')
    assert os.stat(edit / 'scaled_fp8').st_mtime_ns > before
    os.truncate(edit / 'scaled_fp8', 0)


def test_modes_are_kept_for_the_life_of_the_mount_and_owners_are_fixed(edit):
    entry = os.stat(edit / 'temperature')
    os.chmod(edit / 'temperature', 0o640)
    assert os.stat(edit / 'temperature').st_mode & 0o777 == 0o640
    os.chown(edit / 'temperature', entry.st_uid, entry.st_gid)
    with pytest.raises(OSError) as caught:
        os.chown(edit / 'temperature', entry.st_uid + 1, entry.st_gid)
    assert caught.value.errno == errno.EPERM
    assert edit.result().tensors == edit.before


def test_layout_flat_is_edited_too(mount, sample, folder):
    mnt = mount(sample, 'layout=flat', 'output=%s' % (folder / 'out.safetensors'))
    tool('mv', mnt / 'pooler.dense.weight', mnt / 'pooler.dense.kernel')
    tool('rm', mnt / 'temperature')
    mnt.commit()
    expected = dict(st.read(sample).tensors)
    expected['pooler.dense.kernel'] = expected.pop('pooler.dense.weight')
    del expected['temperature']
    assert st.read(folder / 'out.safetensors').tensors == expected


def test_concurrent_writers_each_find_their_bytes(mount, folder):
    size, parts = 1 << 20, 8
    mnt = mount(st.write(folder / 'x', {'w': ('U8', [size * parts], bytes(size * parts))}), 'output=%s' % (folder / 'out.safetensors'))
    writers = [subprocess.Popen(['dd', 'if=/dev/zero', 'of=%s' % (mnt / 'w'), 'bs=65536', 'count=%d' % (size >> 16), 'conv=notrunc',
                                 'seek=%d' % (i * size >> 16)], stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) for i in range(0, parts, 2)]
    for i in range(1, parts, 2):
        with open(mnt / 'w', 'r+b') as file:
            file.seek(i * size)
            file.write(bytes([i]) * size)
    assert [writer.wait() for writer in writers] == [0] * len(writers)
    mnt.commit()
    expected = b''.join(bytes([i if i % 2 else 0]) * size for i in range(parts))
    assert st.read(folder / 'out.safetensors').tensors['w'][2] == expected


def test_the_mount_is_its_own_context(sample, folder):
    (folder / 'mnt').mkdir()
    with Mount(sample, folder / 'mnt') as mnt:
        assert os.listdir(mnt.path)
    assert os.listdir(folder / 'mnt') == []


@pytest.mark.parametrize('spelled, dtype', [('f32', b'F32'), ('int32', b'I32'), ('Float', b'F32')])
def test_a_dtype_is_set_as_it_is_spelled_for_a_cast(edit, spelled, dtype):
    tool('setfattr', '-n', 'user.weightfs.dtype', '-v', spelled, edit / 'pooler/dense/bias')
    assert os.getxattr(edit / 'pooler/dense/bias', 'user.weightfs.dtype') == dtype
    with pytest.raises(OSError):
        os.setxattr(edit / 'pooler/dense/bias', 'user.weightfs.dtype', b'f33')
