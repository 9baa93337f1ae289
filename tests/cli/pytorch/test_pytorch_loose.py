# SPDX-License-Identifier: MIT
"""Bytes of a zip that belong to no record: another checkpoint in the same file, records that the directory does not name."""
import io
import json
import re
import struct
import zipfile

import pytest

from wfs_testlib import pth, st
from wfs_testlib.program import EXIT_FOUND, weightfs

LOOSE = 'belong to no record'


def saved(number):
    return pth.checkpoint(pth.dictionary(w=pth.tensor()), r0=st.f32(*[number] * 4))


def python_zip(data, *entries):
    """Adds to a zip as Python's zipfile does: offsets count from the beginning of the file."""
    buffer = io.BytesIO(data)
    with zipfile.ZipFile(buffer, 'a') as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return buffer.getvalue()


def unnamed(data):
    """The same archive with a record before, between and after the others, which its directory does not name."""
    hidden = pth.zipped(pth.entry('m/hidden', b'x' * 64))
    record = hidden[:hidden.index(b'PK\1\2')]
    start = data.index(b'PK\1\2')
    end = data.rindex(b'PK\5\6')
    size = end - start
    fixed = data[:start] + record + data[start:end] + data[end:end + 12] + struct.pack('<IIH', size, start + len(record), 0)
    return fixed


FILES = {
    'two of equal size to one handle': lambda: saved(1) + saved(2),
    'three': lambda: saved(1) + saved(2) + saved(3),
    'bytes between the directory and the end': lambda: re.sub(b'PK\5\6', b'?' * 9 + b'PK\5\6', saved(1)),
    'a record that is not named': lambda: unnamed(saved(1)),
    'an old one before it': lambda: pth.zipped(*pth.records(pth.dictionary(w=pth.tensor()), r0=bytes(16)), prefix=saved(1)),
    'a replaced directory': lambda: python_zip(saved(1), ('m/more', b'1')),
}


@pytest.mark.parametrize('kind', FILES)
def test_bytes_that_belong_to_no_record_are_found(tmp_path, kind):
    path = tmp_path / 'in.pth'
    path.write_bytes(FILES[kind]())
    if kind == 'a replaced directory':  # zipfile writes over the old directory
        assert LOOSE not in weightfs('check', path, code=None).stdout
        return
    done = weightfs('check', path, code=EXIT_FOUND)
    assert done.stdout.count(LOOSE) == 1 and 'medium: ' in done.stdout
    assert LOOSE in json.dumps(json.loads(weightfs('info', '--json', path).stdout)['sources'][0]['findings'])


def test_ordinary_files_have_none(tmp_path):
    path = tmp_path / 'in.pth'
    for data in (saved(1), pth.zipped(*pth.records(pth.dictionary(w=pth.tensor()), r0=bytes(16)), zip64={}), python_zip(b'', *[
            (e['path'].decode(), e['raw']) for e in pth.records(pth.dictionary(w=pth.tensor()), r0=bytes(16))])):
        path.write_bytes(data)
        assert LOOSE not in weightfs('check', path, code=None).stdout


@pytest.mark.parametrize('name', ['m/data.pkl', 'm/data/0', 'm/version'])
def test_a_checksum_that_only_a_local_header_has_wrong(tmp_path, name):
    path = tmp_path / 'in.pth'
    data = bytearray(saved(1))
    place = zipfile.ZipFile(io.BytesIO(data)).getinfo(name).header_offset
    data[place + 14] ^= 1
    path.write_bytes(data)
    found = weightfs('check', path, code=EXIT_FOUND).stdout
    assert "another checksum than the directory: %s" % name in found
