# SPDX-License-Identifier: MIT
"""The pictures of README: tools/pictures draws them from the program, and README shows only what it draws."""
import re
import subprocess
import xml.etree.ElementTree

from wfs_testlib import program, terminal
from wfs_testlib.program import COMMAND

DRAWN = {'session.svg', 'info.svg', 'show.svg', 'diff.svg', 'map.svg', 'report.png'}


def words(path):
    return '\n'.join(''.join(text.itertext()) for text in xml.etree.ElementTree.parse(path).iter('{http://www.w3.org/2000/svg}text'))


def test_they_are_drawn_from_the_program(tmp_path):
    terminal.need()
    subprocess.run([program.ROOT / 'tools/pictures', COMMAND[-1], tmp_path], check=True, timeout=300, stdin=subprocess.DEVNULL)
    assert "committed to '/home/me/edited.safetensors': 2 edits" in words(tmp_path / 'session.svg').replace('\n    ', ' ')
    assert 'model.layers.{0..11}' in words(tmp_path / 'info.svg')
    assert 'model.layers.11' in words(tmp_path / 'diff.svg')
    assert 'q_proj' in words(tmp_path / 'map.svg')
    for name in ('info.svg', 'show.svg', 'diff.svg'):
        assert words(tmp_path / name) == words(program.ROOT / 'docs/pictures' / name), 'a picture changed: run tools/pictures, and look at it'


def test_readme_shows_those_that_are_there():
    shown = set(re.findall(r'docs/pictures/([\w.]+)', (program.ROOT / 'README.md').read_text()))
    there = {path.name for path in (program.ROOT / 'docs/pictures').iterdir()}
    assert shown <= there <= DRAWN
