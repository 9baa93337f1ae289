# SPDX-License-Identifier: MIT
"""--backup: what is replaced keeps another name. cp(1) is the oracle of which."""
import os
import shutil
import stat

import numpy
import pytest

from wfs_testlib import crash, program, st
from wfs_testlib.program import COMMAND, EXIT_COMMIT, EXIT_USAGE, tool, weightfs

OLD, NEW, OLDER = [{'w': ('U8', [3], data)} for data in (b'old', b'new', b'odd')]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def place(folder):
    """A folder with a checkpoint that is to be replaced, which is not like others."""
    (folder / 'here').mkdir()
    path = st.write(folder / 'here' / 'm.safetensors', OLD)
    path.chmod(0o640)
    os.utime(path, (1, 1))
    return path


@pytest.fixture
def new(folder):
    return st.write(folder / 'new.safetensors', NEW)


def convert(folder, new, target, *options):
    return ['convert', '--overwrite', *options, new, target]


def edit(folder, new, target, *options):
    numpy.save(folder / 'w.npy', numpy.frombuffer(b'new', 'u1'))
    return ['edit', '--overwrite', '--replace', 'w=%s' % (folder / 'w.npy'), *options, target, target]


def apply(folder, new, target, *options):
    weightfs('patch', 'make', target, new, folder / 'p.safetensors')
    return ['patch', 'apply', '--overwrite', *options, folder / 'p.safetensors', target, target]


def make(folder, new, target, *options):
    return ['patch', 'make', '--overwrite', *options, target, new, target]


# ---- which name ----

PRESENT = [[], ['m.safetensors~'], ['m.safetensors.~1~'], ['m.safetensors.~7~', 'm.safetensors.~9~', 'm.safetensors~', 'm.safetensors.bak'],
           ['m.safetensors.~07~', 'm.safetensors.~x~', 'm.safetensors.~~', 'm.safetensors.~3', 'n.safetensors.~4~', 'm.safetensors.~12'],
           ['m.safetensors.~99~']]
FEW = [['-b'], ['--backup=t']]
WORDS = [*FEW, *[['--backup=' + word] for word in ('none', 'off', 'simple', 'never', 'numbered', 'existing', 'nil')], ['--backup'], ['-S', '.bak'],
         ['-b', '-S', '-old'], ['--backup=t', '--suffix=.bak'], ['--suffix=.bak', '--backup=none'], ['--backup=none', '--suffix=.bak'], []]
VARIABLES = [{}, {'VERSION_CONTROL': 'numbered'}, {'VERSION_CONTROL': 'never', 'SIMPLE_BACKUP_SUFFIX': '.bak'}, {'SIMPLE_BACKUP_SUFFIX': 'a/b'},
             {'VERSION_CONTROL': '', 'SIMPLE_BACKUP_SUFFIX': ''}]


def state(folder):
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob('*')}


@pytest.mark.parametrize('present, cases', [
    *[(present, [({}, words) for words in FEW]) for present in PRESENT],
    (PRESENT[3], [({}, words) for words in WORDS]), ([], [(variables, words) for variables in VARIABLES for words in [[], ['-b'], ['-S', '-old'], ['--backup=none']]])])
def test_the_name_is_that_of_cp(folder, place, new, present, cases):
    for name in present:
        (place.parent / name).write_text(name)
    for variables, words in cases:
        ours, theirs = folder / 'ours', folder / 'theirs'
        for one in (ours, theirs):
            shutil.rmtree(one, ignore_errors=True)
            shutil.copytree(place.parent, one)
        environment = {**os.environ, **variables}
        tool('cp', *words, new, theirs / place.name, env=environment)
        weightfs(*convert(folder, new, ours / place.name, *words), env=environment)
        assert state(ours) == state(theirs), (variables, words)


@pytest.mark.parametrize('verb', [convert, edit, apply, make])
@pytest.mark.parametrize('control, name', [('simple', 'm.safetensors~'), ('numbered', 'm.safetensors.~1~')])
def test_the_old_file_itself_is_kept(folder, place, new, verb, control, name):
    words = verb(folder, new, place, '--backup=' + control)
    before = place.stat()
    weightfs(*words)
    after = (place.parent / name).stat()
    assert [getattr(after, what) for what in ('st_ino', 'st_mode', 'st_uid', 'st_gid', 'st_size', 'st_mtime_ns', 'st_nlink')] == [
        getattr(before, what) for what in ('st_ino', 'st_mode', 'st_uid', 'st_gid', 'st_size', 'st_mtime_ns', 'st_nlink')]
    assert st.read(place.parent / name).tensors == OLD and stat.S_IMODE(place.stat().st_mode) == 0o640
    assert verb is make or st.read(place).tensors == NEW
    assert names(place.parent) == sorted([place.name, name])


@pytest.mark.parametrize('ending', ['safetensors', 'pth', 'bpk', 'mpk'])
def test_every_format(folder, new, ending):
    target = folder / ('m.' + ending)
    tensors = {'w': ('F32', [1], st.f32(1))}
    source = st.write(folder / 'source.safetensors', tensors)
    weightfs('convert', source, target)
    before = target.read_bytes()
    for number in range(1, 4):
        weightfs('convert', '--overwrite', '--backup=t', source, target)
        assert (folder / ('m.%s.~%d~' % (ending, number))).read_bytes() == before


def test_nothing_is_kept_where_nothing_is_replaced(folder, new):
    weightfs('convert', '--backup', new, folder / 'm.safetensors')
    assert names(folder) == ['m.safetensors', 'new.safetensors']


def test_a_backup_alone_does_not_allow_to_replace(folder, place, new):
    assert '--overwrite' in weightfs('convert', '--backup', new, place, code=EXIT_COMMIT).error
    assert names(place.parent) == [place.name] and st.read(place).tensors == OLD


def test_a_backup_has_a_backup(folder, place, new):
    older = st.write(place.parent / 'm.safetensors~', OLDER)
    weightfs(*convert(folder, new, older, '-b', '--format=safetensors'))
    assert st.read(place.parent / 'm.safetensors~~').tensors == OLDER and st.read(place).tensors == OLD


def test_a_simple_backup_that_is_the_same_file_is_replaced(folder, place, new):
    os.link(place, place.parent / 'm.safetensors~')
    weightfs(*convert(folder, new, place, '-b'))
    assert names(place.parent) == ['m.safetensors', 'm.safetensors~'] and st.read(place.parent / 'm.safetensors~').tensors == OLD


def test_a_link_with_the_name_is_replaced_and_not_followed(folder, place, new):
    other = st.write(folder / 'other', OLDER)
    (place.parent / 'm.safetensors~').symlink_to(other)
    weightfs(*convert(folder, new, place, '-b'))
    assert st.read(place.parent / 'm.safetensors~').tensors == OLD and st.read(other).tensors == OLDER


# ---- what is refused ----

def refuse(folder, *words, code=EXIT_COMMIT):
    before = state(folder)
    error = weightfs(*words, code=code).error
    assert state(folder) == before
    return error


def test_what_the_source_is_read_from_is_not_replaced(folder, place, new):
    source = st.write(place.parent / 'm.safetensors~', OLDER)
    assert "'%s', which is read" % source in refuse(folder, *convert(folder, source, place, '-b'))
    weightfs('patch', 'make', place, new, folder / 'p.safetensors')
    shutil.move(folder / 'p.safetensors', source)
    assert 'which is read' in refuse(folder, 'patch', 'apply', '--overwrite', '-b', source, place, place)
    assert 'which is read' in refuse(folder, 'patch', 'make', '--overwrite', '-b', source, new, place)
    weightfs(*convert(folder, source, place, '--backup=numbered'))


def test_a_directory_with_the_name_is_in_the_way(folder, place, new):
    (place.parent / 'm.safetensors~').mkdir()
    assert "'m.safetensors~' is a directory" in refuse(folder, *convert(folder, new, place, '-b'))


def test_a_name_that_is_too_long_is_refused(folder, new):
    target = st.write(folder / ('x' * 243 + '.safetensors'), OLD)
    assert 'its name would have 256 bytes' in refuse(folder, *convert(folder, new, target, '-b'))
    target = target.rename(folder / ('x' * 242 + '.safetensors'))
    assert 'its name would have 258 bytes' in refuse(folder, *convert(folder, new, target, '--backup=t'))
    weightfs(*convert(folder, new, target, '-b'))
    assert st.read(str(target) + '~').tensors == OLD


@pytest.mark.parametrize('words, text', [
    (['--backup=x'], "not 'x'"), (['--backup='], "not ''"), (['--suffix=a/b'], "not 'a/b'"), (['--suffix='], "not ''"), (['-S'], 'missing value')])
def test_values_that_are_wrong(folder, place, new, words, text):
    assert text in refuse(folder, 'convert', '--overwrite', new, place, *words, code=EXIT_USAGE)


def test_a_wrong_variable_is_named(folder, place, new):
    words = convert(folder, new, place, '-b')
    error = weightfs(*words, code=EXIT_USAGE, env={**os.environ, 'VERSION_CONTROL': 'x'}).error
    assert 'VERSION_CONTROL' in error and "'x'" in error and st.read(place).tensors == OLD
    weightfs(*convert(folder, new, place, '--backup=simple'), env={**os.environ, 'VERSION_CONTROL': 'x'})


@pytest.mark.root
def test_a_file_to_which_no_link_may_be_made_is_not_replaced(folder, place, new):
    """The kernel refuses links to files of other users that one may not write to."""
    if not os.path.exists('/proc/sys/fs/protected_hardlinks') or open('/proc/sys/fs/protected_hardlinks').read().strip() != '1':
        pytest.skip('links to all files are allowed')
    user = 65534
    place.chmod(0o644)
    os.chown(place.parent, user, user)
    for path in (folder, new):
        path.chmod(path.stat().st_mode | 0o555)
    before = state(folder)
    command = [*program.command_for_others(), *map(str, convert(folder, new, place, '-b'))]
    done = program.subprocess.run(command, user=user, group=user, extra_groups=[], check=False,
                                  stdin=program.subprocess.DEVNULL, stdout=program.subprocess.PIPE, stderr=program.subprocess.PIPE)
    if done.returncode not in (0, EXIT_COMMIT):
        pytest.skip('the program cannot be run by others here: %s' % done.stderr)
    assert done.returncode == EXIT_COMMIT and b'does not allow a hard link' in done.stderr and done.stderr.count(b'\n') == 1
    assert state(folder) == before


# ---- at every step ----

CONTROLS = {'simple': 'm.safetensors~', 'numbered': 'm.safetensors.~2~'}


@pytest.mark.skipif(not crash.LIBRARY.exists(), reason='no fault injector in this build')
@pytest.mark.parametrize('mode', ['kill-before', 'eio-once', *[pytest.param(mode, marks=pytest.mark.slow) for mode in ('kill-after', 'enospc-once', 'enospc-on')]])
@pytest.mark.parametrize('control', CONTROLS)
def test_old_or_new_is_there_at_each_step_and_the_backup_is_whole(folder, control, mode):
    disk = folder / 'disk'

    def run(mode, at):
        shutil.rmtree(disk, ignore_errors=True)
        disk.mkdir()
        target, backup = st.write(disk / 'm.safetensors', OLD), disk / CONTROLS[control]
        for name in ('m.safetensors~', 'm.safetensors.~1~'):
            st.write(disk / name, OLDER)
        injection = crash.Injection(disk, folder / 'inject', mode, at)
        words = ['edit', '--overwrite', '--backup=' + control, '--set=w.dtype=I8', target, target]
        done = tool(*COMMAND, *words, env=injection.environment, code=None)
        dtype = st.read(target).tensors['w'][0]
        kept = st.read(backup).tensors if backup.exists() else None
        assert kept in (OLD, OLDER if control == 'simple' else None), (at, kept)
        assert dtype == 'U8' or kept == OLD, at
        if mode not in crash.KILLS:
            assert (done.code == 0) <= (dtype == 'I8'), (at, done.stderr)
            assert dtype == 'I8' or kept == (OLDER if control == 'simple' else None), at
            failed = injection.calls()[at - 1] if at else ('', '')
            left = {path.name for path in disk.iterdir()} - ({os.path.basename(failed[1])} if failed[0] == 'unlink' else set())
            assert left == {'m.safetensors', 'm.safetensors~', 'm.safetensors.~1~'} | ({backup.name} if kept == OLD else set()), (at, failed)
        else:
            weightfs('edit', '--overwrite', '--backup=' + control, '--set=w.dtype=I8', target, target)
            assert not [path.name for path in disk.iterdir() if path.name.startswith('.')], at
        return injection

    calls = run('count', 0).calls()
    assert ('link', str(disk.resolve() / CONTROLS[control])) in calls or control == 'simple'
    for at in range(1, len(calls) + 1, 2 if mode == 'kill-before' else 1):
        run(mode, at)
