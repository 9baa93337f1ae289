# SPDX-License-Identifier: MIT
"""Sums of tensors, and manifests of them: hashlib and libxxhash say what they are."""
import ctypes
import hashlib
import json
import os
import random

import numpy
import pytest

from wfs_testlib import checkpoints, program, pth, st, terminal
from wfs_testlib.program import (EXIT_DAMAGED, EXIT_FOUND, EXIT_RULES, EXIT_SOURCE, EXIT_UNSUPPORTED, EXIT_USAGE, SAMPLE, weightfs)

ODD = ['a b', ' ', 'tab\there', 'line\nbreak', 'back\\x20slash', '\\', '#', '# weightfs sum x', "q'u\"ote", 'größe.\u5c42', '\u202eright', 'esc\x1b[31m', 'k' * 3000,
       'a_component_that_is_long.' * 12 + 'weight', 'x  y ']
WIDTHS = [40, 80, 200]


def xxh3(data):
    function = ctypes.CDLL('libxxhash.so.0').XXH3_64bits
    function.restype, function.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    return '%016x' % function(data, len(data))


def some_tensors(keys, seed=0):
    numbers = random.Random(seed)
    kinds = [('F32', [2, 3], 24), ('BF16', [5], 10), ('I64', [], 8), ('U8', [0, 4], 0), ('F16', [3, 1, 2], 12)]
    return {key: (*kinds[i % 5][:2], numbers.randbytes(kinds[i % 5][2])) for i, key in enumerate(keys)}


def expected(tensors):
    return [{'key': key, 'dtype': dtype, 'shape': shape, 'bytes': len(data), 'sha256': hashlib.sha256(data).hexdigest(), 'xxh3': xxh3(data)}
            for key, (dtype, shape, data) in tensors.items()]


def sums(path, *options):
    return json.loads(weightfs('sum', '--json', *options, path).stdout)['sources'][0]['tensors']


def manifest(folder, *sources, name='sums', **more):
    text = weightfs('sum', *sources, **more).stdout
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture
def odd(folder):
    return st.write(folder / 'odd.safetensors', some_tensors(ODD))


def test_sums_are_those_of_hashlib_and_xxhash(odd):
    assert sums(odd) == expected(st.read(odd).tensors)
    assert sums(SAMPLE) == expected(st.read(SAMPLE).tensors)


def test_a_line_has_the_fields_with_tabs(folder):
    path = st.write(folder / 'a b', {'w x': ('F32', [2, 3], bytes(24)), '': ('U8', [], b'x')})
    zeros, x = hashlib.sha256(bytes(24)).hexdigest(), hashlib.sha256(b'x').hexdigest()
    assert weightfs('sum', path).stdout.splitlines() == [
        '# weightfs sum ' + str(path).replace(' ', '\\x20'), '%s\t%s\tF32\t[2, 3]\tw\\x20x' % (zeros, xxh3(bytes(24))), '%s\t%s\tU8\t[]\t' % (x, xxh3(b'x'))]


def test_equal_tensors_have_equal_sums_in_all_formats(folder):
    tensors = some_tensors(['encoder.%d.w' % i for i in range(12)])
    paths = [checkpoints.write(folder / ('m.' + ending), tensors) for ending in checkpoints.ENDINGS]
    weightfs('convert', paths[0], folder / 'again.mpk')
    weightfs('convert', '--format=dcp', paths[0], folder / 'dcp')
    lines = [sorted(weightfs('sum', path).stdout.splitlines()[1:]) for path in [*paths, folder / 'dcp']]
    assert all(some == lines[0] for some in lines) and len(lines[0]) == 12
    made = manifest(folder, paths[0])
    for path in [*paths, folder / 'dcp', folder / 'again.mpk']:
        assert weightfs('sum', '--check', made, path).stdout == '12 equal, 0 different, 0 missing, 0 not in the manifest\n'


def test_sums_are_of_what_the_view_shows(folder):
    array = numpy.arange(12, dtype='<f4').reshape(3, 4)
    path = st.write(folder / 'm.safetensors', {'w': ('F32', [3, 4], array.tobytes())})
    shown = sums(path, '--rename', 'w', 'v', '--cast=F64', '--transpose', '^v$')
    assert shown == expected({'v': ('F64', [4, 3], array.T.astype('<f8').tobytes())})


def test_strided_elements_are_in_the_order_that_is_shown(folder):
    array = numpy.arange(6, dtype='<f4')
    path = folder / 'm.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(t=pth.tensor(pth.storage(numel=6), size=(2, 3), stride=(1, 2))), r0=array.tobytes()))
    assert sums(path) == expected({'t': ('F32', [2, 3], numpy.ascontiguousarray(array.reshape(3, 2).T).tobytes())})


# ---- checking ----

@pytest.mark.parametrize('columns', WIDTHS)
def test_a_terminal_gets_a_table_with_the_first_digits(odd, folder, columns):
    screen = terminal.screen('sum', odd, columns=columns)
    assert all(terminal.width(line) <= columns for line in screen.lines)
    assert screen.lines[0].split()[:2] == ['key', 'SHA-256']
    lines = [line.split('\t') for line in weightfs('sum', odd).stdout.splitlines()[1:]]
    for digest, xxh3, *_ in lines:
        assert screen.text.count(' %s' % digest[:12]) == sum(line[0] == digest for line in lines) and digest[:13] not in screen.text
        assert 'XXH3' not in screen.lines[0] or xxh3[:12] in screen.text
    several = terminal.screen('sum', odd, odd, columns=500).text
    assert several.count('%s:\n' % odd) == 2
    (folder / 'pasted').write_text(weightfs('sum', odd).stdout)
    screen = terminal.screen('sum', '--check', folder / 'pasted', odd, columns=columns)
    assert all(terminal.width(line) <= columns for line in screen.lines)


def test_a_manifest_comes_from_a_pipe_and_with_other_line_ends(odd, folder):
    made = manifest(folder, odd)
    with open(made, 'rb') as file:
        weightfs('sum', '--check', '-', odd, stdin=file)
    (folder / 'dos').write_bytes(made.read_bytes().replace(b'\n', b'\r\n'))
    weightfs('sum', '--check', folder / 'dos', odd)
    (folder / 'loose').write_text('\n'.join(['# of a friend', '', *[line.upper()[:82] + line[82:] for line in made.read_text().splitlines()[1:]]]))
    weightfs('sum', '--check', folder / 'loose', odd)
    assert 'does not name the source of its lines' in weightfs('sum', '--check', folder / 'loose', code=EXIT_USAGE).error


def test_each_difference_is_a_line(folder):
    tensors = some_tensors(['same', 'bits', 'kind', 'shape', 'both', 'gone\n'])
    one = st.write(folder / 'one.safetensors', tensors)
    kinds = {**tensors, 'new x': ('U8', [1], b'x'), 'bits': ('BF16', [5], tensors['bits'][2][:-1] + bytes([tensors['bits'][2][-1] ^ 1])),
             'kind': ('F64', [], tensors['kind'][2]), 'shape': ('U8', [4, 0], b''), 'both': ('F16', [6], bytes(12))}
    del kinds['gone\n']
    two = checkpoints.write(folder / 'two.pth', kinds)
    made = manifest(folder, one)
    checked = weightfs('sum', '--check', made, two, code=EXIT_FOUND)
    assert sorted(checked.stdout.splitlines()) == sorted([
        'bits: its content differs', 'kind: is F64 [], not I64 []', 'shape: is U8 [4, 0], not U8 [0,4]', 'both: is F16 [6], not F16 [3,1,2]; its content differs',
        'new x: is not in the manifest', 'gone\\x0a: is missing', '1 equal, 4 different, 1 missing, 1 not in the manifest'])
    assert checked.stdout.endswith('1 equal, 4 different, 1 missing, 1 not in the manifest\n')


@pytest.mark.parametrize('field', [0, 1])
def test_each_sum_counts(small, folder, field):
    lines = manifest(folder, small).read_text().splitlines()
    fields = lines[2].split('\t')
    fields[field] = ('0' if fields[field][0] != '0' else '1') + fields[field][1:]
    (folder / 'changed').write_text('\n'.join([*lines[:2], '\t'.join(fields), *lines[3:]]))
    assert weightfs('sum', '--check', folder / 'changed', small, code=EXIT_FOUND).stdout.splitlines() == [
        fields[4] + ': its content differs', '4 equal, 1 different, 0 missing, 0 not in the manifest']


def test_every_flipped_bit_of_the_data_is_found(folder):
    path = st.write(folder / 'm.safetensors', some_tensors(['a', 'b', 'c']))
    made, whole = manifest(folder, path), path.read_bytes()
    for at in range(len(whole) - 42, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1:])
        assert 'its content differs\n2 equal, 1 different' in weightfs('sum', '--check', made, path, code=EXIT_FOUND).stdout


def test_several_sources(folder):
    one, two = (st.write(folder / name, some_tensors(['a', 'b'], seed)) for seed, name in enumerate(('one', 'two')))
    made = manifest(folder, one, two)
    assert weightfs('sum', '--check', made).stdout.splitlines() == ['%s: 2 equal, 0 different, 0 missing, 0 not in the manifest' % path for path in (one, two)]
    assert weightfs('sum', '--check', made, two).stdout == '2 equal, 0 different, 0 missing, 0 not in the manifest\n'
    copy = folder / 'three'
    copy.write_bytes(two.read_bytes())
    assert "it has the sums of 2 sources, and none is called '%s'" % copy in weightfs('sum', '--check', made, copy, code=EXIT_RULES).error
    two.write_bytes(one.read_bytes())
    assert weightfs('sum', '--check', made, code=EXIT_FOUND).stdout.splitlines() == [
        '%s: 2 equal, 0 different, 0 missing, 0 not in the manifest' % one, '%s: a: its content differs' % two, '%s: b: its content differs' % two,
        '%s: 0 equal, 2 different, 0 missing, 0 not in the manifest' % two]
    two.unlink()
    failed = weightfs('sum', '--check', made, code=EXIT_SOURCE)
    assert failed.stdout.splitlines() == ['%s: 2 equal, 0 different, 0 missing, 0 not in the manifest' % one] and str(two) in failed.error
    assert weightfs('sum', two, one, code=EXIT_SOURCE).stdout.splitlines()[0] == '# weightfs sum %s' % one


def test_a_part_of_a_source_is_chosen_by_a_filter(small, folder):
    (folder / 'part').write_text(''.join(line + '\n' for line in weightfs('sum', small).stdout.splitlines() if 'a.b' in line))
    assert '2 equal, 0 different, 0 missing, 3 not in' in weightfs('sum', '--check', folder / 'part', small, code=EXIT_FOUND).stdout
    weightfs('sum', '--check', folder / 'part', '--include=^a.b', small)


SHA, XXH = 'ab' * 32, 'cd' * 8


@pytest.mark.parametrize('text, said', [
    ('', "it has no line that 'weightfs sum' prints"), ('# only a comment\n', "it has no line"), ('hello\n', 'line 1: expected 64 hexadecimal digits'),
    ('\n\n' + SHA + '  model.bin\n', 'line 3: expected 16 hexadecimal digits after the first 64'), (SHA[:-1], 'line 1: expected 64'), (SHA, 'line 1: expected 64'),
    (SHA + 'a ' + XXH + ' F32 [2] w', 'line 1: expected 64'), (SHA + ' ' + XXH + '0 F32 [2] w', 'line 1: expected 16'), (SHA + ' ' + XXH, 'line 1: expected 16'),
    (SHA + ' ' + XXH + ' ', 'expected a dtype'), (SHA + ' ' + XXH + ' [2] w', 'expected a dtype'), (SHA + ' ' + XXH + ' F32[2] w', 'expected a dtype'),
    (SHA + ' ' + XXH + ' F32 [2', 'expected a key'), (SHA + ' ' + XXH + ' F32 [2]', 'expected a key'), (SHA + ' ' + XXH + ' F32 [2]w', 'expected a key'),
    (2 * ('# x\n' + SHA + ' ' + XXH + ' F32 [2] w\n'), "duplicate key in lines 2 and 4: 'w'"), (SHA + '\0', 'it contains a NUL')])
def test_what_is_no_manifest_is_refused(small, folder, text, said):
    (folder / 'm').write_text(text)
    assert said in weightfs('sum', '--check', folder / 'm', small, code=EXIT_DAMAGED).error


def test_wrong_usage(small, folder):
    assert 'missing SOURCE; usage: weightfs sum SOURCE...' in weightfs('sum', code=EXIT_USAGE).error
    weightfs('sum', '--json', '--check', small, small, code=EXIT_USAGE)
    weightfs('sum', '--check', folder / 'none', small, code=EXIT_SOURCE)
    weightfs('sum', '--check', folder, small, code=EXIT_SOURCE)


# ---- reading ----

def test_a_source_that_cannot_be_read_is_an_error(folder):
    path = st.write(folder / 'm.safetensors', some_tensors(['k%d' % i for i in range(50)]))
    made = manifest(folder, path)
    with open(path, 'r+b') as file:
        file.truncate(os.path.getsize(path) - 4)
    failed = weightfs('sum', '--force', path, code=EXIT_DAMAGED)
    assert failed.error.startswith("%s: tensor 'k9': " % path)
    assert failed.stdout.splitlines() == [line for line in made.read_text().splitlines() if not line.endswith('\tk9')]
    checked = weightfs('sum', '--force', '--check', made, path, code=EXIT_DAMAGED)
    assert "tensor 'k9'" in checked.error and checked.stdout == '49 equal, 1 different, 0 missing, 0 not in the manifest\n'


def n_read():
    """How many bytes this process and its children that have ended have read."""
    return next(int(line.split()[1]) for line in open('/proc/self/io', encoding='ascii') if line.startswith('rchar'))


@pytest.mark.skipif(program.IS_INSTRUMENTED, reason='more is read')
def test_the_file_is_read_once(folder):
    n = 4 << 20
    path = folder / 'm.pth'
    tied = pth.tensor(pth.storage(numel=n // 4), size=(n // 4,))
    path.write_bytes(pth.checkpoint(pth.dictionary(**{'w%d' % i: tied for i in range(10)}), r0=random.Random(1).randbytes(n)))
    before = n_read()
    weightfs('sum', path)
    assert n <= n_read() - before < 1.5 * n


def test_few_bytes_that_show_terabytes_are_refused(folder):
    path = folder / 'm.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(pth.storage(numel=4), size=(1 << 40, 4), stride=(0, 1))), r0=bytes(16)))
    assert 'takes as long as 17592186044480 bytes, in files of %d bytes;' % path.stat().st_size in weightfs('sum', path, code=EXIT_UNSUPPORTED).error
    path.write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(pth.storage(numel=4), size=(20 << 20, 4), stride=(0, 1))), r0=bytes(16)))
    weightfs('sum', path, code=EXIT_UNSUPPORTED)
    assert hashlib.sha256(bytes(320 << 20)).hexdigest() in weightfs('sum', '--large', path).stdout


def test_many_tensors_are_in_the_order_of_the_file(folder):
    tensors = some_tensors(['k%d' % i for i in range(3000)])
    path = st.write(folder / 'm.safetensors', tensors)
    assert sums(path) == expected(st.read(path).tensors)
