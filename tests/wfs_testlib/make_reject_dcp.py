# SPDX-License-Identifier: MIT
"""
Damaged and hostile distributed checkpoints, and what must come of each: writes tests/data/reject/dcp.

Run it from tests: /usr/bin/python3 -m wfs_testlib.make_reject_dcp. A case is the file .metadata of a directory, whose items are in that
file too, behind the pickle; and an expectation: an exit code with a piece of the message, or (exit code 0) tensors with a piece of their
trouble (None: readable) and pieces of findings.
"""
import json
import pathlib

import numpy as np

from wfs_testlib import dcp, pth

FOLDER = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'reject' / 'dcp'
BASE = 2560  # where items begin
HALVES = [([0, 0], [2, 3]), ([2, 0], [2, 3])]
ARRAY = np.arange(12, dtype='<f4').reshape(4, 3)


class Writer(dcp.Writer):
    """All in one file."""

    def __init__(self):
        self.files, self.state, self.storage, self.planner = {'.metadata': bytearray(BASE)}, {}, {}, {}
        self.folder = None

    def tensor(self, key, dtype, array, boxes, **more):
        for i, (offsets, sizes) in enumerate(boxes):
            part = array[tuple(slice(o, o + n) for o, n in zip(offsets, sizes))]
            self.put(key, offsets, '.metadata', dcp.item(dtype, part, i in more.get('by_column', ())))
        self.describe(key, dtype, array.shape, [dcp.chunk(*box) for box in boxes], more.get('path'))

    def value(self, key, opcodes, path=None, file='.metadata'):
        super().value(key, opcodes, path, file)

    def entry(self, key, number=0):
        return [info for index, info in self.storage.items() if index.fqn == key][number]

    def index(self, key, number=0):
        return [index for index in self.storage if index.fqn == key][number]

    def content(self, protocol=4):
        head = self.metadata(protocol)
        assert len(head) <= BASE, len(head)
        return head + bytes(self.files['.metadata'][len(head):])


def two(**more):
    writer = Writer()
    writer.tensor('w', 'F32', ARRAY, HALVES, by_column={1}, **more)
    writer.tensor('b', 'I16', np.arange(3, dtype='<i2'), [([0], [3])])
    writer.value('cfg.lr', pth.number(3), ('cfg', 'lr'))
    return writer


def cases():
    def case(change, expect, protocol=4):
        writer = two()
        change(writer)
        return writer.content(protocol), expect

    def trouble(change, text, **others):
        return case(change, {'exit': 0, 'tensors': {'w': text, 'b': None, **others}})

    def state(writer, key, **fields):
        writer.state[key].__dict__.update(fields)

    yield 'good', case(lambda w: None, {'exit': 0, 'tensors': {'w': None, 'b': None}})
    yield 'good-protocol-2', case(lambda w: None, {'exit': 0, 'tensors': {'w': None, 'b': None}}, 2)
    yield 'hole', trouble(lambda w: w.state['w'].chunks.pop(), 'no chunk has its elements [2:4, 0:3]')
    yield 'no-chunks', trouble(lambda w: state(w, 'w', chunks=[]), 'no chunk has its elements [0:4, 0:3]')
    yield 'outside', trouble(lambda w: state(w, 'w', size=dcp.Size((3, 3))), 'its chunk at [2, 0] of [2, 3] lies outside of its shape [3, 3]')
    yield 'overflow', trouble(lambda w: state(w, 'w', chunks=[dcp.chunk([2 ** 62, 0], [2 ** 62, 3])]), 'no entry in storage_data')
    yield 'rank', trouble(lambda w: state(w, 'w', size=dcp.Size((12,))), 'a chunk has another number of dimensions')
    yield 'negative-size', trouble(lambda w: state(w, 'w', size=dcp.Size((-4, 3))), 'its size is negative')
    yield 'huge-size', trouble(lambda w: state(w, 'w', size=dcp.Size((2 ** 40, 2 ** 40))), 'its size is not below 2^63 bytes')
    yield 'size-of-text', trouble(lambda w: state(w, 'w', size='4'), 'its size is not a tuple of integers of 64 bits')
    yield 'bool-in-chunk', trouble(lambda w: state(w, 'w', chunks=[dcp.chunk([False, 0], [4, 3])]), 'a chunk is not described by offsets and sizes')
    yield 'big-in-chunk', trouble(lambda w: state(w, 'w', chunks=[dcp.chunk([2 ** 70, 0], [4, 3])]), 'a chunk is not described by offsets and sizes')
    yield 'no-entry', trouble(lambda w: w.storage.pop(w.index('w', 1)), 'its chunk at [2, 0] has no entry in storage_data')
    yield 'path-up', trouble(lambda w: setattr(w.entry('w'), 'relative_path', '../x'), "its chunk at [0, 0]: the path '../x' leads out of the directory")
    yield 'path-absolute', trouble(lambda w: setattr(w.entry('w'), 'relative_path', '/etc/passwd'), "the path '/etc/passwd' leads out of the directory")
    yield 'path-nul', trouble(lambda w: setattr(w.entry('w'), 'relative_path', '.metadata\0x'), 'leads out of the directory')
    yield 'path-empty', trouble(lambda w: setattr(w.entry('w'), 'relative_path', ''), "the path '' leads out of the directory")
    yield 'path-missing', trouble(lambda w: setattr(w.entry('w'), 'relative_path', 'gone'), "'gone': No such file or directory")
    yield 'offset-negative', trouble(lambda w: setattr(w.entry('w'), 'offset', -1), 'its offset -1')
    yield 'offset-beyond', trouble(lambda w: setattr(w.entry('w'), 'offset', 2 ** 40), 'cannot be in')
    yield 'offset-of-text', trouble(lambda w: setattr(w.entry('w'), 'offset', '0'), 'its entry in storage_data is not a path, an offset and a length')
    yield 'length-zero', trouble(lambda w: setattr(w.entry('w'), 'length', 0), 'its 0 bytes')
    yield 'length-short', trouble(lambda w: setattr(w.entry('w'), 'length', w.entry('w').length - 9), "its chunk at [0, 0] in '.metadata': the zip")
    yield 'length-long', trouble(lambda w: setattr(w.entry('w'), 'length', w.entry('w').length + 9), 'is used for something else too')
    yield 'one-item-twice', trouble(lambda w: w.entry('w', 1).__dict__.update(w.entry('w').__dict__), 'is used for something else too')
    yield 'transformed', trouble(lambda w: setattr(w.entry('w'), 'transform_descriptors', ['stream.zstd/1']), 'it is compressed or otherwise transformed')
    yield 'dtype', trouble(lambda w: w.state['w'].properties.__dict__.update(state=(dcp.DTYPES['float64'], None, False, None, False)),
                           "its chunk at [0, 0] in '.metadata': the stored dtype is F32, not F64")
    yield 'no-dtype', trouble(lambda w: state(w, 'w', properties=None), 'its properties do not have a dtype')
    yield 'value-without-entry', case(lambda w: w.storage.pop(w.index('cfg.lr')), {
        'exit': 0, 'tensors': {'w': None}, 'findings': ["the value 'cfg.lr' cannot be read: it has no entry in storage_data"]})
    yield 'planner-list', case(lambda w: w.planner.update({'b': ('list', 2 ** 40)}), {
        'exit': 0, 'tensors': {'w': None, 'b': None}, 'findings': ["1 key is not where planner_data has it, which contradicts the keys: 'b'"]})
    yield 'planner-through-leaf', case(lambda w: w.planner.update({'b': ('w', 'b')}), {
        'exit': 0, 'tensors': {'w': None, 'b': None}, 'findings': ['planner_data has it']})
    yield 'key-of-number', case(lambda w: w.state.update({5: w.state['w']}), {'exit': 5, 'message': 'a key of its state_dict_metadata is not a text'})
    yield 'neither', case(lambda w: w.state.update({'x': 5}), {'exit': 5, 'message': "'x' is described as neither a tensor nor a value"})
    yield 'storage-key', case(lambda w: w.storage.update({'x': 5}), {'exit': 5, 'message': 'a key of its storage_data is not a MetadataIndex'})
    content = two().content()
    yield 'cut', (content[:700], {'exit': 5, 'message': "'.metadata': pickle"})
    yield 'no-metadata', (pth.pickle(pth.number(5)) + bytes(8), {'exit': 5, 'message': 'is not the Metadata object of a PyTorch distributed checkpoint'})
    yield 'calls', (pth.pickle(pth.call(pth.name('builtins', 'eval'), pth.text('1'))), {'exit': 5, 'message': 'is not the Metadata object'})
    paddle = pth.name('paddle.distributed.flex_checkpoint.metadata', 'Metadata') + b')\x81}b'
    yield 'paddle', (pth.pickle(paddle), {'exit': 6, 'message': 'PaddlePaddle'})
    empty = pth.name(dcp.META, 'Metadata') + b')\x81}b'
    yield 'no-state', (pth.pickle(empty), {'exit': 5, 'message': 'its state_dict_metadata is not a dict'})
    no_storage = pth.name(dcp.META, 'Metadata') + b')\x81' + pth.dictionary(state_dict_metadata=b'}', storage_data=b'N') + b'b'
    yield 'no-storage', (pth.pickle(no_storage), {'exit': 5, 'message': 'its storage_data is not a dict'})


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (content, expect) in cases():
        (FOLDER / (name + '.metadata')).write_bytes(content)
        (FOLDER / (name + '.expect')).write_text(json.dumps(expect, indent=1) + '\n')


if __name__ == '__main__':
    main()
