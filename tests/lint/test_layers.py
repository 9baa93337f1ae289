# SPDX-License-Identifier: MIT
"""The rooms of src: that the house keeps its own order, and that the check of it sees every kind of fault."""
import os
import shutil
import pathlib
import re
import subprocess

import check_layers
import pytest

from wfs_testlib.program import BUILD, ROOT

ROOMS = {'base': [], 'tensor': ['base'], 'format/core': ['tensor'], 'format/zip': ['format/core'], 'format/tar': ['format/core'],
         'tree': ['tensor'], 'program': [], 'cli': ['program'], 'fuse': ['program']}
PROGRAMS = {'program', 'cli', 'fuse'}
PUBLIC = {'tree': 'tree', 'tensor': 'tensor'}
LIBRARIES = {'zlib.h': ['format/zip'], 'xxhash.h': ['base/hash.c']}


def test_the_rooms_are_in_order_and_have_no_circles():
    assert list(check_layers.House(ROOT, BUILD).problems()) == []


def test_the_tour_names_every_room():
    rows = set(re.findall(r'`([^`]+)`', '\n'.join(re.findall(r'^\| (`.*?) \|', (ROOT / 'docs/design.md').read_text(), re.M))))
    assert set(check_layers.ROOMS) - rows == set()


def make_house(folder, files, is_built=True, rooms=None):
    """A project of the given files (text by path below the root), and its objects as meson names them."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    build = folder / 'build/src/x.p'
    build.mkdir(parents=True)
    for name in files:
        if name.endswith('.c') and is_built:
            flat = name.removeprefix('src/').replace('/', '_') + '.o'
            subprocess.run(['gcc', '-I%s/src' % folder, '-I%s/include' % folder, '-w', '-c', folder / name, '-o', build / flat],
                           check=True)
    return check_layers.House(folder, folder / 'build', rooms or ROOMS, PROGRAMS, PUBLIC, LIBRARIES, {'fuse/mount.h'}, {'base/still.c'})


GOOD = {
    'src/base/a.h': 'int a(void);\n',
    'src/base/a.c': '#include "base/a.h"\nint a(void) { return 1; }\n',
    'src/tensor/b.h': '#include "base/a.h"\nint b(void);\n',
    'src/tensor/b.c': '#include "tensor/b.h"\nint b(void) { return a(); }\n',
    'src/format/zip/c.c': '#include "base/a.h"\n#include <zlib.h>\nint c(void) { return a(); }\n',
    'src/cli/d.c': '#include <weightfs/tree.h>\n#include "fuse/mount.h"\nint d(void) { return tree() + mount(); }\n',
    'src/fuse/mount.h': 'int mount(void);\n',
    'src/fuse/mount.c': '#include "fuse/mount.h"\nint mount(void) { return 1; }\n',
    'src/tree/e.c': '#include <weightfs/tree.h>\nint tree(void) { return 1; }\n',
    'include/weightfs/tree.h': '#include <weightfs/tensor.h>\nint tree(void);\n',
    'include/weightfs/tensor.h': '#include <stdint.h>\n',
}

# What is added to the good house, and what has to be said of it.
FAULTS = {
    'an include of a room above': (
        {'src/base/x.c': '#include "tensor/b.h"\n'}, 'src/base/x.c:1: is not above tensor/b.h'),
    'an include of a sibling': (
        {'src/format/tar/x.c': '#include "format/zip/y.h"\n', 'src/format/zip/y.h': ''}, 'is not above format/zip/y.h'),
    'an include of a room beside, further up': (
        {'src/tree/x.c': '#include "format/zip/y.h"\n', 'src/format/zip/y.h': ''}, 'is not above format/zip/y.h'),
    'a call upwards without an include': (
        {'src/base/x.c': 'int b(void);\nint x(void) { return b(); }\n'}, 'src/base/x.c: calls b of src/tensor/b.c'),
    'a table upwards without an include': (
        {'src/base/x.c': 'extern int t[];\nint x(void) { return t[0]; }\n', 'src/tree/t.c': 'int t[] = {1};\n'},
        'src/base/x.c: calls t of src/tree/t.c'),
    'a call into a sibling': (
        {'src/format/tar/x.c': 'int c(void);\nint x(void) { return c(); }\n'}, 'src/format/tar/x.c: calls c of src/format/zip/c.c'),
    'a program that includes the inside of the library': (
        {'src/cli/x.c': '#include "base/a.h"\n'}, 'src/cli/x.c:1: is not above base/a.h'),
    'a program that includes the inside of another': (
        {'src/cli/x.c': '#include "fuse/y.h"\n', 'src/fuse/y.h': ''}, 'src/cli/x.c:1: is not above fuse/y.h'),
    'a call from one program into another': (
        {'src/cli/x.c': 'int y(void);\nint x(void) { return y(); }\n', 'src/fuse/y.c': 'int y(void) { return 1; }\n'},
        'src/cli/x.c: calls y of src/fuse/y.c'),
    'a public header that includes a private one': (
        {'include/weightfs/tree.h': '#include "base/a.h"\nint tree(void);\n'}, 'tree.h:1: a public header includes base/a.h'),
    'a public header that includes one above': (
        {'include/weightfs/tensor.h': '#include <weightfs/tree.h>\n'}, 'tensor.h:1: is not above weightfs/tree.h'),
    'a public header of no room': (
        {'include/weightfs/x.h': '#include <stdint.h>\n'}, 'x.h: belongs to no room'),
    'a library outside of its room': (
        {'src/tree/x.c': '#include <zlib.h>\n'}, 'src/tree/x.c:1: is not listed as a user of zlib.h'),
    'a library outside of its file': (
        {'src/base/x.c': '#include <xxhash.h>\n'}, 'src/base/x.c:1: is not listed as a user of xxhash.h'),
    'a library that nobody lists': (
        {'src/base/x.c': '#include <ncurses.h>\n'}, 'includes the unknown system header ncurses.h'),
    'a folder that is not a room': (
        {'src/attic/x.c': 'int x;\n'}, 'src/attic/x.c: its folder is not a room'),
    'a header that is not found from src': (
        {'src/base/x.c': '#include "a.h"\n'}, 'includes, not by its place below src, a.h'),
    'a source whose own header comes second': (
        {'src/tensor/x.c': '#include "base/a.h"\n#include "tensor/x.h"\n', 'src/tensor/x.h': ''},
        'src/tensor/x.c: does not include tensor/x.h first'),
    'two files with one name': (
        {'src/tree/a.c': 'int z;\n'}, 'the same name twice: base/a.c tree/a.c'),
    'a circle of calls': (
        {'src/base/x.c': 'int y(void);\nint x(void) { return y(); }\n', 'src/base/y.c': 'int x(void);\nint y(void) { return x(); }\n'},
        'a circle of 2 files in src/base: x y'),
    'a circle of includes': (
        {'src/base/x.h': '#ifndef X\n#define X\n#include "base/y.h"\n#endif\n',
         'src/base/y.h': '#ifndef Y\n#define Y\n#include "base/x.h"\n#endif\n'}, 'a circle of 2 files in src/base: x y'),
    'a circle of a call and an include': (
        {'src/base/x.c': '#include "base/x.h"\nint x(void) { return 1; }\n', 'src/base/x.h': '#include "base/y.h"\n',
         'src/base/y.c': '#include "base/y.h"\nint x(void);\nint y(void) { return x(); }\n', 'src/base/y.h': ''},
        'a circle of 2 files in src/base: x y'),
    'a long circle': (
        {'src/base/x%d.c' % i: 'int x%d(void);\nint x%d(void) { return x%d(); }\n' % ((i + 1) % 40, i, (i + 1) % 40)
         for i in range(40)}, 'a circle of 40 files in src/base'),
}
IS_BUILT = {name for name, (files, _) in FAULTS.items() if 'call' in name or 'circle' in name or 'table' in name}


USERS = {  # of what is exported
    'src/tree/users.c': 'int b(void), tree(void);\nint (*uses[])(void) = {b, tree};\n',
    'src/format/zip/users_of_c.c': 'int c(void);\nint (*uses_c)(void) = c;\n',
    'src/cli/users_of_d.c': 'int d(void);\nint (*uses_d)(void) = d;\n',
}


def test_a_good_house_passes(tmp_path):
    assert list(make_house(tmp_path, {**GOOD, **USERS}).problems()) == []


@pytest.mark.parametrize('fault', FAULTS)
def test_each_fault_is_seen(tmp_path, fault):
    files, message = FAULTS[fault]
    found = [line for line in make_house(tmp_path, {**GOOD, **files}, fault in IS_BUILT).problems() if ': exports ' not in line]
    assert len(found) == 1 and message in found[0], found


@pytest.mark.parametrize('text, what', [
    ('int x = WFS_FORMAT_PYTORCH;', 'WFS_FORMAT_PYTORCH'), ('int x = format_burnpack_max;', 'format_burnpack_max'), ('int x = WFS_CONTAINER_ZIP;', 'WFS_CONTAINER_ZIP'),
    ('const char *x = "safetensors";', '"safetensors"'), ('const char *x = "the end is .mpk";', '"the end is .mpk"'), ('int burn_version;', 'burn_version')])
def test_the_name_of_a_format_is_seen_outside_of_the_formats(tmp_path, text, what):
    house = make_house(tmp_path, {'src/%s.c' % place: '\n%s\n' % text for place in ('tree/x', 'format/zip/y', 'format/z', 'base/still')}, False)
    assert list(house.format_name_problems()) == ['src/tree/x.c:2: names a format: ' + what]


@pytest.mark.parametrize('text', ['int depth;', '/* like safetensors */', '#include "format/dcp/dcp.h"', 'const char *x = "as PyTorch does";', "int x = 'd';"])
def test_other_words_are_no_names_of_formats(tmp_path, text):
    assert list(make_house(tmp_path, {'src/tree/x.c': text + '\n'}, False).format_name_problems()) == []


def test_an_exported_function_without_a_user_is_seen(tmp_path):
    files = {'src/base/x.c': 'int x(void) { return 1; }\nint y(void) { return x(); }\nint z(void) { return 1; }\nint w(void) { return 1; }\nint v(void) { return 1; }\n',
             'src/base/x.h': '/* Calls f(2). */\nint z(void); /* for tests */\nint y(void);\n', 'src/libweightfs.map': 'A {\n    w;\n};\nWEIGHTFS_PRIVATE {\n    y;\n};\n',
             'src/base/user.c': 'void *dlsym(void *, const char *);\nvoid *u(void) { return dlsym(0, "v"); }\nint main(void) { return u() == 0; }\n'}
    found = [line.split(', ')[0] for line in make_house(tmp_path, files).unused_problems()]
    assert found == ['src/base/user.c: exports u', 'src/base/x.c: exports x', 'src/base/x.c: exports y']


def test_a_circle_in_the_table_is_seen(tmp_path):
    rooms = {**ROOMS, 'base': ['tree']}
    assert any('the table of rooms has a circle through base' in line for line in make_house(tmp_path, GOOD, False, rooms).problems())


def test_the_program_reports_and_fails(tmp_path):
    make_house(tmp_path, {'src/base/x.c': '#include "tree/y.h"\n', 'src/tree/y.h': ''}, False)
    done = subprocess.run([ROOT / 'tools/check_layers.py', '--root', tmp_path], stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (1, 'src/base/x.c:1: is not above tree/y.h\n')


def test_objects_from_before_are_not_believed(tmp_path):
    house = make_house(tmp_path, {**GOOD, **USERS})
    assert list(house.problems()) == []
    source, (_, compiled) = tmp_path / 'src/base/a.c', min(house.objects())
    os.utime(source, ns=(0, compiled.stat().st_mtime_ns + 1))
    assert list(house.problems()) == ['%s is older than src/base/a.c: build first' % house.build]


def test_a_build_of_another_kind_below_the_build_does_not_count(tmp_path):
    """Like build/fuzz, which is older than the sources most of the time."""
    house = make_house(tmp_path, {**GOOD, **USERS})
    _, compiled = min(house.objects())
    other = tmp_path / 'build/fuzz/src/x.p' / compiled.name
    other.parent.mkdir(parents=True)
    shutil.copy(compiled, other)
    os.utime(other, ns=(0, 1))
    assert list(house.problems()) == []
