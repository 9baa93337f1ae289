# SPDX-License-Identifier: MIT
"""
pjdfstest, the POSIX test suite of file systems, and fsx, the exerciser of file contents, on a writable mount. tools/test --peers
builds them. What pjdfstest expects and weightfs does not do is in DEVIATIONS, each with its reason; docs/semantics.md has them too.
"""
import os
import pathlib
import re
import subprocess

import pytest

from wfs_testlib import program

pytestmark = [pytest.mark.peers, pytest.mark.root]
PROGRAMS = pathlib.Path(os.environ.get('WFS_SUITES') or program.ROOT / 'build/peers/suites') / 'rust/bin'
FEATURES = ['posix_fallocate', 'rename_ctime', 'utime_now', 'utimensat']
CONFIGURATION = '[features]\n' + ''.join('%s = {}\n' % name for name in FEATURES) + '[dummy_auth]\nentries = [["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"]]\n'
SPECIAL = 'a checkpoint holds no symbolic links, devices, pipes and sockets: EPERM'
OWNER = 'all files belong to the owner of the mount: chown to anybody else is EPERM, which these tests begin with'
DEVIATIONS = [
    (r'.*::(symlink|fifo|char|block|socket)$', SPECIAL),
    (r'(symlink|mknod|mkfifo)::.*', SPECIAL),
    (r'.*::(eloop_comp|eloop_final_comp|enoent_symlink|follow_symlink|preserve_metadata_symlink)', SPECIAL),
    (r'open::(open_nofollow|fifo_nonblock_wronly|socket_error)', SPECIAL),
    (r'(open|mkdir)::uid_gid_eq_euid_egid', OWNER),
    (r'(chmod::change_perm::(regular|dir)|chmod::clear_isgid_bit|link::share_metadata::regular)', OWNER),
]
RESULT = re.compile(r'^(\S+) +(ok|success|FAILED|failed|skipped)$', re.M)


def need(name):
    path = PROGRAMS / name
    if not path.exists():
        pytest.skip('%s is not in %s: tools/test --peers builds it' % (name, PROGRAMS))
    return path


def reason(case):
    return next((why for pattern, why in DEVIATIONS if re.fullmatch(pattern, case)), None)


def test_pjdfstest_passes_but_for_the_documented_deviations(mount, sample, folder):
    suite = need('pjdfstest')
    for path in [folder, *folder.parents]:  # the suite changes to users who have to get there
        if path.stat().st_uid == os.getuid() and path != pathlib.Path('/'):
            os.chmod(path, path.stat().st_mode | 0o011)
    mounted = mount(sample, 'output=%s' % (folder / 'out.safetensors'), 'allow_other', 'default_permissions')
    os.mkdir(mounted.path / 'scratch')
    (folder / 'pjdfstest.toml').write_text(CONFIGURATION)
    done = subprocess.run([suite, '-c', folder / 'pjdfstest.toml', '-p', mounted.path / 'scratch'], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=False)
    results = dict(RESULT.findall(done.stdout.decode(errors='replace')))
    failed = sorted(case for case, result in results.items() if result.lower() == 'failed')
    assert len(results) > 350, done.stdout[-2000:]
    assert [case for case in failed if not reason(case)] == []
    assert all(any(re.fullmatch(pattern, case) for case in failed) for pattern, _ in DEVIATIONS), 'a deviation that is none'


@pytest.mark.parametrize('seed', range(4))
def test_fsx_finds_no_difference(mount, sample, folder, seed):
    suite = need('fsx')
    mounted = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    path = mounted.path / ('scratch' if seed % 2 else 'encoder/layer/0/attention/query/weight')
    done = subprocess.run([suite, '-q', '-N', '12000', '-S', str(seed), '-P', folder, path], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-4000:].decode(errors='replace')
    os.unlink(path)
