# SPDX-License-Identifier: MIT
"""
Small files that ask for much more time or memory than their size: writes tests/data/slow.

Run it from tests: /usr/bin/python3 -m wfs_testlib.make_slow. Pickles of a megabyte are deflated to a few kilobytes, which readers of
checkpoints accept. `options` are those with which a file is slow.
"""
import json
import pathlib
import struct

from wfs_testlib import st
from wfs_testlib.pth import (FLOAT, ORDERED, PROTO, STOP, call, dictionary, entry, get, name, number, numbers, old_archive, pairs,
                             pickle, put, records, storage, stream, tensor, text, tup, zipped)

FOLDER = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'slow'
FOUR = struct.pack('<4f', 1, float('nan'), -2, float('inf'))
SIDE = 1 << 20
cases = {}
options = {}  # name of a case -> options of every verb and of a mount


def deflated(value, root='m', **storages):
    """A checkpoint whose pickle and large storages are compressed."""
    made = records(value, root, **storages)
    made[0] = entry(root + '/data.pkl', pickle(value), method=8)
    for i, (key, data) in enumerate(storages.items()):
        if len(data) > 1 << 16:
            made[2 + i] = entry('%s/data/%s' % (root, key[1:]), data, method=8)
    return zipped(*made)


def case(path, data, *more):
    assert path not in cases and len(data) < 1 << 20, path
    cases[path] = data
    if more:
        options[path.split('.')[0]] = list(more)


def put_far(index):
    return b'r' + struct.pack('<I', index)


def get_far(index):
    return b'j' + struct.pack('<I', index)


# ---- tensors that show more than there is ----

def weights(sizes, strides):
    """An exported program: the list of weights has strides, too."""
    meta = {'dtype': 7, 'sizes': [{'as_int': n} for n in sizes], 'strides': [{'as_int': n} for n in strides],
            'storage_offset': {'as_int': 0}}
    config = {'config': {'w': {'path_name': 'weight_0', 'is_param': True, 'use_pickle': False, 'tensor_meta': meta}}}
    return zipped(entry('p/data/weights/model_weights_config.json', json.dumps(config).encode()),
                  entry('p/data/weights/weight_0', FOUR), entry('p/archive_format', b'pt2'), entry('p/byteorder', b'little'),
                  entry('p/models/model.json', b'{}'), entry('p/archive_version', b'0'), entry('p/version', b'3\n'))


def repeated():
    """2^40 elements of a few bytes."""
    wide, flat = (SIDE, SIDE), (0, 0)
    of = storage(numel=4)
    case('repeated-zip.pth', zipped(*records(dictionary(w=tensor(of, 0, wide, flat), x=tensor(of)), r0=FOUR)))
    case('repeated-legacy.pt', stream(dictionary(w=tensor(of, 0, wide, flat)), ['0'], [(4, FOUR)]))
    case('repeated-tar.pt', old_archive(ORDERED + b'(' + text('w') + number(9) + b'Qu', {0: ('FloatStorage', 4, FOUR)},
                                        {9: (0, wide, flat, 0)}))
    case('repeated-program.pt2', weights(wide, flat))
    case('repeated-rows.pth', zipped(*records(dictionary(w=tensor(of, 0, (SIDE, SIDE, 4), (0, 0, 1))), r0=FOUR)))
    case('repeated-columns.pth', zipped(*records(dictionary(w=tensor(of, 0, (4, SIDE, SIDE), (1, 0, 0))), r0=FOUR)))
    complex_ = storage(cls=name('torch', 'ComplexFloatStorage'), numel=2)
    case('repeated-complex.pth', zipped(*records(dictionary(w=tensor(complex_, 0, wide, flat)), r0=FOUR)))
    lines = bytes(range(256)) * 256
    of = storage(cls=name('torch', 'ByteStorage'), numel=len(lines))
    case('windows.pth', deflated(dictionary(w=tensor(of, 0, (1 << 15, 1 << 15), (1, 1))), r0=lines))
    overlapping()
    of = storage(numel=4)
    case('repeated-many.pth', deflated(dictionary(**{'w%d' % i: tensor(of, 0, (SIDE, SIDE), (0, 0)) for i in range(2000)}), r0=FOUR))


def overlapping():
    """8,000 views of one storage: equal ones, and others that overlap."""
    n = 1 << 19

    def views(path, kind, n_item, make):
        of = storage(cls=name('torch', kind), numel=n // n_item) + put_far(100)
        tensors = {'w%d' % i: tensor(of if i == 0 else get_far(100), *make(i)) for i in range(8000)}
        case(path, deflated(dictionary(**tensors), r0=bytes(n)))

    views('overlapping-same.pth', 'FloatStorage', 4, lambda i: (0, (n // 4,), (1,)))
    views('overlapping-shifted.pth', 'FloatStorage', 4, lambda i: (i, (n // 4 - i,), (1,)))
    views('overlapping-sparse.pth', 'ByteStorage', 1, lambda i: (i % 2048, (254 - i // 2048, 2), (2049, 1)))
    views('overlapping-windows.pth', 'ByteStorage', 1, lambda i: (0, (100 + i, n - 100 - i), (1, 1)))


# ---- values that are shared ----

def doubled(first, n, kind=b'\x86'):
    """A value that holds itself 2^n times."""
    out = first + put_far(0)
    for i in range(n):
        out += get_far(i) + get_far(i) + kind + put_far(i + 1)
    return out


def shared():
    case('doubled.pkl', PROTO + doubled(b']', 40) + STOP)
    case('doubled-in-dict.pth', deflated(dictionary(a=doubled(b']', 40), w=tensor()), r0=FOUR))
    case('doubled-text.pkl', PROTO + doubled(text('x' * 1000), 40) + STOP)
    case('doubled-tensor.pth', deflated(doubled(tensor(), 40), r0=FOUR))
    case('doubled-lists.pth', deflated(dictionary(a=b'N', w=tensor(), z=doubled(b'}', 30)), r0=FOUR))
    big = b'](' + number(7) * 20000 + b'e' + put_far(0)
    each = b''.join(text('k%d' % i) + tup(get_far(0), number(i)) for i in range(10000))
    case('one-list-in-many.pth', deflated(b'}(' + text('first') + big + each + text('w') + tensor() + b'u', r0=FOUR))
    case('one-list-in-many-metadata.pth', deflated(b'}(' + text('first') + big + each + text('w') + tensor() + b'u', r0=FOUR),
         'values=metadata')
    long_ = text('x' * (1 << 20)) + put_far(0)
    case('one-text-in-many.pth', deflated(b'}(' + text('first') + long_
                                          + b''.join(text('k%d' % i) + tup(get_far(0), number(i)) for i in range(4000))
                                          + text('w') + tensor() + b'u', r0=FOUR))
    encode = name('_codecs', 'encode') + put_far(1) + b'0' + text('latin1') + put_far(2) + b'0'
    bytes_ = b''.join(text('k%d' % i) + call(get_far(1), get_far(0), get_far(2)) for i in range(4000))
    case('one-text-encoded.pth', deflated(encode + long_ + b'0}(' + bytes_ + text('w') + tensor() + b'u', r0=FOUR))
    keys = b''.join(call(get_far(1), get_far(0), get_far(2)) + number(i) for i in range(4000))
    case('one-text-encoded-keys.pth', deflated(encode + long_ + b'0}(' + keys + text('w') + tensor() + b'u', r0=FOUR))
    arrays = array_of_text(1000)
    case('one-text-in-arrays.pth', deflated(encode + long_ + b'0' + arrays, r0=FOUR))
    below = b''.join(text('k%d' % i) + tensor() for i in range(4000))
    case('long-name-of-many.pth', deflated(pairs((text('x' * (1 << 20)), b'}(' + below + b'u')), r0=FOUR))
    nested = tensor()
    for i in range(250):
        nested = pairs((text('n' * 4000), nested), (text('b'), tensor()))
    case('long-names-nested.pth', deflated(nested, r0=FOUR))
    state = dictionary(**{'s%d' % i: tensor() for i in range(2000)}) + put_far(5) + b'0'
    new = name('m', 'C') + put_far(6) + b'0' + b')' + put_far(7) + b'0'
    objects = b''.join(text('o%d' % i) + get_far(6) + get_far(7) + b'\x81' + get_far(5) + b'b' for i in range(4000))
    case('one-state-of-many.pth', deflated(state + new + b'}(' + objects + b'u', r0=FOUR))
    states = get_far(6) + get_far(7) + b'\x81' + (get_far(5) + b'b') * 50000
    case('many-states-of-one.pth', deflated(state + new + dictionary(o=states), r0=FOUR))


def array_of_text(n):
    """Arrays of numpy whose bytes are one text, each time encoded again."""
    made = name('numpy.core.multiarray', '_reconstruct') + put_far(10) + b'0' + name('numpy', 'ndarray') + put_far(11) + b'0'
    made += call(name('numpy', 'dtype'), text('u1'), number(0), number(1)) + put_far(12) + b'0}('
    for i in range(n):
        made += text('a%d' % i) + call(get_far(10), get_far(11), tup(number(0)), text('b'))
        made += tup(number(1), tup(number(1 << 20)), get_far(12), b'\x89', call(get_far(1), get_far(0), get_far(2))) + b'b'
    return made + b'u'


def shared_by_modules():
    """Large dicts and sets that are looked into for every object that has them."""
    def kept(value, index):
        return value + put_far(index) + b'0'

    def many(n):
        return dictionary(**{'s%d' % i: number(i) for i in range(n)})

    start = kept(ORDERED, 1) + kept(name('m', 'C'), 2)
    of = {'_parameters': get_far(1), '_modules': get_far(1)}

    def module_of(made, objects):
        """A module with such modules in it."""
        one = dictionary(**{**of, '_modules': ORDERED + b'(' + b''.join(objects) + b'u'})
        return start + made + get_far(2) + b')\x81' + one + b'b'

    n = 15000
    state = kept(dictionary(_parameters=ORDERED + b'(' + text('w') + tensor() + b'u', _modules=get_far(1))[:-1] + many(n)[2:], 3)
    case('one-state-of-modules.pth', deflated(module_of(state, (text('o%d' % i) + get_far(2) + b')\x81' + get_far(3) + b'b'
                                                                for i in range(n))), r0=FOUR))
    n = 30000
    state = kept(call(name('builtins', 'set'), b'](' + b''.join(text('b%d' % i) for i in range(n)) + b'e'), 3)
    state += kept(ORDERED + b'(' + text('w') + tensor() + b'u', 4)
    each = dictionary(**of, _buffers=get_far(4), _non_persistent_buffers_set=get_far(3)) + b'b'
    case('one-set-of-modules.pth', deflated(module_of(state, (text('o%d' % i) + get_far(2) + b')\x81' + each for i in range(n))), r0=FOUR))
    n = 40000
    made = kept(many(n), 3) + kept(storage(), 4) + kept(name('torch._utils', '_rebuild_tensor_v2'), 5) + start
    args = get_far(4), number(0), numbers((4,)), numbers((1,)), b'\x89', get_far(1), get_far(3)
    case('one-dict-of-tensors.pth', deflated(made + b'}(' + b''.join(text('o%d' % i) + call(get_far(5), *args) for i in range(n)) + b'u',
                                             r0=FOUR))


# ---- keys that are equal, or look so ----

def keys():
    nan = b'G' + struct.pack('>d', float('nan'))
    case('nan-keys.pth', deflated(dictionary(d=b'}(' + (nan + b'N') * 100000 + b'u', w=tensor()), r0=FOUR))
    globals_ = b''.join(name('m%d' % i, 'f') + b'N' for i in range(60000))
    case('global-keys.pth', deflated(dictionary(d=b'}(' + globals_ + b'u', w=tensor()), r0=FOUR))
    case('nan-keys-of-tensors.pth', deflated(b'}(' + b''.join(nan + tensor() for _ in range(8000)) + b'u', r0=FOUR))
    tuples = b''.join(b']' + b'\x85' + b'N' for i in range(60000))
    case('tuple-keys.pth', deflated(dictionary(d=b'}(' + tuples + b'u', w=tensor()), r0=FOUR))
    long_ = text('x' * (1 << 20)) + put_far(0) + b'0'
    case('one-text-as-key.pth', deflated(long_ + dictionary(d=b'}(' + (get_far(0) + b'N') * 100000 + b'u', w=tensor()), r0=FOUR))
    pairs_ = b''.join(get_far(0) + number(i) + b'\x86N' for i in range(60000))
    case('one-text-in-keys.pth', deflated(long_ + dictionary(d=b'}(' + pairs_ + b'u', w=tensor()), r0=FOUR))
    names = [text('b%d' % i) for i in range(10000)]
    buffers = b'}(' + b''.join(n + tensor() for n in names) + b'u'
    dropped = name('builtins', 'set') + tup(b'](' + b''.join(text('d%d' % i) for i in range(40000)) + b'e') + b'R'
    module = name('m', 'M') + b')\x81' + dictionary(_parameters=ORDERED, _modules=ORDERED, _buffers=buffers,
                                                    _non_persistent_buffers_set=dropped) + b'b'
    case('dropped-buffers.pth', deflated(module, r0=FOUR))


# ---- keys that rules make slow ----

def rules():
    one = {'x' * 1000000 + '.w': ('F32', [4], FOUR)}
    case('long-key.safetensors', st.canonical(one), 'remap=x=>y')
    one_in_many = tensor() + put_far(0) + b'0}('
    case('collisions.pth', deflated(one_in_many + b''.join(text('a%d.w' % i) + get_far(0) for i in range(20000)) + b'u', r0=FOUR),
         'remap=a[0-9]+=>a', 'on_collision=suffix')
    case('lists.pth', deflated(one_in_many + b''.join(text('a.%d' % (3 * i)) + get_far(0) for i in range(20000)) + b'u', r0=FOUR),
         'contiguous=on')
    case('words.safetensors', st.canonical({'a' * 30 + 'b' * i: ('U8', [], b'x') for i in range(1, 60)}), 'include=(a|aa)+$')
    long_ = {'.'.join('x' for _ in range(4000)) + '.%d' % i: ('U8', [], b'x') for i in range(60)}
    case('deep-keys.safetensors', st.canonical(long_))


def main():
    repeated()
    shared()
    shared_by_modules()
    keys()
    rules()
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for path, data in cases.items():
        (FOLDER / path).write_bytes(data)
    (FOLDER / 'options.json').write_text(json.dumps(options, indent=1, sort_keys=True) + '\n')


if __name__ == '__main__':
    main()
