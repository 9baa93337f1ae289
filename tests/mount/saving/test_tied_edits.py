# SPDX-License-Identifier: MIT
"""Short sequences of edits of tied tensors, in every order: what a commit and a patch write is read without our program."""
import os
import random

import numpy
import pytest

from wfs_testlib import burnpack, checkpoints, dcp, dcp_read, mpk, pth_read, pth_written, st, ties
from wfs_testlib.program import weightfs

VERBS = ['remove', 'write', 'rename', 'replace', 'reshape', 'link', 'move']


def path_of(mnt, key):
    return mnt.path / key.replace('.', '/')


def describe(path, shape):
    os.setxattr(path, 'user.weightfs.dtype', b'F32')
    os.setxattr(path, 'user.weightfs.shape', ('[%s]' % ', '.join(map(str, shape))).encode())


def do(mnt, cells, verb, key, number):
    """One edit, of the mount and of what is expected."""
    path, data = path_of(mnt, key), st.f32(*range(number, number + len(cells[key].data) // 4))
    if verb == 'remove':
        path.unlink()
        del cells[key]
    elif verb == 'write':
        with open(path, 'r+b') as file:
            file.write(data)
        cells[key].data = data
    elif verb == 'replace':
        made = mnt.path / 'made'
        made.write_bytes(data[:8])
        describe(made, [1, 2])
        os.rename(made, path)
        cells[key] = ties.Cell(data[:8], [1, 2])
    elif verb == 'reshape':
        cells[key].shape = [len(cells[key].data) // 8, 2]
        os.setxattr(path, 'user.weightfs.shape', str(cells[key].shape).encode())
    elif verb == 'link':
        os.link(path, path_of(mnt, key + '_too'))
        cells[key + '_too'] = cells[key]
    else:
        end = 'moved.' + key.replace('.', '_') if verb == 'move' else key + '_new'
        path_of(mnt, end).parent.mkdir(exist_ok=True)
        os.rename(path, path_of(mnt, end))
        cells[end] = cells.pop(key)


def read_pth(path):
    return {key: (one.dtype, one.shape, one.data) for key, one in pth_read.tensors(pth_read.load(path)).items()}


def read_bpk(path):
    return {key: (one.name, list(one.shape), bytes(one.data)) for key, one in burnpack.read(path).tensors.items()}


def read_dcp(path):
    return {key: (one.dtype, one.shape, one.data) for key, one in pth_read.tensors(dcp_read.load(path)).items()}


READERS = {'.pth': read_pth, '.safetensors': lambda path: {key: tuple(one) for key, one in st.read(path).tensors.items()}, '.bpk': read_bpk,
           '.mpk': lambda path: {key: (dtype, list(shape), data) for key, (dtype, shape, data) in mpk.read(path).items()}, '.dcp': read_dcp}
FORMATS = {'.pth': 'pytorch', '.safetensors': 'safetensors', '.bpk': 'burnpack', '.mpk': 'mpk', '.dcp': 'dcp'}


def check_ties(path, cells):
    """Names of one new content have one record."""
    data = [raw for name, raw in pth_written.check(path, plain=False).items() if name.startswith('data/')]
    for cell in set(cells.values()):
        assert data.count(cell.data) <= 1


def of(path):
    """A directory is named with a slash."""
    return '%s/' % path if path.suffix == '.dcp' else str(path)


def run(mnt, source, out, sequence, cells):
    for number, (verb, key) in enumerate(sequence):
        do(mnt, cells, verb, key, 10 * number + 10)
    wanted, read = ties.facts(cells), READERS[out.suffix]
    patch, again = out.parent / 'p', out.with_name('again' + out.suffix)
    weightfs('patch', 'make', mnt.path, patch, '--overwrite')
    weightfs('commit', mnt.path, has_notices=True)
    assert read(out) == wanted
    weightfs('patch', 'apply', patch, source, of(again), '--format', FORMATS[out.suffix], '--overwrite', has_notices=True)
    assert read(again) == wanted
    if out.suffix == '.pth':
        check_ties(out, cells)


def run_all(mnt, source, out, sequences, start):
    """Each from the beginning. start: makes the ties of the mount, and returns what is expected of it."""
    failed = []
    for sequence in sequences:
        cells = start()
        try:
            run(mnt, source, out, sequence, cells)
        except AssertionError as problem:
            failed.append('%s: %s' % (sequence, str(problem)[:300]))
        weightfs('discard', '--committed', mnt.path)
    assert not failed, '%d of %d\n%s' % (len(failed), len(sequences), '\n'.join(failed[:20]))


def mounted(mount, source, out):
    if out.suffix == '.dcp':
        out.mkdir()
    return mount(source, 'output=' + of(out), 'format=' + FORMATS[out.suffix], at=out.parent / 'mnt').allow('edits are kept in memory only')


def run_form(mount, folder, form, ending, sequences):
    source, out = ties.write(folder / 'in.pth', form), folder / ('out.' + ending)
    run_all(mounted(mount, source, out), source, out, sequences, lambda: ties.cells(form))


def some(form, n_steps, n):
    every = ties.sequences(VERBS, ties.tied(form), n_steps)
    return random.Random('%s %d' % (form, n_steps)).sample(every, n)


@pytest.mark.parametrize('form', ties.FORMS)
def test_short_sequences_of_edits(memory, mount, form):
    run_form(mount, memory, form, 'pth', some(form, 1, 14) + some(form, 2, 30) + some(form, 3, 15))


@pytest.mark.parametrize('ending', ['safetensors', 'bpk', 'mpk', 'dcp'])
def test_ties_that_become_another_format(memory, mount, ending):
    run_form(mount, memory, 'two dicts', ending, some('two dicts', 2, 15) + some('two dicts', 3, 8))


def untied(path):
    """A checkpoint of two tensors, without our program."""
    tensors = {'a': ('F32', [4], ties.TIED), 'b': ('F32', [4], ties.OTHER)}
    if path.suffix == '.mpk':
        path.write_bytes(mpk.pack(mpk.record({key: mpk.param(i, mpk.tensor(data, shape)) for i, (key, (_, shape, data)) in enumerate(tensors.items())})))
    elif path.suffix == '.dcp':
        writer = dcp.Writer(path)
        for key, (dtype, shape, data) in tensors.items():
            writer.tensor(key, dtype, numpy.frombuffer(data, '<f4'), [([0], shape)])
        writer.write()
    else:
        checkpoints.write(path, tensors)
    return path


@pytest.mark.parametrize('ending', ['safetensors', 'pth', 'bpk', 'mpk', 'dcp'])
def test_names_that_a_mount_tied(memory, mount, ending):
    source, out = untied(memory / ('in.' + ending)), memory / ('out.' + ending)
    mnt = mounted(mount, source, out)

    def start():
        tied, other = ties.Cell(ties.TIED, [4]), ties.Cell(ties.OTHER, [4])
        for name in ('v', 'w'):
            os.link(mnt / 'a', mnt / name)
        return {'a': tied, 'v': tied, 'w': tied, 'b': other}
    run_all(mnt, source, out, some('one tensor', 2, 15) + some('one tensor', 3, 8), start)


@pytest.mark.slow
@pytest.mark.parametrize('form', ties.FORMS)
def test_every_short_sequence_of_edits(memory, mount, form):
    run_form(mount, memory, form, 'pth', ties.sequences(VERBS, ties.tied(form), 2) + some(form, 3, 300))
