# SPDX-License-Identifier: MIT
"""Backup copies that tools leave beside a file are not committed, and the report names them."""
import json
import os
import pathlib
import shutil

import pytest

from wfs_testlib import st
from wfs_testlib.program import tool

NAMES = ['%s~', '%s~~', '%s.~1~', '%s.~12~', '%s.bak', '%s.bak~', '%s.orig', '%s.rej', '%s.swp', '#%s#']
LAYOUTS = {'': 'pooler/dense/weight', 'layout=flat': 'pooler.dense.weight', 'files=npy': 'pooler/dense/weight.npy'}


def backups(mnt):
    report = json.loads((mnt / '.weightfs/report.json').read_text())
    return sorted(one['name'] for one in report['left_out'] if one['kind'] == 'backup')


def changed(content):
    """The content with another last byte."""
    return content[:-1] + bytes([content[-1] ^ 0xff])


@pytest.fixture(params=LAYOUTS)
def edited(request, mount, sample, folder):
    option = request.param
    out = folder / 'out.safetensors'
    mnt = mount(sample, 'output=%s' % out, *([option] if option else []))
    mnt.file, mnt.path_of_file = mnt / LAYOUTS[option], LAYOUTS[option]
    mnt.before = st.read(sample).tensors

    def result():
        """What an independent reader finds: keys that changed, and their bytes."""
        mnt.commit()
        written = st.read(out).tensors
        return {key: written.get(key) for key in {*written, *mnt.before} if written.get(key) != mnt.before.get(key)}

    dtype, shape, data = mnt.before['pooler.dense.weight']
    mnt.wanted = {'pooler.dense.weight': (dtype, shape, changed(data))}
    mnt.result = result
    return mnt


def beside(edited, name):
    return edited.file.parent / (name % edited.file.name)


def in_tree(edited, name):
    return str(pathlib.PurePath(edited.path_of_file).parent / (name % edited.file.name))


@pytest.mark.parametrize('name', NAMES)
def test_a_file_moved_aside_and_written_again(edited, name):
    content = changed(edited.file.read_bytes())
    os.rename(edited.file, beside(edited, name))
    edited.file.write_bytes(content)
    assert edited.result() == edited.wanted
    assert backups(edited) == [in_tree(edited, name)]
    assert 'left out: 1 backup file' in edited.status()['written']


@pytest.mark.parametrize('name', NAMES)
def test_a_copy_and_a_link_beside_a_file_that_is_written_in_place(edited, name):
    content = changed(edited.file.read_bytes())
    shutil.copyfile(edited.file, beside(edited, name))
    edited.file.write_bytes(content)
    assert edited.result() == edited.wanted
    os.unlink(beside(edited, name))
    os.link(edited.file, beside(edited, name))
    assert edited.result() == edited.wanted
    assert backups(edited) == [in_tree(edited, name)]


@pytest.mark.parametrize('command', [
    ['cp', '-b'], ['cp', '--backup=numbered'], ['cp', '-b', '-S', '.orig'], ['mv', '-b'], ['install', '-b', '-m', '644'],
    ['rsync', '-I', '--backup'], ['rsync', '-I', '--inplace', '--backup'], ['rsync', '-I', '--backup', '--suffix=.bak'],
], ids=' '.join)
def test_tools_that_keep_a_backup(edited, folder, command):
    new = folder / edited.file.name
    new.write_bytes(changed(edited.file.read_bytes()))
    tool(*command, new, edited.file)
    assert edited.result() == edited.wanted
    assert len(backups(edited)) == 1


def test_a_backup_alone_is_a_tensor(edited):
    moved = edited.before['pooler.dense.weight']
    os.rename(edited.file, beside(edited, '%s.bak'))
    suffix = '.npy' if edited.file.suffix == '.npy' else ''
    if not suffix:
        assert edited.result() == {'pooler.dense.weight': None, 'pooler.dense.weight.bak': moved}
        assert backups(edited) == []


@pytest.mark.parametrize('layout', ['layout=nested', 'layout=flat'])
def test_tensors_that_the_source_has_by_such_names_stay(mount, folder, layout):
    tensors = {'a.' + name % 'w': ('U8', [1], bytes([i])) for i, name in enumerate(['%s', '%s~', '%s~~', '#%s#'])}
    tensors |= {'b' + word: ('U8', [1], b'b') for word in ('', '.bak', '.orig', '.rej', '.swp', '.~1~')} if layout == 'layout=flat' else {}
    source, out = st.write(folder / 'in.safetensors', tensors), folder / 'out.safetensors'
    mnt = mount(source, 'output=%s' % out, layout)
    flat = layout == 'layout=flat'
    first = mnt / ('a.w~' if flat else 'a/w~')
    first.write_bytes(b'x')
    mnt.commit()
    expected = tensors | {'a.w~': ('U8', [1], b'x')}
    assert st.read(out).tensors == expected
    os.unlink(first)
    first.write_bytes(b'y')
    expected['a.w~'] = ('U8', [1], b'y')
    mnt.commit()
    assert st.read(out).tensors == expected
    os.rename(mnt / ('a.w~~' if flat else 'a/w~~'), first)
    expected['a.w~'] = expected.pop('a.w~~')
    mnt.commit()
    assert st.read(out).tensors == expected
    assert backups(mnt) == []


def test_tensors_with_such_names_stay_when_their_directory_moves(mount, folder):
    source = st.write(folder / 'in.safetensors', {key: ('U8', [1], b'w') for key in ('a.w', 'a.w~', 'a.w.1~')})
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'a', mnt / 'c')
    mnt.commit()
    assert st.read(folder / 'out.safetensors').tensors == {key: ('U8', [1], b'w') for key in ('c.w', 'c.w~', 'c.w.1~')}


def test_a_name_of_the_source_that_another_tensor_takes(mount, folder):
    source = st.write(folder / 'in.safetensors', {key: ('U8', [1], key[:1].encode()) for key in ('w', 'w~', 'y')})
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors'))
    os.unlink(mnt / 'w~')
    os.rename(mnt / 'y', mnt / 'w~')
    mnt.commit()
    assert st.read(folder / 'out.safetensors').tensors == {'w': ('U8', [1], b'w'), 'w~': ('U8', [1], b'y')}


@pytest.mark.parametrize('how', ['rename', 'copy'])
def test_values_have_backups_too(mount, folder, how):
    torch = pytest.importorskip('torch')
    torch.save({'hyper': {'lr': 1}, 'w': torch.ones(2)}, folder / 'in.pth')
    mnt = mount(folder / 'in.pth', 'output=%s' % (folder / 'out.pth'))
    if how == 'rename':
        os.rename(mnt / 'hyper.json', mnt / 'hyper.json~')
    else:
        shutil.copyfile(mnt / 'hyper.json', mnt / 'hyper.json~')
    (mnt / 'hyper.json').write_text('{"lr": 2}\n')
    mnt.commit()
    made = torch.load(folder / 'out.pth')
    assert made.keys() == {'hyper', 'w'} and made['hyper'] == {'lr': 2}
    assert backups(mnt) == ['hyper.json~']


def test_the_list_of_tensors_lacks_them(edited):
    content = changed(edited.file.read_bytes())
    os.rename(edited.file, beside(edited, '%s~'))
    edited.file.write_bytes(content)
    listed = (edited / '.weightfs/tensors.csv').read_text()
    assert '~' not in listed
    assert edited.result() == edited.wanted


COPIES = {'of a tensor that is a prefix': ('a/%self', ''), 'of an empty part': ('b/%', ''), 'of a shortened name': (None, ''), 'of an array': ('a/%self.npy', 'files=npy')}


@pytest.mark.parametrize('copy', ['%s~', '%s.bak', '%s.~1~', '%s~~', '#%s#'])
@pytest.mark.parametrize('kind', COPIES)
def test_a_name_that_gives_no_key_has_backups_too(mount, folder, kind, copy):
    name, option = COPIES[kind]
    tensors = {key: ('U8', [4], bytes([i] * 4)) for i, key in enumerate(['a', 'a.b', 'b.', 'x' * 240 + 'y' * 60])}
    source, out = st.write(folder / 'in.safetensors', tensors), folder / 'out.safetensors'
    mnt = mount(source, 'output=%s' % out, *([option] if option else []))
    if name is None:
        (name,) = [name for name in os.listdir(mnt.path) if name.startswith('x')]
    path = mnt / name
    beside = path.with_name(copy % path.name)
    shutil.copyfile(path, beside)
    content = changed(path.read_bytes())
    os.rename(path, mnt / '.old')
    path.write_bytes(content)
    os.rename(beside, beside.with_name('.x'))
    os.rename(beside.with_name('.x'), beside)
    os.unlink(mnt / '.old')
    mnt.commit()
    assert backups(mnt) == [os.path.relpath(beside, mnt.path)]
    found = st.read(out).tensors
    assert set(found) == set(tensors) and sum(found[key][2] != tensors[key][2] for key in tensors) == 1
    os.unlink(path)
    mnt.commit()
    assert len(st.read(out).tensors) == 3 and backups(mnt) == [os.path.relpath(beside, mnt.path)]
