# SPDX-License-Identifier: MIT
"""What a file is after sets, copies, moves, exchanges, links, replacements and discards, in all orders of two or three steps.

The model is the text of the manual: a set sticks to the file, a copy carries what `cp -a` would set, and the tensor that a file replaced,
or whose key it got, describes what was not set. Each order has names of its own, so that one mount and one commit judge all of them."""
import itertools
import os
import struct

import pytest

from wfs_testlib import checkpoints
from wfs_testlib.edit_kinds import exchange_names
from wfs_testlib.program import tool, weightfs

FORMS = {'a': ('F16', [4]), 'b': ('F16', [2, 2]), 'd': ('I16', [4])}  # 8 bytes each; n is new
N_BYTES = 8
DESCR = {'F16': '<f2', 'I16': '<i2'}


class File:
    def __init__(self, form, data, key=None):
        self.form, self.data, self.key = form, data, key  # key: that it was loaded with
        self.is_told = key is not None
        self.header, self.set = None, {}

    def reset(self):
        self.__init__(FORMS[self.key], data_of(self.key), self.key)

    def shown(self):
        """(dtype, shape), or None."""
        form = self.header or self.form or (None, None)
        found = self.set.get('dtype', form[0]), self.set.get('shape', form[1])
        return None if None in found else found


def data_of(key):
    return bytes([ord(key)]) * N_BYTES


def framed(form, data):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % (DESCR[form[0]], ''.join('%d, ' % n for n in form[1]))
    return b'\x93NUMPY\x01\x00' + struct.pack('<H', 118) + head.encode().ljust(117) + b'\n' + data


class World:
    """The files of one order: what the program does with them, and what they have to be."""

    def __init__(self, mnt, number, is_npy):
        self.mnt, self.number, self.is_npy = mnt, number, is_npy
        self.names = {key: File(FORMS[key], data_of(key), key) for key in FORMS}
        self.n_made = 0

    def path(self, name):
        return self.mnt / ('%d_%s%s' % (self.number, name, '.npy' if self.is_npy else ''))

    def make(self, name):
        self.names[name] = File(FORMS.get(name), b'')
        return self.names[name]

    # ---- steps: True when the step can be done ----

    def new(self, name):
        """An editor that removes the old file first, and copies no attributes."""
        self.remove(name)
        made = self.make(name)
        self.n_made += 1
        made.data = bytes([self.n_made]) * N_BYTES
        made.header = ('I16', [2, 2]) if self.is_npy else None
        self.path(name).write_bytes(framed(made.header, made.data) if self.is_npy else made.data)
        return True

    def copy(self, name, with_attributes=False):
        file = self.names.get(name) or self.make(name)
        source = os.open(self.path('a'), os.O_RDONLY)
        target = os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        if with_attributes:
            os.write(target, os.read(source, 4096))
            for attribute in ('dtype', 'shape'):
                os.setxattr(target, 'user.weightfs.' + attribute, os.getxattr(source, 'user.weightfs.' + attribute))
        else:
            os.copy_file_range(source, target, os.fstat(source).st_size)
        os.close(source)
        os.close(target)
        form = self.names['a'].shown()
        file.data, file.set = data_of('a'), {'dtype': form[0], 'shape': form[1]}
        file.header = form if self.is_npy else None
        return True

    def copy_all(self, name):
        return self.copy(name, with_attributes=True)

    def set(self, name, attribute, value):
        if name not in self.names:
            return False
        os.setxattr(self.path(name), 'user.weightfs.' + attribute, value.encode())
        self.names[name].set[attribute] = value if attribute == 'dtype' else [int(n) for n in value.strip('[]').split(',')]
        return True

    def remove(self, name):
        if name not in self.names:
            return False
        os.remove(self.path(name))
        del self.names[name]
        return True

    def move(self, one, other):
        if one not in self.names:
            return False
        os.rename(self.path(one), self.path(other))
        file, replaced = self.names[one], self.names.get(other)
        if file is replaced:
            return True
        if replaced is not None:
            inherit(file, replaced)
        elif not file.is_told and other in FORMS:
            file.form = FORMS[other]
        self.names[other] = self.names.pop(one)
        return True

    def exchange(self, one, other):
        if one not in self.names or other not in self.names:
            return False
        exchange_names(self.path(one), self.path(other))
        file, second = self.names[one], self.names[other]
        if file is not second:
            was, now = snapshot(file), snapshot(second)
            inherit(file, now)
            inherit(second, was)
        self.names[one], self.names[other] = second, file
        return True

    def link(self, one, other):
        if one not in self.names or other in self.names:
            return False
        os.link(self.path(one), self.path(other))
        file = self.names[other] = self.names[one]
        file.form = file.form or FORMS.get(other)
        return True

    def discard(self, name):
        done = weightfs('discard', self.mnt.path, self.path(name).name, code=None)
        if done.code == 0:
            self.take_back(name)
        return True

    def take_back(self, name):
        """The name now, the name that its file was loaded with, and the names that those have now go together."""
        now, before, todo = set(), set(), [('now', name), ('before', name)]
        while todo:
            when, at = todo.pop()
            known = now if when == 'now' else before
            if at in known or at not in (self.names if when == 'now' else FORMS):
                continue
            known.add(at)
            if when == 'now':
                todo += [('before', at), ('before', self.names[at].key)]
            else:
                others = [other for other, file in self.names.items() if file.key == at]
                todo += [('now', at), *(('now', other) for other in others if other in FORMS or at not in others)]
        loaded = {file.key: file for file in self.names.values() if file.key}
        for at in now:
            del self.names[at]
        for key in before:
            self.names[key] = loaded.get(key) or File(FORMS[key], data_of(key), key)
            self.names[key].reset()

    # ---- judging ----

    def judge(self, why):
        for name, file in self.names.items():
            found = []
            for attribute in ('dtype', 'shape'):
                try:
                    found.append(os.getxattr(self.path(name), 'user.weightfs.' + attribute).decode())
                except OSError:
                    found.append(None)
            form = file.header or file.form or (None, None)
            shape = file.set.get('shape', form[1])
            expected = [file.set.get('dtype', form[0]), None if shape is None else '[%s]' % ', '.join(map(str, shape))]
            assert found == expected, (why, name)

    def drop_unknown(self):
        for name in [name for name, file in self.names.items() if file.shown() is None]:
            self.remove(name)

    def expected(self):
        return {'%d_%s' % (self.number, name): (*file.shown(), file.data) for name, file in self.names.items()}


def snapshot(file):
    made = File(file.form, b'', file.key)
    made.set, made.is_told = dict(file.set), file.is_told
    return made


def inherit(file, replaced):
    if file.is_told:
        return
    if file.header is None:
        file.set = {**replaced.set, **file.set}
    if replaced.form is not None:
        file.form, file.is_told = replaced.form, True


STEPS = {
    'rm b': ('remove', 'b'), 'rm d': ('remove', 'd'), 'new b': ('new', 'b'), 'new n': ('new', 'n'), 'cp a b': ('copy', 'b'), 'cp a n': ('copy', 'n'),
    'cp -a a b': ('copy_all', 'b'), 'dtype b': ('set', 'b', 'dtype', 'F16'), 'shape b': ('set', 'b', 'shape', '[4]'),
    'as it is b': ('set', 'b', 'shape', '[2, 2]'), 'dtype d': ('set', 'd', 'dtype', 'I16'), 'dtype n': ('set', 'n', 'dtype', 'F16'),
    'mv b d': ('move', 'b', 'd'), 'mv b n': ('move', 'b', 'n'), 'mv n d': ('move', 'n', 'd'), 'mv d b': ('move', 'd', 'b'),
    'exchange b d': ('exchange', 'b', 'd'), 'exchange n d': ('exchange', 'n', 'd'), 'exchange n b': ('exchange', 'n', 'b'),
    'ln b d': ('link', 'b', 'd'), 'ln b n': ('link', 'b', 'n'), 'ln n d': ('link', 'n', 'd'), 'discard b': ('discard', 'b'), 'discard d': ('discard', 'd'),
}
# What programs do before a move: steps that belong together.
FIRST = {
    'rm b, cp a b': ['rm b', 'cp a b'], 'rm b, cp -a a b': ['rm b', 'cp -a a b'], 'new b, set as it is': ['new b', 'dtype b', 'as it is b'],
    'new b, set': ['new b', 'dtype b', 'shape b'], 'new b, dtype': ['new b', 'dtype b'], 'new n, dtype': ['new n', 'dtype n'],
}


CORE = ['rm b', 'new b', 'cp a b', 'dtype b', 'as it is b', 'new n', 'mv b d', 'mv n d', 'exchange b d', 'exchange n d', 'ln b d', 'ln n d']
ORDERS = {
    'two': [*itertools.product(STEPS, repeat=2), *((*FIRST[first], step) for first in FIRST for step in STEPS)],
    'three': [*itertools.product(CORE, repeat=3), *((*FIRST[first], *rest) for first in FIRST for rest in itertools.product(CORE, repeat=2))],
}


@pytest.mark.parametrize('files', ['raw', 'npy'])
@pytest.mark.parametrize('ending', ['safetensors', 'pth'])
@pytest.mark.parametrize('length', ORDERS)
def test_all_orders_of_steps(mount, folder, ending, length, files):
    orders = ORDERS[length]
    source, out = folder / ('in.' + ending), folder / ('out.' + ending)
    checkpoints.write(source, {'%d_%s' % (i, key): (*FORMS[key], data_of(key)) for i in range(len(orders)) for key in FORMS})
    options = ['output=%s' % out, 'files=' + files]
    mnt = mount(source, *options)
    worlds = []
    for number, order in enumerate(orders):
        world = World(mnt, number, files == 'npy')
        if all(getattr(world, STEPS[step][0])(*STEPS[step][1:]) for step in order):
            world.judge(order)
        worlds.append(world)
    mnt.kill()
    mnt.forget()
    again = mount(source, *options).allow('edits of an earlier mount are shown again')
    for world, order in zip(worlds, orders):
        world.mnt = again
        world.judge((order, 'after a crash'))
        world.drop_unknown()
    again.commit()
    expected = {}
    for world in worlds:
        expected.update(world.expected())
    found = checkpoints.read(out)
    wrong = [(orders[int(key.split('_')[0])], key, found.get(key), expected.get(key)) for key in {*found, *expected} if found.get(key) != expected.get(key)]
    assert not wrong, wrong[:5]


# ---- orders with a name ----

@pytest.fixture(params=['safetensors', 'pth'])
def edit(request, mount, folder):
    source = checkpoints.write(folder / ('in.' + request.param), {key: (*FORMS[key], data_of(key)) for key in FORMS})
    out = folder / ('out.' + request.param)

    def make(*options):
        mnt = mount(source, 'output=%s' % out, *options)
        mnt.result = lambda: (mnt.commit(), checkpoints.read(out))[1]
        return mnt
    return make


def test_a_copy_in_the_place_of_a_removed_file_keeps_its_dtype_when_it_is_moved(edit):
    mnt = edit()
    tool('sh', '-c', 'rm b && cp a b && mv b d', cwd=mnt.path)
    assert mnt.result() == {'a': ('F16', [4], data_of('a')), 'd': ('F16', [4], data_of('a'))}


def test_a_tensor_is_moved_to_an_earlier_key_and_another_one_takes_its_place(edit):
    mnt = edit()
    os.rename(mnt / 'd', mnt / 'b')
    (mnt / 'd').write_bytes(b'12345678')
    assert mnt.result() == {'a': ('F16', [4], data_of('a')), 'b': ('I16', [4], data_of('d')), 'd': ('I16', [4], b'12345678')}


def test_a_new_npy_file_is_what_its_header_says_whatever_was_set_of_the_replaced_one(edit):
    mnt = edit('files=npy')
    os.setxattr(mnt / 'b.npy', 'user.weightfs.dtype', b'BF16')
    os.setxattr(mnt / 'b.npy', 'user.weightfs.shape', b'[4]')
    (mnt / 'new.npy').write_bytes(framed(('I16', [2, 2]), b'12345678'))
    os.rename(mnt / 'new.npy', mnt / 'b.npy')
    assert mnt.result()['b'] == ('I16', [2, 2], b'12345678')


@pytest.mark.parametrize('how', ['exchange', 'link'])
def test_a_new_file_gets_the_description_of_the_place_that_it_takes(edit, how):
    mnt = edit()
    (mnt / '.new').write_bytes(b'12345678')
    if how == 'link':
        os.remove(mnt / 'd')
        os.link(mnt / '.new', mnt / 'd')
    else:
        exchange_names(mnt / '.new', mnt / 'd')
    os.remove(mnt / '.new')
    assert mnt.result()['d'] == ('I16', [4], b'12345678')
