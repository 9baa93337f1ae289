# SPDX-License-Identifier: MIT
"""Values of a .pth edited with programs of every day: the .pth that is committed has them where they were, and all else as it was."""
import json
import os
import pickletools
import shutil
import zipfile

import pytest

from wfs_testlib import pth, pth_read, st
from wfs_testlib.program import tool, weightfs
from wfs_testlib.ways import WAYS, linked_and_over

# Short tuples as Python's pickler spells them.
THING = pth.name('my', 'Thing') + pth.number(5) + b'\x85R'
CONFIG = pth.dictionary(lr=pth.number(1), thing=THING, tags=pth.number(1) + pth.number(2) + b'\x86', name=pth.text('old'))


@pytest.fixture
def edit(mount, folder):
    """A .pth with tensors between values; edit.result() commits and gives the object that is in the output."""
    source = folder / 'in.pth'
    source.write_bytes(pth.checkpoint(pth.dictionary(
        epoch=pth.number(3), state=pth.dictionary(w=pth.tensor()), config=CONFIG,
        numbers=pth.pairs((pth.number(0), pth.text('zero')), (pth.number(7), THING)), last=pth.tensor(pth.storage('1'))),
        r0=st.f32(1, 2, 3, 4), r1=st.f32(5, 6, 7, 8)))
    mnt = mount(source, 'output=%s' % (folder / 'out.pth'))
    mnt.before = pth_read.load(source)

    def result():
        mnt.commit()
        return pth_read.load(folder / 'out.pth')

    mnt.result = result
    return mnt


def expected(edit, **changes):
    return {key: {**value, **changes} if key == 'config' else value for key, value in edit.before.items()}


def opcodes(path):
    """Of the value of 'config' in the pickle, without what only numbers objects."""
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith('/data.pkl')]
        found = [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(archive.read(name))
                 if not opcode.name.endswith(('PUT', 'MEMOIZE'))]
    return found[found.index(('BINUNICODE', 'config')):found.index(('BINUNICODE', 'numbers'))]


VIM = 'vim -es -N -u NONE -c "%s" -c "%%s/old/new/" -c wq config.json'
PROGRAMS = {
    'sed': ('sed', 'sed -i s/old/new/ config.json'),
    'sed with a backup': ('sed', 'sed -i~ s/old/new/ config.json; rm config.json~'),
    'perl': ('perl', 'perl -pi -e s/old/new/ config.json'),
    'jq and mv': ('jq', 'jq \'.name = "new"\' config.json > .new && mv .new config.json'),
    'jq beside and mv': ('jq', 'jq \'.name = "new"\' config.json > config.json.tmp && mv config.json.tmp config.json'),
    'jq and a variable': ('jq', 'new=$(jq \'.name = "new"\' config.json); echo "$new" > config.json'),
    'ed': ('ed', 'printf ",s/old/new/\\nwq\\n" | ed -s config.json'),
    'vim': ('vim', VIM % 'set writebackup backupcopy=auto'),
    'vim with a new file': ('vim', VIM % 'set writebackup backupcopy=no'),
    'vim in place': ('vim', VIM % 'set nowritebackup backupcopy=yes'),
    'patch': ('patch', 'sed s/old/new/ config.json > /dev/shm/wfs-$$; diff -u config.json /dev/shm/wfs-$$ | patch -s config.json; rm /dev/shm/wfs-$$'),
}


def run_program(name, where):
    wanted, command = PROGRAMS[name]
    found = shutil.which(wanted) or (wanted == 'vim' and shutil.which('vim.tiny'))
    if not found:
        pytest.skip('there is no program %s' % wanted)
    tool('sh', '-ec', command.replace('vim', found, 1) if wanted == 'vim' else command, cwd=where)


@pytest.mark.parametrize('name', PROGRAMS)
def test_a_program_edits_a_value(edit, name):
    run_program(name, edit.path)
    result = edit.result()
    assert result == expected(edit, name='new')
    assert list(result) == list(edit.before) and list(result['config']) == list(edit.before['config'])


@pytest.mark.parametrize('way', [way for way in WAYS if way is not linked_and_over], ids=lambda way: way.__name__.replace('_', ' '))
def test_a_value_keeps_its_place_and_its_kind_when_it_is_saved_anew(edit, way):
    numbers = json.loads((edit / 'numbers.json').read_text())
    way(edit / 'numbers.json', json.dumps({**numbers, '0': 'nil'}).encode())
    way(edit / 'epoch.json', b'4')
    result = edit.result()
    assert result == {**edit.before, 'epoch': 4, 'numbers': {**edit.before['numbers'], 0: 'nil'}}
    assert list(result) == list(edit.before)


@pytest.mark.parametrize('way', [way for way in WAYS if way is not linked_and_over], ids=lambda way: way.__name__.replace('_', ' '))
def test_what_is_saved_anew_keeps_its_place_after_a_death(edit, mount, folder, way):
    numbers = json.loads((edit / 'numbers.json').read_text())
    way(edit / 'numbers.json', json.dumps({**numbers, '0': 'nil'}).encode())
    way(edit / 'state/w', st.f32(4, 3, 2, 1))
    for name in ('numbers.json', 'state/w'):
        tool('sync', '-d', edit / name)
    edit.kill()
    edit.forget()
    again = mount(folder / 'in.pth', 'output=%s' % (folder / 'out.pth'), at=edit.path).allow('edits')
    again.commit()
    result = pth_read.load(folder / 'out.pth')
    assert result == {**edit.before, 'numbers': {**edit.before['numbers'], 0: 'nil'}, 'state': {'w': pth_read.Tensor('F32', [4], st.f32(4, 3, 2, 1))}}
    assert list(result) == list(edit.before)


def test_swap_files_of_editors_are_no_values(edit):
    for name in ('.epoch.json.swp', '.#epoch.json', '.epoch.json.un~'):
        (edit / name).write_bytes(b'b0VIM 8.2')
    assert edit.result() == edit.before


def test_a_backup_that_is_left_is_not_committed(edit):
    (edit / 'epoch.json~').write_bytes(b'3')
    assert edit.result() == edit.before


def test_the_neighbour_of_an_edited_value_is_the_same_to_the_opcode(edit, folder):
    config = json.loads((edit / 'config.json').read_text())
    (edit / 'config.json').write_text(json.dumps({**config, 'lr': 2}))
    assert edit.result() == expected(edit, lr=2)
    before, after = opcodes(folder / 'in.pth'), opcodes(folder / 'out.pth')
    assert ('GLOBAL', 'my Thing') in before
    before[before.index(('BINUNICODE', 'lr')) + 1] = ('BININT1', 2)
    assert after == before


def test_a_value_that_was_moved_away_leaves_its_name_to_another(edit):
    os.rename(edit / 'epoch.json', edit / 'step.json')
    (edit / 'epoch.json').write_text('"new"')
    result = edit.result()
    assert result == {**edit.before, 'step': 3, 'epoch': 'new'}


def test_a_value_over_another_and_then_anew(edit):
    os.rename(edit / 'epoch.json', edit / 'numbers.json')
    (edit / 'epoch.json').write_text('5')
    assert edit.result() == {**edit.before, 'numbers': 3, 'epoch': 5}


@pytest.mark.parametrize('how', ['made', 'renamed'])
def test_a_tensor_with_the_name_of_a_value_is_refused(edit, how):
    """Python would keep one of the two."""
    if how == 'made':
        (edit / 'epoch').write_bytes(b'1234')
        for name, value in (('dtype', 'F32'), ('shape', '[1]')):
            os.setxattr(edit / 'epoch', 'user.weightfs.' + name, value.encode())
    else:
        os.rename(edit / 'last', edit / 'epoch')
    edit.allow("both give the key 'epoch'")
    assert "'epoch' and 'epoch.json' both give the key 'epoch'" in weightfs('commit', edit.path, code=9).error
    os.unlink(edit / 'epoch')
    assert set(edit.result()) == set(edit.before) - ({'last'} if how == 'renamed' else set())


def test_a_tensor_below_the_name_of_a_value(edit):
    """The value that is a dict takes it in, or the commit says why not; none of the two is lost."""
    os.mkdir(edit / 'config')
    os.rename(edit / 'last', edit / 'config/w')
    result = edit.result()
    assert result['config'] == edit.before['config'] or set(result['config']) == {*edit.before['config'], 'w'}
    assert 'config.w' in pth_read.tensors(result)


@pytest.mark.parametrize('command', ['rsync -aXI FROM/ TO', 'rsync -aI --inplace FROM/ TO', 'cp -a FROM/. TO', 'cp -r --remove-destination FROM/. TO',
                                     'tar -C FROM -cf - . | tar -C TO --recursive-unlink -xf -'])
def test_a_checkpoint_that_is_copied_over_itself_is_the_same(edit, mount, folder, command):
    """Objects of Python, keys that are numbers, tuples and all."""
    other = mount(folder / 'in.pth', at=folder / 'other')
    tool('sh', '-ec', command.replace('FROM', str(other.path)).replace('TO', str(edit.path)))
    result = edit.result()
    assert result == edit.before and list(result) == list(edit.before)
    assert isinstance(result['config']['tags'], tuple) and opcodes(folder / 'out.pth') == opcodes(folder / 'in.pth')


LONG = 'long' * 100
ODD = {'': '%.json', LONG: None, '%': '%25.json', '.hidden': '%/hidden.json'}


@pytest.mark.parametrize('command', ['sed -i s/old/new/ -- "$0"', 'sed s/old/new/ "$0" > .t && mv .t "$0"',
                                     'sed s/old/new/ "$0" > .t && rm "$0" && cp .t "$0"',
                                     'sed s/old/new/ "$0" > .t && mv "$0" .old && mv .t "$0"'])
@pytest.mark.parametrize('key', ODD, ids=['empty', 'long', 'percent', 'dot'])
def test_values_whose_key_needs_an_escape_are_edited_as_others(mount, folder, key, command):
    source = folder / 'in.pth'
    source.write_bytes(pth.checkpoint(pth.pairs((pth.text(key), pth.text('old')), (pth.text('w'), pth.tensor())), r0=st.f32(1, 2, 3, 4)))
    mnt = mount(source, 'output=%s' % (folder / 'out.pth'))
    name = ODD[key] or next(name for name in os.listdir(mnt.path) if name.startswith('long'))
    assert json.loads((mnt / name).read_text()) == 'old'
    tool('sh', '-ec', command, name, cwd=mnt.path)
    assert json.loads((mnt / name).read_text()) == 'new'
    mnt.commit()
    assert pth_read.load(folder / 'out.pth') == {**pth_read.load(source), key: 'new'}
