# SPDX-License-Identifier: MIT
"""
Hostile and broken PyTorch files, and what must come of each: writes tests/data/reject/pytorch.

Run it from tests: /usr/bin/python3 -m wfs_testlib.make_reject_pytorch. A case is a file and an expectation: an exit code
with a piece of the message, or (exit code 0) tensors with a piece of their trouble (None: readable) and pieces of findings.
"""
import json
import pathlib
import struct

from wfs_testlib.pth import (FLOAT, ORDERED, PROTO, STOP, call, checkpoint, dictionary, entry, get, magic, member, name, number,
                             numbers, old_archive, pairs, pickle, put, records, storage, stream, system, tensor, text, tup,
                             zipped)

FOLDER = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'reject' / 'pytorch'
GOOD = b'\0\0\0\0\0\0\x80?\0\0\0@\0\0@@'
TYPE = name('torch._tensor', '_rebuild_from_type_v2')
V2 = name('torch._utils', '_rebuild_tensor_v2')
cases = {}


def refused(path, data, code, message):
    cases[path] = (data, {'exit': code, 'message': message})


def loads(path, data, tensors=None, findings=()):
    cases[path] = (data, {'exit': 0, 'tensors': tensors or {}, 'findings': list(findings)})


def bare(path, body, code=None, message=None, **more):
    """A pickle by itself."""
    if code is None:
        loads('pickle/%s.pkl' % path, PROTO + body, **more)
    else:
        refused('pickle/%s.pkl' % path, PROTO + body, code, message)


def trouble(path, value, message, **storages):
    """A zip with one tensor that cannot be read, and one that can."""
    both = dictionary(bad=value, good=tensor(storage(key='9')))
    loads('tensor/%s.pth' % path, checkpoint(both, r9=GOOD, **(storages or {'r0': GOOD})), {'bad': message, 'good': None})


def machine():
    bomb = b'].' if False else b']' + put(0) + get(0) + get(0) + b'\x86' + put(1)
    for i in range(1, 41):
        bomb += get(i) + get(i) + b'\x86' + put(i + 1)
    bare('01-memo-bomb', bomb + STOP)
    inner = tensor(storage(key='0'))
    bomb = inner + put(0)
    for i in range(40):
        bomb += get(i) + get(i) + b'\x86' + put(i + 1)
    loads('tensor/01-memo-bomb-with-tensor.pth', checkpoint(bomb), None, ['occur many times'])
    bare('02-dup-bomb', b']' + b'2a' * 0 + put(0) + (get(0) + b'a') * 50 + STOP)
    bare('02-dup', b']2a' + STOP)
    bare('03-list-in-itself', b']' + put(0) + get(0) + b'a' + STOP)
    bare('03-dict-in-itself', b'}' + put(0) + text('a') + get(0) + b's' + STOP)
    bare('04-long4-too-long', b'\x8b' + struct.pack('<i', 2 ** 31 - 1) + b'1234', 5, 'an integer of 2147483647 bytes')
    bare('04-long4-negative', b'\x8b' + struct.pack('<i', -1), 5, 'negative length')
    for opcode, word in (b'\x8e', 'bytes'), (b'\x8d', 'string'), (b'\x96', 'bytes'):
        bare('05-%02x-2-63' % opcode[0], opcode + struct.pack('<Q', 2 ** 63) + b'abc', 5, '9223372036854775808 bytes')
    bare('06-unicode-ffffffff', b'X\xff\xff\xff\xffabc', 5, 'a string of 4294967295 bytes')
    bare('06-binstring-negative', b'T' + struct.pack('<i', -1), 5, 'negative length')
    trouble('07-size-of-255-bytes', tensor(size=tup(b'\x8a\xff' + b'\x7f' * 255)), 'dimension 0 is not an integer from 0 to 2^63-1')
    refused('pickle/08-digits.pkl', b'(L' + b'1' * 200000 + b'L\n.', 6, 'an integer of 200000 digits')
    bare('08-long1-too-long', b'\x8b' + struct.pack('<i', 2000) + b'\1' * 2000 + STOP, 6, 'an integer of 2000 bytes')
    refused('pickle/09-long-binput.pkl', b']r\xff\xff\xff\x7fepla', 4, 'not a PyTorch file')
    bare('09-far-memo', b']' + b''.join(b'r' + struct.pack('<I', 2 ** 31 - 1 - i) for i in range(100)) + STOP)
    bare('10-unset-memo', b'h\7' + STOP, 5, 'memo entry 7 is not set')
    bare('10-unset-memo-text', b'g123456\n' + STOP, 5, 'memo entry 123456 is not set')
    bare('10-memo-index-text', b']p99999999999999999999\n' + STOP, 5, 'memo index')
    bare('11-marks', b'(' * 20000 + STOP, 6, 'open marks (limit marks)')
    bare('11-nested-lists', b']' * 20000 + b'a' * 19999 + STOP)
    bare('12-nested-tuples', b')' + b'\x85' * 100000 + STOP)
    deep = tensor(storage(key='0')) + b'\x85' * 1000
    loads('tensor/12-nested-too-deep.pth', checkpoint(dictionary(deep=deep, good=tensor())), {'good': None},
          ['nested deeper than 256'])
    bare('13-pop-empty', b'0' + STOP, 5, 'stack underflow')
    bare('13-tuple2-of-one', b'N\x86' + STOP, 5, 'stack underflow')
    bare('13-below-mark', b'N(\x85' + STOP, 5, 'stack underflow')
    bare('13-dup-empty', b'2' + STOP, 5, 'stack underflow')
    bare('13-put-empty', b'q\0' + STOP, 5, 'stack underflow')
    bare('13-stop-empty', STOP, 5, 'stack underflow')
    bare('13-obj-empty', b'(o' + STOP, 5, 'stack underflow')
    bare('13-pop-mark-is-legal', b'N(0' + STOP)
    bare('13-two-left', b'NN' + STOP, findings=['more than one value'])
    for opcode, word in (b't', 'tuple'), (b'e', 'appends'), (b'u', 'setitems'), (b'1', 'pop-mark'), (b'\x90', 'additems'), (b'd', 'dict'):
        bare('14-%s-without-mark' % word, b'}' + opcode + STOP, 5, 'no mark')
    bare('15-odd-setitems', b'}(Nu' + STOP, 5, 'odd number')
    bare('15-odd-dict', b'(Nd' + STOP, 5, 'odd number')
    bare('16-append-onto-dict', b'}Na' + STOP, 5, 'not a list')
    bare('16-setitem-onto-tuple', b')NNs' + STOP, 5, 'not a dict')
    bare('16-setitem-onto-int', b'K\1NNs' + STOP, 5, 'not a dict')
    bare('16-additems-onto-list', b'](N\x90' + STOP, 5, 'not a set')
    bare('16-additems-onto-frozenset', b'(N\x91(N\x90' + STOP, 5, 'not a set')
    bare('17-stack-global-of-ints', b'K\1K\2\x93' + STOP, 5, 'not a string')
    bare('18-unknown-opcode', b'N\xff' + STOP, 5, 'opcode 0xff: unknown opcode')
    refused('pickle/18-protocol-6.pkl', b'\x80\x02\x80\x06N.', 6, 'protocol 6')
    bare('19-no-stop', b'N' * 10, 5, 'ends inside the pickle')
    refused('pickle/19-empty.pkl', b'', 4, 'empty')
    refused('pickle/19-one-byte.pkl', b'\x80', 4, '')
    for opcode in b'\x82\1', b'\x83\1\0', b'\x84\1\0\0\0':
        bare('20-extension-%02x' % opcode[0], opcode + STOP, findings=['private registry'])
    bare('21-next-buffer', b'\x97' + STOP, 6, 'out-of-band buffer')
    system_ = name('os', 'system')
    bare('22-os-system', call(system_, text('true')) + STOP, findings=['system of module os'])
    loads('tensor/22-os-system-beside-tensor.pth', checkpoint(dictionary(evil=call(system_, text('true')), good=tensor())),
          {'good': None}, ['system of module os'])
    loads('tensor/22-os-system-as-argument.pth',
          checkpoint(dictionary(bad=tensor(call(system_, text('true'))), good=tensor())), {'bad': 'not a view of a storage', 'good': None},
          ['system of module os'])
    loads('tensor/22-os-system-as-key.pth', checkpoint(pairs((call(system_, text('true')), tensor()), (text('good'), tensor()))),
          {'%key94a21b3c': None, 'good': None}, ['system of module os'])
    bare('22-inst', b'(' + text('true') + b'ios\nsystem\n' + STOP, findings=['system of module os'])
    bare('22-obj', b'(' + system_ + text('true') + b'o' + STOP, findings=['system of module os'])
    bare('22-build', name('builtins', 'object') + b')\x81' + pairs((text('__setstate__'), system_)) + b'b' + STOP,
         findings=['system of module os'])
    bare('22-stack-global-from-memo', text('os') + put(0) + b'0' + text('system') + put(1) + b'0' + get(0) + get(1) + b'\x93'
         + tup(text('true')) + b'R' + STOP, findings=['system of module os'])
    bare('22-acts-before-the-error', call(system_, text('true')) + b'0' + b'\xff', 5, 'unknown opcode')
    loads('pickle/23-magic-by-eval.pt', pickle(call(name('builtins', 'eval'), text('0x1950a86a20f9469cfc6c'))) + pickle(number(1001)),
          None, ['eval of module builtins', 'follow the pickle'])
    bare('24-global-not-utf8', b'c\xff\xfe\n\x80\n)R' + STOP)
    bare('24-global-empty', b'c\n\n)R' + STOP)
    bare('25-global-one-line', b'cos\n', 5, 'ends inside the pickle')
    bare('26-string-without-quotes', b'Sabc\n' + STOP, 5, 'without quotes')
    bare('26-string-bad-escape', b"S'\\x4'\n" + STOP, 5, 'escape')
    bare('26-unicode-bad-escape', b'V\\u12\n' + STOP, 5, 'escape')
    bare('26-float', b'F1.2.3\n' + STOP, 5, 'not a number')
    bare('26-int', b'Iabc\n' + STOP, 5, 'not an integer')
    bare('27-bad-utf8', b'X\3\0\0\0\xff\xfe\xfd' + STOP, findings=['not UTF-8'])
    bare('43-twin-keys', b'}(' + text('a') + number(1) + text('a') + number(2) + b'u' + STOP, findings=['key is a duplicate'])
    bare('43-twin-numbers', b'}(' + number(1) + b'N' + b'\x88N' + b'G' + struct.pack('>d', 1) + b'Nu' + STOP,
         findings=['2 dict keys are duplicates'])


def tensors():
    plain = tup(text('storage'), FLOAT, text('0'), text('cpu'))
    trouble('28-persistent-int', tensor(number(5) + b'Q'), 'tuple of five or six')
    trouble('28-persistent-of-4', tensor(plain + b'Q'), 'tuple of five or six')
    trouble('28-persistent-of-6', tensor(storage(more=b'N')), 'six items')
    trouble('28-persistent-other', tensor(tup(text('store'), FLOAT, text('0'), text('cpu'), number(4)) + b'Q'), 'tuple of five or six')
    trouble('28-class-not-global', tensor(storage(cls=text('FloatStorage'))), 'has no class')
    trouble('29-unknown-class', tensor(storage(cls=name('torch', 'FooStorage'))), 'FooStorage of module torch is not supported')
    for i, key in enumerate(('../../etc/passwd', '/x', 'a\0b', '', '\\', 'k' * 5000)):
        trouble('30-key-%d' % i, tensor(storage(key=key)), 'is not in the zip')
    trouble('31-numel-negative', tensor(storage(numel=-1)), 'number of elements')
    trouble('31-numel-2-62', tensor(storage(numel=2 ** 62)), 'number of elements')
    trouble('31-numel-2-70', tensor(storage(numel=2 ** 70)), 'number of elements')
    trouble('32-record-short', tensor(), 'has 15 bytes, 16 expected', r0=bytes(15))
    loads('tensor/33-record-long.pth', checkpoint(dictionary(a=tensor()), r0=bytes(20)), {'a': None}, ['longer than declared'])
    trouble('34-beyond-storage', tensor(offset=1), 'ends at byte 20 of its storage, which has 16')
    trouble('34-stride-beyond', tensor(size=(2, 2), stride=(3, 1)), 'ends at byte 20')
    trouble('34-huge-dimensions', tensor(size=(2 ** 32,) * 3, stride=(0, 0, 0)), 'above 2^63-1')
    trouble('34-huge-stride', tensor(size=(3,), stride=(2 ** 62,)), 'beyond 2^64 bytes')
    trouble('34-huge-offset', tensor(offset=2 ** 63 - 1), '')
    loads('tensor/35-stride-0.pth', checkpoint(dictionary(a=tensor(storage(numel=1), size=(2 ** 40,), stride=(0,))), r0=bytes(4)),
          {'a': None})
    loads('tensor/34-empty-needs-no-bounds.pth',
          checkpoint(dictionary(a=tensor(offset=2 ** 50, size=(0, 2 ** 40, 2 ** 40), stride=(7, 8, 2 ** 62)))), {'a': None})
    trouble('36-negative-stride', tensor(stride=(-1,)), 'stride 0 is negative')
    trouble('36-negative-size', tensor(size=(-4,)), 'dimension 0 is negative')
    trouble('36-negative-offset', tensor(offset=-1), 'its offset')
    trouble('36-ranks-differ', tensor(size=(2, 2), stride=(1,)), '2 dimensions but 1 stride')
    trouble('36-float-size', tensor(size=tup(b'G' + struct.pack('>d', 4))), 'not an integer')
    trouble('36-none-size', tensor(size=b'N'), 'not a tuple')
    trouble('36-none-offset', tensor(offset=b'N'), 'its offset')
    ints = name('torch', 'IntStorage')
    loads('tensor/37-two-classes.pth', checkpoint(dictionary(a=tensor(), b=tensor(storage(cls=ints)))), {'a': None, 'b': None},
          ['two different types'])
    trouble('38-too-few', call(V2, storage(), number(0)), 'number of arguments: 2')
    trouble('38-too-many', call(V2, storage(), number(0), numbers((4,)), numbers((1,)), b'\x89', ORDERED, b'N', b'N', b'N'),
            'number of arguments: 9')
    trouble('38-storage-is-text', tensor(text('0')), 'not a view of a storage')
    trouble('38-args-not-a-tuple', V2 + text('x') + b'R', 'number of arguments: 0')
    nest = tup(storage(), number(0), numbers((4,)), numbers((1,)), b'\x89', ORDERED)
    function = V2
    for _ in range(1000):
        nest = tup(function, name('torch', 'Tensor'), nest, b'}')
        function = TYPE
    trouble('39-types-in-types', TYPE + nest + b'R', 'is unknown')
    wrapped = tensor()
    for _ in range(100):
        wrapped = call(name('torch._utils', '_rebuild_parameter'), wrapped, b'\x88', ORDERED)
    trouble('39-parameters-in-parameters', wrapped, 'more than 16 times')
    trouble('39-v3-unknown-dtype', call(name('torch._utils', '_rebuild_tensor_v3'), storage(cls=name('torch', 'UntypedStorage'), numel=16),
                                       number(0), numbers((4,)), numbers((1,)), b'\x89', ORDERED, name('torch', 'int3')),
            'dtype int3 is not supported')
    load = name('torch.storage', '_load_from_bytes')

    def binbytes(raw):
        return b'B' + struct.pack('<I', len(raw)) + raw

    one = stream(storage(more=b'N'), ['0'], [(4, GOOD)])
    deep = one
    for _ in range(3):
        deep = stream(call(load, binbytes(deep)), [], [])
    for path, raw, what in (('40-streams-in-streams', deep, 'cannot be read'), ('40-stream-not-one', b'abc', 'cannot be read'),
                            ('40-stream-of-a-number', stream(number(1), [], []), 'does not contain a storage'),
                            ('40-stream-cut', one[:-1], 'ends 1 byte before')):
        loads('pickle/%s.pkl' % path, b'\x80\3' + dictionary(bad=tensor(call(load, binbytes(raw))),
                                                            good=tensor(call(load, binbytes(one)))) + STOP,
              {'bad': what, 'good': None})
    latin = call(name('_codecs', 'encode'), text('\u0100'), text('latin1'))
    utf = call(name('_codecs', 'encode'), text('a'), text('rot13'))
    for path, value in ('41-encode-above-latin1', latin), ('41-encode-other-codec', utf):
        loads('pickle/%s.pkl' % path, pickle(dictionary(bad=tensor(call(load, value)))), {'bad': 'not made of bytes'})
    array = name('numpy.core.multiarray', '_reconstruct') + tup(name('numpy', 'ndarray'), numbers((0,)), b'C\1b') + b'R'

    def state(code, shape, raw):
        dtype = call(name('numpy', 'dtype'), text(code), b'\x89', b'\x88') + tup(number(3), text('<'), b'N', b'N', b'N',
                                                                                  number(-1), number(-1), number(0)) + b'b'
        return array + tup(number(1), numbers(shape), dtype, b'\x89', b'C' + bytes([len(raw)]) + raw) + b'b'

    loads('pickle/42-numpy-length.pkl', b'\x80\3' + dictionary(bad=state('f4', (5,), GOOD), good=state('f4', (4,), GOOD)) + STOP,
          {'bad': 'do not fit', 'good': None})
    loads('pickle/42-numpy-code.pkl', b'\x80\3' + dictionary(bad=state('f1000000000', (4,), GOOD)) + STOP, {'bad': ''})
    loads('pickle/42-numpy-nonsense.pkl', b'\x80\3' + dictionary(bad=state('zz', (4,), GOOD)) + STOP, {'bad': 'dtype of the array'})
    loads('pickle/42-numpy-huge.pkl', b'\x80\3' + dictionary(bad=state('f8', (2 ** 40, 2 ** 40), GOOD)) + STOP, {'bad': ''})
    unit = tup(b'}', tup(b'C\1D', number(1000001), number(1), number(1)))
    date = call(name('numpy', 'dtype'), text('M8'), b'\x89', b'\x88') + tup(number(4), text('<'), b'N', b'N', b'N', number(-1),
                                                                            number(-1), number(0), unit) + b'b'
    loads('good/dates.pkl', b'\x80\3' + dictionary(d=array + tup(number(1), numbers((2,)), date, b'\x89',
                                                                  b'C\x10' + GOOD) + b'b') + STOP, {'d': None})
    bare('42-storage-in-bare-pickle', dictionary(bad=tensor()) + STOP, tensors={'bad': 'has no storages'})


def zips():
    value = dictionary(a=tensor())
    good = records(value)
    data = dict(a=None)

    def bad(path, entries, code, message, **more):
        refused('zip/%s.pth' % path, entries if isinstance(entries, bytes) else zipped(*entries, **more), code, message)

    def fine(path, entries, tensors=None, findings=(), **more):
        loads('zip/%s.pth' % path, entries if isinstance(entries, bytes) else zipped(*entries, **more),
              data if tensors is None else tensors, findings)

    head, tail = good[:1], good[1:]
    bad('44-duplicate', good + [entry('m/data/0', GOOD)], 5, 'duplicate entry')
    bad('44-duplicate-case', good + [entry('m/DATA.PKL', pickle(b'N'))], 5, 'duplicate entry')
    bad('45-same-data', good + [entry('m/data/1', b'x' * 16, header=0)], 5, 'entries m/data.pkl and m/data/1 overlap')
    bad('45-overlap', [entry('m/data.pkl', pickle(value), n_packed=280, n_bytes=280)] + tail, 5, 'entries m/data.pkl and m/byteorder overlap')
    fake = entry('m/data.pkl', pickle(value), local_path='m/data.xyz')
    bad('46-other-local-name', [fake] + tail, 5, 'a different name in its local header')
    fine('46-other-local-name-of-a-record', head + [entry('m/data/0', GOOD, local_path='m/data/1')], {'a': 'a different name'},
         ['version'])
    bad('46-other-local-method', [entry('m/data.pkl', pickle(value), local_method=8)] + tail, 5, 'differs from its local header')
    bad('46-other-local-size', [entry('m/data.pkl', pickle(value), local=(1, 1))] + tail, 5, 'differs from its local header')
    for flags in 1, 0x20, 0x41, 0x2000:
        bad('47-encrypted-%x' % flags, [entry('m/data.pkl', pickle(value), flags=flags)] + tail, 6, 'is encrypted')
    fine('47-encrypted-record', head + [entry('m/data/0', GOOD, flags=1)], {'a': 'is encrypted'}, ['version'])
    for method in 12, 14, 93, 99:
        bad('47-method-%d' % method, [entry('m/data.pkl', pickle(value), method=method)] + tail, 6, 'method')
    fine('47-method-of-a-record', head + [entry('m/data/0', GOOD, method=93)], {'a': 'method'}, ['version'])
    bad('48-deflate-bomb', [entry('m/data.pkl', pickle(value) + bytes(20000000), method=8, n_bytes=2 ** 34)] + tail, 6, 'inflate_ratio')
    bad('49-stored-sizes-differ', [entry('m/data.pkl', pickle(value), n_bytes=10)] + tail, 5, 'is stored with')
    bad('49-deflate-longer', [entry('m/data.pkl', pickle(value), method=8, n_bytes=20)] + tail, 5, 'more than 20 bytes')
    bad('49-deflate-shorter', [entry('m/data.pkl', pickle(value), method=8, n_bytes=1000)] + tail, 5, 'fewer than 1000 bytes')
    bad('49-deflate-garbage', [entry('m/data.pkl', pickle(value), method=8, raw=b'\xff' * 40)] + tail, 5, 'the compressed data of entry m/data.pkl is damaged')
    bad('50-directory-offset', good, 5, 'directory', end=dict(offset=10 ** 6))
    bad('50-directory-size', good, 5, 'directory', end=dict(size=10 ** 6))
    bad('50-count-too-high', good, 5, 'cannot have 5 entries', end=dict(n=len(good) + 1))
    bad('50-count-much-too-high', good, 5, 'cannot have 60000 entries', end=dict(n=60000))
    fine('50-count-too-low', good, {'a': None}, ['version'], end=dict(n=len(good) - 1))
    bad('50-zip64-anywhere', good, 5, 'beyond', zip64=dict(at=2 ** 60))
    bad('50-zip64-not-there', good, 5, 'no zip64 end record', zip64=dict(at=3))
    bad('50-zip64-disagrees', good, 5, 'disagree', zip64=dict(n=2))
    fine('50-zip64', good, zip64={})
    bad('50-zip64-extra-short', [entry('m/data.pkl', pickle(value), n_packed=0xffffffff, n_bytes=0xffffffff, local=(0, 0),
                                       extra=struct.pack('<HHI', 1, 4, 5))] + tail, 5, 'lacks its 64-bit sizes')
    bad('50-zip64-extra-missing', [entry('m/data.pkl', pickle(value), n_packed=0xffffffff, n_bytes=0xffffffff, local=(0, 0),
                                         extra=struct.pack('<HHI', 9, 4, 5))] + tail, 5, 'lacks its 64-bit sizes')
    bad('50-no-end', zipped(*good)[:-30], 5, 'cut off')
    bad('50-half', zipped(*good)[:200], 5, 'cut off')
    bad('51-beyond-directory', [entry('m/data.pkl', pickle(value), header=5000)] + tail, 5, 'past the directory')
    # The entry that pretends to be the pickle lies inside of another one's data.
    bad('51-no-local-header', [entry('m/x', bytes(100)), entry('m/data.pkl', b'', header=150)], 5, '')
    bad('51-no-signature', [entry('m/first', b'x'), entry('m/data.pkl', pickle(value), signature=b'PK\3\5')] + tail, 5, 'no local header')
    fine('51-no-signature-of-a-record', head + [entry('m/data/0', GOOD, signature=b'XXXX')], {'a': 'no local header'}, ['version'])
    for i, stray in enumerate(('__MACOSX/._x', '../evil', 'a\\b', '/abs', 'other/data.bin')):
        fine('52-stray-%d' % i, good + [entry(stray, b'evil')], None, ['outside of its folder'])
    bad('53-prefix', zipped(*good, prefix=b'junk junk'), 4, '')
    bad('53-end-in-comment', zipped(*good, comment=b'PK\5\6' + bytes(18)), 4, 'a zip with 0 entries')
    fine('53-broken-end-in-comment', zipped(*good, comment=b'PK\5\6' + b'\0' * 8 + b'\xff' * 8 + b'\0\0'), None)
    fine('53-suffix', zipped(*good) + b'junk' * 10, None, ['follow the zip'])
    bad('54-multi-disk', good, 6, 'multi-part', end=dict(disk=1))
    bad('54-multi-disk-entry', [entry('m/data.pkl', pickle(value), disk=3)] + tail, 6, 'multi-part')
    bad('54-other-count', good, 6, 'multi-part', end=dict(n_here=1))
    bad('55-wrong-crc', [entry('m/data.pkl', pickle(value), crc=12345)] + tail, 5, 'checksum')
    fine('55-no-crc', [entry('m/data.pkl', pickle(value), crc=0)] + tail)
    fine('56-version-missing', good[:-1], None, ['\'version\' is missing'])
    for version in b'0', b'11', b'', b'abc':
        fine('56-version-%s' % (version.decode() or 'empty'), good[:-1] + [entry('m/version', version)], None, ['not one that PyTorch knows'])
    fine('56-version-junk', good[:-1] + [entry('m/version', b'3 junk')])
    bad('56-byteorder', [head[0], entry('m/byteorder', b'middle')] + good[2:], 6, 'middle')
    bad('57-npz', [entry('a.npy', b'\x93NUMPY')], 4, 'NumPy')
    bad('57-office', [entry('[Content_Types].xml', b'x')], 4, 'Office')
    bad('57-jar', [entry('META-INF/MANIFEST.MF', b'x')], 4, 'Java')
    bad('57-keras', [entry('config.json', b'{}'), entry('model.weights.h5', b'x')], 4, 'Keras')
    bad('57-mar', [entry('MAR-INF/MANIFEST.json', b'{}'), entry('model.pt', b'x')], 4, 'model archive')
    bad('57-other', [entry('a', b'x')], 4, 'but no data.pkl')
    bad('57-empty', zipped(), 4, '')
    bad('57-script-1.0', [entry('m/model.json', b'{}'), entry('m/attributes.pkl', b'x')], 6, '1.0 or 1.1')
    for i, size in enumerate((b'0', b'-1', b'9223372036854775808')):
        fine('58-alignment-%d' % i, good + [entry('m/.storage_alignment', size), entry('m/.format_version', b'99')])
    fine('30-directory-entry', head + [entry('m/'), entry('m/data/'), entry('m/data/0', GOOD), good[-1]])
    fine('30-empty-key', records(dictionary(a=tensor(), b=tensor(storage(key=''))))[:3] + [entry('m/data/'), good[-1]],
         {'a': None, 'b': '16 expected'})
    fine('no-folder', records(value, root='x') and [entry(e['path'].decode()[2:], e['raw']) for e in good], None, ['not in a folder'])
    fine('deeper-folder', [entry('deep/' + e['path'].decode(), e['raw']) for e in good])
    fine('deflated', [entry(e['path'].decode(), e['raw'], method=8) for e in good])
    fine('deflated-record-cut', head + [entry('m/data/0', GOOD * 100, method=8, raw=b'\x63')], {'a': None}, ['version'])
    refused('zip/nul-key.pth', checkpoint(pairs((text('a\0b'), tensor()))), 6, 'NUL')


def streams():
    value = dictionary(a=tensor(storage(more=b'N')))

    def bad(path, raw, code, message):
        refused('legacy/%s.pth' % path, raw, code, message)

    good = stream(value, ['0'], [(4, GOOD)])
    loads('legacy/good.pth', good, {'a': None})
    bad('59-other-version', stream(value, ['0'], [(4, GOOD)], version=1002), 6, 'version of the legacy stream')
    bad('60-listed-twice', stream(value, ['0', '0'], [(4, GOOD)] * 2), 5, 'listed twice')
    bad('60-listed-not-used', stream(value, ['0', '1'], [(4, GOOD)] * 2), 5, 'does not declare its type')
    loads('legacy/60-used-not-listed.pth', stream(dictionary(a=tensor(storage(more=b'N')), b=tensor(storage(key='7', more=b'N'))),
                                                  ['0'], [(4, GOOD)]), {'a': None, 'b': 'is not in the file'})
    bad('60-key-not-text', magic() + pickle(number(1001)) + system() + pickle(value) + pickle(b'](K\1e'), 5, 'does not declare its type')
    bad('60-no-list', magic() + pickle(number(1001)) + system() + pickle(value) + pickle(b'N'), 5, 'no list')
    bad('61-length-differs', stream(value, ['0'], [(5, GOOD + b'1234')]), 5, 'but 16 in the pickle')
    bad('61-length-negative', stream(value, ['0'], [(-1, GOOD)]), 5, 'length of')
    bad('61-cut', good[:-1], 5, 'ends 1 byte before storage 0 does')
    bad('61-cut-before', good[:-20], 5, 'ends before storage 0')
    bad('61-cut-in-the-pickles', good[:100], 5, 'ends inside the pickle')
    bad('61-only-magic', magic(), 5, 'ends inside the pickle')
    view = tup(text('v'), number(2), number(3))
    loads('legacy/62-view-beyond-root.pth', stream(dictionary(bad=tensor(storage(more=view), size=(3,)), good=tensor(storage(more=b'N'))),
                                                   ['0'], [(4, GOOD)]), {'bad': 'a view of storage 0 ends at byte 20', 'good': None})
    view = tup(text('v'), number(1), number(2))
    loads('legacy/62-tensor-beyond-view.pth', stream(dictionary(bad=tensor(storage(more=view), size=(3,)), good=tensor(storage(more=view), size=(2,))),
                                                     ['0'], [(4, GOOD)]), {'bad': 'which has 8', 'good': None})
    loads('legacy/62-view-malformed.pth', stream(dictionary(bad=tensor(storage(more=numbers((1,))))), [], []), {'bad': 'is a view'})
    loads('legacy/trailing.pth', good + b'more', {'a': None}, ['4 bytes follow the stream'])


def archives():
    value = dictionary(a=number(10) + b'Q', b=text('11') + b'Q', s=text('1') + b'Q')
    stores = {1: ('FloatStorage', 4, GOOD)}
    views = {10: (1, (2, 2), (2, 1), 0), 11: (1, (2,), (1,), 2)}
    loads('tar/good.pth', old_archive(value, stores, views), {'a': None, 'b': None, 's': None})
    wrong = member('storages', b'no pickle') + old_archive(value, stores, views)
    loads('tar/duplicate-member.pth', wrong, {'a': None, 'b': None, 's': None}, ["the tar has 2 members called 'storages'"])
    loads('tar/views.pth', old_archive(dictionary(a=number(10) + b'Q'), stores, {10: (2, (2,), (1,), 0)}, [(2, 1, 1, 2)]), {'a': None})
    loads('tar/beyond-storage.pth', old_archive(value, stores, {**views, 11: (1, (9,), (1,), 0)}),
          {'a': None, 'b': 'ends at byte 36', 's': None})
    loads('tar/missing-storage.pth', old_archive(value, stores, {**views, 11: (5, (9,), (1,), 0)}),
          {'a': None, 'b': 'is not in the file', 's': None})
    loads('tar/negative.pth', old_archive(value, stores, {**views, 11: (1, (2,), (1,), -1)}), {'a': None, 'b': 'negative', 's': None})
    refused('tar/view-beyond.pth', old_archive(value, stores, views, [(2, 1, 1, 4)]), 5, 'runs past the end of 1')
    refused('tar/view-of-nothing.pth', old_archive(value, stores, views, [(2, 9, 1, 1)]), 5, 'which does not exist')
    refused('tar/storage-too-long.pth', old_archive(value, {1: ('FloatStorage', 2 ** 62, GOOD)}, views), 5, 'runs past the end')
    refused('tar/storage-twice.pth', old_archive(value, stores, views, [(1, 1, 0, 1)]), 5, 'duplicate storage 1')
    refused('tar/huge-rank.pth', old_archive(value, stores, views, members={'tensors': pickle(number(1)) + pickle(
        tup(number(10), number(1), FLOAT)) + struct.pack('<ii', 2 ** 31 - 1, 0)}), 6, 'dimensions, above the limit')
    refused('tar/count-too-high.pth', old_archive(value, stores, views, members={'tensors': pickle(number(2 ** 40))}), 5, 'ends inside')
    refused('tar/no-storages.pth', member('pickle', pickle(value)) + bytes(1024), 4, "no member 'storages'")
    refused('tar/member-too-long.pth', member('sys_info', b'abc', size=10 ** 9) + bytes(1024), 5, 'a member of 1000000000 bytes')
    broken = bytearray(old_archive(value, stores, views))
    broken[3] ^= 1
    refused('tar/checksum.pth', bytes(broken), 5, 'is damaged')
    loads('tar/evil-name.pth', member('../../evil', b'x') + old_archive(value, stores, views), {'a': None, 'b': None, 's': None})


def foreign():
    refused('foreign/preview.pt', b'PYTORCH1' + bytes(100), 6, 'preview format')
    refused('foreign/flatbuffer.ptl', b'\x1c\0\0\0PTMF' + bytes(100), 6, 'flatbuffer')
    refused('foreign/site.pth', b'import os; os.getcwd()\n', 4, '')
    refused('foreign/text.pt', b'===============\n= t u t o r =\n', 4, '')
    refused('foreign/html.bin', b'<!DOCTYPE html><html>', 4, 'HTML')
    refused('foreign/lfs.bin', b'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n', 4, 'Git LFS')
    refused('foreign/png.pt', b'\x89PNG\r\n\x1a\n' + bytes(50), 4, 'PNG')


def composites():
    """Nothing wrong with these: what tensors carry with them is looked at by tests/unit/test_pytorch.c."""
    def rebuild(function, *args):
        return call(name('torch._utils', function), *args)

    def scheme(*parts):
        return tup(name('torch', parts[0]), *parts[1:])

    def quantized(quantizer):
        return rebuild('_rebuild_qtensor', storage(cls=name('torch', 'QInt8Storage'), numel=16), number(0), numbers((4, 4)),
                       numbers((4, 1)), quantizer, b'\x89', ORDERED)

    half = b'G' + struct.pack('>d', 0.5)
    channel = quantized(scheme('per_channel_affine', tensor(), tensor(size=(2,)), number(1)))
    loads('good/quantized.pth', checkpoint(dictionary(q=quantized(scheme('per_tensor_affine', half, number(3))), c=channel)),
          {'q': None, 'c': None, 'c.scales': None, 'c.zero_points': None})
    layout = call(name('torch.serialization', '_get_layout'), text('torch.sparse_coo'))
    payload = tup(tensor(size=(2, 2), stride=(2, 1)), tensor(size=(2,)), call(name('torch', 'Size'), numbers((5, 6))), b'\x88')
    loads('good/sparse.pth', checkpoint(dictionary(s=rebuild('_rebuild_sparse_tensor', layout, payload))),
          {'s.indices': None, 's.values': None})
    loads('good/tied.pth', checkpoint(dictionary(a=tensor(), b=tensor(), c=tensor(offset=1, size=(3,)), epoch=number(3))),
          {'a': None, 'b': None, 'c': None})
    bare_module = pairs((text('_parameters'), b'}'), (text('_buffers'), b'}'), (text('_modules'), b'}'))
    state = pairs((text('_parameters'), pairs((text('w'), tensor()), (text('none'), b'N'))),
                  (text('_buffers'), pairs((text('kept'), tensor()), (text('dropped'), tensor()))),
                  (text('_non_persistent_buffers_set'), name('__builtin__', 'set') + tup(b'](' + text('dropped') + b'e') + b'R'),
                  (text('_modules'), pairs((text('none'), b'N'), (text('sub'), name('m', 'Sub') + b')\x81' + bare_module + b'b'))),
                  (text('anchors'), tensor()), (text('width'), number(4)))
    loads('good/module.pth', checkpoint(name('m', 'Net') + b')\x81' + state + b'b'), {'w': None, 'kept': None})
    shared = pairs((text('w'), tensor())) + put(0)
    # What an object was made of, or was given as its state, can be of any kind.
    thing = name('m', 'Thing')
    for path, made in (('text-for-arguments', thing + text('x' * 400) + dictionary(t=tensor()) + b'\x92'),
                       ('list-for-keywords', thing + b')' + b'](' + tensor() + b'e' + b'\x92'),
                       ('text-for-keywords', thing + tup(tensor()) + text('x' * 400) + b'\x92')):
        loads('tensor/%s.pth' % path, checkpoint(dictionary(made=made, good=tensor())), {'good': None})
    odd = pairs((text('_parameters'), pairs((text('w'), tensor()))), (text('_buffers'), text('x' * 401)), (text('_modules'), b'}'),
                (text('_non_persistent_buffers_set'), number(5)))
    loads('tensor/text-for-buffers.pth', checkpoint(name('m', 'Net') + b')\x81' + odd + b'b'), {'w': None})
    loads('good/shared-module.pth', checkpoint(dictionary(model=shared, ema=get(0))), {'model.w': None, 'ema.w': None})


def programs():
    """What torch.export.save writes: plain records, and a list of them as JSON."""
    size = [{'as_int': n} for n in (2, 2)]
    meta = dict(dtype=7, sizes=size, strides=[{'as_int': n} for n in (2, 1)], storage_offset={'as_int': 0})
    weight = dict(path_name='weight_0', is_param=True, use_pickle=False, tensor_meta=meta)
    config = json.dumps({'config': {'linear.weight': weight}}).encode()

    def program(config=config, **more):
        return zipped(entry('p/archive_format', b'pt2'), entry('p/byteorder', b'little'), entry('p/data/weights/weight_0', GOOD),
                      entry('p/data/weights/m_weights_config.json', config, **more))

    loads('good/program.pt2', program(method=8), {'linear.weight': None})
    many = dict(weight, tensor_meta=dict(meta, sizes=[{'as_int': 1}] * 65, strides=[{'as_int': 1}] * 65))
    loads('tensor/program-rank.pt2', program(json.dumps({'config': {'bad': many, 'good': weight}}).encode()),
          {'bad': '65 dimensions are above the limit of 64 (limit rank)', 'good': None})
    refused('zip/program-list-damaged.pt2', program(method=8, raw=b'\xff' * 40), 5, 'the list of weights is damaged')
    damaged = entry('p/byteorder', b'little', method=8, raw=b'\xff' * 8)
    refused('zip/byteorder-damaged.pth', zipped(entry('p/data.pkl', pickle(dictionary(a=tensor()))), damaged,
                                                entry('p/data/0', GOOD), entry('p/version', b'3\n')), 5,
            "the record 'byteorder' is damaged")


def packages():
    def package(path, pickles, *more, **expected):
        made = [entry('p/.data/0.storage', GOOD), *(entry('p/' + name, raw) for name, raw in pickles.items()), *more,
                entry('p/.data/extern_modules', b''), entry('p/.data/version', b'6\n')]
        if 'code' in expected:
            refused('package/%s.pt' % path, zipped(*made), expected['code'], expected['message'])
        else:
            loads('package/%s.pt' % path, zipped(*made), **expected)

    def reduced(function, *args, more=()):
        return tup(text('reduce_package'), number(1), function, tup(*args), *more) + b'Q'

    unpackage, w = name('torch.jit._script', 'unpackage_script_module'), tensor(storage(key=0))
    script = pickle(name('__torch__', 'Net') + b')\x81' + dictionary(weight=tensor(storage(key='0.storage'))) + b'b')
    scripts = [entry('p/.data/ts_code/0/data.pkl', script), entry('p/.data/ts_code/0/constants.pkl', pickle(tup(tensor(storage(key='0.storage')))))]
    package('good', {'m/a.pkl': pickle(reduced(unpackage, text('0'))), 'm/b': pickle(dictionary(w=w))}, *scripts,
            tensors={'m.a.weight': None, 'm.b.w': None, 'ts_code.0.constants.0': None})
    package('no-number', {'m/a.pkl': pickle(dictionary(a=reduced(unpackage), b=reduced(unpackage, number(0)), w=w))}, *scripts,
            tensors={'w': None, 'ts_code.0.weight': None})
    package('number-is-a-path', {'m/a.pkl': pickle(dictionary(a=reduced(unpackage, text('../../m')), b=reduced(unpackage, text('0' * 100)), w=w))},
            tensors={'w': None})
    package('too-few', {'m/a.pkl': pickle(dictionary(a=tup(text('reduce_package')) + b'Q', w=w))}, tensors={'w': None})
    package('too-many', {'m/a.pkl': pickle(dictionary(a=reduced(unpackage, text('0'), more=(number(1),)), w=w))}, tensors={'w': None})
    package('in-itself', {'m/a.pkl': pickle(b']' + put(0) + reduced(name('torch.fx.graph_module', 'reduce_package_graph_module'), get(0)) + b'a' +
                                            b'0' + dictionary(a=get(0), w=w))}, tensors={'w': None})
    package('broken-script', {'m/a.pkl': pickle(dictionary(w=w))}, entry('p/.data/ts_code/0/data.pkl', b'\x80\2('), code=5,
            message='ends inside the pickle')
    package('no-storage', {'m/a.pkl': pickle(dictionary(w=w, v=tensor(storage(key=7))))}, tensors={'w': None, 'v': 'record .data/7.storage is not'})
    package('strays', {'m/a.pkl': pickle(dictionary(w=w))}, entry('q/m/a.pkl', b'x'), tensors={'w': None}, findings=['outside of its folder'])
    package('no-pickle', {}, tensors={}, findings=['not shown by any tensor'])


def listed(*items):
    return b'](' + b''.join(items) + b'e'


def containers():
    """Calls that get their items as arguments."""
    kinds = {kind: name('collections', kind) for kind in ('OrderedDict', 'Counter', 'defaultdict', 'deque')}
    ordered, unknown = kinds['OrderedDict'], name('my.kinds', 'Named')

    def items(first=None):
        return listed(listed(text('a'), first or tensor()), listed(text('b'), tensor()), listed(text('lr'), number(1)))

    both = {'a': None, 'b': None}
    loads('good/python2.pth', checkpoint(call(ordered, items()) + dictionary(note=number(1)) + b'b'), both)
    loads('good/python2-subclass.pth', checkpoint(call(unknown, items(call(ordered, items())))), {'a.a': None, 'a.b': None, 'b': None})
    loads('good/python2-strings.pth', checkpoint(b'}(U\1\xe9' + tensor() + b'U\1b' + tensor() + b'u'), {'é': None, 'b': None})
    loads('good/deque.pth', checkpoint(call(kinds['deque'], listed(tensor(), tensor()), number(2))), {'0': None, '1': None})
    loads('good/reconstructor.pth', checkpoint(call(name('copy_reg', '_reconstructor'), unknown, name('__builtin__', 'dict'),
                                                    dictionary(a=tensor(), b=tensor()))), both)
    loads('good/partial.pth', checkpoint(call(call(name('functools', 'partial'), unknown) + tup(
        unknown, tup(unknown, number(1), tensor()), dictionary(b=tensor()), b'N') + b'b')), {'%arg1': None, 'b': None})
    loads('good/called-object.pth', checkpoint(call(call(unknown, dictionary(a=tensor())), tensor())),
          {'%callable.%arg0.a': None, '%arg0': None})
    for i, (kind, args) in enumerate((('OrderedDict', [number(1)]), ('OrderedDict', [items(), items()]), ('OrderedDict', [listed(listed(tensor()))]),
                                     ('Counter', [items()]), ('defaultdict', [items()]), ('defaultdict', [b'N', tensor()]), ('deque', [tensor()]),
                                     ('deque', [listed(tensor()), b'N', b'N']))):
        value = dictionary(odd=call(kinds[kind], *args), good=tensor())
        loads('tensor/44-%s-%d.pth' % (kind, i), checkpoint(value), {'good': None})
    loads('tensor/44-items-in-new.pth', checkpoint(ordered + tup(items()) + b'\x81'), {'0.0.1': None, '0.1.1': None})
    loads('tensor/44-in-itself.pth', checkpoint(b']' + put(0) + call(ordered, get(0)) + put(1) + b'0' + listed(text('a'), get(1)) + b'a' +
                                                b'0' + dictionary(odd=get(1), good=tensor())), {'good': None})
    shared = listed(*(listed(number(i), b'N') for i in range(1000))) + put(0) + b'0'
    bomb = b'](' + b''.join(call(ordered + put(1) if i == 0 else get(1), get(0)) for i in range(1000)) + b'e'
    bare('45-a-list-of-many', shared + bomb + STOP)


def make():
    for part in machine, tensors, zips, streams, archives, foreign, composites, programs, packages, containers:
        part()
    return cases


def main():
    for path, (data, _) in make().items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_bytes(data)
    expected = {path: expectation for path, (_, expectation) in sorted(cases.items())}
    (FOLDER / 'expected.json').write_text(json.dumps(expected, indent=1) + '\n')


if __name__ == '__main__':
    main()
