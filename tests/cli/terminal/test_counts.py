# SPDX-License-Identifier: MIT
"""Counts of one are in the singular, in what every verb prints; tests/lint finds the messages that do not count so."""
import re

import numpy
import pytest

from wfs_testlib import pth, st
from wfs_testlib.program import weightfs

PLURAL = re.compile(r'(?<![\d.,])1 (?:more |of them )?(tensors|bytes|elements|keys|entries|values|files|shards|levels|dimensions|digits|edits'
                    r'|times|others|strides|are|were|have|follow|belong|differ)\b')
ONE = {'w': ('F32', [1], st.f32(float('nan')))}
BYTE = {'w': ('U8', [1], b'1')}


@pytest.fixture
def files(tmp_path):
    """Files in which there is one of each thing that is counted, and words for a verb."""
    small = st.write(tmp_path / 'a.safetensors', ONE)
    byte = st.write(tmp_path / 'b.safetensors', BYTE)
    other = st.write(tmp_path / 'c.safetensors', {'w': ('U8', [1], b'2')})
    long = tmp_path / 'long.safetensors'
    long.write_bytes(byte.read_bytes() + b'x')
    trailing = tmp_path / 'trailing.pth'
    trailing.write_bytes(pth.zipped(*pth.records(pth.pairs((pth.text('w'), pth.tensor()), (pth.text('w'), pth.tensor()))),
                                    pth.entry('other/x', b'1', crc=0)) + b'x')
    stream = tmp_path / 'stream.pth'
    stream.write_bytes(pth.stream(pth.dictionary(w=pth.tensor()), ['0'], [(4, bytes(16))]) + b'x')
    twins = tmp_path / 'twins.pth'
    twins.write_bytes(pth.checkpoint(pth.pairs((pth.text('1'), pth.tensor()), (pth.number(1), pth.tensor(offset=0, size=(2,))))))
    packed = tmp_path / 'x.bpk'
    weightfs('convert', byte, packed)
    packed.write_bytes(packed.read_bytes() + b'x')
    empty = tmp_path / 'one.safetensors'
    empty.write_bytes(b'\0')
    return [['check', '--values', small], ['info', small], ['ls', '--tree', small], ['diff', byte, other], ['diff', small, byte],
            ['check', '--force', long], ['check', long], ['check', trailing], ['check', stream], ['check', twins], ['check', packed], ['info', trailing], ['ls', empty],
            ['convert', '--to', 'burn', small, tmp_path / 'o.bpk'], ['ls', '--limit', 'tensors=1', twins], ['ls', '--limit', 'header=1', small],
            ['ls', '--exclude', '.', small], ['ls', '--limit', 'key=1', trailing], ['ls', '--limit', 'opcodes=1', twins],
            ['ls', '--limit', 'values=1', twins], ['ls', '--limit', 'pickle=1', twins], ['ls', '--limit', 'zip_entries=1', twins],
            ['ls', '--limit', 'index_memory=1', twins], ['plan', '--report', '--to', 'burn', small], ['ls', '--limit', 'rank=1', small]]


def test_one_of_a_thing_is_in_the_singular(files):
    said = [ran.stdout + ran.stderr for ran in (weightfs(*words, code=None) for words in files)]
    assert sum('1 ' in text for text in said) > 15, 'the files have one of few things'
    assert [match[0] for text in said for match in PLURAL.finditer(text)] == []


def test_check_looks_into_complex_tensors(tmp_path):
    x = numpy.zeros((3, 70000), '<c8')
    inf, nan = float('inf'), float('nan')
    x[0, 1], x[1, 5], x[2, 69999], x[2, 0], x[1, 1] = nan, complex(1, nan), complex(inf, nan), complex(0, -inf), inf
    path = st.write(tmp_path / 'x.safetensors', {'w': ('C64', list(x.shape), x.tobytes()), 'good': ('C64', [1], bytes(8))})
    found = [line.split(': ', 1) for line in weightfs('check', '--values', path, code=1).stdout.splitlines() if 'elements' in line]
    assert found == [['medium', "tensor 'w': 3 of 210000 elements are NaN, first at [0, 1]"], ['medium', "tensor 'w': 2 of 210000 elements are infinite, first at [1, 1]"]]


def test_check_looks_into_complex_tensors_of_halves(tmp_path):
    storage = pth.storage(cls=pth.name('torch', 'ComplexHalfStorage'), numel=2)
    (tmp_path / 'x.pth').write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(storage, size=(2,))), r0=bytes(6) + b'\0\x7e'))
    assert "tensor 'w': 1 of 2 elements is NaN" in weightfs('check', '--values', tmp_path / 'x.pth', code=1).stdout
