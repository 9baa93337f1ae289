# SPDX-License-Identifier: MIT
"""How options with two parts are written: every way gives the same, and whatever the documents, the help and the hints say can be
pasted into a shell as it is."""
import json
import os
import re
import shlex
import subprocess

import pytest

from wfs_testlib import program, st
from wfs_testlib.program import EXIT_RULES, listing, ROOT, tool, weightfs

# ---- options with two parts ----

TENSORS = {'m.norm.weight': ('F32', [4], bytes(16)), 'm.norm.bias': ('F32', [4], bytes(16)), 'm.qkv.weight': ('F32', [6, 12], bytes(288)),
           'head': ('F32', [2], bytes(8))}
# option: regex, second part, whether it takes a colon
PAIRS = {
    'remap': [('^m\\.', 'model.', False), ('(?:norm|qkv)', 'x$0', False), ('[[:alpha:]]+d$', 'tail', False)],
    'cast': [('weight$', 'F16', True), ('(?:norm)', 'BF16', True), ('norm[[:punct:]]', 'F16', True)],
    'class': [('^m.norm', 'LayerNorm', True), ('^m.norm', 'Struct:InstanceNorm', True)],
    'permute': [('qkv', '1,0', True)],
    'split': [('qkv', 'q,k,v', True)],
}
CASES = [(option, *row) for option, rows in PAIRS.items() for row in rows]


@pytest.fixture
def source(tmp_path):
    return st.write(tmp_path / 'in.safetensors', TENSORS)


def seen(source, option, value):
    """What a verb shows, and what a mount with the same text would: both take it from the same place."""
    return listing(source, '--' + option, value, '--to', 'burn')


@pytest.mark.parametrize('option, regex, part, takes_colon', CASES)
def test_every_way_gives_the_same(source, option, regex, part, takes_colon):
    wanted = seen(source, option, '%s=>%s' % (regex, part))
    assert wanted != listing(source, '--to', 'burn') or option == 'class'
    for delimiter in '/|#%@!;~_"':
        if delimiter not in regex + part:
            assert seen(source, option, delimiter.join(['s', regex, part, ''])) == wanted
    if takes_colon:
        assert seen(source, option, '%s:%s' % (regex, part)) == wanted


def test_an_overlay_in_every_way(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ('tuned.safetensors', 'tuned:v2.safetensors', 'v2.safetensors'):
        st.write(tmp_path / name, {key: (dtype, shape, bytes([len(name)]) * len(data)) for key, (dtype, shape, data) in TENSORS.items()})

    def replaced(value):
        report = json.loads(weightfs('plan', '--json', '--overlay', value, source).stdout)
        return sorted((row['key'], row['by']) for row in report['covered'])
    for value in ('norm=>tuned.safetensors', 'norm:tuned.safetensors', 's/norm/tuned.safetensors/', 's,norm,./tuned.safetensors,'):
        assert [(key, by.removeprefix('./')) for key, by in replaced(value)] == [
            (key, 'tuned.safetensors') for key in ('m.norm.bias', 'm.norm.weight')], value
    assert len(replaced('!norm:tuned.safetensors')) == 2
    assert {by for _, by in replaced('./tuned:v2.safetensors')} == {'./tuned:v2.safetensors'}
    assert len(replaced('%s/tuned:v2.safetensors' % tmp_path)) == len(TENSORS)


@pytest.mark.parametrize('old, new, wanted', [
    ('m', 'model', ['head', 'model.norm.bias', 'model.norm.weight', 'model.qkv.weight']),
    ('m.norm', 'ln', ['head', 'ln.bias', 'ln.weight', 'm.qkv.weight']),
    ('head', 'm.head', ['m.head', 'm.norm.bias', 'm.norm.weight', 'm.qkv.weight']),
    ('m.norm.weight', 'm.norm.$1', ['head', 'm.norm.$1', 'm.norm.bias', 'm.qkv.weight']),
    ('head', '\\1', ['\\1', 'm.norm.bias', 'm.norm.weight', 'm.qkv.weight']),
    ('head', 'a=>b', ['a=>b', 'm.norm.bias', 'm.norm.weight', 'm.qkv.weight']),
    ('head', 'a:b/c', ['a:b/c', 'm.norm.bias', 'm.norm.weight', 'm.qkv.weight']),
])
def test_a_rename_by_two_names(source, old, new, wanted):
    assert sorted(listing(source, '--rename', old, new)) == wanted
    if not {*old, *new} & {':', '>'}:
        assert sorted(listing(source, '--rename=%s:%s' % (old, new))) == wanted


@pytest.mark.parametrize('key', ['a.b', 'a+b', 'a(b)', '[a]', 'a{2}', 'a|b', 'a^b$', 'a\\b', 'a#b', 'a-b~c&d', 'x=>y', 's/a/b/', 'ä.b'])
def test_nothing_in_a_name_is_special(tmp_path, key):
    source = st.write(tmp_path / 'in.safetensors', {key: ('U8', [1], b'x'), 'other': ('U8', [1], b'y')})
    assert sorted(listing(source, '--rename', key, 'n')) == ['n', 'other']


def test_a_rename_of_nothing_is_a_notice(source):
    report = json.loads(weightfs('plan', '--json', '--rename', 'norm', 'ln', source, has_notices=True).stdout)
    assert [row['text'] for row in report['notices']] == ['this rename matches no key']
    assert 'm.norm.weight' in listing(source, '--rename', 'head', 'x')


def test_names_in_a_rules_file(source, tmp_path):
    (tmp_path / 'rules.json').write_text(json.dumps([{'rename': ['head', 'a/b']}, {'cast': ['norm', 'F16']}, {'remap': 's/qkv/x/'}]))
    got = listing(source, '--rules', tmp_path / 'rules.json')
    assert set(got) == {'a/b', 'm.norm.weight', 'm.norm.bias', 'm.x.weight'} and got['m.norm.bias']['dtype'] == 'F16'


@pytest.mark.parametrize('option, value, form', [
    ('remap', 'a', 's/REGEX/TEXT/'), ('remap', 's/a/b', 's/REGEX/TEXT/'), ('remap', 's/a/b/g', 's/REGEX/TEXT/'),
    ('remap', 'a:b', 's/REGEX/TEXT/'), ('class', 'a', 'REGEX:TYPE'), ('permute', '1,0', 'REGEX:1,0,2'), ('rename', 'a=>b', 'OLD:NEW'),
])
def test_what_is_no_pair_is_refused_with_the_form(source, option, value, form):
    assert "%s: '%s' is not of the form %s" % (option, value, form) in weightfs('ls', '--%s=%s' % (option, value), source,
                                                                              code=EXIT_RULES).error


def test_a_value_that_lost_its_arrow_says_where_it_went(source):
    assert 'the shell has taken an unquoted > away' in weightfs('ls', '--remap=a=', source, code=EXIT_RULES).error


def test_two_words_are_demanded(source):
    assert "missing value of option '--rename'" in weightfs('ls', source, '--rename', 'a', code=program.EXIT_USAGE).error


@pytest.mark.parametrize('options', [
    '--rename m model', '--overlay ^m:./in.safetensors', '--cast norm:F16', '--class ^m.norm:LayerNorm', '--permute qkv:1,0',
    '--split qkv:q,k,v', '--remap s/^m/x/', '--overlay s,^m,in.safetensors,',
])
def test_a_shell_takes_nothing_for_its_own(source, tmp_path, options):
    before = source.read_bytes()
    tool('sh', '-c', 'exec %s ls %s in.safetensors' % (shlex.join(program.COMMAND), options), cwd=tmp_path)
    assert source.read_bytes() == before and [path.name for path in tmp_path.iterdir()] == ['in.safetensors']


# ---- what is documented ----

# What starts a spelling: the program, or an option.
BEGIN = re.compile(r'(?:sudo )?(?:weightfs\s|--[a-z]|-o\s)')
# What shells do on purpose: other commands in a line, a file for the output, comments.
OTHER = re.compile(r"""^((?:'[^']*'|"[^"]*"|[^'"])*?)(?:\s(?:\||\|\||&&|\d?>>?|<|&|\#)(?:\s|$)|;(?:\s|$)).*""", re.S)
SPECIAL = set('<>|&;*?()[]{}$`\\!#~')
RECORDER = '#!/bin/sh\nprintf "%s\\0" "$@"\n'


def commands(text):
    """The commands of a line of a shell that is shown."""
    text = re.sub(r'^\s*(?:\$|#) ', '', text).strip()
    text = OTHER.sub(r'\1', text)
    text = re.sub(r'\s*\[(?:[^][]|\[[^]]*\])*\](?=\s|$)', '', text)
    text = re.sub(r'…|\.\.\.(?=$|\s)|,\.\.\.', '', text).strip()
    return [text] if BEGIN.match(text + ' ') else []


def of_markdown(path):
    text = path.read_text()
    blocks = re.findall(r'^```\w*\n(.*?)^```', text, re.M | re.S)
    for block in blocks:
        for line in re.sub(r'\\\n\s*', ' ', block).splitlines():
            yield from commands(line)
    text = re.sub(r'^```\w*\n.*?^```', '', text, flags=re.M | re.S)
    for span in re.findall(r'(?<!`)`([^`\n]+)`(?!`)', text.replace('\\|', '|')):
        yield from commands(span)


def of_manual(path):
    text = re.sub(r'\\f[BIRP]|\\&', '', path.read_text()).replace('\\-', '-').replace('\\(aq', "'").replace('\\e', '\\')
    for line in re.sub(r'\\\n\s*', ' ', text).splitlines():
        line = re.sub(r'^\.(?:B|I|RS|RE|IP|TP|SH|PP)\b ?', '', line)
        macro = re.match(r'\.(?:BI|BR|IB|IR|RB|RI) (.*)', line)
        if macro:
            line = ''.join(part.strip('"') for part in re.findall(r'"[^"]*"|\S+', macro[1]))
        yield from commands(line)


def of_help(text):
    for line in text.splitlines():
        line = re.sub(r'\[[A-Z]+:\]', '', re.sub(r'(?<=\w)\|[\w|]+', '', line))        # what a usage leaves to choose
        option = re.match(r'  (-.*?)(?:  | [a-z]|$)', line)
        if option:
            yield from (found for part in option[1].split(', ') for found in commands(part))
        elif line.startswith('usage: '):
            yield from commands(line[7:])


def of_messages(path):
    text = re.sub(r'"\s*\n\s*"', '', path.read_text())
    for string in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text):
        string = string.replace('\\"', '"').replace('\\\\', '\\')
        string = re.sub(r'%(?:[-0-9.*]*(?:zu|llu|lu|u|d|s|c)|" *PRI\w+ *")', 'X', string)
        for quoted in re.findall(r"'((?:weightfs|--[a-z]|-o )(?:[^']|'[^ ,;]*')*)'(?=[ ,;:.)]|$)", string):
            yield from commands(quoted)


def plain(command):
    """Whether no character outside of quotes is one of the shell's."""
    bare = re.sub(r"""'[^']*'|"[^"$`\\]*"|\\.""", '', command)
    return not SPECIAL & set(bare)


def all_commands():
    for path in [ROOT / 'README.md', *sorted((ROOT / 'docs').glob('**/*.md'))]:
        for command in of_markdown(path):
            yield path.name, command
    for path in sorted((ROOT / 'docs/man').glob('*.[18]')):
        for command in of_manual(path):
            yield path.name, command
    for path in sorted((ROOT / 'src').glob('**/*.c')):
        for command in of_messages(path):
            yield path.name, command
    overview = weightfs('--help').stdout
    for verb in re.findall(r'^  ([a-z]+) ', overview.split('verbs:')[1].split('\n\n')[0], re.M):
        for command in of_help(weightfs(verb, '--help').stdout):
            yield verb + ' --help', command


FOUND = sorted(set(all_commands()))


def test_what_is_not_plain():
    for command in ('--remap a=>b', '-o remap=^a$', '--include layer.*', "weightfs ls m --where 'a && b' && rm x", '--cast (a|b):F16', '--split $x'):
        assert not plain(command), command
    assert commands('$ weightfs ls m \'a*\' > out') == ["weightfs ls m 'a*'"] and plain("weightfs ls m 'a*' \"b c\" \\*")


def test_enough_is_found():
    places = {place for place, _ in FOUND}
    assert {'README.md', 'view.md', 'weightfs.1', 'convert --help'} <= places and len(FOUND) > 200


@pytest.fixture(scope='module')
def empty(tmp_path_factory):
    tools = tmp_path_factory.mktemp('tools')
    for name in ('weightfs', 'sudo'):
        (tools / name).write_text(RECORDER)
        (tools / name).chmod(0o755)
    return tools, tmp_path_factory.mktemp('empty')


@pytest.mark.parametrize('place', sorted({place for place, _ in FOUND}))
def test_nothing_is_for_the_shell(place, empty):
    tools, folder = empty
    wrong = []
    for command in (command for found, command in FOUND if found == place and command != 'weightfs'):  # the name of the module, too
        line = command if command.startswith(('weightfs', 'sudo')) else 'weightfs ' + command
        done = subprocess.run(['/bin/sh', '-c', line], cwd=folder, env={'PATH': str(tools)}, capture_output=True, stdin=subprocess.DEVNULL)
        arguments = done.stdout.decode().split('\0')[:-1]
        try:
            expected = shlex.split(line)[1:]
        except ValueError:
            expected = None
        if not plain(command) or arguments != expected or os.listdir(folder):
            wrong.append(command)
        for name in os.listdir(folder):
            os.unlink(folder / name)
    assert wrong == []


@pytest.mark.parametrize('option, text', [
    ('split=qkv:a,,b', "split: name 2 of 'a,,b' is empty"), ('split=qkv:', "split: name 1 of '' is empty"), ('split=s/qkv/a,b,/', 'split: name 3 of'),
    ('rename=m:', 'rename: NEW is empty'), ('rename=:m', 'rename: OLD is empty'),
])
def test_a_name_that_would_be_empty_is_refused(source, option, text):
    assert text in weightfs('ls', '--' + option, source, code=EXIT_RULES).error


@pytest.mark.parametrize('spelled, dtype', [('bf16', 'BF16'), ('BF16', 'BF16'), ('bfloat16', 'BF16'), ('Half', 'F16'), ('float8_e4m3fn', 'F8_E4M3'),
                                            ('double', 'F64'), ('int64', 'I64'), ('uint32', 'U32'), ('f8_e5m2', 'F8_E5M2')])
def test_a_dtype_is_spelled_alike_everywhere(tmp_path, spelled, dtype):
    n = {'BF16': 2, 'F16': 2, 'F64': 8, 'I64': 8, 'U32': 4}.get(dtype, 1)
    path = st.write(tmp_path / 'in.safetensors', {'raw': ('U8', [n], bytes(n)), 'w': ('F32', [1], bytes(4)), 'x': (dtype, [1], bytes(n))})
    assert listing(path, '--cast', spelled)['w']['dtype'] == dtype
    assert set(listing(path, '--where', 'dtype == ' + spelled)) == {'x'}
    weightfs('edit', '--set', 'raw.dtype=' + spelled, '--set', 'raw.shape=1', path, tmp_path / 'out.safetensors')
    assert listing(tmp_path / 'out.safetensors')['raw']['dtype'] == dtype
