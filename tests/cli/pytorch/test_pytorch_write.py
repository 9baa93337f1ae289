# SPDX-License-Identifier: MIT
"""Writing .pth files: from other formats, and back from .pth with nothing but the wanted changes. Nothing is unpickled."""
import hashlib
import json

import pytest

from wfs_testlib import checkpoints, pth, pth_read, pth_written, shared, st
from wfs_testlib.program import EXIT_COMMIT, weightfs

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


@pytest.mark.parametrize('options, shape, data', [(['--transpose', 'w'], (3, 2), st.f32(0, 3, 1, 4, 2, 5)),
                                                  (['--permute', 'x=>1,0', '--remap', 'w=>x'], (3, 2), st.f32(0, 3, 1, 4, 2, 5))])
def test_a_transposed_tensor_is_contiguous(folder, options, shape, data):
    """safetensors.torch.save_file refuses others."""
    (folder / 'in.pth').write_bytes(pth.checkpoint(pth.dictionary(w=pth.tensor(pth.storage(numel=6), size=(2, 3), stride=(3, 1))), r0=st.f32(*range(6))))
    weightfs('convert', *options, folder / 'in.pth', folder / 'out.pth')
    written = pth_written.check(folder / 'out.pth')
    assert written['data/0'] == data
    assert json.loads(weightfs('ls', '--json', folder / 'out.pth').stdout)['tensors'][0]['shape'] == list(shape)


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


def wrapper():
    """A tensor subclass around two tensors, with a value beside them, as those of torchao are stored."""
    parts = pth.dictionary(q=pth.tensor(size=(2,)), scale=pth.tensor(offset=2, size=(2,)), block=pth.number(2))
    cls = pth.name('some.module', 'Wrapped')
    args = pth.tup(cls, pth.name('torch', 'float32'), pth.numbers((2,)), pth.numbers((1,)), pth.number(0), pth.name('torch', 'strided'),
                   b'N', b'\x89')
    return pth.call(pth.name('torch._tensor', '_rebuild_from_type_v2'), pth.name('torch._utils', '_rebuild_wrapper_subclass'), cls, args,
                    parts)


def written(folder, value, *options, **records):
    """What the independent reader finds in the file that becomes of a value under a view."""
    source = folder / 'in.pth'
    source.write_bytes(pth.checkpoint(value, **(records or {'r0': st.f32(1, 2, 3, 4)})))
    weightfs('convert', '--overwrite', *options, source, folder / 'out.pth', has_notices=True)
    pth_written.check(folder / 'out.pth')
    root = pth_read.load(folder / 'out.pth')
    return root, {key: tensor.data for key, tensor in pth_read.tensors(root).items()}


@pytest.mark.parametrize('value, name', [(pth.tensor(), ''), (b'](' + pth.tensor() + b'K\5e', '0')])
def test_what_is_no_dict_becomes_one_when_it_gets_a_name(folder, value, name):
    root, tensors = written(folder, value, '--remap', '^%s$=>net.w' % name)
    assert tensors == {'net.w': st.f32(1, 2, 3, 4)} and isinstance(root, dict)
    assert name == '' or root['1'] == 5


def test_a_subclass_of_tensor_goes_where_its_tensors_go(folder):
    root, tensors = written(folder, pth.dictionary(w=wrapper(), b=pth.tensor()), '--remap', '^w=>x.w')
    assert set(root) == {'x.w', 'b'} and tensors == {'b': st.f32(1, 2, 3, 4)}
    assert root['x.w'].state[1]['block'] == 2


def test_a_subclass_of_tensor_goes_with_its_values_when_it_has_no_tensor_left(folder):
    root, _ = written(folder, pth.dictionary(w=wrapper(), b=pth.tensor()), '--exclude', '^w[.]')
    assert set(root) == {'b'}


def test_what_is_left_of_a_subclass_of_tensor_are_items_of_the_dict(folder):
    root, tensors = written(folder, pth.dictionary(w=wrapper()), '--exclude', 'scale')
    assert tensors == {'w.q': st.f32(1, 2)} and root['w.block'] == 2


def test_values_are_called_after_the_dict_that_is_renamed(folder):
    value = pth.dictionary(opt=pth.dictionary(m=pth.tensor(), groups=pth.number(7)), epoch=pth.number(3))
    root, tensors = written(folder, value, '--remap', '^opt=>o')
    assert root['o']['groups'] == 7 and set(root) == {'o', 'epoch'} and set(tensors) == {'o.m'}


def test_two_dicts_with_one_new_name_become_one(folder):
    value = pth.dictionary(a=pth.dictionary(w=pth.tensor()), b=pth.dictionary(v=pth.tensor()))
    assert set(written(folder, value, '--remap', '^a=>b')[1]) == {'b.w', 'b.v'}
    assert set(written(folder, value, '--remap', '^[ab]=>c')[1]) == {'c.w', 'c.v'}


def test_keys_that_are_spelled_alike_keep_their_names_apart(folder):
    value = pth.pairs((pth.text('1'), pth.tensor(size=(1,))), (pth.number(1), pth.tensor(offset=1, size=(1,))),
                      (pth.text('.b'), pth.tensor(offset=2, size=(1,))))
    assert written(folder, value, '--exclude', '^1$')[1] == {'1~2': st.f32(2), '.b': st.f32(3)}
    assert written(folder, value, '--remap', '^.b=>.c')[1]['.c'] == st.f32(3)
    assert written(folder, value, '--remap', '^=>x.')[1] == {'x.1': st.f32(1), 'x.1~2': st.f32(2), 'x..b': st.f32(3)}


def test_a_name_that_is_taken_is_refused(folder):
    source = folder / 'in.pth'
    source.write_bytes(pth.checkpoint(pth.dictionary(a=pth.tensor(), epoch=pth.number(3))))
    error = weightfs('convert', '--remap', '^a$=>epoch', source, folder / 'out.pth', code=EXIT_COMMIT).error
    assert "'epoch' cannot be in the checkpoint" in error and 'another item has that name' in error


def test_a_pickle_without_a_checksum_gets_one(folder):
    records = pth.records(pth.dictionary(a=pth.tensor()))
    (folder / 'in.pth').write_bytes(pth.zipped(*({**record, 'crc': 0} for record in records)))
    weightfs('convert', folder / 'in.pth', folder / 'out.pth')
    pth_written.check(folder / 'out.pth')


@pytest.mark.parametrize('ending', ['safetensors', 'pth', 'bpk'])
def test_small_deflated_records_are_written_each(folder, ending):
    """Nothing lies behind one that could be read along with it."""
    data = {'t%d' % i: bytes([i]) * 4 * i for i in range(1, 5)}
    items = {key: pth.tensor(pth.storage(str(i), numel=i), size=(i,)) for i, key in enumerate(data, 1)}
    made = pth.records(pth.dictionary(**items), **{'r%d' % i: one for i, one in enumerate(data.values(), 1)})
    (folder / 'in.pth').write_bytes(pth.zipped(*(pth.entry(e['path'].decode(), e['raw'], method=8) for e in made)))
    weightfs('convert', folder / 'in.pth', folder / ('out.' + ending))
    assert {key: bytes(tensor[2]) for key, tensor in checkpoints.read(folder / ('out.' + ending)).items()} == data
