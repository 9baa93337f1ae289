# SPDX-License-Identifier: MIT
"""Checkpoints of every format whose file ends too early, and which of their tensors are whole: shares no code with the program."""
import os

import numpy as np

from wfs_testlib import burnpack, dcp, gguf, mpk, pth, sets, st

KEYS = ['a.weight', 'b.weight', 'c.weight', 'd.weight']


def arrays():
    """No two have a piece in common."""
    rng = np.random.default_rng(7)
    return {key: rng.standard_normal((6, 32 + i), dtype=np.float32) for i, key in enumerate(KEYS)}


def _st(tensors):
    return {key: ('F32', list(array.shape), array.tobytes()) for key, array in tensors.items()}


def _halves(tensors):
    return [{key: tensors[key] for key in KEYS[:2]}, {key: tensors[key] for key in KEYS[2:]}]


def _legacy(path, tensors):
    items = [(pth.text(key), pth.tensor(pth.storage(str(i), numel=array.size), 0, array.shape, (array.shape[1], 1)))
             for i, (key, array) in enumerate(tensors.items())]
    path.write_bytes(pth.stream(pth.pairs(*items), [str(i) for i in range(len(items))], [(a.size, a.tobytes()) for a in tensors.values()]))
    return path


def _zip(path, tensors):
    items = [(pth.text(key), pth.tensor(pth.storage(str(i), numel=array.size), 0, array.shape, (array.shape[1], 1)))
             for i, (key, array) in enumerate(tensors.items())]
    path.write_bytes(pth.checkpoint(pth.pairs(*items), **{'r%d' % i: array.tobytes() for i, array in enumerate(tensors.values())}))
    return path


def _burnpack(path, tensors):
    burnpack.write(path, burnpack.Burnpack({key: burnpack.Tensor('F32', list(a.shape), a.tobytes()) for key, a in tensors.items()}))
    return path


def _record(path, tensors):
    item = {key.split('.')[0]: {'weight': mpk.param(i + 1, mpk.tensor(a.tobytes(), list(a.shape)))} for i, (key, a) in enumerate(tensors.items())}
    path.write_bytes(mpk.pack(mpk.record(item)))
    return path


def _gguf(tensors):
    return [(key, 'F32', array.shape, array.tobytes()) for key, array in tensors.items()]


def _dcp(folder, tensors):
    writer = dcp.Writer(folder)
    for i, (key, array) in enumerate(tensors.items()):
        writer.put(key, [0, 0], '__%d_0.distcp' % (i // 2), dcp.item('F32', array))
        writer.describe(key, 'F32', array.shape, [dcp.chunk([0, 0], array.shape)])
    return writer.write()


def _set(folder, tensors):
    return sets.write(folder, [_st(half) for half in _halves(tensors)])


def write(name, folder, tensors):
    """The source, and the file of it that is cut."""
    path = folder / ('model.' + name.split('-')[-1])
    if name == 'safetensors':
        st.write(path, _st(tensors))
    elif name == 'gguf':
        path.write_bytes(gguf.Writer().file([('general.architecture', gguf.STRING, 'x')], _gguf(tensors)))
    elif name == 'set':
        return _set(folder / 'set', tensors), folder / 'set' / sets.name(2, 2)
    elif name == 'split-gguf':
        gguf.write_set(folder / 'split', [('general.architecture', gguf.STRING, 'x')], list(map(_gguf, _halves(tensors))))
        return folder / 'split', folder / 'split' / gguf.set_name(2, 2)
    elif name == 'dcp':
        return _dcp(folder / 'dcp', tensors), folder / 'dcp' / '__1_0.distcp'
    else:
        {'legacy-pt': _legacy, 'pth': _zip, 'bpk': _burnpack, 'mpk': _record}[name](path, tensors)
    return path, path


FORMATS = ['safetensors', 'pth', 'legacy-pt', 'bpk', 'mpk', 'gguf', 'split-gguf', 'set', 'dcp']
PLACES = ['last', 'middle', 'all']


def cut(name, folder, place):
    """The source, its arrays, and the keys of those whose data is not wholly there any more. place: one of PLACES, or 'gone': the file is."""
    tensors = arrays()
    source, path = write(name, folder, tensors)
    content = path.read_bytes()
    ranges = {key: (content.index(array.tobytes()), array.nbytes) for key, array in tensors.items() if array.tobytes() in content}
    if place == 'gone':
        path.unlink()
        return source, tensors, list(ranges)
    order = sorted(ranges, key=ranges.get)
    start, n = ranges[order[{'last': -1, 'middle': len(order) // 2 - 1, 'all': 0}[place]]]
    end = start if place == 'all' else start + n // 2 + 2
    os.truncate(path, end)
    return source, tensors, [key for key in tensors if key in ranges and sum(ranges[key]) > end]
