# SPDX-License-Identifier: MIT
"""convert, diff, check, sum, edit: results equal those of the program, and a failure leaves nothing behind."""
import hashlib
import json
import pathlib
import subprocess
import sys

import pytest

numpy = pytest.importorskip('numpy')
weightfs = pytest.importorskip('weightfs')


def printed(*arguments):
    return json.loads(subprocess.run(['weightfs', *arguments], stdout=subprocess.PIPE, check=False).stdout)


@pytest.mark.parametrize('name', ['a.pth', 'a.bpk', 'a.mpk', 'a.gguf', 'shards/model.safetensors.index.json', 'b.safetensors'])
def test_convert_writes_what_the_program_writes(sample, name):
    mine, theirs = pathlib.Path('mine', name), pathlib.Path('theirs', name)
    for path in (mine, theirs):
        path.parent.mkdir(parents=True)
    result = weightfs.convert(sample, mine, values='metadata', remap='s/^pooler/head/', exclude='^scaled')
    assert result['tensors'] == 40
    subprocess.run(['weightfs', 'convert', '--values=metadata', '--remap=s/^pooler/head/', '--exclude=^scaled', sample, theirs], check=True)
    assert sorted((path.name, path.read_bytes()) for path in mine.parent.iterdir()) == \
        sorted((path.name, path.read_bytes()) for path in theirs.parent.iterdir())


def test_a_target_that_exists_stays(sample):
    pathlib.Path('there.pth').write_text('mine')
    with pytest.raises(FileExistsError):
        weightfs.convert(sample, 'there.pth')
    with pytest.raises(weightfs.UsageError):
        weightfs.convert(sample, 'there.pth', overwrit=True)
    assert pathlib.Path('there.pth').read_text() == 'mine'
    weightfs.convert(sample, 'there.pth', overwrite=True, backup=True)
    assert pathlib.Path('there.pth~').read_text() == 'mine' and len(weightfs.open('there.pth')) == 41


def test_progress_and_its_end(sample):
    seen = []
    weightfs.convert(sample, 'a.pth', progress=lambda done, total: seen.append((done, total)))
    assert seen and seen == sorted(seen) and seen[-1][0] == seen[-1][1] > 40000

    class Enough(Exception):
        pass

    def stop(done, total):
        raise Enough

    with pytest.raises(Enough):
        weightfs.convert(sample, 'b.pth', progress=stop)
    assert sorted(path.name for path in pathlib.Path().iterdir()) == ['a.pth', sample]


def test_diff_check_and_sum_equal_the_program(sample):
    weightfs.convert(sample, 'b.safetensors', cast='norm:F16')
    diff = weightfs.diff(sample, 'b.safetensors', long=True)
    expected = printed('diff', '--json', '--long', sample, 'b.safetensors')
    assert diff == {name: expected[name] for name in expected if name != 'schema'}
    assert not diff['is_equal'] and weightfs.diff(sample, sample)['is_equal']
    page = diff._repr_html_()
    assert '<svg' in page and 'changed' in page and 'b.safetensors' in page
    view = weightfs.open(sample, cast='norm:F16')
    assert weightfs.diff(view, 'b.safetensors')['is_equal'] and '<svg' not in weightfs.diff(view, 'b.safetensors')._repr_html_()
    assert weightfs.check(sample, values=True) == printed('check', '--json', '--values', sample)['sources'][0]
    sums = weightfs.sum(sample)
    assert [{'key': key, **one} for key, one in sums.items()] == printed('sum', '--json', sample)['sources'][0]['tensors']
    assert sums['temperature']['sha256'] == hashlib.sha256(weightfs.open(sample)['temperature'].tobytes()).hexdigest()
    assert weightfs.sum(view)['embeddings.norm.bias']['dtype'] == 'F16'
    with pytest.raises(FileNotFoundError):
        weightfs.sum('none')
    for verb in (weightfs.sum, weightfs.check):
        with pytest.raises(weightfs.UsageError):
            verb(sample, nonsense=True)


def test_edit(sample):
    before = pathlib.Path(sample).read_bytes()
    ckpt = weightfs.open(sample)
    with weightfs.edit(sample, 'b.safetensors') as edits:
        edits.rename('encoder.layer', 'encoder.block')
        edits.rename('temperature', 't')
        edits.remove('pooler.*', 'scaled_fp8')
        del edits['embeddings.norm.bias']
        edits['new'] = numpy.arange(6, dtype='>i4').reshape(2, 3).T
        edits['scalar'] = numpy.float64(2.5)
        edits['embeddings.norm.weight'] = ckpt['temperature']
        edits.set_metadata('author', 'me')
        edits.set_metadata('license', None)
    result = weightfs.open('b.safetensors')
    assert 'encoder.block.0.attention.key.bias' in result and 't' in result
    assert not [key for key in result if key.startswith(('pooler', 'scaled', 'encoder.layer')) or key == 'embeddings.norm.bias']
    assert result['new'].numpy().tolist() == [[0, 3], [1, 4], [2, 5]] and result['new'].dtype == 'I32'
    assert result['scalar'].shape == () and result['scalar'][()] == 2.5
    assert result['embeddings.norm.weight'].tobytes() == ckpt['temperature'].tobytes()
    assert result.metadata['author'] == 'me' and 'license' not in result.metadata
    assert pathlib.Path(sample).read_bytes() == before


def test_edit_in_place_and_not_at_all(sample):
    before = pathlib.Path(sample).read_bytes()
    with pytest.raises(ZeroDivisionError):
        with weightfs.edit(sample) as edits:
            edits.remove('pooler.*')
            1 / 0
    assert pathlib.Path(sample).read_bytes() == before
    with pytest.raises(KeyError, match='pooler.dense.weight'):
        with weightfs.edit(sample) as edits:
            edits.remove('pooler.dense.weigth')
    with pytest.raises(KeyError):
        with weightfs.edit(sample) as edits:
            edits.rename('nothing', 'x')
    with pytest.raises(TypeError, match='no dtype'):
        with weightfs.edit(sample) as edits:
            edits['x'] = numpy.array(['text'])
    assert pathlib.Path(sample).read_bytes() == before
    with weightfs.edit(sample) as edits:
        edits.remove('pooler.*')
        edits['a'] = numpy.zeros(3)
    assert len(weightfs.open(sample)) == 40 and [path.name for path in pathlib.Path().iterdir()] == [sample]
    with pytest.raises(weightfs.UsageError, match='saved or dropped already'):
        edits.save()


def test_edits_of_a_view_and_edits_that_exclude_each_other(sample):
    with weightfs.edit(weightfs.open(sample, remap='s/^pooler/head/'), 'b.pth') as edits:
        edits.rename('head.dense.weight', 'head.dense.bias')
        edits.rename('head.dense.bias', 'head.dense.weight')
        edits.set_value('epoch', [1, {'a': None}])
    result, source = weightfs.open('b.pth'), weightfs.open(sample)
    assert result['head.dense.bias'].tobytes() == source['pooler.dense.weight'].tobytes() and result.values['epoch'] == [1, {'a': None}]
    with weightfs.edit('b.pth', 'c.pth') as edits:
        edits.remove('epoch', 'head')
    assert dict(weightfs.open('c.pth').values) == {} and len(weightfs.open('c.pth')) == 39
    edits = weightfs.edit(sample, 'd.pth')
    edits.rename('temperature', 't')
    for use in (lambda: edits.rename('temperature', 'u'), lambda: edits.remove('temperature')):
        with pytest.raises(FileExistsError, match='edited twice'):
            use()
    edits.rename('pooler.dense.bias', 'pooler.dense.weight')
    with pytest.raises(weightfs.Error, match='pooler.dense.weight'):
        edits.save()
    assert not pathlib.Path('d.pth').exists()


def test_the_program(sample):
    out = subprocess.run([sys.executable, '-m', 'weightfs', 'ls', sample, 'temperature'], stdout=subprocess.PIPE, check=True).stdout
    assert out == b'temperature\tF32\t[]\t4\n'
    assert subprocess.run([sys.executable, '-m', 'weightfs', 'ls', 'none'], stderr=subprocess.DEVNULL, check=False).returncode == 3
