# SPDX-License-Identifier: MIT
"""The checkpoint that a commit would write, made while it is read."""
import errno
import os
import shutil

import numpy
import pytest

from wfs_testlib import burnpack, pth, st
from wfs_testlib.look import set_attribute
from wfs_testlib.program import SAMPLE, tool, weightfs

OUT = '.weightfs/out'


def names(mounted):
    return sorted(os.listdir(mounted / OUT))


def copied(mounted, name, folder):
    """As cp makes it: by size, through an ordinary file."""
    copy = folder / ('copy of ' + name)
    copy.unlink(missing_ok=True)  # it is read-only, as what it was copied from
    tool('cp', mounted / OUT / name, copy)
    return copy.read_bytes()


@pytest.mark.parametrize('options', [[], ['output=new.safetensors']])
def test_every_format_that_can_be_written_is_there_with_its_exact_size(mount, small, folder, options):
    mounted = mount(small, *[option.replace('new', str(folder / 'new')) for option in options])
    assert {'model.safetensors', 'model.bpk'} <= set(names(mounted)) <= {
        'model.safetensors', 'model.bpk', 'model.pth', 'model.mpk', 'model.gguf', 'edits.safetensors'}
    for name in set(names(mounted)) - {'edits.safetensors', 'model.gguf'}:  # which has no U8
        weightfs('convert', small, folder / name)
        wanted = (folder / name).read_bytes()
        assert (mounted / OUT / name).stat().st_size == len(wanted)
        assert copied(mounted, name, folder) == wanted


@pytest.mark.parametrize('options', [[], ['output=new.safetensors']])
@pytest.mark.parametrize('name', [OUT + '/model.safetensors', OUT + '/model.bpk', 'step'])
def test_all_of_a_file_is_data_for_programs_that_look_for_holes(mount, small, folder, options, name):
    mounted = mount(small, *[option.replace('new', str(folder / 'new')) for option in options])
    n_bytes = (mounted / name).stat().st_size
    with open(mounted / name, 'rb') as file:
        assert os.lseek(file.fileno(), 0, os.SEEK_DATA) == 0
        assert os.lseek(file.fileno(), 5, os.SEEK_DATA) == 5
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) == n_bytes
        with pytest.raises(OSError) as failure:
            os.lseek(file.fileno(), n_bytes, os.SEEK_DATA)
        assert failure.value.errno == errno.ENXIO


@pytest.mark.parametrize('extension', ['safetensors', 'bpk', 'pth'])
def test_it_equals_what_the_commit_writes_byte_for_byte(mount, small, folder, extension):
    mounted = mount(small, 'output=%s' % (folder / ('new.' + extension)))
    (mounted / 'a/b').rename(mounted / 'renamed')
    numpy.save(mounted / 'added.npy', numpy.arange(7, dtype='<f4').reshape(7, 1))
    (mounted / 'step').unlink()
    set_attribute(mounted.path, 'metadata.by', 'another')
    made = copied(mounted, 'model.' + extension, folder)
    mounted.commit()
    assert (folder / ('new.' + extension)).read_bytes() == made
    assert copied(mounted, 'model.' + extension, folder) == made


def test_any_piece_of_it_can_be_read(mount, folder):
    mounted = mount(SAMPLE)
    wanted = SAMPLE.read_bytes()
    with open(mounted / OUT / 'model.safetensors', 'rb') as file:
        for offset in (0, 1, 7, 8, 100, len(wanted) // 2, len(wanted) - 1, len(wanted), len(wanted) + 9):
            file.seek(offset)
            assert file.read(1000) == wanted[offset:offset + 1000]


def test_who_has_it_open_finds_one_tree_or_is_told_that_it_has_changed(mount, small, folder):
    large = st.write(folder / 'large.safetensors', {**st.read(small).tensors, 'z': ('U8', [1 << 24], bytes(range(256)) * (1 << 16))})
    mounted = mount(large, 'output=%s' % (folder / 'new.safetensors'))
    path = mounted / OUT / 'model.safetensors'
    fd = os.open(path, os.O_RDONLY)
    try:
        before = os.pread(fd, 4096, 0)
        assert before == large.read_bytes()[:4096]
        (mounted / '.scratch').write_text('no part of a commit')
        assert os.pread(fd, 4096, 0) == before
        (mounted / 'a/c').write_bytes(b'HELLO')
        assert os.pread(fd, 4096, 0) == before
        with pytest.raises(OSError) as caught:  # nobody has read so far
            os.pread(fd, 4096, 1 << 24)
        assert caught.value.errno == errno.ESTALE
    finally:
        os.close(fd)
    changed = {**st.read(large).tensors, 'a.c': ('U8', [5], b'HELLO')}
    assert st.canonical(changed, st.read(large).metadata) == path.read_bytes()


def test_a_tree_that_cannot_be_committed_tells_why(mount, small, folder):
    mounted = mount(small, 'output=%s' % (folder / 'new.safetensors'))
    mounted.allow(r"^weightfs: .*cannot make '\.weightfs/out/model\.(bpk|safetensors)': 'raw' is not a tensor: its dtype and shape are unknown")
    (mounted / 'raw').write_bytes(b'some')
    with pytest.raises(OSError) as caught:
        open(mounted / OUT / 'model.bpk', 'rb')
    assert caught.value.errno == errno.EINVAL
    tool('cp', mounted / OUT / 'model.safetensors', folder / 'copy', code=1)
    os.unlink(mounted / 'raw')
    assert copied(mounted, 'model.safetensors', folder) == small.read_bytes()


def test_what_a_format_cannot_hold_is_never_an_empty_copy(mount, folder):
    source = st.write(folder / 'c.safetensors', {'z': ('C64', [1], bytes(8))})
    mounted = mount(source).allow(r"cannot make '\.weightfs/out/model\.bpk': .*'z'")
    tool('cp', mounted / OUT / 'model.bpk', folder / 'copy', code=1)
    assert copied(mounted, 'model.safetensors', folder) == source.read_bytes()


def test_nothing_in_it_can_be_changed(mount, small, folder):
    mounted = mount(small, 'output=%s' % (folder / 'new.safetensors'))
    out = mounted / OUT
    for action in (lambda: (out / 'model.bpk').unlink(), lambda: (out / 'new').write_text('x'), lambda: (out / 'd').mkdir(),
                   lambda: (out / 'model.bpk').write_text('x'), out.rmdir, lambda: (out / 'model.bpk').rename(mounted / 'x'),
                   lambda: os.link(out / 'model.bpk', mounted / 'x'), lambda: out.rename(mounted / 'x'),
                   lambda: (mounted / 'a/c').rename(out / 'model.bpk')):
        with pytest.raises(OSError):
            action()
    assert {'model.bpk', 'model.safetensors'} <= set(names(mounted))
    assert not mounted.status()['edits']


def blown_up(folder):
    """8 MiB that look out of 16 bytes."""
    path = folder / 'large.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(size=(1 << 21,), stride=(0,)))))
    return path


def test_what_is_much_larger_than_its_source_is_made_only_when_allowed(mount, folder):
    source = blown_up(folder)
    mounted = mount(source, 'output=%s' % (folder / 'new.safetensors'))
    mounted.allow('more than 16 times larger')
    with pytest.raises(OSError) as caught:
        open(mounted / OUT / 'model.safetensors', 'rb')
    assert caught.value.errno == errno.EFBIG
    with pytest.raises(OSError) as caught, open(mounted / 'w', 'r+b') as file:
        file.write(b'x')
        file.flush()
    assert caught.value.errno == errno.EFBIG
    assert 'more than 16 times larger' in weightfs('commit', mounted.path, code=9).error
    assert 'more than 16 times larger' in weightfs('convert', source, folder / 'c.safetensors', code=9).error
    mounted.unmount()
    mounted = mount(source, 'output=%s,large' % (folder / 'new.safetensors'))
    assert st.read(shutil.copy(mounted / OUT / 'model.safetensors', folder / 'copy')).tensors['w'][2] == bytes(range(4)) * (1 << 21)
    with open(mounted / 'w', 'r+b') as file:
        file.write(b'x')
    weightfs('commit', mounted.path)
    assert st.read(folder / 'new.safetensors').tensors['w'][2][:5] == b'x' + bytes([1, 2, 3, 0])
    weightfs('convert', '--large', source, folder / 'c.safetensors')


def test_burnpack_of_a_view_is_that_of_convert(mount, small, folder):
    mounted = mount(small, 'remap=^a=>x', 'cast=F16')
    weightfs('convert', '--remap', '^a=>x', '--cast', 'F16', small, folder / 'wanted.bpk')
    assert copied(mounted, 'model.bpk', folder) == (folder / 'wanted.bpk').read_bytes()
    assert 'x.b.weight' in burnpack.read(folder / 'wanted.bpk').tensors
