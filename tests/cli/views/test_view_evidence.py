# SPDX-License-Identifier: MIT
"""Module types by evidence: the same action, certainty and row as the oracle in Python, on the names, shapes and dtypes
of real architectures (an optional folder of test data)."""
import itertools
import subprocess
import sys

import pytest

from wfs_testlib import program, shared

MODULES = shared.FOLDER / 'golden/modules'
FILTER = program.BUILD / 'tests/unit/test_evidence'

pytestmark = pytest.mark.skipif(not shared.IS_THERE or not FILTER.exists(), reason=shared.WHY_NOT)


@pytest.fixture
def oracle(monkeypatch):
    monkeypatch.syspath_prepend(str(MODULES / 'src'))
    monkeypatch.setattr(sys, 'dont_write_bytecode', True)
    import measure
    import rule
    theirs = rule.File.find_layout
    monkeypatch.setattr(rule.File, 'find_layout', lambda self, container, *args: (
        layout_of_pack(self) if container == 'bpk' else theirs(self, container, *args)))
    return measure, rule


def layout_of_pack(file):
    """Of a .bpk, which the oracle takes for Burn's without asking its norms: whose conventions it follows, and whether that is known."""
    gammas, weights, pairs = 0, 0, 0
    for group in file.groups.values():
        gamma, weight, bias = (group.leaves.get(leaf) for leaf in ('gamma', 'weight', 'bias'))
        is_norm = group.is_norm() or {'running_mean', 'running_var'} <= set(group.leaves)
        gammas += gamma is not None and len(gamma) == 1 and (is_norm or 'beta' in group.leaves)
        weights += weight is not None and len(weight) == 1 and is_norm
        pairs += weight is not None and len(weight) == 1 and weight == bias
    if file.votes:
        return 'burn' if file.votes['burn'] else 'torch', True
    return 'torch' if weights + pairs and not gammas else 'burn', bool(weights + gammas)


def lines_of(container, to, tensors):
    rows = ''.join('%s\t%s\t%s\n' % (key, dtype, ' '.join(map(str, shape))) for key, dtype, shape in tensors)
    return '%s %s\n%s\n' % (container, to, rows)


def compare(oracle, step):
    measure, rule = oracle
    texts, wanted = [], []
    records = itertools.islice(measure.records(str(MODULES / 'modules.jsonl.xz')), 0, None, step)
    for record in records:
        for view, tensors, _ in measure.views(record):
            container = view.partition(' ')[0]
            tensors = list({t[0]: t[:3] for t in tensors}.values())
            for to in ('burn', 'torch'):
                decided = rule.decide(tensors, container, to)
                texts.append(lines_of(container, to, tensors))
                wanted += [(record['arch'], view, to, t[0], decided[t[0]]) for t in tensors]
    done = subprocess.run([FILTER, '--lines'], input=''.join(texts), stdout=subprocess.PIPE, text=True, check=True)
    decided = [tuple(line.split('\t')) for line in done.stdout.splitlines()]
    assert len(decided) == len(wanted)
    assert [(w, d) for w, d in zip(wanted, decided) if w[-1] != d][:5] == []


def test_decisions_are_those_of_the_oracle(oracle):
    compare(oracle, 20)


@pytest.mark.slow
def test_all_decisions_are_those_of_the_oracle(oracle):
    compare(oracle, 1)
