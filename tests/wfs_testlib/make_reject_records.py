#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes tests/data/reject/records: per case NAME.mpk and NAME.expect, whose first line is the exit code and whose second is the
message behind the file's name. What is expected is written here by hand, from the description of the format. With --check, says
instead whether the folder is what this script would write."""
import json
import os
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

from wfs_testlib import reject_corpus  # noqa: E402
from wfs_testlib.mpk import Raw, f32, metadata, pack, pairs, param, record, tensor, values  # noqa: E402

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'data', 'reject', 'records')
FOREIGN, DAMAGED, UNSUPPORTED = 4, 5, 6
W = f32(1, 2, 3, 4, 5, 6)
SHAPE = [3, 2]
cases = {}


def raw(name, code, message, content):
    assert name not in cases, name
    cases[name] = (content, code, message)


def case(name, code, message, item, meta=None, **more):
    raw(name, code, message, pack(record(item, meta, **more)))


def weight(content, number=1001):
    return {'weight': param(number, content)}


def bad(name, message, content, code=DAMAGED):
    """A tensor that is damaged."""
    case(name, code, "tensor 'weight': " + message, weight(content))


def packed(content):
    """gzip data of one stored block, which is the same with every zlib."""
    n = len(content)
    return (b'\x1f\x8b\x08' + bytes(6) + b'\xff\x01' + struct.pack('<HH', n, n ^ 0xffff) + content +
            struct.pack('<II', zlib.crc32(content), n))


def old(name, message, numbers, meta=None):
    case(name, DAMAGED, "tensor 'weight': " + message, weight(values(numbers, SHAPE)), meta)


def truncated(name, content, at, n):
    raw(name, DAMAGED, 'truncated: what begins at byte %d is not complete, the end is after %d byte%s' % (at, n, 's' * (n != 1)), content[:n])


GOOD = pack(record(weight(tensor(W, SHAPE))))
HALF = metadata(settings='HalfPrecisionSettings', float='half::binary16::f16', int='i16')

# The whole.
raw('empty', FOREIGN, 'is empty (0 bytes)', b'')
truncated('cut-in-the-map', GOOD, 0, 1)
raw('cut-in-a-key', FOREIGN, 'is a msgpack file (Flax?), a format that weightfs does not read', GOOD[:5])
truncated('cut-before-the-metadata', GOOD, 10, 10)
truncated('cut-in-bytes', GOOD, GOOD.index(W) - 2, GOOD.index(W) + 10)
truncated('cut-last-byte', GOOD, len(GOOD) - 1, len(GOOD) - 1)
raw('map-of-too-many', DAMAGED, 'truncated: what begins at byte 0 is not complete, the end is after %d bytes' % (len(GOOD) + 4),
    b'\xdf\xff\xff\xff\xff' + GOOD[1:])
raw('text-too-long', DAMAGED, 'truncated: what begins at byte 18 is not complete, the end is after 27 bytes',
    b'\x83\xa8metadata\x85\xa6format\xdb\xff\xff\xff\xffabcd')
raw('key-too-long', DAMAGED, 'truncated: what begins at byte 11 is not complete, the end is after 18 bytes',
    b'\x83\xa8metadata\x81\xda\x00\xffabcd')
raw('key-above-the-limit', UNSUPPORTED, 'the key at byte 11 has 2097152 bytes, the limit is 1048576 (limit key)',
    b'\x83\xa8metadata\x81\xdb\x00\x20\x00\x00abcd')
raw('a-number', DAMAGED, 'is not a record of Burn: it is not a map', b'\x07')
raw('a-list', UNSUPPORTED, 'is a list instead of a map: a record whose fields have no names cannot be read; save it with '
    'NamedMpkFileRecorder', pack([list(metadata().values()), [], []]))
raw('numbered-fields', UNSUPPORTED, 'the fields are numbered instead of named at byte 1, so there are no keys: save it with '
    'NamedMpkFileRecorder', pack({0: metadata(), 1: {}, 2: []}))
raw('key-nil', DAMAGED, 'expected a key at byte %d' % (len(GOOD) - 4), GOOD[:-4] + b'\xc0' + GOOD[-1:])
raw('key-not-utf8', DAMAGED, "the key '\\xff\\xfe' at byte 1 is not UTF-8", b'\x82\xa2\xff\xfe\xc0\xa4item\xc0')
raw('text-not-utf8', DAMAGED, 'the text at byte 6 is not UTF-8', b'\x82\xa4item\xa2\xff\xfe\xa8metadata\xc0')
case('key-with-nul', UNSUPPORTED, "the key 'a\\x00b' contains a NUL, which no file name can", {'a\0b': None})
raw('reserved', DAMAGED, 'the byte at %d is not the start of a MessagePack value' % (len(GOOD) - 1), GOOD[:-1] + b'\xc1')
raw('deep', UNSUPPORTED, 'nested deeper than 1024 levels at byte %d (limit record_depth)' % (len(GOOD) + 6 + 1023),
    b'\x84' + GOOD[1:] + pack('extra') + b'\x91' * 1200 + b'\xc0')
raw('deep-lists', UNSUPPORTED, 'nested deeper than 1024 levels at byte %d (limit record_depth)' % (len(GOOD) - 1 + 1023),
    GOOD[:-1] + b'\x92' * 2000 + b'\xc0' * 4000)
case('marker-true', DAMAGED, "the field '_b' of the record is not empty, which Burn refuses", {}, _b=True)
raw('marker-missing', DAMAGED, "the record has no field '_b', which Burn refuses", pack({'metadata': metadata(), 'item': {}}))
raw('metadata-missing', DAMAGED, "is not a record of Burn: it has no map called 'metadata'", pack({'item': {}, '_b': []}))
raw('metadata-nil', DAMAGED, "is not a record of Burn: it has no map called 'metadata'",
    pack({'metadata': None, 'item': {}, '_b': []}))
raw('item-missing', DAMAGED, "is not a record of Burn: it has no field 'item'", pack({'metadata': metadata(), '_b': []}))
for name in metadata():
    raw('metadata-without-' + name, DAMAGED, "is not a record of Burn: its metadata has no text called '%s'" % name,
        pack(record({}, {key: value for key, value in metadata().items() if key != name})))
raw('metadata-number', DAMAGED, "is not a record of Burn: its metadata has no text called 'version'",
    pack(record({}, metadata(version=18))))


def twice(name, key, item):
    """A map whose key occurs again at the last place where its text is in the file."""
    content = pack(record(item))
    raw(name, DAMAGED, "the key '%s' is a duplicate at byte %d, which Burn refuses" % (key, content.rindex(pack(key))), content)


twice('field-twice', 'weight', pairs([('weight', 1), ('weight', 2)]))
twice('field-of-a-value-twice', 'k', {'v': pairs([('k', 1), ('k', 2)])})
twice('field-twice-around-a-map', 'k', pairs([('k', {'k': {'k': 1}, 'l': 2}), ('l', [{'k': 3}]), ('k', 4)]))

# Parameters and tensors.
for name, item, why in (('missing', {'param': tensor(W, SHAPE)}, 'it is a parameter without an id'),
                        ('number', {'id': 5, 'param': tensor(W, SHAPE)}, 'its id is not a text'),
                        ('nil', {'id': None, 'param': tensor(W, SHAPE)}, 'its id is not a text')):
    case('id-' + name, DAMAGED, "tensor 'weight': " + why, {'weight': item})
for name in ('bytes', 'shape', 'dtype'):
    bad('without-' + name, "it has no field '%s'" % name, {key: value for key, value in tensor(W, SHAPE).items() if key != name})
bad('bytes-nil', 'expected bytes, or a list of integers from 0 to 255', tensor(None, SHAPE))
bad('bytes-of-300', 'expected bytes, or a list of integers from 0 to 255', tensor([300] * 24, SHAPE))
bad('bytes-of-floats', 'expected bytes, or a list of integers from 0 to 255', tensor([1.0] * 24, SHAPE))
bad('shape-negative', 'its shape has something else than integers from 0 to 2^64-1', tensor(W, [3, -2]))
bad('shape-of-floats', 'its shape has something else than integers from 0 to 2^64-1', tensor(W, [3.0, 2.0]))
bad('shape-of-texts', 'its shape has something else than integers', tensor(W, ['3', '2']))
bad('shape-a-number', 'expected a list as its shape', tensor(W, 6))
bad('shape-of-16385', 'it has more than 16384 dimensions (limit rank)', tensor(W, [1] * 16385), UNSUPPORTED)
for name in ('F8', 'f32', ''):
    bad('dtype-' + (name or 'empty'), "unknown dtype '%s'" % name, tensor(W, SHAPE, name), UNSUPPORTED)
bad('dtype-number', 'expected the name of a dtype', tensor(W, SHAPE, 99))
bad('dtype-nil', 'expected the name of a dtype', tensor(W, SHAPE, None))
bad('dtype-map-of-two', 'expected the name of a dtype', tensor(W, SHAPE, {'F32': None, 'F16': None}))
bad('dtype-bool-store', 'unknown store of a bool', tensor(bytes(6), SHAPE, {'Bool': 'U64'}), UNSUPPORTED)
bad('scheme-text', 'expected a map as the quantization scheme', tensor(W, SHAPE, {'QFloat': 'Q8S'}))
bad('scheme-large', 'its quantization scheme cannot be expressed in 4096 bytes of JSON', tensor(W, SHAPE, {'QFloat': {'a': 'x' * 5000}}))
old('value-with-nil', 'its value has something else than numbers', [1.0, None, 3.0, 4.0, 5.0, 6.0])
old('value-with-bool', 'its values are numbers and bools', [1, True, 3, 4, 5, 6])
old('value-bytes', 'expected a list of numbers as its value', W)
old('integers-above-i32', 'its integers go from 0 to 2147483648, which is not what I32 holds', [1, 2, 3, 4, 5, 1 << 31])
old('integers-below-i32', 'its integers go from -2147483649 to 6, which is not what I32 holds', [1, 2, 3, 4, -(1 << 31) - 1, 6])
old('bits-above-16', 'its integers go from 0 to 65536, which is not what I16 holds', [1, 2, 3, 4, 5, 65536], HALF)
old('integers-above-i16', 'its integers go from -1 to 40000, which is not what I16 holds', [1, 2, 3, 4, -1, 40000], HALF)

# Other containers.
PACKED = packed(GOOD)
raw('gzip-cut', DAMAGED, 'the gzip data is damaged or cut: member 1, at byte 0, cannot be decompressed to its end', PACKED[:150])
raw('gzip-damaged', DAMAGED, 'the byte at 6 of the decompressed record (whose checksum differs) is not the start of a MessagePack value',
    packed(b'\x81\xa4item\xc1')[:-8] + bytes(8))
raw('gzip-of-a-cut-record', DAMAGED, 'truncated: what begins at byte %d of the decompressed record is not complete, the end is after %d bytes' %
    (len(GOOD) - 1, len(GOOD) - 1), packed(GOOD[:-1]))
META = json.dumps(metadata())
raw('json-cut', DAMAGED, 'the JSON is damaged at byte %d: the text ends too early' % len('{"metadata":%s,"item":{' % META),
    ('{"metadata":%s,"item":{' % META).encode())
raw('json-deep', DAMAGED, 'the JSON is damaged at byte %d: nested more than 127 deep' % (len('{"metadata":%s,"item":' % META) + 126),
    ('{"metadata":%s,"item":%s1%s,"_b":null}' % (META, '[' * 200, ']' * 200)).encode())
raw('json-twice', DAMAGED, "the key 'a' is a duplicate at byte %d, which Burn refuses" % len('{"metadata":%s,"item":{"a":1,' % META),
    ('{"metadata":%s,"item":{"a":1,"a":2},"_b":null}' % META).encode())
raw('json-value-null', DAMAGED, "tensor 'w': its value has something else than numbers",
    ('{"metadata":%s,"item":{"w":{"id":"x","param":{"value":[1.0,null],"shape":[2]}}},"_b":null}' % META).encode())
raw('json-value-of-half', DAMAGED, "tensor 'w': it has decimal numbers of a width that the settings do not define",
    ('{"metadata":%s,"item":{"w":{"id":"x","param":{"value":[1.0,1.5],"shape":[2]}}},"_b":null}' % json.dumps(HALF)).encode())


def bincode(*texts):
    return b''.join(bytes([len(text)]) + text.encode() for text in texts) + bytes(100)


for name, recorder in (('bincode', 'file::BinFileRecorder'), ('bincode-bytes', 'memory::BinBytesRecorder')):
    raw(name, UNSUPPORTED, "is a file of Burn's %s (Burn 0.18.0, FullPrecisionSettings), which has no names and no types: load it "
        'with that Burn and save it with NamedMpkFileRecorder' % recorder.split(':')[-1],
        bincode('f32', 'i32', 'burn_core::record::%s<burn_core::record::settings::FullPrecisionSettings>' % recorder, '0.18.0',
                'FullPrecisionSettings'))


def files():
    result = {}
    for name, (content, code, message) in cases.items():
        result[name + '.mpk'] = content
        result[name + '.expect'] = ('%d\n%s\n' % (code, message)).encode()
    result['good.mpk'] = GOOD
    result['good-old.mpk'] = pack(record({'a': param('0' * 8 + '-1234-4abc-8def-000013579bdf', values([1.5, -2.5], [2])), 'n': [1, -200, 70000]},
                                         metadata(version='0.13.2')))
    result['good-many.mpk'] = pack(record({'x': [weight(tensor(W, SHAPE)), None, {'Act': None}], 'm': param(7, values(list(range(40)), [40])),
                                           'q': param(8, tensor(W, SHAPE, {'QFloat': {'level': {'Block': [1, 2]}}})),
                                           'b': tensor(bytes(3), [3], {'Bool': 'Native'}), 'k': tensor(list(W), SHAPE)}))
    result['good-gzip.mpk'] = PACKED
    result['good-json.mpk'] = ('{"metadata":%s,"item":{"w":{"id":"%s","param":{"value":[1.0,2.5e-3],"shape":[2]}},"t":%s,"s":"x"},"_b":null}' % (
        META, '0' * 13, json.dumps(tensor(list(W), SHAPE)))).encode()
    return result


if __name__ == '__main__':
    reject_corpus.main(FOLDER, files(), len(cases))
