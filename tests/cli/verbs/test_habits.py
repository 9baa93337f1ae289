# SPDX-License-Identifier: MIT
"""Verbs and options as they are typed in other programs: each works, or its message has the line that does, which is run."""
import re
import shlex

import numpy
import pytest

from wfs_testlib import st
from wfs_testlib.program import EXIT_FOUND, EXIT_USAGE, weightfs

# What is typed; what is to be typed.
HABITS = [
    ('rename m.safetensors a.w a.v', 'edit --rename a.w a.v m.safetensors edited.safetensors'),
    ('mv m.safetensors a b', 'edit --rename a b m.safetensors edited.safetensors'),
    ('rm m.safetensors a.w', 'edit --remove a.w m.safetensors edited.safetensors'),
    ('delete a m.safetensors new.safetensors', 'edit --remove a m.safetensors new.safetensors'),
    ('cp m.safetensors new.safetensors', 'convert m.safetensors new.safetensors'),
    ('cast f16 m.safetensors new.safetensors', 'convert --cast f16 m.safetensors new.safetensors'),
    ('cast m.safetensors new.safetensors bfloat16', 'convert --cast bfloat16 m.safetensors new.safetensors'),
    ('list mounts', 'status'),
    ('cast m.safetensors bf16', 'convert --cast bf16 m.safetensors cast.safetensors'),
    ('save m.safetensors new.pth', 'convert m.safetensors new.pth'),
    ('merge m.safetensors n.safetensors new.safetensors', 'convert --overlay n.safetensors m.safetensors new.safetensors'),
    ('merge set new.safetensors', 'convert set new.safetensors'),
    ('rm set a.w', 'edit --remove a.w set edited/'),
    ('stats m.safetensors', 'show m.safetensors'),
    ('stat m.safetensors a', 'show m.safetensors a'),
    ('hist m.safetensors a.w', 'show m.safetensors a.w'),
    ('head m.safetensors', 'show m.safetensors'),
    ('inspect m.safetensors', 'info m.safetensors'),
    ('summary --json m.safetensors', 'info --json m.safetensors'),
    ('params m.safetensors', 'info m.safetensors'),
    ('size m.safetensors', 'info m.safetensors'),
    ('count m.safetensors', 'info m.safetensors'),
    ('keys m.safetensors', 'ls m.safetensors'),
    ('list m.safetensors', 'ls m.safetensors'),
    ('tree m.safetensors', 'ls --tree m.safetensors'),
    ('metadata m.safetensors', 'info m.safetensors'),
    ('verify m.safetensors', 'check m.safetensors'),
    ('nan m.safetensors', 'check --values m.safetensors'),
    ('hash m.safetensors', 'sum m.safetensors'),
    ('compare m.safetensors n.safetensors', 'diff m.safetensors n.safetensors'),
    ('version', '--version'),
    ('grep m.safetensors a', 'find m.safetensors a'),
    ('unpack m.safetensors', 'extract m.safetensors -d tensors'),
    ('head -n 5 m.safetensors', 'show m.safetensors'),
    ('save m.safetensors', 'convert m.safetensors copy.safetensors'),
    ('help stats', 'show FILE'),
    ('ls -R m.safetensors', 'ls --tree m.safetensors'),
    ('ls -S m.safetensors', 'ls --sort=size m.safetensors'),
    ('ls -1 m.safetensors', 'ls m.safetensors'),
    ('ls -n m.safetensors', 'ls m.safetensors'),
    ('ls -n 5 m.safetensors', 'ls m.safetensors'),
    ('ls -la m.safetensors', 'ls -l m.safetensors'),
    ('ls -lS m.safetensors', 'ls -l --sort=size m.safetensors'),
    ('ls -lhR m.safetensors', 'ls -l -h m.safetensors'),
    ('sum -v m.safetensors n.safetensors', 'sum m.safetensors n.safetensors'),
    ('diff -q m.safetensors n.safetensors', 'diff m.safetensors n.safetensors'),
    ('show --hist m.safetensors a.w', 'show m.safetensors a.w'),
    ('extract -o tensors m.safetensors a', 'extract --directory tensors m.safetensors a'),
    ('find m.safetensors -name c', 'find m.safetensors c'),
    ('find -name "a.*" m.safetensors', 'find m.safetensors "a.*"'),
    ('info -v m.safetensors', 'info m.safetensors'),
    ('check -q m.safetensors', 'check m.safetensors'),
    ('convert --dtype bf16 m.safetensors new.safetensors', 'convert --cast bf16 m.safetensors new.safetensors'),
    ('convert --dtype=bfloat16 m.safetensors new.safetensors', 'convert --cast bfloat16 m.safetensors new.safetensors'),
    ('convert --bf16 m.safetensors new.safetensors', 'convert --cast=bf16 m.safetensors new.safetensors'),
    ('convert m.safetensors --half -o new.safetensors', 'convert m.safetensors --cast=f16 new.safetensors'),
    ('convert m.safetensors --output=new.safetensors -q', 'convert m.safetensors new.safetensors'),
    ('convert --shard-size 1GB m.safetensors new/ --format safetensors', 'convert --max-shard-size 1GB m.safetensors new/ --format safetensors'),
    ('convert -f m.safetensors n.safetensors', 'convert --overwrite m.safetensors n.safetensors'),
    ('edit --delete a.w m.safetensors new.safetensors', 'edit --remove a.w m.safetensors new.safetensors'),
    ('ls --filter a m.safetensors', 'ls --include a m.safetensors'),
    ('show --no-color m.safetensors', 'show --color=never m.safetensors'),
    ('config --json m.safetensors', 'config m.safetensors'),
    ('stats "of a module"', 'show "of a module"'),
]
# What works as it is typed.
WORKS = [
    'ls m.safetensors a', 'find m.safetensors a', 'show m.safetensors a', 'extract m.safetensors a -d tensors', 'edit --remove a m.safetensors new.safetensors',
    'edit --rename a b m.safetensors new.safetensors', 'convert --cast bfloat16 m.safetensors new.safetensors', 'ls -lh m.safetensors',
    'ls --sort size m.safetensors', 'help ls', '-V', '--version',
]


@pytest.fixture
def place(folder):
    a = numpy.arange(4, dtype='<f4')
    for name, more in (('m', 0), ('n', 1)):
        st.write(folder / ('%s.safetensors' % name), {'a.w': ('F32', [2, 2], (a + more).tobytes()), 'a.b': ('F32', [4], a.tobytes()), 'c': ('F32', [4], a.tobytes())})
    weightfs('convert', '--max-shard-size=16', '--format=safetensors', 'm.safetensors', 'set/', cwd=folder)
    return folder


@pytest.mark.parametrize('typed, meant', HABITS, ids=[row[0] for row in HABITS])
def test_the_message_has_the_line_that_works(place, typed, meant):
    done = weightfs(*shlex.split(typed), code=EXIT_USAGE, cwd=place)
    (line,) = re.findall(r"^weightfs: (?:no verb|unknown option) '.*?'; use 'weightfs (.*)'\n$", done.stderr)
    assert line == meant
    if 'FILE' not in line and 'of a module' not in line:
        code = EXIT_FOUND if line.startswith('diff') else 0
        assert weightfs(*shlex.split(line), code=code, cwd=place).stdout or line.startswith(('check', 'convert', 'edit', 'extract', 'status'))


def keys_of(text):
    return {key for key in ('a.w', 'a.b', 'c') if re.search(r'\b%s\b' % re.escape(key), text)}


def test_a_module_is_everything_below_it(place):
    for verb in ('ls', 'find', 'show', 'sum'):
        assert keys_of(weightfs(verb, 'm.safetensors', 'a', cwd=place).stdout) == {'a.w', 'a.b'}, verb
    st.write(place / 'other.safetensors', {key: ('F32', [1], b'abcd') for key in ('a.w', 'a.b', 'c')})
    assert keys_of(weightfs('diff', 'm.safetensors', 'other.safetensors', 'a', code=EXIT_FOUND, cwd=place).stdout) == {'a.w', 'a.b'}
    weightfs('extract', 'm.safetensors', 'a', '-d', 'tensors', cwd=place)
    assert sorted(str(path.relative_to(place / 'tensors')) for path in (place / 'tensors').rglob('*.npy')) == ['a/b.npy', 'a/w.npy']
    weightfs('edit', '--remove', 'a', 'm.safetensors', 'new.safetensors', cwd=place)
    assert keys_of(weightfs('ls', 'new.safetensors', cwd=place).stdout) == {'c'}


@pytest.mark.parametrize('typed', WORKS)
def test_it_works_as_it_is_typed(place, typed):
    weightfs(*shlex.split(typed), cwd=place)


def test_a_file_with_the_name_of_a_habit_is_a_source(place):
    (place / 'stats').write_bytes((place / 'm.safetensors').read_bytes())
    assert 'a.w' in weightfs('ls', 'stats', cwd=place).stdout
    assert 'missing MOUNTPOINT' in weightfs('stats', code=EXIT_USAGE, cwd=place).stderr


def test_options_that_need_a_value_take_the_next_word():
    """Of every verb: the value is missed, and nothing else is."""
    verbs = re.findall(r'^  ([a-z]+) ', weightfs('--help').stdout.split('verbs:')[1].split('\n\n')[0], re.M)
    n = 0
    for verb in verbs:
        text = weightfs(verb, '--help').stdout
        for option in re.findall(r'^  --([\w-]+)=\S', text, re.M):
            assert "missing value of option '--%s'" % option in weightfs(verb, '--' + option, code=EXIT_USAGE).stderr, (verb, option)
            n += 1
    assert n > 100
