# SPDX-License-Identifier: MIT
"""Codes with scales in tensors of their own: the elements that the reference code of each form gives, bit for bit."""
import hashlib
import json
import re

import numpy
import pytest

from wfs_testlib import shared, st
from wfs_testlib.program import weightfs

FOLDER = shared.FOLDER / 'golden/scales'
EXPECTED = json.loads((FOLDER / 'expected.json').read_text())['files'] if shared.IS_THERE else {}
TYPES = {'float32': 'F32', 'bfloat16': 'BF16', 'float16': 'F16'}
NAN = {'F32': ('<u4', 0x7fc00000, 0x7f800000), 'BF16': ('<u2', 0x7fc0, 0x7f80), 'F16': ('<u2', 0x7e00, 0x7c00)}
# Results of an implementation that rounds earlier or has another zero: described beside them in the golden files.
OTHER_WAYS = re.compile(r'GPTQModel|AutoAWQ|both to the dtype|backward only|f16 \[out, in\]|NVFP4QTensor|e2m1 \* 2|\(C\+\+|torch\.|default output|output dtype')

pytestmark = pytest.mark.skipif(not shared.IS_THERE, reason='the golden files are not here')


def digest(dtype, data):
    """With every NaN as the golden files have it."""
    kind, one, infinity = NAN[dtype]
    raw = numpy.frombuffer(data, kind).copy()
    raw[raw & (infinity | infinity >> 1 | (1 << 31 if kind == '<u4' else 1 << 15) - 1) > infinity] = one
    return hashlib.sha256(raw.tobytes()).hexdigest()


CASES = [(name, key, label) for name, about in EXPECTED.items() for key, ways in about['result'].items() for label in ways if not OTHER_WAYS.search(label) and 'shape' in ways[label]]


@pytest.mark.parametrize('name,key,label', CASES, ids=lambda text: str(text)[:60].replace('/', '_'))
def test_the_elements_of_the_reference(memory, name, key, label):
    about = EXPECTED[name]
    result = about['result'][key][label]
    dtype = TYPES[result['dtype']]
    options = ['--dequantize'] + (['--gptq_v2'] if 'gptq_v2' in json.dumps(about['config']) else [])
    weightfs('convert', *options, '--cast=%s' % dtype, FOLDER / (name + '.safetensors'), memory / 'out.safetensors', has_notices=True)
    tensors = st.read(memory / 'out.safetensors').tensors
    found = tensors[key]
    assert found[0] == dtype and list(found[1]) == result['shape']
    if label.startswith('dequantize_4bit') and 'with quant_map' in about['result'][key] and 'fp4' in name:
        return  # of these two, the signs of zeros differ
    assert digest(dtype, found[2]) == result['sha256']
    assert not [one for one in tensors if re.search('scale|absmax|quant_|zero|g_idx|SCB|_shape|_format|_packed|_blocks', one)]


def test_the_type_is_bf16_unless_another_is_asked_for(memory):
    weightfs('convert', '--dequantize=.', FOLDER / 'ct-fp8-channel-f32.safetensors', memory / 'out.safetensors', has_notices=True)
    assert st.read(memory / 'out.safetensors').tensors['m.proj.weight'][0] == 'BF16'


def test_nothing_to_dequantize_is_an_error(memory):
    st.write(memory / 'plain.safetensors', {'a.weight': ('F32', [1], st.f32(1))})
    done = weightfs('ls', '--dequantize=.', memory / 'plain.safetensors', code=7)
    assert 'no tensor has scales of a form that is known' in done.error
