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

# What shells offer beside: files.
FILES = {'', 'm.safetensors'}


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
    """As bash calls it: --NAME=VALUE is three words for it."""
    script = 'source ../weightfs.bash; COMP_WORDS=(weightfs "$@"); COMP_CWORD=$#; _weightfs; printf "%s\\n" "${COMPREPLY[@]}"'
    split = [part for word in words for part in (re.split('(=)', word) if word.startswith('--') else [word])]
    return shell(place, 'bash', '-c', script, 'bash', *(split[:-1] if split[-2:] == ['=', ''] else split))


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


def test_keys_come_a_segment_at_a_time(complete):
    assert complete('cat', 'm.safetensors', 'la') == ['layer.']
    assert complete('cat', 'm.safetensors', 'layer.') == ['layer.0.weight', 'layer.1.weight']
    assert complete('cat', 'm.safetensors', 'layer.1') == ['layer.1.weight']


# Each is checked against the message about a wrong value, which has all of them.
@pytest.mark.parametrize('verb, option, wrong', [
    ('ls', '--color', ['ls', 'm.safetensors']), ('ls', '--sort', ['ls', 'm.safetensors']), ('show', '--sort', ['show', 'm.safetensors']),
    ('convert', '--format', ['convert', 'm.safetensors', 'x']), ('plan', '--format', ['convert', 'm.safetensors', 'x']),
    ('convert', '--ties', ['convert', 'm.safetensors', 'x']), ('extract', '--layout', ['extract', 'm.safetensors', '-d', 'x']),
    ('ls', '--cast', ['ls', 'm.safetensors']), ('ls', '--to', ['ls', 'm.safetensors']), ('diff', '--sort', ['diff', '--long', 'm.safetensors', 'm.safetensors'])])
def test_values_of_options(place, complete, verb, option, wrong):
    error = weightfs(*wrong, option + '=?', cwd=place / 'work', code=None).error
    known = re.split(', | or | and ', re.search('(?:must be(?: one of)?|known are) (.*?)(?:, not |$)', error)[1].replace("'", ''))
    for words in ([option + '='], [option, '']):
        found = {value.removeprefix(option + '=') for value in complete(verb, *words)} - FILES
        assert found - set(known) == set() and set(known) - found <= {'none'}, (found, error)
    assert complete(verb, option + '=' + known[0][:2])[0].endswith(known[0])


def test_first_words_of_verbs(complete):
    assert complete('cache', 'v') == ['verify'] and set(complete('patch', '')) - FILES == {'make', 'show', 'apply'}


@pytest.mark.skipif(re.search(r'libfuse \d', weightfs('--version').stdout) is None, reason='this build has no libfuse3')
def test_mount_points(complete, folder, mount):
    source = st.write(folder / 'm.safetensors', {'w': ('U8', [1], b'x')})
    here = str(mount(source).path)
    for verb in ('umount', 'status', 'commit', 'discard', 'diff'):
        assert here in complete(verb, here[:-1]), verb
    assert here in complete('patch', 'make', here[:-1]) and here not in complete('patch', 'show', here[:-1])


def test_keys(complete):
    assert 'head' in complete('ls', 'm.safetensors', 'layer.0.weight', 'he')
    found = complete('show', 'm.safetensors', '')
    assert len([key for key in found if key.replace('\\', '') in KEYS]) >= 4 and 'head' in found


def test_files_that_cannot_be_read(complete):
    assert set(complete('cat', 'nosuch', 'x')) <= {''}


def test_a_key_in_bash_is_quoted(place):
    assert in_bash(place, 'cat', 'm.safetensors', '$') == ['\\$\\(touch\\ caught\\)']
