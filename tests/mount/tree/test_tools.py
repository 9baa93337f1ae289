# SPDX-License-Identifier: MIT
"""Ordinary tools on a mount: the right bytes, sizes and attributes arrive."""
import concurrent.futures
import json
import os
import shutil

import pytest

from wfs_testlib import look, pth, st
from wfs_testlib.program import tool


def path_of(key):
    return key.replace('.', '/')


def by_path(source):
    return {path_of(key): tensor for key, tensor in st.read(source).tensors.items()}


def check_copy(copy, source):
    """Bytes and attributes of a copy that a tool made, against the file that was mounted."""
    expected = by_path(source)
    assert look.content(copy) == {path: data for path, (_, _, data) in expected.items()}
    for path, (dtype, shape, _) in expected.items():
        assert look.attribute(copy / path, 'dtype') == dtype
        assert json.loads(look.attribute(copy / path, 'shape')) == shape
        assert look.attribute(copy / path, 'key') == path.replace('/', '.')


def test_cp_archive_keeps_bytes_and_attributes(mount, sample, folder):
    mnt = mount(sample)
    tool('cp', '-a', mnt.path, folder / 'copy')
    check_copy(folder / 'copy', sample)
    assert os.stat(folder / 'copy/temperature').st_mtime == os.stat(sample).st_mtime


@pytest.mark.parametrize('option', ['auto', 'always', 'never'])
def test_cp_sparse_keeps_bytes(mount, folder, option):
    data = bytes(1 << 20) + b'x' * 10 + bytes(1 << 20)
    mnt = mount(st.write(folder / 'x', {'w': ('U8', [len(data)], data), 'z': ('U8', [5000], bytes(5000))}))
    tool('cp', '-r', '--sparse=' + option, mnt.path, folder / 'copy')
    assert look.content(folder / 'copy') == {'w': data, 'z': bytes(5000)}


def test_rsync_keeps_bytes_and_attributes_and_finds_nothing_to_do_twice(mount, sample, folder):
    mnt = mount(sample)
    copy = folder / 'copy'
    tool('rsync', '-aX', '%s/' % mnt.path, copy)
    check_copy(copy, sample)
    again = tool('rsync', '-aX', '--itemize-changes', '%s/' % mnt.path, copy)
    assert again.stdout == ''
    assert tool('rsync', '-aXc', '--itemize-changes', '%s/' % mnt.path, copy).stdout == ''


@pytest.mark.parametrize('options', [['--sparse'], ['--sparse', '--hole-detection=seek'], []])
def test_tar_keeps_bytes(mount, sample, folder, options):
    mnt = mount(sample)
    tool('tar', '-C', mnt.path, *options, '-cf', folder / 'x.tar', '.')
    (folder / 'copy').mkdir()
    tool('tar', '-C', folder / 'copy', '-xf', folder / 'x.tar')
    assert look.content(folder / 'copy') == {path: data for path, (_, _, data) in by_path(sample).items()}


def test_tar_keeps_attributes(mount, sample, folder):
    mnt = mount(sample)
    tool('tar', '-C', mnt.path, '--xattrs', '--xattrs-include=user.weightfs.*', '-cf', folder / 'x.tar', '.')
    (folder / 'copy').mkdir()
    tool('tar', '-C', folder / 'copy', '--xattrs', '--xattrs-include=user.weightfs.*', '-xf', folder / 'x.tar')
    check_copy(folder / 'copy', sample)


def test_du_counts_every_byte(mount, sample):
    mnt = mount(sample)
    total = sum(len(data) for _, _, data in st.read(sample).tensors.values())
    assert int(tool('du', '-sb', '--apparent-size', mnt.path).stdout.split()[0]) == total
    blocks = sum(-(-len(data) // 512) for _, _, data in st.read(sample).tensors.values())
    assert int(tool('du', '-s', '--block-size=512', mnt.path).stdout.split()[0]) == blocks


def test_find_selects_by_size(mount, sample):
    mnt = mount(sample)
    found = tool('find', mnt.path, '-type', 'f', '-size', '+1024c', '-printf', '%P\n').stdout.split()
    assert sorted(found) == sorted(path for path, (_, _, data) in by_path(sample).items() if len(data) > 1024)
    assert tool('find', mnt.path, '-type', 'f', '-empty', '-printf', '%P\n').stdout == 'scaled_fp8\n'


def test_sha256sum_agrees(mount, sample):
    mnt = mount(sample)
    expected = {key: digest for key, (_, _, digest) in st.read(sample).digests().items()}
    for line in tool('find', mnt.path, '-type', 'f', '-exec', 'sha256sum', '{}', '+').stdout.splitlines():
        digest, path = line.split('  ', 1)
        assert expected.pop(os.path.relpath(path, mnt.path).replace('/', '.')) == digest
    assert not expected


def test_getfattr_dumps_the_whole_tree(mount, sample):
    mnt = mount(sample)
    text = tool('getfattr', '-R', '-d', '--absolute-names', mnt.path).stdout
    for key, (dtype, shape, _) in st.read(sample).tensors.items():
        part = text.split('# file: %s\n' % (mnt / path_of(key)))[1].split('\n\n')[0]
        assert 'user.weightfs.dtype="%s"' % dtype in part
        assert 'user.weightfs.shape="%s"' % shape in part


def test_ls_asks_for_nothing_that_fails(mount, sample):
    mnt = mount(sample)
    lines = [line for line in tool('ls', '-lR', mnt.path).stdout.splitlines() if line.startswith('-')]
    assert sorted(int(line.split()[4]) for line in lines) == sorted(len(data) for _, _, data in st.read(sample).tensors.values())


def test_file_and_many_readers_of_beginnings(mount, sample):
    """An indexer: eight threads that read the first 4 KiB of every file. Afterwards the mount is not busy."""
    mnt = mount(sample)
    expected = by_path(sample)

    def head(path):
        with open(mnt / path, 'rb') as file:
            return path, file.read(4096)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for path, data in pool.map(head, list(expected) * 20):
            assert data == expected[path][2][:4096]
    mnt.unmount()


def test_dd_with_any_block_size(mount, folder):
    data = bytes(i * 7 % 251 for i in range(300001))
    mnt = mount(st.write(folder / 'x', {'w': ('U8', [len(data)], data)}))
    for size in ('1000', '4096', '65536', '1M'):
        tool('dd', 'if=%s' % (mnt / 'w'), 'of=%s' % (folder / 'copy'), 'bs=' + size)
        assert (folder / 'copy').read_bytes() == data


def test_a_copy_loses_nothing_of_size_zero(mount, folder):
    tensors = {'a': ('F32', [0], b''), 'b.c': ('F16', [2, 0, 3], b''), 'd': ('U8', [1], b'x')}
    mnt = mount(st.write(folder / 'x', tensors))
    tool('rsync', '-aX', '%s/' % mnt.path, folder / 'one')
    shutil.copytree(mnt.path, folder / 'two')
    for copy in ('one', 'two'):
        assert look.content(folder / copy) == {'a': b'', 'b/c': b'', 'd': b'x'}


def test_two_mounts_of_one_file(mount, sample):
    first, second = mount(sample), mount(sample)
    assert look.tensors(first.path) == look.tensors(second.path) == st.read(sample).tensors


HOSTILE = ['\x1b[2J\x1b]0;owned\x07', 'a\nb', 'tab\there', '\x7f\b\r', '-rf', '--', '$(reboot)', ' ', '*', 'x' * 255, 'y' * 300, '\u00e9' * 127,
           '/etc/passwd', '%', '\x01', 'deep' + '\x1b'.join('abc')]


def test_names_that_would_harm_a_terminal_reach_none(mount, folder):
    tensors = {'layer %d.' % i + key.replace('.', ''): ('U8', [3], b'%03d' % i) for i, key in enumerate(HOSTILE)}
    mnt = mount(st.write(folder / 'x', tensors), 'output=%s' % (folder / 'out.safetensors'))
    tool('tar', '-C', mnt.path, '-cf', folder / 'x.tar', '.')
    for command in (['ls', '-lRN', mnt.path], ['find', mnt.path], ['tar', '--quoting-style=literal', '-tvf', folder / 'x.tar'],
                    ['rsync', '-aXv8', '%s/' % mnt.path, folder / 'copy'], ['grep', '-r', '0', mnt.path]):
        said = tool(*command, env={**os.environ, 'LC_ALL': 'C.UTF-8'}).stdout
        assert not [c for c in said if (c < ' ' and c != '\n') or c == '\x7f'], command
    assert sorted(look.content(folder / 'copy').values()) == sorted(data for _, _, data in tensors.values())
    tool('rsync', '-aX', '%s/' % (folder / 'copy'), mnt / 'again')
    mnt.commit()
    assert st.read(folder / 'out.safetensors').tensors == {**tensors, **{'again.' + key: tensor for key, tensor in tensors.items()}}


def test_a_tensor_of_four_tebibytes_is_listed_and_its_ends_are_read(mount, folder):
    n = 1 << 40
    source = folder / 'wide.pth'
    source.write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(size=(n,), stride=(0,))), r0=st.f32(1, 2, 3, 4)))
    mnt = mount(source, 'large')
    assert ' %d ' % (4 * n) in tool('ls', '-lR', mnt.path).stdout
    assert tool('find', mnt.path, '-size', '+3000G', '-printf', '%P').stdout == 'w'
    assert tool('du', '--apparent-size', '-B1T', mnt / 'w').stdout.split()[0] == '4'
    with open(mnt / 'w', 'rb') as file:
        assert file.read(8) == st.f32(1, 1)
        file.seek(-6, os.SEEK_END)
        assert file.read() == st.f32(1, 1)[2:]
