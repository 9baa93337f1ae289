# SPDX-License-Identifier: MIT
"""The manual pages of the verbs: complete, well formed, and every example in them does what it is for."""
import os
import re
import shutil
import subprocess
import sys

import numpy
import pytest

from wfs_testlib import program, terminal
from wfs_testlib.program import BUILD, ROOT, SAMPLE, tool, weightfs

VERBS = re.findall(r'^  ([a-z]+)  +(.*)', weightfs('--help').stdout.split('verbs:')[1].split('\n\n')[0], re.M)
HAS_PAGES = (BUILD / 'docs/man').exists()
CODES = {**{'weightfs diff %smodel.safetensors tuned.safetensors' % option: 1 for option in ('', '--stat ', '--long ')},
         'weightfs diff mnt': 1, 'weightfs recover': 9}

pytestmark = pytest.mark.skipif(not HAS_PAGES, reason='there is no build with the pages')


def read_page(verb):
    return (BUILD / ('docs/man/weightfs-%s.1' % verb)).read_text()


def examples(verb):
    """The commands of a page; lines with an indent go on."""
    return commands_of(read_page(verb).split('.Sh EXAMPLES\n')[1].split('.Sh ')[0])


def commands_of(section):
    return [re.sub(r'\\?\n +', ' ', command).replace('\\e', '\\')
            for command in re.findall(r'^\$ (.*(?:\n +.*)*)', section.replace('\\e\n', '\\\n'), re.M)]


@pytest.mark.skipif(shutil.which('man') is None or shutil.which('col') is None, reason='there is no man')
def test_pages_fit_80_columns():
    """Without a warning of groff."""
    pages = [*(BUILD / 'docs/man').glob('*.1'), *(ROOT / 'docs/man').glob('*.[18]')]
    assert len(pages) > len(VERBS)
    for page in pages:
        done = subprocess.run(['man', '--warnings=all', '-l', page], env={**os.environ, 'MANWIDTH': '80', 'LC_ALL': 'C.UTF-8', 'TERM': 'dumb'}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=program.PATIENCE, check=True)
        assert not re.search(r'^\.(Pq )?(Sq|Ql|Dq) .*( , \S| No )', page.read_text(), re.M), 'what follows is inside of the quotes'
        text = subprocess.run(['col', '-bx'], input=done.stdout, text=True, stdout=subprocess.PIPE, timeout=program.PATIENCE, check=True).stdout
        assert done.stderr == '' and 'SYNOPSIS' in text, page
        assert [line for line in text.splitlines() if terminal.width(line) > 80] == [], page


@pytest.mark.parametrize('verb, summary', VERBS)
def test_a_page_has_what_the_help_has(verb, summary):
    page, text = read_page(verb), weightfs(verb, '--help').stdout
    assert re.search(r'^\.Nd (.*)', page, re.M)[1] == summary
    common = weightfs('help', 'common').stdout if "'weightfs help common'" in text else ''
    options = set(re.findall(r'^  --([\w-]+)', text.split('\nview options')[0] + common, re.M)) - {'color', 'help'}
    if '\nexamples:\n' in text:
        options -= {'cast', 'include', 'rename'}
    assert options == set(re.findall(r'^\.It Fl -([\w-]+)', page, re.M))
    assert ('View options' in text) == ('The view options' in page) or verb == 'plan'
    assert not re.search(r'^As (for|the mount|\.)|^As\n|^\.Sx', page, re.M)
    assert '.Cm %s' % verb in page.split('.Sh SYNOPSIS')[1].split('.Sh')[0]


@pytest.mark.skipif(shutil.which('mandoc') is None, reason='there is no mandoc')
def test_pages_are_well_formed():
    pages = [BUILD / ('docs/man/weightfs-%s.1' % verb) for verb, _ in VERBS]
    assert tool('mandoc', '-T', 'lint', '-W', 'warning', *pages).stdout == ''


@pytest.fixture
def place(folder):
    """What the examples are about, in a folder, with the program on the path: run(command)."""
    shutil.copy(SAMPLE, folder / 'model.safetensors')
    numpy.save(folder / 'scale.npy', numpy.zeros((2, 3), 'f4'))
    numpy.save(folder / 'bias.npy', numpy.ones(32, 'f4'))
    weightfs('edit', folder / 'model.safetensors', folder / 'tuned.safetensors', '--replace=embeddings.norm.bias=%s' % (folder / 'bias.npy'))
    weightfs('edit', folder / 'model.safetensors', folder / 'model.pth', '--set-value=epoch=3')
    (folder / 'bin').mkdir()
    (folder / 'bin/weightfs').write_text('#!/bin/sh\nexec %s "$@"\n' % program.show(program.COMMAND))
    (folder / 'bin/weightfs').chmod(0o755)
    environment = {**os.environ, 'PATH': '%s:%s' % (folder / 'bin', os.environ['PATH'])}

    def run(command):
        done = subprocess.run(['bash', '-c', command], cwd=folder, env=environment, text=True, timeout=program.PATIENCE,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.returncode == CODES.get(command, 0), '%s: %d: %s%s' % (command, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr
    run.folder = folder
    return run


def files_of(folder):
    return {entry.name: entry.stat().st_mtime_ns for entry in os.scandir(folder) if entry.name != 'mnt'}


@pytest.mark.parametrize('verb', [verb for verb, _ in VERBS])
def test_every_example_works(verb, place, mount):
    if any('://' in command for command in examples(verb)):
        pytest.skip('the examples need a network')
    assert len(examples(verb)) >= 2 and all('weightfs ' + verb in text for text in examples(verb) if text.startswith('weightfs'))
    one, left = None, place.folder / '.edited.safetensors.weightfs'
    for command in examples(verb):
        if ' mnt' in command and (one is None or one.process.poll() is not None) or verb == 'recover' and not left.exists():
            one = mount(place.folder / 'model.safetensors', 'output=edited.safetensors', 'overwrite', at=place.folder / 'mnt', cwd=place.folder)
            os.unlink(one / 'encoder/layer/0/attention/query/bias')
            if verb == 'recover':
                tool('sync', '-d', one / 'encoder')
                one.kill()
        before = files_of(place.folder)
        output = place(command)
        assert output != 'null\n' and output or files_of(place.folder) != before or 'mount' in command, command
        if ' mnt' in command and 'mount' in command:
            one.wait()


def test_the_examples_of_the_program_work(place, mount):
    """Those before the examples of verbs, in their order."""
    section = (ROOT / 'docs/man/weightfs.1').read_text().split('.Sh EXAMPLES\n')[1].split('.Ss ')[0]
    numpy.zeros(128 * 64, '<f2').tofile(place.folder / 'raw.f16')
    for commands in map(commands_of, section.split('.Pp\n')):
        one = None
        if ' mnt/' in commands[0]:
            one = mount(place.folder / 'model.safetensors', 'output=more.safetensors', at=place.folder / 'mnt', cwd=place.folder)
        for command in commands:
            place(command.replace('python3', sys.executable))
        if one is not None:
            place('weightfs umount mnt')
            one.wait()
    assert 'new\tF16\t[128, 64]\t16384\n' in place('weightfs ls more.safetensors')
    assert 'model.layer.0.attention.key.bias\tF16\t' in place('weightfs ls half.safetensors')
