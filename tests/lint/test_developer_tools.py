# SPDX-License-Identifier: MIT
"""The developer tools: they exist, and report in one line what they lack."""
import os
import re
import subprocess
import sys

import pytest

from wfs_testlib.program import BUILD, ROOT

PAGES = [ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md'))]


@pytest.mark.parametrize('page', PAGES, ids=lambda path: path.name)
def test_every_tool_that_a_page_names_exists(page):
    for name in re.findall(r'(?<![/\w])(?:\.ci|tools|docs|tests)/[\w./-]*\w', page.read_text()):
        assert (ROOT / re.sub(r'/[A-Z]+(\.md)?$', '', name)).exists(), name  # but for a placeholder, such as FORMAT


def test_every_page_that_a_page_links_to_exists():
    for page in PAGES:
        for target in re.findall(r'\]\(([^)#:]+)\)', page.read_text()):
            assert (page.parent / target).exists(), (page, target)


def shell(script):
    """Runs a script with the functions of tools/common.sh, as an ordinary user without any package."""
    return subprocess.run(['bash', '-c', 'set -euo pipefail; . tools/common.sh; is_installed() { return 1; }; id() { echo 1000; }\n' + script],
                          cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_packages_that_cannot_be_installed_are_named():
    done = shell('sudo() { return 1; }; install_packages gcc meson')
    assert (done.returncode, done.stdout) == (1, '')
    assert done.stderr == "missing packages; run 'sudo -v' first, or run as root: apt-get install gcc meson\n"


def test_without_sudo_the_command_for_root_is_named():
    done = shell('command() { return 1; }; install_packages gcc meson')
    assert (done.returncode, done.stdout) == (1, '')
    assert done.stderr == 'missing packages; run as root: apt-get install gcc meson\n'


def bench(*words, **environment):
    return subprocess.run([sys.executable, '-B', ROOT / 'tools/bench', *words], env={**os.environ, **environment},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_benchmark_without_a_build_reports_it(folder):
    done = bench('--build', folder, 'conversions')
    assert (done.returncode, done.stdout) == (1, '')
    assert done.stderr == 'tools/bench: no program at %s/src/weightfs: build it first, for example with tools/try\n' % folder


@pytest.mark.skipif(not os.path.exists('/dev/fuse'), reason='there is no /dev/fuse')
def test_the_benchmark_names_missing_packages(folder):
    done = bench('--build', BUILD, 'reads', 'listings', PATH=str(folder))
    assert (done.returncode, done.stdout) == (1, '')
    assert re.fullmatch(r'tools/bench: missing packages; run as root: apt-get install attr (fuse3 )?rsync\n', done.stderr)


def test_the_benchmark_rejects_an_unknown_section():
    done = bench('nonsense')
    assert done.returncode == 2 and "unknown section 'nonsense'" in done.stderr
