# SPDX-License-Identifier: MIT
"""Time and memory of every verb are bounded by the bytes of the file, whatever the file claims."""
import json
import signal
import subprocess
import time

import pytest

from wfs_testlib import bounds, program
from wfs_testlib.mount import wait_for
from wfs_testlib.pth import checkpoint, pairs, tensor, text


def judge(commands):
    commands = list(commands)
    bad = [(program.show(command), found) for command, found in zip(commands, bounds.measure(commands)) if not bounds.is_within(*found)]
    assert not bad, '\n'.join('%s: exit code %d, %.1f s, %d bytes' % (command, *found) for command, found in bad)


@pytest.mark.parametrize('path', bounds.slow_files(), ids=lambda path: path.name)
def test_the_main_verbs_end_soon_on_a_slow_file(folder, path):
    judge(bounds.brief_commands_of(path, folder))


def test_the_main_verbs_end_soon_on_every_rejected_file(folder):
    judge(command for path in bounds.reject_files() for command in bounds.brief_commands_of(path, folder))


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
    found = json.loads(program.weightfs('check', '--json', folder / 'a.pth', code=program.EXIT_FOUND).stdout)['findings']
    assert any('duplicate' in finding['text'] for finding in found)
