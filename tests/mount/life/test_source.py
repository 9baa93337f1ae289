# SPDX-License-Identifier: MIT
"""A source that changes under the mount: the old bytes or EIO, never others, never a signal."""
import errno
import os

import pytest

from wfs_testlib import look, st
from wfs_testlib.program import EXIT_COMMIT, tool, weightfs

SIZE = 1 << 20


@pytest.fixture
def source(folder):
    return st.write(folder / 'x', {'a': ('U8', [SIZE], b'a' * SIZE), 'b': ('U8', [SIZE], b'b' * SIZE)})


def truncate(path):
    os.truncate(path, path.stat().st_size - SIZE // 2)


def truncate_to_nothing(path):
    os.truncate(path, 0)


def overwrite(path):
    with open(path, 'r+b') as file:
        file.seek(path.stat().st_size - SIZE)
        file.write(b'X' * SIZE)


def grow(path):
    with open(path, 'ab') as file:
        file.write(b'more')


def touch(path):
    os.utime(path, (1, 1))


def replace(path):
    st.write(path.with_name('y'), {'other': ('U8', [1], b'x')})
    os.rename(path.with_name('y'), path)


def fails_or(path, allowed):
    """Reads with a descriptor of its own: EIO, or just these bytes."""
    try:
        with open(path, 'rb') as file:
            data = file.read()
    except OSError as error:
        assert error.errno == errno.EIO
        return True
    assert data == allowed
    return False


@pytest.mark.parametrize('change', [truncate, truncate_to_nothing, overwrite, grow, touch])
def test_a_changed_source_is_an_error_for_good(mount, source, change):
    mnt = mount(source).allow('changed')
    with open(mnt / 'a', 'rb') as held:
        assert os.pread(held.fileno(), 100, 0) == b'a' * 100
        change(source)
        assert fails_or(mnt / 'b', b'b' * SIZE)
        with pytest.raises(OSError) as caught:
            os.pread(held.fileno(), 4096, SIZE - 4096)
        assert caught.value.errno == errno.EIO
    assert fails_or(mnt / 'a', b'a' * SIZE)
    tool('cp', mnt / 'b', '/dev/null', code=1)
    assert len(os.listdir(mnt.path)) == 2
    assert mnt.status()['sources'][0]['state'] != 'ok'


def test_pages_that_were_read_before_stay_right(mount, source):
    mnt = mount(source).allow('changed')
    assert (mnt / 'b').read_bytes() == b'b' * SIZE
    overwrite(source)
    fails_or(mnt / 'b', b'b' * SIZE)


@pytest.mark.parametrize('change', [os.unlink, replace])
def test_a_source_whose_name_goes_away_stays_what_it_was(mount, source, change):
    mnt = mount(source)
    change(source)
    assert look.tensors(mnt.path) == {'a': ('U8', [SIZE], b'a' * SIZE), 'b': ('U8', [SIZE], b'b' * SIZE)}


def test_a_source_that_was_replaced_can_be_committed_elsewhere(mount, source, folder):
    old = source.read_bytes()
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors')).allow('replaced|changed|note')
    replace(source)
    mnt.commit()
    assert (folder / 'out.safetensors').read_bytes() == old


@pytest.mark.parametrize('change', [truncate, overwrite, touch])
def test_a_changed_source_is_not_committed(mount, source, folder, change):
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors')).allow('changed')
    os.rename(mnt / 'a', mnt / 'c')
    change(source)
    assert 'changed' in weightfs('commit', mnt.path, code=EXIT_COMMIT).error
    tool('sync', mnt.path, code=1)
    assert not (folder / 'out.safetensors').exists()
    mnt.unmount(EXIT_COMMIT)
    assert not (folder / 'out.safetensors').exists()


def test_edited_tensors_are_readable_when_the_source_is_not(mount, source, folder):
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors')).allow('changed')
    with open(mnt / 'a', 'r+b') as file:
        file.write(b'X')
    truncate_to_nothing(source)
    assert (mnt / 'a').read_bytes() == b'X' + b'a' * (SIZE - 1)
    assert fails_or(mnt / 'b', b'b' * SIZE)
    mnt.unmount(EXIT_COMMIT)


def test_a_first_change_needs_the_old_bytes(mount, source, folder):
    mnt = mount(source, 'output=%s' % (folder / 'out.safetensors')).allow('changed')
    truncate_to_nothing(source)
    with pytest.raises(OSError) as caught:
        with open(mnt / 'a', 'r+b', buffering=0) as file:
            file.write(b'X')
    assert caught.value.errno == errno.EIO
    mnt.kill()


def test_forced_mounts_answer_eio_for_what_is_missing(mount, source):
    truncate(source)
    mnt = mount(source, 'force').allow("ends at byte|cannot read tensor 'b'")
    assert (mnt / 'a').read_bytes() == b'a' * SIZE
    assert os.stat(mnt / 'b').st_size == SIZE
    tool('cp', mnt / 'b', '/dev/null', code=1)


def test_forced_mounts_do_not_commit_what_is_missing(mount, source, folder):
    truncate(source)
    mnt = mount(source, 'force', 'output=%s' % (folder / 'out.safetensors')).allow('.')
    weightfs('commit', mnt.path, code=EXIT_COMMIT)
    os.unlink(mnt / 'b')
    mnt.commit()
    assert st.read(folder / 'out.safetensors').tensors == {'a': ('U8', [SIZE], b'a' * SIZE)}
