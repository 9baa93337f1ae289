# SPDX-License-Identifier: MIT
"""`status --watch` waits for the commit of a mount that was unmounted in the ordinary way."""
import contextlib
import os
import pathlib
import subprocess

import pytest

from wfs_testlib import program, st, terminal
from wfs_testlib.mount import wait_for
from wfs_testlib.program import EXIT_COMMIT, EXIT_MOUNT, EXIT_USAGE, weightfs

N_BYTES = 1 << 28


@pytest.fixture
def slow(mount, folder):
    """A mount whose commit has to cast a hole of 256 MiB."""
    path = st.write_hole(folder / 'in.safetensors', N_BYTES)
    mounted = mount(path, 'cast=F8_E4M3', 'output=%s' % (folder / 'out.safetensors'))
    (mounted / 'w').rename(mounted / 'v')
    return mounted


@contextlib.contextmanager
def watch(*words):
    with subprocess.Popen([*program.COMMAND, 'status', '--watch', *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # it would wait for a mount that a test that fails leaves


def wait_until_it_watches(process):
    """The staging directory is open."""
    fds = pathlib.Path('/proc/%d/fd' % process.pid)

    def is_open():
        with contextlib.suppress(FileNotFoundError):  # one that was closed meanwhile
            return any(os.readlink(fd).endswith('.weightfs') for fd in fds.iterdir())
        return False
    wait_for(is_open, 'the staging directory to be open')


def test_it_waits_for_a_mount_that_is_gone(slow, folder):
    out = folder / 'out.safetensors'
    program.unmount(slow.path)
    assert not out.exists(), 'the commit has to take longer than the unmount'
    text = weightfs('status', '--watch', out).stdout
    assert out.exists() and slow.process.wait(program.PATIENCE) == 0
    assert text in ("the mount has ended; its edits are committed to '%s'\n" % out, 'the mount has ended; no edits are left\n')
    assert list(st.read(out).tensors) == ['v']
    assert weightfs('status', '--watch', out).stdout == 'no mount saves edits there\n'


def test_it_does_not_keep_a_mount_from_being_unmounted(slow, folder):
    with watch(slow.path) as process:
        wait_until_it_watches(process)
        slow.unmount()
        stdout, stderr = process.communicate(timeout=program.PATIENCE)
    assert (process.returncode, stderr) == (0, '') and stdout == "the mount has ended; its edits are committed to '%s'\n" % (folder / 'out.safetensors')


def test_a_terminal_gets_progress(slow, folder):
    program.unmount(slow.path)
    screen = terminal.screen('status', '--watch', folder / 'out.safetensors', columns=40, NO_COLOR='1')
    assert all(terminal.width(line) <= 40 for line in screen.raw.replace('\r', '\n').split('\n'))
    last = ''.join(line.strip() for line in screen.lines)
    assert last.endswith("'%s'" % (folder / 'out.safetensors')) or 'no edits' in screen.text
    slow.wait()


def test_edits_that_cannot_be_saved_are_reported(mount, sample, folder):
    mounted = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    with watch(mounted.path) as process:
        wait_until_it_watches(process)
        os.truncate(mounted / 'temperature', 3)
        program.unmount(mounted.path)
        _, stderr = process.communicate(timeout=program.PATIENCE)
    assert process.returncode == EXIT_COMMIT
    assert 'the mount has ended, but its last edits are not committed: ' in stderr and 'temperature' in stderr and stderr.count('\n') == 1
    mounted.allow('not committed|cannot commit').wait(EXIT_COMMIT)
    assert 'not committed: ' in weightfs('status', '--watch', folder / 'out.safetensors', code=EXIT_COMMIT).error


def test_a_mount_without_edits(mount, sample, folder):
    mounted = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    with watch(mounted.path) as process:
        wait_until_it_watches(process)
        mounted.unmount()
        assert process.communicate(timeout=program.PATIENCE) == ('the mount has ended; no edits are left\n', '')


@pytest.mark.parametrize('columns', [40, 80])
def test_what_the_verbs_of_mounts_print_fits_a_terminal(mount, sample, folder, columns):
    mounted = mount(sample, 'output=%s' % (folder / ('a_long_name' * 9 + '.safetensors')))
    (mounted / 'temperature').unlink()
    for words in (['status'], ['commit'], ['status'], ['umount']):
        screen = terminal.screen(*words, mounted.path, columns=columns)
        assert all(terminal.width(line) <= columns for line in screen.lines)
    mounted.wait()


def test_what_cannot_be_watched(mount, sample, folder):
    assert 'read-only' in weightfs('status', '--watch', mount(sample).path, code=EXIT_MOUNT).error
    assert weightfs('status', '--watch', folder / 'nosuch' / 'x', code=EXIT_MOUNT).error.endswith('is neither a weightfs mount point nor the output of one')
    weightfs('status', '--watch', code=EXIT_USAGE)
