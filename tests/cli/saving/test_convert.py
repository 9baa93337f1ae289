# SPDX-License-Identifier: MIT
"""Writing a checkpoint anew: canonical, whole or not at all."""
import hashlib
import os
import stat
import subprocess
import time

import numpy
import pytest

from wfs_testlib import program, st
from wfs_testlib.program import EXIT_COMMIT, EXIT_DAMAGED, EXIT_RULES, EXIT_SOURCE, EXIT_USAGE, SAMPLE, tool, weightfs

SLOW = program.BUILD / 'tests' / 'inject' / 'slow.so'
LOCKS = SLOW.with_name('locks.so')
TARGETS = ['out.safetensors', 'out.pth', 'out.bpk', 'out.gguf', 'shards/', 'dcp/']
# Files that the reference writer makes of these tensors (sha256), from its own runs.
VECTORS = {
    'nothing': ({}, None, '9bbcbf73561f6bc5d0a17ea6a2081feed2d1304e87602d8c502d9a5c4bd85576'),
    'metadata only': ({}, {'framework': 'pt'}, '721db72c8cd303cb3f5fc907b02ffec30ec4adf0b29d13117cb85cb1f74568a0'),
    'one matrix': ({'attn.0': ('F32', [1, 2, 3], st.f32(0, 1, 2, 3, 4, 5))}, None,
                   '2a86d7550f9791d6a7447c66874e5c86d824e292e17226b389a53341d4987f0d'),
    'scalar': ({'s': ('F32', [], st.f32(1))}, None, 'd300523413206b51ac3a186710a8e64064e6631816bf468c97b3e025231716ba'),
    'five types': ({'a': ('BF16', [2], b'\x80\x3f\x00\x40'), 'b': ('F32', [1], st.f32(1.5)), 'c': ('U8', [0], b''),
                    'm': ('BOOL', [1], b'\1'), 'z': ('I64', [1], (7).to_bytes(8, 'little'))}, None,
                   'e35912991666cd2621adb971b0899f91666cdd4a3a951c1112fe0f0985f6cd83'),
    'escapes': ({'a"\\\n\x01é': ('U8', [1], b'\x2a')}, None, '87dc562c0c043f32c80972fd9f65d31e8c65d493faa1d69afeff4a15a28adce8'),
    'sub-byte': ({'q': ('F4', [4], b'\x21\x43')}, None, '8bf1138db51d6a0b28884d6c2cdd5baee8214f107a2ac5dba2f596761fbb9128'),
}


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize('name', VECTORS)
def test_output_is_what_the_reference_writes(folder, name):
    tensors, metadata, digest = VECTORS[name]
    parts = [(key, *tensor) for key, tensor in reversed(tensors.items())]
    source = st.write_parts(folder / 'loose', parts, metadata, pad=0)
    weightfs('convert', source, folder / 'out.safetensors')
    assert sha256(folder / 'out.safetensors') == digest


def test_conversion_of_the_sample_is_the_sample(folder):
    weightfs('convert', SAMPLE, folder / 'out.safetensors')
    assert (folder / 'out.safetensors').read_bytes() == SAMPLE.read_bytes()


def test_order_of_all_types_and_names(folder):
    names = ['', '\x01', '"', '</x>', 'A', 'a', 'a.10', 'a.2', 'é', '\uffff', '\U00010000']
    tensors = {name + '-' + dtype: (dtype, [4], bytes(st.size_of(dtype, [4]))) for name in names for dtype in st.BITS}
    source = st.write_parts(folder / 'loose', [(key, *tensor) for key, tensor in tensors.items()], {'b': '2', 'a': '1', 'é': ''})
    weightfs('convert', source, folder / 'out.safetensors')
    assert (folder / 'out.safetensors').read_bytes() == st.canonical(tensors, {'b': '2', 'a': '1', 'é': ''})


# Code by code, without the sign, as OCP Microscaling Formats 1.0 defines them.
MAGNITUDES = {'F4': [0.0, 0.5, 1, 1.5, 2, 3, 4, 6],
              'F6_E2M3': [i / 8 for i in range(16)] + [i / 4 for i in range(8, 16)] + [i / 2 for i in range(8, 16)],
              'F6_E3M2': [i / 16 for i in range(8)] + [i * 2 ** e / 16 for e in range(1, 7) for i in range(4, 8)]}


@pytest.mark.parametrize('dtype', MAGNITUDES)
@pytest.mark.parametrize('target', ['F32', 'BF16', 'F16', 'F64', 'F8_E4M3', 'I8'])
def test_floats_of_less_than_a_byte_are_cast(folder, dtype, target):
    """All codes in a changing order, and more bytes than one read of the program has."""
    magnitudes = MAGNITUDES[dtype]
    n_codes, n_bits = 2 * len(magnitudes), st.BITS[dtype]
    codes = [i * i * 7 % n_codes if i % 3 else i % n_codes for i in range(192 * 1024)]
    numbers = numpy.array(magnitudes + [-number for number in magnitudes])[codes]
    data = b''.join(sum(code << n_bits * i for i, code in enumerate(codes[j:j + 24])).to_bytes(3 * n_bits, 'little') for j in range(0, len(codes), 24))
    source = st.write(folder / 'in', {'w': (dtype, [192, 1024], data), 'n': ('F32', [1], st.f32(1))})
    weightfs('convert', '--cast=w:' + target, source, folder / 'out.safetensors')
    singles = numbers.astype('<f4')
    expected = {'BF16': lambda: (singles.view('<u4') >> 16).astype('<u2'), 'F8_E4M3': lambda: e4m3(singles), 'F32': lambda: singles,
                'F16': lambda: numbers.astype('<f2'), 'F64': lambda: numbers.astype('<f8'), 'I8': lambda: numbers.astype('i1')}[target]()
    found = st.read(folder / 'out.safetensors')
    assert found.tensors == {'w': (target, [192, 1024], expected.tobytes()), 'n': ('F32', [1], st.f32(1))}


def e4m3(singles):
    """All of these numbers have four bits at most, and exponents that it has."""
    bits = singles.view('<u4')
    codes = (bits >> 20 & 0x7ff) - (120 << 3)
    return ((bits >> 31 << 7) | numpy.where(singles == 0, 0, codes)).astype('u1')


def test_floats_of_less_than_a_byte_stay_without_a_regex(folder):
    source = st.write(folder / 'in', {'w': ('F4', [4], b'\x21\x43'), 'n': ('F32', [1], st.f32(1))})
    found = weightfs('convert', '--cast=F16', source, folder / 'out.safetensors', has_notices=True)
    assert 'w: stays as it is: a cast without a REGEX is for F64, F32, F16 and BF16' in found.error
    assert st.read(folder / 'out.safetensors').tensors == {'n': ('F16', [1], b'\x00\x3c'), 'w': ('F4', [4], b'\x21\x43')}
    failed = weightfs('convert', '--cast=n:F4', source, folder / 'no.safetensors', code=EXIT_RULES)
    assert failed.error == ("%s: cannot cast 'n' (F32 [1]) to F4: casts are from BOOL, integers and floats to those of 8 bits "
                            'or more' % source)


def test_metadata_is_kept(folder):
    meta = {'modelspec.hash': 'x' * 200000, '': 'empty', 'quote"\\\n': 'é\x00\u2028', **{'k%d' % i: str(i) for i in range(5000)}}
    source = st.write(folder / 'in', {'w': ('U8', [1], b'x')}, meta)
    weightfs('convert', source, folder / 'out.safetensors')
    assert st.read(folder / 'out.safetensors').metadata == meta


@pytest.mark.parametrize('head', ['{"__metadata__":{}}', '{"__metadata__":null}', '{}'])
def test_an_empty_metadata_map_is_not_written(folder, head):
    source = st.write_parts(folder / 'in', [], head=head, pad=0)
    weightfs('convert', source, folder / 'out.safetensors')
    assert sha256(folder / 'out.safetensors') == VECTORS['nothing'][2]


def test_a_target_that_exists_is_kept_unless_asked(small, folder):
    target = folder / 'out.safetensors'
    target.write_text('precious')
    target.chmod(0o604)
    assert '--overwrite' in weightfs('convert', small, target, code=None).error
    assert target.read_text() == 'precious'
    weightfs('convert', '--overwrite', small, target)
    assert target.read_bytes() == small.read_bytes()
    assert stat.S_IMODE(target.stat().st_mode) == 0o604


def test_a_file_is_converted_onto_itself(folder):
    path = st.write_parts(folder / 'x.safetensors', [('a', 'U8', [1], b'x'), ('b', 'F32', [1], st.f32(1))], pad=0)
    want = st.canonical(st.read(path).tensors)
    weightfs('convert', '--overwrite', path, path)
    assert path.read_bytes() == want


def test_format_comes_from_the_name_or_the_option(small, folder):
    weightfs('convert', small, folder / 'out.nonsense', code=EXIT_USAGE)
    weightfs('convert', '--format=safetensors', small, folder / 'out.nonsense')
    assert st.read(folder / 'out.nonsense').digests() == st.read(small).digests()
    weightfs('convert', '--format=nonsense', small, folder / 'x.safetensors', code=EXIT_USAGE)


@pytest.mark.parametrize('target', ['nowhere/out.safetensors', 'small.safetensors/', 'fifo.safetensors'])
def test_a_target_that_cannot_be_written(small, folder, target):
    os.mkfifo(folder / 'fifo.safetensors')
    before = sorted(os.listdir(folder))
    result = weightfs('convert', '--overwrite', small, '%s/%s' % (folder, target), code=None)
    assert result.code in (EXIT_USAGE, EXIT_SOURCE, EXIT_COMMIT)
    assert sorted(os.listdir(folder)) == before


def test_nothing_is_left_when_the_disk_is_full(small, folder):
    if os.geteuid() != 0:
        pytest.skip('only for root')
    big = st.write(folder / 'big', {'w': ('U8', [3 << 20], bytes(3 << 20))})
    disk = folder / 'disk'
    disk.mkdir()
    tool('mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', disk)
    try:
        assert 'space' in weightfs('convert', big, disk / 'out.safetensors', code=None).error
        assert os.listdir(disk) == []
    finally:
        program.unmount(disk)


def test_a_damaged_source_writes_nothing(folder):
    path = st.write(folder / 'x', {'a': ('U8', [8], b'01234567')})
    os.truncate(path, path.stat().st_size - 1)
    weightfs('convert', path, folder / 'out.safetensors', code=EXIT_DAMAGED)
    weightfs('convert', '--force', path, folder / 'out.safetensors', code=None)
    assert not (folder / 'out.safetensors').exists() or st.read(folder / 'out.safetensors').tensors == {}


def test_umask_gives_the_mode_of_a_new_file(small, folder):
    weightfs('convert', small, folder / 'out.safetensors', preexec_fn=lambda: os.umask(0o027))
    assert stat.S_IMODE((folder / 'out.safetensors').stat().st_mode) == 0o640


needs_preload = pytest.mark.skipif(program.IS_INSTRUMENTED or not SLOW.exists(), reason='no library can be preloaded into an instrumented program')


# ---- the metadata that loaders of PyTorch look for ----

@pytest.mark.parametrize('target', ['x.safetensors', 'x/'])
def test_tensors_of_pytorch_are_marked_as_such(tmp_path, target):
    weightfs('convert', SAMPLE, tmp_path / 'a.safetensors')
    weightfs('edit', '--remove-metadata=format', '--set-metadata=note=kept', tmp_path / 'a.safetensors', tmp_path / 'b.safetensors')
    weightfs('convert', tmp_path / 'b.safetensors', tmp_path / 'b.pth', code=None)
    weightfs('convert', '--format=safetensors', tmp_path / 'b.pth', '%s/%s' % (tmp_path, target))
    made = tmp_path / target
    for path in made.glob('*.safetensors') if made.is_dir() else [made]:
        assert st.read(path).metadata['format'] == 'pt'


def test_other_tensors_are_not(tmp_path):
    path = st.write(tmp_path / 'a.safetensors', {'w': ('F32', [2], bytes(8))}, {'format': 'mlx'})
    weightfs('convert', path, tmp_path / 'b.safetensors')
    assert st.read(tmp_path / 'b.safetensors').metadata == {'format': 'mlx'}
    bare = st.write(tmp_path / 'c.safetensors', {'w': ('F32', [2], bytes(8))})
    weightfs('convert', bare, tmp_path / 'd.safetensors')
    weightfs('convert', bare, tmp_path / 'd.bpk')
    weightfs('convert', tmp_path / 'd.bpk', tmp_path / 'e.safetensors')
    assert not st.read(tmp_path / 'd.safetensors').metadata and st.read(tmp_path / 'e.safetensors').metadata['format'] == 'burnpack'


def four_tensors(folder):
    values = {'w%d' % i: ('F32', [1 << 18], st.f32(i) * (1 << 18)) for i in range(4)}
    return values, st.write(folder / 'in.safetensors', values)


def conversion(folder, target, source):
    options = {'shards/': ['--max-shard-size=1MB'], 'dcp/': ['--format=dcp']}.get(target, [])
    return ['convert', '--cast=F16', *options, source, str(folder) + '/' + target]


def left_in(place):
    return [name for name in os.listdir(place) if name.startswith('.') and name != '.metadata']


@needs_preload
@pytest.mark.parametrize('target,locks', [*((target, '') for target in TARGETS), ('out.safetensors', 'nfs'), ('shards/', 'nfs')])
def test_a_second_save_to_an_output_leaves_the_first_one_alone(folder, target, locks):
    """Both have the same temporary name."""
    values, source = four_tensors(folder)
    words, environment = conversion(folder, target, source), {**os.environ, 'LOCKS': locks}
    first = subprocess.Popen([*program.COMMAND, *words], env={**environment, 'LD_PRELOAD': '%s %s' % (SLOW, LOCKS), 'SLOW_MS': '100'}, stderr=subprocess.PIPE)
    place = folder / target if target.endswith('/') else folder
    while first.poll() is None and not (place.exists() and any(name.endswith('.tmp') for name in os.listdir(place))):
        time.sleep(0.01)
    second = weightfs(*words, code=EXIT_COMMIT, env={**environment, 'LD_PRELOAD': str(LOCKS)})
    assert 'another program is saving to it' in second.error
    assert first.wait() == 0, first.stderr.read()
    first.stderr.close()
    assert not left_in(place)
    weightfs('convert', '--cast=F32', folder / target, folder / 'back.safetensors')
    assert st.read(folder / 'back.safetensors').tensors == values


@needs_preload
@pytest.mark.parametrize('target', TARGETS)
@pytest.mark.parametrize('locks', ['nfs', 'smb', 'none'])
def test_saves_on_filesystems_with_other_locks(folder, target, locks):
    values, source = four_tensors(folder)
    for _ in range(2):
        weightfs('convert', '--overwrite', *conversion(folder, target, source)[1:], env={**os.environ, 'LD_PRELOAD': str(LOCKS), 'LOCKS': locks})
    place = folder / target if target.endswith('/') else folder
    assert not left_in(place)
    weightfs('convert', '--cast=F32', folder / target, folder / 'back.safetensors')
    assert st.read(folder / 'back.safetensors').tensors == values


@needs_preload
@pytest.mark.parametrize('target,name', [('out.safetensors', 'out.safetensors'), ('out.pth', 'out.pth'), ('dcp/', '.metadata'),
                                         ('shards/', 'model-00001-of-00004.safetensors'), ('shards/', 'model.safetensors.index.json')])
def test_a_temporary_file_that_another_program_replaced_is_not_published(folder, target, name):
    source = four_tensors(folder)[1]
    place = folder / target if target.endswith('/') else folder
    replaced = place / ('.%s.weightfs.tmp' % name)
    done = weightfs(*conversion(folder, target, source), code=EXIT_COMMIT, env={**os.environ, 'LD_PRELOAD': str(LOCKS), 'REPLACE': str(replaced)})
    assert 'another program has replaced .%s.weightfs.tmp' % name in done.error
    assert replaced.read_bytes() == b'abc' and not (place / name).exists()
