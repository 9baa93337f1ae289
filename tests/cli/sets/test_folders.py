# SPDX-License-Identifier: MIT
"""Which file of a folder is its checkpoint: folders as libraries write them, told apart by the names in them."""
import fnmatch
import hashlib
import json
import os

import pytest

from wfs_testlib import dcp, program, pth, shared, st
from wfs_testlib.program import weightfs

TENSOR = ('F32', [1], st.f32(1))


def make(folder, names):
    """Files by their names; the one tensor of each is called after its file. Pickles are of a state without tensors."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        stem = name.replace('/', '-').replace('.', '-')
        if name.endswith('.index.json'):
            shard = name.removesuffix('.index.json').replace('.', '-00001-of-00001.')
            make(folder, [shard])
            path.write_text(json.dumps({'weight_map': {shard.replace('.', '-'): os.path.basename(shard)}}))
        elif name.endswith('.safetensors'):
            st.write(path, {stem: TENSOR})
        elif name.endswith('.distcp'):
            writer = dcp.Writer(path.parent)
            writer.value('step', pth.number(1))
            writer.write()
        elif name.endswith(('.bin', '.pt', '.pth', '.ckpt', '.pkl')):
            path.write_bytes(pth.checkpoint(pth.dictionary(epoch=pth.number(1))) if folder_state(name) else
                             pth.checkpoint(pth.dictionary(**{stem: pth.tensor()})))
        else:
            path.write_text('x')


def folder_state(name):
    return os.path.basename(name).startswith(('scheduler', 'rng_state', 'random_states', 'training_args', 'optimizer', 'custom'))


def keys(*args):
    return [line.split('\t')[0] for line in weightfs('ls', *args).stdout.splitlines()]


STATE = ['optimizer.bin', 'scheduler.bin', 'random_states_0.pkl']
SHARDS = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']

# what is taken, and what lies beside it
TAKEN = [
    ('model.safetensors', [*STATE, 'custom_checkpoint_0.pkl']),
    ('model.safetensors', ['optimizer.pt', 'scheduler.pt', 'rng_state.pth', 'training_args.bin', 'trainer_state.json']),
    ('model.safetensors', ['pytorch_model.bin']),
    ('model.safetensors', ['model.safetensors.index.json']),  # transformers takes the whole file
    ('model.safetensors', ['model.fp16.safetensors']),
    ('model.safetensors', ['pytorch_model.bin.index.json']),
    ('diffusion_pytorch_model.safetensors', ['diffusion_pytorch_model.bin']),
    ('pytorch_model.bin', STATE),
    ('adapter_model.safetensors', ['training_args.bin', 'adapter_config.json']),
    ('pytorch_lora_weights.safetensors', STATE),
    ('other.safetensors', STATE),
    ('model.pth', ['dvae.pth', 'mel_stats.pth', 'speakers_xtts.pth']),
]


@pytest.mark.parametrize('taken, beside', TAKEN)
def test_the_file_that_the_library_loads_is_the_checkpoint_and_the_rest_is_named(tmp_path, taken, beside):
    make(tmp_path, [taken, *beside])
    assert keys(tmp_path) == [taken.replace('.', '-')]
    text = ' '.join(finding['text'] for finding in json.loads(weightfs('check', '--json', tmp_path).stdout)['sources'][0]['findings'])
    assert all("'%s'" % name in text for name in beside if not name.endswith('.json') or 'index' in name)
    assert 'not read' in text


def test_diffusers_takes_an_index_before_a_whole_file(tmp_path):
    make(tmp_path, ['diffusion_pytorch_model.safetensors', 'diffusion_pytorch_model.safetensors.index.json'])
    assert keys(tmp_path) == ['diffusion_pytorch_model-00001-of-00001-safetensors']


def test_a_link_to_the_newest_checkpoint_is_not_a_second_one(tmp_path):
    make(tmp_path, ['epoch_2.pth'])
    (tmp_path / 'latest.pth').symlink_to('epoch_2.pth')
    assert keys(tmp_path) == ['epoch_2-pth']


# the files of a folder, and what the message about it names
REFUSED = [
    ([*STATE, 'unet/diffusion_pytorch_model.safetensors'], ["'unet/'"]),
    (['scheduler.pt', 'pytorch_model_fsdp_0/__0_0.distcp', 'optimizer_0/__0_0.distcp'], ['pytorch_model_fsdp_0']),
    (['model.bin', 'vocabulary.json'], ['CTranslate2']),
    (['model.onnx', 'weights.bin'], ['ONNX']),
    (['config.cfg', 'vocab/x', 'tok2vec/model.bin'], ['spaCy']),
    (['last.pth.tar', 'model_best.pth.tar', 'args.yaml'], ["'last.pth.tar'", "'model_best.pth.tar'"]),
    (['latest', 'global_step10/mp_rank_00_model_states.pt', 'global_step10/zero_pp_rank_0_mp_rank_00_optim_states.pt'], ['DeepSpeed']),
    (['mp_rank_00_model_states.pt', 'zero_pp_rank_0_mp_rank_00_optim_states.pt'], ['DeepSpeed', "'mp_rank_00_model_states.pt'"]),
    (['common.pt', 'metadata.json', 'w/.zarray'], ['zarr']),
    (['checkpoints/checkpoint_%d/model.safetensors' % i for i in range(12)], ["'checkpoints/checkpoint_0/'", "'checkpoints/checkpoint_11/'", '8 more']),
    (['epoch=0.ckpt/__0_0.distcp'], ["'epoch=0.ckpt/'"]),
    (['weights/best.pt', 'weights/last.pt'], ["'weights/'"]),
    (['scheduler.pt'], ["'scheduler.pt'", 'state of a training run']),
    (['model.safetensors', 'model_1.safetensors', 'optimizer.bin', 'optimizer_1.bin'], ["'model.safetensors'", "'model_1.safetensors'"]),
    (['consolidated.00.pth', 'consolidated.01.pth', 'params.json'], ["'consolidated.00.pth'", "'consolidated.01.pth'"]),
    (['model.onnx'], ['ONNX']),
]


@pytest.mark.parametrize('names, words', REFUSED)
def test_a_folder_without_one_checkpoint_is_refused_and_what_it_has_is_named(tmp_path, names, words):
    make(tmp_path, names)
    for verb in ('ls', 'check', 'info'):
        error = weightfs(verb, tmp_path, code=None).error
        assert all(word in error for word in words), error
        assert "'optimizer.bin'" not in error and 'the option shards' not in error
    out = tmp_path.parent / 'out.safetensors'
    weightfs('convert', tmp_path, out, code=None)
    assert not out.exists()


@pytest.mark.parametrize('name', ['any.pt', 'pytorch_model.bin', 'model.safetensors'])
def test_a_file_without_tensors_is_never_the_checkpoint_of_a_folder(tmp_path, name):
    folder = tmp_path / 'folder'
    folder.mkdir()
    if name.endswith('.safetensors'):
        st.write(folder / name, {})
    else:
        (folder / name).write_bytes(pth.checkpoint(pth.dictionary(epoch=pth.number(1))))
    assert "'%s' has no tensors" % name in weightfs('ls', folder, code=program.EXIT_SOURCE).error
    weightfs('ls', folder / name)


def test_files_beside_a_distributed_checkpoint_are_named(tmp_path):
    make(tmp_path, ['__0_0.distcp', 'other.pt'])
    assert "'other.pt'" in weightfs('check', tmp_path).stdout


@pytest.mark.parametrize('name', ['consolidated.00.pth', 'model.safetensors'])
def test_one_file_that_is_not_of_a_series_is_no_shard(tmp_path, name):
    make(tmp_path, ['consolidated.00.pth', 'consolidated.01.pth', 'model.safetensors'])
    for verb in (['ls'], ['convert']):
        target = [tmp_path / 'out.safetensors'] if verb == ['convert'] else []
        assert 'numbers' in weightfs(*verb, '--shards', tmp_path / name, *target, code=program.EXIT_USAGE).error
    assert not (tmp_path / 'out.safetensors').exists()


def test_an_index_of_another_export_names_the_way_around_it(tmp_path):
    make(tmp_path, SHARDS)
    (tmp_path / 'model.safetensors.index.json').write_text(json.dumps({'weight_map': {'w': 'model-00001-of-00030.safetensors'}}))
    error = weightfs('ls', tmp_path, code=program.EXIT_SOURCE).error
    assert "--shards '%s'" % (tmp_path / SHARDS[0]) in error
    assert keys('--shards', tmp_path / SHARDS[0]) == [name.replace('.', '-') for name in SHARDS]


def test_an_index_is_not_written_where_another_file_would_be_read_in_its_place(tmp_path):
    make(tmp_path, ['other/a.safetensors', 'out/model.safetensors'])
    error = weightfs('convert', '--max-shard-size=1MB', tmp_path / 'other', str(tmp_path / 'out') + '/', code=None).error
    assert "'model.safetensors'" in error and os.listdir(tmp_path / 'out') == ['model.safetensors']
    assert keys(tmp_path / 'out') == ['out-model-safetensors']


@pytest.mark.parametrize('is_set', [False, True])
def test_a_damaged_file_of_the_cache_is_found_by_its_name(tmp_path, is_set):
    entry = tmp_path / 'models--o--n'
    snapshot = entry / 'snapshots/abc'
    make(snapshot, SHARDS if is_set else ['model.safetensors'])
    (entry / 'blobs').mkdir()
    for path in sorted(snapshot.iterdir()):
        content = path.read_bytes()
        blob = entry / 'blobs' / hashlib.sha256(content).hexdigest()
        blob.write_bytes(content)
        path.unlink()
        path.symlink_to('../../blobs/' + blob.name)
    assert weightfs('check', snapshot).stdout == ''
    blob.write_bytes(content[:-1] + b'x')
    assert 'SHA-256' in weightfs('check', snapshot, code=1).stdout


@pytest.mark.skipif(not shared.IS_THERE, reason=shared.WHY_NOT)
def test_folders_of_the_real_libraries_are_read_as_these_read_them():
    """golden/layouts: what the loader of the library itself took. Folders that need links are left out where links are not kept."""
    folder = shared.FOLDER / 'golden/layouts'
    expected = json.loads((folder / 'expected.json').read_text())
    wrong = []
    for name, entry in expected.items():
        result = weightfs('sum', '--json', '--', folder / name, code=None)
        if result.code != 0:
            continue
        found = {t['key']: [t['dtype'], t['shape'], t['sha256']] for t in json.loads(result.stdout)['sources'][0]['tensors']}
        more = [key for key in found if key not in entry.get('tensors', {}) and not any(fnmatch.fnmatchcase(key, m) for m in entry.get('more_tensors', ()))]
        parts = list(entry.get('part_tensors', {}).values()) if 'open-part' in entry['accept'] else []
        latest = expected.get('%s/%s' % (name, entry.get('latest')), {}).get('tensors')
        is_right = 'open' in entry['accept'] and not more and all(found.get(key) == value for key, value in entry['tensors'].items())
        pipeline = {'%s.%s' % (part, key): value for part, tensors in entry.get('part_tensors', {}).items() for key, value in tensors.items()}
        if not (is_right or found in parts or (found and found == pipeline) or ('open-latest' in entry['accept'] and found == latest)):
            wrong.append(name)
    assert wrong == []
