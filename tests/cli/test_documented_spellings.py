# SPDX-License-Identifier: MIT
"""Whatever the documents, the help and the hints say can be pasted into a shell as it is: nothing in it means something to the shell."""
import os
import re
import shlex
import subprocess

import pytest

from wfs_testlib.program import ROOT, weightfs

# What starts a spelling: the program, or an option.
BEGIN = re.compile(r'(?:sudo )?(?:weightfs\s|--[a-z]|-o\s)')
# What shells do on purpose: other commands in a line, a file for the output, comments.
OTHER = re.compile(r"""^((?:'[^']*'|"[^"]*"|[^'"])*?)(?:\s(?:\||\|\||&&|\d?>>?|<|&|\#)(?:\s|$)|;(?:\s|$)).*""", re.S)
SPECIAL = set('<>|&;*?()[]{}$`\\!#~')
RECORDER = '#!/bin/sh\nprintf "%s\\0" "$@"\n'


def commands(text):
    """The commands of a line of a shell that is shown."""
    text = re.sub(r'^\s*(?:\$|#) ', '', text).strip()
    text = OTHER.sub(r'\1', text)
    text = re.sub(r'\s*\[(?:[^][]|\[[^]]*\])*\](?=\s|$)', '', text)
    text = re.sub(r'…|\.\.\.(?=$|\s)|,\.\.\.', '', text).strip()
    return [text] if BEGIN.match(text + ' ') else []


def of_markdown(path):
    text = path.read_text()
    blocks = re.findall(r'^```\w*\n(.*?)^```', text, re.M | re.S)
    for block in blocks:
        for line in re.sub(r'\\\n\s*', ' ', block).splitlines():
            yield from commands(line)
    text = re.sub(r'^```\w*\n.*?^```', '', text, flags=re.M | re.S)
    for span in re.findall(r'(?<!`)`([^`\n]+)`(?!`)', text.replace('\\|', '|')):
        yield from commands(span)


def of_manual(path):
    text = re.sub(r'\\f[BIRP]|\\&', '', path.read_text()).replace('\\-', '-').replace('\\(aq', "'").replace('\\e', '\\')
    for line in text.splitlines():
        line = re.sub(r'^\.(?:B|I|RS|RE|IP|TP|SH|PP)\b ?', '', line)
        macro = re.match(r'\.(?:BI|BR|IB|IR|RB|RI) (.*)', line)
        if macro:
            line = ''.join(part.strip('"') for part in re.findall(r'"[^"]*"|\S+', macro[1]))
        yield from commands(line)


def of_help(text):
    for line in text.splitlines():
        line = re.sub(r'\[[A-Z]+:\]', '', re.sub(r'(?<=\w)\|[\w|]+', '', line))        # what a usage leaves to choose
        option = re.match(r'  (-.*?)(?:  | [a-z]|$)', line)
        if option:
            yield from (found for part in option[1].split(', ') for found in commands(part))
        elif line.startswith('usage: '):
            yield from commands(line[7:])


def of_messages(path):
    text = re.sub(r'"\s*\n\s*"', '', path.read_text())
    for string in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text):
        string = string.replace('\\"', '"').replace('\\\\', '\\')
        string = re.sub(r'%(?:[-0-9.*]*(?:zu|llu|lu|u|d|s|c)|" *PRI\w+ *")', 'X', string)
        for quoted in re.findall(r"'((?:weightfs|--[a-z]|-o )(?:[^']|'[^ ,;]*')*)'(?=[ ,;:.)]|$)", string):
            yield from commands(quoted)


def plain(command):
    """Whether no character outside of quotes is one of the shell's."""
    bare = re.sub(r"""'[^']*'|"[^"$`\\]*"|\\.""", '', command)
    return not SPECIAL & set(bare)


def all_commands():
    for path in [ROOT / 'README.md', *sorted((ROOT / 'docs').glob('**/*.md'))]:
        for command in of_markdown(path):
            yield path.name, command
    for path in sorted((ROOT / 'docs/man').glob('*.[18]')):
        for command in of_manual(path):
            yield path.name, command
    for path in sorted((ROOT / 'src').glob('**/*.c')):
        for command in of_messages(path):
            yield path.name, command
    overview = weightfs('--help').stdout
    for verb in re.findall(r'^  ([a-z]+) ', overview.split('verbs:')[1].split('\n\n')[0], re.M):
        for command in of_help(weightfs(verb, '--help').stdout):
            yield verb + ' --help', command


FOUND = sorted(set(all_commands()))


def test_what_is_not_plain():
    for command in ('--remap a=>b', '-o remap=^a$', '--include layer.*', "weightfs ls m --where 'a && b' && rm x", '--cast (a|b):F16', '--split $x'):
        assert not plain(command), command
    assert commands('$ weightfs ls m \'a*\' > out') == ["weightfs ls m 'a*'"] and plain("weightfs ls m 'a*' \"b c\" \\*")


def test_enough_is_found():
    places = {place for place, _ in FOUND}
    assert {'README.md', 'view.md', 'weightfs.1', 'convert --help'} <= places and len(FOUND) > 200


@pytest.fixture(scope='module')
def empty(tmp_path_factory):
    tools = tmp_path_factory.mktemp('tools')
    for name in ('weightfs', 'sudo'):
        (tools / name).write_text(RECORDER)
        (tools / name).chmod(0o755)
    return tools, tmp_path_factory.mktemp('empty')


@pytest.mark.parametrize('place', sorted({place for place, _ in FOUND}))
def test_nothing_is_for_the_shell(place, empty):
    tools, folder = empty
    wrong = []
    for command in (command for found, command in FOUND if found == place):
        line = command if command.startswith(('weightfs', 'sudo')) else 'weightfs ' + command
        done = subprocess.run(['/bin/sh', '-c', line], cwd=folder, env={'PATH': str(tools)}, capture_output=True, stdin=subprocess.DEVNULL)
        arguments = done.stdout.decode().split('\0')[:-1]
        try:
            expected = shlex.split(line)[1:]
        except ValueError:
            expected = None
        if not plain(command) or arguments != expected or os.listdir(folder):
            wrong.append(command)
        for name in os.listdir(folder):
            os.unlink(folder / name)
    assert wrong == []
