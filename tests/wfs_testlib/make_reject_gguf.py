#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes tests/data/reject/gguf: per case NAME.gguf and NAME.expect, whose first line is the exit code and whose second is the
message behind the file's name. What is expected is written here by hand, from the description of the format. With --check, says
instead whether the folder is what this script would write."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

from wfs_testlib import reject_corpus  # noqa: E402
from wfs_testlib.gguf import ARRAY, BOOL, F32, F64, I32, I64, STRING, U8, U16, U32, U64, Writer, padded  # noqa: E402

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'data', 'reject', 'gguf')
FOREIGN, DAMAGED, UNSUPPORTED = 4, 5, 6
W = Writer()
DATA = bytes(range(16))
TENSOR = ('t', 'F32', [4], DATA)
HEAD = 24
cases = {}


def raw(name, code, message, content):
    assert name not in cases, name
    cases[name] = (content, code, message)


def pair(name, code, message, content, n_pairs=1):
    """The pairs of a file without tensors."""
    raw(name, code, message, padded(W.head(0, n_pairs) + content))


def info(name, code, message, *infos, data=DATA):
    raw(name, code, message, padded(W.head(len(infos), 0) + b''.join(infos)) + data)


GOOD = W.file([('general.architecture', STRING, 'x'), ('n', U32, 1)], [TENSOR])

# The head.
for n in (4, 7):
    raw('head-%d' % n, DAMAGED, 'truncated: the header goes on at byte 4, the file has %d bytes' % n, GOOD[:n])
raw('head-20', DAMAGED, 'truncated: the header goes on at byte 16, the file has 20 bytes', GOOD[:20])
for version in (0, 4, 256, 65535):
    raw('version-%d' % version, UNSUPPORTED, 'is a GGUF of version %d, versions from 1 to 3 are known' % version,
        b'GGUF' + version.to_bytes(4, 'little') + GOOD[8:])
raw('version-256-swapped', UNSUPPORTED, 'is a GGUF of version 256, versions from 1 to 3 are known', b'GGUF\0\0\1\0' + GOOD[8:])
raw('many-tensors', DAMAGED, 'truncated: it states 1000 tensors, and 40 bytes follow', padded(W.head(1000, 0), 64))
raw('many-pairs', DAMAGED, 'truncated: it states 18446744073709551615 metadata pairs, and 40 bytes follow', padded(W.head(0, (1 << 64) - 1), 64))

# Keys.
K = W.text('k')
pair('key-length', DAMAGED, 'truncated: the text at byte 24 has 4096 bytes, and the file ends after 32 bytes of it', W.number('Q', 4096) + bytes(32))
pair('key-empty', DAMAGED, 'the metadata key at byte 24 is empty', W.pair('', U8, 1))
pair('key-not-utf8', DAMAGED, r"the metadata key '\xff' at byte 24 is not UTF-8", W.pair(b'\xff', U8, 1))
pair('key-nul', UNSUPPORTED, r"the metadata key 'a\x00b' at byte 24 contains a NUL, which no file name can; force leaves it out, escape_nul "
     'shows the NUL as %00', W.pair('a\0b', U8, 1))
pair('key-twice', DAMAGED, "the metadata key 'k' is a duplicate, at byte 38", W.pair('k', U8, 1) + W.pair('k', U16, 1), 2)

# Values.
pair('type-13', DAMAGED, "metadata 'k': the type at byte 33 is 13, of types from 0 to 12", K + W.number('I', 13) + bytes(32))
raw('value-cut', DAMAGED, 'truncated: the header goes on at byte 37, the file has 41 bytes', W.head(0, 1) + K + W.number('I', F64) + bytes(4))
pair('text-length', DAMAGED, 'truncated: the text at byte 37 has 9223372036854775808 bytes, and the file ends after 19 bytes of it',
     K + W.number('I', STRING) + W.number('Q', 1 << 63))
pair('array-type', DAMAGED, "metadata 'k': the type at byte 37 is 99, of types from 0 to 12", K + W.number('I', ARRAY) + W.number('I', 99) + bytes(15))
for kind, name, n_bytes in ((U8, 'U8', 1), (STRING, 'STRING', 8), (ARRAY, 'ARRAY', 12), (F64, 'F64', 8)):
    pair('array-of-' + name.lower(), DAMAGED, "truncated: metadata 'k': the array at byte 37 has 1000 items of %s, but 15 bytes follow in the file" % name,
         K + W.number('I', ARRAY) + W.number('I', kind) + W.number('Q', 1000) + bytes(15))
deep = W.number('I', U8) + W.number('Q', 0)
for _ in range(64):
    deep = W.number('I', ARRAY) + W.number('Q', 1) + deep
pair('array-deep', UNSUPPORTED, "metadata 'k': arrays are nested deeper than 64 levels", K + W.number('I', ARRAY) + deep)

# The alignment.
for n in (0, 3, 24):
    pair('alignment-%d' % n, DAMAGED, "metadata 'general.alignment' is %d, which is not a power of 2" % n, W.pair('general.alignment', U32, n))
for kind, name, value in ((U64, 'U64', 32), (I32, 'I32', 32), (STRING, 'STRING', '32'), (ARRAY, 'ARRAY', (U32, [32])), (BOOL, 'BOOL', 1),
                          (I64, 'I64', 32), (F32, 'F32', 32)):
    pair('alignment-' + name.lower(), DAMAGED, "metadata 'general.alignment' is %s instead of U32" % name, W.pair('general.alignment', kind, value))

# Tensors.
info('name-twice', DAMAGED, "the tensor name 't' is a duplicate, at byte 57", W.info('t', 0, [4], 0), W.info('t', 0, [4], 32), data=bytes(64))
info('name-not-utf8', DAMAGED, r"the tensor name '\xfe' at byte 24 is not UTF-8", W.info(b'\xfe', 0, [4], 0))
info('name-nul', UNSUPPORTED, r"the tensor name 'a\x00' at byte 24 contains a NUL, which no file name can; force leaves it out, escape_nul shows "
     'the NUL as %00', W.info('a\0', 0, [4], 0))
info('rank', UNSUPPORTED, "tensor 't' has 1000000 dimensions (limit rank)", W.text('t') + W.number('I', 1000000) + bytes(40))
info('rank-cut', DAMAGED, 'truncated: it states 100 dimensions, and 91 bytes follow', W.text('t') + W.number('I', 100) + bytes(71), data=b'')
info('dim-negative', DAMAGED, "tensor 't' has more than 2^63-1 elements", W.info('t', 0, [(1 << 64) - 4], 0))
info('elements', DAMAGED, "tensor 't' has more than 2^63-1 elements", W.info('t', 24, [1 << 32, 1 << 32], 0))
info('bytes', DAMAGED, "tensor 't' has more than 2^63-1 bytes", W.info('t', 28, [1 << 62], 0))
for number, name in ((4, 'Q4_2'), (5, 'Q4_3'), (31, 'Q4_0_4_4'), (33, 'Q4_0_8_8'), (36, 'IQ4_NL_4_4'), (38, 'IQ4_NL_8_8')):
    info('type-%d' % number, UNSUPPORTED, "tensor 't' has type %d, %s, which was removed from GGUF" % (number, name), W.info('t', number, [32], 0))
for number, name, n in ((8, 'Q8_0', 32), (12, 'Q4_K', 256), (41, 'Q1_0', 128)):
    info('row-' + name.lower(), DAMAGED, "tensor 't': its rows of 16 elements are not whole blocks of %s, which have %d" % (name, n),
         W.info('t', number, [n, 16], 0), data=bytes(4096))
info('row-of-nothing', DAMAGED, "tensor 't': its rows of 1 element are not whole blocks of Q4_0, which have 32", W.info('t', 2, [], 0))

# The data.
info('data-cut', DAMAGED, "tensor 't': its 16 bytes at byte 64 of the file run past its end: truncated", W.info('t', 0, [4], 0), data=DATA[:9])
info('data-missing', DAMAGED, "tensor 't': its 16 bytes at byte 4160 of the file run past its end: truncated", W.info('t', 0, [4], 4096))
info('data-unaligned', DAMAGED, "tensor 't': its 16 bytes at byte 68 of the file are not at a multiple of the alignment",
     W.info('t', 0, [4], 4), data=bytes(64))
info('data-overlap', DAMAGED, "tensor 'u': its 16 bytes at byte 96 of the file overlap those of another tensor",
     W.info('t', 0, [4], 0), W.info('u', 0, [4], 0), data=bytes(64))
info('data-past-2-64', DAMAGED, "tensor 't': its data begins past byte 2^64", W.info('t', 0, [4], (1 << 64) - 32))


def files():
    result = {}
    for name, (content, code, message) in cases.items():
        result[name + '.gguf'] = content
        result[name + '.expect'] = ('%d\n%s\n' % (code, message)).encode()
    pairs = [('general.architecture', STRING, 'x'), ('u8', U8, 255), ('i64', I64, -1 << 63), ('u64', U64, (1 << 64) - 1), ('f32', F32, 0.5),
             ('f64', F64, 0.1), ('yes', BOOL, 1), ('tokens', ARRAY, (STRING, ['a', b'\xff', ''])), ('nested', ARRAY, (ARRAY, [(I32, [1]), (I32, [])]))]
    tensors = [TENSOR, ('blk.0.q', 'Q8_0', [2, 32], bytes(range(68))), ('blk.0.k', 'Q4_K', [1, 256], bytes(144)), ('one', 'I64', [], bytes(8))]
    result['good.gguf'] = W.file(pairs, tensors)
    result['good-big.gguf'] = Writer(big=True).file(pairs, tensors)
    result['good-first.gguf'] = Writer(version=1).file(pairs, tensors)
    result['good-aligned.gguf'] = W.file([*pairs, ('general.alignment', U32, 64)], tensors, 64)
    result['good-unknown.gguf'] = padded(W.head(2, 0) + W.info('t', 97, [64], 0) + W.info('u', 0, [4], 64)) + bytes(64) + DATA
    return result


if __name__ == '__main__':
    reject_corpus.main(FOLDER, files(), len(cases))
