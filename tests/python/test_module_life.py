# SPDX-License-Identifier: MIT
"""Threads, forks, ends of the interpreter, interrupts and leaks."""
import gc
import hashlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip('numpy')
weightfs = pytest.importorskip('weightfs')


def memory():
    return int(pathlib.Path('/proc/self/statm').read_text().split()[1]) * os.sysconf('SC_PAGE_SIZE')


def test_opens_do_not_grow(sample):
    n_opens = int(os.environ.get('WFS_OPENS', 5000))

    def some(count):
        for _ in range(count):
            ckpt = weightfs.open(sample, remap='s/a/b/')
            ckpt['temperbture'].tobytes()
            with pytest.raises(KeyError):
                ckpt['none']
            with pytest.raises(weightfs.FormatError):
                weightfs.open('/proc/self/maps')

    some(500)
    gc.collect()
    before, n_files = memory(), len(os.listdir('/proc/self/fd'))
    some(n_opens)
    gc.collect()
    assert len(os.listdir('/proc/self/fd')) == n_files
    assert memory() - before < 2 << 20


@pytest.mark.skipif('asan' in os.environ.get('LD_PRELOAD', ''), reason='AddressSanitizer keeps what is freed')
def test_large_reads_do_not_grow(tmp_path, write):
    """What was read is freed with its last name, and there is never a second copy."""
    numpy = pytest.importorskip('numpy')
    n_bytes = 64 << 20
    write(tmp_path / 'a.safetensors', {'w': numpy.ones(n_bytes, '|u1')})
    code = ('import sys, weightfs\ntensor = weightfs.open(sys.argv[1])["w"]\n'
            'for i in range(10):\n    for read in (tensor.tobytes, tensor.numpy, lambda: tensor[1:]):\n        assert read()[-1] == 1\n'
            'print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])\n')
    done = subprocess.run([sys.executable, '-c', code, os.fspath(tmp_path / 'a.safetensors')], stdout=subprocess.PIPE, timeout=120, check=True)
    assert int(done.stdout) << 10 < 2 * n_bytes


def test_threads(sample):
    ckpt = weightfs.open(sample)
    expected = {key: hashlib.sha256(tensor.tobytes()).digest() for key, tensor in ckpt.items()}

    def one(i):
        keys = list(ckpt)
        for key in keys[i % 41:] + keys[:i % 41]:
            assert hashlib.sha256(ckpt[key].tobytes()).digest() == expected[key]
        with pytest.raises(KeyError):
            ckpt['none']

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(100)))


def test_a_close_waits_for_readers(sample):
    """Readers in other threads get their bytes, or that it is closed; never anything else."""
    for _ in range(50):
        ckpt = weightfs.open(sample)
        tensor, results = ckpt['embeddings.word.weight'], []
        expected = tensor.tobytes()

        def read():
            try:
                while True:
                    results.append(tensor.tobytes() == expected)
            except weightfs.UsageError as error:
                results.append('closed' in str(error))

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        ckpt.close()
        for thread in threads:
            thread.join()
        assert all(results)


def test_fork(sample):
    ckpt = weightfs.open(sample)
    expected = ckpt['temperature'].tobytes()
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            is_right = ckpt['temperature'].tobytes() == expected
            ckpt.close()
            os._exit(0 if is_right else 1)
        assert os.waitpid(pid, 0)[1] == 0
    assert ckpt['temperature'].tobytes() == expected


@pytest.mark.parametrize('text', [
    'ckpt = weightfs.open(path)',
    'import threading; ckpt = weightfs.open(path)\n'
    'def f():\n    while True: ckpt["embeddings.word.weight"].tobytes()\n'
    'for i in range(3): threading.Thread(target=f, daemon=True).start()',
    'import sys; ckpt = weightfs.open(path); ckpt.me = ckpt; sys.exit(0)',
])
def test_the_interpreter_ends_with_open_checkpoints(sample, text):
    done = subprocess.run([sys.executable, '-c', 'import weightfs; path = %r\n%s' % (sample, text)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b'')


def test_ctrl_c_stops_a_long_read(tmp_path):
    path = tmp_path / 'big.safetensors'
    n_bytes = 2 << 30
    head = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (n_bytes, n_bytes)
    with open(path, 'wb') as file:
        file.write(len(head).to_bytes(8, 'little') + head)
        file.truncate(8 + len(head) + n_bytes)
    code = ('import signal, sys, weightfs\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n'  # a shell may have it ignored
            'ckpt = weightfs.open(sys.argv[1])\nprint("ready", flush=True)\n'
            'try:\n    while True: ckpt["w"].numpy()\nexcept KeyboardInterrupt: print("stopped")\n')
    child = subprocess.Popen([sys.executable, '-c', code, os.fspath(path)], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b'ready\n'
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=120)[0] == b'stopped\n' and child.returncode == 0
    finally:
        child.kill()
        child.wait()
