# SPDX-License-Identifier: MIT
"""Strings of Python 2 that are not UTF-8, in keys, values and arrays: what is written loads without encoding='latin1'."""
import json
import pickle
import struct
import zipfile

import numpy
import pytest

from wfs_testlib import pth, pth_read, st
from wfs_testlib.program import EXIT_COMMIT, listing, weightfs

DATA = {'a': b'\x00\x80\xc3\xa9', 'ascii': b'abcd', 'utf-8': b'\xc3\xa9\xc3\xa9', 'long': bytes(range(256)) * 2}


def string(raw, protocol):
    """A str of Python 2."""
    if protocol == 0:
        return b"S'%s'\n" % b''.join(b'\\x%02x' % byte for byte in raw)
    return b'U' + bytes([len(raw)]) + raw if len(raw) < 256 else b'T' + struct.pack('<i', len(raw)) + raw


def array(raw, protocol):
    dtype = pth.call(pth.name('numpy', 'dtype'), string(b'u1', 1), b'I0\n', b'I1\n') + pth.tup(
        pth.number(3), string(b'|', 1), b'N', b'N', b'N', pth.number(-1), pth.number(-1), pth.number(0)) + b'b'
    made = pth.call(pth.name('numpy.core.multiarray', '_reconstruct'), pth.name('numpy', 'ndarray'), pth.numbers((0,)), string(b'b', 1))
    return made + pth.tup(pth.number(1), pth.numbers((len(raw),)), dtype, b'I00\n', string(raw, protocol)) + b'b'


def scalar(raw, protocol):
    dtype = pth.call(pth.name('numpy', 'dtype'), string(b'f4', 1), b'I0\n', b'I1\n') + pth.tup(
        pth.number(3), string(b'<', 1), b'N', b'N', b'N', pth.number(-1), pth.number(-1), pth.number(0)) + b'b'
    return pth.call(pth.name('numpy.core.multiarray', 'scalar'), dtype, string(raw, protocol))


def write(folder, *items):
    body = b'}(' + b''.join(items) + b'u'
    (folder / 'in.pkl').write_bytes(pth.pickle(body))
    return folder / 'in.pkl'


def same(x, y):
    assert type(x) is type(y)
    return (x == y).all() if isinstance(x, numpy.ndarray) else x == y


def convert(path, *options):
    out = path.with_name('out.pth')
    weightfs('convert', '--overwrite', *options, path, out)
    with zipfile.ZipFile(out) as archive:
        return pickle.loads(archive.read('archive/data.pkl'), encoding='utf-8')  # as torch.load does


@pytest.mark.parametrize('protocol', [0, 1])
def test_arrays_and_scalars(folder, protocol):
    items = [string(key.encode(), 1) + array(raw, protocol) for key, raw in DATA.items()]
    path = write(folder, *items, string(b's', 1) + scalar(b'\xc3\xa9\x80\x40', protocol), string(b'x', 1) + array(b'x', protocol))
    wanted = pickle.loads(path.read_bytes(), encoding='latin1')
    assert all(wanted[key].tobytes() == raw == weightfs('cat', path, key).raw for key, raw in DATA.items())
    for options, key in (([], 'x'), (['--remap=^x$=>y'], 'y')):
        found = convert(path, *options)
        assert list(found) == [*DATA, 's', key] and same(found.pop(key), wanted['x'])
        assert all(same(found[name], wanted[name]) for name in found)
        assert all(weightfs('cat', path.with_name('out.pth'), name).raw == raw for name, raw in DATA.items())


@pytest.mark.parametrize('protocol', [0, 1])
def test_keys_and_values(folder, protocol):
    latin, utf8, mixed, long = b'\xe9', b'\xc3\xa9t\xc3\xa9', b'\xc3\xa9\xe9', b'n\xe9' * 200
    path = write(folder, *(string(key, protocol) + array(b'abc', 1) for key in (latin, utf8, mixed, long)),
                 string(b'note', 1) + string(b'\xff\xfe', protocol), string(b'x', 1) + array(b'x', protocol))
    keys = ['é', 'été', mixed.decode('latin1'), long.decode('latin1'), 'x']
    assert list(listing(path)) == keys
    for options, key in (([], 'x'), (['--remap=^x$=>y'], 'y')):
        found = convert(path, *options)
        assert list(found) == [*keys[:-1], 'note', key] and found['note'] == 'ÿþ'
        assert list(listing(path.with_name('out.pth'))) == [*keys[:-1], key]


def test_a_zip_with_them_is_not_copied(folder):
    """Only the bytes of a tensor change, but torch.load would stumble over the pickle."""
    for key, is_same in ((b'\xe9', False), (b'\xc3\xa9', True), (b'e', True)):
        value = b'}(' + string(key, 1) + pth.tensor() + b'u'
        (folder / 'in.pth').write_bytes(pth.checkpoint(value, r0=st.f32(1, 2, 3, 4)))
        weightfs('convert', '--overwrite', folder / 'in.pth', folder / 'out.pth')
        with zipfile.ZipFile(folder / 'out.pth') as archive:
            assert (archive.read('archive/data.pkl') == pth.pickle(value)) == is_same
        assert list(listing(folder / 'out.pth')) == list(listing(folder / 'in.pth'))


@pytest.mark.peers
def test_torch_reads_what_is_written(folder):
    import torch
    path = write(folder, string(b'\xe9', 1) + array(b'\x80\xff\xc3\xa9', 1), string(b'n' * 300, 1) + array(b'ab', 1))
    weightfs('convert', path, folder / 'out.pth')
    found = torch.load(folder / 'out.pth')
    assert list(found) == ['é', 'n' * 300] and found['é'].tobytes() == b'\x80\xff\xc3\xa9'
    assert json.loads(weightfs('info', '--json', folder / 'out.pth').stdout)['sources'][0]['findings'] == []


def nested(kind, n):
    """Built from the inside to the outside, or by opcodes that add one item: no mark stays open."""
    if kind == 'lists':
        return b']' * n + b'a' * (n - 1)
    if kind == 'dicts':
        return (b'}' + pth.text('k')) * n + pth.number(1) + b's' * n
    if kind == 'tuples':
        return b')' + b'\x85' * n
    if kind == 'ordered':
        return (pth.name('collections', 'OrderedDict') + b')R' + pth.text('k')) * n + pth.number(1) + b's' * n
    body = b']' + pth.put(0) + b'0'
    for i in range(n):
        body += b'](' + pth.get(i % 200) + pth.get(i % 200) + b'e' + pth.put((i + 1) % 200) + b'0'
    return body + pth.get(n % 200)


def depth_of(value):
    depth = 0
    while value and isinstance(value, (list, tuple, dict)):
        value, depth = value['k'] if isinstance(value, dict) else value[0], depth + 1
    return depth


@pytest.mark.parametrize('kind', ['lists', 'dicts', 'tuples', 'ordered'])
def test_deep_nesting_is_written_so_that_it_can_be_read(folder, kind):
    (folder / 'in.pth').write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(), x=nested(kind, 20000)), r0=st.f32(1, 2, 3, 4)))
    weightfs('convert', '--remap=^w$=>v', folder / 'in.pth', folder / 'out.pth')
    assert list(listing(folder / 'out.pth')) == ['v']
    with zipfile.ZipFile(folder / 'out.pth') as archive:
        found = pth_read.loads(archive.read('archive/data.pkl'), {'data/0': archive.read('archive/data/0')})['x']
    with zipfile.ZipFile(folder / 'in.pth') as archive:
        wanted = pth_read.loads(archive.read('m/data.pkl'), {'data/0': archive.read('m/data/0')})['x']
    assert depth_of(found) == depth_of(wanted) > 19000


def test_nesting_that_needs_too_many_marks_is_refused(folder):
    (folder / 'in.pth').write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(), x=nested('pairs', 20000)), r0=st.f32(1, 2, 3, 4)))
    error = weightfs('convert', '--remap=^w$=>v', folder / 'in.pth', folder / 'out.pth', code=EXIT_COMMIT).error
    assert 'nested so deeply' in error and '(limit marks)' in error and not (folder / 'out.pth').exists()
    weightfs('convert', folder / 'in.pth', folder / 'out.pth')  # the pickle is copied
    assert list(listing(folder / 'out.pth')) == ['w']


BYTES = b'h\xe9\xff'
SPELLED = {'text': pth.text('h\xe9\xff'), 'a str of Python 2': b'U\x03' + BYTES}
NAMED = {'latin1': b'aOn/', 'latin-1': b'aOn/', 'iso-8859-1': b'aOn/', 'rot13': None, None: None}


@pytest.mark.parametrize('codec', NAMED)
@pytest.mark.parametrize('form', SPELLED)
def test_bytes_that_are_text_are_the_same_in_values_and_tensors(folder, form, codec):
    data = pth.call(pth.name('_codecs', 'encode'), SPELLED[form], *([] if codec is None else [pth.text(codec)]))
    u1 = pth.call(pth.name('numpy', 'dtype'), pth.text('u1'), b'\x89', b'\x88') + pth.tup(pth.number(3), pth.text('|'), b'N', b'N', b'N', b'J\xff\xff\xff\xff',
                                                                                       b'J\xff\xff\xff\xff', pth.number(0)) + b'b'
    array = pth.call(pth.name('numpy.core.multiarray', '_reconstruct'), pth.name('numpy', 'ndarray'), pth.numbers((0,)), b'C\x01b')
    path = folder / 'in.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(value=data, w=array + pth.tup(pth.number(1), pth.numbers((3,)), u1, b'\x89', data) + b'b', x=pth.tensor()),
                                    r0=bytes(16)))
    shown = json.loads(weightfs('config', path, 'value').stdout)
    assert (shown == {'$bytes': NAMED[codec].decode()}) if NAMED[codec] else ('$python' in shown)
    if NAMED[codec]:
        assert weightfs('cat', path, 'w').raw == BYTES
    else:
        assert 'w' not in weightfs('ls', path).stdout.split() or weightfs('cat', path, 'w', code=None).code != 0
