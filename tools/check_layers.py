#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Checks the structure of src: rooms are used downwards only, and no room has a circle of files in it.

A room is a folder of src. ROOMS below says which rooms each may use; it may use what those use, too. An arrow is an
#include, or a symbol that an object file takes from another one. These things are faults:

- an arrow to a room that is not below
- files of one room whose arrows form a circle (a source and its header count as one file)
- a header of a library in a file that LIBRARIES does not list for it
- two files with the same name, or a source that does not include its own header first
- an object that is older than its source: its calls may be others by now
- the name of a format outside of the rooms below FORMATS: in an identifier, or in a text. What others have to know of formats
  is in the rows of the table of formats
- an exported function that no other file uses. It may have no user if src/libweightfs.map promises it to other programs, or if
  its declaration ends with the comment `for tests`

Usage: tools/check_layers.py [--root FOLDER] [--build FOLDER]

Calls are read from the objects of a build (default: build/ below the root) with nm; without one only includes are
checked, which is said. Prints a line for each fault; exit code 1 if there is one."""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

# From the ground up. Each room: the rooms right below it.
ROOMS = {
    'base': [],
    'remote': ['base'],
    'text': ['base'],
    'value': ['text'],
    'tensor': ['text'],
    'compute': ['tensor'],
    'catalog': ['tensor', 'value'],
    'edits': ['catalog'],
    'archive': ['tensor'],
    'pickle': ['value'],
    'format/core': ['catalog', 'remote'],
    'format/safetensors': ['format/core'],
    'format/burnpack': ['format/core'],
    'format/gguf': ['format/core'],
    'format/pytorch/object': ['format/core', 'archive', 'pickle'],
    'format/pytorch/writer': ['format/pytorch/object'],
    'format/pytorch': ['format/pytorch/writer'],
    'format/records': ['format/core', 'archive'],
    # Its items are files of PyTorch or safetensors.
    'format/dcp/writer': ['format/pytorch/writer'],
    'format/dcp': ['format/dcp/writer', 'format/pytorch', 'format/safetensors'],
    'format/set': ['format/core'],
    'format': ['format/safetensors', 'format/burnpack', 'format/gguf', 'format/records', 'format/dcp', 'format/set'],
    'view/regex': ['text'],
    'view/evidence': ['view/regex', 'catalog'],
    'view/adapter': ['view/regex', 'catalog', 'compute'],
    'view': ['view/evidence', 'view/adapter', 'remote'],
    'tree/stage': ['catalog'],
    'tree/node': ['tree/stage'],
    'tree/file': ['tree/node'],
    'tree/control': ['tree/file'],
    'tree': ['tree/control', 'edits'],
    # Programs: they see the library through include/weightfs only.
    'sandbox': [],
    'fetch': ['sandbox'],
    'program': ['fetch'],
    'cli': ['program'],
    'fuse/sandbox': ['program'],
    'fuse': ['fuse/sandbox'],
    # The interface of the library for other programs, weightfs.h: it asks for things in the words of the programs.
    'library': ['program', 'format', 'view', 'tree'],
}
PROGRAMS = {'sandbox', 'program', 'fetch', 'cli', 'fuse/sandbox', 'fuse'}
# The room that a public header (include/weightfs/NAME.h) belongs to.
PUBLIC = {'weightfs': 'base', 'url': 'base', 'hub': 'base', 'remote': 'remote', 'fetching': 'remote', 'cachefile': 'remote', 'cachestore': 'remote', 'described': 'remote',
          'array': 'base', 'traits': 'base', 'cleanup': 'base', 'io': 'base', 'percent': 'base', 'error': 'base', 'output': 'base', 'size': 'base', 'strbuf': 'text', 'json_out': 'text',
          'finding': 'catalog', 'tensor': 'tensor', 'workload': 'tensor', 'patch': 'edits', 'interruption': 'base', 'catalog': 'catalog', 'value': 'catalog',
          'layout': 'format/core', 'shards': 'format/set', 'format': 'format',
          'view': 'view', 'stage': 'tree/stage', 'status': 'tree/stage', 'tree': 'tree/node', 'control': 'program'}
# The header by which the command line knows the mount.
BETWEEN_PROGRAMS = {'fuse/mount.h'}
# Which rooms may use which library. A file in place of a room: that file only.
LIBRARIES = {
    'fuse_lowlevel.h': ['fuse'],
    'cbor.h': ['format/burnpack'],
    'curl/curl.h': ['fetch'],
    'nettle/sha2.h': ['program/checkup.c', 'cli/sum.c', 'library/reports.c'],
    'jansson.h': ['program/summary.c', 'text', 'tree/control/texts.c', 'tree/stage/statusfile.c', 'value', 'view', 'view/adapter'],
    'mpack.h': ['format/records/mpk.c'],
    'pcre2.h': ['view/regex'],
    'seccomp.h': ['sandbox/callfilter.c'],
    'xxhash.h': ['base/hash.c'],
    'zlib.h': ['archive', 'format/core'],
}
# The rooms that may name formats, and the words that do so: alone, or as parts of an identifier or text, with a suffix of the plural.
FORMATS = 'format'
FORMAT_NAMES = re.compile(r'(?<![a-z0-9])(safetensors|burnpack|gguf|bpk|pytorch|pth|ckpt|mpk|dcp|distcp|burn[-_]version|format_records|'
                          r'wfs_container_(?!kind|file|shards|run|models)[a-z]+|finding_(?:st|bpk|pt|rec|dcp))(?![a-z0-9])')
# Files outside of those rooms that name a format for a reason: a patch is a file of that format by its definition.
NAMING_FORMATS = {'weightfs/patch.h'}
SYSTEM = re.compile(r'(sys|linux|net)/\w+\.h|(assert|ctype|dirent|dlfcn|endian|errno|fcntl|fenv|float|fnmatch|getopt|grp|inttypes|'
                    r'libgen|limits|locale|malloc|math|poll|pthread|pwd|sched|signal|spawn|stdarg|stdatomic|stdbool|stddef|stdint|stdio|'
                    r'stdlib|string|strings|syslog|termios|time|unistd|wchar)\.h')
# Comments and characters, which are passed over; texts; identifiers.
TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|\'(?:[^\'\\\n]|\\.)*\'|#[ \t]*include[^\n]*|(?P<text>"(?:[^"\\\n]|\\.)*")|(?P<identifier>[A-Za-z_]\w*)', re.S)
# A declaration of a function that only tests use.
FOR_TESTS = re.compile(r'\b(\w+)\((?:(?!\*/)[^;{}])*\);\s*/\* for tests \*/')
SYMBOL_TEXT = re.compile(r'\bdlsym\([^;]*"(\w+)"')
INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')

Arrow = collections.namedtuple('Arrow', 'source target why')


def below(room, rooms):
    """All rooms that a room may use."""
    found, left = set(), [room]
    while left:
        for under in rooms[left.pop()]:
            if under not in found:
                found.add(under)
                left.append(under)
    return found


def is_public(header):
    return header.startswith('weightfs/') or header == 'weightfs.h'


class House:
    """The sources of a project, and what leads from one to another."""

    def __init__(self, root, build=None, rooms=None, programs=None, public=None, libraries=None, between=None, naming=None):
        self.root = root
        self.build = build
        self.rooms = ROOMS if rooms is None else rooms
        self.programs = PROGRAMS if programs is None else programs
        self.public = PUBLIC if public is None else public
        self.libraries = LIBRARIES if libraries is None else libraries
        self.between = BETWEEN_PROGRAMS if between is None else between
        self.naming = NAMING_FORMATS if naming is None else naming
        src = root / 'src'
        self.files = sorted(str(path.relative_to(src)) for path in src.rglob('*.[ch]'))
        self.public_headers = sorted(str(path.relative_to(root)) for path in (root / 'include').rglob('*.h'))

    def room_of(self, file):
        """Of a file below src, or of a public header as an include spells it."""
        folder, _, name = file.rpartition('/')
        return self.public.get(name.removesuffix('.h')) if is_public(file) else folder

    def includes(self, path):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                yield number, match[1], match[2]

    def may_use(self, room, target):
        """May a file of the room use what a file (below src, or a public header) offers?"""
        other = self.room_of(target)
        if room in self.programs:
            is_program = other in self.programs
            return (is_public(target) or target in self.between or room == other or
                    is_program and other in below(room, self.rooms))
        return other == room or other in below(room, self.rooms)

    def include_problem(self, file, room, quote, header):
        """Why the file must not include the header, or None."""
        if quote == '<' and not is_public(header):
            if header in self.libraries:
                users = self.libraries[header]
                return None if room in users or file in users else 'is not listed as a user of'
            return None if SYSTEM.fullmatch(header) else 'includes the unknown system header'
        if quote == '"' and (is_public(header) or header not in self.files):
            return 'includes, not by its place below src,'
        return None if self.may_use(room, header) else 'is not above'

    def objects(self):
        """(file, object) of what the build has; files as they are below src."""
        sources = {file.replace('/', '_') + '.o': file for file in self.files if file.endswith('.c')}
        objects = {}
        for path in sorted((self.build / 'src').rglob('*.c.o')):  # not in builds of other kinds below it
            if path.name in sources:
                objects.setdefault(sources[path.name], path)
        return objects.items()

    def symbols(self):
        """(file, symbol, kind) of every object of the build."""
        for file, path in self.objects():
            text = subprocess.run(['nm', '-P', path], stdout=subprocess.PIPE, check=True, text=True).stdout
            for line in text.splitlines():
                name, kind = line.split()[:2]
                yield file, name, kind

    def calls(self):
        """Arrows from objects to those that define what they take."""
        owners, taken = {}, []
        for file, name, kind in self.symbols():
            if kind == 'U':
                taken.append((file, name))
            elif kind in 'TDBRVW':
                owners[name] = file
        for file, name in taken:
            if owners.get(name, file) != file:
                yield Arrow(file, owners[name], name)

    def arrows(self):
        """Includes and calls between files below src."""
        for file in self.files:
            for number, quote, header in self.includes(self.root / 'src' / file):
                if quote == '"' and header in self.files:
                    yield Arrow(file, header, '#include')
        if self.build is not None:
            yield from self.calls()

    def include_problems(self):
        for file in self.files:
            lines = list(self.includes(self.root / 'src' / file))
            room = self.room_of(file)
            if room not in self.rooms:
                yield 'src/%s: its folder is not a room of the table' % file
                continue
            for number, quote, header in lines:
                problem = self.include_problem(file, room, quote, header)
                if problem:
                    yield 'src/%s:%d: %s %s' % (file, number, problem, header)
            own = file.removesuffix('.c') + '.h'
            if own != file and own in self.files and (not lines or lines[0][2] != own):
                yield 'src/%s: does not include %s first' % (file, own)
        for file in self.public_headers:
            name = file.removeprefix('include/')
            own = self.room_of(name)
            for number, quote, header in self.includes(self.root / file):
                if own not in self.rooms:
                    yield '%s: belongs to no room of the table' % file
                elif not is_public(header) and not (quote == '<' and SYSTEM.fullmatch(header)):
                    yield '%s:%d: a public header includes %s' % (file, number, header)
                elif is_public(header) and not self.may_use(own, header):
                    yield '%s:%d: is not above %s' % (file, number, header)

    def call_problems(self):
        for source, target, name in self.calls() if self.build is not None else []:
            room, other = self.room_of(source), self.room_of(target)
            if room not in self.rooms or other not in self.rooms:
                continue
            if room in self.programs:
                is_fine = other not in self.programs or self.may_use(room, target) or self.is_between(target)
            else:
                is_fine = self.may_use(room, target)
            if not is_fine:
                yield 'src/%s: calls %s of src/%s, and is not above it' % (source, name, target)

    def is_between(self, target):
        return target.removesuffix('.c') + '.h' in self.between

    def is_of_formats(self, file):
        room = self.room_of(file)
        return room is not None and (room == FORMATS or room.startswith(FORMATS + '/'))

    def format_names(self, path):
        """(line, what) of each name of a format in a source. Texts say PyTorch of the library and pytorch of the format."""
        source = path.read_text()
        for match in TOKEN.finditer(source):
            text = match['text'] or (match['identifier'] or '').lower()
            if FORMAT_NAMES.search(text):
                yield source.count('\n', 0, match.start()) + 1, match[0]

    def format_name_problems(self):
        files = [('src/' + file, file) for file in self.files] + [(file, file.removeprefix('include/')) for file in self.public_headers]
        for shown, file in files:
            for line, what in [] if self.is_of_formats(file) or file in self.naming else self.format_names(self.root / shown):
                yield '%s:%d: names a format: %s' % (shown, line, what)

    def is_promised(self):
        """The functions that other programs may use."""
        path = self.root / 'src/libweightfs.map'
        return set(re.findall(r'\b(\w+);', path.read_text().partition('WEIGHTFS_PRIVATE')[0])) if path.exists() else set()

    def is_named(self):
        """The functions that are for tests, or found by their name as a text: those of a library that is opened."""
        found = set()
        for path in [self.root / 'src' / file for file in self.files] + [self.root / file for file in self.public_headers]:
            found.update((FOR_TESTS if path.suffix == '.h' else SYMBOL_TEXT).findall(path.read_text()))
        return found

    def unused_problems(self):
        owners, used = {}, {'main'} | self.is_promised() | self.is_named()
        for file, name, kind in self.symbols() if self.build is not None else []:
            if kind == 'T':
                owners[name] = file
            elif kind == 'U':
                used.add(name)
        for name in sorted(owners.keys() - used, key=lambda name: (owners[name], name)):
            yield 'src/%s: exports %s, and no other file uses it' % (owners[name], name)

    def build_problems(self):
        objects = self.objects() if self.build is not None else []
        old = [file for file, path in objects if path.stat().st_mtime_ns < (self.root / 'src' / file).stat().st_mtime_ns]
        if old:
            yield '%s is older than src/%s%s: build first' % (self.build, old[0], ' and %d more' % (len(old) - 1) if old[1:] else '')

    def name_problems(self):
        names = collections.defaultdict(list)
        for file in self.files:
            names[file.rpartition('/')[2]].append(file)
        for places in names.values():
            if len(places) > 1:
                yield 'the same name twice: %s' % ' '.join(places)

    def table_problems(self):
        for room in self.rooms:
            if room in below(room, self.rooms):
                yield 'the table of rooms has a circle through %s' % room

    def circles(self):
        """Lists of files, without their endings, that lead to each other inside of a room."""
        edges = collections.defaultdict(set)
        for source, target, _ in self.arrows():
            if self.room_of(source) == self.room_of(target) and source[:-2] != target[:-2]:
                edges[source[:-2]].add(target[:-2])
        return [sorted(circle) for circle in strong_components(edges) if len(circle) > 1]

    def circle_problems(self):
        for circle in sorted(self.circles()):
            yield 'a circle of %d files in src/%s: %s' % (
                len(circle), circle[0].rpartition('/')[0], ' '.join(file.rpartition('/')[2] for file in circle))

    def problems(self):
        """All faults. Where the build is older than the sources, that and no other: its calls are not those of the sources."""
        old = list(self.build_problems())
        kinds = (self.table_problems, self.include_problems, self.call_problems, self.name_problems, self.circle_problems,
                 self.format_name_problems, self.unused_problems)
        yield from old or (fault for kind in kinds for fault in kind())


def strong_components(edges):
    """Tarjan's algorithm, without recursion."""
    index, low, on_stack, stack = {}, {}, set(), []
    for first in list(edges):
        if first in index:
            continue
        work = [(first, iter(sorted(edges[first])))]
        index[first] = low[first] = len(index)
        stack.append(first)
        on_stack.add(first)
        while work:
            node, left = work[-1]
            for other in left:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(edges.get(other, ())))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while not component or component[-1] != node:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    yield component


def main():
    parser = argparse.ArgumentParser(description='Checks the structure of src.')
    parser.add_argument('--root', type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument('--build', type=pathlib.Path)
    args = parser.parse_args()
    build = args.build or args.root / 'build'
    if not build.exists():
        print('no build in %s: calls are not checked' % build, file=sys.stderr)
        build = None
    found = list(House(args.root, build).problems())
    print('\n'.join(found), end='\n' if found else '')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
