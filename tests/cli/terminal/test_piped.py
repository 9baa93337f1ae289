# SPDX-License-Identifier: MIT
"""What the verbs print in a pipe is what it was, byte for byte: scripts rely on it."""
import pytest

from wfs_testlib import piped

WHY = 'print it as before, or tell the change in CHANGELOG.md and run tests/wfs_testlib/make_piped.py'


def test_every_verb_is_kept():
    kept = {line.split()[2] for path in piped.FOLDER.iterdir() for line in path.read_text().splitlines() if line.startswith('$ weightfs ')}
    assert set(piped.listed_verbs()) <= kept


@pytest.mark.parametrize('verb', piped.WITHOUT_A_MOUNT)
def test_the_output_of_a_verb_is_what_it_was(folder, verb):
    piped.write_sources(folder)
    assert piped.text_of(verb, folder) == (piped.FOLDER / (verb + '.txt')).read_text(), WHY
