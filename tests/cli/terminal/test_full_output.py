# SPDX-License-Identifier: MIT
"""Standard output that cannot be written: every verb ends with exit code 9 and one line with the reason, and what it wrote to files is complete."""
import errno
import fcntl
import os
import resource
import signal
import subprocess
import threading

import pytest

from wfs_testlib import disks, piped, program, st, terminal
from wfs_testlib.program import EXIT_COMMIT

CLOSING = program.BUILD / 'tests' / 'inject' / 'closing.so'
N_BUFFER = 8192  # what is longer fails in the middle, and not only at the end
# What these print has no more lines where a checkpoint has more tensors.
SHORT = {'convert', 'edit', 'extract', 'cache', 'recover', 'info', 'config'}
MORE = {'cat': ['a.safetensors more.weight'], 'show': ['a.safetensors'], 'report': ['a.safetensors'], 'map': ['a.safetensors']}


def message(code):
    return 'weightfs: standard output: cannot write: %s\n' % os.strerror(code)


def run(folder, *words, **options):
    """Exit code, standard output, standard error."""
    options = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, **options}
    done = subprocess.run([*program.COMMAND, *words], cwd=folder, stdin=subprocess.DEVNULL, timeout=program.PATIENCE, check=False, text=True,
                          errors='replace', **options)
    return done.returncode, done.stdout, done.stderr


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob('*') if path.is_file()}


@pytest.fixture(scope='module')
def long_source(tmp_path_factory):
    path = tmp_path_factory.mktemp('long') / 'x.safetensors'
    return st.write(path, {'layer.%d.weight' % i: ('F32', [2], st.f32(i, 1)) for i in range(3000)})


@pytest.fixture
def full():
    with open('/dev/full', 'wb') as file:
        yield file


def test_every_verb_is_tested():
    steps = {step.split()[0] for step in piped.WITH_A_MOUNT}
    assert set(piped.listed_verbs()) <= {*piped.WITHOUT_A_MOUNT, *steps}


@pytest.mark.parametrize('size', ['short', 'long'])
@pytest.mark.parametrize('verb', piped.WITHOUT_A_MOUNT)
def test_a_full_disk_is_reported_and_files_are_complete(folder, full, verb, size):
    more = {'layer.%d.weight' % i: ('F32', [2], st.f32(i, float('nan'))) for i in range(100, 3100)}
    longest = 0
    for name in 'pipe', 'full':
        (folder / name).mkdir()
        piped.write_sources(folder / name, {} if size == 'short' else {**more, 'more.weight': ('U8', [3 * N_BUFFER], bytes(3 * N_BUFFER))})
    for words in piped.WITHOUT_A_MOUNT[verb] + MORE.get(verb, [])[:size == 'long']:
        command = [verb, *words.split()]
        code, output, errors = run(folder / 'pipe', *command)
        longest = max(longest, len(output))
        expected = (EXIT_COMMIT, None, errors + message(errno.ENOSPC)) if output else (code, None, errors)
        assert run(folder / 'full', *command, stdout=full) == expected, command
    assert files(folder / 'full') == files(folder / 'pipe')
    assert (longest > N_BUFFER) == (size == 'long' and verb not in SHORT)


@pytest.mark.parametrize('verb', piped.WITHOUT_A_MOUNT)
def test_what_cannot_be_said_on_stderr_changes_nothing(folder, full, verb):
    for name in 'pipe', 'full':
        (folder / name).mkdir()
        piped.write_sources(folder / name)
    for words in piped.WITHOUT_A_MOUNT[verb]:
        command = [verb, *words.split()]
        assert run(folder / 'full', *command, stderr=full)[:2] == run(folder / 'pipe', *command)[:2], command
    assert files(folder / 'full') == files(folder / 'pipe')


@pytest.mark.parametrize('words', ['--help', '--version', 'help common', 'ls --help'])
def test_help_that_cannot_be_written_is_reported(folder, full, words):
    assert run(folder, *words.split(), stdout=full) == (EXIT_COMMIT, None, message(errno.ENOSPC))


def test_what_is_written_before_a_disk_is_full_is_the_beginning(folder, long_source):
    whole = run('.', 'ls', long_source)[1]
    with disks.small(folder, 'tmpfs', 1) as disk:
        disks.fill(disk)
        os.truncate(disk / 'filler', (disk / 'filler').stat().st_size - 3 * 4096)
        with open(disk / 'list', 'wb') as file:
            assert run('.', 'ls', long_source, stdout=file) == (EXIT_COMMIT, None, message(errno.ENOSPC))
        assert 0 < len(written := (disk / 'list').read_text()) < len(whole) and whole.startswith(written)


def test_a_limit_of_file_sizes_ends_no_verb(folder, long_source):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))

    with open(folder / 'list', 'wb') as file:
        assert run(folder, 'ls', long_source, stdout=file, preexec_fn=limit) == (EXIT_COMMIT, None, message(errno.EFBIG))
    assert (folder / 'list').stat().st_size == 10000
    code, output, errors = run(folder, 'convert', long_source, 'x.safetensors', preexec_fn=limit)
    assert (code, output) == (EXIT_COMMIT, '') and errors.startswith('weightfs: x.safetensors: ') and errors.endswith(': File too large\n')
    assert os.listdir(folder) == ['list']


@pytest.mark.parametrize('words, code, error', [(['ls'], EXIT_COMMIT, message(errno.EBADF)), (['ls', 'nosuch'], 7, None)])
def test_a_closed_standard_output_is_reported_where_something_is_printed(long_source, words, code, error):
    done = run('.', words[0], long_source, *words[1:], stdout=None, preexec_fn=lambda: os.close(1))
    assert done[0] == code and (error is None or done[2] == error) and done[2].count('\n') == 1


@pytest.mark.parametrize('words', ['ls', 'ls --json', 'sum'])
def test_a_full_pipe_that_does_not_block_is_waited_for(long_source, words):
    whole = run('.', *words.split(), long_source)[1]
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    assert len(whole) > 4096
    parts = []

    def read():
        with open(reader, 'rb') as file:
            parts.append(file.read())

    thread = threading.Thread(target=read)
    with subprocess.Popen([*program.COMMAND, *words.split(), long_source], stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        thread.start()
        errors = process.communicate(timeout=program.PATIENCE)[1]
    thread.join()
    assert (process.returncode, errors, parts[0].decode()) == (0, b'', whole)


@pytest.mark.parametrize('handles', [signal.SIG_DFL, signal.SIG_IGN])
def test_a_reader_that_has_enough_ends_a_verb_without_a_word(long_source, handles):
    process = subprocess.Popen([*program.COMMAND, 'ls', long_source], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               restore_signals=False, preexec_fn=lambda: signal.signal(signal.SIGPIPE, handles))
    assert process.stdout.read(1)
    process.stdout.close()
    assert process.wait(program.PATIENCE) == (-signal.SIGPIPE if handles == signal.SIG_DFL else EXIT_COMMIT)
    assert process.stderr.read() == b''
    process.stderr.close()


@pytest.mark.parametrize('words', ['ls --json', 'sum'])  # more than the 64 KiB that a terminal takes without a reader
def test_a_terminal_that_goes_away_is_reported(long_source, words):
    own, theirs = terminal.open_terminal()
    with subprocess.Popen([*program.COMMAND, *words.split(), long_source], stdout=theirs, stderr=subprocess.PIPE, text=True) as process:
        os.close(theirs)
        assert os.read(own, 1)
        os.close(own)
        assert process.communicate(timeout=program.PATIENCE)[1] == message(errno.EIO)
    assert process.returncode == EXIT_COMMIT


@pytest.mark.skipif(program.IS_INSTRUMENTED or not CLOSING.exists(), reason='no library can be preloaded into an instrumented program')
@pytest.mark.parametrize('words', ['ls', 'cat'])
def test_a_disk_that_is_full_only_when_the_output_is_closed_is_reported(long_source, words):
    key = ['layer.0.weight'][:words == 'cat']
    done = run('.', words, long_source, *key, env={**os.environ, 'LD_PRELOAD': str(CLOSING)})
    assert done[0] == EXIT_COMMIT and done[1] and done[2] == message(errno.EDQUOT)


@pytest.mark.parametrize('verb', ['report', 'map'])
def test_a_dash_is_standard_output(folder, long_source, verb):
    assert run(folder, verb, long_source, '-o', '-') == run(folder, verb, long_source)
    assert not os.listdir(folder)
