# SPDX-License-Identifier: MIT
"""Files made on the spot by the torch of this system, against torch's own bytes."""
import hashlib
import json
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from wfs_testlib import program
from wfs_testlib.program import weightfs

pytestmark = pytest.mark.peers
MAKER = program.ROOT / 'tests' / 'wfs_testlib' / 'make_torch.py'

# What torch does not name: attributes that are no parameters, buffers that are not saved with the state, and so on.
VALUES = {'training.pth': {'epoch': 3}, 'nested.pth': {'text': 'x', 'none': None}}


@pytest.fixture(scope='module')
def made():
    folder = pathlib.Path(tempfile.mkdtemp(prefix='torch', dir=program.folder_of_folders()))
    subprocess.run(['/usr/bin/python3', MAKER, folder], check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   timeout=program.PATIENCE)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize('name', [
    'archive.pth.tar', 'complex.pth', 'dtypes-legacy.pth', 'dtypes.pth', 'dump-2.pkl', 'dump-3.pkl', 'dump-4.pkl', 'dump-5.pkl',
    'list.pth', 'lite.ptl', 'module-legacy.pth', 'module.pth', 'nested.pth', 'numpy.pth', 'package.pt', 'quantized-module.pth', 'script.pt', 'state.pth', 'tied.pth',
    'training.pth', 'views-2.pth', 'views-3.pth', 'views-4.pth', 'views-5.pth', 'views-legacy-2.pth', 'views-legacy-3.pth',
    'views-legacy-4.pth', 'views-legacy-5.pth'])
def test_what_torch_writes_is_read_as_torch_reads_it(made, name):
    expected = json.loads((made / 'expected.json').read_text())[name]
    path = made / name
    found = {tensor['key']: tensor for tensor in json.loads(weightfs('ls', '--json', path).stdout)['tensors']}
    assert {key: [entry['dtype'], entry['shape']] for key, entry in found.items()} == {
        key: entry[:2] for key, entry in expected.items()}
    for key, (_, _, digest) in expected.items():
        assert hashlib.sha256(weightfs('cat', path, '--', key).raw).hexdigest() == digest, key
    values = json.loads(weightfs('config', path).stdout)
    for key, value in VALUES.get(name, {}).items():
        assert values[key] == value


@pytest.mark.parametrize('name', ['dtypes.pth', 'views-2.pth', 'state.pth', 'training.pth', 'views-legacy-2.pth', 'quantized-module.pth', 'script.pt'])
def test_what_torch_writes_is_in_order(made, name):
    assert weightfs('check', made / name).stdout == ''
