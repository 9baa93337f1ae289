# SPDX-License-Identifier: MIT
"""Computed tensors in a mount: the same bytes in every way to read them, edits on top, copies out of it."""
import json
import os
import subprocess

import numpy
import pytest

from wfs_testlib import merging, pth, st
from wfs_testlib.look import attribute, read_in_pieces
from wfs_testlib.program import weightfs

SHAPES = {'a.weight': (300, 1025), 'b.weight': (7, 40000), 'c.weight': (5000, 3), 'norm': (1025,)}


@pytest.fixture
def pair(folder):
    return merging.write_pair(folder, SHAPES)


def path_of(mnt, key):
    return mnt / key.replace('.', '/')


def test_the_exact_value_rounded_once_however_it_is_read(mount, pair):
    base, adapter, exact = pair
    before = merging.arrays(base)
    mnt = mount(base, 'lora=%s' % adapter)
    for key, values in exact.items():
        whole = path_of(mnt, key).read_bytes()
        found = merging.decode('BF16', values.shape, whole)
        assert merging.differences(found, values.astype('<f8'), 'BF16', before[key][1]) == 0
        for n_piece, seed in ((4096, 1), (4096, None), (131072, None), (1 << 20, None), (777, 2), (3, 3) if len(whole) < 40000 else (5001, 3)):
            assert read_in_pieces(path_of(mnt, key), n_piece, seed) == whole, (key, n_piece)


def test_verbs_and_mount_show_the_same(mount, pair, folder):
    base, adapter, exact = pair
    option = '--lora=%s' % adapter
    weightfs('convert', option, base, folder / 'out.safetensors')
    merged = st.read(folder / 'out.safetensors').tensors
    mnt = mount(base, 'lora=%s' % adapter)
    for key in exact:
        assert path_of(mnt, key).read_bytes() == merged[key][2]
        assert weightfs('cat', option, base, key).raw == merged[key][2]
    assert (mnt / '.weightfs/out/model.safetensors').read_bytes() == (folder / 'out.safetensors').read_bytes()
    assert weightfs('sum', option, base).stdout.splitlines()[1:] == weightfs('sum', folder / 'out.safetensors').stdout.splitlines()[1:]

    shown = [json.loads(weightfs('show', '--json', *source, 'a.weight').stdout)['tensors'][0]['stats'] for source in ((option, base), (folder / 'out.safetensors',))]
    assert shown[0] == shown[1]
    weightfs('extract', option, base, '-d', folder / 'extracted')
    weightfs('extract', folder / 'out.safetensors', '-d', folder / 'other')
    assert subprocess.run(['diff', '-r', folder / 'extracted', folder / 'other'], check=False).returncode == 0
    assert attribute(path_of(mnt, 'a.weight'), 'computed') == 'base + 1.5 * B A (adapter)'
    assert 'user.weightfs.computed' not in os.listxattr(path_of(mnt, 'norm'))


def test_verbs_that_compare_and_edit_take_what_is_computed(pair, folder):
    base, adapter, exact = pair
    tensors, option = st.read(base).tensors, '--lora=%s' % adapter
    changed = {**tensors, 'a.weight': (*tensors['a.weight'][:2], tensors['c.weight'][2][:2000] + tensors['a.weight'][2][2000:])}
    sources = [base, st.write(folder / 'changed.safetensors', changed)]
    files = [folder / 'one.safetensors', folder / 'two.safetensors']
    for source, file in zip(sources, files):
        weightfs('convert', option, source, file)
    found = [weightfs('diff', '--json', *pair, code=1).stdout for pair in ([option, *sources], files)]
    assert found[0].replace(str(sources[0]), str(files[0])).replace(str(sources[1]), str(files[1])) == found[1]
    weightfs('patch', 'make', option, *sources, folder / 'patch.safetensors')
    weightfs('patch', 'apply', folder / 'patch.safetensors', files[0], folder / 'patched.safetensors')
    assert st.read(folder / 'patched.safetensors').tensors == st.read(files[1]).tensors
    weightfs('edit', option, base, folder / 'edited.safetensors', '--remove=norm')
    assert st.read(folder / 'edited.safetensors').tensors == {key: one for key, one in st.read(files[0]).tensors.items() if key != 'norm'}
    assert weightfs('check', '--values', option, base).stdout == weightfs('check', '--values', files[0]).stdout


@pytest.mark.parametrize('ending', ['safetensors', 'pth', 'bpk', 'mpk'])
def test_every_format_gets_the_same_elements(pair, folder, ending):
    base, adapter, exact = pair
    weightfs('convert', '--lora=%s' % adapter, base, folder / ('out.' + ending), has_notices=True)
    weightfs('convert', folder / ('out.' + ending), folder / 'back.safetensors', has_notices=True)
    weightfs('convert', '--lora=%s' % adapter, base, folder / 'direct.safetensors')
    back, direct = (st.read(folder / name).tensors for name in ('back.safetensors', 'direct.safetensors'))
    assert {key: back[key][2] for key in exact} == {key: direct[key][2] for key in exact}


def test_a_base_of_torch_and_shards(pair, folder):
    base, adapter, exact = pair
    weightfs('convert', '--lora=%s' % adapter, base, folder / 'direct.safetensors')
    direct = st.read(folder / 'direct.safetensors').tensors
    weightfs('convert', base, folder / 'base.pth')
    weightfs('convert', '--max-shard-size=200K', '--format=safetensors', base, '%s/' % (folder / 'shards'))
    for source in (folder / 'base.pth', folder / 'shards'):
        weightfs('convert', '--lora=%s' % adapter, source, folder / 'out.pth', '--overwrite', has_notices=True)
        weightfs('convert', folder / 'out.pth', folder / 'back.safetensors', '--overwrite', has_notices=True)
        back = st.read(folder / 'back.safetensors').tensors
        assert {key: back[key][2] for key in exact} == {key: direct[key][2] for key in exact}


def test_edits_on_top_are_committed(mount, pair, folder):
    base, adapter, exact = pair
    output = folder / 'out.safetensors'
    weightfs('convert', '--lora=%s' % adapter, base, folder / 'direct.safetensors')
    merged = {key: data for key, (_, _, data) in st.read(folder / 'direct.safetensors').tensors.items()}
    mnt = mount(base, 'lora=%s' % adapter, 'output=%s' % output)
    with open(path_of(mnt, 'a.weight'), 'r+b') as file:
        file.seek(2048)
        file.write(b'\1\2\3\4')
    os.rename(mnt / 'b', mnt / 'renamed')
    subprocess.run(['cp', path_of(mnt, 'c.weight'), mnt / 'copy'], check=True)
    mnt.commit()
    found = {key: data for key, (_, _, data) in st.read(output).tensors.items()}
    edited = bytearray(merged['a.weight'])
    edited[2048:2052] = b'\1\2\3\4'
    assert found == {'a.weight': bytes(edited), 'renamed.weight': merged['b.weight'], 'c.weight': merged['c.weight'],
                     'copy': merged['c.weight'], 'norm': merged['norm']}


def test_a_merged_layer_is_shipped(mount, pair, folder):
    base, adapter, exact = pair
    mnt = mount(base, 'lora=%s' % adapter)
    subprocess.run(['rsync', '-a', '%s/' % (mnt / 'a'), folder / 'layer'], check=True)
    assert (folder / 'layer/weight').read_bytes() == path_of(mnt, 'a.weight').read_bytes()


def test_an_adapter_that_changes_is_not_read(mount, pair):
    base, adapter, exact = pair
    mnt = mount(base, 'lora=%s' % adapter).allow('changed')
    whole = path_of(mnt, 'norm').read_bytes()
    file = adapter / 'adapter_model.safetensors'
    file.write_bytes(file.read_bytes()[:-4] + b'\0\0\0\0')
    with pytest.raises(OSError):
        path_of(mnt, 'a.weight').read_bytes()
    assert path_of(mnt, 'norm').read_bytes() == whole


def test_a_difference_added_again_is_the_finetune(folder):
    values = {}
    for name, seed in (('base', 1), ('tuned', 2)):
        random_values = numpy.random.default_rng(seed).standard_normal((64, 33))
        values[name] = merging.rounded(random_values, 'BF16')[0]
        st.write(folder / (name + '.safetensors'), {'w': ('BF16', [64, 33], merging.encode(values[name], 'BF16'))})
    weightfs('convert', '--minus=%s' % (folder / 'base.safetensors'), '--cast=F32', folder / 'tuned.safetensors', folder / 'delta.safetensors')
    weightfs('convert', '--add=%s' % (folder / 'delta.safetensors'), folder / 'base.safetensors', folder / 'again.safetensors')
    assert (folder / 'again.safetensors').read_bytes() == (folder / 'tuned.safetensors').read_bytes()


def values_of_e4m3(codes):
    """As F32; the two codes of NaN are not to be among them."""
    exponent, mantissa = codes >> 3 & 15, codes & 7
    size = numpy.where(exponent == 0, mantissa / 8 * 2.0 ** -6, (1 + mantissa / 8) * 2.0 ** (exponent.astype(float) - 7))
    return numpy.where(codes >= 128, -size, size).astype('<f4')


@pytest.mark.parametrize('dtype', ['BF16', 'F32', 'F64'])
def test_codes_times_their_scales_however_they_are_read(mount, folder, dtype):
    n_rows, n_cols = 300, 1025
    rng = numpy.random.default_rng(5)
    codes = rng.integers(0, 127, (n_rows, n_cols)) | rng.integers(0, 2, (n_rows, n_cols)) << 7
    scales = (rng.standard_normal((3, 9)) * 10.0 ** rng.integers(-40, 37, (3, 9))).astype('<f4')  # some are subnormal
    path = st.write(folder / 'codes.safetensors', {'x.weight': ('F8_E4M3', [n_rows, n_cols], codes.astype('u1').tobytes()),
                                                   'x.weight_scale_inv': ('F32', [3, 9], scales.tobytes())})
    exact = values_of_e4m3(codes) * scales.repeat(128, 0)[:n_rows].repeat(128, 1)[:, :n_cols]
    mnt = mount(path, 'dequantize=.', 'cast=%s' % dtype).allow('dequantized')
    whole = path_of(mnt, 'x.weight').read_bytes()
    assert merging.differences(merging.decode(dtype, exact.shape, whole), exact.astype('<f8'), dtype, exact.astype('<f8')) == 0
    for n_piece, seed in ((4096, 1), (131072, None), (777, 2), (5001, 3)):
        assert read_in_pieces(path_of(mnt, 'x.weight'), n_piece, seed) == whole, n_piece


@pytest.mark.parametrize('target, regex', [('model.embed_tokens', ''), ('lm_head', ''), ('lm_head', 'lm_head:')])
def test_a_tensor_with_two_names_gets_the_factors_of_one(mount, folder, target, regex):
    """As peft does to a model that ties them, unless the key was chosen."""
    one = numpy.arange(6, dtype='<f4').reshape(3, 2)
    value = pth.dictionary(**{'model.embed_tokens.weight': pth.tensor(size=(3, 2), stride=(2, 1)), 'lm_head.weight': pth.tensor(size=(3, 2), stride=(2, 1))})
    (folder / 'base.pth').write_bytes(pth.checkpoint(value, r0=one.tobytes()))
    a, b = numpy.array([[1, 2]], '<f4'), numpy.array([[1], [-1], [4]], '<f4')
    (folder / 'adapter').mkdir()
    (folder / 'adapter/adapter_config.json').write_text(json.dumps({'peft_type': 'LORA', 'r': 1, 'lora_alpha': 1}))
    st.write(folder / 'adapter/adapter_model.safetensors', {'base_model.model.%s.lora_%s.weight' % (target, half): ('F32', list(factor.shape), factor.tobytes())
                                                            for half, factor in (('A', a), ('B', b))})
    mnt = mount(folder / 'base.pth', 'lora=%s%s' % (regex, folder / 'adapter'))
    merged, kept = (one + b @ a).tobytes(), one.tobytes()
    assert (mnt / 'lm_head/weight').read_bytes() == merged
    assert (mnt / 'model/embed_tokens/weight').read_bytes() == (kept if regex else merged)
    assert os.stat(mnt / 'lm_head/weight').st_nlink == (1 if regex else 2)
