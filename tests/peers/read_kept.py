# SPDX-License-Identifier: MIT
"""
What torch and safetensors read: python3 read_kept.py FOLDER prints for each file of it one line of JSON, [name, {key: [dtype, shape,
sha256]}] or [name, error]. The sha256 is null for a tensor that was saved without its data. Storages count as tensors; keys are
spelled as docs/formats/pytorch.md says. Shares no code with weightfs.
"""
import hashlib
import json
import pathlib
import sys
import warnings

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from wfs_testlib import read_peers  # noqa: E402

PARTS = {torch.sparse_coo: ('_indices', '_values'), torch.sparse_csr: ('crow_indices', 'col_indices', 'values'),
         torch.sparse_csc: ('ccol_indices', 'row_indices', 'values'), torch.sparse_bsr: ('crow_indices', 'col_indices', 'values'),
         torch.sparse_bsc: ('ccol_indices', 'row_indices', 'values')}


def describe_storage(value):
    if isinstance(value, torch.storage.TypedStorage):
        plain = value.untyped() if hasattr(value, 'untyped') else value._storage
        return [read_peers.SPELLED[str(value.dtype)[6:]], [len(value)], hashlib.sha256(bytes(plain)).hexdigest()]
    return ['U8', [value.nbytes()], hashlib.sha256(bytes(value)).hexdigest()]


def walk(value, path, found, above=()):
    key = '.'.join(path)
    if any(value is one for one in above) or len(above) > 40:
        return
    if isinstance(value, (torch.storage.TypedStorage, torch.UntypedStorage)):
        found[key] = describe_storage(value)
    elif isinstance(value, torch.Tensor) and value.layout in PARTS:
        for name in PARTS[value.layout]:
            found['.'.join([*path, name.strip('_')])] = read_peers.describe(getattr(value, name)())
    elif isinstance(value, torch.Tensor) and value.is_meta:
        found[key] = [read_peers.SPELLED[str(value.dtype)[6:]], list(value.shape), None]
    elif isinstance(value, torch.Tensor):
        found[key] = read_peers.describe(value)
    elif isinstance(value, torch.nn.Module):
        walk(dict(value.state_dict()), path, found, (*above, value))
    elif isinstance(value, (dict, list, tuple)):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            walk(inner, [*path, str(name)], found, (*above, value))


def read(path):
    if path.suffix == '.safetensors':
        import safetensors
        return {key: [info['dtype'], info['shape'], hashlib.sha256(info['data']).hexdigest()]
                for key, info in safetensors.deserialize(path.read_bytes())}
    found = {}
    walk(torch.load(path, map_location='cpu'), [], found)
    return found


def main():
    warnings.simplefilter('ignore')
    for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        if path.suffix not in ('.pth', '.safetensors'):
            continue
        try:
            facts = read(path)
        except Exception as problem:  # whatever it is that the library does not take
            facts = '%s: %s' % (type(problem).__name__, str(problem)[:200])
        print(json.dumps([path.name, facts]), flush=True)


if __name__ == '__main__':
    main()
