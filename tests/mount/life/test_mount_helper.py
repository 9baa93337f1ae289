# SPDX-License-Identifier: MIT
"""mount(8) and fstab(5) with the type weightfs, in a mount namespace whose /sbin has the helper."""
import os
import re
import shutil
import subprocess

import pytest

from wfs_testlib import st
from wfs_testlib.mount import UNSHARE, has_namespaces
from wfs_testlib.program import BUILD, ROOT, tool

pytestmark = [pytest.mark.usefixtures('alone'),
              pytest.mark.skipif(os.geteuid() != 0 or not has_namespaces(), reason='only root has mount namespaces')]

TENSORS = {'a.x': ('U8', [3], b'abc'), 'a.y': ('U8', [2], b'de')}


@pytest.fixture
def place(folder):
    """A folder with a source, an empty mount point, and a copy of /usr/sbin that has the helper."""
    text = (ROOT / 'packaging/mount.weightfs.in').read_text().replace('@bindir@/weightfs', str(BUILD / 'src/weightfs'))
    tool('sh', '-c', 'mkdir "$0" && for p in /usr/sbin/mount.*; do cp -a "$p" "$0"; done; true', folder / 'sbin')
    (folder / 'sbin/mount.weightfs').write_text(text)
    (folder / 'sbin/mount.weightfs').chmod(0o755)
    st.write(folder / 'in.safetensors', TENSORS)
    (folder / 'mnt').mkdir()
    return folder


def run(folder, script, code=0):
    """Runs lines of a shell in the namespace, and waits until the driver has ended."""
    script = 'set -e\nmount --bind sbin /usr/sbin\nPATH=/usr/bin:/bin\n' + script
    done = subprocess.run([*UNSHARE, 'sh', '-c', script], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == code, done.stdout
    return done.stdout


END = '\nprogram=%s\n$program umount mnt\n' % (BUILD / 'src/weightfs')


def test_a_mount_is_read_only_unless_an_output_is_named(place):
    before = (place / 'in.safetensors').read_bytes()
    text = run(place, 'mount -t weightfs in.safetensors mnt\ncat mnt/a/x\n! touch mnt/a/z 2>&1\numount mnt\n')
    assert text.startswith('abc') and 'Read-only file system' in text
    assert (place / 'in.safetensors').read_bytes() == before


@pytest.mark.parametrize('more', ['', 'nofail,noatime,x-systemd.automount,', 'rw,'])
def test_a_writable_mount(place, more):
    before = (place / 'in.safetensors').read_bytes()
    run(place, 'mount -t weightfs -o %soutput=%s/out.safetensors in.safetensors mnt\nmv mnt/a/x mnt/b' % (more, place) + END)
    assert st.read(place / 'out.safetensors').tensors == {'a.y': TENSORS['a.y'], 'b': TENSORS['a.x']}
    assert (place / 'in.safetensors').read_bytes() == before


@pytest.mark.parametrize('options, is_writable', [('ro,allow_other,nofail', False), ('output=DIR/out.safetensors,noauto,users', True)])
def test_a_line_of_fstab(place, options, is_writable):
    options = options.replace('DIR', str(place))
    (place / 'fstab').write_text('%s %s weightfs %s 0 0\n' % (place / 'in.safetensors', place / 'mnt', options))
    edit = 'mv mnt/a/x mnt/b' if is_writable else '! mv mnt/a/x mnt/b 2>&1'
    run(place, 'mount -T fstab %s/mnt\n%s' % (place, edit) + END)
    if is_writable:
        assert st.read(place / 'out.safetensors').tensors == {'a.y': TENSORS['a.y'], 'b': TENSORS['a.x']}


def test_all_lines_of_fstab(place):
    (place / 'fstab').write_text('%s %s weightfs ro 0 0\n' % (place / 'in.safetensors', place / 'mnt'))
    assert run(place, 'mount -a -T fstab\nmount -a -T fstab\ncat mnt/a/y\numount mnt') == 'de'


@pytest.mark.parametrize('options, is_writable', [('ro,nofail,_netdev', False), ('output=DIR/out.safetensors,_netdev,cache=DIR/cache,cache_size=128M', True)])
def test_a_line_of_fstab_with_a_url(place, serve, options, is_writable):
    options = options.replace('DIR', str(place))
    server = serve(place)
    url = server.url('in.safetensors', tls=True)
    (place / 'fstab').write_text('%s %s weightfs %s 0 0\n' % (url, place / 'mnt', options))
    edit = 'mv mnt/a/x mnt/b' if is_writable else '! mv mnt/a/x mnt/b 2>&1'
    text = run(place, 'mount -T fstab %s/mnt\nmount -a -T fstab\ncat mnt/a/x\nfindmnt -n -o SOURCE mnt\n%s' % (place, edit) + END)
    assert text.startswith('abc%s\n' % url) and text.count(url) == 1, 'mounted twice'
    if is_writable:
        assert st.read(place / 'out.safetensors').tensors == {'a.y': TENSORS['a.y'], 'b': TENSORS['a.x']}


def test_a_url_by_the_helper_itself_and_what_is_secret_of_it(place, serve):
    url = serve(place).url('in.safetensors', tls=True)
    secret = url.replace('//', '//alice:hunter2@') + '?sig=tok3n'
    for name in ('mount -t weightfs', 'mount.weightfs'):
        text = run(place, 'PATH=$PATH:/usr/sbin\n%s "%s" mnt -o ro\ncat mnt/a/x\nfindmnt -n -o SOURCE mnt' % (name, secret) + END)
        assert text == 'abc%s\n' % url, name


def test_mistakes_are_reported(place):
    text = run(place, 'mount -t weightfs nosuch.safetensors mnt || echo code $?')
    assert 'nosuch.safetensors: cannot open it: No such file or directory' in text and 'code' in text
    text = run(place, 'mount -t weightfs -o retries=0 http://127.0.0.1:1/a mnt || echo code $?')
    assert 'http://127.0.0.1:1/a: cannot connect' in text and 'code' in text
    text = run(place, 'mount -t weightfs -o output=x,nosuch in.safetensors mnt || echo code $?')
    assert "nosuch" in text and 'code' in text


@pytest.mark.skipif(shutil.which('systemd-analyze') is None, reason='there is no systemd-analyze')
def test_systemd_accepts_the_units_of_the_manual(folder):
    page = (ROOT / 'docs/man/mount.weightfs.8').read_text()
    block = re.search(r'^\[Mount\].*?(?=^\.Ed)', page, re.M | re.S)[0]
    mount, automount = block.split('\n[Automount]\n')
    (folder / 'mnt-bert.mount').write_text(mount)
    (folder / 'mnt-bert.automount').write_text('[Automount]\n' + automount)
    done = tool('systemd-analyze', 'verify', '--man=no', folder / 'mnt-bert.mount', folder / 'mnt-bert.automount')
    assert 'Type=weightfs' in mount and 'Where=/mnt/bert' in automount and (done.stdout, done.stderr) == ('', '')
