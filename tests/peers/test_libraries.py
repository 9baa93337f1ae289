# SPDX-License-Identifier: MIT
"""
Adapters that the real libraries train and merge, and merges of mergekit, beside what weightfs computes from the same files. tools/test --peers
installs the libraries in build/peers/libraries, or names their folder in WFS_LIBRARIES.
"""
import os
import pathlib
import subprocess

import numpy
import pytest

from wfs_testlib import merging, program
from wfs_testlib.program import weightfs

pytestmark = pytest.mark.peers
HERE = pathlib.Path(__file__).parent / 'libraries'
LIBRARIES = pathlib.Path(os.environ.get('WFS_LIBRARIES') or program.ROOT / 'build/peers/libraries')
FLOATS, HALVES = ('float32',), ('float32', 'bfloat16', 'float16')
BOTH = HALVES[:2]

ADAPTERS = {'llama': HALVES, 'llama-rslora-head': BOTH, 'llama-dora': BOTH, 'llama-embedding': BOTH, 'llama-loha': BOTH, 'llama-lokr': BOTH,
            'llama-ia3': BOTH, 'llama-oft': BOTH, 'llama-vera': BOTH, 'llama-adalora': BOTH, 'mixtral': BOTH, 'mixtral-experts': BOTH,
            'gpt2': HALVES, 'gpt2-embedding': BOTH, 'whisper': BOTH}
# In 16 bits, by peft; of others one element in a thousand may differ.
ROUNDED_TWICE = ('llama-embedding', 'gpt2-embedding', 'mixtral-experts', 'llama-adalora')
# Their sums have other terms than those of absolute values.
OTHER_TERMS = ('dora', 'oft', 'vera', 'lycoris')
IMAGES = {'unet-peft': BOTH, 'unet-kohya': BOTH, 'flux-kohya': BOTH, 'unet-lycoris-locon': FLOATS, 'unet-lycoris-lokr': FLOATS}


def make(tmp_path_factory, script):
    if not (LIBRARIES / 'complete').exists():
        pytest.skip('no libraries in %s: tools/test --peers gets them' % LIBRARIES)
    folder = tmp_path_factory.mktemp('made')
    environment = {**os.environ, 'LD_LIBRARY_PATH': str(LIBRARIES / 'empty'), 'HF_HUB_OFFLINE': '1', 'PYTHONDONTWRITEBYTECODE': '1'}
    done = subprocess.run([LIBRARIES / 'bin/python', HERE / script, folder], env=environment, stdin=subprocess.DEVNULL, timeout=900, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    return folder


@pytest.fixture(scope='module')
def adapters(tmp_path_factory):
    return make(tmp_path_factory, 'make_adapters.py')


@pytest.fixture(scope='module')
def images(tmp_path_factory):
    return make(tmp_path_factory, 'make_images.py')


@pytest.fixture(scope='module')
def merges(tmp_path_factory):
    return make(tmp_path_factory, 'make_merges.py')


def cases(table):
    return [pytest.param(name, dtype, id='%s-%s' % (name, dtype)) for name, dtypes in table.items() for dtype in dtypes]


def half_ulp(values, dtype):
    return merging.rounded(values, dtype)[1] / 2


def compare(ours, theirs, terms, n_float, n_half):
    """Within n_float * 2^-24 of the sum of the terms, or n_half halves of the distance of two neighbours there. Returns how many elements
    differ, and how many there are."""
    n_different = n = 0
    assert set(ours) == set(theirs)
    for key, (dtype, found) in ours.items():
        assert dtype == theirs[key][0] and found.shape == theirs[key][1].shape, key
        bound = n_float * 2.0 ** -24 * terms[key] if dtype == 'F32' else n_half * half_ulp(terms[key], dtype)
        assert (numpy.abs(found - theirs[key][1]) <= bound).all(), key
        n_different += int((found != theirs[key][1]).sum())
        n += found.size
    return n_different, n


def merged(folder, name, option, file):
    """What weightfs and the library make of a case, and the sums of the terms."""
    out = folder / 'out.safetensors'
    weightfs('convert', option, folder / 'base', out, has_notices=True)
    ours, theirs, base = (merging.arrays(path) for path in (out, folder / 'merged' / file, folder / 'base' / file))
    assert any((ours[key][1] != one).any() for key, (_, one) in base.items() if ours[key][1].shape == one.shape)
    if any(word in name for word in OTHER_TERMS):
        return ours, theirs, {key: 8 * numpy.abs(one).max() for key, (_, one) in theirs.items()}
    return ours, theirs, {key: one for key, (_, one) in merging.arrays(folder / 'terms' / file).items()}


@pytest.mark.parametrize('name, dtype', cases(ADAPTERS))
def test_adapters_of_peft(adapters, name, dtype):
    folder = adapters / ('%s-%s' % (name, dtype))
    n_different, n = compare(*merged(folder, name, '--lora=%s' % (folder / 'adapter'), 'model.safetensors'), 5, 2)
    assert dtype == 'float32' or name in ROUNDED_TWICE or n_different <= n / 1000


@pytest.mark.parametrize('name, dtype', cases(IMAGES))
def test_adapters_of_diffusers_kohya_and_lycoris(images, name, dtype):
    folder = images / ('%s-%s' % (name, dtype))
    adapter, = folder.glob('*.safetensors')
    compare(*merged(folder, name, '--lora=%s:0.7' % adapter, 'diffusion_pytorch_model.safetensors'), 5, 4)


MERGES = {'linear': (['--average={two}:0.5', '--average={three}:2'], (1, .5, 2)),
          'linear-by-key': (['--average=mlp:{two}:3', '--average=!mlp:{two}:0.25'], (1, 3, 0)),
          'slerp': (['--slerp={two}:0.3'], (1, 1, 0)),
          'task': (['--task={two}:0.4', '--task={three}:-0.7'], (2.1, .4, .7))}


@pytest.mark.parametrize('dtype', HALVES)
@pytest.mark.parametrize('name', MERGES)
def test_merges_of_mergekit(merges, tmp_path, name, dtype):
    options, weights = MERGES[name]
    folders = {each: merges / dtype / each for each in ('one', 'two', 'three')}
    weightfs('convert', *(option.format(**folders) for option in options), folders['one'], tmp_path / 'out.safetensors')
    models = [merging.arrays(folder / 'model.safetensors') for folder in folders.values()]
    terms = {key: sum(weight * numpy.abs(model[key][1]) for weight, model in zip(weights, models)) for key in models[0]}
    file, = (merges / dtype / name).glob('*.safetensors')
    compare(merging.arrays(tmp_path / 'out.safetensors'), merging.arrays(file), terms, 4, 4 if name == 'task' else 2)  # rounded five times
