# SPDX-License-Identifier: MIT
"""Records of Burn, written from the description of the format: an encoder of MessagePack as Burn's codec spells it, ids, and the
pieces of a record. Shares no code with the program."""
import struct

DIGITS = '0123456789abcdefghijklmnopqrstuv'
FORMAT = 'burn_core::record::file::NamedMpkFileRecorder<burn_core::record::settings::FullPrecisionSettings>'


class F32(float):
    """A float of 32 bits."""


class Raw(bytes):
    """Bytes that are encoded already."""


class Ext(bytes):
    """An extension of type 5 with one byte."""


def _head(n, short, short_max, markers):
    if n <= short_max:
        return bytes([short | n])
    for marker, form, bits in markers:
        if n < 1 << bits:
            return bytes([marker]) + struct.pack('>' + form, n)
    raise ValueError(n)


def pairs(items):
    items = list(items)
    return Raw(_head(len(items), 0x80, 15, [(0xde, 'H', 16), (0xdf, 'I', 32)]) + b''.join(pack(k) + pack(v) for k, v in items))


def _integer(n):
    if n >= 0:
        return _head(n, 0, 127, [(0xcc, 'B', 8), (0xcd, 'H', 16), (0xce, 'I', 32), (0xcf, 'Q', 64)])
    if n >= -32:
        return bytes([256 + n])
    for marker, form, bits in [(0xd0, 'b', 7), (0xd1, 'h', 15), (0xd2, 'i', 31), (0xd3, 'q', 63)]:
        if n >= -1 << bits:
            return bytes([marker]) + struct.pack('>' + form, n)
    raise ValueError(n)


def pack(value):
    """The shortest form of everything."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, Ext):
        return b'\xd4\x05' + value
    if value is None or isinstance(value, bool):
        return {None: b'\xc0', False: b'\xc2', True: b'\xc3'}[value]
    if isinstance(value, F32):
        return b'\xca' + struct.pack('>f', value)
    if isinstance(value, float):
        return b'\xcb' + struct.pack('>d', value)
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, str):
        text = value.encode()
        return _head(len(text), 0xa0, 31, [(0xd9, 'B', 8), (0xda, 'H', 16), (0xdb, 'I', 32)]) + text
    if isinstance(value, bytes):
        return _head(len(value), 0, -1, [(0xc4, 'B', 8), (0xc5, 'H', 16), (0xc6, 'I', 32)]) + value
    if isinstance(value, dict):
        return pairs(value.items())
    return _head(len(value), 0x90, 15, [(0xdc, 'H', 16), (0xdd, 'I', 32)]) + b''.join(pack(item) for item in value)


def param_id(number):
    """13 digits: the bits of the little-endian bytes, first bit first, in groups of five, with a zero at the end."""
    bits = ''.join('{:08b}'.format(byte) for byte in struct.pack('<Q', number)) + '0'
    return ''.join(DIGITS[int(bits[i:i + 5], 2)] for i in range(0, 65, 5))


def tensor(data, shape, dtype='F32'):
    return {'bytes': data, 'shape': shape, 'dtype': dtype}


def values(numbers, shape):
    """A tensor as Burn up to 0.13 wrote it."""
    return {'value': numbers, 'shape': shape}


def param(number, content):
    return {'id': number if isinstance(number, str) else param_id(number), 'param': content}


def metadata(version='0.18.0', settings='FullPrecisionSettings', **more):
    return {'float': 'f32', 'int': 'i32', 'format': FORMAT, 'version': version, 'settings': settings, **more}


def record(item, meta=None, **more):
    return {'metadata': metadata() if meta is None else meta, 'item': item, '_b': [], **more}


def f32(*numbers):
    return struct.pack('<%df' % len(numbers), *numbers)


# ---- reading ----

def _read(data, at):
    """The value at a place, and the place behind it. A map is a list of pairs."""
    def number(form, start):
        return struct.unpack_from('>' + form, data, start)[0], start + struct.calcsize(form)

    def several(n, start):
        items = []
        for _ in range(n):
            item, start = _read(data, start)
            items.append(item)
        return items, start

    def mapping(n, start):
        items, start = several(2 * n, start)
        return dict(zip(items[::2], items[1::2])), start

    def plain(n, start, decode=bytes):
        return decode(data[start:start + n]), start + n

    mark, at = data[at], at + 1
    if mark < 0x80 or mark >= 0xe0:
        return (mark if mark < 0x80 else mark - 256), at
    if mark < 0xc0:
        return mapping(mark & 15, at) if mark < 0x90 else several(mark & 15, at) if mark < 0xa0 else plain(mark & 31, at, bytes.decode)
    if mark in (0xc0, 0xc2, 0xc3):
        return {0xc0: None, 0xc2: False, 0xc3: True}[mark], at
    if 0xca <= mark <= 0xd3:
        return number('fdBHIQbhiq'[mark - 0xca], at)
    lengths = {0xc4: 'B', 0xc5: 'H', 0xc6: 'I', 0xd9: 'B', 0xda: 'H', 0xdb: 'I', 0xdc: 'H', 0xdd: 'I', 0xde: 'H', 0xdf: 'I'}
    n, at = number(lengths[mark], at)
    if mark <= 0xc6:
        return plain(n, at)
    return plain(n, at, bytes.decode) if mark <= 0xdb else several(n, at) if mark <= 0xdd else mapping(n, at)


def load(path):
    """The record as dicts and lists."""
    value, end = _read(path.read_bytes(), 0)
    assert end == path.stat().st_size
    return value


def read(path):
    """{key: (dtype, shape, bytes)} of the parameters of a record."""
    found, left = {}, [((), load(path)['item'])]
    while left:
        names, value = left.pop()
        if isinstance(value, dict) and set(value) == {'id', 'param'}:
            content = value['param']
            found['.'.join(names)] = content['dtype'], content['shape'], bytes(content['bytes'])
        elif isinstance(value, (dict, list)):
            left += [((*names, str(name)), one) for name, one in (value.items() if isinstance(value, dict) else enumerate(value))]
    return found
