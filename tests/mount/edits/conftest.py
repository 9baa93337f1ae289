# SPDX-License-Identifier: MIT
"""A mount to make every kind of edit in."""
import pytest

from wfs_testlib import checkpoints, pth
from wfs_testlib.edit_kinds import TENSORS
from wfs_testlib.program import weightfs

FORMATS = ['safetensors', 'pth', 'bpk', 'directory']


@pytest.fixture(params=FORMATS)
def made(request, mount, folder):
    """A mount of a source in the format, whose output has it too."""
    ending = request.param
    source = checkpoints.write(folder / ('in.' + {'directory': 'safetensors'}.get(ending, ending)), TENSORS,
                               **({'epoch': pth.number(3)} if ending == 'pth' else {}))
    if ending == 'directory':
        weightfs('convert', '--max-shard-size=40', source, '%s/' % (folder / 'set'))
        source = folder / 'set'
    out = folder / ('out' if ending == 'directory' else 'out.' + ending)
    mnt = mount(source, 'output=%s%s' % (out, '/' if ending == 'directory' else ''))
    mnt.out, mnt.source, mnt.ending = out, source, ending
    return mnt
