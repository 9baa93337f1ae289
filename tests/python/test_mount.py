# SPDX-License-Identifier: MIT
"""Mounts by the module, where FUSE exists."""
import os
import pathlib
import shutil

import pytest

numpy = pytest.importorskip('numpy')
weightfs = pytest.importorskip('weightfs')

pytestmark = pytest.mark.skipif(not os.access('/dev/fuse', os.R_OK | os.W_OK) or (os.geteuid() != 0 and shutil.which('fusermount3') is None),
                                reason='there is no FUSE here')


def test_reading(sample):
    with weightfs.mount(sample, files='npy', include=r'^pooler\.(dense|a,b)') as folder:
        assert [path.name for path in folder.iterdir() if not path.name.startswith('.')] == ['pooler']
        found = numpy.load(folder / 'pooler/dense/bias.npy')
        assert (found == weightfs.open(sample)['pooler.dense.bias'].numpy()).all()
    assert not folder.exists()


def test_edits_are_saved(sample):
    mnt = pathlib.Path('mnt')
    mnt.mkdir()
    with weightfs.mount(sample, mnt, output='new.pth') as folder:
        (folder / 'temperature').rename(folder / 't')
    assert mnt.exists() and not os.path.ismount(mnt)
    assert 't' in weightfs.open('new.pth')


def test_an_exception_drops_edits(sample):
    with pytest.raises(ZeroDivisionError):
        with weightfs.mount(sample, output='new.pth') as folder:
            (folder / 'temperature').unlink()
            1 / 0
    assert not pathlib.Path('new.pth').exists() and not folder.exists()


def test_what_cannot_be_mounted(sample):
    with pytest.raises(weightfs.NotFoundError, match='none'):
        with weightfs.mount('none'):
            pass
    with pytest.raises(weightfs.UsageError, match='nonsense'):
        with weightfs.mount(sample, nonsense=1):
            pass
