# SPDX-License-Identifier: MIT
"""Burnpack through a mount: what only this format has, and commits to it."""
import json
import os

import pytest

from wfs_testlib import burnpack, paths, shared, st
from wfs_testlib.burnpack import Burnpack, Tensor
from wfs_testlib.program import tool

SCHEME = {'value': 'Q4S', 'store': {'PackedU32': 0}, 'mode': 'Symmetric', 'tensor': None,
          'block': {'size': {'storage': [4, 1, 1, 1, 1], 'len': 1}, 'dtype': 'F16'}}
OLD_SCHEME = {'value': 'Q8F', 'param': 'F32', 'store': 'U32', 'level': 'Tensor', 'mode': 'Symmetric'}
GOLDEN = [shared.FOLDER / 'golden/burn/burnpack' / name for name in (
    'v0.22.1/zoo-f32.bpk', 'v0.22.1/quant-schemes.bpk', 'v0.22.1/ids.bpk', 'v0.22.1/order.bpk', 'v0.22.1/shapes.bpk',
    'v0.22.1/bool-u8.bpk', 'v0.22.1/bool-u32.bpk', 'v0.22.1/meta.bpk', 'v0.22.1/scalars.bpk', 'v0.22.1/scalars-tensors.bpk',
    'v0.22.1/zoo-record.bpk', 'v0.22.1/empty.bpk', 'v0.21.0/zoo-half.bpk', 'v0.20.1/quant-schemes.bpk',
    'v0.23.0-pre.1/dtypes.bpk', 'optim-v0.22.1/optim-adam.bpk', 'optim-v0.22.1/lr-noam.bpk')]


@pytest.fixture
def pack(folder):
    """A file with one of everything: path and content."""
    content = Burnpack({
        'z.weight': Tensor({'QFloat': SCHEME}, [2, 4], b'0123456789', 2**64 - 1),
        'z.old': Tensor({'QFloat': OLD_SCHEME}, [3], b'abcdefg', 12),
        'a.mask': Tensor(burnpack.BOOL_U8, [2], b'\0\1', 0),
        'a.wide': Tensor(burnpack.BOOL_U32, [1], bytes(4)),
        'a.flex': Tensor('Flex32', [2], bytes(8), 5),
        'plain': Tensor('F32', [2], st.f32(1, 2), 6),
    }, {'note': 'kept'}, {'a.step': {'UInt': 2**64 - 1}, 'rate': {'Float': 0.001}, 'on': {'Bool': True}})
    burnpack.write(folder / 'in.bpk', content)
    return folder / 'in.bpk', content


def attribute(path, name):
    try:
        return os.getxattr(path, 'user.weightfs.' + name).decode()
    except OSError:
        return None


def test_ids_and_schemes_are_attributes(mount, pack):
    path, content = pack
    mnt = mount(path)
    for key, tensor in content.tensors.items():
        file = mnt / key.replace('.', '/')
        scheme = attribute(file, 'quantization')
        assert attribute(file, 'dtype') == tensor.name
        assert json.loads(attribute(file, 'shape')) == tensor.shape
        assert attribute(file, 'param_id') == (None if tensor.param_id is None else str(tensor.param_id))
        assert (None if scheme is None else json.loads(scheme)) == \
            (tensor.dtype['QFloat'] if tensor.name == 'OPAQUE' else None)
        assert file.read_bytes() == tensor.data


def test_nothing_else_is_an_attribute(mount, pack):
    mnt = mount(pack[0])
    names = {name for key in pack[1].tensors for name in os.listxattr(mnt / key.replace('.', '/'))}
    assert names == {'user.weightfs.' + name for name in ('dtype', 'shape', 'key', 'param_id', 'quantization')}


def test_scalars_are_json_files(mount, pack):
    mnt = mount(pack[0])
    assert {name: json.loads((mnt / name).read_text()) for name in ('a/step.json', 'rate.json', 'on.json')} == \
        {'a/step.json': 2**64 - 1, 'rate.json': 0.001, 'on.json': True}


def test_a_removed_scalar_is_not_committed(mount, pack, folder):
    mnt = mount(pack[0], 'output=%s' % (folder / 'out.bpk'))
    os.unlink(mnt / 'rate.json')
    mnt.commit()
    got = burnpack.read(folder / 'out.bpk')
    assert got.scalars == {name: value for name, value in pack[1].scalars.items() if name != 'rate'}
    assert got.tensors.keys() == pack[1].tensors.keys()


def test_scalars_follow_a_renamed_directory(mount, pack, folder):
    mnt = mount(pack[0], 'output=%s' % (folder / 'out.bpk'))
    os.mkdir(mnt / 'new')
    os.rename(mnt / 'a', mnt / 'new' / 'b')
    assert json.loads((mnt / 'new/b/step.json').read_text()) == 2**64 - 1
    mnt.commit()
    got = burnpack.read(folder / 'out.bpk')
    assert set(got.scalars) == {'new.b.step', 'rate', 'on'}
    assert 'new.b.mask' in got.tensors


def test_an_untouched_commit_gives_the_same_bytes(mount, pack, folder):
    mount(pack[0], 'output=%s' % (folder / 'out.bpk')).control(1)
    assert (folder / 'out.bpk').read_bytes() == pack[0].read_bytes()


def test_edits_leave_the_rest_as_it_was(mount, pack, folder):
    path, content = pack
    mnt = mount(path, 'output=%s' % (folder / 'out.bpk'))
    os.rename(mnt / 'z', mnt / 'quantized')
    os.setxattr(mnt / 'a/wide', 'user.weightfs.param_id', b'77')
    os.unlink(mnt / 'a/flex')
    (mnt / 'plain').write_bytes(st.f32(3, 4))
    mnt.commit()
    tensors = {key.replace('z.', 'quantized.'): tensor for key, tensor in content.tensors.items() if key != 'a.flex'}
    tensors['a.wide'].param_id = 77
    tensors['plain'].data = st.f32(3, 4)
    got = burnpack.read(folder / 'out.bpk')
    want = Burnpack({key: tensors[key] for key in got.tensors}, content.metadata, content.scalars)
    assert set(got.tensors) == set(tensors)
    assert (folder / 'out.bpk').read_bytes() == burnpack.to_bytes(want)


def test_another_type_has_no_scheme_any_more(mount, pack, folder):
    path, content = pack
    mnt = mount(path, 'output=%s' % (folder / 'out.bpk'))
    (folder / 'new').write_bytes(st.f32(3, 4, 5))
    tool('cp', folder / 'new', mnt / 'z/weight')
    os.setxattr(mnt / 'z/weight', 'user.weightfs.dtype', b'F32')
    os.setxattr(mnt / 'z/weight', 'user.weightfs.shape', b'[3]')
    assert attribute(mnt / 'z/weight', 'quantization') is None
    assert attribute(mnt / 'z/weight', 'param_id') == str(2**64 - 1)
    assert json.loads(attribute(mnt / 'z/old', 'quantization')) == OLD_SCHEME
    mnt.commit()
    got = burnpack.read(folder / 'out.bpk').tensors
    assert (got['z.weight'].dtype, got['z.weight'].data) == ('F32', st.f32(3, 4, 5))
    assert got['z.old'].dtype == content.tensors['z.old'].dtype


@pytest.mark.parametrize('command', [['cp', '-a'], ['rsync', '-aX'], ['rsync', '-aX', '--inplace']], ids=' '.join)
def test_a_copy_from_another_mount_keeps_its_scheme(mount, pack, folder, command):
    path, content = pack
    burnpack.write(folder / 'other.bpk', Burnpack({
        'z.old': Tensor({'QFloat': SCHEME}, [7], b'ABCDEFGHIJ', 5), 'first': Tensor('F32', [1], st.f32(1))}))
    other = mount(path, at=folder / 'other')
    mnt = mount(folder / 'other.bpk', 'output=%s' % (folder / 'out.bpk'))
    tool(*command, '%s/z/' % other.path, mnt / 'new')
    tool(*command, other / 'z/old', mnt / 'z/old')
    mnt.commit()
    got = burnpack.read(folder / 'out.bpk').tensors
    for key, original in (('new.weight', 'z.weight'), ('new.old', 'z.old'), ('z.old', 'z.old')):
        want = content.tensors[original]
        assert (got[key].dtype, got[key].shape, got[key].data) == (want.dtype, want.shape, want.data)


def test_a_scheme_that_is_none_is_named(mount, pack, folder):
    mnt = mount(pack[0], 'output=%s' % (folder / 'out.bpk')).allow('cannot commit')
    os.setxattr(mnt / 'z/old', 'user.weightfs.quantization', b'Q8')
    os.setxattr(mnt / 'plain', 'user.weightfs.quantization', b'no matter')
    assert attribute(mnt / 'plain', 'quantization') is None
    text = mnt.control(1).text.decode()
    assert "'z.old'" in text and "'Q8'" in text
    os.removexattr(mnt / 'z/old', 'user.weightfs.quantization')
    mnt.commit()
    assert (folder / 'out.bpk').read_bytes() == pack[0].read_bytes()


def test_a_bad_id_is_named_and_commits_nothing(mount, pack, folder):
    mnt = mount(pack[0], 'output=%s' % (folder / 'out.bpk')).allow('cannot commit')
    os.setxattr(mnt / 'plain', 'user.weightfs.param_id', b'seven')
    text = mnt.control(1).text.decode()
    assert "'plain'" in text and "'seven'" in text
    assert not (folder / 'out.bpk').exists()
    os.setxattr(mnt / 'plain', 'user.weightfs.param_id', b'7')
    mnt.commit()
    assert burnpack.read(folder / 'out.bpk').tensors['plain'].param_id == 7


def test_a_safetensors_file_is_committed_as_burnpack(mount, small, folder):
    mnt = mount(small, 'output=%s' % (folder / 'out.bpk'))
    os.rename(mnt / 'step', mnt / 'steps')
    mnt.commit()
    got = burnpack.read(folder / 'out.bpk')
    assert {key: (tensor.dtype, tensor.shape, tensor.data) for key, tensor in got.tensors.items()} == \
        {'steps' if key == 'step' else key: value for key, value in st.read(small).tensors.items()}
    assert got.metadata == {'by': 'a test', 'format': 'burnpack', 'producer': 'burn', 'version': '0.22.1'}


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('path', shared.each(GOLDEN, lambda path: path.parent.name + '/' + path.stem))
def test_what_burn_wrote_comes_back(mount, folder, path):
    content = burnpack.read(path)
    mnt = mount(path, 'output=%s' % (folder / 'out.bpk'))
    for key, place in paths.plain_paths(content.tensors).items():
        tensor = content.tensors[key]
        assert (mnt / place).read_bytes() == tensor.data
        assert attribute(mnt / place, 'param_id') == (None if tensor.param_id is None else str(tensor.param_id))
    mnt.control(1)
    assert (folder / 'out.bpk').read_bytes() == path.read_bytes()
