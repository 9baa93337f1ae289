# SPDX-License-Identifier: MIT
"""Ctrl-C in commit and umount, and an unmount of what has no edits but cannot be saved."""
import os
import pathlib
import signal
import subprocess

import pytest

from wfs_testlib import bounds, program, st
from wfs_testlib.mount import is_mounted, wait_for
from wfs_testlib.program import EXIT_COMMIT, weightfs


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
