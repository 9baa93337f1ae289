# SPDX-License-Identifier: MIT
"""Looking into a checkpoint from the command line."""
import io
import json
import os
import struct
import subprocess

import numpy
import pytest

from wfs_testlib import program, st
from wfs_testlib.program import EXIT_DAMAGED, EXIT_RULES, EXIT_SOURCE, EXIT_USAGE, SAMPLE, weightfs
from wfs_testlib.terminal import opened, screen

VERBS = ['ls', 'find', 'info', 'cat', 'show', 'check', 'sum', 'cache', 'convert', 'diff', 'report', 'map', 'plan', 'recover', 'config', 'commit', 'status', 'discard', 'umount']


def rows(text):
    return [line.split('\t') for line in text.splitlines()]


def test_ls_prints_key_dtype_shape_bytes_in_file_order(small):
    assert rows(weightfs('ls', small).stdout) == [
        ['step', 'I64', '[]', '8'], ['a.b.bias', 'F32', '[3]', '12'], ['a.b.weight', 'F32', '[2, 3]', '24'],
        ['none', 'F32', '[0, 4]', '0'], ['a.c', 'U8', '[5]', '5']]


def test_ls_of_the_sample_agrees_with_an_independent_reader():
    tensors = st.read(SAMPLE).tensors
    assert rows(weightfs('ls', SAMPLE).stdout) == [
        [key, dtype, str(shape), str(len(data))] for key, (dtype, shape, data) in tensors.items()]


def test_ls_takes_globs_over_whole_keys(small):
    assert [row[0] for row in rows(weightfs('ls', small, 'a.*', 'step').stdout)] == ['step', 'a.b.bias', 'a.b.weight', 'a.c']
    assert "'nothing*'" in weightfs('ls', small, 'nothing*', code=EXIT_RULES).error


def test_ls_long_tells_where_the_bytes_are(small):
    start = st.read(small).data_start
    tensors = json.loads(weightfs('ls', '--json', '--long', small, 'a.b.weight').stdout)['tensors']
    assert tensors == [{'key': 'a.b.weight', 'dtype': 'F32', 'shape': [2, 3], 'bytes': 24, 'file': str(small),
                        'offset': start + 20, 'source_key': 'a.b.weight', 'changes': None}]
    assert small.read_bytes()[start + 20:start + 44] == st.f32(1, 2, 3, 4, 5, 6)


def test_ls_tree_counts(small):
    text = weightfs('ls', '--tree', small).stdout
    for word in ('step', 'none', 'weight', 'bias'):
        assert word in text


def test_ls_escapes_what_a_terminal_would_obey(folder):
    path = st.write(folder / 'x', {'a\x1b[31m\nb\tc': ('U8', [1], b'x')})
    text = weightfs('ls', path).stdout
    assert text == 'a\\x1b[31m\\x0ab\\x09c\tU8\t[1]\t1\n'
    assert json.loads(weightfs('ls', '--json', path).stdout)['tensors'][0]['key'] == 'a\x1b[31m\nb\tc'


def test_ls_never_cuts_a_key(folder):
    key = 'k' * 5000
    assert weightfs('ls', st.write(folder / 'x', {key: ('U8', [1], b'x')})).stdout.split('\t')[0] == key


def test_ls_aligns_columns_on_a_terminal(small):
    text = screen('ls', small, NO_COLOR='1').text
    assert '\t' not in text
    assert len({line.index('F32') for line in text.splitlines() if 'F32' in line}) == 1


def test_info_tells_everything(sample):
    info = json.loads(weightfs('info', '--json', sample).stdout)['sources'][0]
    reference = st.read(sample)
    assert info['format'] == 'safetensors' and info['file'] == str(sample)
    assert info['n_tensors'] == len(reference.tensors)
    assert info['n_bytes'] == sum(len(data) for _, _, data in reference.tensors.values())
    assert info['n_elems'] == sum(int(numpy.prod(shape, dtype=int)) for _, shape, _ in reference.tensors.values())
    assert info['metadata'] == reference.metadata
    assert info['dtypes']['I64'] == {'tensors': 1, 'bytes': 128}
    assert {part['name'] for part in info['top_level']} == {'embeddings', 'encoder', 'pooler', 'scaled_fp8', 'temperature'}
    assert sum(part['bytes'] for part in info['top_level']) == info['n_bytes']
    assert len(info['files']) == 1
    assert 'encoder, 2 layers' in weightfs('info', sample).stdout


def test_cat_writes_the_bytes(small):
    assert weightfs('cat', small, 'a.b.weight').raw == st.f32(1, 2, 3, 4, 5, 6)
    assert weightfs('cat', small, 'none').raw == b''


@pytest.mark.parametrize('key, dtype, shape', [('a.b.weight', '<f4', (2, 3)), ('step', '<i8', ()), ('none', '<f4', (0, 4))])
def test_cat_npy_is_read_by_numpy(small, key, dtype, shape):
    array = numpy.load(io.BytesIO(weightfs('cat', '--npy', small, key).raw))
    assert array.dtype == dtype and array.shape == shape
    assert array.tobytes() == st.read(small).tensors[key][2]


@pytest.mark.parametrize('dtype', list(st.BITS))
def test_cat_npy_of_every_dtype(folder, dtype):
    data = bytes(range(st.size_of(dtype, [2, 4])))
    path = st.write(folder / 'x', {'w': (dtype, [2, 4], data)})
    array = numpy.load(io.BytesIO(weightfs('cat', '--npy', path, 'w').raw))
    assert array.tobytes() == data
    n_columns = 4 * st.BITS[dtype] // 8 // array.dtype.itemsize
    assert array.shape == (2, n_columns)


def test_cat_of_a_key_that_is_not_there_suggests_near_ones(small):
    error = weightfs('cat', small, 'a.b.wieght', code=EXIT_RULES).error
    assert "'a.b.wieght'" in error and "'a.b.weight'" in error


def test_cat_refuses_a_terminal(small):
    with opened() as (terminal, drawn):
        weightfs('cat', small, 'a.c', code=EXIT_USAGE, stdout=terminal)
    assert drawn == [b'']


def test_show_agrees_with_numpy(folder):
    values = numpy.array([[1.5, -2, 0], [numpy.nan, numpy.inf, 7]], '<f4')
    path = st.write(folder / 'x', {'w': ('F32', [2, 3], values.tobytes())})
    shown = json.loads(weightfs('show', '--json', path, 'w').stdout)['tensors'][0]['stats']
    finite = values[numpy.isfinite(values)].astype(float)
    for name, value in (('min', finite.min()), ('max', finite.max()), ('mean', finite.mean()), ('std', finite.std())):
        assert abs(shown[name] - value) < 1e-6, name
    text = weightfs('show', path, 'w').stdout
    assert 'F32' in text and '[2, 3]' in text and '-2' in text


@pytest.mark.parametrize('dtype', list(st.BITS))
def test_show_takes_every_dtype(folder, dtype):
    path = st.write(folder / 'x', {'w': (dtype, [4, 4], bytes(range(st.size_of(dtype, [4, 4])))), 'e': (dtype, [0], b'')})
    for key in 'we':
        assert dtype in weightfs('show', path, key).stdout
        assert json.loads(weightfs('show', '--json', path, key).stdout)['tensors'][0]['dtype'] == dtype


def test_check_finds_nothing_in_the_sample():
    result = weightfs('check', SAMPLE)
    assert all(line.startswith('info: ') for line in result.stdout.splitlines())


@pytest.mark.parametrize('values, code', [((1, 2), 0), ((1, float('nan')), 1), ((1, float('inf')), 1)])
def test_check_values_looks_for_nan_and_infinity(folder, values, code):
    path = st.write(folder / 'x', {'w': ('F32', [2], st.f32(*values))}, {'format': 'pt'})
    assert weightfs('check', path).code == 0
    assert weightfs('check', '--values', path, code=code).code == code


E1 = '"dtype":"F32","shape":[1],"data_offsets":[0,4]'


@pytest.mark.parametrize('severity, words, head', [
    ('high', 'duplicate', '{"a":{%s},"a":{%s}}' % (E1, E1)),
    ('medium', 'array', '{"a":["F32",[1],[0,4]]}'),
    ('medium', 'dtype', '{"a":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}}'),
    ('medium', '', ' {"a":{%s}}' % E1),
    ('medium', '', '{"a":{%s}}\t' % E1),
    ('medium', 'duplicate', '{"__metadata__":{"format":"pt","format":"tf"},"a":{%s}}' % E1),
    ('low', 'format', '{"__metadata__":{"k":"v"},"a":{%s}}' % E1),
    ('low', '', '{"__metadata__":{},"a":{%s}}' % E1),
    ('low', '', '{"__metadata__":null,"a":{%s}}' % E1),
    ('info', 'unknown', '{"a":{%s,"x":1}}' % E1),
])
def test_check_reports_what_the_reference_lets_pass(folder, severity, words, head):
    path = st.write_parts(folder / 'x', [('a', 'F32', [1], st.f32(1))], head=head)
    result = weightfs('check', path, code=0 if severity == 'info' else 1)
    lines = [line for line in result.stdout.splitlines() if line.startswith(severity + ': ') and words in line]
    assert lines, result.stdout
    found = json.loads(weightfs('check', '--json', path, code=result.code).stdout)['sources'][0]['findings']
    assert any(one['severity'] == severity and words in one['text'] for one in found)


def test_check_reports_tensors_that_are_not_aligned(folder):
    path = st.write_parts(folder / 'x', [('odd', 'U8', [1], b'x'), ('w', 'F64', [1], bytes(8))], {'format': 'pt'})
    assert any(line.startswith('low: ') for line in weightfs('check', path, code=1).stdout.splitlines())


def test_check_takes_a_file_without_metadata_or_tensors(folder):
    assert weightfs('check', st.write(folder / 'a', {}), code=None).code in (0, 1)


def test_standard_input_is_a_source(small):
    with open(small, 'rb') as file:
        assert weightfs('ls', '-', stdin=file).stdout == weightfs('ls', small).stdout
    with open(small, 'rb') as file:
        assert weightfs('cat', '/dev/fd/0', 'a.c', stdin=file).raw == b'hello'


def test_a_pipe_is_no_source(small):
    with subprocess.Popen(['cat', small], stdout=subprocess.PIPE) as pipe:
        weightfs('ls', '-', stdin=pipe.stdout, code=EXIT_SOURCE)


@pytest.mark.parametrize('verb', VERBS)
def test_help_is_on_stdout_and_fits_a_terminal(verb):
    text = weightfs(verb, '--help').stdout
    assert text.startswith('usage: weightfs %s' % verb)
    assert max(map(len, text.splitlines())) <= 80


def test_general_help_names_every_verb():
    text = weightfs('--help').stdout
    assert max(map(len, text.splitlines())) <= 80
    for verb in VERBS:
        assert '  %s ' % verb in text


def test_version_names_program_and_library():
    text = weightfs('--version').stdout
    assert text.startswith('weightfs 0.') and 'libfuse' in text


@pytest.mark.parametrize('words', [
    [], ['--nonsense'], ['ls'], ['ls', '--nonsense', 'x'], ['cat', 'x'], ['convert', 'x'],
    ['ls', '--limit'], ['ls', '--json=1', 'x'], ['commit'], ['status', '--edits'], ['umount', 'a', 'b'],
])
def test_wrong_usage_is_exit_code_2(words):
    weightfs(*words, code=EXIT_USAGE)


@pytest.mark.parametrize('limit', ['nonsense=1', 'tensors', 'tensors=', 'tensors=x', 'tensors=-1', 'tensors=99999999999999999999'])
def test_a_wrong_limit_is_exit_code_2(small, limit):
    weightfs('ls', '--limit', limit, small, code=EXIT_USAGE)


@pytest.mark.parametrize('words, said', [
    ([], 'missing VERB or SOURCE'), (['lss', 'SMALL'], "did you mean 'ls'"), (['xyzzy'], "no verb 'xyzzy'"),
    (['ls', '-s', 'SMALL'], "'--sort'"), (['convert', '--overwite', 'a', 'b'], "'--overwrite'"), (['convert', '--max_shrd_size=1', 'a', 'b'], "'--max-shard-size'"),
    (['lss'], "no verb 'lss'"), (['help', 'lss'], "no verb 'lss'"),
    (['cat', 'SMALL'], 'missing KEY; usage: weightfs cat SOURCE KEY'), (['diff', 'SMALL'], 'missing B; usage: weightfs diff A B'),
    (['ls', '--limit', 'SMALL'], 'NAME=N'), (['convert', '--ties=x', 'SMALL', 'y'], "'copy' or 'drop'"),
    (['convert', '--format=torch', 'SMALL', 'y'], 'burnpack, safetensors, pytorch')])
def test_a_mistake_is_answered_with_what_is_expected(small, words, said):
    assert said in weightfs(*[str(small) if word == 'SMALL' else word for word in words], code=EXIT_USAGE).error


def test_help_is_a_verb(small):
    assert weightfs('help').stdout == weightfs('--help').stdout
    assert weightfs('help', 'ls').stdout == weightfs('ls', '--help').stdout


def test_reading_what_is_cut_off_fails_and_the_rest_is_right(folder):
    path = st.write(folder / 'x', {'a': ('F32', [4], st.f32(1, 2, 3, 4)), 'b': ('U8', [8], b'01234567')})
    with open(path, 'r+b') as file:
        file.truncate(os.path.getsize(path) - 4)
    assert str(os.path.getsize(path)) in weightfs('ls', path, code=EXIT_DAMAGED).error
    assert [row[0] for row in rows(weightfs('ls', '--force', path).stdout)] == ['a', 'b']
    assert weightfs('cat', '--force', path, 'a').raw == st.f32(1, 2, 3, 4)
    weightfs('cat', '--force', path, 'b', code=EXIT_DAMAGED)
    assert 'high: ' in weightfs('check', '--force', path, code=1).stdout


def test_the_program_does_not_follow_a_descriptor_that_is_closed(small):
    done = subprocess.run(['/bin/sh', '-c', '"$@" >&- 2>&1', 'sh', *program.COMMAND, 'ls', small],
                          stdout=subprocess.DEVNULL, timeout=program.PATIENCE, check=False)
    assert done.returncode > 0
    assert st.read(small).tensors['a.c'][2] == b'hello'


def test_header_length_is_compared_before_anything_is_read(folder):
    path = folder / 'x'
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', 99999999) + b'{"')
        file.truncate(1 << 20)
    assert 'the header ends at byte' in weightfs('ls', path, code=EXIT_DAMAGED).error


@pytest.mark.parametrize('options', [[], ['--cast=a:F16'], ['--rename', 'a', 'x']], ids=' '.join)
def test_npy_f32_widens_every_float_that_numpy_lacks(folder, options):
    values = {'a.e4m3': ('F8_E4M3', b'\x38\x40\x00\xb8', [1, 2, 0, -1]), 'a.e5m2': ('F8_E5M2', b'\x3c\x40\xbc', [1, 2, -1]), 'b': ('BF16', b'\x80\x3f\x00\xc0', [1, -2]),
              'h': ('F16', b'\x00\x3c', [1]), 'd': ('F64', numpy.float64(1 / 3).tobytes(), [1 / 3]), 'i': ('I8', b'\xff', [-1])}
    path = st.write(folder / 'm.safetensors', {key: (dtype, [len(array)], data) for key, (dtype, data, array) in values.items()})
    weightfs('extract', '--npy=f32', *options, path, '*', '-d', folder / 'out')
    for key, (dtype, _, expected) in values.items():
        name = key.replace('a.', 'x.') if '--rename' in options else key
        array = numpy.load(folder / 'out' / (name.replace('.', '/') + '.npy'))
        assert array.dtype == {'F64': '<f8', 'I8': '|i1'}.get(dtype, '<f4') and array.tolist() == expected, key
        assert weightfs('cat', '--npy=f32', *options, path, name).raw == (folder / 'out' / (name.replace('.', '/') + '.npy')).read_bytes()


def test_npy_f32_leaves_what_has_no_value_of_its_own(folder):
    """Codes with scales stay as they are, for which nothing else is refused; elements of 4 bits are widened."""
    path = st.write(folder / 'm.safetensors', {'l.weight': ('F8_E4M3', [2], b'\x38\x40'), 'l.weight_scale_inv': ('F32', [1], st.f32(2)),
                                               'f': ('F4', [2], b'\x12'), 'b': ('BF16', [1], b'\x80\x3f')})
    found = weightfs('extract', '--npy=f32', path, '*', '-d', folder / 'out', has_notices=True)
    assert "compute with the elements of 1 file ('<V2', '|V1')\n" in found.stdout and 'l.weight: a cast does not apply scales' in found.error
    assert numpy.load(folder / 'out' / 'b.npy').tolist() == [1] and numpy.load(folder / 'out' / 'f.npy').tolist() == [1, 0.5]
    assert numpy.load(folder / 'out' / 'l' / 'weight.npy').tobytes() == b'\x38\x40'
    assert weightfs('cat', '--npy=f32', path, 'b', has_notices=True).raw == (folder / 'out' / 'b.npy').read_bytes()


@pytest.mark.parametrize('dtype', ['F8_E4M3', 'F64'])
def test_npy_f32_takes_any_number_of_tensors(folder, dtype):
    data = {'F8_E4M3': b'\x38', 'F64': numpy.float64(1).tobytes()}[dtype]
    path = st.write(folder / 'm.safetensors', {'model.layers.%d.mlp.experts.down_proj.weight' % i: (dtype, [1], data) for i in range(2000)})
    assert weightfs('cat', '--npy=f32', path, 'model.layers.7.mlp.experts.down_proj.weight').raw.endswith(
        {'F8_E4M3': numpy.float32(1).tobytes(), 'F64': data}[dtype])


def test_npy_f32_keeps_the_integers_of_a_cast(folder):
    path = st.write(folder / 'm.safetensors', {'a': ('F32', [2], st.f32(1.5, -2.25))})
    assert weightfs('cat', '--npy=f32', '--cast=a:I8', path, 'a').raw == weightfs('cat', '--npy', '--cast=a:I8', path, 'a').raw
