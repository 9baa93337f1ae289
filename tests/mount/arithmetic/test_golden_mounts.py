# SPDX-License-Identifier: MIT
"""What real libraries merged, in a mount and in every verb that reads: the bytes of the file that a conversion makes, which
tests/cli/arithmetic/test_adapter_goldens.py compares with exact values. And the same of matrices of some MiB, whose ranges are computed apart."""
import json
import subprocess

import numpy
import pytest

from wfs_testlib import merge_cases, shared, st
from wfs_testlib.look import read_in_pieces
from wfs_testlib.program import weightfs


def check_mount(mount, base, options, tensors):
    """Ranges of every tensor, in an order and in another."""
    mnt = mount(base, *(option[2:] for option in options)).allow(': in this adapter, ')
    for key, (_, _, data) in tensors.items():
        path = mnt / key.replace('.', '/')
        for n_piece, seed in ((4096, None), (4096, 1), (131072, None), (1 << 20, None), (max(5, len(data) // 50) | 1, 3)):
            assert read_in_pieces(path, n_piece, seed) == data, (key, n_piece)
    return mnt


@pytest.mark.skipif(not shared.IS_THERE, reason='the golden files are not here')
@pytest.mark.parametrize('name', merge_cases.EXACT)
def test_every_way_to_read_shows_the_same(mount, folder, name):
    base, options, out = merge_cases.merged(name, folder)
    tensors = st.read(out).tensors
    mnt = check_mount(mount, base, options, tensors)
    assert (mnt / '.weightfs/out/model.safetensors').read_bytes() == out.read_bytes()
    for key in set(tensors) & set(merge_cases.exact(name)):
        assert weightfs('cat', *options, base, key, has_notices=True).raw == tensors[key][2]
    sums = [sorted(weightfs('sum', *source, has_notices=True).stdout.splitlines()[1:]) for source in ([*options, base], [out])]
    assert sums[0] == sums[1] and len(sums[0]) == len(tensors)
    shown = [json.loads(weightfs('show', '--json', *source, has_notices=True).stdout)['tensors'] for source in ([*options, base], [out])]
    assert {one['key']: one['stats'] for one in shown[0]} == {one['key']: one['stats'] for one in shown[1]}
    for source, to in (([*options, base], 'one'), ([out], 'two')):
        weightfs('extract', *source, '-d', folder / to, has_notices=True)
    assert subprocess.run(['diff', '-r', folder / 'one', folder / 'two'], check=False).returncode == 0


def floats(random_numbers, *shape):
    values = (random_numbers.standard_normal(shape) * 0.1).astype('<f4')
    return 'F32', list(shape), values.tobytes()


ROWS, COLS, RANK = 640, 1056, 4
METHODS = {
    'dora': ({'peft_type': 'LORA', 'use_dora': True, 'r': RANK, 'lora_alpha': 6},
             {'lora_A.weight': (RANK, COLS), 'lora_B.weight': (ROWS, RANK), 'lora_magnitude_vector': (ROWS,)}),
    'adalora': ({'peft_type': 'ADALORA', 'r': RANK, 'lora_alpha': 6}, {'lora_A': (RANK, COLS), 'lora_B': (ROWS, RANK), 'lora_E': (RANK, 1)}),
    'loha': ({'peft_type': 'LOHA', 'r': RANK, 'alpha': 6},
             {'hada_w1_a': (ROWS, RANK), 'hada_w1_b': (RANK, COLS), 'hada_w2_a': (ROWS, RANK), 'hada_w2_b': (RANK, COLS)}),
    'lokr': ({'peft_type': 'LOKR', 'r': RANK, 'alpha': 6}, {'lokr_w1': (20, 33), 'lokr_w2_a': (32, RANK), 'lokr_w2_b': (RANK, 32)}),
    'ia3': ({'peft_type': 'IA3'}, {'ia3_l': (ROWS, 1)}),
    'oft': ({'peft_type': 'OFT', 'oft_block_size': 32}, {'oft_R.weight': (COLS // 32, 32 * 31 // 2)}),
}


@pytest.mark.parametrize('method', [*METHODS, 'average', 'task', 'slerp', 'minus'])
def test_ranges_of_large_matrices(mount, folder, method):
    random_numbers = numpy.random.default_rng(1)
    base, other = (st.write(folder / name, {'x.weight': floats(random_numbers, ROWS, COLS), 'y': floats(random_numbers, 3)}) for name in ('a.safetensors', 'b.safetensors'))
    if method in METHODS:
        config, shapes = METHODS[method]
        (folder / 'adapter').mkdir()
        (folder / 'adapter/adapter_config.json').write_text(json.dumps(config))
        st.write(folder / 'adapter/adapter_model.safetensors', {'base_model.model.x.' + leaf: floats(random_numbers, *shape) for leaf, shape in shapes.items()})
        options = ['--lora=%s' % (folder / 'adapter')]
    else:
        options = ['--%s=%s:0.3' % (method, other)]
    weightfs('convert', *options, base, folder / 'out.safetensors')
    merged = st.read(folder / 'out.safetensors').tensors
    assert merged['x.weight'][2] != st.read(base).tensors['x.weight'][2]
    check_mount(mount, base, options, merged)
