# SPDX-License-Identifier: MIT
"""Parameters and tensors of subclasses that have attributes, values and tensors, when the tensor is renamed or left out."""
import pytest

from wfs_testlib import pth, pth_read, st
from wfs_testlib.make_reject_pytorch import FOLDER
from wfs_testlib.program import listing, weightfs


def write(folder):
    plain = pth.tensor(pth.storage('0', numel=1), size=(1,))
    q = pth.call(pth.name('torch._utils', '_rebuild_parameter_with_state'), plain, b'\x89', pth.ORDERED,
                 pth.dictionary(loader=pth.text('f'), bias=pth.number(1)))
    s = pth.call(pth.name('torch._tensor', '_rebuild_from_type_v2'), pth.name('torch._utils', '_rebuild_tensor_v2'),
                 pth.name('my.kinds', 'Scaled'),
                 pth.tup(pth.storage('1', numel=2), pth.number(0), pth.numbers((2,)), pth.numbers((1,)), b'\x89', pth.ORDERED),
                 pth.dictionary(scale=pth.tensor(pth.storage('2', numel=1), size=(1,)), kind=pth.text('k')))
    items = b''.join(pth.text(name) + value for name, value in (('q', q), ('s', s), ('z', pth.tensor(pth.storage('3')))))
    value = pth.dictionary(m=pth.ORDERED + b'(' + items + b'u', epoch=pth.number(3))
    path = folder / 'in.pth'
    path.write_bytes(pth.checkpoint(value, r0=st.f32(0), r1=st.f32(1, 2), r2=st.f32(7), r3=st.f32(1, 2, 3, 4)))
    return path


def convert(folder, *options):
    weightfs('convert', *options, write(folder), folder / 'out.pth')
    return pth_read.load(folder / 'out.pth')


def is_whole(q, s):
    return q.state[1] == {'loader': 'f', 'bias': 1} and s.state[1]['kind'] == 'k' and s.state[1]['scale'].data == st.f32(7)


@pytest.mark.parametrize('rules, q, s', [
    ([r'^m\.q$=>m.new'], 'new', 's'), ([r'^m\.s\b=>m.new'], 'q', 'new'), ([r'^m\.([qs])\b=>m.$1.weight'], 'q.weight', 's.weight'),
    ([r'^m\.q$=>m.x', r'^m\.s\b=>m.q', r'^m\.x$=>m.s'], 's', 'q')])
def test_attributes_follow_the_tensor(folder, rules, q, s):
    found = convert(folder, *('--remap=' + rule for rule in rules))
    assert set(found) == {'m', 'epoch'} and set(found['m']) == {q, s, 'z'}
    assert is_whole(found['m'][q], found['m'][s])


def test_they_follow_it_out_of_its_dict(folder):
    found = convert(folder, r'--remap=^m\.([qs])\b=>$1')
    assert set(found) == {'m', 'epoch', 'q', 's'} and list(found['m']) == ['z'] and is_whole(found['q'], found['s'])


def test_they_follow_it_when_its_dict_becomes_the_root(folder):
    found = convert(folder, '--top-level-key=m', r'--remap=^s\b=>t')
    assert set(found) == {'q', 't', 'z'} and is_whole(found['q'], found['t'])


@pytest.mark.parametrize('pattern, left', [('q', {'s', 'z'}), ('s', {'q', 'z'}), (r's.*', {'q', 'z'})])
def test_attributes_go_with_the_tensor(folder, pattern, left):
    found = convert(folder, r'--exclude=^m\.(%s)$' % pattern)
    assert set(found) == {'m', 'epoch'} and set(found['m']) == left


@pytest.mark.parametrize('rules, q, s', [
    ([r'^m\.s$=>m.new'], 'q', 'new'), ([r's$=>new'], 'q', 'new'), ([r'^m\.s$=>m.x', r'^m\.q$=>m.s', r'^m\.x$=>m.q'], 's', 'q'),
    ([r'^m\.s$=>m.s.w'], 'q', 's.w'), ([r'^m\.(.)$=>m.$1$1'], 'qq', 'ss')])
def test_a_rule_for_the_tensor_alone_takes_its_tensors_with_it(folder, rules, q, s):
    options = ['--remap=' + rule for rule in rules]
    assert 'm.%s.scale' % s in listing(write(folder), *options)
    found = convert(folder, *options)
    assert {q, s} < set(found['m']) and len(found['m']) == 3 and is_whole(found['m'][q], found['m'][s])


@pytest.mark.parametrize('options, left', [
    (['--include=s$'], ['m.s', 'm.s.scale']), (['--include=s$', '--exclude=scale'], ['m.s']), (['--include=scale'], ['m.s.scale']),
    (['--key=m.s'], ['m.s', 'm.s.scale']), (['--exclude=s$'], ['m.q', 'm.z']), (['--exclude=scale'], ['m.q', 'm.s', 'm.z']),
    (['--where=rank==1', '--exclude=^m.s$'], ['m.q', 'm.s.scale', 'm.z']), (['--include=z', '--exclude=scale'], ['m.z']),
    (['--remap=^m.s$=>t', '--exclude=^t$'], ['m.q', 'm.z'])])
def test_filters_that_match_a_tensor_decide_about_its_attributes(folder, options, left):
    assert list(listing(write(folder), *options)) == left
    weightfs('convert', *options, write(folder), folder / 'out.pth')
    assert [key for key in left if key != 'm.s.scale' or 'm.s' in left] == [
        key for key in listing(folder / 'out.pth') if not key.endswith('s.scale') or 'm.s' in left]


def test_a_rule_for_the_attribute_alone_leaves_the_tensor(folder):
    found = convert(folder, r'--remap=^m\.s\.scale$=>m.s.size')['m']
    assert set(found) == {'q', 's', 'z'} and set(found['s'].state[1]) == {'size', 'kind'}
    found = convert(folder, '--overwrite', r'--remap=^m\.s\.scale$=>m.size')['m']
    assert set(found) == {'q', 's', 'z', 'size'} and found['s'].state[1] == {'kind': 'k'} and found['size'].data == st.f32(7)


def test_scales_follow_what_is_quantized(folder):
    source = FOLDER / 'good' / 'quantized.pth'
    assert list(listing(source, '--remap=^c$=>d')) == ['q', 'd', 'd.scales', 'd.zero_points']
    weightfs('convert', '--remap=^c$=>d', source, folder / 'out.pth')
    assert list(listing(folder / 'out.pth')) == ['q', 'd', 'd.scales', 'd.zero_points']
    weightfs('convert', '--overwrite', '--exclude=^c$', source, folder / 'out.pth')
    assert list(listing(folder / 'out.pth')) == ['q']
