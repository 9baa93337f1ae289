# SPDX-License-Identifier: MIT
"""Ties and values in a commit to a format without room for them."""
import json
import os

import pytest

from wfs_testlib import pth, pth_written, st
from wfs_testlib.look import attribute
from wfs_testlib.program import weightfs


@pytest.fixture
def tied(folder):
    path = folder / 'tied.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(first=pth.tensor(), second=pth.tensor(), epoch=pth.number(3))))
    return path


NEW = st.f32(9, 8, 7, 6)


def link_then_write(mnt):
    os.link(mnt / 'first', mnt / 'third')
    (mnt / 'first').write_bytes(NEW)


def link_then_write_through_the_link(mnt):
    os.link(mnt / 'first', mnt / 'third')
    (mnt / 'third').write_bytes(NEW)


def write_then_link(mnt):
    (mnt / 'first').write_bytes(NEW)
    os.link(mnt / 'first', mnt / 'third')


def link_over_another_then_write(mnt):
    (mnt / 'second').unlink()
    os.link(mnt / 'first', mnt / 'second')
    (mnt / 'first').write_bytes(NEW)


def link_over_an_earlier_one_then_write(mnt):
    (mnt / 'first').unlink()
    os.link(mnt / 'second', mnt / 'first')
    (mnt / 'first').write_bytes(NEW)


def make_then_link(mnt):
    (mnt / 'third').write_bytes(NEW)
    for name, value in [('dtype', 'F32'), ('shape', '[4]')]:
        os.setxattr(mnt / 'third', 'user.weightfs.' + name, value.encode())
    os.link(mnt / 'third', mnt / 'fourth')


def link_then_reshape(mnt):
    os.link(mnt / 'first', mnt / 'third')
    (mnt / 'first').write_bytes(NEW)
    os.setxattr(mnt / 'third', 'user.weightfs.shape', b'[2, 2]')


def rename_then_link_under_the_old_name(mnt):
    (mnt / 'first').rename(mnt / 'third')
    os.link(mnt / 'third', mnt / 'first')
    (mnt / 'third').write_bytes(NEW)


WAYS = [link_then_write, link_then_write_through_the_link, write_then_link, link_over_another_then_write,
        link_over_an_earlier_one_then_write, make_then_link, link_then_reshape, rename_then_link_under_the_old_name]


def two(folder, form):
    """Two tensors of the same type and size, not tied."""
    path = folder / ('two.' + form)
    first, second = st.f32(1, 2, 3, 4), st.f32(5, 6, 7, 8)
    if form == 'pth':
        value = pth.dictionary(first=pth.tensor(), second=pth.tensor(pth.storage('1')))
        path.write_bytes(pth.checkpoint(value, r0=first, r1=second))
    else:
        st.write(path, {'first': ('F32', [4], first), 'second': ('F32', [4], second)})
    return path


@pytest.mark.parametrize('form', ['pth', 'safetensors'])
@pytest.mark.parametrize('way', WAYS, ids=lambda way: way.__name__)
def test_names_of_one_edited_file_share_a_record(mount, folder, way, form):
    mounted = mount(two(folder, form), 'output=%s' % (folder / 'new.pth'))
    way(mounted.path)
    tied = {name for name in os.listdir(mounted.path) if os.stat(mounted / name).st_nlink == 2}
    assert len(tied) == 2
    mounted.commit()
    written = pth_written.check(folder / 'new.pth')
    assert [raw for name, raw in written.items() if name.startswith('data/')].count(NEW) == 1
    again = mount(folder / 'new.pth')
    assert len({os.stat(again / name).st_ino for name in tied}) == 1
    assert all((again / name).read_bytes() == NEW for name in tied)


@pytest.mark.parametrize('form', ['safetensors', 'bpk'])
@pytest.mark.parametrize('way', WAYS, ids=lambda way: way.__name__)
def test_names_of_one_edited_file_are_one_tensor_without_ties(mount, folder, way, form):
    output = folder / ('new.' + form)
    mounted = mount(two(folder, 'pth'), 'output=%s' % output, 'ties=drop')
    way(mounted.path)
    nodes = {os.stat(mounted / name).st_ino for name in os.listdir(mounted.path) if not name.startswith('.')}
    mounted.commit()
    saved = json.loads(weightfs('ls', '--json', output).stdout)['tensors']
    assert len(saved) == len(nodes)
    again = mount(output)
    assert sum((again / entry['key']).read_bytes() == NEW for entry in saved) == 1


@pytest.mark.parametrize('form', ['safetensors', 'burnpack', 'pytorch'])
@pytest.mark.parametrize('way', [link_then_write, write_then_link, link_then_write_through_the_link], ids=lambda way: way.__name__)
def test_names_of_one_edited_file_are_saved_in_every_kind_of_set(mount, folder, way, form):
    """As ties in PyTorch's files; elsewhere a copy for each name, or one tensor with ties=drop."""
    for ties in ('copy', 'drop'):
        output = folder / ('new-%s' % ties)
        mounted = mount(two(folder, 'pth'), 'output=%s/' % output, 'format=%s' % form, 'ties=%s' % ties, at=folder / ('mnt-%s' % ties))
        way(mounted.path)
        mounted.commit()
        keys = [entry['key'] for entry in json.loads(weightfs('ls', '--json', output).stdout)['tensors']]
        assert keys == (['first', 'second'] if ties == 'drop' and form != 'pytorch' else ['first', 'second', 'third'])
        again = mount(output, at=folder / ('again-%s' % ties))
        assert sum((again / key).read_bytes() == NEW for key in keys) == len(keys) - 1
        assert os.stat(again / 'first').st_nlink == (2 if form == 'pytorch' else 1)
        mounted.unmount()


def test_links_are_dropped_and_values_stored(mount, tied, folder):
    mounted = mount(tied, 'output=%s' % (folder / 'new.safetensors'), 'ties=drop', 'values=metadata')
    os.link(mounted / 'first', mounted / 'third')
    (mounted / 'second').rename(mounted / 'other')
    (mounted / 'made').write_bytes(b'four')
    for name, value in [('dtype', 'U8'), ('shape', '[4]')]:
        os.setxattr(mounted / 'made', 'user.weightfs.' + name, value.encode())
    os.link(mounted / 'made', mounted / 'made too')
    mounted.commit()
    saved = st.read(folder / 'new.safetensors')
    assert set(saved.tensors) == {'first', 'made'}
    assert saved.metadata == {'third': 'first', 'other': 'first', 'made too': 'made', 'epoch': '3', 'format': 'pt'}


def test_untied_by_a_write_through_a_new_file(mount, tied, folder):
    mounted = mount(tied, 'output=%s' % (folder / 'new.safetensors'), 'ties=drop')
    (mounted / 'copy').write_bytes((mounted / 'second').read_bytes())
    os.rename(mounted / 'copy', mounted / 'second')
    mounted.commit()
    assert set(st.read(folder / 'new.safetensors').tensors) == {'first', 'second'}
    assert attribute(mounted / 'second', 'key') == 'second'
