# SPDX-License-Identifier: MIT
"""Views through a mount: what is shown, in any piece, what a commit writes of it, and what the reports say."""
import array
import json
import os
import random
import struct

import pytest

from wfs_testlib import pth, pth_read, shared, st

N_ROWS, N_COLUMNS = 500, 700


@pytest.fixture
def matrix(folder):
    """A matrix whose element i is i, beside what makes its module certain; and its transpose as bytes."""
    values = array.array('f', range(N_ROWS * N_COLUMNS))
    path = folder / 'in.safetensors'
    st.write(path, {'fc.weight': ('F32', [N_ROWS, N_COLUMNS], values.tobytes()),
                    'fc.bias': ('F32', [N_ROWS], bytes(4 * N_ROWS)),
                    'norm.weight': ('F32', [4], st.f32(1, 2, 3, 4))})
    turned = array.array('f')
    for column in range(N_COLUMNS):
        turned.extend(values[column::N_COLUMNS])
    return path, turned.tobytes()


def read(path, offset, n_bytes):
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, n_bytes, offset)
    finally:
        os.close(fd)


@pytest.mark.parametrize('n_bytes', [4096, 131072, 1 << 20])
def test_a_transposed_matrix_in_pieces(mount, matrix, n_bytes):
    path, wanted = matrix
    mnt = mount(path, 'to=burn')
    shown = mnt / 'fc/weight'
    assert os.getxattr(shown, 'user.weightfs.shape') == b'[%d, %d]' % (N_COLUMNS, N_ROWS)
    pieces = [read(shown, offset, n_bytes) for offset in range(0, len(wanted), n_bytes)]
    assert b''.join(pieces) == wanted


def test_a_transposed_matrix_at_any_place(mount, matrix):
    path, wanted = matrix
    mnt = mount(path, 'transpose=^fc\\\\.weight')
    chance = random.Random(1)
    for _ in range(200):
        offset, n_bytes = chance.randrange(len(wanted)), chance.randrange(1, 70000)
        assert read(mnt / 'fc/weight', offset, n_bytes) == wanted[offset:offset + n_bytes]


def test_casts_are_seen_in_sizes(mount, matrix):
    path, _ = matrix
    mnt = mount(path, 'cast=BF16')
    assert (mnt / 'norm/weight').stat().st_size == 8
    assert struct.unpack('<4H', (mnt / 'norm/weight').read_bytes()) == (0x3f80, 0x4000, 0x4040, 0x4080)


def test_a_commit_writes_what_is_shown(mount, matrix, folder):
    path, wanted = matrix
    output = folder / 'out.safetensors'
    mnt = mount(path, 'to=burn', 'exclude=bias', 'remap=^fc=>head', 'output=%s' % output)
    mnt.commit()
    tensors = st.read(output).tensors
    assert sorted(tensors) == ['head.weight', 'norm.gamma']
    assert tensors['head.weight'][2] == wanted


def test_reports_are_in_the_control_directory(mount, matrix):
    path, _ = matrix
    mnt = mount(path, 'to=burn', 'exclude=bias$')
    report = json.loads((mnt / '.weightfs/report.json').read_text())
    assert report['applied'] == ['fc.weight', 'norm.gamma'] and report['skipped'] == ['fc.bias']
    assert report['renamed'] == [{'from': 'norm.weight', 'to': 'norm.gamma'}]
    assert (mnt / '.weightfs/report.txt').read_text().startswith('applied: 2\n')
    rows = [line.split('\t') for line in (mnt / '.weightfs/plan.tsv').read_text().splitlines()]
    assert sorted(row[:2] for row in rows[1:]) == [['fc.bias', '-'], ['fc.weight', 'fc.weight'], ['norm.weight', 'norm.gamma']]
    assert {row[5] for row in rows[1:]} == {'certain'}


def test_guesses_are_told_in_one_line(mount, folder):
    path = folder / 'in.safetensors'
    st.write(path, {'odd.weight': ('F32', [2, 3], bytes(24))})
    mnt = mount(path, 'to=burn').allow('0 tensors adapted by guess, 1 left undecided, see plan.tsv')
    assert 'left undecided' in mnt.stderr()


@pytest.mark.skipif(not shared.IS_THERE, reason=shared.WHY_NOT)
def test_the_complete_migration_is_one_mount(mount, folder):
    cases = shared.FOLDER / 'golden/burn/cases'
    wanted = cases / 'case-12-migration/out-0.22.1/migrated.bpk'
    mnt = mount(cases / 'case-12-migration/checkpoint.pth', 'top_level_key=state_dict', 'remap=^model\\\\.=>',
                'remap=\\\\.linear(\\\\d)\\\\.=>.fc$1.', 'include=^encoder\\\\.', 'partial',
                'like=%s' % (cases / 'case-00-model-simple/out-0.22.1/model.bpk'), 'output=%s' % (folder / 'out.bpk'))
    mnt.commit()
    written, by_burn = mount(folder / 'out.bpk'), mount(wanted)
    for path in sorted(written.path.rglob('*')):
        if path.is_file():
            assert path.read_bytes() == (by_burn / path.relative_to(written.path)).read_bytes()
            assert os.getxattr(path, 'user.weightfs.param_id') == os.getxattr(
                by_burn / path.relative_to(written.path), 'user.weightfs.param_id')
    assert len([p for p in written.path.rglob('*') if p.is_file()]) == 6


def test_numbered_keys_are_files_of_their_own(mount, folder):
    """z_2 is in the file, after the two tensors that become z."""
    path = folder / 'in.safetensors'
    st.write(path, {'a': ('F32', [1], st.f32(0)), 'x.1': ('F32', [1], st.f32(1)), 'y.1': ('F32', [1], st.f32(2)),
                    'z_2': ('F32', [1], st.f32(3))})
    mnt = mount(path, r'remap=^[xy]\\.1$=>z,on_collision=suffix')
    shown = {path.name: path.read_bytes() for path in mnt.path.iterdir()}
    assert shown == {'a': st.f32(0), 'z': st.f32(1), 'z_3': st.f32(2), 'z_2': st.f32(3)}


def test_codes_name_their_scales_in_their_statistics_and_a_cast_of_all_leaves_both(mount, folder):
    path = st.write(folder / 'in.safetensors', {'x.weight': ('F8_E4M3', [4, 4], bytes(range(16))), 'x.weight_scale_inv': ('F32', [1, 1], st.f32(2)),
                                                'norm.weight': ('F32', [2], st.f32(1, 2))})
    mnt = mount(path, 'cast=BF16')
    mnt.allow('a cast does not apply scales')
    assert [os.getxattr(mnt / name, 'user.weightfs.dtype') for name in ('x/weight', 'x/weight_scale_inv', 'norm/weight')] == [b'F8_E4M3', b'F32', b'BF16']
    stats = json.loads(os.getxattr(mnt / 'x/weight', 'user.weightfs.stats'))
    assert stats['max'] < 1 and stats['scale'] == 'x.weight_scale_inv'
    assert 'scale' not in json.loads(os.getxattr(mnt / 'norm/weight', 'user.weightfs.stats'))
    assert 'a cast does not apply scales' in (mnt / '.weightfs/report.txt').read_text()


def test_values_go_where_the_tensors_beside_them_go(mount, folder):
    path, output = folder / 'in.pth', folder / 'out.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(
        epoch=pth.number(3), opt=pth.dictionary(m=pth.tensor(), lr=pth.number(7)), ema=pth.dictionary(w=pth.tensor(pth.storage('1')), n=pth.number(8)),
        model=pth.dictionary(w=pth.tensor(pth.storage('2')))), r0=bytes(16), r1=bytes(16), r2=bytes(16)))
    mnt = mount(path, 'exclude=^opt', 'rename=ema:avg', 'output=%s' % output)
    assert sorted(str(file.relative_to(mnt.path)) for file in mnt.path.rglob('*') if file.is_file()) == ['avg/n.json', 'avg/w', 'epoch.json', 'model/w']
    mnt.commit()
    assert sorted(pth_read.load(output)) == ['avg', 'epoch', 'model']
