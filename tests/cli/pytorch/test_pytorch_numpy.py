# SPDX-License-Identifier: MIT
"""numpy arrays whose dtype is a class, as those of ml_dtypes and of record arrays are: their bytes, and files that have them."""
import json
import pickle
import re
import zipfile

import numpy
import pytest

from wfs_testlib import pth_read, st
from wfs_testlib.program import listing, weightfs

CODES = {'bfloat16': ('BF16', 2), 'float8_e4m3fn': ('F8_E4M3', 1), 'float8_e5m2': ('F8_E5M2', 1), 'float8_e4m3fnuz': ('F8_E4M3FNUZ', 1),
         'float8_e5m2fnuz': ('F8_E5M2FNUZ', 1), 'float8_e8m0fnu': ('F8_E8M0', 1), 'int4': ('OPAQUE', 1), 'float8_e3m4': ('OPAQUE', 1),
         'float4_e2m1fn': ('OPAQUE', 1), 'wide': ('OPAQUE', 6)}
VECTOR = numpy.array([1, 2, 3], 'f4')


class Made:
    """Pickled as a call of numpy with a state."""

    def __init__(self, function, args, state):
        self.reduced = function, args, state

    def __reduce__(self):
        return self.reduced


class Name:
    """Pickled as a class of a module that need not exist: as its name in text, which Pickler writes as a name."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Pickler(pickle._Pickler):
    def save(self, obj, save_persistent_id=True):
        if not isinstance(obj, Name):
            return super().save(obj, save_persistent_id)
        return self.write(b'c%s\n%s\n' % (obj.module.encode(), obj.name.encode()))


def array(kind, size, data, shape=(2, 3), is_fortran=False, has_size=True):
    function, args, _ = numpy.zeros(1).__reduce__()
    dtype = Made(numpy.dtype, (Name('ml_dtypes', kind), False, True), (3, '<', None, None, None, size if has_size else -1, size, 64))
    return Made(function, args, (1, shape, dtype, is_fortran, data))


def write(folder, protocol, **items):
    with (folder / 'in.pkl').open('wb') as file:
        Pickler(file, protocol).dump({**items, 'v': VECTOR})
    return folder / 'in.pkl'


@pytest.mark.parametrize('protocol', [0, 2, 3, 4, 5])
def test_arrays_of_ml_dtypes(folder, protocol):
    data = {kind: bytes(range(6 * size)) for kind, (_, size) in CODES.items()}
    path = write(folder, protocol, **{kind: array(kind, size, data[kind]) for kind, (_, size) in CODES.items()})
    found = listing(path)
    assert {key: (tensor['dtype'], tensor['shape']) for key, tensor in found.items()} == {
        **{kind: (dtype, [2, 3]) for kind, (dtype, _) in CODES.items()}, 'v': ('F32', [3])}
    for kind in CODES:
        assert weightfs('cat', path, kind).raw == data[kind]
    assert [line for line in weightfs('check', path).stdout.splitlines() if ' wide of module ' not in line] == []
    weightfs('convert', '--remap=^v$=>w', path, folder / 'out.pth')
    with zipfile.ZipFile(folder / 'out.pth') as archive:
        after = pth_read.loads(archive.read('archive/data.pkl'))
    before = pth_read.loads(path.read_bytes())
    before['w'] = before.pop('v')
    assert repr(after) == repr(before) and len(after) == len(CODES) + 1  # both readers have classes of their own


def test_those_that_other_formats_have_become_tensors(folder):
    path = write(folder, 3, a=array('bfloat16', 2, st.f32(1, 2, 3)), b=array('float8_e5m2', 1, bytes(range(6))),
                 c=array('bfloat16', 2, bytes(range(12)), is_fortran=True))
    weightfs('convert', path, folder / 'out.safetensors')
    found = st.read(folder / 'out.safetensors').tensors
    assert found['a'] == ('BF16', [2, 3], st.f32(1, 2, 3)) and found['b'] == ('F8_E5M2', [2, 3], bytes(range(6)))
    assert found['c'] == ('BF16', [2, 3], bytes([0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]))


def test_a_class_without_a_size_shares_the_bytes(folder):
    path = write(folder, 3, a=array('odd', 5, bytes(range(30)), has_size=False), b=array('odd', 5, b'', (0, 2), has_size=False))
    assert weightfs('cat', path, 'a').raw == bytes(range(30)) and listing(path)['b']['shape'] == [0, 2]
    path = write(folder, 3, a=array('odd', 5, bytes(range(31)), has_size=False))
    assert 'do not fit its shape and dtype' in weightfs('cat', path, 'a', code=5).error


@pytest.mark.parametrize('protocol', range(6))
def test_elements_of_an_array_of_objects_have_numbers(folder, protocol):
    objects = numpy.empty((2, 2), dtype=object)
    objects[:] = [[VECTOR, None], ['s', VECTOR + 1]]
    (folder / 'in.pkl').write_bytes(pickle.dumps({'o': objects, 'v': VECTOR}, protocol))
    assert list(listing(folder / 'in.pkl')) == ['o.0', 'o.3', 'v']
    assert json.loads(weightfs('config', folder / 'in.pkl').stdout) == {'o.1': None, 'o.2': 's'}
    for rule, keys in (('^v$=>w', ['o.0', 'o.3', 'w']), (r'^o\.=>p.', ['p.0', 'p.3', 'v'])):
        weightfs('convert', '--overwrite', '--remap=' + rule, folder / 'in.pkl', folder / 'out.pth')
        assert list(listing(folder / 'out.pth')) == keys
        with zipfile.ZipFile(folder / 'out.pth') as archive:
            found = list(pickle.loads(archive.read('archive/data.pkl')).values())[0]
        assert found.shape == (2, 2) and (found[0, 0] == VECTOR).all() and (found[1, 1] == VECTOR + 1).all()
        assert found[0, 1] is None and found[1, 0] == 's'


@pytest.mark.parametrize('protocol', range(6))
def test_record_arrays(folder, protocol):
    records = numpy.rec.array([(1, 2.5), (3, 4.5)], dtype=[('x', '<i4'), ('y', '<f8')])
    (folder / 'in.pkl').write_bytes(pickle.dumps({'r': records, 'v': VECTOR}, protocol))
    found = listing(folder / 'in.pkl')
    assert found['r']['dtype'] == 'OPAQUE' and found['r']['shape'] == [2]
    assert weightfs('cat', folder / 'in.pkl', 'r').raw == records.tobytes()
    assert json.loads(weightfs('info', '--json', folder / 'in.pkl').stdout)['sources'][0]['findings'] == []
    weightfs('convert', '--remap=^v$=>w', folder / 'in.pkl', folder / 'out.pth')
    with zipfile.ZipFile(folder / 'out.pth') as archive:
        after = pickle.loads(archive.read('archive/data.pkl'))
    assert list(after) == ['r', 'w'] and (after['r'] == records).all() and type(after['r']) is numpy.recarray
    assert after['r'].dtype == records.dtype and (after['w'] == VECTOR).all()


def test_no_name_of_numpy_is_a_finding(folder):
    """Record arrays are of another module in numpy 2, and a generator brings how it was seeded."""
    records = numpy.rec.array([(1, 2.5)], dtype=[('x', '<i4'), ('y', '<f8')])
    data = pickle.dumps({'r': records, 'g': numpy.random.default_rng(1), 's': numpy.random.SeedSequence(2)}, 2)
    for name in (b'cnumpy\nrecarray\n', b'cnumpy.rec\nrecarray\n'):
        (folder / 'in.pkl').write_bytes(re.sub(rb'cnumpy(\.rec)?\nrecarray\n', name, data))
        assert json.loads(weightfs('info', '--json', folder / 'in.pkl').stdout)['sources'][0]['findings'] == []
