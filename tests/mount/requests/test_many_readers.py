# SPDX-License-Identifier: MIT
"""Many requests that take minutes each: they hold nobody else up, and end when they are killed."""
import json
import os
import pathlib
import signal
import struct
import subprocess

import pytest

from wfs_testlib import st
from wfs_testlib.mount import wait_for

N = 64  # more than the driver has threads
N_HUGE = 1 << 37  # bytes of each tensor: reading a hole of that size takes more than ten seconds
XXH3, STATS = 'os.getxattr("h%d/w" % i, "user.weightfs.xxh3")', 'os.getxattr("h%d/w" % i, "user.weightfs.stats")'
# Before each tensor is its checksum.
GENERATED = 'p = ".weightfs/out/model.pth"; os.pread(os.open(p, os.O_RDONLY), 1 << 16, i * %d)' % N_HUGE
COPY = 'os.pwrite(os.open("h%d/w" % i, os.O_WRONLY), b"x", 0)'
FORKS = '''
import os, sys
os.chdir(sys.argv[1])
pids = []
for i in range(int(sys.argv[3])):
    pid = os.fork()
    if pid == 0:
        try:
            exec(sys.argv[2])
        except OSError as problem:
            os._exit(problem.errno)
        os._exit(0)
    pids.append(pid)
os.chdir('/')
print(*pids, flush=True)
for _ in pids:
    print(*os.wait(), flush=True)
'''
CASES = {
    'digest': (XXH3, []), 'statistics': (STATS, []), 'checkpoint': (GENERATED, []),
    'digest-writable': (XXH3, ['output=out.pth']), 'checkpoint-writable': (GENERATED, ['output=out.pth']),
}
SLOW_CASES = {
    'statistics-writable': (STATS, ['output=out.pth']),
    'first-copy': (COPY, ['output=out.pth', 'cast=^h=>F16']),
}


def make(path, n_huge):
    """64 holes and a small tensor."""
    head = {'small': {'dtype': 'F32', 'shape': [4], 'data_offsets': [0, 16]}}
    for i in range(N):
        head['h%d.w' % i] = {'dtype': 'F32', 'shape': [n_huge // 4], 'data_offsets': [16 + i * n_huge, 16 + (i + 1) * n_huge]}
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, 'little') + text + st.f32(1, 2, 3, 4))
    os.truncate(path, 8 + len(text) + 16 + N * n_huge)
    return path


WAITS = 'request_wait_answer', '__fuse_simple_request', 'fuse_simple_request', 'folio_wait_bit_common', 'folio_wait_bit_killable', 'fuse_get_req'


class Requests:
    """64 processes that wait for the answer."""

    def __init__(self, mnt, code):
        self.process = subprocess.Popen(['/usr/bin/python3', '-SEc', FORKS, mnt.path, code, str(N)], stdout=subprocess.PIPE, text=True)
        self.pids = list(map(int, self.process.stdout.readline().split()))
        wait_for(lambda: all(map(self.is_waiting, self.pids)), 'all requests to wait')

    @staticmethod
    def is_waiting(pid):
        return pathlib.Path('/proc/%d/wchan' % pid).read_text() in WAITS

    def kill(self, pids):
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert dict(map(int, self.process.stdout.readline().split()) for _ in pids) == dict.fromkeys(pids, signal.SIGKILL)


def start(mount, folder, code, options):
    options = [option.replace('out.pth', str(folder / 'out.pth')) for option in options]
    mnt = mount(make(folder / 'a.safetensors', N_HUGE >> 5 if code == COPY else N_HUGE), *options)
    return mnt, Requests(mnt, code)


def use(mnt, is_writable):
    """What others do meanwhile."""
    assert 'small' in os.listdir(mnt.path) and os.listdir(mnt / 'h1') == ['w']
    assert (mnt / 'small').read_bytes()[:4] == st.f32(1)
    assert json.loads(os.getxattr(mnt / 'small', 'user.weightfs.stats'))['max'] >= 4
    assert len(os.getxattr(mnt / 'small', 'user.weightfs.xxh3')) == 16
    assert os.stat(mnt / '.weightfs/out/model.safetensors').st_size > N * N_HUGE >> 7
    assert len(mnt.status()['state']) > 0
    if is_writable:
        (mnt / 'small').write_bytes(st.f32(1, 2, 3, 5))
        os.mkdir(mnt / 'directory')
        os.rmdir(mnt / 'directory')


def judge(mount, folder, code, options):
    mnt, requests = start(mount, folder, code, options)
    is_writable = 'output=out.pth' in options
    use(mnt, is_writable and code != GENERATED and code != COPY)
    requests.kill(requests.pids[::2])
    assert all(map(requests.is_waiting, requests.pids[1::2])), 'the requests were too short for this test'
    use(mnt, False)
    requests.kill(requests.pids[1::2])
    requests.process.wait()
    if is_writable:
        use(mnt, True)
        for i in range(N):
            (mnt / ('h%d/w' % i)).unlink()
    mnt.unmount()


@pytest.mark.parametrize('code, options', CASES.values(), ids=CASES)
def test_others_go_on_while_many_long_requests_run_or_wait(mount, folder, code, options):
    judge(mount, folder, code, options)


@pytest.mark.slow
@pytest.mark.parametrize('code, options', SLOW_CASES.values(), ids=SLOW_CASES)
def test_others_go_on_while_more_kinds_of_long_requests_wait(mount, folder, code, options):
    judge(mount, folder, code, options)


def test_many_long_requests_end_with_the_mount(mount, folder):
    mnt, requests = start(mount, folder, XXH3, [])
    mnt.terminate(0)
    statuses = dict(map(int, requests.process.stdout.readline().split()) for _ in range(N))
    assert set(statuses) == set(requests.pids) and 0 not in statuses.values()


def test_each_of_many_long_requests_is_answered_in_the_end(mount, folder):
    """Also those that waited for a thread."""
    path = folder / 'a.safetensors'
    n = 5 << 17
    st.write(path, {'h%d.w' % i: ('F64', [n], struct.pack('<d', i) * n) for i in range(20)})
    mnt = mount(path)
    code = XXH3 + '; ' + STATS.replace('os.getxattr', 'assert b\'"min": %d,\' % i in os.getxattr')
    done = subprocess.run(['/usr/bin/python3', '-SEc', FORKS, mnt.path, code, '20'], stdout=subprocess.PIPE, text=True, check=True)
    pids, *ended = done.stdout.splitlines()
    assert sorted(line.split()[0] for line in ended) == sorted(pids.split()) and {line.split()[1] for line in ended} == {'0'}
