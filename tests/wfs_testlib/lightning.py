# SPDX-License-Identifier: MIT
"""
A checkpoint such as trainers write, by the torch of this python, and whether another one is the same object but for names:

  python3 lightning.py make FILE [plain]
  python3 lightning.py compare BEFORE AFTER OLD NEW [weights_only] [mmap]

OLD and NEW: what keys of the state dict begin with. plain: nothing in it that only Python could build. Exits with the first difference.
"""
import argparse
import collections
import functools
import pathlib
import sys
import warnings

import torch


def make_network():
    network = torch.nn.Sequential(collections.OrderedDict(
        embed=torch.nn.Embedding(6, 4), body=torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4)),
        head=torch.nn.Linear(4, 6, bias=False)))
    network.head.weight = network.embed.weight
    return torch.nn.ModuleDict({'net': network, 'other': torch.nn.Linear(2, 2)})


def train(network):
    """Two steps, so that the optimizer has something to remember."""
    optimizer = torch.optim.AdamW([{'params': network['net'].parameters()}, {'params': network['other'].parameters(), 'lr': 0.5}], lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(2):
        network['net'](torch.arange(6)).sum().backward()
        network['other'](torch.ones(1, 2)).sum().backward()
        optimizer.step()
        schedule.step()
    return optimizer.state_dict(), schedule.state_dict()


def opaque():
    counts = collections.defaultdict(int, {'seen': 12})
    return {'hparams': argparse.Namespace(lr=0.01, layers=[1, 2], path=pathlib.PurePosixPath('/data'), sizes=frozenset([3])),
            'counts': counts, 'again': counts, 'half': functools.partial(pow, exp=0.5), 'range': range(3), 'bytes': b'\0\xff',
            'size': torch.Size([2, 3]), 'dtype': torch.float16, 'device': torch.device('cpu')}


def make(path, is_plain):
    torch.manual_seed(7)
    network = make_network()
    optimizer, schedule = train(network)
    whole = torch.arange(40, dtype=torch.float32)
    state = network.state_dict()
    state['net.views.even'], state['net.views.turned'] = whole[::2], whole.reshape(5, 8).t()
    state['net.none'], state['net.scalar'] = torch.zeros(0, 3), torch.tensor(7)
    checkpoint = {'epoch': 3, 'global_step': 120, 'pytorch-lightning_version': '2.1.0', 'state_dict': state, 'loops': {'fit': [1, None, True]},
                  'optimizer_states': [optimizer], 'callbacks': {"ModelCheckpoint{'monitor': None}": {'best': 0.25, 'at': torch.tensor(0.5)}},
                  'weight_of_state': state['other.weight']}
    if not is_plain:
        checkpoint.update(opaque(), lr_schedulers=[schedule])
    torch.save(checkpoint, path)


class Comparison:
    def __init__(self, old, new):
        self.old, self.new = old, new
        self.pairs, self.storages = {}, {}
        self.kept = []  # as long as it is compared by id

    def fail(self, path, *what):
        sys.exit('%s: %s' % (path or 'the whole', ' and '.join(map(repr, what))))

    def rename(self, path, key):
        """A key of the state dict, or of its table of modules, where a module has no dot at its end."""
        end = {'state_dict': '', 'state_dict/_metadata': '.'}.get(path)
        if end is None or not (key + end).startswith(self.old):
            return key
        renamed = self.new + (key + end)[len(self.old):]
        return renamed[:len(renamed) - len(end)]

    def meet(self, path, a, b):
        """Each object stands for one of the other file, wherever it is met. False: it was met before."""
        if isinstance(a, (int, float, str, bytes, type(None), type, torch.dtype, torch.device)) or a == ():
            return True
        is_new = id(a) not in self.pairs
        self.kept.append((a, b))
        if (self.pairs.setdefault(id(a), id(b)), self.pairs.setdefault((id(b), 'back'), id(a))) != (id(b), id(a)):
            self.fail(path, 'is shared otherwise')
        return is_new

    def tensor(self, path, a, b):
        for name in ('dtype', 'shape', 'requires_grad', 'layout', 'device'):
            if getattr(a, name) != getattr(b, name):
                self.fail(path, name, getattr(a, name), getattr(b, name))
        if a.stride() != b.stride() or not torch.equal(a, b):
            self.fail(path, 'stride or content')
        if a.numel():
            shift = b.data_ptr() - a.data_ptr() - (b.storage_offset() - a.storage_offset()) * a.element_size()
            start = a.data_ptr() - a.storage_offset() * a.element_size()
            if self.storages.setdefault(start, shift) != shift:
                self.fail(path, 'is not a view of the storage that it was')

    def compare(self, path, a, b):
        if type(a) is not type(b):
            self.fail(path, type(a), type(b))
        if not self.meet(path, a, b):
            return
        if isinstance(a, torch.Tensor):
            self.tensor(path, a, b)
        elif isinstance(a, dict):
            keys = [self.rename(path, key) for key in a]
            if keys != list(b):
                self.fail(path, keys, list(b))
            for key in a:
                self.compare('%s.%s' % (path, key) if path else str(key), a[key], b[self.rename(path, key)])
        elif isinstance(a, (list, tuple)):
            if len(a) != len(b):
                self.fail(path, len(a), len(b))
            for i, (x, y) in enumerate(zip(a, b)):
                self.compare('%s.%d' % (path, i), x, y)
        elif isinstance(a, functools.partial):
            self.compare(path, [a.func, a.args, a.keywords], [b.func, b.args, b.keywords])
        elif not hasattr(a, '__dict__') and a != b:
            self.fail(path, a, b)
        if not isinstance(a, (type, torch.Tensor)) and not callable(a):
            self.attributes(path, getattr(a, '__dict__', {}), getattr(b, '__dict__', {}))

    def attributes(self, path, a, b):
        if sorted(a) != sorted(b):
            self.fail(path, 'attributes', sorted(a), sorted(b))
        for name in a:
            self.compare('%s/%s' % (path, name), a[name], b[name])


def main():
    warnings.simplefilter('ignore')
    verb, *arguments = sys.argv[1:]
    if verb == 'make':
        return make(arguments[0], 'plain' in arguments)
    before, after, old, new, *options = arguments
    options = {option: True for option in options}
    options.setdefault('weights_only', False)
    Comparison(old, new).compare('', torch.load(before, **options), torch.load(after, **options))


if __name__ == '__main__':
    main()
