# SPDX-License-Identifier: MIT
"""A build without libfuse3: it says what it cannot do, and does the rest."""
import re

import pytest

from wfs_testlib.program import EXIT_MOUNT, SAMPLE, listing, weightfs

pytestmark = pytest.mark.skipif(re.search(r'libfuse \d', weightfs('--version').stdout) is not None, reason='this build has libfuse3')


def test_it_says_that_it_cannot_mount(folder):
    (folder / 'mnt').mkdir()
    assert weightfs(SAMPLE, folder / 'mnt', code=EXIT_MOUNT).error.endswith(
        'this build has no libfuse3 and cannot mount; ls, info, cat, show, check and convert work without')


def test_the_version_says_so():
    assert weightfs('--version').stdout.splitlines()[1] == 'libfuse none: this build cannot mount'


def test_checkpoints_are_converted(folder):
    weightfs('convert', SAMPLE, folder / 'out.pth')
    assert listing(folder / 'out.pth').keys() == listing(SAMPLE).keys()
