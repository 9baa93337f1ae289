# SPDX-License-Identifier: MIT
"""
A plugin for pytest that runs with the test suite of torch or of safetensors: keeps, in $WFS_KEEP, every file that the suite makes.

A file of safetensors is kept with what the library said when it read it: NAME.safetensors, and NAME.refused if that was an error.
Files of more than 4 MiB are left out.
"""
import hashlib
import io
import os
import pathlib

FOLDER = pathlib.Path(os.environ['WFS_KEEP'])
LARGEST = 1 << 22


def keep(data, ending):
    """The kept file, or None. The same content is kept once."""
    if len(data) > LARGEST:
        return None
    path = FOLDER / (hashlib.sha256(data).hexdigest()[:16] + ending)
    path.write_bytes(data)
    return path


def hook_torch():
    import torch
    original = torch.save

    def save(value, file, *args, **options):
        original(value, file, *args, **options)
        copy = io.BytesIO()
        try:
            original(value, copy, *args, **options)
        except Exception:  # what can be saved only once, or only to a path
            return
        keep(copy.getvalue(), '.pth')

    torch.save = torch.serialization.save = save


def hook_safetensors():
    """Before safetensors.torch and the like are imported, which take these functions by name."""
    import safetensors
    write, write_file, read = safetensors.serialize, safetensors.serialize_file, safetensors.deserialize

    def serialize(tensors, metadata=None):
        data = write(tensors, metadata)
        keep(data, '.safetensors')
        return data

    def serialize_file(tensors, path, metadata=None):
        write_file(tensors, path, metadata)
        keep(pathlib.Path(path).read_bytes(), '.safetensors')

    def deserialize(data):
        path = keep(bytes(data), '.safetensors')
        try:
            return read(data)
        except Exception as problem:
            if path:
                path.with_suffix('.refused').write_text(str(problem))
            raise

    safetensors.serialize, safetensors.serialize_file, safetensors.deserialize = serialize, serialize_file, deserialize


if os.environ['WFS_KEEP_OF'] == 'torch':
    hook_torch()
else:
    hook_safetensors()
