# SPDX-License-Identifier: MIT
"""A reader and a writer of Burnpack files, from the description of the format alone. The CBOR is spelled here too, so that
a test can also spell it wrong."""
import hashlib
import struct

SIZES = {'F64': 8, 'F32': 4, 'Flex32': 4, 'F16': 2, 'BF16': 2, 'I64': 8, 'I32': 4, 'I16': 2, 'I8': 1, 'U64': 8, 'U32': 4,
         'U16': 2, 'U8': 1}
BOOL, BOOL_U8, BOOL_U32 = {'Bool': 'Native'}, {'Bool': 'U8'}, {'Bool': 'U32'}
# What we call them.
NAMES = {'Flex32': 'FLEX32'}


# ---- writing CBOR, as Burn does

def head(major, n):
    if n < 24:
        return bytes([major << 5 | n])
    for size, code in ((1, 24), (2, 25), (4, 26), (8, 27)):
        if n < 256 ** size:
            return bytes([major << 5 | code]) + n.to_bytes(size, 'big')
    raise OverflowError(n)


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return head(3, len(value)) + value


def array(*items):
    return head(4, len(items)) + b''.join(items)


def mapping(*pairs):
    return head(5, len(pairs)) + b''.join(key + value for key, value in pairs)


def real(value):
    bits = struct.pack('>d', value)
    for mark, code in ((b'\xf9', '>e'), (b'\xfa', '>f')):
        try:
            short = struct.pack(code, value)
        except OverflowError:
            continue
        if struct.pack('>d', *struct.unpack(code, short)) == bits:
            return mark + short
    return b'\xfb' + bits


def cbor(value):
    """Any value; dicts in the order they have. bytes are CBOR already."""
    if isinstance(value, bytes):
        return value
    if value is None:
        return b'\xf6'
    if isinstance(value, bool):
        return b'\xf5' if value else b'\xf4'
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, float):
        return real(value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, (list, tuple)):
        return array(*map(cbor, value))
    return mapping(*((cbor(key), cbor(item)) for key, item in value.items()))


# ---- reading CBOR, what Burn writes of it

class Reader:
    def __init__(self, content):
        self.content, self.at = content, 0

    def take(self, n):
        piece = self.content[self.at:self.at + n]
        assert len(piece) == n, 'the CBOR ends too early'
        self.at += n
        return piece

    def value(self):
        first = self.take(1)[0]
        major, n = first >> 5, first & 31
        if major == 7:
            if n in (25, 26, 27):
                return struct.unpack({25: '>e', 26: '>f', 27: '>d'}[n], self.take(2 ** (n - 24)))[0]
            return {20: False, 21: True, 22: None}[n]
        if n >= 24:
            assert n <= 27, 'not what Burn writes'
            n = int.from_bytes(self.take(2 ** (n - 24)), 'big')
        if major == 3:
            return self.take(n).decode()
        if major == 4:
            return [self.value() for _ in range(n)]
        if major == 5:
            pairs = [(self.value(), self.value()) for _ in range(n)]
            assert len({key for key, _ in pairs}) == n, 'a key stands twice'
            return dict(pairs)
        return {0: n, 1: -1 - n}[major]


# ---- the file

def round_up(n, step=256):
    return -(-n // step) * step


def frame(content, data=b'', version=1, length=None, magic=b'NRUB', aligned=True):
    """A file around CBOR."""
    result = magic + struct.pack('<HI', version, len(content) if length is None else length) + content
    if aligned:
        result += bytes(round_up(len(result)) - len(result))
    return result + data


class Tensor:
    def __init__(self, dtype, shape, data, param_id=None):
        self.dtype, self.shape, self.data, self.param_id = dtype, list(shape), bytes(data), param_id

    @property
    def name(self):
        """Of the dtype, as weightfs calls it."""
        if isinstance(self.dtype, dict):
            return 'OPAQUE' if 'QFloat' in self.dtype else 'BOOL32' if self.dtype == BOOL_U32 else 'BOOL'
        return 'BOOL' if self.dtype == 'Bool' else NAMES.get(self.dtype, self.dtype)

    @property
    def sha256(self):
        return hashlib.sha256(self.data).hexdigest()


class Burnpack:
    """tensors: name -> Tensor in the order of the data; metadata, scalars: dicts."""

    def __init__(self, tensors, metadata=None, scalars=None):
        self.tensors, self.metadata, self.scalars = tensors, metadata or {}, scalars or {}

    def listing(self):
        """As `weightfs ls --json` has it, by name."""
        return {key: (one.name, one.shape, len(one.data)) for key, one in self.tensors.items()}


def read(path, aligned=True):
    with open(path, 'rb') as file:
        content = file.read()
    magic, version, length = struct.unpack('<4sHI', content[:10])
    assert magic == b'NRUB' and version <= 1 and 10 + length <= len(content), path
    reader = Reader(content[10:10 + length])
    top = reader.value()
    assert reader.at == length, 'something is behind the CBOR of %s' % path
    start = round_up(10 + length) if aligned else 10 + length
    tensors = {}
    for key, entry in sorted(top['tensors'].items(), key=lambda item: (item[1]['data_offsets'], item[0].encode())):
        begin, end = entry['data_offsets']
        assert start + end <= len(content) or begin == end, '%r is not all in %s' % (key, path)
        tensors[key] = Tensor(entry['dtype'], entry['shape'], content[start + begin:start + end], entry.get('param_id'))
        if isinstance(entry['dtype'], str) and entry['dtype'] in SIZES:
            size = SIZES[entry['dtype']]
            for dim in entry['shape']:
                size *= dim
            assert size == end - begin, key
    return Burnpack(tensors, top.get('metadata'), top.get('scalars'))


def entry_of(tensor, begin):
    entry = {'dtype': tensor.dtype, 'shape': tensor.shape, 'data_offsets': [begin, begin + len(tensor.data)]}
    if tensor.param_id is not None:
        entry['param_id'] = tensor.param_id
    return entry


def _sorted(table):
    return dict(sorted(table.items(), key=lambda item: item[0].encode()))


def to_bytes(pack, aligned=True):
    """As Burn writes it: 0.20 and later, or packed as 0.19."""
    table, data = {}, b''
    for key, tensor in pack.tensors.items():
        if aligned:
            data += bytes(round_up(len(data)) - len(data))
        table[key] = entry_of(tensor, len(data))
        data += tensor.data
    top = {'tensors': _sorted(table)}
    if pack.metadata:
        top['metadata'] = _sorted(pack.metadata)
    if pack.scalars:
        top['scalars'] = _sorted(pack.scalars)
    return frame(cbor(top), data, aligned=aligned)


def write(path, pack, aligned=True):
    with open(path, 'wb') as file:
        file.write(to_bytes(pack, aligned))
