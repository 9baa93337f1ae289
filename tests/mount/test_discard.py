# SPDX-License-Identifier: MIT
"""weightfs umount --discard: every kind of edit goes, in every format, and neither a crash nor a later mount brings it back."""
import os
import shutil
import signal

import pytest

from wfs_testlib import program, st
from wfs_testlib.mount import is_mounted, open_to_all
from wfs_testlib.program import EXIT_MOUNT, EXIT_COMMIT, tool, weightfs

FORMATS = ['safetensors', 'pth', 'bpk', 'directory']


def edit_all(mnt):
    """Every kind of edit: bytes, size, names, links, attributes, modes, times, directories, values of metadata."""
    with open(mnt / 'a/b/weight', 'r+b') as file:
        file.write(b'\xff' * 4)
    os.rename(mnt / 'a/b/bias', mnt / 'a/moved')
    os.unlink(mnt / 'none')
    os.link(mnt / 'step', mnt / 'again')
    os.setxattr(mnt / 'a/c', 'user.weightfs.shape', b'[1, 5]')
    os.chmod(mnt / 'a/c', 0o600)
    os.utime(mnt / 'a/c', (1, 1))
    os.mkdir(mnt / 'new')
    (mnt / 'new/.txt').write_bytes(b'x')
    shutil.copyfile(mnt / 'step', mnt / '.scratch')


@pytest.fixture(params=FORMATS)
def made(request, mount, small, folder):
    """A mount of a source in the format, whose output has it too."""
    is_set = request.param == 'directory'
    source = folder / ('set/' if is_set else 'in.' + request.param)
    weightfs('convert', '--max-shard-size=30' if is_set else '--format=' + {'pth': 'pytorch', 'bpk': 'burnpack'}.get(request.param, request.param),
             small, '%s/' % source if is_set else source)
    out = folder / ('out' if is_set else 'out.' + request.param)
    mnt = mount(source, 'output=%s%s' % (out, '/' if is_set else ''))
    mnt.out, mnt.source = out, source
    return mnt


def is_empty(out):
    """The directory of a set is made by the mount."""
    return not out.exists() or out.is_dir() and not any(out.iterdir())


def stages(folder):
    return [path.name for path in folder.rglob('.*.weightfs')] + [path.name for path in folder.rglob('.weightfs') if path.is_dir()]


def test_every_kind_of_edit_goes(made, folder):
    edit_all(made)
    n_edits = made.status()['edits']
    assert n_edits >= 5
    said = weightfs('umount', '--discard', made.path).stdout
    made.wait()
    assert said == 'discarded %d edits\n' % n_edits
    assert not is_mounted(made.path) and is_empty(made.out) and stages(folder) == []


def test_what_was_committed_stays(made, folder):
    os.rename(made / 'step', made / 'first')
    made.commit()
    before = {path: path.read_bytes() for path in ([made.out] if made.out.is_file() else made.out.iterdir()) if path.is_file()}
    os.rename(made / 'first', made / 'second')
    with open(made / 'a/c', 'r+b') as file:
        file.write(b'J')
    assert weightfs('umount', '--discard', made.path).stdout == 'discarded 2 edits\n'
    made.wait()
    assert {path: path.read_bytes() for path in before} == before and before
    assert stages(folder) == []


def test_a_crash_afterwards_brings_nothing_back(made, mount, folder):
    edit_all(made)
    with open(made / 'a/c', 'rb'):
        assert 'the edits are discarded, but it is still in use' in weightfs('umount', '--discard', made.path, code=EXIT_MOUNT).error
        with pytest.raises(OSError, match='Read-only'):
            (made / 'more').write_bytes(b'x')
        with pytest.raises(OSError, match='Read-only'):
            os.rename(made / 'step', made / 'pace')
        assert 'its edits were discarded; unmount it' in weightfs('commit', made.path, code=EXIT_COMMIT).error
        assert made.status()['edits'] == 0
        for pid in made.workers:
            os.kill(pid, signal.SIGKILL)
    made.allow('signal 9').wait(128 + signal.SIGKILL)
    assert not made.out.is_file() and not list(made.out.glob('[!.]*'))
    options = 'output=%s%s' % (made.out, '' if made.out.suffix else '/')
    again = mount(made.source, options, at=folder / 'again')
    assert (again / 'step').exists() and not (again / 'a/moved').exists() and again.status()['edits'] == 0


def test_an_ordinary_unmount_after_it_commits_nothing(made):
    edit_all(made)
    with open(made / 'a/c', 'rb'):
        weightfs('umount', '--discard', made.path, code=EXIT_MOUNT)
    program.unmount(made.path)
    made.wait()
    assert not made.out.is_file() and not list(made.out.glob('[!.]*'))


def test_nothing_to_discard(made, folder):
    assert weightfs('umount', '--discard', made.path).stdout == 'discarded 0 edits\n'
    made.wait()
    assert stages(folder) == [] and is_empty(made.out)


def test_a_mount_without_an_output(mount, small):
    mnt = mount(small)
    assert weightfs('umount', '--discard', mnt.path).stdout == ''
    mnt.wait()


def test_a_source_that_would_have_been_replaced(mount, small):
    before = small.read_bytes()
    mnt = mount(small, 'rw')
    edit_all(mnt)
    weightfs('umount', '--discard', mnt.path)
    mnt.wait()
    assert small.read_bytes() == before and st.read(small).tensors['step'][0] == 'I64'


@pytest.mark.root
def test_another_user_cannot_discard(mount, small, folder):
    open_to_all(folder)
    mnt = mount(small, 'output=%s' % (folder / 'out.safetensors'), 'allow_other')
    os.rename(mnt / 'step', mnt / 'pace')
    done = tool('setpriv', '--reuid=65534', '--clear-groups', *program.command_for_others(), 'umount', '--discard', mnt.path, code=None)
    assert done.code == EXIT_COMMIT and 'only the user who mounted it may discard edits' in done.stderr
    mnt.commit()
    assert 'pace' in st.read(folder / 'out.safetensors').tensors
