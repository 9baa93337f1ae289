# SPDX-License-Identifier: MIT
"""Adapters by URL: the configuration is beside the tensors, or in the folder, or in the repository."""
import pytest

from wfs_testlib import merging
from wfs_testlib.bad_server import BadServer
from wfs_testlib.hub_server import hub
from wfs_testlib.program import weightfs

NAMES = ('adapter_config.json', 'adapter_model.safetensors')


@pytest.fixture
def pair(folder):
    base, adapter, _ = merging.write_pair(folder, {'a.weight': (40, 30), 'b.weight': (3, 8)})
    weightfs('convert', '--lora=%s' % adapter, base, folder / 'local.safetensors')
    return base, adapter, (folder / 'local.safetensors').read_bytes()


def merged(folder, base, name, **options):
    weightfs('convert', '--lora=%s' % name, base, folder / 'out.safetensors', '--overwrite', **options)
    return (folder / 'out.safetensors').read_bytes()


def test_a_file_and_a_folder_by_url(serve, pair, folder):
    base, adapter, local = pair
    server = serve(folder)
    url = server.url(adapter)
    assert merged(folder, base, url + '/adapter_model.safetensors') == merged(folder, base, url + '/') == local
    assert merged(folder, server.url(base), url + '/:1') == local


def test_a_repository_of_the_hub(pair, folder, monkeypatch):
    base, adapter, local = pair
    files = {name: (adapter / name).read_bytes() for name in NAMES}
    with BadServer(b'', default=hub('owner/adapter', files)) as server:
        monkeypatch.setenv('HF_ENDPOINT', server.origin)
        assert merged(folder, base, 'hf://owner/adapter') == local


def test_without_a_configuration(serve, pair, folder):
    base, adapter, local = pair
    (adapter / NAMES[0]).unlink()
    url = serve(folder).url(adapter) + '/' + NAMES[1]
    done = weightfs('ls', '--lora=%s' % url, base, code=7)
    assert 'has no adapter_config.json, which has its alpha' in done.error
