# SPDX-License-Identifier: MIT
"""Much at once, at random, and with little of what the machine has."""
import concurrent.futures
import os
import pathlib
import random
import subprocess

import pytest

from wfs_testlib import checkpoints, look, program, st
from wfs_testlib.program import weightfs

N_OPERATIONS = 100_000 if os.environ.get('CI') == 'true' else 20_000  # of each of the four that run at once
EXERCISE = program.BUILD / 'tests' / 'tools' / 'exercise'


@pytest.mark.parametrize('ending', checkpoints.ENDINGS)
def test_random_operations_are_those_of_a_plain_file(mount, folder, ending):
    """Four files at once, against copies in memory; then a commit has what the copies have."""
    shapes = {'a': 200_000, 'b.c': 4096, 'b.d': 131_073, 'e': 1}
    source = checkpoints.write(folder / ('x.' + ending), {key: ('U8', [n], random.Random(n).randbytes(n)) for key, n in shapes.items()})
    out = folder / ('out.' + ending)
    mnt = mount(source, 'output=%s' % out, patience=30 * program.PATIENCE)
    n = N_OPERATIONS if ending == checkpoints.ENDINGS[0] else N_OPERATIONS // 20  # what is written once is in a file of the stage, whatever the format
    running = [subprocess.Popen([EXERCISE, mnt / key.replace('.', '/'), folder / key, str(n), str(seed)], stderr=subprocess.PIPE)
               for seed, key in enumerate(shapes, 1)]
    said = [process.communicate()[1].decode() for process in running]
    assert said == [''] * len(shapes) and all(process.returncode == 0 for process in running)
    mnt.commit()
    models = {key: ('U8', [n], (folder / key).read_bytes()) for key, n in shapes.items()}
    assert checkpoints.read(out) == models


def work_of(mnt, i, n_rounds, parts):
    """One of many: writes stripes of a file of its own and finds them again, reads files of others, lists, asks."""
    chance = random.Random(i)
    own = mnt / ('own/%d' % i)
    content = bytearray(own.read_bytes())
    fd = os.open(own, os.O_RDWR)
    try:
        for _ in range(n_rounds):
            at = chance.randrange(len(content) - 100)
            stripe = chance.randbytes(100)
            assert os.pwrite(fd, stripe, at) == 100
            content[at:at + 100] = stripe
            assert os.pread(fd, len(content), 0) == content
            other = chance.choice(list(parts))
            assert (mnt / 'shared' / other).read_bytes() == parts[other]
            assert len(os.listdir(mnt / 'shared')) == len(parts)
            assert os.getxattr(own, 'user.weightfs.dtype') == b'U8'
    finally:
        os.close(fd)
    return bytes(content)


@pytest.mark.parametrize('n', [8, 64])
def test_many_clients_while_commits_run(mount, folder, n):
    parts = {'p%d' % i: random.Random(i).randbytes(30_000) for i in range(20)}
    tensors = {'shared.' + name: ('U8', [len(data)], data) for name, data in parts.items()}
    tensors.update(('own.%d' % i, ('U8', [5000], random.Random(i).randbytes(5000))) for i in range(n))
    mnt = mount(st.write(folder / 'x.safetensors', tensors), 'output=%s' % (folder / 'out.safetensors'))
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        running = [pool.submit(work_of, mnt, i, 800 // n, parts) for i in range(n)]
        for _ in range(3):
            mnt.commit()
            assert set(st.read(folder / 'out.safetensors').tensors) == set(tensors)
        contents = [one.result() for one in running]
    status = pathlib.Path('/proc/%d/status' % mnt.workers[0]).read_text()
    assert int(status.split('Threads:')[1].split()[0]) <= 32
    mnt.commit()
    assert [st.read(folder / 'out.safetensors').tensors['own.%d' % i][2] for i in range(n)] == contents


@pytest.mark.skipif(program.IS_INSTRUMENTED, reason='memory is not its own')
def test_threads_take_little_address_space_at_any_moment(mount, folder):
    """A limit of it fails whatever is allocated while another thread takes a lot for a moment."""
    tensors = {'own.%d' % i: ('U8', [5000], bytes(5000)) for i in range(16)} | {'shared.p': ('U8', [1], b'1')}
    mnt = mount(st.write(folder / 'x.safetensors', tensors), 'output=%s' % (folder / 'out.safetensors'), wrap=('prlimit', '--as=209715200', '--'))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: work_of(mnt, i, 50, {'p': b'1'}), range(16)))
    status = dict(line.split(':', 1) for line in pathlib.Path('/proc/%d/status' % mnt.workers[0]).read_text().splitlines())
    assert int(status['VmPeak'].split()[0]) << 10 < 128 << 20


@pytest.mark.skipif(program.IS_INSTRUMENTED, reason='memory is not its own')
@pytest.mark.parametrize('limit', ['--nofile=24:24', '--as=83886080', '--as=209715200', '--nproc=64:64'])
def test_little_of_something_is_enough(mount, folder, limit):
    tensors = {'w%02d' % i: ('U8', [1000], bytes([i]) * 1000) for i in range(60)}
    mnt = mount(st.write(folder / 'x.safetensors', tensors), 'output=%s' % (folder / 'out.safetensors'), wrap=('prlimit', limit, '--'))
    for i in range(60):
        with open(mnt / ('w%02d' % i), 'r+b') as file:
            file.write(b'edit')
    expected = {key: (dtype, shape, b'edit' + data[4:]) for key, (dtype, shape, data) in tensors.items()}
    assert look.tensors(mnt.path) == expected
    mnt.commit()
    assert st.read(folder / 'out.safetensors').tensors == expected


@pytest.mark.skipif(program.IS_INSTRUMENTED, reason='memory is not its own')
def test_too_little_memory_is_one_line(folder):
    tensors = {'layer.%06d.weight' % i: ('U8', [0], b'') for i in range(200_000)}
    source = st.write(folder / 'x.safetensors', tensors)
    (folder / 'mnt').mkdir()
    done = subprocess.run(['prlimit', '--as=50331648', '--', *program.COMMAND, source, folder / 'mnt', '-f'],
                          stderr=subprocess.PIPE, check=False, timeout=program.PATIENCE)
    assert done.returncode == program.EXIT_UNSUPPORTED and len(done.stderr.splitlines()) == 1
    weightfs('ls', source)


def test_ten_thousand_open_files(mount, folder):
    import resource
    tensors = {'d%d.w%d' % (i // 100, i % 100): ('U8', [4], i.to_bytes(4, 'little')) for i in range(10_000)}
    mnt = mount(st.write(folder / 'x.safetensors', tensors), 'output=%s' % (folder / 'out.safetensors'))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 12_000:
        pytest.skip('the test may not open so many itself')
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    opened = []
    try:
        for i in range(10_000):
            opened.append(os.open(mnt / ('d%d/w%d' % (i // 100, i % 100)), os.O_RDWR))
        for i in range(0, 10_000, 50):
            assert os.pwrite(opened[i], b'x', 0) == 1
        assert all(os.pread(fd, 4, 0)[1:] == i.to_bytes(4, 'little')[1:] for i, fd in enumerate(opened))
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
