# SPDX-License-Identifier: MIT
"""Bytes of storages that no tensor shows: findings where they are a whole storage, and differences between files."""
import json

import pytest

from wfs_testlib import pth, st
from wfs_testlib.program import weightfs

FINDING = 'not shown by any tensor'


def tensor(key, numel=4, **view):
    return pth.tensor(pth.storage(key, numel=numel), **view)


def hooked(inner):
    """A tensor whose hooks have another one."""
    return pth.call(pth.name('torch._utils', '_rebuild_tensor_v2'), pth.storage('0'), pth.number(0), pth.numbers((4,)), pth.numbers((1,)),
                    b'\x89', pth.ORDERED + pth.number(0) + inner + b's')


def zipped(value, storages):
    return pth.checkpoint(value, **{'r' + key: raw for key, raw in storages.items()})


def stream(value, storages):
    return pth.stream(value.replace(b'tQ', b'NtQ'), list(storages), [(len(raw) // 4, raw) for raw in storages.values()])


def script(value, storages):
    made = [e for e in pth.records(value, **{'r' + key: raw for key, raw in storages.items()})]
    return pth.zipped(*made, pth.entry('m/constants.pkl', pth.pickle(b')')))


def package(value, storages):
    return pth.zipped(pth.entry('m/w.pkl', pth.pickle(value)), pth.entry('m/.data/extern_modules', b''), pth.entry('m/.data/version', b'6\n'),
                      *(pth.entry('m/.data/%s.storage' % key, raw) for key, raw in storages.items()))


CONTAINERS = {'zip': zipped, 'stream': stream, 'script': script, 'package': package}
WHOLE = {'0': st.f32(1, 2, 3, 4)}

# The value, and the storages with the hidden bytes as the last.
HIDDEN = {
    'in hooks': (pth.dictionary(w=hooked(tensor('1'))), {**WHOLE, '1': st.f32(5, 6, 7, 8)}, None),
    'of an empty tensor': (pth.dictionary(w=tensor('0'), e=tensor('1', size=(0,))), {**WHOLE, '1': st.f32(5, 6, 7, 8)}, None),
    'behind a view': (pth.dictionary(w=tensor('0', size=(3,))), WHOLE, 'w'),
    'before a view': (pth.dictionary(w=tensor('0', size=(2,), offset=2)), WHOLE, 'w'),
    'between rows': (pth.dictionary(w=tensor('0', 8, size=(2, 3), stride=(4, 1))), {'0': st.f32(*range(8))}, 'w'),
    'between elements': (pth.dictionary(w=tensor('0', 8, size=(4,), stride=(2,))), {'0': st.f32(*range(8))}, 'w'),
    'between views': (pth.dictionary(w=tensor('0', 8, size=(2,)), v=tensor('0', 8, size=(2,), offset=5)), {'0': st.f32(*range(8))}, 'w'),
}
# All bytes of the storages are shown.
SHOWN = {
    'whole': (pth.dictionary(w=tensor('0')), WHOLE),
    'in two': (pth.dictionary(w=tensor('0', size=(2,)), v=tensor('0', size=(2,), offset=2)), WHOLE),
    'transposed': (pth.dictionary(w=tensor('0', size=(2, 2), stride=(1, 2))), WHOLE),
    'expanded': (pth.dictionary(w=tensor('0', size=(9, 4), stride=(0, 1))), WHOLE),
    'windows': (pth.dictionary(w=tensor('0', size=(3, 2), stride=(1, 1))), WHOLE),
    'by columns': (pth.dictionary(w=tensor('0', 8, size=(4,), stride=(2,)), v=tensor('0', 8, size=(4,), stride=(2,), offset=1)),
                   {'0': st.f32(*range(8))}),
    'twice': (pth.dictionary(w=tensor('0'), v=tensor('0'), u=tensor('0', size=(1,))), WHOLE),
}


def change(storages, at=-1):
    """The same storages with another byte in the last one."""
    key = list(storages)[-1]
    raw = bytearray(storages[key])
    raw[at] ^= 1
    return {**storages, key: bytes(raw)}


def write(path, made):
    path.write_bytes(made)
    return path


def at(case):
    """A byte of the last storage that no tensor shows."""
    return {'before a view': 0, 'between views': 12, 'between rows': 12, 'between elements': 4}.get(case, -1)


@pytest.mark.parametrize('container', CONTAINERS)
@pytest.mark.parametrize('case', HIDDEN)
def test_a_difference_that_no_tensor_shows_is_found(folder, case, container):
    value, storages, key = HIDDEN[case]
    make = CONTAINERS[container]
    a, b = write(folder / 'a.pth', make(value, storages)), write(folder / 'b.pth', make(value, change(storages, at(case))))
    assert weightfs('diff', '--exact', a, b).stdout == ''
    assert weightfs('diff', '--exact', '--all', a, a).stdout == ''
    assert 'that no tensor shows' in weightfs('diff', '--exact', '--all', a, b, code=1).stdout
    found = json.loads(weightfs('diff', '--json', '--all', a, b, code=1).stdout)['hidden']
    assert {entry['key'] for entry in found} == {key}
    assert [entry['change'] for entry in found] == (['changed'] if key else [entry['change'] for entry in found])
    assert len(found) == (1 if key else 2)
    assert (FINDING in weightfs('check', a, code=None).stdout) == (key is None)


@pytest.mark.parametrize('container', CONTAINERS)
@pytest.mark.parametrize('case', SHOWN)
def test_bytes_that_tensors_show_are_no_such_difference(folder, case, container):
    value, storages = SHOWN[case]
    a = write(folder / 'a.pth', CONTAINERS[container](value, storages))
    b = write(folder / 'b.pth', CONTAINERS[container](value, change(storages)))
    assert json.loads(weightfs('diff', '--json', '--all', a, b, code=1).stdout)['hidden'] == []
    assert FINDING not in weightfs('check', a).stdout


def test_a_record_that_no_pickle_names_is_a_finding_and_a_difference(folder):
    value = pth.dictionary(w=tensor('0'))
    a, b = write(folder / 'a.pth', zipped(value, WHOLE)), write(folder / 'b.pth', zipped(value, {**WHOLE, '7': b'secret'}))
    assert "1 storage is not shown by any tensor, with 6 bytes; the first is 'data/7'" in weightfs('check', b, code=1).stdout
    assert weightfs('diff', '--all', a, b, code=1).stdout.splitlines()[0] == (
        "storage only in B: 'data/7', 6 bytes that no tensor shows")


@pytest.mark.parametrize('container', CONTAINERS)
@pytest.mark.parametrize('ending', ['pth', 'safetensors'])
def test_a_storage_that_an_output_does_not_have_is_reported(folder, container, ending):
    value, storages, _ = HIDDEN['in hooks']
    a = write(folder / 'a.pth', CONTAINERS[container](value, storages))
    told = weightfs('convert', a, folder / ('out.' + ending)).stdout
    is_kept = ending == 'pth' and container in ('zip', 'stream')
    assert ('left out, as no tensor shows them: ' in told) != is_kept
    assert not is_kept or storages['1'] in (folder / 'out.pth').read_bytes()


def test_a_record_that_no_pickle_names_is_not_in_an_output(folder):
    a = write(folder / 'a.pth', zipped(pth.dictionary(w=tensor('0')), {**WHOLE, '7': b'secret'}))
    assert "no tensor shows them: 'data/7'" in weightfs('convert', a, folder / 'out.pth').stdout
    assert b'secret' not in (folder / 'out.pth').read_bytes()


def test_numbers_of_storages_do_not_matter(folder):
    def value(first, second):
        return pth.dictionary(w=tensor(first, size=(3,)), v=tensor(second, size=(2,)))

    one, other = st.f32(1, 2, 3, 4), st.f32(5, 6, 7, 8)
    a = write(folder / 'a.pth', zipped(value('0', '1'), {'0': one, '1': other, '2': b'x'}))
    b = write(folder / 'b.pth', zipped(value('9', '5'), {'5': other, '3': b'x', '9': one}))
    assert weightfs('diff', '--all', a, b).stdout == ''


def test_what_a_view_hides_is_no_difference(folder):
    value = pth.dictionary(w=tensor('0'), v=tensor('1'))
    a = write(folder / 'a.pth', zipped(value, {**WHOLE, '1': st.f32(5, 6, 7, 8)}))
    b = write(folder / 'b.pth', zipped(value, {**WHOLE, '1': st.f32(5, 6, 7, 9)}))
    assert weightfs('diff', '--all', '--exclude=v', a, b).stdout == ''


def test_many_views_take_little_time(folder):
    n = 20000
    value = pth.dictionary(**{'w%d' % i: tensor('0', 2 * n, size=(1,), offset=2 * i) for i in range(n)})
    path = write(folder / 'a.pth', zipped(value, {'0': bytes(8 * n)}))
    assert weightfs('diff', '--all', path, path).stdout == ''


def test_a_storage_of_a_file_without_tensors_is_found(folder):
    """There are no ranges that tensors show: sanitizers complain of arithmetic with their missing list."""
    path = write(folder / 'a.pth', zipped(pth.dictionary(epoch=pth.number(7)), WHOLE))
    assert "1 storage is %s, with 16 bytes; the first is 'data/0'" % FINDING in weightfs('check', path, code=1).stdout
