# SPDX-License-Identifier: MIT
"""The module and the program see the same in every file of other programs: keys, dtypes, shapes, values and bytes."""
import hashlib
import json
import os
import pathlib
import subprocess
import warnings

import pytest

weightfs = pytest.importorskip('weightfs')

FOLDER = pathlib.Path(os.environ.get('WFS_SHARED') or pathlib.Path(__file__).resolve().parents[3] / 'shared')
OTHERS = {'.c', '.lock', '.md', '.py', '.rs', '.sh', '.toml', '.txt', '.json', '.gz', '.xz'}
FILES = sorted(path for top in ('corpus', 'golden') for path in (FOLDER / top).rglob('*')
               if path.is_file() and (path.suffix not in OTHERS or path.name.endswith('.index.json')))
N_PARTS = 16
EVERY = int(os.environ.get('WFS_EVERY', 4))  # of the files; 1: all of them

pytestmark = pytest.mark.skipif(not FILES, reason='no folder %s with files of other programs (WFS_SHARED)' % FOLDER)


def program(*arguments):
    done = subprocess.run(['weightfs', *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    return done.returncode, done.stdout, done.stderr.decode('utf-8', 'surrogateescape').strip()


def compare(path):
    """Returns whether the file is a checkpoint."""
    code, out, error = program('ls', '--json', path)
    try:
        ckpt = weightfs.open(path)
    except weightfs.Error as caught:
        assert code != 0 and 'weightfs: %s' % caught in error.split('\n'), path
        return False
    assert code == 0, path
    with ckpt:
        listed = [(one['key'], one['dtype'], tuple(one['shape']), one['bytes']) for one in json.loads(out.decode('utf-8', 'surrogatepass'))['tensors']]
        assert [(key, t.dtype, t.shape, t.nbytes) for key, t in ckpt.items()] == listed, path
        code, out, error = program('sum', '--json', path)
        sums = {one['key']: one['sha256'] for one in json.loads(out.decode('utf-8', 'surrogatepass'))['sources'][0]['tensors']} if out else {}
        for key, tensor in ckpt.items():
            if tensor.nbytes > 1 << 28:
                continue
            try:
                found = hashlib.sha256(tensor.tobytes()).hexdigest()
            except weightfs.Error:
                found = None
            assert found == sums.get(key) or (code != 0 and key not in sums), (path, key)  # sum ends at the first that it cannot read
        code, out, error = program('config', path)
        assert dict(ckpt.values) == (json.loads(out.decode('utf-8', 'surrogatepass')) if code == 0 else {}), path
    return True


@pytest.mark.parametrize('part', range(N_PARTS))
def test_every_file(part):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', weightfs.Notice)
        found = [compare(path) for path in FILES[part::N_PARTS][::EVERY]]
    assert any(found)
