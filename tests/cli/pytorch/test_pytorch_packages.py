# SPDX-License-Identifier: MIT
"""Packages of torch.package: every pickle in them, and the modules that the pickles refer to."""
import json

import pytest

from wfs_testlib import pth, st
from wfs_testlib.program import EXIT_DAMAGED, listing, weightfs

FUNCTION = {'script': pth.name('torch.jit._script', 'unpackage_script_module'),
            'fx': pth.name('torch.fx.graph_module', 'reduce_package_graph_module')}


def content(i):
    return st.f32(i, i + .5)


def tensor(i):
    return pth.tensor(pth.storage(i, numel=2), size=(2,))


def script(i, more=b''):
    """A pickle of TorchScript, whose keys of storages are whole names."""
    return pth.pickle(pth.name('__torch__', 'Net') + b')\x81' + pth.dictionary(weight=tensor('%d.storage' % i)) + b'b' + more)


def reduced(kind, *args):
    return pth.tup(pth.text('reduce_package'), pth.number(140707525491408), FUNCTION[kind], pth.tup(*args)) + b'Q'


def package(folder, pickles, n=4, scripts=(), root='p', marks=('extern_modules', 'version')):
    """pickles: {path: pickle}, between resources that are none."""
    made = [pth.entry('%s/.data/%d.storage' % (root, i), content(i)) for i in range(n)]
    made += [pth.entry('%s/.data/ts_code/%d/data.pkl' % (root, i), raw) for i, raw in enumerate(scripts)]
    made += [pth.entry('%s/.data/ts_code/%d/constants.pkl' % (root, i), pth.pickle(b')')) for i in range(len(scripts))]
    made += [pth.entry('%s/%s' % (root, path), raw) for path, raw in pickles.items()]
    made += [pth.entry(root + '/src/net.py', b'import torch\n'), pth.entry(root + '/res/text', b'\x80\2 is no pickle.')]
    made += [pth.entry('%s/.data/%s' % (root, name), b'6\n' if name == 'version' else b'') for name in marks]
    path = folder / 'p.pt'
    path.write_bytes(pth.zipped(*made))
    return path


def values(path):
    return {key: weightfs('cat', path, key).raw for key in listing(path)}


def test_modules_of_torchscript_are_listed_where_pickles_refer_to_them(folder):
    path = package(folder, {'model/model.pkl': pth.pickle(reduced('script', pth.text('1'))),
                            'model/both.pkl': pth.pickle(pth.dictionary(a=reduced('script', pth.text('0')), x=tensor(2)))},
                   n=3, scripts=[script(0), script(1)])
    assert values(path) == {'model.model.weight': content(1), 'model.both.a.weight': content(0), 'model.both.x': content(2)}
    assert weightfs('check', path).stdout == ''


def test_traced_modules_are_listed_as_modules(folder):
    net = pth.module(pth.text('weight') + tensor(0), made=None, anchors=tensor(1))
    state = net[net.index(b'}'):-1]  # what BUILD would be given
    path = package(folder, {'model/fx.pkl': pth.pickle(reduced('fx', state, pth.text('fx-generated._0')))})
    assert values(path) == {'weight': content(0), 'anchors': content(1)}


@pytest.mark.parametrize('names', [['model/w.pkl'], ['model/w.pkl', 'model/v.pkl'], ['model/w.pkl', 'model/v'], ['data.pkl', 'a/b/data.pkl'],
                                   ['model/data.pkl'], ['data.pkl']], ids=' '.join)
def test_every_pickle_is_listed_whatever_its_name(folder, names):
    path = package(folder, {name: pth.pickle(pth.dictionary(w=tensor(i))) for i, name in enumerate(names)})
    prefixes = [name.removesuffix('.pkl').replace('/', '.') + '.' if len(names) > 1 else '' for name in names]
    assert values(path) == {prefix + 'w': content(i) for i, prefix in enumerate(prefixes)}
    assert json.loads(weightfs('info', '--json', path).stdout)['sources'][0]['container'] == 'torch.package'


def test_modules_and_constants_that_nothing_refers_to_are_listed(folder):
    path = package(folder, {'w.pkl': pth.pickle(pth.dictionary(w=tensor(0)))}, scripts=[script(1)])
    data = path.read_bytes()
    assert values(path) == {'w': content(0), 'ts_code.0.weight': content(1)}
    assert path.read_bytes() == data


def test_a_module_that_is_missing_is_left_as_a_reference(folder):
    path = package(folder, {'model/w.pkl': pth.pickle(pth.dictionary(m=reduced('script', pth.text('7')), w=tensor(0)))})
    assert values(path) == {'w': content(0)}
    assert json.loads(weightfs('config', path).stdout)['m']['args'] == ['7']


def test_a_damaged_pickle_of_a_package_is_an_error(folder):
    path = package(folder, {'model/w.pkl': pth.pickle(pth.dictionary(w=tensor(0))), 'model/v.pkl': b'\x80\2(.'})
    assert weightfs('ls', path, code=EXIT_DAMAGED).error


def test_a_checkpoint_with_a_version_in_a_hidden_folder_is_a_checkpoint(folder):
    path = folder / 'x.pth'
    made = [e for e in pth.records(pth.dictionary(w=pth.tensor()), r0=bytes(16)) if not e['path'].endswith(b'version')]
    path.write_bytes(pth.zipped(*made, pth.entry('m/.data/version', b'3\n')))
    assert set(listing(path)) == {'w'} and weightfs('check', path).stdout == ''
