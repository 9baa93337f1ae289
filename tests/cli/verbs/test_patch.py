# SPDX-License-Identifier: MIT
"""Patches of two checkpoints: what they say, what they do to the same and to other checkpoints, and which files are not one."""
import ctypes
import json
import os
import pathlib

import numpy
import pytest

from wfs_testlib import make_reject_patch as reject, st
from wfs_testlib.program import EXIT_RULES, EXIT_USAGE, listing, tool, weightfs

A = {'w': ('F32', [2, 2], st.f32(1, 2, 3, 4)), 'v': ('F32', [4], st.f32(5, 6, 7, 8)), 'b': ('BF16', [2], b'abcd'),
     'gone': ('U8', [3], b'xyz'), 'same': ('I64', [], bytes(8)), 'n': ('U8', [4], b'1234')}
B = {'w': ('F32', [2, 2], st.f32(1, 2, 3, 5)), 'moved.v': A['v'], 'b': ('F16', [2], b'abcd'), 'same': A['same'], 'new': ('I8', [2], b'\1\2'),
     'n': ('U8', [5], b'12345')}
META_A, META_B = {'format': 'pt', 'old': 'x', 'by': 'me'}, {'format': 'pt', 'by': 'you', 'zeta': 'ü\n"'}


@pytest.fixture
def pair(folder):
    return st.write(folder / 'a.safetensors', A, META_A), st.write(folder / 'b.safetensors', B, META_B)


@pytest.fixture
def patch(pair, folder):
    weightfs('patch', 'make', *pair, folder / 'p.safetensors')
    return folder / 'p.safetensors'


def read_patch(path):
    content = st.read(path)
    return json.loads(content.metadata['weightfs.patch']), content.tensors


def test_the_list_of_edits(patch):
    edits, contents = read_patch(patch)
    by_key = {edit.get('from') or edit['to']: edit for edit in edits['tensors']}
    assert by_key['v'] == {'from': 'v', 'to': 'moved.v'}
    assert by_key['gone'] == {'from': 'gone', 'to': None}
    assert by_key['b'] == {'from': 'b', 'to': 'b', 'dtype': 'F16', 'shape': [2], 'was': {'dtype': 'BF16', 'shape': [2]}}
    assert by_key['new'] == {'to': 'new', 'content': 'new', 'dtype': 'I8', 'shape': [2]}
    assert by_key['w']['content'] == 'w' and by_key['w']['was']['shape'] == [2, 2] and len(by_key['w']['was']['xxh3']) == 16
    assert len(by_key) == len(edits['tensors']) == 6 and set(contents) == {'w', 'new', 'n'} and contents['w'] == B['w']
    assert sorted(map(str, edits['metadata'])) == sorted(map(str, [
        {'name': 'old', 'was': 'x', 'value': None}, {'name': 'by', 'was': 'me', 'value': 'you'}, {'name': 'zeta', 'was': None, 'value': 'ü\n"'}]))


def test_what_is_replaced_has_the_xxh3_of_its_bytes(patch):
    xxh3 = ctypes.CDLL('libxxhash.so.0').XXH3_64bits
    xxh3.restype, xxh3.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    edits, _ = read_patch(patch)
    assert {edit['to']: edit['was']['xxh3'] for edit in edits['tensors'] if 'content' in edit and 'was' in edit} == {
        key: '%016x' % xxh3(A[key][2], len(A[key][2])) for key in ('w', 'n')}


def test_show_and_the_line_of_make(patch, pair, folder):
    lines = weightfs('patch', 'show', patch).stdout.splitlines()
    for line in ["renamed tensor 'v' to 'moved.v'", "removed tensor 'gone'", "changed tensor 'b', F16 [2]", "replaced tensor 'w', F32 [2, 2], 16 bytes",
                 "added tensor 'new', I8 [2], 2 bytes", "removed metadata 'old'", "set metadata 'by'", "set metadata 'zeta'"]:
        assert line in lines
    assert weightfs('patch', 'make', *pair, folder / 'q').stdout == (
        "wrote '%s': 9 edits: 1 renamed, 1 removed, 1 added, 2 replaced, 1 changed, 3 of metadata\n" % (folder / 'q'))


def test_a_patch_on_standard_input(patch, pair, folder):
    with open(patch, 'rb') as file:
        assert weightfs('patch', 'show', '-', stdin=file).stdout == weightfs('patch', 'show', patch).stdout
        weightfs('patch', 'apply', '-', pair[0], folder / 'out.safetensors', stdin=file)
    assert st.read(folder / 'out.safetensors').tensors == st.read(pair[1]).tensors


@pytest.mark.parametrize('kind', ['safetensors', 'pth', 'bpk'])
def test_applied_to_a_it_makes_b(patch, pair, folder, kind):
    source = pair[0]
    if kind != 'safetensors':
        source = folder / ('in.' + kind)
        weightfs('convert', pair[0], source)
    out = folder / ('out.' + kind)
    options = () if kind != 'pth' else ('--force', )
    weightfs('patch', 'apply', patch, source, out, *options)
    content = {key: (tensor['dtype'], tensor['shape'], weightfs('cat', out, key).raw) for key, tensor in listing(out).items()}
    assert content == B
    if kind == 'safetensors':
        assert out.read_bytes() == st.canonical(B, META_B)


def test_numpy_arrays_are_what_the_patch_says(patch, folder):
    _, contents = read_patch(patch)
    assert numpy.frombuffer(contents['w'][2], '<f4').tolist() == [1, 2, 3, 5]


def test_nothing_to_do(pair, folder):
    assert weightfs('patch', 'make', pair[0], pair[0], folder / 'p').stdout.endswith(': 0 edits\n')
    assert weightfs('patch', 'show', folder / 'p').stdout == ''
    weightfs('patch', 'apply', folder / 'p', pair[0], folder / 'out.safetensors')
    assert (folder / 'out.safetensors').read_bytes() == st.canonical(A, META_A)


def test_in_place(patch, pair):
    assert 'would overwrite the source' in weightfs('patch', 'apply', patch, pair[0], pair[0], code=9).error
    weightfs('patch', 'apply', patch, pair[0], pair[0], '--overwrite')
    assert pair[0].read_bytes() == st.canonical(B, META_B)


MISFITS = {
    'w': (('F32', [2, 2], st.f32(9, 9, 9, 9)), "tensor 'w' has other content (xxh3 "),
    'v': (None, "tensor 'v' does not exist"),
    'b': (('BF16', [1, 2], b'abcd'), "tensor 'b' is BF16 [1, 2], not BF16 [2]"),
    'gone': (None, "tensor 'gone' does not exist"),
    'new': (('U8', [1], b'x'), "tensor 'new' cannot be added: 'new' exists"),
    'moved.v': (('U8', [1], b'x'), "tensor 'v' cannot become 'moved.v', which exists"),
    'n': (('U8', [2, 2], b'1234'), "tensor 'n' is U8 [2, 2], not U8 [4]"),
}


@pytest.mark.parametrize('key', MISFITS)
def test_what_does_not_fit_is_named_and_left_out_with_force(patch, folder, key):
    instead, message = MISFITS[key]
    other = {**A, key: instead}
    if instead is None:
        del other[key]
    source, out = st.write(folder / 'other.safetensors', other, META_A), folder / 'out.safetensors'
    refused = weightfs('patch', 'apply', patch, source, out, code=EXIT_RULES)
    assert refused.error == "%s: 1 edit of 9 cannot be applied; --force applies the others" % patch and not out.exists()
    assert refused.stdout.startswith('does not fit: ' + message) and refused.stdout.count('\n') == 1
    done = weightfs('patch', 'apply', patch, source, out, '--force')
    assert done.stdout.endswith('left out: 1 edit of 9\n')
    expected = dict(B)
    if key == 'moved.v':
        expected.update({'moved.v': instead, 'v': A['v']})
    elif key in ('v', 'gone'):
        expected.pop('moved.v' if key == 'v' else 'gone', None)
    else:
        expected[key] = instead
    assert st.read(out).tensors == expected


def test_all_that_does_not_fit_is_named(patch, folder):
    other = st.write(folder / 'other.safetensors', {'x': ('U8', [1], b'x')}, {'by': 'them'})
    refused = weightfs('patch', 'apply', patch, other, folder / 'out.safetensors', code=EXIT_RULES)
    assert refused.stdout.count('does not fit: ') == 7 and "does not fit: metadata 'old' does not exist\n" in refused.stdout
    assert "does not fit: metadata 'by' has another value\n" in refused.stdout
    weightfs('patch', 'apply', patch, other, folder / 'out.safetensors', '--force')
    assert st.read(folder / 'out.safetensors').tensors == {'x': ('U8', [1], b'x'), 'new': B['new']}


def test_an_edit_that_stays_takes_its_name_from_others(folder):
    """a -> b -> c -> d: where d exists, none of them can be renamed."""
    names = ['a', 'b', 'c']
    one = st.write(folder / 'one.safetensors', {name: ('U8', [1], name.encode()) for name in names})
    two = st.write(folder / 'two.safetensors', {new: ('U8', [1], name.encode()) for name, new in zip(names, ['b', 'c', 'd'])})
    three = st.write(folder / 'three.safetensors', {name: ('U8', [1], name.encode()) for name in [*names, 'd']})
    edits = [{'from': name, 'to': new} for name, new in zip(names, ['b', 'c', 'd'])]
    patch = st.write(folder / 'p', {}, {'weightfs.patch': json.dumps({'version': 1, 'tensors': edits})})
    weightfs('patch', 'apply', patch, one, folder / 'out.safetensors')
    assert st.read(folder / 'out.safetensors').tensors == st.read(two).tensors
    refused = weightfs('patch', 'apply', patch, three, folder / 'again.safetensors', '--force')
    assert refused.stdout.count('does not fit') == 3 and st.read(folder / 'again.safetensors').tensors == st.read(three).tensors


def test_equal_tensors_are_renamed_one_by_one(folder):
    one = st.write(folder / 'one.safetensors', {'a%d' % i: ('F32', [3], bytes(12)) for i in range(50)})
    two = st.write(folder / 'two.safetensors', {'b%d' % i: ('F32', [3], bytes(12)) for i in range(49)})
    assert ': 50 edits: 49 renamed, 1 removed\n' in weightfs('patch', 'make', one, two, folder / 'p').stdout
    weightfs('patch', 'apply', folder / 'p', one, folder / 'out.safetensors')
    assert st.read(folder / 'out.safetensors').tensors == st.read(two).tensors


def test_ids_of_parameters(folder):
    source, other = folder / 'a.bpk', folder / 'b.bpk'
    weightfs('convert', st.write(folder / 'in.safetensors', {'w': ('F32', [1], bytes(4)), 'x': ('F32', [1], bytes(4))}), source)
    weightfs('edit', source, other, '--set', 'w.param_id=77')
    assert weightfs('patch', 'make', source, other, folder / 'p').stdout.endswith(': 1 edit: 1 changed\n')
    weightfs('patch', 'apply', folder / 'p', source, folder / 'out.bpk')
    assert (folder / 'out.bpk').read_bytes() == other.read_bytes() != source.read_bytes()


@pytest.mark.peers
def test_torch_loads_what_a_patch_makes(folder):
    """Tensors, values and optimizer state of a trained network; a quantized tensor, whose scale a patch cannot hold."""
    torch = pytest.importorskip('torch')
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(net.parameters())

    def save(path, epoch, scale):
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        torch.save({'state': dict(net.state_dict()), 'optimizer': optimizer.state_dict(), 'epoch': epoch, 'c': torch.ones(2).to(torch.complex64).conj() * epoch,
                    'q': torch.quantize_per_tensor(torch.ones(3) * epoch, scale, 0, torch.qint8)}, path)
        return path
    a, b = save(folder / 'a.pth', 1, 0.1), save(folder / 'b.pth', 2, 0.1)
    weightfs('patch', 'make', a, b, folder / 'p')
    weightfs('patch', 'apply', folder / 'p', a, folder / 'out.pth')
    made, wanted = torch.load(folder / 'out.pth'), torch.load(b)
    assert made['epoch'] == 2 and torch.equal(made['c'], wanted['c']) and torch.equal(made['q'].dequantize(), wanted['q'].dequantize())
    assert all(torch.equal(made['state'][key], tensor) for key, tensor in wanted['state'].items())
    assert made['optimizer']['param_groups'] == wanted['optimizer']['param_groups']
    assert all(torch.equal(made['optimizer']['state'][i][name], value) for i, state in wanted['optimizer']['state'].items() for name, value in state.items())
    error = weightfs('patch', 'make', a, save(folder / 'c.pth', 2, 0.2), folder / 'q', code=6).error
    assert "tensor 'q': a patch cannot hold how it is quantized" in error


def test_a_swap(folder):
    patch = st.write(folder / 'p', {}, {'weightfs.patch': json.dumps({'version': 1, 'tensors': [{'from': 'a', 'to': 'b'}, {'from': 'b', 'to': 'a'}]})})
    source = st.write(folder / 'in.safetensors', {'a': ('U8', [1], b'a'), 'b': ('U8', [1], b'b')})
    weightfs('patch', 'apply', patch, source, folder / 'out.safetensors')
    assert st.read(folder / 'out.safetensors').tensors == {'a': ('U8', [1], b'b'), 'b': ('U8', [1], b'a')}


def test_keys_that_a_terminal_acts_on(folder):
    one = st.write(folder / 'one.safetensors', {'a\x1b[31m\n': ('U8', [1], b'a'), 'b\\x41': ('U8', [1], b'b')})
    two = st.write(folder / 'two.safetensors', {'ü\u202e': ('U8', [1], b'a'), 'b\\x41': ('U8', [1], b'c')})
    weightfs('patch', 'make', one, two, folder / 'p')
    weightfs('patch', 'apply', folder / 'p', one, folder / 'out.safetensors')
    assert st.read(folder / 'out.safetensors').tensors == st.read(two).tensors


def test_a_file_that_is_not_a_patch(pair):
    assert "is not a patch: its metadata has no 'weightfs.patch'" in weightfs('patch', 'show', pair[0], code=4).error


def test_a_patch_is_private_where_what_it_is_made_of_is(pair, folder):
    pair[1].chmod(0o600)
    weightfs('patch', 'make', *pair, folder / 'p')
    assert (folder / 'p').stat().st_mode & 0o077 == 0


def test_an_existing_file_stays(pair, patch):
    before = patch.read_bytes()
    assert 'already exists (use --overwrite' in weightfs('patch', 'make', pair[0], pair[0], patch, code=9).error
    assert patch.read_bytes() == before


@pytest.mark.parametrize('words', [['make', 'a'], ['show', 'a', 'b'], ['apply', 'a', 'b'], ['mend', 'a'], ['show']])
def test_wrong_words(words):
    assert 'weightfs patch' in weightfs('patch', *words, code=EXIT_USAGE).error


@pytest.mark.parametrize('name', sorted(reject.cases))
def test_rejected_lists(folder, name):
    content, code, message = reject.cases[name]
    path = folder / 'p'
    write_raw(path, content)
    assert weightfs('patch', 'show', path, code=code).error == '%s: %s' % (path, message)


@pytest.mark.parametrize('name', sorted(reject.goods))
def test_accepted_lists(folder, name):
    write_raw(folder / 'p', reject.goods[name])
    n = weightfs('patch', 'show', folder / 'p').stdout.count('\n')
    assert n == sum(len(part) for part in json.loads(reject.goods[name]).values() if isinstance(part, list))


def write_raw(path, text):
    """A patch whose list of edits is any text; what is not UTF-8 cannot be in a safetensors file."""
    if b'\xff' in text:
        pytest.skip('safetensors has no room for it')
    st.write(path, reject.CONTENTS, {'weightfs.patch': text.decode()})


def test_the_corpus_is_made_by_its_script():
    tool('/usr/bin/python3', pathlib.Path(reject.__file__), '--check')


def test_many_edits_are_refused_before_they_take_memory(folder):
    text = '{"version":1,"tensors":[' + ','.join(['{"from":"a","to":null}'] * 1000001) + ']}'
    st.write(folder / 'p', {}, {'weightfs.patch': text})
    assert 'it has more than 1000000 edits' in weightfs('patch', 'show', folder / 'p', code=6).error
    assert os.path.getsize(folder / 'p') > 20e6
