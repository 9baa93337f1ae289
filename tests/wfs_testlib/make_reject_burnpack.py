#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes tests/data/reject/burnpack: per case NAME.bpk and NAME.expect, whose first line is the exit code and whose second is
the message behind the file's name. What is expected is written here by hand, from the description of the format. With --check,
says instead whether the folder is what this script would write."""
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

from wfs_testlib import burnpack, reject_corpus  # noqa: E402
from wfs_testlib.burnpack import array, cbor, frame, head, mapping, text  # noqa: E402

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'data', 'reject', 'burnpack')
FOREIGN, DAMAGED, UNSUPPORTED = 4, 5, 6
MAX = 2**64 - 1
NAME_SHOWN = 472  # bytes of a long name in a message
DATA = struct.pack('<2f', 1.5, -2.0)
FIELDS = {'dtype': text('F32'), 'shape': array(cbor(2)), 'data_offsets': cbor([0, 8])}
NUMBER = 'expected an unsigned integer'
cases = {}


def raw(name, code, message, content):
    assert name not in cases, name
    cases[name] = (content, code, message)


def case(name, code, message, content, data=DATA, **options):
    raw(name, code, message, frame(content, data, **options))


def entry(more=(), leave=(), **fields):
    known = [(text(key), fields.pop(key, value)) for key, value in FIELDS.items() if key not in leave]
    return mapping(*known, *((text(key), value) for key, value in fields.items()), *more)


def one(content=None, key=None):
    return mapping((key or text('w'), content or entry()))


def top(tensors=None, *more):
    return mapping((text('tensors'), tensors or one()), *more)


def bad(name, error, mark, content, tensor=None, after=0, data=DATA):
    """Not CBOR as it should be: mark is what stands in the CBOR where the reader stops, or where in it that is."""
    where = mark if isinstance(mark, int) else content.rindex(mark)
    case(name, DAMAGED, 'metadata: %s%s at byte %d' % ("tensor '%s': " % tensor if tensor else '', error, 10 + where + after),
         content, data)


def bad_entry(name, error, mark, content, after=0):
    bad(name, error, mark, top(one(content)), 'w', after)


# The frame of the file.
GOOD = frame(top(), DATA)
raw('empty', FOREIGN, 'is empty (0 bytes)', b'')
raw('nine-bytes', DAMAGED, 'truncated: the file has 9 bytes, its header takes 10', GOOD[:9])
raw('magic-alone', DAMAGED, 'truncated: the file has 4 bytes, its header takes 10', GOOD[:4])
raw('magic-swapped', FOREIGN,
    'is not a Burnpack: it begins with 42 55 52 4e, not with 4e 52 55 42 (the bytes are swapped)', b'BURN' + GOOD[4:])
raw('magic-other', FOREIGN, 'is not a Burnpack: it begins with 4e 52 55 43, not with 4e 52 55 42', b'NRUC' + GOOD[4:])
case('version-2', UNSUPPORTED, 'is a Burnpack of version 2, versions up to 1 are known', top(), version=2)
case('version-65535', UNSUPPORTED, 'is a Burnpack of version 65535, versions up to 1 are known', top(), version=65535)
case('metadata-above-the-limit', UNSUPPORTED, 'its metadata has 104857601 bytes, the limit is 104857600 (limit cbor)', top(),
     length=104857601)
case('metadata-of-4-gib', UNSUPPORTED, 'its metadata has 4294967295 bytes, the limit is 104857600 (limit cbor)', top(),
     length=2**32 - 1)
case('metadata-past-the-end', DAMAGED, 'truncated: its metadata ends at byte 5010, the file has 264', top(), length=5000)
raw('metadata-missing', DAMAGED, 'truncated: its metadata ends at byte 57, the file has 10', GOOD[:10])
raw('metadata-1-short', DAMAGED, 'truncated: its metadata ends at byte 57, the file has 56', GOOD[:56])
case('metadata-of-0', DAMAGED, 'metadata: it ends too early at byte 10', b'')
case('cbor-cut', DAMAGED, "metadata: tensor 'w': it ends too early at byte 55", top()[:-1])

# Not CBOR.
bad('cbor-reserved', 'this is not CBOR', 0, b'\x1c')
bad('cbor-simple', 'this is not CBOR', b'\xf8', top(None, (text('x'), b'\xf8\xff')))
bad('cbor-break', 'expected a map', 0, b'\xff')
bad('cbor-break-as-value', 'expected a value', b'\xff', top(None, (text('x'), b'\xff')))
bad('cbor-odd-map', 'a key has no value', b'\xff', top(None, (text('x'), b'\xbf\x01\xff')))
bad('cbor-count-of-2-64', 'it ends too early', 9, b'\xbb' + struct.pack('>Q', MAX))
bad('cbor-list-of-2-64', 'it ends too early', b'', top(None, (text('x'), b'\x9b' + struct.pack('>Q', MAX))))
bad('cbor-text-of-2-64', 'it ends too early', b'\x7b', top(None, (text('x'), b'\x7b' + struct.pack('>Q', MAX))))
bad('cbor-text-in-itself', 'a chunk of a string is of another type', b'\x7f\x61', top(None, (text('x'), b'\x7f\x7f\x61a\xff\xff')))
bad('cbor-unclosed', 'it ends too early', b'', b'\xbf' + text('tensors') + one())
bad('cbor-tags-alone', 'it ends too early', b'', b'\xc1' * 1000)
for depth in (128, 129, 200, 20000):
    case('nested-%d' % depth, UNSUPPORTED, 'metadata: nested deeper than 128 levels at byte %d (limit cbor_depth)'
         % (10 + len(top()) + 2 + 128), top(None, (text('x'), b'\x81' * (depth - 1) + b'\x80')))
case('nested-indefinite', UNSUPPORTED, 'metadata: nested deeper than 128 levels at byte %d (limit cbor_depth)'
     % (10 + len(top()) + 2 + 128), top(None, (text('x'), b'\x9f' * 500 + b'\xff' * 500)))
case('nested-maps', UNSUPPORTED, 'metadata: nested deeper than 128 levels at byte %d (limit cbor_depth)'
     % (10 + len(top()) + 2 + 255), top(None, (text('x'), b'\xa1\x01' * 500 + b'\x00')))

# The map of everything.
bad('top-is-a-list', 'expected a map', 0, array(one()))
bad('top-is-a-number', 'expected a map', 0, b'\x01')
bad('top-is-empty', "there is no field 'tensors'", b'', mapping())
bad('no-tensors', "there is no field 'tensors'", b'', mapping((text('metadata'), mapping())))
bad('tensors-twice', "a second field 'tensors'", one(), mapping((text('tensors'), one()), (text('tensors'), one())))
bad('tensors-null', 'expected a map', b'\xf6', top(b'\xf6'))
bad('tensors-a-list', 'expected a map', array(one()), top(array(one())))
bad('field-a-number', 'expected a name of definite length', b'\x05', top(None, (b'\x05', b'\x00')))
bad('field-in-pieces', 'expected a name of definite length', b'\x7f', mapping((b'\x7f' + text('ten') + text('sors') + b'\xff', one())))
bad('field-not-utf8', 'a string is not UTF-8', b'\x62\xc3\x28', top(None, (text(b'\xc3\x28'), b'\x00')))
bad('field-of-4097-bytes', "a field's name is longer than 4096 bytes", head(3, 4097), top(None, (text('x' * 4097), b'\x00')))
bad('metadata-null', 'expected a map', b'\xf6', top(None, (text('metadata'), b'\xf6')))
bad('metadata-a-number', 'expected a string', b'\x01', top(None, (text('metadata'), mapping((text('a'), b'\x01')))))
bad('metadata-null-value', 'expected a string', b'\xf6', top(None, (text('metadata'), mapping((text('a'), b'\xf6')))))
bad('metadata-not-utf8', 'a string is not UTF-8', text(b'\xff'), top(None, (text('metadata'), mapping((text('a'), text(b'\xff'))))))
case('metadata-nul', UNSUPPORTED, "the metadata 'a\\x00b' contains a NUL, which no file name can; force leaves it out, escape_nul shows the NUL as %00",
     top(None, (text('metadata'), mapping((text('a\0b'), text('c'))))))
for name, value, error, mark in (
        ('a-number', b'\x01', 'expected a name, or a map of one', b'\x01'),
        ('a-name', text('Int'), 'expected a map of one pair as the scalar', b''),
        ('empty', mapping(), 'expected a map of one pair', b''),
        ('two', mapping((text('Int'), b'\x01'), (text('Int'), b'\x01')), 'expected a map of one pair', text('Int') + b'\x01' + text('Int')),
        ('unknown', mapping((text('Text'), text('a'))), 'expected Int, UInt, Float or Bool as the type of the scalar', text('a')),
        ('int-in-float', mapping((text('Float'), b'\x05')), 'expected a floating-point number', b'\x05'),
        ('float-in-int', mapping((text('Int'), b'\xf9\x3c\x00')), 'expected a signed 64-bit integer', b'\xf9\x3c\x00'),
        ('int-above', mapping((text('Int'), head(0, 2**63))), 'expected a signed 64-bit integer', b''),
        ('int-below', mapping((text('Int'), head(1, 2**63))), 'expected a signed 64-bit integer', b''),
        ('uint-negative', mapping((text('UInt'), b'\x20')), NUMBER, b'\x20'),
        ('bool-number', mapping((text('Bool'), b'\x01')), 'expected true or false', b'\x01'),
        ('null', b'\xf6', 'expected a name, or a map of one', b'\xf6')):
    content = top(None, (text('scalars'), mapping((text('s'), value))))
    bad('scalar-' + name, error, mark, content)
case('scalar-nul', UNSUPPORTED, "the scalar '\\x00' contains a NUL, which no file name can; force leaves it out, escape_nul shows the NUL as %00",
     top(None, (text('scalars'), mapping((text('\0'), cbor({'Int': 1}))))))

# Names of tensors.
case('name-nul', UNSUPPORTED, "the key 'nul\\x00x' contains a NUL, which no file name can; force leaves it out, escape_nul shows the NUL as %00", top(one(key=text('nul\0x'))))
bad('name-bytes', 'expected a string', b'\x41w', top(one(key=b'\x41w')))
bad('name-not-utf8', 'a string is not UTF-8', text(b'a\xff'), top(one(key=text(b'a\xff'))))
bad('name-half-a-letter', 'a string is not UTF-8', b'\x61\xc3', top(one(key=b'\x7f' + text(b'\xc3') + text(b'\xa9') + b'\xff')))
bad('name-a-number', 'expected a string', b'\x05' + entry(), top(one(key=b'\x05')))

# Descriptors.
for field in FIELDS:
    bad_entry('no-' + field, "there is no field '%s'" % field, b'', entry(leave=(field,)))
bad_entry('dtype-twice', "a second field 'dtype'", text('U8'), entry(more=[(text('dtype'), text('U8'))]))
bad_entry('param-id-twice', "a second field 'param_id'", b'\x02', entry(more=[(text('param_id'), b'\x01'), (text('param_id'), b'\x02')]))
bad('entry-null', 'expected a map', b'\xf6', top(one(b'\xf6')), 'w')
bad('entry-a-list', 'expected a map', array(), top(one(array())), 'w')
bad_entry('dtype-a-number', 'expected a name, or a map of one', b'\x01' + text('shape'), entry(dtype=b'\x01'))
bad_entry('dtype-null', 'expected a name, or a map of one', b'\xf6', entry(dtype=b'\xf6'))
bad_entry('dtype-in-pieces', 'expected a name of definite length', b'\x7f', entry(dtype=b'\x7f' + text('F') + text('32') + b'\xff'))
bad_entry('dtype-with-null', 'expected a dtype without a payload', b'\xf6', entry(dtype=mapping((text('F32'), b'\xf6'))))
for name in ('f32', 'F8', 'F8_E4M3', 'C64', 'I128', 'Complex64', '', 'F32 '):
    case('dtype-unknown-%s' % (name.strip() + '-space' * (' ' in name) or 'empty'), UNSUPPORTED,
         "tensor 'w': unknown dtype '%s'" % name, top(one(entry(dtype=text(name)))))
case('dtype-unknown-escaped', UNSUPPORTED, "tensor 'w': unknown dtype '\\x1b[31m'", top(one(entry(dtype=text('\x1b[31m')))))
case('dtype-unknown-map', UNSUPPORTED, "tensor 'w': unknown dtype 'Packed'", top(one(entry(dtype=cbor({'Packed': 3})))))
bad_entry('bool-indefinite', 'expected a map of one pair', text('Bool'),
          entry(dtype=b'\xbf' + text('Bool') + text('Native') + b'\xff'))
case('bool-store', UNSUPPORTED, "tensor 'w': unknown store 'U64' of a bool", top(one(entry(dtype=cbor({'Bool': 'U64'})))))
bad_entry('bool-null', 'expected a name, or a map of one', b'\xf6', entry(dtype=cbor({'Bool': None})))
bad_entry('bool-in-a-map', 'expected a name as the store of a bool', b'\xf6', entry(dtype=cbor({'Bool': {'Native': None}})))
bad_entry('quantized-name', 'the dtype QFloat requires a scheme', text('shape'), entry(dtype=text('QFloat')))
bad_entry('quantized-text', 'expected a map as the quantization scheme', text('Q8S'), entry(dtype=cbor({'QFloat': 'Q8S'})))
bad_entry('quantized-number-as-key', 'its quantization scheme cannot be expressed as JSON', text('shape'),
          entry(dtype=cbor({'QFloat': {1: 2}})))
case('quantized-large', UNSUPPORTED, "tensor 'w': its quantization scheme has 4097 bytes, the limit is 4096",
     top(one(entry(dtype=cbor({'QFloat': {'a': 'x' * 4083}})))))
bad_entry('shape-null', 'expected an array', b'\xf6', entry(shape=b'\xf6'))
bad_entry('shape-float', NUMBER, b'\xf9', entry(shape=cbor([2.0])))
bad_entry('shape-negative', NUMBER, b'\x21', entry(shape=cbor([-2])))
bad_entry('shape-above', NUMBER, b'\xc2', entry(shape=array(b'\xc2\x49\x01' + bytes(8))), after=1)
case('shape-too-big', DAMAGED, "tensor 'w': shape [2, 2] of F32 takes 16 bytes, data_offsets give 12",
     top(one(entry(shape=cbor([2, 2]), data_offsets=cbor([0, 12])))), DATA + bytes(4))
case('shape-too-small', DAMAGED, "tensor 'w': shape [1] of F32 takes 4 bytes, data_offsets give 8", top(one(entry(shape=cbor([1])))))
case('shape-of-a-scalar', DAMAGED, "tensor 'w': shape [] of F32 takes 4 bytes, data_offsets give 8", top(one(entry(shape=cbor([])))))
case('shape-overflow', DAMAGED, "tensor 'w': shape [8589934592, 8589934592] of F32 passes 2^64 bits",
     top(one(entry(shape=cbor([2**33, 2**33])))))
case('shape-bool-u32', DAMAGED, "tensor 'w': shape [8] of BOOL32 takes 32 bytes, data_offsets give 8",
     top(one(entry(shape=cbor([8]), dtype=cbor({'Bool': 'U32'})))))
case('shape-of-16385', UNSUPPORTED, "tensor 'w': it has more than 16384 dimensions (limit rank)",
     top(one(entry(shape=cbor([1] * 16384 + [2])))))
bad_entry('offsets-empty', 'expected a begin and an end in data_offsets', b'', entry(data_offsets=array()))
bad_entry('offsets-one', 'expected a begin and an end in data_offsets', b'', entry(data_offsets=cbor([8])))
bad_entry('offsets-negative', NUMBER, b'\x20', entry(data_offsets=cbor([-1, 7])))
bad_entry('offsets-null', 'expected an array', b'\xf6', entry(data_offsets=b'\xf6'))
case('offsets-reversed', DAMAGED, "tensor 'w': data ends at 256, before it begins at 264",
     top(one(entry(data_offsets=cbor([264, 256])))), bytes(264))
case('offsets-begin-max', DAMAGED, "tensor 'w': data ends at 18446744073709551615, past byte 2^63 of the file",
     top(one(entry(data_offsets=cbor([MAX, MAX])))))
case('offsets-end-max', DAMAGED, "tensor 'w': data ends at 18446744073709551615, past byte 2^63 of the file",
     top(one(entry(data_offsets=cbor([0, MAX])))))
case('offsets-2-63', DAMAGED, "tensor 'w': data ends at 9223372036854775807, past byte 2^63 of the file",
     top(one(entry(data_offsets=cbor([0, 2**63 - 1])))))
case('offsets-past-the-end', DAMAGED, "truncated: tensor 'w' ends at byte 520 (at 325 if Burn 0.19 wrote it), the file has 264",
     top(one(entry(data_offsets=cbor([256, 264])))))
bad_entry('param-id-negative', NUMBER, b'\x20', entry(param_id=b'\x20'))
bad_entry('param-id-text', NUMBER, text('7'), entry(param_id=text('7')))
bad_entry('param-id-float', NUMBER, b'\xf9', entry(param_id=cbor(1.0)))

# Data that is not all there.
raw('data-1-short', DAMAGED, "truncated: tensor 'w' ends at byte 264 (at 65 if Burn 0.19 wrote it), the file has 263", GOOD[:-1])
raw('data-missing', DAMAGED, "truncated: tensor 'w' ends at byte 264 (at 65 if Burn 0.19 wrote it), the file has 256", GOOD[:256])
raw('data-and-padding-missing', DAMAGED, "truncated: tensor 'w' ends at byte 264 (at 65 if Burn 0.19 wrote it), the file has 57",
    GOOD[:57])
raw('padding-cut', DAMAGED, 'truncated: its data begins at byte 256 (at 57 if Burn 0.19 wrote it), the file has 216',
    frame(top(one(entry(shape=cbor([0]), data_offsets=cbor([0, 0])))))[:216])
PAIR = {'a': burnpack.Tensor('U8', [3], b'abc'), 'b': burnpack.Tensor('U8', [5], b'defgh')}
OLD = burnpack.to_bytes(burnpack.Burnpack(PAIR, {'producer': 'burn', 'version': '0.19.1'}), aligned=False)
raw('packed-1-short', DAMAGED, "truncated: tensor 'b' ends at byte %d, the file has %d" % (len(OLD), len(OLD) - 1), OLD[:-1])
NEW = burnpack.to_bytes(burnpack.Burnpack(PAIR))
M = 10 + struct.unpack('<I', NEW[6:10])[0]
raw('cut-to-the-size-of-packed', DAMAGED, "truncated: tensor 'b' ends at byte 517 (at %d if Burn 0.19 wrote it), the file has %d"
    % (M + 261, M + 261), NEW[:M + 261])


def many(n):
    names = sorted(b'%x' % i for i in range(n))
    head_of_each = mapping((text('dtype'), text('U8')), (text('shape'), cbor([0])), (text('data_offsets'), cbor([0, 0])))
    return frame(mapping((text('tensors'), head(5, n) + b''.join(text(name) + head_of_each for name in names))))


def large():
    """[(name, content, exit code, message)] that are too large to be kept: made when they are needed."""
    return [
        ('100001-tensors', many(100001), UNSUPPORTED, 'it has more than 100000 tensors (limit burnpack_tensors)'),
        ('name-too-long', frame(top(one(key=text('n' * 1048577))), DATA), UNSUPPORTED,
         "the key '%s... (1048577 bytes)' is longer than 1048576 bytes (limit key)" % ('n' * NAME_SHOWN))]


def files():
    result = {}
    for name, (content, code, message) in cases.items():
        result[name + '.bpk'] = content
        result[name + '.expect'] = ('%d\n%s\n' % (code, message)).encode()
    return result


if __name__ == '__main__':
    reject_corpus.main(FOLDER, files(), len(cases))
