# SPDX-License-Identifier: MIT
"""Directories as torch.distributed.checkpoint writes them, made with Python's own pickle and classes that only have the right names."""
import contextlib
import ctypes
import os
import pickle
import sys
import types

import numpy as np

from wfs_testlib import program, pth

META, FILES = 'torch.distributed.checkpoint.metadata', 'torch.distributed.checkpoint.filesystem'
KINDS = {'F32': ('<f4', 'FloatStorage', 'float32'), 'F64': ('<f8', 'DoubleStorage', 'float64'), 'I64': ('<i8', 'LongStorage', 'int64'),
         'I16': ('<i2', 'ShortStorage', 'int16'), 'U8': ('|u1', 'ByteStorage', 'uint8'), 'C128': ('<c16', 'ComplexDoubleStorage', 'complex128')}


class Named:
    """An object of which only the class's name and the attributes are in a pickle."""

    def __init__(self, **state):
        self.__dict__.update(state)


class Size(tuple):
    def __reduce__(self):
        return Size, (tuple(self),)


class Constant:
    """A thing that is pickled by its name: torch.float32."""

    def __init__(self, module, name):
        self.__module__, self._name = module, name

    def __reduce__(self):
        return self._name


class Properties:
    """Its state is a tuple."""

    def __init__(self, *state):
        self.state = state

    def __getstate__(self):
        return self.state

    def __setstate__(self, state):
        self.state = state


def _class(module, name, base=Named):
    return type(name, (base,), {'__module__': module})


Metadata, Tensor, Bytes, Chunk, Index = (_class(META, name) for name in (
    'Metadata', 'TensorStorageMetadata', 'BytesStorageMetadata', 'ChunkStorageMetadata', 'MetadataIndex'))
TensorProperties = _class(META, 'TensorProperties', Properties)
StorageInfo = _class(FILES, '_StorageInfo')
Size.__module__ = 'torch'
DTYPES = {name: Constant('torch', name) for name in (*(kind[2] for kind in KINDS.values()), 'qint8')}


@contextlib.contextmanager
def _modules():
    """The modules that the names are in, for the time of a dump; those of a real torch come back."""
    classes = [Metadata, Tensor, Bytes, Chunk, Index, TensorProperties, StorageInfo, Size]
    names = {'torch', *(each.__module__ for each in classes)}
    before = {name: sys.modules.get(name) for name in names}
    for name in names:
        sys.modules[name] = types.ModuleType(name)
    for each in classes:
        setattr(sys.modules[each.__module__], each.__name__, each)
    for name, constant in DTYPES.items():
        setattr(sys.modules['torch'], name, constant)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def item(dtype, array, by_column=False):
    """A torch.save file of one tensor."""
    strides = [1] * array.ndim
    order = range(array.ndim) if by_column else reversed(range(array.ndim))
    step = 1
    for axis in order:
        strides[axis] = step
        step *= array.shape[axis]
    data = array.tobytes('F' if by_column else 'C')
    storage = pth.storage('0', pth.name('torch', KINDS[dtype][1]), array.size)
    return pth.checkpoint(pth.tensor(storage, 0, tuple(array.shape), tuple(strides)), r0=data)


def chunk(offsets, sizes):
    return Chunk(offsets=Size(offsets), sizes=Size(sizes))


class Writer:
    """Collects items and metadata, and writes the directory."""

    def __init__(self, folder):
        self.folder = folder
        self.files, self.state, self.storage, self.planner = {}, {}, {}, {}
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, key, offsets, file, data, length=None):
        """An item; without data only its length counts."""
        at = self.files.setdefault(file, bytearray())
        index = Index(fqn=key, index=None) if offsets is None else Index(fqn=key, offset=Size(offsets), index=0)
        self.storage[index] = StorageInfo(relative_path=file, offset=len(at), length=len(data) if length is None else length)
        at += data

    def tensor(self, key, dtype, array, boxes, n_files=4, path=None, twice=(), by_column=()):
        """boxes: (offsets, sizes); twice: those listed a second time; by_column: those stored so."""
        chunks = []
        for i, (offsets, sizes) in enumerate(boxes):
            part = array[tuple(slice(o, o + n) for o, n in zip(offsets, sizes))]
            self.put(key, offsets, '__%d_0.distcp' % (i % n_files), item(dtype, part, i in by_column))
            chunks += [chunk(offsets, sizes)] * (1 + (i in twice))
        self.describe(key, dtype, array.shape, chunks, path)

    def describe(self, key, dtype, shape, chunks, path=None):
        properties = TensorProperties(DTYPES[KINDS[dtype][2]], None, False, None, False)
        self.state[key] = Tensor(properties=properties, size=Size(shape), chunks=chunks)
        self.planner[key] = path or (key,)

    def value(self, key, opcodes, path=None, file='__0_0.distcp'):
        self.put(key, None, file, pth.checkpoint(opcodes))
        self.state[key] = Bytes()
        self.planner[key] = path or (key,)

    def metadata(self, protocol=4):
        whole = Metadata(state_dict_metadata=self.state, planner_data=self.planner, storage_data=self.storage, storage_meta=None)
        with _modules():
            return pickle.dumps(whole, protocol)

    def write(self, protocol=4):
        for name, data in self.files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(data)
        (self.folder / '.metadata').write_bytes(self.metadata(protocol))
        return self.folder


def cut(rng, shape, n_cuts):
    """Boxes that fill the shape: each is cut in two at a random place, again and again."""
    boxes = [([0] * len(shape), list(shape))]
    for _ in range(n_cuts):
        i = rng.integers(len(boxes))
        offsets, sizes = boxes[i]
        axes = [axis for axis, n in enumerate(sizes) if n > 1]
        if not axes:
            continue
        axis = int(rng.choice(axes))
        n = int(rng.integers(1, sizes[axis]))
        first, second = list(sizes), list(sizes)
        first[axis], second[axis] = n, sizes[axis] - n
        behind = list(offsets)
        behind[axis] += n
        boxes[i:i + 1] = [(offsets, first), (behind, second)]
    return boxes


def random_array(rng, dtype, shape):
    raw = rng.integers(0, 256, int(np.prod(shape, dtype=np.int64)) * np.dtype(KINDS[dtype][0]).itemsize, np.uint8)
    return raw.view(KINDS[dtype][0]).reshape(shape)


class Library:
    """The library itself, for many reads of any range."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(str(program.BUILD / 'src' / 'libweightfs.so'))
        for name, result, arguments in [
                ('wfs_load', ctypes.c_int, [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]),
                ('wfs_catalog_n_tensors', ctypes.c_size_t, [ctypes.c_void_p]),
                ('wfs_catalog_tensor', ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t]),
                ('wfs_tensor_read', ctypes.c_ssize_t, [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t]),
                ('wfs_catalog_free', None, [ctypes.c_void_p])]:
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, arguments
        self.catalog = ctypes.c_void_p()
        code = self.lib.wfs_load(os.fsencode(path), None, ctypes.byref(self.catalog), None)
        assert code == 0, os.strerror(-code)

    def tensors(self):
        """{key: address}; the key is what a tensor begins with."""
        addresses = [self.lib.wfs_catalog_tensor(self.catalog, i) for i in range(self.lib.wfs_catalog_n_tensors(self.catalog))]
        return {ctypes.c_char_p.from_address(address).value.decode(): address for address in addresses}

    def read(self, address, offset, n_bytes):
        buffer = ctypes.create_string_buffer(n_bytes + 1)
        n = self.lib.wfs_tensor_read(address, offset, buffer, n_bytes)
        assert n >= 0, os.strerror(-n)
        return buffer.raw[:n]

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self.lib.wfs_catalog_free(self.catalog)
