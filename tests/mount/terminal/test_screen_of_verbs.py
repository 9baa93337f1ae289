# SPDX-License-Identifier: MIT
"""Every verb on terminals of three widths, with and without colours, and in a pipe: nothing is wider than the terminal, nothing that is
for terminals gets into a pipe. The verbs are those that the program lists: a new one has no row, and fails."""
import os
import re
import shutil
import signal

import numpy
import pytest

from wfs_testlib import checkpoints, program, st, terminal
from wfs_testlib.bad_server import BadServer
from wfs_testlib.mount import is_alive, wait_for
from wfs_testlib.program import COMMAND, tool, weightfs

WIDTHS = [40, 80, 200]
# Width, NO_COLOR.
SCREENS = [(40, None), (80, '1'), (200, None)]
WIDE = '\u5c42.' + '\u6743\u91cd' * 25
COMBINED = 'cafe\u0301.' + 'e\u0301\u0323' * 30
LONG = 'a_component_that_is_long.' * 12 + 'weight'
KEYS = [WIDE, COMBINED, '\U0001f600' * 25, LONG, 'n.%d' % 10 ** 30, 'a b c d.' * 9 + 'e', 'plain.weight', 'plain.bias']
NOTE = ' '.join('word%d' % i for i in range(60))
VERBS = re.findall(r'^  ([a-z]+) ', weightfs('--help').stdout.split('verbs:')[1].split('\n\n')[0], re.M)
# Without a mount. A word in braces stands for a file; what is written is new each time.
ROWS = {
    'ls': ['{odd}', '{odd} {pth}', '-l {odd}', '--tree {pth}', '--sort=size {bpk} *'],
    'find': ['{odd} e', '{pth} bytes>1', '-l {bpk} rank==1'],
    'info': ['{odd} {bpk}', '{pth}', '{bpk}', '{named}'],
    'show': ['{odd}', '--sort std {odd}', '{odd} {long} {wide}', '--slice 0:2 {odd} {long}', '--histogram {pth} plain.weight'],
    'check': ['--values {odd}', '--values {pth}', '{odd} {pth}'],
    'sum': ['{odd}', '--check {sums} {odd}', '--check {sums} {other}'],
    'convert': ['{pth} {new}.safetensors', '--ties=drop --remap s/plain/{long}/ {named} {new}.safetensors', '{odd} {new}/ --format=dcp'],
    'edit': ['--remove *.bias --set-metadata {long}={long} {odd} {new}.safetensors', '--set plain.weight.dtype=I32 {odd} {new}.pth'],
    'extract': ['{odd} -d {new}', '{odd} plain* -d {new}'],
    'diff': ['{odd} {other}', '--all {pth} {other}', '{odd} {odd}'],
    'report': ['{odd} -o {new}', '{odd} {other} -o {new}'],
    'map': ['{odd} -o {new}', '{pth} {other} -o {new}'],
    'plan': ['{odd}', '--remap s/e/{long}/ --cast F16 {odd}', '--report --remap s/e/{long}/ {pth}'],
    'patch': ['make {odd} {other} {new}', 'show {patch}', 'apply {patch} {odd} {new}.safetensors', 'apply --force {patch} {other} {new}.safetensors'],
    'status': ['', '--watch {gone}'],
    'cache': ['list {kept}', 'verify {kept}', 'clear {kept}'],
    'recover': ['{left}', '{empty}'],
}
# What a terminal gets as a pipe does, because it is JSON or bytes; what it does not get at all.
EXACT = {'config': ['{pth}', '{named}'], 'cat': []}
# Exit with an error or a usage error, in one line.
ERRORS = {verb: ['--nonsense', '', '{missing} {missing} {missing}'] for verb in VERBS}
ERRORS['ls'] = ['--nonsense', '', '{missing}', '{odd} {long}x']
ERRORS['info'] = ERRORS['check'] = ['--nonsense', '', '{missing}']
ERRORS['status'] = ['--nonsense', '--edits', '{missing} {missing}']
ERRORS['sum'] = ['--nonsense', '', '{missing}', '{odd} --check {missing}']
ERRORS['recover'] = ['--nonsense', '{empty} {empty}', '{missing} {missing} {missing}']
ERRORS['cat'] += ['{odd} {long}x', '{odd} {wide}x']
ERRORS['show'] += ['{odd} {long}x {wide}x']
ERRORS['config'] += ['{named} {long}.x']
ERRORS['convert'] += ['{odd} {odd}', '{odd} {new}', '{odd} {new}.safetensors --remap s/.*/{long}/']
ERRORS['edit'] += ['{odd} {new}.safetensors --set {long}.dtype=F64', '{odd} {new}.safetensors --remove {wide}x']
ERRORS['patch'] += ['apply {patch} {other} {new}.safetensors', 'make {odd} {empty}']
ERRORS['cache'] = ['--nonsense', '', 'list {missing}', 'wipe {empty}']
ERRORS['status'] += ['{odd}', '{odd}/x', '--edits {empty}']
WITH_A_MOUNT = {'commit', 'discard', 'umount'}  # and others, too


def tensors_of(keys, n=6):
    return {key: ('F32', [n], st.f32(*range(n))) for key in keys}


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    """What the words in braces stand for."""
    folder = tmp_path_factory.mktemp('verbs')
    named = {name: folder / name for name in ('missing', 'empty', 'gone')}
    for ending in ('safetensors', 'pth', 'bpk'):
        named['odd' if ending == 'safetensors' else ending] = checkpoints.write(folder / ('odd.' + ending), tensors_of(KEYS))
    named['named'] = st.write(folder / 'named.safetensors', tensors_of([LONG, 'plain.weight']), {'note': NOTE, LONG: NOTE, WIDE: WIDE * 9})
    named['other'] = st.write(folder / 'other.safetensors', {**tensors_of([LONG, COMBINED + 'x', 'x' + WIDE]), 'plain.weight': ('F16', [6], bytes(12))})
    named['empty'].mkdir()
    weightfs('patch', 'make', named['odd'], named['other'], folder / 'patch')
    with BadServer(named['odd'].read_bytes()) as server:
        weightfs('ls', '--cache', folder / 'kept', server.url('/%s.safetensors' % ('long' * 30)))
    (folder / 'sums').write_text(weightfs('sum', named['odd']).stdout)
    named.update(patch=folder / 'patch', sums=folder / 'sums', long=LONG, wide=WIDE, folder=folder, kept=folder / 'kept', left=leave_edits(folder / 'left', named['odd']))
    return named


def leave_edits(folder, source):
    """The folder in which a mount with edits was killed."""
    folder.mkdir()
    mnt = folder / 'mnt'
    mnt.mkdir()
    shutil.copy(source, folder / 'm.safetensors')
    process = program.subprocess.Popen([*COMMAND, folder / 'm.safetensors', mnt, '-f', '-o', 'rw'], stderr=program.subprocess.DEVNULL)
    wait_for(lambda: (mnt / '.weightfs').is_dir(), 'the mount')
    (mnt / LONG.replace('.', '/')).write_bytes(bytes(24))
    (mnt / 'plain').rename(mnt / ('\u6743' * 60))
    for child in open('/proc/%d/task/%d/children' % (process.pid, process.pid)).read().split():
        os.kill(int(child), signal.SIGKILL)
    process.wait(program.PATIENCE)
    wait_for(lambda: not is_alive(process.pid), 'its end')
    tool('umount', '-l', mnt, code=None)
    return folder


class Words:
    """The words of a row; {new} is another path each time, in the folder of the test."""
    number = 0

    def __init__(self, files, folder):
        self.files, self.folder = files, folder

    def __call__(self, verb, row):
        Words.number += 1
        return [verb, *(word.format(**self.files, new=self.folder / ('new%d' % Words.number)) for word in row.split())]


def may_be_wide(line):
    """A name or a command in an error is never broken."""
    return ' ' not in re.sub(r"'[^']*'", '', line.strip()).replace('weightfs:', '').strip()


def demand_fit(screen, columns):
    is_error = False
    for line in screen.lines:
        is_error |= line.startswith('weightfs: ') or line == 'weightfs:'
        assert terminal.width(line) <= columns or (is_error and may_be_wide(line)), '%d columns of %d: %r' % (terminal.width(line), columns, line)
        assert line == line.rstrip(' ')


def look(words, codes=(0, 1), screens=SCREENS, n_errors=1):
    """On terminals, of which the first is returned, and in a pipe, where an error is one line. The row is made again for each of them."""
    found = []
    for columns, plain in screens:
        found.append(terminal.screen(*words(), columns=columns, code=None, NO_COLOR=plain))
        assert found[-1].code in codes, found[-1].text
        demand_fit(found[-1], columns)
        assert '\033' not in (found[-1].left if plain else terminal.COLOUR.sub('', found[-1].left))
    piped = tool(*COMMAND, *words(), code=None, env={**os.environ, 'COLUMNS': '40', 'TERM': 'xterm'})
    assert piped.code == found[0].code and '\033' not in piped.stdout + piped.stderr
    errors = [line for line in piped.stderr.splitlines() if not program.UNKNOWN.search(line)]
    assert len(errors) == (n_errors if piped.code > 1 else 0), piped.stderr
    return found[0]


def test_every_verb_has_a_row():
    assert set(VERBS) == set(ROWS) | set(EXACT) | WITH_A_MOUNT
    assert not set(ROWS) & set(EXACT)


@pytest.mark.parametrize('verb', [verb for verb in VERBS if verb in ROWS])
def test_what_a_verb_prints_fits(files, folder, verb):
    words = Words(files, folder)
    for row in ROWS[verb]:
        look(lambda: words(verb, row), (0, 1, 9) if verb == 'recover' else (0, 1))


@pytest.mark.parametrize('verb', sorted(EXACT))
def test_json_and_bytes_are_exact(files, folder, verb):
    words = Words(files, folder)
    for row in EXACT[verb]:
        assert terminal.screen(*words(verb, row), columns=40).text == weightfs(*words(verb, row)).stdout.rstrip('\n')
    assert weightfs('cat', files['odd'], LONG).raw == st.f32(*range(6))


@pytest.mark.parametrize('verb', VERBS)
def test_errors_and_help_fit(files, folder, verb):
    words = Words(files, folder)
    for i, row in enumerate(ERRORS[verb]):
        screen = look(lambda: words(verb, row), range(2, 10), SCREENS[i % 2:][:1])
        assert [line for line in screen.lines if line.startswith('weightfs:')]
    help_text = look(lambda: [verb, '--help'], (0,), SCREENS[:1])
    assert help_text.text.split() == weightfs(verb, '--help').stdout.split()


def test_the_help_and_errors_of_the_program_fit(files, folder):
    for row in ('--help', 'help', '--version'):
        screen = look(lambda: [row], (0,))  # pylint: disable=cell-var-from-loop
        assert screen.text.split() == weightfs(row).stdout.split()
    for words in ([], ['lss', files['odd']], [files['missing'], files['empty']], [files['odd'], '/dev/null/x'], ['--nonsense'],
                  [files['odd'], files['empty'], '-o', 'nonsense,output=%s' % LONG], [files['odd'], files['empty'], '-o', 'overlay=%s' % LONG]):
        look(lambda: words, range(2, 10), SCREENS[:1])


def test_a_command_in_an_error_can_be_pasted(files):
    screen = terminal.screen('lss', files['odd'], columns=40, code=2)
    assert "'weightfs --help'" in screen.text or "'ls'" in screen.text
    screen = terminal.screen('patch', 'nonsense', 'x', columns=40, code=2)
    assert "'weightfs patch make|show|apply'" in screen.text and "'weightfs patch --help'" in screen.text
    text = tool(*COMMAND, 'patch', 'nonsense', 'x', code=2).stderr
    assert text.count('\n') == 1 and screen.text.split() == text.split()


# ---- with a mount ----

@pytest.fixture
def edited(mount, folder, files):
    """A function that mounts the checkpoint and makes edits of each kind, with names of each kind."""
    def make():
        Words.number += 1
        source = folder / ('m%d.safetensors' % Words.number)
        shutil.copy(files['odd'], source)
        mnt = mount(source, 'rw', 'files=npy', at=folder / ('mnt%d' % Words.number))
        numpy.save(mnt / (LONG.replace('.', '/') + '.npy'), numpy.zeros(6, 'f4'))
        numpy.save(mnt / ('\u6743' * 60 + '.npy'), numpy.zeros(3, 'i8'))
        (mnt / 'plain' / 'weight.npy').rename(mnt / 'plain' / ('w' * 200 + '.npy'))
        (mnt / (COMBINED.replace('.', '/') + '.npy')).unlink()
        return mnt
    return make


@pytest.mark.parametrize('row', ['status', 'status --edits', 'diff', 'commit --dry-run', 'commit', 'discard --all', 'discard ' + LONG.replace('.', '/'),
                                 'umount', 'umount --discard', 'patch make'], ids=lambda row: row[:20])
def test_what_a_verb_prints_of_a_mount_fits(edited, folder, row):
    verb, *options = row.replace(' --all', '').split()
    lasts = verb in ('status', 'diff', 'patch') or row.endswith('run')
    mnt = edited()

    def words():
        nonlocal mnt
        mnt = mnt if lasts else edited()
        Words.number += 1
        if row.startswith('discard ' + LONG[:5]):
            return [verb, mnt.path, mnt.path / (LONG.replace('.', '/') + '.npy')]
        return [verb, *options, mnt.path, *([folder / ('new%d' % Words.number)] if verb == 'patch' else [])]

    screen = look(words, screens=SCREENS if lasts else SCREENS[:2])
    assert screen.lines or verb in ('discard', 'umount')


def test_what_cannot_be_committed_fits(edited):
    terminal.need()
    mnt = edited()
    mnt.allow('.')
    for name in ('y' * 200, '\u6743' * 70):
        (mnt / name).write_bytes(b'x')
    for words in (['commit', '--dry-run', mnt.path], ['commit', mnt.path], ['status', mnt.path]):
        for columns, plain in SCREENS:
            screen = terminal.screen(*words, columns=columns, code=None, NO_COLOR=plain)
            demand_fit(screen, columns)
            assert 'y' * 100 in re.sub(r'\n +', '', screen.text)  # where the message is wrapped
    weightfs('discard', mnt.path)


def test_waiting_for_a_mount_fits(edited):
    terminal.need()
    for columns in WIDTHS[:2]:
        mnt = edited()
        output = mnt.status()['output']
        program.unmount(mnt.path)
        demand_fit(terminal.screen('status', '--watch', output, columns=columns), columns)
        mnt.wait()


def test_a_mount_of_arrays_tells_what_numpy_lacks(folder):
    st.write(folder / 'm.safetensors', {'a': ('BF16', [2], bytes(4)), 'b': ('F8_E4M3', [2], bytes(2)), 'c': ('F32', [2], bytes(8))})
    (folder / 'mnt').mkdir()
    for option, expected in (('files=npy', 'of 2 files'), ('files=npy,cast=F32', 'of 1 file'), ('files=npy,cast=[ab]:f32', None), ('files=raw', None)):
        screen = terminal.screen(folder / 'm.safetensors', folder / 'mnt', '-o', option, columns=300)
        try:
            told = "numpy cannot compute with the elements %s ('<V2', '|V1'): -o cast=f32 widens BF16, cast=REGEX:f32 all that it matches" % expected
            assert screen.text.endswith(told) if expected else 'numpy' not in screen.text
            if 'cast' in option:
                assert numpy.load(folder / 'mnt/a.npy').dtype == numpy.dtype('<f4')
        finally:
            weightfs('umount', folder / 'mnt')
