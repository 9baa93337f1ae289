# SPDX-License-Identifier: MIT
"""Edits of a mounted .pth, committed to another one."""
import json
import os
import shutil

import pytest

from wfs_testlib import edit_kinds, program, pth, pth_read, pth_written, st, with_torch
from wfs_testlib.program import tool, weightfs

LIGHTNING = program.ROOT / 'tests' / 'wfs_testlib' / 'lightning.py'


def make(folder):
    state = pth.ORDERED + b'(' + pth.text('a.w') + pth.tensor() + pth.text('a.tie') + pth.tensor() + b'u'
    path = folder / 'in.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(state=state, epoch=pth.number(3)), r0=st.f32(1, 2, 3, 4)))
    return path


def keys(path):
    return [entry['key'] for entry in json.loads(weightfs('ls', '--json', path).stdout)['tensors']]


def test_a_renamed_directory_is_another_key_and_all_else_stays(mount, folder):
    mnt = mount(make(folder), 'output=%s' % (folder / 'out.pth'))
    tool('mv', mnt.path / 'state', mnt.path / 'model')
    mnt.commit()
    written = pth_written.check(folder / 'out.pth')
    assert keys(folder / 'out.pth') == ['model.a.w', 'model.a.tie']
    assert json.loads(weightfs('config', folder / 'out.pth').stdout)['epoch'] == 3
    assert written['data/0'] == st.f32(1, 2, 3, 4) and 'data/1' not in written


def test_what_leaves_a_state_dict_takes_its_versions_along(mount, folder):
    table = pth.dictionary(**{name: pth.dictionary(version=pth.number(i)) for i, name in enumerate(('module', 'module.a', 'module.b'))})
    state = pth.ORDERED + b'(' + b''.join(pth.text('module.%s.w' % name) + pth.tensor() for name in 'ab') + b'u' + \
        pth.dictionary(_metadata=table) + b'b'
    path = folder / 'in.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(state_dict=state, epoch=pth.number(3)), r0=st.f32(1, 2, 3, 4)))
    mnt = mount(path, 'output=%s' % (folder / 'out.pth'))
    for name in 'ab':
        tool('mv', mnt.path / 'state_dict/module' / name, mnt.path)
    tool('rm', '-r', mnt.path / 'state_dict')
    mnt.commit()
    found = pth_read.load(folder / 'out.pth')
    assert sorted(found) == ['a.w', 'b.w', 'epoch']
    assert found._metadata == {'': {'version': 0}, 'a': {'version': 1}, 'b': {'version': 2}}


def test_a_removed_table_of_versions_is_gone(mount, folder):
    state = pth.ORDERED + b'(' + pth.text('a.w') + pth.tensor() + b'u' + \
        pth.dictionary(_metadata=pth.dictionary(a=pth.dictionary(version=pth.number(2)))) + b'b'
    path = folder / 'in.pth'
    path.write_bytes(pth.checkpoint(state, r0=st.f32(1, 2, 3, 4)))
    mnt = mount(path, 'output=%s' % (folder / 'out.pth'))
    (mnt.path / '_metadata.json').unlink()
    tool('mv', mnt.path / 'a', mnt.path / 'b')
    mnt.commit()
    found = pth_read.load(folder / 'out.pth')
    assert list(found) == ['b.w'] and not hasattr(found, '_metadata')


def test_new_bytes_under_tied_names_change_the_record_and_not_the_pickle(mount, folder):
    source = make(folder)
    mnt = mount(source, 'output=%s' % (folder / 'out.pth'))
    (mnt.path / 'state/a/w').write_bytes(st.f32(5, 6, 7, 8))
    mnt.commit()
    written = pth_written.check(folder / 'out.pth')
    assert written['data/0'] == st.f32(5, 6, 7, 8) and 'data/1' not in written
    assert written['data.pkl'] in source.read_bytes()


@pytest.mark.peers
def test_a_training_checkpoint_is_the_same_object_but_for_the_names(mount, folder):
    """Types, order, sharing, values, optimizer state, views and tied weights, opaque objects: by torch, after one directory is moved."""
    with_torch.run(LIGHTNING, 'make', folder / 'in.ckpt')
    mnt = mount(folder / 'in.ckpt', 'output=%s' % (folder / 'out.pth'))
    tool('mv', mnt.path / 'state_dict/net', mnt.path / 'state_dict/model')
    mnt.commit()
    pth_written.check(folder / 'out.pth', plain=False)
    with_torch.run(LIGHTNING, 'compare', folder / 'in.ckpt', folder / 'out.pth', 'net.', 'model.')


@pytest.mark.parametrize('keeps', [True, False])
def test_a_commit_says_what_in_its_output_can_run_code(mount, folder, keeps):
    path = folder / 'in.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(), x=pth.call(pth.name('posix', 'system'), pth.text('true')))))
    mnt = mount(path, 'output=%s' % (folder / 'out.pth')).allow('refers to system of module posix')
    tool('mv', mnt / 'w', mnt / 'v')
    if not keeps:
        tool('rm', mnt / 'x.json')
    mnt.commit()
    assert (b'posix' in (folder / 'out.pth').read_bytes()) == keeps
    assert ('may run code when Python loads it: 1 name' in mnt.status()['written']) == keeps
    assert ('may run code when Python loads it' in mnt.stderr()) == keeps


def test_a_tensor_that_is_not_in_the_state_dict_has_a_role(mount, folder):
    path = folder / 'in.pth'
    w, b, a = (pth.tensor(pth.storage(str(i))) for i in range(3))
    value = pth.module(pth.text('w') + w, pth.text('b') + b, unsaved=['b'], a=a)
    path.write_bytes(pth.checkpoint(value, **{'r%d' % i: bytes([i]) * 16 for i in range(3)}))
    mnt = mount(path)
    roles = {name: os.getxattr(mnt / name, 'user.weightfs.role') for name in 'ab'}
    assert roles == {'a': b'attribute', 'b': b'non-persistent buffer'}
    assert 'user.weightfs.role' in os.listxattr(mnt / 'a') and 'user.weightfs.role' not in os.listxattr(mnt / 'w')


@pytest.mark.parametrize('edit', [True, False])
def test_a_commit_can_leave_out_what_can_run_code(mount, folder, edit):
    path = folder / 'in.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(), h=pth.dictionary(
        n=pth.number(1), x=pth.call(pth.name('posix', 'system'), pth.text('true'))))))
    mnt = mount(path, 'output=%s' % (folder / 'out.pth'), 'safe').allow('in.pth: the pickle refers to system of module posix')
    if edit:
        (mnt / 'h.json').write_text((mnt / 'h.json').read_text().replace('"n": 1', '"n": 2'))
    else:
        tool('mv', mnt / 'w', mnt / 'v')
    mnt.commit()
    assert b'posix' not in (folder / 'out.pth').read_bytes()
    assert pth_read.load(folder / 'out.pth')['h'] == {'n': 2 if edit else 1, 'x': None}
    assert 'left out: 1 name' in mnt.status()['written']


@pytest.mark.parametrize('keeps', [True, False])
def test_a_set_says_what_in_its_files_can_run_code(folder, keeps):
    made = folder / 'pickled'
    made.mkdir()
    names = ['pytorch_model-%05d-of-00002.bin' % i for i in (1, 2)]
    for i, name in enumerate(names):
        more = {'x': pth.call(pth.name('posix', 'system'), pth.text('true'))} if i == 0 else {}
        (made / name).write_bytes(pth.checkpoint(pth.dictionary(**{'layer%d' % i: pth.tensor()}, **more)))
    (made / 'pytorch_model.bin.index.json').write_text(json.dumps({'weight_map': {'layer%d' % i: name for i, name in enumerate(names)}}))
    options = [] if keeps else ['--remap', '^layer0$=>first']
    said = tool(*program.COMMAND, 'convert', '--format', 'pytorch', *options, made, '%s/' % (folder / 'out')).stderr
    assert any(b'posix' in path.read_bytes() for path in (folder / 'out').iterdir()) == keeps
    assert ('refers to system of module posix' in said) == keeps


# ---- modules as a whole ----

def remove_and_move(mnt):
    shutil.rmtree(mnt / 'model')
    (mnt / 'ema').rename(mnt / 'model')
    return {'epoch': None, 'model': 'ema'}


def remove_commit_and_move(mnt):
    shutil.rmtree(mnt / 'model')
    mnt.commit()
    (mnt / 'ema').rename(mnt / 'model')
    return {'epoch': None, 'model': 'ema'}


def move_away_and_move(mnt):
    (mnt / 'model').rename(mnt / 'first')
    (mnt / 'ema').rename(mnt / 'model')
    return {'epoch': None, 'first': 'model', 'model': 'ema'}


def exchange_both(mnt):
    edit_kinds.exchange_names(mnt / 'model', mnt / 'ema')
    return {'epoch': None, 'model': 'ema', 'ema': 'model'}


def move_and_take_away(mnt):
    """A tensor of the module that is removed stays under another name."""
    (mnt / 'model/w').rename(mnt / 'w')
    shutil.rmtree(mnt / 'model')
    (mnt / 'ema').rename(mnt / 'model')
    return {'epoch': None, 'model': 'ema', 'w': None}


def remove_one(mnt):
    shutil.rmtree(mnt / 'model')
    return {'epoch': None, 'ema': 'ema'}


@pytest.mark.parametrize('option', ['output', 'rw'])
@pytest.mark.parametrize('steps', [remove_and_move, remove_commit_and_move, move_away_and_move, exchange_both, move_and_take_away, remove_one])
def test_modules_are_moved_and_removed_as_a_whole(mount, folder, steps, option):
    source, out = folder / 'in.pth', folder / 'out.pth'
    modules = {key: pth.module(pth.text('w') + pth.tensor(pth.storage(str(i), numel=2), size=(2,))) for i, key in enumerate(['model', 'ema'])}
    source.write_bytes(pth.checkpoint(pth.dictionary(epoch=pth.number(5), **modules), r0=st.f32(1, 2), r1=st.f32(3, 4)))
    before = {key: value.state['_parameters']['w'].data for key, value in pth_read.load(source).items() if key != 'epoch'}
    mnt = mount(source, 'output=%s' % out if option == 'output' else 'rw')
    expected = steps(mnt)
    mnt.commit()
    found = pth_read.load(out if option == 'output' else source)
    assert set(found) == set(expected)
    for key, of in expected.items():
        if of is not None:
            assert found[key].state['_parameters']['w'].data == before[of]
