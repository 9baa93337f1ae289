# SPDX-License-Identifier: MIT
"""Names of tensors in two places: files with several names, and parts of keys that share a shortened name."""
import errno
import io
import json
import os
import pickle
import shutil
import zipfile

import numpy
import pytest

from wfs_testlib import pth, st
from wfs_testlib.look import attribute, set_attribute
from wfs_testlib.program import EXIT_COMMIT, EXIT_DAMAGED, listing, tool, weightfs

# Two texts with one XXH3 (64 bits, seed 0): it adds 32-bit halves to its secret, and in these words the sum does not change.
ONE = bytearray(b'a' * 1100)
ONE[280:292], ONE[536:548] = bytes.fromhex('787878c2813a264c79797979'), bytes.fromhex('787878c2a9deacd880797979')
OTHER = bytearray(ONE)
OTHER[280] += 1
OTHER[536] -= 1
ONE, OTHER = ONE.decode(), OTHER.decode()
BYTES = {'one': b'1111', 'two': b'2222'}


def written(path, one, two):
    return st.write(path, {one: ('U8', [4], BYTES['one']), two: ('U8', [4], BYTES['two'])})


COLLISIONS = {
    'two directories': (ONE + '.w', OTHER + '.w'), 'two files': (ONE, OTHER), 'files of two directories': ('x.' + ONE, 'y.' + OTHER),
    'directories of two directories': ('x.%s.w' % ONE, 'y.%s.v' % OTHER), 'a directory and a file': (ONE + '.w', OTHER),
}


@pytest.mark.parametrize('options', [[], ['files=npy']], ids=str)
@pytest.mark.parametrize('case', COLLISIONS)
def test_keys_with_one_shortened_name_are_refused(folder, case, options):
    one, two = COLLISIONS[case]
    path = written(folder / 'x.safetensors', one, two)
    where = folder / 'mnt'
    where.mkdir()
    words = [word for option in options for word in ('-o', option)]
    assert 'have the same hash' in weightfs(path, where, '-f', *words, code=EXIT_DAMAGED).error


def test_a_value_with_the_shortened_name_of_a_tensor_is_refused(folder):
    (folder / 'x.pth').write_bytes(pth.checkpoint(pth.pairs((pth.text(ONE), pth.tensor()), (pth.text(OTHER), pth.number(1)))))
    (folder / 'mnt').mkdir()
    assert 'have the same hash' in weightfs(folder / 'x.pth', folder / 'mnt', '-f', code=EXIT_DAMAGED).error


def test_a_renamed_key_makes_room_for_the_other(mount, folder):
    path = written(folder / 'x.safetensors', ONE + '.w', OTHER + '.w')
    mnt = mount(path, r'remap=^a+y[^w]*w[^w]*\\.w$=>short.w', 'output=%s' % (folder / 'out.safetensors'))
    mnt.commit()
    assert len({key.split('.')[0] for key in st.read(folder / 'out.safetensors').tensors}) == 2


def test_a_copy_does_not_take_the_key_of_another_part(mount, folder):
    path = st.write(folder / 'x.safetensors', {'a.' + ONE: ('U8', [4], BYTES['one'])})
    mnt = mount(path, 'output=%s' % (folder / 'out.safetensors'))
    name, = os.listdir(mnt / 'a')
    (mnt / 'b').mkdir()
    shutil.copy(mnt / 'a' / name, mnt / 'b' / name)
    with pytest.raises(OSError) as failure:
        set_attribute(mnt / 'b' / name, 'key', 'b.' + OTHER)
    assert failure.value.errno == errno.EEXIST
    set_attribute(mnt / 'b' / name, 'key', 'b.' + ONE)
    assert attribute(mnt / 'b' / name, 'key') == 'b.' + ONE
    (mnt / 'b' / name).unlink()


@pytest.fixture
def tied(folder):
    path = folder / 'tied.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(first=pth.tensor(), second=pth.tensor(), m=pth.dictionary(third=pth.tensor()),
                                                   other=pth.tensor(size=(2,)))))
    return path


@pytest.mark.parametrize('options', [[], ['files=npy']], ids=str)
def test_a_file_with_several_names_has_all_their_keys(mount, folder, tied, options):
    suffix = '.npy' if options else ''
    mnt = mount(tied, 'remap=^m\\\\.third$=>m.moved', 'output=%s' % (folder / 'out.pth'), *options)
    paths = [mnt / (name + suffix) for name in ('first', 'second', 'm/moved')]
    for path in paths:
        assert attribute(path, 'key') == 'first\nsecond\nm.moved'
        assert attribute(path, 'source_key') == 'first\nsecond\nm.third'
    assert attribute(mnt / ('other' + suffix), 'key') == 'other'
    os.rename(paths[0], mnt / ('renamed' + suffix))
    os.link(paths[1], mnt / ('new' + suffix))
    os.link(paths[1], mnt / '.scratch')
    assert set(attribute(paths[1], 'key').split('\n')) == {'renamed', 'second', 'm.moved', 'new'}
    for path in (mnt / ('renamed' + suffix), paths[1], mnt / ('new' + suffix)):
        path.unlink()
    assert attribute(paths[2], 'key') == 'm.moved' and attribute(paths[2], 'source_key') == 'm.third'


def test_more_names_than_anyone_reads_are_no_list(mount, folder):
    path = folder / 'many.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(**{'w%04d' % i: pth.tensor() for i in range(1025)})))
    mnt = mount(path)
    with pytest.raises(OSError) as failure:
        attribute(mnt / 'w0000', 'key')
    assert failure.value.errno == errno.ENODATA
    assert attribute(mnt / 'w0000', 'dtype') == 'F32'


def test_copies_of_tied_files_with_shortened_names_keep_their_keys(mount, folder):
    long = {'x' * 300: pth.tensor(), 'y' * 300: pth.tensor(), 'in': pth.dictionary(**{'z' * 300: pth.tensor()})}
    (folder / 'in.pth').write_bytes(pth.checkpoint(pth.dictionary(**long)))
    source = mount(folder / 'in.pth')
    empty = st.write(folder / 'empty.safetensors', {'other': ('U8', [1], b'1')})
    target = mount(empty, 'output=%s' % (folder / 'out.safetensors'))
    tool('cp', '-a', '-r', *(source / name for name in os.listdir(source.path)), target.path)
    target.commit()
    assert set(st.read(folder / 'out.safetensors').tensors) == {'other', 'x' * 300, 'y' * 300, 'in.' + 'z' * 300}


def fraction(text):
    """An object that JSON and file names cannot spell."""
    return pth.call(pth.name('fractions', 'Fraction'), pth.text(text))


def unspelled(folder):
    """(path, names of four tensors under such keys, by their keys)"""
    keys = {'half': fraction('1/2'), 'third': fraction('1/3'), 'frozen': pth.call(pth.name('builtins', 'frozenset'), b'](' + pth.number(1) + b'e'),
            'class': pth.name('torch', 'FloatStorage')}
    items = [(pth.text('plain'), pth.tensor())] + [(key, pth.tensor(size=(i + 1,))) for i, key in enumerate(keys.values())]
    (folder / 'in.pth').write_bytes(pth.checkpoint(pth.pairs(*items)))
    listed = {tensor['shape'][0]: key for key, tensor in listing(folder / 'in.pth').items() if key != 'plain'}
    return folder / 'in.pth', [listed[i + 1] for i in range(len(keys))]


@pytest.mark.parametrize('gone', range(5))
def test_a_key_without_a_name_keeps_its_number(mount, folder, gone):
    path, names = unspelled(folder)
    assert len(set(names)) == 4 and all(name.startswith('%key') for name in names)
    every = ['plain', *names]
    mnt = mount(path, 'output=%s' % (folder / 'out.pth'))
    (mnt / every[gone].replace('%', '%25')).unlink()
    mnt.commit()
    kept = [name for i, name in enumerate(every) if i != gone]
    assert list(listing(folder / 'out.pth')) == kept
    loaded = pickled(folder / 'out.pth')
    keys = ['plain', 'Fraction(1/2)', 'Fraction(1/3)', frozenset({1}), 'torch.FloatStorage']
    assert list(pickled(folder / 'out.pth')) == keys[:gone] + keys[gone + 1:]


def test_the_rest_of_a_key_without_a_name_can_be_renamed(mount, folder):
    path, names = unspelled(folder)
    weightfs('convert', '--remap', '^%s$=>other' % names[0], path, folder / 'out.pth')
    assert list(listing(folder / 'out.pth')) == ['plain', 'other', *names[1:]]


def test_tensors_as_keys_are_kept_or_refused(folder):
    """Their names are numbered, for nothing else tells them apart: what cannot be kept is refused with a reason."""
    pairs = pth.pairs(*((pth.tensor(size=(i + 1,)), pth.tensor(size=(i + 1, 1), stride=(1, 1))) for i in range(2)))
    (folder / 'in.pth').write_bytes(pth.checkpoint(pairs))
    keys = list(listing(folder / 'in.pth'))
    assert len(keys) == 4
    weightfs('convert', '--exclude', '^(%s|%s)$' % tuple(keys[2:]), folder / 'in.pth', folder / 'out.pth')
    assert list(listing(folder / 'out.pth')) == keys[:2]
    error = weightfs('convert', '--exclude', '^(%s|%s)$' % tuple(keys[:2]), folder / 'in.pth', folder / 'no.pth', code=EXIT_COMMIT).error
    assert 'internal' not in error and keys[2] in error


class Sparing(pickle.Unpickler):
    """Reads a pickle of these tests: tensors and storages become None."""

    def find_class(self, module, name):
        if module == 'fractions':
            return lambda text: 'Fraction(%s)' % text
        if module in ('builtins', '__builtin__') and name == 'frozenset':
            return frozenset
        if name == 'OrderedDict':
            return dict
        return 'torch.FloatStorage' if name == 'FloatStorage' else lambda *args: None

    def persistent_load(self, pid):
        return None


def pickled(path):
    with zipfile.ZipFile(path) as archive:
        return Sparing(io.BytesIO(archive.read(next(name for name in archive.namelist() if name.endswith('data.pkl'))))).load()


def longs(key):
    return pth.tensor(pth.storage(key=key, cls=pth.name('torch', 'LongStorage'), numel=2), size=(2, 1), stride=(1, 1))


SPARSE = pth.call(pth.name('torch._utils', '_rebuild_sparse_tensor'), pth.name('torch', 'sparse_coo'),
                  pth.tup(longs('0'), pth.tensor(pth.storage(key='1'), size=(1,)), pth.numbers((3, 4))))
NESTED = pth.call(pth.name('torch._utils', '_rebuild_nested_tensor'), pth.tensor(pth.storage(key='1'), size=(2,)), *map(longs, '234'))


def test_parts_of_composite_tensors_say_what_they_are_of(mount, folder):
    (folder / 'in.pth').write_bytes(pth.checkpoint(pth.dictionary(s=SPARSE, n=NESTED, w=pth.tensor(pth.storage(key='1'))),
                                                     **{'r%d' % i: bytes(16) for i in range(5)}))
    mnt = mount(folder / 'in.pth')
    for name in 'indices', 'values':
        assert json.loads(attribute(mnt / 's' / name, 'sparse')) == {'layout': 'sparse_coo', 'shape': [3, 4]}
        assert 'user.weightfs.sparse' in os.listxattr(mnt / 's' / name)
    assert json.loads(attribute(mnt / 'n/sizes', 'part_of')) == {'layout': 'nested'}
    for name in 'part_of', 'sparse', 'numpy':
        with pytest.raises(OSError):
            attribute(mnt / 'w', name)


def test_an_array_of_records_says_its_numpy_dtype(mount, folder):
    (folder / 'in.pkl').write_bytes(pickle.dumps({'w': numpy.array([(1, 2.0)], [('a', 'i4'), ('b', 'f8')])}, 2))
    mnt = mount(folder / 'in.pkl', 'output=%s' % (folder / 'out.pth'))
    assert attribute(mnt / 'w', 'dtype') == 'OPAQUE' and attribute(mnt / 'w', 'numpy') == '|V12'
    set_attribute(mnt / 'w', 'dtype', 'U8')
    with pytest.raises(OSError):
        attribute(mnt / 'w', 'numpy')
    (mnt / 'w').unlink()


def test_a_mount_escapes_a_nul_in_a_key(mount, folder):
    path = st.write(folder / 'x.safetensors', {'a\0b': ('U8', [4], BYTES['one']), 'c': ('U8', [4], BYTES['two'])})
    mnt = mount(path, 'escape_nul', 'output=%s' % (folder / 'out.safetensors'))
    assert (mnt / 'a%2500b').read_bytes() == BYTES['one'] and attribute(mnt / 'a%2500b', 'key') == 'a%00b'
    os.rename(mnt / 'a%2500b', mnt / 'ab')
    mnt.commit()
    assert set(st.read(folder / 'out.safetensors').tensors) == {'ab', 'c'}
    assert os.listdir(mount(path, 'force').allow('has a NUL').path) == ['c']
