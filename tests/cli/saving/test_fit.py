# SPDX-License-Identifier: MIT
"""What a format has no room for: ties and values."""
import json
import struct

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


def quantized(folder, scheme):
    q = {'tensor': [pth.name('torch', 'per_tensor_affine'), b'G' + struct.pack('>d', 0.5), pth.number(3)],
         'channel': [pth.name('torch', 'per_channel_affine'), pth.tensor(pth.storage('1', numel=2), size=(2,)), pth.tensor(pth.storage('2', numel=2), size=(2,)),
                     pth.number(0)]}[scheme]
    tensor = pth.call(pth.name('torch._utils', '_rebuild_qtensor'), pth.storage('0', pth.name('torch', 'QInt8Storage'), 4), pth.number(0),
                      pth.numbers((2, 2)), pth.numbers((2, 1)), pth.tup(*q), b'\x89', pth.ORDERED)
    path = folder / 'q.pth'
    records = dict(r1=bytes(8), r2=bytes(8)) if scheme == 'channel' else {}
    path.write_bytes(pth.checkpoint(pth.dictionary(q=tensor, w=pth.tensor(pth.storage('3', numel=4))), r0=bytes([1, 2, 3, 4]), r3=bytes(16), **records))
    return path


@pytest.mark.parametrize('scheme', ['tensor', 'channel'])
@pytest.mark.parametrize('name', ['out.safetensors', 'out.bpk', 'out.mpk', 'set/'])
def test_scales_of_quantized_integers_are_not_lost_in_silence(folder, name, scheme):
    if (name, scheme) == ('out.mpk', 'channel'):
        pytest.skip('a record has no place for q beside q.scales, and refuses it')
    path = quantized(folder, scheme)
    options = ['--format', 'pytorch'] if name == 'set/' else []
    told = weightfs('convert', *options, path, '%s/%s' % (folder, name)).stdout
    assert "stored as plain integers, because %s cannot store their scales: 'q'" % {
        'out.safetensors': 'safetensors', 'out.bpk': 'burnpack', 'out.mpk': 'mpk', 'set/': 'a set of files'}[name] in told
    assert 'plain integers' not in weightfs('convert', *options, '--exclude', '^q', path, '%s/%s' % (folder, name), '--overwrite').stdout
    rows = json.loads(weightfs('plan', '--json', '--format', 'safetensors', path).stdout)['left_out']
    assert {(row['kind'], row['name']) for row in rows} == {('quantization', 'q')}


@pytest.mark.parametrize('scheme', ['tensor', 'channel'])
@pytest.mark.parametrize('options', [[], ['--rename', 'q', 'p'], ['--exclude', 'w']], ids=' '.join)
def test_a_pth_keeps_them(folder, scheme, options):
    path = quantized(folder, scheme)
    assert 'plain integers' not in weightfs('convert', *options, path, folder / 'out.pth').stdout
    key = 'p' if '--rename' in options else 'q'
    assert (json.loads(weightfs('show', '--json', folder / 'out.pth', key).stdout)['tensors'][0]['quantization']
            == json.loads(weightfs('show', '--json', path, 'q').stdout)['tensors'][0]['quantization'] is not None)


@pytest.mark.parametrize('options', [[], ['--files', 'raw'], ['--layout', 'flat']], ids=' '.join)
def test_extracted_files_do_not_lose_scales_in_silence_either(folder, options):
    told = weightfs('extract', *options, quantized(folder, 'tensor'), '-d', folder / 'out').stdout
    name = 'q' if 'raw' in options else 'q.npy'
    assert "stored as plain integers, because a file of elements cannot store their scales: '%s'\n" % name in told
    assert 'plain integers' not in weightfs('extract', *options, folder / 'q.pth', 'w', '-d', folder / 'other').stdout
