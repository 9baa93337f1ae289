#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""
What every verb shows on terminals of 40, 80 and 200 columns, for a model of 291 tensors: the commands, and their screens as tests/data/screens
keeps them, to be read. Run as a program (python3 -m wfs_testlib.screens in tests), it writes them: read the difference before it is committed.
"""
import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

from wfs_testlib import program, pth, seven_billion, st, terminal
from wfs_testlib.bad_server import BadServer
from wfs_testlib.mount import is_alive, wait_for
from wfs_testlib.piped import text_of_steps
from wfs_testlib.program import tool

FOLDER = pathlib.Path(__file__).parent.parent / 'data' / 'screens'
WIDTHS = (40, 80, 200)
N_HEAD, N_TAIL = 22, 8  # lines that are kept of a long screen
RENAME = r"--remap s/^model\.//"
# model.safetensors has its full size and no data; small.safetensors has a 32nd of each dimension, and tuned.safetensors is that after training.
WITHOUT_A_MOUNT = {
    'ls': ['model.safetensors', '-l small.safetensors', '--tree model.safetensors', 'model.safetensors nosuch'],
    'find': ['model.safetensors down_proj', 'model.safetensors rank==1'],
    'info': ['model.safetensors', 'values.pth'],
    'cat': ['small.safetensors lm_head.weight', 'small.safetensors lm_head'],
    'show': ['small.safetensors', 'odd.safetensors', 'small.safetensors lm_head.weight', '--slice 0:3,0:6 small.safetensors lm_head.weight'],
    'check': ['model.safetensors', '--values small.safetensors', '--values odd.safetensors'],
    'sum': ['small.safetensors', '--check sums tuned.safetensors'],
    'config': ['values.pth'],
    'convert': ['--cast F16 small.safetensors new.safetensors', 'values.pth values.safetensors', 'small.safetensors small.safetensors'],
    'edit': ['--remove model.layers.31 --rename lm_head head small.safetensors edited.safetensors', '--remove nosuch small.safetensors no.safetensors'],
    'extract': ['small.safetensors lm_head.weight model.norm.weight -d out'],
    'diff': ['small.safetensors tuned.safetensors', '--stat small.safetensors tuned.safetensors', 'small.safetensors small.safetensors'],
    'plan': ['--to=burn %s model.safetensors' % RENAME, 'model.safetensors', '--exclude layers.1[0-9] --cast F16 model.safetensors'],
    'patch': ['make small.safetensors tuned.safetensors p.safetensors', 'show p.safetensors', 'apply p.safetensors small.safetensors again.safetensors'],
    'report': ['small.safetensors tuned.safetensors -o report.html'],
    'map': ['model.safetensors -o map.svg'],
    'cache': ['list kept', 'verify kept'],
}
# Steps with a mount of small.safetensors on mnt; what begins with "$" is done by a shell. `status` alone lists the mounts of other tests, too.
WITH_A_MOUNT = ['status mnt', '$ mv mnt/model/layers/31 mnt/model/layers/32; rm mnt/lm_head/weight; cp mnt/model/norm/weight mnt/norm', 'status mnt',
                'status --edits mnt', 'diff mnt', 'commit --dry-run mnt', 'commit mnt', 'status mnt', 'discard mnt mnt/norm', '$ rm mnt/model/norm/weight',
                'discard mnt', 'umount mnt']
RECOVERY = ['recover .', 'recover --discard small.safetensors', 'recover small.safetensors']


@functools.cache
def _models():
    """Names and tensors of the small files."""
    small, key = seven_billion.small(), 'model.layers.17.mlp.up_proj.weight'
    dtype, shape, data = small[key]
    odd = {**small, key: (dtype, shape, data[:500] + b'\xc0\x7f' + data[502:])}
    return {'small': small, 'tuned': seven_billion.tuned(), 'odd': odd}


@contextlib.contextmanager
def made():
    """A folder of the sources, whose path always has the same length: screens have it in them."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix='screens.', dir='/tmp'))
    try:
        seven_billion.sparse(folder / 'model.safetensors')
        (folder / 'config.json').write_text(json.dumps(seven_billion.CONFIG))
        for name, tensors in _models().items():
            st.write(folder / (name + '.safetensors'), tensors, {'format': 'pt'})
        (folder / 'values.pth').write_bytes(pth.checkpoint(pth.dictionary(
            state_dict=pth.dictionary(w=pth.tensor(pth.storage(numel=6), size=(2, 3), stride=(3, 1))), epoch=pth.number(3), note=pth.text('a note of several words'))
            , r0=bytes(24)))
        (folder / 'sums').write_text(tool(*program.COMMAND, 'sum', 'small.safetensors', cwd=folder).stdout)
        yield folder
    finally:
        tool('umount', '-lq', folder / 'mnt', code=None)
        shutil.rmtree(folder)


def _constant(text):
    """Without what is different each time, which has the same width."""
    text = re.sub(r'/tmp/screens\.(\w+)', lambda match: '/tmp/screens.' + 'abcdefgh'[:len(match[1])], text)
    text = re.sub(r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d', '2026-01-31 12:34:56', text)
    return re.sub(r'127\.0\.0\.1:\d{5}', '127.0.0.1:12345', text)


def screen(folder, words, columns):
    return terminal.screen_of([*program.COMMAND, *words.split()], columns=columns, code=None, cwd=folder, NO_COLOR='1', TZ='UTC', LC_ALL='C.UTF-8')


def block(folder, words, columns):
    """One command and its screen, the middle of a long one left out."""
    shown = screen(folder, words, columns)
    lines = _constant(shown.text).splitlines()
    if len(lines) > N_HEAD + N_TAIL + 1:
        lines[N_HEAD:-N_TAIL] = ['[%d lines]' % (len(lines) - N_HEAD - N_TAIL)]
    if shown.code:
        lines.append('(exit code %d)' % shown.code)
    return '\n'.join(['==== %d columns: weightfs %s' % (columns, words), *lines, '', ''])


def text_of(folder, verb, columns):
    if verb == 'cache':
        content = (folder / 'small.safetensors').read_bytes()
        with BadServer(content) as server:
            tool(*program.COMMAND, 'ls', '--cache', 'kept', server.url('/small.safetensors'), cwd=folder)
    return ''.join(block(folder, '%s %s' % (verb, words), columns) for words in WITHOUT_A_MOUNT[verb])


def _steps(folder, steps, columns):
    return text_of_steps(folder, steps, lambda step: block(folder, step, columns))


def text_with_a_mount(folder, columns):
    (folder / 'mnt').mkdir()
    tool(*program.COMMAND, 'small.safetensors', 'mnt', '-o', 'output=out.safetensors', cwd=folder)
    return _steps(folder, WITH_A_MOUNT, columns)


def text_of_recovery(folder, columns):
    """After a mount was killed."""
    (folder / 'mnt').mkdir()
    process = subprocess.Popen([*program.COMMAND, 'small.safetensors', 'mnt', '-f', '-o', 'rw'], cwd=folder, stderr=subprocess.DEVNULL)
    wait_for(lambda: (folder / 'mnt/.weightfs').is_dir(), 'the mount')
    (folder / 'mnt/lm_head/weight').unlink()
    for child in open('/proc/%d/task/%d/children' % (process.pid, process.pid)).read().split():
        os.kill(int(child), signal.SIGKILL)
    process.wait(program.PATIENCE)
    wait_for(lambda: not is_alive(process.pid), 'its end')
    tool('umount', '-lq', folder / 'mnt', code=None)
    return _steps(folder, RECOVERY, columns)


MOUNTED = {'mount': text_with_a_mount, 'recovery': text_of_recovery}


def whole(name):
    """All screens of a file of the folder; a command that writes finds nothing of the width before."""
    texts = []
    for columns in WIDTHS:
        with made() as folder:
            texts.append(MOUNTED[name](folder, columns) if name in MOUNTED else text_of(folder, name, columns))
    return ''.join(texts)


if __name__ == '__main__':
    FOLDER.mkdir(exist_ok=True)
    for name in [*WITHOUT_A_MOUNT, *MOUNTED]:
        (FOLDER / (name + '.txt')).write_text(whole(name))
