# SPDX-License-Identifier: MIT
"""Completion in real shells: verbs, options and keys as the program prints them, and nothing of a file is run."""
import os
import re
import shutil
import subprocess

import pytest

from wfs_testlib import st
from wfs_testlib.program import BUILD, ROOT, weightfs

KEYS = ['layer.0.weight', 'layer.1.weight', 'head', 'a b', '$(touch caught)', '`touch caught`', "x'; touch caught; '", '-dash']


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    """A folder with a source, and the completions as they would be installed."""
    folder = tmp_path_factory.mktemp('completion')
    for path in (ROOT / 'packaging/completions').iterdir():
        name = path.name[:-3].replace('weightfs.zsh', '_weightfs')
        (folder / name).write_text(path.read_text().replace('@candidates@', str(folder / 'candidates')))
    (folder / 'candidates').chmod(0o755)
    (folder / 'bin').mkdir()
    (folder / 'bin/weightfs').symlink_to(BUILD / 'src/weightfs')
    (folder / 'work').mkdir()
    st.write(folder / 'work/m.safetensors', {key: ('U8', [1], b'x') for key in KEYS})
    return folder


def shell(place, *command):
    if shutil.which(command[0]) is None:
        pytest.skip('there is no ' + command[0])
    env = {**os.environ, 'PATH': '%s:%s' % (place / 'bin', os.environ['PATH']), 'HOME': str(place), 'ZDOTDIR': str(place)}
    done = subprocess.run(command, cwd=place / 'work', env=env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, timeout=60)
    assert os.listdir(place / 'work') == ['m.safetensors']
    return done.stdout.splitlines()


def in_bash(place, *words):
    script = 'source ../weightfs.bash; COMP_WORDS=(weightfs "$@"); COMP_CWORD=$#; _weightfs; printf "%s\\n" "${COMPREPLY[@]}"'
    return shell(place, 'bash', '-c', script, 'bash', *words)


def in_fish(place, *words):
    line = ' '.join(['weightfs', *words])
    return [found.split('\t')[0] for found in shell(place, 'fish', '-c', 'source ../weightfs.fish; complete -C "$argv[1]"', line)]


def in_zsh(place, *words):
    """The function of the completion, with what zsh would give it, and the words that it adds."""
    script = 'words=(weightfs "$@"); CURRENT=$#words; _files() { }; compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -rl -- "$@" }; ' \
             'completion() { source ../_weightfs }; completion'
    return [found for found in shell(place, 'zsh', '-f', '-c', script, 'zsh', *words) if found.startswith(words[-1])]


@pytest.fixture(params=[in_bash, in_fish, in_zsh])
def complete(request, place):
    return lambda *words: request.param(place, *words)


def test_verbs(complete):
    verbs = re.findall('^  ([a-z]+) ', weightfs('--help').stdout.split('verbs:')[1].split('\n\n')[0], re.M)
    assert set(complete('co')) == {verb for verb in verbs if verb.startswith('co')} >= {'config', 'convert'}
    assert set(verbs) <= set(complete(''))


def test_options(complete):
    assert '--tree' in complete('ls', '--t') and '--remap=' in complete('ls', '--re')
    assert '--format=' in complete('convert', '--f') and '--format=' not in complete('ls', '--f')


def test_mount_options(complete):
    if 'mount options' not in weightfs('--help').stdout:
        pytest.skip('the program was built without the mount')
    assert 'overwrite' in complete('m.safetensors', 'mnt', '-o', 'ov')


def test_the_output_of_a_verb_is_no_mount_option(complete):
    assert 'overwrite' not in complete('report', 'm.safetensors', '-o', 'ov') + complete('map', 'm.safetensors', '-o', 'ov')


def test_keys(complete):
    assert complete('cat', 'm.safetensors', 'layer') == ['layer.0.weight', 'layer.1.weight']
    assert 'head' in complete('ls', 'm.safetensors', 'layer.0.weight', 'he')
    found = complete('show', 'm.safetensors', '')
    assert len([key for key in found if key.replace('\\', '') in KEYS]) >= 4 and 'head' in found


def test_files_that_cannot_be_read(complete):
    assert set(complete('cat', 'nosuch', 'x')) <= {''}


def test_a_key_in_bash_is_quoted(place):
    assert in_bash(place, 'cat', 'm.safetensors', '$') == ['\\$\\(touch\\ caught\\)']
