# SPDX-License-Identifier: MIT
"""Checkpoints in several safetensors files with an index, written without our program."""
import json

from wfs_testlib import st

INDEX = 'model.safetensors.index.json'


def name(i, n, version=''):
    return 'model-%05d-of-%05d%s.safetensors' % (i, n, version)


def write(folder, shards, **more):
    """shards: the tensors of each file; more: in the index, before its weight_map."""
    folder.mkdir()
    weight_map = {}
    for i, tensors in enumerate(shards, 1):
        st.write(folder / name(i, len(shards)), tensors, {'format': 'pt'})
        weight_map.update({key: name(i, len(shards)) for key in tensors})
    (folder / INDEX).write_text(json.dumps({**more, 'weight_map': weight_map}))
    return folder
