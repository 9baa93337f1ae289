# SPDX-License-Identifier: MIT
"""Elements: whole, in slices, converted, for numpy and by DLPack."""
import math
import pathlib
import random
import subprocess
import sys

import pytest

numpy = pytest.importorskip('numpy')
weightfs = pytest.importorskip('weightfs')


def some_slice(rng, size):
    kind = rng.randrange(6)
    if kind == 0 and size:
        return rng.randrange(-size, size)
    if kind == 1:
        return slice(None)
    bound = size + 3
    ends = [None if rng.random() < 0.3 else rng.randint(-bound, bound) for _ in range(2)]
    return slice(*ends, rng.choice([None, 1, 2, 3, 7, -1, -2, -5]))


def some_index(rng, shape):
    items = [some_slice(rng, size) for size in shape[:rng.randint(0, len(shape))]]
    if rng.random() < 0.3:
        items.insert(rng.randint(0, len(items)), Ellipsis)
        if items[-1] is not Ellipsis and len(items) - 1 < len(shape) and rng.random() < 0.5:
            items[items.index(Ellipsis) + 1:] = []
    if rng.random() < 0.2:
        items.insert(rng.randint(0, len(items)), None)
    return items[0] if len(items) == 1 and rng.random() < 0.5 else tuple(items)


@pytest.fixture
def arrays(tmp_path, write):
    """A checkpoint with arrays of many shapes and dtypes, beside the arrays."""
    rng = numpy.random.default_rng(1)
    shapes = [(), (0,), (1,), (1000,), (3, 0, 2), (40, 50), (7, 11, 13), (2, 3, 4, 5), (300, 257), (1, 1, 6, 1, 2)]
    dtypes = ['u1', '<i2', '<f4', '<f8', '<i8', '<c8', '?', '<f2']
    made = {'t%d.%s' % (i, dtype.strip('<?') or 'b'): (rng.random(shape) * 100).astype(dtype) for i, shape in enumerate(shapes) for dtype in dtypes}
    write(tmp_path / 'a.safetensors', made)
    return made


def convert(source, target, *options):
    subprocess.run(['weightfs', 'convert', *options, source, target], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize('target', ['a.safetensors', 'a.pth', 'a.bpk'])
def test_2000_random_slices_equal_those_of_numpy(arrays, tmp_path, target):
    source = tmp_path / 'a.safetensors'
    if target != source.name:
        keys = [key for key in arrays if not (target == 'a.bpk' and key.endswith('c8'))]
        convert(source, tmp_path / target, *(['--exclude=c8$'] if target == 'a.bpk' else []))
    else:
        keys = list(arrays)
    ckpt = weightfs.open(tmp_path / target)
    rng = random.Random(target)
    for _ in range(2000):
        key = rng.choice(keys)
        index = some_index(rng, arrays[key].shape)
        try:
            expected = arrays[key][index]
        except IndexError:
            with pytest.raises(IndexError):
                ckpt[key][index]
            continue
        found = ckpt[key][index]
        assert type(found) is type(expected) and found.dtype == expected.dtype and found.shape == expected.shape, (key, index)
        assert found.tobytes() == expected.tobytes(), (key, index)


def test_transposed_and_cast_views_are_sliced(arrays, tmp_path):
    ckpt = weightfs.open(tmp_path / 'a.safetensors', transpose=r'^t8\.f4$', cast=r'^t8\.f4$:F16', include=r'^t8\.f4$')
    expected = arrays['t8.f4'].T.astype('f2')
    rng = random.Random(2)
    for _ in range(200):
        index = some_index(rng, expected.shape)
        assert ckpt['t8.f4'][index].tobytes() == expected[index].tobytes(), index


def test_a_slice_reads_what_it_needs(tmp_path, write):
    write(tmp_path / 'big.safetensors', {'w': numpy.arange(1 << 22, dtype='<f4').reshape(2048, 2048)})
    convert(tmp_path / 'big.safetensors', tmp_path / 'big.pth')
    tensor = weightfs.open(tmp_path / 'big.pth')['w']

    def n_read():
        return int(pathlib.Path('/proc/self/io').read_text().split('rchar: ')[1].split()[0])

    for index, limit in ((5, 1 << 16), (slice(10, 12), 1 << 16), ((3, slice(7, 9)), 1 << 16), ((slice(None), 0), 1 << 24)):
        before = n_read()
        tensor[index]
        assert n_read() - before <= limit, index


def test_wrong_indices(sample):
    tensor = weightfs.open(sample)['pooler.dense.bias']
    for index in (32, -33, (0, 0), [1, 2], tensor[...] > 0, 'a', 1.0, True, (Ellipsis, Ellipsis)):
        with pytest.raises(IndexError):
            tensor[index]
    with pytest.raises(ValueError):
        tensor[::0]
    assert len(tensor) == 32 and tensor.ndim == 1 and tensor.size == 32
    with pytest.raises(TypeError):
        len(weightfs.open(sample)['temperature'])


def test_arrays(sample):
    ckpt = weightfs.open(sample)
    tensor = ckpt['pooler.dense.bias']
    expected = numpy.frombuffer(tensor.tobytes(), '<f4')
    for found in (tensor.numpy(), numpy.asarray(tensor), numpy.array(tensor), tensor[...], numpy.array(list(tensor))):
        assert found.dtype == expected.dtype and (found == expected).all()
    tensor.numpy()[0] = 5  # it is a copy that can be written
    assert numpy.asarray(tensor, 'f8').dtype == 'f8'
    assert tensor.numpy('float16').tobytes() == expected.astype('f2').tobytes()
    assert tensor.numpy(numpy.float64, index=slice(3, 5)).tolist() == expected[3:5].astype('f8').tolist()
    with pytest.raises(weightfs.UsageError):
        tensor.numpy('nonsense')
    if numpy.lib.NumpyVersion(numpy.__version__) >= '2.0.0':
        with pytest.raises(ValueError, match='copy'):
            numpy.asarray(tensor, copy=False)


def test_bf16_without_ml_dtypes_names_the_way(sample, monkeypatch):
    monkeypatch.setitem(sys.modules, 'ml_dtypes', None)
    tensor = weightfs.open(sample)['pooler.dense.weight']
    for use in (tensor.numpy, lambda: tensor[0], lambda: numpy.asarray(tensor)):
        with pytest.raises(weightfs.UsageError, match=r'install ml_dtypes, or write .numpy\("float32"\)'):
            use()
    bits = numpy.frombuffer(tensor.tobytes(), '<u2').astype('<u4') << 16
    assert tensor.numpy('float32').tobytes() == bits.tobytes()
    assert tensor.numpy('float32', index=(3, slice(0, 9, 2))).tobytes() == bits.reshape(32, 32)[3, 0:9:2].tobytes()


def test_ml_dtypes(sample):
    ml_dtypes = pytest.importorskip('ml_dtypes')
    tensor = weightfs.open(sample)['pooler.dense.weight']
    assert tensor.numpy().dtype == ml_dtypes.bfloat16 and tensor.numpy().tobytes() == tensor.tobytes()
    assert tensor[0, 0].dtype == ml_dtypes.bfloat16
    assert weightfs.open(sample)['scaled_fp8'].numpy().dtype == ml_dtypes.float8_e4m3fn
    with weightfs.edit(sample, 'b.safetensors') as edits:
        edits['pooler.dense.weight'] = tensor.numpy()[::-1]
    assert weightfs.open('b.safetensors')['pooler.dense.weight'].dtype == 'BF16'


@pytest.mark.skipif(not hasattr(numpy, 'from_dlpack'), reason='needs numpy 1.22')
def test_dlpack(sample, arrays, tmp_path):
    ckpt = weightfs.open(tmp_path / 'a.safetensors')
    for key, array in arrays.items():
        if array.dtype == bool and numpy.lib.NumpyVersion(numpy.__version__) < '1.25.0':
            continue
        found = numpy.from_dlpack(ckpt[key])
        assert found.dtype == array.dtype and found.shape == array.shape and found.tobytes() == array.tobytes()
    capsule = ckpt['t5.f4'].__dlpack__()
    assert ckpt['t5.f4'].__dlpack_device__() == (1, 0)
    del capsule  # one that nobody takes is freed
    with pytest.raises(BufferError):
        ckpt['t5.f4'].__dlpack__(copy=False)


def test_stats(arrays, tmp_path):
    ckpt = weightfs.open(tmp_path / 'a.safetensors')
    stats = ckpt['t5.f8'].stats()
    array = arrays['t5.f8']
    assert stats['max'] == array.max() and stats['min'] == array.min() and stats['nan'] == 0
    assert math.isclose(stats['mean'], array.mean(), rel_tol=1e-12) and math.isclose(stats['std'], array.std(), rel_tol=1e-9)
    assert ckpt['t5.c8'].stats() is None
