# SPDX-License-Identifier: MIT
"""The comparison of two programs: it finds nothing in a program and itself, and a single byte that differs."""
import os
import re
import subprocess
import sys

import pytest

from wfs_testlib.program import BUILD, ROOT

PROGRAM = BUILD / 'src' / 'weightfs'
SAMPLE = ROOT / 'tests' / 'data' / 'sample' / 'encoder.safetensors'

# What a program does that is not quite the other one: its verb, and what is run after it.
PLANTED = {
    'a byte of standard output': ('info', '"$program" "$@" | tr s S', 'stdout:'),
    'a line of standard error': ('sum', '"$program" "$@"; code=$?; echo "weightfs: note" >&2; exit $code', 'stderr:'),
    'an exit code': ('config', '"$program" "$@"; exit 1', 'exit code 0, then 1'),
    'a byte of a file': ('convert', '"$program" "$@" && printf x | dd of="$3" bs=1 seek=200 conv=notrunc status=none', 'output out.safetensors:'),
    'a file too many': ('edit', '"$program" "$@"; code=$?; touch more; exit $code', 'output more: nothing, then'),
}


def compare(*words):
    return subprocess.run([sys.executable, '-B', ROOT / 'tools' / 'compare_programs', *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)


@pytest.mark.usefixtures('among_mounts')
def test_a_program_is_equal_to_itself():
    done = compare(PROGRAM, PROGRAM, SAMPLE, '--edits', 2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r'edits: seed 1.*\n\d\d commands, 0 differ\n', done.stdout)


@pytest.mark.parametrize('verb, script, expected', PLANTED.values(), ids=list(PLANTED))
def test_a_program_that_differs_in_one_thing_is_found(folder, verb, script, expected):
    other = folder / 'other'
    other.write_text('#!/bin/sh\nprogram=%s\nif [ "$1" = %s ] && [ "$2" != --help ]; then\n%s\nelse exec "$program" "$@"; fi\n' % (PROGRAM, verb, script))
    other.chmod(0o755)
    done = compare(PROGRAM, other, SAMPLE, *(['--only-edits', '--edits', '3'] if verb == 'edit' else []))
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r'^(weightfs|edits \S+: weightfs) %s .*: %s' % (verb, re.escape(expected)), done.stdout, re.M), done.stdout
    *lines, summary = done.stdout.splitlines()
    lines = [line for line in lines if not line.startswith('edits: ')]
    assert re.fullmatch(r'\d+ commands, %d differ' % len(lines), summary)


@pytest.mark.usefixtures('among_mounts')
@pytest.mark.skipif(not os.access('/dev/fuse', os.W_OK), reason='there is no /dev/fuse')
def test_a_commit_that_differs_is_found(folder):
    other = folder / 'other'
    other.write_text('#!/bin/sh\n%s "$@"\ncode=$?\n[ "$1" != umount ] || printf x >>out.safetensors\nexit $code\n' % PROGRAM)
    other.chmod(0o755)
    done = compare(PROGRAM, other, SAMPLE, '--only-edits', '--edits', '12')
    assert re.search(r'^edits \S+ in a mount of .*: output out\.', done.stdout, re.M), done.stdout + done.stderr


def test_a_program_that_is_not_there_is_reported(folder):
    done = compare(PROGRAM, folder / 'none')
    assert done.returncode == 2 and 'there is no %s' % (folder / 'none') in done.stderr
