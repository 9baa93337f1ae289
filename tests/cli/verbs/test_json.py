# SPDX-License-Identifier: MIT
"""JSON and CSV: every field that the verbs print is in docs/json.md, and one has the shape of many."""
import csv
import io

import pytest

from wfs_testlib import json_page, piped
from wfs_testlib.program import EXIT_USAGE, weightfs

# Verbs with one section of the page, and its fields that need other sources than these.
SECTIONS = [(['ls', 'find', 'show', 'sum'], {'role', 'scale', 'quantization'}), (['info', 'check'], set()), (['diff'], set())]
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
    'convert': ['a.pth new.safetensors', 'a.safetensors new/'],
    'edit': ['a.safetensors e.safetensors --remove n --add s=s.npy --set-metadata x=y'],
    'extract': ['a.safetensors -d out'],
    'patch': ['make a.safetensors b.safetensors p.safetensors', 'show p.safetensors', 'apply p.safetensors a.safetensors patched.safetensors'],
    'cache': ['clear empty'],
    'recover': ['.'],
}


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp('json')
    piped.write_sources(folder)
    weightfs('edit', '--rename', 'layer', 'block', folder / 'a.safetensors', folder / 'moved.safetensors')
    (folder / 'config.json').write_text('{"architectures": ["A"], "hidden_size": 8, "num_hidden_layers": 2}')
    return folder


def printed(place, verb, words):
    return json_page.printed(verb, *words.split(), cwd=place)


@pytest.mark.parametrize('verb', ROWS)
def test_every_field_is_on_the_page(place, verb):
    for words in ROWS[verb]:
        printed(place, verb, words)


@pytest.mark.parametrize('verbs, elsewhere', SECTIONS, ids=['tensors', 'checkpoints', 'diff'])
def test_every_field_of_the_page_is_printed(place, verbs, elsewhere):
    found = set().union(*(json_page.fields(printed(place, verb, words)) for verb in verbs for words in ROWS[verb]))
    assert json_page.promised(verbs[0]) - found == elsewhere


def test_every_verb_that_prints_has_it():
    assert json_page.verbs() - json_page.WITHOUT == set(ROWS) | {'commit', 'discard', 'umount'}


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
