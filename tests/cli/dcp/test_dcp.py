# SPDX-License-Identifier: MIT
"""Distributed checkpoints of PyTorch: what six versions of torch wrote, what was damaged by hand, and layouts out of a dice cup."""
import hashlib
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from benchlib import distributed
from wfs_testlib import burnpack, dcp, program, pth, pth_read, shared, st
from wfs_testlib.program import EXIT_DAMAGED, EXIT_FOUND, EXIT_SOURCE, EXIT_UNSUPPORTED, weightfs

GOLDEN = shared.FOLDER / 'golden' / 'dcp'
EXPECTED = json.loads((GOLDEN / 'expected.json').read_text()) if shared.IS_THERE else {}
NAMES = sorted(name for name in EXPECTED if (GOLDEN / name).is_dir())
# Links are not kept in the copy: tests make them.
LINKED = {'ok-symlink', 'evil-path-symlink-out'}
COMPRESSED = {'zstd'}
# torch reads these as wrong numbers, or not at all, and nothing in them tells: other items of equal shape.
EXCHANGED = {'bad-swapped-entries': {'w'}, 'bad-swapped-files': {'w', 'h'}}
READ = [name for name in NAMES if EXPECTED[name]['proposal'] == 'reads' and not name.startswith('hf-') and name not in LINKED | COMPRESSED]
REFUSED = [name for name in NAMES if EXPECTED[name]['proposal'] != 'reads' and not name.startswith('hf-')]
QUICK = ['shard1', 'plain', 'several-shards-a-rank', 'safetensors-format', 'views-and-flags', 'ok-item-transposed', 'bad-hole', 'bad-item-dtype',
         'bad-overlap', 'bad-length-over-next', 'evil-path-parent', 'odd-two-chunks-one-item', 'rank-metadata', 'torch-1.13', 'ok-protocol-0']

need_shared = pytest.mark.usefixtures('need_shared')


def bad_keys(name):
    return set(EXPECTED[name].get('proposal_tensors', ()))


def listing(path, *options):
    return {tensor['key']: tensor for tensor in json.loads(weightfs('ls', '--json', *options, path).stdout)['tensors']}


@need_shared
@pytest.mark.parametrize('name', READ)
def test_every_tensor_is_listed_with_its_type_and_shape(name):
    found = listing(GOLDEN / name)
    tensors = EXPECTED[name]['tensors']
    assert {key: (found[key]['dtype'], found[key]['shape']) for key in tensors if key not in bad_keys(name)} == {
        key: (entry['dtype'], entry['shape']) for key, entry in tensors.items() if key not in bad_keys(name)}
    # What is in values has the name of its value before it.
    values = set(EXPECTED[name].get('values', ())) | {'step'}
    assert all(any(key == value or key.startswith(value + '.') for value in values) for key in set(found) - set(tensors)) or name in ('torch-1.13', 'same-key-differs')


def check_bytes(name):
    for key, entry in EXPECTED[name]['tensors'].items():
        if key in EXCHANGED.get(name, ()):
            continue
        if key in bad_keys(name):
            error = weightfs('cat', GOLDEN / name, '--', key, code=program.EXIT_RULES if name == 'bad-tensor-called-bytes' else EXIT_DAMAGED).error
            assert "'%s'" % key in error
        else:
            assert hashlib.sha256(weightfs('cat', GOLDEN / name, '--', key).raw).hexdigest() == entry['sha256'], key


@need_shared
@pytest.mark.parametrize('name', QUICK)
def test_bytes_are_what_was_saved_and_damage_is_told(name):
    check_bytes(name)


@need_shared
@pytest.mark.slow
@pytest.mark.parametrize('name', [name for name in READ if name not in QUICK])
def test_all_bytes_are_what_was_saved_and_damage_is_told(name):
    check_bytes(name)


@need_shared
@pytest.mark.parametrize('name', REFUSED)
def test_what_cannot_be_read_at_all_is_refused(name):
    error = weightfs('ls', GOLDEN / name, code=EXIT_DAMAGED).error
    assert '.metadata' in error


def plain(value):
    """A value of expected.json, or the same out of `config`; None where Python's spelling is all that there is."""
    if isinstance(value, dict):
        if '$float' in value:
            return {'inf': 'Infinity', '-inf': '-Infinity', 'nan': 'NaN'}[value['$float']]
        return None if any(key.startswith('$') for key in value) else {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def is_like(found, value):
    if value is None or isinstance(found, dict) and any(key.startswith('$') for key in found):
        return True
    if isinstance(value, list):
        return isinstance(found, list) and len(found) == len(value) and all(map(is_like, found, value))
    if isinstance(value, dict):
        return isinstance(found, dict) and found.keys() == value.keys() and all(is_like(found[key], value[key]) for key in value)
    return found == value and isinstance(found, bool) == isinstance(value, bool)


def has_tensor(value):
    return isinstance(value, dict) and ('$tensor' in value or any(map(has_tensor, value.values()))) or \
        isinstance(value, list) and any(map(has_tensor, value))


@need_shared
@pytest.mark.parametrize('name', [name for name in READ if EXPECTED[name].get('values') and name != 'same-key-differs'])
def test_values_have_their_names_and_content(name):
    found = json.loads(weightfs('config', GOLDEN / name).stdout)
    for key, value in EXPECTED[name]['values'].items():
        if has_tensor(value) or 'numpy' in key or key in bad_keys(name) or name == 'torch-1.13' or (name, key) == ('rank-metadata', 'cfg'):
            continue  # listed in parts
        assert key in found, key
        assert is_like(found[key], plain(value)), (key, found[key], value)


@need_shared
def test_links_are_followed_inside_of_the_directory_and_not_out_of_it(folder):
    whole = folder / 'deep' / 'whole'
    whole.mkdir(parents=True)
    for file in (GOLDEN / 'lowest-rank').iterdir():
        (whole / file.name).write_bytes(file.read_bytes())
    wanted = weightfs('cat', whole, 'w').raw
    os.rename(whole / '__1_0.distcp', whole / 'elsewhere')
    os.symlink('elsewhere', whole / '__1_0.distcp')
    assert weightfs('cat', whole, 'w').raw == wanted
    os.rename(whole / 'elsewhere', folder / 'outside')
    for target in ('../../outside', str(folder / 'outside')):
        os.unlink(whole / '__1_0.distcp')
        os.symlink(target, whole / '__1_0.distcp')
        error = weightfs('cat', whole, 'w', code=EXIT_DAMAGED).error
        assert "tensor 'w'" in error and "'__1_0.distcp': is a symbolic link out of the directory" in error
    assert weightfs('cat', whole, 'rep').raw


@need_shared
def test_a_part_or_the_metadata_leads_to_the_directory(folder):
    assert 'name its directory' in weightfs('ls', GOLDEN / 'plain' / '__0_0.distcp', code=EXIT_SOURCE).error
    assert weightfs('ls', GOLDEN / 'plain' / '.metadata').stdout == weightfs('ls', GOLDEN / 'plain').stdout


@need_shared
def test_compressed_items_are_called_so():
    error = weightfs('cat', GOLDEN / 'zstd', 'w', code=EXIT_DAMAGED).error
    assert "tensor 'w'" in error and 'compressed' in error and "'__0_0.distcp'" in error


@need_shared
def test_check_reads_the_checksums_of_the_items(folder):
    assert weightfs('check', GOLDEN / 'trainer').stdout == ''
    whole = folder / 'whole'
    whole.mkdir()
    for file in (GOLDEN / 'lowest-rank').iterdir():
        (whole / file.name).write_bytes(file.read_bytes())
    content = bytearray((whole / '__1_0.distcp').read_bytes())
    at = EXPECTED['lowest-rank']['chunks']['w'][1]
    assert at['file'] == '__1_0.distcp'
    content[at['data'] + 3] ^= 1
    (whole / '__1_0.distcp').write_bytes(content)
    assert "'__1_0.distcp': zip: entry archive/data/0 has the checksum" in weightfs('check', whole, code=EXIT_FOUND).stdout


# ---- directories made here ----

def make(folder, shape=(6, 4), boxes=(([0, 0], [3, 4]), ([3, 0], [3, 4])), **more):
    writer = dcp.Writer(folder / 'made')
    array = np.arange(np.prod(shape), dtype='<f4').reshape(shape)
    writer.tensor('w', 'F32', array, list(boxes), **more)
    return writer, array


def test_a_made_directory_is_read(folder):
    writer, array = make(folder)
    writer.value('cfg.lr', pth.number(3), ('cfg', 'lr'))
    writer.write()
    assert weightfs('cat', writer.folder, 'w').raw == array.tobytes()
    assert json.loads(weightfs('config', writer.folder).stdout) == {'cfg.lr': 3}


@pytest.mark.parametrize('protocol', [0, 1, 2, 3, 4, 5])
def test_every_protocol_of_the_metadata_is_read(folder, protocol):
    writer, array = make(folder)
    assert weightfs('cat', writer.write(protocol), 'w').raw == array.tobytes()


@pytest.mark.parametrize('boxes, text', [
    ([([0, 0], [3, 4]), ([3, 0], [2, 4])], 'no chunk has its elements [5:6, 0:4]'),
    ([([0, 0], [3, 4]), ([2, 0], [4, 4])], 'its chunks at [0, 0] and [2, 0] overlap'),
    ([([0, 0], [6, 2]), ([0, 2], [3, 2]), ([3, 2], [3, 1])], 'no chunk has its elements [3:6, 3:4]'),
    ([([0, 0], [3, 3]), ([0, 3], [3, 1]), ([2, 0], [4, 4])], 'overlap'),
    ([([0, 0], [6, 3]), ([0, 2], [6, 2])], 'its chunks at [0, 0] and [0, 2] overlap'),
])
def test_holes_and_overlaps_are_named(folder, boxes, text):
    writer, _ = make(folder, boxes=boxes)
    error = weightfs('cat', writer.write(), 'w', code=EXIT_DAMAGED).error
    assert "tensor 'w': " in error and text in error


def test_a_chunk_that_is_listed_twice_counts_once(folder):
    writer, array = make(folder, twice={1})
    assert weightfs('cat', writer.write(), 'w').raw == array.tobytes()


def test_the_rest_of_a_damaged_checkpoint_stays_usable(folder):
    writer, array = make(folder)
    writer.tensor('good', 'F32', array, [([0, 0], [6, 4])], n_files=1)
    writer.files['__1_0.distcp'][-20] ^= 255
    writer.write()
    assert weightfs('cat', writer.folder, 'good').raw == array.tobytes()
    assert "its chunk at [3, 0] in '__1_0.distcp'" in weightfs('cat', writer.folder, 'w', code=EXIT_DAMAGED).error
    error = weightfs('convert', writer.folder, folder / 'out.safetensors', code=program.EXIT_COMMIT).error
    assert "tensor 'w'" in error and "'__1_0.distcp'" in error
    weightfs('convert', '--exclude=^w$', writer.folder, folder / 'out.safetensors')


def test_items_that_were_not_looked_at_are_checked_when_they_are_read(folder):
    writer, array = make(folder)
    writer.files['__1_0.distcp'][-20] ^= 255
    writer.write()
    assert listing(writer.folder, '--limit=items=1')['w']['shape'] == [6, 4]
    error = weightfs('cat', '--limit=items=1', writer.folder, 'w', code=EXIT_DAMAGED).error
    assert "tensor 'w': its chunk at [3, 0] in '__1_0.distcp'" in error
    error = weightfs('convert', '--limit=items=1', writer.folder, folder / 'out.safetensors', code=program.EXIT_COMMIT).error
    assert "tensor 'w'" in error and "its chunk at [3, 0] in '__1_0.distcp'" in error


@pytest.mark.parametrize('limit, word', [('chunks=1', 'chunks'), ('metadata=100', 'metadata'), ('tensors=0', 'tensors'), ('files=1', 'files')])
def test_limits_name_themselves(folder, limit, word):
    writer, _ = make(folder)
    assert word in weightfs('ls', '--limit=' + limit, writer.write(), code=EXIT_UNSUPPORTED).error


def test_a_list_of_chunks_that_all_tensors_share_does_not_multiply(folder):
    """Half a million chunks, which a hundred tensors name: more than the limit, refused before memory is taken for them."""
    writer, _ = make(folder)
    chunks = [dcp.chunk([0, 0], [3, 4])] * 500000
    for i in range(100):
        writer.describe('t%d' % i, 'F32', (6, 4), chunks)
    assert 'limit chunks' in weightfs('ls', writer.write(), code=EXIT_UNSUPPORTED).error


def test_long_shapes_that_all_chunks_share_do_not_multiply(folder):
    """20,000 chunks name one tuple of 10,000 numbers: a file of 2 MB that would take 3 GB."""
    writer, _ = make(folder)
    ones, zeros = dcp.Size([1] * 10000), dcp.Size([0] * 10000)
    chunks = [dcp.Chunk(offsets=zeros, sizes=ones) for _ in range(20000)]
    writer.describe('t', 'F32', [1] * 10000, chunks)
    assert 'index_memory' in weightfs('ls', writer.write(), code=EXIT_UNSUPPORTED).error


def test_the_limit_of_metadata_is_for_all_ranks_together(folder):
    writer, _ = make(folder)
    content = writer.metadata()
    writer.write()
    (writer.folder / '.metadata').unlink()
    for rank in range(3):
        (writer.folder / ('__%d.metadata' % rank)).write_bytes(content)
    weightfs('ls', writer.folder)
    assert 'metadata' in weightfs('ls', '--limit=metadata=%d' % (2 * len(content)), writer.folder, code=EXIT_UNSUPPORTED).error


def test_a_path_of_the_planner_that_contradicts_its_key_is_not_followed(folder):
    writer, array = make(folder)
    box = [([0, 0], [6, 4])]
    writer.tensor('a.b', 'F32', array, box, path=('a', 'b'))
    writer.tensor('a', 'F32', array, box, path=('a',))
    writer.tensor('l.5', 'F32', array, box, path=('l', 5))
    writer.tensor('l.4000000', 'F32', array, box, path=('l', 4000000))
    writer.tensor('x', 'F32', array, box, path=('y',))
    writer.write()
    assert set(listing(writer.folder)) == {'w', 'a.b', 'a', 'l.5', 'l.4000000', 'x'}
    assert 'planner_data' in weightfs('check', writer.folder, code=EXIT_FOUND).stdout


def random_directory(folder, seed, n_tensors):
    """Tensors of one to four dimensions in uneven boxes, some listed twice, some stored by columns."""
    rng = np.random.default_rng(seed)
    writer, arrays = dcp.Writer(folder / ('random%d' % seed)), {}
    for i in range(n_tensors):
        shape = [int(rng.integers(1, (400, 40, 14, 8)[rank])) for rank in [int(rng.integers(4))] for _ in range(rank + 1)]
        dtype = list(dcp.KINDS)[int(rng.integers(len(dcp.KINDS)))]
        boxes = dcp.cut(rng, shape, int(rng.integers(0, 24)))
        array = arrays['t%d' % i] = dcp.random_array(rng, dtype, shape)
        some = [set(rng.choice(len(boxes), len(boxes) // 3, replace=False).tolist()) for _ in range(2)]
        writer.tensor('t%d' % i, dtype, array, boxes, n_files=3, twice=some[0], by_column=some[1])
    return writer.write(), arrays, rng


def check_random_reads(folder, seed, n_tensors, n_reads):
    path, arrays, rng = random_directory(folder, seed, n_tensors)
    with dcp.Library(path) as library:
        tensors = library.tensors()
        assert tensors.keys() == arrays.keys()
        for key, array in arrays.items():
            data = array.tobytes()
            assert library.read(tensors[key], 0, len(data)) == data, (seed, key)
            for _ in range(n_reads):
                first, last = sorted(rng.integers(0, len(data) + 1, 2).tolist())
                assert library.read(tensors[key], first, last - first) == data[first:last], (seed, key, first, last)


@pytest.mark.skipif(program.IS_INSTRUMENTED, reason='the library of this build cannot be loaded into Python')
def test_any_range_of_any_layout_is_what_numpy_has(folder):
    check_random_reads(folder, 1, 300, 8)


@pytest.mark.slow
@pytest.mark.skipif(program.IS_INSTRUMENTED, reason='the library of this build cannot be loaded into Python')
@pytest.mark.parametrize('seed', range(100, 110))
def test_any_range_of_ten_thousand_layouts_is_what_numpy_has(folder, seed):
    check_random_reads(folder, seed, 1000, 12)


# ---- conversions ----

NESTED = [name for name in READ if 'nested' in EXPECTED[name] and name not in ('same-key-differs', *EXCHANGED) and not bad_keys(name)]


def is_nested(found, wanted, tensors):
    """Whether what pth_read loads is what dcp_to_torch_save makes."""
    if isinstance(wanted, dict) and list(wanted) == ['$tensor']:
        if isinstance(wanted['$tensor'], dict):
            entry = wanted['$tensor']
        elif wanted['$tensor'] in tensors:
            entry = tensors[wanted['$tensor']]
        else:
            return isinstance(found, pth_read.Tensor)
        return isinstance(found, pth_read.Tensor) and (found.dtype, found.shape, found.sha256) == (entry['dtype'], entry['shape'], entry['sha256'])
    if isinstance(wanted, dict) and any(key.startswith('$') for key in wanted):
        return True
    if isinstance(wanted, dict):
        return type(found) is dict and set(found) == set(wanted) and all(is_nested(found[key], wanted[key], tensors) for key in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(is_nested(*pair, tensors) for pair in zip(found, wanted))
    return found == wanted or isinstance(found, pth_read.Thing)


@need_shared
@pytest.mark.parametrize('name', NESTED)
def test_a_pth_is_nested_as_dcp_to_torch_save_does_it(folder, name):
    weightfs('convert', GOLDEN / name, folder / 'out.pth')
    found = pth_read.load(folder / 'out.pth')
    wanted = EXPECTED[name]['nested']
    assert type(found) is dict and set(found) == set(wanted)
    for key in wanted:
        assert is_nested(found[key], wanted[key], EXPECTED[name]['tensors']), (key, found[key], wanted[key])


@need_shared
@pytest.mark.parametrize('name', ['shard1', 'mesh-2d', 'sharded-tensor', 'several-shards-a-rank', 'trainer-fsdp-tp', 'safetensors-format', 'tied'])
@pytest.mark.parametrize('ending', ['safetensors', 'bpk', 'set/'])
def test_other_formats_get_the_whole_tensors(folder, name, ending):
    target = folder / ('out.' + ending)
    weightfs('convert', *(['--format=safetensors', '--max-shard-size=200B'] if ending == 'set/' else []), GOLDEN / name,
             '%s/' % target if ending == 'set/' else target)
    tensors = {}
    for file in sorted(target.glob('*.safetensors')) if ending == 'set/' else [target]:
        if ending == 'bpk':
            tensors = {key: (tensor.dtype, list(tensor.shape), tensor.data) for key, tensor in burnpack.read(file).tensors.items()}
        else:
            tensors.update(st.read(file).tensors)
    assert {key: (list(shape), hashlib.sha256(data).hexdigest()) for key, (_, shape, data) in tensors.items()} == {
        key: (entry['shape'], entry['sha256']) for key, entry in EXPECTED[name]['tensors'].items()}


@need_shared
def test_a_set_of_many_dtypes_is_cast_and_renamed(folder):
    weightfs('convert', '--cast=F64', r'--remap=^h$=>head', GOLDEN / 'lowest-rank', folder / 'out.safetensors')
    found = st.read(folder / 'out.safetensors').tensors
    assert found['w'][0] == found['head'][0] == 'F64'
    wanted = np.frombuffer(weightfs('cat', GOLDEN / 'lowest-rank', 'w').raw, '<f4').astype('<f8')
    assert found['w'][2] == wanted.tobytes()


# ---- what is refused ----

REJECT = program.ROOT / 'tests' / 'data' / 'reject' / 'dcp'


@pytest.mark.parametrize('name', sorted(path.stem for path in REJECT.glob('*.metadata')))
def test_damage_gets_its_message(folder, name):
    whole = folder / 'whole'
    whole.mkdir()
    content, mark, beside = (REJECT / (name + '.metadata')).read_bytes().partition(b'meta.pt\n')
    (whole / '.metadata').write_bytes(content)
    if mark:
        (whole / 'meta.pt').write_bytes(beside)
    expect = json.loads((REJECT / (name + '.expect')).read_text())
    if expect['exit'] != 0:
        assert expect['message'] in weightfs('ls', whole, code=expect['exit']).error
        return
    for key, trouble in expect['tensors'].items():
        done = weightfs('cat', whole, key, code=EXIT_DAMAGED if trouble else 0)
        if trouble:
            assert "tensor '%s': " % key in done.error and trouble in done.error
    found = weightfs('check', whole, code=None).stdout
    assert all(text in found for text in expect.get('findings', ()))


# ---- parts in safetensors files ----

HF = [name for name in NAMES if name.startswith('hf-')]


@need_shared
@pytest.mark.parametrize('name', HF)
def test_parts_in_safetensors_files_are_whole_tensors(name):
    proposal = EXPECTED[name]['proposal']
    if proposal != 'reads':
        error = weightfs('ls', GOLDEN / name, code=EXIT_DAMAGED).error
        assert 'DCP_SHARDING_INFO' in error and "'shard-00002-model-00001-of-00001.safetensors'" in error
        return
    found = listing(GOLDEN / name)
    assert found.keys() == EXPECTED[name]['tensors'].keys()
    for key, entry in EXPECTED[name]['tensors'].items():
        if key in bad_keys(name):
            assert "tensor '%s': " % key in weightfs('cat', GOLDEN / name, key, code=EXIT_DAMAGED).error
            continue
        assert (found[key]['dtype'], found[key]['shape']) == (entry['dtype'], entry['shape'])
        assert hashlib.sha256(weightfs('cat', GOLDEN / name, '--', key).raw).hexdigest() == entry['sha256'], key


@need_shared
def test_parts_become_one_file_and_one_part_is_called_so(folder):
    weightfs('convert', GOLDEN / 'hf-mesh-2d', folder / 'out.safetensors')
    assert {key: hashlib.sha256(tensor[2]).hexdigest() for key, tensor in st.read(folder / 'out.safetensors').tensors.items()} == {
        key: entry['sha256'] for key, entry in EXPECTED['hf-mesh-2d']['tensors'].items()}
    part = GOLDEN / 'hf-mesh-2d' / 'shard-00002-model-00001-of-00001.safetensors'
    assert 'its tensors are parts of larger ones' in weightfs('check', part, code=EXIT_FOUND).stdout
    assert 'its tensors are parts' not in weightfs('check', GOLDEN / 'hf-rank0', code=None).stdout


# ---- small objects, of which the reader makes no graph where all is as usual ----

NUMBERS = [True, None, 1.0, '1', b'1', -1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -2**31, -2**31 - 1, 2**40, 2**56 + 1, -2**56, 2**63 - 1, -2**63, 2**63, 2**64]
HALVES = [([0, 0], [2, 3]), ([2, 0], [2, 3])]


def change(thing, **attributes):
    thing.__dict__.update(attributes)


def remove(thing, name):
    del thing.__dict__[name]


# What becomes of a chunk, its MetadataIndex and its _StorageInfo.
ODDITIES = [
    lambda chunk, index, info: change(chunk, offsets=tuple(chunk.offsets)),
    lambda chunk, index, info: change(chunk, offsets=list(chunk.offsets)),
    lambda chunk, index, info: change(chunk, offsets=dcp.Size((tuple(chunk.offsets),))),
    lambda chunk, index, info: change(chunk, offsets=dcp.Size(()), sizes=dcp.Size(())),
    lambda chunk, index, info: change(chunk, offsets=dcp.Size((0,) * 5), sizes=dcp.Size((2,) * 5)),
    lambda chunk, index, info: change(chunk, offsets=dcp.Size((0,) * 70), sizes=dcp.Size((2,) * 70)),
    lambda chunk, index, info: change(chunk, sizes=chunk.offsets),
    lambda chunk, index, info: change(chunk, more=True),
    lambda chunk, index, info: change(chunk, more={'sizes': 'x' * 300, 'list': [1, (2, 3)]}),
    lambda chunk, index, info: change(chunk, more=dcp.chunk((0, 0), (4, 3))),
    lambda chunk, index, info: change(chunk, more=dcp.Metadata),
    lambda chunk, index, info: remove(chunk, 'offsets'),
    lambda chunk, index, info: remove(chunk, 'sizes'),
    lambda chunk, index, info: change(index, offset=tuple(index.offset)),
    lambda chunk, index, info: change(index, offset=None),
    lambda chunk, index, info: remove(index, 'offset'),
    lambda chunk, index, info: change(index, offset=chunk.offsets),
    lambda chunk, index, info: change(index, index=2**70),
    lambda chunk, index, info: change(index, fqn='x' * 300),
    lambda chunk, index, info: change(info, relative_path='\u00e9.distcp'),
    lambda chunk, index, info: change(info, relative_path='__0\udc80.distcp'),
    lambda chunk, index, info: change(info, transform_descriptors=None),
    lambda chunk, index, info: change(info, transform_descriptors=['stream.zstd/1']),
    lambda chunk, index, info: remove(info, 'relative_path'),
    lambda chunk, index, info: remove(info, 'length'),
    *(lambda chunk, index, info, number=number: change(chunk, offsets=dcp.Size((number, 0))) for number in NUMBERS),
    *(lambda chunk, index, info, number=number: change(chunk, sizes=dcp.Size((2, number))) for number in NUMBERS),
    *(lambda chunk, index, info, number=number: change(index, offset=dcp.Size((number, 0)))
      for number in NUMBERS if type(number) is int and abs(number) < 2**63),
    *(lambda chunk, index, info, number=number: change(info, offset=number) for number in NUMBERS),
    *(lambda chunk, index, info, number=number: change(info, length=number) for number in NUMBERS),
    *(lambda chunk, index, info, number=number: change(info, relative_path=number) for number in NUMBERS),
]
# Nothing of such a directory is read.
FATAL = [
    lambda chunk, index, info: change(index, fqn=1),
    lambda chunk, index, info: change(index, fqn=None),
    lambda chunk, index, info: change(index, offset=dcp.Size((2**63, 0))),
    lambda chunk, index, info: change(index, offset=dcp.Size((True, 0))),
    lambda chunk, index, info: change(index, offset=[0, 0]),
]


def oddly_made(folder, oddities, protocol):
    """A directory with a tensor for each oddity. Returns what the program says of it."""
    writer, array = dcp.Writer(folder / ('protocol%d' % protocol)), np.arange(12, dtype='<f4').reshape(4, 3)
    writer.tensor('first', 'F32', array, HALVES)
    for i, oddity in enumerate(oddities):
        chunks = [dcp.chunk(*half) for half in HALVES]
        for rows in (0, 2):
            writer.put('odd%d' % i, [rows, 0], '__%d_0.distcp' % i, dcp.item('F32', array[rows:rows + 2]))
        writer.describe('odd%d' % i, 'F32', array.shape, chunks)
        oddity(chunks[i % 2], *list(writer.storage.items())[-2 + i % 2])
    writer.tensor('last', 'F32', array, HALVES)
    path = writer.write(protocol)
    results = [weightfs(*command, code=None, has_notices=True) for command in (('ls', '--json', path), ('check', path), ('cat', path, 'last'))]
    return [(result.code, result.raw.replace(path.name.encode(), b''), result.stderr.replace(path.name, '')) for result in results], array


def test_unusual_small_objects_are_read_as_those_of_protocol_2(folder):
    """Protocol 2, whose memo is numbered by hand, makes a graph of each object."""
    wanted, array = oddly_made(folder, ODDITIES, 2)
    assert wanted[2][1] == array.tobytes(), wanted[2]
    assert wanted[1][1].count(b'odd') > 100  # most of them are damaged
    for protocol in (4, 5):
        assert oddly_made(folder, ODDITIES, protocol)[0] == wanted


@pytest.mark.parametrize('oddity', FATAL)
def test_a_key_of_storage_data_that_is_not_one_is_fatal(folder, oddity):
    for protocol in (2, 4):
        found, _ = oddly_made(folder, [oddity], protocol)
        assert all(code == EXIT_DAMAGED and 'a key of its storage_data is not a MetadataIndex' in error for code, _, error in found)


# ---- many chunks ----

@pytest.mark.skipif(program.IS_INSTRUMENTED, reason='a sanitizer needs much more memory')
def test_a_million_small_objects_are_read_in_little_memory(folder):
    """64 ranks and 1,000 tensors: 192,000 objects out of 5 million opcodes, each chunk by about 240 bytes; a graph of them takes twice that."""
    distributed.write_ranks(str(folder / 'ranks'), 64, distributed.layer_names(1000), 64, 64, n_filled=4)
    out = program.tool('prlimit', '--as=%d' % (36 << 20), *program.COMMAND, 'ls', folder / 'ranks').stdout
    assert out.count('\n') == 1000
    whole = weightfs('cat', folder / 'ranks', 'model.layers.3.weight').raw  # cut by columns
    row = weightfs('cat', folder / 'ranks', 'model.layers.2.weight').raw
    part = row[:64 * 4]
    assert row == part * 64
    assert whole == b''.join(part[4 * i:4 * i + 4] * 64 for i in range(64))


@pytest.mark.skipif(program.IS_INSTRUMENTED, reason='a sanitizer needs much more memory')
def test_thousands_of_transposed_chunks_take_little_memory(folder):
    writer = dcp.Writer(folder / 'made')
    array = np.arange(24000, dtype='<f4').reshape(6000, 4)
    boxes = [([2 * i, 0], [2, 4]) for i in range(3000)]
    writer.tensor('w', 'F32', array, boxes, by_column=set(range(3000)))
    writer.write()
    out = program.tool('prlimit', '--as=%d' % (128 << 20), *program.COMMAND, 'cat', writer.folder, 'w')
    assert out.raw == array.tobytes()


@need_shared
@pytest.mark.slow
def test_two_thousand_tensors_in_eight_thousand_items(folder):
    program.tool('tar', '-xf', GOLDEN / 'many.tar.xz', '-C', folder)
    weightfs('convert', folder / 'many', folder / 'out.safetensors')
    assert {key: hashlib.sha256(tensor[2]).hexdigest() for key, tensor in st.read(folder / 'out.safetensors').tensors.items()} == {
        key: entry['sha256'] for key, entry in EXPECTED['many']['tensors'].items()}


# ---- what is read and copied ----

need_strace = pytest.mark.skipif(shutil.which('strace') is None or program.IS_INSTRUMENTED,
                                 reason='needs strace, under which LeakSanitizer does not work')


def traced(folder, call, *args):
    """Bytes that a system call moved from the files with the parts."""
    trace = folder / 'trace'
    subprocess.run(['strace', '-f', '-qq', '-y', '-o', trace, '-e', 'trace=' + call, *program.COMMAND, *args],
                   check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=program.PATIENCE)
    return sum(map(int, re.findall(call + r'\(\d+<[^>]*\.distcp>.* = (\d+)$', trace.read_text(), re.MULTILINE)))


def parted(folder, n_parts=16):
    """Two tensors of 1 MiB, one in parts by rows and one in parts by columns."""
    array, n = np.arange(1 << 18, dtype='<f4').reshape(512, 512), 512 // n_parts
    writer = dcp.Writer(folder / 'parted')
    writer.tensor('rows', 'F32', array, [([i * n, 0], [n, 512]) for i in range(n_parts)])
    writer.tensor('columns', 'F32', array, [([0, i * n], [512, n]) for i in range(n_parts)])
    return writer.write(), array


@need_strace
@pytest.mark.parametrize('key', ['rows', 'columns'])
def test_one_tensor_costs_about_the_bytes_that_it_has(folder, key):
    path, array = parted(folder)
    assert weightfs('cat', path, key).raw == array.tobytes()
    n_bytes = traced(folder, 'pread64', 'cat', '--limit=items=0', path, key)
    assert array.nbytes <= n_bytes <= array.nbytes + 16 * 20000


@need_strace
def test_parts_by_rows_are_copied_by_the_kernel(folder):
    path, array = parted(folder)
    n_bytes = traced(folder, 'copy_file_range', 'convert', path, folder / 'out.safetensors')
    tensors = st.read(folder / 'out.safetensors').tensors
    assert all(tensors[key][2] == array.tobytes() for key in ('rows', 'columns'))
    assert n_bytes == array.nbytes


def test_parts_that_are_no_range_are_not_copied_as_one(folder):
    """Rows and boxes beside each other, small parts, and one that is stored by columns."""
    array = np.arange(512 * 512, dtype='<f4').reshape(512, 512)
    writer = dcp.Writer(folder / 'made')
    boxes = [([0, 0], [128, 512]), ([128, 0], [1, 512]), ([129, 0], [127, 300]), ([129, 300], [127, 212]), ([256, 0], [128, 512]), ([384, 0], [128, 512])]
    writer.tensor('w', 'F32', array, boxes, by_column={4})
    writer.tensor('scalar', 'F32', np.array(5, '<f4'), [([], [])])
    weightfs('convert', writer.write(), folder / 'out.safetensors')
    tensors = st.read(folder / 'out.safetensors').tensors
    assert (tensors['w'][2], tensors['scalar'][2]) == (array.tobytes(), np.array(5, '<f4').tobytes())
