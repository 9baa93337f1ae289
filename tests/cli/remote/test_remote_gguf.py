# SPDX-License-Identifier: MIT
"""GGUF by URL: what is fetched of a large one, and split files, of which a URL names one."""
import json
import os
import struct

import pytest

from wfs_testlib import gguf
from wfs_testlib.program import EXIT_SOURCE, EXIT_USAGE, weightfs

MIB = 1 << 20
ROW = struct.pack('<H32b', 0x3c00, *range(32))


@pytest.fixture(name='large')
def fixture_large(folder):
    """A header of a MiB and 4 GiB of blocks, the last tensor and one in between with something in them. Returns where its data begins."""
    n_row, n_rows = 128, 4 << 30 >> 12
    n_bytes = n_rows * 34 * n_row
    tensors = [('blk.%d.w' % i, n_bytes) for i in range(8)]
    pairs = [('general.name', gguf.STRING, 'large'), ('tokenizer.ggml.tokens', gguf.ARRAY, (gguf.STRING, ['<%06d>' % i for i in range(65536)]))]
    writer = gguf.Writer()
    infos = b''.join(writer.info(name, gguf.NUMBERS['Q8_0'], [n_rows // 8, 32 * n_row], i * (n_bytes // 8)) for i, (name, _) in enumerate(tensors))
    head = gguf.padded(writer.head(len(tensors), len(pairs)) + b''.join(writer.pair(*pair) for pair in pairs) + infos)
    with open(folder / 'large.gguf', 'wb') as file:
        file.write(head)
        file.truncate(len(head) + n_bytes)
        for i in (3, 7):
            file.seek(len(head) + (i + 1) * (n_bytes // 8) - len(ROW))
            file.write(ROW)
    return len(head)


def test_listing_a_large_file_fetches_its_header(serve, folder, large):
    server = serve(folder)
    assert (folder / 'large.gguf').stat().st_size > 4 << 30 and large > MIB
    found = json.loads(weightfs('ls', '--json', server.url('large.gguf')).stdout)['tensors']
    assert [one['key'] for one in found] == ['blk.%d.w' % i for i in range(8)]
    asked = server.requests()
    assert len(asked) < 20 and sum(one.n_body for one in asked) < 3 * large
    assert all(int(one.range.split('-')[1]) < 4 * large for one in asked)


def test_a_tensor_of_a_large_file_costs_its_bytes(serve, folder, large):
    server = serve(folder)
    url = server.url('large.gguf')
    numbers = weightfs('show', '--slice', '%d,4064:4096' % ((4 << 30 >> 15) - 1), url, 'blk.7.w').stdout.split()[-32:]
    assert numbers == [str(i) for i in range(32)]
    assert sum(one.n_body for one in server.requests()) < 3 * large + MIB


@pytest.fixture(name='split')
def fixture_split(folder):
    pairs = [('general.name', gguf.STRING, 'x'), ('n', gguf.U16, 3)]
    first = gguf.write_set(folder / 'split', pairs, [[('a', 'F32', [1], b'1234')], [('b', 'Q8_0', [1, 32], ROW)], [('c', 'F32', [1], b'5678')]])
    return first.rename(first.parent / 'my model-00001-of-00003.gguf').parent


@pytest.mark.parametrize('number', [1, 2, 3])
def test_the_names_of_all_files_follow_from_one(number, serve, folder, split):
    for i in (2, 3):
        (split / gguf.set_name(i, 3)).rename(split / gguf.set_name(i, 3, 'my model'))
    server = serve(folder)
    url = server.url('split/my model-' + '%05d-of-00003.gguf' % number)
    weightfs('convert', '--shards', split / 'my model-00001-of-00003.gguf', folder / 'local.gguf')
    weightfs('convert', '--shards', url, folder / 'out.gguf')
    assert (folder / 'out.gguf').read_bytes() == (folder / 'local.gguf').read_bytes()
    server.forget()
    assert len(json.loads(weightfs('ls', '--json', '--shards', url).stdout)['tensors']) == 3
    assert len(server.requests()) == 4
    assert [one['key'] for one in json.loads(weightfs('ls', '--json', url).stdout)['tensors']] == ['abc'[number - 1]]


def test_a_file_of_a_set_that_the_server_lacks_is_named(serve, folder, split):
    url = serve(folder).url('split/my model-00001-of-00003.gguf')
    assert "shard 'my model-00002-of-00003.gguf': the server answers 404" in weightfs('ls', '--shards', url, code=EXIT_SOURCE).error


def test_a_url_without_numbers_is_not_one_of_several(serve, folder, split):
    os.link(split / 'my model-00001-of-00003.gguf', folder / 'one.gguf')
    error = weightfs('ls', '--shards', serve(folder).url('one.gguf'), code=EXIT_USAGE).error
    assert "'shards' is for one of several files with numbers" in error
