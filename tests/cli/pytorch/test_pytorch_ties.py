# SPDX-License-Identifier: MIT
"""`weightfs edit` of tied tensors: every combination of what can become of each name, read without our program."""
import itertools

import numpy
import pytest

from wfs_testlib import pth_read, ties
from wfs_testlib.program import weightfs

ENDS = ['keep', 'remove', 'replace', 'rename', 'rename and replace', 'reshape']


def plan(cells, ends, files):
    """The options of an edit, and what is expected of it."""
    options = []
    for number, (key, end) in enumerate(ends.items()):
        now = key
        if 'rename' in end:
            now = key + '_new'
            options += ['--rename', key, now]
            cells[now] = cells.pop(key)
        if end == 'remove':
            options.append('--remove=' + key)
            del cells[key]
        elif 'replace' in end:
            options.append('--replace=%s=%s' % (now, files[number]))
            cells[now] = ties.Cell(numpy.load(files[number]).tobytes(), list(numpy.load(files[number]).shape))
        elif end == 'reshape':
            shape = [len(cells[now].data) // 8, 2]
            options.append('--set=%s.shape=%d,%d' % (now, *shape))
            cells[now] = ties.Cell(cells[now].data, shape)
    return options


def check(path, cells):
    found = {key: (one.dtype, one.shape, one.data) for key, one in pth_read.tensors(pth_read.load(path)).items()}
    assert found == ties.facts(cells)


@pytest.mark.parametrize('form', ties.FORMS)
def test_every_combination_of_edits(memory, form):
    """Of the same size as the tensor, which the storage can get, and of another one; the same for two names."""
    arrays = [numpy.array([10, 11, 12, 13], '<f4'), numpy.array([20, 21, 22, 23], '<f4'), numpy.array([[30, 31]], '<f4')]
    files = [memory / ('%d.npy' % i) for i in range(3)]
    for file, array in zip(files, arrays):
        numpy.save(file, array)
    source, out = ties.write(memory / 'in.pth', form), memory / 'out.pth'
    failed = []
    for ends in itertools.product(ENDS, repeat=3):
        cells = ties.cells(form)
        options = plan(cells, dict(zip(ties.tied(form), ends)), files if ends[2] != 'keep' else [files[0]] * 3)
        done = weightfs('edit', source, out, '--overwrite', *options, has_notices=True, code=None)
        try:
            assert done.code == 0, done.stderr
            check(out, cells)
        except AssertionError as problem:
            failed.append((ends, str(problem)[:300]))
    assert not failed, '%d\n%s' % (len(failed), '\n'.join(map(str, failed[:20])))


@pytest.mark.parametrize('form', ties.FORMS)
def test_names_that_a_view_leaves_out_of_what_it_casts(memory, form):
    source, out = ties.write(memory / 'in.pth', form), memory / 'out.pth'
    names = ties.tied(form)
    for n_names in range(len(names)):
        for left_out in itertools.combinations(names, n_names):
            options = ['--exclude=' + name for name in left_out]
            weightfs('convert', source, out, '--overwrite', *options)
            cells = {key: cell for key, cell in ties.cells(form).items() if key not in left_out}
            check(out, cells)
            weightfs('convert', source, out, '--overwrite', '--cast=F16', *options)
            found = pth_read.tensors(pth_read.load(out))
            assert {key: one.data for key, one in found.items()} == {
                key: numpy.frombuffer(cell.data, '<f4').astype('<f2').tobytes() for key, cell in cells.items()}
