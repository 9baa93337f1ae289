# SPDX-License-Identifier: MIT
"""-o backup: the file that the first commit of a mount replaces keeps another name."""
import os
import shutil

import pytest

from wfs_testlib import crash, st
from wfs_testlib.crash_kinds import SAFETENSORS
from wfs_testlib.mount import open_to_all
from wfs_testlib.program import EXIT_COMMIT, EXIT_MOUNT, EXIT_USAGE, weightfs

OLD = {'w': ('U8', [3], b'old'), 'v': ('U8', [1], b'v')}


def holding(data):
    return {**OLD, 'w': ('U8', [3], data)}


@pytest.fixture
def source(folder):
    return st.write(folder / 'm.safetensors', OLD)


def commit(mnt, data):
    (mnt / 'w').write_bytes(data)
    weightfs('commit', mnt.path)


@pytest.mark.parametrize('option, name', [('backup', 'm.safetensors~'), ('backup=numbered', 'm.safetensors.~1~'), ('suffix=.bak', 'm.safetensors.bak')])
def test_the_first_commit_keeps_what_was_there(mount, folder, source, option, name):
    inode = source.stat().st_ino
    mnt = mount(source, 'rw', option)
    for data in (b'one', b'two'):
        commit(mnt, data)
        assert st.read(source).tensors == holding(data) and st.read(folder / name).tensors == OLD
    mnt.close()
    assert (folder / name).stat().st_ino == inode and not [path for path in folder.iterdir() if path.name.startswith('.')]
    again = mount(source, 'rw', option)
    commit(again, b'six')
    again.close()
    newest = 'm.safetensors.~2~' if 'numbered' in option else name
    assert st.read(folder / newest).tensors == holding(b'two') and st.read(source).tensors == holding(b'six')


def test_what_another_program_has_put_there_is_kept_too(mount, folder, source):
    out = st.write(folder / 'out.safetensors', holding(b'out'))
    mnt = mount(source, 'output=%s' % out, 'overwrite', 'backup')
    commit(mnt, b'one')
    st.write(out, holding(b'its'))
    commit(mnt, b'two')
    commit(mnt, b'six')
    assert st.read(str(out) + '~').tensors == holding(b'its') and st.read(out).tensors == holding(b'six')


def test_a_new_output_has_no_backup(mount, folder, source):
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors'), 'backup')
    for data in (b'one', b'two'):
        commit(mnt, data)
    mnt.close()
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ['m.safetensors', 'out.safetensors']


def test_the_backup_is_beside_what_a_link_leads_to(mount, folder, source):
    (folder / 'far').mkdir()
    out = st.write(folder / 'far' / 'out.safetensors', holding(b'out'))
    (folder / 'link.safetensors').symlink_to(out)
    mnt = mount(source, 'output=%s' % (folder / 'link.safetensors'), 'overwrite', 'backup')
    commit(mnt, b'one')
    assert (folder / 'link.safetensors').is_symlink() and st.read(out).tensors == holding(b'one')
    assert st.read(folder / 'far' / 'out.safetensors~').tensors == holding(b'out')


@pytest.mark.root
def test_the_file_of_another_user_is_kept_with_its_owner(mount, folder, source):
    """By a process that has no rights of its own left, where links to files of others are restricted."""
    open_to_all(folder)
    os.chown(source, 65534, 65533)
    source.chmod(0o640)
    mnt = mount(source, 'rw', 'backup')
    commit(mnt, b'one')
    for path in (source, folder / 'm.safetensors~'):
        assert (path.stat().st_uid, path.stat().st_gid, path.stat().st_mode & 0o777) == (65534, 65533, 0o640)


# ---- what is refused ----

def refuse(folder, *words):
    mnt = folder / 'refused'
    mnt.mkdir(exist_ok=True)
    before = {path: path.read_bytes() for path in folder.rglob('*') if path.is_file()}
    error = weightfs(words[0], mnt, '-f', '-o', ','.join(words[1:]), code=EXIT_MOUNT).error
    assert {path: path.read_bytes() for path in folder.rglob('*') if path.is_file()} == before
    return error


def whole(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith('.') or path.name.startswith('.metadata')}


SETS = {'safetensors': 'model.safetensors.index.json', 'pytorch': 'pytorch_model.bin.index.json', 'burnpack': 'model.bpk.index.json', 'dcp': '.metadata'}


@pytest.mark.parametrize('kind, is_source', [(kind, is_source) for kind in SETS for is_source in (False, True) if not (kind == 'dcp' and is_source)])
def test_of_a_set_the_first_commit_keeps_the_index_and_its_files(mount, folder, source, kind, is_source):
    """With the backup under the name of the index, the directory holds what it held before, also after more commits and mounts."""
    out, index = folder / 'set', SETS[kind]
    weightfs('convert', '--format=%s' % kind, '--max-shard-size=3', source, '%s/' % out)
    options = ['rw'] if is_source else ['output=%s/' % out, 'overwrite', 'format=%s' % kind, 'max_shard_size=3']
    origin = out if is_source else source
    before, inode = whole(out), (out / index).stat().st_ino
    mnt = mount(origin, *options, 'backup')
    for data in (b'one', b'two'):
        commit(mnt, data)
        assert weightfs('cat', out, 'w').raw == data and {**whole(out), index: whole(out)[index + '~']}.items() >= before.items()
    mnt.close()
    again = mount(origin, *options)
    commit(again, b'six')
    again.close()
    assert {**whole(out), index: whole(out)[index + '~']}.items() >= before.items() and (out / (index + '~')).stat().st_ino == inode
    assert len(whole(out)) == (len(before) + 2 if is_source else 2 * len(before)) and not [path.name for path in out.iterdir() if 'weightfs' in path.name]
    os.rename(out / (index + '~'), out / index)
    assert weightfs('cat', out, 'w').raw == b'old'


def test_a_set_that_is_new_can_be_committed_again(mount, folder, source):
    mnt = mount(source, 'output=%s/set/' % folder, 'backup')
    for data in (b'one', b'two'):
        commit(mnt, data)


def test_what_is_in_the_way_is_found_when_it_is_mounted(folder, source):
    out = st.write(folder / 'out.safetensors', OLD)
    (folder / 'm.safetensors~').mkdir()
    assert "'m.safetensors~' is a directory" in refuse(folder, source, 'rw', 'backup')
    shutil.copy(source, folder / 'out.safetensors~')
    assert 'which is read' in refuse(folder, folder / 'out.safetensors~', 'output=%s' % out, 'overwrite', 'backup')


def test_a_trial_finds_what_came_into_the_way_later(mount, folder, source):
    mnt = mount(source, 'rw', 'backup').allow('is a directory')
    (mnt / 'w').write_bytes(b'one')
    (folder / 'm.safetensors~').mkdir()
    assert "'m.safetensors~' is a directory" in weightfs('commit', '--dry-run', mnt.path, code=EXIT_COMMIT).error
    assert "'m.safetensors~' is a directory" in weightfs('commit', mnt.path, code=EXIT_COMMIT).error
    assert st.read(source).tensors == OLD
    (folder / 'm.safetensors~').rmdir()
    weightfs('commit', mnt.path)
    assert st.read(folder / 'm.safetensors~').tensors == OLD


def test_options_that_are_wrong(folder, source):
    for option in ('backup=x', 'suffix', 'suffix=', 'backup='):
        assert option.split('=')[0] in weightfs(source, folder, '-f', '-o', 'rw,' + option, code=EXIT_USAGE).error


# ---- at every step ----

@pytest.mark.skipif(not crash.LIBRARY.exists(), reason='no fault injector in this build')
def test_recovery_keeps_what_it_replaces(folder):
    disk = crash.folder_for(folder)
    calls = crash.live(SAFETENSORS, 'rw', disk, 'count', 0, 'backup=simple').injection.calls()
    at = 1 + next(i for i, call in enumerate(calls) if call[0] == 'fsync' and call[1].endswith('.weightfs.tmp'))
    run = crash.live(SAFETENSORS, 'rw', disk, 'kill-after', at, 'backup=simple')
    text = weightfs('recover', run.output, code=None).stdout
    assert 'option     backup=simple' in text
    assert '--options' in weightfs('recover', '--publish', run.output, code=EXIT_COMMIT).error
    crash.check_recovery(run)
    assert SAFETENSORS.read(crash.backup_of(run.output)) == run.old


@pytest.mark.skipif(not crash.LIBRARY.exists(), reason='no fault injector in this build')
@pytest.mark.parametrize('mode, target, stride', [('kill-before', 'rw', 2), ('eio-once', 'overwrite', 2), *[
    pytest.param(mode, target, 1, marks=pytest.mark.slow) for mode in ('kill-before', 'kill-after', 'eio-once', 'enospc-on', 'half')
    for target in ('rw', 'overwrite')]])
def test_a_fault_leaves_a_backup_that_is_whole(memory, mode, target, stride):
    """The calls beside the output, apart from those that write the new file: links, renames, syncs of the directory. What the check before
    the mount leaves, the next check removes."""
    run = crash.live(SAFETENSORS, target, memory, 'count', 0, 'backup=simple')
    crash.check_output(run)
    calls = run.injection.calls()
    begin = next(at for at, (name, path) in enumerate(calls, 1) if name == 'mkdir')
    steps = [at for at, (name, path) in enumerate(calls, 1) if os.path.dirname(path) in (str(memory.resolve()), str(memory.resolve().parent))
             and name in ('link', 'unlink', 'rename', 'fsync')]
    assert run.code == 0 and len(steps) > 8 and SAFETENSORS.read(crash.backup_of(run.output)) == run.old
    for at in steps[stride - 1::stride]:
        run = crash.live(SAFETENSORS, target, memory, mode, at, 'backup=simple')
        crash.check_output(run)
        name, path = (run.injection.calls() + [('', '')] * at)[at - 1]
        if at < begin or (mode == 'eio-once' and name == 'unlink' and path.endswith('.weightfs.old')):
            weightfs('edit', '--overwrite', '--backup=simple', '--set-metadata=number=4', run.output, run.output)
            assert not [path.name for path in memory.iterdir() if path.name.startswith('.')]
        else:
            crash.check_recovery(run)
