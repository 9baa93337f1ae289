# SPDX-License-Identifier: MIT
"""Files of other programs and hostile inputs, against what the reference library says of them."""
import hashlib
import json

import pytest

from wfs_testlib import shared, st
from wfs_testlib.program import EXIT_DAMAGED, EXIT_FOREIGN, EXIT_UNSUPPORTED, weightfs

pytestmark = pytest.mark.usefixtures('need_shared')


def listing(path, *options):
    tensors = json.loads(weightfs('ls', '--json', *options, path).stdout)['tensors']
    return {tensor['key']: tensor for tensor in tensors}


def identify(value):
    return value[0].parent.name + '-' + value[0].stem


def without_nul(path, folder):
    """A copy of the file that lacks the tensors that no C string can name."""
    content = path.read_bytes()
    n_header = int.from_bytes(content[:8], 'little')
    header = json.loads(content[8:8 + n_header])
    meta = header.pop('__metadata__', None)
    tensors = {name: (entry['dtype'], entry['shape'], content[8 + n_header:][slice(*entry['data_offsets'])])
               for name, entry in header.items() if '\0' not in name}
    return st.write(folder / path.name, tensors, meta)


@pytest.mark.parametrize('checkpoint', shared.each(shared.checkpoints(), identify))
def test_every_tensor_is_listed_and_has_its_bytes(checkpoint, folder):
    path, tensors, metadata = checkpoint
    if any('\0' in key for key in tensors):
        assert r"'nul\x00'" in weightfs('ls', path, code=EXIT_UNSUPPORTED).error
        path = without_nul(path, folder)
        tensors = {key: tensor for key, tensor in tensors.items() if '\0' not in key}
    found = listing(path)
    assert {key: (entry['dtype'], entry['shape'], entry['bytes']) for key, entry in found.items()} == {
        key: (entry['dtype'], entry['shape'], entry['nbytes']) for key, entry in tensors.items()}
    for key, entry in tensors.items():
        assert hashlib.sha256(weightfs('cat', path, '--', key).raw).hexdigest() == entry['sha256'], key
    info = json.loads(weightfs('info', '--json', path).stdout)['sources'][0]
    assert info['metadata'] == (metadata or {})
    assert info['n_tensors'] == len(tensors)


@pytest.mark.parametrize('checkpoint', shared.each(shared.checkpoints(), identify))
def test_untouched_conversion_is_canonical(checkpoint, folder):
    path, tensors, metadata = checkpoint
    if any('\0' in key for key in tensors):
        path = without_nul(path, folder)
    weightfs('convert', path, folder / 'out.safetensors')
    assert (folder / 'out.safetensors').read_bytes() == st.canonical(st.read(path).tensors, metadata)


@pytest.mark.parametrize('path, error', [pytest.param(path, error, id=path.stem) for path, error in shared.refused()])
def test_what_the_reference_cannot_read_is_damaged(path, error):
    assert 'invalid JSON' in error
    found = weightfs('ls', path, code=EXIT_DAMAGED).error
    assert any(words in found for words in WORDS['InvalidHeaderDeserialization'])


# Where we differ from the reference, and say so in docs/formats/safetensors.md.
DIFFERENT = {
    'name NUL escaped': EXIT_UNSUPPORTED,
    'n=100000001 exactly, spaces': EXIT_UNSUPPORTED,
}
# What our messages say where the reference has a class of that name.
WORDS = {
    'InvalidHeaderDeserialization': ['invalid JSON in header', "tensor '", "metadata '", 'the length of its header is 0'],
    'InvalidHeaderLength': ['the header ends at byte'], 'InvalidHeader': ['invalid UTF-8 in header'],
    'HeaderTooLarge': ['the header should have', 'the header has'], 'HeaderTooSmall': ['expected at least 8'],
    'InvalidOffset': ['data begins at', 'data ends at'], 'TensorInvalidInfo': ['data_offsets'], 'MisalignedSlice': ['does not fill whole bytes'],
    'MetadataIncompleteBuffer': ['its header describes'], 'ValidationOverflow': ['passes 2^64 bits'],
}
UNKNOWN_DTYPES = {'dtype "%s"' % name for name in (
    'F16x f32 C128 I4 U4 FP4 E8M0 UE8 F8_E4M3FN BF8 F128 FP8 U3 BFLOAT16'.split() + ['F32 ', 'F8_E5M2 ', ''])}


def expected_codes(case):
    """Exit codes of `ls` that the case may have."""
    name = case['case']
    if name in DIFFERENT:
        return {DIFFERENT[name]}
    if case['verdict'] == 'accept':
        return {0}
    if name in UNKNOWN_DTYPES or name == 'duplicate name, first bad dtype':
        return {EXIT_UNSUPPORTED}
    if name in ('foreign: zip', 'foreign: pickle', 'foreign: gguf'):  # perhaps one of PyTorch, or of GGML
        return {0, EXIT_DAMAGED}
    if name.startswith('foreign: ') or not any(shared.hostile_bytes(case)):
        return {EXIT_FOREIGN}
    if case['class'] == ['HeaderTooLarge']:
        return {EXIT_FOREIGN, EXIT_DAMAGED, EXIT_UNSUPPORTED}
    return {EXIT_DAMAGED}


@pytest.mark.parametrize('case', shared.named(shared.hostile()))
def test_hostile_input_gets_the_verdict_of_the_reference(case, folder):
    path = folder / 'case'
    path.write_bytes(shared.hostile_bytes(case))
    codes = expected_codes(case)
    found = weightfs('ls', path, code=None)
    assert found.code in codes, '%s: %d %s' % (case['case'], found.code, found.stderr)
    checked = weightfs('check', path, code=None)
    if found.code == 0:
        assert checked.code in (0, 1)
        return
    assert checked.code == found.code
    assert checked.stderr == found.stderr
    if found.code == EXIT_DAMAGED and not case['case'].startswith('foreign: '):
        assert any(words in found.error for name in case['class'] for words in WORDS[name]), found.error


@pytest.mark.parametrize('case', shared.named(
    [case for case in shared.hostile() if case['verdict'] == 'reject']))
def test_force_never_does_worse_than_refuse(case, folder):
    path = folder / 'case'
    path.write_bytes(shared.hostile_bytes(case))
    found = weightfs('ls', '--force', path, code=None)
    assert found.code in (0, EXIT_FOREIGN, EXIT_DAMAGED, EXIT_UNSUPPORTED)
    if found.code == 0:
        for key in listing(path, '--force'):
            weightfs('cat', '--force', path, '--', key, code=None)
