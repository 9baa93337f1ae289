# SPDX-License-Identifier: MIT
"""Files that end too early, in every format: without --force they are refused, with it what is whole is read, and each tensor that is not is named."""
import hashlib
import json
import os
import re
import struct

import numpy as np
import pytest

from wfs_testlib import cuts, st
from wfs_testlib.program import EXIT_DAMAGED, EXIT_FOUND, weightfs

WAYS = [(name, place) for name in cuts.FORMATS if name != 'pth' for place in cuts.PLACES] + [('set', 'gone'), ('dcp', 'gone')]


class Cut:
    """A source with --force; whole: arrays that are there, listed: keys of others that it lists."""

    def __init__(self, name, folder, place):
        self.folder = folder
        self.source, self.arrays, self.cut = cuts.cut(name, folder, place)
        self.whole = {key: array for key, array in self.arrays.items() if key not in self.cut}
        self.listed = [] if name == 'mpk' else self.cut  # of a record, nothing behind the cut is known

    def run(self, verb, *args, code=EXIT_DAMAGED, **options):
        """Demands one line for each tensor that is cut, with numbers, and returns what was printed."""
        done = weightfs(verb, '--force', self.source, *args, code=code if self.listed else 0, n_errors=len(self.listed), cwd=self.folder, **options)
        assert self.names(done.stderr) == self.listed
        return done.stdout

    def names(self, text):
        found = re.findall(r"tensor '([^']*)': (?:.*(?:file|chunk).*\d|it is missing in its shard)", text)
        assert len(found) == len(text.splitlines()), text
        return found


@pytest.fixture(params=WAYS, ids=' '.join)
def cut(request, folder):
    return Cut(request.param[0], folder, request.param[1])


@pytest.mark.parametrize('name', [name for name in cuts.FORMATS if name != 'dcp'])
@pytest.mark.parametrize('place', cuts.PLACES)
def test_it_is_refused(folder, name, place):
    """In one line, by every verb, and a zip without its directory also with --force; of a distributed checkpoint other files are whole."""
    source, _, _ = cuts.cut(name, folder, place)
    for verb in ['ls'], ['show'], ['sum'], ['check'], ['extract', '-d', 'out'], ['convert', 'out.safetensors']:
        for force in [[], ['--force']] if name == 'pth' else [[]]:
            weightfs(verb[0], *force, source, *verb[1:], code=EXIT_DAMAGED, cwd=folder)
    assert not {'out', 'out.safetensors'} & set(os.listdir(folder))


def test_statistics(cut):
    rows = {row['key']: row for row in json.loads(cut.run('show', '--json'))['tensors']}
    assert set(rows) == {*cut.whole, *cut.listed}
    for key, row in rows.items():
        assert (row['stats'] is None) == (key in cut.cut)
        if key in cut.whole:
            assert (row['stats']['min'], row['stats']['max']) == (cut.whole[key].min(), cut.whole[key].max())
    assert len(cut.run('show').splitlines()) == len(rows)


def test_statistics_of_tensors_that_are_named(cut):
    keys = [*cut.listed, *cut.whole]
    if keys:
        rows = json.loads(cut.run('show', *keys, '--json'))['tensors']
        assert {row['key']: row['stats']['max'] for row in rows} == {key: array.max() for key, array in cut.whole.items()}


def sums(arrays):
    return {key: hashlib.sha256(array.tobytes()).hexdigest() for key, array in arrays.items()}


def test_sums(cut):
    lines = [line.split('\t') for line in cut.run('sum').splitlines()[1:]]
    assert {line[4]: line[0] for line in lines} == sums(cut.whole)
    assert {row['key']: row['sha256'] for row in json.loads(cut.run('sum', '--json'))['sources'][0]['tensors']} == sums(cut.whole)
    if cut.whole or cut.listed:
        lines = [line.split('\t') for line in cut.run('sum', '--cast=F16').splitlines()[1:]]
        assert {line[4]: line[0] for line in lines} == sums({key: array.astype(np.float16) for key, array in cut.whole.items()})


def test_extracted_files(cut):
    out = cut.folder / 'out'
    raw = cut.folder / 'raw'
    cut.run('extract', '-d', raw, '--files=raw', '--layout=flat')
    assert {path.name: path.read_bytes() for path in raw.iterdir() if path.suffix != '.json'} == {key: array.tobytes() for key, array in cut.whole.items()}
    printed = json.loads(cut.run('extract', '-d', out, '--json'))
    found = {str(path.relative_to(out)): path for path in out.rglob('*') if path.is_file() and path.suffix == '.npy'}
    assert set(found) == {key.replace('.', '/') + '.npy' for key in cut.whole}
    for key, array in cut.whole.items():
        assert np.array_equal(np.load(found[key.replace('.', '/') + '.npy']), array)
    files = [path for path in out.rglob('*') if path.is_file()]
    assert (printed['n_files'], printed['n_bytes']) == (len(files), sum(path.stat().st_size for path in files))


def test_findings(cut):
    for values in [], ['--values']:
        found = weightfs('check', '--force', cut.source, *values, code=EXIT_FOUND if cut.cut else 0)
        lines = found.stdout.splitlines()
        for key in cut.listed:
            assert len([line for line in lines if line.startswith("high: tensor '%s': " % key)]) in (1, 2), lines
        assert not any("tensor '%s'" % key in line for line in lines for key in cut.whole)


def other(cut):
    return st.write(cut.folder / 'other.safetensors', {key: ('F32', list(array.shape), array.tobytes()) for key, array in cut.arrays.items()})


def test_differences(cut):
    whole = other(cut)
    if cut.listed:
        found = json.loads(cut.run('diff', whole, '--json'))
        assert (found['n_changed'], found['n_equal'], found['is_equal']) == (0, len(cut.whole), False)


def test_no_page_is_drawn_of_a_part(cut):
    page = cut.folder / 'page.html'
    page.write_text('old')
    cut.run('report', '-o', page, '--overwrite')
    assert (page.read_text() == 'old') == bool(cut.listed)


@pytest.mark.parametrize('options', [[], ['--cast=F16'], ['--cast=F32'], ['--average=OTHER:0.5']], ids=' '.join)
@pytest.mark.parametrize('ending', ['safetensors', 'pth', 'bpk', 'gguf'])
def test_nothing_is_made_of_a_tensor_that_is_cut(cut, ending, options):
    """Neither written as it is nor cast nor added; without it the others are as they were."""
    target = cut.folder / ('out.' + ending)
    options = [option.replace('OTHER', str(other(cut))) for option in options]
    if cut.listed:
        error = weightfs('convert', '--force', cut.source, target, *options, code=None).error
        assert re.search(r"'%s'(:| has another shape)" % cut.listed[0], error) and not target.exists()
    left = ['--exclude=^%s$' % re.escape(key) for key in cut.listed]
    if cut.whole and ending == 'safetensors' and not any('average' in option for option in options):
        weightfs('convert', '--force', cut.source, target, *options, *left, has_notices=True)
        dtype = np.float16 if '--cast=F16' in options else np.float32
        assert {key: tensor[2] for key, tensor in st.read(target).tensors.items()} == {
            key: array.astype(dtype).tobytes() for key, array in cut.whole.items()}


@pytest.fixture
def last(folder):
    """Of d.weight, the first half is there."""
    return Cut('safetensors', folder, 'last')


@pytest.mark.parametrize('options,made', [(['--transpose=.*'], lambda array: array.T), (['--slice=d.weight:0:2'], lambda array: array[:2]),
                                          (['--slice=d.weight:4:6'], None), (['--slice=d.weight:0:4,0:3'], None), (['--slice=d.weight:0:3,1:4'], lambda array: array[:3, 1:4]), (['--average=OTHER'], lambda array: array),
                                          (['--average=OTHER', '--cast=F16', '--transpose=.*'], lambda array: array.T.astype(np.float16))],
                         ids=lambda value: ' '.join(value) if isinstance(value, list) else None)
def test_views_need_what_they_show(last, options, made):
    """A part of a tensor that is there is read; whatever is computed of one that is not is named."""
    given = [option.replace('OTHER', str(other(last))) for option in options]
    has_part = '--slice' in options[0] and made is not None
    done = weightfs('sum', '--force', last.source, *given, code=0 if has_part else EXIT_DAMAGED)
    assert has_part or done.error.startswith("%s: tensor 'd.weight': its data runs past the end of the file" % last.source)
    found = {line.split('\t')[4]: line.split('\t')[0] for line in done.stdout.splitlines()[1:]}
    shown = {key: array for key, array in last.arrays.items() if key != 'd.weight' or has_part}
    if '--slice' in options[0]:
        assert set(found) == set(shown)
        shown = {key: shown[key] for key in shown if key == 'd.weight'}
    made = {key: made(array) for key, array in shown.items()}
    assert {key: found[key] for key in made} == sums({key: np.ascontiguousarray(array) for key, array in made.items()})


def test_casts_that_are_counted_and_operands(last):
    for args in ['plan', last.source, '--values', '--cast=F16'], ['show', other(last), '--average=%s' % last.source], ['plan', last.source, '--like', other(last)]:
        error = weightfs(*args, '--force', code=None).error
        assert "'d.weight'" in error and 'its data runs past the end of the file' in error


def test_a_table_of_differences_has_them(last):
    whole = other(last)
    tables = {option: weightfs('diff', '--force', last.source, whole, option, code=EXIT_DAMAGED).stdout for option in ('--csv', '--long', '--stat')}
    assert tables['--csv'].splitlines()[1].startswith('d.weight,unreadable,') and tables['--long'].splitlines()[0].startswith('d.weight\tunreadable\t')
    assert tables['--stat'].splitlines()[-1] == '0 only in A, 0 only in B, 0 changed, 3 equal'


@pytest.mark.parametrize('verb', [['sum'], ['show'], ['extract', '-d', 'out'], ['diff', 'whole.safetensors']], ids=' '.join)
def test_each_name_of_a_tied_tensor_is_named(folder, verb):
    data = np.arange(16, dtype=np.float32).tobytes()
    head = json.dumps({key: {'dtype': 'F32', 'shape': [8], 'data_offsets': place} for key, place in [('p', [0, 32]), ('q', [32, 64]), ('r', [32, 64])]}).encode()
    for name, n in ('m', 60), ('whole', 64):
        (folder / (name + '.safetensors')).write_bytes(struct.pack('<Q', len(head)) + head + data[:n])
    done = weightfs(verb[0], '--force', 'm.safetensors', *verb[1:], code=EXIT_DAMAGED, n_errors=2, cwd=folder)
    assert re.findall("tensor '(.)': its data runs past", done.stderr) == ['q', 'r']
    assert verb[0] != 'extract' or os.listdir(folder / 'out') == ['p.npy']
