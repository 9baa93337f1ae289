# SPDX-License-Identifier: MIT
"""What `check --values` says of the elements: where the first NaN and the first infinity are, and which tensors hold one number."""
import json

import numpy
import pytest

from wfs_testlib import st
from wfs_testlib.program import EXIT_FOUND, weightfs

KINDS = {'F32': '<f4', 'F64': '<f8', 'F16': '<f2'}


def findings(path, code=EXIT_FOUND):
    return weightfs('check', '--values', path, code=code).stdout.splitlines()


@pytest.mark.parametrize('dtype', KINDS)
@pytest.mark.parametrize('value, what', [(numpy.nan, 'NaN'), (numpy.inf, 'infinite'), (-numpy.inf, 'infinite')])
@pytest.mark.parametrize('at', [(0, 0, 0), (1, 2, 3), (2, 199, 299), (1, 0, 0)])
def test_the_first_is_named(folder, dtype, value, what, at):
    array = (numpy.arange(3 * 200 * 300) % 7).reshape(3, 200, 300).astype(KINDS[dtype])
    array[at] = value
    array[2, 199, 299] = value
    n = len({at, (2, 199, 299)})
    path = st.write(folder / 'x.safetensors', {'w': (dtype, list(array.shape), array.tobytes())})
    assert findings(path)[-1] == "medium: tensor 'w': %d of 180000 elements %s %s, first at [%d, %d, %d]" % (n, 'is' if n == 1 else 'are', what, *at)


def test_bytes_of_one_row_that_are_shown_transposed(folder):
    array = numpy.zeros((3, 5), '<f4')
    array[1, 4] = numpy.nan
    path = st.write(folder / 'x.safetensors', {'w': ('F32', [3, 5], array.tobytes())})
    assert 'first at [4, 1]' in weightfs('check', '--values', '--transpose=w', path, code=EXIT_FOUND).stdout


def test_a_scalar_has_no_place(folder):
    path = st.write(folder / 'x.safetensors', {'w': ('F32', [], numpy.float32(numpy.inf).tobytes())})
    assert findings(path)[-1] == "medium: tensor 'w': 1 of 1 element is infinite"


def test_tensors_of_one_number_are_listed(folder):
    arrays = {'zero.%d' % i: numpy.zeros(4, '<f4') for i in range(5)}
    arrays.update(minus=-numpy.zeros(3, '<f4'), ones=numpy.ones(4, '<f4'), mixed=numpy.arange(2, dtype='<f4'), single=numpy.zeros(1, '<f4'))
    path = st.write(folder / 'x.safetensors', {key: ('F32', list(array.shape), array.tobytes()) for key, array in arrays.items()})
    lines = [line for line in findings(path, code=None) if line.startswith('info: ') and 'tensor' in line]
    assert lines == ["info: 6 tensors have only zeros: 'minus', 'zero.0', 'zero.1' and 3 more", "info: 1 tensor has the same number in all elements: 'ones'"]


def test_json_counts_what_was_looked_at(folder):
    path = st.write(folder / 'x.safetensors', {'a': ('F32', [2], bytes(8)), 'b': ('I64', [1], bytes(8)), 'c': ('C64', [1], bytes(8))})
    one = json.loads(weightfs('check', '--values', '--json', path, code=None).stdout)['sources'][0]
    assert (one['n_looked_at'], one['n_elems_looked_at']) == (3, 4)
    assert 'n_looked_at' not in json.loads(weightfs('check', '--json', path, code=None).stdout)['sources'][0]
