# SPDX-License-Identifier: MIT
"""The examples of docstrings and of docs/python.md do what they say."""
import doctest
import importlib
import os
import pathlib
import re

import pytest

numpy = pytest.importorskip('numpy')
weightfs = pytest.importorskip('weightfs')

PAGE = pathlib.Path(__file__).resolve().parents[2] / 'docs' / 'python.md'
MODULES = ['weightfs', 'weightfs._checkpoint', 'weightfs._safe_open', 'weightfs._tensor', 'weightfs._verbs']
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def names():
    return {'weightfs': weightfs, 'numpy': numpy, 'np': numpy}


class Checker(doctest.OutputChecker):
    """Numpy 2 prints np.float32(2.0) where numpy 1 prints 2.0."""

    def check_output(self, want, got, optionflags):
        plain = [re.sub(r'np\.float\d+\(([^)]*)\)', r'\1', text) for text in (want, got)]
        return super().check_output(*plain, optionflags)


def run(examples):
    runner = doctest.DocTestRunner(Checker(), optionflags=FLAGS)
    output = []
    for example in examples:
        runner.run(example, out=output.append)
    assert runner.tries > 0
    assert runner.failures == 0, ''.join(output)


@pytest.mark.parametrize('name', MODULES)
def test_docstrings(sample, name):
    module = importlib.import_module(name)
    run([test for test in doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=names()) if test.examples])


@pytest.mark.skipif(not PAGE.exists(), reason='the installed module has no docs')
def test_page(sample):
    """Code of the page that has prompts is run, block after block, in the folder of the sample; blocks that say what they need are left out."""
    blocks = re.findall(r'^```python\n(.*?)^```', PAGE.read_text(), re.M | re.S)
    text = '\n'.join(block for block in blocks if block.startswith('>>>'))
    run([doctest.DocTestParser().get_doctest(text, names(), 'docs/python.md', os.fspath(PAGE), 0)])
