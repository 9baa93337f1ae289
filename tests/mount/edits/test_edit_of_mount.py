# SPDX-License-Identifier: MIT
"""`weightfs edit` and `weightfs extract` do without a mount what programs do in one: the same output, the same files, byte for byte."""
import os
import shutil

import numpy
import pytest

from test_patch_of_mount import content, make_source
from wfs_testlib.program import weightfs

ARRAY = numpy.arange(6, dtype='<f4').reshape(2, 3)


def copy_npy(mnt, name):
    shutil.copyfile(mnt.array, mnt / name)


def replace(mnt):
    (mnt / 'last').write_bytes(ARRAY.tobytes())
    attribute('last', 'shape', b'[2, 3]')(mnt)


def replace_by_npy(mnt):
    (mnt / 'last').unlink()
    copy_npy(mnt, 'last.npy')


def attribute(name, key, value):
    return lambda mnt: os.setxattr(mnt / name, 'user.weightfs.' + key, value)


def metadata(name, value):
    return lambda mnt: os.setxattr(mnt.path, 'user.weightfs.metadata.' + name, value)


def config(mnt):
    (mnt / 'epoch.json').write_text('7')
    (mnt / 'note.json').write_text('{"a": [1, 2.5]}')


# options of `edit`; the same in a mount
TENSORS = {
    'rename': (['--rename', 'last', 'aa'], lambda mnt: os.rename(mnt / 'last', mnt / 'aa')),
    'rename a module': (['--rename', 'net', 'mesh'], lambda mnt: os.rename(mnt / 'net', mnt / 'mesh')),
    'remove': (['--remove', 'first', '--remove', 'net.*'], lambda mnt: (os.unlink(mnt / 'first'), shutil.rmtree(mnt / 'net'))),
    'add': (['--add', 'a.new=ARRAY', '--add', 'zz=ARRAY'], lambda mnt: (os.mkdir(mnt / 'a'), copy_npy(mnt, 'a/new.npy'), copy_npy(mnt, 'zz.npy'))),
    'replace': (['--replace', 'last=ARRAY'], replace),
    'replace by npy': (['--replace', 'last=ARRAY'], replace_by_npy),
    'dtype': (['--set', 'last.dtype=I32'], attribute('last', 'dtype', b'I32')),
    'shape': (['--set', 'last.shape=2,2'], attribute('last', 'shape', b'[2, 2]')),
    'dtype of a transposed tensor': (['--set', 'turned.dtype=I32'], attribute('turned', 'dtype', b'I32')),
    'dtype and shape of a new one': (['--add', 'n=ARRAY', '--set', 'n.dtype=I16', '--set', 'n.shape=12'],
                                     lambda mnt: (copy_npy(mnt, 'n'), cut_header(mnt / 'n'), attribute('n', 'dtype', b'I16')(mnt),
                                                  attribute('n', 'shape', b'[12]')(mnt))),
    'all': (['--rename', 'net', 'mesh', '--remove', 'first', '--replace', 'last=ARRAY', '--add', 'n.m=ARRAY', '--set', 'mesh.w.dtype=I32'],
            lambda mnt: (os.rename(mnt / 'net', mnt / 'mesh'), os.unlink(mnt / 'first'), replace(mnt), os.mkdir(mnt / 'n'),
                         copy_npy(mnt, 'n/m.npy'), attribute('mesh/w', 'dtype', b'I32')(mnt))),
}
METADATA = {'metadata': (['--set-metadata', 'by=you', '--set-metadata', 'new=a=b'], lambda mnt: (metadata('by', b'you')(mnt), metadata('new', b'a=b')(mnt))),
            'metadata removed': (['--remove-metadata', 'by'], lambda mnt: os.removexattr(mnt.path, 'user.weightfs.metadata.by'))}
VALUES = {'values': (['--set-value', 'epoch=7', '--set-value', 'note={"a": [1, 2.5]}'], config),
          'value removed': (['--remove', 'epoch'], lambda mnt: os.unlink(mnt / 'epoch.json'))}
KINDS = {'safetensors': {**TENSORS, **METADATA}, 'bpk': {**TENSORS, **METADATA}, 'pth': {**TENSORS, **VALUES}, 'set': {'all': TENSORS['all']}}


def cut_header(path):
    data = path.read_bytes()
    path.write_bytes(data[-ARRAY.nbytes:])


@pytest.mark.parametrize('kind, name', [(kind, name) for kind, rows in KINDS.items() for name in rows])
def test_the_same_as_in_a_mount(mount, folder, kind, name):
    options, do = KINDS[kind][name]
    source = make_source(folder, kind)
    end = '/' if kind == 'set' else '.' + kind
    out, again = '%s%s' % (folder / 'out', end), '%s%s' % (folder / 'again', end)
    numpy.save(folder / 'array.npy', ARRAY)
    mnt = mount(source, 'output=%s' % out)
    mnt.array = folder / 'array.npy'
    do(mnt)
    mnt.commit()
    weightfs('edit', source, again, *[option.replace('ARRAY', str(mnt.array)) for option in options], has_notices=True)
    assert content(folder / again) == content(folder / out)
    weightfs('edit', source, '%s/' % source if kind == 'set' else source, '--overwrite',
             *[option.replace('ARRAY', str(mnt.array)) for option in options], has_notices=True)
    if kind != 'set':
        assert content(source) == content(folder / out)


def files_below(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob('*') if file.is_file()}


@pytest.mark.parametrize('layout', ['nested', 'flat'])
@pytest.mark.parametrize('files', ['npy', 'raw'])
@pytest.mark.parametrize('kind', ['safetensors', 'pth', 'set'])
def test_extract_writes_what_the_mount_shows(mount, folder, kind, files, layout):
    source = make_source(folder, kind)
    mnt = mount(source, *(['files=npy'] if files == 'npy' else []), 'layout=' + layout)
    weightfs('extract', source, '-d', folder / 'all', '--files', files, '--layout', layout)
    assert files_below(folder / 'all') == files_below(mnt.path)
    assert len(files_below(folder / 'all')) > 8
