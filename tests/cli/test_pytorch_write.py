# SPDX-License-Identifier: MIT
"""Writing .pth files: from other formats, and back from .pth with nothing but the wanted changes. Nothing is unpickled."""
import hashlib
import json

import pytest

from wfs_testlib import pth, pth_written, shared, st
from wfs_testlib.program import weightfs

DTYPES = {'F64': 8, 'F32': 4, 'F16': 2, 'BF16': 2, 'I64': 8, 'I32': 4, 'I16': 2, 'I8': 1, 'U8': 1, 'BOOL': 1, 'C64': 8, 'U16': 2,
          'U32': 4, 'U64': 8, 'F8_E4M3': 1, 'F8_E5M2': 1, 'F8_E8M0': 1}


def content(path):
    """Tensors in order, with digests, and values."""
    listed = json.loads(weightfs('ls', '--json', path).stdout)['tensors']
    tensors = [(entry['key'], entry['dtype'], entry['shape'],
                hashlib.sha256(weightfs('cat', path, '--', entry['key']).raw).hexdigest()) for entry in listed]
    return tensors, json.loads(weightfs('config', path).stdout)


def nested(folder):
    """A file like those of trainers: two names of one storage, a state dict within a dict, values beside it."""
    state = pth.ORDERED + b'(' + pth.text('net.w') + pth.tensor(size=(2, 2), stride=(2, 1)) + pth.text('net.t') + \
        pth.tensor(size=(2, 2), stride=(1, 2)) + pth.text('b') + pth.tensor(pth.storage('7', numel=2), size=(2,)) + b'u'
    attributes = pth.dictionary(_metadata=pth.dictionary(version=pth.number(2)))
    value = pth.dictionary(epoch=pth.number(3), state_dict=state + attributes + b'b', lr=b'G\x3f\xb9\x99\x99\x99\x99\x99\x9a')
    path = folder / 'nested.pth'
    path.write_bytes(pth.checkpoint(value, r0=st.f32(1, 2, 3, 4), r7=st.f32(5, 6)))
    return path


def test_every_dtype_of_safetensors_survives(folder):
    tensors = {'t.' + dtype: (dtype, [2, 1], bytes(range(1, 2 * n + 1)) if dtype != 'BOOL' else b'\0\1')
               for dtype, n in DTYPES.items()}
    tensors['empty'] = ('F32', [0, 4], b'')
    source = st.write(folder / 'in.safetensors', tensors)
    weightfs('convert', source, folder / 'out.pth')
    pth_written.check(folder / 'out.pth')
    assert content(folder / 'out.pth')[0] == content(source)[0]


def test_metadata_that_has_no_room_is_named(folder):
    source = st.write(folder / 'in.safetensors', {'a': ('U8', [1], b'x')}, {'format': 'pt'})
    assert "'format'" in weightfs('convert', source, folder / 'out.pth').stdout


def test_an_untouched_pickle_stays_as_it_is(folder):
    source = nested(folder)
    weightfs('convert', source, folder / 'out.pth')
    before, after = (folder / 'nested.pth').read_bytes(), pth_written.check(folder / 'out.pth')
    assert after['data.pkl'] in before and set(after) >= {'data/0', 'data/7'}
    assert content(folder / 'out.pth') == content(source)


def test_our_own_output_is_written_the_same_again(folder):
    weightfs('convert', nested(folder), folder / 'one.pth')
    weightfs('convert', folder / 'one.pth', folder / 'two.pth')
    assert (folder / 'one.pth').read_bytes() == (folder / 'two.pth').read_bytes()


@pytest.mark.parametrize('rule, keys', [
    (r'^state_dict\.net=>state_dict.body', ['state_dict.body.w', 'state_dict.body.t', 'state_dict.b']),
    (r'^state_dict=>model', ['model.net.w', 'model.net.t', 'model.b']),
    (r'^state_dict\.b$=>bias', ['state_dict.net.w', 'state_dict.net.t', 'bias']),
])
def test_only_names_change(folder, rule, keys):
    source = nested(folder)
    weightfs('convert', '--remap', rule, source, folder / 'out.pth')
    written = pth_written.check(folder / 'out.pth')
    tensors, values = content(folder / 'out.pth')
    assert [tensor[0] for tensor in tensors] == keys
    assert [tensor[1:] for tensor in tensors] == [tensor[1:] for tensor in content(source)[0]]
    assert values['epoch'] == 3 and values['lr'] == 0.1 and 'version' in json.dumps(values)
    assert len([name for name in written if name.startswith('data/')]) == 2  # net.w and net.t still share theirs


def test_a_removed_tensor_leaves_its_dict_and_its_record_goes(folder):
    weightfs('convert', '--exclude', r'b$', nested(folder), folder / 'out.pth')
    written = pth_written.check(folder / 'out.pth')
    assert [tensor[0] for tensor in content(folder / 'out.pth')[0]] == ['state_dict.net.w', 'state_dict.net.t']
    assert [name for name in written if name.startswith('data/')] == ['data/0']


def test_a_part_of_the_file_becomes_the_whole(folder):
    weightfs('convert', '--top_level_key', 'state_dict', nested(folder), folder / 'out.pth')
    pth_written.check(folder / 'out.pth')
    assert [tensor[0] for tensor in content(folder / 'out.pth')[0]] == ['net.w', 'net.t', 'b']


KINDS = ['training.pth', 'tied.pth', 'views.pth', 'lightning.ckpt', 'module.pth', 'legacy-views.pth', 'protocol4.pth', 'quantized.pth',
         'sparse.pth', 'numpy-p5.pth', 'big-endian.pth', 'objects.pth', 'huge-storage-small-view.pth', 'pickle-dump-p5.pkl']


@pytest.mark.skipif(not shared.IS_THERE, reason=shared.WHY_NOT)
@pytest.mark.parametrize('name, rule', [(name, None) for name in KINDS] +
                         [(name, '^=>new.') for name in ('training.pth', 'tied.pth', 'views.pth')])
def test_what_torch_wrote_keeps_everything(folder, name, rule):
    source = shared.FOLDER / 'golden/torch' / name
    weightfs('convert', *(['--remap', rule] if rule else []), source, folder / 'out.pth')
    pth_written.check(folder / 'out.pth', plain=False)
    before, after = content(source), content(folder / 'out.pth')
    assert sorted(tensor[1:] for tensor in after[0]) == sorted(tensor[1:] for tensor in before[0]) if rule else after == before
