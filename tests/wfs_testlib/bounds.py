# SPDX-License-Identifier: MIT
"""What a file may cost: programs under a limit of processor time, and how much memory they took."""
import json
import os
import shutil
import subprocess

from wfs_testlib import program, st
from wfs_testlib.program import ROOT

N_HUGE = 1 << 39  # bytes: a hole of that size takes minutes to look at
SLOW = ROOT / 'tests' / 'data' / 'slow'
REJECT = ROOT / 'tests' / 'data' / 'reject'
N_SECONDS = 100 if program.IS_INSTRUMENTED else 10  # of processor time
N_BYTES = 256 << 20  # of memory

# One small parent for many children: each is charged with its own memory. A line of input is a command; one of output its
# exit code (negative: a signal), processor time in seconds and largest memory in bytes.
PARENT = """
import json, os, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1])))
if sys.argv[2] == 'plain':  # what takes more has failed anyhow, and should not take the machine with it
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
null = os.open(os.devnull, os.O_RDWR)
for line in sys.stdin:
    command = json.loads(line)
    actions = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)]
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    _, status, usage = os.wait4(pid, 0)
    print(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024]), flush=True)
"""


def measure(commands):
    """[(exit code, seconds of processor time, bytes of memory)] of commands of the program. One that needs more time is killed."""
    lines = ''.join(json.dumps([*program.COMMAND, *map(os.fspath, command)]) + '\n' for command in commands)
    kind = 'instrumented' if program.IS_INSTRUMENTED else 'plain'
    done = subprocess.run(['/usr/bin/python3', '-SEc', PARENT, str(N_SECONDS), kind], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def is_within(code, seconds, n_bytes):
    return 0 <= code < 128 and seconds <= N_SECONDS and (n_bytes <= N_BYTES or program.IS_INSTRUMENTED)


def slow_files():
    return sorted(path for path in SLOW.iterdir() if path.name != 'options.json')


def reject_files():
    return sorted(path for path in REJECT.rglob('*') if path.is_file() and path.suffix not in ('.expect', '.py'))


def as_source(path, folder):
    """What is given to the program: of a distributed checkpoint, the directory of its .metadata."""
    if path.suffix != '.metadata':
        return path
    place = folder / path.stem
    place.mkdir(exist_ok=True)
    shutil.copy(path, place / '.metadata')
    return place


def options_of(path):
    return json.loads((SLOW / 'options.json').read_text()).get(path.stem, []) if path.parent == SLOW else []


def first_key(path):
    """A key of the file, or a word where it has none."""
    done = subprocess.run([*program.COMMAND, 'ls', '--json', path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    tensors = json.loads(done.stdout.decode('utf-8', 'surrogatepass'))['tensors'] if done.returncode == 0 else []
    return tensors[0]['key'] if tensors and len(tensors[0]['key']) < 1 << 16 else 'w'


def brief_commands_of(path, folder):
    """Those that together do nearly all that verbs do with a file."""
    path = as_source(path, folder)
    views = ['--' + option for option in options_of(path)]
    loads = [view for view in views if not view.startswith('--values=')]
    return [['ls', '--long', *loads, path], ['check', '--values', '--json', *loads, path],
            ['diff', '--exact', '--all', *loads, path, path],
            *(['convert', '--overwrite', *views, path, folder / name] for name in ('out.pth', 'out.safetensors'))]


def commands_of(path, folder):
    """Every verb on the file."""
    path = as_source(path, folder)
    options = options_of(path)
    views = ['--' + option for option in options if not option.startswith('values=')]
    key = first_key(path)
    for verb in (['ls'], ['ls', '--long'], ['ls', '--json'], ['ls', '--tree'], ['info'], ['info', '--json'], ['check'],
                 ['check', '--values', '--json'], ['config'], ['plan'], ['plan', '--values', '--json'], ['plan', '--report']):
        yield [*verb, *views, path]
    yield ['plan', '--values', '--cast=F16', *views, path]
    yield ['plan', '--format=safetensors', *views, path]
    yield ['show', *views, path, key]
    yield ['diff', '--exact', '--all', *views, path, path]
    yield ['diff', '--long', *views, path, path]
    yield ['diff', '--stat', *views, path, path]
    yield ['find', *views, path, 'class==linear && key =~ (a|b)+ || bytes>1K']
    yield ['sum', *views, path]
    for name in 'out.pth', 'out.safetensors', 'out.bpk':
        more = ['--' + option for option in options if option.startswith('values=')]
        yield ['convert', '--overwrite', *views, *more, path, folder / name]


# ---- what takes long ----

def huge(path, n_bytes=N_HUGE, shape=None):
    """A checkpoint with a tensor that is nothing but a hole, and a small one."""
    head = json.dumps({'small': {'dtype': 'F32', 'shape': [4], 'data_offsets': [0, 16]},
                       'huge': {'dtype': 'F32', 'shape': shape or [n_bytes // 4], 'data_offsets': [16, 16 + n_bytes]}}).encode()
    path.write_bytes(len(head).to_bytes(8, 'little') + head + st.f32(1, 2, 3, 4))
    os.truncate(path, 8 + len(head) + 16 + n_bytes)
    return path


def used_seconds(pid):
    """Processor time of a process so far."""
    fields = open('/proc/%d/stat' % pid, encoding='ascii').read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
