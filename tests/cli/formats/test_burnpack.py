# SPDX-License-Identifier: MIT
"""Burnpack through the program: what Burn wrote, what it reads and refuses, and what we write, against an independent reader
and writer and against Burn's own answers."""
import hashlib
import json
import pathlib
import struct

import pytest

from wfs_testlib import burnpack, make_reject_burnpack as reject, program, shared, st
from wfs_testlib.burnpack import Burnpack, Tensor, cbor, frame, head, mapping, text
from wfs_testlib.program import (COMMAND, EXIT_COMMIT, EXIT_DAMAGED, EXIT_FOUND, EXIT_UNSUPPORTED, ROOT, WRAP, run_measured, tool,
                                 weightfs)

GOLDEN = shared.FOLDER / 'golden/burn/burnpack'
CORPUS = [shared.FOLDER / 'corpus/burn/mnist-inference-web__model.bpk'] if shared.IS_THERE else []
CRAFTED = {entry['file']: entry for entry in json.loads((GOLDEN / 'crafted/verdicts.json').read_text())} \
    if shared.IS_THERE else {}
WRITTEN = sorted(path.with_suffix('') for path in GOLDEN.glob('*/*.bpk.json') if path.with_suffix('').exists())
NEWEST = '0.22.1'
# What the newest Burn would write otherwise: the old spelling of bool, the packed layout, and bytes that nobody names.
OTHERWISE = {'v0.20.1/bool', 'v0.20.1/duplicate', 'v0.20.1/zoo-f32', 'v0.20.1/zoo-nometa', 'v0.20.1/zoo-overridemeta',
             'v0.21.0/duplicate'}
IS_PACKED = {path for path in WRITTEN if path.parent.name == 'v0.19.1' and path.stem != 'edge-exact'}
DATA = reject.DATA


def identify(value):
    return '%s/%s' % (value.parent.name, value.stem)


def listing(path, *options):
    tensors = json.loads(weightfs('ls', '--json', *options, path).stdout)['tensors']
    return {one['key']: (one['dtype'], one['shape'], one['bytes']) for one in tensors}


def without_nul(path, folder):
    """A copy that lacks the tensor that no file name can name."""
    aligned = path not in IS_PACKED
    pack = burnpack.read(path, aligned)
    if not any('\0' in key for key in pack.tensors):
        return path, pack
    assert r"'nul\x00x'" in weightfs('ls', path, code=EXIT_UNSUPPORTED).error
    pack.tensors = {key: tensor for key, tensor in pack.tensors.items() if '\0' not in key}
    burnpack.write(folder / path.name, pack, aligned)
    return folder / path.name, pack


def same(got, want):
    """Two packs with the same content, but for how a bool is spelled."""
    assert list(got.tensors) == list(want.tensors)
    for key, tensor in want.tensors.items():
        other = got.tensors[key]
        assert (other.name, other.shape, other.data, other.param_id) == \
            (tensor.name, tensor.shape, tensor.data, tensor.param_id), key
        assert other.name != 'OPAQUE' or other.dtype == tensor.dtype
    assert repr(got.scalars) == repr(want.scalars)  # NaN is not equal to itself


# ---- what Burn wrote

@pytest.mark.parametrize('path', shared.each(WRITTEN + CORPUS, identify))
def test_what_burn_wrote_is_listed(path, folder):
    path, pack = without_nul(path, folder)
    assert listing(path) == pack.listing()
    assert json.loads(weightfs('info', '--json', path).stdout)['sources'][0]['metadata'] == pack.metadata


@pytest.mark.parametrize('path', shared.each(WRITTEN, identify))
def test_the_independent_reader_agrees_with_burn(path):
    told = json.loads(path.with_suffix('.bpk.json').read_text())
    pack = burnpack.read(path, path not in IS_PACKED)
    assert told.get('metadata', pack.metadata) == pack.metadata
    assert len(told.get('scalars', pack.scalars)) == len(pack.scalars)
    for name, value in told.get('scalars', {}).items():
        kind, number = value.rstrip(')').split('(')
        number = number.lower() if kind == 'Float' else number.capitalize()
        assert repr(float(number) if kind == 'Float' else {'True': True, 'False': False}.get(number) if kind == 'Bool'
                    else int(number)) == repr(pack.scalars[name][kind]), name
    last = {tensor['name']: tensor for tensor in told['tensors']}  # 0.19 lists twins too
    assert set(last) == set(pack.tensors)
    for name, tensor in last.items():
        if path.parent.name == 'v0.19.1' and path.stem == 'duplicate':
            continue
        got = pack.tensors[name]
        assert (tensor['shape'], tensor['sha256']) == (got.shape, got.sha256)
        # An id that is not in the file is made up by Burn.
        assert tensor['param_id'] == got.param_id or got.param_id is None


@pytest.mark.parametrize('path', shared.each(CORPUS, identify))
def test_files_of_the_corpus_are_as_expected(path):
    told = json.loads((shared.FOLDER / 'corpus/expected.json').read_text())['burn/' + path.name]
    pack = burnpack.read(path)
    assert told['metadata'] == pack.metadata
    assert {name: (one['dtype'], one['shape'], one['sha256'], one['param_id']) for name, one in told['tensors'].items()} == \
        {name: (one.name, one.shape, one.sha256, one.param_id) for name, one in pack.tensors.items()}
    for name, one in told['tensors'].items():
        assert hashlib.sha256(weightfs('cat', path, '--', name).raw).hexdigest() == one['sha256']


@pytest.mark.parametrize('path', shared.each(WRITTEN + CORPUS, identify))
def test_bytes_are_those_of_the_file(path, folder):
    path, pack = without_nul(path, folder)
    for key, tensor in list(pack.tensors.items())[:3]:
        assert weightfs('cat', path, '--', key).raw == tensor.data


@pytest.mark.parametrize('path', shared.each(WRITTEN + CORPUS, identify))
def test_untouched_files_come_back_as_the_newest_burn_writes_them(path, folder):
    is_same = path not in IS_PACKED and identify(path) not in OTHERWISE
    path, pack = without_nul(path, folder)
    target = folder / 'out.bpk'
    weightfs('convert', path, target)
    got = burnpack.read(target)
    same(got, pack)
    assert target.read_bytes() == burnpack.to_bytes(got)
    assert (target.read_bytes() == path.read_bytes()) == is_same
    version = pack.metadata.get('version')
    assert got.metadata == ({**pack.metadata, 'version': NEWEST} if version == '0.19.1' else pack.metadata)


# ---- what Burn reads and refuses

@pytest.mark.parametrize('name', CRAFTED)
def test_crafted_files_have_the_verdict_of_burn(name):
    verdicts = CRAFTED[name]

    def verdict(version):
        told = verdicts[version]
        return verdict(told.split()[-1]) if isinstance(told, str) else told

    # Burn cannot read both spellings of bool; we can.
    told = verdict('0.20.1' if name == 'bool-old.bpk' else '0.22.1')
    path = GOLDEN / 'crafted' / name
    if 'error' in told:
        weightfs('ls', path, code={'zero-bytes.bpk': 4, 'magic-swapped.bpk': 4, 'version-2.bpk': 6, 'meta-cap.bpk': 6,
                                   'nest-128.bpk': 6, 'nest-129.bpk': 6, 'nest-200.bpk': 6, 'dtype-lowercase.bpk': 6,
                                   'dtype-unknown.bpk': 6}.get(name, EXIT_DAMAGED))
        return
    assert set(listing(path)) == {tensor[0] for tensor in told['tensors']}
    for key, _, shape, digest in told['tensors']:
        assert listing(path)[key][1] == shape
        assert hashlib.sha256(weightfs('cat', path, '--', key).raw).hexdigest().startswith(digest)
    if 'metadata' in told:
        assert json.loads(weightfs('info', '--json', path).stdout)['sources'][0]['metadata'] == told['metadata']


def put(folder, content, name='model.bpk'):
    path = folder / name
    path.write_bytes(content)
    return path


def tolerated():
    """name -> CBOR that Burn reads as one tensor `w` of two numbers."""
    entry, one, top = reject.entry, reject.one, reject.top
    first = b''.join(text(key) + value for key, value in reject.FIELDS.items())
    return {
        'plain': top(),
        'version 0': top(),
        'other order': mapping((text('metadata'), mapping()), (text('tensors'), one(mapping(
            *((text(key), reject.FIELDS[key]) for key in ('data_offsets', 'shape', 'dtype')))))),
        'unknown fields': top(one(entry(color=cbor(['red', None, {'x': 1.5}]))), (text('zzz'), cbor({'1': [2, b'\xf7']}))),
        'unknown field of bytes': top(None, (b'\x43abc', b'\x5f\x41a\xff')),
        'field of bytes': mapping((b'\x47tensors', one())),
        'indefinite maps': b'\xbf' + text('tensors') + b'\xbf' + text('w') + b'\xbf' + first + b'\xff\xff\xff',
        'indefinite lists': top(one(entry(shape=b'\x9f\x02\xff', data_offsets=b'\x9f\x00\x08\xff'))),
        'indefinite name': top(one(key=b'\x7f\x60\x61w\xff')),
        'tags': b'\xd9\xd9\xf7' + top(one(entry(dtype=b'\xc1' + text('F32'), shape=b'\xd8\x2a\x81\xc1\x02'))),
        'long numbers': top(one(entry(shape=b'\x81\x1b' + struct.pack('>Q', 2), data_offsets=b'\x82\x18\x00\x19\x00\x08'))),
        'long heads': b'\xbb' + struct.pack('>Q', 1) + b'\x78\x07tensors' + one(),
        'bytes behind': top() + b'\xff\xff',
        'three offsets': top(one(entry(data_offsets=cbor([0, 8, 'x'])))),
        'no id': top(one(entry(param_id=b'\xf6'))),
        'undefined id': top(one(entry(param_id=b'\xf7'))),
        'twin, the last counts': top(mapping((text('w'), entry(shape=cbor([1]), data_offsets=cbor([0, 4]))),
                                             (text('w'), entry()))),
        'nested 127 deep': top(None, (text('x'), b'\x81' * 126 + b'\x80')),
        'field of 4096 bytes': top(None, (text('x' * 4096), b'\x00')),
    }


@pytest.mark.parametrize('name', tolerated())
def test_what_burn_tolerates_is_read(folder, name):
    path = put(folder, frame(tolerated()[name], DATA, version=0 if name == 'version 0' else 1))
    assert listing(path) == {'w': ('F32', [2], 8)}
    assert weightfs('cat', path, 'w').raw == DATA


@pytest.mark.parametrize('values', [b'\x7f' + text('a') + text('b') + b'\xff', text('ab')])
def test_metadata_and_its_last_twin(folder, values):
    meta = mapping((text('k'), text('first')), (text('j'), b'\x60'), (text('k'), values))
    path = put(folder, frame(reject.top(None, (text('metadata'), meta)), DATA))
    assert json.loads(weightfs('info', '--json', path).stdout)['sources'][0]['metadata'] == {'j': '', 'k': 'ab'}
    assert "'k' is a duplicate" in weightfs('check', path, code=EXIT_FOUND).stdout


REJECTED = sorted((ROOT / 'tests/data/reject/burnpack').glob('*.bpk'))


@pytest.mark.parametrize('path', REJECTED, ids=lambda path: path.stem)
def test_malformed_files_are_refused_in_these_words(path):
    code, message = path.with_suffix('.expect').read_text().splitlines()
    for verb in ('ls', 'check'):
        assert weightfs(verb, path, code=int(code)).error == program.refusal(path, message)


def test_malformed_files_are_what_the_script_makes():
    tool('/usr/bin/python3', reject.__file__, '--check')


@pytest.mark.parametrize('case', reject.large(), ids=lambda case: case[0])
def test_malformed_large_files_are_refused_in_these_words(folder, case):
    _, content, code, message = case
    path = put(folder, content)
    assert weightfs('ls', path, code=code).error == program.refusal(path, message)


@pytest.mark.skipif(bool(WRAP), reason='the wrapper needs memory of its own')
@pytest.mark.parametrize('name', ['metadata-of-4-gib', 'nested-20000', 'cbor-text-of-2-64', 'cbor-count-of-2-64', 'cbor-tags-alone'])
def test_refusal_needs_little_memory(name):
    _, memory = run_measured('ls', ROOT / 'tests/data/reject/burnpack' / (name + '.bpk'))
    assert memory < (64 << 20) * (4 if 'asan' in tool('ldd', COMMAND[0]).stdout else 1)


# ---- limits: at N and N + 1

def nested(depth):
    return frame(reject.top(None, (text('x'), b'\x81' * (depth - 2) + b'\x80')), DATA)


def wide(n):
    tensors = mapping(*((text('t%d' % i), reject.entry()) for i in range(n)))
    return frame(mapping((text('tensors'), tensors)), DATA)


LIMITS = {
    'cbor': (100, lambda n: frame(reject.top(None, (text('x'), text('y' * (n - 3 - len(reject.top()) - 1)))), DATA)),
    'cbor_depth': (9, nested),
    'burnpack_tensors': (5, wide),
    'tensors': (5, wide),
    'key': (30, lambda n: frame(reject.top(reject.one(key=text('k' * n))), DATA)),
    'rank': (6, lambda n: frame(reject.top(reject.one(reject.entry(shape=cbor([1] * (n - 1) + [2])))), DATA)),
}


@pytest.mark.parametrize('name', LIMITS)
def test_limits_hold_at_their_number_and_not_one_more(folder, name):
    n, make = LIMITS[name]
    good, bad = put(folder, make(n), 'good.bpk'), put(folder, make(n + 1), 'bad.bpk')
    assert name != 'cbor' or struct.unpack('<I', good.read_bytes()[6:10]) == (n,)
    weightfs('ls', '--limit', '%s=%d' % (name, n), good)
    assert '(limit %s)' % name in weightfs('ls', '--limit', '%s=%d' % (name, n), bad, code=EXIT_UNSUPPORTED).error
    weightfs('ls', '--limit', '%s=%d' % (name, n + 1), bad)


def test_a_raised_limit_lets_more_tensors_in(folder):
    path = put(folder, reject.many(100001))
    result = weightfs('ls', '--limit', 'burnpack_tensors=100001', path)
    assert len(result.stdout.splitlines()) == 100001


# ---- the two layouts

PAIR = {'b': Tensor('U8', [3], b'abc'), 'a': Tensor('F32', [2], DATA), 'c': Tensor('U8', [], b'!')}
EVEN = {'b': Tensor('U8', [256], bytes(range(256))), 'a': Tensor('U8', [512], bytes(range(255, -1, -1)) * 2)}
OLD = {'format': 'burnpack', 'producer': 'burn', 'version': '0.19.0'}


@pytest.mark.parametrize('aligned', [True, False], ids=['aligned', 'packed'])
@pytest.mark.parametrize('tensors', [PAIR, EVEN, {}, {'c': PAIR['c']}],
                         ids=['pair', 'even', 'none', 'one'])
@pytest.mark.parametrize('metadata', [{}, OLD, {'version': '0.19.0'}], ids=['bare', 'old', 'by others'])
def test_packed_and_aligned_are_told_apart(folder, tensors, aligned, metadata):
    path = put(folder, burnpack.to_bytes(Burnpack(tensors, metadata), aligned))
    assert listing(path) == Burnpack(tensors).listing()
    for key, tensor in tensors.items():
        assert weightfs('cat', path, key).raw == tensor.data
    container = json.loads(weightfs('info', '--json', path).stdout)['sources'][0]['container']
    assert container == ('burnpack' if aligned else 'burnpack in the packed layout')


@pytest.mark.parametrize('n', range(250, 262))
@pytest.mark.parametrize('aligned', [True, False], ids=['aligned', 'packed'])
def test_metadata_that_ends_near_a_multiple_of_256(folder, n, aligned):
    pack = Burnpack(EVEN)
    n_bare = len(burnpack.to_bytes(Burnpack(EVEN, {'p': 'x' * 30}), False)) - 768
    pack.metadata = {'p': 'x' * (30 + n - n_bare)}
    content = burnpack.to_bytes(pack, aligned)
    path = put(folder, content)
    for key, tensor in EVEN.items():
        assert weightfs('cat', path, key).raw == tensor.data


@pytest.mark.parametrize('cut', [1, 60, 255, 700])
def test_a_cut_file_is_not_taken_for_the_other_layout(folder, cut):
    content = burnpack.to_bytes(Burnpack(PAIR))
    assert 'truncated' in weightfs('ls', put(folder, content[:-cut]), code=EXIT_DAMAGED).error


def test_what_follows_the_data_is_told_and_changes_nothing(folder):
    for aligned in (True, False):
        path = put(folder, burnpack.to_bytes(Burnpack(PAIR, OLD), aligned) + bytes(77))
        assert weightfs('cat', path, 'a').raw == DATA
        assert '77 bytes follow the last tensor' in weightfs('check', path, code=EXIT_FOUND).stdout


def test_starts_at_odd_places_do_not_make_a_file_packed(folder):
    entry = reject.entry(data_offsets=cbor([3, 11]))
    path = put(folder, frame(reject.top(reject.one(entry)), b'xyz' + DATA))
    assert weightfs('cat', path, 'w').raw == DATA


def test_force_shows_what_is_there_of_a_cut_file(folder):
    path = put(folder, burnpack.to_bytes(Burnpack(EVEN))[:-300])
    assert listing(path, '--force') == Burnpack(EVEN).listing()
    assert weightfs('cat', '--force', path, 'b').raw == EVEN['b'].data
    weightfs('cat', '--force', path, 'a', code=None)


# ---- findings

def test_a_clean_file_has_no_findings(folder):
    path = put(folder, burnpack.to_bytes(Burnpack(PAIR, {'a': 'b'}, {'s': {'Int': 3}})))
    assert weightfs('check', path).stdout == ''


@pytest.mark.parametrize('entries, data, words', [
    ({'a': ([2], [0, 8]), 'b': ([1], [4, 8])}, DATA, "tensor 'b' shares bytes with another one"),
    ({'a': ([2], [512, 520])}, bytes(512) + DATA, '512 bytes of the data belong to no tensor'),
])
def test_odd_ranges_are_read_and_told(folder, entries, data, words):
    tensors = {key: {'dtype': 'F32', 'shape': shape, 'data_offsets': place} for key, (shape, place) in entries.items()}
    path = put(folder, frame(cbor({'tensors': tensors}), data))
    assert set(listing(path)) == set(entries)
    assert words in weightfs('check', path, code=EXIT_FOUND).stdout


def test_tensors_may_share_one_range(folder):
    entry = {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}
    path = put(folder, frame(cbor({'tensors': {'a': entry, 'b': entry}}), DATA))
    assert weightfs('cat', path, 'a').raw == weightfs('cat', path, 'b').raw == DATA
    assert weightfs('check', path).stdout == ''


# ---- writing

DTYPES = {'BOOL': burnpack.BOOL, 'F64': 'F64', 'F32': 'F32', 'F16': 'F16', 'BF16': 'BF16', 'I64': 'I64', 'I32': 'I32', 'I16': 'I16',
          'I8': 'I8', 'U64': 'U64', 'U32': 'U32', 'U16': 'U16', 'U8': 'U8'}


def test_a_safetensors_file_becomes_the_burnpack_that_burn_would_write(folder):
    tensors = {'x.' + dtype.lower(): (dtype, [3, 2], bytes(range(6 * st.size_of(dtype, [])))) for dtype in DTYPES}
    tensors['empty'] = ('F32', [0, 7], b'')
    tensors['scalar'] = ('F16', [], b'ab')
    st.write(folder / 'in.safetensors', tensors, {'format': 'pt', 'note': 'ünï'})
    weightfs('convert', folder / 'in.safetensors', folder / 'out.bpk')
    order = st.read(folder / 'in.safetensors').tensors
    # Like places in the data are told apart by name when they are read, so sort them as the file has them.
    want = Burnpack({key: Tensor(DTYPES[dtype], shape, data) for key, (dtype, shape, data) in order.items()},
                    {'format': 'burnpack', 'producer': 'burn', 'version': NEWEST, 'note': 'ünï'})
    assert (folder / 'out.bpk').read_bytes() == burnpack.to_bytes(want)


def test_and_back_again(folder, small):
    weightfs('convert', small, folder / 'a.bpk')
    weightfs('convert', folder / 'a.bpk', folder / 'b.safetensors')
    assert st.read(folder / 'b.safetensors').digests() == st.read(small).digests()


@pytest.mark.parametrize('dtype', sorted(set(st.BITS) - set(DTYPES)))
def test_what_has_no_room_is_named(folder, dtype):
    shape = [4]
    st.write(folder / 'in.safetensors', {'a': ('F32', [], bytes(4)), 'layer.q': (dtype, shape, bytes(st.size_of(dtype, shape)))})
    result = weightfs('convert', folder / 'in.safetensors', folder / 'out.bpk', code=None)
    assert result.code in (EXIT_UNSUPPORTED, EXIT_COMMIT)
    assert "'layer.q'" in result.error and 'no dtype %s' % dtype in result.error
    assert not (folder / 'out.bpk').exists()


def test_ids_schemes_scalars_and_stores_come_back(folder):
    scheme = {'QFloat': {'value': 'Q4S', 'store': {'PackedU32': 0}, 'mode': 'Symmetric', 'tensor': None,
                         'block': {'size': {'storage': [4, 1, 1, 1, 1], 'len': 1}, 'dtype': 'F16'}}}
    pack = Burnpack({
        'z': Tensor(scheme, [2, 4], b'0123456789', 2**64 - 1),
        'a': Tensor(burnpack.BOOL_U8, [2], b'\0\1', 0),
        'b': Tensor(burnpack.BOOL_U32, [1], bytes(4)),
        'f': Tensor('Flex32', [1], bytes(4), 7),
        'q2': Tensor(scheme, [2, 4], b'abcdefghij'),
    }, {'k': 'a\0b', '': 'x'}, {'i': {'Int': -2**63}, 'j': {'Int': 5}, 'u': {'UInt': 2**64 - 1}, 'v': {'UInt': 5},
                                'f': {'Float': -0.0}, 'g': {'Float': 1e300}, 't': {'Bool': True}, '0.step': {'UInt': 0}})
    path = put(folder, burnpack.to_bytes(pack))
    weightfs('convert', path, folder / 'out.bpk')
    assert (folder / 'out.bpk').read_bytes() == path.read_bytes()


@pytest.mark.parametrize('change', ['twin', 'gap', 'unsorted', 'indefinite', 'trailing'])
def test_what_is_not_canonical_becomes_canonical(folder, change):
    entry, one, top = reject.entry, reject.one, reject.top
    content, data = {
        'twin': (top(mapping((text('w'), entry(dtype=text('I32'))), (text('w'), entry()))), DATA),
        'gap': (top(one(entry(data_offsets=cbor([512, 520])))), bytes(512) + DATA),
        'unsorted': (top(mapping((text('x'), entry(shape=cbor([0]), data_offsets=cbor([0, 0]))), (text('w'), entry()))), DATA),
        'indefinite': (b'\xbf' + top()[1:] + b'\xff', DATA),
        'trailing': (top() + bytes(9), DATA + bytes(5)),
    }[change]
    path = put(folder, frame(content, data))
    weightfs('convert', path, folder / 'out.bpk')
    got = burnpack.read(folder / 'out.bpk')
    assert got.tensors['w'].data == DATA
    assert (folder / 'out.bpk').read_bytes() == burnpack.to_bytes(got)


def test_more_tensors_than_burn_reads_are_not_written(folder):
    path = put(folder, reject.many(100001))
    result = weightfs('convert', '--limit', 'burnpack_tensors=100001', path, folder / 'out.bpk', code=None)
    assert result.code in (EXIT_UNSUPPORTED, EXIT_COMMIT)
    assert '100001 tensors, Burn reads at most 100000' in result.error


@pytest.mark.skipif(bool(WRAP), reason='a wrapper is slow')
def test_a_large_table_is_read_and_written(folder):
    n = 100000
    names = [b'model.layers.%d.weight' % i for i in range(n)]
    shared_part = mapping((text('dtype'), text('U8')), (text('shape'), cbor([0])), (text('data_offsets'), cbor([0, 0])))
    content = mapping((text('tensors'), head(5, n) + b''.join(text(name) + shared_part for name in sorted(names))))
    path = put(folder, frame(content))
    code, memory = run_measured('convert', path, folder / 'out.bpk')
    assert code == 0 and memory < 400 << 20
    assert (folder / 'out.bpk').read_bytes() == path.read_bytes()
