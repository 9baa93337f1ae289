# SPDX-License-Identifier: MIT
"""Independent readers, writers and oracles for the tests: nothing in here calls weightfs to know an answer."""
