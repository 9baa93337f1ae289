# SPDX-License-Identifier: MIT
"""Runs the program that is tested, and demands its manners: one line on stderr or none, stated exit codes."""
import atexit
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get('WFS_BUILD') or ROOT / 'build').resolve()
WRAP = shlex.split(os.environ.get('WFS_WRAP', ''))  # such as valgrind
SAMPLE = ROOT / 'tests' / 'data' / 'sample' / 'encoder.safetensors'
PATIENCE = 600 if WRAP else 60  # seconds; a bound for what hangs, not a measure of speed
COMMAND = [*WRAP, str(BUILD / 'src' / 'weightfs')]


def _is_open(folder):
    return all(path.stat().st_mode & 1 for path in [folder, *folder.parents])


@functools.cache
def folder_of_folders():
    """Where tests put their files: in the build folder, on its disk. Root may have that in a home directory that is closed to the other users
    of some tests; it stays closed, and the files are in /var/tmp, until the tests end."""
    if os.geteuid() != 0 or _is_open(BUILD):
        (BUILD / 'tmp').mkdir(parents=True, exist_ok=True)
        return BUILD / 'tmp'
    folder, owner = pathlib.Path(tempfile.mkdtemp(prefix='weightfs-tests.', dir='/var/tmp')), os.getpid()
    folder.chmod(0o711)
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))
    return folder


@functools.cache
def command_for_others():
    """The command for other users than root: where they may not enter the build folder, a copy of the program and what it loads."""
    if _is_open(BUILD):
        return COMMAND
    folder = folder_of_folders() / 'program'
    folder.mkdir()
    for name in ('weightfs', 'libweightfs.so.0', 'weightfs-fetch.so'):
        if (BUILD / 'src' / name).exists():
            shutil.copy(BUILD / 'src' / name, folder)
    for path in [folder, *folder.iterdir()]:
        path.chmod(0o755)
    return [*WRAP, str(folder / 'weightfs')]


def _is_sanitized():
    """Whether the build has sanitizers in it, by what meson says of its options."""
    path = BUILD / 'meson-info' / 'intro-buildoptions.json'
    options = json.loads(path.read_text()) if path.exists() else []
    return any(option['name'] == 'b_sanitize' and option['value'] not in ('none', []) for option in options)


# Memory and traces of the program are not its own then.
IS_INSTRUMENTED = bool(WRAP) or _is_sanitized()

EXIT_DONE, EXIT_FOUND, EXIT_USAGE, EXIT_SOURCE, EXIT_FOREIGN = 0, 1, 2, 3, 4
EXIT_DAMAGED, EXIT_UNSUPPORTED, EXIT_RULES, EXIT_MOUNT, EXIT_COMMIT = 5, 6, 7, 8, 9


def show(command):
    """The command as one would type it, to reproduce a failure."""
    return ' '.join(shlex.quote(str(word)) for word in command)


def demand_manners(stderr):
    """Error output is lines of printable text that begin with the name of the program."""
    for line in stderr.splitlines():
        assert line.startswith('weightfs: '), 'strange line on stderr: %r' % line
        assert line.isprintable(), 'unescaped text on stderr: %r' % line


class Result:
    def __init__(self, command, code, stdout, stderr):
        self.command, self.code, self.raw, self.stderr = command, code, stdout, stderr

    @property
    def stdout(self):
        return self.raw.decode()

    @property
    def error(self):
        """The one line of the error, without the program's name."""
        lines = self.stderr.splitlines()
        if len(lines) > 1:
            lines = [line for line in lines if not NOTICE.search(line)]
        assert len(lines) == 1, 'not one line on stderr: %r' % self.stderr
        return lines[0][len('weightfs: '):]


NOTICE = re.compile(r': this [a-z_]+ (matches no (key|tensor)|exempts no list|decides no type|removes nothing)'
                    r'|: [a-z0-9_]+: changes nothing without [a-z, _]+$'
                    r'|: the tensors beside this value|: a cast does not apply scales|: stays as it is: a cast without|: is cast, and the values of the codes'
                    r'|: is codes whose scales|: has lost its scales|: compared as stored: its scales|: in this adapter, |: the pickle refers to '
                    r'|: is part of the module |: read from the cache of the Hub, |, which numbers lists without gaps|: is not tied to |^weightfs: and \d+ more notices, ')


# What an output may run when Python loads it is said of every conversion that keeps objects.
UNKNOWN = re.compile(': the pickle refers to .* not known to be harmless')


def weightfs(*args, code=0, has_notices=False, n_errors=1, **options):
    """Runs to the end and expects an exit code (None: any). An exit code of 0 expects no stderr either, but for notices about rules where
    they may be; any other but 1 that number of lines (None: any)."""
    command = [*COMMAND, *map(os.fspath, args)]
    options = {'stdin': subprocess.DEVNULL, 'stdout': subprocess.PIPE, **options}
    done = subprocess.run(command, stderr=subprocess.PIPE, timeout=PATIENCE, check=False, **options)
    stderr = done.stderr.decode(errors='replace')
    report = 'exit code %d of: %s\n%s' % (done.returncode, show(command), stderr)
    assert done.returncode >= 0, report
    assert code is None or done.returncode == code, report
    demand_manners(stderr)
    others = [line for line in stderr.splitlines() if not (has_notices and NOTICE.search(line)) and not UNKNOWN.search(line)]
    if done.returncode != 1:
        assert len(others) == (0 if done.returncode == 0 else len(others) if n_errors is None else n_errors), report
    return Result(command, done.returncode, done.stdout or b'', stderr)


def refusal(path, message):
    """What a verb prints where a file is not read: the message of the library, and how a limit is raised that it names."""
    limit = re.search(r'\(limit (\w+)\)', message)
    return '%s: %s' % (path, message) + ('; --limit={0}=N, or -o limit.{0}=N of a mount, raises it'.format(limit[1]) if limit else '')


# A child is charged with what its parent took when it was forked: a small parent measures.
MEASURE = """import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024, file=sys.stderr)"""


def run_measured(*args):
    """Exit code, largest resident size in bytes. What takes too long ends at the patience of the tests."""
    command = ['/usr/bin/python3', '-SEc', MEASURE, *COMMAND, *map(os.fspath, args)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=PATIENCE, check=True)
    code, memory = done.stderr.decode(errors='replace').splitlines()[-1].split()
    return int(code), int(memory)


def listing(path, *options):
    """{key: what `ls` says of the tensor}, in the order of the file."""
    tensors = json.loads(weightfs('ls', '--json', *options, path).raw.decode('utf-8', 'surrogatepass'))['tensors']
    return {tensor['key']: tensor for tensor in tensors}


def tool(*command, code=0, **options):
    """Runs any other program; its output as text."""
    command = [os.fspath(word) for word in command]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=PATIENCE, check=False, **options)
    report = 'exit code %d of: %s\n%s%s' % (done.returncode, show(command), done.stdout.decode(errors='replace'),
                                           done.stderr.decode(errors='replace'))
    assert code is None or done.returncode == code, report
    return Result(command, done.returncode, done.stdout, done.stderr.decode(errors='replace'))


def unmount(path):
    """Unmounts in the ordinary way, again where it is busy: whoever asks all filesystems how full they are makes each busy for a moment."""
    command = ['umount'] if os.geteuid() == 0 else ['fusermount3', '-u']
    deadline = time.monotonic() + PATIENCE
    while True:
        done = tool(*command, path, code=None)
        if done.code == 0 or 'busy' not in done.stderr or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    assert done.code == 0, done.stderr
