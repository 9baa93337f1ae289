# SPDX-License-Identifier: MIT
"""The wheel of this tree, built by pip and installed where there is no compiler. tools/wheel builds the one for other machines."""
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from wfs_testlib import program

pytestmark = pytest.mark.peers
TESTS = program.ROOT / 'tests/python'


def run(*command, **options):
    """Runs to the end; what it printed and its exit code."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=500, check=False, text=True,
                          **options)
    return done.stdout, done.returncode


def test_the_wheel_is_installed_and_tested_without_a_compiler(tmp_path):
    # pip gets meson-python; code is not optimized, since that takes longer than all the rest.
    text, code = run(sys.executable, '-m', 'pip', 'wheel', '-q', '--disable-pip-version-check', '--no-deps', '-w', tmp_path, '--config-settings',
                     'setup-args=-Doptimization=0', '--config-settings', 'build-dir=%s' % (program.BUILD / 'wheel'), program.ROOT)
    if code != 0 and os.environ.get('CI') != 'true' and any(part in text for part in ('No module named pip', 'No matching distribution')):
        pytest.skip('pip cannot get meson-python: %s' % text.strip().splitlines()[-1])
    assert code == 0, text
    wheel, = tmp_path.glob('weightfs-*-abi3-linux_*.whl')
    names = zipfile.ZipFile(wheel).namelist()
    for name in ('weightfs/bin/weightfs', 'weightfs/lib/libweightfs.so.0', 'weightfs/py.typed', 'weightfs/_native.abi3.so'):
        assert name in names, names
    assert any(name.endswith('man1/weightfs.1') for name in names) and not any(name.endswith('.h') for name in names)

    tools = tmp_path / 'venv/bin'
    env = {'PATH': str(tools), 'HOME': str(tmp_path), 'LC_ALL': 'C.UTF-8', 'PYTHONDONTWRITEBYTECODE': '1',
           **{name: text for name, text in os.environ.items() if name.startswith(('PIP_', 'SSL_', 'CI'))}}
    text, code = run(sys.executable, '-m', 'venv', tmp_path / 'venv')
    assert code == 0, text
    fusermount = shutil.which('fusermount3')
    if fusermount is not None:
        (tools / 'fusermount3').symlink_to(fusermount)
    assert not any(shutil.which(name, path=env['PATH']) for name in ('cc', 'gcc', 'clang', 'tcc'))
    text, code = run(tools / 'python', '-m', 'pip', 'install', '-q', '--disable-pip-version-check', '--only-binary=:all:', wheel, 'ml_dtypes', 'numpy',
                     'pytest', env=env)
    assert code == 0, text
    assert run(tools / 'weightfs', '--version', env=env) == run(tools / 'python', '-m', 'weightfs', '--version', env=env)
    text, code = run(tools / 'python', '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '-c', os.devnull, '--rootdir', TESTS, '--confcutdir', TESTS,
                     TESTS, env={**env, 'WFS_SHARED': str(tmp_path / 'none')}, cwd=tmp_path)
    assert code == 0 and ' passed' in text, text
