# SPDX-License-Identifier: MIT
"""Runs the program with a terminal as its standard error, and keeps what it draws there."""
import contextlib
import fcntl
import os
import re
import struct
import subprocess
import termios
import threading
import unicodedata

import pytest

from wfs_testlib import program


def open_terminal():
    try:
        return os.openpty()
    except OSError as error:
        return pytest.skip('there are no pseudo terminals: %s' % error)


def need():
    """Skips a test before it has begun something that it has to end."""
    for end in open_terminal():
        os.close(end)


# What ends a reading. Where the last process has closed a terminal, Linux can tell its reader so while the last lines are still on their way.
END = b'\0'


def read_to_end(fd, pieces):
    piece = b''
    while not piece.endswith(END):
        piece = os.read(fd, 4096)
        pieces.append(piece.removesuffix(END))


@contextlib.contextmanager
def opened(columns=0):
    """The end of a terminal that a process gets, and a list of what is drawn there, which is whole after the block."""
    own, theirs = open_terminal()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
    drawn = []
    reader = threading.Thread(target=read_to_end, args=(own, drawn))
    reader.start()
    try:
        yield theirs, drawn
    finally:
        os.write(theirs, END)
        reader.join()
        os.close(theirs)
        os.close(own)


def run(*args):
    """Exit code, standard output, what the terminal got."""
    with opened() as (theirs, drawn):
        process = subprocess.run([*program.COMMAND, *map(os.fspath, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs,
                                 env={**os.environ, 'NO_COLOR': '1'}, timeout=program.PATIENCE)
    return process.returncode, process.stdout.decode(), b''.join(drawn).decode()


def bars(drawn, what):
    """The percentages of the line of progress, which is drawn over and over and taken away at the end."""
    if not drawn:
        return []
    *frames, rest = drawn.split('\r')[1:]
    assert rest == '\033[K', repr(drawn)
    result = []
    for frame in frames:
        match = re.fullmatch(r'(?:\033\[K)?(.*?)(?: +(\d+)%)?(?: \[(#*) *\])?((?:  [^ ].*)?)', frame)
        assert match and match[1] == what or match[1].startswith(what + '  '), repr(frame)
        if match[2] is not None:
            result.append(int(match[2]))
    assert result == sorted(result) and (not result or result[-1] <= 100)
    return result


COLOUR = re.compile('\033\\[[0-9;]*m')
# A line that was taken away again. Where the machine is busy, progress is drawn of everything.
ERASED = re.compile('[^\n]*\r\033\\[K')


def width(text):
    """The columns that a text takes on a terminal, by Python's tables."""
    return sum(0 if unicodedata.category(c) in ('Mn', 'Me', 'Cf') else 2 if unicodedata.east_asian_width(c) in 'WF' else 1
               for c in COLOUR.sub('', text))


class Screen:
    """A terminal that is both outputs of the program: `raw` is what it got, all else what is left on it at the end."""

    def __init__(self, code, raw):
        self.code, self.raw = code, raw
        self.left = ERASED.sub('', raw.replace('\r\n', '\n'))
        self.lines = [COLOUR.sub('', line) for line in self.left.splitlines()]
        self.text = '\n'.join(self.lines)


def screen(*args, columns=80, code=0, **environment):
    """Runs the program with a terminal of that many columns; a variable that is None is not set."""
    return screen_of([*program.COMMAND, *map(os.fspath, args)], columns=columns, code=code, **environment)


def screen_of(command, columns=80, code=0, cwd=None, **environment):
    """The same for any command."""
    variables = {**os.environ, 'TERM': 'xterm', 'NO_COLOR': None, 'COLUMNS': None, **environment}
    with opened(columns) as (theirs, drawn):
        process = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=cwd, timeout=program.PATIENCE,
                                 env={name: value for name, value in variables.items() if value is not None})
    raw = b''.join(drawn).decode()
    assert code is None or process.returncode == code, 'exit code %d of: %s\n%s' % (process.returncode, program.show(command), raw)
    return Screen(process.returncode, raw)
