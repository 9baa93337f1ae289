# SPDX-License-Identifier: MIT
"""What the verbs print in a pipe, which scripts rely on: the commands, and their output as tests/data/piped keeps it. A change there is told in
CHANGELOG.md. make_piped.py writes the folder."""
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess

import numpy

from wfs_testlib import checkpoints, program, pth, sets, st
from wfs_testlib.mount import is_alive, wait_for
from wfs_testlib.program import tool

FOLDER = pathlib.Path(__file__).parent.parent / 'data' / 'piped'
TENSORS = {
    'layer.0.weight': ('F32', [2, 3], st.f32(0, -1.5, 2, 3, float('nan'), 1e30)), 'layer.0.bias': ('BF16', [2], b'\x80\x3f\x00\x40'),
    'layer.1.weight': ('F32', [2, 3], st.f32(*range(6))), 'layer.1.bias': ('BF16', [2], bytes(4)),
    'layer.10.weight': ('F16', [4], bytes(8)), 'n': ('I64', [], struct.pack('<q', 7)), "it's\t\u5c42.x": ('U8', [3], b'abc'), 'none': ('F32', [0, 2], b''),
}
WITHOUT_A_MOUNT = {
    'ls': ['a.safetensors', '-l a.safetensors', '-h a.safetensors', '-lh a.pth', '--json a.safetensors', '--json --long a.bpk', '--tree a.safetensors',
           '--tree --depth=1 a.safetensors', '--sort=size a.pth', '--sort=key a.safetensors', 'a.safetensors *weight* n', '-0 a.safetensors',
           'a.safetensors nosuch', 'set', '-l set/model.safetensors.index.json', '-l --remap s/layer/block/ --cast F16 a.safetensors', 'empty.safetensors'],
    'find': ['a.safetensors bias', '-l a.pth rank==2', '--json a.bpk dtype==F32', 'a.safetensors nosuch'],
    'info': ['a.safetensors', 'a.pth', 'a.bpk', 'set', '--json a.safetensors', '--json a.pth', 'empty.safetensors'],
    'cat': ['a.safetensors layer.0.bias', '--npy a.pth layer.1.weight', '--cast F16 a.safetensors layer.1.weight'],
    'show': ['a.safetensors layer.0.weight', 'a.pth n', 'a.bpk layer.1.weight layer.1.bias', '--slice 0,: a.safetensors layer.1.weight',
             '--percentiles a.safetensors layer.1.weight', '--json a.safetensors layer.0.weight', 'a.safetensors none'],
    'check': ['a.safetensors', '--values a.safetensors', '--json --values a.pth', 'set'],
    'sum': ['a.safetensors', 'a.pth b.safetensors', '--check sums a.safetensors', '--check sums b.safetensors'],
    'config': ['a.pth', 'a.pth optimizer.lr', 'a.safetensors'],
    'convert': ['a.safetensors new.pth', 'a.pth new.bpk', '--max-shard-size=30 a.safetensors new/', '--ties=drop --remap s/layer/x/ a.pth new.safetensors'],
    'edit': ['a.safetensors e.safetensors --rename layer block --remove n --add s=s.npy', 'a.pth e.pth --set layer.0.bias.dtype=F16'],
    'extract': ['a.safetensors layer.* -d out', 'a.pth -d out2'],
    'diff': ['a.safetensors b.safetensors', '--json a.safetensors b.safetensors', '--long a.safetensors b.safetensors', '--stat a.safetensors b.safetensors',
             '--exact a.safetensors b.safetensors', '--all a.pth a.bpk', 'a.safetensors a.bpk'],
    'plan': ['a.safetensors', '--remap s/layer/block/ --cast F16 --exclude bias a.safetensors', '--to=burn a.pth', '--json --remap s/layer/block/ a.bpk',
             '--report --remap s/layer/block/ --format=safetensors a.pth', '--values --cast F16 a.safetensors'],
    'patch': ['make a.safetensors b.safetensors p.safetensors', 'show p.safetensors', 'apply p.safetensors a.safetensors patched.safetensors'],
    'report': ['a.safetensors -o report.html', 'a.safetensors b.safetensors -o change.html'], 'map': ['a.safetensors -o map.svg'],
    'cache': ['list empty', 'verify empty', 'clear empty'],
    'recover': ['a.safetensors', 'set'],
}
# Steps with a mount of m.safetensors on mnt; a line without a verb is done by a shell.
WITH_A_MOUNT = ['status mnt', 'status --json mnt', 'diff mnt', '$ mv mnt/layer/0 mnt/layer/2; rm mnt/n; cp s.npy mnt/', 'status mnt', 'status --json mnt',
                'status --edits mnt', 'diff mnt', 'commit --dry-run mnt', 'patch make mnt q.safetensors', 'discard mnt mnt/n', '$ echo x >mnt/x',
                'commit --dry-run mnt', 'commit mnt', 'status mnt', 'discard mnt mnt/x', '$ rm -r mnt/layer/10', 'discard mnt', '$ rm mnt/none',
                'commit mnt', 'commit mnt', 'status mnt', 'status --json mnt', 'discard mnt', '$ rm -r mnt/layer', 'umount mnt']
RECOVERY = ['recover m.safetensors', 'recover .', 'recover --discard m.safetensors', 'recover m.safetensors']


def listed_verbs():
    return re.findall(r'^  ([a-z]+) ', program.weightfs('--help').stdout.split('verbs:')[1].split('\n\n')[0], re.M)


def write_sources(folder, more=None):
    """more: tensors of all files but the second of a comparison."""
    tensors = {**TENSORS, **(more or {})}
    st.write(folder / 'a.safetensors', tensors, {'note': 'two words', 'format': 'pt'})
    st.write(folder / 'm.safetensors', tensors, {'note': 'two words'})
    checkpoints.write(folder / 'a.pth', tensors, optimizer=pth.dictionary(lr=pth.number(1), name=pth.text('adam')), epoch=pth.number(3))
    checkpoints.write(folder / 'a.bpk', tensors)
    changed = {key: value for key, value in TENSORS.items() if key != 'n'}
    changed.update({'layer.1.weight': ('F32', [2, 3], st.f32(0, 1, 2, 3, 4, 6)), 'layer.1.bias': ('F16', [2], bytes(4)), 'more': ('I8', [1], b'\1')})
    st.write(folder / 'b.safetensors', changed, {'note': 'other'})
    st.write(folder / 'empty.safetensors', {})
    sets.write(folder / 'set', [{'a.weight': TENSORS['layer.1.weight']}, {'b.weight': TENSORS['layer.0.weight'], 'n': TENSORS['n']}])
    numpy.save(folder / 's.npy', numpy.arange(3, dtype='f4'))
    (folder / 'empty').mkdir()
    (folder / 'sums').write_bytes(_run(folder, ['sum', 'a.safetensors']).stdout)


def _run(folder, words):
    environment = {name: value for name, value in os.environ.items() if name not in ('COLUMNS', 'TERM')}
    return subprocess.run([*program.COMMAND, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={**environment, 'LC_ALL': 'C.UTF-8', 'TZ': 'UTC'}, timeout=program.PATIENCE, check=False)


def _constant(text, folder):
    """Without what is different each time."""
    text = text.replace(str(folder), '/DIR')
    text = re.sub(r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d', 'TIME', text)
    return re.sub(r'"(pid|committed_at|sandbox)": ("[^"]*"|\d+)', r'"\1": ...', text)


def block(folder, verb, words):
    """One command and its output: bytes that are not text in hexadecimal, and the exit code if that is not 0."""
    done = _run(folder, [verb, *words.split()])
    is_text = verb != 'cat' and b'\0' not in done.stdout
    shown = _constant(done.stdout.decode(), folder) if is_text else done.stdout.hex() + '\n'
    return '$ weightfs %s %s\n%s%s\n' % (verb, words, shown, 'exit code %d\n' % done.returncode if done.returncode else '')


def text_of(verb, folder):
    return ''.join(block(folder, verb, words) for words in WITHOUT_A_MOUNT[verb])


def text_of_steps(folder, steps, shown):
    """Of steps that are a line for the shell, or the words of a verb and what `shown` makes of them."""
    result = []
    for step in steps:
        if step.startswith('$ '):
            tool('sh', '-ec', step[2:], cwd=folder)
            result.append(step + '\n\n')
        else:
            result.append(shown(step))
    return ''.join(result)


def _steps(folder, steps, of_step):
    return text_of_steps(folder, steps, lambda step: of_step(folder, *step.split(' ', 1)))


def text_with_a_mount(folder, of_step=block):
    (folder / 'mnt').mkdir()
    tool(*program.COMMAND, 'm.safetensors', 'mnt', '-o', 'output=out.safetensors', cwd=folder)
    try:
        return _steps(folder, WITH_A_MOUNT, of_step)
    finally:
        tool('umount', '-lq', folder / 'mnt', code=None)


def text_of_recovery(folder, of_step=block):
    """After a mount was killed."""
    (folder / 'mnt').mkdir()
    process = subprocess.Popen([*program.COMMAND, 'm.safetensors', 'mnt', '-f', '-o', 'rw'], cwd=folder, stderr=subprocess.DEVNULL)
    wait_for(lambda: (folder / 'mnt/.weightfs').is_dir(), 'the mount')
    (folder / 'mnt/n').unlink()
    shutil.copy(folder / 's.npy', folder / 'mnt')
    for child in open('/proc/%d/task/%d/children' % (process.pid, process.pid)).read().split():
        os.kill(int(child), signal.SIGKILL)
    process.wait(program.PATIENCE)
    wait_for(lambda: not is_alive(process.pid), 'its end')
    tool('umount', '-lq', folder / 'mnt', code=None)
    return _steps(folder, RECOVERY, of_step)
