# SPDX-License-Identifier: MIT
"""Time and memory of every verb are bounded by the bytes of the file, whatever the file claims."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from wfs_testlib import bounds, mpk, program
from wfs_testlib.mount import wait_for
from wfs_testlib.pth import checkpoint, pairs, tensor, text


def judge(commands):
    """Returns the exit codes."""
    commands = list(commands)
    measured = bounds.measure(commands)
    bad = [(program.show(command), found) for command, found in zip(commands, measured) if not bounds.is_within(*found)]
    assert not bad, '\n'.join('%s: exit code %d, %.1f s, %d bytes' % (command, *found) for command, found in bad)
    return [code for code, *_ in measured]


@pytest.mark.parametrize('path', bounds.slow_files(), ids=lambda path: path.name)
def test_the_main_verbs_end_soon_on_a_slow_file(folder, path):
    judge(bounds.brief_commands_of(path, folder))


def test_the_main_verbs_end_soon_on_every_rejected_file(folder):
    """Where `check` cannot load a file, no verb does more than to try: the others are for those that it can."""
    of_files = [bounds.brief_commands_of(path, folder) for path in bounds.reject_files()]
    codes = judge(check for _, check, *_ in of_files)
    judge(command for (ls, _, *others), code in zip(of_files, codes) if code in (program.EXIT_DONE, program.EXIT_FOUND) for command in (ls, *others))


@pytest.mark.slow
@pytest.mark.parametrize('path', [*bounds.slow_files(), *bounds.reject_files()], ids=lambda path: path.parent.name + '-' + path.name)
def test_every_verb_ends_soon_on_a_hostile_file(folder, path):
    judge(bounds.commands_of(path, folder))


@pytest.mark.parametrize('name, more', [('out.pth', []), ('out.safetensors', []), ('out.bpk', ['--cast=huge=>F16'])])
def test_a_conversion_ends_at_a_signal(folder, name, more):
    """Also while it computes the checksum of a tensor, before the first byte of it is written."""
    path = bounds.huge(folder / 'a.safetensors', 8 << 30)
    took = []
    for _ in range(3):
        process = subprocess.Popen([*program.COMMAND, 'convert', *more, path, folder / name], stdout=subprocess.DEVNULL)
        wait_for(lambda: process.poll() is not None or bounds.used_seconds(process.pid) > 0.1, 'the conversion to work')
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
        took.append(time.monotonic() - began)
        assert sorted(file.name for file in folder.iterdir()) == ['a.safetensors']
    assert min(took) < 0.5, took


def test_long_keys_are_equal_only_when_all_of_them_is(folder):
    """They are found by their ends, which are the same here."""
    keys = ['a' * 5000 + middle + 'a' * 5000 for middle in '123']
    items = [(text(key), tensor()) for key in [*keys, keys[1]]]
    (folder / 'a.pth').write_bytes(checkpoint(pairs(*items), r0=bytes(16)))
    assert list(program.listing(folder / 'a.pth')) == keys
    found = json.loads(program.weightfs('check', '--json', folder / 'a.pth', code=program.EXIT_FOUND).stdout)['sources'][0]['findings']
    assert any('duplicate' in finding['text'] for finding in found)


def source_of(form, folder):
    """A checkpoint with a hole of some GiB; a directory in the distributed format is written, and smaller."""
    if form == 'mpk':
        n = (1 << 32) - 4
        mark = b'the hole'
        whole = mpk.pack(mpk.record({'huge': mpk.param(1, mpk.tensor(mpk.Raw(mark), [n // 4])), 'small': mpk.param(2, mpk.tensor(bytes(16), [4]))}))
        before, after = whole.split(mark)
        with open(path := folder / 'a.mpk', 'wb') as file:
            file.write(before + b'\xc6' + n.to_bytes(4, 'big'))
            file.seek(n, os.SEEK_CUR)
            file.write(after)
        return path
    path = bounds.huge(folder / 'a.safetensors', (1 << 30) if form == 'dcp' else (8 << 30))
    if form == 'dcp':
        program.weightfs('convert', '--format=dcp', path, '%s/a.dcp/' % folder)
        path.unlink()
    return folder / 'a.dcp' if form == 'dcp' else path


STOPPED = {
    'check': ['check', '--values', '{}'], 'sum': ['sum', '{}'], 'diff': ['diff', '{}', '{}'], 'patch make': ['patch', 'make', '{}', '{}', 'out'],
    'extract': ['extract', '{}', '-d', 'out'], 'show': ['show', '--percentiles', '{}', 'huge'], 'plan': ['plan', '--values', '--cast=F16', '{}'],
    'patch apply': ['patch', 'apply', 'p', '{}', 'out.safetensors'],
}


@pytest.mark.parametrize('form, verb', [pytest.param(form, verb, id='%s-%s' % (form, verb), marks=[] if (form, verb) in (('mpk', 'check'), ('safetensors', 'sum')) else pytest.mark.slow)
                                        for form in ('safetensors', 'mpk', 'dcp') for verb in STOPPED])
def test_a_verb_that_reads_for_long_ends_at_a_signal(folder, form, verb):
    path = source_of(form, folder)
    if verb == 'patch apply':
        program.weightfs('convert', '--include=small', path, folder / 'few.safetensors')
        program.weightfs('convert', '--remap=small=>other', folder / 'few.safetensors', folder / 'renamed.safetensors')
        program.weightfs('patch', 'make', folder / 'few.safetensors', folder / 'renamed.safetensors', folder / 'p')
    before = sorted(os.listdir(folder))
    command = [*program.COMMAND, *(part.format(path) for part in STOPPED[verb])]
    took = []
    for _ in range(3):
        shutil.rmtree(folder / 'out', ignore_errors=True)
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: process.poll() is not None or bounds.used_seconds(process.pid) > 0.1, 'the verb to work')
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
        took.append(time.monotonic() - began)
    assert min(took) < 0.5, took
    done = ['out'] if verb == 'extract' and (folder / 'out').exists() else []  # files that were extracted before
    assert sorted(os.listdir(folder)) == sorted(before + done) and (not done or os.listdir(folder / 'out') in ([], ['small.npy']))
