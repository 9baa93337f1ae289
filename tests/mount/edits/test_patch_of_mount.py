# SPDX-License-Identifier: MIT
"""A patch that is made of a mount gives, applied to the same source, the bytes that the mount commits: every kind of edit, every format."""
import json
import os
import random
import shutil
import subprocess

import numpy
import pytest

from wfs_testlib import checkpoints, pth, st
from wfs_testlib.program import EXIT_COMMIT, weightfs

THING = pth.name('my', 'Thing') + pth.number(5) + b'\x85R'
NEW = st.f32(9, 8, 7, 6)


def write_pth(path):
    """Tensors that share a storage, are tied, transposed, in lists; values between them, one that only Python can build."""
    path.write_bytes(pth.checkpoint(pth.dictionary(
        epoch=pth.number(3), first=pth.tensor() + pth.put(90), tied=pth.get(90), turned=pth.tensor(size=(2, 2), stride=(1, 2)),
        part=pth.tensor(offset=2, size=(2,)), net=pth.dictionary(w=pth.tensor(pth.storage('1')), b=pth.tensor(pth.storage('2'))),
        config=pth.dictionary(lr=pth.number(1), thing=THING, tags=pth.number(1) + pth.number(2) + b'\x86'), last=pth.tensor(pth.storage('3'))),
        r0=st.f32(1, 2, 3, 4), r1=st.f32(5, 6, 7, 8), r2=st.f32(9, 10, 11, 12), r3=st.f32(13, 14, 15, 16)))


def write_flat(path):
    st.write(path, {'first': ('F32', [4], st.f32(1, 2, 3, 4)), 'tied': ('F32', [4], st.f32(1, 2, 3, 4)),
                    'net.w': ('F32', [4], st.f32(5, 6, 7, 8)), 'net.b': ('F32', [4], st.f32(9, 10, 11, 12)),
                    'part': ('BF16', [2], b'abcd'), 'turned': ('F32', [2, 2], st.f32(1, 3, 2, 4)), 'last': ('F32', [4], st.f32(13, 14, 15, 16)),
                    'none': ('F32', [0, 4], b''), 'a b.%.ü': ('U8', [3], b'xyz')}, {'by': 'a test', 'format': 'pt', 'zz': ''})


def make_source(folder, kind):
    plain = folder / 'plain.safetensors'
    write_flat(plain)
    if kind == 'pth':
        write_pth(folder / 'in.pth')
    elif kind == 'bpk':
        weightfs('convert', '--format=burnpack', plain, folder / 'in.bpk')
    elif kind == 'set':
        weightfs('convert', '--max-shard-size=30', plain, '%s/' % (folder / 'in'))
    else:
        weightfs('convert', plain, folder / 'in.safetensors')
    return folder / ('in' if kind == 'set' else 'in.' + kind)


def content(path):
    if path.is_file():
        return path.read_bytes()
    return {file.name: file.read_bytes() for file in path.iterdir() if not file.name.startswith('.')}


# ---- the edits, which follow each other in one mount ----

def describe(path, dtype, shape):
    os.setxattr(path, 'user.weightfs.dtype', dtype)
    os.setxattr(path, 'user.weightfs.shape', shape)


def patch_bytes(mnt):
    with open(mnt / 'net/w', 'r+b') as file:
        file.seek(4)
        file.write(st.f32(-1))


def rename_and_back(mnt):
    os.rename(mnt / 'first', mnt / 'x')
    os.rename(mnt / 'x', mnt / 'first')


def rename_one(mnt):
    os.rename(mnt / 'last', mnt / 'aa')


def rename_directory(mnt):
    os.rename(mnt / 'net', mnt / 'mesh')


def swap(mnt):
    os.rename(mnt / 'first', mnt / '.x')
    os.rename(mnt / 'aa', mnt / 'first')
    os.rename(mnt / '.x', mnt / 'aa')


def move_over(mnt):
    os.rename(mnt / 'mesh/b', mnt / 'aa')


def replace_like_rsync(mnt):
    (mnt / '.w.Xy12').write_bytes(NEW)
    os.rename(mnt / '.w.Xy12', mnt / 'mesh/w')


def remove_and_make(mnt):
    (mnt / 'first').unlink()
    (mnt / 'first').write_bytes(NEW)


def add_npy(mnt):
    numpy.save(mnt / 'made.npy', numpy.arange(6, dtype='<i2').reshape(2, 3))


def add_described(mnt):
    (mnt / 'zeta').mkdir()
    (mnt / 'zeta/%25').write_bytes(b'12345678')
    describe(mnt / 'zeta/%25', b'BF16', b'[2, 2]')


def add_empty(mnt):
    (mnt / 'void').write_bytes(b'')
    describe(mnt / 'void', b'F32', b'[3, 0]')


def link(mnt):
    os.link(mnt / 'mesh/w', mnt / 'again')


def link_untouched(mnt):
    os.link(mnt / 'turned', mnt / 'b_turned')


def write_through_link(mnt):
    with open(mnt / 'again', 'r+b') as file:
        file.write(NEW)


def unlink_the_first_name(mnt):
    (mnt / 'turned').unlink()


def reshape(mnt):
    os.setxattr(mnt / 'aa', 'user.weightfs.shape', b'[2, 2]')


def reinterpret(mnt):
    describe(mnt / 'b_turned', b'I32', b'[4]')


def remove(mnt):
    (mnt / 'part').unlink()


def remove_directory(mnt):
    shutil.rmtree(mnt / 'zeta')


def set_param_id(mnt):
    os.setxattr(mnt / 'aa', 'user.weightfs.param_id', b'81985529216486895')


def leave_scratch(mnt):
    (mnt / '.DS_Store').write_bytes(b'x')


def change_metadata(mnt):
    os.setxattr(mnt.path, 'user.weightfs.metadata.by', b'somebody "else"\n')
    os.setxattr(mnt.path, 'user.weightfs.metadata.new', b'')


def turn_metadata(mnt):
    path = mnt / '.weightfs/metadata.json'
    texts = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(texts.items()))))


def remove_metadata(mnt):
    os.removexattr(mnt.path, 'user.weightfs.metadata.by')


TENSOR_EDITS = [patch_bytes, rename_and_back, rename_one, rename_directory, swap, move_over, replace_like_rsync, remove_and_make, add_npy,
                add_described, add_empty, link, link_untouched, write_through_link, unlink_the_first_name, reshape, reinterpret, remove,
                remove_directory, set_param_id, leave_scratch]
METADATA_EDITS = [change_metadata, turn_metadata, remove_metadata]


def value_edit(mnt):
    path = mnt / 'config.json'
    path.write_text(path.read_text().replace('"lr": 1', '"lr": 2'))


def value_replaced(mnt):
    (mnt / '.new').write_text('4\n')
    os.rename(mnt / '.new', mnt / 'epoch.json')


def value_renamed(mnt):
    os.rename(mnt / 'epoch.json', mnt / 'era.json')


def value_moved_over(mnt):
    os.rename(mnt / 'era.json', mnt / 'config.json')


def value_added(mnt):
    (mnt / 'note.json').write_text('{"a": [1, 2.5, null]}')


def value_removed(mnt):
    (mnt / 'note.json').unlink()


VALUE_EDITS = [value_edit, value_replaced, value_added, value_renamed, value_removed, value_moved_over]
EDITS = {'safetensors': TENSOR_EDITS + METADATA_EDITS, 'bpk': TENSOR_EDITS + METADATA_EDITS, 'pth': TENSOR_EDITS + VALUE_EDITS}


def check(mnt, source, folder, out, kind):
    """Commits, and compares with what the patch of the mount makes of the source."""
    patch, again = folder / 'p.safetensors', folder / ('again.' + kind)
    mnt.commit()
    weightfs('patch', 'make', mnt.path, patch, '--overwrite')
    weightfs('patch', 'apply', patch, source, again, '--overwrite')
    assert again.read_bytes() == out.read_bytes()
    return patch


@pytest.mark.parametrize('kind', EDITS)
def test_every_edit_after_the_others(mount, folder, kind):
    source = make_source(folder, kind)
    out = folder / ('out.' + kind)
    mnt = mount(source, 'output=%s' % out)
    for edit in EDITS[kind]:
        edit(mnt)
        try:
            check(mnt, source, folder, out, kind)
        except AssertionError:
            pytest.fail('after %s: %s' % (edit.__name__, weightfs('patch', 'show', folder / 'p.safetensors').stdout))


@pytest.mark.parametrize('kind', ['safetensors', 'bpk', 'pth'])
def test_an_edit_by_itself_is_one_line(mount, folder, kind):
    source = make_source(folder, kind)
    mnt = mount(source, 'output=%s' % (folder / ('out.' + kind)))
    os.rename(mnt / 'last', mnt / 'z')
    weightfs('patch', 'make', mnt.path, folder / 'p')
    assert weightfs('patch', 'show', folder / 'p').stdout == "renamed tensor 'last' to 'z'\n"


@pytest.mark.parametrize('edits', [[], [patch_bytes, rename_one], [rename_directory, remove, add_npy, change_metadata], [swap_ for swap_ in TENSOR_EDITS]],
                         ids=['none', 'bytes', 'names', 'all'])
def test_sets(mount, folder, edits):
    source = make_source(folder, 'set')
    out, again = folder / 'out', folder / 'again'
    mnt = mount(source, 'output=%s/' % out)
    for edit in edits:
        edit(mnt)
    weightfs('patch', 'make', mnt.path, folder / 'p')
    mnt.commit()
    weightfs('patch', 'apply', folder / 'p', source, '%s/' % again)
    assert content(again) == content(out) and len(content(out)) > 2


@pytest.mark.parametrize('mode', [0o644, 0o640, 0o600])
def test_a_patch_can_be_read_by_those_who_can_read_the_source(mount, small, folder, mode):
    small.chmod(mode)
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'step', mnt / 'pace')
    weightfs('patch', 'make', mnt.path, folder / 'p')
    assert (folder / 'p').stat().st_mode & 0o777 == mode


def test_an_edit_that_cannot_be_committed_cannot_be_a_patch(mount, small, folder):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    (mnt / 'x').write_bytes(b'x')
    mnt.allow("cannot make '.weightfs/out/edits.safetensors'")
    assert 'cannot list the edits' in weightfs('patch', 'make', mnt.path, folder / 'p', code=EXIT_COMMIT).error
    assert not (folder / 'p').exists()
    (mnt / 'x').unlink()


def test_a_mount_that_cannot_be_edited_has_an_empty_patch(mount, small, folder):
    assert weightfs('patch', 'make', mount(small).path, folder / 'p').stdout.endswith(': 0 edits\n')


def random_edit(mnt, rng, kind):
    """One change of a random kind; most fit, some are refused by the mount."""
    files = sorted(str(path.relative_to(mnt.path)) for path in mnt.path.rglob('*') if path.is_file())
    names = files + ['n%d' % rng.randrange(6), 'net/n%d' % rng.randrange(3), 'first', 'last', 'net/w', '.t']
    one, other = rng.choice(files), rng.choice(names)
    action = rng.randrange(9)
    (mnt / 'net').mkdir(exist_ok=True)
    if action < 3 and one.endswith('.json') == other.endswith('.json'):
        os.rename(mnt / one, mnt / other)
    elif action == 3 and os.path.exists(mnt / other) and one.endswith('.json') == other.endswith('.json'):
        subprocess.run(['mv', '--exchange', mnt / one, mnt / other], stderr=subprocess.DEVNULL, check=False)
    elif action == 4 and len(files) > 4:
        os.unlink(mnt / one)
    elif action == 5 and not other.endswith('.json') and not one.endswith('.json') and not os.path.exists(mnt / other):
        os.link(mnt / one, mnt / other)
    elif action == 6 and one.endswith('.json'):
        (mnt / one).write_text(json.dumps(rng.randrange(9)))
    elif action == 6:
        (mnt / one).write_bytes(rng.randbytes(16))
        describe(mnt / one, b'F32', b'[4]')
    elif action == 7 and not other.endswith('.json'):
        (mnt / other).write_bytes(rng.randbytes(16))
        describe(mnt / other, b'I32', b'[2, 2]')
    elif action == 8 and not one.endswith('.json') and os.path.getsize(mnt / one) == 16:
        describe(mnt / one, rng.choice([b'I32', b'F32']), rng.choice([b'[4]', b'[1, 4]']))


def run_random(mount, folder, kind, seed, n_steps):
    source = make_source(folder, kind)
    out = folder / ('out.' + kind)
    mnt = mount(source, 'output=%s' % out)
    rng = random.Random(seed)
    n_compared = 0
    for step in range(n_steps):
        try:
            random_edit(mnt, rng, kind)
        except OSError:
            continue
        if step % 3 and step + 1 < n_steps:
            continue
        done = weightfs('commit', mnt.path, code=None, has_notices=True)
        assert 'internal error' not in done.stderr
        if done.code:
            weightfs('patch', 'make', mnt.path, folder / 'p', code=EXIT_COMMIT)
            continue
        n_compared += 1
        check(mnt, source, folder, out, kind)
    weightfs('umount', '--discard', mnt.path, has_notices=True)
    return n_compared


@pytest.mark.parametrize('kind, seed', [(kind, seed) for kind in ('safetensors', 'bpk', 'pth') for seed in range(2)])
def test_random_edits(mount, folder, kind, seed):
    assert run_random(mount, folder, kind, seed, 30) > 3


@pytest.mark.slow
@pytest.mark.parametrize('kind, seed', [(kind, seed) for kind in ('safetensors', 'bpk', 'pth') for seed in range(100, 120)])
def test_many_random_edits(mount, folder, kind, seed):
    run_random(mount, folder, kind, seed, 120)


@pytest.mark.parametrize('n_before', [0, 2])
@pytest.mark.parametrize('ending', checkpoints.ENDINGS)
def test_what_is_empty_is_written_alike_by_a_commit_and_a_patch(mount, folder, ending, n_before):
    source, out, applied = (folder / (name + '.' + ending) for name in ('in', 'out', 'applied'))
    checkpoints.write(source, {'a': ('F32', [n_before], st.f32(1, 2)[:4 * n_before]), 'b': ('F32', [0, 4], b''), 'c': ('F32', [1], st.f32(3))})
    mnt = mount(source, 'output=%s' % out)
    os.truncate(mnt / 'a', 0)
    describe(mnt / 'a', b'F32', b'[0]')
    (mnt / 'b').write_bytes(b'1234')
    os.truncate(mnt / 'b', 0)
    os.link(mnt / 'a', mnt / 'd')
    weightfs('patch', 'make', mnt.path, folder / 'p.safetensors')
    mnt.commit()
    weightfs('patch', 'apply', folder / 'p.safetensors', source, applied)
    assert applied.read_bytes() == out.read_bytes()
    assert {key: one[2] for key, one in checkpoints.read(out).items()} == {'a': b'', 'b': b'', 'c': st.f32(3), 'd': b''}
