# SPDX-License-Identifier: MIT
"""What a format has no room for: ties and values."""
import json

import pytest

from wfs_testlib import burnpack, pth, st
from wfs_testlib.program import EXIT_USAGE, weightfs


@pytest.fixture
def trained(folder):
    """Two tied names, a third tensor of its own, and values of all kinds."""
    path = folder / 'trained.pth'
    value = pth.dictionary(**{
        'model': pth.dictionary(**{'embed.weight': pth.tensor(), 'head.weight': pth.tensor(), 'part': pth.tensor(size=(2,))}),
        'epoch': pth.number(3), 'name': pth.text('a "run"'), 'config': pth.dictionary(lr=pth.number(1), tags=pth.numbers([1, 2])),
    })
    path.write_bytes(pth.checkpoint(value))
    return path


def convert(source, folder, name, *options):
    result = weightfs('convert', *options, source, folder / name)
    return (st.read if name.endswith('safetensors') else burnpack.read)(folder / name), result.stdout


@pytest.mark.parametrize('name', ['out.safetensors', 'out.bpk'])
def test_ties_are_copies_unless_dropped(trained, folder, name):
    copies, _ = convert(trained, folder, name)
    assert set(copies.tensors) == {'model.embed.weight', 'model.head.weight', 'model.part'}
    dropped, told = convert(trained, folder, name, '--ties=drop', '--overwrite')
    assert set(dropped.tensors) == {'model.embed.weight', 'model.part'}
    assert dropped.metadata['model.head.weight'] == 'model.embed.weight'
    assert "'model.head.weight'" in told


@pytest.mark.parametrize('name', ['out.safetensors', 'out.bpk'])
def test_values_are_left_out_and_told_or_texts_of_the_metadata(trained, folder, name):
    plain, told = convert(trained, folder, name)
    assert 'name' not in (plain.metadata or {}) and "'name'" in told
    full, told = convert(trained, folder, name, '--values=metadata', '--overwrite')
    if name.endswith('.bpk'):  # numbers are its scalars
        assert plain.scalars == full.scalars == {'epoch': {'Int': 3}} and "'epoch'" not in told
    else:
        assert full.metadata['epoch'] == '3'
    assert full.metadata['name'] == 'a "run"'
    assert json.loads(full.metadata['config'])['lr'] == 1
    assert 'left out' not in told


def test_scalars_of_a_burnpack_survive_a_pytorch_file(folder):
    scalars = {'step': {'Int': 7}, 'loss': {'Float': 0.5}, 'on': {'Bool': True}, 'down': {'Int': -3}}
    burnpack.write(folder / 'in.bpk', burnpack.Burnpack({'w': burnpack.Tensor('F32', [1], st.f32(1))}, {}, scalars))
    assert weightfs('convert', folder / 'in.bpk', folder / 'between.pth').stdout == ''
    assert weightfs('convert', folder / 'between.pth', folder / 'out.bpk').stdout == ''
    assert burnpack.read(folder / 'out.bpk').scalars == scalars


@pytest.mark.parametrize('option', ['--ties=both', '--values=all'])
def test_other_words_are_refused(trained, folder, option):
    assert option[2:].split('=')[0] in weightfs('convert', option, trained, folder / 'x.safetensors', code=EXIT_USAGE).error


@pytest.mark.parametrize('name, told', [('out.bpk', ''), ('out.safetensors', "left out, because safetensors cannot store parameter ids: 'a', 'b', 'c' and 2 more\n"),
                                        ('out.pth', "left out, because pytorch cannot store parameter ids: 'a', 'b', 'c' and 2 more\n")])
def test_parameter_ids_are_left_out_and_told(folder, name, told):
    pack = burnpack.Burnpack({key: burnpack.Tensor('F32', [1], bytes(4), i + 1) for i, key in enumerate('abcde')})
    burnpack.write(folder / 'in.bpk', pack)
    assert weightfs('convert', folder / 'in.bpk', folder / name).stdout == told
