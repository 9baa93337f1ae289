# SPDX-License-Identifier: MIT
"""A commit fails where a byte of what was edited, moved or written before it flips on its way to the disk."""
import os

import pytest

from wfs_testlib import checkpoints, crash, mount, st

pytestmark = pytest.mark.skipif(not crash.LIBRARY.exists(), reason='no fault injector in this build')

TENSORS = {'a.w': ('F32', [2, 3], st.f32(1, 2, 3, 4, 5, 6)), 'c': ('U8', [5], b'hello')}


@pytest.mark.parametrize('kind', ['safetensors', 'bpk', 'pth'])
def test_a_commit_fails_where_an_edited_or_moved_byte_flips(folder, kind):
    checkpoints.write(folder / ('in.' + kind), TENSORS)
    new = st.f32(9, 8, 7, 6, 5, 4)

    def commit(run, environment):
        for name in (run, 'mnt'):
            (folder / name).mkdir(exist_ok=True)
        command = ['env', *('%s=%s' % item for item in environment.items() if item[0].startswith(('INJECT', 'LD_')))]
        mnt = mount.Mount(folder / ('in.' + kind), folder / 'mnt', 'output=%s' % (folder / run / ('out.' + kind)), wrap=command)
        mnt.allow('.')
        (mnt.path / 'a/w').write_bytes(new)
        os.rename(mnt.path / 'c', mnt.path / 'e')
        code = mnt.control().error
        mnt.kill()
        return code

    assert commit('good', {}) == 0
    data = (folder / 'good' / ('out.' + kind)).read_bytes()
    for run, content in (('edited', new), ('moved', b'hello'), ('header', data[:8])):
        assert commit(run, crash.flipping(folder, 'out.' + kind, data.find(content) + len(content) // 2)) != 0
        assert not (folder / run / ('out.' + kind)).exists()
