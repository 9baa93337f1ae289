# SPDX-License-Identifier: MIT
"""PyTorch files out of single opcodes and header fields: an assembler for pickles, and a zip writer that can lie."""
import struct
import zlib

PROTO = b'\x80\x02'
STOP = b'.'
MAGIC = 0x1950a86a20f9469cfc6c


# ---- pickles ----

def text(value):
    raw = value if isinstance(value, bytes) else value.encode('utf-8', 'surrogatepass')
    return b'X' + struct.pack('<I', len(raw)) + raw


def number(value):
    if 0 <= value < 256:
        return b'K' + bytes([value])
    if -2 ** 31 <= value < 2 ** 31:
        return b'J' + struct.pack('<i', value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, 'little', signed=True)
    return b'\x8a' + bytes([len(raw)]) + raw


def name(module, attribute):
    return b'c%s\n%s\n' % (module.encode(), attribute.encode())


def put(index):
    return b'q' + bytes([index]) if index < 256 else b'r' + struct.pack('<I', index)


def get(index):
    return b'h' + bytes([index]) if index < 256 else b'j' + struct.pack('<I', index)


def tup(*items):
    return b'(' + b''.join(items) + b't'


def numbers(values):
    return tup(*map(number, values))


def call(callable_, *args):
    return callable_ + tup(*args) + b'R'


def dictionary(**items):
    return pairs(*((text(key), value) for key, value in items.items()))


def pairs(*items):
    return b'}(' + b''.join(key + value for key, value in items) + b'u'


ORDERED = name('collections', 'OrderedDict') + b')R'
FLOAT = name('torch', 'FloatStorage')


def module(parameters=b'', buffers=b'', modules=b'', unsaved=(), cls=('net', 'Net'), made=None, **attributes):
    """A module of torch.nn; the first three are pairs of keys and values. made: the function that makes it of its attributes."""
    def ordered(content):
        return ORDERED + (b'(' + content + b'u' if content else b'')

    listed = b'](' + b''.join(map(text, unsaved)) + b'e'
    state = dictionary(training=b'\x89', _parameters=ordered(parameters), _buffers=ordered(buffers),
                       _non_persistent_buffers_set=call(name('builtins', 'set'), listed), _modules=ordered(modules), **attributes)
    return name(*cls) + b')\x81' + state + b'b' if made is None else call(name(*made), state, b'N')


def storage(key='0', cls=FLOAT, numel=4, location='cpu', more=b''):
    key = number(key) if isinstance(key, int) else text(key)
    numel = number(numel) if isinstance(numel, int) else numel
    return tup(text('storage'), cls, key, text(location), numel, more) + b'Q'


def tensor(of=None, offset=0, size=(4,), stride=(1,), more=b'\x89' + ORDERED):
    offset = number(offset) if isinstance(offset, int) else offset
    size = numbers(size) if isinstance(size, tuple) else size
    stride = numbers(stride) if isinstance(stride, tuple) else stride
    return call(name('torch._utils', '_rebuild_tensor_v2'), storage() if of is None else of, offset, size, stride, more)


def pickle(value):
    return PROTO + value + STOP


# ---- zips ----

def entry(path, data=b'', method=0, flags=0, crc=None, raw=None, n_packed=None, n_bytes=None, local_path=None,
          local_method=None, signature=b'PK\3\4', header=None, extra=b'', disk=0, local=None):
    """One entry: what is stored, and what the two headers say about it. None: the truth."""
    if raw is None:
        raw = data if method != 8 else zlib.compress(data, 9)[2:-4]
    return dict(path=path.encode() if isinstance(path, str) else path, raw=raw, method=method, flags=flags,
                crc=zlib.crc32(data) if crc is None else crc, n_packed=len(raw) if n_packed is None else n_packed,
                n_bytes=len(data) if n_bytes is None else n_bytes,
                local_path=None if local_path is None else local_path.encode(),
                local_method=local_method, signature=signature, header=header, extra=extra, disk=disk, local=local)


def zipped(*entries, end=None, comment=b'', align=64, prefix=b'', zip64=None):
    """An archive; `end` replaces fields of the end record: n, n_here, size, offset, disk."""
    out, places = bytearray(prefix), []
    for e in entries:
        path = e['path'] if e['local_path'] is None else e['local_path']
        if e['header'] is not None:
            places.append(e['header'])
            continue
        places.append(len(out))
        pad = -(len(out) + 30 + len(path) + 4) % align
        method = e['method'] if e['local_method'] is None else e['local_method']
        sizes = (e['n_packed'], e['n_bytes']) if e['local'] is None else e['local']
        out += e['signature'] + struct.pack('<HHHHHIIIHH', 0, e['flags'], method, 0, 0x21, e['crc'],
                                            min(sizes[0], 0xffffffff), min(sizes[1], 0xffffffff), len(path), 4 + pad)
        out += path + b'FB' + struct.pack('<H', pad) + b'Z' * pad + e['raw']
    start = len(out)
    for e, place in zip(entries, places):
        extra, fields = e['extra'], [e['n_packed'], e['n_bytes'], place]
        if not extra and max(fields) >= 0xffffffff:
            large = [x for x in (fields[1], fields[0], fields[2]) if x >= 0xffffffff]
            extra = struct.pack('<HH%dQ' % len(large), 1, 8 * len(large), *large)
        fields = [min(x, 0xffffffff) for x in fields]
        out += b'PK\1\2' + struct.pack('<HHHHHHIIIHHHHHII', 0, 0, e['flags'], e['method'], 0, 0x21, e['crc'], fields[0],
                                       fields[1], len(e['path']), len(extra), 0, e['disk'], 0, 0, fields[2])
        out += e['path'] + extra
    size = len(out) - start
    f = dict(n=len(entries), n_here=None, size=size, offset=start, disk=0)
    f.update(end or {})
    if zip64 is not None:
        z = dict(n=len(entries), size=size, offset=start, at=len(out), disks=1)
        z.update(zip64)
        out += b'PK\6\6' + struct.pack('<QHHIIQQQQ', 44, 0x31e, 45, 0, 0, z['n'], z['n'], z['size'], z['offset'])
        out += b'PK\6\7' + struct.pack('<IQI', 0, z['at'], z['disks'])
    n = min(f['n'], 0xffff)
    out += b'PK\5\6' + struct.pack('<HHHHIIH', f['disk'], f['disk'], n if f['n_here'] is None else f['n_here'], n,
                                   min(f['size'], 0xffffffff), min(f['offset'], 0xffffffff), len(comment)) + comment
    return bytes(out)


def records(value, root='m', **storages):
    """Entries of an ordinary checkpoint; storages by key (r0=bytes is data/0)."""
    made = [entry(root + '/data.pkl', pickle(value)), entry(root + '/byteorder', b'little')]
    made += [entry('%s/data/%s' % (root, key[1:]), data) for key, data in (storages or {'r0': bytes(range(16))}).items()]
    return made + [entry(root + '/version', b'3\n')]


def checkpoint(value, **storages):
    return zipped(*records(value, **storages), zip64={} if len(storages) > 60000 else None)


# ---- streams ----

def magic():
    raw = MAGIC.to_bytes(10, 'little')
    return PROTO + b'\x8a\x0a' + raw + STOP


def system():
    return pickle(dictionary(protocol_version=number(1001), little_endian=b'\x88'))


def stream(value, keys, data, version=1001):
    """data: [(number of elements, bytes)] in the order of keys."""
    listed = b'](' + b''.join(map(text, keys)) + b'e'
    body = b''.join(struct.pack('<q', n) + raw for n, raw in data)
    return magic() + pickle(number(version)) + system() + pickle(value) + pickle(listed) + body


# ---- archives of old ----

def member(path, data, size=None):
    size = len(data) if size is None else size
    head = bytearray(512)
    head[0:len(path)] = path.encode()
    head[100:108], head[108:116], head[116:124] = b'0000644\0', b'0000000\0', b'0000000\0'
    head[124:136], head[136:148], head[156:157] = b'%011o\0' % size, b'%011o\0' % 0, b'0'
    head[257:265], head[148:156] = b'ustar\x0000', b' ' * 8
    head[148:156] = b'%06o\0 ' % sum(head)
    return bytes(head) + data + bytes(-len(data) % 512)


def old_archive(value, storages, tensors, views=(), members=None):
    """storages: {key: (class, number, bytes)}; tensors: {key: (storage key, sizes, strides, offset)}."""
    s = pickle(number(len(storages)))
    for key, (cls, n, raw) in storages.items():
        s += pickle(tup(number(key), text('cpu'), name('torch', cls))) + struct.pack('<q', n) + raw
    s += pickle(b'](' + b''.join(numbers(view) for view in views) + b'e')
    t = pickle(number(len(tensors)))
    for key, (of, sizes, strides, offset) in tensors.items():
        t += pickle(tup(number(key), number(of), name('torch', 'FloatTensor'))) + struct.pack('<ii', len(sizes), 0)
        t += struct.pack('<%dq' % (2 * len(sizes) + 1), *sizes, *strides, offset)
    made = {'sys_info': system(), 'pickle': pickle(value), 'tensors': t, 'storages': s}
    made.update(members or {})
    return b''.join(member(path, data) for path, data in made.items()) + bytes(1024)
