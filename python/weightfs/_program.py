# SPDX-License-Identifier: MIT
"""The program: where it is, and what it does for the module."""
from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import warnings
from typing import Any

from weightfs import _errors
from weightfs._call import spell

FOLDER = os.path.dirname(os.path.abspath(__file__))


def path() -> str:
    """Returns the path of the program: in the folder of this package, as a wheel has it, or on PATH."""
    beside = os.path.join(FOLDER, 'bin', 'weightfs')
    found = beside if os.path.exists(beside) else shutil.which('weightfs')
    if found is None:
        raise FileNotFoundError('the program weightfs is neither in %s nor on PATH' % os.path.dirname(beside))
    return found


def flags(options: dict[str, Any]) -> list[str]:
    """Returns options as the program takes them."""
    texts = [text.split('=', 1) for text in spell(options)]
    return ['='.join(['--' + name.replace('_', '-'), *value]) for name, *value in texts]


def run(*arguments: str) -> None:
    """Runs the program, or raises what it reports. Its notices are warnings."""
    done = subprocess.run([path(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          encoding='utf-8', errors='surrogateescape')
    if done.returncode != 0:
        raise _errors.of_exit(done.returncode, done.stderr)
    for line in done.stderr.splitlines():
        warnings.warn(line[len('weightfs: '):] if line.startswith('weightfs: ') else line, _errors.Notice, stacklevel=3)


def draw(options: dict[str, Any], *sources: str) -> str:
    """Returns the treemap of a checkpoint, or of what changed from one to another, as SVG; in words why there is none."""
    import html
    try:
        with tempfile.TemporaryDirectory(prefix='weightfs-') as folder:
            target = os.path.join(folder, 'map.svg')
            run('map', '-o', target, *flags(options), '--', *sources)
            with open(target, encoding='utf-8') as file:
                return file.read()
    except (OSError, _errors.Error) as error:
        return '<i>%s</i>' % html.escape(str(error))
