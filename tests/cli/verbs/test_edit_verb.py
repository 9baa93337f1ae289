# SPDX-License-Identifier: MIT
"""weightfs edit: what the output is, by an independent reader, and what is said of mistakes. tests/mount compares it with a mount."""
import os

import numpy
import pytest

from wfs_testlib import pth, pth_read, st
from wfs_testlib.program import EXIT_RULES, EXIT_USAGE, weightfs


@pytest.fixture
def out(folder):
    return folder / 'out.safetensors'


@pytest.fixture
def array(folder):
    numpy.save(folder / 'x.npy', numpy.arange(6, dtype='<i2').reshape(3, 2))
    return folder / 'x.npy'


def test_everything_at_once(small, out, array):
    weightfs('edit', small, out, '--rename', 'a.b', 'm', '--remove', 'n*', '--add', 'new.x=%s' % array, '--replace', 'a.c=%s' % array,
             '--set', 'm.weight.shape=6', '--set', 'step.dtype=F64', '--set-metadata', 'by=me=you', '--remove-metadata', 'format')
    content = st.read(out)
    tensors = {key: (dtype, shape, data) for key, (dtype, shape, data) in content.tensors.items()}
    expected = numpy.arange(6, dtype='<i2').tobytes()
    assert tensors == {'m.weight': ('F32', [6], st.f32(1, 2, 3, 4, 5, 6)), 'm.bias': ('F32', [3], st.f32(7, 8, 9)), 'a.c': ('I16', [3, 2], expected),
                       'new.x': ('I16', [3, 2], expected), 'step': ('F64', [], (42).to_bytes(8, 'little'))}
    assert content.metadata == {'by': 'me=you'}


def test_in_place(small, array):
    before = small.read_bytes()
    assert 'would overwrite the source (use --overwrite' in weightfs('edit', small, small, '--remove', 'step', code=9).error
    assert small.read_bytes() == before
    weightfs('edit', small, small, '--remove', 'step', '--overwrite')
    assert 'step' not in st.read(small).tensors and len(st.read(small).tensors) == 4


@pytest.mark.parametrize('name', ['blob', 'model.bin', 'model.pth', 'x.txt'])
def test_in_place_keeps_the_format_whatever_the_name_is(small, folder, name):
    path = small.rename(folder / name)
    weightfs('edit', path, path, '--remove', 'step', '--overwrite')
    assert sorted(st.read(path).tensors) == ['a.b.bias', 'a.b.weight', 'a.c', 'none']


def test_a_failure_changes_nothing(small):
    before = small.read_bytes(), sorted(os.listdir(small.parent))
    weightfs('edit', small, small, '--overwrite', '--set', 'step.dtype=C128', code=EXIT_RULES)
    assert (small.read_bytes(), sorted(os.listdir(small.parent))) == before


def test_values(folder):
    source, out = folder / 'in.pth', folder / 'out.pth'
    source.write_bytes(pth.checkpoint(pth.dictionary(epoch=pth.number(3), name=pth.text('a'), w=pth.tensor()), r0=st.f32(1, 2, 3, 4)))
    weightfs('edit', source, out, '--set-value', 'epoch=4', '--set-value', 'more={"x": [1, null]}', '--remove', 'name')
    result = pth_read.load(out)
    assert result['epoch'] == 4 and result['more'] == {'x': [1, None]} and 'name' not in result and 'w' in result


def test_keys_with_an_equals_sign(folder, out, array):
    source = st.write(folder / 'in.safetensors', {'a=b': ('U8', [4], b'1234')})
    weightfs('edit', source, out, '--set', 'a\\x3db.shape=2,2', '--add', 'c\\x3dd=%s' % array)
    assert {key: shape for key, (_, shape, _) in st.read(out).tensors.items()} == {'a=b': [2, 2], 'c=d': [3, 2]}


@pytest.mark.parametrize('value, shape', [('5', [5]), ('1,5', [1, 5]), ('[5, 1]', [5, 1]), ('[5]', [5])])
def test_shapes(small, out, value, shape):
    weightfs('edit', small, out, '--set', 'a.c.shape=' + value)
    assert st.read(out).tensors['a.c'][1] == shape


def test_a_scalar(folder, out):
    source = st.write(folder / 'in.safetensors', {'w': ('F32', [1], bytes(4))})
    weightfs('edit', source, out, '--set', 'w.shape=')
    assert st.read(out).tensors['w'] == ('F32', [], bytes(4))


def test_bfloat16_through_numpy(folder, out):
    source = st.write(folder / 'in.safetensors', {'w': ('BF16', [2], b'abcd')})
    numpy.save(folder / 'x.npy', numpy.frombuffer(b'abcdefgh', '<V2').reshape(2, 2))
    weightfs('edit', source, out, '--replace', 'w=%s' % (folder / 'x.npy'))
    assert st.read(out).tensors['w'] == ('BF16', [2, 2], b'abcdefgh')
    assert 'numpy has no name for its dtype' in weightfs('edit', source, folder / 'no.safetensors', '--add', 'n=%s' % (folder / 'x.npy'), code=None).error


@pytest.mark.parametrize('options, code, message', [
    (['--remove', 'stepp'], EXIT_RULES, "no key matches 'stepp'; did you mean 'step'?"),
    (['--replace', 'stepp=X'], EXIT_RULES, "no tensor 'stepp'; did you mean 'step'?"),
    (['--add', 'step=X'], EXIT_RULES, "tensor 'step' exists: it can be replaced, but not added"),
    (['--set', 'stepp.dtype=F64'], EXIT_RULES, "no tensor 'stepp'; did you mean 'step'?"),
    (['--set', 'step.dtype=F65'], EXIT_USAGE, "no dtype 'F65'"),
    (['--set', 'step.colour=1'], EXIT_USAGE, "'colour' cannot be set; dtype, shape and param_id can"),
    (['--set', 'step=1'], EXIT_USAGE, "expected KEY.dtype, KEY.shape or KEY.param_id"),
    (['--set', 'step.shape=2,,3'], EXIT_USAGE, "'2,,3' is not a shape"),
    (['--set', 'step.shape=-1'], EXIT_USAGE, "'-1' is not a shape"),
    (['--set', 'step.shape=2,'], EXIT_USAGE, "'2,' is not a shape"),
    (['--set', 'step.shape=99999999999999999999'], EXIT_USAGE, 'is not a shape'),
    (['--set', 'a.c.shape=6'], EXIT_RULES, "tensor 'a.c' has 5 bytes, which do not make U8 [6]"),
    (['--set', 'step.dtype'], EXIT_USAGE, "--set 'step.dtype': expected KEY.NAME=TEXT"),
    (['--add', 'n'], EXIT_USAGE, "--add 'n': expected KEY=VALUE"),
    (['--add', 'n='], EXIT_USAGE, 'expected a .npy file'),
    (['--add', 'n=missing.npy'], 3, "'missing.npy'"),
    (['--remove', 'step', '--set', 'step.dtype=F64'], EXIT_RULES, "'step' is edited twice"),
    (['--remove', 'step', '--replace', 'step=X'], EXIT_RULES, "'step' is edited twice"),
    (['--add', 'n=X', '--add', 'n=X'], EXIT_RULES, "'n' is edited twice"),
    (['--set-metadata', 'by=1', '--set-metadata', 'by=2'], EXIT_RULES, "'by' is edited twice"),
    (['--remove-metadata', 'bye'], EXIT_RULES, "no metadata 'bye'"),
    (['--rename', 'nothing', 'x'], None, 'nothing'),
])
def test_mistakes(small, folder, array, monkeypatch, options, code, message):
    monkeypatch.chdir(folder)
    done = weightfs('edit', small, 'out.safetensors', *[option.replace('=X', '=%s' % array) for option in options], code=code, has_notices=True)
    assert message in done.stderr
    if code is not None:
        assert not (folder / 'out.safetensors').exists()


@pytest.mark.parametrize('content', [b'', b'\x93NUMPY', b'not one', b'\x93NUMPY\x01\x00\x10\x00{            }\n'])
def test_files_that_are_not_npy(small, folder, out, content):
    (folder / 'x.npy').write_bytes(content)
    assert 'x.npy' in weightfs('edit', small, out, '--add', 'n=%s' % (folder / 'x.npy'), code=None).error
    assert not out.exists()


def test_arrays_that_a_tensor_cannot_be(small, folder, out):
    for array in (numpy.asfortranarray(numpy.zeros((2, 3))), numpy.zeros(2, '>f4'), numpy.array(['text'])):
        numpy.save(folder / 'x.npy', array)
        assert 'x.npy' in weightfs('edit', small, out, '--add', 'n=%s' % (folder / 'x.npy'), code=None).error
    with open(folder / 'x.npy', 'wb') as file:
        numpy.save(file, numpy.zeros(4, '<f4'))
        file.truncate(file.tell() - 1)
    assert 'its header does not describe the 15 bytes' in weightfs('edit', small, out, '--add', 'n=%s' % (folder / 'x.npy'), code=None).error
    assert not out.exists()


def test_a_private_array_makes_a_private_output(small, out, array):
    array.chmod(0o600)
    weightfs('edit', small, out, '--add', 'n=%s' % array)
    assert out.stat().st_mode & 0o077 == 0


def test_without_edits_it_is_a_conversion(small, out):
    weightfs('edit', small, out)
    assert out.read_bytes() == small.read_bytes()
