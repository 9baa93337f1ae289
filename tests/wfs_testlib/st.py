# SPDX-License-Identifier: MIT
"""A reader and writers of safetensors files, from the description of the format alone (struct and json)."""
import hashlib
import json
import os
import struct

# dtype -> bits, in the order of the reference library; its writer sorts by it, descending.
BITS = {
    'BOOL': 8, 'F4': 4, 'F6_E2M3': 6, 'F6_E3M2': 6, 'U8': 8, 'I8': 8, 'F8_E5M2': 8, 'F8_E4M3': 8, 'F8_E8M0': 8,
    'F8_E4M3FNUZ': 8, 'F8_E5M2FNUZ': 8, 'I16': 16, 'U16': 16, 'F16': 16, 'BF16': 16, 'I32': 32, 'U32': 32, 'F32': 32,
    'C64': 64, 'F64': 64, 'I64': 64, 'U64': 64,
}
RANK_OF = {dtype: i for i, dtype in enumerate(BITS)}


def f32(*values):
    return struct.pack('<%df' % len(values), *values)


def size_of(dtype, shape):
    """Bytes that a tensor takes."""
    bits = BITS[dtype]
    for dim in shape:
        bits *= dim
    assert bits % 8 == 0, (dtype, shape)
    return bits // 8


class Checkpoint:
    """tensors: name -> (dtype, shape, bytes), in the order of the data; metadata: dict or None."""

    def __init__(self, tensors, metadata, data_start):
        self.tensors = tensors
        self.metadata = metadata
        self.data_start = data_start

    def digests(self):
        return {name: (dtype, list(shape), hashlib.sha256(data).hexdigest())
                for name, (dtype, shape, data) in self.tensors.items()}


def _no_twins(pairs):
    result = dict(pairs)
    assert len(result) == len(pairs), 'a name stands twice: %r' % [name for name, _ in pairs]
    return result


def read(path):
    """Reads and verifies everything: no gaps, no overlaps, no trailing bytes, sizes as dtype and shape say."""
    with open(path, 'rb') as file:
        content = file.read()
    (n_header,) = struct.unpack('<Q', content[:8])
    assert 8 + n_header <= len(content), 'the header runs past the end of %s' % path
    header = json.loads(content[8:8 + n_header].decode(), object_pairs_hook=_no_twins)
    metadata = header.pop('__metadata__', None)
    data = content[8 + n_header:]
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]['data_offsets']):
        begin, stop = entry['data_offsets']
        assert begin == end, '%r begins at %d, the one before ends at %d' % (name, begin, end)
        assert stop - begin == size_of(entry['dtype'], entry['shape']), (name, entry)
        tensors[name] = (entry['dtype'], entry['shape'], data[begin:stop])
        end = stop
    assert end == len(data), '%d bytes of data, the last tensor ends at %d' % (len(data), end)
    return Checkpoint(tensors, metadata, 8 + n_header)


def _escape(text):
    """A JSON string as the reference writes it: only what must be escaped, and non-ASCII raw."""
    short = {'"': '\\"', '\\': '\\\\', '\b': '\\b', '\f': '\\f', '\n': '\\n', '\r': '\\r', '\t': '\\t'}
    return '"%s"' % ''.join(short.get(c) or (c if c >= ' ' else '\\u%04x' % ord(c)) for c in text)


def canonical(tensors, metadata=None):
    """The bytes that the reference library writes for name -> (dtype, shape, bytes); metadata sorted."""
    order = sorted(tensors, key=lambda name: (-RANK_OF[tensors[name][0]], name.encode()))
    parts, blob, offset = [], [], 0
    if metadata:
        pairs = sorted(metadata.items(), key=lambda item: item[0].encode())
        parts.append('"__metadata__":{%s}' % ','.join(_escape(k) + ':' + _escape(v) for k, v in pairs))
    for name in order:
        dtype, shape, data = tensors[name]
        parts.append('%s:{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}' % (
            _escape(name), dtype, ','.join(map(str, shape)), offset, offset + len(data)))
        blob.append(data)
        offset += len(data)
    header = ('{%s}' % ','.join(parts)).encode()
    header += b' ' * (-len(header) % 8)
    return struct.pack('<Q', len(header)) + header + b''.join(blob)


def write(path, tensors, metadata=None):
    """A canonical file of name -> (dtype, shape, bytes)."""
    with open(path, 'wb') as file:
        file.write(canonical(tensors, metadata))
    return path


def write_parts(path, tensors, meta=None, head=None, gap=0, pad=8, tail=b''):
    """Any file, right or wrong. tensors: [(name, dtype, shape, bytes)] in file order; head replaces the JSON text;
    gap: bytes after each tensor; pad: what the header's length is a multiple of; tail: bytes at the end."""
    entries, offset, blob = [], 0, b''
    for name, dtype, shape, data in tensors:
        entries.append((name, {'dtype': dtype, 'shape': shape, 'data_offsets': [offset, offset + len(data)]}))
        blob += data + b'\0' * gap
        offset += len(data) + gap
    if head is None:
        parts = [] if meta is None else ['"__metadata__":' + json.dumps(meta)]
        head = '{%s}' % ','.join(parts + [json.dumps(name) + ':' + json.dumps(entry) for name, entry in entries])
    head = head if isinstance(head, bytes) else head.encode()
    if pad:
        head += b' ' * (-len(head) % pad)
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(head)) + head + blob + tail)
    return path


def write_hole(path, n_bytes):
    """A tensor 'w' of F64 that is nothing but a hole."""
    write_parts(path, [], head='{"w":{"dtype":"F64","shape":[%d],"data_offsets":[0,%d]}}' % (n_bytes // 8, n_bytes))
    os.truncate(path, path.stat().st_size + n_bytes)
    return path
