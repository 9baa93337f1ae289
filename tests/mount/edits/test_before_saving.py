# SPDX-License-Identifier: MIT
"""What a person can ask of a mount before saving: what was edited, by how much, and whether a commit would succeed."""
import json
import os
import shutil
import struct
import subprocess

import numpy
import pytest

from wfs_testlib import burnpack, checkpoints, program, pth, st
from wfs_testlib.edit_kinds import TENSORS, exchange, kinds, write
from wfs_testlib.mount import open_to_all
from wfs_testlib.program import EXIT_COMMIT, EXIT_FOUND, EXIT_MOUNT, EXIT_USAGE, tool, weightfs

# What each edit of edit_kinds is listed as.
LISTED = {
    'write': ['changed   a/b/weight: F32 [2, 3], 24 bytes'],
    'truncate': ['changed   a/b/weight: F32 [2, 3], 24 bytes -> F32 [2, 3], 8 bytes'],
    'grow': ['changed   a/b/weight: F32 [2, 3], 24 bytes -> F32 [2, 3], 800 bytes'],
    'dtype': ['changed   a/c: F32 [2], 8 bytes -> I32 [2], 8 bytes'],
    'shape': ['changed   a/c: F32 [2], 8 bytes -> F32 [1, 2], 8 bytes'],
    'param_id': ['changed   a/c: F32 [2], 8 bytes; param_id set'],
    'foreign': [], 'mode': [], 'time': [],
    'remove': ['removed   a/b/bias: F32 [3], 12 bytes'],
    'rename': ['renamed   a/b/bias -> a/moved'],
    'rename over another': ['changed   step: F32 [1], 4 bytes -> F32 [2], 8 bytes', 'removed   a/c: F32 [2], 8 bytes'],
    'exchange': ['renamed   a/c -> step', 'renamed   step -> a/c'],
    'exchange of a directory': ['renamed   a/b -> step', 'renamed   step -> a/b'],
    'replace': ['changed   a/c: F32 [2], 8 bytes -> F32 [2], 16 bytes'],
    'remove and create': ['changed   a/c: F32 [2], 8 bytes'],
    'rename a directory': ['renamed   a -> z'],
    'remove a directory': ['removed   a/b/bias: F32 [3], 12 bytes', 'removed   a/b/weight: F32 [2, 3], 24 bytes', 'removed   a/c: F32 [2], 8 bytes'],
    'a directory in a renamed one': ['renamed   a -> z', 'renamed   d -> z/d'],
    'create': ['added     new: 4 bytes'],
    'create below a new directory': ['added     new/one: 4 bytes'],
    'link': ['linked    again -> a/c'],
    'link and remove': ['added     again: F32 [2], 8 bytes', 'removed   a/c: F32 [2], 8 bytes'],
    'scratch': [],
    'metadata': ['changed   .weightfs/metadata.json: 12 bytes'],
    'value': ['changed   epoch.json: 2 bytes -> 1 byte'],
    'removed value': ['removed   epoch.json: 2 bytes'],
    'renamed value': ['renamed   epoch.json -> a/time.json'],
    'new value': ['added     more.json: 3 bytes'],
}


def listed(mnt):
    return sorted(weightfs('status', '--edits', mnt.path).stdout.splitlines())


OTHERS = {'dtype': b'I32', 'shape': b'[1, 2]', 'param_id': b'7'}


@pytest.mark.parametrize('files', ['raw', 'npy'])
@pytest.mark.parametrize('names', [['dtype'], ['shape'], ['param_id'], list(OTHERS)])
def test_what_is_set_back_is_no_edit(mount, folder, names, files):
    source = folder / 'in.bpk'
    burnpack.write(source, burnpack.Burnpack({'a.c': burnpack.Tensor('F32', [2], st.f32(1, 2), 5)}))
    mnt = mount(source, 'output=%s' % (folder / 'out.bpk'), 'files=%s' % files)
    path = mnt / ('a/c' + ('.npy' if files == 'npy' else ''))
    before = {name: os.getxattr(path, 'user.weightfs.' + name) for name in names}
    for name in names:
        os.setxattr(path, 'user.weightfs.' + name, OTHERS[name])
    assert listed(mnt) != ['no edits']
    for name in names:
        os.setxattr(path, 'user.weightfs.' + name, before[name])
    assert listed(mnt) == ['no edits']
    assert ': 0 edits' in weightfs('patch', 'make', mnt.path, folder / 'p.safetensors').stdout


def test_no_name_has_two_origins(mount, small, folder):
    """Of three tensors that were exchanged, one is replaced by a new file."""
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'step', mnt / 'n')
    (mnt / '.new').write_bytes(b'12345678')
    os.rename(mnt / '.new', mnt / 'n')
    exchange(mnt, 'a/c', 'a/b/bias')
    exchange(mnt, 'a/b/bias', 'n')
    assert listed(mnt) == ['added     a/b/bias: I64 [], 8 bytes', 'removed   step: I64 [], 8 bytes', 'renamed   a/b/bias -> a/c', 'renamed   a/c -> n']


def test_a_file_with_the_name_of_a_directory_is_added(mount, small, folder):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'a', mnt / 'z')
    (mnt / 'a').write_bytes(b'new')
    assert listed(mnt) == ['added     a: 3 bytes', 'renamed   a -> z']
    os.rename(mnt / 'step', mnt / 'a')
    assert listed(mnt) == ['renamed   a -> z', 'renamed   step -> a']


def test_what_is_made_again_with_its_directory_is_changed(mount, small, folder):
    """As rsync, git and cp leave it; below a renamed directory, too, and with something else in the place of the directory."""
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    shutil.copytree(mnt / 'a', folder / 'a')
    shutil.rmtree(mnt / 'a')
    shutil.copytree(folder / 'a', mnt / 'a')
    everything = ['changed   a/b/bias: F32 [3], 12 bytes', 'changed   a/b/weight: F32 [2, 3], 24 bytes', 'changed   a/c: U8 [5], 5 bytes']
    assert listed(mnt) == everything
    assert weightfs('diff', mnt.path).stdout == ''
    weightfs('discard', mnt.path)
    os.rename(mnt / 'a', mnt / 'z')
    shutil.rmtree(mnt / 'z/b')
    shutil.copytree(folder / 'a/b', mnt / 'z/b')
    assert listed(mnt) == [line.replace(' a/', ' z/') for line in everything[:2]] + ['renamed   a -> z']
    shutil.rmtree(mnt / 'z/b')
    shutil.copy(folder / 'a/c', mnt / 'z/b')
    assert listed(mnt) == ['added     z/b: 5 bytes', 'removed   a/b/bias: F32 [3], 12 bytes', 'removed   a/b/weight: F32 [2, 3], 24 bytes',
                           'renamed   a -> z']
    weightfs('discard', mnt.path)


def test_what_is_renamed_to_a_scratch_file_is_removed(mount, small, folder):
    """As a commit has it; the list does not change when the scratch file goes."""
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'step', mnt / 'a/.step')
    assert listed(mnt) == ['removed   step: I64 [], 8 bytes']
    os.unlink(mnt / 'a/.step')
    assert listed(mnt) == ['removed   step: I64 [], 8 bytes']
    os.rename(mnt / 'a/b', mnt / '.b')
    assert listed(mnt) == ['removed   a/b/bias: F32 [3], 12 bytes', 'removed   a/b/weight: F32 [2, 3], 24 bytes', 'removed   step: I64 [], 8 bytes']
    os.rename(mnt / '.b', mnt / 'c')
    assert listed(mnt) == ['removed   step: I64 [], 8 bytes', 'renamed   a/b -> c']


def test_what_was_exchanged_is_renamed(mount, small, folder):
    """In a ring of three, with an edit of one and another name of another."""
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    exchange(mnt, 'a/c', 'step')
    exchange(mnt, 'step', 'a/b/bias')  # a/b/bias is what a/c was, step is what a/b/bias was
    write(mnt, 'a/c', b'\1')
    os.link(mnt / 'step', mnt / 'more')
    assert listed(mnt) == ['changed   a/c: I64 [], 8 bytes', 'linked    more -> step', 'renamed   a/b/bias -> step', 'renamed   a/c -> a/b/bias',
                           'renamed   step -> a/c']
    exchange(mnt, 'a/b/bias', 'step')
    exchange(mnt, 'a/c', 'step')
    assert listed(mnt) == ['changed   step: I64 [], 8 bytes', 'linked    more -> a/b/bias']


def test_each_kind_of_edit_is_listed(made):
    assert listed(made) == ['no edits']
    for name, (edit, _) in kinds(made).items():
        if name not in LISTED:
            continue
        edit(made)
        assert listed(made) == (sorted(LISTED[name]) or ['no edits']), name
        rows = json.loads(weightfs('status', '--edits', '--json', made.path).stdout)['changes']
        assert sorted(row['change'] for row in rows) == sorted(line.split()[0] for line in LISTED[name]), name
        weightfs('discard', made.path)
    assert listed(made) == ['no edits']


def test_the_list_as_json(mount, small, folder):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'a', mnt / 'z')
    (mnt / 'z/c').write_bytes(b'hello you')
    os.setxattr(mnt / 'z/c', 'user.weightfs.shape', b'[9]')
    assert json.loads((mnt / '.weightfs/edits.json').read_text()) == [
        {'change': 'renamed', 'path': 'z', 'from': 'a'},
        {'change': 'changed', 'path': 'z/c', 'before': {'dtype': 'U8', 'shape': [5], 'bytes': 5}, 'after': {'dtype': 'U8', 'shape': [9], 'bytes': 9}}]


def test_the_list_of_a_mount_that_cannot_be_edited_is_empty(mount, small):
    mnt = mount(small)
    assert listed(mnt) == ['no edits'] and json.loads(weightfs('status', '--edits', '--json', mnt.path).stdout)['changes'] == []


# ---- by how much ----

def test_a_mount_differs_from_its_source_as_two_files_do(made, folder):
    assert weightfs('diff', made.path).stdout == ''
    write(made, 'a/b/weight', st.f32(4))
    os.rename(made / 'step', made / 'pace')
    os.setxattr(made / 'd/weight', 'user.weightfs.shape', b'[2, 2]')
    lines = weightfs('diff', made.path, code=EXIT_FOUND).stdout
    rows = weightfs('diff', '--json', made.path, code=EXIT_FOUND).stdout
    tables = [weightfs('diff', option, made.path, code=EXIT_FOUND).stdout for option in ('--long', '--stat')]
    weightfs('commit', made.path)
    assert [weightfs('diff', option, made.source, made.out, code=EXIT_FOUND).stdout for option in ('--long', '--stat')] == tables
    assert weightfs('diff', made.source, made.out, code=EXIT_FOUND).stdout == lines
    assert weightfs('diff', '--json', made.source, made.out, code=EXIT_FOUND).stdout == rows
    assert '1 of 6 elements differs, by at most 3, relative 0.75' in lines
    # The edits are still those since the source.
    assert weightfs('diff', made.path, code=EXIT_FOUND).stdout == lines


def test_the_view_of_a_mount_counts_as_its_source(mount, folder):
    source = checkpoints.write(folder / 'in.safetensors', TENSORS)
    mnt = mount(source, 'output=%s' % (folder / 'out.pth'), 'remap=s/^a\\./z./', 'cast=F16')
    assert weightfs('diff', mnt.path).stdout == ''
    os.unlink(mnt / 'z/c')
    assert weightfs('diff', mnt.path, code=EXIT_FOUND).stdout == 'only in A: z.c F16 [2]\n1 only in A, 0 only in B, 0 changed, 5 equal\n'
    assert weightfs('diff', mount(source).path).stdout == ''


def test_values_and_metadata_on_request(mount, folder):
    source = checkpoints.write(folder / 'in.pth', TENSORS, epoch=pth.number(3))
    mnt = mount(source, 'output=%s' % (folder / 'out.pth'))
    (mnt / 'epoch.json').write_text('4')
    assert weightfs('diff', mnt.path).stdout == ''
    assert 'epoch' in weightfs('diff', '--all', mnt.path, code=EXIT_FOUND).stdout


def test_mistakes_of_diff(mount, small, folder):
    assert 'missing B' in weightfs('diff', small, code=EXIT_USAGE).error
    assert 'not a weightfs mount point' in weightfs('diff', folder, code=EXIT_MOUNT).error
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    (mnt / 'new').write_bytes(b'1')
    mnt.allow('cannot make')
    assert "cannot commit: 'new' is not a tensor" in weightfs('diff', mnt.path, code=EXIT_COMMIT).error
    weightfs('discard', mnt.path)


def test_the_source_is_found_by_name_only(mount, small, folder):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    assert not [name for name in os.listdir(mnt / '.weightfs/out') if name.startswith('source')]
    os.unlink(mnt / 'a/c')
    with open(mnt / '.weightfs/out/source.safetensors', 'rb') as file:
        front = file.read(10)
        os.unlink(mnt / 'step')  # which is no reason to begin again
        assert front + file.read() == small.read_bytes()


# ---- a trial ----

@pytest.mark.parametrize('ending', ['safetensors', 'pth', 'bpk'])
def test_a_trial_says_what_the_commit_says_and_writes_nothing(mount, folder, ending):
    source = checkpoints.write(folder / ('in.' + ending), TENSORS)
    out = folder / ('out.' + ending)
    mnt = mount(source, 'output=%s' % out)
    os.rename(mnt / 'step', mnt / 'pace')
    write(mnt, 'a/c', st.f32(2))
    before = sorted(path.name for path in folder.iterdir())
    said = weightfs('commit', '--dry-run', mnt.path).stdout
    assert sorted(path.name for path in folder.iterdir()) == before and mnt.status()['edits'] == 2
    assert weightfs('commit', mnt.path).stdout == said.replace('would commit', 'committed')
    assert weightfs('commit', '--dry-run', mnt.path).stdout == 'nothing to commit\n'


def test_a_trial_names_every_file_that_fails(mount, folder):
    source = checkpoints.write(folder / 'in.safetensors', {**TENSORS, 'p.q': ('F32', [1], st.f32(1)), 'r.s': ('F32', [1], st.f32(2))})
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors'))
    os.truncate(mnt / 'a/c', 5)
    (mnt / 'x').write_bytes(b'1')
    (mnt / 'd/y').write_bytes(b'2')
    numpy.save(mnt / 'step.npy', numpy.zeros(3, 'f4'))
    (mnt / '.weightfs/metadata.json').write_text('[1]')
    os.mkdir(mnt / 'p/q2')
    (mnt / 'p/q2/deep').write_bytes(b'12')
    before = weightfs('status', '--edits', mnt.path).stdout
    done = tool(*program.COMMAND, 'commit', '--dry-run', mnt.path, code=EXIT_COMMIT)
    lines = done.stderr.splitlines()
    assert len(lines) == 6 and all(line.startswith('weightfs: %s: cannot commit: ' % mnt.path) for line in lines)
    for part in ["'a/c'", "'x' is not a tensor", "'d/y' is not a tensor", "both give the key 'step'", 'metadata.json', "'p/q2/deep'"]:
        assert sum(part in line for line in lines) == 1, (part, lines)
    assert weightfs('status', '--edits', mnt.path).stdout == before
    mnt.allow('cannot commit')
    error = weightfs('commit', mnt.path, code=EXIT_COMMIT).error
    assert error.split('; the edits are')[0] in [line[len('weightfs: '):] for line in lines]
    weightfs('discard', mnt.path)


@pytest.mark.parametrize('ending', ['safetensors', 'bpk'])
def test_a_trial_names_every_tensor_that_the_format_has_no_room_for(mount, folder, ending):
    source = checkpoints.write(folder / 'in.pth', {'good': ('F32', [1], st.f32(1)), 'c.one': ('C64' if ending == 'bpk' else 'C128', [1], bytes(8 if ending == 'bpk' else 16)),
                                                  'c.two': ('C64' if ending == 'bpk' else 'C128', [1], bytes(8 if ending == 'bpk' else 16))})
    mnt = mount(source, 'output=%s' % (folder / ('out.' + ending)))
    done = tool(*program.COMMAND, 'commit', '--dry-run', mnt.path, code=EXIT_COMMIT)
    assert ["tensor 'c.one'" in line or "tensor 'c.two'" in line for line in done.stderr.splitlines()] == [True, True]
    mnt.allow('cannot commit')
    weightfs('commit', mnt.path, code=EXIT_COMMIT)


def test_a_trial_checks_source_and_output(mount, small, folder):
    out = folder / 'out.safetensors'
    mnt = mount(small, 'output=%s' % out)
    os.rename(mnt / 'step', mnt / 'pace')
    out.write_bytes(b'somebody else')
    assert 'the output already exists; move it away to save here' in weightfs('commit', '--dry-run', mnt.path, code=EXIT_COMMIT).error
    out.rename(folder / 'away')
    weightfs('commit', mnt.path)
    out.write_bytes(b'somebody else')
    os.rename(mnt / 'pace', mnt / 'step')
    assert 'was changed by another program; move it away to save here' in weightfs('commit', '--dry-run', mnt.path, code=EXIT_COMMIT).error
    out.rename(folder / 'away')
    assert weightfs('commit', '--dry-run', mnt.path).stdout.startswith('would commit')
    with open(small, 'r+b') as file:
        file.write(b'\x00')
    mnt.allow('has changed')
    assert 'has changed since it was mounted' in tool(*program.COMMAND, 'commit', '--dry-run', mnt.path, code=EXIT_COMMIT).stderr
    weightfs('discard', '--committed', mnt.path)
    weightfs('umount', '--discard', mnt.path)
    mnt.wait()


def test_more_problems_than_fit_are_counted(mount, small, folder):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    for i in range(200):
        (mnt / ('new%d' % i)).write_bytes(b'1')
    lines = tool(*program.COMMAND, 'commit', '--dry-run', mnt.path, code=EXIT_COMMIT).stderr.splitlines()
    assert 50 < len(lines) < 200 and lines[-1].endswith('cannot commit: %d more problems' % (201 - len(lines)))
    weightfs('discard', mnt.path)


def test_a_trial_of_a_mount_without_an_output(mount, small):
    assert 'read-only' in weightfs('commit', '--dry-run', mount(small).path, code=EXIT_COMMIT).error


@pytest.mark.root
def test_another_user_cannot_try(mount, small, folder):
    open_to_all(folder)
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'), 'allow_other')
    for words, text in [(['commit', '--dry-run'], 'only the user who mounted it may commit'), (['status', '--edits'], 'Permission denied')]:
        done = tool('setpriv', '--reuid=65534', '--clear-groups', *program.command_for_others(), *words, mnt.path, code=None)
        assert done.code != 0 and text in done.stderr


def test_copies_of_the_text_are_of_one_moment(mount, small, folder):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'step', mnt / 'pace')
    with open(mnt / '.weightfs/edits.txt', 'rb', buffering=0) as file:
        front = file.read(5)
        shutil.copyfile(mnt / 'a/c', mnt / 'more')
        assert (front + file.read()).decode() == 'renamed   step -> pace\n'
    assert 'added     more: 5 bytes\n' in (mnt / '.weightfs/edits.txt').read_text()
    weightfs('discard', mnt.path)


def test_tensors_without_edits_are_not_read_to_be_compared(mount, folder):
    """Half a terabyte takes longer than any verb may."""
    n = 1 << 39
    source = folder / 'in.safetensors'
    st.write_parts(source, [], head='{"a":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]},"b":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}}'
                   % (n // 4, n, n, n + 4))
    with open(source, 'r+b') as file:
        start = 8 + int.from_bytes(file.read(8), 'little')
        file.truncate(start + n)
        file.seek(start + n)
        file.write(st.f32(1))
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors'), 'large')
    write(mnt, 'b', st.f32(3))
    assert weightfs('diff', '--large', mnt.path, code=EXIT_FOUND).stdout.splitlines() == [
        'b: F32 [1], 1 of 1 element differs, by at most 2, relative 0.666667', '0 only in A, 0 only in B, 1 changed, 1 equal']
    os.rename(mnt / 'a', mnt / 'c')
    assert weightfs('diff', '--large', mnt.path, code=EXIT_FOUND).stdout.splitlines()[-2:] == [
        'renamed: a -> c', '0 only in A, 0 only in B, 1 renamed, 1 changed, 0 equal']
    weightfs('discard', mnt.path)


def test_a_mount_of_a_version_without_trials_says_so(mount, folder):
    """The program asks with a number that the driver does not know, as that of an older one does not."""
    mnt = mount(st.write(folder / 'm.safetensors', {'w': ('F32', [2], bytes(8))}), 'rw')
    content = (program.BUILD / 'src/weightfs').read_bytes()
    number = struct.pack('<I', 2 << 30 | (40 + 15360) << 16 | ord('W') << 8 | 5)  # WFS_IOC_TRY
    other = folder / 'weightfs'
    assert number in content
    other.write_bytes(content.replace(number, b'\x1f' + number[1:]))
    other.chmod(0o755)
    done = subprocess.run([other, 'commit', '--dry-run', mnt.path], env={**os.environ, 'LD_LIBRARY_PATH': str(program.BUILD / 'src')}, stderr=subprocess.PIPE, check=False)
    assert done.returncode == EXIT_COMMIT and b'mounted by another version of weightfs' in done.stderr
