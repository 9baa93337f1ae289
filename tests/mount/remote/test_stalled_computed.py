# SPDX-License-Identifier: MIT
"""A server that stops to answer for what readers share: a factor, an angle, a stream that is inflated. Only they wait, and end when they are killed."""
import json
import os
import subprocess
import zipfile

import numpy
import pytest

from wfs_testlib import program, st
from wfs_testlib.mount import wait_for
from wfs_testlib.program import weightfs
from wfs_testlib.stalling import StallingServer

N_COLS = 49152
SHAPES = {'v': (8, 64), 'w': (4, N_COLS), 'x': (4, 32768)}
READ = """
import mmap, os, sys
room, fd = mmap.mmap(-1, 1 << 20), os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
print(flush=True)
sys.stdout.buffer.write(room[:os.preadv(fd, [room], 0)])
"""
DIGEST = 'import os, sys; print(flush=True); print(os.getxattr(sys.argv[1], "user.weightfs.xxh3").decode())'
WRITE = 'import os, sys; fd = os.open(sys.argv[1], os.O_RDWR); print(flush=True); os.pwrite(fd, b"1234", 40)'


def arrays(seed):
    made = numpy.random.default_rng(seed)
    return {key: made.standard_normal(shape).astype('<f4') for key, shape in SHAPES.items()}


def store(path, values):
    st.write(path, {key: ('F32', list(value.shape), value.tobytes()) for key, value in values.items()})
    return path


def place(path, key):
    """The range of a tensor in its file."""
    content = path.read_bytes()
    n_head = 8 + int.from_bytes(content[:8], 'little')
    return tuple(n_head + at for at in json.loads(content[8:n_head])[key]['data_offsets'])


# Each: the file that the server has, its range that stalls, the mount's source, its options, and what w is; URL stands for that file.

def lora(folder):
    base, made = arrays(1), numpy.random.default_rng(2)
    factors = {(key, part): made.standard_normal(shape).astype('<f4')  # A of w, 3 MiB, is the last one, and what is 2 MiB long in front of it
               for key, part, shape in (('w', 'B', (4, 16)), ('x', 'B', (4, 16)), ('x', 'A', (16, 32768)), ('w', 'A', (16, N_COLS)))}
    names = ['base_model.model.%s.lora_%s.weight' % key for key in factors]
    path = st.write_parts(folder / 'adapter.safetensors', [(name, 'F32', list(x.shape), x.tobytes()) for name, x in zip(names, factors.values(), strict=True)])
    expected = base['w'] + 2 * (factors['w', 'B'].astype('<f8') @ factors['w', 'A'])
    return path, place(path, names[-1]), store(folder / 'base.safetensors', {key + '.weight': base[key] for key in base}), ('lora=URL', 'lora_alpha=32'), expected


def slerp(folder):
    one, other = arrays(1), arrays(2)
    path = store(folder / 'other.safetensors', {key + '.weight': other[key] for key in other})
    a, b = one['w'].astype('<f8'), other['w'].astype('<f8')
    angle = numpy.arccos((a * b).sum() / numpy.linalg.norm(a) / numpy.linalg.norm(b))
    expected = (numpy.sin(0.75 * angle) * a + numpy.sin(0.25 * angle) * b) / numpy.sin(angle)
    return path, place(path, 'w.weight'), store(folder / 'base.safetensors', {key + '.weight': one[key] for key in one}), ('slerp=URL:0.25',), expected


def inflated(folder):
    values, path = arrays(1), folder / 'packed.pth'
    weightfs('convert', store(folder / 'base.safetensors', {key + '.weight': values[key] for key in values}), folder / 'base.pth')
    with zipfile.ZipFile(folder / 'base.pth') as stored, zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as packed:
        for info in stored.infolist():
            packed.writestr(info.filename, stored.read(info))
        largest = max(packed.infolist(), key=lambda info: info.file_size)
    n_head = 30 + len(largest.filename)
    return path, (largest.header_offset + n_head + 4096, largest.header_offset + n_head + largest.compress_size), 'URL', (), values['w']


def distributed(folder):
    values = arrays(1)
    weightfs('convert', '--format=dcp', store(folder / 'base.safetensors', {key + '.weight': values[key] for key in values}), folder / 'packed')
    path, = folder.glob('packed/*.distcp')
    content = path.read_bytes()
    at = content.index(values['w'].tobytes())
    return path, (content.rindex(b'data.pkl', 0, at) - 64, at + values['w'].nbytes), 'URL', (), values['w']  # with what is in front of the values


@pytest.fixture(params=[lora, slerp, inflated, distributed], ids=lambda case: case.__name__)
def stalled(request, mount, folder):
    path, stalls, source, options, expected = request.param(folder)
    others = {other.name: other.read_bytes() for other in path.parent.glob('.metadata')}
    with StallingServer(path.read_bytes(), stalls, {'adapter_config.json': None, 'meta.pt': None, **others}) as server:
        url = server.url('/' + ('' if others else path.name))
        mnt = mount(url if source == 'URL' else source, 'output=%s' % (folder / 'out.safetensors'), *[option.replace('URL', url) for option in options], patience=60)
        mnt.server, mnt.wanted, mnt.processes = server, expected, []
        yield mnt
        server.go_on()
        for process in mnt.processes:
            process.kill()
            process.communicate()
        mnt.unmount()


def start(mnt, code):
    process = subprocess.Popen(['/usr/bin/python3', '-SEc', code, mnt / 'w/weight'], stdout=subprocess.PIPE)
    assert process.stdout.read(1) == b'\n'
    mnt.processes.append(process)
    return process


@pytest.mark.parametrize('first_code, code', [(READ, READ), (READ, DIGEST), (READ, WRITE), (DIGEST, READ), (DIGEST, WRITE), (WRITE, DIGEST)],
                         ids=['read-read', 'read-digest', 'read-write', 'digest-read', 'digest-write', 'write-digest'])
def test_only_those_who_need_it_wait_and_they_end_when_they_are_killed(stalled, first_code, code):
    v, n = (stalled / 'v/weight').read_bytes(), len(os.listdir(stalled.path))
    stalled.server.stop()
    first = start(stalled, first_code)
    wait_for(lambda: stalled.server.n_waiting > 0, 'a read that hangs')
    others = [start(stalled, code) for _ in range(1 if code == WRITE else 3)]
    for _ in range(20):
        assert len(os.listdir(stalled.path)) == n and os.getxattr(stalled / 'w/weight', 'user.weightfs.dtype') == b'F32'
    assert (stalled / 'v/weight').read_bytes() == v
    os.rename(stalled / 'v/weight', stalled / 'moved')
    (stalled / 'x/weight').write_bytes(bytes(4 * 4 * 32768))
    assert len(os.getxattr(stalled / 'moved', 'user.weightfs.xxh3')) == 16
    assert [process.poll() for process in stalled.processes] == [None] * len(stalled.processes)
    for other in others:
        other.kill()
        other.wait(program.PATIENCE)
    assert first.poll() is None
    stalled.server.go_on()
    output = first.communicate(timeout=program.PATIENCE)[0]
    assert first.returncode == 0
    if first_code == WRITE:
        stalled.wanted[0, 10] = numpy.frombuffer(b'1234', '<f4')[0]
    found = numpy.frombuffer(output if first_code == READ else (stalled / 'w/weight').read_bytes(), '<f4')
    numpy.testing.assert_allclose(found.reshape(4, N_COLS), stalled.wanted, 1e-4, 1e-4)
