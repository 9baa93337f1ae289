# SPDX-License-Identifier: MIT
"""A value that somebody writes into a mount is in the output, or the commit fails and names it: from every kind of source, to every
kind of output."""
import json
import os

import pytest

from wfs_testlib import burnpack, checkpoints, pth, pth_read, sets, st
from wfs_testlib.program import tool, weightfs

TENSORS = {'a.w': ('F32', [2], st.f32(1, 2))}
SOURCES = ['safetensors', 'bpk', 'pth', 'set', 'bare', 'list']
TEXTS = {'number': '7', 'text': '"seven"', 'object': '{"x": 1, "y": [true, null, "z"]}'}


def make(folder, kind):
    if kind == 'set':
        return sets.write(folder / 'src', [TENSORS, {'b.w': ('F32', [1], st.f32(3))}])
    if kind in ('safetensors', 'bpk', 'pth'):
        return checkpoints.write(folder / ('in.' + kind), TENSORS)
    path = folder / 'in.pth'
    tensor = pth.tensor()
    path.write_bytes(pth.checkpoint(tensor if kind == 'bare' else b'](' + tensor + b'e', r0=st.f32(1, 2, 3, 4)))
    return path


def found(path, name):
    """What the output has at the name, by a reader of our tests; None: nothing."""
    if path.is_dir():
        return None
    if path.suffix == '.safetensors':
        text = (st.read(path).metadata or {}).get(name)
        return None if text is None else text if text == 'seven' else json.loads(text)
    if path.suffix == '.bpk':
        pack = burnpack.read(path)
        if name in pack.scalars:
            return next(iter(pack.scalars[name].values()))
        text = pack.metadata.get(name)
        return None if text is None else text if text == 'seven' else json.loads(text)
    value = pth_read.load(path)
    for part in [name] if name in value else name.split('.'):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def write_new(mnt, text):
    (mnt / 'note.json').write_text(text)
    return 'note'


def move_in(mnt, text):
    (mnt / 'made').mkdir()
    (mnt / 'made' / 'note.tmp').write_text(text)
    os.rename(mnt / 'made' / 'note.tmp', mnt / 'made' / 'note.json')
    return 'made.note'


@pytest.mark.parametrize('source', SOURCES)
@pytest.mark.parametrize('ending', ['.safetensors', '.bpk', '.pth', '/'])
@pytest.mark.parametrize('option', ['', 'values=metadata'])
def test_a_value_is_written_or_named(mount, folder, source, ending, option):
    path = make(folder, source)
    for n, (kind, way) in enumerate((kind, way) for kind in TEXTS for way in (write_new, move_in)):
        out = folder / ('out%d' % n + ending.strip('/'))
        mnt = mount(path, 'output=%s%s' % (out, '/' * (ending == '/')), *filter(None, [option]))
        mnt.allow('cannot commit|was edited|left out')
        name = way(mnt.path, TEXTS[kind])
        done = weightfs('commit', mnt.path, code=None)
        if done.code == 0 and out.suffix:
            assert found(out, name) == json.loads(TEXTS[kind])
        elif done.code == 0:  # a set
            texts = [st.read(shard).metadata or {} for shard in out.glob('*.safetensors')]
            texts += [burnpack.read(shard).metadata for shard in out.glob('*.bpk')]
            assert any(name in text for text in texts)
        else:
            assert "'%s'" % name in done.error and not out.is_file() and not list(out.glob('*.index.json'))
            assert ending != '.pth' and (ending != '.bpk' or kind != 'number') and not (option and ending == '.safetensors')
            tool('rm', '-r', mnt.path / name.split('.')[0]) if way is move_in else (mnt.path / 'note.json').unlink()
        mnt.unmount()


def test_numbers_become_scalars_and_other_values_are_told(folder):
    """Without an edit."""
    path = folder / 'in.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(), epoch=pth.number(3), name=pth.text('run')), r0=st.f32(1, 2, 3, 4)))
    assert "'name'" in weightfs('convert', path, folder / 'out.bpk').stdout
    assert burnpack.read(folder / 'out.bpk').scalars == {'epoch': {'Int': 3}}
