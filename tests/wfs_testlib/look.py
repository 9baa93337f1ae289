# SPDX-License-Identifier: MIT
"""What a tree of tensor files shows, through ordinary system calls."""
import json
import os
import random

PREFIX = 'user.weightfs.'


def attribute(path, name):
    return os.getxattr(path, PREFIX + name).decode()


def set_attribute(path, name, value):
    os.setxattr(path, PREFIX + name, value.encode())


def files(root):
    """Relative paths of all files."""
    root = os.fspath(root)
    return sorted(os.path.relpath(os.path.join(above, name), root) for above, _, names in os.walk(root) for name in names)


def tensors(root):
    """key -> (dtype, shape, bytes), as st.read has it, of everything below root."""
    result = {}
    for name in files(root):
        path = os.path.join(root, name)
        with open(path, 'rb') as file:
            data = file.read()
        assert len(data) == os.stat(path).st_size
        key = attribute(path, 'key')
        assert key not in result
        result[key] = attribute(path, 'dtype'), json.loads(attribute(path, 'shape')), data
    return result


def content(root):
    """Relative path -> bytes."""
    result = {}
    for name in files(root):
        with open(os.path.join(root, name), 'rb') as file:
            result[name] = file.read()
    return result


def read_in_pieces(path, n_piece, seed=None):
    """The bytes of a file, by ranges from first to last or in another order, none of them from the cache of the kernel."""
    size = os.path.getsize(path)
    starts = list(range(0, size, n_piece))
    if seed is not None:
        random.Random(seed).shuffle(starts)
    whole = bytearray(size)
    with open(path, 'rb', buffering=0) as file:
        for start in starts:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            piece = os.pread(file.fileno(), n_piece, start)
            whole[start:start + len(piece)] = piece
    return bytes(whole)
