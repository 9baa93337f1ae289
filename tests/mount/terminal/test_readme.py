# SPDX-License-Identifier: MIT
"""The commands that README.md shows: one after the other, on a terminal of 80 columns, they print exactly what is written there."""
import os
import re
import shutil

import numpy

from wfs_testlib import look, program, terminal
from wfs_testlib.mount import force_unmount
from wfs_testlib.program import SAMPLE

# What a comment claims: files below a directory, before the command.
CLAIMS = {'rename 32 tensors': ('mnt/encoder/layer', 32), 'delete two': ('mnt/pooler', 2)}


def read_steps():
    """(command, comment, expected output) of each command of the page; those with the address of a server have tests of their own."""
    steps = []
    for block in re.findall(r'^```\w*\n(.*?)^```', (program.ROOT / 'README.md').read_text(), re.M | re.S):
        assert block.startswith('$ ') or not re.search(r'^\s*\$ ', block, re.M)
        if block.startswith('$ ') and '://' not in block:
            steps += re.findall(r'^\$ (.*?)(?: +# (.*))?\n((?:(?!\$ ).*\n)*)', block, re.M)
    return steps


def test_every_line_of_the_readme_is_true(folder):
    shutil.copy(SAMPLE, folder / 'model.safetensors')
    numpy.save(folder / 'scale.npy', numpy.zeros((2, 3), 'f4'))
    (folder / 'bin').mkdir()
    (folder / 'bin/weightfs').write_text('#!/bin/sh\nexec %s "$@"\n' % program.show(program.COMMAND))
    (folder / 'bin/weightfs').chmod(0o755)
    path = '%s:%s' % (folder / 'bin', os.environ['PATH'])
    claims = dict(CLAIMS)
    n_steps, columns = 0, 80 + len(str(folder)) - len('/home/me')
    try:
        for command, comment, expected in read_steps():
            if comment in claims:
                directory, n = claims.pop(comment)
                assert len(look.files(folder / directory)) == n, comment
            screen = terminal.screen_of(['bash', '-c', command], cwd=folder, PATH=path, columns=columns, LC_ALL='C.UTF-8')
            assert screen.text.replace(str(folder), '/home/me') == expected.removesuffix('\n'), command
            n_steps += 1
    finally:
        force_unmount(folder / 'mnt')
    assert not claims and n_steps >= 15
