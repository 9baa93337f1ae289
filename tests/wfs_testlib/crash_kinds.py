# SPDX-License-Identifier: MIT
"""The checkpoints that are edited under faults, a kind for each way to store one: how it is written and read, by readers that share
nothing with ours, and what of it besides tensors is changed. A state is {key: (dtype, shape, bytes)}, and the text that is changed
under the name TEXT."""
import io
import json
import os
import pickle
import struct
import zipfile

from wfs_testlib import burnpack, pth, st

TENSORS = {
    'a.w': ('F32', [4, 4], struct.pack('<16f', *range(16))),
    'a.b': ('F32', [4], struct.pack('<4f', 1, 2, 3, 4)),
    'c': ('U8', [64], bytes(range(64))),
    'd': ('I64', [], struct.pack('<q', 7)),
    'f': ('U8', [8], b'the same'),
}
TEXT = 'not a tensor'
START = {**TENSORS, TEXT: 3}


class Kind:
    """name: as pytest shows it. text: the path of what is changed besides tensors, '' for nothing; changed: what it becomes."""

    def __init__(self, name, extension, text, changed):
        self.name, self.extension, self.text, self.changed = name, extension, text, changed

    def path(self, folder, name):
        """Of a checkpoint with the name; its folder is made."""
        return folder / (name + self.extension)

    def names(self, path):
        """The files that belong to the checkpoint at the path."""
        return {path.name}

    def found(self, path):
        return self.read(path) if path.exists() else None


class Safetensors(Kind):
    def write(self, path, state):
        st.write(path, {key: value for key, value in state.items() if key != TEXT}, {'number': str(state[TEXT])})

    def read(self, path):
        checkpoint = st.read(path)
        return {**checkpoint.tensors, TEXT: int(checkpoint.metadata['number'])}


class Burnpack(Kind):
    def write(self, path, state):
        tensors = {key: burnpack.Tensor(burnpack.BOOL if value[0] == 'BOOL' else value[0], value[1], value[2])
                   for key, value in state.items() if key != TEXT}
        burnpack.write(path, burnpack.Burnpack(tensors, {}, {'number': {'UInt': state[TEXT]}}))

    def read(self, path):
        pack = burnpack.read(path)
        return {**{key: (one.name, one.shape, one.data) for key, one in pack.tensors.items()}, TEXT: pack.scalars['number']['UInt']}


class Pytorch(Kind):
    """With an object that only Python can build, which has to stay as it is."""
    STORAGES = {'F32': 'FloatStorage', 'U8': 'ByteStorage', 'I64': 'LongStorage'}

    def write(self, path, state):
        tensors = [(key, value) for key, value in state.items() if key != TEXT]
        items, storages = {}, {}
        for i, (key, (dtype, shape, data)) in enumerate(tensors):
            numel = len(data) // (st.BITS[dtype] // 8)
            stride = tuple(numel // _product(shape[:axis + 1]) for axis in range(len(shape)))
            of = pth.storage(str(i), pth.name('torch', self.STORAGES[dtype]), numel)
            items[key] = pth.tensor(of, size=tuple(shape), stride=stride)
            storages['r%d' % i] = data
        items['number'] = pth.number(state[TEXT])
        items['thing'] = pth.call(pth.name('my', 'Thing'), pth.number(5))
        path.write_bytes(pth.checkpoint(pth.dictionary(**items), **storages))

    def read(self, path):
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            content = {entry.partition('/')[2]: archive.read(entry) for entry in archive.namelist()}
        value = _Unpickler(content).load()
        assert value.pop('thing') == ('my.Thing', (5,))
        return {TEXT if key == 'number' else key: one for key, one in value.items()}


class _Unpickler(pickle.Unpickler):
    """Builds tensors as (dtype, shape, bytes), an object of any other class as its name and arguments. Runs nothing."""

    def __init__(self, content):
        super().__init__(io.BytesIO(content['data.pkl']))
        self.content = content

    def find_class(self, module, name):
        if (module, name) == ('torch._utils', '_rebuild_tensor_v2'):
            return self._tensor
        if (module, name) == ('collections', 'OrderedDict'):
            return dict
        dtypes = {storage: dtype for dtype, storage in Pytorch.STORAGES.items()}
        return dtypes[name] if module == 'torch' else lambda *args: ('%s.%s' % (module, name), args)

    def persistent_load(self, pid):
        _, dtype, key, _, numel = pid
        data = self.content['data/' + key]
        assert len(data) == numel * st.BITS[dtype] // 8
        return dtype, data

    @staticmethod
    def _tensor(storage, offset, size, stride, *_):
        dtype, data = storage
        assert list(stride) == [_product(size[axis + 1:]) for axis in range(len(size))]
        step = st.BITS[dtype] // 8
        return dtype, list(size), data[offset * step:][:_product(size) * step]


class Shards(Safetensors):
    """An index and three files in a folder of their own, of which one is never changed."""
    FILES = {'a.b': 1, 'a.w': 1, 'c': 2, 'd': 2, 'f': 3, 'old': 1}

    def path(self, folder, name):
        (folder / name).mkdir(exist_ok=True)
        return folder / name / ('model.safetensors' + self.extension)

    def names(self, path):
        return {path.name} | set(json.loads(path.read_text())['weight_map'].values())

    def write(self, path, state):
        weight_map = {key: 'model-%05d-of-00003.safetensors' % self.FILES[key] for key in state if key != TEXT}
        for file in set(weight_map.values()):
            part = {key: value for key, value in state.items() if key == TEXT or weight_map[key] == file}
            super().write(path.parent / file, part)
        path.write_text(json.dumps({'metadata': {}, 'weight_map': weight_map}))

    def read(self, path):
        weight_map = json.loads(path.read_text())['weight_map']
        state = {}
        for file in set(weight_map.values()):
            part = super().read(path.parent / file)
            assert set(part) - {TEXT} == {key for key, name in weight_map.items() if name == file}, file
            assert state.get(TEXT, part[TEXT]) == part[TEXT], 'two files say different things of the whole'
            state.update(part)
        return state


def _product(numbers):
    result = 1
    for number in numbers:
        result *= number
    return result


def change_text(mnt, kind):
    """As an editor does. The new file is part of no commit before its rename."""
    path = (mnt / kind.text).with_name('.text')
    path.write_text(kind.changed)
    os.rename(path, mnt / kind.text)


SAFETENSORS = Safetensors('safetensors', '.safetensors', '.weightfs/metadata.json', '{"number": "4"}')
BURNPACK = Burnpack('burnpack', '.bpk', 'number.json', '4')
PYTORCH = Pytorch('pytorch', '.pth', 'number.json', '4')
SHARDS = Shards('shards', '.index.json', '', '')
KINDS = [SAFETENSORS, BURNPACK, PYTORCH, SHARDS]
