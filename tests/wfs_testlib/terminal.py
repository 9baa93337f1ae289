# SPDX-License-Identifier: MIT
"""Runs the program with a terminal as its standard error, and keeps what it draws there."""
import os
import subprocess
import threading

import pytest

from wfs_testlib import program


def open_terminal():
    try:
        return os.openpty()
    except OSError as error:
        return pytest.skip('there are no pseudo terminals: %s' % error)


def _read_all(fd, pieces):
    while True:
        try:
            piece = os.read(fd, 4096)
        except OSError:
            return  # the other end is closed
        if not piece:
            return
        pieces.append(piece)


def run(*args):
    """Exit code, standard output, what the terminal got."""
    own, theirs = open_terminal()
    drawn = []
    try:
        process = subprocess.Popen([*program.COMMAND, *map(os.fspath, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        reader = threading.Thread(target=_read_all, args=(own, drawn))
        reader.start()
        stdout, _ = process.communicate(timeout=program.PATIENCE)
        reader.join(program.PATIENCE)
    finally:
        os.close(own)
    return process.returncode, stdout.decode(), b''.join(drawn).decode()


def bars(drawn, what):
    """The percentages of the bar, which is drawn over and over in one line and taken away at the end."""
    if not drawn:
        return []
    *frames, rest = drawn.split('\r')[1:]
    assert rest == '\033[K', repr(drawn)
    result = []
    for frame in frames:
        front, bar, percent = frame.replace('[', ']').split(']')
        assert front == what + ' ' and len(bar) == 40 and bar.rstrip(' ').strip('#') == '', repr(frame)
        assert percent.endswith('%') and abs(bar.count('#') - int(percent[:-1]) * 40 // 100) <= 1, repr(frame)
        result.append(int(percent[:-1]))
    assert result == sorted(result) and result[-1] <= 100
    return result
