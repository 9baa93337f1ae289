# SPDX-License-Identifier: MIT
"""The developer tools: they exist, and report in one line what they lack."""
import os
import re
import subprocess
import sys

import pytest

from wfs_testlib import terminal
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


TASKS = ('apt-get -o DPkg::Lock::Timeout=600 update -qq && '
         'DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -qq -y --no-install-recommends gcc meson && '
         'ln -s ../proc/self/mounts /etc/mtab')
BARE = ('set -euo pipefail; . tools/common.sh; is_installed() { return 1; }; id() { echo 1000; }; has_mount_table() { return 1; }\n'
        'command() { case $2 in sudo) %s ;; *) builtin command "$@" ;; esac; }; ')


def shell(script, has_sudo=True):
    """Runs a script with the functions of tools/common.sh, as an ordinary user of a bare system, without a terminal."""
    return subprocess.run(['bash', '-c', BARE % ('true' if has_sudo else 'false') + script], cwd=ROOT, start_new_session=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_without_sudo_the_command_for_root_is_named():
    done = shell('install_packages gcc meson', has_sudo=False)
    assert (done.returncode, done.stdout) == (1, '')
    assert done.stderr == 'there is no sudo; run as root: %s\n' % TASKS


def test_where_nobody_can_be_asked_sudo_does_not_ask():
    done = shell('sudo() { echo "${@@Q}"; }; install_packages gcc meson; echo done')
    assert (done.returncode, done.stderr) == (0, '')
    assert done.stdout == "\n== as root: %s\n'-n' 'sh' '-c' '%s'\ndone\n" % (TASKS, TASKS)


def test_on_a_terminal_sudo_is_called_once_and_may_ask(folder):
    script = ': </dev/stderr; ' + BARE % 'true' + 'sudo() { echo "${@@Q}" >>"$0/calls"; }; install_packages gcc meson'
    assert terminal.screen_of(['setsid', '-w', 'bash', '-c', script, folder], cwd=ROOT, columns=400).text == '\n== as root: ' + TASKS
    assert (folder / 'calls').read_text() == "'sh' '-c' '%s'\n" % TASKS


def test_after_a_failure_the_command_for_root_is_named():
    done = shell('sudo() { return 1; }; install_packages gcc meson')
    assert done.returncode == 1
    assert done.stderr == 'this failed; run as root: %s\n' % TASKS


def test_nothing_is_run_as_root_where_nothing_is_missing():
    done = shell('is_installed() { return 0; }; has_mount_table() { return 0; }; sudo() { echo sudo; }; install_packages gcc meson')
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')


def test_another_distribution_gets_the_names_of_the_packages():
    done = shell('command() { return 1; }; install_packages gcc meson')
    assert (done.returncode, done.stdout, done.stderr.count('\n')) == (1, '', 1)
    assert done.stderr.endswith('README.md): gcc meson\n')


def bench(*words, **environment):
    return subprocess.run([sys.executable, '-B', ROOT / 'tools/bench', *words], env={**os.environ, **environment},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_benchmark_without_a_build_reports_it(folder):
    done = bench('--build', folder, 'conversions')
    assert (done.returncode, done.stdout) == (1, '')
    assert done.stderr == 'tools/bench: no program at %s/src/weightfs: build it first with: meson setup build && ninja -C build\n' % folder


@pytest.mark.skipif(not os.path.exists('/dev/fuse'), reason='there is no /dev/fuse')
def test_the_benchmark_names_missing_packages(folder):
    done = bench('--build', BUILD, 'reads', 'listings', PATH=str(folder))
    assert (done.returncode, done.stdout) == (1, '')
    assert re.fullmatch(r'tools/bench: missing packages; run as root: apt-get install attr (fuse3 )?rsync\n', done.stderr)


def test_the_benchmark_says_how_much_room_it_needs(folder):
    code = ('import sys, shutil; sys.path.insert(0, "tools"); from benchlib import needs\n'
            'shutil.disk_usage = lambda path: shutil._ntuple_diskusage(9 << 30, 0, 5 << 30)\n'
            'shutil.which = lambda *words, **more: "found"\n'
            'print([needs.problem(sys.executable, ["conversions"], "build", is_quick) for is_quick in (False, True)])')
    done = subprocess.run([sys.executable, '-B', '-c', code], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "['5 GiB are free in build, and up to 12 GiB are needed (with --quick, 4 GiB)', None]\n"


def test_the_benchmark_rejects_an_unknown_section():
    done = bench('nonsense')
    assert done.returncode == 2 and "unknown section 'nonsense'" in done.stderr


def test_the_growth_of_every_verb_is_measured():
    """All but those that need a server or a driver that was killed."""
    verbs = set(re.findall(r'^    {"(\w+)", &verb_', (ROOT / 'src/cli/main.c').read_text(), re.M))
    measured = set(re.findall(r'"(\w+)"', (ROOT / 'tools/benchlib/growth.py').read_text()))
    assert len(verbs) > 15 and verbs - measured == {'cache', 'recover'}
