# SPDX-License-Identifier: MIT
"""A checkpoint as a mapping: keys, descriptions, errors, life."""
import json
import pathlib
import pickle
import subprocess
import warnings

import pytest

weightfs = pytest.importorskip('weightfs')


def listed(*arguments):
    return subprocess.run(['weightfs', *arguments], check=True, stdout=subprocess.PIPE, encoding='utf-8').stdout


def test_it_is_a_mapping_in_the_order_of_the_file(sample):
    ckpt = weightfs.open(sample)
    rows = [row.split('\t') for row in listed('ls', sample).splitlines()]
    assert len(ckpt) == len(rows) == 41
    assert list(ckpt) == list(ckpt.keys()) == [key for key, *_rest in rows]
    assert [(key, t.dtype, str(list(t.shape)), str(t.nbytes)) for key, t in ckpt.items()] == [tuple(row) for row in rows]
    assert [t.key for t in ckpt.values()] == list(ckpt)
    assert 'temperature' in ckpt and 'Temperature' not in ckpt and 5 not in ckpt and 'a\0b' not in ckpt
    assert ckpt.get('Temperature') is None and ckpt == ckpt and ckpt != weightfs.open(sample)
    assert repr(ckpt) == '<Checkpoint encoder.safetensors: 41 tensors, safetensors>'


def test_paths_and_directories(sample, tmp_path):
    assert len(weightfs.open(pathlib.Path(sample))) == len(weightfs.open(str(tmp_path))) == 41


def test_options_are_those_of_the_program(sample):
    ckpt = weightfs.open(sample, remap=['s/^encoder/enc/', 's/layer/block/'], cast='weight$:F32', include='^enc', limit={'tensors': 100})
    assert ckpt['enc.block.0.attention.query.weight'].dtype == 'F32'
    assert ckpt['enc.block.0.attention.query.weight'].origin == 'encoder.layer.0.attention.query.weight'
    assert 'cast' in ckpt['enc.block.0.attention.query.weight'].changes
    assert len(ckpt) == 32
    assert weightfs.open(sample, force=False, include=None).options == {'force': False, 'include': None}


def test_what_else_a_checkpoint_has(sample):
    ckpt = weightfs.open(sample)
    assert ckpt.metadata == json.loads(listed('info', '--json', sample))['sources'][0]['metadata']
    assert ckpt.info()['n_tensors'] == 41
    assert dict(ckpt.values) == {} and len(ckpt.values()) == 41
    modules = ckpt.modules()
    assert modules['encoder'].n_tensors == 32 and modules['encoder.layer.1'].n_bytes == 17792
    assert 'temperature' not in modules


def test_values_of_a_pickle(sample):
    with weightfs.edit(sample, 'm.pth') as edits:
        edits.set_value('epoch', 3)
    ckpt = weightfs.open('m.pth')
    assert ckpt.values['epoch'] == 3 and list(ckpt.values) == ['epoch'] and len(ckpt.values()) == 41


def test_errors_are_the_messages_of_the_program(sample):
    def message(*arguments):
        return subprocess.run(['weightfs', *arguments], stderr=subprocess.PIPE, encoding='utf-8').stderr.rstrip('\n')

    pathlib.Path('page').write_text('<html>')
    pathlib.Path('short.safetensors').write_bytes(pathlib.Path(sample).read_bytes()[:3000])
    for path, kind, builtin in (('none', weightfs.NotFoundError, FileNotFoundError), ('page', weightfs.FormatError, ValueError),
                                ('short.safetensors', weightfs.FormatError, ValueError)):
        with pytest.raises(kind) as caught:
            weightfs.open(path)
        assert isinstance(caught.value, builtin) and isinstance(caught.value, weightfs.Error)
        assert 'weightfs: %s' % caught.value == message('ls', path)
    with pytest.raises(weightfs.UsageError) as caught:
        weightfs.open(sample, remap='s/(/x/')
    assert 'weightfs: %s' % caught.value == message('ls', '--remap=s/(/x/', sample).replace('--remap', 'remap')
    with pytest.raises(weightfs.UsageError):
        weightfs.open(sample, remapp='s/a/b/')
    with pytest.raises(KeyError) as caught:
        weightfs.open(sample)['pooler.dense.weigh']
    assert 'weightfs: %s' % caught.value == message('cat', sample, 'pooler.dense.weigh')
    assert "did you mean 'pooler.dense.weight'" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_notices_are_warnings(sample):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        weightfs.convert(sample, 'half.pth', cast='BF16')
    assert {one.category for one in caught} == {weightfs.Notice} and any('scaled_fp8' in str(one.message) for one in caught)
    assert {one.filename for one in caught} == {__file__}


def test_it_closes(sample):
    with weightfs.open(sample) as ckpt:
        tensor = ckpt['temperature']
    for use in (lambda: len(ckpt), lambda: ckpt['temperature'], lambda: tensor.shape, lambda: tensor.numpy(), ckpt.modules):
        with pytest.raises(weightfs.UsageError, match='encoder.safetensors is closed'):
            use()
    ckpt.close()
    assert repr(ckpt) == '<Checkpoint encoder.safetensors, closed>'


def test_tensors_outlive_names(sample):
    assert weightfs.open(sample)['temperature'].tobytes() == b'\x00\x00\x80='


def test_pickles_by_path(sample, tmp_path, monkeypatch):
    ckpt = weightfs.open(sample, remap='s/^temp/x/')
    data = pickle.dumps((ckpt, ckpt['xerature']))
    monkeypatch.chdir('/')
    again, tensor = pickle.loads(data)
    assert list(again) == list(ckpt) and tensor.tobytes() == b'\x00\x00\x80='


def test_picture_of_a_notebook(sample):
    page = weightfs.open(sample, include='^pooler')._repr_html_()
    assert '<svg' in page and '<td>BF16</td>' in page and 'pooler' in page and 'embeddings' not in page


def test_types_are_declared():
    assert (pathlib.Path(weightfs.__file__).parent / 'py.typed').exists()
    assert weightfs.open.__annotations__['return'] == 'Checkpoint'
