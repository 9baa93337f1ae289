# SPDX-License-Identifier: MIT
"""Records that are made of other files with `like`: the constants and the version of the record that it names, which belong to no
other output, whatever the source is."""
import json

import pytest

from wfs_testlib import burnpack, mpk, pth, pth_read, st
from wfs_testlib.burnpack import Burnpack, Tensor
from wfs_testlib.mpk import f32, metadata, pack, param, record, tensor
from wfs_testlib.program import EXIT_COMMIT, weightfs

CONV, GAMMA = f32(*range(4)), f32(8, 9)
LIKE = {'conv': {'weight': param(5, tensor(bytes(16), [1, 1, 2, 2])), 'bias': None, 'stride': [None, None]}, 'layers': [],
        'bn': {'gamma': param(6, tensor(bytes(8), [2])), 'epsilon': None}, 'rnn': {'hidden_activation': {'Tanh': None}}}
ITEM = {'conv': {'weight': param(5, tensor(CONV, [1, 1, 2, 2])), 'bias': None, 'stride': [None, None]},
        'bn': {'gamma': param(6, tensor(GAMMA, [2])), 'epsilon': None}, 'layers': [], 'rnn': {'hidden_activation': {'Tanh': None}}}


def make_pth(path, **more):
    conv = pth.tensor(pth.storage('0', numel=4), size=(1, 1, 2, 2), stride=(4, 4, 2, 1))
    gamma = pth.tensor(pth.storage('1', numel=2), size=(2,), stride=(1,))
    path.write_bytes(pth.checkpoint(pth.dictionary(**{'conv.weight': conv, 'bn.weight': gamma, **more}), r0=CONV, r1=GAMMA))
    return path


def make_bpk(path):
    burnpack.write(path, Burnpack({'conv.weight': Tensor('F32', [1, 1, 2, 2], CONV), 'bn.gamma': Tensor('F32', [2], GAMMA)}))
    return path


def make_mpk(path):
    path.write_bytes(pack(record({'conv': {'weight': tensor(CONV, [1, 1, 2, 2])}, 'bn': {'gamma': tensor(GAMMA, [2])}})))
    return path


def make_safetensors(path):
    st.write(path, {'conv.weight': ('F32', [1, 1, 2, 2], CONV), 'bn.weight': ('F32', [2], GAMMA)})
    return path


def make_dcp(path):
    make_pth(path.with_suffix('.pth'))
    weightfs('convert', path.with_suffix('.pth'), '%s/' % path, '--format=dcp')
    return path


SOURCES = {'pth': make_pth, 'bpk': make_bpk, 'safetensors': make_safetensors, 'dcp': make_dcp}


@pytest.fixture
def like(folder):
    path = folder / 'like.mpk'
    path.write_bytes(pack(record(LIKE)))
    return path


def convert(source, target, *options):
    done = weightfs('convert', '--overwrite', *options, source, target)
    return done.stdout


@pytest.mark.parametrize('kind', SOURCES)
def test_the_constants_of_like_are_written_whatever_the_source_is(folder, like, kind):
    convert(SOURCES[kind](folder / ('in.' + kind)), folder / 'out.mpk', '--like', like)
    assert mpk.load(folder / 'out.mpk')['item'] == ITEM
    assert json.loads(weightfs('config', folder / 'out.mpk').stdout) == json.loads(weightfs('config', like).stdout)


@pytest.mark.parametrize('kind', SOURCES)
@pytest.mark.parametrize('target', ['out.pth', 'out.safetensors', 'out.bpk', 'dcp/'])
def test_no_other_output_gets_them_or_reports_their_absence(folder, like, kind, target):
    source = SOURCES[kind](folder / ('in.' + kind))
    options = ['--format=dcp'] if target == 'dcp/' else []
    text = convert(source, str(folder / target), '--like', like, *options)
    assert 'left out' not in text
    assert json.loads(weightfs('config', folder / target).stdout) == {}


def test_a_state_dict_made_of_a_record_has_only_its_tensors(folder, like):
    text = convert(like, folder / 'out.pth')
    assert 'parameter ids' in text
    assert set(pth_read.load(folder / 'out.pth')) == {'conv.weight', 'bn.gamma'} and 'activation' not in text


@pytest.mark.parametrize('value', [pth.dictionary(Tanh=b'N'), pth.number(3), b'N'])
def test_a_value_of_python_does_not_take_the_place_of_a_constant(folder, like, value):
    source = make_pth(folder / 'in.pth', **{'rnn.hidden_activation': value, 'conv.stride': pth.number(2)})
    convert(source, folder / 'out.mpk', '--like', like)
    assert mpk.load(folder / 'out.mpk')['item'] == ITEM
    convert(source, folder / 'out.pth', '--like', like)
    assert pth_read.load(folder / 'out.pth')['conv.stride'] == 2


@pytest.mark.parametrize('options, version', [((), '0.21.0'), (('--burn-version=0.18',), '0.18.0')])
@pytest.mark.parametrize('kind', SOURCES)
def test_the_version_is_that_of_like_unless_one_is_given(folder, kind, options, version):
    (folder / 'new.mpk').write_bytes(pack(record(LIKE, metadata('0.21.0'))))
    convert(SOURCES[kind](folder / ('in.' + kind)), folder / 'out.mpk', '--like', folder / 'new.mpk', *options)
    assert mpk.load(folder / 'out.mpk')['metadata']['version'] == version


@pytest.mark.parametrize('gate, constant, since', [('cell_gate', 'cell_activation', 20), ('reset_gate', 'gate_activation', 21), ('gate', 'hidden_activation', 21)])
@pytest.mark.parametrize('version', [19, 20, 21])
def test_recurrent_modules_without_their_activations_are_refused_from_a_version_on(folder, gate, constant, since, version):
    st.write(folder / 'in.safetensors', {'rnn.%s.hidden_transform.weight' % gate: ('F32', [1], f32(1))})
    options = ['--burn-version=0.%d' % version, folder / 'in.safetensors', folder / 'out.mpk']
    done = weightfs('convert', *options, code=EXIT_COMMIT if version >= since else 0)
    assert version < since or ("'rnn.%s.hidden_transform.weight'" % gate in done.error and 'burn_version 0.%d' % (since - 1) in done.error)
    transform = {'hidden_transform': {'weight': tensor(bytes(4), [1])}}
    (folder / 'like.mpk').write_bytes(pack(record({'rnn': {gate: transform, constant: {'Tanh': None}}})))
    weightfs('convert', '--overwrite', '--like', folder / 'like.mpk', *options)
