# SPDX-License-Identifier: MIT
"""Standard output that cannot be written: the verbs for mounts report it, and have done what they were asked to do."""
import re
import subprocess

import pytest

from wfs_testlib import piped, program, st
from wfs_testlib.mount import is_alive, wait_for
from wfs_testlib.program import EXIT_COMMIT

MESSAGE = 'weightfs: standard output: cannot write: No space left on device\n'


def run(folder, *words):
    with open('/dev/full', 'wb') as full:
        done = subprocess.run([*program.COMMAND, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
                              timeout=program.PATIENCE, check=False, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize('name, make, output', [('mount', piped.text_with_a_mount, 'out.safetensors'), ('recovery', piped.text_of_recovery, 'm.safetensors')],
                         ids=['mount', 'recovery'])
def test_a_full_disk_is_reported_by_verbs_for_mounts(folder, name, make, output):
    kept = dict(enumerate(re.split(r'^(?=\$ )', (piped.FOLDER / (name + '.txt')).read_text(), flags=re.M)))
    verbs = iter(block for block in kept.values() if block.startswith('$ weightfs '))

    def of_step(where, verb, words):
        head, shown, code = re.fullmatch(r'\$ weightfs (.*)\n((?:.|\n)*?)(?:exit code (\d+)\n)?\n', next(verbs)).groups()
        assert head == '%s %s' % (verb, words)
        found = run(where, verb, *words.split())
        if code is None or shown:
            assert found[0] == (EXIT_COMMIT if shown else 0) and found[1].endswith(MESSAGE if shown else ''), (head, found)
        if code is None:
            assert found[1].count('\n') == bool(shown), (head, found)
        return ''

    contents = []
    for where, of in (folder / 'pipe', piped.block), (folder / 'full', of_step):
        where.mkdir()
        piped.write_sources(where)
        make(where, of)
        contents.append((where / output).read_bytes())
    assert contents[0] == contents[1] and next(verbs, None) is None


def test_many_lines_about_a_mount_that_cannot_be_written_are_reported(mount, folder):
    path = st.write(folder / 'm.safetensors', {'layer.%d.%s' % (i, 'w' * 20): ('U8', [1], b'x') for i in range(1000)})
    mnt = mount(path, 'rw')
    for name in sorted(mnt.path.glob('layer/*/*'))[:-1]:
        name.unlink()
    for words in ['status', '--edits', mnt.path], ['status', '--edits', '--json', mnt.path], ['diff', mnt.path]:
        whole = program.weightfs(*words, code=None).stdout
        assert len(whole) > 8192 and run(folder, *words) == (EXIT_COMMIT, MESSAGE)
    workers = mnt.workers_now()
    mnt.kill()
    wait_for(lambda: not any(map(is_alive, workers)), 'the end of the driver')
    mnt.forget()
    found = program.weightfs('recover', path, code=EXIT_COMMIT)
    assert len(found.stdout) > 8192 and run(folder, 'recover', path) == (EXIT_COMMIT, found.stderr + MESSAGE)
    assert run(folder, 'recover', '--json', '--publish', path) == (EXIT_COMMIT, MESSAGE)
    assert len(st.read(path).tensors) == 1
