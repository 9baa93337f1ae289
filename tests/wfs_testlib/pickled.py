# SPDX-License-Identifier: MIT
"""The tensors of a plain .pth of ours (dicts of dense tensors), by Python's zipfile and a pickle reader that calls nothing foreign."""
import pickle
import zipfile

SIZES = {'DoubleStorage': ('F64', 8), 'FloatStorage': ('F32', 4), 'HalfStorage': ('F16', 2), 'BFloat16Storage': ('BF16', 2),
         'LongStorage': ('I64', 8), 'IntStorage': ('I32', 4), 'ShortStorage': ('I16', 2), 'CharStorage': ('I8', 1),
         'ByteStorage': ('U8', 1), 'BoolStorage': ('BOOL', 1)}


def _tensor(storage, offset, size, stride, *_):
    (dtype, width), data = storage
    n, dense = 1, []
    for dim in reversed(size):
        dense.insert(0, n)
        n *= dim
    assert n == 0 or all(dim == 1 or a == b for dim, a, b in zip(size, stride, dense)), 'a tensor is not dense'
    return dtype, list(size), data[offset * width:(offset + n) * width]


class _Reader(pickle.Unpickler):
    def __init__(self, file, archive, folder):
        super().__init__(file)
        self.archive, self.folder = archive, folder

    def find_class(self, module, name):
        if module == 'torch' and name in SIZES:
            return SIZES[name]
        return {'torch._utils._rebuild_tensor_v2': _tensor, 'collections.OrderedDict': dict}['%s.%s' % (module, name)]

    def persistent_load(self, pid):
        kind, dtype, key, _, n_elements = pid
        data = self.archive.read('%sdata/%s' % (self.folder, key))
        assert kind == 'storage' and len(data) == n_elements * dtype[1]
        return dtype, data


def read(path):
    """key -> (dtype, shape, bytes)"""
    tensors = {}

    def walk(value, key):
        if isinstance(value, dict):
            for name, item in value.items():
                walk(item, '%s.%s' % (key, name) if key else name)
        else:
            assert key not in tensors
            tensors[key] = value

    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith('data.pkl')]
        with archive.open(names[0]) as file:
            walk(_Reader(file, archive, names[0][:-len('data.pkl')]).load(), '')
    return tensors
