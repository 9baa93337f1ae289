# SPDX-License-Identifier: MIT
"""Files of other programs with what the real libraries read from them: an optional folder, WFS_SHARED or ../shared."""
import base64
import json
import os
import pathlib
import struct

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(os.environ.get('WFS_SHARED') or ROOT.parent / 'shared')
IS_THERE = (FOLDER / 'golden').is_dir() and (FOLDER / 'corpus').is_dir()
WHY_NOT = 'no folder %s with files of other programs (WFS_SHARED)' % FOLDER


def _load(name):
    return json.loads((FOLDER / name).read_text()) if IS_THERE else {}


def each(values, identify):
    """The values as cases of a test, each with its name; there may be none."""
    return [pytest.param(value, id=identify(value)) for value in values]


def checkpoints():
    """[(path, tensors, metadata)] of every .safetensors that the reference library accepts, shards too."""
    result = []
    for name, entry in sorted(_load('golden/safetensors/expected.json').get('files', {}).items()):
        if name.endswith('.safetensors') and entry.get('safe_open') == 'accepted':
            result.append((FOLDER / 'golden/safetensors' / name, entry['tensors'], entry.get('metadata')))
    for name, entry in sorted(_load('corpus/expected.json').items()):
        if name.endswith('.safetensors'):
            result.append((FOLDER / 'corpus' / name, entry['tensors'], entry['metadata'] or None))
    return result


def everything():
    """Every file, checkpoints or not, whatever is wrong with it; not what explains them."""
    return sorted(path for top in ('corpus', 'golden') for path in (FOLDER / top).rglob('*')
                  if path.is_file() and path.suffix not in ('.c', '.lock', '.md', '.py', '.rs', '.sh', '.toml', '.txt'))


def refused():
    """[(path, error of the reference library)] of the .safetensors that it wrote and cannot read."""
    files = _load('golden/safetensors/expected.json').get('files', {})
    return [(FOLDER / 'golden/safetensors' / name, entry['safe_open']) for name, entry in sorted(files.items())
            if name.endswith('.safetensors') and entry.get('safe_open') != 'accepted']


def _plain(shape='[1]', name='a', tail=b'', pad=0):
    head = '{"%s":{"dtype":"F32","shape":%s,"data_offsets":[0,4]}}' % (name, shape)
    head = head.encode() + b' ' * (pad - len(head) if pad else 0)
    return struct.pack('<Q', len(head)) + head + bytes(4) + tail


def _nested(n):
    head = '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":%s}}' % ('[' * n + ']' * n)
    return struct.pack('<Q', len(head)) + head.encode() + bytes(4)


# The cases that are too large to be kept as bytes.
_RECIPES = {
    'unknown field nested 1000': lambda: _nested(1000),
    'rank 5000 of ones': lambda: _plain('[%s]' % ','.join(['1'] * 5000)),
    '1 MB too many': lambda: _plain(tail=bytes(1000000)),
    'name 70000 bytes': lambda: _plain(name='n' * 70000),
    'n=100000000 exactly, spaces': lambda: _plain(pad=100000000),
    'n=100000001 exactly, spaces': lambda: _plain(pad=100000001),
}


def hostile():
    """The inputs that were put to the reference library: dicts with case, verdict, class."""
    return _load('golden/safetensors/hostile.json').get('cases', [])


def named(cases):
    """The hostile inputs as cases of a test."""
    return each(cases, lambda case: '%03d' % case['id'])


def hostile_bytes(case):
    if 'base64' in case:
        return base64.b64decode(case['base64'])
    content = _RECIPES[case['case']]()
    assert len(content) == case['size'], case['case']
    return content
