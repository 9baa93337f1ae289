#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Checks that every #include follows the layers, and that file names are unique.

    fuse   cli           programs: the public headers, and their own
      \\    /
     include/weightfs
  format  view  tree     siblings, which must not include each other
      \\    |    /
        tensor
           |
         base

Usage: tools/check_layers.py       prints what breaks the rule; exit code 1 if anything does"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

# What a module may include besides its own folder; a public header counts for the module that it belongs to.
BELOW = {
    'base': set(),
    'tensor': {'base'},
    'format': {'base', 'tensor'},
    'view': {'base', 'tensor'},
    'tree': {'base', 'tensor'},
}
PROGRAMS = {'fuse', 'cli'}
# Together they are one program; this is all that one half knows of the other.
BETWEEN_PROGRAMS = {'cli/exit.h', 'fuse/mount.h', 'fuse/published.h', 'fuse/publish.h', 'fuse/unmount.h'}
# Public headers that are not called after the module that they belong to.
PUBLIC = {'error': 'base', 'output': 'base', 'catalog': 'tensor', 'value': 'tensor', 'stage': 'tree',
          'control': 'programs'}
# Which files may use which library; a trailing slash means all of a folder.
LIBRARIES = {
    'fuse_lowlevel.h': ['src/fuse/'],
    'cbor.h': ['src/format/burnpack'],
    'jansson.h': ['src/cli/', 'src/format/burnpack_dtype.c', 'src/tree/', 'src/tensor/value', 'src/view/'],
    'pcre2.h': ['src/view/'],
    'seccomp.h': ['src/fuse/syscalls.c'],
    'xxhash.h': ['src/base/hash.c'],
    'zlib.h': ['src/format/inflate.c', 'src/format/zip'],
}
SYSTEM = re.compile(r'(sys|linux|net)/\w+\.h|(assert|ctype|dirent|endian|errno|fcntl|fenv|float|fnmatch|getopt|grp|inttypes|'
                    r'libgen|limits|locale|malloc|math|poll|pthread|pwd|sched|signal|spawn|stdarg|stdatomic|stdbool|stddef|stdint|stdio|'
                    r'stdlib|string|strings|syslog|termios|time|unistd|wchar)\.h')
INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')


def module_of(header):
    """The module of a header as it is written in an include."""
    folder, _, name = header.partition('/')
    if folder != 'weightfs':
        return folder
    stem = name.removesuffix('.h')
    return PUBLIC.get(stem, stem)


def problem_with(path, module, quote, header):
    """Why the file must not include it, or None."""
    is_public = header.startswith('weightfs/')
    if quote == '<' and not is_public:
        if header in LIBRARIES:
            is_listed = any(path.startswith(prefix) for prefix in LIBRARIES[header])
            return None if is_listed else 'is not listed as a user of'
        return None if SYSTEM.fullmatch(header) else 'unknown system header'
    if quote == '"' and (is_public or not (ROOT / 'src' / header).exists()):
        return 'not by its place under src:'
    target = module_of(header)
    if module in PROGRAMS:
        is_fine = is_public or target == module or header in BETWEEN_PROGRAMS
    elif module == 'public':
        own = module_of('weightfs/' + path.rsplit('/', 1)[1])
        is_fine = is_public and (target == own or own == 'programs' or target in BELOW[own])
    else:
        is_fine = target == module or target in BELOW[module]
    return None if is_fine else 'is above or beside'


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1], match[2]


def problems():
    names = {}
    for path in sorted([*ROOT.glob('src/**/*.[ch]'), *ROOT.glob('include/**/*.h')]):
        name = str(path.relative_to(ROOT))
        module = 'public' if name.startswith('include/') else path.relative_to(ROOT / 'src').parts[0]
        lines = list(includes(path))
        for number, quote, header in lines:
            problem = problem_with(name, module, quote, header)
            if problem:
                yield '%s:%d: %s %s' % (name, number, problem, header)
        if path.suffix == '.c' and path.with_suffix('.h').exists():
            own = '%s/%s.h' % (path.parent.relative_to(ROOT / 'src'), path.stem)
            if not lines or lines[0][2] != own:
                yield '%s: does not include %s first' % (name, own)
        if module != 'public':
            names.setdefault(path.name, []).append(name)
    for name, places in names.items():
        if len(places) > 1:
            yield 'the same name twice: %s' % ' '.join(places)


if __name__ == '__main__':
    found = list(problems())
    print('\n'.join(found), end='\n' if found else '')
    sys.exit(1 if found else 0)
