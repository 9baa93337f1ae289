# SPDX-License-Identifier: MIT
"""
Distributed checkpoints and the torch of this python (2.4 or later):

    read_dcp_peers.py write FOLDER      saves checkpoints of real models and optimizers: NAME.pth
    read_dcp_peers.py compare FOLDER    for each NAME.pth, loads the directory NAME and compares: prints {NAME: what is wrong, or null}
    read_dcp_peers.py golden FOLDER SRC for each {NAME: directory} in names.json, compares NAME.pth and NAME.safetensors with what
                                        dcp_to_torch_save makes of the directory; prints the same

Only for files that tests wrote, and directories of the golden data that are known to run nothing.
"""
import collections
import io
import json
import pathlib
import sys
import tempfile
import warnings
from collections.abc import Mapping

import torch
import torch.distributed.checkpoint as checkpoints
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from read_peers import describe

warnings.simplefilter('ignore')


def write(folder):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.LSTM(3, 2))
    optimizer = torch.optim.AdamW(model[:2].parameters())
    model[:2](torch.randn(5, 4)).sum().backward()
    optimizer.step()
    shared = torch.randn(6, 4)
    torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'step': 7, 'rng': torch.get_rng_state(),
                'ema': collections.OrderedDict(weight=shared.t(), tied=shared, rows=shared[2:4], conj=torch.randn(2, dtype=torch.complex64).conj()),
                'types': {str(dtype): torch.zeros(2, 3).to(dtype) for dtype in (torch.float16, torch.bfloat16, torch.int8, torch.bool, torch.float8_e4m3fn,
                                                                                 torch.uint16, torch.uint64, torch.complex128)},
                'empty': torch.zeros(0, 3), 'scalar': torch.tensor(2.5), 'pair': (torch.ones(2), 'x'), 'list': [torch.ones(1), {'k': 1}, [2, 3]]},
               folder / 'model.pth')


def flat(value):
    """What flattening leaves: keys are text, and empty dicts vanish."""
    if isinstance(value, Mapping):
        return {str(key): inner for key, inner in ((key, flat(inner)) for key, inner in value.items()) if not (isinstance(inner, dict) and not inner)}
    if isinstance(value, list) and has_dict(value):
        return [flat(inner) for inner in value]
    return value


def has_dict(items):
    return any(isinstance(item, (Mapping, torch.Tensor)) or isinstance(item, list) and has_dict(item) for item in items)


def holes(value):
    """Is there an empty dict in a list?"""
    if isinstance(value, Mapping):
        return any(map(holes, value.values()))
    return isinstance(value, list) and (any(isinstance(inner, Mapping) and not flat(inner) for inner in value) or any(map(holes, value)))


def difference(found, wanted, where=''):
    """The first thing that differs, as text; None: nothing."""
    if isinstance(wanted, torch.Tensor):
        is_same = isinstance(found, torch.Tensor) and describe(found) == describe(wanted)
        return None if is_same else '%s: another tensor' % where
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping) or set(found) != set(wanted):
            return '%s: other keys' % where
        pairs = [(str(key), found[key], wanted[key]) for key in wanted]
    elif isinstance(wanted, (list, tuple)):
        if type(found) is not type(wanted) or len(found) != len(wanted):
            return '%s: another %s' % (where, type(wanted).__name__)
        pairs = [(str(i), *pair) for i, pair in enumerate(zip(found, wanted))]
    elif hasattr(wanted, 'tobytes'):  # NumPy
        return difference((str(found.dtype), found.shape, found.tobytes()), (str(wanted.dtype), wanted.shape, wanted.tobytes()), where)
    elif isinstance(wanted, io.BytesIO):
        return difference(found.getvalue(), wanted.getvalue(), where)
    elif hasattr(wanted, '__dict__') and not callable(wanted):
        return '%s: another class' % where if type(found) is not type(wanted) else difference(vars(found), vars(wanted), where)
    else:
        is_same = type(found) is type(wanted) and bool(found == wanted or found != found)
        return None if is_same else '%s: %.60r, expected %.60r' % (where, found, wanted)
    return next((told for told in (difference(*pair, '%s.%s' % (where, key)) for key, *pair in pairs) if told), None)


def blank(value):
    """Something to load into: other tensors of the same kind, and no values."""
    if isinstance(value, torch.Tensor):
        return torch.empty(value.shape, dtype=value.dtype)
    if isinstance(value, Mapping):
        return {key: blank(inner) for key, inner in value.items()}
    return [blank(inner) for inner in value] if isinstance(value, list) and has_dict(value) else None


def unflattened(folder):
    with tempfile.NamedTemporaryFile(suffix='.pt') as file:
        dcp_to_torch_save(folder, file.name)
        return torch.load(file.name, weights_only=False)


def compare(source, folder):
    saved = torch.load(source, weights_only=False)
    wanted = flat(saved)
    if holes(saved):  # torch cannot load what it saves of this
        return None
    loaded = blank(wanted)
    checkpoints.load(loaded, checkpoint_id=folder)
    return difference(loaded, wanted, 'load') or difference(unflattened(folder), wanted, 'dcp_to_torch_save')


def listed(value, key='', found=None):
    found = {} if found is None else found
    if isinstance(value, torch.Tensor):
        found[key] = describe(value)
    for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, (list, tuple)) else ():
        listed(inner, '%s.%s' % (key, name) if key else str(name), found)
    return found


def read_safetensors(path):
    """By hand: the package is not on every machine."""
    import hashlib
    content = path.read_bytes()
    n = int.from_bytes(content[:8], 'little')
    header = json.loads(content[8:8 + n])
    header.pop('__metadata__', None)
    return {key: [entry['dtype'], entry['shape'], hashlib.sha256(content[8 + n:][slice(*entry['data_offsets'])]).hexdigest()] for key, entry in header.items()}


def golden(directory, made, tensors):
    wanted = unflattened(directory)
    if not made.exists():
        return 'no .pth'
    told = difference(torch.load(made, weights_only=False), wanted, '.pth')
    if told:
        return told
    if not tensors.exists():
        return 'no .safetensors'
    found, wanted = read_safetensors(tensors), listed(wanted)
    more = sorted(set(found) - set(wanted))  # in objects and arrays, into which this walk does not go
    if any(found.get(key) != facts for key, facts in wanted.items()):
        return '.safetensors: other tensors'
    return '.safetensors: more tensors: %s' % ' '.join(more) if more else None


def main(what, folder):
    if what == 'write':
        return write(folder)
    told = {}
    if what == 'golden':
        sys.path.append(sys.argv[3])  # with the classes of some values
    names = json.loads((folder / 'names.json').read_text()) if what == 'golden' else {path.stem: None for path in sorted(folder.glob('*.pth'))}
    for name, directory in names.items():
        made = folder / (name + '.pth')
        try:
            told[name] = compare(made, folder / name) if what == 'compare' else golden(directory, made, folder / (name + '.safetensors'))
        except BaseException as error:  # as torch has its own: it is what the test asks about
            told[name] = '%s: %s' % (type(error).__name__, str(error)[-300:])
    print(json.dumps(told))
    return None


main(sys.argv[1], pathlib.Path(sys.argv[2]))
