# SPDX-License-Identifier: MIT
"""Overlays through a mount: files of several checkpoints in one tree, watched and committed together."""
import csv
import errno
import json
import os
import re

import pytest

from wfs_testlib import program, st
from wfs_testlib.look import attribute


@pytest.fixture
def files(folder):
    base = st.write(folder / 'base.safetensors', {'a': ('F32', [1], st.f32(1)), 'b': ('F32', [1], st.f32(2))})
    over = st.write(folder / 'over.safetensors', {'b': ('F32', [2], st.f32(3, 4)), 'c': ('F32', [1], st.f32(5))})
    return base, over


def test_each_file_says_where_it_comes_from(mount, files):
    base, over = files
    mnt = mount(base, 'overlay=%s' % over)
    assert (mnt / 'a').read_bytes() == st.f32(1) and (mnt / 'b').read_bytes() == st.f32(3, 4)
    assert [attribute(mnt / name, 'file') for name in 'abc'] == [str(base), str(over), str(over)]
    assert attribute(mnt / 'b', 'changes') == 'overlay %s' % over
    rows = csv.DictReader((mnt / '.weightfs/tensors.csv').read_text().splitlines())
    assert {row['key']: row['file'] for row in rows} == {'a': str(base), 'b': str(over), 'c': str(over)}
    (covered,) = json.loads((mnt / '.weightfs/report.json').read_text())['covered']
    assert (covered['key'], covered['was'], covered['is']) == ('b', 'F32 [1]', 'F32 [2]')


def test_a_commit_writes_the_merged_checkpoint(mount, files, folder):
    base, over = files
    output = folder / 'out.safetensors'
    mnt = mount(base, 'overlay=^b=>%s' % over, 'output=%s' % output)
    (mnt / 'a').write_bytes(st.f32(7))
    os.rename(mnt / 'a', mnt / 'z')
    mnt.commit()
    assert st.read(output).tensors == {'z': ('F32', [1], st.f32(7)), 'b': ('F32', [2], st.f32(3, 4))}
    (base_path,) = (path for path in (folder / '.out.safetensors.weightfs').rglob('base'))
    base_text = base_path.read_text()
    assert str(base) in base_text and str(over) in base_text and 'view overlay=^b=>' in base_text


def test_an_overlay_that_changes_is_not_read(mount, files, folder):
    base, over = files
    mnt = mount(base, 'overlay=%s' % over, 'output=%s' % (folder / 'out.safetensors')).allow('changed')
    st.write(over, {'b': ('F32', [2], st.f32(9, 9)), 'c': ('F32', [1], st.f32(5))})
    with pytest.raises(OSError) as failure:
        (mnt / 'b').read_bytes()
    assert failure.value.errno == errno.EIO
    assert (mnt / 'a').read_bytes() == st.f32(1)


def test_a_missing_overlay_is_named(mount, files, tmp_path, folder):
    base, _ = files
    result = program.weightfs(base, tmp_path, '-o', 'overlay=%s' % (folder / 'none'), code=program.EXIT_SOURCE)
    assert re.search(r"base\.safetensors: '.*none': cannot open it", result.error)
