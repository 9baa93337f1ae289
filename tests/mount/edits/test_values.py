# SPDX-License-Identifier: MIT
"""What is no tensor, edited as files."""
import json
import os

import pytest

from wfs_testlib import burnpack, pth, st
from wfs_testlib.program import tool, weightfs

CLASS = pth.call(pth.name('my', 'Thing'), pth.number(5))


@pytest.fixture
def trained(folder):
    path = folder / 'trained.pth'
    path.write_bytes(pth.checkpoint(pth.dictionary(
        w=pth.tensor(), epoch=pth.number(3), name=pth.text('run'),
        config=pth.dictionary(lr=pth.number(1), tags=pth.numbers([1, 2]), thing=CLASS, deep=pth.dictionary(a=pth.text('x'))),
        numbers=pth.pairs((pth.number(0), pth.text('zero')), (pth.number(7), pth.text('seven'))))))
    return path


@pytest.fixture
def edited(mount, trained, folder):
    return mount(trained, 'output=%s' % (folder / 'new.safetensors'), 'values=metadata')


def saved(mounted, folder):
    mounted.commit()
    metadata = st.read(folder / 'new.safetensors').metadata
    assert metadata.pop('format') == 'pt'
    return {name: value if name == 'name' else json.loads(value) for name, value in metadata.items()}


def test_values_can_be_rewritten_in_every_way_that_programs_have(edited, folder):
    tool('sed', '-i', 's/3/4/', edited / 'epoch.json')
    assert saved(edited, folder)['epoch'] == 4
    tool('sh', '-c', 'echo 5 > "$1"', '-', edited / 'epoch.json')
    assert saved(edited, folder)['epoch'] == 5
    (edited / 'new.tmp').write_text('{"lr": 0.5}')
    config = json.loads((edited / 'config.json').read_text())
    config['lr'] = 0.5
    config['deep']['b'] = [None, True, {'$float': 'nan'}, 2 ** 40]
    (edited / 'new.tmp').write_text(json.dumps(config))
    os.rename(edited / 'new.tmp', edited / 'config.json')
    assert saved(edited, folder)['config'] == {**config, 'lr': 0.5}
    with open(edited / 'epoch.json', 'r+b') as file:
        file.truncate(0)
        file.write(b'66')
    with open(edited / 'epoch.json', 'ab') as file:
        file.write(b'6\n')
    assert saved(edited, folder)['epoch'] == 666


def test_values_are_created_renamed_and_removed(edited, folder):
    (edited / 'epoch.json').rename(edited / 'step.json')
    (edited / 'name.json').unlink()
    (edited / 'made').mkdir()
    (edited / 'made' / 'fresh.json').write_text('["a", 1.5]')
    (edited / 'numbers.json').rename(edited / 'made' / 'numbers.json')
    result = saved(edited, folder)
    assert set(result) == {'step', 'config', 'made.fresh', 'made.numbers'}
    assert (result['step'], result['made.fresh']) == (3, ['a', 1.5])


def test_keys_that_are_numbers_stay_numbers(edited, folder):
    (edited / 'numbers.json').write_text('{"0": "nil", "7": "seven", "8": "eight"}')
    assert saved(edited, folder)['numbers'] == {'0': 'nil', '7': 'seven', '8': 'eight'}
    (edited / 'numbers.json').write_text('{"0": "nil", "eight": 8}')
    edited.allow("'numbers.json': eight is a new key among keys that are not text")
    edited.commit(code=1)
    (edited / 'numbers.json').unlink()


def test_an_object_of_python_stays_or_the_commit_names_it(edited, folder):
    config = json.loads((edited / 'config.json').read_text())
    assert config['thing'] == {'$python': 'my.Thing', 'args': [5]}
    (edited / 'config.json').write_text(json.dumps({**config, 'lr': 2}))
    assert saved(edited, folder)['config']['thing'] == config['thing']
    edited.allow(r"'config\.json': thing is an object that only Python can build, and cannot be changed")
    for bad in ({'$python': 'my.Thing', 'args': [6]}, {'$python': 'os.system', 'args': ['true']}, 5, [config['thing']]):
        (edited / 'config.json').write_text(json.dumps({**config, 'thing': bad}))
        assert "'config.json': thing" in weightfs('commit', edited.path, code=9).error
    (edited / 'config.json').write_text(json.dumps({**config, 'more': {'$python': 'os.system'}}))
    edited.allow(r"'config\.json': more is an object")
    assert "'config.json': more" in weightfs('commit', edited.path, code=9).error
    (edited / 'config.json').unlink()
    assert 'config' not in saved(edited, folder)


@pytest.mark.parametrize('text, message', [
    ('{"a": 1,\n "b": }', r"line 2, column 7"), ('', r'line 1'), ('{"a": 1, "a": 2}', r'line 1, column 12: duplicate'),
    ('1 2', r'line 1'), ('[1, 2', r'line 1'), ('{"$float": "big"}', r'\$float'), ('[' * 300 + ']' * 300, 'nested more than 256'),
    ('"\\ud800"', 'line 1'), ('1e999', 'line 1'), ('\x00', 'line 1')])
def test_bad_text_fails_the_commit_with_file_and_place(edited, folder, text, message):
    (edited / 'epoch.json').write_text(text)
    edited.allow("cannot commit to .*'epoch.json'")
    error = weightfs('commit', edited.path, code=9).error
    assert "'epoch.json'" in error and __import__('re').search(message, error), error
    assert '\\x27' not in error, 'quoted twice'
    (edited / 'epoch.json').write_text('9')
    assert saved(edited, folder)['epoch'] == 9


def test_what_was_not_changed_keeps_more_than_json_can_tell(mount, folder):
    path = folder / 'b.bpk'
    burnpack.write(path, burnpack.Burnpack({'w': burnpack.Tensor('F32', [1], st.f32(1))}, {}, {'epoch': {'UInt': 3}, 'loss': {'Float': 0.5}, 'on': {'Bool': True}}))
    mounted = mount(path, 'output=%s' % (folder / 'new.bpk'))
    (mounted / 'loss.json').write_text('1')
    (mounted / 'epoch.json').write_text('4\n')
    (mounted / 'on.json').rename(mounted / 'off.json')
    (mounted / 'fresh.json').write_text('-7')
    mounted.commit()
    scalars = burnpack.read(folder / 'new.bpk').scalars
    assert scalars == {'epoch': {'UInt': 4}, 'loss': {'Float': 1.0}, 'off': {'Bool': True}, 'fresh': {'Int': -7}}
    assert isinstance(scalars['loss']['Float'], float)
    (mounted / 'fresh.json').write_text('"text"')
    mounted.allow("value 'fresh' was edited")
    assert "value 'fresh' was edited, and burnpack cannot store it" in weightfs('commit', mounted.path, code=9).error
    (mounted / 'fresh.json').unlink()


def test_an_edited_value_is_never_left_out_in_silence(mount, trained, folder):
    mounted = mount(trained, 'output=%s' % (folder / 'new.safetensors'))
    mounted.commit()
    (mounted / 'epoch.json').write_text('4')
    mounted.allow("value 'epoch' was edited")
    assert 'values=metadata' in weightfs('commit', mounted.path, code=9).error
    (mounted / 'epoch.json').write_text('3.0')  # the same number
    mounted.commit()


def test_a_file_with_dtype_and_shape_is_a_tensor_whatever_its_name(mount, small, folder):
    mounted = mount(small, 'output=%s' % (folder / 'new.safetensors'), 'layout=flat')
    (mounted / 'data.json').write_bytes(b'1234')
    for name, value in (('dtype', 'U8'), ('shape', '[4]')):
        os.setxattr(mounted / 'data.json', 'user.weightfs.' + name, value.encode())
    mounted.commit()
    assert st.read(folder / 'new.safetensors').tensors['data.json'] == ('U8', [4], b'1234')


def test_two_of_one_name_are_refused(edited, folder):
    (edited / 'w.json').write_text('1')
    edited.allow("both give the key 'w'")
    assert "both give the key 'w'" in weightfs('commit', edited.path, code=9).error
    (edited / 'w.json').unlink()


def test_edited_values_are_kept_after_a_death(mount, trained, folder):
    mounted = mount(trained, 'output=%s' % (folder / 'new.safetensors'), 'values=metadata')
    (mounted / 'epoch.json').write_text('44')
    (mounted / 'tmp').write_text('"other"')
    os.rename(mounted / 'tmp', mounted / 'name.json')
    tool('sync', '-d', mounted / 'epoch.json')
    mounted.kill()
    mounted.forget()
    again = mount(trained, 'output=%s' % (folder / 'new.safetensors'), 'values=metadata', at=mounted.path)
    again.allow('edits')
    assert saved(again, folder)['epoch'] == 44


def test_edited_values_go_into_a_pytorch_file(mount, trained, folder):
    mounted = mount(trained, 'output=%s' % (folder / 'new.pth'))
    config = json.loads((mounted / 'config.json').read_text())
    config['lr'] = 0.25
    (mounted / 'config.json').write_text(json.dumps(config))
    tool('sed', '-i', 's/3/4/', mounted / 'epoch.json')
    (mounted / 'name.json').unlink()
    (mounted / 'fresh.json').write_text('[1, "two"]')
    mounted.commit()
    told = json.loads(weightfs('config', folder / 'new.pth').stdout)
    assert told == {'epoch': 4, 'config': config, 'numbers': {'0': 'zero', '7': 'seven'}, 'fresh': [1, 'two']}
