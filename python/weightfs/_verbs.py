# SPDX-License-Identifier: MIT
"""What the verbs of the program do with whole checkpoints."""
from __future__ import annotations

import html
import os
from typing import Any, Callable, Optional, Union

from weightfs import _program
from weightfs._call import Call, json_of, text_of
from weightfs._checkpoint import Checkpoint
from weightfs._edit import Edits, written
from weightfs._native import ffi, lib

Path = Union[str, 'os.PathLike[str]']
Source = Union[str, 'os.PathLike[str]', Checkpoint]
Progress = Optional[Callable[[int, int], Any]]


def opened(source: Source) -> Checkpoint:
    return source if isinstance(source, Checkpoint) else Checkpoint(source, {})


def viewed(source: Source, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the path of a source, and the options with those of a checkpoint that is open."""
    if isinstance(source, Checkpoint):
        return source.source, {**source.options, **options}
    return os.fspath(source), options


def open(source: Path, **options: Any) -> Checkpoint:  # noqa: A001
    """Opens a checkpoint: a file of any format, a directory, the index of shards, or a URL (``https://``, ``s3://``, ``hf://``).

    Options are those of the program, with underscores: ``remap='s/^model[.]//'``, ``include='^encoder'``, ``cast='F16'``,
    ``lora='adapter/'``, ``force=True``, ``limit={'tensors': 5000000}``. Several values of an option are a list.

    >>> ckpt = weightfs.open('encoder.safetensors', remap='s/^pooler/head/', include='^head')
    >>> list(ckpt)
    ['head.dense.bias', 'head.dense.weight']
    """
    return Checkpoint(source, options)


def convert(source: Source, target: Path, *, progress: Progress = None, **options: Any) -> dict[str, Any]:
    """Writes a checkpoint in the format that the name of the target has, whole or not at all; options are those of ``weightfs convert``.
    ``progress(done, total)`` is called with bytes; what it raises ends the conversion, and nothing of it is left.

    Returns what was written: ``output``, ``format``, ``tensors``, ``files``, ``bytes``, ``left_out``.

    >>> weightfs.convert('encoder.safetensors', 'encoder.pth', cast='weight$:F32')['tensors']
    41
    """
    path, options = viewed(source, options)
    call, text = Call(options, progress), ffi.new('char **')
    call.check(lib.wfs_convert(text_of(path), text_of(target), call.options, text, call.error))
    return written(call, text)


def edit(source: Source, target: Optional[Path] = None, *, progress: Progress = None, **options: Any) -> Edits:
    """Collects edits, and saves them at the end of a ``with`` block, whole or not at all; after an exception nothing is written.
    Without a target the checkpoint itself is replaced. Options are those of outputs: ``overwrite=True``, ``backup=True``, ``format='pytorch'``; edits of a view
    are those of a checkpoint that was opened with it.

    >>> with weightfs.edit('encoder.safetensors', 'edited.safetensors') as edits:
    ...     edits.rename('pooler', 'head')
    ...     edits.remove('encoder.layer.1.*')
    ...     edits['scale'] = numpy.float32([1, 2])
    >>> weightfs.open('edited.safetensors')['scale'][1]
    np.float32(2.0)
    """
    return Edits(opened(source), target, options, progress)


class Diff(dict):
    """What ``weightfs diff --json`` prints: ``only_a``, ``only_b``, ``changed``, ``n_equal``, ``is_equal``; in a notebook a picture of it."""

    def __init__(self, a: Checkpoint, b: Checkpoint, found: dict[str, Any]) -> None:
        super().__init__(found)
        self._a, self._b = a, b

    def _repr_html_(self) -> str:
        rows = [('only in A', one['key'], '%s %s' % (one['dtype'], one['shape'])) for one in self['only_a']]
        rows += [('only in B', one['key'], '%s %s' % (one['dtype'], one['shape'])) for one in self['only_b']]
        rows += [('changed', one['key'], 'largest difference %s' % one.get('max_abs')) for one in self['changed']]
        cells = ''.join('<tr>%s</tr>' % ''.join('<td>%s</td>' % html.escape(cell) for cell in row) for row in rows[:50])
        more = '<p>and %d more</p>' % (len(rows) - 50) if len(rows) > 50 else ''
        names = '<b>%s</b> and <b>%s</b>' % (html.escape(self._a.source), html.escape(self._b.source))
        # The program applies views to both.
        picture = _program.draw(self._a.options, self._a.source, self._b.source) if self._a.options == self._b.options else ''
        return '<div>%s: %d tensors are equal<table>%s</table>%s%s</div>' % (names, self['n_equal'], cells, more, picture)


def diff(a: Source, b: Source, *, progress: Progress = None, **options: Any) -> Diff:
    """Compares two checkpoints, or what views show of them, tensor by tensor. Options: ``exact``, ``long``, ``large``.

    >>> weightfs.diff('encoder.safetensors', weightfs.open('encoder.safetensors', cast='weight$:F32'))['is_equal']
    False
    """
    first, second = opened(a), opened(b)
    return Diff(first, second, json_of(lib.wfs_diff, first._open(), second._open(), Call(options, progress)))


def check(source: Source, *, progress: Progress = None, **options: Any) -> dict[str, Any]:
    """Looks for damage and oddities; with the option ``values`` also for NaN and infinities.

    >>> weightfs.check('encoder.safetensors')['findings'][0]['text']
    "tensor 'scaled_fp8' has no elements"
    """
    return json_of(lib.wfs_check, opened(source)._open(), Call(options, progress))


def sum(source: Source, *, progress: Progress = None, **options: Any) -> dict[str, dict[str, Any]]:  # noqa: A001
    """Computes SHA-256 and XXH3 of each tensor, which are equal for equal tensors in all formats.

    >>> weightfs.sum('encoder.safetensors')['temperature']['xxh3']
    '33846b2bafa9e62d'
    """
    return {one.pop('key'): one for one in json_of(lib.wfs_sum, opened(source)._open(), Call(options, progress))['tensors']}
