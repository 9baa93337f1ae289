# SPDX-License-Identifier: MIT
"""The session in README.md: every command gives the output that is printed there."""
import os
import re
import shutil
import subprocess

import numpy

from conftest import SAMPLE
from wfs_testlib import program, terminal
from wfs_testlib.mount import force_unmount


def read_session():
    """(command, expected output) of each command of the section."""
    block = re.search(r'## A session\n\n```\n(.*?)```', (program.ROOT / 'README.md').read_text(), re.S)[1]
    steps = [(command, output) for command, output in re.findall(r'^\$ (.*)\n((?:(?!\$ ).*\n)*)', block, re.M)]
    assert len(steps) > 5
    return steps


def squeeze(text):
    """Columns and tabs as one space each, without empty lines."""
    return [' '.join(line.split()) for line in text.splitlines() if line.strip()]


def test_the_session_of_the_readme_is_true(folder):
    shutil.copy(SAMPLE, folder / 'model.safetensors')
    numpy.save(folder / 'scale.npy', numpy.zeros((2, 3), 'f4'))
    (folder / 'bin').mkdir()
    (folder / 'bin/weightfs').write_text('#!/bin/sh\nexec %s "$@"\n' % program.show(program.COMMAND))
    (folder / 'bin/weightfs').chmod(0o755)
    environment = {**os.environ, 'PATH': '%s:%s' % (folder / 'bin', os.environ['PATH'])}
    try:
        for command, expected in read_session():
            if command.startswith('weightfs ls'):
                assert terminal.screen_of(['bash', '-c', command], cwd=folder, **environment).text == expected.rstrip('\n')
                continue
            done = subprocess.run(['bash', '-c', command], cwd=folder, env=environment, text=True, timeout=program.PATIENCE,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            assert (done.returncode, done.stderr) == (0, ''), command
            output = done.stdout.replace(str(folder), '/home/me')
            if command.startswith('ls '):
                assert output.split() == expected.split(), command
            else:
                assert squeeze(output) == squeeze(expected), command
    finally:
        force_unmount(folder / 'mnt')
