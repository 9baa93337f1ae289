# SPDX-License-Identifier: MIT
"""`make KIND FILE` saves a checkpoint with storages as items; `show FILE` prints what torch finds in one. Run as a program: torch is slow."""
import sys
import warnings

import torch


def storage(tensor, untyped=False):
    """As every torch since 1.13 has it."""
    typed = tensor.storage() if not hasattr(tensor, '_typed_storage') else tensor._typed_storage()
    if not untyped:
        return typed
    return typed.untyped() if hasattr(typed, 'untyped') else typed._untyped()


def make(kind, path):
    whole = torch.arange(8, dtype=torch.float32)
    items = {'s': storage(whole, kind == 'untyped')}
    if kind == 'list':
        items = {'s': [storage(whole)]}
    if kind == 'two':
        items['t'] = storage(whole)
    if kind == 'view':
        items['v'] = whole[2:5]
    if kind == 'full':
        items['v'] = whole
    items['x'] = torch.ones(3)
    torch.save(items, path, _use_new_zipfile_serialization=kind != 'stream')


def show(name, item):
    if isinstance(item, (dict, list, tuple)):
        for key, inner in item.items() if isinstance(item, dict) else enumerate(item):
            show('%s.%s' % (name, key) if name else str(key), inner)
    elif isinstance(item, torch.Tensor):
        flat = item.contiguous().flatten()
        print(name, 'tensor', str(item.dtype)[6:], flat.numpy().tobytes().hex())
    elif item is not None:
        dtype = getattr(item, 'dtype', torch.uint8)
        print(name, 'storage', str(dtype)[6:], bytes(storage_bytes(item)).hex())


def storage_bytes(item):
    """The untyped one: a tensor over it, byte by byte."""
    for way in ('untyped', '_untyped'):
        item = getattr(item, way)() if hasattr(item, way) else item
    return torch.tensor([], dtype=torch.uint8).set_(item).tolist()


warnings.simplefilter('ignore')
if sys.argv[1] == 'make':
    make(sys.argv[2], sys.argv[3])
else:
    show('', torch.load(sys.argv[2]))
