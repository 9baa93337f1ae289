# SPDX-License-Identifier: MIT
"""A new format is a folder (which src/meson.build names), a row of the table of formats and one of rooms: a toy is added to a copy of the sources,
and the program that comes of it lists and converts its files, and has its limit and its option."""
import json
import re
import shlex
import shutil
import subprocess

import check_layers

from wfs_testlib import st
from wfs_testlib.program import BUILD, ROOT

FILE = b'TOY1' + b'\x03a.b\x04abcd' + b'\x01c\x02xy'


def add_format(folder):
    """The sources with the toy format. Each edit here is one that a developer makes."""
    for name in ('include', 'src'):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copytree(ROOT / 'tests/toy', folder / 'src/format/toy')
    registry = folder / 'src/format/registry.c'
    text = registry.read_text().replace('formats[] = {\n', 'formats[] = {\n    &format_toy,\n', 1)
    registry.write_text(text.replace('#include "base/bytes.h"\n', '#include "base/bytes.h"\n#include "format/toy/toy.h"\n', 1))
    rooms = {**check_layers.ROOMS, 'format/toy': ['format/core']}
    rooms['format'] = [*rooms['format'], 'format/toy']
    return rooms


def build(folder):
    """Compiles the two sources that differ, as the build does, and links the objects of the build to them."""
    commands = json.loads(subprocess.run(['ninja', '-C', BUILD, '-t', 'compdb'], stdout=subprocess.PIPE, check=True).stdout)
    command = next(one['command'] for one in commands if one['file'].endswith('src/format/registry.c') and one['output'].endswith('.o'))
    flags = [flag for flag in shlex.split(command) if flag.startswith(('-D', '-O', '-std', '-f'))]
    objects = []
    for name in ('registry', 'toy/toy'):
        objects.append(folder / (name.replace('/', '_') + '.o'))
        subprocess.run(['gcc', *flags, '-Wall', '-Werror', '-I%s' % (folder / 'src'), '-I%s' % (folder / 'include'), '-c',
                        folder / 'src/format' / (name + '.c'), '-o', objects[-1]], check=True)
    libraries = subprocess.run(['pkg-config', '--libs', 'fuse3', 'jansson', 'libcbor', 'libpcre2-8', 'libxxhash', 'zlib', 'libseccomp', 'nettle'],
                               stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    subprocess.run(['gcc', '-o', folder / 'weightfs', *sorted((BUILD / 'src/weightfs.p').glob('*.o')), *objects, BUILD / 'src/libweightfs-static.a',
                    *libraries, '-lmpack', '-lm', '-lpthread', '-ldl'], check=True)
    return folder / 'weightfs'


def test_a_format_is_added_by_its_folder_and_its_rows(tmp_path):
    rooms = add_format(tmp_path)
    assert [line for line in check_layers.House(tmp_path, None, rooms).problems()] == []
    program = build(tmp_path)

    def run(*words):
        return subprocess.run([program, *words], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, text=True).stdout

    def fail(*words):
        done = subprocess.run([program, *words], cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        return done.returncode, done.stderr.removeprefix('weightfs: ').removesuffix('\n')

    (tmp_path / 'in.toy').write_bytes(FILE)
    assert run('ls', 'in.toy') == 'a.b\tU8\t[4]\t4\nc\tU8\t[2]\t2\n'
    assert json.loads(run('info', '--json', 'in.toy'))['sources'][0]['format'] == 'toy'
    run('convert', 'in.toy', 'out.safetensors')
    assert st.read(tmp_path / 'out.safetensors').tensors == {'a.b': ('U8', [4], b'abcd'), 'c': ('U8', [2], b'xy')}
    run('convert', 'out.safetensors', 'again.toy')
    assert (tmp_path / 'again.toy').read_bytes() == FILE
    run('convert', '--format=toy', 'in.toy', 'named')
    assert (tmp_path / 'named').read_bytes() == FILE
    run('convert', '--toy-edition=1', '--toy-edition=3', 'in.toy', 'third.toy')
    assert (tmp_path / 'third.toy').read_bytes() == b'TOY3' + FILE[4:]

    assert run('ls', '--limit=toy_vectors=2', 'third.toy') == run('ls', 'in.toy')
    assert fail('ls', '--limit=toy_vectors=1', 'in.toy') == (
        6, 'in.toy: more than 1 vectors (limit toy_vectors); --limit=toy_vectors=N, or -o limit.toy_vectors=N of a mount, raises it')
    assert fail('ls', '--limit=toy_vectors=x', 'in.toy') == (
        2, "in.toy: limit 'toy_vectors' needs a whole number: toy_vectors=NUMBER")
    unknown, _, known = fail('ls', '--limit=toys=1', 'in.toy')[1].partition('; known are: ')
    assert unknown == "in.toy: unknown limit 'toys'" and {'tensors', 'toy_vectors', 'cbor'} < set(known.split())
    assert fail('convert', '--toy-edition=10', 'in.toy', 'x.toy') == (2, "--toy-edition must be a digit from 1 to 9, not '10'")
    assert fail('convert', '--toy-edition=2', 'in.toy', 'x.pth') == (2, '--toy-edition applies to .toy files only')
    assert fail('convert', '--toy-editon=2', 'in.toy', 'x.toy') == (2, "unknown option '--toy-editon=2'; did you mean '--toy-edition'?")
    text = run('convert', '--help')
    assert '  --toy-edition=N              the edition of a toy\n' in text
    names = [line.split()[0].partition('=')[0] for line in text.splitlines() if line.startswith('  --')]
    assert names[names.index('--toy-edition') - 1:][:3] == ['--ties', '--toy-edition', '--values']
    assert re.search(r'--format=NAME +(toy, .*|.*, toy.*)\n', text)
    assert re.search(r'known are .*\.toy', fail('convert', 'in.toy', 'x')[1])
