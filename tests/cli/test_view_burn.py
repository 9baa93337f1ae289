# SPDX-License-Identifier: MIT
"""What Burn loads and writes under its options, from the real Burn: an optional folder of test data.

`like=` stands for the module of a case. What Burn's options are called here: OPTIONS below. Not compared: results of
a collision, which Burn decides at random (here an error), predicates (Rust functions), invalid regexes in filters (Burn
ignores them or panics; here an error), and what Burn's module held before a step that does not fill all of it."""
import hashlib
import json
import re

import pytest

from wfs_testlib import program, shared

CASES = shared.FOLDER / 'golden/burn/cases'
VERSION = '0.22.1'
SUFFIXES = {'pytorch': ['pth', 'pt'], 'safetensors': ['safetensors'], 'burnpack': ['bpk']}
RANDOM = {'case-03-remap-collision', 'case-04-contiguous-odd'}

pytestmark = pytest.mark.skipif(not shared.IS_THERE, reason=shared.WHY_NOT)


def cases():
    return sorted(path.name for path in CASES.glob('case-*')) if shared.IS_THERE else []


def read(name):
    case = json.loads((CASES / name / 'case.json').read_text())
    expected = json.loads((CASES / name / ('expected-%s.json' % VERSION)).read_text())
    return case, list(zip(case['steps'], expected['steps']))


def dtype_of(name):
    return {'Bool(Native)': 'BOOL', 'Bool(U8)': 'BOOL'}.get(name, name)


KNOWN = ('Linear|LayerNorm|BatchNorm|GroupNorm|RmsNorm|InstanceNorm|PRelu|Embedding|Conv[123]d|ConvTranspose[123]d|'
         'DeformConv2d')


def short_of(key):
    """Without enum variants."""
    first, *inner = key.split('.')
    inner, last = inner[:-1], inner[-1:]
    return '.'.join([first, *(s for s in inner if not re.fullmatch('[A-Z].*[a-z].*', s)), *last])


def class_options(case, is_variant_free):
    """The types of the modules, which Burn knows from the program: Struct:NAME does exactly what Burn does."""
    result = {}
    for entry in case['module']:
        types = [name for name in entry['containers'].split('.') if ':' in name]
        kind, _, name = types[-1].partition(':') if types else ('', '', '')
        path = short_of(entry['path']) if is_variant_free else entry['path']
        is_known = kind == 'Struct' and re.fullmatch(KNOWN, name)
        result[path.rpartition('.')[0]] = types[-1] if is_known else 'Other'
    return [x for path, name in result.items() for x in ('--class', '^%s$=>%s' % (re.escape(path), name))]


def filter_options(step):
    """None where the filter cannot be said."""
    wanted = step['options'].get('filter') or {}
    if 'predicate' in wanted or any('(' in text and ')' not in text for text in wanted.get('regex', [])):
        return None
    if wanted.get('match_all'):
        return []
    return [*(x for name in ('regex', 'regexes') for text in wanted.get(name, []) for x in ('--include', text)),
            *(x for name in ('full_path', 'full_paths') for text in wanted.get(name, []) for x in ('--key', text))]


def key_options(step):
    options = step['options']
    is_contiguous = options.get('map_indices_contiguous', step['store'] == 'pytorch')
    result = ['--contiguous', 'on' if is_contiguous and step['store'] != 'burnpack' else 'off']
    if 'top_level_key' in options:
        result += ['--top_level_key', options['top_level_key']]
    for pattern, replacement in options.get('remap', []):
        result += ['--remap', '%s=>%s' % (pattern, replacement)]
    for text in options.get('map_indices_contiguous_except', []):
        result += ['--contiguous-except', text]
    return result


def path_of(name, step):
    """The input of a step; None when an earlier step of Burn did not write it."""
    file = step['file']
    path = CASES / name / ('out-%s' % VERSION) / file[1:] if file.startswith('@') else CASES / name / file
    return path if path.exists() else None


def like_of(case):
    return CASES / ('case-00-model-%s' % case['model']) / ('out-%s' % VERSION) / 'model.bpk'


def digest(path, options, key):
    data = program.weightfs('cat', *options, path, key).raw
    return hashlib.sha256(data).hexdigest()


def check_tensors(path, options, wanted):
    listed = json.loads(program.weightfs('ls', '--json', *options, path).stdout)['tensors']
    have = {t['key']: (t['dtype'], t['shape']) for t in listed}
    assert have == {t['name']: (dtype_of(t['dtype']), t['shape']) for t in wanted}
    for tensor in wanted:
        assert digest(path, options, tensor['name']) == tensor['sha256'], tensor['name']


def is_plain_listing(expected):
    tensors = expected.get('tensors')
    return isinstance(tensors, list) and all('sha256' in t and 'name' in t for t in tensors)


@pytest.mark.parametrize('name', cases())
def test_keys_are_those_of_direct_access(name):
    if name in RANDOM:
        pytest.skip('Burn decides a collision at random')
    case, steps = read(name)
    for step, expected in steps:
        path = path_of(name, step) if step['do'] == 'keys' else None
        if path is None or not is_plain_listing(expected) or any('\0' in t['name'] for t in expected['tensors']):
            continue  # a key with a NUL refuses the file here
        check_tensors(path, key_options(step), expected['tensors'])


def load_options(step, case):
    """None where the adapter or the filter cannot be said."""
    chosen = filter_options(step)
    options = step['options']
    adapter = {None: 'none', 'torch2burn': 'burn', 'burn2torch': 'torch'}.get(options.get('from_adapter'))
    is_variant_free = options.get('skip_enum_variants', step['store'] == 'pytorch')
    if chosen is None or adapter is None:
        return None
    is_variant_free = is_variant_free and step['store'] != 'burnpack'
    return [*key_options(step), *chosen, '--like', like_of(case), '--to', 'burn' if step['store'] == 'pytorch' else adapter,
            *class_options(case, is_variant_free), *(['--drop_variants', 'auto'] if is_variant_free else []),
            *(['--partial'] if options.get('allow_partial') else [])]


def check_report(report, result):
    for name in ('applied', 'skipped', 'unused'):
        assert sorted(report[name]) == sorted(result[name]), name
    missing = [x['path'] if isinstance(x, dict) else x[0] if isinstance(x, list) else x for x in result['missing']]
    assert sorted(x['key'] for x in report['missing']) == sorted(missing)
    wrong = [re.search("'([^']*)'", text)[1] for text in result['errors']]
    assert [x['tensor'] for x in report['errors']] == wrong
    assert report['is_success'] == result['is_success']


def suggestions_of(display):
    """[(missing, suggestion)] of the printed form."""
    pairs, last = {}, None
    for line in display.splitlines():
        bullet = re.search(r'•\s+(\S+)', line)
        hint = re.search(r"Did you mean[^'`]*['`]([^'`]+)['`]", line, re.IGNORECASE)
        if hint and last:
            pairs[last] = hint[1]
        last = bullet[1].strip("'`") if bullet else last
    return pairs


def check_suggestions(report, printed):
    suggestions = {x['key']: x['suggestion'] for x in report['missing']}
    for key, suggestion in suggestions_of(printed).items():
        assert suggestions[key] == suggestion


def test_the_printed_form_has_suggestions():
    _, steps = read('case-08-did-you-mean')
    assert len(suggestions_of(steps[0][1]['apply_result']['error'])) > 4


@pytest.mark.parametrize('name', cases())
def test_loading_gives_what_burn_gives(name):
    if name in RANDOM:
        pytest.skip('Burn decides a collision at random')
    case, steps = read(name)
    for step, expected in steps:
        path = path_of(name, step) if step['do'] == 'load' else None
        options = load_options(step, case) if path is not None else None
        result = expected.get('apply_result')
        if options is None or not isinstance(result, dict):
            continue
        if 'filter' in step['options'] and not step['options']['filter'] and step['store'] == 'burnpack':
            continue  # an empty filter of Burnpack matches nothing, silently
        if '.' in step['options'].get('top_level_key', '') or path.suffix[1:] not in SUFFIXES[step['store']]:
            continue  # a dotted path is followed here, and the format told by content
        done = program.weightfs('plan', '--json', *options, path, code=None)
        if 'error' in result:
            assert done.code == program.EXIT_RULES, (step, result['error'])
            if done.raw:
                check_suggestions(json.loads(done.stdout), result['error'])
            continue
        report = json.loads(done.stdout)
        check_report(report, result)
        check_suggestions(report, result['display'])
        if done.code == 0:
            applied = set(report['applied'])
            name_of = short_of if '--drop_variants' in options else str
            check_loaded(path, options, [t for t in expected['module_after'] if name_of(t['name']) in applied])


def check_loaded(path, options, wanted):
    check_tensors(path, options, wanted)
    listed = program.weightfs('ls', *options, path).stdout.splitlines()
    order = [line.split('\t')[0] for line in listed]
    assert set(order) == {t['name'] for t in wanted}


def test_the_complete_migration_in_one_line(tmp_path):
    name = 'case-12-migration'
    case, steps = read(name)
    load, save = steps[1][0], steps[3][1]
    options = load_options(load, case)
    target = tmp_path / 'migrated.bpk'
    program.weightfs('convert', *options, CASES / name / load['file'], target)
    encoder = [t for t in save['tensors'] if t['name'].startswith('encoder.')]
    check_tensors(target, [], encoder)


@pytest.mark.parametrize('name', [case for case in cases() if '-02-' in case or '-00-' in case])
def test_what_burn_writes_for_torch(name):
    """Fresh modules saved with the PyTorch adapter."""
    case, steps = read(name)
    is_fresh = True
    for step, expected in steps:
        is_fresh = step['do'] == 'reset' or (is_fresh and step['do'] != 'load')
        options = step.get('options', {})
        if step['do'] != 'save' or not is_fresh or set(options) - {'to_adapter', 'overwrite', 'metadata'}:
            continue
        written = CASES / name / ('out-%s' % VERSION) / step['file']
        adapter = {None: 'none', 'burn2torch': 'torch'}.get(options.get('to_adapter'))
        if adapter is None or not written.exists():
            continue
        wanted = json.loads(program.weightfs('ls', '--json', written).stdout)['tensors']
        options = ['--to', adapter, *(class_options(case, False) if adapter == 'torch' else [])]
        have = json.loads(program.weightfs('ls', '--json', *options, like_of(case)).stdout)['tensors']
        assert {t['key']: t for t in have} == {t['key']: t for t in wanted}
        for tensor in wanted:
            assert digest(like_of(case), options, tensor['key']) == digest(written, [], tensor['key'])


def test_evidence_alone_adapts_the_complete_model():
    """No class= and no like=: what the file shows is enough, instance norms (renamed here) and odd names aside."""
    name = 'case-01-torch2burn-pth-complete'
    case, steps = read(name)
    step, expected = next((s, e) for s, e in steps if s['do'] == 'load')
    path = path_of(name, step)
    rows = [line.split('\t') for line in program.weightfs('plan', '--to', 'burn', path).stdout.splitlines()[1:]]
    have = {row[1]: (row[2], json.loads(row[3])) for row in rows if row[5] == 'certain'}
    wanted = {t['name']: (dtype_of(t['dtype']), t['shape']) for t in expected['module_after']}
    checked = [key for key in have if key in wanted]
    assert len(checked) > 20
    for key in checked:
        assert have[key] == wanted[key], key
        assert digest(path, ['--to', 'burn'], key) == {t['name']: t['sha256'] for t in expected['module_after']}[key], key
