# SPDX-License-Identifier: MIT
"""Where things are and who may read them: the same however a source is named and wherever its driver runs.

Every source below is two files (one for KINDS of one file), of which one has the mode of the test and the others are open
to all. What comes out may be read by those only who may read each of them."""
import contextlib
import os
import pathlib
import signal
import stat
import subprocess

import pytest

from wfs_testlib import program, sets, st
from wfs_testlib.mount import Mount, children, force_unmount, is_alive, is_mounted, open_to_all, wait_for
from wfs_testlib.program import tool, weightfs

pytestmark = pytest.mark.root

USER = 65534
AGAIN = 'edits? of an earlier mount (is|are) shown again'
X, Y, Z = ('F32', [2], st.f32(1, 2)), ('F32', [1], st.f32(3)), ('U8', [3], b'abc')


class Source:
    """What to type for it, from the folder that it is in; the options that belong to it; the files that it is."""

    def __init__(self, typed, private, *public, options=(), as_stdin=False):
        self.typed, self.private, self.files, self.options, self.as_stdin = typed, private, [private, *public], options, as_stdin

    def set_modes(self, mode, group=None):
        for path in self.files:
            path.chmod(mode if path == self.private else 0o644)
        if group is not None:
            os.chown(self.private, -1, group)
        return self

    def option_list(self, where, folder):
        return [option % ('' if where == 'relative' else str(folder) + '/') for option in self.options]

    def name(self, where, folder):
        return self.typed if where == 'relative' or self.as_stdin else folder / self.typed

    @contextlib.contextmanager
    def stdin(self):
        with open(self.private if self.as_stdin else os.devnull, 'rb') as file:
            yield file


def make_set(folder):
    sets.write(folder / 'model', [{'a.x': X}, {'b.y': Y, 'b.z': Z}])
    return [folder / 'model' / name for name in (sets.name(2, 2), sets.name(1, 2), sets.INDEX)]


def make_file(folder):
    return st.write(folder / 'model.safetensors', {'a.x': X, 'b.y': Y, 'b.z': Z})


def make_overlay(folder):
    base = st.write(folder / 'model.safetensors', {'a.x': X, 'b.y': ('F32', [1], st.f32(0)), 'b.z': Z})
    over = st.write(folder / 'over.safetensors', {'b.y': Y})
    return Source('model.safetensors', over, base, options=['overlay=%sover.safetensors'])


def make_private_index(folder):
    second, first, index = make_set(folder)
    return Source('model/' + sets.INDEX, index, first, second)


KINDS = {
    'file': lambda folder: Source('model.safetensors', make_file(folder)),
    'index': lambda folder: Source('model/' + sets.INDEX, *make_set(folder)),
    'index itself': make_private_index,
    'directory': lambda folder: Source('model', *make_set(folder)),
    'overlay': make_overlay,
    'stdin': lambda folder: Source('-', make_file(folder), as_stdin=True),
}
IS_SET = {'index', 'index itself', 'directory'}
MODES = [0o600, 0o640, 0o644]
# Standard input has no name that could be relative, and cannot be replaced.
NAMED = [(where, kind) for where in ('relative', 'absolute') for kind in KINDS if kind != 'stdin']
EACH = [*NAMED, ('absolute', 'stdin')]


def ids(value):
    return '%03o' % value if isinstance(value, int) else str(value).replace(' ', '-')


class Background:
    """A mount as a user has it who waits for the prompt. The same uses as those of Mount."""

    def __init__(self, source, path, *options, cwd=None, stdin=subprocess.DEVNULL):
        command = [*program.COMMAND, source, path, '-o', ','.join(options)]
        done = subprocess.run(command, cwd=cwd, stdin=stdin, stderr=subprocess.PIPE, timeout=program.PATIENCE, check=False)
        self.path = pathlib.Path(path)
        assert done.returncode == 0 and is_mounted(path), done.stderr
        self.supervisor = self.control(2).pid

    __truediv__, control, commit, status = Mount.__truediv__, Mount.control, Mount.commit, Mount.status

    def unmount(self):
        weightfs('umount', self.path)

    def die(self):
        processes = [*children(self.supervisor), self.supervisor]
        assert len(processes) == 2
        for pid in processes:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not any(map(is_alive, processes)), 'the end of the driver')
        force_unmount(self.path)

    def close(self):
        if is_mounted(self.path):
            self.unmount()


class Foreground(Mount):
    def die(self):
        workers = self.workers_now()
        self.kill()
        wait_for(lambda: not any(map(is_alive, workers)), 'the end of the driver')
        self.forget()


@pytest.fixture
def start(folder):
    """start(how, source, where, 'option', ...) mounts on a folder `mnt`, as somebody whose umask is 022."""
    open_to_all(folder)
    made, before = [], os.umask(0o022)

    def run(how, source, where, *options, allow=None):
        (folder / 'mnt').mkdir(exist_ok=True)
        with source.stdin() as stdin:
            mnt = how(source.name(where, folder), folder / 'mnt', *options, *source.option_list(where, folder), cwd=folder, stdin=stdin)
        if allow and how is Foreground:
            mnt.allow(allow)
        made.append(mnt)
        return mnt

    yield run
    os.umask(before)
    for mnt in made:
        if not (isinstance(mnt, Foreground) and mnt._stderr.closed):
            mnt.close()


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def output_modes(path, source):
    """Of the one file, or of those in a folder that are not files of the source under another name, which keep their own."""
    files = [path] if path.is_file() else [file for file in path.iterdir() if not file.name.startswith('.')]
    new = [file for file in files if not any(file.samefile(old) for old in source.files if old.exists())]
    assert new
    return {mode_of(file) for file in new}


def may_read(path, group):
    done = tool('setpriv', '--reuid=%d' % USER, '--regid=%d' % group, '--clear-groups', 'cat', path, code=None)
    assert done.code == 0 or 'Permission denied' in done.stderr
    return done.code == 0


def check_shown(mnt, mode):
    """Modes without writing, and what the kernel makes of them for members of the group and for others."""
    assert mode_of(mnt / 'a/x') & 0o077 == mode & 0o044
    assert mode_of(mnt / 'a') & 0o044 == mode & 0o044
    assert may_read(mnt / 'a/x', os.getgid()) == bool(mode & 0o040)
    assert may_read(mnt / 'a/x', USER) == bool(mode & 0o004)


@pytest.mark.parametrize('mode', MODES, ids=ids)
@pytest.mark.parametrize('where, kind', EACH, ids=ids)
def test_convert_grants_what_every_source_does(folder, where, kind, mode):
    source = KINDS[kind](folder).set_modes(mode)
    for target in ('out.safetensors', 'out/'):
        with source.stdin() as stdin:
            weightfs('convert', *['--' + option for option in source.option_list(where, folder)], source.name(where, folder), target,
                     '--format=safetensors', cwd=folder, stdin=stdin, preexec_fn=lambda: os.umask(0o022))
        assert output_modes(folder / target, source) == {mode}


@pytest.mark.parametrize('mode', MODES, ids=ids)
@pytest.mark.parametrize('where, kind', EACH, ids=ids)
@pytest.mark.parametrize('how', [Foreground, Background], ids=lambda how: how.__name__)
def test_a_mount_shows_and_publishes_what_every_source_grants(start, folder, how, where, kind, mode):
    source = KINDS[kind](folder).set_modes(mode)
    target = 'out/' if kind in IS_SET else 'out.safetensors'
    out = folder / target
    mnt = start(how, source, where, 'allow_other', 'output=' + (target if where == 'relative' else '%s/%s' % (folder, target)))
    check_shown(mnt, mode)
    os.rename(mnt / 'b/z', mnt / 'b/w')
    mnt.commit()
    assert output_modes(out, source) == {mode}
    check_shown(mnt, mode)
    # What is edited after a commit survives the driver, whatever its directory was.
    (mnt / 'b/y').write_bytes(st.f32(4))
    mnt.die()
    mnt = start(how, source, where, 'output=%s' % (folder / target), 'overwrite', allow=AGAIN)
    assert (mnt / 'b/y').read_bytes() == st.f32(4) and (mnt / 'b/w').read_bytes() == b'abc'
    mnt.commit()
    assert output_modes(out, source) == {mode}


@pytest.mark.parametrize('mode', MODES, ids=ids)
@pytest.mark.parametrize('where, kind', NAMED, ids=ids)
@pytest.mark.parametrize('how', [Foreground, Background], ids=lambda how: how.__name__)
def test_a_source_that_is_replaced_grants_what_every_source_does(start, folder, how, where, kind, mode):
    source = KINDS[kind](folder).set_modes(mode)
    before = {path.stat().st_ino for path in source.files}
    mnt = start(how, source, where, 'rw', 'allow_other')
    check_shown(mnt, mode)
    (mnt / 'a/x').write_bytes(st.f32(8, 9))
    mnt.commit()
    written = folder / 'model' if kind in IS_SET else folder / 'model.safetensors'
    new = [written] if written.is_file() else [path for path in written.iterdir() if path.suffix in ('.json', '.safetensors')]
    new = [path for path in new if path.stat().st_ino not in before]
    assert new and {mode_of(path) for path in new} == {mode}
    (mnt / 'b/y').write_bytes(st.f32(4))
    mnt.die()
    mnt = start(how, source, where, 'rw', 'allow_other', allow=AGAIN)
    assert (mnt / 'a/x').read_bytes() == st.f32(8, 9) and (mnt / 'b/y').read_bytes() == st.f32(4)
    assert (mnt / 'b/z').read_bytes() == b'abc'
    check_shown(mnt, mode)
    mnt.commit()


@pytest.mark.parametrize('mode', MODES, ids=ids)
@pytest.mark.parametrize('where, kind', EACH, ids=ids)
def test_recovery_publishes_what_every_source_grants(start, folder, where, kind, mode):
    source = KINDS[kind](folder).set_modes(mode)
    out = folder / ('out' if kind in IS_SET else 'out.safetensors')
    mnt = start(Background, source, where, 'output=' + ('out/' if kind in IS_SET else 'out.safetensors'))
    (mnt / 'b/y').write_bytes(st.f32(4))
    mnt.die()
    assert weightfs('recover', out.name, cwd=folder, code=program.EXIT_COMMIT).stdout.count('content') == 1
    named = source.private if source.as_stdin else source.typed
    given = ','.join(source.option_list(where, folder))
    weightfs('recover', '--publish', out.name, '--source', named, '--options', given, cwd=folder)
    assert output_modes(out, source) == {mode}
    assert 'no unfinished edits' in weightfs('recover', out.name, cwd=folder).stdout


@pytest.mark.parametrize('operand', ['model', 'model/', '.', 'model/' + sets.INDEX, 'model/.%s.weightfs' % sets.INDEX, 'link', 'elsewhere'])
def test_recovery_finds_the_edits_of_a_set(start, folder, operand):
    source = KINDS['directory'](folder).set_modes(0o644)
    (folder / 'link').symlink_to('model')
    (folder / 'elsewhere').mkdir()
    mnt = start(Background, source, 'absolute', 'rw', *(['stage=%s/elsewhere' % folder] if operand == 'elsewhere' else []))
    (mnt / 'a/x').write_bytes(st.f32(8, 9))
    mnt.die()
    cwd = folder / 'model' if operand == '.' else folder
    result = weightfs('recover', operand, cwd=cwd, code=program.EXIT_COMMIT)
    assert 'content    a/x' in result.stdout and 'not committed' in result.error
    if operand == 'elsewhere':
        assert 'name the output' in weightfs('recover', '--publish', operand, cwd=cwd, code=program.EXIT_COMMIT).error
        weightfs('recover', '--publish', 'model/' + sets.INDEX, '--stage', operand, cwd=cwd)
    else:
        weightfs('recover', '--publish', operand, cwd=cwd)
    assert 'no unfinished edits' in weightfs('recover', operand, cwd=cwd).stdout
    mnt = start(Background, source, 'absolute')
    assert (mnt / 'a/x').read_bytes() == st.f32(8, 9)


def test_recovery_does_not_choose_between_two_mounts(start, folder):
    source = KINDS['file'](folder)
    for name in 'ab':
        mnt = start(Background, source, 'absolute', 'output=%s/%s.safetensors' % (folder, name))
        (mnt / 'a/x').write_bytes(st.f32(8, 9))
        mnt.die()
    error = weightfs('recover', folder, '--discard', code=program.EXIT_COMMIT).error
    assert 'several mounts' in error and '.a.safetensors.weightfs' in error and '.b.safetensors.weightfs' in error


def test_a_group_reads_only_what_is_its_own(start, folder):
    source = KINDS['file'](folder).set_modes(0o640, group=USER)
    mnt = start(Foreground, source, 'absolute', 'allow_other', 'output=%s/out.safetensors' % folder)
    check_shown(mnt, 0o600)
    (mnt / 'a/x').write_bytes(st.f32(8, 9))
    mnt.unmount()
    assert mode_of(folder / 'out.safetensors') == 0o600
    mnt = start(Foreground, source, 'absolute', 'allow_other', 'gid=%d' % USER)
    assert may_read(mnt / 'a/x', USER) and not may_read(mnt / 'a/x', os.getgid())
    mnt.unmount()
    (folder / 'theirs').mkdir()
    os.chown(folder / 'theirs', -1, USER)
    (folder / 'theirs').chmod(0o2755)
    weightfs('convert', folder / 'model.safetensors', folder / 'theirs' / 'out.safetensors')
    assert mode_of(folder / 'theirs/out.safetensors') == 0o640
    assert os.stat(folder / 'theirs/out.safetensors').st_gid == USER


@pytest.mark.parametrize('options', [['sandbox=off'], []], ids=['alone', 'confined'])
def test_linked_shards_that_are_replaced_are_kept_or_missed_aloud(start, folder, options):
    """What a download cache has beside its index: links to files that lie elsewhere."""
    source = KINDS['directory'](folder).set_modes(0o644)
    (folder / 'blobs').mkdir()
    for path in source.files[:2]:
        path.rename(folder / 'blobs' / path.name)
        path.symlink_to('../blobs/' + path.name)
    mnt = start(Foreground, source, 'relative', 'rw', *options, allow='will not survive a crash')
    (mnt / 'a/x').write_bytes(st.f32(8, 9))
    mnt.commit()
    is_kept = 'will not survive' not in mnt.stderr()
    assert is_kept or not options
    (mnt / 'b/y').write_bytes(st.f32(4))
    mnt.die()
    if is_kept:
        mnt = start(Foreground, source, 'relative', 'rw', *options, allow=AGAIN)
        assert (mnt / 'a/x').read_bytes() == st.f32(8, 9) and (mnt / 'b/y').read_bytes() == st.f32(4)
