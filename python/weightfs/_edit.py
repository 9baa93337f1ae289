# SPDX-License-Identifier: MIT
"""Edits of a checkpoint, collected and then saved whole or not at all."""
from __future__ import annotations

import fnmatch
import json
from typing import Any, Optional

from weightfs import _dtypes, _errors
from weightfs._call import Call, key_of, text_from, text_of
from weightfs._checkpoint import Checkpoint
from weightfs._native import ffi, lib
from weightfs._tensor import Tensor


def elements(array: Any) -> tuple[str, tuple[int, ...], int, int, Any]:
    """Returns dtype, shape, address and bytes of a numpy array or a torch tensor, and what keeps the memory."""
    if hasattr(array, 'data_ptr') and hasattr(array, 'element_size'):  # of torch, which need not be loaded for it
        held = array.detach().cpu().contiguous()
        if held.is_conj() or held.is_neg():
            held = held.resolve_conj().resolve_neg()
        name, n_bytes, address = str(held.dtype).replace('torch.', ''), held.numel() * held.element_size(), held.data_ptr()
    else:
        import numpy
        held = numpy.asarray(array)
        held = numpy.ascontiguousarray(held, held.dtype.newbyteorder('<')).reshape(held.shape)
        name, n_bytes, address = held.dtype.name, held.nbytes, held.ctypes.data
    if name not in _dtypes.STORED:
        raise TypeError('a checkpoint has no dtype for %s' % name)
    return _dtypes.STORED[name], tuple(held.shape), address, n_bytes, held


def written(call: Call, text: Any) -> dict[str, Any]:
    """Returns what the library says that it has written, and gives the notices to the caller of the caller."""
    try:
        return json.loads(text_from(text[0]))
    finally:
        lib.wfs_free(text[0])
        call.warn(3)


class Edits:
    """Collects edits of a checkpoint; ``weightfs.edit`` makes it. All refer to the checkpoint as it was, so their order does not matter.

    ``edits[key] = array`` adds or replaces a tensor, ``del edits[key]`` removes it. Arrays must not change until the edits are saved.
    """

    def __init__(self, source: Optional[Checkpoint], target: Any, options: dict[str, Any], progress: Any = None) -> None:
        self._source, self._target, self._options, self._progress = source, target, options, progress
        if source is not None:
            handle = source._open()
            if target is None:
                self._target, self._options = source.source, {**options, 'overwrite': True}
        else:
            new, call = ffi.new('struct wfs_checkpoint **'), Call()
            call.check(lib.wfs_new(new, call.error))
            handle = ffi.gc(new[0], lib.wfs_close)
        out, call = ffi.new('struct wfs_edits **'), Call()
        call.check(lib.wfs_edits_new(handle, out, call.error))
        # They end before what they are edits of.
        self._edits = ffi.gc(out[0], lambda edits, _handle=handle: lib.wfs_edits_free(edits))
        self._handle, self._held = handle, []  # type: Any, list[Any]

    def _do(self, function: Any, *arguments: Any) -> None:
        if self._edits is None:
            raise _errors.UsageError('these edits are saved or dropped already')
        call = Call(notices=False)
        call.check(function(self._edits, *arguments, call.error))

    def rename(self, old: str, new: str) -> None:
        """Gives a tensor, or all tensors of a module, another name."""
        keys = [] if self._source is None or old in self._source else [key for key in self._source if key.startswith(old + '.')]
        for key in keys or [old]:
            self._do(lib.wfs_edits_rename, key_of(key), key_of(new + key[len(old):]))

    def remove(self, *globs: str) -> None:
        """Removes tensors and values by keys, names of modules or globs, in which ``*`` is any text."""
        for glob in globs:
            keys: list[str] = []
            if self._source is not None and glob not in self._source:
                keys = fnmatch.filter(self._source, glob) + fnmatch.filter(self._source, glob + '.*') + fnmatch.filter(self._source.values, glob)
            for key in keys or [glob]:
                self._do(lib.wfs_edits_remove, key_of(key))

    def __delitem__(self, key: str) -> None:
        self._do(lib.wfs_edits_remove, key_of(key))

    def __setitem__(self, key: str, array: Any) -> None:
        if isinstance(array, Tensor):
            tensor, held = array._open()
            self._do(lib.wfs_edits_copy, key_of(key), tensor)
        else:
            dtype, shape, address, n_bytes, held = elements(array)
            self._do(lib.wfs_edits_put, key_of(key), dtype.encode(), ffi.new('uint64_t[]', shape), len(shape), ffi.cast('void *', address), n_bytes)
        self._held.append(held)

    def set_value(self, name: str, value: Any) -> None:
        """Sets what is not a tensor: anything that JSON has."""
        self._do(lib.wfs_edits_set_value, key_of(name), json.dumps(value).encode())

    def set_metadata(self, name: str, text: Optional[str]) -> None:
        """Sets a text of the metadata; None removes it."""
        self._do(lib.wfs_edits_set_metadata, key_of(name), ffi.NULL if text is None else text.encode('utf-8', 'surrogatepass'))

    def save(self) -> dict[str, Any]:
        """Writes the target. Returns what was written: ``output``, ``format``, ``tensors``, ``files``, ``bytes``, ``left_out``."""
        if self._edits is None:
            raise _errors.UsageError('these edits are saved or dropped already')
        call, text = Call(self._options, self._progress), ffi.new('char **')
        call.check(lib.wfs_checkpoint_save(self._handle, self._edits, text_of(self._target), call.options, text, call.error))
        self.drop()
        return written(call, text)

    def drop(self) -> None:
        """Forgets the edits; whatever else is done with them is an error."""
        self._edits = self._handle = self._source = None
        self._held.clear()

    def __enter__(self) -> Edits:
        return self

    def __exit__(self, kind: Any, _value: Any, _traceback: Any) -> None:
        if kind is None and self._edits is not None:
            self.save()
        self.drop()
