#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes a C source with the text of each file as a constant: page.css becomes report_page_css.

Usage: embed.py OUTPUT INPUT..."""
import pathlib
import sys


def literal(data):
    """The bytes as C strings, one for each line; octal digits, which end after three of them."""
    lines = (''.join(chr(c) if 32 <= c < 127 and c not in b'"\\?' else '\\%03o' % c for c in line) for line in data.splitlines(True))
    return '\n'.join('    "%s"' % line for line in lines)


output, *inputs = map(pathlib.Path, sys.argv[1:])
output.write_text('#include "cli/treemap.h"\n' + ''.join(
    '\nconst char report_%s[] =\n%s;\n' % (path.name.replace('.', '_'), literal(path.read_bytes())) for path in inputs))
