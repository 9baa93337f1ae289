# SPDX-License-Identifier: MIT
"""The cache of the Hub's own programs: what lies there is not asked for again, and nothing stale is shown without a word."""
import functools
import json
import os
import random
import subprocess
import sys

import pytest

from wfs_testlib import dcp, pth, sets, st
from wfs_testlib.bad_server import BadServer
from wfs_testlib.engine import WHY_NOT
from wfs_testlib.hub_server import Hub, keep
from wfs_testlib.program import EXIT_FOREIGN, EXIT_SOURCE, weightfs

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
OLD, NEW = 'a' * 40, 'b' * 40
DATA = random.Random(1).randbytes(4000)


def checkpoint(folder, name, data=DATA):
    st.write(folder / name, {'w': ('U8', [len(data)], data)})
    return (folder / name).read_bytes()


@pytest.fixture
def hub(folder, monkeypatch):
    """(hub, server, folder of the cache): org/name has one file and a set, of two commits; main is the old one, which is in the cache."""
    one = checkpoint(folder, 'one')
    sets.write(folder / 'set', [{'a': ('U8', [4], b'1234')}, {'b': ('U8', [2000], DATA[:2000])}])
    files = {'model.safetensors': one, 'config.json': b'{}', **{'set/' + path.name: path.read_bytes() for path in (folder / 'set').iterdir()}}
    made = Hub({'org/name': {OLD: files, NEW: {**files, 'set/model-00002-of-00002.safetensors': b'newer'}}}, OLD)
    cache = folder / 'hf/hub'
    keep(cache, 'org/name', OLD, files)
    monkeypatch.setenv('HF_HUB_CACHE', str(cache))
    with BadServer(b'', default=made) as server:
        monkeypatch.setenv('HF_ENDPOINT', server.origin)
        yield made, server, cache


def asked(server):
    found = [(request.method, request.path) for request in server.requests]
    server.requests.clear()
    return found


def findings(*args):
    return [finding['text'] for finding in json.loads(weightfs('check', '--json', *args).stdout)['sources'][0]['findings']]


@pytest.mark.parametrize('name, first', [('', '/model.safetensors'), ('/set/', '/set/model.safetensors.index.json'), ('/model.safetensors', '/model.safetensors')])
def test_a_moving_revision_is_asked_for_once_and_a_commit_never(hub, name, first):
    _, server, _ = hub
    assert 'commit ' + OLD in findings('hf://org/name' + name)[-1]
    assert asked(server) == [('HEAD', '/org/name/resolve/main' + first)]
    assert weightfs('cat', 'hf://org/name@%s%s' % (OLD, name), 'b' if 'set' in name else 'w').raw in (DATA, DATA[:2000])
    assert asked(server) == []


@pytest.mark.parametrize('variable', ['HF_HUB_OFFLINE', 'TRANSFORMERS_OFFLINE'])
def test_offline_the_cache_is_all_there_is(hub, monkeypatch, variable):
    _, server, cache = hub
    monkeypatch.setenv(variable, '1')
    assert weightfs('cat', 'hf://org/name', 'w').raw == DATA
    assert 'commit ' + OLD in weightfs('info', 'hf://org/name').stdout
    error = weightfs('ls', 'hf://org/other', code=None).error
    assert variable in error and 'its cache does not have it' in error
    (cache / 'models--org--name/snapshots' / OLD / 'set/model-00002-of-00002.safetensors').unlink()
    assert 'model-00002-of-00002' in weightfs('ls', 'hf://org/name/set', code=EXIT_SOURCE).error
    assert asked(server) == []


def test_a_newer_commit_is_not_hidden_by_the_cache(hub):
    made, server, _ = hub
    made.main = NEW
    # The one file is the same in both, as its entity tag says; of the set that is not known before its files are asked for.
    assert findings('hf://org/name/model.safetensors') == ['read from the cache of the Hub, commit %s; the file is the same in the newest, %s' % (OLD, NEW)]
    assert len(asked(server)) == 1
    assert 'the newest is ' + NEW in findings('hf://org/name')[-1]
    assert len(asked(server)) > 1
    assert 'model-00002' in weightfs('check', 'hf://org/name/set/', code=EXIT_FOREIGN).error
    assert weightfs('cat', 'hf://org/name@%s/set/' % OLD, 'b').raw == DATA[:2000]


def test_a_hub_that_cannot_be_reached_is_said(hub):
    _, server, _ = hub
    server.__exit__()
    assert 'was not found out' in weightfs('info', '--json', 'hf://org/name', has_notices=True).stdout
    shown = weightfs('cat', 'hf://org/name', 'w', has_notices=True)
    assert shown.raw == DATA and 'commit ' + OLD in shown.stderr and 'was not found out: cannot connect' in shown.stderr


def test_what_the_cache_lacks_is_fetched(hub):
    _, server, cache = hub
    (cache / 'models--org--name/snapshots' / OLD / 'set/model-00002-of-00002.safetensors').unlink()
    assert weightfs('cat', 'hf://org/name/set/', 'b').raw == DATA[:2000]
    assert 'has a part of commit' in findings('hf://org/name/set/')[-1] and asked(server)
    (cache / 'models--org--name/snapshots' / OLD / 'model.safetensors').unlink()
    assert weightfs('cat', 'hf://org/name', 'w').raw == DATA


@pytest.mark.parametrize('variables', [{'HF_HUB_CACHE': 'hub'}, {'HUGGINGFACE_HUB_CACHE': 'hub'}, {'HF_HOME': ''}, {'XDG_CACHE_HOME': '..'}, {'HOME': '../..'}])
def test_the_cache_is_where_the_programs_of_the_hub_keep_it(folder, monkeypatch, variables):
    home = folder / '.cache/huggingface'
    keep(home / 'hub', 'org/name', OLD, {'model.safetensors': checkpoint(folder, 'one')})
    for name in ('HF_HUB_CACHE', 'HUGGINGFACE_HUB_CACHE', 'HF_HOME', 'XDG_CACHE_HOME'):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str((home / value).resolve()))
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    assert weightfs('cat', 'hf://org/name', 'w').raw == DATA


@pytest.mark.parametrize('ref', ['../../../elsewhere', OLD[:-1], '', 'z' * 40])
def test_a_ref_that_is_not_a_commit_leads_nowhere(hub, monkeypatch, ref):
    _, _, cache = hub
    (cache / 'models--org--name/refs/main').write_text(ref)
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    assert 'its cache does not have it' in weightfs('ls', 'hf://org/name', code=None).error
    assert weightfs('ls', 'hf://org/name@..%2F..%2Fmain', code=None).code != 0


def test_an_entry_of_the_cache_is_what_main_names(hub):
    _, server, cache = hub
    entry = cache / 'models--org--name'
    keep(cache, 'org/name', NEW, {'model.safetensors': b'other'}, main=False)
    assert weightfs('cat', entry, 'w').raw == DATA
    (entry / 'snapshots' / OLD / 'model.safetensors').resolve().write_bytes(b'x')
    assert 'snapshots/' + OLD in weightfs('ls', entry, code=None).error
    assert asked(server) == []


def test_a_repository_that_is_no_path_is_named_as_the_hub_names_it(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert 'hf://org/name names a repository' in weightfs('ls', 'org/name', code=EXIT_SOURCE).error
    (folder / 'org').mkdir()
    assert 'hf://' not in weightfs('ls', 'org/name', code=EXIT_SOURCE).error
    assert 'hf://' not in weightfs('ls', './name', code=EXIT_SOURCE).error


LIBRARY = 'import sys, huggingface_hub; print(huggingface_hub.snapshot_download(sys.argv[1]))'


@functools.cache
def has_library():
    return subprocess.run([sys.executable, '-c', 'import huggingface_hub'], capture_output=True, check=False).returncode == 0


@pytest.mark.peers
def test_a_cache_that_the_library_made_is_read_without_a_request(folder, monkeypatch):
    if not has_library():
        pytest.skip('no huggingface_hub')
    writer = dcp.Writer(folder / 'dcp')
    writer.value('step', pth.number(1))
    writer.write()
    sets.write(folder / 'set', [{'a': ('U8', [4], b'1234')}, {'b': ('U8', [2000], DATA[:2000])}])
    files = {'one': {'model.safetensors': checkpoint(folder, 'one'), 'config.json': b'{}'}}
    for kind in ('dcp', 'set'):
        files[kind] = {path.name: path.read_bytes() for path in (folder / kind).iterdir()}
    monkeypatch.setenv('HF_HOME', str(folder / 'hf'))
    monkeypatch.delenv('HF_HUB_CACHE', raising=False)
    with BadServer(b'', default=Hub({'org/' + kind: {OLD: content} for kind, content in files.items()}, OLD)) as server:
        monkeypatch.setenv('HF_ENDPOINT', server.origin)
        for kind, content in files.items():
            path = subprocess.run([sys.executable, '-c', LIBRARY, 'org/' + kind], capture_output=True, check=True, text=True).stdout.strip()
            keep(folder / 'ours', 'org/' + kind, OLD, content)
            assert [os.readlink(one) for one in sorted(os.scandir(path), key=lambda one: one.name)] == \
                [os.readlink(one) for one in sorted(os.scandir(folder / 'ours' / ('models--org--' + kind) / 'snapshots' / OLD), key=lambda one: one.name)]
            asked(server)
            local = weightfs('sum', '--json', path).stdout
            assert weightfs('sum', '--json', 'hf://org/%s@%s' % (kind, OLD)).stdout == local.replace(path, 'hf://org/%s@%s' % (kind, OLD))
            assert asked(server) == []
            weightfs('ls', 'hf://org/' + kind)
            assert [method for method, _ in asked(server)] == ['HEAD']
            with monkeypatch.context() as offline:
                offline.setenv('HF_HUB_OFFLINE', '1')
                assert 'commit ' + OLD in weightfs('info', 'hf://org/' + kind).stdout
            assert asked(server) == []
