# SPDX-License-Identifier: MIT
"""What reaches the disk other than it was written is never published: a byte that flips on its way, in any part of any output."""
import os
import re
import subprocess
import sys

import pytest

from wfs_testlib import checkpoints, crash, program, st
from wfs_testlib.program import weightfs

pytestmark = pytest.mark.skipif(not crash.LIBRARY.exists(), reason='no fault injector in this build')

TENSORS = {'a.w': ('F32', [2, 3], st.f32(1, 2, 3, 4, 5, 6)), 'b.w': ('I64', [3], bytes(range(24))), 'c': ('U8', [5], b'hello'),
           'd.bias': ('F16', [4], bytes(range(100, 108)))}
READS = """import subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(dict(line.split(': ') for line in open('/proc/self/io').read().splitlines())['rchar'])"""


def places(data):
    """Every byte of every tensor, and one of each few of all else."""
    inside = set()
    for _, _, content in TENSORS.values():
        start = data.find(content)
        assert start >= 0
        inside.update(range(start, start + len(content), 3))
    return sorted(inside | set(range(0, len(data), 29)) | {len(data) - 1})


def demand_refusal(folder, command, out, name, n_bytes):
    for at in n_bytes:
        done = weightfs(*command, code=None, env=crash.flipping(folder, name, at))
        assert done.code != 0, 'published with another byte at %d' % at
        assert not os.path.exists(out)


@pytest.mark.parametrize('source', ['in.safetensors', 'in.bpk', 'in.pth'])
@pytest.mark.parametrize('target', ['out.safetensors', 'out.bpk', 'out.pth'])
def test_no_output_is_published_with_another_byte(folder, source, target):
    checkpoints.write(folder / source, TENSORS)
    command = ['convert', '--remap', '^a\\.=>moved.', folder / source, folder / target]
    weightfs(*command)
    data = (folder / target).read_bytes()
    (folder / target).unlink()
    demand_refusal(folder, command, folder / target, target, places(data))


@pytest.mark.parametrize('shard', [1, 2, 3])
def test_no_shard_is_published_with_another_byte(folder, shard):
    checkpoints.write(folder / 'in.safetensors', TENSORS)
    command = ['convert', '--remap', '^a\\.=>moved.', '--max-shard-size', '24', folder / 'in.safetensors', '%s/set/' % folder]
    weightfs(*command)
    name = sorted(path.name for path in (folder / 'set').iterdir() if path.name.endswith('.safetensors'))[shard - 1]
    n_bytes = (folder / 'set' / name).stat().st_size
    index = next(path.name for path in (folder / 'set').iterdir() if path.name.endswith('.json'))
    n_index = (folder / 'set' / index).stat().st_size
    for path in (folder / 'set').iterdir():
        path.unlink()
    demand_refusal(folder, command, folder / 'set' / index, name, range(0, n_bytes, 5))
    demand_refusal(folder, command, folder / 'set' / index, index, range(0, n_index, 31))


@pytest.mark.parametrize('at', [1000, 9 << 20, (24 << 20) + 77])
def test_a_byte_of_a_large_computed_output_is_found_where_it_lies(folder, at):
    n = 25 << 20
    st.write(folder / 'in.safetensors', {'large': ('F16', [n // 2], bytes(n))})
    command = ['convert', '--cast', 'BF16', folder / 'in.safetensors', folder / 'out.safetensors']
    done = weightfs(*command, code=None, env=crash.flipping(folder, 'out.safetensors', at))
    begin, end = map(int, re.search(r'between offsets (\d+) and (\d+)', done.stderr).groups())
    assert begin <= at < end
    assert not (folder / 'out.safetensors').exists()


def test_what_the_kernel_copied_is_not_read_again(folder):
    n = 64 << 20
    st.write(folder / 'in.safetensors', {'large': ('U8', [n], bytes(n)), 'small': ('U8', [4], b'abcd')})
    command = [sys.executable, '-c', READS, *program.COMMAND, 'convert', '--remap', 'large=>huge', folder / 'in.safetensors',
               folder / 'out.safetensors']
    n_read = int(subprocess.run(list(map(os.fspath, command)), check=True, stdout=subprocess.PIPE).stdout)
    assert n_read < n + n // 2
