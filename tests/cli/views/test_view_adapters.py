# SPDX-License-Identifier: MIT
"""The adapters of Burn, type by type and parameter by parameter, where the type of a module is said. `Struct:` is what Burn calls
it and does; without that, two types get the names that their modules look for."""
import json

import pytest

from wfs_testlib import st
from wfs_testlib.program import weightfs

NORMS = ['BatchNorm', 'LayerNorm', 'GroupNorm', 'RmsNorm']
ALIKE = ['Embedding', 'Conv1d', 'Conv2d', 'ConvTranspose1d', 'PRelu', 'InstanceNorm']
# type, direction, parameter and shape in the source, parameter and shape in the tree
ROWS = [('Linear', 'burn', 'weight', [2, 3], 'weight', [3, 2]), ('Linear', 'torch', 'weight', [2, 3], 'weight', [3, 2]),
        ('Linear', 'burn', 'weight', [2, 3, 1], 'weight', [2, 3, 1]), ('Linear', 'burn', 'weight', [6], 'weight', [6]),
        ('Linear', 'burn', 'bias', [2], 'bias', [2]), ('Linear', 'torch', 'bias', [2], 'bias', [2]),
        ('BatchNorm', 'burn', 'running_mean', [4], 'running_mean', [4]), ('BatchNorm', 'torch', 'running_var', [4], 'running_var', [4]),
        ('InstanceNorm', 'torch', 'gamma', [4], 'gamma', [4]), ('PRelu', 'torch', 'alpha', [4], 'alpha', [4])]
ROWS += [(name, 'burn', old, shape, new, shape) for name in NORMS for old, new in (('weight', 'gamma'), ('bias', 'beta'))
         for shape in ([4], [1, 4])]
ROWS += [(name, 'torch', old, [4], new, [4]) for name in NORMS for old, new in (('gamma', 'weight'), ('beta', 'bias'))]
ROWS = [('Struct:' + row[0], *row[1:]) for row in ROWS]
ROWS += [('Struct:' + name, direction, 'weight', shape, 'weight', shape) for name in ALIKE for direction in ('burn', 'torch')
         for shape in ([4], [5, 4], [2, 3, 4])]
ROWS += [('InstanceNorm', 'burn', 'weight', [4], 'gamma', [4]), ('InstanceNorm', 'torch', 'beta', [4], 'bias', [4]),
         ('PRelu', 'burn', 'weight', [4], 'alpha', [4]), ('PRelu', 'torch', 'alpha', [4], 'weight', [4]),
         ('Linear', 'burn', 'weight', [2, 3], 'weight', [3, 2]), ('Embedding', 'burn', 'weight', [2, 3], 'weight', [2, 3])]


@pytest.mark.parametrize('kind, direction, leaf, shape, new_leaf, new_shape', ROWS)
def test_each_row(tmp_path, kind, direction, leaf, shape, new_leaf, new_shape):
    count = 1
    for dim in shape:
        count *= dim
    data = bytes(range(4 * count))
    path = st.write(tmp_path / 'in.safetensors', {'model.part.' + leaf: ('F32', shape, data)})
    options = ['--class', r'^model\.part$=>' + kind, '--to', direction]
    tensor, = json.loads(weightfs('ls', '--json', *options, path).stdout)['tensors']
    assert (tensor['key'], tensor['shape']) == ('model.part.' + new_leaf, new_shape)
    if shape == new_shape:
        assert weightfs('cat', *options, path, tensor['key']).raw == data
