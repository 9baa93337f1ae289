# SPDX-License-Identifier: MIT
"""A conversion keeps the disk busy and never far behind: so it ends soon when it is interrupted, wherever that is."""
import errno
import os
import re
import signal
import subprocess

import pytest

from wfs_testlib import bounds, program, trace
from wfs_testlib.program import EXIT_COMMIT

pytestmark = trace.NEEDS_STRACE
MIB = 1 << 20
N_SOURCE = 160 * MIB
N_BEHIND = 64 * MIB  # what may wait for the disk
N_STEP = 16 * MIB  # what is written in one call that cannot be interrupted
TARGETS = {'safetensors': ('out.safetensors',), 'pth': ('out.pth',), 'bpk, cast': ('out.bpk', '--cast=huge=>F64'),
           'dcp': ('out/', '--format=dcp'), 'mpk': ('out.mpk',), 'mpk to mpk': ('out.mpk',), 'dcp to dcp': ('out/', '--format=dcp'),
           'shards': ('out/', '--format=safetensors', '--max-shard-size=300MB')}
CALLS = 'copy_file_range,pwrite64,sync_file_range,fsync,unlinkat'


def convert(folder, target, *inject, calls=CALLS):
    """The exit code (negative: a signal), what it printed, and its calls."""
    name, *more = target
    source, = [path for path in folder.iterdir() if path.name[:2] == 'a.']
    command = ['strace', '-f', '-qq', '-y', '-o', folder / 'trace', '-e', 'trace=' + calls, *inject,
               *program.COMMAND, 'convert', *more, source, '%s/%s' % (folder, name)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=4 * program.PATIENCE, check=False)
    return done.returncode, done.stderr.decode(), trace.calls(folder / 'trace')


def written_of(call):
    """(path, offset after it, bytes) of a call that writes at a place."""
    if call.name == 'copy_file_range':
        path, at = re.search(r', \d+<([^>]*)>, \[(\d+)', call.arguments).groups()
    else:
        path, at = re.match(r'\d+<([^>]*)>', call.arguments)[1], call.arguments.rsplit(', ', 1)[1]
    return path, int(at) + call.result, call.result


def settled_of(call):
    """(path, offset up to which the disk has written), or (path, 0)."""
    path, at, n = re.match(r'\d+<([^>]*)>, (\d+), (\d+)', call.arguments).groups()
    return path, int(at) + int(n) if 'WAIT_AFTER' in call.arguments else 0


def parameters():
    return [pytest.param((name, target), id=name, marks=[pytest.mark.slow] if name in ('bpk, cast', 'dcp', 'mpk', 'dcp to dcp') else []) for name, target in TARGETS.items()]


@pytest.fixture
def place(folder):
    bounds.huge(folder / 'a.safetensors', N_SOURCE)
    return folder


def make_source(place, name):
    """The source as the target is named: 'FORMAT to FORMAT'."""
    form, separator, _ = name.partition(' to ')
    if not separator:
        return
    options = ['--format=dcp'] if form == 'dcp' else []
    program.weightfs('convert', *options, place / 'a.safetensors', '%s/a.%s%s' % (place, form, '/' if form == 'dcp' else ''))
    (place / 'a.safetensors').unlink()


@pytest.mark.parametrize('target', parameters())
def test_the_disk_is_never_far_behind(place, target):
    name, target = target
    make_source(place, name)
    code, errors, calls = convert(place, target)
    assert (code, errors) == (0, '')
    largest, settled, n_all = 0, {}, {}
    for call in calls:
        if call.name in ('copy_file_range', 'pwrite64'):
            path, end, n = written_of(call)
            largest = max(largest, n)
            n_all[path] = max(n_all.get(path, 0), end)
            assert end - settled.get(path, 0) <= N_BEHIND + 2 * N_STEP, (path, end, settled)
        elif call.name == 'sync_file_range':
            path, end = settled_of(call)
            settled[path] = max(settled.get(path, 0), end)
    assert sum(n_all.values()) >= N_SOURCE and largest <= N_STEP


@pytest.mark.parametrize('target', parameters())
def test_little_is_written_after_a_signal_and_nothing_is_left(place, target):
    name, target = target
    make_source(place, name)
    before = os.listdir(place)
    code, errors, calls = convert(place, target, '-e', 'inject=sync_file_range:signal=SIGTERM:when=9')
    assert (code, errors) == (-signal.SIGTERM, '')
    at = [i for i, call in enumerate(calls) if call.name == 'sync_file_range'][8]
    after = [call for call in calls[at:] if call.name in ('copy_file_range', 'pwrite64')]
    assert sum(call.result for call in after) <= N_STEP
    assert not [call for call in calls[at:] if call.name == 'fsync' and '.tmp>' in call.arguments]
    assert calls[-1].name == 'unlinkat' and sorted(os.listdir(place)) == sorted([*before, 'trace'])


@pytest.mark.parametrize('target', [TARGETS['safetensors'], TARGETS['shards']], ids=['safetensors', 'shards'])
def test_it_does_not_wait_until_the_space_of_a_given_up_output_is_free(place, target):
    """The last close of a large file is left to a process that holds nothing else."""
    bounds.huge(place / 'a.safetensors', 512 * MIB)
    code, _, calls = convert(place, target, '-e', 'inject=sync_file_range:signal=SIGTERM:when=9', calls='sync_file_range,close,setsid,unlinkat,rmdir')
    assert code == -signal.SIGTERM
    first = calls[0].pid
    closes = [(i, call.pid) for i, call in enumerate(calls) if call.name == 'close' and '.tmp' in call.arguments]
    others = {pid for _, pid in closes} - {first}
    assert len(others) == len({call.pid for call in calls}) - 1 >= 1
    for pid in others:
        (last,) = [i for i, (_, by) in enumerate(closes) if by == pid]
        assert last > 0 and closes[0][1] == first, closes
        assert closes[last][0] > max(i for i, call in enumerate(calls) if call.pid == first)


@pytest.mark.parametrize('error, at', [('EIO', 1), ('EIO', 6), ('ENOSPC', 7)])
def test_what_the_disk_reports_on_the_way_is_an_error(place, error, at):
    """An fsync afterwards would not report it again."""
    code, errors, _ = convert(place, TARGETS['safetensors'], '-e', 'inject=sync_file_range:error=%s:when=%d' % (error, at))
    assert code == EXIT_COMMIT and re.search('cannot write the output at byte .*: %s' % os.strerror(getattr(errno, error)), errors)
    assert sorted(os.listdir(place)) == ['a.safetensors', 'trace']


def test_a_filesystem_without_the_call_will_do(place):
    code, errors, calls = convert(place, TARGETS['safetensors'], '-e', 'inject=sync_file_range:error=ENOSYS')
    assert (code, errors) == (0, '') and [call for call in calls if call.name == 'fsync']
