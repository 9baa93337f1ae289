# SPDX-License-Identifier: MIT
"""How options with two parts are written: every way gives the same, and none of the documented ones needs the shell's help."""
import json
import shlex

import pytest

from wfs_testlib import program, st
from wfs_testlib.program import EXIT_RULES, listing, tool, weightfs

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
