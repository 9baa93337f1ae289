# SPDX-License-Identifier: MIT
"""Names in pickles that are not known to be harmless: notices for all of them, and outputs without them. Names in an output are
found with pickletools, which loads nothing."""
import json
import pickletools
import struct
import zipfile

import pytest

from wfs_testlib import pth, pth_expected, pth_read, shared, st
from wfs_testlib.program import EXIT_DONE, listing, tool, weightfs, COMMAND

HARMLESS = {'collections OrderedDict', 'torch._utils _rebuild_tensor_v2', 'torch FloatStorage', 'builtins set'}
UNKNOWN = 'refers to %s of module %s, which is not known to be harmless'


def names(path):
    """'module name' of every global in the pickles of a checkpoint, and EXT for what a number stands for."""
    with zipfile.ZipFile(path) as file:
        pickles = [file.read(name) for name in file.namelist() if name.endswith('.pkl')]
    found = set()
    for raw in pickles:
        texts = []
        for opcode, arg, _ in pickletools.genops(raw):
            if opcode.name in ('GLOBAL', 'INST'):
                found.add(arg)
            elif opcode.name.startswith('EXT'):
                found.add('EXT')
            elif opcode.name == 'STACK_GLOBAL':
                found.add(' '.join(texts[-2:]))
            elif isinstance(arg, str):
                texts.append(arg)
    return found


def evil(argument=b'', module='os', name='system'):
    return pth.call(pth.name(module, name), argument or pth.text('true'))


def save(folder, value, **more):
    path = folder / 'in.pth'
    path.write_bytes(pth.checkpoint(value, **more))
    return path


def convert(folder, value, *options, name='out.pth', **more):
    weightfs('convert', '--overwrite', *options, save(folder, value, **more), folder / name, has_notices=True)
    return folder / name


def short(key='0'):
    return pth.tensor(pth.storage(key, numel=1), size=(1,))


W = pth.text('w') + short()
STREAM = pth.stream(pth.tup(pth.text('storage'), pth.FLOAT, pth.text('0'), pth.text('cpu'), pth.number(1), b'N') + b'Q' + evil() + b'0', ['0'],
                    [(1, st.f32(1))])
HOOKED = pth.call(pth.name('torch._utils', '_rebuild_tensor_v2'), pth.storage('0', numel=1), pth.number(0), pth.numbers((1,)), pth.numbers((1,)),
                  b'\x89', pth.ORDERED + b'(' + pth.number(0) + evil() + b'u')

# {case: (pairs of a dict, what they are in the output)}
PLACES = {
    'an item': (pth.text('x') + evil(), {'x': None}),
    'an item of a list': (pth.text('x') + b'](' + pth.number(1) + evil() + pth.number(2) + b'e', {'x': [1, None, 2]}),
    'an item of a tuple': (pth.text('x') + pth.tup(evil(), pth.number(2)), {'x': (None, 2)}),
    'in an item': (pth.text('x') + pth.dictionary(y=pth.dictionary(z=evil(), n=pth.number(1))), {'x': {'y': {'z': None, 'n': 1}}}),
    'a function': (pth.text('x') + pth.name('os', 'system'), {'x': None}),
    'twice': (pth.text('x') + evil() + pth.put(9) + pth.text('y') + b']' + pth.get(9) + b'a', {'x': None, 'y': [None]}),
    'an argument': (pth.text('x') + pth.call(pth.name('collections', 'Counter'), evil()), {'x': None}),
    'an argument of an argument': (pth.text('x') + pth.call(pth.name('builtins', 'set'), b']' + evil() + b'a'), {'x': {None}}),
    'a call of what a call makes': (pth.text('x') + pth.call(evil(), pth.number(1)), {'x': None}),
    'a state': (pth.text('x') + pth.name('argparse', 'Namespace') + b')\x81' + pth.dictionary(a=evil(), b=pth.number(1)) + b'b', None),
    'a state of its own': (pth.text('x') + evil() + pth.dictionary(a=pth.number(1)) + b'b', {'x': None}),
    'a key': (evil() + pth.number(1), {'%key94a21b3c': 1}),
    'keys that are classes': (pth.text('x') + pth.pairs((pth.name('my', 'A'), pth.number(1)), (pth.name('my', 'B'), pth.number(2))),
                              {'x': {'%key4c450edd': 1, '%keye4b471d7': 2}}),
    'keys with classes in them': (pth.text('x') + pth.pairs((pth.tup(pth.name('my', 'A'), pth.number(1)), pth.number(1)),
                                                            (pth.tup(pth.name('my', 'B'), pth.number(1)), pth.number(2))), {'x': {'%keyf94f3cd4': 1, '%key3c8cade2': 2}}),
    'INST': (pth.text('x') + b'(' + pth.text('true') + b'ios\nsystem\n', {'x': None}),
    'OBJ': (pth.text('x') + b'(' + pth.name('os', 'system') + pth.text('true') + b'o', {'x': None}),
    'NEWOBJ': (pth.text('x') + pth.name('my', 'Class') + b')\x81', {'x': None}),
    'STACK_GLOBAL': (pth.text('x') + pth.text('os') + pth.text('system') + b'\x93' + pth.tup(pth.text('true')) + b'R', {'x': None}),
    'a dotted name': (pth.text('x') + pth.text('torch.nn.modules.module') + pth.text('Module.os.system') + b'\x93', {'x': None}),
    'a number': (pth.text('x') + b'\x82\1', {'x': None}),
    'hooks': (pth.text('x') + HOOKED, None),
    'a nested stream': (pth.text('x') + pth.call(pth.name('torch.storage', '_load_from_bytes'), b'B' + len(STREAM).to_bytes(4, 'little')
                                                 + STREAM), None),
}


@pytest.mark.parametrize('case', PLACES)
@pytest.mark.parametrize('options', [[], ['--remap=^w$=>v']], ids=' '.join)
def test_an_output_can_be_safe(folder, case, options):
    pairs, expected = PLACES[case]
    out = convert(folder, b'}(' + W + pairs + b'u', '--safe', *options, r0=st.f32(1))
    assert names(out) <= HARMLESS | {'argparse Namespace'}, names(out)
    assert 'harmless' not in weightfs('check', out).stdout
    found = pth_read.load(out)
    assert found['v' if options else 'w'].data == st.f32(1)
    if expected is not None:
        del found['v' if options else 'w']
        assert found == expected


@pytest.mark.parametrize('case', sorted(set(PLACES) - {'a number'}))
def test_each_name_is_reported_by_check_and_when_it_is_written_again(folder, case):
    path = save(folder, b'}(' + W + PLACES[case][0] + b'u', r0=st.f32(1))
    text = 'high: ' if case not in ('NEWOBJ', 'a dotted name') and not case.startswith('keys ') else 'info: '
    assert text in weightfs('check', path, code=None).stdout
    weightfs('convert', path, folder / 'out.pth', has_notices=True)
    kept = names(folder / 'out.pth') - HARMLESS - {'argparse Namespace', 'collections Counter'}
    done = tool(*COMMAND, 'convert', '--overwrite', path, folder / 'out.pth')
    assert kept and len(done.stderr.splitlines()) == len(kept)


def test_every_name_counts_once_up_to_a_bound(folder):
    for n in 1, 64, 65, 200:
        value = pth.dictionary(w=short(), **{'x%d' % i: pth.name('my', 'f%d' % i) for i in range(n)}, y=pth.name('my', 'f0'))
        path = save(folder, value, r0=st.f32(1))
        lines = weightfs('check', path).stdout.splitlines()
        assert len(lines) == min(n, 65) and all('harmless' in line for line in lines)
        assert (UNKNOWN % ('f0', 'my') in lines[0]) and (n < 65 or '%d more name' % (n - 64) in lines[64])


def loaded(value):
    """Tensors as their bytes, what is in them besides left out."""
    if isinstance(value, pth_read.Tensor):
        return value.data
    if isinstance(value, dict):
        return {key: loaded(item) for key, item in value.items()}
    return [loaded(item) for item in value] if isinstance(value, (list, tuple)) else value


def unknown(*pairs, name='Net'):
    """An object of a class of its own, with attributes."""
    return pth.name('my', name) + b')\x81' + pth.pairs(*pairs) + b'b'


A, B, C = (st.f32(i) for i in (1, 2, 3))
MINE = dict(cls=('my', 'Net'))
LINEAR = dict(cls=('torch.nn.modules.linear', 'Linear'))
SUBCLASS = pth.call(pth.name('torch._tensor', '_rebuild_from_type_v2'), pth.name('torch._utils', '_rebuild_tensor_v2'), pth.name('my', 'Tensor'),
                    pth.tup(pth.storage('0', numel=1), pth.number(0), pth.numbers((1,)), pth.numbers((1,)), b'\x89', pth.ORDERED), b'}')

# {case: (what is saved beside v and n, what it becomes)}
WITH_TENSORS = {
    'a module': (pth.module(pth.text('w') + short(), **MINE), {'w': A}),
    'a module in a module': (pth.module(modules=pth.text('fc') + pth.module(pth.text('w') + short(), **LINEAR), **MINE), {'fc.w': A}),
    'a module in one of torch': (pth.module(pth.text('b') + short('2'), modules=pth.text('fc') + pth.module(pth.text('w') + short(), **MINE), **LINEAR),
                                 {'b': C, 'fc.w': A}),
    'an object with one of many attributes': (unknown((pth.text('score'), short()), (pth.text('best'), pth.number(5))), {'score': A}),
    'in a dict': (pth.dictionary(cb=unknown((pth.text('s'), short())), lr=pth.number(1)), {'cb': {'s': A}, 'lr': 1}),
    'in a list': (b'](' + pth.number(7) + unknown((pth.text('s'), short())) + pth.number(8) + b'e', [7, {'s': A}, 8]),
    'below a key that is a class': (pth.pairs((pth.name('my', 'Key'), pth.dictionary(s=short(), path=pth.text('p')))), {'%keyk': {'s': A, 'path': 'p'}}),
    'a tensor of a class of its own': (pth.dictionary(t=SUBCLASS, lr=pth.number(1)), {'t': A, 'lr': 1}),
    'such a tensor in a list': (b'](' + SUBCLASS + pth.number(1) + b'e', [A, 1]),
    'such a tensor at two places': (pth.dictionary(t=SUBCLASS + pth.put(7), u=pth.get(7)), {'t': A, 'u': A}),
    'in an object without harm': (pth.name('argparse', 'Namespace') + b')\x81' + pth.dictionary(a=unknown((pth.text('s'), short())), b=pth.number(1))
                                  + b'b', None),
}


def plain_keys(value):
    """Keys that cannot be spelled have a hash in their names."""
    if not isinstance(value, dict):
        return value
    return {'%key' if str(key).startswith('%key') else key: plain_keys(item) for key, item in value.items()}


@pytest.mark.parametrize('options', [[], ['--rename', 'v', 'u'], ['--cast', '^v$:F64']], ids=' '.join)
@pytest.mark.parametrize('case', WITH_TENSORS)
def test_what_makes_tensors_becomes_them_and_takes_nothing_along(folder, case, options):
    value, expected = WITH_TENSORS[case]
    saved = pth.dictionary(x=value, v=short('1'), n=pth.number(3))
    out = convert(folder, saved, '--safe', *options, r0=A, r1=B, **({'r2': C} if pth.text('2') in value else {}))
    assert names(out) <= HARMLESS | {'argparse Namespace', 'torch DoubleStorage'}, names(out)
    found = pth_read.load(out)
    assert found['n'] == 3 and (found.get('v') or found['u']).data in (B, struct.pack('<d', 2))
    if expected is not None:
        assert plain_keys(loaded(found['x'])) == plain_keys(expected)
    wanted = dict(listing(folder / 'in.pth'))
    if not options:
        assert listing(out).keys() == wanted.keys()
        assert all(weightfs('cat', out, key).raw == weightfs('cat', folder / 'in.pth', key).raw for key in wanted)


@pytest.mark.parametrize('value', [
    pth.module(pth.text('w') + short(), modules=pth.text('fc') + pth.module(pth.text('w') + short('1'), **MINE), **LINEAR),
    pth.dictionary(a=unknown((pth.text('w'), short())) + pth.put(7), b=pth.get(7), v=short('1')),
], ids=['the whole is a module', 'one object at two places'])
def test_where_that_cannot_be_the_tensors_are_left(folder, value):
    out = convert(folder, value, '--safe', r0=A, r1=B)
    assert names(out) <= HARMLESS
    assert listing(out).keys() == listing(folder / 'in.pth').keys() == pth_read.load(out).keys()


def test_what_is_harmless_stays(folder):
    inner = pth.module(pth.text('w') + short(), cls=('torch.nn.modules.linear', 'Linear'))
    out = convert(folder, pth.dictionary(model=inner, n=pth.number(3)), '--safe', r0=st.f32(1))
    assert pth_read.load(out) == pth_read.load(folder / 'in.pth') and 'torch.nn.modules.linear Linear' in names(out)


def test_what_was_left_out_is_reported(folder):
    path = save(folder, pth.dictionary(w=short(), x=evil(), y=evil(), z=pth.name('my', 'f')), r0=st.f32(1))
    assert ("as they are not known to be harmless: 'os.system', 'my.f'"
            in weightfs('convert', '--safe', path, folder / 'out.pth').stdout)


def test_files_of_a_set_are_not_taken_over_with_their_names(folder):
    source = folder / 'set'
    source.mkdir()
    for i, value in enumerate([pth.dictionary(a=short(), x=evil()), pth.dictionary(b=short())]):
        (source / ('pytorch_model-0000%d-of-00002.bin' % (i + 1))).write_bytes(pth.checkpoint(value, r0=st.f32(i)))
    (source / 'pytorch_model.bin.index.json').write_text(json.dumps({'weight_map': {
        'a': 'pytorch_model-00001-of-00002.bin', 'b': 'pytorch_model-00002-of-00002.bin'}}))
    for options in [], ['--safe']:
        out = folder / ('safe' if options else 'plain')
        weightfs('convert', *options, source / 'pytorch_model.bin.index.json', str(out) + '/', has_notices=True)
        found = set().union(*(names(path) for path in out.glob('*.bin')))
        assert ('os system' in found) != bool(options)
        assert {key: weightfs('cat', out, key).raw for key in 'ab'} == {'a': st.f32(0), 'b': st.f32(1)}


LISTED = {'torch', 'torch._utils', 'torch.storage', 'torch.nn.parameter', 'torch._tensor', 'torch.serialization', 'collections', '_codecs',
          'builtins', '__builtin__', 'copyreg', 'copy_reg', 'numpy', 'numpy.core.multiarray', 'numpy._core.multiarray', 'numpy.core.numeric',
          'numpy._core.numeric', 'numpy.dtypes', 'torch.cuda', 'torch.jit._pickle'}
CODE = {'eval', 'exec', 'compile', '__import__', 'open', 'getattr', 'setattr', 'delattr', 'globals', 'input', 'breakpoint', 'apply', 'file'}


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('name', sorted(path.name for path in (shared.FOLDER / 'corpus/picklescan').glob('*'))
                         if shared.IS_THERE else ['none'])
def test_scanner_samples_become_harmless(folder, name):
    path = shared.FOLDER / 'corpus/picklescan' / name
    if weightfs('convert', path, folder / 'plain.pth', code=None, has_notices=True).code != EXIT_DONE:
        return
    weightfs('convert', '--safe', path, folder / 'out.pth', has_notices=True)
    found = {tuple(name.split(' ', 1)) for name in names(folder / 'out.pth')}
    assert {module for module, _ in found} <= LISTED and not {name for _, name in found} & CODE, found


@pytest.mark.parametrize('file', shared.each([file for file in pth_expected.files() if file[0].endswith('.pth') and 'burn' not in file[0]],
                                             lambda file: file[0].replace('/', '-')))
def test_golden_files_keep_their_tensors(folder, file):
    _, path, _ = file
    out = folder / 'out.pth'
    if weightfs('convert', path, out, code=None, has_notices=True).code != EXIT_DONE:
        return
    wanted, unknown = listing(out), 'harmless' in weightfs('check', out, code=None).stdout
    raw = out.read_bytes()
    weightfs('convert', '--overwrite', '--safe', path, out, has_notices=True)
    found = listing(out)
    assert {key: entry['shape'] for key, entry in found.items()} == {key: entry['shape'] for key, entry in wanted.items()}
    assert 'harmless' not in weightfs('check', out, code=None).stdout
    assert unknown or pth_read.load(out) is not None and len(raw) > 0
