# SPDX-License-Identifier: MIT
"""What PyTorch reads from its own files, and where a listing differs from that on purpose."""
import base64
import json

from wfs_testlib import shared

_DTYPES = {'torch.bcomplex32': 'BC32', 'torch.bits8': 'BITS8', 'torch.bits16': 'BITS16', 'torch.bits1x8': 'BITS1X8',
           'torch.bits2x4': 'BITS2X4', 'torch.bits4x2': 'BITS4X2', 'torch.quint4x2': 'QU4X2', 'torch.quint8': 'U8',
           '|b1': 'BOOL', '<c16': 'C128', '<f2': 'F16', '<f4': 'F32', '<f8': 'F64', '<i4': 'I32', '>i4': 'I32', '<i8': 'I64',
           '<u4': 'U32', '<u8': 'U64'}

# Tensors that torch's own walk does not come to: parts of composites, attributes of objects, data that torch refuses.
EXTRA = {
    'dtensor.pth': ['shard._spec.mesh._rank_map', 'replicate._spec.mesh._rank_map'],
    'legacy-quantized.pth': ['channel.scales', 'channel.zero_points'],
    'quantized.pth': ['channel.scales', 'channel.zero_points'],
    'quantized-quint4x2.pth': ['q4.scales', 'q4.zero_points'],
    'meta.pth': ['m', 'm2'],
    'module.pth': ['anchors', 'dropped'],
    'module-legacy.pth': ['anchors', 'dropped'],
    'nested.pth': ['nested.sizes', 'nested.strides', 'nested.offsets'],
    'objects.pth': ['slots.b', 'generator.%state.2'],
    'module-inside.pth': ['net.0.weight', 'net.0.bias', 'net.2.weight', 'net.2.bias', 'net.2.running_mean',
                          'net.2.running_var', 'net.2.num_batches_tracked'],
    'whole-module.pth': ['0.weight', '0.bias', '2.weight', '2.bias', '2.running_mean', '2.running_var', '2.num_batches_tracked'],
    'object-nparray.pth': ['thing'],
    'burn/odd-keys.pth': ['dup.k~2'],
    'burn/protocol0.pth': ['w', 'n.b'],
    'burn/quantized.pth': [],
    'sparse-burn': ['s.indices', 's.values'],
    'zip-long-storage.pth': ['w', 'x'],
    'zip-missing-storage.pth': ['w', 'x'],
    'zip-no-root.pth': ['w', 'x'],
    'zip-short-storage.pth': ['w', 'x'],
}

# A list in itself: torch's walk goes round until it has enough; the optimizer's state has tensors as keys.
ENDLESS = {'cycle.pth'}
WALKED_FURTHER = {'optimizer-object.pth'}
# torch keeps the last of two keys that are spelled alike, we show both; the other is no tensor but its parts.
NOT_THE_SAME = {('burn/odd-keys.pth', 'dup.k'), ('burn/sparse.pth', 's')}


# What no reader of ours takes: damaged, foreign, or with a key that no file name can be.
UNREAD = {'broken.pt', 'flatbuffer.ptl', 'legacy-truncated.pth', 'nul-key.pth', 'prefix.pth', 'truncated.pth'}

# Objects with tensors in them are shown by their parts.
OPENED = {('dtensor.pth', 'shard.device_mesh'), ('dtensor.pth', 'replicate.device_mesh'), ('objects.pth', 'generator'),
          ('objects.pth', 'slots')}


def dtype(spelled):
    if spelled.startswith('numpy:'):
        return _DTYPES.get(spelled[6:], 'OPAQUE')
    return _DTYPES.get(spelled, spelled)


def _load(name):
    return json.loads((shared.FOLDER / name).read_text()) if shared.IS_THERE else {}


def files():
    """[(name, path, entry)] of all files that torch reads, or that are to be read like one that it does."""
    result = []
    entries = _load('golden/torch/expected.json').get('files', {})
    for name, entry in sorted(entries.items()):
        if entry.get('kind') != 'directory':
            entry = entries.get(entry.get('same_content_as'), entry)
            result.append((name, shared.FOLDER / 'golden/torch' / name, entry))
    for name, entry in sorted(_load('golden/burn/pth/torch-reads.json').items()):
        result.append(('burn/' + name, shared.FOLDER / 'golden/burn/pth' / name, entry))
    for name, entry in sorted(_load('corpus/expected.json').items()):
        if name.endswith(('.pt', '.pth')):
            result.append((name, shared.FOLDER / 'corpus' / name, entry))
    return result


def extra(name):
    plain = name.rsplit('/', 1)[-1]
    if name == 'burn/sparse.pth':
        return EXTRA['sparse-burn']
    return EXTRA.get(name, EXTRA.get(plain, []) if not name.startswith('burn/') or 'burn/' + plain not in EXTRA else [])


# ---- values ----

def _python(value):
    """The object that a notation stands for, as far as it is plain; otherwise the notation."""
    if isinstance(value, dict) and len(value) == 1:
        (kind, inner), = value.items()
        if kind == '$bytes':
            return base64.b64decode(inner)
        if kind == '$bytearray':
            return bytearray(base64.b64decode(inner))
        if kind == '$float':
            return float(inner)
        if kind in ('$set', '$frozenset'):
            return (set if kind == '$set' else frozenset)(inner)
        if kind == '$complex':
            return complex(*inner)
    return value


def is_shown(value, text):
    """Does a JSON value show what Python prints as this text (cut at 80 characters)?"""
    plain = _python(value)
    if not isinstance(plain, dict):
        return repr(plain)[:80] == text or (plain == [] and text in ('()', '[]'))
    if '$python' not in plain:
        return plain == {} and text == '{}'
    name, args = plain['$python'], plain.get('args', [])
    if name.startswith('numpy.') and 'value' in plain:
        return text == 'np.%s(%r)' % (name[6:], plain['value']) or text == 'np.%r' % plain['value'] + '_'
    if name == 'torch.Size':
        return text == 'torch.Size(%r)' % args[0]
    if name == 'torch.device':
        return text == "device(type=%r%s)" % (args[0], ', index=%d' % args[1] if len(args) > 1 else '')
    if name.startswith('torch.') and len(plain) == 1:
        return text in (name, "<class '%s'>" % name) or text.startswith('<function ' + name.rsplit('.', 1)[1])
    # Shown, but what it prints only its class knows.
    return True


def find(values, key):
    """The JSON value of a dotted key in {name: value}; KeyError."""
    for name in sorted(values, key=len, reverse=True):
        if key == name:
            return values[name]
        if key.startswith(name + '.'):
            try:
                return _inside(values[name], key[len(name) + 1:])
            except KeyError:
                continue
    raise KeyError(key)


def _inside(value, key):
    if isinstance(value, list):
        index, _, rest = key.partition('.')
        if not index.isdigit() or int(index) >= len(value):
            raise KeyError(key)
        return _inside(value[int(index)], rest) if rest else value[int(index)]
    if not isinstance(value, dict):
        raise KeyError(key)
    if '$python' in value:
        for part in ('items', 'state', *range(len(value.get('args', [])))):
            inner = value['args'][part] if isinstance(part, int) else value.get(part)
            try:
                return _inside(inner, key)
            except KeyError:
                continue
        raise KeyError(key)
    return find(value, key)
