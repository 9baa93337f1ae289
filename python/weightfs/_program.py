# SPDX-License-Identifier: MIT
"""The program: where it is, and what it does for the module."""
from __future__ import annotations

import json
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


def run(*arguments: str, results: tuple[int, ...] = (0,), level: int = 3) -> str:
    """Runs the program and returns what it prints, or raises what it reports. Notices are warnings of the caller that is so many levels up."""
    done = subprocess.run([path(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding='utf-8', errors='surrogateescape')
    if done.returncode not in results:
        raise _errors.of_exit(done.returncode, done.stderr + (done.stdout if arguments[0] == 'patch' else ''))  # the edits that do not fit
    for line in done.stderr.splitlines():
        warnings.warn(line[len('weightfs: '):] if line.startswith('weightfs: ') else line, _errors.Notice, stacklevel=level)
    return done.stdout


def printed(verb: str, options: dict[str, Any], *operands: Any, results: tuple[int, ...] = (0, 1)) -> Any:
    """Returns the JSON that a verb prints. Its exit code 1 is a result."""
    out = run(verb, *([] if verb == 'config' else ['--json']), *flags(options), '--', *map(os.fspath, operands), results=results, level=4)
    return json.loads(out.encode('utf-8', 'surrogateescape').decode('utf-8', 'surrogatepass'))


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
