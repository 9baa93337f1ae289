# SPDX-License-Identifier: MIT
"""The life of a mount: how it starts, ends, and what is left when it is killed."""
import contextlib
import errno
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from wfs_testlib import look, mount as mounts, program, st
from wfs_testlib.mount import Mount, is_alive, is_mounted, wait_for
from wfs_testlib.program import EXIT_COMMIT, EXIT_DAMAGED, EXIT_FOREIGN, EXIT_MOUNT, EXIT_SOURCE, EXIT_UNSUPPORTED, EXIT_USAGE, tool, weightfs


@pytest.fixture
def background(folder):
    """background(source, options...) -> mount point of a driver in the background; unmounted at the end."""
    made = []

    def start(source, *options, code=0):
        path = folder / ('bg%d' % len(made))
        made.append(path)
        path.mkdir(exist_ok=True)
        weightfs(source, path, *(['-o', ','.join(options)] if options else []), code=code)
        return path

    yield start
    for path in made:
        if is_mounted(path):
            pid = driver_of(path)
            mounts.force_unmount(path)
            wait_for(lambda: not is_alive(pid), 'the end of the driver')


def driver_of(path):
    """The process to wait for, as the mount itself says."""
    mnt = Mount.__new__(Mount)
    mnt.path = pathlib.Path(path)
    return mnt.control(2).pid


def test_the_command_returns_when_the_mount_answers(background, sample):
    assert look.tensors(background(sample)) == st.read(sample).tensors


def test_the_verb_umount_waits_for_the_end(background, sample, folder):
    mnt = background(sample, 'output=%s' % (folder / 'out.safetensors'))
    pid = driver_of(mnt)
    os.rename(mnt / 'temperature', mnt / 'heat')
    weightfs('umount', mnt)
    assert not is_mounted(mnt) and not is_alive(pid)
    assert 'heat' in st.read(folder / 'out.safetensors').tensors
    assert sorted(path.name for path in folder.iterdir()) == ['bg0', 'encoder.safetensors', 'out.safetensors']


def test_an_ordinary_unmount_commits_afterwards(background, sample, folder):
    mnt = background(sample, 'output=%s' % (folder / 'out.safetensors'))
    pid = driver_of(mnt)
    os.rename(mnt / 'temperature', mnt / 'heat')
    program.unmount(mnt)
    wait_for(lambda: not is_alive(pid), 'the end of the driver')
    assert 'heat' in st.read(folder / 'out.safetensors').tensors


def test_the_driver_in_the_background_holds_no_terminal_or_folder(background, sample):
    pid = driver_of(background(sample))
    for one in [pid, *mounts.children(pid)]:
        assert os.readlink('/proc/%d/cwd' % one) == '/'
        for fd in (0, 1, 2):
            assert os.readlink('/proc/%d/fd/%d' % (one, fd)) == '/dev/null'


def test_relative_paths_are_those_of_the_caller(folder, sample):
    (folder / 'mnt').mkdir()
    weightfs(sample.name, 'mnt/', '-o', 'output=out.safetensors', cwd=folder)
    os.rename(folder / 'mnt/temperature', folder / 'mnt/heat')
    weightfs('umount', 'mnt', cwd=folder)
    assert 'heat' in st.read(folder / 'out.safetensors').tensors


def test_a_missing_mount_point_is_made_and_removed(folder, sample):
    weightfs(sample, folder / 'new')
    assert is_mounted(folder / 'new')
    weightfs('umount', folder / 'new')
    assert not (folder / 'new').exists()


def test_options_of_fstab_are_accepted(mount, sample):
    mount(sample, 'dev,suid,noatime,nofail,_netdev,x-systemd.automount,ro')


def test_the_mount_is_restricted(mount, sample):
    mnt = mount(sample)
    with open('/proc/self/mountinfo', encoding='utf-8') as file:
        (line,) = [line for line in file if ' %s ' % os.path.realpath(mnt.path) in line]
    assert ' fuse.weightfs ' in line
    for word in ('nosuid', 'nodev', 'noexec', 'ro'):
        assert word in line.split()[5].split(',')
    assert 'default_permissions' in line


@pytest.mark.parametrize('option, said', [
    ('files=numpy', "'raw', 'npy'"), ('sandbox=yes', "'auto', 'off', 'require'"), ('format=torch', 'burnpack, safetensors, pytorch'),
    ('ties=x', "'copy' or 'drop'"), ('values=x', "'drop' or 'metadata'"), ('max_shard_size=lots', 'size like 5GB'), ('output=', 'needs a value'),
    ('force=1', 'takes no value'), ('overwite', "'overwrite'"), ('zzzzzz', 'unknown mount option')])
def test_a_mistaken_mount_option_is_answered_with_what_is_expected(small, option, said):
    assert said in weightfs(small, 'mnt', '-o', option, code=EXIT_USAGE).error


@pytest.mark.parametrize('words, said', [
    (['SMALL'], 'missing MOUNTPOINT'), (['mount', 'SMALL', 'mnt'], "'mount' is not a verb"), (['SMALL', 'mnt', 'x'], "unexpected operand 'x'"),
    (['SMALL', 'mnt', '--output=x'], '-o output=x')])
def test_mistaken_operands_are_answered_with_what_is_expected(small, words, said):
    assert said in weightfs(*[str(small) if word == 'SMALL' else word for word in words], code=EXIT_USAGE).error


@pytest.mark.parametrize('options', [
    ['-o', 'nonsense'], ['-o', 'layout=nonsense'], ['-o', 'files=nonsense'], ['-o', 'output='], ['-o', 'uid=x'], ['-o', 'umask=9'],
    ['-o', 'limit.nonsense=1'], ['-o', 'limit.tensors=x'], ['-o'], ['--nonsense'], ['third'], ['-z'], ['-o', 'rw=1'],
    ['-o', 'output=x.nonsense'],
])
def test_wrong_options_are_exit_code_2_and_mount_nothing(sample, folder, options):
    (folder / 'mnt').mkdir()
    weightfs(sample, folder / 'mnt', *options, code=EXIT_USAGE, cwd=folder)
    assert not is_mounted(folder / 'mnt')
    assert sorted(os.listdir(folder)) == ['encoder.safetensors', 'mnt']


BAD = {
    'missing': (None, EXIT_SOURCE),
    'pointer': (b'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n', EXIT_FOREIGN),
    'damaged': (b'\x36\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}\0\0\0', EXIT_DAMAGED),
    'dtype': (b'\x35\0\0\0\0\0\0\0{"a":{"dtype":"Q7","shape":[1],"data_offsets":[0,4]}}\0\0\0\0', EXIT_UNSUPPORTED),
    'nul': (b'\x3b\0\0\0\0\0\0\0{"a\\u0000":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', EXIT_UNSUPPORTED),
}


@pytest.mark.parametrize('flags', [[], ['-f']], ids=['background', 'foreground'])
@pytest.mark.parametrize('name', BAD)
def test_a_bad_source_is_never_mounted(folder, name, flags):
    content, code = BAD[name]
    if content is not None:
        (folder / 'x').write_bytes(content)
    (folder / 'mnt').mkdir()
    error = weightfs(folder / 'x', folder / 'mnt', *flags, code=code).error
    assert error.startswith(str(folder / 'x') + ': ')
    assert error == weightfs('ls', folder / 'x', code=code).error
    assert not is_mounted(folder / 'mnt')


def test_places_that_cannot_be_mounted_on(sample, folder):
    (folder / 'file').write_text('')
    weightfs(sample, folder / 'file', '-f', code=EXIT_MOUNT)
    weightfs(sample, folder / 'no/such/folder', '-f', code=EXIT_MOUNT)
    (folder / 'loop').symlink_to('loop')
    weightfs(sample, folder / 'loop', '-f', code=EXIT_MOUNT)


def test_source_output_or_edits_inside_the_mount_point_are_refused(folder, sample):
    for options in ([], ['-o', 'rw']):
        weightfs(sample, folder, *options, code=EXIT_MOUNT)
    (folder / 'mnt').mkdir()
    weightfs(sample, folder / 'mnt', '-o', 'output=%s' % (folder / 'mnt/out.safetensors'), code=EXIT_MOUNT)
    (folder / 'mnt/stage').mkdir()
    weightfs(sample, folder / 'mnt', '-o', 'output=%s,stage=%s' % (folder / 'out.safetensors', folder / 'mnt/stage'), code=EXIT_MOUNT)
    assert not is_mounted(folder) and not is_mounted(folder / 'mnt')


def test_an_output_that_exists_needs_overwrite(folder, sample):
    (folder / 'out.safetensors').write_text('precious')
    error = weightfs(sample, folder / 'mnt', '-o', 'output=%s' % (folder / 'out.safetensors'), code=EXIT_MOUNT).error
    assert 'overwrite' in error
    assert (folder / 'out.safetensors').read_text() == 'precious'


def test_two_writers_of_one_output(mount, folder, sample):
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    error = weightfs(sample, folder / 'second', '-o', 'output=%s' % (folder / 'out.safetensors'), code=EXIT_MOUNT).error
    assert 'in use by process' in error
    assert any(str(pid) in error for pid in [mnt.process.pid, *mnt.workers])
    mount(sample)  # readers are not limited


def test_a_planted_link_is_no_staging_directory(folder, sample):
    (folder / 'elsewhere').mkdir()
    (folder / '.out.safetensors.weightfs').symlink_to('elsewhere')
    weightfs(sample, folder / 'mnt', '-o', 'output=%s' % (folder / 'out.safetensors'), code=EXIT_MOUNT)
    assert os.listdir(folder / 'elsewhere') == []


def test_a_staging_directory_that_is_open_to_others_is_refused(folder, sample):
    (folder / '.out.safetensors.weightfs').mkdir()
    (folder / '.out.safetensors.weightfs').chmod(0o777)
    weightfs(sample, folder / 'mnt', '-o', 'output=%s' % (folder / 'out.safetensors'), code=EXIT_MOUNT)


def test_the_staging_directory_is_private_and_goes_away(mount, folder, sample):
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    with open(mnt / 'temperature', 'r+b') as file:
        file.write(b'abcd')
    stage = folder / '.out.safetensors.weightfs'
    assert stage.stat().st_mode & 0o7777 == 0o700
    for above, _, names in os.walk(stage):
        assert all(os.stat(os.path.join(above, name)).st_mode & 0o077 == 0 for name in names)
    mnt.commit()
    mnt.unmount()
    assert not stage.exists()


@pytest.mark.parametrize('signum', [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_commit_and_end(mount, folder, sample, signum):
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'temperature', mnt / 'heat')
    mnt.terminate(0, signum)
    assert not is_mounted(mnt.path)
    assert 'heat' in st.read(folder / 'out.safetensors').tensors


def test_sigterm_to_the_worker_commits_too(mount, folder, sample):
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'temperature', mnt / 'heat')
    for pid in mnt.workers:
        os.kill(pid, signal.SIGTERM)
    mnt.wait()
    assert 'heat' in st.read(folder / 'out.safetensors').tensors


def test_a_mount_in_use_is_busy_and_goes_on(mount, folder, sample):
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'temperature', mnt / 'heat')
    with open(mnt / 'heat', 'rb') as file:
        assert 'in use' in weightfs('umount', mnt.path, code=EXIT_MOUNT).error
        assert len(file.read()) == 4
    assert os.path.ismount(mnt.path)
    weightfs('umount', mnt.path)
    mnt.wait()


@pytest.mark.root
@pytest.mark.usefixtures('alone')
@pytest.mark.parametrize('where', ['bound', 'namespace'])
def test_a_mount_that_is_elsewhere_is_saved_and_left(mount, folder, sample, where):
    if where == 'namespace' and not mounts.has_namespaces():
        pytest.skip('no mount namespace of our own, as in a chroot')
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'temperature', mnt / 'heat')
    other = folder / 'other'
    other.mkdir()
    if where == 'bound':
        tool('mount', '--bind', mnt.path, other)
    else:
        holder = mounts.hold_in_a_namespace(mnt.path)
    try:
        error = weightfs('umount', mnt.path, code=EXIT_MOUNT).error
        assert not is_mounted(mnt.path) and 'heat' in st.read(folder / 'out.safetensors').tensors
        assert "still mounted at '%s'" % (other if where == 'bound' else mnt.path) in error and 'the edits are saved' in error
        assert ('process %d' % holder.pid in error) if where == 'namespace' else 'process' not in error
    finally:
        if where == 'bound':
            program.unmount(other)
        else:
            holder.kill()
            holder.wait()
    mnt.wait()


@pytest.mark.root
@pytest.mark.usefixtures('alone')
def test_a_mount_that_gets_the_device_number_is_another_one(mount, background, sample):
    """The number is free as soon as the driver has closed its device, which may be long before it has ended."""
    mnt = mount(sample)
    mnt.process.send_signal(signal.SIGSTOP)
    with subprocess.Popen([*program.COMMAND, 'umount', mnt.path], stderr=subprocess.PIPE) as running:
        try:
            wait_for(lambda: not is_mounted(mnt.path), 'the mount to go')
            for _ in range(20):
                if os.stat(background(sample)).st_dev == mnt.device:
                    break
            else:
                pytest.skip('no mount got the number')
            with pytest.raises(subprocess.TimeoutExpired):
                running.wait(1.2)
        finally:
            mnt.process.send_signal(signal.SIGCONT)
        assert running.stderr.read() == b'' and running.wait() == 0
    mnt.wait()


@pytest.mark.parametrize('kind', ['output', 'rw'])
def test_a_mount_waits_for_the_driver_before_it(folder, sample, kind):
    source, out, point = folder / 'in.safetensors', folder / 'out.safetensors', folder / 'mnt'
    shutil.copyfile(sample, source)
    options = ['-o', 'rw' if kind == 'rw' else 'output=%s,overwrite' % out]
    content = b''
    for i in range(12):
        weightfs(source, point, *options)  # makes the mount point, which the driver removes
        try:
            assert kind == 'output' or i == 0 or (point / 'temperature').read_bytes() == content
            content = bytes([i]) * 4
            (point / 'temperature').write_bytes(content)
        finally:
            mounts.force_unmount(point) if i % 2 else program.unmount(point)
    weightfs('recover', out if kind == 'output' else source)
    assert st.read(out if kind == 'output' else source).tensors['temperature'][2] == content
    assert sorted(path.name for path in folder.iterdir()) == sorted({'in.safetensors', out.name if kind == 'output' else source.name,
                                                                     'encoder.safetensors'})


def test_a_lazy_unmount_commits_when_the_last_user_leaves(mount, folder, sample):
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'temperature', mnt / 'heat')
    with open(mnt / 'heat', 'rb') as file:
        mounts.force_unmount(mnt.path)
        assert len(file.read()) == 4
        assert mnt.process.poll() is None
    mnt.wait()
    assert 'heat' in st.read(folder / 'out.safetensors').tensors


@pytest.mark.parametrize('is_deep', [False, True])
def test_a_worker_that_is_killed_leaves_no_mount_and_says_where_the_edits_are(mount, folder, sample, is_deep):
    folder = folder / ('a' * 100) / ('b' * 100) / ('c' * 100) if is_deep else folder
    folder.mkdir(parents=True, exist_ok=True)
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    with open(mnt / 'temperature', 'r+b') as file:
        file.write(b'abcd')
    assert mnt.workers
    for pid in mnt.workers:
        os.kill(pid, signal.SIGKILL)
    stderr = mnt.allow('signal 9').wait(128 + signal.SIGKILL)
    stage = folder / '.out.safetensors.weightfs'
    assert str(stage) in stderr and not is_mounted(mnt.path)
    assert b'abcd' in [path.read_bytes() for path in (stage / 'data').iterdir()]
    assert not (folder / 'out.safetensors').exists()


# Sanitizers have handlers of their own for two of them.
@pytest.mark.parametrize('signum', [signal.SIGABRT, signal.SIGSYS] + ([] if program.IS_INSTRUMENTED else [signal.SIGSEGV, signal.SIGBUS]))
def test_a_worker_that_crashes_is_told_in_one_line(mount, folder, sample, signum):
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'temperature', mnt / 'heat')
    for pid in mnt.workers:
        os.kill(pid, signum)
    stderr = mnt.allow('signal %d' % signum).wait(128 + signum)
    assert len(stderr.splitlines()) == 1 and str(folder / '.out.safetensors.weightfs') in stderr
    assert not is_mounted(mnt.path) and not (folder / 'out.safetensors').exists()
    again = mount(sample, 'output=%s' % (folder / 'out.safetensors'), at=mnt.path).allow('edit')
    assert (again / 'heat').exists()


def test_a_worker_without_its_supervisor_serves_and_commits(mount, folder, sample):
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    mnt.process.kill()
    mnt.process.wait()
    os.rename(mnt / 'temperature', mnt / 'heat')
    (worker,) = mnt.workers
    os.kill(worker, signal.SIGTERM)
    wait_for(lambda: not is_alive(worker), 'the end of the worker')
    assert 'heat' in st.read(folder / 'out.safetensors').tensors
    assert os.stat(folder / 'out.safetensors').st_mode & 0o7777 == 0o600
    assert 'cannot set owner and mode of' in mnt.stderr()
    mnt.forget()
    mount(sample, at=mnt.path, makes=False).unmount()
    assert not is_mounted(mnt.path)


def test_a_worker_that_is_killed_while_the_mount_is_busy(mount, sample):
    mnt = mount(sample)
    fd = os.open(mnt / 'temperature', os.O_RDONLY)
    try:
        for pid in mnt.workers:
            os.kill(pid, signal.SIGKILL)
        mnt.allow('signal 9').wait(128 + signal.SIGKILL)
        with pytest.raises(OSError) as caught:
            os.pread(fd, 4, 0)
        assert caught.value.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO)
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)


def test_a_dead_mount_is_cleared_by_the_next(mount, folder, sample):
    dead = Mount(sample, tmp_mount_point(folder))
    for pid in [dead.process.pid, *dead.workers]:
        os.kill(pid, signal.SIGKILL)
    dead.process.wait()
    wait_for(lambda: not any(is_alive(pid) for pid in dead.workers), 'the end of the worker')
    dead.forget()
    assert is_mounted(dead.path)
    with pytest.raises(OSError) as caught:
        os.listdir(dead.path)
    assert caught.value.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO)
    again = mount(sample, at=dead.path, makes=False)
    assert look.tensors(again.path) == st.read(sample).tensors
    again.unmount()
    assert not is_mounted(dead.path)


def tmp_mount_point(folder):
    (folder / 'mnt').mkdir()
    return folder / 'mnt'


def big(folder, n=48):
    """A file that takes a while to commit: n MiB, each of its own bytes."""
    parts = [('w%d' % i, 'U8', [1 << 20], bytes([i]) * (1 << 20)) for i in range(n)]
    return st.write_parts(folder / 'big.safetensors', parts)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize('who', ['worker', 'supervisor', 'both'])
@pytest.mark.parametrize('part', [0, 1, 3, 5, 7, 8])
def test_kill_during_a_commit_leaves_old_or_new(mount, folder, who, part):
    """The temporary file is watched: the kill comes when it has so many eighths of its bytes, or when it is gone."""
    source = big(folder)
    out = folder / 'out.safetensors'
    shutil.copy(source, out)
    old = digest(out)
    mnt = mount(source, 'output=%s' % out, 'overwrite').allow('signal 9|cannot commit')
    os.rename(mnt / 'w0', mnt / 'first')
    with open(mnt / 'w1', 'r+b') as file:
        file.write(b'x' * (1 << 20))
    expected = {key: tensor for key, tensor in look.tensors(mnt.path).items()}
    commit = subprocess.Popen(['sync', mnt.path], stderr=subprocess.DEVNULL)
    temporary = folder / '.out.safetensors.weightfs.tmp'
    wait_for(lambda: written(temporary) >= part * (6 << 20) or commit.poll() is not None, 'the commit to get so far')
    for pid in {'worker': mnt.workers, 'supervisor': [mnt.process.pid], 'both': [mnt.process.pid, *mnt.workers]}[who]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    commit.wait()
    mnt.process.wait()
    mounts.force_unmount(mnt.path)
    wait_for(lambda: not any(is_alive(pid) for pid in mnt.workers), 'the end of the worker')
    mnt.kill()
    if digest(out) != old:
        assert st.read(out).tensors == expected
    else:
        assert commit.returncode != 0
    if commit.returncode == 0:
        assert digest(out) != old


def written(path):
    """Bytes that are in a file; a reserved but unwritten range does not count."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return -1
    try:
        return max((i + 1) << 20 for i in range(-1, 48) if i < 0 or any(os.pread(fd, 4096, (i << 20) + (1 << 19))))
    finally:
        os.close(fd)


def test_a_left_over_temporary_is_no_hindrance(mount, folder, sample):
    (folder / '.out.safetensors.weightfs.tmp').write_text('left over')
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    mnt.commit()
    assert (folder / 'out.safetensors').read_bytes() == sample.read_bytes()
    assert not (folder / '.out.safetensors.weightfs.tmp').exists()


@pytest.mark.parametrize('asked', [['sync'], [*program.COMMAND, 'commit']], ids=['sync', 'verb'])
def test_a_commit_goes_on_when_who_asked_is_killed(mount, folder, asked):
    source = big(folder)
    out = folder / 'out.safetensors'
    mnt = mount(source, 'output=%s' % out)
    os.rename(mnt / 'w0', mnt / 'first')
    commit = subprocess.Popen([*asked, mnt.path], stderr=subprocess.DEVNULL)
    wait_for(lambda: (folder / '.out.safetensors.weightfs.tmp').exists() or commit.poll() is not None, 'the commit to begin')
    commit.kill()
    commit.wait()
    wait_for(lambda: mnt.status()['state'] == 'published', 'the commit to end')
    assert 'first' in st.read(out).tensors


def test_readers_go_on_during_a_commit(mount, folder):
    source = big(folder)
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors'))
    commit = subprocess.Popen(['sync', mnt.path])
    n_reads = 0
    while commit.poll() is None or n_reads < 48:
        with open(mnt / ('w%d' % (n_reads % 48)), 'rb') as file:
            assert file.read(10) == bytes([n_reads % 48]) * 10
        n_reads += 1
    assert commit.returncode == 0


def test_verbs_refuse_what_is_no_mount_of_ours(folder):
    for verb in ('commit', 'status', 'umount'):
        assert weightfs(verb, folder, code=EXIT_MOUNT).code == EXIT_MOUNT
        weightfs(verb, folder / 'missing', code=None)
        assert weightfs(verb, '/proc', code=None).code != 0


def test_commit_of_a_read_only_mount_is_refused(mount, sample):
    mnt = mount(sample)
    assert weightfs('commit', mnt.path, code=EXIT_COMMIT).error
    tool('sync', mnt.path, code=None)


def test_memory_is_bounded_when_a_large_tensor_is_read(mount, folder):
    with open(folder / 'x', 'wb') as file:
        head = b'{"w":{"dtype":"U8","shape":[1073741824],"data_offsets":[0,1073741824]}}'
        file.write(len(head).to_bytes(8, 'little') + head)
        file.truncate(8 + len(head) + (1 << 30))
    mnt = mount(folder / 'x')
    assert tool('sh', '-c', 'head -c 300M "$0" | tr -d "\\0" | wc -c', mnt / 'w').stdout.strip() == '0'
    if program.IS_INSTRUMENTED:
        return
    for pid in mnt.workers:
        with open('/proc/%d/status' % pid, encoding='ascii') as file:
            assert next(int(line.split()[1]) for line in file if line.startswith('VmHWM')) < 64 << 10


def test_a_long_path_of_the_staging_directory_is_passed_whole(mount, folder, sample):
    place = folder
    while len(os.fspath(place)) < 3000:
        place /= 'd' * 200
    place.mkdir(parents=True)
    mnt = mount(sample, 'output=%s' % (place / 'out.safetensors'))
    assert mnt.control(2).text.decode() == str((place / '.out.safetensors.weightfs').resolve())
    os.rename(mnt / 'temperature', mnt / 'heat')
    weightfs('umount', mnt.path)
    mnt.wait()
    assert 'heat' in st.read(place / 'out.safetensors').tensors


def test_a_copy_of_a_mount_is_a_mount_point_like_any_other(mount, sample, folder):
    """With what its control directory holds."""
    first = mount(sample)
    shutil.copytree(first / '.weightfs', folder / 'copy/.weightfs', ignore=shutil.ignore_patterns('out'))
    assert (folder / 'copy/.weightfs/status.json').exists()
    assert (mount(sample, at=folder / 'copy') / 'temperature').read_bytes() == st.read(sample).tensors['temperature'][2]


def test_a_second_mount_does_not_hide_the_first_and_its_edits(background, small, sample, folder):
    mnt = background(sample, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'temperature', mnt / 'heat')
    for source in (sample, small):
        error = weightfs(source, mnt, code=EXIT_MOUNT).error
        assert error == "%s: cannot mount on '%s': it is a weightfs mount already; first 'weightfs umount %s'" % (source, mnt, mnt)
    assert weightfs('ls', mnt, code=EXIT_SOURCE).error == (
        '%s: is a mount of weightfs: name the checkpoint that is mounted, or with its edits a file in .weightfs/out' % mnt)
    weightfs('umount', mnt)
    assert 'heat' in st.read(folder / 'out.safetensors').tensors
