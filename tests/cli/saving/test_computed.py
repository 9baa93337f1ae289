# SPDX-License-Identifier: MIT
"""Outputs that are computed: several threads make and write parts of them, whose bytes, order and errors are those of one."""
import os
import random
import zipfile

import pytest

from wfs_testlib import crash, st
from wfs_testlib.program import EXIT_COMMIT, weightfs

OPTIONS = ['--cast', 'F32', '--transpose', '^turned']


def noise(n, seed):
    return random.Random(seed).randbytes(n)


def transposed(data, n_rows, n_columns):
    elements = memoryview(data).cast('H')
    return b''.join(bytes(elements[column::n_columns]) for column in range(n_columns))


def widened(data):
    """BF16 as F32."""
    wide = bytearray(2 * len(data))
    wide[2::4], wide[3::4] = data[::2], data[1::2]
    return bytes(wide)


@pytest.fixture(scope='module')
def mixed(tmp_path_factory):
    """The source, and what it is to become: computed tensors that are larger and smaller than a part, and others between them."""
    source, wanted = {}, {}
    for i, (rows, columns) in enumerate([(3, 5), (1100, 1300), (1, 7), (40, 50), (2200, 2100), (1, 1), (700, 750), (0, 4), (5, 3)]):
        data = noise(2 * rows * columns, i)
        source['w%d' % i], wanted['w%d' % i] = ('BF16', [rows, columns], data), ('F32', [rows, columns], widened(data))
        source['turned%d' % i] = ('BF16', [rows, columns], data)
        wanted['turned%d' % i] = ('F32', [columns, rows], widened(transposed(data, rows, columns) if rows else b''))
        source['n%d' % i] = wanted['n%d' % i] = ('I64', [i], noise(8 * i, 50 + i))
        source['bytes%d' % i] = wanted['bytes%d' % i] = ('U8', [40001 * i], noise(40001 * i, 90 + i))
    return st.write(tmp_path_factory.mktemp('mixed') / 'in.safetensors', source), wanted


@pytest.fixture(params=['one processor', 'all processors'])
def processors(request):
    before = os.sched_getaffinity(0)
    if request.param == 'one processor':
        os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.parametrize('shard', [(), ('--max-shard-size', '20MB')], ids=['one file', 'shards'])
def test_every_byte_is_where_it_belongs(mixed, folder, processors, shard):
    source, wanted = mixed
    weightfs('convert', *OPTIONS, *shard, source, '%s/out%s' % (folder, '/' if shard else '.safetensors'), *(['--format=safetensors'] if shard else []))
    found = {}
    for path in (folder / 'out').glob('*.safetensors') if shard else [folder / 'out.safetensors']:
        found.update(st.read(path).tensors)
    assert found == wanted


def test_every_record_of_an_archive_has_its_checksum(mixed, folder, processors):
    source, wanted = mixed
    weightfs('convert', *OPTIONS, source, folder / 'out.pth')
    with zipfile.ZipFile(folder / 'out.pth') as archive:
        assert archive.testzip() is None
        found = [archive.read(name) for name in archive.namelist() if '/data/' in name]
    assert sorted(filter(None, found)) == sorted(content for _, _, content in wanted.values() if content)


@pytest.mark.skipif(not crash.LIBRARY.exists(), reason='no fault injector in this build')
@pytest.mark.parametrize('mode', ['enospc-once', 'enospc-on', 'eio-once', 'half'])
@pytest.mark.parametrize('target', ['out.safetensors', 'out.pth'])
def test_a_part_that_cannot_be_written(mixed, folder, mode, target):
    """One that is written by halves is written nevertheless."""
    source, _ = mixed
    inject = folder / 'inject'
    counted = crash.Injection(folder, inject, 'count', 0)
    weightfs('convert', *OPTIONS, source, folder / target, env=counted.environment)
    wanted = (folder / target).read_bytes()
    writes = [i + 1 for i, (name, _) in enumerate(counted.calls()) if name == 'pwrite']
    assert len(writes) > 10
    for at in [writes[0], writes[len(writes) // 3], writes[-2], writes[-1]]:
        (folder / target).unlink(missing_ok=True)
        code = 0 if mode == 'half' else EXIT_COMMIT
        done = weightfs('convert', *OPTIONS, source, folder / target, code=code, env=crash.Injection(folder, inject, mode, at).environment)
        if mode == 'half':
            assert (folder / target).read_bytes() == wanted
        else:
            reason = 'Input/output error' if mode == 'eio-once' else 'No space left on device'
            assert done.error.startswith('%s: cannot write the output' % (folder / target)) and done.error.endswith(': ' + reason)
            assert [path.name for path in folder.iterdir()] == ['inject']
