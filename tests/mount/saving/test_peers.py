# SPDX-License-Identifier: MIT
"""What other programs read from our output is what the tree showed."""
import os

import numpy
import pytest

from wfs_testlib import look, shared, st
from wfs_testlib.program import SAMPLE, tool, weightfs

pytestmark = pytest.mark.peers

TORCH = {'F64': 'float64', 'F32': 'float32', 'F16': 'float16', 'BF16': 'bfloat16', 'I64': 'int64', 'I32': 'int32', 'I16': 'int16',
         'I8': 'int8', 'U8': 'uint8', 'BOOL': 'bool'}


def read(path):
    """key -> (dtype, shape, bytes) as the safetensors package has them, and the metadata."""
    import safetensors
    tensors = {name: (info['dtype'], list(info['shape']), bytes(info['data']))
               for name, info in safetensors.deserialize(path.read_bytes())}
    with safetensors.safe_open(path, 'np') as file:
        assert set(file.keys()) == set(tensors)
        return tensors, file.metadata()


def test_the_sample_is_what_the_package_would_write(folder):
    import safetensors.torch
    import torch
    tensors = {key: tensor for key, tensor in st.read(SAMPLE).tensors.items() if tensor[0] in TORCH}
    source = st.write(folder / 'in.safetensors', tensors, {'format': 'pt'})
    values = {key: torch.frombuffer(bytearray(data), dtype=getattr(torch, TORCH[dtype])).reshape(shape)
              for key, (dtype, shape, data) in tensors.items()}
    safetensors.torch.save_file(values, folder / 'theirs.safetensors', metadata={'format': 'pt'})
    weightfs('convert', source, folder / 'ours.safetensors')
    assert (folder / 'ours.safetensors').read_bytes() == (folder / 'theirs.safetensors').read_bytes()


def test_torch_reads_the_values(folder):
    import safetensors.torch
    import torch
    weightfs('convert', SAMPLE, folder / 'out.safetensors')
    tensors = st.read(SAMPLE).tensors
    with safetensors.safe_open(folder / 'out.safetensors', 'pt') as file:
        for key, (dtype, shape, data) in tensors.items():
            if dtype in TORCH:
                tensor = file.get_tensor(key)
                assert list(tensor.shape) == shape
                assert bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if data else b'') == data


def test_every_edit_at_once(mount, sample, folder):
    other = mount(st.write(folder / 'other.safetensors', {'x.y': ('BF16', [2], b'abcd'), 'x.z': ('I8', [0], b'')}))
    mnt = mount(sample, 'output=%s' % (folder / 'out.safetensors'))
    tool('mv', mnt / 'pooler/dense/weight', mnt / 'pooler/dense/kernel')
    tool('mv', mnt / 'encoder/layer', mnt / 'encoder/block')
    tool('rm', mnt / 'temperature')
    numpy.save(folder / 'new.npy', numpy.arange(6, dtype='<i4').reshape(2, 3))
    tool('cp', folder / 'new.npy', mnt / 'new.npy')
    tool('cp', '-a', '%s/.' % other.path, mnt.path)
    os.mkdir(mnt / 'again')
    tool('rsync', '-aX', '%s/' % other.path, mnt / 'again')
    tool('sh', '-c', 'printf wxyz | dd of="$0" bs=1 seek=8 conv=notrunc', mnt / 'embeddings/word/weight')
    tool('setfattr', '-n', 'user.weightfs.dtype', '-v', 'U32', mnt / 'pooler/dense/bias')
    tool('setfattr', '-n', 'user.weightfs.metadata.note', '-v', 'é', mnt.path)
    mnt.commit()
    shown = look.tensors(mnt.path)
    new = shown.pop('new.npy', None) or shown.pop('new')
    assert new[2].endswith(numpy.arange(6, dtype='<i4').tobytes())
    tensors, metadata = read(folder / 'out.safetensors')
    assert tensors.pop('new') == ('I32', [2, 3], numpy.arange(6, dtype='<i4').tobytes())
    assert tensors == shown
    assert {'pooler.dense.kernel', 'encoder.block.0.attention.query.weight', 'x.y', 'again.x.z'} <= set(tensors)
    assert tensors['pooler.dense.bias'][0] == 'U32' and tensors['embeddings.word.weight'][2][8:12] == b'wxyz'
    assert metadata == {'format': 'pt', 'architecture': 'encoder, 2 layers of width 32', 'license': 'MIT', 'note': 'é'}


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('case', shared.named(
    [case for case in shared.hostile() if case['verdict'] == 'accept' and 'base64' in case]))
def test_odd_inputs_come_out_as_the_package_reads_them(folder, case):
    if case['case'] == 'name NUL escaped':
        pytest.skip('refused')
    source = folder / 'x'
    source.write_bytes(shared.hostile_bytes(case))
    weightfs('convert', source, folder / 'out.safetensors')
    before, metadata = read(source)
    after, metadata_after = read(folder / 'out.safetensors')
    assert before == after and (metadata or None) == metadata_after


def test_the_package_saves_into_the_mount_beside(mount, sample, folder):
    """Files made by numpy and the package through other folders are taken as they are."""
    import safetensors.numpy
    values = {'a': numpy.arange(5, dtype='<f8'), 'b.c': numpy.ones((2, 2), '<f2')}
    safetensors.numpy.save_file(values, folder / 'theirs.safetensors')
    mnt = mount(folder / 'theirs.safetensors')
    assert look.tensors(mnt.path) == {'a': ('F64', [5], values['a'].tobytes()), 'b.c': ('F16', [2, 2], values['b.c'].tobytes())}
