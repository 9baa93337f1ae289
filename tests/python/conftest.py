# SPDX-License-Identifier: MIT
"""The module: that of a build (WFS_BUILD), or an installed one, for which tests/python alone is enough."""
import json
import os
import pathlib
import shutil
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ['WFS_BUILD']).resolve() if os.environ.get('WFS_BUILD') else None
if BUILD is not None:
    sys.path.insert(0, str(BUILD / 'python'))
    os.environ['PATH'] = '%s:%s' % (BUILD / 'src', os.environ['PATH'])
    os.environ['PYTHONPATH'] = '%s:%s' % (BUILD / 'python', os.environ.get('PYTHONPATH', ''))
    if not list((BUILD / 'python').glob('weightfs/_native.*')):
        collect_ignore_glob = ['test_*.py']  # built without the module: there are no headers of Python, or no cffi

SAMPLE = HERE.parent / 'data' / 'sample' / 'encoder.safetensors'


@pytest.fixture
def sample(tmp_path, monkeypatch):
    """The sample checkpoint, in the working directory."""
    shutil.copy(SAMPLE, tmp_path)
    monkeypatch.chdir(tmp_path)
    return 'encoder.safetensors'


NAMES = {'|u1': 'U8', '|i1': 'I8', '|b1': 'BOOL', '<i2': 'I16', '<f2': 'F16', '<i4': 'I32', '<f4': 'F32', '<i8': 'I64', '<f8': 'F64', '<c8': 'C64'}


def write_safetensors(path, arrays):
    """Writes arrays of numpy, without the module."""
    header, offset = {}, 0
    for key, array in arrays.items():
        header[key] = {'dtype': NAMES[array.dtype.str], 'shape': list(array.shape), 'data_offsets': [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, 'little') + text + b''.join(array.tobytes() for array in arrays.values()))


@pytest.fixture
def write():
    return write_safetensors


def pytest_configure(config):
    config.addinivalue_line('markers', 'peers: compares with other programs (tools/test --peers)')
