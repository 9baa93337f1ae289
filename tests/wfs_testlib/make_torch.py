# SPDX-License-Identifier: MIT
"""
Files by the torch that is installed, and what it shows: python3 make_torch.py FOLDER writes them and FOLDER/expected.json,
{file: {key: [dtype, shape, sha256 of the row-major bytes]}}. Run in a process of its own: torch is large.
"""
import collections
import hashlib
import io
import json
import os
import pathlib
import pickle
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy  # noqa: E402
import torch  # noqa: E402
import torch.fx  # noqa: E402
import torch.package  # noqa: E402

from wfs_testlib import pth  # noqa: E402

SPELLED = {'float64': 'F64', 'float32': 'F32', 'float16': 'F16', 'bfloat16': 'BF16', 'int64': 'I64', 'int32': 'I32', 'int16': 'I16',
           'int8': 'I8', 'uint8': 'U8', 'bool': 'BOOL', 'complex128': 'C128', 'complex64': 'C64', 'complex32': 'C32',
           'uint16': 'U16', 'uint32': 'U32', 'uint64': 'U64', 'float8_e4m3fn': 'F8_E4M3', 'float8_e5m2': 'F8_E5M2',
          'qint8': 'I8', 'quint8': 'U8', 'qint32': 'I32'}
expected = {}


def raw(tensor):
    """Row-major bytes, for dtypes without a numpy type too."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    if tensor.numel() == 0:
        return b''
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def describe(tensor):
    return [SPELLED[str(tensor.dtype)[6:]], list(tensor.shape), hashlib.sha256(raw(tensor)).hexdigest()]


def unsaved(module):
    """Tensors of a module that its state_dict() does not return: buffers, and plain attributes."""
    result = {}
    for prefix, inner in module.named_modules():
        prefix += '.' if prefix else ''
        result.update({prefix + name: inner._buffers[name] for name in inner._non_persistent_buffers_set})
        result.update({prefix + name: value for name, value in vars(inner).items() if isinstance(value, torch.Tensor)})
    return result


def walk(value, key, found):
    if isinstance(value, torch.Tensor):
        found[key] = describe(value)
    elif isinstance(value, torch.nn.Module):
        walk({**value.state_dict(), **unsaved(value)}, key, found)
    elif isinstance(value, dict):
        for name, inner in value.items():
            walk(inner, '%s.%s' % (key, name) if key else str(name), found)
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            walk(inner, '%s.%d' % (key, i) if key else str(i), found)


def expect(name, value):
    expected[name] = {}
    walk(value, '', expected[name])


def save(name, value, shown=None, **options):
    torch.save(value, folder / name, **options)
    expect(name, value if shown is None else shown)


def can_save(tensor, **options):
    """Not every dtype that a torch has can be stored by it, and read back."""
    try:
        file = io.BytesIO()
        torch.save(tensor, file, **options)
        file.seek(0)
        torch.load(file)
        return True
    except (KeyError, AttributeError, RuntimeError):
        return False


def every_dtype(**options):
    result = {}
    for name in SPELLED:
        if not hasattr(torch, name):
            continue
        dtype = getattr(torch, name)
        if name.startswith('q'):
            x = torch.tensor([[-1.5, 0.25], [2, -0.75]])
            result[name] = torch.quantize_per_tensor(x, 0.1, 10, dtype)
            continue
        n = torch.empty(0, dtype=dtype).element_size()
        content = bytes((i * 37 + 11) % 251 for i in range(24 * n)) if name != 'bool' else bytes(i % 3 == 0 for i in range(24))
        result[name] = torch.frombuffer(bytearray(content), dtype=torch.uint8).clone().view(dtype).reshape(4, 6)
    return {name: tensor for name, tensor in result.items() if can_save(tensor, **options)}


def views():
    base = torch.arange(24.)
    matrix = base.reshape(4, 6)
    image = torch.arange(120.).reshape(2, 3, 4, 5)
    volume = torch.arange(48).reshape(2, 2, 2, 3, 2)
    return collections.OrderedDict(
        base=base, matrix=matrix, transposed=matrix.t(), rows=matrix[1:3], columns=matrix[:, 2:5], step=base[1::3],
        permuted=base.reshape(2, 3, 4).permute(2, 0, 1), expanded=base[:4].expand(3, 4), repeated=base[7].expand(2, 2),
        windows=base.unfold(0, 4, 2), diagonal=matrix.diagonal(), strided=base.as_strided((2, 2), (5, 3), 2), scalar=base[5],
        empty=base[3:3], last=image.contiguous(memory_format=torch.channels_last), narrow=matrix.narrow(1, 5, 1),
        last3d=volume.contiguous(memory_format=torch.channels_last_3d), deep=torch.ones([1] * 30 + [3]), zero=torch.empty(0, 3, 0))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.ReLU())
        self.conv = torch.nn.Conv2d(2, 3, 3)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer('kept', torch.arange(3.))
        self.register_buffer('dropped', torch.arange(4.), persistent=False)
        self.anchors = torch.ones(2)


def trained():
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    (net.body(torch.ones(2, 4)).sum() + net.conv(torch.ones(1, 2, 4, 4)).sum() + net.embed.weight.sum()).backward()
    optimizer.step()
    return net, optimizer


class Scripted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.register_buffer('table', torch.arange(4).half())

    def forward(self, x):
        return self.fc(x)


def quantized(nets):
    """Modules of eager quantization, whose weights are in objects that are neither parameters nor buffers."""
    linear = torch.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(4, 3)), {torch.nn.Linear}, dtype=torch.qint8)
    embedding = torch.nn.quantized.Embedding(5, 4)
    weight, bias = linear[0]._weight_bias()
    table = embedding.weight()
    packed = '_packed_params.%s.%%state.%s'
    save(nets, {'linear': linear, 'embedding': embedding},
         {'linear': {'0': {packed % ('_packed_params', '0.0'): weight, packed % ('_packed_params', '0.1'): bias}},
          'embedding': {packed % ('_packed_weight', '0.1.0'): table,
                        packed % ('_packed_weight', '0.1.0.scales'): table.q_per_channel_scales().float(),
                        packed % ('_packed_weight', '0.1.0.zero_points'): table.q_per_channel_zero_points().float()}})


def package(name, net, scripted):
    """A package with a module, one that was traced, one of TorchScript, and tensors."""
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()))
    tensors = {'t': torch.arange(5.), 'both': [scripted, 3]}
    torch.package.package_exporter._gate_torchscript_serialization = False
    with torch.package.PackageExporter(str(folder / name)) as exporter:
        exporter.extern(['torch.**', '__main__', 'sys', 'io'])
        exporter.save_pickle('model', 'net.pkl', net)
        exporter.save_pickle('model', 'traced', traced)
        exporter.save_pickle('model', 'scripted.pkl', scripted)
        exporter.save_pickle('data', 'tensors.pkl', tensors)
        exporter.save_text('data', 'notes.txt', 'x')
    state = dict(scripted.state_dict())
    expect(name, {'model': {'net': net, 'traced': traced, 'scripted': state},
                  'data': {'tensors': {'t': tensors['t'], 'both': [state]}}})


def old_archive(name):
    """An archive of before 0.1.10, which this torch still reads."""
    data = bytes(range(24))
    value = pth.dictionary(a=pth.number(10) + b'Q', n=pth.dictionary(b=pth.text('11') + b'Q'))
    content = pth.old_archive(value, {1: ('ShortStorage', 12, data)}, {10: (1, (3, 4), (4, 1), 0), 11: (2, (2,), (1,), 1)},
                              [(2, 1, 4, 6)])
    (folder / name).write_bytes(content)
    expect(name, torch.load(folder / name))


def main():
    save('dtypes.pth', every_dtype())
    stream = {'_use_new_zipfile_serialization': False}
    save('dtypes-legacy.pth', every_dtype(**stream), **stream)
    for protocol in 2, 3, 4, 5:
        save('views-%d.pth' % protocol, views(), pickle_protocol=protocol)
        save('views-legacy-%d.pth' % protocol, views(), pickle_protocol=protocol, _use_new_zipfile_serialization=False)
        (folder / ('dump-%d.pkl' % protocol)).write_bytes(pickle.dumps(views(), protocol=protocol))
        expect('dump-%d.pkl' % protocol, views())
    weight = torch.nn.Parameter(torch.arange(6.).reshape(2, 3))
    save('tied.pth', {'embed': weight, 'head': weight, 'detached': weight.detach(), 'other': weight.clone()})
    save('nested.pth', {'a': {1: torch.ones(1), 2: [torch.zeros(2), (torch.ones(2, 2), {'k': torch.arange(2)})]}, (1, 2): torch.tensor([9]),
                        2.5: torch.tensor(2.5), 'text': 'x', 'none': None})
    net, optimizer = trained()
    save('state.pth', net.state_dict())
    save('training.pth', {'epoch': 3, 'model': net.state_dict(), 'optimizer': optimizer.state_dict(), 'rng': torch.get_rng_state()})
    save('module.pth', net)
    save('module-legacy.pth', net, _use_new_zipfile_serialization=False)
    quantized(nets='quantized-module.pth')
    package('package.pt', net, scripted=torch.jit.script(Scripted()))
    save('list.pth', [torch.ones(2), torch.zeros(1)])
    z = torch.tensor([1 + 2j, 3 - 4j])
    save('complex.pth', {'z': z, 'column': z.reshape(1, 2).t()})
    array = numpy.arange(6, dtype='>i4').reshape(2, 3)
    save('numpy.pth', {'c': numpy.arange(6.), 'big': array, 'fortran': numpy.asfortranarray(array)},
         {'c': torch.arange(6., dtype=torch.float64), 'big': torch.arange(6, dtype=torch.int32).reshape(2, 3),
          'fortran': torch.arange(6, dtype=torch.int32).reshape(2, 3)})
    scripted = torch.jit.script(Scripted())
    scripted.save(str(folder / 'script.pt'))
    expect('script.pt', dict(scripted.state_dict()))
    scripted._save_for_lite_interpreter(str(folder / 'lite.ptl'))
    expect('lite.ptl', dict(scripted.state_dict()))
    old_archive('archive.pth.tar')
    (folder / 'expected.json').write_text(json.dumps(expected))


if __name__ == '__main__':
    folder = pathlib.Path(sys.argv[1])
    torch.manual_seed(1)
    main()
    sys.stdout.flush()
    os._exit(0)  # some builds of torch crash on their way out
