# SPDX-License-Identifier: MIT
"""
The layout of a model of 7 billion parameters: 291 tensors in BF16. `sparse` writes it in its size, as a file with a hole for the data, for
verbs that read headers only; `small` writes the same keys with each dimension divided by 32, and numbers that are the same each time.
"""
import json
import struct

import numpy

from wfs_testlib import st

HIDDEN, INNER, WORDS, LAYERS = 4096, 11008, 32000, 32
ATTENTION = ('q_proj', 'k_proj', 'v_proj', 'o_proj')
CONFIG = {'architectures': ['LlamaForCausalLM'], 'hidden_size': HIDDEN, 'num_hidden_layers': LAYERS, 'num_attention_heads': 32,
          'model_type': 'llama', 'vocab_size': WORDS}


def shapes():
    """Key -> shape, in the order in which the layers are made."""
    result = {'model.embed_tokens.weight': [WORDS, HIDDEN]}
    for layer in range(LAYERS):
        prefix = 'model.layers.%d.' % layer
        result.update({prefix + 'self_attn.%s.weight' % name: [HIDDEN, HIDDEN] for name in ATTENTION})
        result.update({prefix + 'mlp.gate_proj.weight': [INNER, HIDDEN], prefix + 'mlp.up_proj.weight': [INNER, HIDDEN],
                       prefix + 'mlp.down_proj.weight': [HIDDEN, INNER], prefix + 'input_layernorm.weight': [HIDDEN],
                       prefix + 'post_attention_layernorm.weight': [HIDDEN]})
    result.update({'model.norm.weight': [HIDDEN], 'lm_head.weight': [WORDS, HIDDEN]})
    return result


def sparse(path):
    """Writes the file, of which only the header takes room; returns the path."""
    entries, end = {'__metadata__': {'format': 'pt'}}, 0
    for key, shape in shapes().items():
        n_bytes = st.size_of('BF16', shape)
        entries[key] = {'dtype': 'BF16', 'shape': shape, 'data_offsets': [end, end + n_bytes]}
        end += n_bytes
    header = json.dumps(entries, separators=(',', ':')).encode()
    header += b' ' * (-len(header) % 8)
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(header)) + header)
        file.truncate(8 + len(header) + end)
    return path


def numbers(seed, n):
    """BF16 that look like weights: sums of four uniform numbers, by arithmetic that no library changes."""
    words = (numpy.arange(4 * n, dtype=numpy.uint64) + numpy.uint64(seed * 1_000_003)) * numpy.uint64(0x9E3779B97F4A7C15)
    words ^= words >> numpy.uint64(29)
    words *= numpy.uint64(0xBF58476D1CE4E5B9)
    uniform = (words >> numpy.uint64(40)).astype(numpy.float64) / 2 ** 24 - 0.5
    sums = (uniform.reshape(4, n).sum(0) * 0.035).astype('<f4')
    return (sums.view('<u4') >> numpy.uint32(16)).astype('<u2')


def small():
    """Key -> (dtype, shape, bytes)."""
    result = {}
    for seed, (key, shape) in enumerate(shapes().items()):
        dims = [dim // 32 for dim in shape]
        bits = numpy.full(dims, 0x3f80, '<u2') if 'norm' in key else numbers(seed, int(numpy.prod(dims)))
        result[key] = ('BF16', dims, bits.tobytes())
    return result


def tuned():
    """The same after a little training: the last four layers differ, one norm is renamed, a head is added, one bias is gone."""
    result = small()
    for seed, key in enumerate(list(result)):
        layer = int(key.split('.')[2]) if key.startswith('model.layers.') else -1
        if layer < LAYERS - 4 or 'norm' in key:
            continue
        dtype, dims, data = result[key]
        bits = numpy.frombuffer(data, '<u2').copy()
        bits[::layer] ^= 3
        result[key] = (dtype, dims, bits.tobytes())
    result['model.final_layernorm.weight'] = result.pop('model.norm.weight')
    dtype, dims, data = result['lm_head.weight']
    result['lm_head.weight'] = (dtype, [dims[0] + 8, dims[1]], data + data[:16 * dims[1]])
    result['value_head.weight'] = ('F32', [1, 128], bytes(512))
    return result
