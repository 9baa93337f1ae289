# SPDX-License-Identifier: MIT
"""What the program prints of names, values and metadata holds nothing that a terminal would act on."""
import json
import re

import pytest

from wfs_testlib import pth, st
from wfs_testlib.program import weightfs

EVIL = 'w\x1b[31m\x7f\x9b1m\r\n\x85\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ufeff\xe9'
ACTED_ON = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]')

VERBS = {
    'ls': ['ls'], 'ls as JSON': ['ls', '--json'], 'ls as a tree': ['ls', '--tree'], 'ls in long': ['ls', '--long'],
    'info': ['info'], 'info as JSON': ['info', '--json'], 'check': ['check'], 'check as JSON': ['check', '--json'],
    'plan': ['plan', '--remap', '1m=>2m'], 'plan as JSON': ['plan', '--json', '--remap', '1m=>2m'],
    'plan as text': ['plan', '--report', '--remap', '1m=>2m', '--format', 'burnpack'], 'config': ['config'],
}


@pytest.fixture
def evil(folder):
    """A checkpoint of each kind with such names, metadata and values."""
    st.write(folder / (EVIL.replace('/', '') + '.safetensors'), {EVIL: ('F32', [1], bytes(4)), 'a.' + EVIL: ('F32', [1], bytes(4))},
             {EVIL: EVIL, 'format': EVIL})
    value = pth.pairs((pth.text(EVIL), pth.text(EVIL)), (pth.text('state'), pth.pairs((pth.text(EVIL), pth.tensor()))))
    (folder / 'evil.pth').write_bytes(pth.checkpoint(value))
    return sorted(folder.glob('*.safetensors')) + [folder / 'evil.pth']


def demand_harmless(text):
    assert ACTED_ON.search(text) is None, ascii(text)


@pytest.mark.parametrize('verb', VERBS, ids=str)
def test_no_verb_prints_what_a_terminal_acts_on(evil, verb):
    for path in evil:
        ran = weightfs(*VERBS[verb], path, code=None)
        demand_harmless(ran.stdout + ran.stderr)


def test_diff_and_show_print_nothing_of_the_kind(evil, folder):
    other = st.write(folder / 'other.safetensors', {EVIL: ('F32', [2], bytes(8))}, {EVIL: 'x'})
    for words in (['diff', '--all', evil[0], other], ['diff', '--all', '--json', evil[0], other], ['show', evil[0], EVIL],
                  ['show', evil[0], 'a.' + EVIL + '.'], ['convert', evil[1], folder / 'made.safetensors']):
        ran = weightfs(*words, code=None)
        demand_harmless(ran.stdout + ran.stderr)


def test_values_are_the_same_JSON(evil):
    assert json.loads(weightfs('config', evil[1]).stdout)[EVIL] == EVIL


def test_a_key_without_such_characters_is_printed_as_it_is(folder):
    path = st.write(folder / 'x.safetensors', {'caf\xe9.\u4e2d\u6587.\U0001f600': ('F32', [1], bytes(4))})
    assert weightfs('ls', path).stdout.startswith('caf\xe9.\u4e2d\u6587.\U0001f600\t')
