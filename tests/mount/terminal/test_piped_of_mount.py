# SPDX-License-Identifier: MIT
"""What the verbs for mounts print in a pipe is what it was, byte for byte: scripts rely on it."""
import pytest

from wfs_testlib import piped

WHY = 'print it as before, or tell the change in CHANGELOG.md and run tests/wfs_testlib/make_piped.py'


@pytest.mark.parametrize('name, make', [('mount', piped.text_with_a_mount), ('recovery', piped.text_of_recovery)], ids=['mount', 'recovery'])
def test_the_output_of_verbs_for_mounts_is_what_it_was(folder, name, make):
    piped.write_sources(folder)
    assert make(folder) == (piped.FOLDER / (name + '.txt')).read_text(), WHY
