# SPDX-License-Identifier: MIT
"""Mounts of pipelines of diffusers: a folder for each model, and a commit that writes each model as a checkpoint of its own."""
import json
import os

import pytest

from wfs_testlib import sets, st
from wfs_testlib.hub_server import keep
from wfs_testlib.program import EXIT_USAGE, weightfs

COMMIT = 'a' * 40


@pytest.fixture
def pipeline(folder):
    top = folder / 'pipeline'
    (top / 'unet').mkdir(parents=True)
    st.write(top / 'unet/diffusion_pytorch_model.safetensors', {'conv.weight': ('U8', [4], b'abcd')}, {'format': 'pt', 'of': 'unet'})
    sets.write(top / 'vae', [{'a': ('U8', [4], b'1234')}, {'b': ('U8', [4], b'5678')}])
    (top / 'model_index.json').write_text(json.dumps({'unet': ['diffusers', 'A'], 'vae': ['diffusers', 'B'], 'scheduler': ['diffusers', 'XScheduler']}))
    return top


def tensors(path):
    return {key: value[2] for key, value in st.read(path).tensors.items()}


def test_a_commit_writes_each_model_as_its_own_checkpoint(pipeline, mount, folder):
    out = folder / 'out'
    out.mkdir()
    mnt = mount(pipeline, 'output=%s/' % out)
    assert sorted(os.listdir(mnt.path)) == ['unet', 'vae']
    (mnt / 'unet/conv/weight').write_bytes(b'ABCD')
    (mnt / 'vae/a').rename(mnt / 'vae/c')
    mnt.unmount()
    assert tensors(out / 'unet/diffusion_pytorch_model.safetensors') == {'conv.weight': b'ABCD'}
    assert st.read(out / 'unet/diffusion_pytorch_model.safetensors').metadata == {'format': 'pt', 'of': 'unet'}
    index = json.loads((out / 'vae/model.safetensors.index.json').read_text())['weight_map']
    assert set(index) == {'b', 'c'} and tensors(out / 'vae' / index['c']) == {'c': b'1234'}
    assert (out / 'model_index.json').read_bytes() == (pipeline / 'model_index.json').read_bytes()
    assert os.stat(out / 'unet/diffusion_pytorch_model.safetensors').st_mode & 0o777 == os.stat(out / 'model_index.json').st_mode & 0o777
    second = mount(pipeline, 'output=%s/' % out, 'overwrite')
    (second / 'unet/conv/weight').write_bytes(b'xyzw')
    second.unmount()
    assert tensors(out / 'unet/diffusion_pytorch_model.safetensors') == {'conv.weight': b'xyzw'}
    assert [name for path in [out, out / 'unet', out / 'vae'] for name in os.listdir(path) if name.startswith('.')] == []


def test_a_tensor_outside_of_the_models_fails_the_commit_and_keeps_the_edits(pipeline, mount, folder):
    mnt = mount(pipeline, 'output=%s/' % (folder / 'out'))
    os.mkdir(mnt / 'other')
    (mnt / 'unet/conv/weight').rename(mnt / 'other/weight')
    mnt.allow('none of the components').commit(code=1)
    assert 'none of the components' in (mnt / '.weightfs/status.json').read_text()
    (mnt / 'other/weight').rename(mnt / 'unet/conv/weight')
    mnt.commit()
    mnt.unmount()


def test_the_source_itself_is_not_replaced(pipeline, folder):
    assert 'cannot replace a pipeline' in weightfs(pipeline, folder / 'mnt', '-o', 'rw', code=EXIT_USAGE).error


def test_a_pipeline_in_the_cache_of_the_hub_is_mounted(pipeline, mount, folder, monkeypatch):
    keep(folder / 'hub', 'org/name', COMMIT, {str(path.relative_to(pipeline)): path.read_bytes() for path in pipeline.rglob('*') if path.is_file()})
    monkeypatch.setenv('HF_HUB_CACHE', str(folder / 'hub'))
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    mnt = mount('hf://org/name')
    assert (mnt / 'vae/b').read_bytes() == b'5678' and (mnt / 'unet/conv/weight').read_bytes() == b'abcd'
