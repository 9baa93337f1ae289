# SPDX-License-Identifier: MIT
"""`config SOURCE KEY` goes into objects: items, elements, attributes, and the parts that the JSON of an object has."""
import argparse
import collections
import json
import pickle

import pytest

from wfs_testlib import pth
from wfs_testlib.program import EXIT_RULES, weightfs

class Slotted:
    __slots__ = ('low', 'high')

    def __init__(self):
        self.low, self.high = 1, {'x': [4, 5]}


class WithItems(dict):
    pass


class WithArguments:
    def __new__(cls, *args, **kwargs):
        return super().__new__(cls)

    def __getnewargs_ex__(self):
        return (1, [2, 3]), {'name': 'n'}


def made():
    """An object of every kind, and what is asked of it."""
    items = WithItems(key='item', both='item')
    items.attribute, items.both = 'attribute', 'attribute'
    namespace = argparse.Namespace(lr=0.1, sub=argparse.Namespace(depth=3, **{'a.b': 'dotted'}), layers=[argparse.Namespace(n=7)])
    queue = collections.deque(['p', {'q': 'r'}])
    return {'hyper': namespace, 'slots': Slotted(), 'items': items, 'queue': queue, 'new': WithArguments()}


ASKED = {
    'hyper.lr': 0.1, 'hyper.sub.depth': 3, 'hyper.sub.a.b': 'dotted', 'hyper.layers.0.n': 7, 'hyper.state.lr': 0.1, 'hyper.layers.0.state': {'n': 7},
    'slots.low': 1, 'slots.high.x.1': 5, 'items.key': 'item', 'items.both': 'item', 'items.attribute': 'attribute', 'items.state.both': 'attribute',
    'items.items.both': 'item', 'queue.0': 'p', 'queue.1.q': 'r',
}


@pytest.fixture(params=[2, 4])
def path(request, tmp_path):
    made_of = made()
    if request.param == 4:
        path = tmp_path / 'x.pkl'
        path.write_bytes(pickle.dumps(made_of, 4))
        return path
    del made_of['new']
    raw = pickle.dumps(made_of, 2)
    path = tmp_path / 'x.pth'
    path.write_bytes(pth.zipped(pth.entry('m/data.pkl', raw), pth.entry('m/version', b'3\n')))
    return path


@pytest.mark.parametrize('key', ASKED)
def test_a_path_leads_into_an_object(path, key):
    assert json.loads(weightfs('config', path, key).stdout) == ASKED[key]


def test_arguments_of_an_object_have_paths(tmp_path):
    (tmp_path / 'x.pkl').write_bytes(pickle.dumps({'new': WithArguments()}, 4))
    assert json.loads(weightfs('config', tmp_path / 'x.pkl', 'new.args.1.0').stdout) == 2
    assert json.loads(weightfs('config', tmp_path / 'x.pkl', 'new.kwargs.name').stdout) == 'n'


@pytest.mark.parametrize('key', ['hyper.none', 'hyper.lr.x', 'hyper.layers.1', 'slots.high.y', 'items.elements', 'hyper.', 'hyper.state.none'])
def test_a_path_that_leads_nowhere_is_an_error(path, key):
    assert 'no value is called' in weightfs('config', path, key, code=EXIT_RULES).error


def test_a_cycle_of_attributes_ends(tmp_path):
    namespace = argparse.Namespace()
    namespace.me = namespace
    (tmp_path / 'x.pkl').write_bytes(pickle.dumps({'n': namespace}, 2))
    deep = 'n' + '.me' * 300
    weightfs('config', tmp_path / 'x.pkl', 'n' + '.me' * 200)
    weightfs('config', tmp_path / 'x.pkl', deep, code=EXIT_RULES)
