# SPDX-License-Identifier: MIT
"""A new format is a folder (which src/meson.build names), a row of the table of formats and one of rooms: a toy is added to a copy of the sources,
and the program that comes of it lists and converts its files."""
import json
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

    (tmp_path / 'in.toy').write_bytes(FILE)
    assert run('ls', 'in.toy') == 'a.b\tU8\t[4]\t4\nc\tU8\t[2]\t2\n'
    assert json.loads(run('info', '--json', 'in.toy'))['format'] == 'toy'
    run('convert', 'in.toy', 'out.safetensors')
    assert st.read(tmp_path / 'out.safetensors').tensors == {'a.b': ('U8', [4], b'abcd'), 'c': ('U8', [2], b'xy')}
    run('convert', 'out.safetensors', 'again.toy')
    assert (tmp_path / 'again.toy').read_bytes() == FILE
    run('convert', '--format=toy', 'in.toy', 'named')
    assert (tmp_path / 'named').read_bytes() == FILE
