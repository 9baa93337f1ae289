# SPDX-License-Identifier: MIT
"""Tensors in a file of any of the formats, written and read without our program: key -> (dtype, shape, bytes)."""
from wfs_testlib import burnpack, pth, pth_read, st

ENDINGS = ['safetensors', 'pth', 'bpk']
_STORAGES = {dtype: kind for kind, dtype in pth_read.CLASSES.items() if not kind.startswith('Q')}


def _strides(shape):
    result = []
    for i in range(len(shape)):
        step = 1
        for n in shape[i + 1:]:
            step *= n
        result.append(step)
    return tuple(result)


def _pickled(tensors, more):
    items, storages = [], {}
    for i, (key, (dtype, shape, data)) in enumerate(tensors.items()):
        n_each = pth_read.SIZES[dtype]
        of = pth.storage(str(i), pth.name('torch', _STORAGES[dtype] + 'Storage'), len(data) // n_each)
        items.append((pth.text(key), pth.tensor(of, 0, tuple(shape), _strides(shape))))
        storages['r%d' % i] = data
    return pth.checkpoint(pth.pairs(*items, *((pth.text(name), value) for name, value in more.items())), **storages)


def write(path, tensors, **values):
    """values: spelled as opcodes, for a .pth."""
    if path.suffix == '.safetensors':
        st.write(path, tensors)
    elif path.suffix == '.bpk':
        burnpack.write(path, burnpack.Burnpack({key: burnpack.Tensor({'BOOL': burnpack.BOOL}.get(dtype, dtype), shape, data)
                                                for key, (dtype, shape, data) in tensors.items()}))
    else:
        path.write_bytes(_pickled(tensors, values))
    return path


def read(path):
    if path.suffix == '.safetensors':
        return st.read(path).tensors
    if path.suffix == '.bpk':
        return {key: (tensor.name, tensor.shape, tensor.data) for key, tensor in burnpack.read(path).tensors.items()}
    return {key: tuple(tensor) for key, tensor in pth_read.tensors(pth_read.load(path)).items()}
