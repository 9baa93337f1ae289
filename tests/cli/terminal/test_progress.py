# SPDX-License-Identifier: MIT
"""The line of progress of work that takes long: on a terminal, as wide as that at most, and nowhere else. The disk is slow by a library that
makes every read wait."""
import json
import os
import re
import signal
import subprocess
import time

import pytest

from wfs_testlib import program, st, terminal
from wfs_testlib.program import SAMPLE, weightfs

SLOW = program.BUILD / 'tests' / 'inject' / 'slow.so'
needs_slow = pytest.mark.skipif(program.IS_INSTRUMENTED or not SLOW.exists(), reason='no library can be preloaded into an instrumented program')
FRAME = re.compile(r'^(opening|checking|comparing|reading|writing)(  \d|  0:|\s+\d+%)')


@pytest.fixture
def large(folder):
    """16 tensors of 256 KiB."""
    return st.write(folder / 'large.safetensors', {'w%d' % i: ('F32', [1 << 16], st.f32(*range(i, i + 256)) * (1 << 8)) for i in range(16)})


def frames_of(raw):
    """What was drawn in one line over and over, without what was printed for good."""
    return [frame.replace('\033[K', '') for frame in re.split('[\r\n]', raw) if FRAME.match(frame.replace('\033[K', ''))]


WORK = {
    'checking': ['check', 'A'], 'values': ['check', '--values', 'A'], 'comparing': ['diff', 'A', 'B'], 'shown': ['show', 'A', 'w3'],
    'casts': ['plan', '--values', '--cast', 'F16', 'A'], 'conversion': ['convert', '--cast', 'F16', 'A', 'OUT'],
}
WORDS = {'values': 'checking', 'shown': 'reading', 'casts': 'reading', 'conversion': 'writing'}


@needs_slow
@pytest.mark.parametrize('work, columns', [('values', 40), ('values', 200), ('comparing', 40), ('shown', 80), ('casts', 200), ('conversion', 40)])
def test_long_work_is_shown(large, folder, work, columns):
    other = st.write(folder / 'other.safetensors', {key: value for key, value in st.read(large).tensors.items() if key != 'w5'})
    names = {'A': large, 'B': other, 'OUT': folder / 'out.safetensors'}
    screen = terminal.screen(*[names.get(word, word) for word in WORK[work]], columns=columns, code=None, NO_COLOR='1', LD_PRELOAD=str(SLOW),
                             SLOW_MS='300' if work == 'shown' else '100' if work == 'values' else '60' if work in ('casts', 'conversion') else '30')
    frames = [frame for frame in frames_of(screen.raw) if not frame.startswith('opening')]
    assert screen.code == (1 if work == 'comparing' else 0) and frames, screen.raw
    assert all(frame.startswith(WORDS.get(work, work)) and terminal.width(frame) < columns for frame in frames)
    shares = [int(re.search(r'(\d+)%', frame)[1]) for frame in frames if '%' in frame]
    assert shares and shares == sorted(shares) and shares[-1] <= 100
    if columns == 200:
        assert re.search(r'% \[#* *\]  \S+ \S?iB of \d.* left$', frames[-1]) or 'B of ' in frames[-1]
    assert screen.raw.rfind('\r\033[K') > screen.raw.rfind(frames[-1])


@needs_slow
def test_opening_is_shown(folder):
    """A set has many headers."""
    names = ['model-%05d-of-00040.safetensors' % (i + 1) for i in range(40)]
    for i, name in enumerate(names):
        st.write(folder / name, {'w%d' % i: ('F32', [1], bytes(4))})
    (folder / 'model.safetensors.index.json').write_text(
        '{"metadata":{"total_size":160},"weight_map":{%s}}' % ','.join('"w%d":"%s"' % pair for pair in enumerate(names)))
    screen = terminal.screen('ls', folder, NO_COLOR='1', LD_PRELOAD=str(SLOW), SLOW_MS='12')
    frames = frames_of(screen.raw)
    assert frames and all(re.fullmatch(r'opening  [\d.]+ \S?i?B.*  0:0\d', frame) for frame in frames)
    assert screen.lines[-1].startswith('40 tensors')


@needs_slow
def test_the_line_is_erased_before_another_is_printed(large, folder):
    """check prints a line for a tensor with NaN while it goes on."""
    other = st.write(folder / 'other.safetensors', {key: ('F32', [1 << 16], b'\xff' * (4 << 16)) for key in st.read(large).tensors})
    screen = terminal.screen('check', '--values', other, code=1, columns=200, NO_COLOR='1', LD_PRELOAD=str(SLOW), SLOW_MS='80')
    assert frames_of(screen.raw)
    for line in screen.raw.split('\n')[:-1]:
        assert re.match(r'(.*\r\033\[K)?(medium: tensor|16 tensors, )[^\r]*\r$', line, re.DOTALL), repr(line)


@needs_slow
@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_nothing_of_it_is_left_when_a_signal_ends_the_program(large, signum):
    """Also when the signal comes before the write of the line has returned."""
    with terminal.opened() as (theirs, pieces):
        process = subprocess.Popen([*program.COMMAND, 'check', '--values', large], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs,
                                   env={**os.environ, 'LD_PRELOAD': str(SLOW), 'SLOW_MS': '200', 'SLOW_STDERR_MS': '50'})
        while b'0:' not in b''.join(pieces) and process.poll() is None:  # the end of a line
            time.sleep(0.001)
        process.send_signal(signum)
        assert process.wait(program.PATIENCE) == -signum
    drawn = b''.join(pieces)
    assert re.match(b'\rchecking|\ropening', drawn) and drawn.endswith(b'\r\033[K')


@needs_slow
def test_nothing_of_it_is_left_when_a_reader_has_enough(folder):
    path = st.write(folder / 'long.safetensors', {str(i) * 5000: ('U8', [1], b'x') for i in range(4)})
    with terminal.opened() as (theirs, pieces):
        process = subprocess.Popen([*program.COMMAND, 'sum', path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs,
                                   env={**os.environ, 'LD_PRELOAD': str(SLOW), 'SLOW_MS': '600'})
        process.stdout.close()
        assert process.wait(program.PATIENCE) == -signal.SIGPIPE
    drawn = b''.join(pieces)
    assert b'\rreading' in drawn and drawn.endswith(b'\r\033[K')


@needs_slow
def test_output_into_a_file_leaves_the_line_where_it_is(folder):
    path = st.write(folder / 'long.safetensors', {str(i) * 5000: ('U8', [1], b'x') for i in range(5)})
    with terminal.opened(80) as (theirs, pieces):
        subprocess.run([*program.COMMAND, 'sum', path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, check=True,
                       env={**os.environ, 'LD_PRELOAD': str(SLOW), 'SLOW_MS': '600'}, timeout=program.PATIENCE)
    drawn = b''.join(pieces)
    assert b'reading' in drawn and drawn.count(b'\r\033[K\rreading') <= drawn.count(b'\ropening')


def test_short_work_shows_nothing(folder):
    """Short is less than half a second, which nothing is on a busy machine: some of several runs are."""
    for words in (['convert', SAMPLE, folder / 'out.safetensors', '--overwrite'], ['check', '--values', SAMPLE]):
        for _ in range(20):
            start = time.monotonic()
            screen = terminal.screen(*words, NO_COLOR='1')
            if time.monotonic() - start < 0.5:
                break
        else:
            pytest.skip('the machine is too busy for short work')
        assert '\r\033' not in screen.raw and (screen.raw == '') == (words[0] == 'convert')


@needs_slow
@pytest.mark.parametrize('words', [['ls', '--json'], ['check', '--json', '--values'], ['show', '--json'], ['plan', '--json', '--values', '--cast=F16'], ['diff', '--json']],
                         ids=lambda words: words[0])
def test_json_is_whole_on_a_terminal_where_progress_is_drawn(large, folder, words):
    operands = [large, *(['w3'] if words[0] == 'show' else [st.write(folder / 'b', {'w0': ('F32', [1], bytes(4))})] if words[0] == 'diff' else [])]
    screen = terminal.screen(*words, *operands, code=None, LD_PRELOAD=str(SLOW), SLOW_MS='600' if words[0] in ('ls', 'diff') else '300' if words[0] == 'show' else '80')
    assert '\r\033[K' in screen.raw and screen.text != screen.raw
    assert json.loads(screen.text) == json.loads(weightfs(*words, *operands, code=screen.code).stdout)


@needs_slow
def test_a_pipe_gets_nothing(large, folder):
    environment = {**os.environ, 'LD_PRELOAD': str(SLOW), 'SLOW_MS': '10'}
    assert weightfs('convert', large, folder / 'out.pth', env=environment).stderr == ''
    assert weightfs('check', '--values', '--json', large, env=environment, code=None).stderr == ''


def test_a_pipe_gets_nothing_where_standard_output_is_a_terminal(folder):
    with terminal.opened() as (theirs, _):
        done = subprocess.run([*program.COMMAND, 'convert', SAMPLE, folder / 'out.safetensors'], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE,
                              timeout=program.PATIENCE, check=True)
    assert done.stderr == b''


def test_an_error_stands_in_a_line_of_its_own(folder):
    (folder / 'out.safetensors').write_bytes(b'')
    code, _, drawn = terminal.run('convert', SAMPLE, folder / 'out.safetensors')
    assert code == program.EXIT_COMMIT
    assert drawn.replace('\r\n    ', ' ') == "weightfs: %s: already exists (use --overwrite to replace it)\r\n" % (folder / 'out.safetensors')
