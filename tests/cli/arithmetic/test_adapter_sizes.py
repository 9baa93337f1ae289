# SPDX-License-Identifier: MIT
"""Rows, columns and factors are computed several at a time: wherever they end, each element has the one order of operations in doubles."""
import json

import numpy
import pytest

from wfs_testlib import merging, st
from wfs_testlib.program import weightfs

ROWS, COLUMNS, RANKS = (1, 3, 4, 5, 8, 11), (1, 7, 255, 512, 520, 1024), (1, 2, 3, 4, 5, 8, 11)
LARGE = (70, 1536)  # more than is computed at once, and a multiple of 4 KiB in doubles


def in_order(a, b):
    """Sums of products, from the first factor to the last."""
    total = numpy.zeros((b.shape[0], a.shape[1]))
    for k in range(a.shape[0]):
        total = total + b[:, k:k + 1] * a[k]
    return total


@pytest.mark.parametrize('method', ['LORA', 'ADALORA'])
@pytest.mark.parametrize('dtype', ['BF16', 'F32'])
@pytest.mark.parametrize('rank', RANKS)
def test_sizes_end_anywhere(memory, rank, dtype, method):
    random = numpy.random.default_rng(rank)
    base, factors, exact = {}, {}, {}
    for n_rows, n_columns in [LARGE, *((n_rows, n_columns) for n_rows in ROWS for n_columns in COLUMNS)]:
        module = 'm%d.n%d' % (n_rows, n_columns)
        before = merging.rounded(random.standard_normal((n_rows, n_columns)), dtype)[0]
        parts = {'A': (rank, n_columns), 'B': (n_rows, rank), **({'E': (rank, 1)} if method == 'ADALORA' else {})}
        parts = {name: random.standard_normal(shape).astype('<f4') for name, shape in parts.items()}
        factors.update({'base_model.model.%s.lora_%s%s' % (module, name, '' if method == 'ADALORA' else '.weight'): ('F32', list(one.shape), one.tobytes())
                        for name, one in parts.items()})
        a, b, e = parts['A'].astype('<f8'), parts['B'].astype('<f8'), parts.get('E', numpy.ones(1)).astype('<f8')
        base[module + '.weight'] = (dtype, [n_rows, n_columns], merging.encode(before, dtype))
        exact[module + '.weight'] = before + 3 / (rank + 1e-5 * (method == 'ADALORA')) * in_order(a * e, b)
    st.write(memory / 'adapter_model.safetensors', factors)
    (memory / 'adapter_config.json').write_text(json.dumps({'peft_type': method, 'r': rank, 'init_r': rank, 'lora_alpha': 3}))
    st.write(memory / 'base.safetensors', base)
    weightfs('convert', '--lora=%s' % memory, memory / 'base.safetensors', memory / 'out.safetensors')
    for key, (_, shape, found) in st.read(memory / 'out.safetensors').tensors.items():
        assert found == merging.encode(merging.rounded(exact[key], dtype)[0], dtype), (key, shape)
