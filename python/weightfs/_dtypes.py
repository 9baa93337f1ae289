# SPDX-License-Identifier: MIT
"""What dtypes of checkpoints are called in numpy, ml_dtypes, torch and DLPack."""
from weightfs._errors import UsageError

NUMPY = {
    'BOOL': 'bool', 'U8': 'uint8', 'I8': 'int8', 'I16': 'int16', 'U16': 'uint16', 'F16': 'float16', 'I32': 'int32', 'U32': 'uint32',
    'F32': 'float32', 'C64': 'complex64', 'F64': 'float64', 'I64': 'int64', 'U64': 'uint64', 'C128': 'complex128',
    'QI8': 'int8', 'QU8': 'uint8', 'QI32': 'int32', 'FLEX32': 'float32', 'BOOL32': 'uint32',
}
ML_DTYPES = {
    'BF16': 'bfloat16', 'F8_E5M2': 'float8_e5m2', 'F8_E4M3': 'float8_e4m3fn', 'F8_E8M0': 'float8_e8m0fnu',
    'F8_E4M3FNUZ': 'float8_e4m3fnuz', 'F8_E5M2FNUZ': 'float8_e5m2fnuz',
}
TORCH = dict(NUMPY, **ML_DTYPES, C32='complex32')
# The same the other way round: the names that are stored for an array.
STORED = {name: dtype for dtype, name in reversed(list(TORCH.items()))}
DLPACK = {'BOOL': (6, 8), 'BF16': (4, 16)}  # kDLBool, kDLBfloat
DLPACK_KINDS = {'i': 0, 'u': 1, 'f': 2, 'c': 5}


def numpy_dtype(name, suggestion):
    """Returns numpy's dtype for one of a checkpoint. suggestion is what the error says to write."""
    import numpy
    if name in NUMPY:
        return numpy.dtype(NUMPY[name])
    if name in ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise UsageError('numpy has no dtype for %s: install ml_dtypes, or write %s' % (name, suggestion)) from None
        if hasattr(ml_dtypes, ML_DTYPES[name]):
            return numpy.dtype(getattr(ml_dtypes, ML_DTYPES[name]))
    raise UsageError('numpy has no dtype for %s: write %s, or .tobytes()' % (name, suggestion))


def torch_dtype(name, suggestion):
    """Returns torch's dtype for one of a checkpoint."""
    import torch
    found = getattr(torch, TORCH.get(name, ''), None)
    if found is None:
        raise UsageError('torch %s has no dtype for %s: write %s, or .tobytes()' % (torch.__version__, name, suggestion))
    return found


def dlpack_dtype(name):
    """Returns code and bits of DLPack."""
    import numpy
    if name not in DLPACK and name not in NUMPY:
        raise BufferError('DLPack has no dtype for %s: write .numpy("float32")' % name)
    dtype = None if name in DLPACK else numpy.dtype(NUMPY[name])
    return DLPACK[name] if dtype is None else (DLPACK_KINDS[dtype.kind], 8 * dtype.itemsize)
