# SPDX-License-Identifier: MIT
"""Pipelines of diffusers: one tree with a folder for each model, and each model a checkpoint with its own file when it is written."""
import json
import os
import shutil

import pytest

from wfs_testlib import pth_read, sets, shared, st, trace
from wfs_testlib.program import COMMAND, EXIT_COMMIT, EXIT_SOURCE, ROOT, tool, weightfs

CLASSES = {'unet': ['diffusers', 'UNet2DConditionModel'], 'vae': ['diffusers', 'AutoencoderKL'], 'text_encoder': ['transformers', 'CLIPTextModel']}
INDEX = {'_class_name': 'StableDiffusionPipeline', '_diffusers_version': '0.42.1', **CLASSES, 'image_encoder': [None, None],
         'requires_safety_checker': True, 'scheduler': ['diffusers', 'DDIMScheduler'], 'tokenizer': ['transformers', 'CLIPTokenizer'],
         'feature_extractor': ['transformers', 'CLIPImageProcessor']}
FILES = {'unet': 'diffusion_pytorch_model.safetensors', 'text_encoder': 'model.safetensors'}
SHARDS = [{'decoder.a': ('U8', [4], b'abcd')}, {'decoder.b': ('F32', [2], st.f32(1, 2))}]


def tensors_of(name):
    return {'conv.weight': ('F32', [2, 2], st.f32(1, 2, 3, len(name))), 'conv.bias': ('F32', [2], st.f32(5, 6))}


@pytest.fixture
def pipeline(folder):
    """unet and text_encoder in one file each, vae in two shards; a scheduler and a tokenizer without tensors, and a file that is none of it."""
    top = folder / 'pipeline'
    for name, file in FILES.items():
        (top / name).mkdir(parents=True)
        st.write(top / name / file, tensors_of(name), {'format': 'pt', 'of': name})
    for name in ('scheduler', 'tokenizer'):
        (top / name).mkdir()
        (top / name / 'config.json').write_text('{}')
    sets.write(top / 'vae', SHARDS)
    (top / 'model_index.json').write_text(json.dumps(INDEX))
    return top


def everything():
    whole = {'%s.%s' % (name, key): value for name in FILES for key, value in tensors_of(name).items()}
    return {**whole, **{'vae.' + key: value for shard in SHARDS for key, value in shard.items()}}


def shown(*args):
    """{key: (dtype, shape, SHA-256)}."""
    return {t['key']: (t['dtype'], t['shape'], t['sha256']) for t in json.loads(weightfs('sum', '--json', *args).stdout)['sources'][0]['tensors']}


def written(path):
    return {str(one.relative_to(path)): one.read_bytes() for one in sorted(path.rglob('*')) if one.is_file()}


def test_a_pipeline_is_one_tree(pipeline, folder):
    whole = st.write(folder / 'whole.safetensors', everything())
    assert shown(pipeline) == shown(pipeline / 'model_index.json') == shown(whole)
    lines = weightfs('ls', '--tree', pipeline).stdout
    assert all(name in lines for name in CLASSES) and 'scheduler' not in lines
    assert 'diffusers pipeline' in weightfs('info', pipeline).stdout
    (pipeline / 'unet' / 'config.json').write_text('{"_class_name": "Part"}')
    assert 'StableDiffusionPipeline (model_index.json)' in weightfs('info', pipeline).stdout
    assert weightfs('check', pipeline).stdout == ''
    st.write(pipeline / 'v1.safetensors', {'x': ('U8', [1], b'x')})
    assert "'v1.safetensors'" in weightfs('check', pipeline).stdout
    assert weightfs('cat', pipeline, 'vae.decoder.a').raw == b'abcd'


def test_each_model_is_written_as_a_checkpoint_of_its_own(pipeline, folder):
    out = folder / 'out'
    weightfs('convert', pipeline, str(out) + '/')
    before = {name: content for name, content in written(pipeline).items() if 'config' not in name}
    after = written(out)
    assert set(after) == set(before) and all(after[name] == before[name] for name in before if not name.endswith('.index.json'))
    assert shown(out) == shown(pipeline)


def test_an_existing_pipeline_is_replaced_only_when_told_so(pipeline, folder):
    out = str(folder / 'out') + '/'
    weightfs('convert', pipeline, out)
    before = written(folder / 'out')
    weightfs('convert', '--cast=F16', pipeline, out, code=EXIT_COMMIT)
    assert written(folder / 'out') == before
    weightfs('convert', '--cast=F16', '--overwrite', pipeline, out)
    assert {dtype for dtype, _, _ in shown(out).values()} == {'F16', 'U8'}
    assert shown(out) == shown('--cast=F16', pipeline)


def test_the_files_have_the_names_that_their_library_looks_for(pipeline, folder):
    weightfs('convert', '--format=pytorch', pipeline, str(folder / 'out') + '/', has_notices=True)
    assert {name for name in written(folder / 'out') if not name.startswith('vae')} == {
        'model_index.json', 'unet/diffusion_pytorch_model.bin', 'text_encoder/pytorch_model.bin'}
    assert shown(folder / 'out') == shown(pipeline)
    assert set(pth_read.tensors(pth_read.load(folder / 'out/unet/diffusion_pytorch_model.bin'))) == set(tensors_of('unet'))


def test_files_of_several_formats_become_files_of_one(pipeline, folder):
    weightfs('convert', pipeline / 'unet', folder / 'unet.pth')
    os.remove(pipeline / 'unet' / FILES['unet'])
    os.rename(folder / 'unet.pth', pipeline / 'unet/diffusion_pytorch_model.bin')
    weightfs('convert', pipeline, str(folder / 'out') + '/', has_notices=True)
    assert set(st.read(folder / 'out/unet' / FILES['unet']).tensors) == set(tensors_of('unet'))
    assert shown(folder / 'out') == shown(pipeline)


def test_a_file_that_would_be_read_in_place_of_a_new_one_is_an_error_before_anything_is_written(pipeline, folder):
    shutil.copytree(pipeline, folder / 'out')
    before = written(folder / 'out')
    error = weightfs('convert', '--format=pytorch', '--overwrite', pipeline, str(folder / 'out') + '/', code=EXIT_COMMIT).error
    assert "component 'unet' of the pipeline: '%s' in the directory would be read" % FILES['unet'] in error
    assert written(folder / 'out') == before


def test_what_is_replaced_is_kept_where_that_is_asked(pipeline, folder):
    out = str(folder / 'out') + '/'
    weightfs('convert', pipeline, out)
    before = written(folder / 'out')
    weightfs('convert', '--cast=F16', '--overwrite', '--backup=simple', pipeline, out)
    after = written(folder / 'out')
    assert all(after[name + '~'] == before[name] for name in ('model_index.json', 'unet/' + FILES['unet'], 'vae/' + sets.INDEX))


def test_a_size_makes_shards_of_what_is_larger(pipeline, folder):
    weightfs('convert', '--max-shard-size=20', pipeline, str(folder / 'out') + '/')
    files = set(written(folder / 'out'))
    assert 'unet/diffusion_pytorch_model.safetensors.index.json' in files and 'vae/model.safetensors' in files
    assert shown(folder / 'out') == shown(pipeline)


def test_one_file_gets_all_of_it(pipeline, folder):
    weightfs('convert', pipeline, folder / 'one.safetensors')
    assert st.read(folder / 'one.safetensors').tensors == everything()


def test_metadata_of_no_component_is_for_all_of_them(pipeline, folder):
    weightfs('convert', '--set-metadata', 'by=me', '--set-metadata', 'unet.of=other', pipeline, str(folder / 'out') + '/')
    assert st.read(folder / 'out/unet' / FILES['unet']).metadata == {'format': 'pt', 'of': 'other', 'by': 'me'}
    assert st.read(folder / 'out/text_encoder' / FILES['text_encoder']).metadata == {'format': 'pt', 'of': 'text_encoder', 'by': 'me'}


def test_a_tensor_outside_of_the_components_has_no_place(pipeline, folder):
    error = weightfs('convert', '--remap', '^unet=>other', pipeline, str(folder / 'out') + '/', code=None).error
    assert "'other.conv" in error and 'none of the components' in error and not (folder / 'out').exists()
    error = weightfs('convert', '--exclude', '^unet', pipeline, str(folder / 'out') + '/', code=None).error
    assert "component 'unet' of the pipeline has no tensors left" in error and not (folder / 'out').exists()


def test_a_component_that_cannot_be_read_is_named(pipeline):
    (pipeline / 'unet' / FILES['unet']).write_bytes(b'x' * 100)
    assert "component 'unet' of the pipeline: " in weightfs('ls', pipeline, code=None).error
    assert 'unet' not in weightfs('ls', '--force', pipeline).stdout
    assert 'vae.decoder.a' in weightfs('ls', '--force', pipeline).stdout


def test_a_pipeline_in_a_pipeline_is_refused(pipeline):
    (pipeline / 'image_encoder').symlink_to('.')
    (pipeline / 'model_index.json').write_text(json.dumps({'image_encoder': ['x', 'Y']}))
    assert 'is a pipeline in a pipeline' in weightfs('ls', pipeline, code=None).error


REJECT = sorted((ROOT / 'tests/data/reject/pipeline').glob('*.json'))


@pytest.mark.parametrize('path', REJECT, ids=lambda path: path.stem)
def test_an_index_that_is_wrong_is_a_message(folder, path):
    (folder / 'model_index.json').write_bytes(path.read_bytes())
    assert path.with_suffix('.expect').read_text().strip() in weightfs('ls', folder, code=None).error
    weightfs('ls', '--force', folder, code=None).error  # one line, too


def test_an_index_may_not_be_large(folder):
    (folder / 'model_index.json').write_bytes(b' ' * ((1 << 20) + 1))
    assert 'more than 1 MiB' in weightfs('ls', folder, code=None).error


PIPELINES = ['diffusers-sd', 'diffusers-sd-both-formats', 'diffusers-sd-with-single-file', 'diffusers-sd3-sharded', 'diffusers-sdxl-variants']


@pytest.mark.skipif(not shared.IS_THERE, reason=shared.WHY_NOT)
@pytest.mark.parametrize('name', PIPELINES)
def test_pipelines_of_the_real_library_have_what_their_parts_have(folder, name):
    path = shared.FOLDER / 'golden/layouts' / name
    parts = json.loads((shared.FOLDER / 'golden/layouts/expected.json').read_text())[name]['part_tensors']
    expected = {'%s.%s' % (part, key): tuple(value) for part, tensors in parts.items() for key, value in tensors.items()}
    assert {key: (dtype, shape, digest) for key, (dtype, shape, digest) in shown(path).items()} == expected
    weightfs('convert', path, str(folder / 'out') + '/')
    assert shown(folder / 'out') == shown(path)
    for part in parts:
        assert shown(folder / 'out' / part) == shown(path / part)


def test_a_folder_without_the_file_that_describes_it_is_not_a_pipeline(pipeline):
    os.remove(pipeline / 'model_index.json')
    assert "'unet/'" in weightfs('ls', pipeline, code=EXIT_SOURCE).error


@trace.NEEDS_STRACE[0]
@trace.NEEDS_STRACE[1]
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason='needs two processors')
def test_the_parts_are_written_by_all_threads(pipeline, folder):
    st.write(pipeline / 'unet' / FILES['unet'], {'w%d' % i: ('F32', [1 << 20], st.f32(i) * (1 << 20)) for i in range(16)})
    tool('strace', '-f', '-qq', '-o', folder / 'trace', '-e', 'trace=pwrite64', *COMMAND, 'convert', '--format=safetensors', '--cast=F16', pipeline, str(folder / 'out') + '/')
    assert len({call.pid for call in trace.calls(folder / 'trace')}) > 1
    assert shown(folder / 'out') == shown('--cast=F16', pipeline)
