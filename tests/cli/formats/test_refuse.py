# SPDX-License-Identifier: MIT
"""What is no checkpoint, or a damaged one: which exit code, and which words."""
import glob
import gzip
import io
import json
import os
import resource
import subprocess
import tarfile

import numpy
import pytest

from wfs_testlib import program, st
from wfs_testlib.mount import open_to_all
from wfs_testlib.program import EXIT_DAMAGED, EXIT_FOREIGN, EXIT_SOURCE, EXIT_UNSUPPORTED, ROOT, weightfs


def npy():
    out = io.BytesIO()
    numpy.save(out, numpy.zeros(3))
    return out.getvalue()


LFS = b'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n'
FOREIGN = {
    'git-lfs': (LFS, 'LFS'),
    'html': (b'<!DOCTYPE html><html><body>404</body></html>', 'HTML'),
    'xml': (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', 'XML'),
    'json': (b'{"error":"Repository not found"}', 'JSON'),
    'gzip': (gzip.compress(b'x' * 100, mtime=0), 'gzip'),
    'gguf': (b'FUGG\x03\0\0\0' + bytes(60), 'GGUF'),
    'hdf5': (b'\x89HDF\r\n\x1a\n' + bytes(60), 'HDF5'),
    'npy': (npy(), 'NumPy'),
    'empty': (b'', 'empty'),
    'zeros': (bytes(1000), 'zeros'),
    'many zeros': (bytes(1 << 20), 'zeros'),
    'text': (b'hello world, this is text\n', ''),
    'elf': (b'\x7fELF\x02\x01\x01' + bytes(57), 'ELF'),
}


@pytest.mark.parametrize('verb', ['ls', 'info', 'check'])
@pytest.mark.parametrize('name', FOREIGN)
def test_a_foreign_file_is_called_by_its_name(folder, name, verb):
    content, word = FOREIGN[name]
    path = folder / 'model.safetensors'
    path.write_bytes(content)
    error = weightfs(verb, path, code=EXIT_FOREIGN).error
    assert str(path) in error and word in error


def test_a_git_lfs_pointer_tells_the_real_size(folder):
    (folder / 'x').write_bytes(LFS)
    assert '12345' in weightfs('ls', folder / 'x', code=EXIT_FOREIGN).error


def test_content_decides_and_not_the_name(sample, folder):
    for name in ('x.bin', 'x.ckpt', 'x'):
        os.rename(sample, folder / name)
        sample = folder / name
        weightfs('ls', sample)


@pytest.mark.parametrize('make, code', [
    (lambda path: None, EXIT_SOURCE),
    (lambda path: path.mkdir(), EXIT_SOURCE),
    (os.mkfifo, EXIT_SOURCE),
    (lambda path: path.symlink_to('/dev/zero'), EXIT_SOURCE),
    (lambda path: path.symlink_to('/dev/null'), EXIT_SOURCE),
    (lambda path: path.symlink_to(path), EXIT_SOURCE),
    (lambda path: path.symlink_to('/proc/self/mem'), None),
])
def test_a_source_that_is_no_file(folder, make, code):
    path = folder / 'x'
    make(path)
    found = weightfs('ls', path, code=code)
    assert found.code in (EXIT_SOURCE, EXIT_FOREIGN) and str(path) in found.error


def test_a_source_that_may_not_be_read(small):
    small.chmod(0)
    command = [*program.COMMAND, 'ls', small]
    if os.geteuid() == 0:
        command = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', *program.command_for_others(), 'ls', small]
        open_to_all(small.parent)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=program.PATIENCE, check=False)
    assert done.returncode == EXIT_SOURCE and b'Permission denied' in done.stderr


def test_names_in_errors_are_escaped_and_cut(folder):
    key = '\x1b[2J\n' + 'n' * 5000
    path = st.write_parts(folder / 'x', [(key, 'F32', [2], bytes(4))])
    error = weightfs('ls', path, code=EXIT_DAMAGED).error
    assert '\\x1b[2J\\x0a' in error and len(error) < 600 + len(str(path))


@pytest.mark.parametrize('tensors, reason, numbers', [
    ([('w', 'F32', [1000, 1000], bytes(4))], 'data_offsets', ['4000000', '4']),
    ([('w', 'F4', [3], bytes(2))], 'does not fill whole bytes', ['[3]']),
    ([('w', 'F32', [2 ** 32, 2 ** 32], bytes(4))], 'passes 2^64 bits', ['4294967296']),
])
def test_offsets_that_contradict_the_shape_name_tensor_and_numbers(folder, tensors, reason, numbers):
    error = weightfs('ls', st.write_parts(folder / 'x', tensors), code=EXIT_DAMAGED).error
    assert reason in error and "'w'" in error
    for number in numbers:
        assert number in error


def test_a_gap_is_named(folder):
    path = st.write_parts(folder / 'x', [('a', 'U8', [4], b'abcd'), ('b', 'U8', [4], b'efgh')], gap=8)
    error = weightfs('ls', path, code=EXIT_DAMAGED).error
    assert 'gap' in error and "'b'" in error
    assert weightfs('cat', '--force', path, 'b').raw == b'efgh'


def test_trailing_bytes_are_refused_and_never_carried_on(folder):
    path = st.write_parts(folder / 'x', [('a', 'U8', [4], b'abcd')], tail=b'x' * 10)
    assert 'its header describes' in weightfs('ls', path, code=EXIT_DAMAGED).error
    weightfs('convert', '--force', path, folder / 'out.safetensors')
    assert (folder / 'out.safetensors').read_bytes() == st.canonical({'a': ('U8', [4], b'abcd')})


def test_a_key_that_stands_twice_is_named_with_its_place(folder):
    entry = '{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}'
    head = '{"x":%s,"x":%s}' % (entry % (0, 4), entry % (4, 8))
    path = st.write_parts(folder / 'x', [('x', 'F32', [2], bytes(8))], head=head)
    error = weightfs('ls', path, code=EXIT_DAMAGED).error
    assert "duplicate key 'x'" in error and 'byte' in error


@pytest.mark.parametrize('text', ['"\\ud800"', '"\\udc00"'])
def test_a_lone_surrogate_is_refused_with_its_place(folder, text):
    head = '{%s:{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' % text
    weightfs('ls', st.write_parts(folder / 'x', [], head=head), code=EXIT_DAMAGED)


def test_bytes_that_are_no_utf8_are_refused_with_their_place(folder):
    path = st.write_parts(folder / 'x', [], head=b'{"\xff":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')
    error = weightfs('ls', path, code=EXIT_DAMAGED).error
    assert 'invalid UTF-8' in error and '10' in error


def test_an_unknown_dtype_is_not_supported_and_named(folder):
    path = st.write_parts(folder / 'x', [('w', 'Q7', [1], b'x')])
    error = weightfs('ls', path, code=EXIT_UNSUPPORTED).error
    assert "'w'" in error and "'Q7'" in error


def test_a_nul_in_a_key_refuses_the_file_by_name(folder):
    path = st.write(folder / 'x', {'safe\0hidden': ('U8', [1], b'x')})
    assert r"'safe\x00hidden'" in weightfs('ls', path, code=EXIT_UNSUPPORTED).error


def test_tensor_limit_holds_and_can_be_raised(folder):
    path = st.write(folder / 'x', {'t%d' % i: ('U8', [0], b'') for i in range(11)})
    weightfs('ls', '--limit', 'tensors=11', path)
    assert '10' in weightfs('ls', '--limit', 'tensors=10', path, code=EXIT_UNSUPPORTED).error


def test_a_file_made_of_nothing_but_zero_length_is_cheap(folder):
    """Hundreds of thousands of tensors on the same nothing: no memory but for the index."""
    n = 200000
    entry = '"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    path = st.write_parts(folder / 'x', [], head='{%s}' % ','.join(entry % i for i in range(n)))

    def limit_memory():
        resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))

    info = weightfs('info', '--json', path, preexec_fn=None if program.IS_INSTRUMENTED else limit_memory)
    assert json.loads(info.stdout)['sources'][0]['n_tensors'] == n


REJECT = ROOT / 'tests' / 'data' / 'reject'


def rejects():
    """(malformed file, what is expected): beside each is NAME.expect with the exit code and the message. Directories have tests of
    their own (test_dcp, test_pipelines)."""
    for expect in sorted(path for path in REJECT.glob('*/*.expect') if path.parent.name not in ('dcp', 'patch', 'pipeline')):
        path, = [path for path in expect.parent.glob(glob.escape(expect.stem) + '.*') if path != expect]
        yield path, expect


@pytest.mark.parametrize('path, expect', rejects(), ids=lambda value: value.parent.name + '-' + value.stem)
def test_every_malformed_file_we_know_has_its_message(path, expect):
    code, message = expect.read_text().rstrip('\n').split('\n')
    assert weightfs('ls', path, code=int(code)).error == program.refusal(path, message)


@pytest.mark.parametrize('length, header, code, words', [
    (0, b'data of tensors', EXIT_FOREIGN, 'the length of its header is 0: a failed download?'),
    (200, bytes(200), EXIT_FOREIGN, '200 zeros from byte 8 on: a failed download?'),
    (200, b'{"w":{"dtype":"F32",' + bytes(180), EXIT_DAMAGED, '180 zeros from byte 28 on: a failed download?'),
    (40, b'{"w":' + bytes(30) + b'[1]}}', EXIT_DAMAGED, '30 zeros from byte 13 on: a failed download?'),
])
@pytest.mark.parametrize('options', [[], ['--force']])
def test_zeros_in_a_header_are_a_failed_download(folder, length, header, code, words, options):
    path = folder / 'model.safetensors'
    path.write_bytes(length.to_bytes(8, 'little') + header + b'data')
    assert words in weightfs('ls', *options, path, code=code).error


# JSON of a value that is not a string, and the text that it becomes by force.
NO_STRINGS = ['0', '-1.5e3', '[1, 2]', '[]', '{"a": "b,}\\\\\\"", "c": [{}]}', 'null', 'true', '["\\u00e9]"]']


@pytest.mark.parametrize('text', NO_STRINGS)
def test_metadata_that_is_not_a_string_is_named_and_read_by_force(folder, text):
    head = '{"__metadata__":{"first":"1","odd": %s ,"last":"2"},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' % text
    path, out = folder / 'in.safetensors', folder / 'out.safetensors'
    st.write_parts(path, [], head=head, tail=b'x')
    error = weightfs('ls', path, code=EXIT_DAMAGED).error
    assert "metadata 'odd' at byte 44: expected a string, found " in error and '--force' in error
    assert "metadata 'odd' is not a string, but " in weightfs('check', '--force', path, code=None).stdout
    weightfs('convert', '--force', path, out)
    assert st.read(out).metadata == {'first': '1', 'odd': text, 'last': '2'} and weightfs('cat', out, 'w').raw == b'x'


def test_check_names_keys_that_differ_in_case_only(folder):
    path = folder / 'in.safetensors'
    st.write(path, {key: ('U8', [1], b'x') for key in ('NORM.w', 'Norm.w', 'a.b', 'a_b', 'norm.w', 'normal.w')})
    assert "info: the keys 'NORM.w' and 'Norm.w' differ in case only (and 1 more)" in weightfs('check', path).stdout.splitlines()
    assert 'in case only' not in weightfs('check', '--exclude', '^[Nn]orm[.]', path).stdout
    found = json.loads(weightfs('check', '--json', '--exclude', '^NORM', path).stdout)['sources'][0]['findings']
    assert "the keys 'Norm.w' and 'norm.w' differ in case only" in [row['text'] for row in found]


@pytest.mark.parametrize('names, words', [
    (['./model_config.yaml', './model_weights.ckpt'], "a tar archive with 'model_weights.ckpt' in it: unpack it first"),
    (['a/b.safetensors', 'c.pth'], "a tar archive with 'a/b.safetensors' in it: unpack it first"),
    (['code.py', '.ckpt'], "a tar archive, but not from PyTorch: it has no member 'storages'"),
    (['x\x1b[31m.pt'], "a tar archive with 'x\\x1b[31m.pt' in it: unpack it first"),
])
def test_a_tar_is_named_by_the_checkpoint_in_it(folder, names, words):
    path = folder / 'asr.nemo'
    with tarfile.open(path, 'w') as file:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 3
            file.addfile(member, io.BytesIO(b'abc'))
    assert words in weightfs('ls', path, code=EXIT_FOREIGN).error
