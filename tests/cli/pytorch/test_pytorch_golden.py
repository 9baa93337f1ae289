# SPDX-License-Identifier: MIT
"""PyTorch files of other programs: every tensor and every value, against what PyTorch read from them."""
import hashlib
import json
import os

import pytest

from wfs_testlib import pth_expected, shared
from wfs_testlib.program import EXIT_DAMAGED, EXIT_FOREIGN, EXIT_UNSUPPORTED, listing, weightfs

pytestmark = pytest.mark.usefixtures('need_shared')

MANY = 60  # tensors of one file whose bytes are read; the others are only listed

REFUSED = {
    'broken.pt': (EXIT_FOREIGN, "begins with 'abc'"),
    'flatbuffer.ptl': (EXIT_UNSUPPORTED, 'flatbuffer'),
    'legacy-truncated.pth': (EXIT_DAMAGED, 'ends 10 bytes before storage'),
    'nul-key.pth': (EXIT_UNSUPPORTED, 'NUL'),
    'prefix.pth': (EXIT_FOREIGN, 'not a PyTorch file'),
    'truncated.pth': (EXIT_DAMAGED, 'cut off at 2522 bytes'),
}
FILES = pth_expected.files()
READABLE = [file for file in FILES if file[1].name not in REFUSED]


def identify(value):
    return value[0].replace('/', '-')


def config(path):
    return json.loads(weightfs('config', path).stdout)


def read(path, key):
    return weightfs('cat', path, '--', os.fsdecode(key.encode('utf-8', 'surrogatepass'))).raw


@pytest.mark.parametrize('file', shared.each(READABLE, identify))
def test_every_tensor_is_listed_and_has_its_bytes(file):
    name, path, expected = file
    found = listing(path)
    tensors = {key: entry for key, entry in expected.get('tensors', {}).items()
               if (name, key) not in pth_expected.NOT_THE_SAME}
    if name in pth_expected.ENDLESS:
        tensors = {key: entry for key, entry in tensors.items() if key in found}
        assert set(tensors) == {'loop.0', 't'}
    if name == 'surrogate-key.pth':  # in JSON a character that is none is written as an escape
        found = {key if key in tensors else '\ud800x': entry for key, entry in found.items()}
    if name not in pth_expected.WALKED_FURTHER:
        assert sorted(set(found) - set(tensors) - {key for _, key in pth_expected.NOT_THE_SAME}) == sorted(pth_expected.extra(name))
    assert {key: (found[key]['dtype'], found[key]['shape']) for key in tensors} == {
        key: (pth_expected.dtype(entry['dtype']), entry['shape']) for key, entry in tensors.items()}
    for key, entry in list(tensors.items())[:MANY]:
        if entry['sha256']:
            assert found[key]['bytes'] == entry['nbytes'], key
            assert hashlib.sha256(read(path, key)).hexdigest() == entry['sha256'], key


@pytest.mark.parametrize('file', shared.each([file for file in READABLE if file[2].get('other')], identify))
def test_every_value_is_in_the_json(file):
    name, path, expected = file
    values = config(path)
    for key, text in expected['other'].items():
        if text == '<deep>' or key == '' or (name, key) in pth_expected.OPENED:
            continue
        value = pth_expected.find(values, key)
        assert pth_expected.is_shown(value, text) or text.startswith('ndarray'), (key, value, text)


@pytest.mark.parametrize('name', REFUSED)
def test_what_cannot_be_read_is_refused_with_the_reason(name):
    path, = [path for _, path, _ in FILES if path.name == name]
    code, words = REFUSED[name]
    assert words in weightfs('ls', path, code=code).error


def test_force_shows_what_is_left_of_a_cut_stream():
    path = shared.FOLDER / 'golden/torch/legacy-truncated.pth'
    whole = dict((name, entry) for name, _, entry in FILES)['legacy-state-dict.pth']['tensors']
    found = json.loads(weightfs('ls', '--force', '--json', path).stdout)['tensors']
    assert {tensor['key'] for tensor in found} == set(whole)
    results = {key: weightfs('cat', '--force', path, '--', key, code=None) for key in whole}
    cut = [key for key, result in results.items() if result.code]
    assert cut and len(cut) < len(whole)
    for key, entry in whole.items():
        if key in cut:
            assert 'ends 10 bytes before storage' in results[key].error
        else:
            assert hashlib.sha256(results[key].raw).hexdigest() == entry['sha256']


@pytest.mark.parametrize('name', ['state-dict.pth', 'training.pth', 'legacy-state-dict.pth', 'rezip-deflate.pth', 'script.pt',
                                  'package.pt', 'module.pth', 'quantized.pth', 'sparse.pth', 'views.pth'])
def test_ordinary_files_are_in_order(name):
    assert weightfs('check', shared.FOLDER / 'golden/torch' / name).code == 0


def test_config_takes_a_key():
    path = shared.FOLDER / 'golden/torch/lightning.ckpt'
    assert json.loads(weightfs('config', path, 'hyper_parameters').stdout)['layers'] == [1, 2]
    assert json.loads(weightfs('config', path, 'hyper_parameters.nested.act').stdout) == 'gelu'
    assert json.loads(weightfs('config', path, 'optimizer_states').stdout)['0.param_groups'][0]['betas'] == [0.9, 0.999]
    assert json.loads(weightfs('config', path, 'loops.fit_loop.epoch_loop.state_dict').stdout) == {'_batches_that_stepped': 500}
    assert 'hparams_name' in weightfs('config', path, 'hyper', code=7).error
