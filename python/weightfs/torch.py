# SPDX-License-Identifier: MIT
"""``load_file``, ``save_file``, ``load``, ``save`` and ``safe_open`` as safetensors has them, for checkpoints of every format."""
from __future__ import annotations

import os
import tempfile
from typing import Any, Dict, Optional, Union

import torch

from weightfs._edit import Edits
from weightfs._errors import UsageError
from weightfs._safe_open import safe_open

__all__ = ['load', 'load_file', 'safe_open', 'save', 'save_file']

Path = Union[str, 'os.PathLike[str]']
OTHERS = ('.bpk', '.gguf', '.json', '.mpk', '.bin', '.pt', '.pth', '/')  # what the program writes, by their names


def load_file(filename: Path, device: Any = 'cpu', *, backend: str = 'mmap', **options) -> Dict[str, torch.Tensor]:
    """Returns all tensors of a checkpoint by their keys; other keywords are options of ``weightfs.open``. ``backend`` as of ``safe_open``."""
    with safe_open(filename, 'pt', device, backend=backend, **options) as file:
        return file.get_tensors()


def load(data: bytes) -> Dict[str, torch.Tensor]:
    """Returns the tensors of a checkpoint in memory."""
    with tempfile.NamedTemporaryFile(prefix='weightfs-') as file:
        file.write(data)
        file.flush()
        return load_file(file.name, backend='pread')


def save_file(tensors: Dict[str, torch.Tensor], filename: Path, metadata: Optional[Dict[str, str]] = None, **options) -> None:
    """Writes tensors to a file, in the format that its name has (else safetensors), whole or not at all; a file that exists is replaced.
    Tensors must be dense and contiguous, and no two may share memory; other keywords are options of outputs.
    """
    check(tensors)
    if not os.fspath(filename).endswith(OTHERS):
        options.setdefault('format', 'safetensors')
    edits = Edits(None, filename, {'overwrite': True, **options})
    for key, tensor in tensors.items():
        edits[key] = tensor
    for name, text in (metadata or {}).items():
        edits.set_metadata(name, text)
    edits.save()


def save(tensors: Dict[str, torch.Tensor], metadata: Optional[Dict[str, str]] = None) -> bytes:
    """Returns tensors as the bytes of a safetensors file."""
    with tempfile.TemporaryDirectory(prefix='weightfs-') as folder:
        path = os.path.join(folder, 'all.safetensors')
        save_file(tensors, path, metadata)
        with open(path, 'rb') as file:
            return file.read()


def check(tensors: Dict[str, torch.Tensor]) -> None:
    """Refuses what would not be the same after loading."""
    if not isinstance(tensors, dict):
        raise UsageError('tensors is a dict of texts and torch.Tensor, not %s' % type(tensors).__name__)
    ranges = []
    for key, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise UsageError('%r is a %s, not a torch.Tensor' % (key, type(tensor).__name__))
        if tensor.layout != torch.strided:
            raise UsageError('%r is sparse: make it dense first (.to_dense())' % key)
        if not tensor.is_contiguous():
            raise UsageError('%r is not contiguous: copy it first (.contiguous())' % key)
        if tensor.numel() and tensor.device.type != 'meta':
            begin = tensor.data_ptr()
            ranges.append((str(tensor.device), begin, begin + tensor.numel() * tensor.element_size(), key))
    ranges.sort()
    for before, after in zip(ranges, ranges[1:]):
        if before[0] == after[0] and after[1] < before[2]:
            raise RuntimeError('%r and %r share memory, and would be two tensors in the file: save one of them, or a copy (.clone())'
                               % (before[3], after[3]))
