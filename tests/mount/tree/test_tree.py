# SPDX-License-Identifier: MIT
"""What a mount shows: names, bytes, attributes, sizes."""
import csv
import errno
import hashlib
import json
import mmap
import os
import re
import stat
import struct

import numpy
import pytest

from wfs_testlib import look, paths, program, shared, st
from wfs_testlib.program import tool, weightfs

# One of every kind of name that the manual speaks of.
KEYS = [
    'plain', 'encoder.layer.0.weight', 'conv1/bn/gamma:0', '/a', 'a/', 'a%2Fb', '%', '%self', '50%', '', '.', '..', 'x..y', 'x.',
    '.hidden', '.weightfs', '../../etc/passwd', '-rf', 'a b', '*', '$(id)', '~', '#', 'a\'b"', '\\', 'new\nline', 'tab\t', '\x01', '\x1f',
    '\x7f', 'w', 'w.absmax', 'w.quant_state.bitsandbytes__nf4', 'Case', 'case', 'e\u0301', '\u00e9', '日本語', '😀', '\uffff',
    'x' * 255, 'y' * 256, 'z' * 300, 'ü' * 200, 'deep.' * 100 + 'end', 'name.npy', '__metadata', '__metadata__.x', 'con', 'a:b', 'a;b',
]


# What the driver says of a source that other readers may take differently.
FINDINGS = 'duplicate key|would lead out of the directory'


def contents(keys):
    return {key: ('U8', [len(key.encode()) % 7 + 1], hashlib.sha256(key.encode()).digest()[:len(key.encode()) % 7 + 1]) for key in keys}


def identify(value):
    return value[0].parent.name + '-' + value[0].stem


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('checkpoint', shared.each(
    [one for one in shared.checkpoints() if one[0].stem not in ('names', 'name-70000')], identify))
def test_every_tensor_of_other_programs_is_shown(mount, checkpoint):
    path, tensors, _ = checkpoint
    shown = look.tensors(mount(path).path)
    assert {key: (dtype, shape, len(data), hashlib.sha256(data).hexdigest()) for key, (dtype, shape, data) in shown.items()} == {
        key: (entry['dtype'], entry['shape'], entry['nbytes'], entry['sha256']) for key, entry in tensors.items()}


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('case', shared.named(
    [case for case in shared.hostile() if case['verdict'] == 'accept' and 'base64' in case]))
def test_odd_inputs_that_the_reference_accepts_are_mounted(mount, folder, case):
    if case['case'] == 'name NUL escaped':
        pytest.skip('refused: test_a_bad_source_is_never_mounted')
    (folder / 'x').write_bytes(shared.hostile_bytes(case))
    listed = json.loads(weightfs('ls', '--json', folder / 'x').stdout)['tensors']
    shown = look.tensors(mount(folder / 'x').allow(FINDINGS).path)
    assert {key: (dtype, shape, len(data)) for key, (dtype, shape, data) in shown.items()} == {
        one['key']: (one['dtype'], one['shape'], one['bytes']) for one in listed}


@pytest.mark.parametrize('files', ['raw', 'npy'])
@pytest.mark.parametrize('layout', ['nested', 'flat'])
def test_every_kind_of_key_has_its_name(mount, folder, layout, files):
    tensors = contents(KEYS)
    mnt = mount(st.write(folder / 'x', tensors), 'layout=' + layout, 'files=' + files).allow(FINDINGS)
    suffix = '.npy' if files == 'npy' else ''
    expected = paths.paths(KEYS, layout, suffix)
    by_key = {look.attribute(mnt / name, 'key'): name for name in look.files(mnt.path)}
    assert sorted(by_key) == sorted(KEYS)
    for key, names in expected.items():
        found = by_key[key].split('/')
        assert len(found) == len(names), (key, found)
        for name, want in zip(found, names):
            if isinstance(want, paths.CutName):
                assert want.matches(name.removesuffix(suffix)), (key, name)
            else:
                assert name == want, (key, name)
            assert len(name.encode()) <= 255
        with open(mnt / by_key[key], 'rb') as file:
            assert file.read().endswith(tensors[key][2])


@pytest.mark.parametrize('layout', ['nested', 'flat'])
def test_every_kind_of_key_comes_back_from_an_untouched_commit(mount, folder, layout):
    source = st.write(folder / 'x', contents(KEYS), {'format': 'pt'})
    mnt = mount(source, 'layout=' + layout, 'output=%s' % (folder / 'out.safetensors')).allow(FINDINGS)
    mnt.commit()
    assert (folder / 'out.safetensors').read_bytes() == source.read_bytes()


@pytest.mark.parametrize('layout', ['nested', 'flat'])
def test_every_kind_of_key_survives_a_rename_beside_it(mount, folder, layout):
    tensors = contents(KEYS)
    mnt = mount(st.write(folder / 'x', tensors), 'layout=' + layout, 'output=%s' % (folder / 'out.safetensors')).allow(FINDINGS)
    os.rename(mnt / 'plain', mnt / 'renamed')
    mnt.commit()
    tensors['renamed'] = tensors.pop('plain')
    assert st.read(folder / 'out.safetensors').digests() == {key: (dtype, shape, hashlib.sha256(data).hexdigest())
                                                             for key, (dtype, shape, data) in tensors.items()}


def test_a_key_with_more_parts_than_a_path_may_have(mount, folder):
    key = '.'.join('p' * 300)
    mnt = mount(st.write(folder / 'x', {key: ('U8', [2], b'hi')}))
    names = paths.paths([key])[key]
    assert look.files(mnt.path) == ['/'.join(names)]
    with open(mnt / names[0] / '/'.join(names[1:]), 'rb') as file:
        assert file.read() == b'hi'


def test_a_key_at_the_limit_of_length(mount, folder):
    key = 'k' * 70000
    mnt = mount(st.write(folder / 'x', {key: ('U8', [2], b'hi')}))
    (name,) = os.listdir(mnt.path)
    assert paths.CutName(key).matches(name)
    with pytest.raises(OSError) as caught:
        os.getxattr(mnt / name, 'user.weightfs.key')
    assert caught.value.errno == errno.E2BIG
    with open(mnt / '.weightfs/tensors.csv', newline='', encoding='utf-8') as file:
        csv.field_size_limit(1 << 20)
        assert key in next(csv.DictReader(list(file)[0:2])).values()


def test_attributes_say_what_a_tensor_is(mount, small):
    mnt = mount(small)
    path = mnt / 'a/b/weight'
    assert look.attribute(path, 'key') == 'a.b.weight'
    assert look.attribute(path, 'dtype') == 'F32'
    assert json.loads(look.attribute(path, 'shape')) == [2, 3]
    assert look.attribute(path, 'source_key') == 'a.b.weight'
    assert look.attribute(path, 'source_dtype') == 'F32'
    assert int(look.attribute(path, 'offset')) == small.read_bytes().index(st.f32(1, 2, 3, 4, 5, 6))
    assert look.attribute(path, 'file') == small.name or look.attribute(path, 'file') == str(small)
    assert json.loads(look.attribute(mnt / 'step', 'shape')) == []
    listed = os.listxattr(path)
    assert {'user.weightfs.key', 'user.weightfs.dtype', 'user.weightfs.shape'} <= set(listed)
    assert not any(name.endswith(('offset', 'xxh3', 'stats')) for name in listed)


def test_attributes_that_are_computed_when_asked_for(mount, small):
    mnt = mount(small)
    stats = json.loads(look.attribute(mnt / 'a/b/weight', 'stats'))
    assert stats['min'] == 1 and stats['max'] == 6 and stats['mean'] == 3.5
    digest = look.attribute(mnt / 'a/b/weight', 'xxh3')
    assert int(digest, 16) and len(digest) == 16
    assert digest != look.attribute(mnt / 'a/b/bias', 'xxh3')


def test_attributes_of_the_root(mount, small):
    mnt = mount(small)
    assert look.attribute(mnt.path, 'format') == 'safetensors'
    assert look.attribute(mnt.path, 'metadata.by') == 'a test'


@pytest.mark.parametrize('name, code', [
    ('user.weightfs.nothing', errno.ENODATA), ('user.other', errno.ENODATA), ('security.selinux', errno.EOPNOTSUPP),
    ('system.posix_acl_access', errno.EOPNOTSUPP), ('trusted.x', errno.EOPNOTSUPP),
])
def test_attributes_that_are_not_there(mount, small, name, code):
    with pytest.raises(OSError) as caught:
        os.getxattr(mount(small) / 'step', name)
    assert caught.value.errno in (code, errno.ENODATA) if name.startswith('trusted') else caught.value.errno == code


def test_long_metadata_is_in_its_file_and_not_in_the_way(mount, folder):
    meta = {'long': 'x' * 200000, **{'k%d' % i: 'v' for i in range(5000)}}
    mnt = mount(st.write(folder / 'x', {'w': ('U8', [1], b'x')}, meta))
    assert json.loads((mnt / '.weightfs/metadata.json').read_text()) == meta
    assert 'user.weightfs.metadata.long' not in os.listxattr(mnt.path)
    assert tool('getfattr', '-d', mnt.path).stdout
    assert look.attribute(mnt.path, 'metadata.k4999') == 'v'


def test_sizes_and_blocks_need_no_reading(mount, small):
    mnt = mount(small)
    for name in look.files(mnt.path):
        entry = os.stat(mnt / name)
        assert entry.st_blocks == -(-entry.st_size // 512)
        assert (entry.st_blocks > 0) == (entry.st_size > 0)
        assert entry.st_mtime_ns == os.stat(small).st_mtime_ns
        assert (entry.st_uid, entry.st_gid, entry.st_nlink) == (os.getuid(), os.getgid(), 1)
        assert stat.S_IMODE(entry.st_mode) & 0o022 == 0


def test_inode_numbers_are_the_same_at_the_next_mount(mount, sample):
    def numbers(mnt):
        return {name: os.stat(mnt / name).st_ino for name in look.files(mnt.path)}
    first = mount(sample)
    before = numbers(first)
    first.unmount()
    assert numbers(mount(sample)) == before
    assert len(set(before.values())) == len(before)
    assert 0 not in before.values()


def test_directory_entries_have_the_inode_numbers_of_stat(mount, sample):
    mnt = mount(sample)
    for above, _, _ in os.walk(mnt.path):
        for entry in os.scandir(above):
            assert entry.inode() == entry.stat().st_ino


def test_statfs_has_true_totals(mount, small):
    vfs = os.statvfs(mount(small).path)
    n_bytes = sum(len(data) for _, _, data in st.read(small).tensors.values())
    assert n_bytes <= vfs.f_blocks * vfs.f_frsize < n_bytes + 4096 * 8
    assert vfs.f_files >= 5 and vfs.f_namemax == 255


def test_options_give_owner_and_mode(mount, small):
    mnt = mount(small, 'uid=1234,gid=5678,umask=0026')
    entry = os.stat(mnt / 'step')
    assert (entry.st_uid, entry.st_gid, stat.S_IMODE(entry.st_mode)) == (1234, 5678, 0o640)


def test_the_control_directory_is_found_and_not_listed(mount, small):
    mnt = mount(small)
    assert '.weightfs' not in os.listdir(mnt.path)
    assert {'tensors.csv', 'metadata.json', 'status.json'} <= set(os.listdir(mnt / '.weightfs'))
    assert json.loads((mnt / '.weightfs/metadata.json').read_text()) == {'format': 'pt', 'by': 'a test'}
    assert mnt.status()['state'] == 'clean'


def test_the_table_of_tensors_quotes_every_key(mount, folder):
    keys = [key for key in KEYS if len(key) < 300]
    mnt = mount(st.write(folder / 'x', contents(keys))).allow(FINDINGS)
    with open(mnt / '.weightfs/tensors.csv', newline='', encoding='utf-8') as file:
        rows = list(csv.DictReader(file))
    assert {row['key'].removeprefix("'") for row in rows} == set(keys)
    assert all(row['dtype'] == 'U8' for row in rows)


def test_a_spreadsheet_runs_no_cell_of_the_table(mount, folder):
    starts = ('=', '+', '-', '@', '\t', '\r', '\n', '\uff1d', '\uff0b', '\uff0d', '\uff20')
    keys = [space + start + word for space in ('', '  ') for start in (*starts, "'", "'=") for word in ("cmd|' /C calc'!A0", 'HYPERLINK("x,y")')]
    mnt = mount(st.write(folder / '=1+1', contents([*keys, 'a=b', 'x-y'])), cwd=folder).allow(FINDINGS)
    with open(mnt / '.weightfs/tensors.csv', newline='', encoding='utf-8') as file:
        rows = list(csv.DictReader(file))
    cells = [cell for row in rows for cell in row.values()]
    assert not any(cell.lstrip(' ').startswith(starts) for cell in cells)
    assert {row['key'][row['key'].startswith("'"):] for row in rows} == {*keys, 'a=b', 'x-y'}
    assert {row['source_key'][row['source_key'].startswith("'"):] for row in rows} == {*keys, 'a=b', 'x-y'}


def test_a_spreadsheet_runs_no_cell_of_the_plan(mount, folder):
    starts = ('=', '+', '-', '@', '\t', '\r', '\n', '\uff1d', '\uff0b', '\uff0d', '\uff20')
    keys = [space + start + word for space in ('', '  ') for start in (*starts, "'", '"=') for word in ("cmd|' /C calc'!A0", 'HYPERLINK("x,y")')]
    path = st.write(folder / 'x', contents([*keys, 'a=b']))
    mnt = mount(path, 'remap=^a=>=a').allow(FINDINGS)
    with open(mnt / '.weightfs/plan.tsv', newline='', encoding='utf-8') as file:
        rows = list(csv.DictReader(file, delimiter='\t'))
    cells = [cell for row in rows for cell in row.values()]
    assert len(rows) == len(keys) + 1 and not any(cell.lstrip(' ').startswith(starts) for cell in cells)
    unescaped = [re.sub(r'\\x(..)', lambda m: chr(int(m[1], 16)), row['old_key'][row['old_key'].startswith("'"):]) for row in rows]
    assert set(unescaped) == {*keys, 'a=b'} and "'=a=b" in {row['new_key'] for row in rows}
    planned = weightfs('plan', '--remap', '^a=>=a', path).stdout.splitlines()
    assert 'a=b\t=a=b' in {'\t'.join(line.split('\t')[:2]) for line in planned}, 'what is printed is not guarded'


def test_any_range_of_a_file_is_a_slice_of_the_whole(mount, folder):
    data = numpy.random.default_rng(1).bytes(3 * 1024 * 1024 + 7)
    source = st.write_parts(folder / 'x', [('odd', 'U8', [3], b'odd'), ('w', 'U8', [len(data)], data)], pad=0)
    rng = numpy.random.default_rng(2)
    with open(mount(source) / 'w', 'rb', buffering=0) as file:
        for _ in range(300):
            offset, n = int(rng.integers(len(data) + 10)), int(rng.integers(1, 300000))
            assert os.pread(file.fileno(), n, offset) == data[offset:offset + n]


@pytest.mark.parametrize('access', [mmap.ACCESS_READ, mmap.ACCESS_COPY])
def test_files_can_be_mapped(mount, small, access):
    with open(mount(small) / 'a/b/weight', 'rb') as file, mmap.mmap(file.fileno(), 0, access=access) as mapped:
        assert mapped[:] == st.f32(1, 2, 3, 4, 5, 6)


def test_numpy_loads_and_maps_the_npy_view(mount, sample):
    mnt = mount(sample, 'files=npy')
    for key, (dtype, shape, data) in st.read(sample).tensors.items():
        path = mnt / (key.replace('.', '/') + '.npy')
        array = numpy.load(path, mmap_mode='r' if data else None)
        assert list(array.shape) == shape and array.tobytes() == data, key
        assert not data or os.stat(path).st_size == array.offset + len(data)
        if dtype in ('F32', 'F16', 'I64'):
            assert array.dtype == {'F32': '<f4', 'F16': '<f2', 'I64': '<i8'}[dtype]
    weights = numpy.load(mnt / 'embeddings/word/weight.npy', mmap_mode='r')
    assert weights.dtype == '<f2' and abs(float(weights.astype('f4').mean())) < 0.01


def test_a_read_only_mount_refuses_every_change(mount, small):
    mnt = mount(small)
    path = mnt / 'a/b/weight'
    changes = [
        lambda: open(path, 'r+b'), lambda: open(mnt / 'new', 'xb'), lambda: os.truncate(path, 0), lambda: os.unlink(path),
        lambda: os.rename(path, mnt / 'x'), lambda: os.mkdir(mnt / 'd'), lambda: os.rmdir(mnt / 'a'), lambda: os.link(path, mnt / 'l'),
        lambda: os.setxattr(path, 'user.weightfs.dtype', b'I32'), lambda: os.utime(path), lambda: os.chmod(path, 0o600),
        lambda: os.symlink('x', mnt / 's'),
    ]
    for change in changes:
        with pytest.raises(OSError) as caught:
            change()
        assert caught.value.errno == errno.EROFS


def test_special_files_cannot_be_made(mount, small, folder):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    for make in (lambda: os.symlink('x', mnt / 's'), lambda: os.mkfifo(mnt / 'f')):
        with pytest.raises(OSError) as caught:
            make()
        assert caught.value.errno in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)


def make_many(path, n_dirs, n_each):
    entry = '"d%05d.t%03d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}'
    names = [(i, j) for i in range(n_dirs) for j in range(n_each)]
    head = '{%s}' % ','.join(entry % (i, j, k, k + 1) for k, (i, j) in enumerate(names))
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(head)) + head.encode())
        file.write(bytes(range(256)) * (len(names) // 256 + 1))
        file.truncate(8 + len(head) + len(names))
    return path


def test_a_directory_of_many_tensors_is_listed_exactly(mount, folder):
    mnt = mount(make_many(folder / 'x', 1, 30000))
    assert len(os.listdir(mnt / 'd00000')) == 30000
    assert len(set(os.listdir(mnt / 'd00000'))) == 30000


@pytest.mark.slow
def test_half_a_million_tensors_are_all_found(mount, folder):
    mnt = mount(make_many(folder / 'x', 50000, 10))
    assert tool('find', mnt.path, '-type', 'f', '-printf', '.').stdout == '.' * 500000
    assert len(os.listdir(mnt.path)) == 50000
    with open(mnt / 'd49999/t009', 'rb') as file:
        assert file.read() == bytes([499999 % 256])
    worker = max(mnt.workers or [mnt.process.pid])
    if not program.IS_INSTRUMENTED:
        with open('/proc/%d/status' % worker, encoding='ascii') as file:
            resident = next(int(line.split()[1]) for line in file if line.startswith('VmRSS'))
        assert resident < 250 << 10


def test_files_that_vanish_while_a_directory_is_read_hide_no_others(mount, folder):
    mnt = mount(make_many(folder / 'x', 1, 5000), 'output=%s' % (folder / 'out.safetensors'))
    seen = []
    with os.scandir(mnt / 'd00000') as entries:
        for i, entry in enumerate(entries):
            seen.append(entry.name)
            if i % 2 == 0:
                os.unlink(entry.path)
    assert len(seen) == 5000 and set(seen) == {'t%03d' % i for i in range(5000)} and len(os.listdir(mnt / 'd00000')) == 2500
