# SPDX-License-Identifier: MIT
"""Commits that cannot be: they say why, cost nothing, and succeed when the cause is gone."""
import errno
import fcntl
import os
import shutil
import subprocess

import pytest

from wfs_testlib import disks, look, program, st
from wfs_testlib.mount import is_mounted, wait_for
from wfs_testlib.program import EXIT_COMMIT, EXIT_MOUNT, EXIT_UNSUPPORTED, tool, weightfs

ERROR = 'cannot commit to'
LOCKS = program.BUILD / 'tests' / 'inject' / 'locks.so'


class Case:
    """A mount with an edit and an older output that must stay."""

    def __init__(self, mount, source, out, *options):
        self.out = out
        out.parent.mkdir(exist_ok=True)
        out.write_bytes(b'the old output')
        self.mnt = mount(source, 'output=%s' % out, 'overwrite', *options).allow(ERROR).allow('is on a tmpfs')
        os.rename(self.mnt / 'temperature', self.mnt / 'heat')

    def fails(self, *words, error=None):
        """All three ways to commit fail, the old output and the edits stay, and the line has these words."""
        tool('sync', self.mnt.path, code=1)
        assert self.out.read_bytes() == b'the old output'
        reply = self.mnt.control()
        assert reply.error != 0 and (error is None or reply.error == error)
        line = weightfs('commit', self.mnt.path, code=EXIT_COMMIT).error
        for word in words:
            assert word in line, line
        status = self.mnt.status()
        assert status['state'] == 'failed' and status['errno'] == reply.error and status['text']
        assert self.out.read_bytes() == b'the old output'
        assert sorted(os.listdir(self.out.parent)) == sorted(set(os.listdir(self.out.parent)) - {'.%s.weightfs.tmp' % self.out.name})
        assert not (self.mnt / 'temperature').exists() and (self.mnt / 'heat').exists()
        return line

    def succeeds(self):
        self.mnt.commit()
        tensors = st.read(self.out).tensors
        assert tensors == look.tensors(self.mnt.path)
        assert 'heat' in tensors and 'temperature' not in tensors
        assert self.mnt.status()['state'] == 'published'
        return tensors


@pytest.fixture
def case(mount, sample, folder):
    return Case(mount, sample, folder / 'out' / 'out.safetensors')


def test_wrong_size(case):
    path = case.mnt / 'pooler/dense/bias'
    os.truncate(path, 100)
    case.fails('bias', '100', '128', error=errno.EINVAL)
    os.truncate(path, 128)
    case.succeeds()


def test_another_save_writes_the_output(case):
    temporary = case.out.parent / ('.%s.weightfs.tmp' % case.out.name)
    with open(temporary, 'wb') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert 'another program is saving to it' in weightfs('commit', case.mnt.path, code=EXIT_COMMIT).error
        assert temporary.exists() and case.out.read_bytes() == b'the old output' and case.mnt.status()['state'] == 'failed'
    case.succeeds()


@pytest.mark.skipif(program.IS_INSTRUMENTED or not LOCKS.exists(), reason='no library can be preloaded into an instrumented program')
@pytest.mark.parametrize('locks', ['nfs', 'smb', 'none'])
def test_a_filesystem_has_other_locks(mount, sample, folder, monkeypatch, locks):
    monkeypatch.setenv('LD_PRELOAD', str(LOCKS))
    monkeypatch.setenv('LOCKS', locks)
    Case(mount, sample, folder / 'out' / 'out.safetensors').succeeds()


def test_no_dtype(case):
    (case.mnt / 'new').write_bytes(b'12345678')
    case.fails('new', 'dtype', error=errno.EINVAL)
    look.set_attribute(case.mnt / 'new', 'dtype', 'F32')
    case.fails('new', 'shape')
    look.set_attribute(case.mnt / 'new', 'shape', '[2]')
    assert case.succeeds()['new'] == ('F32', [2], b'12345678')


def test_dtype_that_does_not_fit(case):
    look.set_attribute(case.mnt / 'heat', 'dtype', 'F64')
    case.fails('heat', '4', '8')
    look.set_attribute(case.mnt / 'heat', 'dtype', 'I32')
    assert case.succeeds()['heat'][0] == 'I32'


def test_dtype_that_the_format_lacks(case):
    look.set_attribute(case.mnt / 'heat', 'dtype', 'BOOL32')
    case.fails('heat', 'BOOL32', error=errno.EOPNOTSUPP)
    look.set_attribute(case.mnt / 'heat', 'dtype', 'F32')
    case.succeeds()


def test_two_files_with_one_key(case):
    shutil.copyfile(case.mnt / 'heat', case.mnt / 'pooler.dense.bias')
    line = case.fails('pooler')
    assert 'both' in line or 'dtype' in line
    os.unlink(case.mnt / 'pooler.dense.bias')
    case.succeeds()


@pytest.mark.parametrize('text', ['', '[]', '{"a": 1}', '{"a": null}', '{', '{"a":"b"} x', '{"a":{"b":"c"}}'])
def test_metadata_that_is_no_object_of_strings(case, text):
    (case.mnt / '.weightfs/metadata.json').write_text(text)
    case.fails('metadata.json')
    (case.mnt / '.weightfs/metadata.json').write_text('{"a": "b"}')
    case.succeeds()
    assert st.read(case.out).metadata == {'a': 'b'}


def test_output_changed_by_another_program(mount, sample, folder):
    out = folder / 'out.safetensors'
    mnt = mount(sample, 'output=%s' % out).allow(ERROR)
    os.rename(mnt / 'temperature', mnt / 'heat')
    mnt.commit()
    out.write_text('precious')
    os.rename(mnt / 'heat', mnt / 'warmth')
    line = weightfs('commit', mnt.path, code=EXIT_COMMIT).error
    assert 'changed' in line
    assert out.read_text() == 'precious'
    os.unlink(out)
    mnt.commit()
    assert 'warmth' in st.read(out).tensors


def test_output_that_appeared_meanwhile(mount, sample, folder):
    out = folder / 'out.safetensors'
    mnt = mount(sample, 'output=%s' % out).allow(ERROR)
    out.write_text('precious')
    assert 'exists' in weightfs('commit', mnt.path, code=EXIT_COMMIT).error
    assert out.read_text() == 'precious'
    os.unlink(out)
    mnt.commit()


def test_source_replaced_by_another_program_before_it_is_written_back(mount, sample, folder):
    mnt = mount(sample, 'rw').allow(ERROR)
    os.rename(mnt / 'temperature', mnt / 'heat')
    (folder / 'newer').write_bytes(b'the work of somebody')
    os.rename(folder / 'newer', sample)
    assert 'changed' in weightfs('commit', mnt.path, code=EXIT_COMMIT).error
    assert sample.read_bytes() == b'the work of somebody'
    mnt.unmount(EXIT_COMMIT)
    assert sample.read_bytes() == b'the work of somebody'


def test_commit_that_fails_at_the_unmount_keeps_the_edits(case):
    os.truncate(case.mnt / 'pooler/dense/bias', 100)
    stderr = case.mnt.unmount(EXIT_COMMIT)
    stage = case.out.parent / '.out.safetensors.weightfs'
    assert 'bias' in stderr and str(stage) in stderr
    assert case.out.read_bytes() == b'the old output'
    assert stage.is_dir() and os.listdir(stage)


def test_a_mount_over_edits_that_were_left_says_why_and_shows_them(case, mount, sample, folder):
    os.truncate(case.mnt / 'pooler/dense/bias', 100)
    case.mnt.unmount(EXIT_COMMIT)
    case.mnt = mount(sample, 'output=%s' % case.out, 'overwrite', at=folder / 'again')
    case.mnt.allow('the last commit failed: .*bias').allow('2 edits of an earlier mount are shown again')
    assert os.path.getsize(case.mnt / 'pooler/dense/bias') == 100 and (case.mnt / 'heat').exists()
    os.truncate(case.mnt / 'pooler/dense/bias', 128)
    case.succeeds()


def test_the_verb_umount_keeps_the_mount_when_the_commit_fails(case):
    os.truncate(case.mnt / 'pooler/dense/bias', 100)
    assert 'bias' in weightfs('umount', case.mnt.path, code=EXIT_COMMIT).error
    assert os.path.ismount(case.mnt.path)
    os.truncate(case.mnt / 'pooler/dense/bias', 128)
    weightfs('umount', case.mnt.path)
    case.mnt.wait()
    assert 'heat' in st.read(case.out).tensors


@pytest.mark.root
def test_output_directory_that_cannot_be_written(case):
    """Root is stopped by nothing but a read-only mount. The staging directory was made before."""
    stage = case.out.parent
    tool('mount', '--bind', stage, stage)
    try:
        tool('mount', '-o', 'remount,bind,ro', stage)
        tool('sync', case.mnt.path, code=1)
        assert case.mnt.status()['errno'] in (errno.EROFS, 0) or case.mnt.status()['state'] == 'failed'
        assert case.out.read_bytes() == b'the old output'
    finally:
        program.unmount(stage)
    case.succeeds()


@pytest.mark.root
def test_immutable_output(case):
    if tool('chattr', '+i', case.out, code=None).code != 0:
        pytest.skip('no immutable files on this filesystem')
    try:
        case.fails('not permitted', error=errno.EPERM)
    finally:
        tool('chattr', '-i', case.out)
    case.succeeds()


@pytest.fixture
def apart(mount, sample, folder):
    """A mount with an edit whose output and edits are in different directories; the output."""
    def start(*options):
        (folder / 'gone').mkdir()
        (folder / 'stage').mkdir()
        mnt = mount(sample, 'output=%s' % (folder / 'gone' / 'out.safetensors'), 'stage=%s' % (folder / 'stage'), *options).allow(ERROR)
        os.rename(mnt / 'temperature', mnt / 'heat')
        return mnt, folder / 'gone' / 'out.safetensors'
    return start


def test_output_directory_that_is_away_for_a_while(apart, folder):
    mnt, out = apart()
    out.parent.rename(folder / 'elsewhere')
    weightfs('commit', mnt.path, code=EXIT_COMMIT)
    (folder / 'elsewhere').rename(out.parent)
    mnt.commit()
    assert 'heat' in st.read(out).tensors


def test_output_directory_that_was_made_anew(apart):
    mnt, out = apart('sandbox=off')
    shutil.rmtree(out.parent)
    weightfs('commit', mnt.path, code=EXIT_COMMIT)
    out.parent.mkdir()
    mnt.commit()
    assert 'heat' in st.read(out).tensors


def test_output_directory_that_was_made_anew_is_out_of_reach_until_the_next_mount(apart, mount, sample):
    """Of a sandbox that knows the one that was there. No edit is lost."""
    mnt, out = apart()
    if 'landlock' not in mnt.status()['sandbox']:
        pytest.skip('no Landlock here')
    out.parent.rmdir()
    out.parent.mkdir()
    assert 'unmount and mount again' in weightfs('commit', mnt.path, code=EXIT_COMMIT).error
    mnt.unmount(EXIT_COMMIT)
    again = mount(sample, 'output=%s' % out, 'stage=%s' % (out.parent.parent / 'stage'), at=mnt.path).allow('edit|commit failed')
    again.commit()
    assert 'heat' in st.read(out).tensors


@pytest.fixture(params=['ext4', 'tmpfs'])
def small_disk(request, folder):
    with disks.small(folder, request.param, 6 if request.param == 'tmpfs' else 8) as disk:
        yield disk


def big_source(folder):
    return st.write(folder / 'big.safetensors', {'temperature': ('F32', [], st.f32(1)), 'w': ('U8', [3 << 20], bytes(3 << 20)),
                                                 'v': ('U8', [1 << 20], bytes(1 << 20))})


def leave_free(disk, n_bytes):
    free = os.statvfs(disk)
    (disk / 'ballast').write_bytes(bytes(free.f_bavail * free.f_frsize - n_bytes))


def test_disk_full_at_the_commit(mount, folder, small_disk):
    case = Case(mount, big_source(folder), small_disk / 'out' / 'out.safetensors')
    leave_free(small_disk, 1 << 20)
    case.fails('space', error=errno.ENOSPC)
    os.unlink(small_disk / 'ballast')
    case.succeeds()
    case.mnt.unmount()


def test_disk_full_at_the_write_that_hits_it(mount, folder, small_disk):
    case = Case(mount, big_source(folder), small_disk / 'out' / 'out.safetensors')
    leave_free(small_disk, 1 << 20)
    with pytest.raises(OSError) as caught:
        with open(case.mnt / 'w', 'r+b', buffering=0) as file:
            file.write(b'x')
    assert caught.value.errno == errno.ENOSPC
    assert (case.mnt / 'w').read_bytes() == bytes(3 << 20)
    os.unlink(small_disk / 'ballast')
    os.unlink(case.mnt / 'w')
    case.succeeds()
    case.mnt.unmount()


def test_a_file_size_limit_is_no_death(mount, folder, sample):
    """`ulimit -f` sends SIGXFSZ to who ignores it not."""
    case = Case(mount, sample, folder / 'out' / 'out.safetensors')
    for pid in [case.mnt.process.pid, *case.mnt.workers]:
        tool('prlimit', '--pid', str(pid), '--fsize=4096:')
    case.fails(error=errno.EFBIG)
    for pid in [case.mnt.process.pid, *case.mnt.workers]:
        tool('prlimit', '--pid', str(pid), '--fsize=unlimited:')
    case.succeeds()


def test_few_descriptors_are_enough_for_many_edits(mount, folder):
    source = st.write(folder / 'x', {'t%d' % i: ('U8', [4], b'abcd') for i in range(200)})
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors'), wrap=('prlimit', '--nofile=64:64'))
    for i in range(200):
        with open(mnt / ('t%d' % i), 'r+b') as file:
            file.write(b'%04d' % i)
    mnt.commit()
    assert {key: data for key, (_, _, data) in st.read(folder / 'out.safetensors').tensors.items()} == {
        't%d' % i: b'%04d' % i for i in range(200)}


def test_the_error_of_a_sync_is_its_errno(case):
    os.truncate(case.mnt / 'pooler/dense/bias', 100)
    fd = os.open(case.mnt.path, os.O_RDONLY)
    try:
        with pytest.raises(OSError) as caught:
            os.fsync(fd)
        assert caught.value.errno == errno.EINVAL
    finally:
        os.close(fd)
    os.truncate(case.mnt / 'pooler/dense/bias', 128)


def test_fsync_of_files_and_other_directories_commits_nothing(case):
    for path, flags in ((case.mnt / 'heat', os.O_RDWR), (case.mnt / 'pooler', os.O_RDONLY)):
        fd = os.open(path, flags)
        os.fsync(fd)
        os.close(fd)
    tool('sync', '-f', case.mnt.path)
    assert case.out.read_bytes() == b'the old output'
    wait_for(lambda: case.mnt.status()['state'] == 'dirty', 'the state dirty')


def limited(limit, *command):
    return ['sh', '-c', 'ulimit %s; exec "$@"' % limit, 'sh', *command]


def test_a_mount_without_enough_memory_fails_at_once_and_says_why(folder, sample):
    """Whatever the limit is: the command fails with one line, or the mount works."""
    (folder / 'mnt').mkdir()
    if program.IS_INSTRUMENTED:
        pytest.skip('sanitizers need more memory than that')
    codes = set()
    for n_kib in range(10000, 40000, 1500):
        done = subprocess.run(limited('-v %d' % n_kib, *program.COMMAND, sample, folder / 'mnt'), stderr=subprocess.PIPE, check=False)
        if b'shared libraries' in done.stderr:
            continue  # the loader needs more than that: no code of ours has run
        codes.add(done.returncode)
        if done.returncode == 0:
            assert len((folder / 'mnt' / 'temperature').read_bytes()) == 4
            program.unmount(folder / 'mnt')
        else:
            assert done.returncode in (EXIT_UNSUPPORTED, EXIT_MOUNT), (n_kib, done)
            (line,) = done.stderr.decode().splitlines()
            assert line.startswith('weightfs: ') and ('memory' in line or 'thread' in line), line
            assert not is_mounted(folder / 'mnt')
    assert 0 in codes and len(codes) > 1


def test_a_commit_without_enough_descriptors_names_that_reason(mount, folder):
    source = st.write(folder / 'in.safetensors', {'t.%d' % i: ('U8', [70000], bytes(70000)) for i in range(40)})
    messages = []
    for n in range(16, 24):
        out = folder / ('out%d.safetensors' % n)
        mnt = mount(source, 'output=%s' % out, wrap=limited('-n %d' % n)).allow('.')
        for i in range(40):
            try:
                with open(mnt / 't' / str(i), 'r+b', buffering=0) as file:
                    file.write(b'x')
            except OSError as error:
                assert error.errno == errno.EMFILE
        done = tool('sync', mnt.path, code=None)
        if done.code == 0:
            assert st.read(out).tensors['t.7'][2][:2] == b'x\0'
        else:
            messages.append(mnt.status()['text'])
        program.unmount(mnt.path)
        assert mnt.process.wait(program.PATIENCE) in (0, EXIT_COMMIT)  # the last commit may have what it needs
    assert messages and all('Too many open files' in message for message in messages), messages
