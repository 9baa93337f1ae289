# SPDX-License-Identifier: MIT
"""Pickled modules: what their state_dict() returns, what it leaves out, and what becomes of either in an output."""
import pytest

from wfs_testlib import pth, pth_read, st
from wfs_testlib.program import listing, weightfs

UNSAVED = 'non-persistent buffer'


def tensor(i, **more):
    return pth.tensor(pth.storage(str(i), numel=2), size=(2,), **more)


def item(name, value):
    return pth.text(name) + value


def save(folder, value, n, name='in.pth'):
    """A checkpoint with n storages; storage i holds i and i + 0.5."""
    path = folder / name
    path.write_bytes(pth.checkpoint(value, **{'r%d' % i: content(i) for i in range(n)}))
    return path


def content(i):
    return st.f32(i, i + .5)


def net(made=None):
    """A module with one tensor of each kind, and a submodule with an attribute."""
    inner = pth.module(item('weight', tensor(2)), anchors=tensor(3), stride=pth.number(8))
    listed = pth.module(item('weight', tensor(6)))
    return pth.module(item('scale', tensor(0)), item('kept', tensor(1)) + item('mask', tensor(4)), item('head', inner), ['mask'], made=made,
                      grid=tensor(5), more=b']' + listed + b'a', name=pth.text('x'))


SHOWN = {'scale': (0, None), 'kept': (1, None), 'mask': (4, UNSAVED), 'head.weight': (2, None), 'head.anchors': (3, 'attribute'),
         'grid': (5, 'attribute'), 'more.0.weight': (6, 'attribute')}


@pytest.mark.parametrize('made', [None, ('torch.fx.graph_module', 'reduce_graph_module')], ids=['built', 'traced'])
@pytest.mark.parametrize('prefix', ['', 'model.'])
def test_every_tensor_of_a_module_is_listed_as_what_it_is(folder, made, prefix):
    value = pth.dictionary(model=net(made)) if prefix else net(made)
    path = save(folder, value, 7)
    found = listing(path)
    assert {key: tensor.get('role') for key, tensor in found.items()} == {prefix + key: role for key, (_, role) in SHOWN.items()}
    for key, (i, _) in SHOWN.items():
        assert weightfs('cat', path, prefix + key).raw == content(i)


def test_attributes_are_in_a_file_without_objects(folder):
    weightfs('convert', save(folder, net(), 7), folder / 'out.safetensors')
    assert {key: entry[2] for key, entry in st.read(folder / 'out.safetensors').tensors.items()} == {
        key: content(i) for key, (i, _) in SHOWN.items()}


def rnn(n=2):
    """As torch.nn.LSTM: a list in the module has the parameters again."""
    names = ['weight', 'bias'][:n]
    owned = b''.join(item(name, tensor(i) + pth.put(10 + i)) for i, name in enumerate(names))
    inner = pth.module(item('w', tensor(2)) + b'') + pth.put(20)
    return pth.module(owned, modules=item('cell', inner), _flat_weights=b'](' + b''.join(pth.get(10 + i) for i in range(n)) + b'e',
                      cells=b']' + pth.get(20) + b'a', size=pth.number(3))


def test_what_a_module_owns_is_listed_once(folder):
    assert {key: tensor.get('role') for key, tensor in listing(save(folder, rnn(), 3)).items()} == {
        'weight': None, 'bias': None, 'cell.w': None}


def test_what_was_removed_is_nowhere_in_the_module(folder):
    weightfs('convert', '--exclude=^(bias|cell[.]w)$', save(folder, rnn(), 3), folder / 'out.pth')
    state = pth_read.load(folder / 'out.pth').state
    weight, bias = state['_flat_weights']
    assert weight is state['_parameters']['weight'] and bias is None and set(state['_parameters']) == {'weight'}
    assert [tensor.data for tensor in pth_read.all_tensors(state)] == [content(0)]
    assert set(listing(folder / 'out.pth')) == {'weight'}


def test_what_was_renamed_or_cast_is_the_same_in_both_places(folder):
    weightfs('convert', '--remap=^bias$=>offset', '--cast=^offset$=>F64', save(folder, rnn(), 3), folder / 'out.pth')
    state = pth_read.load(folder / 'out.pth').state
    assert state['_flat_weights'][1] is state['_parameters']['offset'] and state['_parameters']['offset'].dtype == 'F64'


@pytest.mark.parametrize('options, gone, at', [
    (['--exclude=anchors'], 'head.anchors', None), (['--remap=anchors=>boxes'], 'head.anchors', 'boxes'), (['--exclude=^mask$'], 'mask', None)])
def test_an_attribute_is_renamed_and_removed_in_its_module(folder, options, gone, at):
    weightfs('convert', *options, save(folder, net(), 7), folder / 'out.pth')
    state = pth_read.load(folder / 'out.pth').state
    head = state['_modules']['head'].state
    assert set(head) == {'training', '_parameters', '_buffers', '_non_persistent_buffers_set', '_modules', 'stride'} | (
        {at} if at else {'anchors'} - {gone.rpartition('.')[2]})
    assert at is None or head[at].data == content(3)
    assert ('mask' in state['_buffers']) == (gone != 'mask') and state['grid'].data == content(5)
    left = {key for key in SHOWN if key != gone} | ({'head.' + at} if at else set())
    assert set(listing(folder / 'out.pth')) == left


@pytest.mark.parametrize('name, into', [('scale', '_parameters'), ('kept', '_buffers'), ('mask', '_buffers'), ('head', '_modules')])
def test_what_is_renamed_stays_what_it_is(folder, name, into):
    weightfs('convert', r'--remap=^%s\b=>new' % name, save(folder, net(), 7), folder / 'out.pth')
    state = pth_read.load(folder / 'out.pth').state
    assert 'new' in state[into] and name not in state[into]
    assert {key for key in state if key.startswith('_')} == {'_parameters', '_buffers', '_non_persistent_buffers_set', '_modules'}


def test_an_unchanged_module_keeps_its_pickle(folder):
    path = save(folder, net(), 7)
    weightfs('convert', path, folder / 'out.pth')
    assert weightfs('diff', '--exact', '--all', path, folder / 'out.pth').stdout == ''
    assert pth_read.load(folder / 'out.pth') == pth_read.load(path)


# ---- modules as a whole ----

def two(folder, more=()):
    """A checkpoint as trainers make it, with a model and its average."""
    modules = [pth.module(item('w', tensor(i)), modules=item('head', pth.module(item('w', tensor(i + 1))))) for i in (0, 2)]
    return save(folder, pth.pairs((pth.text('epoch'), pth.number(5)), (pth.text('model'), modules[0]), (pth.text('ema'), modules[1]), *more), 4)


def weights(module):
    return [module.state['_parameters']['w'].data, module.state['_modules']['head'].state['_parameters']['w'].data]


@pytest.mark.parametrize('gone, left', [('model', 'ema'), ('ema', 'model')])
def test_a_module_is_removed_as_a_whole(folder, gone, left):
    source = two(folder)
    weightfs('edit', '--remove=%s.*' % gone, source, folder / 'out.pth')
    found = pth_read.load(folder / 'out.pth')
    assert list(found) == [key for key in ('epoch', 'model', 'ema') if key != gone]
    assert weights(found[left]) == weights(pth_read.load(source)[left])
    weightfs('edit', '--rename', left, gone, folder / 'out.pth', folder / 'again.pth')
    found = pth_read.load(folder / 'again.pth')
    assert set(found) == {'epoch', gone} and weights(found[gone]) == weights(pth_read.load(source)[left])


def test_a_module_whose_value_stays_is_not_removed(folder):
    weightfs('edit', '--remove=model.w', '--remove=model.head.w', two(folder), folder / 'out.pth')
    found = pth_read.load(folder / 'out.pth')
    assert list(found) == ['epoch', 'model', 'ema'] and found['model'].state['_parameters'] == {}


def test_a_module_is_not_renamed_to_what_exists(folder):
    done = weightfs('edit', '--rename', 'ema', 'model', two(folder, more=[(pth.text('x'), pth.number(1))]), folder / 'out.pth', code=7)
    assert "'model.w'" in done.stderr
    hollow = save(folder, pth.dictionary(model=pth.module(), ema=pth.module(item('w', tensor(0)))), 1)
    done = weightfs('edit', '--rename', 'ema', 'model', hollow, folder / 'out.pth', code=9)
    assert "'model' cannot be in the checkpoint: another item has that name: rename one of them" in done.stderr


def test_a_key_that_is_equal_in_python_is_named(folder):
    """An integer stays one among integers, as which 1 is True."""
    source = save(folder, pth.dictionary(a=pth.pairs((pth.number(0), tensor(0)), (b'\x88', tensor(1))), b=pth.pairs((pth.number(1), tensor(2)))), 3)
    done = weightfs('edit', '--rename', 'b.1', 'a.1', source, folder / 'out.pth', code=9)
    assert "'a.True' cannot be in the checkpoint: another item has that name, or a key that is equal in Python" in done.stderr
