# SPDX-License-Identifier: MIT
"""The tests can be collected on a machine that has none of the optional files."""
import os
import subprocess
import sys

from wfs_testlib.program import ROOT


def test_collection_needs_no_optional_files(tmp_path):
    found = subprocess.run([sys.executable, '-X', 'pycache_prefix=%s' % (sys.pycache_prefix or tmp_path), '-m', 'pytest', '-c', 'tests/pytest.ini', '--collect-only', '-q', 'tests/cli', 'tests/mount'],
                           cwd=ROOT, env={**os.environ, 'WFS_SHARED': str(tmp_path)}, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-2000:]


def test_every_file_of_tests_has_a_name_of_its_own():
    """pytest imports them by name, and stops at the second one of a name."""
    names = [path.name for path in (ROOT / 'tests').rglob('test_*.py')]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
