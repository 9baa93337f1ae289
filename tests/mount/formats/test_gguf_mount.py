# SPDX-License-Identifier: MIT
"""GGUF through a mount: blocks and values as files, casts, commits."""
import io
import json
import os
import struct

import numpy

from wfs_testlib import gguf
from wfs_testlib.program import weightfs

BLOCKS = b''.join(struct.pack('<H32b', 0x3c00, *range(i, i + 32)) for i in range(4))


def make(folder):
    path = folder / 'in.gguf'
    path.write_bytes(gguf.Writer().file(
        [('general.name', gguf.STRING, 'x'), ('llama.block_count', gguf.U32, 1), ('tokenizer.ggml.tokens', gguf.ARRAY, (gguf.STRING, ['a', b'\xff']))],
        [('blk.0.w', 'Q8_0', [2, 64], BLOCKS), ('b', 'F32', [1], struct.pack('<f', 3))]))
    return path


def test_blocks_and_values_are_files(mount, folder):
    mnt = mount(make(folder))
    assert (mnt / 'blk/0/w').read_bytes() == BLOCKS
    assert os.getxattr(mnt / 'blk/0/w', 'user.weightfs.dtype') == b'Q8_0'
    assert os.getxattr(mnt / 'blk/0/w', 'user.weightfs.shape') == b'[2, 64]'
    assert json.loads((mnt / 'general/name.json').read_text()) == 'x'
    assert json.loads((mnt / 'tokenizer/ggml/tokens.json').read_text()) == ['a', {'$bytes': '/w=='}]


def test_a_cast_decodes_blocks_on_read(mount, folder):
    mnt = mount(make(folder), 'cast=F32')
    wanted = struct.pack('<128f', *(float(j) for i in range(4) for j in range(i, i + 32)))
    assert (mnt / 'blk/0/w').read_bytes() == wanted
    with open(mnt / 'blk/0/w', 'rb') as file:
        file.seek(121)
        assert file.read(33) == wanted[121:154]


def test_blocks_as_an_array_are_bytes_of_rows(mount, folder):
    mnt = mount(make(folder), 'files=npy')
    found = numpy.load(io.BytesIO((mnt / 'blk/0/w.npy').read_bytes()) if (mnt / 'blk/0/w.npy').exists() else mnt / 'blk/0/w')
    assert found.dtype == numpy.uint8 and found.shape == (2, 68) and found.tobytes() == BLOCKS


def test_a_commit_copies_blocks_and_keeps_types(mount, folder):
    mnt = mount(make(folder), 'rw', 'output=%s' % (folder / 'out.gguf'))
    (mnt / 'blk/0/w').rename(mnt / 'blk/0/v')
    (mnt / 'llama/block_count.json').write_text('2')
    (mnt / 'general/name.json').unlink()
    weightfs('commit', mnt.path)
    found = gguf.Reader((folder / 'out.gguf').read_bytes())
    assert found.pairs == [('llama.block_count', gguf.U32, 2), ('tokenizer.ggml.tokens', gguf.ARRAY, (gguf.STRING, ['a', b'\xff']))]
    assert [(name, shape, content) for name, _, shape, content in found.tensors] == [
        ('blk.0.v', [2, 64], BLOCKS), ('b', [1], struct.pack('<f', 3))]


def test_a_split_file_is_one_mount_and_is_committed_as_one(mount, folder):
    parts = [[('blk.%d.w' % i, 'Q8_0', [2, 64], BLOCKS), ('b%d' % i, 'F32', [1], struct.pack('<f', i))] for i in range(2)]
    pairs = [('general.name', gguf.STRING, 'x'), ('llama.block_count', gguf.U16, 1)]
    split = gguf.write_set(folder / 'split', pairs, parts).parent
    mnt = mount(split, 'output=%s/' % (folder / 'out'), 'format=gguf')
    assert (mnt / 'blk/1/w').read_bytes() == BLOCKS and json.loads((mnt / 'general/name.json').read_text()) == 'x'
    assert not (mnt / 'split').exists()
    (mnt / 'blk/1/w').rename(mnt / 'blk/1/v')
    (mnt / 'llama/block_count.json').write_text('2')
    mnt.commit()
    parts[1][0] = ('blk.1.v', *parts[1][0][1:])
    expected = gguf.write_set(folder / 'expected', [pairs[0], ('llama.block_count', gguf.U16, 2)], parts).parent
    assert sorted(path.name for path in (folder / 'out').glob('model*')) == [*sorted(path.name for path in expected.iterdir()), 'model.gguf.index.json']
    assert all((folder / 'out' / path.name).read_bytes() == path.read_bytes() for path in expected.iterdir())
    mnt.unmount()
    mnt = mount(folder / 'out', 'rw')
    assert json.loads((mnt / 'llama/block_count.json').read_text()) == 2
    (mnt / 'b0').unlink()
    mnt.commit()
    del parts[0][1]
    expected = gguf.write_set(folder / 'again', [pairs[0], ('llama.block_count', gguf.U16, 2)], parts, 'model.v2').parent
    found = sorted(path for path in (folder / 'out').iterdir() if path.suffix == '.gguf')
    assert [path.name for path in found] == sorted(path.name for path in expected.iterdir())
    assert all(path.read_bytes() == (expected / path.name).read_bytes() for path in found)
