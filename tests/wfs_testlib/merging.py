# SPDX-License-Identifier: MIT
"""What adapters and sums should give: exact values by numpy, and rounding by its definition."""
import json

import numpy

from wfs_testlib import st

TYPES = {'I64': '<i8', 'F64': '<f8', 'F32': '<f4', 'F16': '<f2', 'BF16': '<u2'}
DIGITS = {'F32': (24, -149, 127), 'F16': (11, -24, 15), 'BF16': (8, -133, 127)}


def decode(dtype, shape, data):
    """The elements as doubles."""
    raw = numpy.frombuffer(data, TYPES[dtype]).reshape(shape)
    if dtype == 'BF16':
        raw = (raw.astype('<u4') << 16).view('<f4')
    return raw.astype('<f8')


def encode(values, dtype):
    """The bytes of doubles that the dtype has."""
    if dtype == 'BF16':
        return (values.astype('<f4').view('<u4') >> 16).astype('<u2').tobytes()
    return values.astype(TYPES[dtype]).tobytes()


def arrays(path):
    """Keys to (dtype, array of doubles)."""
    return {key: (dtype, decode(dtype, shape, data)) for key, (dtype, shape, data) in st.read(path).tensors.items()}


def rounded(values, dtype):
    """To nearest even, once; and the distance of two neighbours there."""
    digits, low, top = DIGITS[dtype]
    _, exponent = numpy.frexp(values)
    step = numpy.maximum(exponent - digits, low)
    result = numpy.ldexp(numpy.rint(numpy.ldexp(values, -step)), step)
    return numpy.where(numpy.abs(result) >= numpy.ldexp(1.0, top + 1), numpy.sign(result) * numpy.inf, result), numpy.ldexp(1.0, step)


def differences(found, exact, dtype, base):
    """How many elements are not the exact value, rounded once. Where that is nearly in the middle between two neighbours, either may come
    out: within 2^-50 of the terms."""
    if dtype == 'F64':
        return int((found != exact).sum())
    nearest, step = rounded(exact, dtype)
    with numpy.errstate(all='ignore'):
        middle = numpy.abs(numpy.abs(exact - nearest) - step / 2)
        is_close = middle <= 2.0 ** -50 * (numpy.abs(base) + numpy.abs(exact))
        is_next = numpy.abs(found - nearest) <= step * 1.0000001
    same = (found == nearest) | (numpy.isnan(found) & numpy.isnan(nearest))
    return int((~same & ~(is_close & is_next)).sum())


def write_pair(folder, shapes, dtype='BF16', rank=8, alpha=12, seed=1):
    """A base and an adapter of peft for all of its matrices. Returns the base, the directory, and keys to the exact values in extended
    precision."""
    random = numpy.random.default_rng(seed)
    tensors, factors, exact = {}, {}, {}
    for key, shape in shapes.items():
        values = rounded(random.standard_normal(shape) * 0.05, dtype)[0]
        tensors[key] = (dtype, list(shape), encode(values, dtype))
        exact[key] = values.astype(numpy.longdouble)
        if len(shape) == 2:
            a, b = (random.standard_normal(size).astype('<f4') for size in ((rank, shape[1]), (shape[0], rank)))
            name = 'base_model.model.' + key.removesuffix('.weight')
            factors[name + '.lora_A.weight'] = ('F32', list(a.shape), a.tobytes())
            factors[name + '.lora_B.weight'] = ('F32', list(b.shape), b.tobytes())
            exact[key] = exact[key] + numpy.longdouble(alpha / rank) * (b.astype(numpy.longdouble) @ a.astype(numpy.longdouble))
    adapter = folder / 'adapter'
    adapter.mkdir()
    st.write(adapter / 'adapter_model.safetensors', factors)
    (adapter / 'adapter_config.json').write_text(json.dumps({'peft_type': 'LORA', 'r': rank, 'lora_alpha': alpha}))
    return st.write(folder / 'base.safetensors', tensors), adapter, exact
