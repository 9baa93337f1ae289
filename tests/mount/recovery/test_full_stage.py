# SPDX-License-Identifier: MIT
"""A staging directory on a full disk: what needs no room for data works there, to the end of a commit."""
import errno
import os
import shutil

import pytest

from wfs_testlib import crash, disks, look, program, st
from wfs_testlib.mount import is_alive, wait_for
from wfs_testlib.program import tool, weightfs
from wfs_testlib.stage import stage_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='only for root')
FULL = (errno.ENOSPC, errno.EDQUOT)
AGAIN = 'of an earlier mount (is|are) shown again'


@pytest.fixture(params=['tmpfs', 'ext4', pytest.param('xfs', marks=pytest.mark.slow)])
def disk(request, folder):
    with disks.small(folder, request.param, 4) as path:
        yield path


@pytest.fixture
def source(folder):
    tensors = {'%s.%s' % (layer, name): ('U8', [8], b'%s%s____' % (layer.encode(), name.encode()))
               for layer in ('aa', 'bb', 'cc', 'dd') for name in ('xx', 'yy')}
    return st.write(folder / 'source.safetensors', {**tensors, 'large': ('U8', [1 << 18], bytes(1 << 18))})


def die(mnt):
    workers = mnt.workers_now()
    mnt.kill()
    wait_for(lambda: not any(map(is_alive, workers)), 'the end of the driver')
    mnt.forget()


def refuses(change):
    with pytest.raises(OSError) as caught:
        change()
    assert caught.value.errno in FULL, caught.value


def uses_up(make):
    """Some room is left beside the reserve."""
    with pytest.raises(OSError) as caught:
        for i in range(1000):
            make('%03d' % i + 'n' * 200)
    assert caught.value.errno in FULL, caught.value
    return caught.value.errno


def everything(root):
    return {str(path.relative_to(root)): None if path.is_dir() else
            (path.read_bytes(), look.attribute(path, 'dtype'), look.attribute(path, 'shape')) for path in sorted(root.rglob('*'))}


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_on(mount, source, out, disk, at):
    return mount(source, 'output=%s' % out, 'stage=%s' % disk, 'overwrite', at=at).allow('is on a tmpfs').allow(AGAIN)


@pytest.mark.parametrize('has_edits', [False, True])
def test_edits_without_data_work_on_a_full_disk_and_survive(mount, folder, source, disk, has_edits):
    out = folder / 'out.safetensors'
    mnt = open_on(mount, source, out, disk, folder / 'mnt')
    if has_edits:
        (mnt / 'dd/yy').write_bytes(b'edited__')
        sync(mnt / 'dd/yy')
    disks.fill(disk)
    os.unlink(mnt / 'aa/xx')
    os.unlink(mnt / 'aa/yy')
    os.rmdir(mnt / 'aa')
    os.rename(mnt / 'bb/xx', mnt / 'cc/zz')
    os.rename(mnt / 'cc', mnt / 'ee')
    os.rename(mnt / 'ee/xx', mnt / 'ee/yy')
    os.chmod(mnt / 'ee/yy', 0o400)
    look.set_attribute(mnt / 'ee/zz', 'dtype', 'I32')
    look.set_attribute(mnt / 'ee/zz', 'shape', '[2]')
    if has_edits:
        with open(mnt / 'dd/yy', 'r+b', buffering=0) as file:
            assert file.write(b'in place') == 8
        sync(mnt / 'dd/yy')
    sync(mnt / 'ee')
    with open(mnt / 'large', 'r+b', buffering=0) as file:
        refuses(lambda: file.write(b'x'))
    before = everything(mnt.path)
    assert list(before) == ['bb', 'bb/yy', 'dd', 'dd/xx', 'dd/yy', 'ee', 'ee/yy', 'ee/zz', 'large']
    assert before['ee/zz'] == (b'bbxx____', 'I32', '[2]') and before['dd/yy'][0] == (b'in place' if has_edits else b'ddyy____')
    die(mnt)
    mnt = open_on(mount, source, out, disk, folder / 'again')
    assert everything(mnt.path) == before
    os.rename(mnt / 'ee/zz', mnt / 'ee/ww')
    mnt.commit()
    found = {key: data for key, (_, _, data) in st.read(out).tensors.items() if key != 'large'}
    assert found == {'bb.yy': b'bbyy____', 'dd.xx': b'ddxx____', 'dd.yy': before['dd/yy'][0], 'ee.yy': b'ccxx____', 'ee.ww': b'bbxx____'}
    os.unlink(mnt / 'ee/ww')
    mnt.unmount()
    assert 'ee.ww' not in st.read(out).tensors and not (disk / stage_of(out).name).exists()


@pytest.mark.parametrize('kind', ['mkdir', 'link', 'create'])
def test_new_names_leave_the_reserve_alone(mount, folder, source, disk, kind):
    out = folder / 'out.safetensors'
    mnt = open_on(mount, source, out, disk, folder / 'mnt')
    disks.fill(disk)
    uses_up({'mkdir': lambda name: (mnt / name).mkdir(), 'link': lambda name: os.link(mnt / 'aa/xx', mnt / name),
             'create': lambda name: (mnt / name).touch()}[kind])
    for path in mnt.path.iterdir():
        if path.name.endswith('nnn'):
            path.rmdir() if kind == 'mkdir' else path.unlink()
    os.rename(mnt / 'aa', mnt / 'zz')
    mnt.commit()
    assert len(st.read(out).tensors) == 9 and 'zz.xx' in st.read(out).tensors
    mnt.unmount()


@pytest.mark.skipif(not crash.LIBRARY.exists(), reason='no fault injector in this build')
def test_a_quota_that_is_used_up_is_like_a_full_disk(mount, folder, source):
    """Without a disk that has one: what would take blocks fails, from a moment on."""
    (folder / 'disk').mkdir()
    injection = crash.Injection(folder / 'disk', folder / 'inject', 'edquot-blocks', 1 << 40)
    wrap = ['env', *('%s=%s' % pair for pair in injection.environment.items() if pair[0].startswith(('LD_', 'INJECT_')))]
    out = folder / 'out.safetensors'
    mnt = mount(source, 'output=%s' % out, 'stage=%s' % (folder / 'disk'), wrap=wrap)
    with open(injection.file, 'r+b') as file:
        file.write((2 << 40).to_bytes(8, 'little'))
    os.rename(mnt / 'aa', mnt / 'zz')
    assert uses_up(lambda name: (mnt / name).mkdir()) == errno.EDQUOT
    refuses(lambda: (mnt / ('new' * 80)).touch())
    refuses(lambda: os.link(mnt / 'zz/xx', mnt / ('new' * 80)))
    for path in mnt.path.iterdir():
        if path.name.endswith('nnn'):
            path.rmdir()
    os.unlink(mnt / 'zz/xx')
    mnt.commit()
    assert len(st.read(out).tensors) == 8 and 'zz.yy' in st.read(out).tensors


def test_recover_publishes_from_a_full_disk(mount, folder, source, disk):
    out = folder / 'out.safetensors'
    mnt = open_on(mount, source, out, disk, folder / 'mnt')
    disks.fill(disk)
    shutil.rmtree(mnt / 'aa')
    die(mnt)
    tool(*program.COMMAND, 'recover', out, '--stage', disk, '--publish', '--source', source, '--options=overwrite')
    assert 'aa.xx' not in st.read(out).tensors and not (disk / stage_of(out).name).exists()


def test_each_tensor_of_many_can_be_removed(mount, folder, disk):
    tensors = {'some_block.%d.a_layer_with_a_long_name.weight' % i: ('U8', [1], b'x') for i in range(3000)}
    source, out = st.write(folder / 'many.safetensors', tensors), folder / 'out.safetensors'
    mnt = open_on(mount, source, out, disk, folder / 'mnt')
    os.rename(mnt / 'some_block/0', mnt / 'kept')
    disks.fill(disk)
    shutil.rmtree(mnt / 'some_block')
    sync(mnt.path)
    assert list(st.read(out).tensors) == ['kept.a_layer_with_a_long_name.weight']
    mnt.unmount()


def test_a_commit_has_room_when_changes_have_none(mount, folder, source, disk):
    out = folder / 'out.safetensors'
    mnt = open_on(mount, source, out, disk, folder / 'mnt')
    (mnt / 'dd/yy').write_bytes(b'edited__')
    disks.fill(disk)
    names = ['a' * 200, 'b' * 200]
    os.rename(mnt / 'aa', mnt / names[0])
    n = 0
    with pytest.raises(OSError) as caught:
        for n in range(100000):
            os.rename(mnt / names[n % 2], mnt / names[(n + 1) % 2])
    assert caught.value.errno in FULL and n > 100
    for _ in range(3):
        weightfs('commit', mnt.path)
        assert st.read(out).tensors['dd.yy'][2] == b'edited__'
    os.unlink(disk / 'filler')
    os.unlink(mnt / 'bb/xx')
    mnt.unmount()
    assert 'bb.xx' not in st.read(out).tensors


def test_a_torn_record_on_a_full_disk_is_cut_off(mount, folder, source, disk):
    out = folder / 'out.safetensors'
    mnt = open_on(mount, source, out, disk, folder / 'mnt')
    os.unlink(mnt / 'aa/xx')
    os.unlink(mnt / 'aa/yy')
    die(mnt)
    journal = disk / stage_of(out).name / 'journal'
    with open(journal, 'ab') as file:
        file.write(b'0123abcd 4 D a')
    disks.fill(disk)
    mnt = open_on(mount, source, out, disk, folder / 'again')
    os.unlink(mnt / 'bb/xx')
    die(mnt)
    mnt = open_on(mount, source, out, disk, folder / 'third')
    assert sorted(map(str, everything(mnt.path))) == ['aa', 'bb', 'bb/yy', 'cc', 'cc/xx', 'cc/yy', 'dd', 'dd/xx', 'dd/yy', 'large']


def test_the_reason_of_a_failure_is_kept_on_a_full_disk(mount, folder, source, disk):
    out = folder / 'out.safetensors'
    mnt = open_on(mount, source, out, disk, folder / 'mnt').allow('cannot commit')
    look.set_attribute(mnt / 'aa/xx', 'dtype', 'F64')
    look.set_attribute(mnt / 'aa/xx', 'shape', '[3]')
    disks.fill(disk)
    mnt.unmount(program.EXIT_COMMIT)
    mnt = open_on(mount, source, out, disk, folder / 'again').allow("the last commit failed: .*aa/xx")
    assert "the last commit failed: " in mnt.stderr() and 'aa/xx' in mnt.stderr().replace('.', '/')
    os.unlink(mnt / 'aa/xx')
