# SPDX-License-Identifier: MIT
"""Tensors found by name, glob and condition; Python says which ones they are."""
import fnmatch
import json
import re

import pytest

from wfs_testlib import checkpoints, st, terminal
from wfs_testlib.program import EXIT_DAMAGED, EXIT_FOUND, EXIT_SOURCE, EXIT_USAGE, SAMPLE, weightfs

KEYS = ['encoder.layer.%d.%s' % (i, leaf) for i in (0, 1, 10) for leaf in ('query.weight', 'query.bias', 'norm')]
ODD = ['größe.ß', 'a b', "q'uote\"", 'star*', 'br[0]', 'a<b', 'x==y', 'tab\there', 'esc\x1b[31m']


@pytest.fixture(scope='module')
def source(tmp_path_factory):
    tensors = {}
    for i, key in enumerate(KEYS + ODD):
        dtype = ('F32', 'BF16', 'U8')[i % 3]
        n = {'F32': 4, 'BF16': 2, 'U8': 1}[dtype] * 2 ** i
        tensors[key] = (dtype, [2 ** i] if i % 2 else [1, 2 ** i], bytes(n))
    tensors['step'] = ('I64', [], bytes(8))
    return st.write(tmp_path_factory.mktemp('find') / 'm.safetensors', tensors)


def found(source, *what, options=(), code=0):
    listed = json.loads(weightfs('find', '--json', *options, source, *what, code=code).stdout)['tensors']
    assert [tensor['key'] for tensor in listed] == [
        tensor for tensor in weightfs('find', '-0', *options, source, *what, code=code).raw.decode().split('\0')[:-1]]
    return [tensor['key'] for tensor in listed]


def wanted(source, predicate):
    return [key for key, (dtype, shape, data) in st.read(source).tensors.items() if predicate(key, dtype, shape, len(data))]


ROWS = {
    'dtype==F32 && bytes>1K': lambda key, dtype, shape, n: dtype == 'F32' and n > 1024,
    'bytes>=1K': lambda key, dtype, shape, n: n >= 1024,
    'bytes==1KiB': lambda key, dtype, shape, n: n == 1024,
    'bytes<1kb': lambda key, dtype, shape, n: n < 1000,
    'bytes<=0.5K': None,
    'bytes > 16K || rank==0': lambda key, dtype, shape, n: n > 16384 or not shape,
    'bytes!=8': lambda key, dtype, shape, n: n != 8,
    'bytes==0 || bytes>1T': lambda key, dtype, shape, n: False,
    'rank==2 && shape==[1,*]': lambda key, dtype, shape, n: len(shape) == 2,
    '!(rank==2) && leaf!=norm': lambda key, dtype, shape, n: len(shape) != 2 and key.split('.')[-1] != 'norm',
    'key =~ ^encoder.*\\d\\d': lambda key, dtype, shape, n: re.search(r'^encoder.*\d\d', key) is not None,
    'key !~ "[.]"': lambda key, dtype, shape, n: '.' not in key,
    'key == "a<b" || key == "x==y"': lambda key, dtype, shape, n: key in ('a<b', 'x==y'),
}


@pytest.mark.parametrize('condition', [row for row in ROWS if ROWS[row]])
def test_conditions(source, condition):
    keys = wanted(source, ROWS[condition])
    assert found(source, condition, code=0 if keys else EXIT_FOUND) == keys


@pytest.mark.parametrize('name', ['query', 'layer.1', 'ß', 'a b', "q'uote\"", 'step', 'e', ''])
def test_a_name_is_a_part_of_the_key(source, name):
    assert found(source, name) == wanted(source, lambda key, *_: name in key)


@pytest.mark.parametrize('glob', ['*.query.*', 'encoder.layer.?.norm', '*.[wb]*', '*', 'step*'])
def test_a_glob_is_for_the_whole_key(source, glob):
    assert found(source, glob) == wanted(source, lambda key, *_: fnmatch.fnmatchcase(key, glob))


@pytest.mark.parametrize('key, printed', [('star*', 'star*'), ('br[0]', 'br[0]'), ('tab\there', 'tab\\x09here'), ('esc\x1b[31m', 'esc\\x1b[31m')])
def test_what_is_printed_is_found(source, key, printed):
    assert found(source, key) == found(source, printed) == [key]
    assert weightfs('find', source, key).stdout.split('\t')[0] == printed


def test_all_conditions_must_fit(source):
    assert found(source, 'query', '*.bias', 'bytes>=1', 'dtype!=F32') == wanted(
        source, lambda key, dtype, *_: 'query' in key and key.endswith('.bias') and dtype != 'F32')
    assert 'no tensor fits all of 2 conditions' in weightfs('find', source, 'query', 'rank==0', code=EXIT_FOUND).error


def test_rows_are_those_of_ls(source):
    for options in ([], ['-l'], ['-h'], ['--sort=size'], ['-l', '-0']):
        assert weightfs('find', *options, source, '*').stdout == weightfs('ls', *options, source).stdout
    assert weightfs('find', '--json', source, '*').stdout == weightfs('ls', '--json', source).stdout
    assert terminal.screen('find', source, '*').text == terminal.screen('ls', source).text


def test_nothing_found_is_exit_code_1(source):
    result = weightfs('find', source, 'quary.weight', code=EXIT_FOUND)
    assert result.stdout == '' and "no tensor fits 'quary.weight'" in result.error
    assert "did you mean 'step'?" in weightfs('find', source, 'stepp', code=EXIT_FOUND).error
    assert json.loads(weightfs('find', '--json', source, 'bytes>1T', code=EXIT_FOUND).stdout) == {'schema': 1, 'tensors': []}


@pytest.mark.parametrize('what, said', [
    ('bytes>1X', "'1X' is not a number of bytes (such as 4096, 1M or 5GB)"), ('bytes>', 'expected a value'), ('bytes<=0.5K', "'0.5K' is not a number of bytes"),
    ('bytes>99999999999T', 'is not a number of bytes'), ('rank>1K', "'1K' is not a number"), ('dtpe==F32', 'expected key, leaf, rank'), ('dtype==FP32', "unknown dtype 'FP32'"),
    ('key=~(', "bad regex '('")])
def test_a_wrong_condition_is_a_usage_error(source, what, said):
    assert said in weightfs('find', source, what, code=EXIT_USAGE).error


def test_wrong_operands(source, folder):
    assert 'missing WHAT; usage: weightfs find SOURCE WHAT...' in weightfs('find', source, code=EXIT_USAGE).error
    weightfs('find', '--null', '--json', source, 'x', code=EXIT_USAGE)
    weightfs('find', '--sort=x', source, 'x', code=EXIT_USAGE)
    weightfs('find', folder / 'none', 'x', code=EXIT_SOURCE)
    (folder / 'bad').write_bytes(bytes(100))
    assert weightfs('find', folder / 'bad', 'x', code=None).code in (4, EXIT_DAMAGED)


def test_conditions_see_what_the_view_shows(source):
    assert found(source, 'enc.', 'dtype==F16', options=['--rename', 'encoder', 'enc', '--cast=F16']) == [
        key.replace('encoder', 'enc') for key in wanted(source, lambda key, dtype, *_: key.startswith('encoder') and dtype in ('F32', 'BF16'))]


def test_classes_are_found_by_evidence():
    plan = [line.split('\t') for line in weightfs('plan', '--to=burn', SAMPLE).stdout.splitlines()[1:]]
    linear = {row[0] for row in plan if row[4] == 'linear'}
    assert linear and set(found(SAMPLE, 'class==linear')) == linear


@pytest.mark.parametrize('ending', ['safetensors', 'pth', 'bpk'])
@pytest.mark.parametrize('columns', [40, 80, 200])
def test_every_format_on_every_terminal(folder, ending, columns):
    path = checkpoints.write(folder / ('m.' + ending), {'%s.w%d' % ('long' * 9, i): ('F32', [2, i], bytes(8 * i)) for i in range(1, 12)})
    screen = terminal.screen('find', path, 'bytes>=64', columns=columns)
    assert all(terminal.width(line) <= columns for line in screen.lines) and any(line.startswith('4 tensors, ') for line in screen.lines[-2:])
    assert len(weightfs('find', path, 'bytes>=64').stdout.splitlines()) == 4


def test_where_takes_units_too(source):
    assert weightfs('ls', '--where=bytes>1K', source).stdout == weightfs('find', source, 'bytes>1K').stdout
