# SPDX-License-Identifier: MIT
"""An open checkpoint."""
from __future__ import annotations

import collections
import collections.abc
import html
import os
from typing import Any, Iterator

from weightfs import _program
from weightfs._call import Call, json_of, key_of, text_from, text_of
from weightfs._errors import UsageError
from weightfs._native import ffi, lib
from weightfs._tensor import Tensor

Module = collections.namedtuple('Module', 'n_tensors n_elements n_bytes')


class Items(collections.abc.ItemsView[str, Tensor]):
    """Iterates without a search for each key."""

    def __iter__(self):
        return zip(self._mapping._keys(), self._mapping._tensors())


class Values(collections.abc.Mapping[str, Any]):
    """The values of a checkpoint, read when one is asked for; and the method ``values`` of a mapping."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._json: Any = None

    def _load(self) -> dict[str, Any]:
        if self._json is None:
            self._json = json_of(lib.wfs_values, self._checkpoint._open(), ffi.NULL)
        return self._json

    def __call__(self) -> collections.abc.ValuesView[Tensor]:
        return collections.abc.ValuesView(self._checkpoint)

    def __getitem__(self, name: str) -> Any:
        return self._load()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())

    def __repr__(self) -> str:
        return repr(self._load())


class Checkpoint(collections.abc.Mapping[str, Tensor]):
    """The tensors of a checkpoint by their keys, in the order of the file. ``weightfs.open`` makes it; ``close`` or ``with`` ends it.

    Any number of threads may use it at once.
    """

    def __init__(self, source: Any, options: dict[str, Any]) -> None:
        self.source, self.options = os.fspath(source), options
        call = Call(options)
        out = ffi.new('struct wfs_checkpoint **')
        call.check(lib.wfs_open(text_of(source), call.options, out, call.error))
        self._handle = ffi.gc(out[0], lib.wfs_close)
        call.warn(3)

    def _open(self):
        handle = self._handle
        if handle is None:
            raise UsageError('%s is closed' % self.source)
        return handle

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._handle is None

    def close(self) -> None:
        """Closes the files. What reads in another thread ends first."""
        self._handle = None

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_exception: Any) -> None:
        self.close()

    def __reduce__(self):
        is_path = '://' not in self.source
        return Checkpoint, (os.path.abspath(self.source) if is_path else self.source, self.options)

    def __repr__(self):
        if self._handle is None:
            return '<Checkpoint %s, closed>' % self.source
        return '<Checkpoint %s: %d tensors, %s>' % (self.source, len(self), self.format)

    # ---- a mapping

    def __len__(self) -> int:
        return lib.wfs_checkpoint_n_tensors(self._open())

    def _keys(self):
        handle = self._open()
        n_bytes = ffi.new('size_t *')
        keys = lib.wfs_checkpoint_keys(handle, n_bytes)
        if keys == ffi.NULL:
            raise MemoryError('no memory for the keys')
        return ffi.unpack(keys, n_bytes[0]).decode('utf-8', 'surrogatepass').split('\0')[:-1] if n_bytes[0] else []

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __getitem__(self, key: str) -> Tensor:
        handle, name = self._open(), key_of(key)
        tensor = ffi.new('const struct wfs_tensor **')
        if lib.wfs_checkpoint_find(handle, name, tensor, ffi.NULL) < 0:
            call = Call(notices=False)
            call.check(lib.wfs_checkpoint_find(handle, name, tensor, call.error))
        return Tensor(self, tensor[0])

    def __contains__(self, key: object) -> bool:
        try:
            self[key]  # type: ignore[index]
        except (KeyError, TypeError):
            return False
        return True

    def _tensors(self):
        handle = self._open()
        for place in range(lib.wfs_checkpoint_n_tensors(handle)):
            yield Tensor(self, lib.wfs_checkpoint_tensor(handle, place))

    def items(self) -> Items:
        """Pairs of key and tensor, in the order of the file."""
        return Items(self)

    # Two checkpoints are equal when they are one; weightfs.diff compares.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    # ---- the rest of it

    @property
    def format(self) -> str:
        """The name of the format, such as ``'safetensors'``."""
        return text_from(lib.wfs_checkpoint_format(self._open()))

    def info(self) -> dict[str, Any]:
        """What ``weightfs info --json`` prints: container, writer, counts, dtypes, metadata, files, findings."""
        return json_of(lib.wfs_info, self._open())

    @property
    def metadata(self) -> dict[str, str]:
        """The text metadata.

        >>> weightfs.open('encoder.safetensors').metadata['license']
        'MIT'
        """
        return json_of(lib.wfs_metadata, self._open())

    @property
    def values(self) -> Values:  # type: ignore[override]
        """What is neither a tensor nor metadata, by name: ``ckpt.values['epoch']``. Called, it is that of any mapping: all tensors."""
        return Values(self)

    def modules(self) -> dict[str, Module]:
        """The modules, by the names that their tensors' keys begin with, each with its numbers of tensors, elements and bytes.

        >>> weightfs.open('encoder.safetensors').modules()['pooler']
        Module(n_tensors=2, n_elements=1056, n_bytes=2176)
        """
        counts: dict[str, list[int]] = {}
        for key, tensor in zip(self._keys(), self._tensors()):
            n_elements, n_bytes = tensor.size, tensor.nbytes
            place = key.find('.')
            while place >= 0:
                count = counts.setdefault(key[:place], [0, 0, 0])
                count[0] += 1
                count[1] += n_elements
                count[2] += n_bytes
                place = key.find('.', place + 1)
        return {name: Module(*count) for name, count in counts.items()}

    def _repr_html_(self) -> str:
        info = self.info()
        rows = ''.join('<tr><td>%s</td><td>%d</td><td>%s</td></tr>' % (html.escape(name), one['tensors'], format(one['bytes'], ',d'))
                       for name, one in info['dtypes'].items())
        return ('<div><b>%s</b>: %s, %d tensors, %s bytes<table><tr><th>dtype</th><th>tensors</th><th>bytes</th></tr>%s</table>%s</div>'
                % (html.escape(self.source), html.escape(str(info['format'])), info['n_tensors'], format(info['n_bytes'], ',d'), rows,
                   _program.draw(self.options, self.source)))
