#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Makes the sample checkpoint: a small encoder, as a training script would have saved it.

Usage: tools/make_sample.py [OUT]      default: tests/data/sample/encoder.safetensors
The same bytes on every machine: the values come from integer arithmetic alone."""
import json
import pathlib
import struct
import sys

import numpy

WIDTH, HIDDEN, WORDS, PLACES, LAYERS = 32, 64, 48, 16, 2
# The order of types in a canonical file.
ORDER = ['I64', 'F32', 'BF16', 'F16', 'F8_E4M3']


class Noise:
    """Bell-shaped numbers: sums of four draws of a linear congruential generator."""

    def __init__(self, seed):
        self.state = seed

    def draw(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.state >> 44  # 20 bits

    def __call__(self, *shape):
        count = int(numpy.prod(shape))
        sums = [sum(self.draw() for _ in range(4)) - 2**21 for _ in range(count)]
        return (numpy.array(sums, dtype=numpy.float32) / numpy.float32(2**25)).reshape(shape)


def as_bf16(values):
    """Round to nearest even on the upper half of each F32."""
    bits = values.astype('<f4').view('<u4').astype(numpy.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype('<u2')


def linear(noise, n_out, n_in):
    return {'weight': ('BF16', as_bf16(noise(n_out, n_in))), 'bias': ('F32', noise(n_out))}


def norm(n):
    return {'weight': ('F32', numpy.ones(n, '<f4')), 'bias': ('F32', numpy.zeros(n, '<f4'))}


def encoder():
    """Dotted name -> (dtype, array)."""
    noise = Noise(20)
    modules = {
        'embeddings.word': {'weight': ('F16', noise(WORDS, WIDTH).astype('<f2'))},
        'embeddings.position': {'weight': ('F16', noise(PLACES, WIDTH).astype('<f2'))},
        'embeddings.norm': norm(WIDTH),
    }
    for i in range(LAYERS):
        layer = 'encoder.layer.%d.' % i
        for name in ('query', 'key', 'value', 'output'):
            modules[layer + 'attention.' + name] = linear(noise, WIDTH, WIDTH)
        modules[layer + 'attention.norm'] = norm(WIDTH)
        modules[layer + 'feed_forward.up'] = linear(noise, HIDDEN, WIDTH)
        modules[layer + 'feed_forward.down'] = linear(noise, WIDTH, HIDDEN)
        modules[layer + 'feed_forward.norm'] = norm(WIDTH)
    modules['pooler.dense'] = linear(noise, WIDTH, WIDTH)
    tensors = {'%s.%s' % (module, name): tensor for module, parts in modules.items() for name, tensor in parts.items()}
    tensors['embeddings.position_ids'] = 'I64', numpy.arange(PLACES, dtype='<i8').reshape(1, PLACES)
    tensors['temperature'] = 'F32', numpy.array(0.0625, '<f4')
    tensors['scaled_fp8'] = 'F8_E4M3', numpy.zeros(0, 'u1')
    return tensors


def safetensors(tensors, metadata):
    """The canonical file."""
    header, blob = {'__metadata__': dict(sorted(metadata.items()))}, b''
    for name in sorted(tensors, key=lambda name: (ORDER.index(tensors[name][0]), name)):
        dtype, array = tensors[name]
        data = array.tobytes()
        header[name] = {'dtype': dtype, 'shape': list(array.shape), 'data_offsets': [len(blob), len(blob) + len(data)]}
        blob += data
    text = json.dumps(header, separators=(',', ':'), ensure_ascii=False).encode()
    text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text + blob


def main():
    root = pathlib.Path(__file__).resolve().parents[1]
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / 'tests/data/sample/encoder.safetensors'
    metadata = {'format': 'pt', 'architecture': 'encoder, 2 layers of width 32', 'license': 'MIT'}
    out.write_bytes(safetensors(encoder(), metadata))


if __name__ == '__main__':
    main()
