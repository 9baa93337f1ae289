# SPDX-License-Identifier: MIT
"""The progress bar of a commit: on a terminal, and nowhere else."""
import pytest

from wfs_testlib import program, st, terminal
from wfs_testlib.program import weightfs

pytestmark = pytest.mark.skipif(bool(program.WRAP), reason='takes too long under another program')

N_BYTES = 3 << 31


@pytest.fixture
def slow(mount, folder):
    """A mount whose commit has to cast a hole of 6 GiB."""
    path = st.write_hole(folder / 'in.safetensors', N_BYTES)
    return mount(path, 'cast=F8_E4M3', 'output=%s' % (folder / 'out.safetensors'))


@pytest.mark.parametrize('verb', ['commit', 'umount'])
def test_a_terminal_gets_a_bar(slow, verb):
    """The bar begins after half a second; this commit takes several times that."""
    code, stdout, drawn = terminal.run(verb, slow.path)
    assert code == 0 and stdout.startswith("committed to '")
    assert terminal.bars(drawn, 'committing')


@pytest.mark.parametrize('verb', ['commit', 'umount'])
def test_a_pipe_gets_nothing(slow, verb):
    assert weightfs(verb, slow.path).stderr == ''
