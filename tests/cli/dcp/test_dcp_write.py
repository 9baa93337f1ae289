# SPDX-License-Identifier: MIT
"""Distributed checkpoints that we write: read by a reader of the tests, by the strict one of the golden data, and with --peers by torch."""
import hashlib
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest

from wfs_testlib import crash, dcp, dcp_read, program, pth, pth_read, shared, st
from wfs_testlib.program import EXIT_COMMIT, EXIT_USAGE, weightfs

GOLDEN = shared.FOLDER / 'golden' / 'dcp'
KINDS = {'F32': ('Float', 4), 'F64': ('Double', 8), 'I64': ('Long', 8), 'BF16': ('BFloat16', 2), 'U8': ('Byte', 1), 'BOOL': ('Bool', 1)}


# ---- nested checkpoints of PyTorch, as bytes and as what they mean ----

class Nest:
    """Makes values: what they are in Python, and the pickle of them."""

    def __init__(self, rng):
        self.rng, self.storages = rng, {}

    def tensor(self, shape, dtype='F32', strides=None, of=None):
        cls, size = KINDS[dtype]
        count = int(np.prod(shape, dtype=np.int64))
        key = str(len(self.storages)) if of is None else of
        if of is None:
            self.storages['r' + key] = bytes(self.rng.randrange(2) for _ in range(count)) if dtype == 'BOOL' else self.rng.randbytes(count * size)
        dense = tuple(int(np.prod(shape[i + 1:], dtype=np.int64)) for i in range(len(shape)))
        raw = np.frombuffer(self.storages['r' + key], np.uint8)
        view = np.lib.stride_tricks.as_strided(raw, (*shape, size), (*(step * size for step in strides or dense), 1))
        store = pth.storage(key, pth.name('torch', cls + 'Storage'), len(raw) // size)
        return pth_read.Tensor(dtype, shape, view.tobytes()), pth.tensor(store, 0, tuple(shape), tuple(strides or dense))

    def scalar(self):
        kind = self.rng.randrange(6)
        if kind == 0:
            value = self.rng.randrange(-1 << 40, 1 << 40)
            return value, pth.number(value)
        if kind == 1:
            return self.rng.choice(((True, b'\x88'), (False, b'\x89'), (None, b'N')))
        if kind == 2:
            return 0.5, b'G' + bytes([0x3f, 0xe0, 0, 0, 0, 0, 0, 0])
        value = self.rng.choice(('', 'text', 'ü', 'a.b', '0'))
        return value, pth.text(value)

    def value(self, depth):
        kind = self.rng.randrange(10)
        if kind < 3 or depth == 0:
            dtype = self.rng.choice(sorted(KINDS))
            return self.tensor(tuple(self.rng.randrange(4) for _ in range(self.rng.randrange(4))), dtype)
        if kind < 5:
            return self.scalar()
        if kind < 7:
            return self.dict(depth - 1)
        items = [self.value(depth - 1) for _ in range(self.rng.randrange(4))]
        if kind == 7:
            return tuple(value for value, _ in items), pth.tup(*(code for _, code in items))
        return [value for value, _ in items], b'](' + b''.join(code for _, code in items) + b'e'

    def dict(self, depth, keys=('a', 'b', 'c-1', 'weight', 'ä', 'x_0', 3, 17)):
        chosen = self.rng.sample(keys, self.rng.randrange(len(keys)))
        made = {key: self.value(depth) for key in chosen}
        spell = {key: pth.number(key) if isinstance(key, int) else pth.text(key) for key in chosen}
        return {key: value for key, (value, _) in made.items()}, pth.pairs(*((spell[key], code) for key, (_, code) in made.items()))


def write_nested(path, seed, depth=3):
    """Writes a random checkpoint, with a dict at the top; returns what it means."""
    nest = Nest(random.Random(seed))
    value, code = nest.dict(depth)
    path.write_bytes(pth.checkpoint(code, **(nest.storages or {'r0': b''})))
    return value


def convert(source, target, *options):
    return weightfs('convert', *options, '--format=dcp', source, target)


def same(found, wanted):
    """Equality that knows 1 from 1.0 and True, and the order of dicts does not count."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, (list, tuple)):
        return type(found) is type(wanted) and len(found) == len(wanted) and all(map(same, found, wanted))
    return type(found) is type(wanted) and found == wanted


def whole(value):
    left = dcp_read.flattened(value)
    return {} if left is dcp_read.GONE else left


@pytest.mark.parametrize('first', range(0, 200, 25))
def test_any_nested_checkpoint_comes_back(tmp_path, first):
    for seed in range(first, first + 25):
        wanted = whole(write_nested(tmp_path / 'in.pth', seed))
        target = tmp_path / str(seed)
        convert(tmp_path / 'in.pth', target)
        assert same(dcp_read.load(target), wanted), seed
        if seed % 5 == 0:
            weightfs('convert', target, tmp_path / 'back.pth', '--overwrite')
            assert same(pth_read.load(tmp_path / 'back.pth'), wanted), seed
            convert(target, tmp_path / 'again')
            assert same(dcp_read.load(tmp_path / 'again'), wanted), seed
            weightfs('diff', '--all', tmp_path / 'again', target)
            shutil.rmtree(tmp_path / 'again')


def test_tensors_are_stored_whole_each_under_its_name(tmp_path):
    """Tied, transposed, of one element, of none; a Parameter is a plain tensor."""
    nest = Nest(random.Random(1))
    plain, code = nest.tensor((3, 4))
    turned, turned_code = nest.tensor((4, 3), strides=(1, 4), of='0')
    one, one_code = nest.tensor(())
    none, none_code = nest.tensor((0, 3))
    parameter = pth.call(pth.name('torch._utils', '_rebuild_parameter'), code, b'\x88', pth.ORDERED)
    (tmp_path / 'in.pth').write_bytes(pth.checkpoint(pth.dictionary(a=code, tied=code, turned=turned_code, one=one_code, none=none_code, p=parameter), **nest.storages))
    convert(tmp_path / 'in.pth', tmp_path / 'out')
    assert dcp_read.load(tmp_path / 'out') == {'a': plain, 'tied': plain, 'turned': turned, 'one': one, 'none': none, 'p': plain}


SPECIAL = {'F8_E4M3': 1, 'F8_E5M2': 1, 'F16': 2, 'I8': 1, 'I16': 2, 'I32': 4, 'U16': 2, 'U32': 4, 'U64': 8, 'C64': 8, 'F8_E8M0': 1}


@pytest.mark.parametrize('dtype', sorted([*SPECIAL, *KINDS]))
def test_all_types_of_safetensors_come_back(tmp_path, dtype):
    size = SPECIAL.get(dtype) or KINDS[dtype][1]
    tensors = {'a.b': (dtype, [2, 3], bytes(i % 2 for i in range(6 * size))), 'scalar': (dtype, [], bytes(size))}
    st.write(tmp_path / 'in.safetensors', tensors)
    convert(tmp_path / 'in.safetensors', tmp_path / 'out')
    assert {key: (tensor.dtype, tensor.shape, tensor.data) for key, tensor in dcp_read.load(tmp_path / 'out').items()} == tensors
    weightfs('convert', tmp_path / 'out', tmp_path / 'back.safetensors')
    assert dict(st.read(tmp_path / 'back.safetensors').tensors) == dict(st.read(tmp_path / 'in.safetensors').tensors)


def test_packed_elements_are_counted_in_pairs(tmp_path):
    st.write(tmp_path / 'in.safetensors', {'w': ('F4', [2, 6], bytes(range(6)))})
    convert(tmp_path / 'in.safetensors', tmp_path / 'out')
    tensor = dcp_read.load(tmp_path / 'out')['w']
    assert (tensor.dtype, tensor.shape, tensor.data) == ('F4', [2, 6], bytes(range(6)))


def test_a_size_cuts_it_into_files(tmp_path):
    tensors = {'t%d' % i: ('U8', [100], bytes([i]) * 100) for i in range(7)}
    tensors['large'] = ('U8', [450], bytes(450))
    st.write(tmp_path / 'in.safetensors', tensors)
    convert(tmp_path / 'in.safetensors', tmp_path / 'out', '--max-shard-size=250')
    found = dcp_read.entries(tmp_path / 'out')
    assert sorted(os.listdir(tmp_path / 'out')) == ['.metadata', *('__0_%d.distcp' % i for i in range(5))]
    held = {}
    for key, entry in found.items():
        held.setdefault(entry.file, []).append(key)
    assert all(len(keys) == 1 or sum(len(tensors[key][2]) for key in keys) <= 250 for keys in held.values())
    assert {key: entry.value.data for key, entry in found.items()} == {key: data for key, (_, _, data) in tensors.items()}


def test_an_empty_state_dict_is_one_file_without_content(tmp_path):
    (tmp_path / 'in.pth').write_bytes(pth.checkpoint(b'}'))
    convert(tmp_path / 'in.pth', tmp_path / 'out')
    assert dcp_read.load(tmp_path / 'out') == {} and (tmp_path / 'out' / '__0_0.distcp').read_bytes() == b''
    assert weightfs('ls', tmp_path / 'out').stdout == ''


def test_values_hold_tensors_of_their_own(tmp_path):
    nest = Nest(random.Random(2))
    a, code = nest.tensor((2, 2))
    b, other = nest.tensor((3,), 'I64')
    (tmp_path / 'in.pth').write_bytes(pth.checkpoint(pth.dictionary(pair=pth.tup(code, other, code, pth.number(5)), a=code), **nest.storages))
    convert(tmp_path / 'in.pth', tmp_path / 'out')
    assert dcp_read.load(tmp_path / 'out') == {'pair': (a, b, a, 5), 'a': a}
    assert {'pair.0', 'pair.1', 'a'} <= set(weightfs('ls', tmp_path / 'out').stdout.split())


def test_many_values_cost_no_more_than_they_are(tmp_path):
    """20,000 tuples in one graph."""
    pairs = [(pth.text('k%05d' % i), pth.tup(pth.number(i), pth.text('x'))) for i in range(20000)]
    (tmp_path / 'in.pth').write_bytes(pth.checkpoint(pth.pairs(*pairs)))
    limits = ['prlimit', '--cpu=60'] + ([] if program.IS_INSTRUMENTED else ['--as=%d' % (1 << 30)])
    program.tool(*limits, *program.COMMAND, 'convert', '--format=dcp', tmp_path / 'in.pth', tmp_path / 'out')
    assert json.loads(weightfs('config', tmp_path / 'out', 'k19999').stdout) == [19999, 'x']


# ---- what cannot be written ----

QUANTIZED = pth.call(pth.name('torch._utils', '_rebuild_qtensor'), pth.storage('0', pth.name('torch', 'QInt8Storage'), 4), pth.number(0), pth.numbers((4,)),
                     pth.numbers((1,)), pth.tup(pth.name('torch', 'per_tensor_affine'), b'G?\xe0\0\0\0\0\0\0', pth.number(0)), b'\x89', pth.ORDERED)
SPARSE = pth.call(pth.name('torch._utils', '_rebuild_sparse_tensor'), pth.call(pth.name('torch.serialization', '_get_layout'), pth.text('torch.sparse_coo')),
                  pth.tup(pth.tensor(pth.storage('0', pth.name('torch', 'LongStorage'), 2), 0, (1, 2), (2, 1)), pth.tensor(pth.storage('0', pth.FLOAT, 2), 0, (2,)),
                          pth.call(pth.name('torch', 'Size'), pth.numbers((5,)))))
CANNOT = {
    'quantized': (pth.dictionary(q=QUANTIZED), "tensor 'q' is quantized, which a distributed checkpoint cannot hold: exclude it"),
    'sparse': (pth.dictionary(m=pth.dictionary(s=SPARSE)), "tensor 'm.s' is sparse, nested or made of several tensors"),
    'not-utf8': (pth.pairs((pth.text(b'\xffx'), pth.tensor())), 'is not valid UTF-8, which a distributed checkpoint requires'),
    'list': (b'](' + pth.tensor() + b'e', 'a distributed checkpoint is a dict, and this checkpoint is not one: convert it to .safetensors'),
    'no tensors': (b'](' + pth.text('a') + b'e', 'and this checkpoint is not one: it has no tensors, so there is nothing to convert'),
    'same-key': (pth.dictionary(**{'a.b': pth.tensor(), 'a': pth.dictionary(b=pth.tensor())}), "two things would have the key 'a.b' in a distributed checkpoint"),
    'same-number': (pth.pairs((pth.number(0), pth.text('x')), (pth.text('0'), pth.text('y'))), "two things would have the key '0'"),
    'deep': (b'}' + pth.text('k') + (b'}' + pth.text('k')) * 140 + pth.tensor() + b's' * 141, 'nested deeper than 128 levels'),
    'bits': (pth.dictionary(b=pth.call(pth.name('torch._utils', '_rebuild_tensor_v3'), pth.storage('0', pth.name('torch.storage', 'UntypedStorage'), 4), pth.number(0),
                                       pth.numbers((4,)), pth.numbers((1,)), b'\x89', pth.ORDERED, pth.name('torch', 'bits8'))), "tensor 'b'"),
}


@pytest.mark.parametrize('name', sorted(CANNOT))
def test_what_it_cannot_hold_is_refused_by_name_and_nothing_stays(tmp_path, name):
    value, message = CANNOT[name]
    (tmp_path / 'in.pth').write_bytes(pth.checkpoint(value))
    error = weightfs('convert', '--format=dcp', tmp_path / 'in.pth', tmp_path / 'out', code=None)
    assert error.code == EXIT_COMMIT and message in error.error
    assert os.listdir(tmp_path) == ['in.pth']


def test_an_excluded_tensor_is_not_in_the_way(tmp_path):
    (tmp_path / 'in.pth').write_bytes(pth.checkpoint(pth.dictionary(q=QUANTIZED, w=pth.tensor())))
    convert(tmp_path / 'in.pth', tmp_path / 'out', '--exclude=^q$')
    assert set(dcp_read.load(tmp_path / 'out')) == {'w'}


def test_empty_dicts_are_left_out_by_name(tmp_path):
    """torch's flattening loses them, and takes a checkpoint that has them for one of version 2.3."""
    (tmp_path / 'in.pth').write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(), none=b'}', deep=pth.dictionary(inner=b'}', x=pth.number(1)))))
    out = convert(tmp_path / 'in.pth', tmp_path / 'out').stdout
    assert "'none'" in out and "'deep.inner'" in out
    assert set(dcp_read.load(tmp_path / 'out')) == {'w', 'deep'} and dcp_read.load(tmp_path / 'out')['deep'] == {'x': 1}


def test_metadata_of_safetensors_is_left_out_and_reported(tmp_path):
    st.write(tmp_path / 'in.safetensors', {'w': ('U8', [1], b'x')}, {'author': 'me'})
    assert 'author' in convert(tmp_path / 'in.safetensors', tmp_path / 'out').stdout


# ---- the directory ----

def write_small(path, byte=1):
    st.write(path, {'w': ('U8', [4], bytes([byte]) * 4)})


def test_an_existing_checkpoint_is_refused_without_overwrite(tmp_path):
    for i in (1, 2):
        write_small(tmp_path / ('%d.safetensors' % i), i)
    convert(tmp_path / '1.safetensors', tmp_path / 'out')
    before = {name: (tmp_path / 'out' / name).read_bytes() for name in os.listdir(tmp_path / 'out')}
    error = weightfs('convert', '--format=dcp', tmp_path / '2.safetensors', tmp_path / 'out', code=EXIT_COMMIT).error
    assert 'already exists (use --overwrite to replace it)' in error
    assert {name: (tmp_path / 'out' / name).read_bytes() for name in os.listdir(tmp_path / 'out')} == before
    convert(tmp_path / '2.safetensors', tmp_path / 'out', '--overwrite')
    assert dcp_read.load(tmp_path / 'out')['w'].data == b'\2' * 4
    assert len(os.listdir(tmp_path / 'out')) == 2  # the old file is gone


def test_files_of_all_ranks_of_a_replaced_checkpoint_go(tmp_path):
    writer = dcp.Writer(tmp_path / 'out')
    writer.tensor('w', 'F32', np.arange(3, dtype='<f4'), [((rank,), (1,)) for rank in range(3)])
    writer.write()
    (tmp_path / 'out' / 'config.json').write_text('{}')
    convert(tmp_path / 'out', tmp_path / 'out', '--overwrite')
    assert sorted(os.listdir(tmp_path / 'out')) == ['.metadata', '__0_1.distcp', 'config.json']
    assert dcp_read.load(tmp_path / 'out')['w'].data == np.arange(3, dtype='<f4').tobytes()


@pytest.mark.parametrize('typed', ['out', 'out/', 'out/.metadata'])
def test_the_target_is_a_directory_however_it_is_spelled(tmp_path, typed):
    write_small(tmp_path / 'in.safetensors')
    if typed == 'out/.metadata':
        (tmp_path / 'out').mkdir()
    convert(tmp_path / 'in.safetensors', os.path.join(tmp_path, typed))
    assert sorted(os.listdir(tmp_path / 'out')) == ['.metadata', '__0_0.distcp']


def test_a_file_in_the_place_of_the_directory_is_not_touched(tmp_path):
    write_small(tmp_path / 'in.safetensors')
    (tmp_path / 'out').write_text('mine')
    assert 'out' in weightfs('convert', '--format=dcp', tmp_path / 'in.safetensors', tmp_path / 'out', code=EXIT_COMMIT).error
    assert (tmp_path / 'out').read_text() == 'mine'


def test_a_source_that_fails_leaves_nothing(tmp_path):
    """A tensor that is declared and cannot be read."""
    writer = dcp.Writer(tmp_path / 'in')
    writer.tensor('w', 'F32', np.zeros(3, '<f4'), [((0,), (2,))])
    writer.write()
    error = weightfs('convert', '--format=dcp', tmp_path / 'in', tmp_path / 'out', code=None)
    assert error.code != 0 and "'w'" in error.error
    assert os.listdir(tmp_path) == ['in']


def test_burn_takes_and_gives(tmp_path):
    st.write(tmp_path / 'in.safetensors', {'a.w': ('F32', [2], b'\1' * 8), 'b': ('BF16', [1, 2], b'\2' * 4)})
    weightfs('convert', tmp_path / 'in.safetensors', tmp_path / 'in.bpk')
    convert(tmp_path / 'in.bpk', tmp_path / 'out')
    weightfs('convert', tmp_path / 'out', tmp_path / 'back.bpk')
    weightfs('diff', tmp_path / 'in.bpk', tmp_path / 'back.bpk')


def test_other_formats_name_dcp_among_those_that_are_written(tmp_path):
    write_small(tmp_path / 'in.safetensors')
    assert 'dcp' in weightfs('convert', '--format=nothing', tmp_path / 'in.safetensors', tmp_path / 'out', code=EXIT_USAGE).error


@pytest.mark.skipif(not crash.LIBRARY.exists(), reason='no fault injector in this build')
@pytest.mark.parametrize('mode', ['kill-before', 'kill-after', 'enospc-on', 'eio-once'])
def test_a_fault_at_any_call_leaves_the_old_checkpoint_or_the_new_one(tmp_path, mode):
    """A conversion over an existing checkpoint, cut or failed at each call that changes a file; the next one clears what is left."""
    folder, source = tmp_path / 'folder', tmp_path / 'new.safetensors'
    folder.mkdir()
    for name in ('old', 'new'):
        st.write(tmp_path / (name + '.safetensors'), {'a': ('U8', [3], name.encode()), 'b': ('U8', [3], name.encode())})
    at = 1
    while True:
        shutil.rmtree(folder / 'out', ignore_errors=True)
        convert(tmp_path / 'old.safetensors', folder / 'out')
        injection = crash.Injection(folder, tmp_path / 'inject', mode, at)
        done = subprocess.run([*program.COMMAND, 'convert', '--format=dcp', '--max-shard-size=3', '--overwrite', source, folder / 'out'],
                              env=injection.environment, check=False, stderr=subprocess.DEVNULL)
        if injection.n_calls() < at:
            assert done.returncode == 0 and at > 20
            break
        found = {tensor.data for tensor in dcp_read.load(folder / 'out').values()}
        assert found == {b'new'} or (found == {b'old'} and done.returncode != 0), at
        convert(source, folder / 'out', '--overwrite')
        assert {tensor.data for tensor in dcp_read.load(folder / 'out').values()} == {b'new'}
        named = {entry.file for entry in dcp_read.entries(folder / 'out').values()}
        assert set(os.listdir(folder / 'out')) == {'.metadata', *named}, at
        at += 3


# ---- the golden data ----

def strict_reader(tmp_path):
    """reader.py of the golden data as a module: it reads a folder of directories when it is loaded, here an empty one."""
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'empty' / 'expected.json').write_text('{}')
    spec = importlib.util.spec_from_file_location('strict_reader', GOLDEN / 'src' / 'reader.py')
    module, arguments = importlib.util.module_from_spec(spec), sys.argv
    sys.argv = ['reader.py', str(tmp_path / 'empty')]
    try:
        spec.loader.exec_module(module)
    finally:
        sys.argv = arguments
    return module


def golden():
    expected = json.loads((GOLDEN / 'expected.json').read_text()) if shared.IS_THERE else {}
    odd = {'ok-symlink', 'evil-path-symlink-out', 'zstd'}
    return sorted(name for name, entry in expected.items() if entry['proposal'] == 'reads' and not entry.get('proposal_tensors') and name not in odd
                  and (GOLDEN / name).is_dir())


REWRITTEN = golden()


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('group', range(4))
def test_golden_directories_are_written_again_the_same(tmp_path, group):
    reader = strict_reader(tmp_path)
    expected = json.loads((GOLDEN / 'expected.json').read_text())
    for name in REWRITTEN[group::4]:
        done = weightfs('convert', '--format=dcp', GOLDEN / name, tmp_path / name, code=None)
        if name in NOT_WRITTEN:
            assert NOT_WRITTEN[name] in done.error, name
            continue
        assert done.code == 0, (name, done.error)
        tensors, values, errors = reader.read_dcp(str(tmp_path / name), ['.metadata'])
        assert not errors, (name, errors)
        found = dcp_read.entries(tmp_path / name)
        assert {key for key, entry in found.items() if isinstance(entry.value, pth_read.Tensor)} >= set(tensors) and set(found) == set(tensors) | set(values)
        if name.startswith('hf-') or name in ('same-key-differs', 'rank-metadata'):
            continue  # their values, and which of two tensors counts, are another matter
        for key, entry in expected[name]['tensors'].items():
            if key in tensors and name not in EXCHANGED:
                assert hashlib.sha256(tensors[key]).hexdigest() == entry['sha256'], (name, key)
        assert set(expected[name]['tensors']) <= set(tensors) | set(weightfs('ls', tmp_path / name).stdout.split()), name


EXCHANGED = {'bad-swapped-entries', 'bad-swapped-files'}
NOT_WRITTEN = {}


# ---- torch ----

PEER = program.ROOT / 'tests' / 'wfs_testlib' / 'read_dcp_peers.py'


def need_torch():
    version = subprocess.run([sys.executable, '-c', 'import torch; print(torch.__version__)'], stdout=subprocess.PIPE, check=True).stdout.decode()
    if tuple(map(int, version.split('.')[:2])) < (2, 4):
        pytest.skip('torch is %s; distributed checkpoints are loaded from 2.4 on (Debian 13 has 2.6)' % version.strip())


@pytest.mark.peers
def test_torch_loads_what_we_write(tmp_path):
    """By torch.distributed.checkpoint.load and by dcp_to_torch_save, equal to what torch.load gives of the source."""
    need_torch()
    subprocess.run([sys.executable, '-B', PEER, 'write', tmp_path], check=True, timeout=300)
    for seed in range(40):
        write_nested(tmp_path / ('random-%d.pth' % seed), seed)
    for source in sorted(tmp_path.glob('*.pth')):
        convert(source, tmp_path / source.stem, *(['--max-shard-size=64'] if source.stem.endswith('3') else []))
    done = subprocess.run([sys.executable, '-B', PEER, 'compare', tmp_path], stdout=subprocess.PIPE, check=True, timeout=600)
    told = json.loads(done.stdout)
    assert len(told) >= 41 and not {name: why for name, why in told.items() if why}


@pytest.mark.peers
@pytest.mark.usefixtures('need_shared')
def test_what_we_make_of_golden_directories_is_what_torch_makes(tmp_path):
    """.pth and .safetensors of convert against dcp_to_torch_save, for every directory that torch can load."""
    need_torch()
    expected = json.loads((GOLDEN / 'expected.json').read_text())
    names = [name for name in REWRITTEN if expected[name]['torch'] == 'loads' and not name.startswith(('hf-', 'evil-'))]
    for name in names:
        weightfs('convert', GOLDEN / name, tmp_path / (name + '.pth'), code=None)
        weightfs('convert', GOLDEN / name, tmp_path / (name + '.safetensors'), code=None)
    (tmp_path / 'names.json').write_text(json.dumps({name: str(GOLDEN / name) for name in names}))
    done = subprocess.run([sys.executable, '-B', PEER, 'golden', tmp_path, GOLDEN / 'src'], stdout=subprocess.PIPE, check=True, timeout=600)
    told = {name: why for name, why in json.loads(done.stdout).items() if name not in OTHERWISE or OTHERWISE[name] != why}
    assert not {name: why for name, why in told.items() if why and not any(reason in why for reason in OLD_TORCH)}


# complex32; and arrays of NumPy in values, which we list as tensors.
OTHERWISE = {'types': 'no .safetensors', 'values': '.safetensors: more tensors: numpy rng.numpy.1'}
# What a torch before 2.15, which wrote them, says of the metadata.
OLD_TORCH = ('too many values to unpack', 'No module named')
