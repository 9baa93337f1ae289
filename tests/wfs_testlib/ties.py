# SPDX-License-Identifier: MIT
"""Checkpoints with tied tensors, spelled in each way that PyTorch's files have for it, and what a sequence of edits makes of them: a cell for
each content, and the names that lead to it."""
import itertools

from wfs_testlib import pth, st

TIED, HALF, OTHER = st.f32(1, 2, 3, 4), st.f32(1, 2), st.f32(5, 6, 7, 8)
MEMO = 90


def _first():
    return pth.tensor() + pth.put(MEMO)


def _again():
    return pth.get(MEMO)


def _other():
    return pth.tensor(pth.storage('1'))


def _parameter(of):
    return pth.call(pth.name('torch._utils', '_rebuild_parameter'), of, b'\x88', pth.ORDERED)


def _zip(value):
    return pth.checkpoint(value, r0=TIED, r1=OTHER)


def _one_tensor():
    return _zip(pth.dictionary(a=_first(), v=_again(), w=_again(), b=_other()))


def _views_of_one_range():
    return _zip(pth.dictionary(a=pth.tensor(), v=pth.tensor(), w=pth.tensor(), b=_other()))


def _views_of_several_ranges():
    return _zip(pth.dictionary(a=pth.tensor(), v=pth.tensor(size=(2,)), w=pth.tensor(), b=_other()))


def _two_dicts():
    return _zip(pth.dictionary(x=pth.dictionary(a=_first(), v=_again()), y=pth.dictionary(w=_again(), b=_other())))


def _one_dict_twice():
    return _zip(pth.dictionary(x=pth.dictionary(a=_first(), v=_again(), b=_other()) + pth.put(MEMO + 1), y=pth.get(MEMO + 1)))


def _parameters():
    return _zip(pth.dictionary(a=_parameter(_first()), v=_again(), w=_parameter(_again()), b=_other()))


def _one_parameter():
    return _zip(pth.dictionary(a=_parameter(pth.tensor()) + pth.put(MEMO), v=_again(), w=_again(), b=_other()))


def _stream():
    first = pth.tensor(pth.storage('0', more=b'N')) + pth.put(MEMO)
    value = pth.dictionary(a=first, v=_again(), w=_again(), b=pth.tensor(pth.storage('1', more=b'N')))
    return pth.stream(value, ['0', '1'], [(4, TIED), (4, OTHER)])


def _archive():
    first, other = pth.number(3) + b'Q' + pth.put(MEMO), pth.number(4) + b'Q'
    return pth.old_archive(pth.dictionary(a=first, v=_again(), w=_again(), b=other),
                           {1: ('FloatStorage', 4, TIED), 2: ('FloatStorage', 4, OTHER)},
                           {3: (1, (4,), (1,), 0), 4: (2, (4,), (1,), 0)})


_FLAT = (['a', 'v', 'w'], ['b'])
# name: (bytes of the file, names of each content)
FORMS = {'one tensor': (_one_tensor, *_FLAT), 'views of one range': (_views_of_one_range, *_FLAT),
         'views of several ranges': (_views_of_several_ranges, ['a', 'w'], ['b'], ['v']),
         'two dicts': (_two_dicts, ['x.a', 'x.v', 'y.w'], ['y.b']),
         'one dict twice': (_one_dict_twice, ['x.a', 'x.v', 'y.a', 'y.v'], ['x.b', 'y.b']),
         'parameters': (_parameters, *_FLAT), 'one parameter': (_one_parameter, *_FLAT),
         'stream': (_stream, *_FLAT), 'archive': (_archive, *_FLAT)}


class Cell:
    """A content; equal only to itself."""

    def __init__(self, data, shape):
        self.data, self.shape = data, shape


def write(path, form):
    path.write_bytes(FORMS[form][0]())
    return path


def cells(form):
    """{key: Cell}; tied keys have the same."""
    found = {}
    for names, data in zip(FORMS[form][1:], (TIED, OTHER, HALF)):
        found.update(dict.fromkeys(names, Cell(data, [len(data) // 4])))
    return found


def tied(form):
    return FORMS[form][1]


def facts(found):
    """{key: (dtype, shape, bytes)} of {key: Cell}."""
    return {key: ('F32', list(cell.shape), cell.data) for key, cell in found.items()}


def sequences(verbs, keys, n_steps):
    """Every sequence of n_steps (verb, key), as far as its keys are still there."""
    def fits(sequence):
        left, linked = set(keys), set()
        for verb, key in sequence:
            if key not in left or (verb, key) in linked:
                return False
            linked |= {(verb, key)} if verb == 'link' else set()
            if verb in ('remove', 'rename', 'move'):
                left.discard(key)
        return True
    return [sequence for sequence in itertools.product(itertools.product(verbs, keys), repeat=n_steps) if fits(sequence)]
