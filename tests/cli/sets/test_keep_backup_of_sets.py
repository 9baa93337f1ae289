# SPDX-License-Identifier: MIT
"""--backup of checkpoints in several files: the old index keeps another name, and the files that it needs stay. With that name back in its
place, the directory holds what it held before."""
import json
import os
import shutil

import numpy
import pytest

from wfs_testlib import crash, program, sets, st
from wfs_testlib.program import COMMAND, tool, weightfs
from wfs_testlib.sets import INDEX, name

KINDS = {'safetensors': INDEX, 'pytorch': 'pytorch_model.bin.index.json', 'burnpack': 'model.bpk.index.json', 'dcp': '.metadata'}


@pytest.fixture
def model(folder):
    """Three shards of two tensors."""
    return sets.write(folder / 'model', [{'layer%d.%s' % (i, leaf): ('U8', [4], b'%d%s..' % (i, leaf.encode())) for leaf in 'ab'} for i in (1, 2, 3)])


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def indexes(folder):
    return [path for path in folder.iterdir() if '.index.json' in path.name]


def needed(folder):
    """All indexes, and what they name."""
    return {file for path in indexes(folder) for file in [path.name, *json.loads(path.read_text())['weight_map'].values()]}


def demand_old(before, folder, index, kept):
    """The directory, with the kept index in the place of the new one, has all files that it had."""
    now = contents(folder)
    assert {**now, index: now[kept]}.items() >= before.items()


def edit(target, folder, data, *options):
    numpy.save(folder / 'new.npy', numpy.frombuffer(data, 'u1'))
    return ['edit', '--overwrite', *options, '--replace', 'layer2.a=%s' % (folder / 'new.npy'), target, '%s/' % target]


def convert(target, folder, data, *options):
    shutil.rmtree(folder / 'other', ignore_errors=True)
    other = sets.write(folder / 'other', [{'layer2.a': ('U8', [4], data)}])
    return ['convert', '--overwrite', *options, other, '%s/' % target]


def apply(target, folder, data, *options):
    make = edit(target, folder, data)
    weightfs(*[word for word in make[:-1] if word != '--overwrite'], folder / 'changed.safetensors')
    weightfs('patch', 'make', '--overwrite', target, folder / 'changed.safetensors', folder / 'p')
    (folder / 'changed.safetensors').unlink()
    return ['patch', 'apply', '--overwrite', *options, folder / 'p', target, '%s/' % target]


@pytest.mark.parametrize('verb', [edit, convert, apply])
@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('control, end', [('simple', '~'), ('numbered', '.~1~')])
def test_what_was_there_is_whole_under_the_other_name(folder, model, kind, verb, control, end):
    index, target = KINDS[kind], folder / 'out'
    formatted = ['--format=%s' % kind, *(['--max-shard-size=8'] if kind == 'dcp' else [])]
    weightfs('convert', *formatted, model, '%s/' % target)
    first, inode = contents(target), (target / index).stat().st_ino
    weightfs(*verb(target, folder, b'new1', '--backup=' + control, *formatted))
    assert (target / (index + end)).stat().st_ino == inode
    demand_old(first, target, index, index + end)
    second = contents(target)
    for data, options in ((b'new2', []), (b'new3', ['--backup=none'])):
        weightfs(*verb(target, folder, data, *options, *formatted))
        demand_old(first, target, index, index + end)
        assert weightfs('cat', target, 'layer2.a').raw == data
        assert len(contents(target)) <= len(second)  # what no index needs any more is gone
    assert (target / (index + end)).stat().st_ino == inode
    assert 'not in it' not in weightfs('check', target, code=None).stdout
    os.rename(target / (index + end), target / index)
    assert weightfs('cat', target, 'layer2.a').raw == b'2a..'


def test_the_files_of_a_backup_go_with_it(folder, model):
    """A simple one is replaced by the next; numbered ones stay until somebody removes them."""
    for data, options, n_indexes in ((b'new1', ['-b'], 2), (b'new2', ['-b'], 2), (b'new3', [], 2), (b'new4', ['--backup=t'], 3), (b'new5', ['--backup'], 4),
                                     (b'new6', ['-S', '.old'], 5), (b'new7', ['--backup=simple'], 5), (b'new8', [], 5)):
        weightfs(*edit(model, folder, data, *options))
        assert set(contents(model)) == needed(model) and len(indexes(model)) == n_indexes
        for path in indexes(model):
            for key, file in json.loads(path.read_text())['weight_map'].items():
                assert key in st.read(model / file).tensors
            assert 'not in it' not in weightfs('check', path, code=None).stdout
    for path in indexes(model):
        if path.name != INDEX:
            path.unlink()
    weightfs(*edit(model, folder, b'new9', '-b'))
    assert needed(model) <= set(contents(model))


def test_a_backup_that_is_read_can_be_put_back(folder, model):
    first = contents(model)
    weightfs(*edit(model, folder, b'new1', '-b'))
    weightfs('convert', '--overwrite', '--backup=simple', '--format=safetensors', model / (INDEX + '~'), '%s/' % model)
    assert weightfs('cat', model, 'layer2.a').raw == b'2a..' and weightfs('cat', model / (INDEX + '~'), 'layer2.a').raw == b'new1'
    assert set(contents(model)) == needed(model) and len(contents(model)) == len(first) + 2


@pytest.mark.parametrize('name_of_copy', ['before.index.json', INDEX + '.bak', 'model.fp16.safetensors.index.json'])
def test_what_another_index_names_stays(folder, model, name_of_copy):
    """Copies of an index are made by people too, without asking us for a backup."""
    first = contents(model)
    shutil.copy(model / INDEX, model / name_of_copy)
    for data in (b'new1', b'new2'):
        weightfs(*edit(model, folder, data))
        demand_old(first, model, INDEX, name_of_copy)
    assert set(contents(model)) == needed(model)


@pytest.mark.parametrize('text', ['{"weight_map": {"a": "../x"}}', '{"weight_map": {', '', 'no index', '{"weight_map": {"a": "%s"}}'])
def test_what_is_called_like_a_backup_removes_nothing(folder, model, text):
    """It may be by a stranger, and may name files that are not of this checkpoint."""
    precious = st.write(model / 'precious.safetensors', {'x': ('U8', [1], b'x')})
    (model / (INDEX + '~')).write_text(text % precious.name if '%s' in text else text)
    for data in (b'new1', b'new2'):
        weightfs(*edit(model, folder, data, '-b'))
    assert precious.exists() and weightfs('cat', model, 'layer2.a').raw == b'new2'
    demand = json.loads((model / (INDEX + '~')).read_text())['weight_map']
    assert all((model / file).exists() for file in demand.values())


@pytest.mark.parametrize('end', ['3', '"../x"', '"%s"}, "weight_map": {"b": "x"' % name(2, 3)])
def test_what_is_not_an_index_after_all_removes_nothing(folder, model, end):
    """Its first keys look well."""
    first = {file: data for file, data in contents(model).items() if file != INDEX}
    (model / INDEX).write_text('{"weight_map": {"layer1.a": "%s", "b": %s}}' % (name(1, 3), end))
    weightfs(*convert(model, folder, b'new1'), code=None)
    assert contents(model).items() >= first.items()


def test_a_backup_that_cannot_be_made_is_refused(folder, model):
    (model / (INDEX + '~')).mkdir()
    before = {path: path.read_bytes() for path in model.iterdir() if path.is_file()}
    error = weightfs(*edit(model, folder, b'new1', '-b'), code=program.EXIT_COMMIT).error
    assert "'%s~' is a directory" % INDEX in error
    assert {path: path.read_bytes() for path in model.iterdir() if path.is_file()} == before


@pytest.mark.skipif(not crash.LIBRARY.exists(), reason='no fault injector in this build')
@pytest.mark.parametrize('mode', ['kill-before', 'eio-once', *[pytest.param(mode, marks=pytest.mark.slow) for mode in ('kill-after', 'enospc-once', 'enospc-on')]])
@pytest.mark.parametrize('control', ['simple', 'numbered'])
def test_each_index_has_its_files_at_each_step(folder, control, mode):
    """Whatever index is there when the program has ended, under whatever name, has all its files. The same again then leaves no other file,
    but for those of a backup that was being replaced at that moment."""
    disk = folder / 'disk'
    older = {'layer2.a': ('U8', [4], b'odd.')}

    def run(mode, at):
        shutil.rmtree(disk, ignore_errors=True)
        model = sets.write(disk, [{'layer%d.a' % i: ('U8', [4], b'old.')} for i in (1, 2)])
        for end, stem in (('~', 'model-00001-of-00001.v7'), ('.~1~', 'model-00001-of-00001.v8')):
            st.write(model / (stem + '.safetensors'), older, {'format': 'pt'})
            (model / (INDEX + end)).write_text(json.dumps({'weight_map': {'layer2.a': stem + '.safetensors'}}))
        before = contents(model)
        words = edit(model, folder, b'new.', '--backup=' + control)
        injection = crash.Injection(disk, folder / 'inject', mode, at)
        done = tool(*COMMAND, *words, env=injection.environment, code=None)
        found = {path.name[len(INDEX):]: {key: st.read(disk / file).tensors[key] for key, file in json.loads(path.read_text())['weight_map'].items()}
                 for path in indexes(disk) if not path.name.startswith('.')}
        data = found['']['layer2.a'][2]
        assert data in (b'old.', b'new.') and found['.~1~'] == older, at
        kept = found.get('~' if control == 'simple' else '.~2~', older if control == 'numbered' else None)
        assert kept == older or kept['layer2.a'][2] == b'old.', at
        assert data == b'old.' or kept != older, at
        if mode not in crash.KILLS and data == b'old.':
            assert contents(model).items() >= before.items(), at
        weightfs(*words)
        left = set(contents(model)) - needed(model)
        assert left <= {'model-00001-of-00001.v7.safetensors', name(2, 2)}, (at, left)
        return injection

    n = run('count', 0).n_calls()
    assert n > 20
    for at in range(1, n + 1, 2 if mode == 'kill-before' else 1):
        run(mode, at)
