# SPDX-License-Identifier: MIT
"""Checkpoints in several files: what the index says, what is there, and what is refused."""
import json
import os
import resource
import shutil
import struct

import pytest

from wfs_testlib import program
from wfs_testlib.program import weightfs


def shard(path, tensors):
    """tensors: {key: number}, each a vector of two."""
    header, data = {}, b''
    for key, number in tensors.items():
        header[key] = {'dtype': 'F32', 'shape': [2], 'data_offsets': [len(data), len(data) + 8]}
        data += struct.pack('<2f', number, number)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack('<Q', len(text)) + text + data)


def index(folder, weight_map, **metadata):
    path = folder / 'model.safetensors.index.json'
    path.write_text(json.dumps({'metadata': metadata, 'weight_map': weight_map}))
    return path


NAMES = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / 'model'
    folder.mkdir()
    shard(folder / NAMES[0], {'a': 1, 'b': 2})
    shard(folder / NAMES[1], {'c': 3})
    index(folder, {'a': NAMES[0], 'b': NAMES[0], 'c': NAMES[1]}, total_size=1)
    return folder


def keys(*args):
    return [line.split('\t')[0] for line in weightfs('ls', *args).stdout.splitlines()]


def value(path, key, *options):
    return struct.unpack('<2f', weightfs('cat', *options, path, key).raw)[0]


def test_an_index_a_directory_and_a_shard_show_the_same(model):
    for args in ([model], [model / 'model.safetensors.index.json'], ['--shards', model / NAMES[1]], [str(model) + '/']):
        assert keys(*args) == ['a', 'b', 'c']
        assert value(args[-1], 'c', *args[:-1]) == 3


def test_a_shard_by_itself_is_a_file_like_any_other(model):
    assert keys(model / NAMES[1]) == ['c']


def test_info_counts_the_files(model):
    info = json.loads(weightfs('info', '--json', model).stdout)['sources'][0]
    assert info['n_tensors'] == 3 and len(info['files']) == 2


def test_a_missing_shard_is_named(model):
    (model / NAMES[1]).unlink()
    assert NAMES[1] in weightfs('ls', model, code=program.EXIT_SOURCE).error
    assert keys('--force', model) == ['a', 'b', 'c']
    weightfs('cat', '--force', model, 'c', code=program.EXIT_DAMAGED)
    assert value(model, 'a', '--force') == 1


def test_a_key_that_its_shard_lacks(model):
    index(model, {'a': NAMES[0], 'b': NAMES[1], 'c': NAMES[1]})
    assert "'b'" in weightfs('ls', model, code=program.EXIT_DAMAGED).error


def test_the_index_decides_between_two(model):
    shard(model / NAMES[1], {'c': 3, 'a': 30})
    index(model, {'a': NAMES[1], 'b': NAMES[0], 'c': NAMES[1]})
    assert value(model, 'a') == 30
    found = json.loads(weightfs('info', '--json', model).stdout)['sources'][0]['findings']
    assert any("'a'" in finding['text'] for finding in found)


def test_keys_and_files_that_the_index_does_not_have_are_told(model):
    shard(model / NAMES[1], {'c': 3, 'extra': 30})
    shard(model / 'stray.safetensors', {'a': 99})
    assert keys(model) == ['a', 'b', 'c']
    texts = [finding['text'] for finding in json.loads(weightfs('info', '--json', model).stdout)['sources'][0]['findings']]
    assert any('extra' in text for text in texts) and any("'stray.safetensors'" in text for text in texts)


@pytest.mark.parametrize('name', ['../secret.safetensors', '/etc/passwd', 'a/../../b', '..', '.', '', 'a\\b', 'a\0b', './a', 'a/', 'x' * 256])
def test_hostile_names_are_refused_by_their_letters(model, name):
    index(model, {'a': name})
    assert 'not a file name' in weightfs('ls', model, code=program.EXIT_DAMAGED).error


@pytest.mark.parametrize('kind, text', [('pipe', 'not a regular file'), ('link to a pipe', 'not a regular file'), ('directory', 'is a directory'),
                                        ('link to nothing', 'No such file'), ('link to itself', 'symbolic link'), ('device', 'not a regular file')])
def test_only_regular_files_are_shards(model, kind, text):
    path = model / 'odd.safetensors'
    if kind == 'directory':
        path.mkdir()
    elif kind.startswith('link'):
        target = {'link to a pipe': 'pipe', 'link to nothing': 'nothing', 'link to itself': path.name}[kind]
        os.mkfifo(model / 'pipe')
        path.symlink_to(target)
    elif kind == 'device':
        path.symlink_to('/dev/null')
    else:
        os.mkfifo(path)
    index(model, {'a': path.name})
    error = weightfs('ls', model, code=None).error
    assert "shard 'odd.safetensors'" in error and text in error


def test_an_index_is_no_shard_of_itself(model):
    index(model, {'a': 'model.safetensors.index.json'})
    assert "shard 'model.safetensors.index.json'" in weightfs('ls', model, code=None).error


def test_a_link_may_lead_out_of_the_directory(model, tmp_path):
    (model / NAMES[1]).rename(tmp_path / 'blob')
    (model / NAMES[1]).symlink_to('../blob')
    assert value(model, 'c') == 3


def test_an_index_is_as_long_as_a_header_may_be(model):
    path = model / 'model.safetensors.index.json'
    n_bytes = path.stat().st_size
    assert keys('--limit=header=%d' % n_bytes, model) == ['a', 'b', 'c']
    error = weightfs('ls', '--limit=header=%d' % (n_bytes - 1), model, code=program.EXIT_UNSUPPORTED).error
    assert 'index: it has %d bytes, the limit is %d (limit header); --limit=header=N, ' % (n_bytes, n_bytes - 1) in error


def test_an_index_above_the_limit_is_not_read(model):
    with open(model / 'model.safetensors.index.json', 'r+b') as file:
        file.truncate(100000001)
    error = weightfs('ls', model, code=program.EXIT_UNSUPPORTED).error
    assert 'index: it has 100000001 bytes, the limit is 100000000 (limit header)' in error


def test_the_cache_of_hugging_face_is_links(model, tmp_path):
    blobs, snapshot = tmp_path / 'blobs', tmp_path / 'snapshots' / 'main'
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for i, path in enumerate(sorted(model.iterdir())):
        shutil.copy(path, blobs / str(i))
        (snapshot / path.name).symlink_to('../../blobs/%d' % i)
    assert keys(snapshot) == ['a', 'b', 'c']
    assert keys(snapshot / 'model.safetensors.index.json') == ['a', 'b', 'c']


def test_shards_without_an_index(model):
    (model / 'model.safetensors.index.json').unlink()
    assert keys(model) == ['a', 'b', 'c']
    assert keys('--shards', model / NAMES[0]) == ['a', 'b', 'c']
    (model / NAMES[1]).unlink()
    assert '1 of 2 shards' in weightfs('ls', model, code=program.EXIT_SOURCE).error
    assert keys('--force', model) == ['a', 'b']


def test_a_key_in_two_shards_and_no_index(model):
    (model / 'model.safetensors.index.json').unlink()
    shard(model / NAMES[1], {'a': 3})
    error = weightfs('ls', model, code=program.EXIT_DAMAGED).error
    assert "'a'" in error and NAMES[0] in error and NAMES[1] in error


def test_directories_that_do_not_tell(tmp_path):
    folder = tmp_path / 'empty'
    folder.mkdir()
    assert 'without a checkpoint' in weightfs('ls', folder, code=program.EXIT_SOURCE).error
    shard(folder / 'one.safetensors', {'a': 1})
    assert keys(folder) == ['a']
    shard(folder / 'two.safetensors', {'a': 1})
    assert 'name one' in weightfs('ls', folder, code=None).error


# {what is beside 'model-0000N-of-00002.safetensors': its files}
BESIDE = {
    'another model': ['ema-00001-of-00002.safetensors', 'ema-00002-of-00002.safetensors'],
    'a variant': ['model.fp16-00001-of-00002.safetensors', 'model.fp16-00002-of-00002.safetensors'],
    'a variant at the end': ['model-00001-of-00002.fp16.safetensors', 'model-00002-of-00002.fp16.safetensors'],
    'another format': ['model-00001-of-00002.bin', 'model-00002-of-00002.bin'],
    'another number of shards': ['model-00001-of-00001.safetensors'],
    'whole files': ['whole.safetensors'],
    'series in names of series': ['shard-00001-model-00001-of-00001.safetensors', 'shard-00002-model-00001-of-00001.safetensors'],
}


@pytest.mark.parametrize('beside', BESIDE)
def test_several_checkpoints_without_an_index(model, beside):
    (model / 'model.safetensors.index.json').unlink()
    for name in BESIDE[beside]:
        shard(model / name, {name: 5})
    for options in ([], ['--force']):
        for verb in (['ls'], ['check'], ['info'], ['convert', '--format=safetensors']):
            target = [model.parent / 'out.safetensors'] if verb[0] == 'convert' else []
            error = weightfs(*verb, *options, model, *target, code=None).error
            assert "'%s'" % NAMES[0] in error and "'%s'" % BESIDE[beside][0] in error and NAMES[1] not in error
    assert keys('--shards', model / NAMES[1]) == ['a', 'b', 'c']
    name = BESIDE[beside][-1]
    if name.startswith('shard'):
        assert keys('--shards', model / name) == [name]
    assert keys(model / name) == [name]


def test_two_series_of_one_shard_each(tmp_path):
    names = ['shard-%05d-model-00001-of-00001.safetensors' % i for i in (1, 2)]
    for name in names:
        shard(tmp_path / name, {name: 5})
    error = weightfs('ls', tmp_path, code=None).error
    assert all("'%s'" % name in error for name in names)
    for name in names:
        assert keys('--shards', tmp_path / name) == [name]


def test_a_name_with_of_in_it(tmp_path):
    for i in (1, 2):
        shard(tmp_path / ('state-of-the-art-2-of-3-%05d-of-00002.safetensors' % i), {str(i): 5})
    assert keys(tmp_path) == ['1', '2']


def test_a_shard_that_the_index_does_not_name_is_not_of_its_checkpoint(model):
    """Each shard says which checkpoint is meant, whatever indexes there are."""
    for i in (1, 2):
        shard(model / ('ema-%05d-of-00002.safetensors' % i), {'e%d' % i: 5})
    assert keys('--shards', model / NAMES[1]) == keys(model) == ['a', 'b', 'c']
    assert keys('--shards', model / 'ema-00002-of-00002.safetensors') == ['e1', 'e2']
    (model / 'ema.safetensors.index.json').write_text(json.dumps({'weight_map': {'e1': 'ema-00001-of-00002.safetensors'}}))
    assert keys('--shards', model / 'ema-00001-of-00002.safetensors') == ['e1']
    assert keys('--shards', model / NAMES[1]) == ['a', 'b', 'c']


@pytest.mark.parametrize('text', ['{"weight_map": {"a": "x", "a": "y"}}', '{"weight_map": {"a": 1}}', '{"weight_map": {}}',
                                  '{"weight_map": {"a": "x"}, "weight_map": {}}', '{"weight_map": {"a": "x"'])
def test_a_damaged_index(model, text):
    (model / 'model.safetensors.index.json').write_text(text)
    assert 'index' in weightfs('ls', model, code=program.EXIT_DAMAGED).error


def test_json_that_is_no_index_is_still_foreign(tmp_path):
    path = tmp_path / 'error.json'
    path.write_text('{"error": "not found"}')
    weightfs('ls', path, code=program.EXIT_FOREIGN)


def test_many_shards(tmp_path):
    weight_map = {}
    for i in range(100):
        name = 'model-%05d-of-00100.safetensors' % (i + 1)
        tensors = {'layers.%d.w%d' % (i, j): i for j in range(50)}
        shard(tmp_path / name, tensors)
        weight_map.update((key, name) for key in tensors)
    index(tmp_path, weight_map)
    assert len(keys(tmp_path)) == 5000
    assert value(tmp_path, 'layers.77.w3') == 77
    assert len(keys('--include', r'^layers\.7\.', tmp_path)) == 50


# ---- very many ----

N_MANY = 1500


@pytest.fixture(scope='module')
def many(tmp_path_factory):
    folder = tmp_path_factory.mktemp('many')
    names = {'l%d.w' % i: 'model-%05d-of-%05d.safetensors' % (i + 1, N_MANY) for i in range(N_MANY)}
    for i, (key, name) in enumerate(names.items()):
        shard(folder / name, {key: i})
    index(folder, names)
    return folder


def limited(soft, hard=None):
    """The limits of open files that a program begins with."""
    ceiling = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return {'preexec_fn': lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard or ceiling))}


needs_files = pytest.mark.skipif(0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4 * N_MANY, reason='the hard limit of open files is too low')


@needs_files
def test_more_shards_than_may_be_open_by_default(many, tmp_path):
    assert len(weightfs('ls', many, **limited(256)).stdout.splitlines()) == N_MANY
    weightfs('info', many, **limited(256))
    weightfs('convert', many, tmp_path / 'one.safetensors', **limited(256))
    assert value(tmp_path / 'one.safetensors', 'l1234.w') == 1234


@needs_files
def test_very_many_shards_are_written(many, tmp_path):
    weightfs('convert', '--cast=BF16', many, str(tmp_path / 'set') + '/', **limited(256))
    assert len(os.listdir(tmp_path / 'set')) == N_MANY + 1
    assert keys(tmp_path / 'set') == keys(many)


@pytest.mark.parametrize('options', [[], ['--force']])
def test_where_the_hard_limit_is_too_low_is_said(many, options):
    """What is not read for want of descriptors is not damaged, and force does not go on without it."""
    error = weightfs('ls', *options, many, code=program.EXIT_SOURCE, **limited(100, 100)).error
    assert "shard 'model-000" in error and 'the hard limit of open files (ulimit -Hn) is too low' in error


def test_the_number_of_shards_has_a_limit(many):
    error = weightfs('ls', '--limit=files=1499', many, code=program.EXIT_UNSUPPORTED).error
    assert error.endswith('it is in 1500 files, the limit is 1499 (limit files); --limit=files=N, or -o limit.files=N of a mount, raises it')


def test_an_index_that_names_a_file_for_each_key_is_read_at_once(tmp_path):
    """A look at all files for each key would take hours."""
    index(tmp_path, {'k%d' % i: 'f%d' % i for i in range(400000)})
    error = weightfs('ls', tmp_path, code=program.EXIT_UNSUPPORTED).error
    assert 'it is in 400000 files, the limit is 10000' in error


def test_many_findings_of_one_kind_hide_no_other(tmp_path):
    """Keys that the index does not have come first; the shard that cannot be read is the last one."""
    folder = tmp_path / 'model'
    folder.mkdir()
    shard(folder / NAMES[0], {'k%03d' % i: i for i in range(60)})
    (folder / NAMES[1]).write_bytes(b'no checkpoint')
    index(folder, {'k000': NAMES[0], 'z': NAMES[1]})
    findings = json.loads(weightfs('check', '--json', '--force', folder, code=1).stdout)['sources'][0]['findings']
    assert [f['severity'] for f in findings][:2] == ['high', 'medium']
    assert NAMES[1] in findings[0]['text'] and 'no checkpoint' in findings[0]['text']
    medium = [f['text'] for f in findings if f['severity'] == 'medium']
    assert len(medium) == 21 and medium[-1] == 'and 39 more keys that are not in the index'


def test_info_shows_the_worst_first(tmp_path):
    """Twelve shards with something small each, and the last one cannot be read."""
    folder = tmp_path / 'model'
    folder.mkdir()
    names = ['model-%05d-of-00013.safetensors' % i for i in range(1, 14)]
    for i, file in enumerate(names[:-1]):
        text = b'{"__metadata__":{"k":"v"},"k%02d":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' % i
        (folder / file).write_bytes(struct.pack('<Q', len(text)) + text + bytes(4))
    (folder / names[-1]).write_bytes(b'no checkpoint')
    index(folder, {'k%02d' % i: file for i, file in enumerate(names)})
    lines = weightfs('info', '--force', folder).stdout.splitlines()
    first = next(line for line in lines if line.startswith('findings:'))
    assert 'high: ' in first and names[-1] in first


def test_the_message_of_a_shard_is_neither_cut_nor_quoted_again(model):
    """It has a name in it that is escaped already, and is longer than a quoted name may be."""
    text = json.dumps({'x\n' + 'y' * 70: {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4, 5]}}).encode()
    (model / NAMES[1]).write_bytes(struct.pack('<Q', len(text)) + text + bytes(4))
    alone = weightfs('ls', model / NAMES[1], code=program.EXIT_DAMAGED).error.split(': ', 1)[1]
    findings = json.loads(weightfs('check', '--json', '--force', model, code=1).stdout)['sources'][0]['findings']
    assert "shard '%s': %s" % (NAMES[1], alone) in [f['text'] for f in findings]


def test_metadata_of_shards_keeps_what_is_behind_a_nul(tmp_path):
    folder = tmp_path / 'model'
    folder.mkdir()
    text = json.dumps({'__metadata__': {'format': 'pt', 'n': 'x\0y'}, 'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]}}).encode()
    (folder / NAMES[0]).write_bytes(struct.pack('<Q', len(text)) + text + bytes(4))
    index(folder, {'a': NAMES[0]})
    assert json.loads(weightfs('info', '--json', folder).stdout)['sources'][0]['metadata']['n'] == 'x\0y'


@pytest.mark.parametrize('names, word', [
    (['saved_model.pb', 'variables'], 'SavedModel'), (['refs', 'snapshots'], 'snapshots/'),
    (['readme.txt'], 'without a checkpoint'), (['latest_checkpointed_iteration.txt', 'iter_0000010'], 'Megatron-LM'),
    (['mp_rank_00', 'mp_rank_01'], "model_optim_rng.pt in one of: 'mp_rank_00', 'mp_rank_01'"), (['weights/.metadata', 'context'], 'NeMo'),
    (['zero_to_fp32.py', 'latest', 'global_step10'], 'DeepSpeed'), (['pytorch_model_fsdp_0', 'optimizer_0'], "'pytorch_model_fsdp_0'")])
def test_a_directory_without_a_checkpoint_is_called_what_it_is(tmp_path, names, word):
    folder = tmp_path / 'folder'
    folder.mkdir()
    for each in names:
        (folder / each).parent.mkdir(exist_ok=True)
        (folder / each).write_bytes(b'x')
    assert word in weightfs('ls', folder, code=program.EXIT_SOURCE).error
