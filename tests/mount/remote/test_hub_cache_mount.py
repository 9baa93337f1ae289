# SPDX-License-Identifier: MIT
"""Mounts of what the cache of the Hub's own programs has, in the sandbox: links out of a snapshot into its blobs are followed."""
import os

import pytest

from wfs_testlib import dcp, look, pth, sets, shared, st
from wfs_testlib.bad_server import BadServer
from wfs_testlib.hub_server import Hub, keep

COMMIT = 'a' * 40


@pytest.fixture
def cache(folder, monkeypatch):
    st.write(folder / 'one', {'w': ('U8', [4], b'1234')})
    sets.write(folder / 'set', [{'a': ('U8', [4], b'abcd')}, {'b': ('U8', [4], b'efgh')}])
    writer = dcp.Writer(folder / 'dcp')
    writer.value('step', pth.number(7))
    writer.write()
    keep(folder / 'hub', 'org/one', COMMIT, {'model.safetensors': (folder / 'one').read_bytes()})
    for name in ('set', 'dcp'):
        keep(folder / 'hub', 'org/' + name, COMMIT, {path.name: path.read_bytes() for path in (folder / name).iterdir()})
    monkeypatch.setenv('HF_HUB_CACHE', str(folder / 'hub'))
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    return folder / 'hub'


@pytest.mark.parametrize('name, file, content', [('one', 'w', b'1234'), ('set', 'b', b'efgh'), ('dcp', 'step.json', b'7')])
def test_a_repository_is_mounted_from_the_cache_of_the_hub(cache, mount, name, file, content):
    entry = cache / ('models--org--' + name)
    for source in ('hf://org/' + name, 'hf://org/%s@%s' % (name, COMMIT), entry, entry / 'snapshots' / COMMIT):
        mnt = mount(source)
        assert (mnt / file).read_bytes().strip() == content
        assert name == 'dcp' or COMMIT in os.getxattr(mnt / file, 'user.weightfs.file').decode()
        mnt.unmount()


def test_edits_of_a_repository_go_to_an_output(cache, mount, folder):
    mnt = mount('hf://org/one', 'output=%s' % (folder / 'out.safetensors'))
    (mnt / 'w').write_bytes(b'5678')
    mnt.unmount()
    assert st.read(folder / 'out.safetensors').tensors['w'][2] == b'5678'
    assert (cache / 'models--org--one/snapshots' / COMMIT / 'model.safetensors').is_symlink()


@pytest.mark.usefixtures('need_shared')
def test_a_failure_while_a_part_is_opened_does_not_last(folder, mount, monkeypatch):
    """Parts of a distributed checkpoint that nothing has looked at are opened by the first read."""
    path = shared.FOLDER / 'golden/dcp/mesh-2d'
    files = {str(one.relative_to(path)): one.read_bytes() for one in path.rglob('*') if one.is_file()}
    hub = Hub({'org/name': {COMMIT: files}}, COMMIT)
    is_down = []

    def behave(exchange):
        if is_down:
            exchange.answer('500 Internal Server Error', b'')
        else:
            hub(exchange)

    local = mount(path)
    expected = {one: (local / one).read_bytes() for one in look.files(local.path)}
    monkeypatch.setenv('HF_HUB_CACHE', str(folder / 'none'))
    with BadServer(b'', default=behave) as server:
        monkeypatch.setenv('HF_ENDPOINT', server.origin)
        mnt = mount('hf://org/name', 'limit.items=0', 'retries=0').allow('.')
        is_down.append(True)
        failed = 0
        for one in expected:
            try:
                (mnt / one).read_bytes()
            except OSError:
                failed += 1
        is_down.clear()
        assert failed > 0 and {one: (mnt / one).read_bytes() for one in expected} == expected
