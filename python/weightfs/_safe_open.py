# SPDX-License-Identifier: MIT
"""The class of safetensors that loaders use, for checkpoints of every format."""
from __future__ import annotations

import mmap
from typing import Any

from weightfs import _dtypes
from weightfs._call import text_from
from weightfs._checkpoint import Checkpoint
from weightfs._errors import UsageError
from weightfs._native import ffi, lib
from weightfs._tensor import Tensor

FRAMEWORKS = {'pt': 'torch', 'torch': 'torch', 'pytorch': 'torch', 'np': 'numpy', 'numpy': 'numpy', 'python': 'numpy'}


class Maps:
    """Private maps of the files of a checkpoint. Bytes that lie in a file as the tensor has them become a tensor of torch without a copy."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.maps: dict[int, mmap.mmap] = {}

    def map(self, fd: int) -> mmap.mmap:
        if fd not in self.maps:
            self.maps[fd] = mmap.mmap(fd, 0, access=mmap.ACCESS_COPY)
        return self.maps[fd]

    def tensor(self, tensor: Tensor):
        """Returns a view of the file, or None where the bytes lie otherwise."""
        import torch
        handle = self.checkpoint._open()
        offset, fd = ffi.new('uint64_t *'), ffi.new('int *')
        path = lib.wfs_tensor_file(handle, tensor._tensor, offset, fd)
        dtype = _dtypes.torch_dtype(tensor.dtype, '.torch("float32")')
        shape = tensor.shape
        size = torch.empty((), dtype=dtype).element_size()
        if path == ffi.NULL or 0 in shape or offset[0] % size:
            return None
        n_elements = tensor.nbytes // size
        return torch.frombuffer(self.map(fd[0]), dtype=dtype, count=n_elements, offset=offset[0]).reshape(shape)


class Slice:
    """What ``get_slice`` returns: indexing reads."""

    def __init__(self, tensor: Tensor, read) -> None:
        self._tensor, self._read = tensor, read

    def get_shape(self) -> list:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        return self._tensor.dtype

    def __getitem__(self, index) -> Any:
        return self._read(slice(0, 0) if index == [] else index)


class safe_open:  # noqa: N801, the name that loaders import
    """``safetensors.safe_open`` for checkpoints of every format; other keywords are options of ``weightfs.open``.

    With torch and ``backend='mmap'``, tensors are views of a private map of the file where their bytes lie in it as they are, as those of
    safetensors; with ``'pread'``, and everywhere else, they are read.

    >>> with weightfs.safe_open('encoder.safetensors', framework='np') as file:
    ...     file.get_slice('pooler.dense.weight').get_shape(), file.get_tensor('temperature')
    ([32, 32], array(0.0625, dtype=float32))
    """

    def __init__(self, filename, framework: str, device: Any = 'cpu', *, backend: str = 'mmap', **options) -> None:
        if framework not in FRAMEWORKS:
            raise UsageError('the framework is pt or np, not %r; tensors have DLPack for others' % (framework,))
        if backend not in ('mmap', 'pread'):
            raise UsageError("the backend is 'mmap' or 'pread', not %r" % (backend,))
        self._framework, self._device = FRAMEWORKS[framework], device
        self._checkpoint = Checkpoint(filename, options)
        self._maps = Maps(self._checkpoint) if backend == 'mmap' and self._framework == 'torch' else None

    def __enter__(self) -> 'safe_open':
        return self

    def __exit__(self, *_exception) -> None:
        self._checkpoint.close()

    def keys(self) -> list:
        """The keys, sorted."""
        return sorted(self._checkpoint)

    def offset_keys(self) -> list:
        """The keys in the order of the file."""
        return list(self._checkpoint)

    def metadata(self) -> Any:
        """The text metadata; None: the file has none."""
        return self._checkpoint.metadata or None

    def _read(self, tensor: Tensor, index=None):
        if self._framework == 'numpy':
            return tensor.numpy(index=index)
        result = self._maps.tensor(tensor) if self._maps is not None and index is None else None
        result = tensor.torch(index=index) if result is None else result
        return result if self._device in ('cpu', None) else result.to(self._device)

    def get_tensor(self, name: str):
        """Returns a tensor."""
        return self._read(self._checkpoint[name])

    def get_tensors(self) -> dict:
        """Returns all tensors by their keys."""
        return {key: self._read(tensor) for key, tensor in self._checkpoint.items()}

    def get_slice(self, name: str) -> Slice:
        """Returns what reads the parts of a tensor that it is indexed with."""
        tensor = self._checkpoint[name]
        return Slice(tensor, lambda index: self._read(tensor, index))
