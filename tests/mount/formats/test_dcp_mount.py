# SPDX-License-Identifier: MIT
"""Mounts of distributed checkpoints: whole tensors as files, edits of them, and commits to other formats."""
import concurrent.futures
import hashlib
import json
import os

import numpy as np
import pytest

from wfs_testlib import dcp, dcp_read, pth, pth_read, shared, st
from wfs_testlib.program import EXIT_USAGE, tool, weightfs

GOLDEN = shared.FOLDER / 'golden' / 'dcp'
EXPECTED = json.loads((GOLDEN / 'expected.json').read_text()) if shared.IS_THERE else {}
QUICK = ['mesh-2d', 'trainer', 'views-and-flags', 'rank-metadata', 'ok-subdirectory', 'bad-overlap', 'evil-path-absolute']
SLOW = [name for name in sorted(EXPECTED) if EXPECTED[name]['proposal'] == 'reads' and (GOLDEN / name).is_dir() and name not in QUICK and
        not name.startswith('hf-') and name not in ('zstd', 'ok-symlink', 'evil-path-symlink-out', 'bad-swapped-entries', 'bad-swapped-files',
                                                    'bad-tensor-called-bytes', 'same-key-differs')]


def check(mount, name):
    mnt = mount(GOLDEN / name, 'layout=flat').allow('cannot be read|cannot read tensor|can run any code|planner_data|order of elements')
    bad = EXPECTED[name].get('proposal_tensors', ())
    for key, entry in EXPECTED[name]['tensors'].items():
        path = mnt / key.replace('/', '%2F')
        if key in ('', '../x'):
            continue  # spelled otherwise
        if key in bad:
            if name != 'bad-size-overflow':  # no file has such a size: it is empty
                with pytest.raises(OSError), open(path, 'rb') as file:
                    file.read(16)
        else:
            assert hashlib.sha256(path.read_bytes()).hexdigest() == entry['sha256'], key


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('name', QUICK)
def test_a_mount_has_whole_tensors(mount, name):
    check(mount, name)


@pytest.mark.slow
@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('name', SLOW)
def test_all_directories_can_be_mounted(mount, name):
    check(mount, name)


@pytest.fixture
def made(folder):
    rng = np.random.default_rng(3)
    writer = dcp.Writer(folder / 'made')
    writer.array = rng.standard_normal([60, 70]).astype('<f4')
    writer.tensor('model.w', 'F32', writer.array, dcp.cut(rng, [60, 70], 9), path=('model', 'w'))
    writer.tensor('model.b', 'I16', np.arange(9, dtype='<i2'), [([0], [4]), ([4], [5])], path=('model', 'b'))
    writer.tensor('opt.0.m', 'U8', np.arange(6, dtype='u1'), [([0], [6])], path=('opt', 0, 'm'))
    writer.value('opt.0.lr', pth.number(3), path=('opt', 0, 'lr'))
    writer.value('step', pth.number(7))
    writer.write()
    return writer


def test_edits_are_committed_to_a_nested_pth(mount, made, folder):
    mnt = mount(made.folder, 'output=%s' % (folder / 'out.pth'))
    assert (mnt / 'model/w').read_bytes() == made.array.tobytes()
    (mnt / 'model/b').write_bytes(np.arange(9, dtype='<i2')[::-1].tobytes())
    tool('mv', mnt / 'model/w', mnt / 'model/weight')
    tool('rm', mnt / 'opt/0/m')
    tool('cp', '-a', mnt / 'model/b', mnt / 'model/copy')
    mnt.commit()
    found = pth_read.load(folder / 'out.pth')
    assert set(found) == {'model', 'opt', 'step'} and found['step'] == 7
    assert set(found['model']) == {'weight', 'b', 'copy'}
    assert list(found['model']['weight']) == ['F32', [60, 70], made.array.tobytes()]
    assert list(found['model']['b']) == list(found['model']['copy']) == ['I16', [9], np.arange(9, dtype='<i2')[::-1].tobytes()]
    assert found['opt'] == [{'lr': 3}]


def test_edits_are_committed_to_safetensors(mount, made, folder):
    mnt = mount(made.folder, 'output=%s' % (folder / 'out.safetensors'), 'cast=F64')
    with open(mnt / 'model/w', 'r+b') as file:
        file.seek(8 * 71)
        file.write(np.float64(4.5).tobytes())
    mnt.commit()
    found = st.read(folder / 'out.safetensors').tensors
    wanted = made.array.astype('<f8')
    wanted[1, 1] = 4.5
    assert found['model.w'] == ('F64', [60, 70], wanted.tobytes())
    assert found['opt.0.m'] == ('U8', [6], bytes(range(6)))


def test_a_file_that_changes_under_a_mount_is_an_error(mount, made):
    mnt = mount(made.folder).allow('has changed since it was mounted')
    with open(made.folder / '__1_0.distcp', 'r+b') as file:
        file.write(b'x')
    with pytest.raises(OSError):
        (mnt / 'model/w').read_bytes()
    assert (mnt / 'opt/0/m').read_bytes() == bytes(range(6))


def test_rw_needs_another_output(folder, made):
    """Also where a file lies beside it that would be the checkpoint of any other directory."""
    (folder / 'mnt').mkdir()
    for beside in (None, 'model.safetensors', 'other.pt'):
        if beside is not None:
            (made.folder / beside).write_bytes(b'x')
        error = weightfs(made.folder, folder / 'mnt', '-f', '-o', 'rw', code=EXIT_USAGE).error
        assert 'output=' in error and 'format=NAME' in error


@pytest.mark.usefixtures('need_shared')
def test_the_metadata_can_be_mounted_for_its_directory(mount):
    mnt = mount(GOLDEN / 'mesh-2d' / '.metadata', 'layout=flat')
    for key, entry in EXPECTED['mesh-2d']['tensors'].items():
        assert hashlib.sha256((mnt / key).read_bytes()).hexdigest() == entry['sha256'], key


def test_chunks_are_opened_by_many_readers_at_once(mount, folder):
    """Nothing was opened when the mount was made: eight readers find the same chunks unopened."""
    rng = np.random.default_rng(5)
    writer, arrays = dcp.Writer(folder / 'made'), {}
    for i in range(24):
        arrays['t%d' % i] = array = dcp.random_array(rng, 'F32', [200, 50])
        writer.tensor('t%d' % i, 'F32', array, dcp.cut(rng, [200, 50], 30), by_column=set(range(0, 30, 3)))
    mnt = mount(writer.write(), 'limit.items=0')
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for key, data in pool.map(lambda key: (key, (mnt / key).read_bytes()), sorted(arrays) * 3):
            assert data == arrays[key].tobytes(), key


def test_edits_are_committed_to_a_distributed_checkpoint(mount, made, folder):
    """Twice: the files of the first commit go."""
    mnt = mount(made.folder, 'output=%s' % (folder / 'out'), 'format=dcp')
    (mnt / 'model/b').write_bytes(np.arange(9, dtype='<i2')[::-1].tobytes())
    tool('mv', mnt / 'model/w', mnt / 'model/weight')
    (mnt / 'step.json').write_text('8\n')
    mnt.commit()
    assert sorted(name for name in os.listdir(folder / 'out') if 'weightfs' not in name) == ['.metadata', '__0_0.distcp']
    found = dcp_read.load(folder / 'out')
    assert list(found['model']['weight']) == ['F32', [60, 70], made.array.tobytes()] and 'w' not in found['model']
    assert list(found['model']['b']) == ['I16', [9], np.arange(9, dtype='<i2')[::-1].tobytes()]
    assert found['opt'][0]['lr'] == 3 and found['step'] == 8
    tool('rm', mnt / 'opt/0/m')
    mnt.commit()
    assert dcp_read.load(folder / 'out')['opt'] == [{'lr': 3}]
    mnt.unmount()
    assert sorted(os.listdir(folder / 'out')) == ['.metadata', '__0_1.distcp']


def test_a_safetensors_file_is_committed_to_a_distributed_checkpoint_in_files_of_a_size(mount, folder):
    st.write(folder / 'in.safetensors', {'t%d' % i: ('U8', [100], bytes([i]) * 100) for i in range(4)})
    mnt = mount(folder / 'in.safetensors', 'output=%s/' % (folder / 'out'), 'format=dcp', 'max_shard_size=200')
    (mnt / 't2').write_bytes(b'x' * 100)
    mnt.commit()
    found = dcp_read.entries(folder / 'out')
    assert [(key, entry.file, entry.value.data[:1]) for key, entry in found.items()] == [
        ('t0', '__0_0.distcp', b'\0'), ('t1', '__0_0.distcp', b'\1'), ('t2', '__0_1.distcp', b'x'), ('t3', '__0_1.distcp', b'\3')]


def test_an_edited_value_with_an_empty_dict_is_not_left_out_in_silence(mount, made, folder):
    mnt = mount(made.folder, 'output=%s' % (folder / 'out'), 'format=dcp').allow("value 'step' was edited, and has an empty dict")
    (mnt / 'step.json').write_text('{"a": {}}\n')
    mnt.commit(code=1)
    assert not (folder / 'out' / '.metadata').exists()
    (mnt / 'step.json').write_text('{"a": [1, {"b": 2}]}\n')
    mnt.commit()
    assert dcp_read.load(folder / 'out')['step'] == {'a': [1, {'b': 2}]}


@pytest.mark.parametrize('options', [['rw'], ['overwrite', 'format=dcp', 'output=%s']])
def test_the_mounted_checkpoint_itself_is_not_replaced(folder, made, options):
    """Its files are the base of edits that are still to come."""
    (folder / 'mnt').mkdir()
    options = [option % made.folder if '%' in option else option for option in options]
    error = weightfs(made.folder / '.metadata', folder / 'mnt', '-f', '-o', ','.join(options), code=EXIT_USAGE).error
    assert 'cannot replace the distributed checkpoint' in error and 'another directory' in error
    assert sorted(os.listdir(made.folder)) == sorted(['.metadata', *made.files])
