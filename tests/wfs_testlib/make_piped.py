#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes tests/data/piped: what the built program prints in a pipe, for each verb. A difference from what git has is a change for scripts: read it,
and tell it in CHANGELOG.md."""
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

from wfs_testlib import piped  # noqa: E402

if __name__ == '__main__':
    texts = {verb: lambda folder, verb=verb: piped.text_of(verb, folder) for verb in piped.WITHOUT_A_MOUNT}
    texts.update({'mount': piped.text_with_a_mount, 'recovery': piped.text_of_recovery})
    piped.FOLDER.mkdir(exist_ok=True)
    for name, make in texts.items():
        with tempfile.TemporaryDirectory() as folder:
            piped.write_sources(pathlib.Path(folder))
            (piped.FOLDER / (name + '.txt')).write_text(make(pathlib.Path(folder)))
