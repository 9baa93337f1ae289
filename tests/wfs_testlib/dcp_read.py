# SPDX-License-Identifier: MIT
"""A reader of the distributed checkpoints that we write, out of Python's pickle and zipfile alone: one rank, one chunk a tensor. Everything
that torch relies on is asserted, and nothing of a file is run."""
import collections
import io
import pathlib
import pickletools
import zipfile

from wfs_testlib import pth_read

META, FILES = 'torch.distributed.checkpoint.metadata.', 'torch.distributed.checkpoint.filesystem.'
GLOBALS = {'torch Size', 'torch.serialization _get_layout', FILES[:-1] + ' _StorageInfo'} | {META[:-1] + ' ' + name for name in (
    'Metadata', 'TensorStorageMetadata', 'BytesStorageMetadata', 'ChunkStorageMetadata', 'TensorProperties', 'MetadataIndex', '_MEM_FORMAT_ENCODING')}

Entry = collections.namedtuple('Entry', 'path file offset length value')


def names_of(content):
    """What a pickle of protocol 4 names, by pickletools alone."""
    texts, found = [], set()
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name == 'STACK_GLOBAL':
            found.add(' '.join(texts[-2:]))
        elif isinstance(argument, str):
            texts.append(argument)
    return found


def _size(thing):
    assert thing.NAME == 'torch.Size' and len(thing.args) == 1 and isinstance(thing.args[0], tuple)
    return thing.args[0]


def _state(thing, name, *fields):
    assert thing.NAME == name and set(thing.state) == set(fields), (thing, thing.state)
    return [thing.state[field] for field in fields]


def _properties(thing):
    assert thing.NAME == META + 'TensorProperties'
    dtype, layout, requires_grad, memory, pinned = thing.state
    assert (layout.NAME, layout.args) == ('torch.serialization._get_layout', ('torch.strided',)) and requires_grad is False and pinned is False
    assert (memory.NAME, memory.args) == (META + '_MEM_FORMAT_ENCODING', (0,))
    return pth_read.DTYPES[dtype.NAME.removeprefix('torch.')]


def _item(content, is_tensor):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        records = {name.removeprefix('archive/'): archive.read(name) for name in archive.namelist()}
        assert records['version'] == b'3\n' and records['byteorder'] == b'little'
        value = pth_read.loads(records['data.pkl'], records)
        assert not is_tensor or set(records) == {'data.pkl', 'byteorder', 'data/0', 'version'} and (
            len(records['data/0']) == len(value.data))  # a view would be cloned by torch
    return value


def entries(folder):
    """{key: Entry}, in the order of the metadata."""
    folder = pathlib.Path(folder)
    content = (folder / '.metadata').read_bytes()
    assert content[:2] == b'\x80\x04' and {name for name in names_of(content) if not name.startswith('torch ') or name == 'torch Size'} <= GLOBALS
    metadata = pth_read.loads(content)
    tensors, paths, storage, meta = _state(metadata, META + 'Metadata', 'state_dict_metadata', 'planner_data', 'storage_data', 'storage_meta')
    assert meta is None and set(paths) == set(tensors)
    places = {}
    for index, place in storage.items():
        assert index.NAME == META + 'MetadataIndex' and set(index.state) - {'offset'} == {'fqn', 'index'}
        offset = _size(index.state['offset']) if 'offset' in index.state else None
        assert index.state['index'] == (None if offset is None else 0)
        assert places.setdefault((index.state['fqn'], offset), place) is place
    assert len(places) == len(tensors)
    found, files, ranges = {}, {}, []
    for key, thing in tensors.items():
        offset = None
        if thing.NAME == META + 'TensorStorageMetadata':
            properties, size, chunks = _state(thing, META + 'TensorStorageMetadata', 'properties', 'size', 'chunks')
            (at, sizes), = [_state(chunk, META + 'ChunkStorageMetadata', 'offsets', 'sizes') for chunk in chunks]
            assert _size(sizes) == _size(size) and _size(at) == (0,) * len(_size(size))
            offset = _size(at)
        else:
            assert thing.NAME == META + 'BytesStorageMetadata' and not thing.state
        file, start, length = _state(places[key, offset], FILES + '_StorageInfo', 'relative_path', 'offset', 'length')
        data = files.setdefault(file, (folder / file).read_bytes())
        ranges.append((file, start, start + length))
        value = _item(data[start:start + length], offset is not None)
        if offset is not None:
            shape = list(_size(size))
            if _properties(properties) == 'F4':
                shape[-1] *= 2
            assert (value.dtype, value.shape) == (_properties(properties), shape)
        assert '.'.join(map(str, paths[key])) == key and isinstance(paths[key][0], str)
        found[key] = Entry(paths[key], file, start, length, value)
    ranges.sort()
    assert all(a[0] != b[0] or a[2] <= b[1] for a, b in zip(ranges, ranges[1:]))
    return found


def load(folder):
    """The nested dicts and lists, as torch's dcp_to_torch_save makes them."""
    root = {}
    for entry in entries(folder).values():
        at = root
        for part, following in zip(entry.path, (*entry.path[1:], None)):
            if isinstance(part, int):
                at += [None] * (part + 1 - len(at))
            is_new = part not in at if isinstance(at, dict) else at[part] is None
            if following is None:
                assert is_new
                at[part] = entry.value
            elif is_new:
                at[part] = {} if isinstance(following, str) else []
            at = at[part]
    return root


def flattened(value):
    """What torch's flattening leaves of a nested object: keys are text, dicts plain, and empty dicts vanish."""
    if isinstance(value, dict):
        made = {str(key): flattened(inner) for key, inner in value.items()}
        return {key: inner for key, inner in made.items() if inner is not GONE} or GONE
    if isinstance(value, list) and _has_dict(value):
        made = [flattened(inner) for inner in value]
        while made and made[-1] is GONE:
            made.pop()
        return [None if inner is GONE else inner for inner in made] or GONE
    return value


def _has_dict(items):
    return any(isinstance(item, (dict, pth_read.Tensor)) or isinstance(item, list) and _has_dict(item) for item in items)


GONE = object()
