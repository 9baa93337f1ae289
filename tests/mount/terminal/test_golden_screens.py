# SPDX-License-Identifier: MIT
"""The screens of every verb for a model of 291 tensors are those of tests/data/screens, which a person has read."""
import random
import re

import pytest

from wfs_testlib import program, screens, st, terminal
from wfs_testlib.program import weightfs

WHY = 'a screen changed: run python3 -m wfs_testlib.screens in tests, and read the difference'


def test_every_verb_has_screens():
    listed = set(re.findall(r'^  ([a-z]+) ', weightfs('--help').stdout.split('verbs:')[1].split('\n\n')[0], re.M))
    shown = {words.split()[0] for words in [*screens.WITH_A_MOUNT, *screens.RECOVERY] if words[0] != '$'} | set(screens.WITHOUT_A_MOUNT)
    assert listed == shown


@pytest.mark.skipif(program.IS_INSTRUMENTED, reason='what is drawn depends on how long it takes')
@pytest.mark.parametrize('name', [*screens.WITHOUT_A_MOUNT, *screens.MOUNTED])
def test_screens_are_what_they_were(name):
    text = screens.whole(name)
    assert text == (screens.FOLDER / (name + '.txt')).read_text(), WHY
    for line, columns in re.findall(r'^(.*)$|^==== (\d+) ', text, re.M):
        assert not columns or terminal.width(line) <= int(columns)


# ---- no key is cut while a column stands that has one text in all rows ----

def table_of(lines):
    """Heading and rows, by the places of the heading; a column to the right ends where its heading does."""
    end = next(i for i, line in enumerate(lines) if line.startswith(('in all rows', 'no room')) or re.match(r'\d+ tensors', line))
    rows = [re.split(r' {2,}', line.strip()) for line in lines[:end]]
    return rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]


def checkpoint(folder, seed):
    """One whose dtypes, shapes and lengths of keys are equal, or not, by chance."""
    chance = random.Random(seed)
    dtypes = chance.choice([['F32'], ['F16', 'F32']])
    shapes = chance.choice([[[4]], [[4], [2, 300]], [[2, 2], [4]]])
    n_key = chance.choice([10, 60, 150])
    tensors = {}
    for i in range(12):
        dtype, shape = dtypes[i % len(dtypes)], shapes[i // 2 % len(shapes)]
        tensors['%s.%d.weight' % ('k' * chance.randint(5, n_key), i)] = (dtype, shape, bytes(st.size_of(dtype, shape)))
    return st.write(folder / 'm.safetensors', tensors), len(dtypes) == 1, len(shapes) == 1


@pytest.mark.parametrize('words', [['ls'], ['ls', '-l'], ['show', '--no-fold'], ['plan', '--remap', 's/kkkk/x/'], ['sum']], ids=' '.join)
@pytest.mark.parametrize('seed', range(4))
def test_what_is_equal_leaves_before_a_key_is_cut(folder, words, seed):
    path, has_one_dtype, has_one_shape = checkpoint(folder, seed)
    for columns in (30, 55, 80, 200):
        lines = terminal.screen(*words, path, columns=columns, NO_COLOR='1').lines
        heading, rows = table_of(lines)
        left = ' '.join(lines[len(rows):])
        assert ('dtype' in heading) <= (not has_one_dtype) and ('shape' in heading) <= (not has_one_shape)
        assert not has_one_dtype or 'dtype F32' in left
        for name, cells in list(zip(heading, zip(*rows, strict=True), strict=True))[1:]:
            assert len(set(cells)) > 1, '%s is equal in all rows of %s' % (name, words)
        if any('…' in row[0] for row in rows):
            least = columns * 2 // 5 + 1
            assert len(heading) == 1 or 'no room' in left or max(terminal.width(row[0]) for row in rows) >= least


@pytest.mark.parametrize('verb', ['ls', 'show', 'sum', 'plan'])
def test_keys_are_cut_where_they_can_be_told_apart(folder, verb):
    keys = ['model.a_component_of_the_model.%s_projection.weight' % name for name in 'abcdef']
    st.write(folder / 'm.safetensors', {key: ('F32', [2, 4], bytes([i] * 32)) for i, key in enumerate(keys)})
    screen = terminal.screen(verb, folder / 'm.safetensors', columns=40)
    cut = [line.split()[0] for line in screen.lines if line.startswith('model.')]
    assert len(cut) == len(set(cut)) == len(keys) and all(text.count('\u2026') == 1 for text in cut), screen.text


@pytest.mark.parametrize('words', [['ls'], ['show', '--no-fold'], ['sum'], ['diff']], ids=' '.join)
def test_keys_that_would_look_alike_are_whole(folder, words):
    keys = ['layers.%d.%s.weight' % (i, name) for i in range(12) for name in ('input_layernorm', 'post_attention_layernorm', 'mlp.up_proj', 'mlp.down_proj')]
    for i, name in enumerate('ab'):
        st.write(folder / name, {key: ('F32', [2, 4], bytes([i + 1, k, 3, 4] * 8)) for k, key in enumerate(keys)})
    sources = [folder / 'a', folder / 'b'] if words == ['diff'] else [folder / 'a']
    found = [line.split()[0] for line in terminal.screen(*words, *sources, columns=40, code=None, NO_COLOR='1').lines if line.startswith('layers.')]
    assert len(found) == len(set(found)) == len(keys), found
    assert all(text in keys or text.count('\u2026') == 1 for text in found)
