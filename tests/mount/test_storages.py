# SPDX-License-Identifier: MIT
"""Storages that are items of a .pth by themselves: what is written to them is in the output, as torch reads it."""
import sys

import pytest

from wfs_testlib import program, st
from wfs_testlib.program import tool

TORCH = program.ROOT / 'tests' / 'wfs_testlib' / 'torch_storages.py'
pytestmark = pytest.mark.peers

NEW = st.f32(*range(50, 58))


def make(folder, kind):
    tool(sys.executable, '-B', TORCH, 'make', kind, folder / 'in.pth')
    return folder / 'in.pth'


def check(folder, *expected):
    """Each a "name kind dtype hex": what torch finds in the output."""
    found = tool(sys.executable, '-B', TORCH, 'show', folder / 'out.pth').stdout.split('\n')
    assert sorted(line for line in found if line) == sorted(expected)


def line(name, kind, dtype, data):
    return '%s %s %s %s' % (name, kind, dtype, data.hex())


OLD = st.f32(*range(8))
REST = line('x', 'tensor', 'float32', st.f32(1, 1, 1))
CLASS = {'typed': 'float32', 'untyped': 'uint8', 'stream': 'float32', 'two': 'float32', 'view': 'float32',
         'full': 'float32', 'object': 'float32', 'list': 'float32'}
OTHERS = {'two': [line('t', 'storage', 'float32', OLD)], 'view': [line('v', 'tensor', 'float32', OLD[8:20])]}


@pytest.mark.parametrize('kind', ['typed', 'untyped', 'stream', 'view', 'list'])
def test_new_bytes_of_a_storage_are_written(mount, folder, kind):
    mnt = mount(make(folder, kind), 'output=%s' % (folder / 'out.pth'))
    (mnt.path / ('s/0' if kind == 'list' else 's')).write_bytes(NEW)
    mnt.commit()
    check(folder, REST, line('s.0' if kind == 'list' else 's', 'storage', CLASS[kind], NEW), *OTHERS.get(kind, []))


def test_some_bytes_of_a_storage_under_two_names_are_written_under_both(mount, folder):
    mnt = mount(make(folder, 'two'), 'output=%s' % (folder / 'out.pth'))
    with open(mnt.path / 's', 'r+b') as file:
        file.seek(4)
        file.write(st.f32(77))
    mnt.commit()
    new = OLD[:4] + st.f32(77) + OLD[8:]
    check(folder, REST, line('s', 'storage', 'float32', new), line('t', 'storage', 'float32', new))


def test_one_of_two_names_of_a_storage_is_replaced(mount, folder):
    mnt = mount(make(folder, 'two'), 'output=%s' % (folder / 'out.pth'))
    (mnt.path / 's').unlink()
    (mnt.path / 's').write_bytes(NEW)
    tool('setfattr', '-n', 'user.weightfs.dtype', '-v', 'F32', mnt.path / 's')
    mnt.commit()
    check(folder, REST, line('s', 'storage', 'float32', NEW), *OTHERS['two'])


def test_a_tensor_of_all_elements_is_written_with_the_storage_that_it_is_tied_to(mount, folder):
    mnt = mount(make(folder, 'full'), 'output=%s' % (folder / 'out.pth'))
    tied = (mnt.path / 's').stat().st_nlink > 1
    (mnt.path / 's').write_bytes(NEW)
    mnt.commit()
    check(folder, REST, line('s', 'storage', 'float32', NEW), line('v', 'tensor', 'float32', NEW if tied else OLD))


def test_a_view_of_a_storage_is_written_and_the_storage_stays(mount, folder):
    mnt = mount(make(folder, 'view'), 'output=%s' % (folder / 'out.pth'))
    (mnt.path / 'v').write_bytes(NEW[:12])
    mnt.commit()
    check(folder, REST, line('s', 'storage', 'float32', OLD), line('v', 'tensor', 'float32', NEW[:12]))


@pytest.mark.parametrize('kind', ['untyped', 'two', 'view'])
def test_a_storage_gets_another_size(mount, folder, kind):
    mnt = mount(make(folder, kind), 'output=%s' % (folder / 'out.pth'))
    tool('setfattr', '-n', 'user.weightfs.shape', '-v', '[%d]' % (16 if CLASS[kind] == 'float32' else 64), mnt.path / 's')
    (mnt.path / 's').write_bytes(NEW + NEW)
    mnt.commit()
    others = OTHERS.get(kind, []) if kind == 'view' else [line('t', 'storage', 'float32', NEW + NEW)] * (kind == 'two')
    check(folder, REST, line('s', 'storage', CLASS[kind], NEW + NEW), *others)


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


@pytest.mark.parametrize('kind', ['typed', 'view'])
def test_a_storage_is_covered_by_an_overlay(mount, folder, kind):
    st.write(folder / 'over.safetensors', {'s': ('F32', [8], NEW)})
    program.weightfs('convert', '--overlay', folder / 'over.safetensors', make(folder, kind), folder / 'out.pth')
    check(folder, REST, line('s', 'storage', 'float32', NEW), *OTHERS.get(kind, []))


def test_a_storage_moves_and_is_renamed(mount, folder):
    mnt = mount(make(folder, 'list'), 'output=%s' % (folder / 'out.pth'))
    (mnt.path / 's/0').write_bytes(NEW)
    tool('mv', mnt.path / 's/0', mnt.path / 'moved')
    mnt.commit()
    check(folder, REST, line('moved', 'storage', 'float32', NEW))
