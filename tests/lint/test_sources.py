# SPDX-License-Identifier: MIT
"""What style can be checked by a program."""
import collections
import os
import re
import shutil
import subprocess

import pytest

from wfs_testlib.program import ROOT, SAMPLE, tool, weightfs

HEADERS = sorted(path for folder in ('include', 'src') for path in (ROOT / folder).rglob('*.h'))
SOURCES = sorted(path for folder in ('include', 'src', 'tests') for path in (ROOT / folder).rglob('*.[ch]'))
SCRIPTS = sorted(path for path in [*(ROOT / 'tools').rglob('*'), *(ROOT / '.ci').iterdir(), *(ROOT / 'tests').rglob('*.py'),
                                    *(ROOT / 'python').rglob('*.py')]
                 if path.is_file() and path.suffix in ('', '.py', '.sh'))
BUILD_FILES = sorted([*ROOT.glob('meson*'), *(path for folder in ('docs', 'packaging', 'python', 'src', 'tests') for path in (ROOT / folder).rglob('meson*'))])
FORMAT_VERSION = 14  # of clang-format: others break lines elsewhere


def name(path):
    return str(path.relative_to(ROOT))


def each_folder(paths):
    """One case for a folder, with its files: a case for each file takes longer than what it checks."""
    folders = collections.defaultdict(list)
    for path in paths:
        folders[path.parent].append(path)
    return [pytest.param(files, id=name(folder)) for folder, files in sorted(folders.items())]


@pytest.mark.parametrize('paths', each_folder(SOURCES + SCRIPTS + BUILD_FILES))
def test_every_source_says_its_licence(paths):
    assert [name(path) for path in paths
            if sum('SPDX-License-Identifier: MIT' in line for line in path.read_text().split('\n')[:2]) != 1] == []


@pytest.fixture(scope='session')
def compiler():
    fuse = subprocess.run(['pkg-config', '--cflags', 'fuse3'], stdout=subprocess.PIPE, check=True).stdout.decode().split()
    flags = '-std=gnu11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Wall -Wextra -Werror -Wno-unused-parameter -Wno-unused-function'
    return ['gcc', *flags.split(), '-I%s' % (ROOT / 'include'), '-I%s' % (ROOT / 'src'), *fuse, '-DFUSE_USE_VERSION=314', '-fsyntax-only']


@pytest.mark.parametrize('paths', each_folder(HEADERS))
def test_headers_compile_alone(paths, folder, compiler):
    sources = []
    for path in paths:
        assert re.search(r'#ifndef (WFS_\w+_H)\n#define \1\n', path.read_text()), '%s: no include guard' % name(path)
        sources.append(folder / ('%s.c' % path.stem))
        sources[-1].write_text('#include "%s"\n#include "%s"\n' % (path, path))
    tool(*compiler, *sources)


def problems_of_length(path):
    lines = path.read_text().split('\n')
    if len(lines) > 801:
        yield '%s: more than 800 lines' % name(path)
    begin = None
    for number, line in enumerate(lines, 1):
        if len(line) > 100:
            yield '%s:%d: more than 100 columns' % (name(path), number)
        if line == '{':
            begin = number
        elif line == '}' and begin:
            if number - begin + 1 > 62:
                yield '%s:%d: a function of more than 60 lines' % (name(path), begin)
            begin = None


@pytest.mark.parametrize('paths', each_folder(SOURCES))
def test_files_and_functions_stay_short(paths):
    assert [problem for path in paths for problem in problems_of_length(path)] == []


@pytest.mark.parametrize('paths', each_folder(SOURCES + SCRIPTS))
def test_nothing_is_left_to_do(paths):
    assert [name(path) for path in paths if re.search(r'\b(TO' r'DO|FIX' r'ME|X' r'XX)\b', path.read_text())] == []


def test_no_variable_belongs_to_a_thread():
    """What a thread says to functions far below is a parameter: struct wfs_io."""
    assert [name(path) for path in SOURCES if '_Thread_local' in path.read_text() or '__thread' in path.read_text()] == []


def clang_format_version():
    program = shutil.which('clang-format')
    if program is None:
        return None
    return int(re.search(r'version (\d+)', subprocess.run([program, '--version'], stdout=subprocess.PIPE, check=True).stdout.decode())[1])


@pytest.mark.skipif(clang_format_version() != FORMAT_VERSION, reason='needs clang-format %d' % FORMAT_VERSION)
def test_sources_are_formatted():
    tool('clang-format', '--dry-run', '-Werror', *SOURCES)


def test_manual_page_is_well_formed():
    assert tool('mandoc', '-T', 'lint', '-W', 'warning', *(ROOT / 'docs/man').glob('*.[18]')).stdout == ''


def test_scripts_use_the_python_of_debian():
    for path in SCRIPTS:
        first = path.read_text().split('\n')[0]
        assert not first.startswith('#!') or first in ('#!/usr/bin/python3', '#!/bin/bash'), path
        assert os.access(path, os.X_OK) == first.startswith('#!'), path


def test_the_sample_is_made_by_its_script(folder):
    tool(ROOT / 'tools/make_sample.py', folder / 'again')
    assert (folder / 'again').read_bytes() == SAMPLE.read_bytes()
    assert SAMPLE.stat().st_size < 64 << 10


def test_every_verb_is_in_the_manual():
    verbs = re.findall(r'^  (\w+)  ', weightfs('--help').stdout, re.M)
    page = (ROOT / 'docs/man/weightfs.1').read_text()
    assert 'ls' in verbs and 'convert' in verbs
    for verb in verbs:
        assert re.search(r'^\.It Cm %s\b' % verb, page, re.M), verb


def options_of(text):
    return re.findall(r'^  (--\w[\w-]*)', text, re.M)


def test_the_manual_has_the_options_of_every_verb_in_the_order_of_its_help():
    page = (ROOT / 'docs/man/weightfs.1').read_text()
    verbs = dict(re.findall(r'^\.It Cm (\w+) Ar (.*?)(?=^\.It Cm \w+ Ar |^\.Pp\nEvery verb)', page, re.M | re.S))
    everywhere = ['--color', '--help']
    common = ['--cache', '--cache-size', '--endpoint', '--epoch', '--escape-nul', '--force', '--limit', '--retries', '--shards', '--timeout', *everywhere]
    for verb in re.findall(r'^  (\w+)  ', weightfs('--help').stdout.split('\n\n')[2], re.M):
        options = options_of(weightfs(verb, '--help').stdout.split('\nview options')[0])
        options = options[3:] if '\nexamples:\n' in weightfs(verb, '--help').stdout else options
        own = [option for option in options if verb == 'recover' and option not in everywhere or option not in common]
        assert ['--' + option for option in re.findall(r'^\.It Fl -([\w-]+)', verbs[verb], re.M)] == own, verb


def test_the_manual_has_the_view_options_in_the_order_of_the_help():
    views = (ROOT / 'docs/man/weightfs.1').read_text().split('.Sh VIEWS')[1].split('.Sh MOUNTING')[0]
    assert re.findall(r'^\.It Fl -([\w-]+)', views, re.M) == [
        option[2:] for option in options_of(weightfs('plan', '--help').stdout.split('\nview options')[1])]
