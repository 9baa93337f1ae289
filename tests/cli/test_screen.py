# SPDX-License-Identifier: MIT
"""What the verbs print on a terminal: tables and text that fit it, with and without colours; and that pipes get nothing of it."""
import pytest

from conftest import SAMPLE
from wfs_testlib import checkpoints, shared, st, terminal
from wfs_testlib.program import EXIT_USAGE, weightfs

WIDTHS = [40, 80, 200]
LONG = 'a_component_that_is_long.' * 12 + 'weight'
ODD = ['\u5c42.\u6743\u91cd\u6743\u91cd\u6743\u91cd\u6743\u91cd\u6743\u91cd\u6743\u91cd', 'cafe\u0301.' + 'e\u0301\u0323' * 30, '\U0001f600' * 25, LONG, 'x' * 5000,
       'tab\there', 'esc\x1b[31m', '\u202eright', 'a b c d', '.', 'plain', 'plain.weight', 'n.%d' % 10 ** 30]
VERBS = {
    'ls': ['ls'], 'ls long': ['ls', '-l'], 'ls exact': ['ls', '-b', '-l'], 'ls by size': ['ls', '--sort', 'size'], 'ls as a tree': ['ls', '--tree'],
    'info': ['info'], 'check': ['check', '--values'], 'plan': ['plan'], 'plan with rules': ['plan', '--remap', 's/a/aa/', '--cast', 'F16'],
    'plan as text': ['plan', '--report', '--remap', 's/a/aa/'], 'status of a file': ['status'], 'an error': ['ls', '--nonsense'],
}


def tensors_of(keys):
    return {key: ('F32', [2, 3], st.f32(1, 2, 3, 4, 5, 6)) for key in keys}


@pytest.fixture
def sources(folder):
    """A checkpoint with odd keys in each format that can be written, and the sample."""
    keys = [key for key in ODD if key != '.']
    odd = [checkpoints.write(folder / ('odd.' + ending), tensors_of(keys)) for ending in ('safetensors', 'pth', 'bpk')]
    weightfs('convert', '--format=mpk', odd[0], folder / 'odd.mpk', code=None)
    deep = st.write(folder / 'deep.safetensors', {'%s.%d' % ('.'.join('abcdefghij'), i): ('F8_E4M3', [1] * i, b'1') for i in range(9)})
    return [SAMPLE, *(folder / ('odd.' + ending) for ending in ('safetensors', 'pth', 'bpk')), deep,
            *[path for path in [folder / 'odd.mpk'] if path.exists()]]


def demand_fit(screen, columns):
    for line in screen.lines:
        assert terminal.width(line) <= columns, '%d columns of %d: %r' % (terminal.width(line), columns, line)
        assert line == line.rstrip(' ')


@pytest.mark.parametrize('columns', WIDTHS)
@pytest.mark.parametrize('verb', [verb for verb in VERBS if verb not in ('status of a file', 'an error')], ids=str)
def test_nothing_is_wider_than_the_terminal(sources, verb, columns):
    for path in sources:
        for plain in (None, '1'):
            screen = terminal.screen(*VERBS[verb], path, columns=columns, code=None, NO_COLOR=plain)
            assert screen.code in (0, 1) and screen.lines
            demand_fit(screen, columns)
            assert plain is None or '\033' not in screen.raw


@pytest.mark.parametrize('columns', WIDTHS)
def test_show_and_diff_fit_as_well(sources, folder, columns):
    other = st.write(folder / 'other.safetensors', {**tensors_of(ODD), LONG: ('F16', [3], bytes(6)), 'x' * 5000: ('F32', [2, 3], bytes(24))},
                     {'note': 'word ' * 100})
    for path in sources[1:4]:
        for key in (LONG, ODD[0], ODD[1]):
            demand_fit(terminal.screen('show', path, key, columns=columns), columns)
        for words in (['diff'], ['diff', '--all']):
            screen = terminal.screen(*words, path, other, columns=columns, code=1)
            demand_fit(screen, columns)
            assert LONG[-30:] in screen.text.replace('\n    ', '')


@pytest.mark.skipif(not shared.IS_THERE, reason=shared.WHY_NOT)
@pytest.mark.parametrize('columns', WIDTHS)
def test_files_of_other_programs_fit(columns):
    paths = [path for path, _, _ in shared.checkpoints()][::12]
    paths += sorted((shared.FOLDER / 'golden/records').rglob('*.mpk'))[::60] + sorted((shared.FOLDER / 'golden/dcp').glob('dcp-*'))[:3]
    assert paths
    for path in paths:
        for words in (['ls', '-l'], ['ls', '--tree'], ['info'], ['plan']):
            screen = terminal.screen(*words, path, columns=columns, code=None)
            if screen.code == 0:
                demand_fit(screen, columns)


@pytest.mark.parametrize('columns', [1, 10, 21])
def test_a_terminal_may_be_very_narrow(small, columns):
    demand_fit(terminal.screen('ls', small, columns=columns), max(columns, 10))
    assert 'columns of the table did not fit' in terminal.screen('ls', '-l', small, columns=20).text.replace('\n   ', '')


def test_what_a_line_has_no_room_for_goes_on_in_the_next(folder):
    note = ' '.join('word%d' % i for i in range(12))
    path = st.write(folder / 'x', tensors_of(['w']), {'note': note})
    screen = terminal.screen('info', path, columns=40)
    assert note in screen.text.replace('\n   ', '')
    assert terminal.screen('info', path, columns=200).text.replace('  ', '').count('\n') < screen.text.count('\n')


# ---- ls ----

def start_of(line, word):
    return terminal.width(line[:line.index(word)])


def test_columns_are_aligned_by_what_characters_take(folder):
    keys = ['\u5c42.weight', 'e\u0301\u0301.bias', '\U0001f600', 'plain']
    screen = terminal.screen('ls', st.write(folder / 'x', tensors_of(keys)))
    assert len({start_of(line, 'F32') for line in screen.lines if 'F32' in line} | {start_of(screen.lines[0], 'dtype')}) == 1
    assert all(any(line.startswith(key + ' ') for line in screen.lines) for key in keys)


def test_a_terminal_gets_a_heading_and_a_total(small):
    screen = terminal.screen('ls', small)
    assert screen.lines[0].split() == ['key', 'dtype', 'shape', 'size']
    assert screen.lines[-1] == '5 tensors, 15 elements, 49 B' and len(screen.lines) == 7


def test_numbers_are_short_on_a_terminal_and_exact_on_request(folder):
    n = 1 << 20
    path = st.write(folder / 'x', {'w': ('F32', [n], bytes(4 * n)), 'v': ('U8', [1000], bytes(1000))})
    assert terminal.screen('ls', path).text.split('\n')[1:] == ['v    U8     [1000]      1000 B', 'w    F32    [1048576]  4.0 MiB', '2 tensors, 1.05 M elements, 4.0 MiB']
    assert terminal.screen('ls', '-b', path).lines[-1] == '2 tensors, 1049576 elements, 4195304 bytes'
    assert weightfs('ls', '-h', path).stdout == 'w\tF32\t[1048576]\t4.0 MiB\nv\tU8\t[1000]\t1000 B\n'
    assert weightfs('ls', '--human', path).stdout == weightfs('ls', '-h', path).stdout
    assert weightfs('ls', '-b', path).stdout == weightfs('ls', path).stdout == 'w\tF32\t[1048576]\t4194304\nv\tU8\t[1000]\t1000\n'


@pytest.fixture
def layers(folder):
    return st.write(folder / 'layers', {**{'l.%d.w' % i: ('F32', [i], bytes(4 * i)) for i in (10, 9, 2, 1)}, 'a.b': ('I8', [50], bytes(50)), 'l.b': ('F16', [1], b'ab')})


@pytest.mark.parametrize('order, keys', [
    ('key', ['a.b', 'l.1.w', 'l.2.w', 'l.9.w', 'l.10.w', 'l.b']), ('name', ['a.b', 'l.b', 'l.1.w', 'l.2.w', 'l.9.w', 'l.10.w']),
    ('size', ['a.b', 'l.10.w', 'l.9.w', 'l.2.w', 'l.1.w', 'l.b']), ('dtype', ['l.b', 'l.1.w', 'l.2.w', 'l.9.w', 'l.10.w', 'a.b']),
    ('none', ['l.1.w', 'l.10.w', 'l.2.w', 'l.9.w', 'l.b', 'a.b'])])
def test_sort(layers, order, keys):
    assert [line.split('\t')[0] for line in weightfs('ls', '--sort=' + order, layers).stdout.splitlines()] == keys
    assert [line.split()[0] for line in terminal.screen('ls', '--sort', order, layers).lines[1:-1]] == keys
    assert weightfs('ls', '-0', '--sort', order, layers).raw.decode().split('\0')[:-1] == keys


def test_a_terminal_gets_the_order_of_numbers_and_a_pipe_that_of_the_file(layers):
    assert terminal.screen('ls', layers).text == terminal.screen('ls', '--sort=key', layers).text
    assert weightfs('ls', layers).stdout == weightfs('ls', '--sort=none', layers).stdout
    assert "not 'x'" in weightfs('ls', '--sort=x', layers, code=EXIT_USAGE).error


def test_long_is_a_letter(small):
    assert weightfs('ls', '-l', small).stdout == weightfs('ls', '--long', small).stdout
    screen = terminal.screen('ls', '-l', small, columns=200)
    assert screen.lines[0].split()[:5] == ['key', 'dtype', 'shape', 'size', 'offset'] and str(small) in screen.text


def test_h_alone_asks_for_help():
    assert weightfs('ls', '-h').stdout == weightfs('ls', '--help').stdout
    assert weightfs('cat', '-h').stdout == weightfs('cat', '--help').stdout


# ---- colours ----

def test_colours_are_for_terminals(small):
    assert '\033[36mF32\033[0m' in terminal.screen('ls', small).raw
    assert '\033[1;31mweightfs:\033[0m ' in terminal.screen('ls', 'nosuch', code=3).raw
    assert '\033' not in weightfs('ls', small).stdout + weightfs('ls', 'nosuch', code=3).stderr


@pytest.mark.parametrize('environment', [{'NO_COLOR': '1'}, {'TERM': 'dumb'}, {'TERM': None}])
def test_the_environment_switches_colours_off(small, environment):
    assert '\033' not in terminal.screen('ls', small, **environment).raw
    assert '\033' in terminal.screen('ls', '--color=always', small, **environment).raw


def test_an_empty_NO_COLOR_is_none(small):
    assert '\033' in terminal.screen('ls', small, NO_COLOR='').raw


@pytest.mark.parametrize('verb', ['ls', 'info', 'check', 'plan'])
def test_color_is_an_option_of_every_verb(small, verb):
    assert '\033' not in terminal.screen(verb, '--color', 'never', small, code=None).raw
    assert "not 'sometimes'" in weightfs(verb, '--color=sometimes', small, code=EXIT_USAGE).error


def test_colours_in_a_pipe_change_nothing_else(small):
    coloured = weightfs('ls', '-l', '--color=always', small).stdout
    assert '\033[36mF32\033[0m' in coloured and terminal.COLOUR.sub('', coloured) == weightfs('ls', '-l', small).stdout
