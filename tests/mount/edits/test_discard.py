# SPDX-License-Identifier: MIT
"""Edits that are dropped: all or those of paths in a running mount (`discard`), or all with the mount (`umount --discard`). No crash and no
later mount brings them back."""
import mmap
import os
import random
import shutil
import signal

import pytest

from wfs_testlib import checkpoints, program, pth, st
from wfs_testlib.edit_kinds import EDITS, TENSORS, exchange, kinds, look, steady, write
from wfs_testlib.mount import is_mounted, open_to_all
from wfs_testlib.program import EXIT_COMMIT, EXIT_MOUNT, EXIT_RULES, EXIT_USAGE, tool, weightfs

# ---- discard ----


def test_each_kind_of_edit_is_taken_back_by_its_path(made):
    before = look(made.path)
    for name, (edit, path) in kinds(made).items():
        edit(made)
        if name not in ('mode', 'time', 'foreign'):
            look(made.path)  # the kernel has seen it
        assert weightfs('discard', made.path, path).stdout.startswith('discarded '), name
        assert look(made.path) == before, name
        assert made.status()['edits'] == 0 and made.status()['state'] == 'clean', name
    with pytest.raises(OSError, match='No data'):
        os.getxattr(made / 'a/c', 'user.note')


def test_each_kind_of_edit_is_taken_back_with_all(made):
    before = look(made.path)
    for name, (edit, _) in kinds(made).items():
        edit(made)
        assert weightfs('discard', made.path).stdout.startswith('discarded '), name
        assert look(made.path) == before, name
        assert made.status()['edits'] == 0 and made.status()['state'] == 'clean', name
    assert weightfs('discard', made.path).stdout == 'discarded 0 edits\n'


def test_all_is_as_many_edits_as_status_counts(made):
    """Also where names have come back, and where directories went with their files."""
    shutil.rmtree(made / 'a')
    n_edits = made.status()['edits']
    assert weightfs('discard', made.path).stdout == 'discarded %d edits\n' % n_edits
    shutil.rmtree(made / 'a')
    assert weightfs('discard', made.path, 'a').stdout == 'discarded %d edits\n' % n_edits
    os.rename(made / 'step', made / 'pace')
    os.rename(made / 'pace', made / 'step')
    assert weightfs('discard', made.path).stdout == 'discarded %d edits\n' % 2
    assert (made.status()['edits'], made.status()['state']) == (0, 'clean')


def kill(mnt):
    for pid in mnt.workers:
        os.kill(pid, signal.SIGKILL)
    mnt.allow('signal 9').wait(128 + signal.SIGKILL)


def again(mount, made, name='again'):
    slash = '/' if made.ending == 'directory' else ''
    mnt = mount(made.source, 'output=%s%s' % (made.out, slash), at=made.path.parent / name)
    mnt.source, mnt.out, mnt.ending = made.source, made.out, made.ending
    return mnt.allow('of an earlier mount')


@pytest.mark.parametrize('kind', EDITS)
def test_a_crash_brings_nothing_back(kind, mount, folder):
    source = checkpoints.write(folder / 'in.safetensors', TENSORS)
    made = mount(source, 'output=%s' % (folder / 'out.safetensors'))
    made.source, made.out, made.ending = source, folder / 'out.safetensors', 'safetensors'
    before = steady(look(made.path))
    edit, path = EDITS[kind]
    edit(made)
    write(made, 'keep', b'KEEP')
    assert weightfs('discard', made.path, path).stdout.startswith('discarded ')
    kill(made)
    found = again(mount, made)
    after = steady(look(found.path))
    assert after.pop('keep')[-1] == b'KEEP' + st.f32(2, 3, 4)
    before.pop('keep')
    assert after == before and found.status()['edits'] == 1
    weightfs('discard', found.path)
    kill(found)
    last = again(mount, made, 'last')
    assert last.status()['edits'] == 0 and (last / 'keep').read_bytes() == st.f32(1, 2, 3, 4)


def test_what_is_not_named_is_kept(made):
    os.rename(made / 'a', made / 'z')
    write(made, 'z/b/weight', b'\xff' * 4)
    write(made, 'z/c', b'\xee' * 4)
    os.unlink(made / 'z/b/bias')
    assert weightfs('discard', made.path, 'z/b/weight').stdout == 'discarded 1 edit\n'
    assert (made / 'z/b/weight').read_bytes() == st.f32(1, 2, 3, 4, 5, 6)
    assert (made / 'z/c').read_bytes()[:4] == b'\xee' * 4 and not (made / 'z/b/bias').exists()
    assert weightfs('discard', made.path, 'a/b').stdout == 'discarded 1 edit\n'
    assert (made / 'z/b/bias').read_bytes() == st.f32(7, 8, 9)
    assert made.status()['edits'] == 2
    assert weightfs('discard', made.path, 'a').stdout == 'discarded 2 edits\n'
    assert (made / 'a/c').read_bytes() == st.f32(1, 1) and not (made / 'z').exists()


def test_what_is_left_is_committed(made):
    os.rename(made / 'step', made / 'pace')
    write(made, 'a/c', b'\xee' * 8)
    (made / 'new').write_bytes(b'not a tensor yet')
    weightfs('discard', made.path, 'new', made / 'a')
    assert weightfs('umount', made.path).stdout.count('committed')
    made.wait()
    expected = {('pace' if key == 'step' else key): one for key, one in TENSORS.items()}
    files = [made.out] if made.out.is_file() else sorted(made.out.glob('*.safetensors'))
    found = {}
    for file in files:
        found.update(checkpoints.read(file))
    assert {key: bytes(one[2]) for key, one in found.items()} == {key: one[2] for key, one in expected.items()}


def test_a_removed_name_comes_back_into_a_directory_that_was_made_again(made):
    shutil.rmtree(made / 'a')
    os.makedirs(made / 'a/b')
    (made / 'a/b/extra').write_bytes(b'1234')
    weightfs('discard', made.path, 'a/b/bias')
    assert sorted(os.listdir(made / 'a/b')) == ['bias', 'extra'] and os.listdir(made / 'a') == ['b']
    weightfs('discard', made.path, 'a')
    assert sorted(os.listdir(made / 'a/b')) == ['bias', 'weight'] and (made / 'a/c').exists()


def test_a_name_that_is_taken_is_refused_in_one_line(made):
    os.rename(made / 'a/c', made / 'a/old')
    (made / 'a/c').write_bytes(b'12345678')
    before = look(made.path)
    error = weightfs('discard', made.path, 'a/old', code=EXIT_COMMIT).error
    assert error.endswith("cannot discard: 'a/c' cannot come back, because 'a/c' has its place; discard 'a/c' as well")
    assert look(made.path) == before
    weightfs('discard', made.path, 'a/old', 'a/c')
    assert not (made / 'a/old').exists() and (made / 'a/c').read_bytes() == st.f32(1, 1)


def test_names_that_went_round_come_back_together(made):
    before = look(made.path)
    os.rename(made / 'a/c', made / 'x')
    os.rename(made / 'step', made / 'a/c')
    os.rename(made / 'x', made / 'step')
    weightfs('discard', made.path, 'step')
    assert look(made.path) == before


def test_ties_come_back(mount, folder):
    source = folder / 'tied.pth'
    source.write_bytes(pth.checkpoint(pth.dictionary(first=pth.tensor(), second=pth.tensor())))
    mnt = mount(source, 'output=%s' % (folder / 'out.pth'))
    before = look(mnt.path)
    assert (mnt / 'first').stat().st_nlink == 2
    os.unlink(mnt / 'second')
    shutil.copyfile(mnt / 'first', mnt / 'second')
    (mnt / 'first').write_bytes(st.f32(9, 8, 7, 6))
    error = weightfs('discard', mnt.path, 'second', code=EXIT_COMMIT).error
    assert "'second' is another name of the file 'first', which has edits; discard 'first' as well" in error
    weightfs('discard', mnt.path, 'second', 'first')
    assert look(mnt.path) == before
    os.link(mnt / 'first', mnt / 'third')
    (mnt / 'third').write_bytes(st.f32(9, 8, 7, 6))
    weightfs('discard', mnt.path, 'third')
    assert not (mnt / 'third').exists() and (mnt / 'second').read_bytes() == st.f32(9, 8, 7, 6)
    weightfs('discard', mnt.path, 'second')
    assert look(mnt.path) == before


def test_all_names_of_an_edited_file_come_back(mount, folder):
    source = folder / 'tied.pth'
    source.write_bytes(pth.checkpoint(pth.dictionary(**{name: pth.tensor() for name in ('first', 'second', 'third', 'fourth')})))
    mnt = mount(source, 'output=%s' % (folder / 'out.pth'))
    before = look(mnt.path)
    os.link(mnt / 'first', mnt / 'new')
    (mnt / 'new').write_bytes(st.f32(9, 8, 7, 6))
    for name in ('first', 'second', 'third'):
        os.unlink(mnt / name)
    weightfs('discard', mnt.path, 'new')
    after = look(mnt.path)
    assert sorted(after) == sorted(before)
    for name in ('first', 'second', 'third', 'fourth'):  # the names in the attributes are in another order
        assert (after[name][:5], after[name][6]) == (before[name][:5], before[name][6])
        assert sorted(after[name][5]['key'].split()) == sorted(before[name][5]['key'].split())


@pytest.mark.parametrize('options', [(), ('files=npy',), ('layout=flat',), ('remap=s/^a\\./z./', 'cast=F16')], ids=str)
def test_views_and_forms_of_trees(options, mount, folder):
    source = checkpoints.write(folder / 'in.safetensors', TENSORS)
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors'), *options)
    before = look(mnt.path)
    names = [name for name, one in before.items() if len(one) == 7]
    write(mnt, names[0], b'\x93')
    os.unlink(mnt / names[1])
    os.rename(mnt / names[2], mnt / 'moved')
    os.setxattr(mnt / names[3], 'user.weightfs.shape', b'[1, 1, 4]')
    (mnt / names[3]).stat()
    weightfs('discard', mnt.path)
    assert look(mnt.path) == before


def test_mistakes(made, folder):
    os.rename(made / 'step', made / 'pace')
    assert "'nix' is neither in the mount nor in its source" in weightfs('discard', made.path, 'pace', 'nix', code=EXIT_RULES).error
    assert (made / 'pace').exists()
    assert "'..'" in weightfs('discard', made.path, '../x', code=EXIT_USAGE).error
    assert "'.weightfs/status.json' cannot have edits" in weightfs('discard', made.path, '.weightfs/status.json', code=EXIT_COMMIT).error
    assert 'is neither in the mount nor in its source' in weightfs('discard', made.path, *['x' * 200] * 1000, code=EXIT_RULES).error
    assert (made / 'pace').exists()
    assert 'missing MOUNTPOINT' in weightfs('discard', code=EXIT_USAGE).error
    assert 'not a weightfs mount point' in weightfs('discard', folder, code=EXIT_MOUNT).error
    assert weightfs('discard', '%s/' % made.path, '%s//pace/.' % made.path).stdout == 'discarded 1 edit\n'


def test_a_mount_without_an_output(mount, small):
    mnt = mount(small)
    assert 'read-only and has no edits' in weightfs('discard', mnt.path, code=EXIT_COMMIT).error


@pytest.mark.root
def test_another_user_cannot_discard(mount, small, folder):
    open_to_all(folder)
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'), 'allow_other')
    os.rename(mnt / 'step', mnt / 'pace')
    done = tool('setpriv', '--reuid=65534', '--clear-groups', *program.command_for_others(), 'discard', mnt.path, code=None)
    assert done.code == EXIT_COMMIT and 'only the user who mounted it may discard edits' in done.stderr
    assert (mnt / 'pace').exists()


@pytest.mark.parametrize('target', ['output', 'rw'])
def test_committed_edits_need_a_word(mount, small, folder, target):
    out = folder / 'out.safetensors'
    mnt = mount(small, 'rw' if target == 'rw' else 'output=%s' % out)
    before = steady(look(mnt.path))
    os.rename(mnt / 'step', mnt / 'pace')
    mnt.commit()
    write(mnt, 'a/c', b'J')
    error = weightfs('discard', mnt.path, 'a/c', code=EXIT_COMMIT).error
    assert '--committed' in error and (mnt / 'a/c').read_bytes() == b'Jello'
    assert weightfs('discard', '--committed', mnt.path).stdout == 'discarded 2 edits\n'
    assert steady(look(mnt.path)) == before and mnt.status()['state'] == 'dirty'
    weightfs('umount', mnt.path)
    mnt.wait()
    assert list(st.read(small if target == 'rw' else out).tensors) == ['step', 'a.b.bias', 'a.b.weight', 'none', 'a.c']


def test_open_files_and_mappings_see_the_source_again(made):
    with open(made / 'a/b/weight', 'r+b', buffering=0) as file, open(made / 'a/c', 'r+b') as other:
        mapped = mmap.mmap(other.fileno(), 8)
        mapped[:4] = b'\xff' * 4
        mapped.flush()
        file.write(b'\xff' * 4)
        os.rename(made / 'a', made / 'z')
        weightfs('discard', made.path)
        assert os.pread(file.fileno(), 4, 0) == st.f32(1) and mapped[:4] == st.f32(1)
        os.pwrite(file.fileno(), st.f32(5), 0)
        mapped.close()
    assert (made / 'a/b/weight').read_bytes() == st.f32(5, 2, 3, 4, 5, 6) and made.status()['edits'] == 1


def test_one_thread_is_enough(folder):
    source = checkpoints.write(folder / 'in.safetensors', TENSORS)
    mnt = folder / 'mnt'
    tool(*program.COMMAND, source, mnt, '-s', '-o', 'output=%s' % (folder / 'out.safetensors'))
    try:
        for _ in range(20):
            write(mnt, 'a/c', b'xx')
            os.rename(mnt / 'a/b', mnt / 'b')
            list(os.walk(mnt))
            weightfs('discard', mnt)
            assert (mnt / 'a/b/bias').exists() and (mnt / 'a/c').read_bytes() == st.f32(1, 1)
    finally:
        weightfs('umount', '--discard', mnt)


def test_a_journal_without_edits_is_empty(made, folder):
    os.rename(made / 'step', made / 'pace')
    journal, = folder.rglob('journal')

    def records():
        return [line.split()[2:] for line in journal.read_text().rstrip('\0').splitlines()]

    weightfs('discard', made.path, 'pace')
    assert records()[-1] == ['U', 'pace']
    assert weightfs('discard', made.path, 'pace', code=EXIT_RULES) and len(records()) == 3
    os.rename(made / 'step', made / 'pace')
    weightfs('discard', made.path)
    assert records() == []
    os.rename(made / 'step', made / 'pace')
    assert [record[0] for record in records()] == ['O', 'R']


# ---- at random ----

NAMES = ['a', 'a/b', 'a/b/weight', 'a/b/bias', 'a/c', 'd', 'd/weight', 'step', 'x', 'x/y', 'a/x', 'd/b', 'again', '.s']


def edit_at_random(mnt, rng):
    """One call that may fail, as many do."""
    one, other = mnt / rng.choice(NAMES), mnt / rng.choice(NAMES)
    try:
        kind = rng.randrange(11)
        if kind == 0:
            with open(one, 'r+b') as file:
                file.write(bytes(rng.randrange(256) for _ in range(4)))
        elif kind < 4:
            os.rename(one, other)
        elif kind == 4:
            os.unlink(one)
        elif kind == 5:
            os.mkdir(one)
        elif kind == 6:
            one.write_bytes(bytes(8))
        elif kind == 7:
            os.link(one, other)
        elif kind == 8:
            os.setxattr(one, 'user.weightfs.shape', rng.choice([b'[2]', b'[1, 2]', b'[8]']))
        elif kind == 9:
            shutil.rmtree(one)
        else:
            exchange(mnt, one.relative_to(mnt.path), other.relative_to(mnt.path))
    except (OSError, AssertionError):
        pass


def discard_at_random(mnt, rng):
    paths = rng.sample(NAMES, rng.randrange(1, 4))
    before = look(mnt.path)
    done = weightfs('discard', mnt.path, *paths, code=None)
    assert done.code in (0, EXIT_COMMIT, EXIT_RULES), done.stderr
    if done.code != 0:
        assert look(mnt.path) == before
    return done.code == 0


def run_at_random(mount, folder, seed, n_rounds):
    rng = random.Random(seed)
    source = folder / 'in.pth'
    source.write_bytes(checkpoints._pickled(TENSORS, {'epoch': pth.number(3)}))
    mnt = mount(source, 'output=%s' % (folder / 'out.pth'))
    mnt.source, mnt.out, mnt.ending = source, folder / 'out.pth', 'pth'
    before = look(mnt.path)
    n_done = 0
    for i in range(n_rounds):
        for _ in range(rng.randrange(1, 12)):
            edit_at_random(mnt, rng)
        n_done += discard_at_random(mnt, rng)
        shown = steady(look(mnt.path))
        if i % 4 == 3:  # the journal gives the same
            kill(mnt)
            mnt = again(mount, mnt, 'again%d' % i)
            assert steady(look(mnt.path)) == shown, (seed, i)
        if i % 3 == 2:
            weightfs('discard', mnt.path)
            assert steady(look(mnt.path)) == steady(before), (seed, i)
            assert mnt.status()['edits'] == 0
    assert n_done > 0
    weightfs('umount', '--discard', mnt.path)
    mnt.wait()


@pytest.mark.parametrize('seed', range(3))
def test_random_edits_are_taken_back(mount, folder, seed):
    run_at_random(mount, folder, seed, 12)


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(100, 140))
def test_many_random_edits_are_taken_back(mount, folder, seed):
    run_at_random(mount, folder, seed, 25)


# ---- umount --discard ----


def edit_all(mnt):
    """Every kind of edit: bytes, size, names, links, attributes, modes, times, directories, values of metadata."""
    with open(mnt / 'a/b/weight', 'r+b') as file:
        file.write(b'\xff' * 4)
    os.rename(mnt / 'a/b/bias', mnt / 'a/moved')
    os.unlink(mnt / 'none')
    os.link(mnt / 'step', mnt / 'again')
    os.setxattr(mnt / 'a/c', 'user.weightfs.shape', b'[1, 5]')
    os.chmod(mnt / 'a/c', 0o600)
    os.utime(mnt / 'a/c', (1, 1))
    os.mkdir(mnt / 'new')
    (mnt / 'new/.txt').write_bytes(b'x')
    shutil.copyfile(mnt / 'step', mnt / '.scratch')


@pytest.fixture(params=['safetensors', 'pth', 'bpk', 'directory'])
def mounted(request, mount, small, folder):
    """A mount of a source in the format, whose output has it too."""
    is_set = request.param == 'directory'
    source = folder / ('set/' if is_set else 'in.' + request.param)
    weightfs('convert', '--max-shard-size=30' if is_set else '--format=' + {'pth': 'pytorch', 'bpk': 'burnpack'}.get(request.param, request.param),
             small, '%s/' % source if is_set else source)
    out = folder / ('out' if is_set else 'out.' + request.param)
    mnt = mount(source, 'output=%s%s' % (out, '/' if is_set else ''))
    mnt.out, mnt.source = out, source
    return mnt


def is_empty(out):
    """The directory of a set is made by the mount."""
    return not out.exists() or out.is_dir() and not any(out.iterdir())


def stages(folder):
    return [path.name for path in folder.rglob('.*.weightfs')] + [path.name for path in folder.rglob('.weightfs') if path.is_dir()]


def test_every_kind_of_edit_goes(mounted, folder):
    edit_all(mounted)
    n_edits = mounted.status()['edits']
    assert n_edits >= 5
    said = weightfs('umount', '--discard', mounted.path).stdout
    mounted.wait()
    assert said == 'discarded %d edits\n' % n_edits
    assert not is_mounted(mounted.path) and is_empty(mounted.out) and stages(folder) == []


def test_what_was_committed_stays(mounted, folder):
    os.rename(mounted / 'step', mounted / 'first')
    mounted.commit()
    before = {path: path.read_bytes() for path in ([mounted.out] if mounted.out.is_file() else mounted.out.iterdir()) if path.is_file()}
    os.rename(mounted / 'first', mounted / 'second')
    with open(mounted / 'a/c', 'r+b') as file:
        file.write(b'J')
    assert weightfs('umount', '--discard', mounted.path).stdout == 'discarded 2 edits\n'
    mounted.wait()
    assert {path: path.read_bytes() for path in before} == before and before
    assert stages(folder) == []


def test_a_crash_afterwards_brings_nothing_back(mounted, mount, folder):
    edit_all(mounted)
    with open(mounted / 'a/c', 'rb'):
        assert 'the edits are discarded, but it is still in use' in weightfs('umount', '--discard', mounted.path, code=EXIT_MOUNT).error
        with pytest.raises(OSError, match='Read-only'):
            (mounted / 'more').write_bytes(b'x')
        with pytest.raises(OSError, match='Read-only'):
            os.rename(mounted / 'step', mounted / 'pace')
        assert 'its edits were discarded; unmount it' in weightfs('commit', mounted.path, code=EXIT_COMMIT).error
        assert mounted.status()['edits'] == 0
        for pid in mounted.workers:
            os.kill(pid, signal.SIGKILL)
    mounted.allow('signal 9').wait(128 + signal.SIGKILL)
    assert not mounted.out.is_file() and not list(mounted.out.glob('[!.]*'))
    options = 'output=%s%s' % (mounted.out, '' if mounted.out.suffix else '/')
    again = mount(mounted.source, options, at=folder / 'again')
    assert (again / 'step').exists() and not (again / 'a/moved').exists() and again.status()['edits'] == 0


def test_an_ordinary_unmount_after_it_commits_nothing(mounted):
    edit_all(mounted)
    with open(mounted / 'a/c', 'rb'):
        weightfs('umount', '--discard', mounted.path, code=EXIT_MOUNT)
    program.unmount(mounted.path)
    mounted.wait()
    assert not mounted.out.is_file() and not list(mounted.out.glob('[!.]*'))


def test_nothing_to_discard(mounted, folder):
    assert weightfs('umount', '--discard', mounted.path).stdout == 'discarded 0 edits\n'
    mounted.wait()
    assert stages(folder) == [] and is_empty(mounted.out)


def test_a_mount_without_an_output_is_only_unmounted(mount, small):
    mnt = mount(small)
    assert weightfs('umount', '--discard', mnt.path).stdout == ''
    mnt.wait()


def test_a_source_that_would_have_been_replaced(mount, small):
    before = small.read_bytes()
    mnt = mount(small, 'rw')
    edit_all(mnt)
    weightfs('umount', '--discard', mnt.path)
    mnt.wait()
    assert small.read_bytes() == before and st.read(small).tensors['step'][0] == 'I64'


@pytest.mark.root
def test_another_user_cannot_discard_with_the_mount(mount, small, folder):
    open_to_all(folder)
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'), 'allow_other')
    os.rename(mnt / 'step', mnt / 'pace')
    done = tool('setpriv', '--reuid=65534', '--clear-groups', *program.command_for_others(), 'umount', '--discard', mnt.path, code=None)
    assert done.code == EXIT_COMMIT and 'only the user who mounted it may discard edits' in done.stderr
    mnt.commit()
    assert 'pace' in st.read(folder / 'out.safetensors').tensors


@pytest.mark.parametrize('is_killed', [False, True])
def test_as_many_paths_as_a_command_line_has(mount, folder, is_killed):
    """In one call, which is one edit of the journal: names exchanged in a ring come back only together."""
    names = ['%05d-%s' % (i, 'x' * 60) for i in range(5000)]
    source, out = st.write(folder / 'in.safetensors', {name: ('U8', [1], bytes([i % 256])) for i, name in enumerate(names)}), folder / 'out.safetensors'
    mnt = mount(source, 'output=%s' % out)
    before = look(mnt.path)
    os.rename(mnt / names[0], mnt / '.first')
    for i in range(1, len(names)):
        os.rename(mnt / names[i], mnt / names[i - 1])
    os.rename(mnt / '.first', mnt / names[-1])
    os.setxattr(mnt / names[7], 'user.weightfs.dtype', b'I8')
    weightfs('discard', mnt.path, *names)
    assert look(mnt.path) == before
    if is_killed:
        kill(mnt)
        mnt = mount(source, 'output=%s' % out).allow('of an earlier mount')
        assert look(mnt.path) == before
