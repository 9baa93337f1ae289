# SPDX-License-Identifier: MIT
"""Mounts, where FUSE exists."""
from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from typing import Any, Iterator

from weightfs import _program
from weightfs._call import spell


@contextlib.contextmanager
def mount(source: Any, folder: Any = None, **options: Any) -> Iterator[pathlib.Path]:
    """Mounts a checkpoint and yields the path of the mount; options are those of ``weightfs -o``: ``rw=True``, ``output='new.pth'``,
    ``files='npy'``, ``remap=…``. Without a folder it is mounted in a new one, which is removed at the end.

    At the end the edits of a writable mount are saved; after an exception they are dropped.
    """
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix='weightfs-'))
        arguments = [word for text in spell(options) for word in ('-o', text.replace('\\', '\\\\').replace(',', '\\,'))]
        _program.run(os.fspath(source), os.fspath(folder), *arguments)
        try:
            yield pathlib.Path(folder)
        except BaseException:
            _program.run('umount', '--discard', os.fspath(folder))
            raise
        _program.run('umount', os.fspath(folder))
