# SPDX-License-Identifier: MIT
"""Hostile and broken PyTorch files: the stated result, nothing executed, little time and memory."""
import json
import os
import pickletools
import shutil
import struct
import subprocess
import zipfile
import zlib

import pytest

from wfs_testlib import program, pth, shared
from wfs_testlib.make_reject_pytorch import FOLDER
from wfs_testlib.program import EXIT_DAMAGED, EXIT_FOREIGN, EXIT_UNSUPPORTED, IS_INSTRUMENTED, run_measured, tool, weightfs

CASES = json.loads((FOLDER / 'expected.json').read_text())
BYTES = 64 << 20  # for one hostile file


def names(path, *more):
    return {tensor['key'] for tensor in json.loads(weightfs('ls', *more, '--json', path).stdout)['tensors']}


def words(result, path):
    """The error without the path, which has words of its own."""
    return result.error.split(str(path) + ': ', 1)[1]


@pytest.mark.parametrize('name', CASES)
def test_every_hostile_file_ends_in_the_stated_result(name):
    case, path = CASES[name], FOLDER / name
    if case['exit']:
        assert case['message'] in words(weightfs('ls', path, code=case['exit']), path)
        return
    found = names(path)
    for key, trouble in case['tensors'].items():
        assert key in found
        if '35-' in name:
            continue
        result = weightfs('cat', path, '--', key, code=None if 'record-cut' in name else 0 if trouble is None else EXIT_DAMAGED)
        assert trouble is None or trouble in words(result, path)
    findings = [finding['text'] for finding in json.loads(weightfs('info', '--json', path).stdout)['sources'][0]['findings']]
    for finding in case['findings']:
        assert any(finding in text for text in findings), findings
    json.loads(weightfs('config', path).stdout)


@pytest.mark.skipif(IS_INSTRUMENTED, reason='sanitizers take time and memory of their own')
@pytest.mark.parametrize('name', CASES)
def test_no_hostile_file_takes_much(name):
    code, n_bytes = run_measured('info', FOLDER / name)
    assert code >= 0
    assert n_bytes < BYTES


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('name', sorted(path.name for path in (shared.FOLDER / 'corpus/picklescan').glob('*'))
                         if shared.IS_THERE else ['none'])
def test_scanner_samples_load_or_are_refused_and_run_nothing(name, folder):
    path = shared.FOLDER / 'corpus/picklescan' / name
    for verb in 'info', 'check', 'config', 'ls':
        weightfs(verb, path, code=None, cwd=folder)
    assert list(folder.iterdir()) == []
    if shutil.which('strace') and not IS_INSTRUMENTED:
        trace = folder / 'trace'
        subprocess.run(['strace', '-f', '-qq', '-o', trace, '-e', 'trace=%process,%network', *program.COMMAND, 'info', path],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        calls = [line.split(None, 1)[1].split('(')[0] for line in trace.read_text().splitlines() if '(' in line]
        assert set(calls) <= {'execve', 'exit_group', 'arch_prctl', 'set_tid_address'}, calls
        assert calls.count('execve') == 1


def nested(depth):
    return pth.checkpoint(pth.dictionary(t=pth.tensor() + b'\x85' * depth))


def keys(*named):
    return pth.checkpoint(pth.pairs(*((pth.text(key), pth.tensor()) for key in named)))


def dims(rank):
    return pth.checkpoint(pth.dictionary(t=pth.tensor(size=(1,) * rank, stride=(1,) * rank)))


MANY = pth.zipped(*(pth.records(pth.dictionary(a=pth.tensor())) + [pth.entry('m/data/%d' % i, b'x') for i in range(1, 7)]))
LONG_NAME = pth.zipped(*pth.records(pth.dictionary(a=pth.tensor())), pth.entry('m/' + 'n' * 98))
PICKLE = pth.pickle(pth.text('x' * 100))
DEFLATED = pth.zipped(pth.entry('m/data.pkl', b'\x80\2' + pth.text('x' * 10000) + b'.', method=8), pth.entry('m/version', b'3\n'))
N_DIRECTORY = MANY.index(b'PK\5\6') - MANY.index(b'PK\1\2')
N_RATIO = -(-10008 // len(zlib.compress(b'\x80\2' + pth.text('x' * 10000) + b'.', 9)[2:-4]))


@pytest.mark.parametrize('limit, enough, content, words', [
    ('pickle', len(PICKLE), PICKLE, 'longer than'),
    ('opcodes', 4, pth.pickle(b'N0N'), 'opcodes'),  # PROTO, NONE, POP, NONE, STOP: five
    ('values', 10, pth.PROTO + b']' * 6 + b'0' * 5 + b'.', 'values'),
    ('memo', 3, pth.PROTO + b']q\0q\1q\2.', 'memo entries'),
    ('marks', 5, pth.PROTO + b'(((((11111N.', 'open marks'),
    ('text', 100, PICKLE, 'string of 100 bytes'),
    ('integer', 20, pth.PROTO + b'\x8a\x14' + b'\1' * 20 + b'.', 'integer of 20 bytes'),
    ('integer', 20, pth.PROTO + b'L' + b'1' * 80 + b'L\n.', 'integer of 80 digits'),
    ('key', 6, keys('abcdef'), 'above the limit'),
    ('names', 6, keys('ab', 'cd'), 'limit names'),
    ('tensors', 3, keys('a', 'b', 'c'), 'more than 2 tensors'),
    ('zip_entries', 10, MANY, '10 entries'),
    ('zip_directory', N_DIRECTORY, MANY, 'directory of'),
    ('zip_name', 100, LONG_NAME, 'name of 100 bytes'),
    ('inflate_ratio', N_RATIO, DEFLATED, 'inflate'),
], ids=lambda value: value if isinstance(value, (str, int)) else '')
def test_each_limit_is_exact(limit, enough, content, words, folder):
    path = folder / 'x.pth'
    path.write_bytes(content)
    if limit == 'opcodes':
        enough = 5
    weightfs('ls', '--limit', '%s=%d' % (limit, enough), path)
    error = weightfs('ls', '--limit', '%s=%d' % (limit, enough - 1), path, code=EXIT_UNSUPPORTED).error
    assert words in error and error.endswith('; --limit={0}=N, or -o limit.{0}=N of a mount, raises it'.format(limit))


def test_the_limits_of_shape_and_depth_spare_the_rest(folder):
    path = folder / 'x.pth'
    path.write_bytes(dims(5))
    weightfs('cat', '--limit', 'rank=5', path, 't')
    assert 'limit of 4 (limit rank)' in weightfs('cat', '--limit', 'rank=4', path, 't', code=EXIT_DAMAGED).error
    path.write_bytes(nested(4))
    assert names(path, '--limit', 'depth=5') == {'t.0.0.0.0'}
    assert names(path, '--limit', 'depth=4') == set()


def test_what_is_used_again_is_listed_again_up_to_a_limit(folder):
    path = folder / 'x.pth'
    shared = pth.pairs((pth.text('a'), pth.tensor()), (pth.text('b'), pth.number(1))) + pth.put(0)
    path.write_bytes(pth.checkpoint(pth.dictionary(x=shared, y=pth.get(0), z=pth.get(0))))
    assert names(path, '--limit', 'repeats=10') == {'x.a', 'y.a', 'z.a'}  # twice one container of four things
    assert names(path, '--limit', 'repeats=9') == {'x.a', 'y.a'}


def test_an_unknown_limit_names_those_that_exist(folder):
    (folder / 'x.pth').write_bytes(PICKLE)
    assert 'inflate_ratio' in weightfs('ls', '--limit', 'nonsense=1', folder / 'x.pth', code=2).error


@pytest.mark.skipif(IS_INSTRUMENTED, reason='sanitizers take time and memory of their own')
def test_a_bomb_that_inflates_to_a_valid_pickle_ends_at_a_limit(folder):
    # 400 MB of NONE and POP out of less than half a MB.
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    unit, crc, raw = b'N0' * (1 << 19), 0, packer.compress(pth.PROTO)
    for _ in range(400):
        raw += packer.compress(unit)
    raw += packer.flush()
    n_bytes = 2 + 400 * len(unit)
    path = folder / 'bomb.pth'
    path.write_bytes(pth.zipped(pth.entry('m/data.pkl', method=8, raw=raw, crc=crc, n_bytes=n_bytes), pth.entry('m/version', b'3\n')))
    code, memory = run_measured('info', path)
    assert code == EXIT_UNSUPPORTED and memory < BYTES


def test_a_tensor_that_looks_like_terabytes_is_read_on_the_fly(folder):
    path = folder / 'x.pth'
    value = pth.dictionary(a=pth.tensor(pth.storage(numel=1), size=(2 ** 40,), stride=(0,)))
    path.write_bytes(pth.checkpoint(value, r0=struct.pack('<f', 1.5)))
    tensor, = json.loads(weightfs('ls', '--json', path).stdout)['tensors']
    assert tensor['bytes'] == 4 << 40
    process = subprocess.Popen([*program.COMMAND, 'cat', path, 'a'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.read(1 << 16) == struct.pack('<f', 1.5) * (1 << 14)
    process.stdout.close()
    process.wait(program.PATIENCE)


def sparse_zip(path, n_large):
    """As torch writes it: one record of n_large bytes, and one behind it; a hole where its bytes are zero."""
    def large_header(name, pad):
        return (b'PK\3\4' + struct.pack('<HHHHHIIIHH', 0, 0x808, 0, 0, 0, 0, 0xffffffff, 0xffffffff, len(name), 24 + pad) + name
                + struct.pack('<HHQQ', 1, 16, n_large, 0) + b'FB' + struct.pack('<H', pad) + b'Z' * pad)

    value = pth.dictionary(big=pth.tensor(pth.storage(numel=n_large // 4), size=(n_large // 4,)),
                           last=pth.tensor(pth.storage(key='1'), size=(4,)))
    pickled = pth.pickle(value)
    entries, out = [], bytearray()
    for name, data in (b'm/data.pkl', pickled), (b'm/version', b'3\n'):
        entries.append((name, len(out), len(data), zlib.crc32(data), 0x800))
        out += b'PK\3\4' + struct.pack('<HHHHHIIIHH', 0, 0x800, 0, 0, 0, zlib.crc32(data), len(data), len(data), len(name), 0)
        out += name + data
    entries.append((b'm/data/0', len(out), n_large, 0, 0x808))
    out += large_header(b'm/data/0', -(len(out) + 30 + 8 + 24) % 64)
    start = len(out)
    with open(path, 'wb') as file:
        file.write(out)
        file.seek(start + 4)
        file.write(struct.pack('<f', 2.5))
        file.seek(start + n_large - 4)
        file.write(struct.pack('<f', 3.5))
        file.write(b'PK\7\x08' + struct.pack('<IQQ', 0, n_large, n_large))
        last = struct.pack('<4f', 1, 2, 3, 4)
        entries.append((b'm/data/1', file.tell(), 16, zlib.crc32(last), 0x808))
        # Beyond 4 GiB the local header has a block with its own position, and sizes of zero.
        file.write(b'PK\3\4' + struct.pack('<HHHHHIIIHH', 0, 0x808, 0, 0, 0, 0, 0, 0, 8, 12) + b'm/data/1')
        file.write(struct.pack('<HHQ', 1, 8, file.tell() - 38) + last + b'PK\7\x08' + struct.pack('<IQQ', zlib.crc32(last), 16, 16))
        directory = file.tell()
        for name, offset, size, crc, flags in entries:
            fields = [size, size, offset]
            large = [x for x in (size, size, offset) if x >= 0xffffffff]
            extra = struct.pack('<HH%dQ' % len(large), 1, 8 * len(large), *large) if large else b''
            file.write(b'PK\1\2' + struct.pack('<HHHHHHIIIHHHHHII', 0, 0, flags, 0, 0, 0, crc, *(min(x, 0xffffffff) for x in fields[:2]),
                                              len(name), len(extra), 0, 0, 0, 0, min(offset, 0xffffffff)) + name + extra)
        n_directory, end = file.tell() - directory, file.tell()
        file.write(b'PK\6\6' + struct.pack('<QHHIIQQQQ', 44, 0x31e, 45, 0, 0, len(entries), len(entries), n_directory, directory))
        file.write(b'PK\6\7' + struct.pack('<IQI', 0, end, 1))
        file.write(b'PK\5\6' + struct.pack('<HHHHIIH', 0, 0, len(entries), len(entries), min(n_directory, 0xffffffff), 0xffffffff, 0))


def test_a_zip_of_six_gigabytes_is_open_at_once(folder):
    path = folder / 'large.pth'
    sparse_zip(path, 6 << 30)
    code, memory = run_measured('ls', path)
    assert code == 0
    if not IS_INSTRUMENTED:
        assert memory < 16 << 20
    assert names(path) == {'big', 'last'}
    assert weightfs('cat', path, 'last').raw == struct.pack('<4f', 1, 2, 3, 4)
    process = subprocess.Popen([*program.COMMAND, 'cat', path, 'big'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.read(12) == struct.pack('<3f', 0, 2.5, 0)
    process.stdout.close()
    process.wait(program.PATIENCE)


def test_check_finds_a_flipped_bit_that_loading_does_not_see(folder):
    path = folder / 'x.pth'
    content = bytearray(pth.checkpoint(pth.dictionary(a=pth.tensor()), r0=b'0123456789abcdef'))
    path.write_bytes(content)
    assert weightfs('check', path).code == 0
    content[content.index(b'0123456789abcdef')] ^= 1
    path.write_bytes(content)
    assert weightfs('cat', path, 'a').raw == b'1123456789abcdef'
    assert 'm/data/0 has the checksum' in weightfs('check', path, code=1).stdout


@pytest.mark.parametrize('name', ['good/module.pth', 'good/program.pt2', 'legacy/good.pth', 'tar/good.pth', 'pickle/43-twin-keys.pkl'])
def test_the_limit_of_memory_is_named_and_not_taken_for_a_lack_of_it(name):
    for n_bytes in 100, 1000:
        result = weightfs('ls', '--limit', 'index_memory=%d' % n_bytes, FOLDER / name, code=EXIT_UNSUPPORTED)
        assert 'takes more than %d bytes of memory (limit index_memory)' % n_bytes in result.error


def test_damaged_records_are_not_called_failing_reads(folder):
    path = FOLDER / 'zip/deflated-record-cut.pth'
    assert words(weightfs('cat', path, 'a', code=EXIT_DAMAGED), path) == "tensor 'a': its compressed data is damaged"
    failed = weightfs('convert', path, folder / 'out.safetensors', code=None)
    assert "tensor 'a': its compressed data is damaged" in failed.error and os.listdir(folder) == []


def test_check_reads_deflated_records_too(folder):
    path = folder / 'x.pth'
    data = bytes(range(256)) * 4096
    value = pth.dictionary(a=pth.tensor(pth.storage(numel=len(data) // 4), size=(len(data) // 4,)))
    made = pth.records(value, r0=data)
    path.write_bytes(pth.zipped(*(pth.entry(e['path'].decode(), e['raw'], method=8) for e in made)))
    assert weightfs('cat', path, 'a').raw == data
    assert weightfs('check', path).code == 0
    path.write_bytes(pth.zipped(*(pth.entry(e['path'].decode(), e['raw'], method=8, crc=1 if b'data/0' in e['path'] else None)
                                  for e in made)))
    assert 'data/0' in weightfs('check', path, code=1).stdout


def test_a_file_without_a_pickle_in_it_says_what_it_is(folder):
    path = folder / 'x.bin'
    path.write_bytes(pth.zipped(pth.entry('a.npy', b'x')))
    assert 'NumPy archive' in weightfs('ls', path, code=EXIT_FOREIGN).error


def test_hundred_thousand_tensors_take_little_memory(folder):
    n = 100000
    path = folder / 'many.pth'
    value = bytearray(b'}(')
    for i in range(n):
        value += pth.text('model.layers.%d.block.%d.weight' % (i // 100, i % 100))
        value += pth.tensor(pth.storage(key=str(i)), more=b'\x89' + pth.ORDERED)
    path.write_bytes(pth.checkpoint(bytes(value) + b'u', **{'r%d' % i: struct.pack('<4i', i, 0, 0, 0) for i in range(n)}))
    code, memory = run_measured('info', path)
    assert code == 0
    assert weightfs('cat', path, 'model.layers.999.block.99.weight').raw == struct.pack('<4i', n - 1, 0, 0, 0)
    if not IS_INSTRUMENTED:
        assert memory < 100 << 20




DANGERS = [('posix', 'system'), ('builtins', 'eval'), ('__builtin__', 'execfile'), ('subprocess', 'Popen')]
DANGER = 'refers to %s of module %s, which can run any code'


def evil(folder, n=1):
    """A checkpoint whose pickle calls the first n names when Python loads it, beside a tensor."""
    calls = {'x%d' % i: pth.call(pth.name(*DANGERS[i]), pth.text('true')) for i in range(n)}
    path = folder / 'evil.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(), **calls)))
    return path


def called(path):
    """The names in the pickle of a checkpoint, found without loading it."""
    with zipfile.ZipFile(path) as file:
        (record,) = [name for name in file.namelist() if name.endswith('data.pkl')]
        opcodes = [(opcode.name, arg) for opcode, arg, _ in pickletools.genops(file.read(record))]
    return {tuple(arg.split(' ')) for opcode, arg in opcodes if opcode == 'GLOBAL'}


@pytest.mark.parametrize('n', [0, 1, len(DANGERS)])
@pytest.mark.parametrize('options', [[], ['--remap', '^w$=>v']], ids=' '.join)
def test_a_conversion_names_every_call_that_it_writes_again(folder, n, options):
    path = evil(folder, n)
    lines = tool(*program.COMMAND, 'convert', *options, path, folder / 'out.pth').stderr.splitlines()
    kept = called(folder / 'out.pth') & set(DANGERS)
    assert kept == set(DANGERS[:n]) and len(lines) == n
    for module, name in kept:
        assert any(str(folder / 'out.pth') in line and DANGER % (name, module) in line for line in lines)


@pytest.mark.parametrize('ending', ['safetensors', 'bpk'])
def test_a_conversion_that_leaves_the_calls_out_has_no_such_notice(folder, ending):
    assert weightfs('convert', evil(folder), folder / ('out.' + ending)).stderr == ''
