# SPDX-License-Identifier: MIT
"""Folders as the real libraries leave them, by http and as repositories of the Hub: what they are locally, or a message; pipelines whole."""
import json
import os
import urllib.parse

import pytest

from wfs_testlib import shared
from wfs_testlib.bad_server import BadServer
from wfs_testlib.engine import WHY_NOT
from wfs_testlib.hub_server import Hub
from wfs_testlib.program import weightfs

pytestmark = [pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)), pytest.mark.skipif(not shared.IS_THERE, reason=shared.WHY_NOT)]
LAYOUTS = shared.FOLDER / 'golden/layouts'
COMMIT = 'a' * 40
NAMES = sorted(json.loads((LAYOUTS / 'expected.json').read_text())) if shared.IS_THERE else []
# What is refused for a second model beside the first, which no URL lists.
UNSEEN = {'accelerate-state-two-models': 'model.safetensors', 'accelerate-state-two-models-bin': 'pytorch_model.bin'}
PIPELINES = [name for name in NAMES if (LAYOUTS / name / 'model_index.json').exists() and not name.startswith('onnx')]


def listed(name):
    result = weightfs('sum', '--json', name, code=None)
    return {t['key']: t['sha256'] for t in json.loads(result.stdout)['sources'][0]['tensors']} if result.code == 0 else None


def both(server, name):
    """By http, and as the top of a repository."""
    files = {str(path.relative_to(LAYOUTS / name)): path.read_bytes() for path in (LAYOUTS / name).rglob('*') if path.is_file()}
    found = [listed('%s/%s/' % (server.url(LAYOUTS), urllib.parse.quote(name)))]
    with BadServer(b'', default=Hub({'org/name': {COMMIT: files}}, COMMIT)) as hub:
        os.environ['HF_ENDPOINT'] = hub.origin
        found.append(listed('hf://org/name'))
    return found


@pytest.fixture
def server(serve, monkeypatch, folder):
    monkeypatch.setenv('HF_ENDPOINT', 'http://127.0.0.1:1')
    monkeypatch.setenv('HF_HUB_CACHE', str(folder / 'none'))
    return serve(shared.FOLDER.resolve())


@pytest.mark.parametrize('part', [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_folder_by_url_is_never_another_checkpoint_than_by_path(server, part):
    others = [name for name in NAMES if name not in PIPELINES]
    n_open = 0
    for name in others[::5] if part == 0 else others:
        local = listed(LAYOUTS / name / UNSEEN.get(name, ''))
        for found in both(server, name):
            assert found is None or found == local, name
            n_open += found is not None
    assert n_open > len(others[::5]) / 3


@pytest.mark.parametrize('name', PIPELINES)
def test_a_pipeline_by_url_is_the_tree_that_it_is_by_path(server, name):
    assert both(server, name) == 2 * [listed(LAYOUTS / name)]
