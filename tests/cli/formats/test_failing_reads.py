# SPDX-License-Identifier: MIT
"""A disk that fails one read, whichever: `check` never reports a file that it could not read as good, or as something else."""
import re
import shutil
import subprocess

import pytest

from wfs_testlib import burnpack, program, pth, sets, st
from wfs_testlib.program import EXIT_DAMAGED, IS_INSTRUMENTED

pytestmark = [pytest.mark.skipif(shutil.which('strace') is None, reason='needs strace'),
              pytest.mark.skipif(IS_INSTRUMENTED, reason='LeakSanitizer does not work under strace')]
TENSORS = {'a': ('U8', [4], b'1234'), 'b': ('U8', [2], b'56')}


def make_safetensors(folder):
    return st.write(folder / 'x.safetensors', TENSORS), folder / 'x.safetensors'


def make_burnpack(folder):
    path = folder / 'x.bpk'
    burnpack.write(path, burnpack.Burnpack({key: burnpack.Tensor(*tensor) for key, tensor in TENSORS.items()}))
    return path, path


def make_pth(folder):
    path = program.ROOT / 'tests/data/reject/pytorch/zip/50-zip64.pth'
    return shutil.copy(path, folder / 'x.pth'), folder / 'x.pth'


def make_index(folder):
    sets.write(folder / 'set', [{key: tensor} for key, tensor in TENSORS.items()])
    return folder / 'set', folder / 'set' / sets.INDEX


def make_shard(folder):
    sets.write(folder / 'set', [{key: tensor} for key, tensor in TENSORS.items()])
    return folder / 'set', folder / 'set' / sets.name(2, 2)


def check(path, failing, trace, *inject):
    command = ['strace', '-f', '-qq', '-o', trace, '-P', failing, '-e', 'trace=pread64', *inject, *program.COMMAND, 'check', path]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=program.PATIENCE, check=False)
    return done.returncode, done.stderr.decode(), len(trace.read_text().splitlines())


@pytest.mark.parametrize('make', [make_safetensors, make_pth, make_burnpack, make_index, make_shard])
@pytest.mark.parametrize('error', ['EIO', 'ESTALE'])
def test_each_read_that_fails_is_reported(tmp_path, make, error):
    path, failing = make(tmp_path)
    code, text, n_reads = check(path, failing, tmp_path / 'trace')
    assert code in (0, 1) and n_reads > 0, text
    for at in range(1, n_reads + 1):
        code, text, _ = check(path, failing, tmp_path / 'trace', '-e', 'inject=pread64:error=%s:when=%d' % (error, at))
        assert code == EXIT_DAMAGED and re.search('cannot read|cannot be read', text) and len(text.splitlines()) == 1, (at, code, text)
        assert make is not make_shard or sets.name(2, 2) in text, text
