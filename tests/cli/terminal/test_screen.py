# SPDX-License-Identifier: MIT
"""What the verbs print on a terminal: tables and text that fit it, with and without colours; and that pipes get nothing of it."""
import json

import pytest

from wfs_testlib import checkpoints, shared, st, terminal
from wfs_testlib.program import EXIT_USAGE, SAMPLE, weightfs

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
            # A path alone can be wider.
            screen.lines = [line for line in screen.lines if line.strip() != '%s:' % path]
            demand_fit(screen, columns)
            assert plain is None or '\033' not in screen.left


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
            assert (LONG[-30:] if columns > 80 else LONG[-8:]) in screen.text.replace('\n    ', '')


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
    assert 'no room for: dtype, shape, offset' in terminal.screen('ls', '-l', small, columns=20).text.replace('\n   ', '')


def test_json_is_left_as_it_is(sources, folder):
    for path in sources:
        for words in (['ls', '--json', '--long'], ['info', '--json'], ['check', '--json'], ['plan', '--json'], ['config']):
            screen = terminal.screen(*words, path, columns=40, code=None)
            assert json.loads(screen.text) == json.loads(weightfs(*words, path, code=screen.code).stdout)
    for words in (['show', '--json', SAMPLE, 'temperature'], ['diff', '--json', SAMPLE, sources[1]]):
        screen = terminal.screen(*words, columns=40, code=None)
        assert json.loads(screen.text) == json.loads(weightfs(*words, code=screen.code).stdout)


def test_columns_without_content_are_not_missed(small):
    assert 'no room' not in terminal.screen('plan', small, columns=40).text
    assert 'class' not in terminal.screen('plan', small, columns=200).lines[0]
    assert 'no room for: dtype, shape, class, certainty, row' in terminal.screen('plan', '--to=burn', SAMPLE, columns=50).text


def test_what_a_line_has_no_room_for_goes_on_in_the_next(folder):
    note = ' '.join('word%d' % i for i in range(12))
    path = st.write(folder / 'x', tensors_of(['w']), {'note': note})
    screen = terminal.screen('info', path, columns=40)
    assert note in screen.text.replace('\n' + ' ' * 11, '')  # below its label
    assert terminal.screen('info', path, columns=200).text.replace('  ', '').count('\n') < screen.text.count('\n')


# ---- ls ----

def start_of(line, word):
    return terminal.width(line[:line.index(word)])


def test_columns_are_aligned_by_what_characters_take(folder):
    keys = ['\u5c42.weight', 'e\u0301\u0301.bias', '\U0001f600', 'plain']
    screen = terminal.screen('ls', st.write(folder / 'x', {**tensors_of(keys), 'other': ('F16', [2], bytes(4))}))
    assert len({start_of(line, 'F32') for line in screen.lines if 'F32' in line} | {start_of(screen.lines[0], 'dtype')}) == 1
    assert all(any(line.startswith(key + ' ') for line in screen.lines) for key in keys)


def test_a_terminal_gets_a_heading_and_a_total(small):
    screen = terminal.screen('ls', small)
    assert screen.lines[0].split() == ['key', 'dtype', 'shape', 'size']
    assert screen.lines[-1] == '5 tensors, 15 elements, 49 B' and len(screen.lines) == 7


def test_numbers_are_short_on_a_terminal_and_exact_on_request(folder):
    one = st.write(folder / 'one', {'w': ('F32', [], bytes(4))})
    assert terminal.screen('ls', one).lines[-1] == '1 tensor, 1 element, 4 B'
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
    screen = terminal.screen('ls', '-l', small, columns=100 + len(str(small)))
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
    assert '\033' not in terminal.screen('ls', small, **environment).left
    assert '\033' in terminal.screen('ls', '--color=always', small, **environment).raw


def test_an_empty_NO_COLOR_is_none(small):
    assert '\033' in terminal.screen('ls', small, NO_COLOR='').raw


@pytest.mark.parametrize('verb', ['ls', 'info', 'check', 'plan'])
def test_color_is_an_option_of_every_verb(small, verb):
    assert '\033' not in terminal.screen(verb, '--color', 'never', small, code=None).left
    assert "not 'sometimes'" in weightfs(verb, '--color=sometimes', small, code=EXIT_USAGE).error


def test_colours_in_a_pipe_change_nothing_else(small):
    coloured = weightfs('ls', '-l', '--color=always', small).stdout
    assert '\033[36mF32\033[0m' in coloured and terminal.COLOUR.sub('', coloured) == weightfs('ls', '-l', small).stdout


# ---- trees ----

@pytest.fixture
def model(folder):
    """12 equal layers, one that is another, experts in each, and a list of equal tensors."""
    tensors = {'embed.weight': ('F32', [100], bytes(400))}
    for i in range(13):
        tensors['encoder.layer.%d.w' % i] = ('F16', [1000 + (i == 12)], bytes(2000 + 2 * (i == 12)))
        for k in range(4):
            tensors['encoder.layer.%d.expert.%d.up.w' % (i, k)] = ('F16', [10], bytes(20))
    tensors.update({'scales.%d' % i: ('F32', [3], bytes(12)) for i in (0, 1, 2, 4, 5)})
    tensors.update({'odd.%s.w' % name: ('U8', [1], b'1') for name in ('00', '01', '1', '99999999999999999999', '100000000000000000000', 'x')})
    return st.write(folder / 'model.safetensors', tensors)


FOLDED = '''\
.  (%d tensors, 26.6 KiB)
|-- embed.weight  F32 [100]  400 B
|-- encoder.layer  (65 tensors, 26.4 KiB)
|   |-- {0..11}  12 x 1.04 k  (60 tensors, 24.4 KiB)
|   |   |-- expert.{0..3}.up.w  F16 [10]  4 x 20 B
|   |   `-- w  F16 [1000]  2.0 KiB
|   `-- 12  (5 tensors, 2.0 KiB)
|       |-- expert.{0..3}.up.w  F16 [10]  4 x 20 B
|       `-- w  F16 [1001]  2.0 KiB
'''


def test_a_tree_folds_equal_layers_on_a_terminal(model):
    screen = terminal.screen('ls', '--tree', model)
    n = len(st.read(model).tensors)
    assert screen.text.startswith(FOLDED.replace('26.6', terminal_size(model)) % n)
    assert '    |-- {0..2}  F32 [3]  3 x 12 B\n    `-- {4..5}  F32 [3]  2 x 12 B' in screen.text
    assert screen.text.count('.w  U8 [1]  1 B') == 6, 'numbers that are spelled in another way are not folded'


def terminal_size(path):
    return '%.1f' % (sum(len(data) for _, _, data in st.read(path).tensors.values()) / 1024)


def test_depth_folds_in_pipes_too(model):
    text = weightfs('ls', '--tree', '--depth', '2', model).stdout
    assert '|   |-- {0..11}  12 x 1.04 k  (60 tensors, 24.4 KiB)\n|   `-- 12  (5 tensors, 2.0 KiB)\n' in text
    assert len(weightfs('ls', '--tree', '--depth=0', model).stdout.splitlines()) == 1
    assert '{' not in weightfs('ls', '--tree', '--depth=9', '--no-fold', model).stdout
    assert weightfs('ls', '--tree', '--depth=9', '--no-fold', model).stdout == weightfs('ls', '--tree', model).stdout
    for words in (['--depth', '1'], ['--no-fold'], ['--tree', '--depth=x'], ['--tree', '--depth=-1']):
        weightfs('ls', *words, model, code=EXIT_USAGE)


def test_a_tree_with_exact_numbers(model):
    n_bytes = sum(len(data) for _, _, data in st.read(model).tensors.values())
    for text in (weightfs('ls', '--tree', '-b', '--depth=3', model).stdout, terminal.screen('ls', '--tree', '--bytes', model).text):
        assert text.startswith('.  (%d tensors, %d bytes)\n' % (len(st.read(model).tensors), n_bytes))
        assert '|   |-- {0..11}  12 x 1040  (60 tensors, 24960 bytes)\n' in text and '  F16 [10]  4 x 20 bytes\n' in text


def test_layers_that_differ_are_not_folded(folder):
    for other in (('F16', [4], bytes(8)), ('F32', [2, 2], bytes(16)), ('F32', [5], bytes(20))):
        path = st.write(folder / 'x', {'l.0.w': ('F32', [4], bytes(16)), 'l.1.w': other, 'm.0.a': ('F32', [4], bytes(16)), 'm.1.b': ('F32', [4], bytes(16))})
        assert '{' not in terminal.screen('ls', '--tree', path).text


def test_a_key_may_be_a_directory_too(folder):
    keys = ['a.0', 'a.0.x', 'a.1', 'a.1.x', 'b.0', 'b.1', 'b.1.y', '0', '1', '', '.', '2.']
    path = st.write(folder / 'x', {key: ('U8', [1], b'1') for key in keys})
    text = terminal.screen('ls', '--tree', '--no-fold', path).text
    assert text == weightfs('ls', '--tree', path).stdout.rstrip('\n') and text.count(' U8 ') == len(keys)
    assert sum(int(line.rsplit('  ', 1)[1].split(' x ')[0]) if ' x ' in line else 1
               for line in terminal.screen('ls', '--tree', path).lines if ' U8 ' in line) == len(keys)


# ---- info ----

def test_info_has_bars(model):
    """The module that has nearly all is replaced by what is in it."""
    screen = terminal.screen('info', model)
    table = [line.split() for line in screen.text.split('\n\n')[1].splitlines()]
    n_all = sum(len(data) for _, _, data in st.read(model).tensors.values())
    n_layers = 12 * (2000 + 4 * 20)
    assert table[0] == ['module', 'size', 'share', 'elements', 'tensors']
    assert table[1] == ['encoder.layer.{0..11}', '24.4', 'KiB', '%.1f%%' % (100 * n_layers / n_all), '12.5', 'k', '60', '#' * (10 * n_layers // n_all)]
    assert [row[0] for row in table[1:4]] == ['encoder.layer.{0..11}', 'encoder.layer.12', 'embed.weight']
    dtypes = {line.split()[0]: line.replace('#', '').split()[-1] for line in screen.text.split('\n\n')[2].splitlines()}
    assert dtypes == {'dtype': 'tensors', 'F32': '6', 'F16': '65', 'U8': '6'}
    assert '#' not in weightfs('info', model).stdout


def test_info_of_many_modules(folder):
    path = st.write(folder / 'x', {'m%d.w' % i: ('U8', [i], bytes(i)) for i in range(30)})
    lines = terminal.screen('info', path).text.split('\n\n')[1].splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ['m29.w', 'm28.w', 'm27.w'] and lines[-1] == 'and 14 smaller ones'
    assert terminal.screen('info', st.write(folder / 'none', {})).lines
