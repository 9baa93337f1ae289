# SPDX-License-Identifier: MIT
"""Files of other programs in all formats with what their own libraries say is in them, and readers of what we make of them that
share no code with our program."""
import hashlib

from wfs_testlib import burnpack, pth_expected, pth_read, pth_written, shared, st
from wfs_testlib.program import listing

ENDINGS = ['safetensors', 'pth', 'bpk']
ROOM = {'safetensors': set(st.BITS), 'pth': set(pth_read.SIZES) - {'QU4X2'},
        'bpk': {burnpack.NAMES.get(name, name) for name in burnpack.SIZES} | {'BOOL', 'BOOL32'}}
GOLDEN = shared.FOLDER / 'golden/burn'
PACKED = 'v0.19.1'  # the last Burn that did not align


class Source:
    """One file; tensors: key -> (dtype, shape, sha256 or None where nobody but us reads it)."""

    def __init__(self, name, path, tensors, values=(), canonical=None):
        self.name, self.path, self.values, self._tensors, self._canonical = name, path, values, tensors, canonical

    @property
    def ending(self):
        return {'safetensors': 'safetensors', 'bpk': 'bpk'}.get(self.name.rpartition('.')[2], 'pth')

    def tensors(self):
        return self._tensors()

    def is_canonical(self):
        """Are its bytes just those that the newest library of its format would write?"""
        return self._canonical is not None and self._canonical() == self.path.read_bytes()


def _of_safetensors(path, expected, metadata):
    tensors = {key: (entry['dtype'], list(entry['shape']), entry['sha256']) for key, entry in expected.items()}

    def canonical():
        try:
            return st.canonical(st.read(path).tensors, metadata)
        except AssertionError:
            return None
    return Source(str(path.relative_to(shared.FOLDER)), path, lambda: tensors, canonical=canonical)


def _of_pth(name, path, expected):
    known = {key: entry for key, entry in expected.get('tensors', {}).items() if (name, key) not in pth_expected.NOT_THE_SAME}
    return Source(name, path,
                  lambda: {key: (entry['dtype'], entry['shape'], known.get(key, {}).get('sha256') or None)
                           for key, entry in listing(path).items()}, values=[key for key, text in expected.get('other', {}).items() if text != '<deep>'])


def _of_burn(path):
    aligned = path.parent.name != PACKED or path.stem == 'edge-exact'

    def tensors():
        return {key: (one.name, one.shape, one.sha256) for key, one in burnpack.read(path, aligned).tensors.items()}

    def canonical():
        pack = burnpack.read(path) if aligned else None
        is_old = pack is None or any(one.dtype == 'Bool' for one in pack.tensors.values())
        return None if is_old else burnpack.to_bytes(pack)
    return Source(str(path.relative_to(shared.FOLDER)), path, tensors, canonical=canonical)


def sources():
    """Every file that our program can read."""
    if not shared.IS_THERE:
        return []
    written = [path.with_suffix('') for path in (GOLDEN / 'burnpack').glob('*/*.bpk.json') if path.with_suffix('').exists()]
    burn = [*written, *(GOLDEN / 'cases').rglob('*.bpk'), *(shared.FOLDER / 'corpus').rglob('*.bpk')]
    return [*(_of_safetensors(*file) for file in shared.checkpoints()),
            *(_of_pth(*file) for file in pth_expected.files() if file[1].name not in pth_expected.UNREAD),
            *(_of_burn(path) for path in sorted(set(burn)))]


def compare_pth(path, wanted):
    """What lists and dicts lead to is called as it should be; the bytes of all else are somewhere in it."""
    pth_written.check(path, plain=False)
    root = pth_read.load(path)
    named = pth_read.tensors(root)
    assert set(named) <= set(wanted)
    there = {(tensor.dtype, tuple(tensor.shape), tensor.sha256) for tensor in pth_read.all_tensors(root)}
    for key, (dtype, shape, digest) in wanted.items():
        if key in named:
            assert (named[key].dtype, named[key].shape) == (dtype, shape), key
            assert digest in (None, named[key].sha256) or named[key].state, key
        elif digest and dtype in pth_read.SIZES:
            assert (dtype, tuple(shape), digest) in there, key
    return len(named)


def read(path):
    """key -> (dtype, shape, sha256) of a file of ours that holds nothing but named tensors."""
    if path.suffix == '.safetensors':
        return {key: (dtype, list(shape), hashlib.sha256(data).hexdigest())
                for key, (dtype, shape, data) in st.read(path).tensors.items()}
    if path.suffix == '.bpk':
        return {key: (one.name, one.shape, one.sha256) for key, one in burnpack.read(path).tensors.items()}
    pth_written.check(path, plain=False)
    return {key: (one.dtype, one.shape, one.sha256) for key, one in pth_read.tensors(pth_read.load(path)).items()}


def compare(path, wanted):
    """A file that was made of another format."""
    found = read(path)
    assert set(found) == set(wanted)
    for key, facts in wanted.items():
        assert found[key][:2] == facts[:2] and facts[2] in (None, found[key][2]), key


def without_room(tensors, ending):
    """Keys of tensors whose type the format has no name for."""
    return [key for key, (dtype, _, _) in tensors.items() if dtype not in ROOM[ending]]
