# SPDX-License-Identifier: MIT
"""Faults at every call: the life of a mount with edits, syncs and a commit, cut or failed at each call that changes a file."""
import concurrent.futures
import contextlib
import multiprocessing
import os
import random as random_module
import shutil
import signal
import threading
import time

import pytest

from wfs_testlib import crash, st
from wfs_testlib.crash_kinds import KINDS, SAFETENSORS, SHARDS
from wfs_testlib.mount import is_alive, wait_for
from wfs_testlib.power import FILESYSTEMS, Power

MODES = ['kill-before', 'kill-after', 'enospc-once', 'enospc-on', 'eio-once', 'half']
TARGETS = ['new', 'overwrite', 'rw']
IS_CI = os.environ.get('CI') == 'true'
N_SHARES = 3
STRIDE = 3  # of the runs in CI that do not take every call

pytestmark = pytest.mark.skipif(not crash.LIBRARY.exists(), reason='no fault injector in this build')


@pytest.fixture
def disk(folder):
    return crash.folder_for(folder)


@pytest.fixture
def ext4(memory, folder):
    """A filesystem as of a disk, without the waits for the disk; that of the build where none can be mounted."""
    with contextlib.ExitStack() as stack:
        try:
            place = stack.enter_context(Power(memory, 'ext4')).disk
        except pytest.skip.Exception:
            place = crash.folder_for(folder)
        yield place


def by_name(kind):
    return kind.name


# The modes whose runs with a stride begin one call later than those of the others: each call lacks room in one of two modes and fails in
# one of two. Before a call and after the one in front of it is the same moment, so the two kills begin at the same call.
LATER = {'enospc-on', 'edquot-on', 'half'}


def step_through(disk, kind, target, mode, stride):
    """Each target begins at another call, so that with a stride all calls are taken by one of them."""
    run = crash.live(kind, target, disk, 'count', 0)
    n_calls = run.injection.n_calls()
    assert run.code == 0 and kind.read(run.output) == run.now and n_calls > 40, run.show()
    share(step, disk, range(1 + ((mode in LATER) + TARGETS.index(target)) % stride, n_calls + 1, stride), kind, target, mode)


def step(disk, calls, kind, target, mode):
    for at in calls:
        run = crash.live(kind, target, disk, mode, at)
        crash.check_output(run)
        crash.check_recovery(run)


def share(function, disk, calls, *arguments):
    """Takes the calls in several processes, each in a folder of its own: a life waits for half of its time."""
    for path in disk.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    places = [crash.folder_for(crash.folder_for(disk, str(i))) for i in range(N_SHARES)]
    with concurrent.futures.ProcessPoolExecutor(N_SHARES, multiprocessing.get_context('fork')) as pool:
        parts = [pool.submit(function, place, calls[i::N_SHARES], *arguments) for i, place in enumerate(places)]
        for part in parts:
            part.result()


def chosen():
    """All targets and modes for safetensors; for the other formats, each mode with one target, of each format with another one. What depends
    on the format is what is written, and not how it is published. The slow test takes all of them."""
    return [pytest.param(mode, target, kind, id='%s-%s-%s' % (mode, target, kind.name)) for i, mode in enumerate(MODES) for target in TARGETS
            for j, kind in enumerate(KINDS) if kind is SAFETENSORS or TARGETS[(i + j) % 3] == target]


@pytest.mark.parametrize('mode, target, kind', chosen())
def test_a_fault_leaves_old_or_new_and_all_edits(memory, kind, mode, target):
    step_through(memory, kind, target, mode, 2 if kind is SAFETENSORS else STRIDE)


@pytest.mark.parametrize('kind', KINDS, ids=by_name)
def test_a_quota_is_told_as_one(memory, kind):
    step_through(memory, kind, TARGETS[KINDS.index(kind) % 3], 'edquot-on', 2 * STRIDE)


@pytest.mark.slow
@pytest.mark.parametrize('kind', KINDS, ids=by_name)
@pytest.mark.parametrize('target', TARGETS)
@pytest.mark.parametrize('mode', [*MODES, 'edquot-on'])
def test_a_fault_at_every_call_leaves_old_or_new_and_all_edits(ext4, kind, mode, target):
    step_through(ext4, kind, target, mode, 1)


@pytest.mark.parametrize('target', TARGETS)
def test_the_order_of_a_commit(disk, target):
    """fsync of content < B < temporary … synced < P < rename < fsync of the directory < F < removals."""
    run = crash.live(SAFETENSORS, target, disk, 'count', 0)
    assert run.code == 0
    folder = os.path.realpath(disk)
    stage = '%s/.%s.weightfs' % (folder, run.output.name)
    temporary, output = '%s/.%s.weightfs.tmp' % (folder, run.output.name), '%s/%s' % (folder, run.output.name)
    calls = [(name, path.replace('journal.tmp', 'journal')) for name, path in run.injection.calls()]
    rename = calls.index(('rename', output))
    create = calls.index(('create', temporary))
    before, middle, after = calls[:create], calls[create:rename], calls[rename + 1:]
    journal = [('write', stage + '/journal'), ('fdatasync', stage + '/journal')]
    contents = [call for call in before if call[0] in ('pwrite', 'fdatasync') and '/data/' in call[1]]
    written = {path for name, path in contents if name == 'pwrite'}
    for path in written:
        last = max(i for i, call in enumerate(contents) if call == ('pwrite', path))
        assert ('fdatasync', path) in contents[last:], calls
    synced = max(i for i, call in enumerate(before) if call[0] == 'fdatasync' and '/data/' in call[1])
    assert journal == [call for call in before[synced:] if call[1] == stage + '/journal'][-2:]
    data = max(i for i, call in enumerate(middle) if call[1] == temporary and call[0] in ('pwrite', 'copy', 'truncate'))
    rest = middle[data + 1:]
    assert rest.index(('fsync', temporary)) < rest.index(journal[0]) < rest.index(journal[1])
    assert rest[-1] == journal[1]
    assert after[0] == ('fsync', folder)
    assert [call for call in after if call[1] == stage + '/journal'][:2] == journal
    removed = [i for i, call in enumerate(after) if call[0] == 'unlink' and call[1].startswith(stage) and not call[1].endswith('.tmp')]
    assert all(i > after.index(journal[1]) for i in removed) and removed


def recover_through(disk, kind, target, mode, stride, first):
    """Every call of `recover --publish`, after a mount that was killed in its commit."""
    calls = crash.live(kind, target, disk, 'count', 0).injection.calls()
    middle = 1 + next(i for i, call in enumerate(calls) if call[0] == 'fsync' and call[1].endswith('.weightfs.tmp'))
    share(step_of_recovery, disk, range(first, 10 * len(calls), stride), kind, target, mode, middle)


def step_of_recovery(disk, calls, kind, target, mode, middle):
    for at in calls:
        run = crash.live(kind, target, disk, 'kill-after', middle)
        injection = crash.Injection(disk, disk.parent / 'inject', mode, at)
        code, text = crash.publish(run, environment=injection.environment)
        assert code in ((0, 9) if mode in crash.ERRORS else (0, -9, 128 + 9)), text
        crash.check_output(run)
        crash.check_recovery(run)
        if injection.n_calls() < at:
            assert code == 0, text
            return
    raise AssertionError('a recovery without an end')


RECOVERY_MODES = ['kill-before', 'kill-after', 'enospc-on', 'eio-once']


@pytest.mark.parametrize('kind', KINDS, ids=by_name)
@pytest.mark.parametrize('mode', RECOVERY_MODES)
def test_recovery_that_is_cut_off_is_begun_again(memory, kind, mode):
    number = RECOVERY_MODES.index(mode) + KINDS.index(kind)
    recover_through(memory, kind, TARGETS[number % 3], mode, 2 * STRIDE, 1 + number % (2 * STRIDE))


@pytest.mark.slow
@pytest.mark.parametrize('kind', KINDS, ids=by_name)
@pytest.mark.parametrize('mode', RECOVERY_MODES)
@pytest.mark.parametrize('target', TARGETS)
def test_recovery_that_is_cut_off_at_every_call_is_begun_again(ext4, kind, mode, target):
    recover_through(ext4, kind, target, mode, 1, 1)


# ---- SIGKILL at any time ----

def write_versions(mnt, number, acknowledged, is_over):
    """One thread: a version after the other into a tensor of its own, each whole; remembers the newest acknowledged ones."""
    path = mnt / ('t%d' % number)
    fd, version = -1, 0
    try:
        fd = os.open(path, os.O_RDWR)
        while not is_over.is_set():
            version += 1
            os.pwrite(fd, version.to_bytes(8, 'little') * 512, 0)
            acknowledged[number] = version
            if version % 3 == 0:
                os.fsync(fd)
            if version % 5 == 0:
                os.rename(path, mnt / ('t%d-%d' % (number, version)))
                path = mnt / ('t%d-%d' % (number, version))
    except OSError:
        pass
    finally:
        try:
            os.close(fd)
        except OSError:
            pass


def kill_round(mount, source, out, place, random):
    n_threads = 8
    acknowledged, is_over = [0] * n_threads, threading.Event()
    mnt = mount(source, 'output=%s' % out, 'overwrite', at=place)
    threads = [threading.Thread(target=write_versions, args=(mnt.path, i, acknowledged, is_over)) for i in range(n_threads)]
    for thread in threads:
        thread.start()
    time.sleep(random.uniform(0.01, 0.15))
    workers = mnt.workers_now()
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    is_over.set()
    for thread in threads:
        thread.join()
    mnt.kill()
    wait_for(lambda: not any(map(is_alive, workers)), 'the end of the driver')
    mnt.forget()
    if any(acknowledged):
        code, text = crash.recover(out, '--publish', '--source', source, '--options=overwrite')
        assert code == 0, text
        tensors = {key.split('-')[0]: tensor[2] for key, tensor in st.read(out).tensors.items()}
        for i, version in enumerate(acknowledged):
            data = tensors['t%d' % i]
            found = int.from_bytes(data[:8], 'little')
            assert data == data[:8] * 512 and version <= found <= version + 1, (i, version, found)
    else:
        crash.recover(out, '--discard')


def kill_rounds(mount, folder, n_rounds):
    random = random_module.Random(1)
    source = st.write(folder / 'source.safetensors', {'t%d' % i: ('U8', [4096], bytes(4096)) for i in range(8)})
    for _ in range(n_rounds):
        kill_round(mount, source, folder / 'out.safetensors', folder / 'mnt', random)


def test_what_was_acknowledged_survives_sigkill(mount, folder):
    kill_rounds(mount, folder, 150 if IS_CI else 40)


# ---- loss of power ----

def cut(power, kind, target, mode, at):
    """The power fails at the call; afterwards everything that fsync promised is there."""
    try:
        run = crash.live(kind, target, power.disk, mode, at, 'sandbox=off', is_durable=True)
    finally:
        power.off()
        power.on()
    crash.check_output(run)
    # Only what was synced had to stay, in its order; the rest may be there too.
    code, text = crash.publish(run, '--force')
    assert code == 0, run.show() + text
    run.now = kind.found(run.output)
    crash.check_left(run)
    return run


SYNCS = (crash.sync_in_place, crash.prepare, crash.commit)


def cut_through(disk, filesystem, kind, target, stride, first=1):
    with Power(disk, filesystem) as power:
        n_calls = len(power.calls(kind, target))
    share(cut_and_compare, disk, range(first, n_calls + 1, stride), filesystem, kind, target)


def cut_and_compare(disk, calls, filesystem, kind, target):
    with Power(disk, filesystem) as power:
        for at in calls:
            run = cut(power, kind, target, 'shutdown', at)
            synced = [i for i, step in enumerate(run.acknowledged) if step in SYNCS]
            least = 1 + synced[-1] if synced else 0
            is_untouched = least == 0 and run.now == run.old
            assert run.now in run.history[least:] + run.states() or is_untouched, (run.now, run.show())


@pytest.mark.root
@pytest.mark.parametrize('filesystem', FILESYSTEMS)
@pytest.mark.parametrize('kind', KINDS, ids=by_name)
def test_a_loss_of_power_keeps_what_was_synced(memory, kind, filesystem):
    number = KINDS.index(kind)
    cut_through(memory, filesystem, kind, TARGETS[number % 3], 9 if kind is SAFETENSORS else 18, 1 + 4 * number)


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize('filesystem', FILESYSTEMS)
@pytest.mark.parametrize('kind', KINDS, ids=by_name)
@pytest.mark.parametrize('target', TARGETS)
def test_a_loss_of_power_at_every_call_keeps_what_was_synced(memory, kind, target, filesystem):
    cut_through(memory, filesystem, kind, target, 1)


@pytest.mark.root
@pytest.mark.parametrize('kind', [SAFETENSORS, SHARDS], ids=by_name)
@pytest.mark.parametrize('filesystem', FILESYSTEMS)
def test_a_filesystem_that_is_shut_down_before_the_last_sync_is_no_success(memory, kind, filesystem):
    """Whatever the fsync of the directory says then: XFS says that all is well."""
    name = 'out.safetensors' if kind is SAFETENSORS else 'model.safetensors.index.json'

    def find_sync(calls):
        """Number of the call after the rename of the output. It varies a little with how often the status is written."""
        return 2 + next((i for i, call in enumerate(calls) if call[0] == 'rename' and call[1].endswith('/' + name)), -2)

    with Power(memory, filesystem) as power:
        at = find_sync(power.calls(kind, 'new'))
        for _ in range(10):
            run = cut(power, kind, 'new', 'shutdown', at)
            found = find_sync(run.injection.calls())
            if found == at:
                break
            at = found or at
    assert found == at and run.injection.calls()[at - 1][0] == 'fsync'
    assert crash.commit not in run.acknowledged and run.code != 0, run.show()


@pytest.mark.root
@pytest.mark.parametrize('filesystem', FILESYSTEMS)
def test_the_test_of_a_loss_of_power_notices_a_lie(memory, filesystem):
    """The control: were fsync not done, what the tests above allow would not be what is found."""
    wrong = 0
    with Power(memory, filesystem) as power:
        calls = power.calls(SAFETENSORS, 'new')
        published = next(i for i, call in enumerate(calls) if call[0] == 'rename' and call[1].endswith('/out.safetensors'))
        for at in range(published + 6, len(calls), 12):
            try:
                cut(power, SAFETENSORS, 'new', 'unsynced', at)
            except (AssertionError, OSError, ValueError):
                wrong += 1
    assert wrong > 0
