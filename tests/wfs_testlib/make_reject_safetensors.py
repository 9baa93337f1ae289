#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes tests/data/reject/safetensors: per case NAME.safetensors and NAME.expect, whose first line is the exit code and
whose second is the message behind the file's name. What is expected is written here by hand, from the description of the format.
With --check, says instead whether the folder is what this script would write."""
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

from wfs_testlib import reject_corpus  # noqa: E402

FOLDER = os.path.join(os.path.dirname(__file__), '..', 'data', 'reject', 'safetensors')
FOREIGN, DAMAGED, UNSUPPORTED = 4, 5, 6
MAX = 2**64 - 1
PLAIN = '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
DATA = bytes(4)
cases = {}


def raw(name, code, message, content):
    assert name not in cases, name
    cases[name] = (content, code, message)


def case(name, code, message, header, data=DATA, n=None):
    header = header if isinstance(header, bytes) else header.encode()
    raw(name, code, message, struct.pack('<Q', len(header) if n is None else n) + header + data)


def entry(shape='[1]', offsets='[0,4]', dtype='"F32"', more=''):
    return '{"dtype":%s,"shape":%s,"data_offsets":%s%s}' % (dtype, shape, offsets, more)


def one(shape='[1]', offsets='[0,4]', dtype='"F32"', more='', key='"a"'):
    return '{%s:%s}' % (key, entry(shape, offsets, dtype, more))


def at(text, mark, nth=1):
    """Where the nth mark is in the file whose header is text."""
    place = -1
    for _ in range(nth):
        place = text.index(mark, place + 1)
    return 8 + len(text[:place].encode())


def bad_json(name, error, where, header, data=DATA, tensor=None):
    """where: byte in the file, or a mark in the header that stands there."""
    where = at(header, where) if isinstance(where, str) else where
    case('json-' + name, DAMAGED, 'invalid JSON in header: %s%s at byte %d' %
         ("tensor '%s': " % tensor if tensor is not None else '', error, where), header, data)


def bad_entry(name, error, where, header, data=DATA):
    bad_json(name, error, where, header, data, tensor='a')


# The frame of the file.
raw('empty', FOREIGN, 'is empty (0 bytes)', b'')
raw('one-zero', FOREIGN, 'is all zeros (1 byte): a failed download?', bytes(1))
raw('seven-zeros', FOREIGN, 'is all zeros (7 bytes): a failed download?', bytes(7))
raw('eight-zeros', FOREIGN, 'is all zeros (8 bytes): a failed download?', bytes(8))
raw('5000-zeros', FOREIGN, 'begins with 4096 zeros where a header should be: an unfinished download?', bytes(5000))
raw('seven-bytes', DAMAGED, 'truncated: the file has 7 bytes, expected at least 8',
    b'\x36' + bytes(6))
raw('length-0', DAMAGED, 'invalid JSON in header: the text ends too early at byte 8',
    bytes(8) + b'{}')
for size in (1, 1000, 100000000):
    name = {1: 'over-by-one', 1000: 'over-the-file', 100000000: 'at-the-cap-over-the-file'}[size]
    n = len(PLAIN) + 5 if size == 1 else size
    case('length-' + name, DAMAGED, 'truncated: the header ends at byte %d, the file '
         'has 66' % (8 + n), PLAIN, n=n)
for name, n in (('cap-plus-1', 100000001), ('2-32', 2**32), ('2-63', 2**63), ('2-64', MAX),
                ('big-endian', struct.unpack('<Q', struct.pack('>Q', len(PLAIN)))[0])):
    case('length-' + name, DAMAGED, 'truncated: the header should have %d bytes, the file has 66' % n,
         PLAIN, n=n)
case('length-1', DAMAGED, 'invalid JSON in header: the text ends too early at byte 9',
     PLAIN, n=1)
case('length-one-too-small', DAMAGED,
     'invalid JSON in header: the text ends too early at byte 61', PLAIN, n=53)
case('length-swallows-data', DAMAGED,
     'invalid JSON in header: text after the end at byte 62', PLAIN, n=58)
case('length-swallows-spaces', DAMAGED, 'the file '
     'has 66 bytes, its header describes 70 (truncated)', PLAIN, data=b'    ', n=58)
for missing in (1, 4):
    case('data-%d-short' % missing, DAMAGED, ''
         'the file has %d bytes, its header describes 66 (truncated)' % (66 - missing), PLAIN, DATA[missing:])
case('data-one-too-many', DAMAGED, 'the file has '
     '67 bytes, its header describes 66 (the data is followed by something else)', PLAIN, DATA + b'x')
case('data-without-tensors', DAMAGED, 'the file '
     'has 14 bytes, its header describes 10 (the data is followed by something else)', '{}')
case('data-with-metadata-only', DAMAGED, 'the file '
     'has 41 bytes, its header describes 37 (the data is followed by something else)', '{"__metadata__":{"k":"v"}}'.ljust(29))

# Text that is no UTF-8.
for name, text in (('c3-28', b'\xc3\x28'), ('overlong', b'\xc0\xaf'), ('surrogate', b'\xed\xa0\x80'),
                   ('past-10ffff', b'\xf5\x80\x80\x80'), ('cut', b'\xe2\x82'), ('stray', b'\x80')):
    case('utf8-' + name, DAMAGED, 'invalid UTF-8 in header at byte 10',
         PLAIN.encode().replace(b'"a"', b'"' + text + b'"'))
case('utf8-in-data-size', DAMAGED, 'invalid UTF-8 in header at byte 61', PLAIN.encode()[:-1] + b'\xff')

# Text that is no JSON.
bad_json('array', 'expected an object', 8, '[]', b'')
bad_json('null', 'expected an object', 8, 'null', b'')
bad_json('string', 'expected an object', 8, '"a"', b'')
bad_json('number', 'expected an object', 8, '1', b'')
bad_json('bom', 'expected an object', 8, '\ufeff' + PLAIN)
bad_json('vertical-tab-before', 'expected an object', 8, '\v' + PLAIN)
bad_json('nul-before', 'expected an object', 8, '\0' + PLAIN)
bad_json('comment', 'expected an object', 8, '/*x*/' + PLAIN)
for name, tail in (('nul', '\0'), ('form-feed', '\f'), ('x', 'x'), ('comma', ','), ('object', '{}'), ('brace', '}'),
                   ('nbsp', '\xa0')):
    bad_json('%s-behind' % name, 'text after the end', 62, PLAIN + tail)
bad_json('metadata-behind', 'text after the end', 10, '{},"__metadata__":{}', b'')
bad_json('open', 'the text ends too early', 9, '{', b'')
bad_json('no-colon', "expected ':'", '}', '{"a"}', b'')
bad_json('comma-first', 'expected a key in double quotes', ',', '{,}', b'')
bad_json('single-quotes', 'expected a key in double quotes', "'", PLAIN.replace('"', "'"))
bad_json('bare-key', 'expected a key in double quotes', 'a:', PLAIN.replace('"a"', 'a'))
bad_json('trailing-comma', 'a comma before the closing bracket', 62, PLAIN[:-1] + ',}')
bad_json('no-comma', "expected ',' or '}'", '"b"', PLAIN[:-1] + ' "b":' + entry() + '}')
bad_json('utf-16', 'expected a key in double quotes', 9, PLAIN.encode('utf-16-le').decode())
bad_entry('comma-in-entry', 'a comma before the closing bracket', '}}', PLAIN.replace('4]}', '4],}'))
bad_entry('comma-in-array', 'a comma before the closing bracket', ']}}', PLAIN.replace('4]', '4,]'))
bad_json('escape-x', 'no such escape', 'x41', one(key='"\\x41"'))
bad_json('escape-short', 'expected four hex digits after \\u', '":', one(key='"\\u41"'))
bad_json('escape-at-end', "expected ':'", 'dtype', one(key='"\\"'))
for name, text in (('high', '\\ud800'), ('low', '\\udc00'), ('two-high', '\\ud800\\ud800')):
    bad_json('surrogate-' + name, 'half of a surrogate pair', '\\', one(key='"%s"' % text))
for name, text in (('nul', '\0'), ('newline', '\n'), ('tab', '\t'), ('esc', '\x1b'), ('1f', '\x1f')):
    bad_json('raw-%s-in-key' % name, 'a control character in a string', text, one(key='"a%sb"' % text))

# Values that nobody looks at are JSON all the same.
for name, text, error, mark in (
        ('range', '1e999', 'a number out of range', '1e999'), ('400-digits', '9' * 400, 'a number out of range', '9' * 400),
        ('max-double', '-1.8e308', 'a number out of range', '-1.8'), ('nan', 'NaN', 'expected a value', 'NaN'),
        ('infinity', '-Infinity', 'expected a digit', 'Inf'), ('leading-zero', '01', 'a number with a leading zero', '01'),
        ('plus', '+1', 'expected a value', '+1'), ('point-first', '.5', 'expected a value', '.5'),
        ('point-last', '1.', 'expected a digit', '}}'), ('minus', '-', 'expected a digit', '}}'),
        ('exponent', '1e', 'expected a digit', '}}'), ('hex', '0x1', "expected ',' or '}'", 'x1}'),
        ('python', 'True', 'expected a value', 'True'), ('surrogate', '"\\ud800"', 'half of a surrogate pair', '\\')):
    bad_entry('ignored-' + name, error, mark, one(more=',"x":' + text))
bad_entry('ignored-arrays-126', 'nested more than 127 deep', 8 + 57 + 125, one(more=',"x":' + '[' * 126 + ']' * 126))
bad_entry('ignored-arrays-1000', 'nested more than 127 deep', 8 + 57 + 125, one(more=',"x":' + '[' * 1000 + ']' * 1000))
bad_entry('ignored-objects-126', 'nested more than 127 deep', 8 + 57 + 125 * 5,
          one(more=',"x":' + '{"a":' * 126 + '1' + '}' * 126))

# Metadata.
for name, text, error, where in (
        ('array', '[]', 'expected an object', '[]'), ('string', '"x"', 'expected an object', '"x"'),
        ('number', '1', 'expected an object', '1,'), ('true', 'true', 'expected an object', 'true'),
        ('value-cut', '{"k":[1}', "expected ',' or ']'", '},')):
    bad_json('metadata-' + name, error, where, '{"__metadata__":%s,' % text + PLAIN[1:])
NO_STRING = "metadata '%s' at byte %d: expected a string, found %s; --force reads it as that text"
for name, text in (('number', '1'), ('null', 'null'), ('object', '{}'), ('true', 'true'), ('array', '["a"]')):
    case('json-metadata-value-' + name, DAMAGED, NO_STRING % ('k', 29, text), '{"__metadata__":{"k":%s},' % text + PLAIN[1:])
case('json-metadata-tensor', DAMAGED, NO_STRING % ('shape', 47, '[1]'), one(key='"__metadata__"'))
for name, first, second in (('twice', '{"k":"v"}', '{"k":"v"}'), ('twice-null', 'null', 'null')):
    text = '{"__metadata__":%s,"__metadata__":%s,' % (first, second) + PLAIN[1:]
    bad_json('metadata-' + name, "duplicate field '__metadata__'", at(text, second + ',' + PLAIN[1:]), text)
text = '{"__metad\\u0061ta__":{},"__metadata__":{},' + PLAIN[1:]
bad_json('metadata-twice-escaped', "duplicate field '__metadata__'", at(text, '{},"a"'), text)
text = '{"__metadata":{"k":"v"},' + PLAIN[1:]
bad_json('metadata-misspelt', "missing field 'dtype'", at(text, ',"a"'), text, tensor='__metadata')
case('metadata-nul-in-key', UNSUPPORTED, "the metadata key 'a\\x00b' at byte 25 contains a NUL, which no file name can; force leaves it out, escape_nul shows the NUL as %00",
     '{"__metadata__":{"a\\u0000b":"v"}}', b'')

# Entries.
for field in ('dtype', 'shape', 'data_offsets'):
    fields = [x for x in ('"dtype":"F32"', '"shape":[1]', '"data_offsets":[0,4]') if field not in x]
    bad_entry('no-' + field, "missing field '%s'" % field, 8 + 6 + len(','.join(fields)) + 1,
              '{"a":{%s}}' % ','.join(fields))
for field, value in (('dtype', '"F32"'), ('shape', '[1]'), ('data_offsets', '[0,4]')):
    text = one(more=',"%s":%s' % (field, value))
    bad_entry('twice-' + field, "duplicate field '%s'" % field, 8 + len(text) - 2 - len(value), text)
for name, value in (('null', 'null'), ('string', '"F32"'), ('number', '7'), ('true', 'true')):
    bad_entry('entry-' + name, 'expected dtype, shape and data_offsets', 13, '{"a":%s}' % value)
bad_entry('entry-empty', "missing field 'dtype'", 15, '{"a":{}}')
bad_entry('entry-array-0', 'expected three fields, found fewer', 15, '{"a":[]}')
bad_entry('entry-array-2', 'expected three fields, found fewer', 24, '{"a":["F32",[1]]}')
bad_entry('entry-array-4', 'expected three fields, found more', 30, '{"a":["F32",[1],[0,4],1]}')
bad_entry('entry-array-mixed', 'expected a string', 14, '{"a":[[1],"F32",[0,4]]}')
bad_entry('field-capital', "missing field 'dtype'", 61, PLAIN.replace('dtype', 'Dtype'))
for name, dtype, error, mark in (
        ('null', 'null', 'expected a string', 'null'), ('number', '17', 'expected a string', '17'),
        ('array', '["F32"]', 'expected a string', '["F32'), ('object-number', '{"F32":1}', 'expected null', '1},'),
        ('object-object', '{"F32":{}}', 'expected null', '{}}'), ('object-empty', '{}', 'expected a dtype', ',"shape'),
        ('object-two', '{"F32":null,"F64":null}', 'more than one dtype', 'null},')):
    bad_entry('dtype-' + name, error, mark, one(dtype=dtype))
for name in ('F16x', 'f32', 'F32 ', '', 'C128', 'I4', 'U4', 'FP4', 'E8M0', 'UE8', 'F8_E4M3FN', 'BF8', 'F128', 'Q7', 'OPAQUE',
             'QI8', 'FLEX32', 'BITS8', '\\u0046\\u0000', '\\u001b[31m'):
    shown = {'\\u0046\\u0000': 'F\\x00', '\\u001b[31m': '\\x1b[31m'}.get(name, name)
    case('dtype-%s' % ''.join(c if c.isalnum() else '_' for c in name), UNSUPPORTED,
         "tensor 'a' at byte 9: unknown dtype '%s'" % shown, one(dtype='"%s"' % name))
for name, shape, mark in (
        ('null', 'null', 'null'), ('number', '1', '1,"data'), ('string', '"1"', '"1"'), ('object', '{"0":1}', '{"0')):
    bad_entry('shape-' + name, 'expected an array', mark, one(shape=shape))
WHOLE = 'expected a whole number from 0 to 2^64-1'
for name, number in (('negative', '-1'), ('minus-zero', '-0'), ('point', '1.0'), ('half', '1.5'), ('exponent', '1e0'),
                     ('leading-zero', '01'), ('text', '"1"'), ('true', 'true'), ('nan', 'NaN'), ('null', 'null'),
                     ('2-64', '18446744073709551616'), ('array', '[1]')):
    bad_entry('dim-' + name, WHOLE, at(one(), '[1]') + 1, one(shape='[%s]' % number))
    bad_entry('offset-' + name, WHOLE, at(one(), '4]'), one(offsets='[0,%s]' % number))
for name, offsets, error in (('none', '[]', 'expected two offsets, found fewer'),
                             ('one', '[0]', 'expected two offsets, found fewer'),
                             ('three', '[0,4,8]', 'expected two offsets, found more')):
    mark = at(one(offsets=offsets), '8]}' if name == 'three' else '}}')
    bad_entry('offsets-' + name, error, mark, one(offsets=offsets))
for name, offsets in (('object', '{"a":0,"b":4}'), ('null', 'null'), ('number', '4')):
    bad_entry('offsets-' + name, 'expected an array', at(one(), '[0,4]'), one(offsets=offsets))

# Keys.
case('key-nul', UNSUPPORTED, "the key 'safe\\x00hidden' at byte 9 contains a NUL, which no file name can; force leaves it out, escape_nul shows the NUL as %00",
     one(key='"safe\\u0000hidden"'))

# Shapes and sizes.
def size(name, error, shape, offsets, dtype='F32', data=DATA):
    case('size-' + name, DAMAGED, error, one(shape, offsets, '"%s"' % dtype), data)


for name, shape, dtype in (('max', [MAX], 'F32'), ('2-32-squared', [2**32, 2**32], 'F32'), ('2-60', [2**60], 'F32'),
                           ('2-61-bytes', [2**61], 'U8'), ('max-bytes', [MAX], 'U8'), ('3-by-2-63', [3, 2**63], 'BOOL'),
                           ('max-max-0', [MAX, MAX, 0], 'F32'), ('2-60-f4', [2**62, 2], 'F4')):
    size('overflow-' + name, "tensor 'a': shape %s of %s passes 2^64 bits" % (shape, dtype),
         str(shape), '[0,4]', dtype)
for name, shape, dtype, n in (('f4-3', '[3]', 'F4', 2), ('f4-scalar', '[]', 'F4', 1), ('f4-1', '[1]', 'F4', 1),
                              ('f6-2', '[2]', 'F6_E2M3', 2), ('f6-3', '[3]', 'F6_E3M2', 3)):
    size('misaligned-' + name, "tensor 'a': shape %s of %s does not fill whole bytes" % (shape, dtype),
         shape, '[0,%d]' % n, dtype, bytes(n))
for name, shape, offsets, need, have in (
        ('shape-2', '[2]', '[0,4]', 8, 4), ('shape-0', '[0]', '[0,4]', 0, 4), ('scalar-in-0', '[]', '[0,0]', 4, 0),
        ('million', '[1000, 1000]', '[0,4]', 4000000, 4), ('five-bytes', '[1]', '[0,5]', 4, 5),
        ('three-bytes', '[1]', '[0,3]', 4, 3), ('1-by-0', '[1, 0]', '[0,4]', 0, 4)):
    size('wrong-' + name, "tensor 'a': shape %s of F32 takes %d bytes, data_offsets give %d" %
         (shape, need, have), shape, offsets, data=bytes(have))
size('wrong-rank-60', "tensor 'a': shape [%s...] of F32 takes 8 bytes, data_offsets give 4" %
     ('2' + ', 1' * 60)[:122], '[2%s]' % (',1' * 60), '[0,4]')
size('2-61-minus-1-in-4-bytes', 'the file has 101 '
     'bytes, its header describes %d (truncated)' % (2**61 - 1 + 97), '[%d]' % (2**61 - 1), '[0,%d]' % (2**61 - 1), 'U8')

# Ranges.
def ranges(name, error, header, data=DATA):
    case('range-' + name, DAMAGED, error, header, data)


def off(key, begin, expected, why, note=''):
    size = abs(begin - expected)
    return "%stensor '%s': data begins at %d, expected %d (%s of %d byte%s)" % (
        note, key, begin, expected, why, size, '' if size == 1 else 's')


def pair(a, b, keys='ab'):
    return '{"%s":%s,"%s":%s}' % (keys[0], a, keys[1], b)


ranges('reversed', off('a', 4, 0, 'a gap'), one(offsets='[4,0]'))
ranges('ends-before', "tensor 'b': data ends at 2, before it begins at 4",
       pair(entry(), entry(offsets='[4,2]')))
ranges('hole-at-start', off('a', 4, 0, 'a gap'), one(offsets='[4,8]'), bytes(8))
ranges('odd-start', off('a', 1, 0, 'a gap'), one(offsets='[1,5]'))
ranges('max', off('a', MAX, 0, 'a gap'), one(offsets='[%d,%d]' % (MAX, MAX)))
ranges('hole', off('b', 8, 4, 'a gap'), pair(entry(), entry(offsets='[8,12]')), bytes(12))
ranges('same', off('b', 0, 4, 'an overlap'), pair(entry(), entry()))
ranges('overlap', off('b', 2, 4, 'an overlap'), pair(entry(), entry(offsets='[2,6]')), bytes(6))
ranges('overlap-and-truncated', off('b', 2, 4, 'an overlap'), pair(entry(), entry(offsets='[2,6]')), b'')
ranges('empty-inside', off('b', 2, 4, 'an overlap'), pair(entry(), entry('[0]', '[2,2]')))
ranges('empty-past-the-end', off('b', 8, 4, 'a gap'), pair(entry(), entry('[0]', '[8,8]')))
ranges('listed-backwards', off('b', 8, 4, 'a gap'), pair(entry(offsets='[8,12]'), entry(), 'ba'), bytes(12))
ranges('first-wrong-then-overflow', "tensor 'a': shape [2] of F32 takes 8 bytes, data_offsets give 4",
       pair(entry('[2]'), entry('[%d]' % MAX, '[4,8]')), bytes(8))
ranges('name-escaped', off("\\x1b[31mred\\x0a", 4, 0, 'a gap'), one(offsets='[4,8]', key='"\\u001b[31mred\\n"'), bytes(8))
ranges('name-long', off('n' * 472 + '... (1000 bytes)', 4, 0, 'a gap'),
       one(offsets='[4,8]', key='"%s"' % ('n' * 1000)), bytes(8))

# The same key twice: fine where the last one fits, told where it does not.
def twice(name, error, first, second, data=DATA, key='"a"'):
    text = '{"a":%s,%s:%s}' % (first, key, second)
    note = "duplicate key 'a' at byte %d, first at byte 9: " % (8 + len('{"a":%s,' % first))
    case('twice-' + name, DAMAGED, error(note), text, data)


twice('two-ranges', lambda note: off('a', 4, 0, 'a gap', note), entry(), entry(offsets='[4,8]'), bytes(8))
twice('escaped', lambda note: off('a', 4, 0, 'a gap', note), entry(), entry(offsets='[4,8]'), bytes(8), '"\\u0061"')
twice('too-long', lambda note: '%sthe file has 123 '
      'bytes, its header describes 119 (the data is followed by something else)' % note, entry('[2]', '[0,8]'), entry(), bytes(8))
twice('wrong-size', lambda note: "%stensor 'a': shape [2] of F32 takes 8 bytes, data_offsets give 4" %
      note, entry(), entry('[2]'))
bad_entry('twice-first-null', 'expected dtype, shape and data_offsets', 13, '{"a":null,"a":%s}' % entry())

# Other things under our name.
LFS = 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n'
raw('foreign-git-lfs', FOREIGN, "is a Git LFS pointer, not the file itself (real size 12345 bytes): run 'git lfs pull'",
    LFS.encode())
raw('foreign-git-lfs-cut', FOREIGN, "is a Git LFS pointer, not the file itself: run 'git lfs pull'", LFS[:50].encode())
HTML = 'is an HTML page, possibly the error page of a download'
XML = 'is an XML document, possibly the error page of a download'
JSON = 'is a JSON document, possibly the error message of a download'
for name, message, content in (
        ('html', HTML, b'<!DOCTYPE html><html><body>not found</body></html>'), ('html-late', HTML, b'\xef\xbb\xbf\r\n<HTML lang=en>'),
        ('xml', XML, b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'), ('s3', XML, b'<Error><Code>NoSuchKey</Code></Error>'),
        ('json', JSON, b'{"error":"Repository not found"}'), ('json-list', JSON, b'[{"message": "rate limit"}]'),
        ('text', "is text, not a checkpoint: it begins with 'hello world, this is text\\x0a'", b'hello world, this is text\n'),
        ('python', 'is source code, not a checkpoint', b'import torch\ntorch.load("x")\n'),
        ('script', 'is source code, not a checkpoint', b'#!/bin/sh\necho model\n'),
        ('gzip', 'is gzip data: decompress it first', b'\x1f\x8b\x08\0' + bytes(20)),
        ('bzip2', 'is bzip2 data: decompress it first', b'BZh91AY&SY\x80'), ('xz', 'is xz data: decompress it first', b'\xfd7zXZ\0\0\4'),
        ('zstd', 'is zstd data: decompress it first', b'\x28\xb5\x2f\xfd\x24\1\0\0\1'),
        ('zip-empty', 'is an empty zip archive, not a checkpoint', b'PK\5\6' + bytes(18)),
        ('7z', 'is a 7z archive: unpack it first', b'7z\xbc\xaf\x27\x1c\0\4' + bytes(20)),
        ('rar', 'is a RAR archive: unpack it first', b'Rar!\x1a\x07\1\0' + bytes(20)),
        ('gguf', 'is a GGUF file with a swapped magic number, which no program reads', b'FUGG\3\0\0\0' + bytes(60)),
        ('gguf-123', 'is a GGUF file with a swapped magic number, which no program reads', b'FUGG\3\0\0\0{' + bytes(60)),
        ('ggml', 'is a GGML file (old llama.cpp), a format that weightfs does not read', b'tjgg\3\0\0\0' + bytes(60)),
        ('hdf5', 'is an HDF5 file (Keras?), a format that weightfs does not read', b'\x89HDF\r\n\x1a\n' + bytes(20)),
        ('npy', 'is a single NumPy array (.npy), not a checkpoint', b'\x93NUMPY\1\0v\0{' + b' ' * 60),
        ('onnx', 'is an ONNX model, a format that weightfs does not read', b'\x08\x07\x12\x07pytorch\x1a\x05' + b'2.1.0' + bytes(9)),
        ('tflite', 'is a TensorFlow Lite model, a format that weightfs does not read', b'\x1c\0\0\0TFL3' + bytes(20)),
        ('png', 'is a PNG picture, not a checkpoint', b'\x89PNG\r\n\x1a\n' + bytes(20)), ('jpeg', 'is a JPEG picture, not a checkpoint', b'\xff\xd8\xff\xe0\0\x10JFIF'),
        ('gif', 'is a GIF picture, not a checkpoint', b'GIF89a\1\0'), ('pdf', 'is a PDF document, not a checkpoint', b'%PDF-1.7\n%\xe2\xe3'),
        ('elf', 'is a program or library (ELF), not a checkpoint', b'\x7fELF\2\1\1' + bytes(20)),
        ('sqlite', 'is an SQLite database, not a checkpoint', b'SQLite format 3\0' + bytes(20)),
        ('parquet', 'is a Parquet file, not a checkpoint', b'PAR1\x15\4\x15' + bytes(9)),
        ('arrow', 'is an Arrow file, not a checkpoint', b'ARROW1\0\0' + bytes(9))):
    raw('foreign-' + name, FOREIGN, message, content)


def files():
    result = {}
    for name, (content, code, message) in cases.items():
        result[name + '.safetensors'] = content
        result[name + '.expect'] = ('%d\n%s\n' % (code, message)).encode()
    return result


if __name__ == '__main__':
    reject_corpus.main(FOLDER, files(), len(cases))
