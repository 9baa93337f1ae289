# SPDX-License-Identifier: MIT
"""What holds for all tests of mounts."""
import pytest


@pytest.fixture(autouse=True)
def mounts_of_this_test(among_mounts):
    """Mounts that a test makes without the fixture count too."""
