# SPDX-License-Identifier: MIT
"""Mounts with `force` of files that end too early, in every format: what is whole is read, and the log names what is not."""
import errno
import os

import numpy as np
import pytest

from wfs_testlib import cuts, program


def copy(path, target):
    return program.tool('cp', path, target, code=None)


@pytest.mark.parametrize('name', [name for name in cuts.FORMATS if name != 'pth'])
@pytest.mark.parametrize('place', cuts.PLACES)
def test_what_is_whole_is_read_and_what_is_not_is_named(mount, folder, name, place):
    source, arrays, cut = cuts.cut(name, folder, place)
    mnt = mount(source, 'force').allow('.')
    listed = [key for key in arrays if name != 'mpk' or key not in cut]
    found = {key for key in arrays if (mnt / key.replace('.', '/')).exists()}
    assert found == set(listed)
    for key in listed:
        path = mnt / key.replace('.', '/')
        assert path.stat().st_size == arrays[key].nbytes
        assert os.getxattr(path, 'user.weightfs.dtype') == b'F32' and os.getxattr(path, 'user.weightfs.shape') == b'[%d, %d]' % arrays[key].shape
        before = mnt.stderr()
        done = copy(path, folder / 'copy')
        if key in cut:
            for _ in range(2):
                with pytest.raises(OSError) as caught:
                    path.read_bytes()
                assert caught.value.errno == errno.EIO
            log = mnt.stderr()[len(before):].splitlines()
            assert len(log) == 1 and ": cannot read tensor '%s': " % key in log[0], log
        else:
            assert mnt.stderr() == before and np.array_equal(np.fromfile(folder / 'copy', np.float32).reshape(arrays[key].shape), arrays[key])
        assert bool(done.stderr) == (key in cut)
    mnt.unmount()
