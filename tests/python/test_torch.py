# SPDX-License-Identifier: MIT
"""torch: the same as the loaders of safetensors and of torch, from files of every format."""
import os
import pathlib
import subprocess
import sys

import pytest

weightfs = pytest.importorskip('weightfs')
torch = pytest.importorskip('torch')
wt = pytest.importorskip('weightfs.torch')

DTYPES = [getattr(torch, name) for name in ('bool', 'uint8', 'int8', 'int16', 'int32', 'int64', 'float16', 'bfloat16', 'float32', 'float64', 'complex64',
                                            'float8_e4m3fn', 'float8_e5m2', 'uint16', 'uint32', 'uint64') if hasattr(torch, name)]


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and bytes_of(a) == bytes_of(b)


def bytes_of(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b''


def made():
    generator = torch.Generator().manual_seed(1)
    result = {}
    for i, dtype in enumerate(DTYPES):
        raw = torch.randint(0, 2 if dtype == torch.bool else 100, (6, 10 * torch.empty((), dtype=dtype).element_size()), dtype=torch.uint8,
                            generator=generator)
        result['t%d' % i] = raw.view(dtype)
    result['scalar'] = torch.tensor(2.5)
    result['empty'] = torch.zeros(3, 0)
    return result


@pytest.fixture
def tensors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return made()


@pytest.mark.parametrize('name', ['a.safetensors', 'a.pth'])
@pytest.mark.parametrize('backend', ['mmap', 'pread'])
def test_what_is_saved_is_loaded(tensors, name, backend):
    wt.save_file(tensors, name, {'a': 'b'})
    found = wt.load_file(name, backend=backend)
    assert found.keys() == tensors.keys() and all(same(found[key], tensors[key]) for key in tensors)
    with wt.safe_open(name, framework='pt', backend=backend) as file:
        assert file.metadata() == ({'a': 'b'} if name == 'a.safetensors' else None)
        assert file.keys() == sorted(tensors) and set(file.offset_keys()) == set(tensors)
        assert all(same(file.get_tensor(key), tensors[key]) for key in tensors)
        part = file.get_slice('t0')
        assert part.get_shape() == [6, 10] and part.get_dtype() == 'BOOL' and same(part[1:3, ::2], tensors['t0'][1:3, ::2])
    for key in tensors:
        tensor = weightfs.open(name)[key]
        assert same(tensor.torch(), tensors[key])
    found['t8'][0, 0] = 1  # neither is the file
    assert all(same(tensor, wt.load_file(name)[key]) for key, tensor in tensors.items())


def test_torch_reads_what_is_saved(tensors):
    wt.save_file(tensors, 'a.pth')
    found = torch.load('a.pth')
    assert found.keys() == tensors.keys() and all(same(found[key], tensors[key]) for key in tensors)
    assert all(same(tensor, found[key]) for key, tensor in wt.load(wt.save(tensors)).items())


def test_conversions_and_dlpack(tensors):
    wt.save_file(tensors, 'a.safetensors')
    ckpt = weightfs.open('a.safetensors')
    place = 't%d' % DTYPES.index(torch.bfloat16)
    assert same(ckpt[place].torch('float32'), tensors[place].float()) and same(ckpt[place].torch(torch.float32), tensors[place].float())
    assert same(ckpt[place].torch('float32', index=(2, slice(1, 4))), tensors[place].float()[2, 1:4])
    for dtype, key in ((torch.float32, 't8'), (torch.bfloat16, place), (torch.int64, 't5'), (torch.complex64, 't10')):
        assert same(torch.from_dlpack(ckpt[key]), tensors['t%d' % DTYPES.index(dtype)])
    assert isinstance(ckpt[place].torch(device='cpu'), torch.Tensor)


def test_what_cannot_be_saved(tensors):
    base = torch.zeros(10)
    for bad, kind in (({'a': base, 'b': base[2:]}, RuntimeError), ({'a': base[::2]}, ValueError), ({'a': base.to_sparse()}, ValueError),
                      ({'a': 5}, ValueError), ([base], ValueError)):
        with pytest.raises(kind):
            wt.save_file(bad, 'a.safetensors')
    assert not os.path.exists('a.safetensors')
    wt.save_file({'a': base[:5], 'b': base[5:]}, 'a.safetensors')
    with pytest.raises(ValueError, match='framework'):
        wt.safe_open('a.safetensors', framework='tf')


def test_files_equal_those_of_safetensors(tensors):
    safetensors = pytest.importorskip('safetensors.torch')
    for subset in (tensors, {'b': torch.zeros(3), 'a': torch.ones(3, dtype=torch.float16)}, {}):
        safetensors.save_file(subset, 'theirs.safetensors', {'format': 'pt'})
        wt.save_file(subset, 'ours.safetensors', {'format': 'pt'})
        assert pathlib.Path('ours.safetensors').read_bytes() == pathlib.Path('theirs.safetensors').read_bytes()
    safetensors.save_file(tensors, 'theirs.safetensors')
    expected = safetensors.load_file('theirs.safetensors')
    for backend in ('mmap', 'pread'):
        found = wt.load_file('theirs.safetensors', backend=backend)
        assert found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)


def test_files_of_others_equal_what_safetensors_loads():
    safetensors = pytest.importorskip('safetensors')
    numpy = pytest.importorskip('numpy')
    folder = pathlib.Path(os.environ.get('WFS_SHARED') or pathlib.Path(__file__).resolve().parents[3] / 'shared')
    n_equal = 0
    for path in sorted(folder.rglob('*.safetensors')):
        for framework in ('pt', 'np'):
            try:
                with safetensors.safe_open(path, framework) as file:
                    expected = {key: file.get_tensor(key) for key in file.keys()}
            except Exception:  # noqa: BLE001, what they refuse is not what this compares
                continue
            if any('\0' in key for key in expected):  # refused unless escape_nul is given
                continue
            with wt.safe_open(path, framework) as file:
                assert file.keys() == sorted(expected), path
                for key in expected:
                    found = file.get_tensor(key)
                    if framework == 'pt':
                        assert same(found, expected[key]), (path, key)
                    else:
                        assert found.dtype == expected[key].dtype and found.tobytes() == numpy.asarray(expected[key]).tobytes(), (path, key)
                    n_equal += 1
    if n_equal == 0:
        pytest.skip('no folder with files of other programs (WFS_SHARED)')


# Tests of the safetensors package, with its functions replaced by ours.
PLUGIN = '''
import safetensors, safetensors.numpy, safetensors.torch
import weightfs, weightfs.torch as ours
safetensors.safe_open = ours.safe_open
safetensors.SafetensorError = weightfs.Error
for name in ("load", "load_file", "save", "save_file"):
    setattr(safetensors.torch, name, getattr(ours, name))
'''
# What is about other wordings, or about functions that are not replaced.
LEFT_OUT = {
    'test_safetensor_error_module_is_importable': 'is about their class',
    'test_numpy_slice': 'expects an error where numpy and Python cut a slice at the end, and their wording',
    'test_exception': 'is about their TensorSpec',
    **dict.fromkeys(('test_file_not_found', 'test_sparse', 'test_bogus'), 'expect their wording; the class is the same'),
}


@pytest.mark.peers
def test_tests_of_safetensors(tmp_path):
    suites = os.environ.get('WFS_SUITES')
    folder = pathlib.Path(suites or '.') / 'safetensors' / 'bindings' / 'python'
    if not (folder / 'tests').is_dir():
        pytest.skip('the tests of safetensors are not here (tools/test --peers)')
    (tmp_path / 'replace_by_ours.py').write_text(PLUGIN)
    (tmp_path / 'tests').symlink_to(folder / 'tests')
    files = ['test_pt_comparison.py', 'test_pt_model.py', 'test_simple.py', 'test_pread_backend.py', 'test_threadable.py']
    done = subprocess.run([sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '-p', 'replace_by_ours', '--rootdir', tmp_path, '-k',
                           ' and '.join('not ' + name for name in LEFT_OUT), *('tests/' + file for file in files)],
                          cwd=tmp_path, env=dict(os.environ, PYTHONPATH='%s:%s' % (tmp_path, os.environ.get('PYTHONPATH', ''))),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding='utf-8', check=False)
    assert done.returncode == 0, done.stdout[-5000:]
