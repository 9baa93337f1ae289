# SPDX-License-Identifier: MIT
"""The same bytes twice: copies inside a mount by programs that copy no attributes, blocks that files share, storages that are items of a .pth."""
import json
import os
import shutil

import numpy
import pytest

from wfs_testlib import checkpoints, dcp_read, mpk, program, sets, st, with_torch
from wfs_testlib.checkpoints import ENDINGS
from wfs_testlib.program import EXIT_COMMIT, tool, weightfs

# ---- copies ----

TENSORS = {
    'layer.0.weight': ('F32', [2, 3], st.f32(1, 2, 3, 4, 5, 6)),
    'layer.0.bias': ('BF16', [3], b'abcdef'),
    'layer.1.weight': ('F32', [2, 3], st.f32(6, 5, 4, 3, 2, 1)),
    'layer.1.bias': ('BF16', [3], b'ghijkl'),
    'odd.0.weight': ('F32', [4], bytes(range(16))),
    'odd.1.weight': ('F32', [2, 2], bytes(range(16, 32))),
    'head': ('I64', [2], bytes(range(16))),
}


@pytest.fixture(params=ENDINGS)
def edit(request, mount, folder):
    source = checkpoints.write(folder / ('in.' + request.param), TENSORS)
    out = folder / ('out.' + request.param)
    mnt = mount(source, 'output=%s' % out)
    mnt.out, mnt.source = out, source
    mnt.result = lambda: (mnt.commit(), checkpoints.read(out))[1]
    return mnt


def read_set(folder):
    weight_map = json.loads((folder / sets.INDEX).read_text())['weight_map']
    return {key: st.read(folder / name).tensors[key] for key, name in weight_map.items()}


def read_dcp(folder):
    return {'.'.join(map(str, entry.path)): tuple(entry.value) for entry in dcp_read.entries(folder).values()}


@pytest.fixture(params=['set to set', 'set to dcp', 'dcp to dcp', 'dcp to set'])
def edit_of_several_files(request, mount, folder):
    """A mount of what lies in several files, with an output in several files."""
    source, target = request.param.split(' to ')
    parts = [dict(list(TENSORS.items())[:3]), dict(list(TENSORS.items())[3:])]
    sets.write(folder / 'in', parts)
    if source == 'dcp':
        weightfs('convert', '--format=dcp', folder / 'in', '%s/' % (folder / 'in.dcp'))
    out = folder / 'out'
    out.mkdir()
    mnt = mount(folder / ('in.dcp' if source == 'dcp' else 'in'), *(['output=%s' % (out / sets.INDEX)] if target == 'set' else ['output=%s' % out, 'format=dcp']))
    mnt.result = lambda: (mnt.commit(), read_set(out) if target == 'set' else read_dcp(out))[1]
    return mnt


OF_RECORD = {key: ('F32', [3], st.f32(i, i + 1, i + 2)) for i, key in enumerate(['layer.0.weight', 'layer.0.bias', 'layer.1.weight', 'layer.1.bias', 'head'])}


@pytest.fixture
def edit_of_record(mount, folder):
    params = {key: mpk.param(i, mpk.tensor(data, shape)) for i, (key, (_, shape, data)) in enumerate(OF_RECORD.items())}
    layers = [{name: params['layer.%d.%s' % (i, name)] for name in ('weight', 'bias')} for i in (0, 1)]
    (folder / 'in.mpk').write_bytes(mpk.pack(mpk.record({'layer': layers, 'head': params['head']})))
    assert mpk.read(folder / 'in.mpk') == OF_RECORD
    mnt = mount(folder / 'in.mpk', 'output=%s' % (folder / 'out.mpk'))
    mnt.result = lambda: (mnt.commit(), mpk.read(folder / 'out.mpk'))[1]
    return mnt


def described(mnt):
    return {one['path']: one['as'] for one in json.loads((mnt / '.weightfs/report.json').read_text())['described']}


def shell(line):
    return lambda mnt: tool('sh', '-c', line, cwd=mnt.path)


def with_copytree(mnt):
    shutil.copytree(mnt / 'layer/0', mnt / 'layer/2')


# How layer/0 becomes layer/2 too.
WAYS = {
    'cp -r': shell('cp -r layer/0 layer/2'),
    'cp -r --reflink=never': shell('cp -r --reflink=never layer/0 layer/2'),
    'cp -a': shell('cp -a layer/0 layer/2'),
    'install': shell('install -D -t layer/2 layer/0/*'),
    'tar': shell('mkdir layer/2 && tar -C layer/0 -c . | tar -C layer/2 -x'),
    'rsync -a': shell('rsync -a layer/0/ layer/2/'),
    'rsync -aX': shell('rsync -aX layer/0/ layer/2/'),
    'cpio': shell('mkdir layer/2 && cd layer/0 && find . -depth | cpio -pd --quiet ../2'),
    'cat': shell('mkdir layer/2 && for f in weight bias; do cat layer/0/$f > layer/2/$f; done'),
    'dd': shell('mkdir layer/2 && for f in weight bias; do dd if=layer/0/$f of=layer/2/$f bs=5 status=none; done'),
    'copytree': with_copytree,
}


def copy_layer(mnt, how, tensors):
    """Makes layer/0 layer/2, too; returns what is then to be there."""
    for program in ('rsync', 'cpio'):
        if how.startswith(program) and shutil.which(program) is None:
            pytest.skip('there is no program ' + program)
    WAYS[how](mnt)
    return {**tensors, **{key.replace('.0.', '.2.'): tensor for key, tensor in tensors.items() if key.startswith('layer.0.')}}


@pytest.mark.parametrize('how', WAYS)
def test_a_layer_is_copied(edit, how):
    expected = copy_layer(edit, how, TENSORS)
    assert edit.result() == expected
    assert set(described(edit)) <= {'layer/2/weight', 'layer/2/bias'}
    assert not described(edit) or how not in ('cp -r', 'cp -a', 'install', 'rsync -aX')
    if how == 'dd':
        assert described(edit) == {'layer/2/weight': 'layer/0/weight', 'layer/2/bias': 'layer/0/bias'}
        assert 'as layer/0/weight' in (edit / '.weightfs/report.txt').read_text()


@pytest.mark.parametrize('how', ['cp -r', 'tar', 'rsync -a', 'dd'])
def test_a_layer_is_copied_where_a_checkpoint_has_several_files(edit_of_several_files, how):
    expected = copy_layer(edit_of_several_files, how, TENSORS)
    assert {key: tuple(tensor) for key, tensor in edit_of_several_files.result().items()} == expected


@pytest.mark.parametrize('how', [how if how in ('cp -r', 'rsync -aX', 'dd') else pytest.param(how, marks=pytest.mark.slow) for how in WAYS])
def test_a_layer_of_a_record_is_copied(edit_of_record, how):
    expected = copy_layer(edit_of_record, how, OF_RECORD)
    assert edit_of_record.result() == expected


def test_a_copy_over_a_tensor_of_a_record(edit_of_record):
    tool('cp', edit_of_record / 'layer/0/bias', edit_of_record / 'head')
    tool('cp', edit_of_record / 'layer/1/bias', edit_of_record / 'tail')
    assert edit_of_record.result() == {**OF_RECORD, 'head': OF_RECORD['layer.0.bias'], 'tail': OF_RECORD['layer.1.bias']}


@pytest.mark.parametrize('how', ['cp', 'cp --preserve=mode', 'install'])
def test_a_copy_is_a_tensor_where_no_sibling_helps(edit, how):
    tool(*how.split(), edit / 'head', edit / 'tail')
    tool(*how.split(), edit / 'odd/1/weight', edit / 'other')
    assert edit.result() == {**TENSORS, 'tail': TENSORS['head'], 'other': TENSORS['odd.1.weight']}


@pytest.mark.parametrize('how', ['cp', 'cp -a'])
def test_a_copy_over_a_tensor_of_the_same_size(edit, how):
    tool(*how.split(), edit / 'odd/1/weight', edit / 'head')
    assert edit.result() == {**TENSORS, 'head': TENSORS['odd.1.weight']}


@pytest.mark.parametrize('how', ['cp -r', 'cp -a', 'rsync -aX'])
def test_what_was_copied_needs_no_sibling_any_more(edit, how):
    if how.startswith('rsync') and shutil.which('rsync') is None:
        pytest.skip('there is no program rsync')
    WAYS[how](edit)
    for number in '01':
        shutil.rmtree(edit / 'layer' / number)
    left = {key: tensor for key, tensor in TENSORS.items() if not key.startswith('layer.')}
    copies = {key.replace('.0.', '.2.'): tensor for key, tensor in TENSORS.items() if key.startswith('layer.0.')}
    assert edit.result() == {**left, **copies}


def test_siblings_that_differ_decide_nothing(edit):
    os.mkdir(edit / 'odd/2')
    (edit / 'odd/2/weight').write_bytes(bytes(16))
    done = weightfs('commit', edit.path, code=EXIT_COMMIT)
    assert "'odd/2/weight' is not a tensor" in done.error and "cp -a" in done.error
    assert not edit.out.exists()
    shutil.rmtree(edit / 'odd/2')
    edit.allow('is not a tensor')


@pytest.mark.parametrize('name, n_bytes', [('tail', 16), ('layer/2/other', 24), ('layer/2/weight', 20), ('more/layer/0/weight', 24)])
def test_nothing_is_guessed(edit, name, n_bytes):
    (edit / name).parent.mkdir(parents=True, exist_ok=True)
    (edit / name).write_bytes(bytes(n_bytes))
    done = weightfs('commit', edit.path, code=EXIT_COMMIT)
    assert "'%s' is not a tensor" % name in done.error and "cp -a" in done.error
    os.remove(edit / name)
    edit.allow('is not a tensor')


def copied(mnt, name, pieces, before=None, after=None):
    """Copies pieces of layer/0/weight into a new file by the call that the kernel hands over."""
    source, target = os.open(mnt / 'layer/0/weight', os.O_RDONLY), os.open(mnt / name, os.O_RDWR | os.O_CREAT)
    for at, n in pieces:
        os.copy_file_range(source, target, n, at, at)
        if before is not None and at == pieces[0][0]:
            os.pwrite(target, *before)
    if after is not None:
        os.pwrite(target, *after)
    os.close(source)
    os.close(target)


@pytest.mark.parametrize('pieces', [[(0, 24)], [(0, 5), (5, 19)], [(0, 8), (8, 8), (16, 8)], [(0, 24), (0, 24)]])
def test_pieces_in_order_make_a_copy(edit, pieces):
    copied(edit, 'new', pieces)
    assert edit.result()['new'] == TENSORS['layer.0.weight']


@pytest.mark.parametrize('pieces, before', [
    ([(0, 8)], None), ([(8, 16), (0, 8)], None), ([(0, 8), (16, 8)], None), ([(0, 8), (8, 16)], (b'xy', 2)), ([(8, 16)], None),
])
def test_other_pieces_do_not(edit, pieces, before):
    copied(edit, 'new', pieces, before)
    with pytest.raises(OSError):
        os.getxattr(edit / 'new', 'user.weightfs.dtype')
    os.remove(edit / 'new')


def test_a_copy_keeps_its_description_when_it_is_changed(edit):
    copied(edit, 'new', [(0, 24)], after=(st.f32(9), 4))
    assert edit.result()['new'] == ('F32', [2, 3], st.f32(1, 9, 3, 4, 5, 6))


def test_a_copy_survives_a_crash(edit, mount):
    tool('cp', edit / 'head', edit / 'tail')
    shutil.copytree(edit / 'layer/0', edit / 'layer/2')
    tool('sync', edit / 'tail', edit / 'layer/2/weight', edit / 'layer/2/bias')
    edit.kill()
    edit.forget()
    again = mount(edit.source, 'output=%s' % edit.out).allow('edits of an earlier mount are shown again')
    again.commit()
    copies = {key.replace('.0.', '.2.'): tensor for key, tensor in TENSORS.items() if key.startswith('layer.0.')}
    assert checkpoints.read(edit.out) == {**TENSORS, **copies, 'tail': TENSORS['head']}


def test_npy_files_are_copied(mount, folder):
    source = checkpoints.write(folder / 'in.safetensors', TENSORS)
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors'), 'files=npy')
    tool('cp', '-r', mnt / 'layer/0', mnt / 'layer/2')
    mnt.commit()
    copies = {key.replace('.0.', '.2.'): tensor for key, tensor in TENSORS.items() if key.startswith('layer.0.')}
    assert checkpoints.read(folder / 'out.safetensors') == {**TENSORS, **copies}


# ---- shared blocks ----

N_DISK = 320 << 20  # mkfs.xfs wants 300 MiB
N_LAYERS, N_WEIGHT = 40, 4 << 20  # 160 MiB: twice of it has no room


@pytest.fixture
def disk(folder):
    """An XFS in a file."""
    if shutil.which('mkfs.xfs') is None:
        pytest.skip('no mkfs.xfs')
    place = folder / 'disk'
    place.mkdir()
    with open(folder / 'image', 'wb') as file:
        file.truncate(N_DISK)
    tool('mkfs.xfs', '-q', '-m', 'reflink=1', folder / 'image')
    if tool('mount', '-o', 'loop', folder / 'image', place, code=None).code != 0:
        pytest.skip('no loop devices, or no XFS')
    yield place
    program.unmount(place)


@pytest.fixture
def source(disk):
    tensors = {}
    for i in range(N_LAYERS):
        tensors['layers.%d.bias' % i] = ('F32', [100], os.urandom(400))
        tensors['layers.%d.weight' % i] = ('F32', [1024, 1024], os.urandom(N_WEIGHT))
    return st.write(disk / 'in.safetensors', tensors)


def n_free(disk):
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


@pytest.mark.root
def test_a_renamed_key_costs_next_to_no_space(mount, disk, source):
    want = st.read(source).tensors
    os.sync()
    before = n_free(disk)
    mnt = mount(source, 'output=%s' % (disk / 'out.safetensors'))
    # Behind all others, so that everything in between moves by the 400 bytes of a bias.
    os.rename(mnt / 'layers/9/weight', mnt / 'layers/9/weight_of_another_length')
    mnt.unmount()
    os.sync()
    want['layers.9.weight_of_another_length'] = want.pop('layers.9.weight')
    assert st.read(disk / 'out.safetensors').tensors == want
    assert before - n_free(disk) < N_LAYERS * N_WEIGHT // 10


@pytest.mark.root
def test_untouched_canonical_file_is_the_same_and_shared(disk, source):
    os.sync()
    before = n_free(disk)
    weightfs('convert', source, disk / 'out.safetensors')
    os.sync()
    assert (disk / 'out.safetensors').read_bytes() == source.read_bytes()
    assert before - n_free(disk) < 1 << 20


@pytest.mark.root
def test_what_cannot_be_shared_is_copied(disk, source):
    weightfs('convert', source, disk / 'out.safetensors', '--include', '^layers.1')
    whole, part = st.read(source).tensors, st.read(disk / 'out.safetensors').tensors
    assert part == {key: whole[key] for key in whole if key.startswith('layers.1')}


# ---- storages ----

TORCH = program.ROOT / 'tests' / 'wfs_testlib' / 'torch_storages.py'
NEW = st.f32(*range(50, 58))


def make(folder, kind):
    with_torch.run(TORCH, 'make', kind, folder / 'in.pth')
    return folder / 'in.pth'


def check(folder, *expected):
    """Each a "name kind dtype hex": what torch finds in the output."""
    found = with_torch.run(TORCH, 'show', folder / 'out.pth').split('\n')
    assert sorted(line for line in found if line) == sorted(expected)


def line(name, kind, dtype, data):
    return '%s %s %s %s' % (name, kind, dtype, data.hex())


OLD = st.f32(*range(8))
REST = line('x', 'tensor', 'float32', st.f32(1, 1, 1))
CLASS = {'typed': 'float32', 'untyped': 'uint8', 'stream': 'float32', 'two': 'float32', 'view': 'float32',
         'full': 'float32', 'object': 'float32', 'list': 'float32'}
OTHERS = {'two': [line('t', 'storage', 'float32', OLD)], 'view': [line('v', 'tensor', 'float32', OLD[8:20])]}


@pytest.mark.peers
@pytest.mark.parametrize('kind', ['typed', 'untyped', 'stream', 'view', 'list'])
def test_new_bytes_of_a_storage_are_written(mount, folder, kind):
    mnt = mount(make(folder, kind), 'output=%s' % (folder / 'out.pth'))
    (mnt.path / ('s/0' if kind == 'list' else 's')).write_bytes(NEW)
    mnt.commit()
    check(folder, REST, line('s.0' if kind == 'list' else 's', 'storage', CLASS[kind], NEW), *OTHERS.get(kind, []))


@pytest.mark.peers
def test_some_bytes_of_a_storage_under_two_names_are_written_under_both(mount, folder):
    mnt = mount(make(folder, 'two'), 'output=%s' % (folder / 'out.pth'))
    with open(mnt.path / 's', 'r+b') as file:
        file.seek(4)
        file.write(st.f32(77))
    mnt.commit()
    new = OLD[:4] + st.f32(77) + OLD[8:]
    check(folder, REST, line('s', 'storage', 'float32', new), line('t', 'storage', 'float32', new))


@pytest.mark.peers
def test_one_of_two_names_of_a_storage_is_replaced(mount, folder):
    mnt = mount(make(folder, 'two'), 'output=%s' % (folder / 'out.pth'))
    (mnt.path / 's').unlink()
    (mnt.path / 's').write_bytes(NEW)
    tool('setfattr', '-n', 'user.weightfs.dtype', '-v', 'F32', mnt.path / 's')
    mnt.commit()
    check(folder, REST, line('s', 'storage', 'float32', NEW), *OTHERS['two'])


@pytest.mark.peers
def test_a_tensor_of_all_elements_is_written_with_the_storage_that_it_is_tied_to(mount, folder):
    mnt = mount(make(folder, 'full'), 'output=%s' % (folder / 'out.pth'))
    tied = (mnt.path / 's').stat().st_nlink > 1
    (mnt.path / 's').write_bytes(NEW)
    mnt.commit()
    check(folder, REST, line('s', 'storage', 'float32', NEW), line('v', 'tensor', 'float32', NEW if tied else OLD))


@pytest.mark.peers
def test_a_view_of_a_storage_is_written_and_the_storage_stays(mount, folder):
    mnt = mount(make(folder, 'view'), 'output=%s' % (folder / 'out.pth'))
    (mnt.path / 'v').write_bytes(NEW[:12])
    mnt.commit()
    check(folder, REST, line('s', 'storage', 'float32', OLD), line('v', 'tensor', 'float32', NEW[:12]))


@pytest.mark.peers
@pytest.mark.parametrize('kind', ['untyped', 'two', 'view'])
def test_a_storage_gets_another_size(mount, folder, kind):
    mnt = mount(make(folder, kind), 'output=%s' % (folder / 'out.pth'))
    tool('setfattr', '-n', 'user.weightfs.shape', '-v', '[%d]' % (16 if CLASS[kind] == 'float32' else 64), mnt.path / 's')
    (mnt.path / 's').write_bytes(NEW + NEW)
    mnt.commit()
    others = OTHERS.get(kind, []) if kind == 'view' else [line('t', 'storage', 'float32', NEW + NEW)] * (kind == 'two')
    check(folder, REST, line('s', 'storage', CLASS[kind], NEW + NEW), *others)


@pytest.mark.peers
@pytest.mark.peers
@pytest.mark.parametrize('kind, dtype, shape, expected', [
    ('view', 'F16', '[4]', 'storage float16'), ('untyped', 'I64', '[1]', 'storage int64'), ('stream', 'F32', '[2]', 'storage float32'),
    ('typed', 'U8', '[2,4]', 'tensor uint8')])
def test_a_storage_gets_another_dtype_or_shape(mount, folder, kind, dtype, shape, expected):
    mnt = mount(make(folder, kind), 'output=%s' % (folder / 'out.pth'))
    tool('setfattr', '-n', 'user.weightfs.dtype', '-v', dtype, mnt.path / 's')
    tool('setfattr', '-n', 'user.weightfs.shape', '-v', shape, mnt.path / 's')
    (mnt.path / 's').write_bytes(NEW[:8])
    mnt.commit()
    check(folder, REST, 's %s %s' % (expected, NEW[:8].hex()), *OTHERS.get(kind, []))


@pytest.mark.peers
@pytest.mark.parametrize('kind', ['typed', 'view'])
def test_a_storage_is_covered_by_an_overlay(mount, folder, kind):
    st.write(folder / 'over.safetensors', {'s': ('F32', [8], NEW)})
    program.weightfs('convert', '--overlay', folder / 'over.safetensors', make(folder, kind), folder / 'out.pth')
    check(folder, REST, line('s', 'storage', 'float32', NEW), *OTHERS.get(kind, []))


@pytest.mark.peers
def test_a_storage_moves_and_is_renamed(mount, folder):
    mnt = mount(make(folder, 'list'), 'output=%s' % (folder / 'out.pth'))
    (mnt.path / 's/0').write_bytes(NEW)
    tool('mv', mnt.path / 's/0', mnt.path / 'moved')
    mnt.commit()
    check(folder, REST, line('moved', 'storage', 'float32', NEW))


@pytest.mark.parametrize('files', ['npy', 'raw'])
@pytest.mark.parametrize('target', ['removed', 'new'])
def test_another_array_can_be_written_over_a_copy(mount, folder, files, target):
    """The header of a copied .npy file says what it is: nothing is set that would contradict that of the next array."""
    source, out = st.write(folder / 'in.safetensors', {'a': ('F32', [2], st.f32(1, 2)), 'b': ('F32', [2], st.f32(3, 4))}), folder / 'out.safetensors'
    mnt = mount(source, 'output=%s' % out, 'files=%s' % files)
    numpy.save(mnt / 'c.npy', numpy.arange(3, dtype='<f4'))
    name = 'b' if target == 'removed' else 'd'
    if target == 'removed':
        os.unlink(mnt / (name + ('.npy' if files == 'npy' else '')))
    tool('cp', mnt / 'c.npy', mnt / (name + '.npy'))
    mnt.commit()
    assert st.read(out).tensors[name] == ('F32', [3], st.f32(0, 1, 2))
    numpy.save(mnt / (name + '.npy'), numpy.arange(6, dtype='<i8').reshape(2, 3))
    mnt.commit()
    assert st.read(out).tensors[name] == ('I64', [2, 3], numpy.arange(6, dtype='<i8').tobytes())


def test_a_copy_of_what_numpy_has_no_name_for_stays_what_it_is(mount, folder):
    source, out = st.write(folder / 'in.safetensors', {'a': ('BF16', [2], b'1234'), 'b': ('BF16', [2], b'5678'), 'c': ('F16', [2], b'abcd')}), folder / 'out.safetensors'
    mnt = mount(source, 'output=%s' % out, 'files=npy')
    os.unlink(mnt / 'b.npy')
    tool('cp', mnt / 'a.npy', mnt / 'b.npy')
    os.rename(mnt / 'b.npy', mnt / 'c.npy')
    mnt.commit()
    assert st.read(out).tensors == {'a': ('BF16', [2], b'1234'), 'c': ('BF16', [2], b'1234')}
