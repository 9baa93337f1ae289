# SPDX-License-Identifier: MIT
"""Long requests and commits: they hold nobody up, and end when their process is killed, the mount is, or somebody presses Ctrl-C."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from wfs_testlib import bounds, program, st, trace
from wfs_testlib.bounds import huge
from wfs_testlib.mount import is_alive, is_mounted, wait_for
from wfs_testlib.program import EXIT_COMMIT, IS_INSTRUMENTED, weightfs
from wfs_testlib.stage import stage_of

# ---- requests ----

XXH3, STATS = 'user.weightfs.xxh3', 'user.weightfs.stats'
N_TRIES = 3  # what ends within half a second may be late on a busy machine, but not every time


def start_reader(path, attribute):
    """A process that asks for the attribute, as one that waits for the driver."""
    code = 'import os, sys\nos.write(1, b"x")\nos.getxattr(sys.argv[1], sys.argv[2])'
    reader = subprocess.Popen(['/usr/bin/python3', '-SEc', code, path, attribute], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert reader.stdout.read(1) == b'x'
    reader.stdout.close()
    return reader


def wait_until_busy(pid):
    """Waits until the driver is computing."""
    before = bounds.used_seconds(pid)
    wait_for(lambda: bounds.used_seconds(pid) > before + 0.1, 'the driver to compute')


def wait_until_idle(pid):
    def is_idle():
        before = bounds.used_seconds(pid)
        time.sleep(0.2)
        return bounds.used_seconds(pid) - before < 0.05

    wait_for(is_idle, 'the driver to rest')


@pytest.mark.parametrize('attribute', [XXH3, STATS])
@pytest.mark.parametrize('signum', [signal.SIGKILL, signal.SIGINT])
def test_a_killed_reader_of_a_long_attribute_ends_and_so_does_the_work(folder, mount, attribute, signum):
    mnt = mount(huge(folder / 'a.safetensors'))
    took = []
    for _ in range(N_TRIES):
        reader = start_reader(mnt / 'huge', attribute)
        wait_until_busy(mnt.workers[0])
        began = time.monotonic()
        reader.send_signal(signum)
        reader.wait(30)
        took.append(time.monotonic() - began)
        wait_until_idle(mnt.workers[0])
    assert min(took) < 0.5, took


@pytest.mark.parametrize('attribute', [XXH3, STATS])
def test_a_driver_that_computes_ends_at_a_signal(folder, mount, attribute):
    mnt = mount(huge(folder / 'a.safetensors'))
    reader = start_reader(mnt / 'huge', attribute)
    wait_until_busy(mnt.workers[0])
    mnt.terminate(0)
    reader.wait(30)
    assert not is_alive(mnt.workers[0])


@pytest.mark.parametrize('n_readers', [1, 3, 5])
def test_short_requests_go_on_while_an_attribute_is_computed(folder, mount, n_readers):
    """One thread answers short requests. A long one looks like them, and holds it up."""
    mnt = mount(huge(folder / 'a.safetensors'))
    for _ in range(200):
        os.getxattr(mnt / 'huge', 'user.weightfs.dtype')
    readers = [start_reader(mnt / 'huge', XXH3) for _ in range(n_readers)]
    wait_until_busy(mnt.workers[0])
    for _ in range(200):
        os.getxattr(mnt / 'huge', 'user.weightfs.dtype')
    with open(mnt / 'huge', 'rb') as file:
        assert file.read(4096) == bytes(4096)
    assert [reader.poll() for reader in readers] == [None] * n_readers
    for reader in readers:
        reader.kill()
        reader.wait(30)


def test_reads_and_edits_go_on_while_an_attribute_is_computed(folder, mount):
    mnt = mount(huge(folder / 'a.safetensors'), 'output=' + str(folder / 'out.safetensors'))
    readers = [start_reader(mnt / 'huge', attribute) for attribute in (XXH3, STATS)]
    wait_until_busy(mnt.workers[0])
    before = bounds.used_seconds(mnt.workers[0])
    (mnt / 'small').write_bytes(st.f32(5, 6, 7, 8))
    (mnt / 'small').rename(mnt / 'other')
    os.setxattr(mnt / 'other', STATS, b'copied')  # what a copy of all attributes does
    assert (mnt / 'other').read_bytes() == st.f32(5, 6, 7, 8)
    assert json.loads(os.getxattr(mnt / 'other', STATS))['mean'] == 6.5
    assert all(reader.poll() is None for reader in readers)
    assert bounds.used_seconds(mnt.workers[0]) - before < 10  # of more than a minute that the readers ask for
    for reader in readers:
        reader.kill()
        reader.wait(30)
    (mnt / 'huge').unlink()
    mnt.unmount()
    assert list(st.read(folder / 'out.safetensors').tensors) == ['other']


def test_an_attribute_of_a_file_that_is_written_to_is_that_of_one_moment(folder, mount):
    """The values of a tensor whose elements are all equal at any moment between two writes."""
    n = 1 << 18
    path = st.write(folder / 'a.safetensors', {'w': ('F32', [n], st.f32(1) * n)})
    mnt = mount(path, 'output=' + str(folder / 'out.safetensors'))
    code = ('import os, struct, sys\nfd = os.open(sys.argv[1], os.O_WRONLY)\n'
            'for i in range(400):\n  os.pwrite(fd, struct.pack("<f", i) * %d, 0)' % n)
    writer = subprocess.Popen(['/usr/bin/python3', '-SEc', code, mnt / 'w'])
    n_found = 0
    while writer.poll() is None:
        try:
            stats = json.loads(os.getxattr(mnt / 'w', STATS))
        except OSError as problem:
            assert problem.errno == 16, problem  # EBUSY: it changed each time
            continue
        n_found += 1
        assert stats['min'] == stats['max'], stats
    assert writer.returncode == 0
    assert json.loads(os.getxattr(mnt / 'w', STATS))['mean'] == 399


WRITE = 'fd = os.open(sys.argv[1], os.O_WRONLY)\nos.pwrite(fd, b"abcd", 8)'
DESCRIBE = 'os.setxattr(sys.argv[1], "user.weightfs.%s", b"%s")'


@pytest.mark.parametrize('view, change', [
    ([], WRITE), (['cast=huge=>F16'], WRITE), (['cast=huge=>F16'], DESCRIBE % ('dtype', 'I16')), (['cast=huge=>F16'], DESCRIBE % ('shape', '[1]')),
    (['transpose=huge'], WRITE), (['transpose=huge'], DESCRIBE % ('dtype', 'I32')), (['transpose=huge'], DESCRIBE % ('shape', '[1]')),
], ids=['copied', 'cast', 'cast-dtype', 'cast-shape', 'transposed', 'transposed-dtype', 'transposed-shape'])
def test_a_killed_first_writer_of_a_large_tensor_leaves_nothing(folder, mount, view, change):
    """The copy that the first change makes ends with its process; others read and write meanwhile."""
    out = folder / 'out.safetensors'
    mnt = mount(huge(folder / 'a.safetensors', 8 << 30, [1 << 15, 1 << 16]), 'output=' + str(out), *view)
    (mnt / 'small').write_bytes(st.f32(1, 1, 1, 1))
    staged = stage_of(out) / 'data'
    code = 'import os, sys\nos.write(1, b"x")\n' + change
    took = []
    for _ in range(N_TRIES):
        writer = subprocess.Popen(['/usr/bin/python3', '-SEc', code, mnt / 'huge'], stdout=subprocess.PIPE)
        assert writer.stdout.read(1) == b'x'
        writer.stdout.close()
        wait_for(lambda: len(list(staged.iterdir())) == 2, 'the copy to begin')
        (mnt / 'small').write_bytes(st.f32(5, 6, 7, 8))
        assert writer.poll() is None, 'the copy was too fast for this test'
        began = time.monotonic()
        writer.kill()
        writer.wait(30)
        took.append(time.monotonic() - began)
        wait_for(lambda: len(list(staged.iterdir())) == 1, 'the copy to go')
    assert min(took) < 0.5, took
    assert (mnt / 'small').read_bytes() == st.f32(5, 6, 7, 8)
    (mnt / 'huge').unlink()


@pytest.mark.slow
def test_a_killed_writer_does_not_wait_for_a_commit(folder, mount):
    """A `sync` of the root would not do: the kernel locks the directory for as long as it takes."""
    mnt = mount(huge(folder / 'a.safetensors', 1 << 30), 'output=' + str(folder / 'out.safetensors'))
    took = []
    for _ in range(N_TRIES):
        (mnt / 'small').write_bytes(st.f32(5, 6, 7, 8))
        commit = subprocess.Popen([*program.COMMAND, 'commit', mnt.path], stdout=subprocess.DEVNULL)
        wait_for(lambda: mnt.status()['state'] == 'committing', 'the commit to begin')
        code = 'import os, sys\nos.write(1, b"x")\nos.unlink(sys.argv[1])'
        writer = subprocess.Popen(['/usr/bin/python3', '-SEc', code, mnt / 'small'], stdout=subprocess.PIPE)
        assert writer.stdout.read(1) == b'x'
        writer.stdout.close()
        time.sleep(0.1)
        assert writer.poll() is None and commit.poll() is None, 'the commit was too fast for this test'
        began = time.monotonic()
        writer.kill()
        writer.wait(60)
        took.append(time.monotonic() - began)
        assert commit.wait(60) == 0 and (mnt / 'small').read_bytes() == st.f32(5, 6, 7, 8)
    assert min(took) < 0.5, took


@pytest.mark.parametrize('path', [path for path in bounds.slow_files() if path.name.startswith(('repeated', 'windows'))],
                         ids=lambda path: path.name)
def test_the_digest_of_a_view_much_larger_than_its_file_is_refused(mount, path):
    mnt = mount(path)
    file = mnt / ('w0' if 'many' in path.name else 'w')
    if 'complex' not in path.name:
        assert json.loads(os.getxattr(file, STATS))['elements'] >= 1 << 30
    with pytest.raises(OSError, match='File too large'):
        os.getxattr(file, XXH3)


@pytest.mark.root  # strace takes from fusermount3 the rights that it has for others
@pytest.mark.parametrize('what', ['writer', 'commit'])
@pytest.mark.skipif(shutil.which('strace') is None, reason='needs strace')
@pytest.mark.skipif(IS_INSTRUMENTED, reason='LeakSanitizer and valgrind do not work under strace')
def test_nobody_waits_until_the_space_of_what_was_given_up_is_free(folder, mount, what):
    """The last close of a large file takes long: a thread of its own does it, which has no lock and no request."""
    log, out = folder / 'trace', folder / 'out.safetensors'
    mnt = mount(huge(folder / 'a.safetensors', 8 << 30), 'output=%s' % out,
                wrap=('strace', '-f', '-y', '-o', log, '-e', 'trace=unlinkat,close,sync_file_range,copy_file_range,exit'))
    if what == 'writer':
        kept, removed = '/data/1>(deleted)', '/data>, "1"'
        helper = subprocess.Popen(['/usr/bin/python3', '-SEc', 'import os, sys\n' + WRITE, mnt / 'huge'])
        wait_for(lambda: '/data/1>' in log.read_text(), 'the copy to begin')
        helper.kill()
    else:
        kept, removed = '.out.safetensors.weightfs.tmp>(deleted)', '.out.safetensors.weightfs.tmp"'
        (mnt / 'small').unlink()
        helper = subprocess.Popen([*program.COMMAND, 'commit', mnt.path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: mnt.status()['done'] > 0, 'the commit to write')
        helper.send_signal(signal.SIGINT)
        mnt.allow('stopped by the user')
    helper.wait(30)
    assert (mnt / 'huge').stat().st_size == 8 << 30
    (mnt / 'huge').unlink()
    mnt.unmount()
    calls = trace.calls(log)
    removal, *_ = [i for i, call in enumerate(calls) if call.name == 'unlinkat' and call.result == 0 and removed in call.arguments]
    close, *_ = [i for i, call in enumerate(calls) if call.name == 'close' and kept in call.arguments]
    assert close > removal and calls[close].pid != calls[removal].pid


@pytest.mark.root
@pytest.mark.parametrize('n_left, end', [(0, 'commit'), pytest.param(40, 'crash', marks=pytest.mark.slow)])
@pytest.mark.skipif(shutil.which('strace') is None, reason='needs strace')
@pytest.mark.skipif(IS_INSTRUMENTED, reason='LeakSanitizer and valgrind do not work under strace')
def test_the_blocks_of_a_file_that_is_shortened_are_freed_without_a_lock(folder, mount, n_left, end):
    """It is a new file under the same number; a thread of its own closes the old one."""
    log, out, n = folder / 'trace', folder / 'out.safetensors', 300 << 20
    path = st.write(folder / 'a.safetensors', {'w': ('U8', [n], b'abcd' * (n // 4))})
    mnt = mount(path, 'output=%s' % out, wrap=('strace', '-f', '-y', '-o', log, '-e', 'trace=ftruncate,renameat,close,exit'))
    with open(mnt / 'w', 'r+b') as file:
        file.write(b'x')
        file.flush()
        os.ftruncate(file.fileno(), n_left)
        assert os.fstat(file.fileno()).st_size == n_left
        file.seek(0)
        assert file.read() == (b'xbcd' + b'abcd' * (n // 4))[:n_left]
        os.ftruncate(file.fileno(), 0)
        file.seek(0)
        file.write(b'123456')
        file.flush()
        os.fsync(file.fileno())
    os.setxattr(mnt / 'w', 'user.weightfs.shape', b'[6]')
    if end == 'crash':
        mnt.kill()
        recovery = [*program.COMMAND, 'recover', '--publish', out, '--source', path]
        wait_for(lambda: subprocess.run(recovery, capture_output=True, check=False).returncode == 0, 'the end of all processes of the mount')
    else:
        mnt.unmount()
    assert st.read(out).tensors['w'] == ('U8', [6], b'123456')
    calls = trace.calls(log)
    renamed, *_ = [i for i, call in enumerate(calls) if call.name == 'renameat' and call.result == 0 and '/data>, "1"' in call.arguments]
    close, *_ = [i for i, call in enumerate(calls) if call.name == 'close' and '/data/1>(deleted)' in call.arguments]
    assert close > renamed and calls[close].pid != calls[renamed].pid


# ---- commit and umount ----

def start(verb, mnt):
    """The command, once its commit writes."""
    command = subprocess.Popen([*program.COMMAND, verb, str(mnt.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: mnt.status()['state'] == 'committing' and mnt.status()['done'] > 0, 'the commit to write')
    return command


@pytest.fixture
def slow(mount, folder):
    out = folder / 'out.safetensors'
    source = bounds.huge(folder / 'in.safetensors', 1 << 30)
    mnt = mount(source, 'output=%s' % out, 'cast=F16', 'large', patience=240)
    mnt.out = out
    os.rename(mnt / 'small', mnt / 'little')
    return mnt


@pytest.mark.parametrize('verb', ['commit', 'umount'])
def test_the_first_interrupt_stops_the_commit(slow, folder, verb):
    command = start(verb, slow)
    command.send_signal(signal.SIGINT)
    stdout, stderr = command.communicate(timeout=program.PATIENCE)
    assert command.returncode == EXIT_COMMIT and stdout == b''
    assert b'cannot commit: stopped by the user, and nothing was changed; the edits are kept in' in stderr
    assert is_mounted(slow.path) and not slow.out.exists() and not list(folder.glob('.*.tmp'))
    status = slow.allow('stopped by the user').status()
    assert status['state'] == 'failed' and status['edits'] == 1
    assert (slow / 'little').exists()
    os.unlink(slow / 'huge')  # changes do not wait, and another commit is not stopped
    assert weightfs('commit', slow.path).stdout.startswith('committed')
    assert list(st.read(slow.out).tensors) == ['little']


def test_other_signals_end_the_command_only(slow):
    os.unlink(slow / 'huge')
    with open(slow / 'big', 'wb') as file:
        file.truncate(1 << 25)
    for name, value in [(b'dtype', b'U8'), (b'shape', b'[33554432]')]:
        os.setxattr(slow / 'big', 'user.weightfs.' + name.decode(), value)
    command = subprocess.Popen([*program.COMMAND, 'commit', str(slow.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: slow.status()['state'] != 'dirty', 'the commit to begin')
    command.terminate()
    command.communicate(timeout=program.PATIENCE)
    wait_for(lambda: slow.status()['state'] == 'published', 'the commit to end')
    assert set(st.read(slow.out).tensors) == {'little', 'big'}


def test_an_ignored_interrupt_stays_ignored(mount, small, folder):
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'step', mnt / 'pace')
    done = subprocess.run(['sh', '-c', 'trap "" INT; exec "$@"', 'sh', *program.COMMAND, 'commit', str(mnt.path)], check=True, stdout=subprocess.PIPE)
    assert done.stdout.startswith(b'committed')


# ---- nothing to save ----

@pytest.mark.parametrize('kind', ['taken', 'gone'])
def test_a_mount_without_edits_can_be_left(mount, small, folder, kind):
    place = folder / 'place'
    place.mkdir()
    out = place / 'out.safetensors'
    mnt = mount(small, 'output=%s' % out)
    if kind == 'taken':
        out.write_bytes(b'somebody else')
    else:
        os.rename(place, folder / 'elsewhere')
    done = weightfs('umount', mnt.path, code=EXIT_COMMIT)
    assert 'cannot commit: ' in done.error and 'edits' not in done.error and done.stdout == 'unmounted; nothing was edited\n'
    assert not is_mounted(mnt.path)
    mnt.allow('cannot commit|output').wait()


def test_a_mount_with_edits_stays(mount, small, folder):
    out = folder / 'out.safetensors'
    mnt = mount(small, 'output=%s' % out)
    os.rename(mnt / 'step', mnt / 'pace')
    out.write_bytes(b'somebody else')
    assert 'the edits are kept in' in weightfs('umount', mnt.path, code=EXIT_COMMIT).error
    assert is_mounted(mnt.path) and pathlib.Path(mnt / 'pace').exists()
    out.unlink()
    assert weightfs('umount', mnt.path).stdout.startswith('committed')
    mnt.allow('cannot commit').wait()
