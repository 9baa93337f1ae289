# SPDX-License-Identifier: MIT
"""A reader of the .pth files that we write, out of Python's zipfile and pickle alone. Names in the pickle become classes that do
nothing but remember what they are called with, so nothing of a file is run."""
import collections
import hashlib
import io
import pickle
import struct
import zipfile

SIZES = {'F64': 8, 'F32': 4, 'F16': 2, 'BF16': 2, 'I64': 8, 'I32': 4, 'I16': 2, 'I8': 1, 'U8': 1, 'BOOL': 1, 'C128': 16, 'C64': 8,
         'C32': 4, 'BC32': 4, 'U16': 2, 'U32': 4, 'U64': 8, 'F8_E4M3': 1, 'F8_E5M2': 1, 'F8_E4M3FNUZ': 1, 'F8_E5M2FNUZ': 1,
         'F8_E8M0': 1, 'F4': 1, 'BITS8': 1, 'BITS1X8': 1, 'BITS2X4': 1, 'BITS4X2': 1, 'BITS16': 2}
SIZES['QU4X2'] = 1
CLASSES = {'Double': 'F64', 'Float': 'F32', 'Half': 'F16', 'BFloat16': 'BF16', 'Long': 'I64', 'Int': 'I32', 'Short': 'I16',
           'Char': 'I8', 'Byte': 'U8', 'Bool': 'BOOL', 'ComplexDouble': 'C128', 'ComplexFloat': 'C64', 'QInt8': 'I8', 'QUInt8': 'U8',
           'QInt32': 'I32', 'QUInt4x2': 'QU4X2'}
DTYPES = {'complex32': 'C32', 'bcomplex32': 'BC32', 'uint16': 'U16', 'uint32': 'U32', 'uint64': 'U64', 'float8_e4m3fn': 'F8_E4M3',
          'float8_e5m2': 'F8_E5M2', 'float8_e4m3fnuz': 'F8_E4M3FNUZ', 'float8_e5m2fnuz': 'F8_E5M2FNUZ', 'float8_e8m0fnu': 'F8_E8M0',
          'float4_e2m1fn_x2': 'F4', 'bits8': 'BITS8', 'bits1x8': 'BITS1X8', 'bits2x4': 'BITS2X4', 'bits4x2': 'BITS4X2',
          'bits16': 'BITS16', 'float32': 'F32', 'float64': 'F64', 'float16': 'F16', 'bfloat16': 'BF16', 'int64': 'I64', 'int32': 'I32',
          'int16': 'I16', 'int8': 'I8', 'uint8': 'U8', 'bool': 'BOOL', 'complex64': 'C64', 'complex128': 'C128'}
NUMPY = {'f8': 'F64', 'f4': 'F32', 'f2': 'F16', 'i8': 'I64', 'i4': 'I32', 'i2': 'I16', 'i1': 'I8', 'u8': 'U64', 'u4': 'U32', 'u2': 'U16',
         'u1': 'U8', 'b1': 'BOOL', 'c16': 'C128', 'c8': 'C64'}


class Storage(collections.namedtuple('Storage', 'dtype data n_units')):
    """dtype None: of no type, and the units are bytes."""

    def whole(self):
        size = SIZES[self.dtype or 'U8']
        assert self.dtype == 'QU4X2' or len(self.data) == self.n_units * size
        return Tensor(self.dtype or 'U8', (len(self.data) // size,), self.data)


class Tensor:
    """state: what hangs on it; a conjugate or negative view says so there, and its bytes are not yet what it shows."""

    def __init__(self, dtype, shape, data, state=None):
        self.dtype, self.shape, self.data, self.state = dtype, list(shape), data, state

    @property
    def sha256(self):
        return hashlib.sha256(self.data).hexdigest()

    def __iter__(self):
        return iter((self.dtype, self.shape, self.data))

    def __eq__(self, other):
        return isinstance(other, Tensor) and [*self, self.state] == [*other, other.state]

    def __hash__(self):
        return id(self)


class Thing:
    """What a class or function of the file would have been, or made; equal to what was given the same."""
    NAME = ''

    def __new__(cls, *args, **options):
        made = object.__new__(cls)
        made.args, made.options, made.state, made.items, made.pairs = args, options, None, [], []
        return made

    def __setstate__(self, state):
        self.state = state

    def append(self, item):
        self.items.append(item)

    def extend(self, items):
        self.items.extend(items)

    def add(self, item):
        self.items.append(item)

    def __setitem__(self, key, value):
        self.pairs.append((key, value))

    def _all(self):
        return self.NAME, self.args, self.options, self.state, self.items, self.pairs

    def __eq__(self, other):
        return isinstance(other, Thing) and self._all() == other._all()

    def __hash__(self):
        return id(self)

    def __repr__(self):
        return '%s%r%r' % (self.NAME, self.args, self.state)


def _offsets(shape, strides, offset):
    places = [offset]
    for size, stride in zip(shape, strides):
        places = [place + i * stride for place in places for i in range(size)]
    return places


def _is_dense(shape, strides):
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


class _Reader(pickle.Unpickler):
    PLAIN = {'collections.OrderedDict': collections.OrderedDict,
             **{module + kind.__name__: kind for module in ('builtins.', '__builtin__.') for kind in (set, bytes, bytearray)}}
    BUILDERS = ('torch._utils._rebuild_', 'torch._tensor._rebuild_')

    def __init__(self, content, records):
        super().__init__(io.BytesIO(content), encoding='utf-8')
        self.records, self.classes = records, {}

    def find_class(self, module, name):
        full = '%s.%s' % (module, name)
        if full in self.PLAIN:
            return self.PLAIN[full]
        if full == '_codecs.encode':
            return lambda text, codec: text.encode(codec)
        if full.startswith(self.BUILDERS) and hasattr(self, name[1:]):
            return getattr(self, name[1:])
        if full not in self.classes:
            self.classes[full] = type(name.rpartition('.')[2], (Thing,), {'NAME': full})
        return self.classes[full]

    def persistent_load(self, pid):
        kind, cls, key, _, n_units = pid
        assert kind == 'storage', pid
        name = cls.NAME.rpartition('.')[2]
        return Storage(None if name == 'UntypedStorage' else CLASSES[name[:-len('Storage')]], self.records['data/%s' % key], n_units)

    def tensor(self, storage, offset, shape, strides, dtype=None):
        data, size = storage.whole().data, SIZES[dtype or storage.dtype]
        if storage.dtype == 'QU4X2':
            return Tensor(storage.dtype, shape, data)
        n = 1
        for dim in shape:
            n *= dim
        assert n == 0 or (offset + sum((dim - 1) * stride for dim, stride in zip(shape, strides)) + 1) * size <= len(data)
        if n == 0 or _is_dense(shape, strides):
            content = data[offset * size:(offset + n) * size]
        else:
            content = b''.join(data[at * size:(at + 1) * size] for at in _offsets(shape, strides, offset))
        if dtype == 'F4':
            shape = (*shape[:-1], shape[-1] * 2)
        return Tensor(dtype or storage.dtype, shape, content)

    def rebuild_tensor_v2(self, storage, offset, shape, strides, requires_grad, hooks, meta=None):
        made = self.tensor(storage, offset, shape, strides)
        made.state = meta or None
        return made

    def rebuild_tensor_v3(self, storage, offset, shape, strides, requires_grad, hooks, dtype, meta=None):
        made = self.tensor(storage, offset, shape, strides, DTYPES[dtype.NAME.rpartition('.')[2]])
        made.state = meta or None
        return made

    def rebuild_qtensor(self, storage, offset, shape, strides, quantizer, requires_grad, hooks, *more):
        made = self.tensor(storage, offset, shape, strides)
        made.state = quantizer
        return made

    def rebuild_parameter(self, data, *more):
        return data

    def rebuild_parameter_with_state(self, data, requires_grad, hooks, state):
        data.state = (data.state, state)
        return data

    def rebuild_from_type_v2(self, function, cls, args, state):
        made = function(*args)
        made.state = (made.state, state)
        return made


def _array(thing):
    """A numpy array, out of the state of what makes one, or the arguments; None: it is something else."""
    if thing.NAME.endswith('._reconstruct') and thing.state:
        _, shape, dtype, is_fortran, data = thing.state
    elif thing.NAME.endswith('._frombuffer'):
        data, dtype, shape, is_fortran = *thing.args[:3], thing.args[3] == 'F'
    else:
        return None
    name, order = dtype.args[0], dtype.state[1] if dtype.state else '|'
    if name not in NUMPY or not isinstance(data, (bytes, bytearray)):
        return None
    data = bytes(data)
    size = SIZES[NUMPY[name]]
    if is_fortran:
        strides = [1]
        for dim in shape[:-1]:
            strides.append(strides[-1] * dim)
        data = b''.join(data[at * size:(at + 1) * size] for at in _offsets(shape, strides, 0))
    if order == '>':
        unit = size // 2 if NUMPY[name][0] == 'C' else size
        data = b''.join(data[at:at + unit][::-1] for at in range(0, len(data), unit))
    return Tensor(NUMPY[name], shape, data)


def _spell(key):
    return key if isinstance(key, str) else repr(key)


def _tensor(value):
    """What a value is as a tensor; None: it is none."""
    if isinstance(value, Storage):
        return value.whole()
    if isinstance(value, Thing):
        return _array(value)
    return value if isinstance(value, Tensor) else None


def named(value, key='', above=()):
    """[(dotted key, Tensor)] of what dicts and lists lead to; what objects hold has no name here."""
    tensor = _tensor(value)
    if tensor:
        return [(key, tensor)]
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    found = []
    for name, inner in pairs if id(value) not in above else ():
        found += named(inner, '%s.%s' % (key, _spell(name)) if above else _spell(name), (*above, id(value)))
    return found


def all_tensors(value):
    """Every tensor that is anywhere in the graph, each once."""
    found, seen, left = [], set(), [value]
    while left:
        value = left.pop()
        if id(value) in seen or isinstance(value, (str, bytes, int, float, type(None))):
            continue
        seen.add(id(value))
        tensor = _tensor(value)
        if tensor:
            found.append(tensor)
            left.append(tensor.state)
        elif isinstance(value, Thing):
            left += [value.args, value.options, value.state, value.items, value.pairs]
        elif isinstance(value, dict):
            left += [*value.keys(), *value.values(), vars(value) if hasattr(value, '__dict__') else None]
        elif isinstance(value, (list, tuple, set, frozenset)):
            left += list(value)
    return found


def tensors(value):
    """{dotted key: Tensor}; of two with one name the first counts, as in a listing."""
    found = {}
    for key, tensor in named(value):
        found.setdefault(key, tensor)
    return found


def loads(content, records=None):
    """The object that a pickle describes."""
    return _Reader(content, records or {}).load()


def load(path):
    """The object that is in the file."""
    with zipfile.ZipFile(path) as archive:
        records = {name.partition('/')[2]: archive.read(name) for name in archive.namelist()}
    return loads(records['data.pkl'], records)
