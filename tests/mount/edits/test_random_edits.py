# SPDX-License-Identifier: MIT
"""Random edits of mounts in every format and with many options, as wfs_testlib/random_edits.py has them."""
import random
import time

import pytest

from wfs_testlib import random_edits

N_SECONDS, N_STEPS = 60, 100  # in each run of the tests; in each world, so that all formats get their turn
N_SLOW = 20000


def test_random_edits_for_a_minute():
    """With seeds that nobody has tried; the line to run one again is in the message."""
    rng, end, n_done = random.Random(), time.monotonic() + N_SECONDS, 0
    while time.monotonic() < end:
        seed = rng.randrange(10 ** 9)
        form, options = random_edits.choose(seed)
        n_done += random_edits.run_seed(form, seed, N_STEPS, options, lambda: time.monotonic() > end)
    print('%d steps' % n_done)
    assert n_done > N_STEPS


@pytest.mark.slow
@pytest.mark.parametrize('part', range(20))
def test_twenty_thousand_random_edits(part):
    n_done = 0
    for seed in range(100 * part, 100 * part + 100):
        if n_done >= N_SLOW / 20:
            break
        form, options = random_edits.choose(seed)
        n_done += random_edits.run_seed(form, seed, 2 * N_STEPS, options)
    assert n_done >= N_SLOW / 20
