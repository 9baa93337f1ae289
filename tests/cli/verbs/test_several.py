# SPDX-License-Identifier: MIT
"""Several sources of one verb, and names of modules in the place of globs."""
import json

import numpy
import pytest

from wfs_testlib import st
from wfs_testlib.program import EXIT_FOUND, EXIT_RULES, EXIT_SOURCE, weightfs

KEYS = ['head', 'model.layer.0.b', 'model.layer.0.w', 'model.layer.1.w', 'model.layers.w']  # as they are in a file


@pytest.fixture
def place(folder):
    """Two files; b has another head, and NaN in it."""
    for name, value in (('a', 1), ('b', numpy.nan)):
        st.write(folder / ('%s.safetensors' % name),
                 {key: ('F32', [2], numpy.full(2, value if key == 'head' else i, '<f4').tobytes()) for i, key in enumerate(KEYS)})
    return folder


def keys(text):
    return [line.split('\t')[0] for line in text.splitlines()]


def test_ls_of_two(place):
    one = weightfs('ls', 'a.safetensors', cwd=place).stdout
    assert weightfs('ls', 'a.safetensors', 'b.safetensors', cwd=place).stdout == 'a.safetensors:\n%sb.safetensors:\n%s' % (one, one)
    two = json.loads(weightfs('ls', '--json', 'a.safetensors', 'head', 'b.safetensors', cwd=place).stdout)['tensors']
    alone = json.loads(weightfs('ls', '--json', 'b.safetensors', 'head', cwd=place).stdout)
    assert [one.pop('source') for one in two] == ['a.safetensors', 'b.safetensors'] and two[1:] == alone['tensors']
    assert weightfs('ls', '-0', 'a.safetensors', 'b.safetensors', cwd=place).stdout.split('\0')[:-1] == 2 * KEYS


def test_a_name_in_the_source_is_no_file(place):
    (place / 'head').mkdir()
    assert keys(weightfs('ls', 'a.safetensors', 'head', cwd=place).stdout) == ['head']


def test_a_source_that_is_missing_does_not_stop_the_others(place):
    for verb, text in (('info', 'file:       a.safetensors\n'), ('check', '')):
        done = weightfs(verb, 'nosuch', 'a.safetensors', code=EXIT_SOURCE, cwd=place)
        assert 'nosuch: cannot open it' in done.stderr and text in done.stdout


def test_info_of_two(place):
    both = weightfs('info', 'a.safetensors', 'b.safetensors', cwd=place).stdout
    assert both == ''.join(weightfs('info', name, cwd=place).stdout + '\n' for name in ('a.safetensors', 'b.safetensors'))
    sources = json.loads(weightfs('info', '--json', 'a.safetensors', 'b.safetensors', cwd=place).stdout)['sources']
    assert sources == [json.loads(weightfs('info', '--json', name, cwd=place).stdout)['sources'][0] for name in ('a.safetensors', 'b.safetensors')]


def test_check_of_two_names_the_source(place):
    done = weightfs('check', '--values', 'a.safetensors', 'b.safetensors', code=EXIT_FOUND, cwd=place)
    assert "b.safetensors: medium: tensor 'head': 2 of 2 elements are NaN" in done.stdout
    assert all(line.startswith(('a.safetensors: ', 'b.safetensors: ')) for line in done.stdout.splitlines())
    sources = json.loads(weightfs('check', '--values', '--json', 'a.safetensors', 'b.safetensors', code=EXIT_FOUND, cwd=place).stdout)['sources']
    assert [source['file'] for source in sources] == ['a.safetensors', 'b.safetensors']


# ---- modules ----

LAYER = ['model.layer.0.b', 'model.layer.0.w']


@pytest.mark.parametrize('name, chosen', [('model.layer.0', LAYER), ('model.layer', [*LAYER, 'model.layer.1.w']), ('head', ['head'])])
def test_a_module_is_all_below_it(place, name, chosen):
    assert keys(weightfs('ls', 'a.safetensors', name, cwd=place).stdout) == chosen
    lines = weightfs('sum', 'a.safetensors', name, cwd=place).stdout.splitlines()
    assert [line.split('\t')[-1] for line in lines if line[0] != '#'] == chosen
    whole = weightfs('sum', 'a.safetensors', cwd=place).stdout.splitlines()
    assert set(lines) <= set(whole)
    weightfs('extract', 'a.safetensors', name, '-d', 'out', cwd=place)
    assert sorted(str(path.relative_to(place / 'out')) for path in (place / 'out').rglob('*.npy')) == sorted(key.replace('.', '/') + '.npy' for key in chosen)
    weightfs('edit', '--remove', name, 'a.safetensors', 'c.safetensors', cwd=place)
    assert list(st.read(place / 'c.safetensors').tensors) == [key for key in KEYS if key not in chosen]


def test_diff_of_a_module(place):
    weightfs('diff', 'a.safetensors', 'b.safetensors', 'model', cwd=place)
    assert 'head' in weightfs('diff', 'a.safetensors', 'b.safetensors', 'he*', code=EXIT_FOUND, cwd=place).stdout
    compared = json.loads(weightfs('diff', '--json', 'a.safetensors', 'b.safetensors', 'model.layer', cwd=place).stdout)
    assert compared['n_equal'] == 3


def test_what_is_neither(place):
    for command in (['ls', 'a.safetensors', 'model.laye'], ['sum', 'a.safetensors', 'model.laye'], ['diff', 'a.safetensors', 'b.safetensors', 'model.laye'],
                    ['extract', 'a.safetensors', 'model.laye', '-d', 'out']):
        assert "no key matches 'model.laye'; did you mean 'model.laye" in weightfs(*command, code=EXIT_RULES, cwd=place).stderr


# ---- convert ----

def test_convert_sets_metadata(place):
    weightfs('convert', '--set-metadata', 'format=pt', '--set-metadata=note=a=b', '--include=head', 'a.safetensors', 'c.safetensors', cwd=place)
    made = st.read(place / 'c.safetensors')
    assert made.metadata == {'format': 'pt', 'note': 'a=b'} and list(made.tensors) == ['head']
