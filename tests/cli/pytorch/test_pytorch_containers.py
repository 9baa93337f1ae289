# SPDX-License-Identifier: MIT
"""Containers that a pickle spells as calls with their items as arguments, as Python 2 does: OrderedDict([[key, value], ...])."""
import collections
import json
import pickle
import sys
import types
import zipfile

import numpy
import pytest

from wfs_testlib import pth, st
from wfs_testlib.program import listing, weightfs

OrderedDict, Counter, defaultdict, deque = collections.OrderedDict, collections.Counter, collections.defaultdict, collections.deque
A, B, C = (numpy.arange(n, dtype='f4') for n in (2, 3, 4))
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


class Call:
    """Pickled as a call of the function, and loaded as its result."""

    def __init__(self, function, *args, state=None):
        self.reduced = (function, args) if state is None else (function, args, state)

    def __reduce__(self):
        return self.reduced


class Named(collections.OrderedDict):
    pass


class Plain(dict):
    pass


class Row(list):
    pass


Pair = collections.namedtuple('Pair', 'x y')


def plain():
    made = Plain(a=A, b=B, lr=0.5)
    made.note = 'n'
    return made


def row():
    made = Row([A, B])
    made.note = 'n'
    return made


# name: (what is pickled, given a and b; whether more items can be put into it)
MAPPINGS = {
    'lists': lambda: Call(OrderedDict, [['a', A], ['b', B], ['lr', 0.5]]),
    'tuples': lambda: Call(OrderedDict, (('a', A), ('b', B))),
    'a tuple of lists': lambda: Call(OrderedDict, (['a', A], ['b', B])),
    'a list of tuples': lambda: Call(OrderedDict, [('a', A), ('b', B)]),
    'of a dict': lambda: Call(OrderedDict, {'a': A, 'b': B, 'lr': 0.5}),
    'of another call': lambda: Call(OrderedDict, Call(dict, [['a', A], ['b', B]])),
    'of another that adds items': lambda: Call(dict, OrderedDict(a=A, b=B)),
    'with state': lambda: Call(OrderedDict, [['a', A], ['b', B]], state={'note': 'n'}),
    'a key twice': lambda: Call(OrderedDict, [['a', C], ['b', B], ['a', A]]),
    'subclass': lambda: Call(Named, [['a', A], ['b', B]]),
    'subclass with state': lambda: Call(Named, [['a', A], ['b', B], ['lr', 0.5]], state={'note': 'n'}),
    'subclass of dict': plain,
    'dict': lambda: Call(dict, [['a', A], ['b', B], ['lr', 0.5]]),
    'counter': lambda: Call(Counter, {'a': A, 'b': B}),
    'defaultdict': lambda: Call(defaultdict, list, [['a', A], ['b', B]]),
    'defaultdict of a dict': lambda: Call(defaultdict, int, {'a': A, 'b': B}),
}
SEQUENCES = {
    'deque': lambda: Call(deque, [A, B]),
    'deque of a tuple': lambda: Call(deque, (A, B)),
    'deque with a length': lambda: Call(deque, [A, B], 5),
    'deque of today': lambda: deque([A, B], 5),
    'subclass of list': row,
    'list': lambda: Call(list, (A, B)),
    'named tuple': lambda: Pair(A, B),
}


def same(x, y):
    """Whether two objects that Python loaded are equal, with their types, orders and attributes."""
    if type(x) is not type(y):
        return False
    if isinstance(x, numpy.ndarray):
        return x.dtype == y.dtype and x.shape == y.shape and (x == y).all()
    if isinstance(x, dict):
        return list(x) == list(y) and all(same(x[key], y[key]) for key in x) and same(getattr(x, '__dict__', 0), getattr(y, '__dict__', 0)) \
            and getattr(x, 'default_factory', 0) is getattr(y, 'default_factory', 0)
    if isinstance(x, (list, tuple, deque)):
        return len(x) == len(y) and all(map(same, x, y)) and getattr(x, 'maxlen', 0) == getattr(y, 'maxlen', 0) \
            and getattr(x, '__dict__', 0) == getattr(y, '__dict__', 0)
    return x == y


def write(folder, value, protocol):
    (folder / 'in.pkl').write_bytes(pickle.dumps(value, protocol))
    return folder / 'in.pkl', pickle.loads((folder / 'in.pkl').read_bytes())


def keys(path):
    return list(listing(path))


def convert(path, *options):
    """The object in the output, as Python loads it, and its keys in the output."""
    out = path.with_name('out.pth')
    weightfs('convert', '--overwrite', *options, path, out, has_notices=True)
    with zipfile.ZipFile(out) as archive:
        return pickle.loads(archive.read('archive/data.pkl')), keys(out)


def renamed(value, old, new):
    items = [(new if key == old else key, inner) for key, inner in value.items()]
    value.clear()
    for key, inner in items:
        value[key] = inner
    return value


@pytest.mark.parametrize('protocol', PROTOCOLS)
@pytest.mark.parametrize('name', MAPPINGS)
def test_items_of_a_mapping_have_their_keys(folder, name, protocol):
    path, value = write(folder, MAPPINGS[name](), protocol)
    assert keys(path) == ['a', 'b']
    assert json.loads(weightfs('config', path).stdout).get('lr') == value.get('lr', None)
    found, left = convert(path)
    assert same(found, value) and left == ['a', 'b']
    found, left = convert(path, '--remap=^a$=>z')
    assert same(found, renamed(value, 'a', 'z')) and left == ['z', 'b']
    found, left = convert(path, '--exclude=^a$')
    del value['z']
    assert same(found, value) and left == ['b']


@pytest.mark.parametrize('protocol', [0, 5])
@pytest.mark.parametrize('name', MAPPINGS)
def test_mappings_within_others(folder, name, protocol):
    path, value = write(folder, {'c': MAPPINGS[name](), 'x': C}, protocol)
    assert keys(path) == ['c.a', 'c.b', 'x']
    found, left = convert(path, r'--remap=^c\.a$=>c.z')
    assert same(found, {'c': renamed(value['c'], 'a', 'z'), 'x': C}) and left == ['c.z', 'c.b', 'x']
    found, left = convert(path, r'--remap=^c\.=>d.')
    assert same(found, {'d': renamed(value['c'], 'z', 'a'), 'x': C}) and left == ['d.a', 'd.b', 'x']
    found, left = convert(path, r'--remap=^c\.a$=>a')
    del value['c']['a']
    assert same(found, {'c': value['c'], 'x': C, 'a': A}) and left == ['c.b', 'x', 'a']
    found, left = convert(path, r'--remap=^x$=>c.x', r'--exclude=^c\.a$')
    value['c']['x'] = C
    assert same(found, {'c': value['c']}) and left == ['c.b', 'c.x']


@pytest.mark.parametrize('protocol', [0, 5])
@pytest.mark.parametrize('name', [*MAPPINGS, *SEQUENCES])
def test_one_that_loses_all_its_tensors(folder, name, protocol):
    path, value = write(folder, {'c': {**MAPPINGS, **SEQUENCES}[name](), 'x': C}, protocol)
    found, left = convert(path, r'--exclude=^c\.')
    assert left == ['x'] and same(found['x'], C) and set(found) <= {'c', 'x'}
    if 'c' in found and name in MAPPINGS:
        del value['c']['a'], value['c']['b']
        assert same(found['c'], value['c'])


@pytest.mark.parametrize('protocol', PROTOCOLS)
@pytest.mark.parametrize('name', SEQUENCES)
def test_items_of_a_sequence_have_numbers(folder, name, protocol):
    path, value = write(folder, {'c': SEQUENCES[name](), 'x': C}, protocol)
    assert keys(path) == ['c.0', 'c.1', 'x']
    assert same(convert(path)[0], value)
    found, left = convert(path, r'--remap=^c\.=>d.')
    assert same(found, {'d': value['c'], 'x': C}) and left == ['d.0', 'd.1', 'x']
    found, left = convert(path, r'--remap=^c\.0$=>a')
    assert same(list(found['c']), [None, B]) and same(found['a'], A) and type(found['c']) is type(value['c'])


@pytest.mark.parametrize('protocol', PROTOCOLS)
def test_immutable_mappings_keep_their_items_as_arguments(folder, monkeypatch, protocol):
    module = types.ModuleType('frozendict')

    class Frozen(dict):
        def __setitem__(self, key, value):
            raise TypeError('it cannot be changed')
    Frozen.__qualname__, Frozen.__name__, Frozen.__module__, module.frozendict = 'frozendict', 'frozendict', 'frozendict', Frozen
    monkeypatch.setitem(sys.modules, 'frozendict', module)
    for items in ({'a': A, 'b': B}, [['a', A], ['b', B]]):
        path, value = write(folder, {'c': Call(Frozen, items), 'x': C}, protocol)
        assert keys(path) == ['c.a', 'c.b', 'x']
        found, left = convert(path, r'--remap=^c\.a$=>c.z')
        assert same(found, {'c': Frozen(z=A, b=B), 'x': C}) and left == ['c.z', 'c.b', 'x']


@pytest.mark.parametrize('name', MAPPINGS)
def test_one_in_two_places_can_differ_afterwards(folder, name):
    made = MAPPINGS[name]()
    path, value = write(folder, {'c': made, 'd': made, 'x': C}, 2)
    assert keys(path) == ['c.a', 'c.b', 'd.a', 'd.b', 'x']
    found, _ = convert(path, r'--remap=^[cd]\.a$=>x.$0', r'--remap=^x\.(\w)\.a=>$1.z')
    assert same(found['c'], renamed(value['c'], 'a', 'z')) and same(found['d'], value['d'])
    found, left = convert(path, r'--remap=^c\.a$=>c.z')
    assert same(found['c'], value['c']) and same(found['d'], renamed(pickle.loads(path.read_bytes())['d'], 'a', 'a'))
    assert left == ['c.z', 'c.b', 'd.a', 'd.b', 'x']


@pytest.mark.parametrize('protocol', [0, 5])
def test_versions_of_modules_follow_them(folder, protocol):
    table = Call(OrderedDict, [['', {'version': 1}], ['n', {'version': 2}], ['m', {'version': 3}]])
    made = Call(OrderedDict, [['n.w', A], ['m.w', B]], state={'_metadata': table})
    path, value = write(folder, made, protocol)
    found, left = convert(path, r'--remap=^n\.=>k.')
    assert left == ['k.w', 'm.w'] and same(dict(found), {'k.w': A, 'm.w': B})
    assert found._metadata == OrderedDict([['', {'version': 1}], ['k', {'version': 2}], ['m', {'version': 3}]])


@pytest.mark.parametrize('value', [
    [['a', A], ['a', B]], [['a', A], [1, B]], [['a', A], ['b', B, C]], [('a', A), ('b', B)], [A, B], {'a': A}])
def test_other_arguments_of_unknown_calls_stay_arguments(folder, value):
    path, _ = write(folder, {'c': Call(Unknown, value), 'x': C}, 2)
    assert all(key.startswith('c.%arg0.') for key in keys(path)[:-1])
    assert same(convert(path, '--remap=^x$=>y')[0]['c'].args, Unknown(value).args)


class Unknown:
    def __init__(self, *args):
        self.args = args


class Built:
    """Made by arguments that only __new__ takes: up to protocol 3 a pickle calls functools.partial(__new__, ...)."""

    def __new__(cls, *args, **options):
        made = object.__new__(cls)
        made.args, made.options = args, options
        return made

    def __getnewargs_ex__(self):
        return self.args, self.options

    def __getstate__(self):
        return None


@pytest.mark.parametrize('protocol', range(2, 6))
def test_arguments_of_new_have_the_same_keys_in_all_protocols(folder, protocol):
    path, _ = write(folder, {'c': Built(7, A, scale=B, note='n'), 'x': C}, protocol)
    assert keys(path) == ['c.%arg1', 'c.scale', 'x'] and json.loads(weightfs('config', path).stdout) == {'c.note': 'n'}
    found, left = convert(path, r'--remap=^c\.scale$=>c.zoom')
    assert left == ['c.%arg1', 'c.zoom', 'x'] and same(found['c'].args, (7, A)) and same(found['c'].options, {'zoom': B, 'note': 'n'})
    found, left = convert(path, r'--remap=^c\.=>d.')
    assert set(found) == {'d', 'x'} and same(found['d'].options, {'scale': B, 'note': 'n'}) and left == ['d.%arg1', 'd.scale', 'x']


class Caller:
    """What it makes is made by calling an object."""

    def __reduce__(self):
        return Adder(A), (B,)


class Adder:
    def __init__(self, array):
        self.array = array

    def __reduce__(self):
        return Adder, (self.array,)

    def __call__(self, other):
        return Unknown(self.array, other)


@pytest.mark.parametrize('protocol', [0, 2, 4])
def test_what_is_called_has_keys_too(folder, protocol):
    path, _ = write(folder, {'c': Caller(), 'x': C}, protocol)
    assert keys(path) == ['c.%callable.%arg0', 'c.%arg0', 'x']
    found = convert(path, '--remap=^x$=>y')[0]
    assert same(found['c'].args, (A, B)) and same(found['y'], C)


# ---- exported programs ----

def program(*folders):
    """What torch.export.save writes of one tensor in each folder: a raw record, and a list as JSON."""
    entries = [pth.entry('p/archive_format', b'pt2'), pth.entry('p/byteorder', b'little')]
    for at, (folder, key) in enumerate(folders):
        meta = {'dtype': 7, 'sizes': [{'as_int': 1}], 'strides': [{'as_int': 1}], 'storage_offset': {'as_int': 0}}
        listed = {'config': {key: {'path_name': 'tensor_0', 'is_param': False, 'use_pickle': False, 'tensor_meta': meta}}}
        entries += [pth.entry('p/data/%s/tensor_0' % folder, st.f32(at)), pth.entry('p/data/%s/model_%s_config.json' % (folder, folder), json.dumps(listed).encode())]
    return pth.zipped(*entries)


@pytest.mark.parametrize('order', [1, -1])
def test_constants_of_a_program_are_not_its_state(folder, order):
    path = folder / 'm.pt2'
    path.write_bytes(program(*[('weights', 'w'), ('constants', 'lifted_tensor_0')][::order]))
    assert {key: row.get('role') for key, row in listing(path).items()} == {'w': None, 'lifted_tensor_0': 'constant'}
    assert weightfs('cat', path, 'lifted_tensor_0').raw == st.f32(order == 1)
