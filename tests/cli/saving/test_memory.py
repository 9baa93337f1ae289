# SPDX-License-Identifier: MIT
"""Verbs whose memory runs out (tests/inject/memory.c): at each allocation in turn they say so and leave complete files, or end as if it had not
happened."""
import json
import os
import subprocess

import pytest

from wfs_testlib import merging, program, st, ties
from wfs_testlib.program import COMMAND, weightfs

LIBRARY = program.BUILD / 'tests' / 'inject' / 'memory.so'
pytestmark = pytest.mark.skipif(program.IS_INSTRUMENTED or not LIBRARY.exists(), reason='no library can be preloaded into an instrumented program')
F32 = '--npy=f32'
VERBS = {
    'cat': ['cat', F32, 'mixed', 'f8'], 'cat of a sum': ['cat', F32, '--lora', 'adapter', 'base', 'a.weight'], 'extract': ['extract', F32, 'mixed', '*', '-d', 'out/x'],
    'rules': ['plan', '--rules', 'rules', 'mixed'], 'dequantize': ['convert', '--dequantize', 'mixed', 'out/x.safetensors'],
    'adapter': ['convert', '--json', '--lora', 'adapter', 'base', 'out/x.pth'], 'ties': ['convert', '--cast=F16', '--rename', 'a', 'c', 'ties', 'out/x.pth'],
    'value': ['edit', '--set-value', 'epoch={"n": [1, "two"]}', 'ties', 'out/x.pth'], 'report': ['report', 'mixed', '-o', 'out/x.html'],
}


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob('*') if path.is_file()}


@pytest.mark.parametrize('verb', VERBS)
def test_memory_runs_out_at_each_allocation(tmp_path, verb):
    st.write(tmp_path / 'mixed', {'f8': ('F8_E4M3', [2], b'\x38\x40'), 'b': ('BF16', [1], b'\x80\x3f'), 'd': ('F64', [1], bytes(8)),
                                  'q.weight': ('F8_E4M3', [1, 2], b'\x38\x40'), 'q.weight_scale_inv': ('F32', [1, 1], st.f32(2))})
    base, _, _ = merging.write_pair(tmp_path, {'a.weight': (4, 3), 'n': (3,)}, 'F32', rank=2)
    base.rename(tmp_path / 'base')
    ties.write(tmp_path / 'ties', next(iter(ties.FORMS)))
    (tmp_path / 'rules').write_text(json.dumps([{'cast': 'F32'}, {'remap': 's/f8/eight/'}]))

    def run(**variables):
        if (tmp_path / 'out').exists():
            (tmp_path / 'out').rename(tmp_path / ('before%d' % len(os.listdir(tmp_path))))
        (tmp_path / 'out').mkdir()
        done = subprocess.run([*COMMAND, *VERBS[verb]], capture_output=True, stdin=subprocess.DEVNULL, timeout=program.PATIENCE, cwd=tmp_path, check=False,
                              env={**os.environ, 'LD_PRELOAD': str(LIBRARY), **variables})
        return done.returncode, done.stdout, files(tmp_path / 'out'), done.stderr

    good = run(MEMORY_FILE=str(tmp_path / 'count'))
    assert good[0] == 0, good
    for at in range(int((tmp_path / 'count').read_text().split()[0])):
        found = run(MEMORY_AT=str(at), MEMORY_MORE=str(at % 2 * 1000000))
        assert found == good or (found[0] > 0 and b'memory' in found[3] and found[2].items() <= good[2].items()), (at, found)
    assert weightfs('ls', tmp_path / 'base').stdout
