# SPDX-License-Identifier: MIT
"""GGUF files, written and read byte by byte: shares no code with the program."""
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: 'B', I8: 'b', U16: 'H', I16: 'h', U32: 'I', I32: 'i', F32: 'f', BOOL: 'B', U64: 'Q', I64: 'q', F64: 'd'}
NUMBERS = {'F32': 0, 'F16': 1, 'Q4_0': 2, 'Q8_0': 8, 'Q4_K': 12, 'I8': 24, 'I16': 25, 'I32': 26, 'I64': 27, 'F64': 28, 'BF16': 30, 'MXFP4': 39}
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36), 10: (256, 84), 11: (256, 110),
          12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18),
          21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
          34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18), 42: (64, 18)}


class Writer:
    """The pieces of a file; version 1 has short counts."""

    def __init__(self, version=3, big=False):
        self.order = '>' if big else '<'
        self.version = version
        self.count = 'I' if version == 1 else 'Q'

    def number(self, code, value):
        return struct.pack(self.order + code, value)

    def text(self, text):
        raw = text if isinstance(text, bytes) else text.encode()
        return self.number(self.count, len(raw)) + raw

    def value(self, kind, value):
        if kind == STRING:
            return self.text(value)
        if kind == ARRAY:
            item, items = value
            return self.number('I', item) + self.number(self.count, len(items)) + b''.join(self.value(item, one) for one in items)
        return self.number(CODES[kind], value)

    def pair(self, key, kind, value):
        return self.text(key) + self.number('I', kind) + self.value(kind, value)

    def info(self, name, number, shape, offset):
        dims = b''.join(self.number(self.count, dim) for dim in reversed(shape))
        return self.text(name) + self.number('I', len(shape)) + dims + self.number('I', number) + self.number('Q', offset)

    def head(self, n_tensors, n_pairs):
        return b'GGUF' + self.number('I', self.version) + self.number(self.count, n_tensors) + self.number(self.count, n_pairs)

    def file(self, pairs=(), tensors=(), alignment=32):
        """pairs: (key, type, value); tensors: (name, dtype, shape, bytes)."""
        infos, data = b'', b''
        for name, dtype, shape, content in tensors:
            infos += self.info(name, NUMBERS[dtype], shape, len(data))
            data += padded(content, alignment)
        head = self.head(len(tensors), len(pairs)) + b''.join(self.pair(*pair) for pair in pairs) + infos
        return padded(head, alignment) + data


def write_set(folder, pairs, parts, stem='model'):
    """A split file as the reference writes it; parts: the tensors of each. Returns its first file."""
    folder.mkdir(exist_ok=True)
    n_tensors = sum(map(len, parts))
    for i, tensors in enumerate(parts):
        part = [('split.no', U16, i), ('split.count', U16, len(parts)), ('split.tensors.count', I32, n_tensors)]
        (folder / set_name(i + 1, len(parts), stem)).write_bytes(Writer().file([*(pairs if i == 0 else ()), *part], tensors))
    return folder / set_name(1, len(parts), stem)


def set_name(i, n, stem='model'):
    return '%s-%05d-of-%05d.gguf' % (stem, i, n)


def padded(content, alignment=32):
    return content + bytes(-len(content) % alignment)


class Reader:
    """What a file has: version, pairs as (key, type, value), tensors as (name, number, shape, bytes)."""

    def __init__(self, content):
        self.content, self.at, self.order = content, 4, '<'
        assert content[:4] == b'GGUF'
        self.order = '>' if content[4:6] == b'\0\0' else '<'
        self.version = self.take('I')
        self.count = 'I' if self.version == 1 else 'Q'
        n_tensors, n_pairs = self.take(self.count), self.take(self.count)
        self.pairs = [self.pair() for _ in range(n_pairs)]
        infos = [self.info() for _ in range(n_tensors)]
        self.alignment = next((value for key, _, value in self.pairs if key == 'general.alignment'), 32)
        self.data = -(-self.at // self.alignment) * self.alignment
        self.tensors = [(name, number, shape, content[self.data + offset:][:size(number, shape)]) for name, shape, number, offset in infos]

    def take(self, code):
        value, = struct.unpack_from(self.order + code, self.content, self.at)
        self.at += struct.calcsize(code)
        return value

    def text(self):
        n = self.take(self.count)
        self.at += n
        raw = self.content[self.at - n:self.at]
        assert len(raw) == n
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            item, n = self.take('I'), self.take(self.count)
            return item, [self.value(item) for _ in range(n)]
        return self.take(CODES[kind])

    def pair(self):
        key, kind = self.text(), self.take('I')
        return key, kind, self.value(kind)

    def info(self):
        name = self.text()
        shape = [self.take(self.count) for _ in range(self.take('I'))][::-1]
        return name, shape, self.take('I'), self.take('Q')


def size(number, shape):
    n_elems, n_bytes = BLOCKS[number]
    n = 1
    for dim in shape:
        n *= dim
    return n // n_elems * n_bytes
