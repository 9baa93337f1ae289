# SPDX-License-Identifier: MIT
"""JSON and CSV: every field that the verbs print is in docs/json.md, and one has the shape of many."""
import csv
import io
import json
import re

import pytest

from wfs_testlib import piped
from wfs_testlib.program import EXIT_USAGE, ROOT, weightfs

PAGE = (ROOT / 'docs/json.md').read_text()
# What is named by the checkpoint, not by us: members of these are not fields.
OPEN = {'metadata', 'dtypes', 'percentiles'}
# A field whose name the page cannot have, for the sake of its English: the list of what options decided.
NAMELESS = {'told'}
ROWS = {
    'ls': ['a.safetensors', '-l a.pth', 'a.safetensors b.safetensors', '-l --remap s/layer/x/ a.bpk', 'empty.safetensors'],
    'find': ['a.safetensors bias', '-l a.pth n'],
    'info': ['a.safetensors', 'a.pth a.bpk', 'set', 'empty.safetensors'],
    'check': ['a.safetensors', '--values a.safetensors a.pth'],
    'show': ['a.safetensors', 'a.safetensors n', '--percentiles a.pth n layer.1.weight', '--slice 0 a.bpk layer.1.weight'],
    'sum': ['a.safetensors', 'a.pth b.safetensors'],
    'diff': ['a.safetensors b.safetensors', '--long --all a.pth b.safetensors', '--stat a.safetensors b.safetensors', 'a.safetensors moved.safetensors'],
    'plan': ['a.safetensors', '--to=burn --cast F16 --remap s/layer/x/ --exclude none --values a.pth', '--like b.safetensors --partial --format=safetensors a.pth'],
    'status': [''],
}


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp('json')
    piped.write_sources(folder)
    weightfs('edit', '--rename', 'layer', 'block', folder / 'a.safetensors', folder / 'moved.safetensors')
    (folder / 'config.json').write_text('{"architectures": ["A"], "hidden_size": 8, "num_hidden_layers": 2}')
    return folder


def printed(place, verb, words):
    return json.loads(weightfs(verb, '--json', *words.split(), cwd=place, code=None, has_notices=True).stdout)


def fields(value):
    """The names of members, at any depth."""
    if isinstance(value, list):
        return set().union(*map(fields, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(set().union(*map(fields, one.values())) if name in OPEN and isinstance(one, dict) else fields(one) for name, one in value.items()))


def sections():
    """Verb -> the fields that the page names for it: those of every verb, and of its own section."""
    report = (ROOT / 'docs/view.md').read_text().split('## The report')[1].split('\n## ')[0]
    parts = re.split(r'^## (.*)\n', PAGE, flags=re.M)
    found = {}
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        for verb in re.findall('[a-z]+', title.split(':')[-1]):
            found[verb] = set(re.findall(r'`(\w+)`', parts[0] + text + (report if verb == 'plan' else '')))
    return found


@pytest.mark.parametrize('verb', ROWS)
def test_every_field_is_on_the_page(place, verb):
    known = sections()[verb]
    for words in ROWS[verb]:
        found = printed(place, verb, words)
        assert found['schema'] == 1 and list(found)[0] == 'schema'
        assert fields(found) - known - NAMELESS == set(), words


@pytest.mark.parametrize('verb, one, two', [('ls', 'a.safetensors', 'a.safetensors b.safetensors'), ('show', 'a.safetensors n', 'a.safetensors n none'),
                                            ('info', 'a.safetensors', 'a.safetensors a.pth'), ('check', 'a.safetensors', 'a.safetensors b.safetensors'),
                                            ('sum', 'a.safetensors', 'a.safetensors b.safetensors')])
def test_one_has_the_shape_of_many(place, verb, one, two):
    of_one, of_two = printed(place, verb, one), printed(place, verb, two)
    assert list(of_one) == list(of_two)
    (name,) = set(of_one) - {'schema'}
    items = [item for item in of_two[name] if item.pop('source', 'a.safetensors') == 'a.safetensors']
    assert items[:len(of_one[name])] == of_one[name] and len(of_two[name]) > len(of_one[name])


def test_ls_as_csv(place):
    rows = list(csv.DictReader(io.StringIO(weightfs('ls', '--csv', '-l', 'a.safetensors', cwd=place).stdout)))
    told = printed(place, 'ls', '-l a.safetensors')['tensors']
    assert [(row['bytes'], row['dtype'], row['offset']) for row in rows] == [(str(one['bytes']), one['dtype'], str(one['offset'])) for one in told]
    assert rows[0]['key'] == told[0]['key'] and list(rows[0]) == ['key', 'dtype', 'shape', 'bytes', 'file', 'offset', 'source_key', 'changes']
    for words in (['--json'], ['--tree'], ['-0'], ['b.safetensors']):
        weightfs('ls', '--csv', 'a.safetensors', *words, cwd=place, code=EXIT_USAGE)
