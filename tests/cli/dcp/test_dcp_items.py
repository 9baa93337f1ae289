# SPDX-License-Identifier: MIT
"""Items of distributed checkpoints that are more than dense tensors and leaves: dicts that were not flattened, quantized tensors, tensors of a
class of its own; and the files beside a checkpoint that go with it."""
import json
import os

import pytest

from wfs_testlib import dcp, dcp_read, program, pth, pth_read
from wfs_testlib.program import weightfs

QINT8 = pth.storage('0', pth.name('torch', 'QInt8Storage'), 4)
QUANTIZER = pth.tup(pth.name('torch', 'per_tensor_affine'), b'G' + bytes([0x3f, 0xe0, 0, 0, 0, 0, 0, 0]), pth.number(3))
QUANTIZED = pth.call(pth.name('torch._utils', '_rebuild_qtensor'), QINT8, pth.number(0), pth.numbers((4,)), pth.numbers((1,)), QUANTIZER, b'\x89', pth.ORDERED)
OF_TYPE = pth.call(pth.name('torch._tensor', '_rebuild_from_type_v2'), pth.name('torch._utils', '_rebuild_wrapper_subclass'),
                   pth.name('torchao.quantization', 'Int8Tensor'),
                   pth.tup(pth.name('torchao.quantization', 'Int8Tensor'), pth.name('torch', 'float32'), pth.numbers((4,)), pth.numbers((1,)), pth.number(0),
                           b'N', b'N', b'\x89'),
                   pth.dictionary(qdata=pth.tensor(), scale=pth.tensor(size=(1,)), block=pth.number(7)))


def keys(path):
    return [line.split('\t')[0] for line in weightfs('ls', path).stdout.splitlines()]


def unflattened(folder, planner=False):
    """As DefaultSavePlanner(flatten_state_dict=False) and Megatron-core's ShardedObject write it."""
    writer = dcp.Writer(folder)
    writer.value('rng/shard_0_1', b'](' + pth.dictionary(state=pth.tensor(), n=pth.number(5)) + b'e')
    writer.value('plain/shard_0_1', pth.dictionary(it=pth.number(7)))
    writer.value('alone', pth.tensor())
    writer.value('empty', b'}')
    if not planner:
        writer.planner = None
    return writer.write()


@pytest.mark.parametrize('planner', [False, True])
def test_a_value_of_one_item_stays_one(tmp_path, planner):
    source = unflattened(tmp_path / 'a', planner)
    weightfs('convert', '--format=dcp', source, tmp_path / 'b')
    found = dcp_read.entries(tmp_path / 'b')
    assert list(found) == ['rng/shard_0_1', 'plain/shard_0_1', 'alone', 'empty']
    assert found['plain/shard_0_1'].value == {'it': 7} and found['empty'].value == {}
    assert found['rng/shard_0_1'].value[0]['n'] == 5 and isinstance(found['rng/shard_0_1'].value[0]['state'], pth_read.Tensor)


def test_an_edited_value_of_one_item_stays_one(tmp_path):
    source = unflattened(tmp_path / 'a')
    weightfs('edit', '--format=dcp', '--set-value=plain/shard_0_1={"it": 8, "more": {"x": 1}}', source, tmp_path / 'b')
    found = dcp_read.entries(tmp_path / 'b')
    assert found['plain/shard_0_1'].value == {'it': 8, 'more': {'x': 1}} and len(found) == 4


def test_a_nested_pth_is_flattened_as_before(tmp_path):
    (tmp_path / 'a.pth').write_bytes(pth.checkpoint(pth.dictionary(a=pth.dictionary(w=pth.tensor(), n=pth.number(1)))))
    weightfs('convert', '--format=dcp', tmp_path / 'a.pth', tmp_path / 'b')
    assert list(dcp_read.entries(tmp_path / 'b')) == ['a.w', 'a.n']


def of_one_item(folder, opcodes, dtype, n_chunks=1):
    writer = dcp.Writer(folder)
    for i in range(n_chunks):
        writer.put('w', (4 * i,), '__0_0.distcp', pth.checkpoint(opcodes, r0=bytes(range(16 if dtype == 'float32' else 4))))
    properties = dcp.TensorProperties(dcp.DTYPES[dtype], None, False, None, False)
    writer.state['w'] = dcp.Tensor(properties=properties, size=dcp.Size((4 * n_chunks,)), chunks=[dcp.chunk((4 * i,), (4,)) for i in range(n_chunks)])
    writer.planner['w'] = ('w',)
    writer.value('step', pth.number(1))
    return writer.write()


def test_a_quantized_item_keeps_its_scale_and_zero_point(tmp_path):
    source = of_one_item(tmp_path / 'a', QUANTIZED, 'qint8')
    assert keys(source) == ['w'] and weightfs('cat', source, 'w').raw == bytes(range(4))
    assert "'w'" in weightfs('check', source).stdout
    weightfs('convert', source, tmp_path / 'b.pth')
    (alone := tmp_path / 'alone.pth').write_bytes(pth.checkpoint(pth.dictionary(w=QUANTIZED), r0=bytes(range(4))))
    found, wanted = pth_read.load(tmp_path / 'b.pth')['w'], pth_read.load(alone)['w']
    assert found.data == wanted.data and found.state[1:] == wanted.state[1:] == (0.5, 3)
    error = weightfs('convert', '--format=dcp', source, tmp_path / 'c', code=program.EXIT_COMMIT).error
    assert "'w' is quantized" in error and not (tmp_path / 'c').exists()


def test_quantized_parts_are_not_joined(tmp_path):
    """Each has a scale of its own."""
    source = of_one_item(tmp_path / 'a', QUANTIZED, 'qint8', 2)
    assert 'quantized' in weightfs('check', source, code=1).stdout
    weightfs('convert', source, tmp_path / 'b.safetensors', code=program.EXIT_COMMIT)


def test_a_tensor_of_a_class_of_its_own_is_shown_in_parts(tmp_path):
    source = of_one_item(tmp_path / 'a', OF_TYPE, 'float32')
    assert keys(source) == ['w.qdata', 'w.scale']
    findings = json.loads(weightfs('check', '--json', source, code=None).stdout)['sources'][0]['findings']
    assert any("'w'" in finding['text'] for finding in findings)
    weightfs('convert', source, tmp_path / 'b.safetensors', has_notices=True)
    assert "'w'" in weightfs('convert', '--format=dcp', source, tmp_path / 'c', code=program.EXIT_COMMIT).error
    weightfs('convert', source, tmp_path / 'b.pth', has_notices=True)
    assert keys(tmp_path / 'b.pth') == ['w.qdata', 'w.scale']


BESIDE = {'metadata.json': b'{"sharded_backend": "torch_dist"}', 'common.pt': pth.checkpoint(pth.dictionary(iteration=pth.number(7)))}


def test_files_beside_a_checkpoint_follow_it(tmp_path):
    source = unflattened(tmp_path / 'a')
    for name, content in BESIDE.items():
        (source / name).write_bytes(content)
    for _ in range(2):
        weightfs('convert', '--overwrite', '--format=dcp', source, tmp_path / 'b')
        assert {name: (tmp_path / 'b' / name).read_bytes() for name in BESIDE} == BESIDE
    assert os.stat(tmp_path / 'b/common.pt').st_nlink == 1  # an edit of one is not one of the other
    weightfs('convert', '--overwrite', '--format=dcp', source, source)
    assert {name: (source / name).read_bytes() for name in BESIDE} == BESIDE


def test_a_file_beside_another_checkpoint_is_not_replaced(tmp_path):
    source = unflattened(tmp_path / 'a')
    (source / 'common.pt').write_bytes(BESIDE['common.pt'])
    target = unflattened(tmp_path / 'b')
    (target / 'common.pt').write_bytes(b'other')
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    assert "'common.pt'" in weightfs('convert', '--overwrite', '--format=dcp', source, target, code=program.EXIT_COMMIT).error
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before


# ---- links ----

def linked(folder, links):
    """A directory whose files are links: {its name: what the link says, or None for a file of its own}."""
    made = unflattened(folder.parent / 'made')
    folder.mkdir(parents=True)
    for path in made.iterdir():
        text = links(path.name)
        target = folder / os.path.dirname(text) / os.path.basename(text)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
        (folder / path.name).symlink_to(text)
    return folder


KEYS = ['rng/shard_0_1.0.state', 'alone']


@pytest.mark.parametrize('below', ['', 'step-10/'])
def test_a_snapshot_in_the_cache_of_hugging_face_is_read_in_place(tmp_path, below):
    entry = tmp_path / 'models--org--name'
    folder = linked(entry / 'snapshots/0123abc' / below, lambda name: '../' * (2 + bool(below)) + 'blobs/%d' % (name == '.metadata'))
    assert keys(folder) == KEYS
    os.rename(entry / 'snapshots', entry / 'other')  # not a cache any more
    assert 'symbolic link' in weightfs('ls', entry / 'other/0123abc' / below, code=None).error


def test_a_file_of_a_directory_beside_is_read(tmp_path):
    assert keys(linked(tmp_path / 'step-20', lambda name: '../step-10/' + name)) == KEYS


@pytest.mark.parametrize('text', ['../../elsewhere/x', '../../../blobs/x', '../step-10/../../x'])
def test_other_links_are_not_followed(tmp_path, text):
    folder = linked(tmp_path / 'a/b/step-20', lambda name: text)
    assert 'symbolic link out of the directory' in weightfs('ls', folder, code=None).error


@pytest.mark.skipif(os.geteuid() != 0, reason='root makes files of other users')
def test_a_link_to_a_file_of_another_user_is_not_followed(tmp_path):
    folder = linked(tmp_path / 'step-20', lambda name: '../step-10/' + name)
    os.chown(tmp_path / 'step-10/.metadata', 1234, 1234)
    assert 'symbolic link out of the directory' in weightfs('ls', folder, code=None).error
