# SPDX-License-Identifier: MIT
"""What the processes of a mount may do, and what other users may."""
import errno
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess

import pytest

from wfs_testlib import bad_server, look, program, st
from wfs_testlib import engine as fetched_by
from wfs_testlib.mount import UNSHARE, has_namespaces, is_mounted, open_to_all, wait_for
from wfs_testlib.program import EXIT_MOUNT, tool, weightfs

USER, OTHER = 65534, 65533
WHOLE = 'seccomp+landlock'


def kernel_has_all(folder):
    """Whether a mount can have its whole sandbox here: what the unit test of it says."""
    done = subprocess.run([program.BUILD / 'tests/unit/test_sandbox'], stdout=subprocess.PIPE, check=False, cwd=folder)
    return ('sandbox: ' + WHOLE) in done.stdout.decode()


def process_status(pid):
    lines = pathlib.Path('/proc/%d/status' % pid).read_text().splitlines()
    return dict(line.split(':\t', 1) for line in lines if ':\t' in line)


def test_the_worker_has_no_rights_left(mount, sample, folder):
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    (worker,) = mnt.workers
    status = process_status(worker)
    assert status['NoNewPrivs'] == '1'
    assert {int(status[name], 16) for name in ('CapInh', 'CapPrm', 'CapEff', 'CapAmb')} == {0}
    if kernel_has_all(folder):
        assert mnt.status()['sandbox'] == WHOLE and status['Seccomp'] == '2'


def test_the_sandbox_can_be_left_off_and_required(mount, sample, folder):
    off = mount(sample, 'sandbox=off')
    assert off.status()['sandbox'] == 'off'
    assert process_status(off.workers[0])['NoNewPrivs'] == '0'
    if kernel_has_all(folder):
        assert mount(sample, 'sandbox=require').status()['sandbox'] == WHOLE
    else:
        assert 'sandbox' in weightfs(sample, folder / 'x', '-f', '-o', 'sandbox=require', code=EXIT_MOUNT).error


def put_in_cache(folder):
    """A sharded checkpoint as download caches have it: links to files that lie elsewhere. The folder of the links."""
    cache, blobs = folder / 'cache' / 'snapshot', folder / 'cache' / 'blobs'
    cache.mkdir(parents=True)
    blobs.mkdir()
    names = ['model-%05d-of-00002.safetensors' % i for i in (1, 2)]
    st.write(blobs / '0', {'a.x': ('U8', [3], b'abc')})
    st.write(blobs / '1', {'b.y': ('U8', [2], b'de')})
    (blobs / '2').write_text(json.dumps({'metadata': {}, 'weight_map': {'a.x': names[0], 'b.y': names[1]}}))
    for i, name in enumerate([*names, 'model.safetensors.index.json']):
        (cache / name).symlink_to('../blobs/%d' % i)
    return cache


@pytest.mark.parametrize('how', ['', 'model.safetensors.index.json', 'model-00001-of-00002.safetensors'], ids=['directory', 'index', 'shard'])
def test_shards_behind_links_are_in_reach(mount, folder, how):
    mnt = mount(put_in_cache(folder) / how, *(['shards'] if 'of' in how else []))
    assert look.tensors(mnt.path) == {'a.x': ('U8', [3], b'abc'), 'b.y': ('U8', [2], b'de')}


def test_overlays_and_the_checkpoint_to_be_like_are_in_reach(mount, folder, sample):
    (folder / 'far').mkdir()
    over = st.write(folder / 'far' / 'over.safetensors', {'temperature': ('F32', [], st.f32(9))})
    like = shutil.copy(sample, folder / 'far' / 'like.safetensors')
    mnt = mount(sample, 'overlay=%s' % over, 'like=%s' % like)
    assert (mnt / 'temperature').read_bytes() == st.f32(9)


@pytest.mark.root
@pytest.mark.parametrize('mode', [0o600, 0o644])
def test_root_serves_and_keeps_files_of_another_user(mount, folder, sample, mode):
    home = folder / 'home'
    home.mkdir(mode=0o700)
    source = shutil.copy(sample, home / 'model.safetensors')
    os.chmod(source, mode)
    for path in (source, home):
        os.chown(path, USER, USER)
    mnt = mount(source, 'rw')
    os.rename(mnt / 'temperature', mnt / 'heat')
    mnt.commit()
    assert os.stat(source).st_uid == USER and os.stat(source).st_mode & 0o777 == mode
    assert 'heat' in st.read(source).tensors


@pytest.mark.root
def test_others_read_what_the_source_lets_them(mount, folder, sample):
    open_to_all(folder)
    os.chmod(sample, 0o644)
    public = mount(sample, 'allow_other')
    private = shutil.copy(sample, folder / 'private.safetensors')
    os.chmod(private, 0o600)
    closed = mount(private, 'allow_other')
    as_user = ['setpriv', '--reuid=%d' % USER, '--regid=%d' % USER, '--clear-groups']
    tool(*as_user, 'cat', public / 'temperature')
    for command in (['cat', closed / 'temperature'], ['ls', closed.path], ['ls', public / '.weightfs'],
                    ['sh', '-c', ': >> "$0"', public / 'temperature'], ['setfattr', '-n', 'user.x', '-v', '1', public / 'temperature']):
        assert tool(*as_user, *command, code=None).code != 0, command


ACCOUNT = {'AWS_ACCESS_KEY_ID': 'AKIAKEY', 'AWS_SECRET_ACCESS_KEY': 'secret'}
ASKED = {'a user': ('http://alice:hunter2@HOST/x', {}), 'a query': ('http://HOST/x?sig=1', {}), '.netrc': ('http://HOST/x', {'HOME': 'HOME'}),
         'a token': ('hf://a/b/x', {'HF_TOKEN': 'hf_token'}), 'keys': ('s3://bucket/x', ACCOUNT),
         'a password of a set': ('http://:hunter2@HOST/x.index.json', {})}
NOBODY = {'a plain URL': ('http://HOST/x', {}), 'no token': ('hf://a/b/x', {}), 'no keys': ('s3://bucket/x', {}),
          'a set': ('http://HOST/x.index.json', {})}


@pytest.mark.parametrize('name, is_private', [(name, name in ASKED) for name in (*ASKED, *NOBODY)])
def test_what_was_fetched_as_somebody_is_for_nobody_else(folder, sample, mount, monkeypatch, name, is_private):
    if fetched_by.WHY_NOT is not None:
        pytest.skip(fetched_by.WHY_NOT)
    (folder / '.netrc').write_text('machine 127.0.0.1 login alice password hunter2\n')
    index = json.dumps({'weight_map': {key: 'x' for key in st.read(sample).tensors}}).encode()

    def by_name(exchange):
        exchange.content = index if exchange.request.path.endswith('.json') else sample.read_bytes()
        bad_server.honest(exchange)

    with bad_server.BadServer(b'', default=by_name) as server:
        url, env = {**ASKED, **NOBODY}[name]
        url = url.replace('HOST', server.origin.partition('//')[2])
        for key in [key for key in os.environ if key not in fetched_by.CLEAN]:
            monkeypatch.delenv(key)
        for key, value in {'HOME': '/nonexistent', 'HF_ENDPOINT': server.origin, 'AWS_ENDPOINT_URL': server.origin, **env}.items():
            monkeypatch.setenv(key, value.replace('HOME', str(folder)))
        out = folder / 'out.safetensors'
        weightfs('convert', url, out)
        assert out.stat().st_mode & 0o777 == (0o600 if is_private else 0o644)
        weightfs('extract', url, '-d', folder / 'all', code=None)
        assert {path.stat().st_mode & 0o077 for path in (folder / 'all').rglob('*') if path.is_file()} == {0 if is_private else 0o044}
        mnt = mount(url, 'allow_other')
        assert mnt.path.stat().st_mode & 0o077 == (0 if is_private else 0o055)


@pytest.mark.root
def test_the_name_of_a_mount_point_is_not_taken_for_a_reason(mount, folder, sample):
    open_to_all(folder)
    os.chmod(sample, 0o644)
    mnt = mount(sample, 'allow_other', at=folder / 'busy')
    as_user = ['setpriv', '--reuid=%d' % USER, '--regid=%d' % USER, '--clear-groups']
    error = tool(*as_user, *program.command_for_others(), 'umount', mnt.path, code=EXIT_MOUNT).error
    assert 'cannot unmount' in error and 'in use' not in error


@pytest.mark.root
def test_only_the_user_who_mounted_commits(mount, folder, sample):
    open_to_all(folder)
    os.chmod(sample, 0o644)
    mnt = mount(sample, 'allow_other', 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'temperature', mnt / 'heat')
    as_user = ['setpriv', '--reuid=%d' % USER, '--regid=%d' % USER, '--clear-groups']
    tool(*as_user, 'cat', mnt / 'heat')
    for command in (['sync', mnt.path], [*program.command_for_others(), 'commit', mnt.path], [*program.command_for_others(), 'umount', mnt.path],
                    ['mv', mnt / 'heat', mnt / 'x'], ['ln', mnt / 'heat', mnt / 'x'], ['rm', '-f', mnt / 'heat']):
        assert tool(*as_user, *command, code=None).code != 0, command
    assert not (folder / 'out.safetensors').exists() and mnt.status()['state'] == 'dirty'
    mnt.commit()


@pytest.mark.root
def test_only_the_user_who_mounted_sees_where_edits_are_staged(mount, folder, sample):
    open_to_all(folder)
    os.chmod(sample, 0o644)
    mnt = mount(sample, 'allow_other', 'output=%s' % (folder / 'out.safetensors'))
    os.rename(mnt / 'temperature', mnt / 'heat')
    # The replies to the greeting and to a commit: error, process, edits, text.
    ask = ('import fcntl, os, sys; fd = os.open(sys.argv[1], os.O_RDONLY)\n'
           'for number in 2, 1:\n'
           '    reply = bytearray(4112); fcntl.ioctl(fd, 2 << 30 | len(reply) << 16 | ord("W") << 8 | number, reply); print(reply.hex())')
    as_user = ['setpriv', '--reuid=%d' % USER, '--regid=%d' % USER, '--clear-groups']
    commands = {'other': [*as_user, '/usr/bin/python3', '-c', ask], 'owner': ['/usr/bin/python3', '-c', ask]}
    replies = {who: [bytes.fromhex(line) for line in tool(*command, mnt.path).stdout.split()] for who, command in commands.items()}
    stage = b'.out.safetensors.weightfs'
    assert stage in replies['owner'][0] and replies['owner'][0][8:16] == (1).to_bytes(8, 'little')
    for reply in replies['other']:
        assert stage not in reply and os.fsencode(folder) not in reply and reply[8:16] == bytes(8)
    assert replies['other'][0][16:].rstrip(b'\0') == b'?'
    assert replies['other'][1][:4] == errno.EPERM.to_bytes(4, 'little')
    shown = tool(*as_user, *program.command_for_others(), 'umount', mnt.path, code=None)
    assert shown.code != 0 and 'only the user' in shown.error and '.out.' not in shown.error


@pytest.mark.root
def test_others_change_what_modes_grant_them(mount, folder, sample):
    open_to_all(folder)
    os.chmod(sample, 0o644)
    mnt = mount(sample, 'allow_other', 'output=%s' % (folder / 'out.safetensors'))
    os.chmod(mnt / 'temperature', 0o666)
    for name, mode in (('.open', 0o777), ('.sticky', 0o1777)):
        os.mkdir(mnt / name)
        os.chmod(mnt / name, mode)
        (mnt / name / 'mine').write_bytes(b'1')
        (mnt / name / 'dir').mkdir()
    as_user = ['setpriv', '--reuid=%d' % USER, '--regid=%d' % USER, '--clear-groups', 'sh', '-c']
    outcomes = {command: tool(*as_user, command, code=None, cwd=mnt.path).code == 0 for command in (
        'printf 1 | dd of=temperature conv=notrunc', 'echo >.open/new', 'echo >.sticky/new', 'mkdir .open/sub', 'mkdir .sticky/sub',
        'mv .open/mine .open/other', 'rmdir .open/dir', 'mv .sticky/mine .sticky/other', 'rm -f .sticky/mine', 'rmdir .sticky/dir',
        'chmod 777 temperature', 'chmod 777 .open', 'touch -d @5 temperature', 'rm -f temperature', 'mv temperature .open/t', 'sync .')}
    assert [command for command, is_done in outcomes.items() if is_done] == list(outcomes)[:7]
    assert os.stat(mnt / '.sticky/new').st_uid == USER


@pytest.mark.root
def test_others_use_what_they_create_as_anywhere(mount, folder, sample):
    open_to_all(folder)
    os.chmod(sample, 0o644)
    mnt = mount(sample, 'allow_other', 'output=%s' % (folder / 'out.safetensors'))
    os.mkdir(mnt / 'open')
    os.chmod(mnt / 'open', 0o777)

    def run(user, command):
        return tool('setpriv', '--reuid=%d' % user, '--regid=%d' % user, '--clear-groups', 'sh', '-c', command, code=None, cwd=mnt / 'open').code

    for command in ('umask 077; printf 12 >file; mkdir dir', 'touch file', 'touch -d @5 file', 'printf 34 >>file', 'chmod 640 file', 'cp -p file copy', 'ln file link',
                    'printf 1 >dir/file', 'mv file dir/moved', 'setfattr -n user.weightfs.dtype -v U8 link', 'setfattr -n user.weightfs.shape -v "[4]" link',
                    'rm -r dir copy'):
        assert run(USER, command) == 0, command
    for command in ('cat link', 'printf 5 >>link', 'touch link', 'chmod 666 link'):
        assert run(OTHER, command) != 0, command
    assert run(USER, 'chown 0 link') != 0
    (mnt / 'open/link').rename(mnt / 'mine')
    mnt.commit()
    assert st.read(folder / 'out.safetensors').tensors['mine'] == ('U8', [4], b'1234')


@pytest.fixture
def namespace(folder, sample, alone):
    """namespace(lines) runs them in sh, with a device of their own that any user may open; the machine's stays as it is."""
    if not has_namespaces():
        pytest.skip('no mount namespace of our own, as in a chroot')
    open_to_all(folder)
    os.chown(folder, USER, USER)
    os.chown(sample, USER, USER)
    start = ('set -e; mknod device c 10 229; chmod 666 device; mount --bind device /dev/fuse; mkdir mnt; chown %d mnt\n'
             'user() { setpriv --reuid=%d --regid=%d --clear-groups "$@"; }\n'
             'other() { setpriv --reuid=%d --regid=%d --clear-groups "$@"; }\n'
             'refused() { if "$@" 2>/dev/null; then echo "not refused: $*" >&2; exit 1; fi; }\n'
             'own_etc() { test -d etc || { mkdir etc; mount -t tmpfs etc etc; cp -a /etc/. etc; mount --bind etc /etc; }; }\n'
             'test -e /etc/mtab || { own_etc; ln -s ../proc/self/mounts /etc/mtab; }\n'
             'W=%s; trap "umount -l mnt 2>/dev/null || :" EXIT\n' % (USER, USER, USER, OTHER, OTHER, shlex.quote(program.command_for_others()[-1])))

    def run(lines):
        before = os.stat('/dev/fuse').st_mode
        result = tool(*UNSHARE, 'sh', '-c', start + lines, cwd=folder)
        assert os.stat('/dev/fuse').st_mode == before
        return result

    if subprocess.run(['mknod', folder / 'try', 'c', '10', '229'], check=False).returncode != 0:
        pytest.skip('no devices can be made here')
    return run


@pytest.mark.root
def test_a_mount_is_its_users_alone(namespace, folder):
    namespace('''
        user $W encoder.safetensors mnt -o output=out.safetensors
        user cat mnt/temperature >/dev/null
        refused other cat mnt/temperature
        refused cat mnt/temperature
        refused other fusermount3 -u mnt
        refused other $W umount mnt
        user mv mnt/temperature mnt/heat
        user cat mnt/.weightfs/status.json >status
        grep -q "$PWD/mnt " /proc/self/mountinfo
        user $W umount mnt
        refused grep -q "$PWD/mnt " /proc/self/mountinfo
    ''')
    assert 'heat' in st.read(folder / 'out.safetensors').tensors
    assert os.stat(folder / 'out.safetensors').st_uid == USER
    if kernel_has_all(folder):
        assert json.loads((folder / 'status').read_text())['sandbox'] == WHOLE


@pytest.mark.root
def test_a_users_driver_that_is_killed_leaves_no_mount(namespace):
    namespace('''
        (exec setpriv --reuid=%d --regid=%d --clear-groups $W encoder.safetensors mnt -f -o output=out.safetensors 2>said) & driver=$!
        until user test -e mnt/temperature; do kill -0 $driver; done
        kill -9 $(cat /proc/$driver/task/$driver/children)
        code=0; wait $driver || code=$?
        test $code = 137
        grep -q "signal 9.*[.]out.safetensors.weightfs" said
        refused grep -q "$PWD/mnt " /proc/self/mountinfo
    ''' % (USER, USER))


@pytest.mark.root
def test_a_user_of_a_bare_system_is_told_what_unmounting_needs(namespace, folder):
    namespace('''
        own_etc; rm /etc/mtab
        user $W encoder.safetensors mnt -o output=out.safetensors 2>mounted
        user mv mnt/temperature mnt/heat
        code=0; user $W umount mnt 2>unmounted || code=$?
        test $code = 8
        $(sed 's/.*run as root: //' unmounted)
        user $W umount mnt
        $W encoder.safetensors mnt
        rm /etc/mtab
        $W umount mnt
        refused grep -q "$PWD/mnt " /proc/self/mountinfo
    ''')
    assert 'heat' in st.read(folder / 'out.safetensors').tensors
    reason = 'fusermount3 cannot unmount without /etc/mtab; to make it, run as root: ln -s ../proc/self/mounts /etc/mtab\n'
    assert (folder / 'mounted').read_text() == 'weightfs: encoder.safetensors: ' + reason
    assert (folder / 'unmounted').read_text() == 'weightfs: mnt: cannot unmount: ' + reason


@pytest.mark.root
def test_a_namespace_of_the_users_own_needs_no_helper(namespace, folder):
    if tool('setpriv', '--reuid=%d' % USER, '--clear-groups', 'unshare', '-Urm', 'true', code=None).code != 0:
        pytest.skip('users cannot make namespaces here')
    namespace('''
        user unshare -Urm sh -e -c '
            PATH=/nowhere '$W' encoder.safetensors mnt -o output=out.safetensors
            mv mnt/temperature mnt/heat
            sync mnt
            umount mnt'
    ''')
    assert 'heat' in st.read(folder / 'out.safetensors').tensors


@pytest.mark.root
def test_a_closed_device_is_told(namespace):
    namespace('''
        chmod 600 device
        code=0; user $W encoder.safetensors mnt 2>said || code=$?
        test $code = 8
        test $(wc -l <said) = 1
        grep -q "cannot mount on.*/dev/fuse" said
    ''')


@pytest.mark.root
def test_a_container_without_the_right_to_mount_is_told_what_it_lacks(sample, folder):
    (folder / 'mnt').mkdir()
    told = tool('setpriv', '--bounding-set=-sys_admin', '--inh-caps=-sys_admin', *program.COMMAND, sample, folder / 'mnt', code=None)
    assert told.code == 8 and told.stderr.count('\n') == 1
    assert "mount failed: Operation not permitted (give the container that right: docker run --device /dev/fuse --cap-add SYS_ADMIN" in told.stderr


def test_a_planted_link_is_no_temporary(mount, sample, folder):
    (folder / 'precious').write_text('precious')
    (folder / '.out.safetensors.weightfs.tmp').symlink_to('precious')
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    mnt.commit()
    assert (folder / 'precious').read_text() == 'precious' and not (folder / 'out.safetensors').is_symlink()
    assert not os.path.lexists(folder / '.out.safetensors.weightfs.tmp')


def test_a_stopped_driver_can_be_killed_and_its_clients_too(mount, sample):
    mnt = mount(sample)
    (worker,) = mnt.workers
    os.kill(worker, signal.SIGSTOP)
    threads = list(pathlib.Path('/proc/%d/task' % worker).iterdir())
    wait_for(lambda: all((thread / 'stat').read_text().rsplit(')', 1)[1].split()[0] == 'T' for thread in threads), 'all threads to stop')
    client = subprocess.Popen(['cat', mnt / 'temperature'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    client.kill()
    client.wait(program.PATIENCE)
    os.kill(worker, signal.SIGKILL)
    mnt.allow('signal 9').wait(128 + signal.SIGKILL)


@pytest.mark.root
def test_a_connection_that_is_aborted_ends_the_mount(mount, sample):
    control = pathlib.Path('/sys/fs/fuse/connections')
    mnt = mount(sample)
    abort = control / str(os.minor(os.stat(mnt.path).st_dev)) / 'abort'
    if not abort.exists():
        tool('mount', '-t', 'fusectl', 'fusectl', control, code=None)
    if not abort.exists():
        pytest.skip('no control of FUSE here')
    abort.write_text('1')
    mnt.wait()


def unmount_60_times(place_of, sample, options):
    for i in range(60):
        place = place_of(i)
        place.mkdir(exist_ok=True)
        start = [*program.COMMAND, sample, place, *(['-o', ','.join(options)] if options else [])]
        while subprocess.run(start, stderr=subprocess.PIPE, check=False).returncode == EXIT_MOUNT and options:
            pass  # the one before is still the writer
        assert is_mounted(place)
        program.unmount(place)


def test_an_unmount_right_after_the_start_finds_nothing_busy(folder, sample):
    unmount_60_times(lambda i: folder / ('mnt%d' % i), sample, ())


@pytest.mark.skipif(tuple(map(int, os.uname().release.split('.')[:2])) < (6, 8), reason='mounts have numbers of their own since Linux 6.8')
@pytest.mark.parametrize('options', [(), ('rw',)], ids=['read-only', 'writable'])
def test_the_end_of_a_driver_does_not_touch_the_next_mount_at_its_place(folder, sample, options):
    unmount_60_times(lambda _: folder / 'mnt', sample, options)


@pytest.mark.root
def test_the_kernel_reads_further_ahead(mount, sample):
    device = os.stat(mount(sample).path).st_dev
    path = pathlib.Path('/sys/class/bdi/%d:%d/read_ahead_kb' % (os.major(device), os.minor(device)))
    if path.exists():
        wait_for(lambda: path.read_text().strip() == '1024', 'the read-ahead to be raised')


@pytest.mark.root
@pytest.mark.parametrize('command', [['cp', '-a'], ['rsync', '-aI']], ids=' '.join)
def test_copies_of_files_of_another_user_come_whole_and_say_that_the_owner_is_lost(mount, sample, folder, command):
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    (folder / 'from').mkdir()
    shutil.copy(mnt / 'temperature', folder / 'from' / 'temperature')
    (folder / 'from' / 'temperature').write_bytes(b'abcd')
    os.chown(folder / 'from' / 'temperature', USER, USER)
    tool(*command, folder / 'from' / 'temperature', mnt.path, code=1 if command[0] == 'cp' else 23)
    assert (mnt / 'temperature').read_bytes() == b'abcd'
    os.chown(folder / 'from' / 'temperature', 0, 0)
    tool(*command, folder / 'from' / 'temperature', mnt.path)
