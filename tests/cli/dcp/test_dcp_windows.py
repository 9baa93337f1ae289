# SPDX-License-Identifier: MIT
"""Distributed checkpoints whose items are in safetensors files: each header is read once, whatever the order of the items."""
import json
import struct

import pytest

from wfs_testlib import bounds, dcp, program
from wfs_testlib.program import weightfs

F32 = dcp.DTYPES['float32']


def part(entries, head=None):
    """A safetensors file with vectors of one number, each a part at an offset: {key: (number, offset)}."""
    header = {'__metadata__': {'DCP_SHARDING_INFO': json.dumps({key: {'saved_offsets': [offset]} for key, (_, offset) in entries.items()})}}
    for i, key in enumerate(entries):
        header[key] = {'dtype': 'F32', 'shape': [1], 'data_offsets': [4 * i, 4 * i + 4]}
    text = json.dumps(header).encode() if head is None else head
    return struct.pack('<Q', len(text)) + text + struct.pack('<%df' % len(entries), *(number for number, _ in entries.values()))


def item(writer, key, offset, file, at):
    writer.storage[dcp.Index(fqn=key, offset=dcp.Size((offset,)), index=0)] = dcp.StorageInfo(relative_path=file, offset=at, length=4)


def describe(writer, key, n):
    writer.state[key] = dcp.Tensor(properties=dcp.TensorProperties(F32, None, False, None, False), size=dcp.Size((n,)),
                                   chunks=[dcp.chunk((i,), (1,)) for i in range(n)])
    writer.planner[key] = (key,)


def ranks(folder, n_tensors, n_ranks, padding=0):
    """Each tensor has a part in the file of each rank."""
    writer = dcp.Writer(folder)
    for rank in range(n_ranks):
        entries = {'t%d' % i: (100 * i + rank, rank) for i in range(n_tensors)}
        entries.update({'x%d' % i: (0, 0) for i in range(padding)})
        writer.files['__%d_0.distcp' % rank] = bytearray(part(entries))
        for i in range(n_tensors):
            item(writer, 't%d' % i, rank, '__%d_0.distcp' % rank, 0)
    for i in range(n_tensors):
        describe(writer, 't%d' % i, n_ranks)
    return writer.write()


def test_parts_of_several_ranks_are_put_together(tmp_path):
    ranks(tmp_path / 'm', 5, 3)
    assert struct.unpack('<3f', weightfs('cat', tmp_path / 'm', 't4').raw) == (400, 401, 402)


def test_honest_headers_of_several_ranks_are_read_once(tmp_path):
    """Items take turns between the files: with one header kept, this took minutes."""
    ranks(tmp_path / 'm', 300, 4, padding=10000)
    [(code, seconds, _)] = bounds.measure([['ls', tmp_path / 'm']])
    assert code == 0 and seconds < 1.5 * (20 if program.IS_INSTRUMENTED else 1)


@pytest.mark.parametrize('kind', ['damaged', 'keys'])
def test_a_header_that_many_items_need_is_read_once(tmp_path, kind):
    n = 4000
    writer = dcp.Writer(tmp_path / 'm')
    text = b'{' + b','.join(b'"k%07d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in range(20000)) + (b',}' if kind == 'damaged' else b'}')
    writer.files['__0_0.distcp'] = bytearray(part({'t0': (1, 0)} if kind == 'damaged' else {}, head=text))
    for i in range(n):
        item(writer, 't%d' % i, 0, '__0_0.distcp', 0)
        describe(writer, 't%d' % i, 1)
    [(code, seconds, _)] = bounds.measure([['check', writer.write()]])
    assert code == 1 and seconds < 1.5 * (20 if program.IS_INSTRUMENTED else 1)


def test_headers_that_overlap_are_refused(tmp_path):
    """Their sum could be the square of the file otherwise."""
    writer = dcp.Writer(tmp_path / 'm')
    inner = part({'t1': (5, 0)})
    text = b'{"__metadata__":{"x":"' + b' ' * 40 + b'"}}'
    outer = bytearray(struct.pack('<Q', len(text)) + text)
    writer.files['__0_0.distcp'] = outer + inner
    for i, at in enumerate((0, len(outer))):
        item(writer, 't%d' % i, 0, '__0_0.distcp', at)
        describe(writer, 't%d' % i, 1)
    assert struct.unpack('<f', weightfs('cat', writer.write(), 't1').raw) == (5,)
    struct.pack_into('<Q', outer, 0, len(outer) + len(inner) - 8)
    writer.files['__0_0.distcp'] = outer + inner
    texts = [finding['text'] for finding in json.loads(weightfs('check', '--json', writer.write(), code=1).stdout)['sources'][0]['findings']]
    assert any('overlap' in text for text in texts)
