# SPDX-License-Identifier: MIT
"""The examples of docs/view.md print what the page shows, and its table has every row of evidence."""
import re
import shlex

import pytest

from wfs_testlib import st
from wfs_testlib.program import ROOT, weightfs

PAGE = (ROOT / 'docs/view.md').read_text()
EXAMPLES = re.findall(r'```console\n\$ (weightfs .*)\n((?:.*\n)*?)```', PAGE)
SHAPES = {'encoder.layers.0.fc.weight': [6, 4], 'encoder.layers.0.fc.bias': [6], 'encoder.layers.3.fc.weight': [6, 4],
          'encoder.layers.3.fc.bias': [6], 'encoder.norm.weight': [4], 'encoder.norm.bias': [4], 'embed.tokens.weight': [8, 4],
          'mixer.weight': [4, 4]}


@pytest.mark.parametrize('command, wanted', EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_each_example(tmp_path, monkeypatch, command, wanted):
    def n_bytes(shape):
        return 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    st.write(tmp_path / 'model.safetensors', {key: ('F32', shape, bytes(n_bytes(shape))) for key, shape in SHAPES.items()})
    monkeypatch.chdir(tmp_path)
    assert weightfs(*shlex.split(command)[1:]).stdout == wanted


def test_the_rules_file(tmp_path):
    path = st.write(tmp_path / 'in.safetensors', {'encoder.weight': ('F32', [1], bytes(4)), 'mixer.weight': ('F32', [1, 1], bytes(4))})
    (tmp_path / 'rules.json').write_text(re.search(r'```json\n(.*?)```', PAGE, re.S)[1])
    keys = [line.split('\t')[0] for line in weightfs('ls', '--rules', tmp_path / 'rules.json', path).stdout.splitlines()]
    assert keys == ['enc.weight', 'mixer.weight']


def test_the_table_has_every_row():
    source = (ROOT / 'src/view/evidence/evidence.c').read_text()
    rows = {int(number) for number in re.findall(r'"(\d+) [a-z]', source)}
    assert rows == {int(number) for number in re.findall(r'^\| (\d+) \|', PAGE, re.M)}


def test_every_option_is_described():
    options = [name.replace('-', '_') for name in re.findall(r'^  --([\w-]+)', weightfs('plan', '--help').stdout.split('\nview options')[1], re.M)]
    assert len(options) > 20
    assert [option for option in options if not re.search(r'`%s\b' % option, PAGE)] == []
