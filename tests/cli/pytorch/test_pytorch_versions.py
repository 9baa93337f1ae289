# SPDX-License-Identifier: MIT
"""State dicts whose tensors get other names: where the tensors are, what is left of the dict, and the versions of modules, which
decide how a module loads its tensors."""
import pytest

from wfs_testlib import pth, pth_read, st
from wfs_testlib.program import weightfs

# By module, the names of its tensors. Each module has a version of its own, so that none can stand for another.
MODULES = {'': [], 'module': [], 'module.0': ['weight', 'bias'], 'module.1': ['weight', 'running_mean'], 'module.2': [],
           'module.3': [], 'module.3.conv': ['weight'], 'module.3.norm': ['weight']}
VERSIONS = {name: number for number, name in enumerate(MODULES, 1)}
NAMES = ['%s.%s' % (module, name) for module, names in MODULES.items() for name in names]


def state_dict(first=0):
    """The opcodes of an OrderedDict as Module.state_dict() makes it, and its records."""
    items = b''.join(pth.text(name) + pth.tensor(pth.storage(str(first + i), numel=1), size=(1,)) for i, name in enumerate(NAMES))
    table = b''.join(pth.text(name) + pth.dictionary(version=pth.number(version)) for name, version in VERSIONS.items())
    attributes = pth.dictionary(_metadata=pth.ORDERED + b'(' + table + b'u')
    return pth.ORDERED + b'(' + items + b'u' + attributes + b'b', {'r%d' % (first + i): st.f32(i) for i in range(len(NAMES))}


def write(path, kind):
    state, records = state_dict()
    value = {'flat': lambda: state, 'trainer': lambda: pth.dictionary(epoch=pth.number(3), state_dict=state),
             'alone': lambda: pth.dictionary(state_dict=state),
             'nested': lambda: pth.dictionary(a=pth.dictionary(b=pth.dictionary(state_dict=state))),
             'shared': lambda: pth.dictionary(state_dict=state + pth.put(9), ema=pth.get(9))}[kind]()
    path.write_bytes(pth.checkpoint(value, **records))
    return path


def convert(source, target, *options):
    weightfs('convert', *options, source, target)
    return pth_read.load(target)


def versions(value):
    return {name: entry['version'] for name, entry in value._metadata.items()}


def by_tensor(value):
    """{number in the tensor: the version of the module that it is in}, for one state dict."""
    table = versions(value)
    return {tensor.data: table.get(name.rpartition('.')[0]) for name, tensor in value.items() if isinstance(tensor, pth_read.Tensor)}


EXPECTED = {st.f32(i): VERSIONS[name.rpartition('.')[0]] for i, name in enumerate(NAMES)}


@pytest.mark.parametrize('kind, options, runs', [
    ('trainer', ['--top-level-key=state_dict', r'--remap=^module\.=>'], [['--top-level-key=state_dict'], [r'--remap=^module\.=>']]),
    ('shared', ['--top-level-key=ema', r'--remap=^module\.=>'], [['--top-level-key=ema'], [r'--remap=^module\.=>']]),
    ('trainer', ['--top-level-key=state_dict.module'], [['--top-level-key=state_dict'], ['--top-level-key=module']]),
    ('alone', [r'--remap=^state_dict\.module\.=>'], [[r'--remap=^state_dict\.=>'], [r'--remap=^module\.=>']]),
    ('nested', [r'--remap=^a\.b\.state_dict\.module\.=>'], [['--top-level-key=a.b'], ['--top-level-key=state_dict.module']]),
    ('nested', ['--top-level-key=a', r'--remap=^b\.state_dict\.module\.=>net.'],
     [['--top-level-key=a.b.state_dict'], [r'--remap=^module\.=>net.']]),
])
def test_one_run_does_what_two_do(folder, kind, options, runs):
    source = write(folder / 'in.pth', kind)
    once = convert(source, folder / 'once.pth', *options)
    convert(source, folder / 'half.pth', *runs[0])
    twice = convert(folder / 'half.pth', folder / 'twice.pth', *runs[1])
    assert list(once) == list(twice) and 'state_dict' not in once and '_metadata' not in once
    assert pth_read.tensors(once) == pth_read.tensors(twice)
    assert versions(once) == versions(twice) and by_tensor(once) == EXPECTED


@pytest.mark.parametrize('options', [[r'--remap=^state_dict\.module\.=>'], [r'--remap=^state_dict\.module\.=>net.'],
                                     [r'--remap=^state_dict\.(module\.[^3])=>\1', r'--remap=^state_dict\.module\.3=>last']])
def test_a_dict_that_gave_everything_away_goes_and_its_versions_follow(folder, options):
    found = convert(write(folder / 'in.pth', 'trainer'), folder / 'out.pth', *options)
    assert 'state_dict' not in found and '_metadata' not in found and found['epoch'] == 3
    assert by_tensor(found) == EXPECTED


def test_dicts_of_dicts_go_too(folder):
    found = convert(write(folder / 'in.pth', 'nested'), folder / 'out.pth', r'--remap=^a\.b\.state_dict\.module\.3=>last')
    assert list(found) == ['a', 'last.conv.weight', 'last.norm.weight']
    state = found['a']['b']['state_dict']
    assert {**by_tensor(state), **by_tensor(found)} == EXPECTED
    assert not any(name.startswith('module.3') for name in versions(state))


@pytest.mark.parametrize('kind', ['flat', 'trainer', 'shared'])
@pytest.mark.parametrize('rules, moved', [
    (['module=>net'], {'module.2': 'net.2', 'module': 'net', '': ''}),
    ([r'module\.=>'], {'module.2': '2', 'module': ''}),
    ([r'module\.3\.norm=>module.norm'], {'module.2': 'module.2', 'module.3.norm': 'module.norm', 'module.3': 'module.3'}),
    ([r'module\.0=>module.x', r'module\.1=>module.0', r'module\.x=>module.1'], {'module.0': 'module.1', 'module.1': 'module.0'}),
    ([r'module\.3\.(\w+)\.weight=>module.3.\1.gamma'], {'module.3.conv': 'module.3.conv'}),
])
def test_versions_follow_the_names_of_modules(folder, kind, rules, moved):
    prefix = '' if kind == 'flat' else 'state_dict.'
    found = convert(write(folder / 'in.pth', kind), folder / 'out.pth',
                    *('--remap=^%s%s' % (prefix.replace('.', r'\.'), rule.replace('=>', '=>' + prefix)) for rule in rules))
    state = found if kind == 'flat' else found['state_dict']
    assert by_tensor(state) == EXPECTED
    assert {new: versions(state).get(new) for new in moved.values()} == {new: VERSIONS[old] for old, new in moved.items()}
    if kind == 'shared':
        assert versions(found['ema']) == VERSIONS and by_tensor(found['ema']) == EXPECTED


def test_a_prefix_and_other_rules(folder):
    source = write(folder / 'in.pth', 'flat')
    found = convert(source, folder / 'out.pth', '--remap=^=>model.')
    assert by_tensor(found) == EXPECTED and versions(found)['model.module.2'] == VERSIONS['module.2']
    found = convert(source, folder / 'out2.pth', r'--exclude=^module\.1\.', '--contiguous=on')
    assert [name for name in found if name.startswith('module.2')] == ['module.2.conv.weight', 'module.2.norm.weight']
    assert by_tensor(found).items() <= EXPECTED.items() and versions(found)['module'] == VERSIONS['module']


def test_removed_modules_go_and_untouched_tables_stay(folder):
    source = write(folder / 'in.pth', 'trainer')
    assert versions(convert(source, folder / 'same.pth')['state_dict']) == VERSIONS
    found = convert(source, folder / 'out.pth', r'--exclude=^state_dict\.module\.3\.')['state_dict']
    assert versions(found) == {name: number for name, number in VERSIONS.items() if not name.startswith('module.3')}


def test_attributes_that_are_no_versions_stay(folder):
    state = pth.ORDERED + b'(' + pth.text('m.w') + pth.tensor() + b'u' + \
        pth.dictionary(_metadata=pth.dictionary(version=pth.number(2)), note=pth.text('x')) + b'b'
    source = folder / 'in.pth'
    source.write_bytes(pth.checkpoint(pth.dictionary(state=state), r0=st.f32(1, 2, 3, 4)))
    found = convert(source, folder / 'out.pth', '--remap=^state.m=>state.n')['state']
    assert list(found) == ['n.w'] and found._metadata == {'version': 2} and found.note == 'x'
