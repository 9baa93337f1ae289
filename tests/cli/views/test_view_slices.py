# SPDX-License-Identifier: MIT
"""`slice` and `split` with sizes, beside numpy."""
import numpy
import pytest

from wfs_testlib import st
from wfs_testlib.program import weightfs

WHOLE = numpy.arange(12 * 5 * 4, dtype='<f4').reshape(12, 5, 4)


@pytest.fixture
def source(memory):
    return st.write(memory / 'in.safetensors', {'a.w': ('F32', [12, 5, 4], WHOLE.tobytes()), 'b': ('F32', [1], st.f32(7))})


def converted(memory, source, *options):
    weightfs('convert', *options, source, memory / 'out.safetensors', '--overwrite', has_notices=True)
    return {key: numpy.frombuffer(data, '<f4').reshape(shape) for key, (_, shape, data) in st.read(memory / 'out.safetensors').tensors.items()}


@pytest.mark.parametrize('text,index', [
    ('2:7', numpy.s_[2:7]), (':,1:3', numpy.s_[:, 1:3]), ('-4:,:,2', numpy.s_[-4:, :, 2:3]), ('0:0', numpy.s_[0:0]), (':', numpy.s_[:]),
    ('11,4,3', numpy.s_[11:12, 4:5, 3:4]), ('-1', numpy.s_[-1:]), (':-10,:-1,1:', numpy.s_[:-10, :-1, 1:])])
def test_a_part_as_numpy_takes_it(memory, source, text, index):
    found = converted(memory, source, '--slice=^a:' + text)
    assert numpy.array_equal(found['a.w'], WHOLE[index]) and found['b'][0] == 7


def test_a_part_of_what_is_turned_and_cast(memory, source):
    found = converted(memory, source, '--permute=^a:2,0,1', '--slice=^a:1:3,4:9', '--slice=^a:0:1')
    assert numpy.array_equal(found['a.w'], WHOLE.transpose(2, 0, 1)[1:3, 4:9][0:1])


def test_parts_of_other_sizes(memory, source):
    found = converted(memory, source, '--split=^a:q=4,k=1,v=1')
    assert [found[key].shape[0] for key in ('q.w', 'k.w', 'v.w')] == [8, 2, 2]
    assert numpy.array_equal(numpy.concatenate([found['q.w'], found['k.w'], found['v.w']]), WHOLE)


@pytest.mark.parametrize('option,text', [
    ('slice=^a:13', "'13' is not a range of dimension 0"), ('slice=^a:5:2', "'5:2' is not a range of dimension 0"), ('slice=^a:x', "'x' is not a range"),
    ('slice=^a:0,0,0,0', 'is for more dimensions than it has'), ('slice=^a:0:9223372036854775807', 'is not a range of dimension 0'),
    ('split=^a:q=4,k=1', '12 is not divisible into 5 equal parts'), ('split=^a:q=4,k', 'some parts have a size, others none'),
    ('split=^a:q=0,k=1', "'0' is not the size of a part"), ('split=^a:q=1x,k=1', "'1x' is not the size of a part")])
def test_what_does_not_fit(source, option, text):
    assert text in weightfs('ls', '--' + option, source, code=7).error
