# SPDX-License-Identifier: MIT
"""What Burn loads and writes under its options, from the real Burn: an optional folder of test data.

`like=` stands for the module of a case. What Burn's options are called here: the functions below that end in _options. Not
compared, on purpose:

- results of a collision, which Burn decides at random (here an error);
- predicates (Rust functions), and invalid regexes in filters (Burn ignores them or panics; here an error);
- what Burn's module held before a step that does not fill all of it;
- an empty filter of a .bpk, which shows nothing (here: everything), and a filter that leaves nothing (here an error);
- the half-precision adapter told to forget a module that it does not know (Burn panics; here it is a list of casts).

Burn saves in the order adapter, filter, remap, where the passes here have the adapter last: so each save is two conversions."""
import functools
import hashlib
import json
import re

import pytest

from wfs_testlib import burnpack, program, shared, st

# Rules that are for another case of the same program match nothing in this one.
weightfs = functools.partial(program.weightfs, has_notices=True)
CASES = shared.FOLDER / 'golden/burn/cases'
VERSION = '0.22.1'
SUFFIXES = {'pytorch': ['pth', 'pt'], 'safetensors': ['safetensors'], 'burnpack': ['bpk']}
RANDOM = {'case-03-remap-collision', 'case-04-contiguous-odd'}

pytestmark = pytest.mark.skipif(not shared.IS_THERE, reason=shared.WHY_NOT)


def cases():
    return sorted(path.name for path in CASES.glob('case-*')) if shared.IS_THERE else []


def read(name):
    case = {**json.loads((CASES / name / 'case.json').read_text()), 'name': name}
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


HALVED = ['Linear', 'Embedding', 'Conv1d', 'Conv2d', 'Conv3d', 'ConvTranspose1d', 'ConvTranspose2d', 'ConvTranspose3d', 'DeformConv2d',
          'LayerNorm', 'GroupNorm', 'InstanceNorm', 'RmsNorm', 'PRelu']
OTHER_HALF = {'F32': 'F16', 'F16': 'F32'}


def halved_types(text):
    """'half add A, B; remove C' as a set of 'Struct:A'."""
    types = {'Struct:' + name for name in HALVED}
    for change in filter(None, re.sub('^half *', '', text).split('; ')):
        verb, names = change.split(' ', 1)
        names = {name if ':' in name else 'Struct:' + name for name in names.split(', ')}
        types = types | names if verb == 'add' else types - names
    return types


def half_options(case, text, dtypes):
    """One cast a tensor: dtypes are those of the source by its keys, as the module has them."""
    types, result = halved_types(text), []
    for entry in case['module']:
        held = [name for name in entry['containers'].split('.') if ':' in name]
        to = OTHER_HALF.get(dtypes.get(entry['path']))
        if held and held[-1] in types and to:
            parent, _, leaf = entry['path'].rpartition('.')
            twin = {'gamma': 'weight', 'beta': 'bias'}.get(leaf, leaf)
            result += ['--cast', r'^%s\.(%s|%s)$=>%s' % (re.escape(parent), leaf, twin, to)]
    return result


def adapter_options(case, text, dtypes, is_variant_free=False):
    """An adapter, or a chain of them; None when it cannot be said."""
    result, to = [], 'none'
    for part in (text or '').split(' then '):
        if part in ('torch2burn', 'burn2torch'):
            to = 'burn' if part == 'torch2burn' else 'torch'
        elif part.startswith('cast '):
            result += ['--cast', part[5:]]
        elif part.startswith('half') and 'Missing' not in part:
            result += half_options(case, part, dtypes)
        elif part:
            return None
    return ['--to', to, *(class_options(case, is_variant_free) if to != 'none' else []), *result]


def dtypes_in(path, *options):
    listed = json.loads(weightfs('ls', '--json', *options, path).stdout)['tensors']
    return {tensor['key']: tensor['dtype'] for tensor in listed}


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
    data = weightfs('cat', *options, path, key).raw
    return hashlib.sha256(data).hexdigest()


def check_tensors(path, options, wanted):
    listed = json.loads(weightfs('ls', '--json', *options, path).stdout)['tensors']
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
    text = 'torch2burn' if step['store'] == 'pytorch' else options.get('from_adapter')
    is_variant_free = options.get('skip_enum_variants', step['store'] == 'pytorch') and step['store'] != 'burnpack'
    path = path_of(case['name'], step)
    dtypes = {}
    if 'half' in (text or ''):
        # The file may have the names of the other side.
        dtypes = dtypes_in(path)
        dtypes.update({re.sub('weight$', 'gamma', re.sub('bias$', 'beta', key)): dtype for key, dtype in dtypes.items()})
    adapter = adapter_options(case, text, dtypes, is_variant_free)
    if chosen is None or adapter is None:
        return None
    classes = class_options(case, is_variant_free) if adapter[1] == 'none' else []
    return [*key_options(step), *chosen, '--like', like_of(case), *adapter, *classes,
            *(['--drop_variants', 'auto'] if is_variant_free else []), *(['--partial'] if options.get('allow_partial') else [])]


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
        done = weightfs('plan', '--json', *options, path, code=None)
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
    listed = weightfs('ls', *options, path).stdout.splitlines()
    order = [line.split('\t')[0] for line in listed]
    assert set(order) == {t['name'] for t in wanted}


def test_the_complete_migration_in_one_line(tmp_path):
    name = 'case-12-migration'
    case, steps = read(name)
    load, save = steps[1][0], steps[3][1]
    options = load_options(load, case)
    target = tmp_path / 'migrated.bpk'
    weightfs('convert', *options, CASES / name / load['file'], target)
    encoder = [t for t in save['tensors'] if t['name'].startswith('encoder.')]
    check_tensors(target, [], encoder)


def content_of(path):
    if path.suffix == '.safetensors':
        return {key: (dtype, shape, bytes(data)) for key, (dtype, shape, data) in st.read(path).tensors.items()}
    return {key: (tensor.name, tensor.shape, tensor.data) for key, tensor in burnpack.read(path).tensors.items()}


def fresh_saves(case, steps):
    """Those before which nothing was loaded."""
    is_fresh = True
    for step, expected in steps:
        is_fresh = step['do'] == 'reset' or (is_fresh and step['do'] != 'load')
        if step['do'] == 'save' and is_fresh and expected.get('result') == 'ok' and not step.get('keep_existing'):
            yield step


def save_options(step):
    """What follows the adapter; None when it cannot be said."""
    options, chosen = step['options'], filter_options(step)
    is_burnpack = step['store'] == 'burnpack'
    if chosen is None or (is_burnpack and options.get('filter') == {}) or set(options) - {
            'to_adapter', 'overwrite', 'metadata', 'clear_metadata', 'filter', 'remap', 'skip_enum_variants', 'auto_extension'}:
        return None
    if is_burnpack:
        return [chosen]  # it does not look at the others
    renames = [x for pattern, text in options.get('remap', []) for x in ('--remap', '%s=>%s' % (pattern, text))]
    return [chosen, [*renames, *(['--drop_variants', 'auto'] if options.get('skip_enum_variants') else [])]]


COMPARED = {'case-02-burn2torch-save': 1, 'case-03-remap-save': 3, 'case-05-enum-save': 4, 'case-06-filter-save': 20, 'case-09-half-save': 8}


@pytest.mark.parametrize('name', cases())
def test_saving_gives_what_burn_writes(name, tmp_path):
    """Fresh modules, saved with adapters, filters, remaps and without enum variants."""
    case, steps = read(name)
    model, n_compared = like_of(case), 0
    for step in fresh_saves(case, steps) if model.exists() else ():
        written = CASES / name / ('out-%s' % VERSION) / step.get('written_as', step['file'])
        adapter = adapter_options(case, step['options'].get('to_adapter'), dtypes_in(model))
        passes = save_options(step)
        if adapter is None or passes is None or written.suffix not in ('.bpk', '.safetensors') or not written.exists():
            continue
        at, wanted = model, content_of(written)
        for i, options in enumerate([adapter, *passes]):
            target = tmp_path / ('%d%s' % (i, written.suffix))
            done = weightfs('convert', '--overwrite', *options, at, target, code=None)
            at = target
            if done.code != 0:
                break
        assert (done.code == program.EXIT_RULES and options == passes[0]) if not wanted else done.code == 0, (step, done.stderr)
        if wanted:
            assert content_of(target) == wanted, step
        n_compared += 1
    assert n_compared >= COMPARED.get(name, 0)


def test_rounding_to_half_precision(tmp_path):
    """Values at the edges of each type, as Burn rounds them when it saves."""
    name = 'case-09-half-rounding'
    case, steps = read(name)
    source = CASES / name / 'edge.safetensors'
    saves = [step for step, _ in steps if step['do'] == 'save']
    for step in saves:
        adapter = adapter_options(case, step['options']['to_adapter'], dtypes_in(source))
        target = tmp_path / step['file']
        weightfs('convert', *adapter, *filter_options(step), source, target)
        assert content_of(target) == content_of(CASES / name / ('out-%s' % VERSION) / step['file'])
    assert len(saves) == 3


def test_evidence_alone_adapts_the_complete_model():
    """No class= and no like=: what the file shows is enough, instance norms (renamed here) and odd names aside."""
    name = 'case-01-torch2burn-pth-complete'
    case, steps = read(name)
    step, expected = next((s, e) for s, e in steps if s['do'] == 'load')
    path = path_of(name, step)
    rows = [line.split('\t') for line in weightfs('plan', '--to', 'burn', path).stdout.splitlines()[1:]]
    have = {row[1]: (row[2], json.loads(row[3])) for row in rows if row[5] == 'certain'}
    wanted = {t['name']: (dtype_of(t['dtype']), t['shape']) for t in expected['module_after']}
    checked = [key for key in have if key in wanted]
    assert len(checked) > 20
    for key in checked:
        assert have[key] == wanted[key], key
        assert digest(path, ['--to', 'burn'], key) == {t['name']: t['sha256'] for t in expected['module_after']}[key], key
