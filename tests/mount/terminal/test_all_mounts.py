# SPDX-License-Identifier: MIT
"""`status` without a mount point: the mounts of this user."""
import json

from wfs_testlib import st
from wfs_testlib.program import weightfs


def test_all_mounts_of_this_user(mount, folder):
    source = st.write(folder / 'a b.safetensors', {'w': ('F32', [2], bytes(8))})
    read_only = mount(source)
    writable = mount(source, 'output=%s' % (folder / 'new.safetensors'))
    (writable.path / 'w').unlink()
    answer = json.loads(weightfs('status', '--json').stdout)
    assert answer['notices'] == []
    mounts = {row['mountpoint']: row for row in answer['mounts']}
    assert mounts[str(read_only.path)] == {'mountpoint': str(read_only.path), 'source': str(source), 'state': 'read-only', 'n_edits': 0}
    row = mounts[str(writable.path)]
    assert row['state'] == 'writable' and row['n_edits'] == 1
    assert '%s\t%s\twritable\t1\n' % (writable.path, source) in weightfs('status').stdout
    (writable.path / 'w').write_bytes(bytes(8))
