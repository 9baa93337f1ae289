# SPDX-License-Identifier: MIT
"""Overlays: tensors of other checkpoints over those of the source, whatever the formats, and what is told of it."""
import json
import struct

import pytest

from wfs_testlib import burnpack, program, pth, st
from wfs_testlib.program import weightfs


def vector(*values):
    return 'F32', [len(values)], st.f32(*values)


@pytest.fixture
def base(tmp_path):
    return st.write(tmp_path / 'base.safetensors', {'a.w': vector(1), 'b.w': vector(2), 'c.w': vector(3)}, {'format': 'pt'})


@pytest.fixture
def over(tmp_path):
    return st.write(tmp_path / 'over.safetensors', {'b.w': vector(20), 'd.w': vector(40)}, {'format': 'np'})


def shown(*args):
    """What a conversion writes: key -> the numbers, and the metadata."""
    target = args[-1].with_name('shown.safetensors')
    weightfs('convert', *args[:-1], '--overwrite', args[-1], target)
    found = st.read(target)
    return {key: list(struct.unpack('<%df' % (len(data) // 4), data)) for key, (_, _, data) in found.tensors.items()}, found.metadata


def report(*args):
    return json.loads(weightfs('plan', '--json', *args).stdout)


def test_the_overlay_wins_and_adds_and_keeps_the_metadata_of_the_source(base, over):
    values, metadata = shown('--overlay', over, base)
    assert values == {'a.w': [1], 'b.w': [20], 'c.w': [3], 'd.w': [40]} and metadata == {'format': 'pt'}


def test_a_covered_tensor_keeps_its_place_and_new_ones_are_last(base, over):
    assert [line.split('\t')[0] for line in weightfs('ls', '--overlay', over, base).stdout.splitlines()] == \
        ['a.w', 'b.w', 'c.w', 'd.w']


def test_the_later_of_two_wins(base, over, tmp_path):
    third = st.write(tmp_path / 'third.safetensors', {'b.w': vector(200), 'a.w': vector(100)})
    assert shown('--overlay', over, '--overlay', third, base)[0] == {'a.w': [100], 'b.w': [200], 'c.w': [3], 'd.w': [40]}
    assert shown('--overlay', third, '--overlay', over, base)[0] == {'a.w': [100], 'b.w': [20], 'c.w': [3], 'd.w': [40]}
    covered = report('--overlay', over, '--overlay', third, base)['covered']
    assert [(one['key'], one['file'], one['by']) for one in covered] == [
        ('b.w', str(base), str(over)), ('a.w', str(base), str(third)), ('b.w', str(over), str(third))]


def test_each_has_a_filter_of_its_own(base, over, tmp_path):
    third = st.write(tmp_path / 'third.safetensors', {'a.w': vector(100), 'c.w': vector(300), 'e.w': vector(500)})
    options = ['--overlay', '^b=>%s' % over, '--overlay', r'!^a\.=>%s' % third]
    assert shown(*options, base)[0] == {'a.w': [1], 'b.w': [20], 'c.w': [300], 'e.w': [500]}


def test_a_filter_that_takes_nothing_is_refused(base, over):
    assert 'matches none of its 2 tensors' in weightfs('ls', '--overlay', '^q=>%s' % over, base, code=program.EXIT_RULES).error


def test_an_arrow_in_a_file_name(base, over):
    odd = over.rename(over.with_name('a=>b.safetensors'))
    assert shown('--overlay', '=>%s' % odd, base)[0]['b.w'] == [20]


def test_other_options_see_what_is_merged(base, over):
    options = ['--overlay', over, '--remap', '^([bd])=>n.$1', '--exclude', '^a']
    assert shown(*options, base)[0] == {'n.b.w': [20], 'c.w': [3], 'n.d.w': [40]}


def test_rules_of_a_file_may_name_overlays(base, over, tmp_path):
    rules = tmp_path / 'rules.json'
    rules.write_text(json.dumps([{'overlay': ['^b', str(over)]}, {'remap': ['^b', 'n']}]))
    assert shown('--rules', rules, base)[0] == {'a.w': [1], 'n.w': [20], 'c.w': [3]}


def test_another_dtype_and_shape_are_allowed_and_told(base, tmp_path):
    over = st.write(tmp_path / 'half.safetensors', {'b.w': ('F16', [1, 2], b'\0\x3c\0\x40')})
    (covered,) = report('--overlay', over, base)['covered']
    assert covered == {'key': 'b.w', 'file': str(base), 'by': str(over), 'was': 'F32 [1]', 'is': 'F16 [1, 2]'}
    text = weightfs('plan', '--report', '--overlay', over, base).stdout
    assert 'covered by an overlay: 1\n' in text and 'b.w: %s, F16 [1, 2] in place of F32 [1]\n' % over in text
    assert weightfs('cat', '--overlay', over, base, 'b.w').raw == b'\0\x3c\0\x40'


def test_the_same_dtype_and_shape_need_no_words(base, over):
    (covered,) = report('--overlay', over, base)['covered']
    assert covered['was'] is None and covered['is'] is None


def test_formats_mix(base, tmp_path):
    pack = tmp_path / 'over.bpk'
    burnpack.write(pack, burnpack.Burnpack({'b.w': burnpack.Tensor('F32', [1], st.f32(20))}))
    torch = tmp_path / 'over.pth'
    torch.write_bytes(pth.checkpoint(pth.dictionary(**{'c.w': pth.tensor(), 'epoch': pth.number(7)}), r0=st.f32(1, 2, 3, 4)))
    assert shown('--overlay', pack, '--overlay', torch, base)[0] == {'a.w': [1], 'b.w': [20], 'c.w': [1, 2, 3, 4]}
    found = json.loads(weightfs('info', '--json', '--overlay', torch, base).stdout)['sources'][0]
    assert any('values ignored: 1' in finding['text'] for finding in found['findings'])
    assert json.loads(weightfs('config', '--overlay', base, torch).stdout) == {'epoch': 7}


def test_a_sharded_overlay_and_an_overlay_of_shards(base, over, tmp_path):
    folder = tmp_path / 'model'
    folder.mkdir()
    st.write(folder / 'x-1-of-2.safetensors', {'b.w': vector(21)})
    st.write(folder / 'x-2-of-2.safetensors', {'e.w': vector(51)})
    weight_map = {'b.w': 'x-1-of-2.safetensors', 'e.w': 'x-2-of-2.safetensors'}
    (folder / 'model.safetensors.index.json').write_text(json.dumps({'weight_map': weight_map}))
    assert shown('--overlay', folder, base)[0] == {'a.w': [1], 'b.w': [21], 'c.w': [3], 'e.w': [51]}
    assert shown('--overlay', over, folder / 'model.safetensors.index.json')[0] == {'b.w': [20], 'e.w': [51], 'd.w': [40]}


def test_an_overlay_that_is_missing_or_foreign_is_named(base, tmp_path):
    missing = tmp_path / 'none.safetensors'
    assert weightfs('ls', '--overlay', missing, base, code=program.EXIT_SOURCE).error.startswith(str(missing))
    page = tmp_path / 'page.safetensors'
    page.write_text('<html>Not found</html>')
    assert weightfs('ls', '--overlay', page, base, code=program.EXIT_FOREIGN).error.startswith(str(page))
    weightfs('ls', '--overlay=', base, code=program.EXIT_RULES)


def test_check_looks_at_the_checksums_of_every_file(base, tmp_path):
    content = bytearray(pth.checkpoint(pth.dictionary(w=pth.tensor()), r0=st.f32(1, 2, 3, 4)))
    content[content.index(st.f32(1, 2, 3, 4))] ^= 1
    torch = tmp_path / 'over.pth'
    torch.write_bytes(content)
    weightfs('check', base)
    assert 'checksum' in weightfs('check', '--overlay', torch, base, code=program.EXIT_FOUND).stdout
