# SPDX-License-Identifier: MIT
"""Where a key is in the tree, from the description of names in the manual; written without a look at the program."""
import re

NAME_MAX = 255
DEPTH_MAX = 256
CUT = re.compile(r'%~[0-9a-f]{16}$')


class CutName:
    """A name that is too long: only its beginning is known, the rest is a mark and a hash."""

    def __init__(self, name):
        self.whole = name

    def matches(self, name):
        if not CUT.search(name) or len(name.encode()) > NAME_MAX:
            return False
        front = CUT.sub('', name)
        return len(front) > 100 and self.whole.startswith(front)


def escape(part):
    if part == '':
        return '%'
    name = ''.join('%%%02X' % ord(c) if c in '%/\x7f' or '\x01' <= c <= '\x1f' else c for c in part)
    return '%2E' + name[1:] if name.startswith('.') else name


def name_of(part, suffix=''):
    name = escape(part) + suffix
    return CutName(escape(part)) if len(name.encode()) > NAME_MAX else name


def paths(keys, layout='nested', suffix=''):
    """key -> list of names from the root down. A too long one is a CutName, without the suffix."""
    if layout == 'flat':
        return {key: [name_of(key, suffix)] for key in keys}
    split = {key: key.split('.', DEPTH_MAX - 1) for key in keys}
    prefixes = {tuple(parts[:n]) for parts in split.values() for n in range(1, len(parts))}
    result = {}
    for key, parts in split.items():
        above = [name_of(part) for part in parts[:-1]]
        if tuple(parts) in prefixes:
            result[key] = above + [name_of(parts[-1]), '%self' + suffix]
        else:
            result[key] = above + [name_of(parts[-1], suffix)]
    return result


def plain_paths(keys, layout='nested', suffix=''):
    """key -> path with slashes, for keys without too long parts."""
    return {key: '/'.join(names) for key, names in paths(keys, layout, suffix).items()}
