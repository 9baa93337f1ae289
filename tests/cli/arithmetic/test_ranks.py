# SPDX-License-Identifier: MIT
"""Ranks of model parallelism as one checkpoint, beside numpy's concatenation; what does not fit."""
import contextlib
import json
import struct
import zipfile

import numpy
import pytest

from wfs_testlib import merging, pth, pth_read, shared, st
from wfs_testlib.bad_server import BadServer
from wfs_testlib.hub_server import COMMIT, Hub
from wfs_testlib.program import weightfs

DIM, HIDDEN, WORDS = 24, 40, 60
WHOLE = {'tok_embeddings.weight': (WORDS, DIM), 'norm.weight': (DIM,), 'output.weight': (WORDS, DIM), 'rope.freqs': (7,),
         'layers.0.attention.wq.weight': (DIM, DIM), 'layers.0.attention.wk.weight': (DIM, DIM), 'layers.0.attention.wv.weight': (DIM, DIM),
         'layers.0.attention.wo.weight': (DIM, DIM), 'layers.0.feed_forward.w1.weight': (HIDDEN, DIM), 'layers.0.feed_forward.w3.weight': (HIDDEN, DIM),
         'layers.0.feed_forward.w2.weight': (DIM, HIDDEN), 'layers.0.ffn_norm.weight': (DIM,)}
ROWS, COLUMNS = ('wq', 'wk', 'wv', 'w1', 'w3', 'output'), ('wo', 'w2')


def write_rank(path, values, dtype='BF16'):
    st.write(path, {key: (dtype, list(one.shape), merging.encode(one, dtype)) for key, one in values.items()})


def write(folder, cuts, embedding=0, dtype='BF16', pattern='consolidated.%02d.safetensors'):
    """Cuts each tensor of WHOLE where Meta's Llama does, at these parts of the dimension; returns the whole ones."""
    random = numpy.random.default_rng(1)
    whole = {key: random.integers(-99, 99, shape) if dtype == 'I64' else merging.rounded(random.standard_normal(shape), dtype)[0]
             for key, shape in WHOLE.items()}
    for rank in range(len(cuts) - 1):
        part = {}
        for key, one in whole.items():
            name = key.split('.')[-2]
            axis = embedding if name == 'tok_embeddings' else 0 if name in ROWS else 1 if name in COLUMNS else None
            ends = None if axis is None else [int(cut * one.shape[axis]) for cut in cuts[rank:rank + 2]]
            part[key] = one if axis is None else numpy.take(one, range(*ends), axis)
        path = folder / (pattern % rank)
        path.parent.mkdir(exist_ok=True)
        write_rank(path, part, dtype)
    return whole


def check(path, whole, dtype='BF16'):
    found = st.read(path).tensors
    assert set(found) == set(whole)
    for key, one in whole.items():
        assert found[key] == (dtype, list(one.shape), merging.encode(one, dtype)), key


@pytest.mark.parametrize('cuts', [(0, 1), (0, .5, 1), (0, .25, .5, .75, 1), (0, .125, .125, 1)], ids=len)
@pytest.mark.parametrize('embedding, dtype', [(0, 'BF16'), (1, 'F32'), (1, 'I64')])
def test_the_ranks_of_llama_are_one_checkpoint(memory, cuts, embedding, dtype):
    whole = write(memory, cuts, embedding, dtype)
    first, out = memory / 'consolidated.00.safetensors', memory / 'out.safetensors'
    weightfs('convert', '--join=llama', first, out)
    check(out, whole, dtype)
    for key, one in whole.items():
        assert weightfs('cat', '--join=llama', first, key).raw == merging.encode(one, dtype)
    assert weightfs('sum', '--join=llama', first).stdout.splitlines()[1:] == weightfs('sum', out).stdout.splitlines()[1:]
    weightfs('diff', '--join=llama', first, first)
    weightfs('check', '--values', '--join=llama', first)


def test_a_folder_stands_for_its_ranks(memory):
    whole = write(memory, (0, .5, 1))
    folder = memory / 'meta'
    folder.mkdir()
    for rank in range(2):
        weightfs('convert', memory / ('consolidated.%02d.safetensors' % rank), folder / ('consolidated.%02d.pth' % rank))
    (folder / 'params.json').write_text('{}')
    assert 'join=llama' in weightfs('ls', folder, code=None).error
    weightfs('convert', '--join=llama', folder, memory / 'out.safetensors')
    check(memory / 'out.safetensors', whole)
    # The whole can go on to any format, and options after it see it.
    weightfs('convert', '--join=llama', folder, memory / 'out.pth')
    weightfs('convert', memory / 'out.pth', memory / 'back.safetensors')
    check(memory / 'back.safetensors', whole)
    weightfs('convert', '--join=llama', '--include=wo', '--transpose=wo', '--cast=F32', folder, memory / 'wo.safetensors')
    check(memory / 'wo.safetensors', {'layers.0.attention.wo.weight': whole['layers.0.attention.wo.weight'].T.astype('<f4')}, 'F32')
    weightfs('convert', '--join=llama', '--average=%s' % (memory / 'out.safetensors'), folder, memory / 'mean.safetensors')
    check(memory / 'mean.safetensors', whole)


def test_megatron_by_rules(memory):
    gate, up = numpy.arange(48, dtype='<f4').reshape(8, 6), 100 + numpy.arange(48, dtype='<f4').reshape(8, 6)
    experts = numpy.random.default_rng(1).standard_normal((2, 6, 4)).astype('<f4')
    for rank in range(2):
        (memory / ('mp_rank_%02d' % rank)).mkdir()
        rows = slice(rank * 4, rank * 4 + 4)
        write_rank(memory / ('mp_rank_%02d/model_optim_rng.pt' % rank), {
            'm.dense_h_to_4h.weight': numpy.concatenate([gate[rows], up[rows]]), 'm.dense_4h_to_h.weight': gate[:, rank * 3:rank * 3 + 3],
            'm.experts': experts[:, rank * 5:5 + rank * 5], 'rng_state': numpy.array([rank], '<f4'), 'm.norm': up}, 'F32')
    rules = ['--join=h_to_4h:0/2', '--join=4h_to_h:1', '--join=experts:1', '--join=rng:first']
    for source in (memory, memory / 'mp_rank_00/model_optim_rng.pt'):
        weightfs('convert', *rules, source, memory / 'out.safetensors', '--overwrite')
        check(memory / 'out.safetensors', {'m.dense_h_to_4h.weight': numpy.concatenate([gate, up]), 'm.dense_4h_to_h.weight': gate, 'm.experts': experts,
                                           'rng_state': numpy.array([0], '<f4'), 'm.norm': up}, 'F32')
    report = json.loads(weightfs('plan', '--json', *rules, memory).stdout)
    assert '2 ranks: 3 tensors joined, 1 is equal everywhere; values are those of rank 0' in json.dumps(report)


def test_what_does_not_fit_is_named(memory):
    def error(*options, name='consolidated.00.safetensors'):
        return weightfs('ls', *options, memory / name, code=7).error

    write(memory, (0, .5, 1))
    assert "'layers.0.attention.wk.weight' of ranks 0 and 1: they differ; join=REGEX:DIM joins parts" in error('--join=norm:copy')
    assert 'BF16 [24] and BF16 [24] cannot be joined along dimension 1' in error('--join=^norm:1', '--join=llama')
    assert 'in pieces' in error('--join=wq:0/5', '--join=llama')
    assert 'is not rank 0' in error('--join=llama', name='consolidated.01.safetensors')
    for text in ('llama2', 'wq:', 'wq:-1', 'wq:0/0', 'wq:llama', 'wq:1/2/3'):
        assert 'is not a dimension' in weightfs('ls', '--join=%s' % text, memory, code=7).error
    write_rank(memory / 'consolidated.03.safetensors', {'a': numpy.zeros(1)})
    missing = weightfs('ls', '--join=llama', memory / 'consolidated.00.safetensors', code=3).error
    assert "there is no rank 2 beside '%s', which is rank 3" % (memory / 'consolidated.03.safetensors') in missing
    (memory / 'consolidated.03.safetensors').unlink()
    st.write(memory / 'other.safetensors', {})
    assert 'has no rank in its name' in error('--join=llama', name='other.safetensors')
    write_rank(memory / 'consolidated.01.safetensors', {'norm.weight': numpy.zeros((24, 1)), 'x': numpy.zeros(2)})
    assert "'layers.0.attention.wk.weight' of ranks 0 and 1: rank 1 does not have it" in error('--join=llama')
    assert "'norm.weight' of ranks 0 and 1: they differ" in error('--join=llama', '--partial')
    write_rank(memory / 'consolidated.01.safetensors', {'norm.weight': numpy.zeros((12, 24)), 'x': numpy.zeros(2)})
    listed = weightfs('ls', '--partial', '--join=norm:first', memory / 'consolidated.00.safetensors').stdout
    assert 'x\t' in listed and 'tok_embeddings' in listed
    (memory / 'consolidated.01.safetensors').write_bytes(b'nothing')
    assert 'consolidated.01' in weightfs('ls', '--join=llama', memory / 'consolidated.00.safetensors', code=None).error


def test_a_stage_of_a_pipeline_says_that_it_is_one(memory):
    for name in ('mp_rank_00_000', 'mp_rank_01_000', 'mp_rank_00_001'):
        (memory / name).mkdir()
        write_rank(memory / name / 'model_optim_rng.pt', {'layers.0.w': numpy.ones((2, 2))})
    plan = weightfs('plan', '--json', '--join=layers:0', memory / 'mp_rank_00_000/model_optim_rng.pt')
    assert '2 ranks: 1 tensor joined' in plan.stdout and 'this is one stage of a pipeline' in plan.stdout


def write_tied(path, *values):
    """a and b are one tensor, c is another."""
    path.write_bytes(pth.checkpoint(pth.dictionary(a=pth.tensor(), b=pth.tensor(), c=pth.tensor(pth.storage('1'))), r0=st.f32(*values), r1=st.f32(*values)))
    return path


@pytest.mark.parametrize('options, values', [
    (['--join=.:0'], [0, 1, 2, 3, 4, 5, 6, 7]), (['--average=OTHER'], [2, 3, 4, 5]), (['--join=.:0', '--add=JOINED'], [0, 2, 4, 6, 8, 10, 12, 14]),
    (['--average=OTHER', '--minus=OTHER', '--cast=F16'], [-2, -2, -2, -2]), (['--average=b:OTHER'], [2, 3, 4, 5])], ids=str)
def test_what_is_made_of_tied_tensors_in_the_same_way_is_tied(memory, options, values):
    first = write_tied(memory / 'consolidated.00.pth', 0, 1, 2, 3)
    files = {'OTHER': write_tied(memory / 'consolidated.01.pth', 4, 5, 6, 7), 'JOINED': write_tied(memory / 'joined.pth', *range(4))}
    weightfs('convert', '--join=.:0', first, files['JOINED'], '--overwrite')
    for word, path in files.items():
        options = [option.replace(word, str(path)) for option in options]
    weightfs('convert', *options, first, memory / 'out.pth')
    found = pth_read.tensors(pth_read.load(memory / 'out.pth'))
    form = '<%d%s' % (len(values), 'e' if '--cast=F16' in options else 'f')
    expected = {key: struct.pack(form, *values) for key in 'abc'}
    if '--average=b:%s' % files['OTHER'] in options:
        expected['a'] = expected['c'] = st.f32(0, 1, 2, 3)
    assert {key: one.data for key, one in found.items()} == expected
    with zipfile.ZipFile(memory / 'out.pth') as archive:
        assert len([name for name in archive.namelist() if '/data/' in name]) == (3 if expected['a'] != expected['b'] else 2)


@pytest.mark.parametrize('factors, options, is_tied', [
    ({'lm_head': 1, 'model.embed_tokens': 2}, [], False), ({'lm_head': 1}, [], True), ({'model.embed_tokens': 2}, ['--weight=2'], True),
    ({'lm_head': 2, 'model.embed_tokens': 2}, [], True)], ids=str)
def test_factors_for_names_of_one_tensor(memory, factors, options, is_tied):
    names = {'model.embed_tokens.weight': pth.tensor(size=(3, 2), stride=(2, 1)), 'lm_head.weight': pth.tensor(size=(3, 2), stride=(2, 1))}
    (memory / 'base.pth').write_bytes(pth.checkpoint(pth.dictionary(**names), r0=st.f32(*range(6))))
    (memory / 'adapter').mkdir()
    (memory / 'adapter/adapter_config.json').write_text(json.dumps({'peft_type': 'LORA', 'r': 1, 'lora_alpha': 1}))
    st.write(memory / 'adapter/adapter_model.safetensors', {
        'base_model.model.%s.lora_%s.weight' % (target, half): ('F32', shape, st.f32(*([factor] * max(shape))))
        for target, factor in factors.items() for half, shape in (('A', [1, 2]), ('B', [3, 1]))})
    done = weightfs('convert', *options, '--lora', memory / 'adapter', memory / 'base.pth', memory / 'out.pth', has_notices=True)
    told = "lm_head.weight: is not tied to 'model.embed_tokens.weight' any more: what is added to the two differs\n"
    assert (told in done.stderr) == (not is_tied) and done.stderr.count('\n') == (not is_tied)
    found = pth_read.tensors(pth_read.load(memory / 'out.pth'))
    both = {name: factors.get(name, max(factors.values())) ** 2 for name in ('lm_head', 'model.embed_tokens')}
    assert {key: one.data for key, one in found.items()} == {name + '.weight': st.f32(*((2 if options else 1) * i + part for i in range(6)))
                                                             for name, part in both.items()}
    with zipfile.ZipFile(memory / 'out.pth') as archive:
        assert len([name for name in archive.namelist() if '/data/' in name]) == (1 if is_tied else 2)


@pytest.mark.parametrize('form', ['safetensors', 'pth', 'bpk', 'mpk', 'gguf'])
def test_ranks_and_the_whole_in_every_format(memory, form):
    whole = write(memory, (0, .5, 1), dtype='F32')
    for rank in range(2):
        weightfs('convert', memory / ('consolidated.%02d.safetensors' % rank), memory / ('model_part-%d.%s' % (rank, form)), has_notices=True)
    first = memory / ('model_part-0.%s' % form)
    weightfs('convert', '--join=llama', first, memory / 'out.safetensors', has_notices=True)
    check(memory / 'out.safetensors', whole, 'F32')
    for target in ('out.pth', 'out.bpk', 'out.mpk', 'out.gguf', 'shards/', 'distributed'):
        options = {'shards/': ['--format=safetensors', '--max-shard-size=4K'], 'distributed': ['--format=dcp']}.get(target, [])
        weightfs('convert', *options, '--join=llama', first, '%s/%s' % (memory, target), has_notices=True)
        weightfs('convert', memory / target, memory / 'back.safetensors', '--overwrite', has_notices=True)
        check(memory / 'back.safetensors', whole, 'F32')


@pytest.mark.parametrize('form', ['safetensors', 'pth'])
def test_ranks_by_url(serve, folder, form):
    whole = write(folder, (0, .25, .5, 1))
    for rank in range(3) if form != 'safetensors' else ():
        weightfs('convert', folder / ('consolidated.%02d.safetensors' % rank), folder / ('consolidated.%02d.%s' % (rank, form)))
    server = serve(folder)
    url = server.url('consolidated.00.%s' % form)
    weightfs('convert', '--join=llama', url, folder / 'out.safetensors')
    check(folder / 'out.safetensors', whole)
    key = 'layers.0.attention.wo.weight'
    assert weightfs('cat', '--cache=none', '--join=llama', url, key).raw == merging.encode(whole[key], 'BF16')
    (folder / ('consolidated.01.%s' % form)).unlink()
    missing = weightfs('ls', '--cache=none', '--join=llama', url, code=3).error
    assert "there is no rank 1 beside '%s', which is rank 2" % server.url('consolidated.02.%s' % form) in missing


def by_url(serve, folder, kind, files, monkeypatch):
    """The names of the file of rank 0, and of the folder."""
    first, server = next(iter(files)), contextlib.nullcontext()
    if kind == 'http':
        for name, content in files.items():
            (folder / 'ranks' / name).parent.mkdir(exist_ok=True, parents=True)
            (folder / 'ranks' / name).write_bytes(content)
        nginx = serve(folder)
        names = nginx.url('ranks/' + first), nginx.url('ranks') + '/'
    else:
        server = BadServer(b'', default=Hub({'org/name': {COMMIT: files}}, COMMIT))
        monkeypatch.setenv('HF_ENDPOINT', server.origin)
        names = 'hf://org/name/' + first, 'hf://org/name'
    return names, server


@pytest.mark.parametrize('kind', ['http', 'hub'])
@pytest.mark.parametrize('pattern', ['consolidated.%02d.pth', 'mp_rank_%02d/model_optim_rng.pt', 'mp_rank_%02d_model_states.pt'])
def test_a_folder_of_ranks_by_url(serve, folder, monkeypatch, kind, pattern):
    monkeypatch.setenv('HF_HUB_CACHE', str(folder / 'none'))
    whole, files = write(folder, (0, .25, .5, 1)), {}
    for rank in range(3):
        weightfs('convert', '--format=pytorch', folder / ('consolidated.%02d.safetensors' % rank), folder / 'one', '--overwrite')
        files[pattern % rank] = (folder / 'one').read_bytes()
    names, server = by_url(serve, folder, kind, files, monkeypatch)
    with server:
        for name in names:
            weightfs('convert', '--cache=none', '--join=llama', name, folder / 'out.safetensors', '--overwrite')
            check(folder / 'out.safetensors', whole)
        # One rank is read where it is named; in place of the folder it would be a part for the whole.
        assert weightfs('ls', '--cache=none', names[0]).stdout.count('\n') == len(whole)
        error = weightfs('ls', '--cache=none', names[1], code=None).error
        assert "has a file for each rank of model parallelism: join=llama or join=REGEX:DIM reads them as one; or name '%s' in it" % (pattern % 0) in error


def test_a_folder_with_one_rank_by_url_is_that(serve, folder):
    write(folder, (0, 1))
    (folder / 'one').mkdir()
    weightfs('convert', folder / 'consolidated.00.safetensors', folder / 'one/consolidated.00.pth')
    url = serve(folder).url('one') + '/'
    assert weightfs('ls', '--cache=none', url).stdout == weightfs('ls', folder / 'one').stdout


@pytest.mark.skipif(not shared.IS_THERE, reason=shared.WHY_NOT)
def test_folders_as_programs_write_them():
    folder = shared.FOLDER / 'golden/layouts'
    whole = json.loads(weightfs('ls', '--json', '--join=llama', folder / 'meta-llama').stdout)
    assert {one['key']: one['shape'] for one in whole['tensors']} == {
        'tok_embeddings.weight': [8, 4], 'norm.weight': [4], 'layers.0.attention.wq.weight': [4, 4], 'layers.0.attention.wo.weight': [4, 4],
        'output.weight': [8, 4]}
    # These are the columns of a rank of their own.
    parts = [weightfs('cat', folder / 'meta-llama' / ('consolidated.%02d.pth' % rank), 'layers.0.attention.wo.weight').raw for rank in range(2)]
    joined = weightfs('cat', '--join=llama', folder / 'meta-llama', 'layers.0.attention.wo.weight').raw
    assert joined == b''.join(part[row * 4:row * 4 + 4] for row in range(4) for part in parts)
