# SPDX-License-Identifier: MIT
"""One tensor of a checkpoint, which is read when its elements are asked for."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Iterator, Optional

from weightfs import _dtypes, _errors
from weightfs._call import Call, json_of, text_from
from weightfs._index import Selection
from weightfs._native import ffi, lib

if TYPE_CHECKING:
    from numpy import ndarray
    from torch import Tensor as TorchTensor

LARGE = 1 << 20  # bytes
NEW_MEMORY = ffi.new_allocator(should_clear_after_alloc=False)


class Tensor:
    """A tensor of a checkpoint: ``key``, ``dtype``, ``shape`` and ``nbytes`` are known, the elements stay in the file until they are read.

    >>> t = weightfs.open('encoder.safetensors')['pooler.dense.bias']
    >>> t
    <Tensor pooler.dense.bias F32 [32] 128 bytes>
    >>> t[:2].shape, t[-1].dtype
    ((2,), dtype('float32'))
    """
    __slots__ = ('_checkpoint', '_tensor', '__weakref__')

    def __init__(self, checkpoint, tensor):
        self._checkpoint, self._tensor = checkpoint, tensor

    def _open(self):
        """Returns the tensor of the library, and what keeps it alive: hold both while it is used."""
        return self._tensor, self._checkpoint._open()

    def _get(self, function):
        tensor, _held = self._open()
        return function(tensor)

    @property
    def key(self) -> str:
        """The key, as views show it."""
        return text_from(self._get(lib.wfs_tensor_key))

    @property
    def dtype(self) -> str:
        """The name of the dtype in the checkpoint, such as ``'BF16'``."""
        return text_from(self._get(lib.wfs_tensor_dtype))

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions, the outermost first."""
        tensor, _held = self._open()
        dims = ffi.new('const uint64_t **')
        rank = lib.wfs_tensor_shape(tensor, dims)
        return tuple(ffi.unpack(dims[0], rank)) if rank else ()

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self._get(lib.wfs_tensor_n_bytes)

    @property
    def origin(self) -> str:
        """The key in the file."""
        return text_from(self._get(lib.wfs_tensor_origin))

    @property
    def changes(self) -> Optional[str]:
        """What the views did to it and why; None: nothing."""
        return text_from(self._get(lib.wfs_tensor_changes))

    @property
    def computed(self) -> Optional[str]:
        """What it is computed from, as a formula; None: it is stored."""
        return text_from(self._get(lib.wfs_tensor_computed))

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError('a tensor without dimensions has no length')
        return shape[0]

    def __repr__(self) -> str:
        return '<Tensor %s %s %s %d bytes>' % (self.key, self.dtype, list(self.shape), self.nbytes)

    def __reduce__(self):
        return _again, (self._checkpoint, self.key)

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    # ---- elements

    def _read(self, address, n_bytes, selection, dtype):
        """Reads into memory of n_bytes, as dtype (None: as it is)."""
        tensor, _held = self._open()
        call = Call(notices=False)
        buf = ffi.cast('void *', address)
        if dtype is None and (selection is None or selection.is_whole):
            n_read = call.check(lib.wfs_read(tensor, 0, buf, n_bytes, call.options, call.error))
        else:
            slices = [] if selection is None else selection.slices
            name = ffi.NULL if dtype is None else dtype.encode()
            n_read = call.check(lib.wfs_read_slice(tensor, ffi.new('struct wfs_slice[]', slices), len(slices), name, buf, n_bytes,
                                                   call.options, call.error))
        if n_read != n_bytes:
            raise _errors.FileError('%s: %d bytes where %d were expected' % (self.key, n_read, n_bytes))

    def _numpy(self, selection, dtype):
        import numpy
        stored = self.dtype
        if dtype is not None:
            dtype = _dtypes.STORED.get(str(dtype) if isinstance(dtype, str) else numpy.dtype(dtype).name, str(dtype))
        shape = self.shape if selection is None else selection.shape
        made = _dtypes.numpy_dtype(dtype or stored, '.numpy("float32")')
        n_bytes = math.prod(shape) * made.itemsize
        if n_bytes < LARGE:
            result = numpy.empty(shape, made)
        else:  # numpy asks for huge pages, which cost more than they save where the kernel has to make room for them
            result = numpy.frombuffer(ffi.buffer(NEW_MEMORY('char[]', n_bytes)), made).reshape(shape)
        if result.nbytes:
            self._read(result.ctypes.data, result.nbytes, selection, None if dtype == stored else dtype)
        return result

    def numpy(self, dtype: Any = None, index: Any = None) -> ndarray:
        """Reads the tensor, or what an index chooses of it, into a new array; dtype converts as the option ``cast`` does.

        >>> weightfs.open('encoder.safetensors')['pooler.dense.weight'].numpy('float32', index=(0, slice(0, 3))).shape
        (3,)
        """
        return self._numpy(None if index is None else Selection(index, self.shape), dtype)

    def torch(self, dtype: Any = None, index: Any = None, device: Any = None) -> TorchTensor:
        """Reads the tensor, or what an index chooses of it, into a new ``torch.Tensor``."""
        import torch
        stored = self.dtype
        selection = None if index is None else Selection(index, self.shape)
        if dtype is not None:
            dtype = _dtypes.STORED.get(str(dtype).replace('torch.', ''), str(dtype))
        result = torch.empty(self.shape if selection is None else selection.shape,
                             dtype=_dtypes.torch_dtype(dtype or stored, '.torch("float32")'))
        if result.numel():
            self._read(result.data_ptr(), result.numel() * result.element_size(), selection, None if dtype == stored else dtype)
        return result if device is None else result.to(device)

    def tobytes(self) -> bytes:
        """Reads the elements as bytes: row-major and little-endian."""
        n_bytes = self.nbytes
        if n_bytes < LARGE:
            small = bytearray(n_bytes)
            if n_bytes:
                self._read(ffi.from_buffer(small), n_bytes, None, None)
            return bytes(small)
        result = bytes(n_bytes)  # nobody else has it yet: filled in place, since a copy would double the memory
        self._read(ffi.from_buffer(result), n_bytes, None, None)
        return result

    def __getitem__(self, index: Any) -> Any:
        selection = Selection(index, self.shape)
        result = self._numpy(selection, None)
        return result[()] if selection.is_scalar else result

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> ndarray:
        if copy is False:
            raise ValueError('a tensor of a checkpoint cannot become an array without a copy: it is read from a file')
        if dtype is None:
            return self._numpy(None, None)
        if self.dtype in _dtypes.NUMPY:
            return self._numpy(None, None).astype(dtype, copy=False)
        return self._numpy(None, dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Optional[bool] = None) -> Any:
        """A capsule of DLPack with the elements, for ``torch.from_dlpack``, ``jax.dlpack.from_dlpack``, ``numpy.from_dlpack`` …"""
        import ctypes
        if copy is False:
            raise BufferError('a tensor of a checkpoint is read from a file: copy=False cannot be')
        if dl_device not in (None, (1, 0)):
            raise BufferError('a tensor of a checkpoint is in the memory of the processor: dl_device must be (1, 0)')
        shape, n_bytes = self.shape, self.nbytes
        code, bits = _dtypes.dlpack_dtype(self.dtype)
        dl = lib.weightfs_dl_new(n_bytes, code, bits, len(shape), ffi.new('uint64_t[]', shape))
        if dl == ffi.NULL:
            raise MemoryError('%s: no memory for %d bytes' % (self.key, n_bytes))
        try:
            if n_bytes:
                self._read(lib.weightfs_dl_data(dl), n_bytes, None, None)
        except BaseException:
            lib.weightfs_dl_free(dl)
            raise
        new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(('PyCapsule_New', ctypes.pythonapi))
        return new(int(ffi.cast('uintptr_t', dl)), b'dltensor', int(ffi.cast('uintptr_t', lib.weightfs_dl_capsule_free())))

    def stats(self) -> Optional[dict[str, Any]]:
        """Reads the tensor and returns ``min``, ``max``, ``mean``, ``std`` and counts; None where the elements are not numbers.

        >>> weightfs.open('encoder.safetensors')['temperature'].stats()['max']
        0.0625
        """
        tensor, _held = self._open()
        return json_of(lib.wfs_stats, tensor, Call(notices=False))['stats']


def _again(checkpoint, key):
    return checkpoint[key]
