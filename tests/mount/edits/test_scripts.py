# SPDX-License-Identifier: MIT
"""Random edits by ordinary tools, with commits in between: the tree and each output are what a model in memory says."""
import json
import os
import random
import shutil

import numpy
import pytest

from wfs_testlib import checkpoints, look, st
from wfs_testlib.program import tool

DTYPES = {'F64': '<f8', 'F32': '<f4', 'F16': '<f2', 'I64': '<i8', 'I32': '<i4', 'U8': '|u1', 'BOOL': '|b1'}


class Script:
    """The mount, and what has to be in it: path -> [dtype, shape, bytes], one list for all names of a node."""

    NONE = ['U8', [0], b'']

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tensors, self.log = {}, []

    # ---- choices

    def data(self, dtype, n_bytes):
        return bytes(self.random.randrange(2) for _ in range(n_bytes)) if dtype == 'BOOL' else self.random.randbytes(n_bytes)

    def tensor(self):
        dtype = self.random.choice(list(DTYPES))
        shape = [self.random.choice([0, 1, 2, 3, 7]) for _ in range(self.random.randrange(4))]
        return [dtype, shape, self.data(dtype, st.size_of(dtype, shape))]

    def source(self, path):
        for _ in range(self.random.randrange(1, 12)):
            name = '/'.join('%s%d' % (self.random.choice('abcd'), self.random.randrange(3)) for _ in range(self.random.randrange(1, 4)))
            if not any((name + '/').startswith(other + '/') or other.startswith(name + '/') for other in self.tensors):
                self.tensors[name] = self.tensor()
        return checkpoints.write(path, self.expected())

    def path(self):
        """Of bytes without a header, or None."""
        self.log.append(self.random.choice(sorted(path for path in self.tensors if not path.endswith('.npy')) or [None]))
        return self.log[-1]

    def folders(self):
        return sorted(os.path.relpath(above, self.mnt.path) for above, _, _ in os.walk(self.mnt.path) if '.weightfs' not in above)

    def folder(self):
        """One below the root, or None."""
        self.log.append(self.random.choice([name for name in self.folders() if name != '.'] or [None]))
        return self.log[-1]

    def fresh(self):
        """A path at which nothing is."""
        while True:
            path = os.path.normpath(os.path.join(self.random.choice(self.folders()), 'n%d' % self.random.randrange(100)))
            if not os.path.lexists(self.mnt / path) and path + '.npy' not in self.tensors:
                self.log.append(path)
                return path

    # ---- edits

    def rename(self):
        old, new = self.path(), self.random.choice([self.fresh(), self.path()])
        if old and self.tensors.get(new) is not self.tensors[old]:  # POSIX: two names of the same do nothing, and stay
            os.rename(self.mnt / old, self.mnt / new)
            self.tensors[new] = self.tensors.pop(old)

    def rename_folder(self):
        old, new = self.folder(), self.fresh()
        if old and not new.startswith(old + '/'):
            os.rename(self.mnt / old, self.mnt / new)
            for path in [path for path in self.tensors if path.startswith(old + '/')]:
                self.tensors[new + path[len(old):]] = self.tensors.pop(path)

    def remove(self):
        path = self.path()
        if path:
            os.unlink(self.mnt / path)
            del self.tensors[path]

    def remove_folder(self):
        old = self.folder()
        if old and self.random.random() < 0.3:
            tool('rm', '-r', self.mnt / old)
            self.tensors = {path: tensor for path, tensor in self.tensors.items() if not path.startswith(old + '/')}

    def copy(self):
        old, new = self.path(), self.fresh()
        if old:
            tool('cp', '-a', self.mnt / old, self.mnt / new)
            self.tensors[new] = list(self.tensors[old])

    def copy_folder(self):
        old, new = self.folder(), self.fresh()
        if old and not new.startswith(old + '/') and len(self.tensors) < 100:
            tool('cp', '-r', '--preserve=xattr', self.mnt / old, self.mnt / new)
            self.tensors.update({new + path[len(old):]: list(self.tensors[path]) for path in self.tensors if path.startswith(old + '/')})

    def link(self):
        old, new = self.path(), self.fresh()
        if old:
            os.link(self.mnt / old, self.mnt / new)
            self.tensors[new] = self.tensors[old]

    def write(self):
        path = self.path()
        dtype, _, data = tensor = self.tensors.get(path, self.NONE)
        if data:
            offset = self.random.randrange(len(data))
            new = self.data(dtype, self.random.randrange(1, len(data) - offset + 1))
            with open(self.mnt / path, 'r+b') as file:
                file.seek(offset)
                file.write(new)
            tensor[2] = data[:offset] + new + data[offset + len(new):]

    def reshape(self):
        path = self.path()
        dtype, _, data = tensor = self.tensors.get(path, self.NONE)
        if data:
            tensor[1] = [1, len(data) // st.size_of(dtype, [1])]
            look.set_attribute(self.mnt / path, 'shape', json.dumps(tensor[1]))

    def create(self):
        path, tensor = self.fresh(), self.tensor()
        with open(self.mnt / path, 'wb') as file:
            file.write(tensor[2])
        look.set_attribute(self.mnt / path, 'dtype', tensor[0])
        look.set_attribute(self.mnt / path, 'shape', json.dumps(tensor[1]))
        self.tensors[path] = tensor

    def save(self):
        path, tensor = self.fresh() + '.npy', self.tensor()
        if path not in self.tensors:
            numpy.save(self.mnt / path, numpy.frombuffer(tensor[2], DTYPES[tensor[0]]).reshape(tensor[1]))
            self.tensors[path] = tensor

    def make_folder(self):
        os.mkdir(self.mnt / self.fresh())

    def commit(self):
        self.mnt.commit()
        self.check_output()

    # ---- checks

    def expected(self):
        return {path.removesuffix('.npy').replace('/', '.'): tuple(tensor) for path, tensor in self.tensors.items()}

    def check_tree(self):
        assert [path for path in look.files(self.mnt.path) if '.weightfs' not in path] == sorted(self.tensors)
        for path, (dtype, shape, data) in self.tensors.items():
            assert look.attribute(self.mnt / path, 'dtype') == dtype
            assert json.loads(look.attribute(self.mnt / path, 'shape')) == shape
            found = numpy.load(self.mnt / path).tobytes() if path.endswith('.npy') else (self.mnt / path).read_bytes()
            assert found == data

    def check_output(self):
        found = checkpoints.read(self.output)
        assert {key: (dtype, list(shape), bytes(data)) for key, (dtype, shape, data) in found.items()} == self.expected()

    EDITS = (rename, rename, rename_folder, remove, remove_folder, copy, copy_folder, link, write, write, reshape, create, create, save,
             make_folder, commit, check_tree)

    def run(self, mount, folder):
        source = self.source(folder / ('source.' + self.random.choice(checkpoints.ENDINGS)))
        is_in_place = self.random.random() < 0.5
        self.output = source if is_in_place else folder / ('output.' + self.random.choice(checkpoints.ENDINGS))
        self.mnt = mount(source, 'rw' if is_in_place else 'output=%s' % self.output)
        for _ in range(self.random.randrange(5, 40)):
            edit = self.random.choice(self.EDITS)
            self.log.append(edit.__name__)
            edit(self)
        self.check_tree()
        self.mnt.unmount()
        if self.output.exists():
            self.check_output()
        assert not [name for name in os.listdir(folder) if name.startswith('.')]


@pytest.mark.parametrize('first', range(0, 20, 5))
def test_edits_in_any_order(mount, folder, first):
    for seed in range(first, first + 5):
        run(mount, folder, seed)


@pytest.mark.slow
@pytest.mark.parametrize('first', range(1000, 2000, 50))
def test_many_edits_in_any_order(mount, folder, first):
    for seed in range(first, first + 50):
        run(mount, folder, seed)


def run(mount, folder, seed):
    place = folder / str(seed)
    place.mkdir()
    script = Script(seed)
    try:
        script.run(lambda *args: mount(*args, at=place / 'mnt'), place)
    except Exception as error:
        error.add_note('script %d: %s' % (seed, script.log))
        raise
    shutil.rmtree(place)
