# SPDX-License-Identifier: MIT
"""PathFilter of Burn, row by row: what `include`, `key`, `where` and `exclude` show.

Not here: a predicate that is a function (`where` has conditions instead, on more than the path), and criteria_count, which only
a program could ask for. A filter without criteria shows all, as no filter does; Burn's Burnpack store shows nothing then."""
import json

import pytest

from wfs_testlib import st
from wfs_testlib.program import EXIT_RULES, weightfs

KEYS = {'encoder.fc1.weight': ('F32', [2, 3]), 'encoder.fc1.bias': ('F32', [2]), 'encoder.norm.weight': ('F16', [2]), 'head.weight': ('I64', [4]),
        'head.bias': ('F32', [4]), 'Encoder.fc1.weight': ('BOOL', []), 'größe.ß': ('F32', [1]), 'a\nb.w': ('F32', [1])}
ALL = list(KEYS)
WEIGHTS = [key for key in ALL if key.endswith('weight')]
ENCODER = [key for key in ALL if key.startswith('encoder')]

ROWS = {
    # exact path
    'exact: the whole path': (['--key=head.bias'], ['head.bias']),
    'exact: bytes, not letters': (['--key=Encoder.fc1.weight'], ['Encoder.fc1.weight']),
    'exact: a part is not enough': (['--key=head', '--key=head.bias'], ['head.bias']),
    'exact: no pattern': (['--key=head..ias', '--key=head.bias'], ['head.bias']),
    'exact: several': (['--key=head.bias', '--key=encoder.fc1.bias'], ['encoder.fc1.bias', 'head.bias']),
    # regex
    'regex: found anywhere': (['--include=fc1'], [key for key in ALL if 'fc1' in key]),
    'regex: anchored at the beginning': ([r'--include=^encoder\.'], ENCODER),
    'regex: anchored at the end': (['--include=weight$'], WEIGHTS),
    'regex: the whole': (['--include=^head.bias$'], ['head.bias']),
    'regex: anchors are those of the text, not of lines': (['--include=^b', '--include=a$', '--key=head.bias'], ['head.bias']),
    'regex: on the path only': (['--include=Struct:|F32', '--key=head.bias'], ['head.bias']),
    'regex: of letters beyond ASCII': (['--include=ß$'], ['größe.ß']),
    'regex: several': ([r'--include=^head\.', '--include=norm'], ['encoder.norm.weight', 'head.weight', 'head.bias']),
    # predicate
    'predicate: on the path': ([r'--where=key=~\.bias$'], ['encoder.fc1.bias', 'head.bias']),
    'predicate: on the leaf': (['--where=leaf==bias'], ['encoder.fc1.bias', 'head.bias']),
    'predicate: and, not': (['--where=leaf==weight && !(dtype==F32)'], ['encoder.norm.weight', 'head.weight', 'Encoder.fc1.weight']),
    'predicate: or': (['--where=rank==2 || dtype==I64'], ['encoder.fc1.weight', 'head.weight']),
    'predicate: the type of the module': (['--to=burn', '--where=class==Linear'], ['encoder.fc1.weight', 'encoder.fc1.bias']),
    'predicate: the type of the module as it is told': (['--class=^head$=>Embedding', '--where=class==embedding'], ['head.weight', 'head.bias']),
    'predicate: shape and bytes': (['--where=shape==[4] && bytes>=32'], ['head.weight']),
    # any of them
    'any: exact or regex': (['--key=head.bias', '--include=norm'], ['encoder.norm.weight', 'head.bias']),
    'any: exact or predicate': (['--key=head.bias', '--where=rank==2'], ['encoder.fc1.weight', 'head.bias']),
    'any: regex or predicate': (['--include=norm', '--where=rank==2'], ['encoder.fc1.weight', 'encoder.norm.weight']),
    'any: all three': (['--key=head.bias', '--include=norm', '--where=rank==2'], ['encoder.fc1.weight', 'encoder.norm.weight', 'head.bias']),
    'any: the order does not matter': (['--where=rank==2', '--include=norm', '--key=head.bias'], ['encoder.fc1.weight', 'encoder.norm.weight', 'head.bias']),
    # match_all, no criteria, or
    'match all: none is given': ([], ALL),
    'match all: beside others': (['--key=head.bias', '--include='], ALL),
    'or: the union of two': ([r'--include=^encoder\.', '--key=head.bias', '--include=weight$'],
                             [key for key in ALL if key in ENCODER or key in WEIGHTS or key == 'head.bias']),
    'or: with one that has all': (['--include=', r'--include=^encoder\.'], ALL),
    # exclude, which Burn has not
    'exclude: from all': ([r'--exclude=^encoder\.'], [key for key in ALL if key not in ENCODER]),
    'exclude: from what is included': ([r'--include=^encoder\.', '--exclude=bias'], [key for key in ENCODER if 'bias' not in key]),
    'exclude: more than one': (['--exclude=bias$', '--exclude=weight$'], ['größe.ß', 'a\nb.w']),
    'exclude: from an exact path too': (['--key=head.bias', '--key=head.weight', '--exclude=bias'], ['head.weight']),
}


@pytest.fixture(scope='module')
def source(tmp_path_factory):
    def n_bytes(dtype, shape):
        return {'F32': 4, 'F16': 2, 'I64': 8, 'BOOL': 1}[dtype] * (shape[0] if shape else 1) * (shape[1] if len(shape) > 1 else 1)
    path = tmp_path_factory.mktemp('filter') / 'in.safetensors'
    return st.write(path, {key: (dtype, shape, bytes(n_bytes(dtype, shape))) for key, (dtype, shape) in KEYS.items()})


@pytest.mark.parametrize('row', ROWS)
def test_each_row(source, row):
    options, wanted = ROWS[row]
    report = json.loads(weightfs('plan', '--json', *options, source, has_notices=True).stdout)
    assert [x['from'] for x in report['renamed']] in ([], ['encoder.norm.weight'])
    assert len(report['applied']) == len(wanted)
    listed = json.loads(weightfs('ls', '--json', *options, source, has_notices=True).stdout)['tensors']
    assert {tensor['key'] for tensor in listed} == set(wanted)
    assert report['skipped'] == sorted((key for key in ALL if key not in wanted), key=str.encode)


@pytest.mark.parametrize('options, text', [
    (['--key=nothing'], "key='nothing' matches none of 8 tensors"),
    (['--include=^zzz'], "include='^zzz' matches none of 8 tensors"),
    (['--where=rank==7'], "where='rank==7' matches none of 8 tensors"),
    (['--exclude='], "exclude='' excludes all of 8 tensors"),
    (['--key=head.bias', '--exclude=head'], 'the filters exclude all of 8 tensors'),
])
def test_a_filter_that_leaves_nothing_is_an_error(source, options, text):
    assert text in weightfs('ls', *options, source, code=EXIT_RULES).error


@pytest.mark.parametrize('option', ['--include=(', '--exclude=[', '--where=rank=~(', '--where=', '--where=size==3', '--where=rank==x', '--where=rank==1 &&'])
def test_what_cannot_be_understood_is_an_error(source, option):
    """Burn ignores an invalid regex, or panics."""
    weightfs('ls', option, source, code=EXIT_RULES)


@pytest.mark.parametrize('options, applied, skipped', [
    ([r'--include=gamma$'], ['norm.gamma'], ['fc.weight']),
    ([r'--include=^norm\.weight$', '--include=^fc'], ['fc.weight'], ['norm.gamma']),
    (['--key=norm.gamma'], ['norm.gamma'], ['fc.weight']),
    (['--exclude=gamma'], ['fc.weight'], ['norm.gamma']),
    (['--where=class==LayerNorm', '--class=^norm$=>LayerNorm'], ['norm.gamma'], ['fc.weight']),
])
def test_with_like_filters_see_the_keys_of_the_module(tmp_path, options, applied, skipped):
    path = st.write(tmp_path / 'in.safetensors', {'norm.weight': ('F32', [2], bytes(8)), 'fc.weight': ('F32', [2, 2], bytes(16))})
    like = st.write(tmp_path / 'like.safetensors', {'fc.weight': ('F32', [2, 2], bytes(16)), 'norm.gamma': ('F32', [2], bytes(8))})
    report = json.loads(weightfs('plan', '--json', '--like', like, *options, path, has_notices=True).stdout)
    assert (report['applied'], report['skipped'], report['missing'], report['unused']) == (applied, skipped, [], [])
