# SPDX-License-Identifier: MIT
"""Edits outlive their driver: what is found after it was killed, by the next mount and by `weightfs recover`."""
import errno
import fcntl
import json
import os
import re
import shutil
import struct

import pytest

from wfs_testlib import crash_kinds, edit_kinds, look, program, st, stage
from wfs_testlib.mount import is_alive, wait_for
from wfs_testlib.program import tool, weightfs
from wfs_testlib.stage import crc32c, stage_of

AGAIN = 'edits? of an earlier mount (is|are) shown again'


def die(mnt):
    """SIGKILL for all of it, as the kernel does when memory is full."""
    workers = mnt.workers_now()
    mnt.kill()
    wait_for(lambda: not any(map(is_alive, workers)), 'the end of the driver')
    mnt.forget()


def another_run(journal):
    """As if the machine had been started anew since."""
    lines = []
    for line in journal.read_bytes().splitlines():
        crc, text = line.split(b' ', 1)
        assert int(crc, 16) == crc32c(text)
        number, text = text.split(b' ', 1)
        text = number + b' ' + (b'O of-yesterday.1' if text.startswith(b'O ') else text)
        lines.append(b'%08x %s\n' % (crc32c(text), text))
    journal.write_bytes(b''.join(lines))


@pytest.fixture
def out(folder):
    (folder / 'out').mkdir()
    return folder / 'out' / 'out.safetensors'


def everything(root):
    """Path -> what is there, with the number of its names."""
    result = {}
    for path in sorted(root.rglob('*')):
        name = str(path.relative_to(root))
        if path.is_dir():
            result[name] = 'a directory'
        else:
            tensor = [look.attribute(path, 'dtype'), look.attribute(path, 'shape'), path.read_bytes()]
            result[name] = (*tensor, path.stat().st_nlink)
    return result


def committed(root):
    """What a commit is to write, as st.read has it, for names that need no decoding."""
    return {name.replace('/', '.'): (what[0], json.loads(what[1]), what[2])
            for name, what in everything(root).items() if what != 'a directory'}


def edit_of_each_kind(mnt):
    root = mnt.path
    os.rename(root / 'temperature', root / 'heat')
    os.rename(root / 'pooler', root / 'drain')
    (root / 'drain/dense/bias').write_bytes(bytes(128))
    with open(root / 'drain/dense/weight', 'r+b') as file:
        file.seek(16)
        file.write(b'sixteen in place')
    (root / 'new').mkdir()
    (root / 'new/ half %0Aname%25').write_bytes(struct.pack('<2f', 1, 2))
    look.set_attribute(root / 'new/ half %0Aname%25', 'dtype', 'F32')
    look.set_attribute(root / 'new/ half %0Aname%25', 'shape', '[2]')
    os.link(root / 'heat', root / 'new/tie')
    (root / '.scratch').write_bytes(b'12345678')
    os.rename(root / '.scratch', root / 'new/moved')
    look.set_attribute(root / 'new/moved', 'dtype', 'U8')
    look.set_attribute(root / 'new/moved', 'shape', '[8]')
    (root / 'new/gone').write_bytes(b'x')
    os.unlink(root / 'new/gone')
    (root / 'empty').mkdir()
    os.rmdir(root / 'empty')
    (root / '.weightfs/metadata.json').write_text('{"by": "a test"}')


@pytest.mark.parametrize('is_synced', [False, True])
def test_edits_of_each_kind_are_shown_again(mount, sample, folder, out, is_synced):
    mnt = mount(sample, 'output=%s' % out)
    edit_of_each_kind(mnt)
    if is_synced:
        for path in (mnt.path / 'new').iterdir():
            with open(path, 'rb') as file:
                os.fsync(file.fileno())
    before = everything(mnt.path)
    for i in range(2):
        die(mnt)
        assert not out.exists()
        mnt = mount(sample, 'output=%s' % out, at=folder / ('again%d' % i)).allow(AGAIN)
        assert everything(mnt.path) == before
    mnt.commit()
    tensors = {key.replace('\n', '%0A').replace('name%', 'name%25'): tensor for key, tensor in st.read(out).tensors.items()}
    assert tensors == committed(mnt.path)
    assert st.read(out).metadata == {'by': 'a test'}
    mnt.unmount()
    assert not stage_of(out).exists()


def test_numbers_of_content_are_never_used_again(mount, sample, folder, out):
    mnt = mount(sample, 'output=%s' % out)
    (mnt / 'temperature').write_bytes(b'1234')
    die(mnt)
    mnt = mount(sample, 'output=%s' % out, at=folder / 'again').allow(AGAIN)
    (mnt / 'pooler/dense/bias').write_bytes(bytes(128))
    assert sorted(os.listdir(stage_of(out) / 'data')) == ['1', '2']
    assert (mnt / 'temperature').read_bytes() == b'1234'


@pytest.mark.parametrize('is_synced', [False, True])
@pytest.mark.parametrize('kind', crash_kinds.KINDS[:3], ids=lambda kind: kind.name)
def test_values_and_metadata_are_edits_like_others(mount, folder, kind, is_synced):
    """What a file holds besides tensors: shown again by the next mount, and written by the recovery."""
    source, out = kind.path(folder, 'source'), kind.path(folder, 'out')
    kind.write(source, crash_kinds.START)
    mnt = mount(source, 'output=%s' % out)
    crash_kinds.change_text(mnt.path, kind)
    if is_synced:
        with open(mnt / kind.text, 'rb') as file:
            os.fsync(file.fileno())
    die(mnt)
    mnt = mount(source, 'output=%s' % out, at=folder / 'again').allow(AGAIN)
    assert (mnt / kind.text).read_text() == kind.changed
    die(mnt)
    recover(out, '--publish', '--source', source)
    assert kind.read(out) == {**crash_kinds.START, crash_kinds.TEXT: 4}


@pytest.mark.parametrize('options', [['layout=flat'], ['files=npy'], ['exclude=pooler'], ['remap=a=>b']])
def test_edits_do_not_fit_another_view(mount, sample, folder, out, options):
    mnt = mount(sample, 'output=%s' % out)
    os.rename(mnt / 'temperature', mnt / 'heat')
    die(mnt)
    (folder / 'again').mkdir()
    error = weightfs(sample, folder / 'again', '-f', '-o', ','.join(['output=%s' % out, *options]), code=8).error
    assert str(stage_of(out)) in error and 'recover' in error
    mnt = mount(sample, 'output=%s' % out, at=folder / 'again').allow(AGAIN)
    assert (mnt / 'heat').exists()


def test_edits_do_not_fit_a_source_that_changed(mount, sample, folder, out):
    mnt = mount(sample, 'output=%s' % out)
    os.rename(mnt / 'temperature', mnt / 'heat')
    die(mnt)
    st.write(sample, {'a': ('U8', [1], b'1')})
    (folder / 'again').mkdir()
    error = weightfs(sample, folder / 'again', '-f', '-o', 'output=%s' % out, code=8).error
    assert 'the source' in error and 'recover' in error
    assert stage_of(out).is_dir()


@pytest.mark.parametrize('kind', crash_kinds.KINDS[:3], ids=lambda kind: kind.name)
def test_edits_do_not_fit_an_index_that_changed_behind_the_clock(mount, folder, kind):
    """In place, with its size and time: the index says something else."""
    source, out = kind.path(folder, 'source'), kind.path(folder, 'out')
    kind.write(source, crash_kinds.START)
    before = source.stat()
    mnt = mount(source, 'output=%s' % out)
    os.rename(mnt / 'd', mnt / 'e')
    die(mnt)
    kind.write(folder / 'other', {**crash_kinds.START, crash_kinds.TEXT: 5})
    with open(source, 'r+b') as file:
        file.write((folder / 'other').read_bytes())
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (source.stat().st_size, source.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    (folder / 'again').mkdir()
    assert 'have changed since' in weightfs(source, folder / 'again', '-f', '-o', 'output=%s' % out, code=8).error


def test_edits_fit_a_source_that_was_moved(mount, sample, folder, out):
    mnt = mount(sample, 'output=%s' % out)
    os.rename(mnt / 'temperature', mnt / 'heat')
    die(mnt)
    os.rename(sample, folder / 'elsewhere')
    mnt = mount(folder / 'elsewhere', 'output=%s' % out, at=folder / 'again').allow(AGAIN)
    assert (mnt / 'heat').exists()


@pytest.mark.parametrize('is_in_place', [False, True])
def test_edits_after_a_commit_are_shown_with_those_before(mount, sample, folder, out, is_in_place):
    options = ['rw'] if is_in_place else ['output=%s' % out]
    target = sample if is_in_place else out
    mnt = mount(sample, *options)
    os.rename(mnt / 'temperature', mnt / 'heat')
    (mnt / 'pooler/dense/bias').write_bytes(bytes(128))
    mnt.commit()
    old = target.read_bytes()
    (mnt / 'heat').write_bytes(b'1234')
    with open(mnt / 'pooler/dense/bias', 'r+b') as file:
        file.write(b'again')
    before = everything(mnt.path)
    die(mnt)
    assert target.read_bytes() == old
    if not is_in_place:
        options.append('overwrite')
    mnt = mount(sample, *options, at=folder / 'again').allow(AGAIN)
    assert everything(mnt.path) == before
    assert mnt.status()['edits'] == 2
    wanted = committed(mnt.path)
    mnt.unmount()
    assert st.read(target).tensors == wanted
    assert not stage_of(target).exists()


def test_an_output_in_place_survives_death_after_death(mount, sample, folder):
    """All edits stand on the first source, whatever commits have replaced it since."""
    mnt = mount(sample, 'rw')
    for i in range(3):
        (mnt / 'pooler/dense/bias').write_bytes(bytes([i]) * 128)
        os.rename(mnt / ('temperature' if i == 0 else 'heat%d' % (i - 1)), mnt / ('heat%d' % i))
        mnt.commit()
        assert st.read(sample).tensors == committed(mnt.path)
        with open(mnt / ('heat%d' % i), 'r+b') as file:
            file.write(b'new%d' % i)
        before = everything(mnt.path)
        die(mnt)
        mnt = mount(sample, 'rw', at=folder / ('again%d' % i)).allow(AGAIN)
        assert everything(mnt.path) == before
    wanted = committed(mnt.path)
    mnt.unmount()
    assert st.read(sample).tensors == wanted and wanted['heat2'][2] == b'new2'
    assert not stage_of(sample).exists()


@pytest.mark.parametrize('is_in_place', [False, True])
def test_after_a_commit_without_newer_edits_nothing_is_left_to_do(mount, sample, folder, out, is_in_place):
    options = ['rw'] if is_in_place else ['output=%s' % out, 'overwrite']
    mnt = mount(sample, *options)
    os.rename(mnt / 'temperature', mnt / 'heat')
    mnt.commit()
    die(mnt)
    mnt = mount(sample, *options, at=folder / 'again')
    assert mnt.status()['state'] == 'clean'
    assert (mnt / 'heat').exists() == is_in_place
    mnt.unmount()
    assert not stage_of(sample if is_in_place else out).exists()


def test_what_was_published_and_taken_away_is_pending_again(mount, sample, folder, out):
    mnt = mount(sample, 'output=%s' % out)
    os.rename(mnt / 'temperature', mnt / 'heat')
    mnt.commit()
    die(mnt)
    os.unlink(out)
    mnt = mount(sample, 'output=%s' % out, at=folder / 'again').allow(AGAIN)
    mnt.unmount()
    assert 'heat' in st.read(out).tensors


def test_a_torn_last_record_is_dropped(mount, sample, folder, out):
    mnt = mount(sample, 'output=%s' % out)
    os.rename(mnt / 'temperature', mnt / 'heat')
    os.rename(mnt / 'heat', mnt / 'warmth')
    die(mnt)
    journal = stage_of(out) / 'journal'
    journal.write_bytes(journal.read_bytes()[:-3])
    mnt = mount(sample, 'output=%s' % out, at=folder / 'again').allow(AGAIN)
    assert (mnt / 'heat').exists()
    os.rename(mnt / 'heat', mnt / 'fever')
    die(mnt)
    mnt = mount(sample, 'output=%s' % out, at=folder / 'third').allow(AGAIN)
    assert (mnt / 'fever').exists()


def test_a_damaged_record_is_never_skipped(mount, sample, folder, out):
    mnt = mount(sample, 'output=%s' % out)
    os.rename(mnt / 'temperature', mnt / 'heat')
    os.rename(mnt / 'heat', mnt / 'warmth')
    die(mnt)
    journal = stage_of(out) / 'journal'
    whole = journal.read_bytes()
    lines = whole.split(b'\n')
    lines[1] = lines[1].replace(b'heat', b'heap')
    journal.write_bytes(b'\n'.join(lines))
    (folder / 'again').mkdir()
    error = weightfs(sample, folder / 'again', '-f', '-o', 'output=%s' % out, code=8).error
    assert 'damaged at record 2' in error
    journal.write_bytes(whole)
    mnt = mount(sample, 'output=%s' % out, at=folder / 'again').allow(AGAIN)
    assert (mnt / 'warmth').exists()


def test_content_that_is_gone_is_told(mount, sample, folder, out):
    mnt = mount(sample, 'output=%s' % out)
    (mnt / 'temperature').write_bytes(b'1234')
    os.rename(mnt / 'pooler', mnt / 'drain')
    die(mnt)
    os.unlink(stage_of(out) / 'data/1')
    mnt = mount(sample, 'output=%s' % out, at=folder / 'again').allow(AGAIN).allow('1 edit .* is lost').allow('cannot commit')
    with pytest.raises(OSError):
        (mnt / 'temperature').read_bytes()
    mnt.commit(code=1)
    assert 'temperature' in mnt.status()['text']
    os.unlink(mnt / 'temperature')
    mnt.commit()
    assert 'drain.dense.bias' in st.read(out).tensors


def test_a_full_staging_directory_refuses_changes_and_loses_none(mount, sample, folder, out):
    """Every kind of change fails with ENOSPC when its record does not fit, and what was before is what is found. Those that make
    no name fail last."""
    if os.geteuid() != 0:
        pytest.skip('only for root')
    disk = folder / 'disk'
    disk.mkdir()
    tool('mount', '-t', 'tmpfs', '-o', 'size=512k', 'tmpfs', disk)
    try:
        mnt = mount(sample, 'output=%s' % out, 'stage=%s' % disk).allow('is on a tmpfs')
        os.rename(mnt / 'temperature', mnt / 'heat')
        with open(disk / 'filler', 'wb', buffering=0) as file:
            with pytest.raises(OSError):
                while True:
                    file.write(bytes(4096))
        made = []
        for names in (['n%04d' % i for i in range(10000)], 'abcdefgh'):  # no room for long ones, then for none
            for name in names:
                try:
                    (mnt / name).mkdir()
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    break
                made.append(name)
            assert name not in made
        for change in lambda: os.link(mnt / 'heat', mnt / 'tie'), lambda: (mnt / 'x').write_bytes(b''):
            with pytest.raises(OSError):
                change()
        for change in (lambda i: os.rename(mnt / ['heat', 'cold'][i % 2], mnt / ['cold', 'heat'][i % 2]),
                       lambda i: look.set_attribute(mnt / 'pooler/dense/bias', 'dtype', ['I32', 'F32'][i % 2])):
            with pytest.raises(OSError) as caught:
                for i in range(100000):
                    change(i)
            assert caught.value.errno == errno.ENOSPC
        before = everything(mnt.path)
        heat = 'heat' if 'heat' in before else 'cold'
        assert {heat, *made} <= set(before)
        os.unlink(disk / 'filler')
        os.rename(mnt / heat, mnt / 'warmth')
        before = everything(mnt.path)
        die(mnt)
        mnt = mount(sample, 'output=%s' % out, 'stage=%s' % disk, at=folder / 'again').allow('is on a tmpfs').allow(AGAIN)
        assert everything(mnt.path) == before
        mnt.unmount()
        assert os.listdir(disk) == []
    finally:
        tool('umount', '-l', disk)


def test_ten_thousand_renames_are_ten_thousand_records(mount, folder, out):
    """Not a file for each: the journal is all that grows, and the rename of a directory is one line."""
    source = st.write(folder / 'many.safetensors', {'a.t%05d' % i: ('U8', [1], b'x') for i in range(10000)})
    mnt = mount(source, 'output=%s' % out)
    os.rename(mnt / 'a', mnt / 'b')
    journal = stage_of(out) / 'journal'
    assert len(journal.read_bytes().splitlines()) == 2
    (mnt / 'c').mkdir()
    tool('sh', '-c', 'mv %s/b/* %s/c/' % (mnt.path, mnt.path))
    assert len(journal.read_bytes().splitlines()) == 10003
    assert os.listdir(stage_of(out) / 'data') == []
    die(mnt)
    mnt = mount(source, 'output=%s' % out, at=folder / 'again').allow(AGAIN)
    assert len(os.listdir(mnt / 'c')) == 10000 and os.listdir(mnt / 'b') == []
    shutil.rmtree(mnt / 'c')
    die(mnt)
    mnt = mount(source, 'output=%s' % out, at=folder / 'third').allow(AGAIN)
    assert os.listdir(mnt.path) == ['b']


# ---- weightfs recover ----

def recover(path, *options, code=0):
    return weightfs('recover', path, *options, code=code)


def test_recover_lists_what_is_left(mount, sample, folder, out):
    assert 'no unfinished edits' in recover(out).stdout
    mnt = mount(sample, 'output=%s' % out)
    assert 'in use by process' in recover(out, code=8).error
    edit_of_each_kind(mnt)
    with open(mnt / 'drain/dense/bias', 'rb') as file:
        os.fsync(file.fileno())
    die(mnt)
    for path in (out, stage_of(out)):
        text = recover(path, code=9).stdout
        for line in ('source     %s\n' % sample, 'output     %s\n' % out, 'renamed    temperature -> heat\n',
                     'content    drain/dense/bias: edit 1, 128 bytes\n', 'synced     drain/dense/bias\n',
                     'linked     heat -> new/tie\n', 'removed    new/gone\n', 'commit     none\n'):
            assert line in text, text
        assert 'changes are not committed: --publish' in recover(path, code=9).error
    assert not out.exists()


@pytest.mark.parametrize('name', ['a\x1b[31m', 'a\x9b31m', 'a\u202eb', 'a\u2066b', 'a\u2028b', 'a\u061cb', 'a\x7f'], ids=ascii)
def test_no_name_reaches_the_terminal_as_it_is(mount, sample, folder, name):
    """Of a new file, in the name of the output, and in the reason of a commit that failed."""
    output = folder / (name + '.safetensors')
    mnt = mount(sample, 'output=%s' % output)
    (mnt / name.replace('\x1b', '%1B').replace('\x7f', '%7F')).write_bytes(b'neither dtype nor shape')
    texts = [weightfs('commit', mnt.path, code=9).error, weightfs('status', mnt.path).stdout,
             weightfs('status', '--json', mnt.path).stdout, mnt.stderr()]
    die(mnt)
    found = recover(output, code=9)
    texts += [found.stdout, found.error]
    for text in texts:
        assert name not in text and 'a' in text, ascii(text)
    assert texts[0].count('\\x5c') == 0 and found.stdout.count('\\x27') == 0, 'quoted twice'


def test_recover_lists_all_that_is_left_below(mount, sample, folder):
    top = folder / 'top'
    outputs = [top / 'a/out.safetensors', top / 'b/c/out.safetensors', top / 'b/c/more.safetensors']
    for i, output in enumerate(outputs):
        output.parent.mkdir(parents=True, exist_ok=True)
        mnt = mount(sample, 'output=%s' % output, at=folder / ('m%d' % i))
        os.rename(mnt / 'temperature', mnt / ('heat%d' % i))
        die(mnt)
    (folder / 'far').mkdir()
    far = mount(sample, 'output=%s' % (folder / 'far/out.safetensors'), at=folder / 'm9')
    os.rename(far / 'temperature', far / 'cold')
    die(far)
    os.symlink(folder / 'far', top / 'link')
    os.symlink(stage_of(folder / 'far/out.safetensors'), top / '.z.weightfs')
    for words, cwd in [(['recover', top], None), (['recover'], top)]:
        done = program.tool(*program.COMMAND, *words, cwd=cwd, code=9)
        assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith('staging')] == [
            str(stage_of(output)) for output in sorted(outputs, key=lambda path: str(stage_of(path)))]
        assert all('renamed    temperature -> heat%d\n' % i in done.stdout for i in range(3)) and 'cold' not in done.stdout
        assert done.stderr.count('1 change is not committed') == 3
    assert 'heat0' in program.tool(*program.COMMAND, 'recover', top / 'a', code=9).stdout
    for output in outputs:
        recover(output, '--discard')
    assert 'no unfinished edits' in weightfs('recover', cwd=top).stdout
    recover(folder / 'far/out.safetensors', '--discard')


@pytest.mark.parametrize('is_locked', [False, True])
def test_recover_leaves_what_another_save_writes(mount, sample, out, is_locked):
    """A commit was saved and its driver killed; a file with the temporary name is what another has left, or writes now."""
    mnt = mount(sample, 'output=%s' % out)
    edit_of_each_kind(mnt)
    committed(mnt.path)
    weightfs('commit', mnt.path)
    die(mnt)
    temporary = out.parent / ('.%s.weightfs.tmp' % out.name)
    with open(temporary, 'wb') as file:
        if is_locked:
            fcntl.flock(file, fcntl.LOCK_EX)
        recover(out, '--discard')
        assert temporary.exists() == is_locked


def test_edits_of_a_source_do_not_fit_their_output(mount, sample, folder, out):
    """The output of a mount is the source of the next one, before newer edits of the first were committed."""
    mnt = mount(sample, 'output=%s' % out)
    os.rename(mnt / 'temperature', mnt / 'heat')
    mnt.commit()
    os.rename(mnt / 'heat', mnt / 'warmth')
    die(mnt)
    (folder / 'again').mkdir()
    assert 'have changed since' in weightfs(out, folder / 'again', '-f', '-o', 'rw', code=8).error
    assert '1 change is not committed' in recover(out, code=9).error


def test_recover_publishes(mount, sample, folder, out):
    mnt = mount(sample, 'output=%s' % out)
    edit_of_each_kind(mnt)
    wanted = committed(mnt.path)
    die(mnt)
    assert 'no commit was interrupted' in recover(out, '--resume', code=9).error
    assert 'committed' in recover(out, '--publish', '--source', sample).stdout
    assert len(st.read(out).tensors) == len(wanted) and not stage_of(out).exists()
    assert st.read(out).tensors['drain.dense.bias'] == wanted['drain.dense.bias']
    assert 'no unfinished edits' in recover(out).stdout


@pytest.mark.parametrize('options', [['layout=flat'], ['files=npy'], ['remap=^(.*)bias$=>${1}b\\,i', 'exclude=weight']])
def test_recover_mounts_as_it_was_mounted(mount, sample, folder, out, options):
    mnt = mount(sample, 'output=%s' % out, *options)
    name = sorted(path for path in mnt.path.rglob('*') if path.is_file())[0]
    os.rename(name, name.with_name('renamed' + name.suffix))
    wanted = look.tensors(mnt.path)
    die(mnt)
    assert 'name them with --options' in recover(out, '--publish', '--source', sample, code=9).error
    assert 'the view options have changed' in recover(out, '--publish', '--source', sample, '--options=', code=9).error
    assert not out.exists()
    recover(out, '--publish', '--source', sample, '--options', ','.join(options))
    found = st.read(out).tensors
    assert {key: value[:2] for key, value in found.items()} == {key: value[:2] for key, value in wanted.items()}


def test_recovery_has_the_limits_of_the_mount(mount, folder):
    """A file that is over a limit that was raised is known as what a commit wrote."""
    source = st.write(folder / 'large.safetensors', {'w': ('U8', [1] * 16385, b'x')})
    mnt = mount(source, 'rw', 'limit.rank=20000')
    os.rename(mnt / 'w', mnt / 'a')
    mnt.commit()
    os.rename(mnt / 'a', mnt / 'b')
    die(mnt)
    limit = '--options=limit.rank=20000'
    assert 'commit     published\n' in recover(source, limit, code=9).stdout
    recover(source, '--publish', limit)
    assert list(st.read(source).tensors) == ['b'] and not stage_of(source).exists()


def test_recovery_reads_the_source_in_the_sandbox(mount, sample, folder, out):
    mnt = mount(sample, 'output=%s' % out)
    if 'seccomp' not in mnt.status()['sandbox'] or shutil.which('strace') is None:
        pytest.skip('no seccomp here, or no strace')
    os.rename(mnt / 'temperature', mnt / 'heat')
    die(mnt)
    tool('strace', '-f', '-o', folder / 'trace', '-e', 'trace=openat,open,seccomp', *program.COMMAND, 'recover', out, '--publish', '--source', sample)
    lines = (folder / 'trace').read_text().splitlines()
    source = [i for i, line in enumerate(lines) if '"%s"' % sample in line and 'O_PATH' not in line]
    confined = [i for i, line in enumerate(lines) if 'SECCOMP_SET_MODE_FILTER' in line and line.endswith('= 0')]
    assert source and confined and confined[0] < source[-1], lines  # the ones before look for an index, for Landlock
    assert 'heat' in st.read(out).tensors


def test_recover_discards(mount, sample, folder, out):
    mnt = mount(sample, 'output=%s' % out)
    edit_of_each_kind(mnt)
    die(mnt)
    recover(out, '--discard')
    assert not stage_of(out).exists() and not out.exists()


def test_recover_onto_another_source(mount, sample, folder, out):
    mnt = mount(sample, 'output=%s' % out)
    (mnt / 'temperature').write_bytes(b'1234')
    die(mnt)
    shape = st.read(sample).tensors['temperature'][1]
    other = st.write(folder / 'other.safetensors', {'temperature': ('F32', shape, b'abcd'), 'more': ('U8', [1], b'x')})
    wrong = st.write(folder / 'wrong.safetensors', {'temperature': ('F16', [1], b'ab')})
    os.unlink(sample)
    assert 'does not exist' in recover(out, '--publish', '--source', sample, code=9).error
    line = recover(out, '--publish', '--onto', wrong, code=9).error
    assert 'temperature' in line and 'F32' in line and 'F16' in line
    recover(out, '--publish', '--onto', other)
    assert st.read(out).tensors['temperature'][2] == b'1234' and 'more' in st.read(out).tensors


@pytest.mark.parametrize('word', ['--options=', '--options'])
@pytest.mark.parametrize('flag', ['-o', '-fo'])
def test_recover_takes_the_urls_that_the_mount_had(mount, sample, folder, out, serve, word, flag):
    """With a query, which ends at the comma of a list, whatever the list is an option of."""
    place = folder / 'served'
    place.mkdir()
    shutil.copy(sample, place / 'sample.safetensors')
    st.write(place / 'other.safetensors', {'over': ('U8', [3], b'abc')})
    server = serve(place)
    source, overlay = server.url('sample.safetensors') + '?x=1', server.url('other.safetensors') + '?y=2'
    options = 'overlay=%s,files=npy' % overlay
    if flag == '-fo':
        (folder / 'mnt').mkdir()
        done = weightfs(sample, folder / 'mnt', flag, options + ',nonsense', code=2)
        assert 'nonsense' in done.error and 'npy' not in done.error
    mnt = mount(source, 'output=%s' % out, *options.split(','))
    os.rename(mnt / 'over.npy', mnt / 'under.npy')
    die(mnt)
    words = [word + options] if word.endswith('=') else [word, options]
    server.forget()
    recover(out, '--publish', '--source', source, *words)
    assert st.read(out).tensors['under'] == ('U8', [3], b'abc') and 'temperature' in st.read(out).tensors
    assert {request.path for request in server.requests()} == {'sample.safetensors?x=1', 'other.safetensors?y=2'}


def test_recover_onto_a_url(mount, sample, folder, out, serve):
    mnt = mount(sample, 'output=%s' % out)
    (mnt / 'temperature').write_bytes(b'1234')
    die(mnt)
    recover(out, '--publish', '--onto', serve(folder).url(sample) + '?x=1')
    assert st.read(out).tensors['temperature'][2] == b'1234'


def test_recover_refuses_another_source_and_another_output(mount, sample, folder, out):
    mnt = mount(sample, 'output=%s' % out)
    os.rename(mnt / 'temperature', mnt / 'heat')
    die(mnt)
    out.write_bytes(b'precious')
    assert 'exists' in recover(out, '--publish', '--source', sample, code=9).error
    assert out.read_bytes() == b'precious'
    recover(out, '--publish', '--source', sample, '--force')
    assert 'heat' in st.read(out).tensors


def test_recover_takes_what_a_loss_of_power_may_have_torn_only_with_force(mount, sample, folder, out):
    mnt = mount(sample, 'output=%s' % out)
    (mnt / 'temperature').write_bytes(b'1234')
    (mnt / 'pooler/dense/bias').write_bytes(bytes(128))
    with open(mnt / 'pooler/dense/bias', 'rb') as file:
        os.fsync(file.fileno())
    die(mnt)
    another_run(stage_of(out) / 'journal')
    assert '1 edit was not synced before a restart' in recover(out, '--publish', '--source', sample, code=9).error
    assert not out.exists()
    mnt = mount(sample, 'output=%s' % out, at=folder / 'again').allow(AGAIN + '; 1 of them were not synced')
    die(mnt)
    recover(out, '--publish', '--source', sample, '--force')
    assert st.read(out).tensors['temperature'][2] == b'1234'


def test_recover_publishes_what_is_before_a_damaged_record_only_with_force(mount, sample, folder, out):
    mnt = mount(sample, 'output=%s' % out)
    os.rename(mnt / 'temperature', mnt / 'heat')
    os.rename(mnt / 'pooler', mnt / 'drain')
    os.rename(mnt / 'heat', mnt / 'warmth')
    die(mnt)
    journal = stage_of(out) / 'journal'
    journal.write_bytes(journal.read_bytes().replace(b'drain', b'brain'))
    assert 'record 3 is damaged' in recover(out, code=9).stdout
    assert 'damaged at record 3' in recover(out, '--publish', '--source', sample, code=9).error
    recover(out, '--publish', '--source', sample, '--force')
    assert 'heat' in st.read(out).tensors and 'pooler.dense.bias' in st.read(out).tensors


def test_recover_knows_its_operands(folder, sample):
    assert recover(folder / 'none', '--onto', sample, code=2).error
    assert recover(folder / 'none', '--resume', '--discard', code=2).error
    (folder / '.x.weightfs').mkdir(mode=0o755)
    assert '0700' in recover(folder / 'x', code=9).error


def test_a_journal_that_knows_nothing_of_an_exchanged_file_is_replayed(mount, folder, small):
    """Of an earlier program, in which a new file did not take the description of what it was exchanged with."""
    out = folder / 'out.safetensors'
    mnt = mount(small, 'output=%s' % out)
    (mnt / 'new').write_bytes(b'')
    edit_kinds.exchange(mnt, 'new', 'a/c')
    (mnt / 'a/c').write_bytes(b'HELLO')
    mnt.kill()
    path = stage.stage_of(out) / 'journal'
    texts = [line.split(' ', 2)[2] for line in path.read_text().splitlines()]
    assert any(text.startswith('E ') and ' U8 ' in text for text in texts)
    path.write_bytes(stage.journal(*(re.sub('^(E [0-9]+ [^ ]+) [^ ]+ [^ ]+', r'\1 - -', text) for text in texts)))
    again = mount(small, 'output=%s' % out).allow('of an earlier mount')
    assert (again / 'a/c').read_bytes() == b'HELLO' and (again / 'new').read_bytes() == b'hello'
