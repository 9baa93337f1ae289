# SPDX-License-Identifier: MIT
"""The note beside a set that is being written: each of its bytes is known before."""
import os
import subprocess

import pytest

from wfs_testlib import crash, program, sets, st
from wfs_testlib.sets import INDEX, name

pytestmark = pytest.mark.skipif(not crash.LIBRARY.exists(), reason='no fault injector in this build')


def convert(folder, mode, at, source, out):
    injection = crash.Injection(folder, folder.parent / 'inject', mode, at)
    subprocess.run([*program.COMMAND, 'convert', '--overwrite', source, '%s/' % out], env=injection.environment, check=mode == 'count',
                   stderr=subprocess.DEVNULL)
    return injection.calls()


def test_a_note_lists_the_files_of_the_old_set_and_of_the_new_one(tmp_path):
    """Twice, in two directories: nothing in it depends on what memory held before."""
    for place in ('one', 'two'):
        folder = tmp_path / place
        folder.mkdir()
        source = sets.write(folder / 'model', [{'a': ('U8', [1], b'a')}, {'b': ('U8', [1], b'b')}])
        out = sets.write(folder / 'out', [{key: ('U8', [1], b'x')} for key in 'xyz'])
        copy = sets.write(folder / 'copy', [{key: ('U8', [1], b'x')} for key in 'xyz'])
        calls = convert(folder, 'count', 0, source, copy)
        first = 1 + next(i for i, call in enumerate(calls) if call[0] == 'rename')
        convert(folder, 'kill-before', first, source, out)
        inode = {path.name: path.stat().st_ino for path in out.iterdir()}
        mark = {path.name: '%d %d' % (path.stat().st_ino, path.stat().st_mtime_ns) for path in out.iterdir()}
        lines = ['weightfs-set 3', 'index %d' % inode['.%s.weightfs.tmp' % INDEX], *('new %s' % name(i, 2) for i in (1, 2)),
                 *('old %s %s' % (mark[name(i, 3)], name(i, 3)) for i in (1, 2, 3)), 'end',
                 *('made %s %s' % (mark['.%s.weightfs.tmp' % name(i, 2)], name(i, 2)) for i in (1, 2))]
        assert (out / ('.%s.weightfs.set' % INDEX)).read_text().splitlines() == lines
        assert st.read(out / name(1, 3)).tensors['x'][2] == b'x' and len(os.listdir(out)) == 4 + 3 + 1
