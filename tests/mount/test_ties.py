# SPDX-License-Identifier: MIT
"""Ties and values in a commit to a format without room for them."""
import os

import pytest

from wfs_testlib import pth, st
from wfs_testlib.look import attribute
from wfs_testlib.program import weightfs


@pytest.fixture
def tied(folder):
    path = folder / 'tied.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(first=pth.tensor(), second=pth.tensor(), epoch=pth.number(3))))
    return path


def test_links_are_dropped_and_values_stored(mount, tied, folder):
    mounted = mount(tied, 'output=%s' % (folder / 'new.safetensors'), 'ties=drop', 'values=metadata')
    os.link(mounted / 'first', mounted / 'third')
    (mounted / 'second').rename(mounted / 'other')
    (mounted / 'made').write_bytes(b'four')
    for name, value in [('dtype', 'U8'), ('shape', '[4]')]:
        os.setxattr(mounted / 'made', 'user.weightfs.' + name, value.encode())
    os.link(mounted / 'made', mounted / 'made too')
    mounted.commit()
    saved = st.read(folder / 'new.safetensors')
    assert set(saved.tensors) == {'first', 'made'}
    assert saved.metadata == {'third': 'first', 'other': 'first', 'made too': 'made', 'epoch': '3'}


def test_untied_by_a_write_through_a_new_file(mount, tied, folder):
    mounted = mount(tied, 'output=%s' % (folder / 'new.safetensors'), 'ties=drop')
    (mounted / 'copy').write_bytes((mounted / 'second').read_bytes())
    os.rename(mounted / 'copy', mounted / 'second')
    mounted.commit()
    assert set(st.read(folder / 'new.safetensors').tensors) == {'first', 'second'}
    assert attribute(mounted / 'second', 'key') == 'second'
