# SPDX-License-Identifier: MIT
"""Rules files, and how the options of views fail: one line, exit code 7."""
import json

import pytest

from wfs_testlib import program, st
from wfs_testlib.program import weightfs


@pytest.fixture
def source(tmp_path):
    return st.write(tmp_path / 'in.safetensors', {'fc.weight': ('F32', [2, 3], st.f32(1, 2, 3, 4, 5, 1e9)),
                                                  'fc.bias': ('F32', [2], st.f32(1, 2))})


def keys(*args):
    return [line.split('\t')[0] for line in weightfs('ls', *args).stdout.splitlines()]


def rules(folder, content):
    path = folder / 'rules.json'
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_rules_file_and_options_mix(source, tmp_path):
    path = rules(tmp_path, [{'remap': '^fc=>head'}, {'cast': ['weight$', 'F16']}, {'strict': True}])
    assert keys('--rules', path, '--exclude', 'bias', source) == ['head.weight']
    assert weightfs('ls', '--rules', path, '--exclude', 'bias', source).stdout.split('\t')[1] == 'F16'


@pytest.mark.parametrize('content, text', [
    ([{'remap': 3}], "rule 1: the value of 'remap' is not a string, a pair of strings or true"),
    ([{'nonsense': 'x'}], "rule 1: unknown option 'nonsense'"),
    ({'remap': 'a=>b'}, 'not an array of objects'),
    ([{'partial': True}, 5], 'rule 2 is not an object'),
    ('[{"remap": "(=>b"}]', 'rule 1: remap: bad regex'),
    ('[', 'line 1'),
    ('import x', "line 1: '[' or '{' expected near 'import'"),
    ('["a\x1b', 'line 1: '),
])
def test_a_wrong_rules_file(source, tmp_path, content, text):
    assert text in weightfs('ls', '--rules', rules(tmp_path, content), source, code=program.EXIT_RULES).error


@pytest.mark.parametrize('content, text', [('[{"remap" x', "near 'x'"), ('[\x1b[2J', "near '\\x1b'")])
def test_what_is_wrong_with_the_json_is_quoted_once(source, tmp_path, content, text):
    error = weightfs('ls', '--rules', rules(tmp_path, content), source, code=program.EXIT_RULES).error
    assert text in error and '\\x27' not in error and '\\x5c' not in error


def test_a_rules_file_that_names_itself(source, tmp_path):
    path = rules(tmp_path, [{'rules': str(tmp_path / 'rules.json')}])
    assert 'include each other' in weightfs('ls', '--rules', path, source, code=program.EXIT_RULES).error


def test_a_rules_file_that_is_not_there(source, tmp_path):
    weightfs('ls', '--rules', tmp_path / 'none.json', source, code=program.EXIT_SOURCE)


@pytest.mark.parametrize('options', [['--include', '('], ['--include', 'nothing'], ['--remap', '(weight|bias)=>x'],
                                     ['--to', 'burn', '--strict'], ['--cast', 'F17'], ['--permute', 'fc=>0,1,2']])
def test_what_rules_refuse_has_its_own_exit_code(tmp_path, options):
    path = st.write(tmp_path / 'in.safetensors', {'odd.weight': ('F32', [2, 3], bytes(24)), 'odd.bias': ('F32', [5], bytes(20)),
                                                  'fc.w': ('F32', [2], bytes(8))})
    weightfs('ls', *options, path, code=program.EXIT_RULES)


def test_values_are_counted_on_request(source):
    report = json.loads(weightfs('plan', '--json', '--values', '--cast', 'F16', source).stdout)
    assert {entry['key']: entry['overflow'] for entry in report['cast']} == {'fc.weight': 1, 'fc.bias': 0}


def test_dashes_are_as_good_as_underscores(source):
    assert keys('--top-level-key', 'fc', source) == keys('--top_level_key', 'fc', source)


def test_replacements_that_grow_without_end_are_refused(source):
    grows = ['--remap', '.=>' + 'x' * 400]
    assert 'longer than 1048576 bytes' in weightfs('ls', *grows, *grows, *grows, source, code=program.EXIT_RULES).error
