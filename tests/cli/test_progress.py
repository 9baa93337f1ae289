# SPDX-License-Identifier: MIT
"""The progress bar of a conversion: on a terminal, and nowhere else."""
import os
import subprocess

from conftest import SAMPLE
from wfs_testlib import program, terminal
from wfs_testlib.program import weightfs


def test_a_terminal_gets_a_bar(folder):
    code, stdout, drawn = terminal.run('convert', SAMPLE, folder / 'out.safetensors')
    assert (code, stdout) == (0, '')
    assert terminal.bars(drawn, 'writing')


def test_a_pipe_gets_nothing(folder):
    assert weightfs('convert', SAMPLE, folder / 'out.safetensors').stderr == ''


def test_a_pipe_gets_nothing_where_standard_output_is_a_terminal(folder):
    own, theirs = terminal.open_terminal()
    done = subprocess.run([*program.COMMAND, 'convert', SAMPLE, folder / 'out.safetensors'], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE,
                          timeout=program.PATIENCE, check=True)
    os.close(theirs)
    os.close(own)
    assert done.stderr == b''


def test_an_error_stands_in_a_line_of_its_own(folder):
    (folder / 'out.safetensors').write_bytes(b'')
    code, _, drawn = terminal.run('convert', SAMPLE, folder / 'out.safetensors')
    assert code == program.EXIT_COMMIT
    assert drawn == "weightfs: %s: already exists (use --overwrite to replace it)\r\n" % (folder / 'out.safetensors')
