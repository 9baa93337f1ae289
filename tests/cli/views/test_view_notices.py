# SPDX-License-Identifier: MIT
"""Rules without effect, and effects that nobody asked for: said on stderr and in the report, refused with strict."""
import json

import pytest

from wfs_testlib import pth, st
from wfs_testlib.program import EXIT_RULES, weightfs

# Beside another rule of their kind that matches, where there can be one.
UNUSED = {
    'remap': (['--remap', '^zzz=>y'], 'matches no key'),
    'the second remap': (['--remap', '^a=>b2', '--remap', '^a=>c'], 'matches no key'),
    'include': (['--include', 'a', '--include', '^zzz'], 'matches no key'),
    'include before another': (['--include', '^zzz', '--include', '.'], 'matches no key'),
    'key': (['--key', 'a.w', '--key', 'a'], 'matches no key'),
    'where': (['--where', 'rank==2', '--where', 'rank==9'], 'matches no tensor'),
    'exclude': (['--exclude', '^b', '--exclude', '^zzz'], 'matches no key'),
    'exclude of a former key': (['--remap', '^ema=>x', '--exclude', '^ema'], 'matches no key; it sees the keys that remap made'),
    'include of a former key': (['--remap', '^ema=>x', '--include', '^ema', '--include', '^a'], 'matches no key; it sees the keys that remap made'),
    'contiguous_except': (['--contiguous', 'on', '--contiguous-except', '^zzz'], 'exempts no list'),
    'drop_variants': (['--drop-variants', 'BaseConv'], 'removes nothing'),
    'class': (['--to', 'burn', '--class', '^zzz=>Linear', '--keep', '.'], 'decides no type'),
    'keep': (['--keep', '^zzz'], 'matches no key'),
    'keep of an adapter': (['--to', 'burn', '--class', '.=>Other', '--keep', '^zzz'], 'matches no key'),
    'transpose': (['--transpose', '^zzz'], 'matches no key'),
    'transpose of what is hidden': (['--exclude', '^a', '--transpose', '^a'], 'matches no key'),
    'permute': (['--permute', '^zzz=>1,0'], 'matches no key'),
    'split': (['--split', '^zzz=>a,b'], 'matches no key'),
    'cast': (['--cast', '^zzz=>F16'], 'matches no key'),
    'from': (['--from', 'torch'], 'changes nothing without to or like'),
    'lora_alpha': (['--lora-alpha', '0'], 'changes nothing without lora'),
    'lora_part': (['--lora-part', 'unet', '--exclude', '^a'], 'changes nothing without lora'),
    'gptq_v2': (['--gptq-v2'], 'changes nothing without dequantize or cast'),
    'partial': (['--partial'], 'changes nothing without like, join, average, add, minus, task or slerp'),
}
KEYS = {'a.w': [2, 2], 'b.w': [2, 2], 'ema.a.w': [2, 2], 'list.0.w': [4]}


def written(path):
    return st.write(path, {key: ('F32', shape, bytes(16)) for key, shape in KEYS.items()})


@pytest.mark.parametrize('row', UNUSED)
def test_a_rule_without_effect_is_said(tmp_path, row):
    options, text = UNUSED[row]
    path = written(tmp_path / 'in.safetensors')
    said, = weightfs('ls', *options, path, has_notices=True).stderr.splitlines()
    notice, = json.loads(weightfs('plan', '--json', *options, path, has_notices=True).stdout)['notices']
    assert notice['text'].endswith(text) and said.endswith(': %s: %s' % (notice['about'], notice['text']))
    assert weightfs('convert', *options, path, tmp_path / 'out.safetensors', has_notices=True).stderr.splitlines() == [said]
    assert weightfs('ls', '--strict', *options, path, code=EXIT_RULES).error.endswith(text)


USED = {
    'all match': ['--remap', '^a=>z', '--include', 'w', '--exclude', '^b', '--transpose', '^z', '--cast', 'F16', '--keep', '^ema'],
    'what another includes already': ['--include', 'w', '--key', 'a.w', '--where', 'rank==2'],
    'what another excludes already': ['--exclude', '^a', '--exclude', r'^a\.w$'],
    'nothing asks for types': ['--class', '^zzz=>Linear'],
    'variants where there are any': ['--drop-variants', 'auto'],
    'modules by their paths': ['--to', 'burn', '--class', '^b$=>Linear', '--class', 'list|ema=>Other', '--class', '^a$=>Other'],
}


@pytest.mark.parametrize('row', USED)
def test_a_rule_with_an_effect_is_not(tmp_path, row):
    weightfs('ls', '--strict', *USED[row], written(tmp_path / 'in.safetensors'))


def test_long_lists_of_rules_are_cut(tmp_path):
    options = [word for i in range(14) for word in ('--remap', '^z%d=>y' % i)]
    said = weightfs('ls', *options, written(tmp_path / 'in.safetensors'), has_notices=True).stderr.splitlines()
    assert len(said) == 11 and 'and 4 more' in said[-1]


# ---- filters and renames that throw both copies away ----

LOST = {
    'exclude': ['--exclude', r'^a\.w$'],
    'include': ['--include', '^(ema|b)'],
    'where': ['--where', 'key!~"^a"'],
    'all keys of a module': ['--exclude', '^(a|b)'],
}


@pytest.mark.parametrize('row', LOST)
@pytest.mark.parametrize('more', [[], ['--on-collision', 'suffix']])
def test_a_filter_of_originals_does_not_take_the_copies_too(tmp_path, row, more):
    path = written(tmp_path / 'in.safetensors')
    error = weightfs('convert', *LOST[row], *more, '--remap', r'^ema\.=>', path, tmp_path / 'out.safetensors', code=EXIT_RULES).error
    assert "'a.w'" in error and "'ema.a.w'" in error
    assert not (tmp_path / 'out.safetensors').exists()


def test_originals_that_are_renamed_first_can_be_hidden(tmp_path):
    path = written(tmp_path / 'in.safetensors')
    listed = weightfs('ls', '--remap', r'^a\.=>old.', '--remap', r'^ema\.=>', '--exclude', '^old', path).stdout
    assert {line.split('\t')[0] for line in listed.splitlines()} == {'a.w', 'b.w', 'list.0.w'}


def test_a_filter_that_means_both_names_hides_both(tmp_path):
    path = written(tmp_path / 'in.safetensors')
    listed = weightfs('ls', '--remap', r'^ema\.=>', '--exclude', r'a\.w', path).stdout
    assert {line.split('\t')[0] for line in listed.splitlines()} == {'b.w', 'list.0.w'}


# ---- values whose tensors go ----

def checkpoint(path):
    path.write_bytes(pth.checkpoint(pth.dictionary(
        epoch=pth.number(3), opt=pth.dictionary(m=pth.tensor(), v=pth.tensor(pth.storage('1')), lr=pth.number(7), n=pth.number(8)),
        model=pth.dictionary(w=pth.tensor(pth.storage('2')))), r0=bytes(16), r1=bytes(16), r2=bytes(16)))
    return path


LEFT = {
    'tensors hidden by their own keys': ['--exclude', r'^opt\.[mv]$'],
    'in two places': ['--remap', r'^opt\.m=>x.m', '--remap', r'^opt\.v=>y.v'],
    'one hidden, one renamed': ['--exclude', r'^opt\.m', '--remap', r'^opt\.v=>v'],
}


@pytest.mark.parametrize('row', LEFT)
def test_values_that_lose_their_tensors_are_said(tmp_path, row):
    path = checkpoint(tmp_path / 'in.pth')
    said, = weightfs('convert', *LEFT[row], path, tmp_path / 'out.pth', has_notices=True).stderr.splitlines()
    assert 'opt.lr: the tensors beside this value (and 1 more)' in said
    weightfs('ls', '--strict', *LEFT[row], path, code=EXIT_RULES)


@pytest.mark.parametrize('options', [['--exclude', r'^opt\.m'], ['--remap', '^opt=>o'], ['--remap', r'^opt\.m$=>opt.k.m'], ['--exclude', '^model'],
                                     ['--top-level-key', 'opt'], ['--top-level-key', 'opt', '--exclude', 'm']])
def test_values_that_keep_a_tensor_are_not(tmp_path, options):
    weightfs('ls', '--strict', *options, checkpoint(tmp_path / 'in.pth'))


# What becomes of the values, whether they are items of dicts in dicts or have dots in their keys.
GOES = {
    'hidden with their tensors': (['--exclude', '^opt'], {'epoch', 'model.tag'}),
    'hidden as not included': (['--include', '^model'], {'epoch', 'model.tag'}),
    'hidden by a condition': (['--where', 'key=~^model'], {'epoch', 'model.tag'}),
    'hidden by the new name': (['--remap', '^opt=>o', '--exclude', '^o[.]'], {'epoch', 'model.tag'}),
    'hidden with an inner dict': (['--exclude', r'^opt\.sub'], {'epoch', 'opt.lr', 'model.tag'}),
    'renamed': (['--rename', 'opt', 'o'], {'epoch', 'o.lr', 'o.sub.n', 'model.tag'}),
    'renamed deeper': (['--remap', '^opt=>a.b'], {'epoch', 'a.b.lr', 'a.b.sub.n', 'model.tag'}),
    'an inner dict renamed': (['--rename', 'opt.sub', 'k'], {'epoch', 'opt.lr', 'k.n', 'model.tag'}),
    'without the prefix': (['--remap', r's/^opt\.//'], {'epoch', 'lr', 'sub.n', 'model.tag'}),
    'renamed and partly hidden': (['--rename', 'opt', 'o', '--exclude', 'm$'], {'epoch', 'o.lr', 'o.sub.n', 'model.tag'}),
    'only some renamed': (['--rename', 'opt.m', 'opt.q'], {'epoch', 'opt.lr', 'opt.sub.n', 'model.tag'}),
}


def written_values(path, is_flat):
    items = {'epoch': pth.number(3), 'opt.m': pth.tensor(), 'opt.lr': pth.number(7), 'opt.sub.v': pth.tensor(pth.storage('1')), 'opt.sub.n': pth.text('n'),
             'model.w': pth.tensor(pth.storage('2')), 'model.tag': pth.text('t')}
    inner = pth.dictionary(m=items['opt.m'], lr=items['opt.lr'], sub=pth.dictionary(v=items['opt.sub.v'], n=items['opt.sub.n']))
    tree = pth.dictionary(epoch=items['epoch'], opt=inner, model=pth.dictionary(w=items['model.w'], tag=items['model.tag']))
    flat = pth.pairs(*((pth.text(key), value) for key, value in items.items()))
    path.write_bytes(pth.checkpoint(flat if is_flat else tree, r0=bytes(16), r1=bytes(16), r2=bytes(16)))
    return path


@pytest.mark.parametrize('is_flat', [False, True])
@pytest.mark.parametrize('row', GOES)
def test_values_go_where_their_tensors_go(tmp_path, row, is_flat):
    options, names = GOES[row]
    path = written_values(tmp_path / 'in.pth', is_flat)
    weightfs('convert', '--strict', *options, path, tmp_path / 'out.pth')
    weightfs('edit', '--strict', *options, path, tmp_path / 'edited.pth')
    weightfs('extract', '--strict', *options, path, '-d', tmp_path / 'tree')
    weightfs('patch', 'make', path, tmp_path / 'out.pth', tmp_path / 'p.wfspatch')
    weightfs('patch', 'apply', tmp_path / 'p.wfspatch', path, tmp_path / 'patched.pth')
    for made in ('out.pth', 'edited.pth', 'patched.pth'):
        assert set(json.loads(weightfs('config', tmp_path / made).stdout)) == names
    weightfs('diff', '--all', tmp_path / 'out.pth', tmp_path / 'patched.pth')
    files = {str(file.relative_to(tmp_path / 'tree')) for file in (tmp_path / 'tree').rglob('*.json')}
    assert files == {name.replace('.', '/') + '.json' for name in names}


def test_hidden_values_are_in_the_report(tmp_path):
    path = written_values(tmp_path / 'in.pth', False)
    assert json.loads(weightfs('plan', '--json', '--exclude', '^opt', path).stdout)['skipped'] == ['opt.lr', 'opt.m', 'opt.sub.n', 'opt.sub.v']


def test_guesses_refer_to_what_exists(tmp_path):
    path = st.write(tmp_path / 'in.safetensors', {'odd.weight': ('F32', [2, 3], bytes(24))})
    line = weightfs('convert', '--to', 'burn', path, tmp_path / 'out.safetensors').stdout.splitlines()[0]
    assert line == "0 tensors adapted by guess, 1 left undecided; 'weightfs plan' with the same options lists them"
