# SPDX-License-Identifier: MIT
"""Directories of training runs: model, optimizer and scheduler of an epoch as one tree."""
import gzip
import json

import pytest

from wfs_testlib import golden_records as golden, shared
from wfs_testlib.mpk import f32, pack, param, param_id, record, tensor
from wfs_testlib.program import EXIT_COMMIT, EXIT_SOURCE, EXIT_UNSUPPORTED, EXIT_USAGE, listing, weightfs


def state(number, value):
    return {param_id(number): {'V1': {'Rank1': {'momentum': {'time': value, 'moment_1': tensor(f32(value), [1])}}}}}


@pytest.fixture
def run(folder):
    """Three epochs, of which the last is not complete."""
    for epoch in (1, 2, 10):
        (folder / ('model-%d.mpk' % epoch)).write_bytes(pack(record({'w': param(7, tensor(f32(epoch), [1])), 'eps': None})))
        (folder / ('optim-%d.mpk' % epoch)).write_bytes(pack(record(state(7, epoch))))
        (folder / ('scheduler-%d.mpk' % epoch)).write_bytes(pack(record(epoch)))
    (folder / 'model-11.mpk').write_bytes(pack(record({'w': param(7, tensor(f32(11), [1]))})))
    (folder / 'notes.txt').write_text('x')
    return folder


def keys(number=7):
    return ['model.w', 'optim.%s.V1.Rank1.momentum.moment_1' % param_id(number)]


@pytest.mark.parametrize('options, epoch', [((), 10), (('--epoch=2',), 2), (('--epoch', '1'), 1)])
def test_a_run_is_one_tree_of_an_epoch(run, options, epoch):
    assert list(listing(run, *options)) == keys()
    assert weightfs('cat', *options, run, 'model.w').raw == f32(epoch)
    assert json.loads(weightfs('config', *options, run).stdout) == {
        'model.eps': None, 'optim.%s.V1.Rank1.momentum.time' % param_id(7): epoch, 'scheduler': epoch}


def test_an_epoch_that_is_missing_is_named(run):
    assert 'no epoch 3, the newest is 10' in weightfs('ls', '--epoch=3', run, code=EXIT_SOURCE).error
    for value in ('x', '-1', '', '99999999999999999999'):
        assert 'number' in weightfs('ls', '--epoch', value, run, code=EXIT_USAGE).error


def test_an_epoch_of_something_else_is_an_error(run, folder):
    assert 'epoch' in weightfs('ls', '--epoch=1', folder / 'model-1.mpk', code=None).stderr


def test_files_in_other_containers_and_damaged_ones(run):
    (run / 'model-10.mpk').unlink()
    (run / 'model-10.mpk.gz').write_bytes(gzip.compress(pack(record({'w': param(7, tensor(f32(5), [1]))}))))
    assert weightfs('cat', run, 'model.w').raw == f32(5)
    (run / 'optim-10.mpk').write_bytes(b'\x83')
    assert "'optim-10.mpk': truncated" in weightfs('ls', run, code=None).error


def test_two_files_of_one_kind_and_epoch_are_refused(run):
    (run / 'model-2.json').write_text('{}')
    assert 'same kind and epoch' in weightfs('ls', run, code=None).error


def test_a_binary_run_is_refused_by_the_name_of_its_recorder(folder):
    if not shared.IS_THERE:
        pytest.skip(shared.WHY_NOT)
    for kind in ('model', 'optim'):
        (folder / (kind + '-1.bin')).write_bytes((golden.FOLDER / 'v0.18.0/other/linear.bin').read_bytes())
    assert "'model-1.bin': is a file of Burn's BinFileRecorder" in weightfs('ls', folder, code=EXIT_UNSUPPORTED).error


def test_the_model_of_a_run_can_be_converted(run, folder):
    weightfs('convert', '--include', '^w$', '--remap', '^model\\.=>', run, folder / 'x.safetensors')
    assert set(listing(folder / 'x.safetensors')) == {'w'}
    weightfs('convert', run, folder / 'all.bpk')
    assert set(listing(folder / 'all.bpk')) == set(keys())
    assert 'read one of its files' in weightfs('convert', run, folder / 'all.mpk', code=EXIT_COMMIT).error


def test_shards_are_not_taken_for_a_run(folder):
    (folder / 'model-00001-of-00002.mpk').write_bytes(b'x')
    (folder / 'optim-1.mpk').write_bytes(b'x')
    assert 'epoch' not in weightfs('ls', folder, code=None).stderr
