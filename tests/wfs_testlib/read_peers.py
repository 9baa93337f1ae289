# SPDX-License-Identifier: MIT
"""
What torch and the safetensors package of this python read: python3 read_peers.py FOLDER prints for each file in it one line of JSON,
[name, {key: [dtype, shape, sha256]}] or [name, error]. A .pth is loaded as WFS_TORCH says: weights_only and mmap, if torch has them.
Run in a process of its own: torch is large.
"""
import hashlib
import json
import os
import pathlib
import sys
import warnings

import torch

SPELLED = {'float64': 'F64', 'float32': 'F32', 'float16': 'F16', 'bfloat16': 'BF16', 'int64': 'I64', 'int32': 'I32', 'int16': 'I16',
           'int8': 'I8', 'uint8': 'U8', 'bool': 'BOOL', 'complex128': 'C128', 'complex64': 'C64', 'complex32': 'C32', 'qint8': 'I8',
           'uint16': 'U16', 'uint32': 'U32', 'uint64': 'U64', 'float8_e4m3fn': 'F8_E4M3', 'float8_e5m2': 'F8_E5M2',
           'float8_e4m3fnuz': 'F8_E4M3FNUZ', 'float8_e5m2fnuz': 'F8_E5M2FNUZ', 'float8_e8m0fnu': 'F8_E8M0', 'float4_e2m1fn_x2': 'F4',
           'quint8': 'U8', 'qint32': 'I32', 'bits8': 'BITS8', 'bits16': 'BITS16', 'bits1x8': 'BITS1X8', 'bits2x4': 'BITS2X4',
           'bits4x2': 'BITS4X2', 'bcomplex32': 'BC32'}


def raw(tensor):
    """Row-major bytes, of dtypes that nothing can be done with too: out of the storage."""
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    tensor = tensor.resolve_conj().resolve_neg()
    size = tensor.element_size()
    storage = tensor.untyped_storage() if hasattr(tensor, 'untyped_storage') else tensor.storage().untyped()
    data = bytes(storage) if storage.nbytes() < 1 << 14 else b''
    if not data:
        return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b''
    places = [tensor.storage_offset()]
    for n, stride in zip(tensor.shape, tensor.stride()):
        places = [place + i * stride for place in places for i in range(n)]
    return b''.join(data[place * size:(place + 1) * size] for place in places)


def describe(tensor):
    dtype, shape = SPELLED[str(tensor.dtype)[6:]], list(tensor.shape)
    if dtype == 'F4':
        shape[-1] *= 2
    return [dtype, shape, hashlib.sha256(raw(tensor)).hexdigest()]


def walk(value, key, found, depth=0):
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type == 'cpu':
        found[key] = describe(value)
    elif isinstance(value, torch.Tensor) or depth > 40:
        pass
    elif isinstance(value, torch.nn.Module):
        walk(dict(value.state_dict()), key, found, depth + 1)
    elif isinstance(value, (dict, list, tuple)):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            walk(inner, '%s.%s' % (key, name) if depth else str(name), found, depth + 1)


def read(path):
    if path.suffix == '.safetensors':
        import safetensors.torch
        value = safetensors.torch.load_file(path)
    else:
        value = torch.load(path, map_location='cpu', **json.loads(os.environ.get('WFS_TORCH', '{}')))
    found = {}
    walk(value, '', found)
    return found


def main():
    warnings.simplefilter('ignore')
    for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        try:
            told = read(path)
        except Exception as problem:  # whatever it is that torch does not take
            told = '%s: %s' % (type(problem).__name__, str(problem)[:200])
        print(json.dumps([path.name, told]), flush=True)


if __name__ == '__main__':
    main()
