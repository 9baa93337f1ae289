# SPDX-License-Identifier: MIT
"""Model checkpoints of every format as mappings of tensors.

>>> ckpt = weightfs.open('encoder.safetensors')
>>> ckpt['pooler.dense.bias'].shape
(32,)
"""
from weightfs._checkpoint import Checkpoint, Module
from weightfs._edit import Edits
from weightfs._errors import (DeniedError, Error, ExistsError, FileError, FormatError, MissingKeyError, MountError, NotFoundError, Notice,
                              Stopped, UsageError)
from weightfs._mount import mount
from weightfs._native import ffi as _ffi, lib as _lib
from weightfs._safe_open import safe_open
from weightfs._tensor import Tensor
from weightfs._verbs import Diff, check, convert, diff, edit, open, sum

__version__ = _ffi.string(_lib.wfs_version()).decode()
__all__ = ['Checkpoint', 'DeniedError', 'Diff', 'Edits', 'Error', 'ExistsError', 'FileError', 'FormatError', 'MissingKeyError', 'Module',
           'MountError', 'NotFoundError', 'Notice', 'Stopped', 'Tensor', 'UsageError', 'check', 'convert', 'diff', 'edit', 'mount', 'open', 'safe_open', 'sum']
