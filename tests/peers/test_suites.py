# SPDX-License-Identifier: MIT
"""
The test suites of torch and safetensors as a source of files: they run with a hook that keeps every file that they make, and each
file is listed, read, and written again by weightfs and compared with what the library loads. tools/test --peers gets the suites and
names their folder in WFS_SUITES.
"""
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

from wfs_testlib import program
from wfs_testlib.program import EXIT_DAMAGED, EXIT_DONE, EXIT_UNSUPPORTED, weightfs

pytestmark = pytest.mark.peers
HERE = pathlib.Path(__file__).parent
SUITES = pathlib.Path(os.environ.get('WFS_SUITES') or program.ROOT / 'build/peers/suites')
# Cases that write gigabytes or need a network.
LEFT_OUT = 'not 2gb and not offset and not backwards and not large'
TESTS = {'torch': ['torch/test/test_serialization.py'],
         'safetensors': ['safetensors/bindings/python/tests/test_%s.py' % name for name in ('simple', 'pt_comparison', 'pt_model')]}
FEWEST = {'torch': 400, 'safetensors': 20}


def run_suite(suite, folder):
    folder.mkdir()
    environment = {**os.environ, 'WFS_KEEP': str(folder), 'WFS_KEEP_OF': suite, 'PYTHONPATH': str(HERE)}
    for name in TESTS[suite]:
        path = SUITES / name
        subprocess.run([sys.executable, '-B', '-m', 'pytest', '-q', '-p', 'keep_files', '-p', 'no:cacheprovider', '-c', os.devnull,
                        '-k', LEFT_OUT, path.name], cwd=path.parent, env=environment, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=900)
    return folder


def read_kept(folder):
    done = subprocess.run([sys.executable, '-B', HERE / 'read_kept.py', folder], stdin=subprocess.DEVNULL, check=True, timeout=900,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith(b'['))


@pytest.fixture(scope='module', params=TESTS)
def kept(request, tmp_path_factory):
    """(suite, folder, {name of a file: what the library reads})"""
    if not all((SUITES / name).exists() for name in TESTS[request.param]):
        pytest.skip('the suite of %s is not in %s: tools/test --peers gets it' % (request.param, SUITES))
    folder = run_suite(request.param, tmp_path_factory.mktemp('kept') / request.param)
    return request.param, folder, read_kept(folder)


def digest(path, key):
    """Of what weightfs reads; None where that is refused as damaged."""
    done = weightfs('cat', path, '--', key, code=None)
    assert done.code in (EXIT_DONE, EXIT_DAMAGED), done.stderr
    return hashlib.sha256(done.raw).hexdigest() if done.code == EXIT_DONE else None


def listed(path):
    """{key: [dtype, shape, sha256]} by weightfs."""
    tensors = json.loads(weightfs('ls', '--json', path).stdout)['tensors']
    return {tensor['key']: [tensor['dtype'], tensor['shape'], digest(path, tensor['key'])] for tensor in tensors}


def is_fair(ending, tensors, error):
    """May a conversion be refused? Data that was not saved cannot be written, and safetensors has no complex type but C64."""
    lacks_dtype = ending == 'safetensors' and 'safetensors has no dtype C' in error and any(
        dtype in ('C128', 'C32', 'BC32') or 0 in shape for dtype, shape, _ in tensors.values())
    return lacks_dtype or any(data is None for _, _, data in tensors.values())


def difference(ours, theirs):
    """In words, or None. torch gives an empty storage the type of whoever asks first."""
    if set(ours) != set(theirs):
        return 'other keys: %s' % sorted(set(ours) ^ set(theirs))[:4]
    wrong = [key for key in theirs if ours[key] != theirs[key] and not (0 in theirs[key][1] and ours[key][1] == theirs[key][1])]
    return 'other content: %s' % [(key, ours[key][:2], theirs[key][:2]) for key in wrong[:3]] if wrong else None


def judge_read(path, theirs):
    """Problems with reading one file."""
    if isinstance(theirs, str):
        code = weightfs('check', path, code=None).code
        return None if path.suffix == '.pth' or code in (EXIT_DAMAGED, EXIT_UNSUPPORTED) else 'is taken, but: ' + theirs
    return difference(listed(path), theirs)


def test_every_file_of_the_suite_is_read_and_written_right(kept):
    suite, folder, facts = kept
    assert len(facts) > FEWEST[suite], 'the suite of %s made only %d files' % (suite, len(facts))
    problems = {name: judge_read(folder / name, facts[name]) for name in facts}
    again = {}
    out = folder / 'again'
    out.mkdir(exist_ok=True)
    for name in facts:
        if isinstance(facts[name], str):
            continue
        for ending in ('pth', 'safetensors'):
            done = weightfs('convert', '--overwrite', folder / name, out / ('%s.%s' % (name, ending)), code=None)
            if done.code == EXIT_DONE:
                again['%s.%s' % (name, ending)] = facts[name]
            elif not is_fair(ending, facts[name], done.stderr):
                problems['%s to .%s' % (name, ending)] = done.stderr
    made = read_kept(out)
    for name, theirs in again.items():
        problems[name + ' again'] = made[name] if isinstance(made[name], str) else difference(made[name], theirs)
    assert {name: problem for name, problem in problems.items() if problem} == {}
