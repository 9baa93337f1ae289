# SPDX-License-Identifier: MIT
"""Folders behind nginx: distributed checkpoints by their .metadata, and whatever a URL that ends in a slash is found to have."""
import json
import os
import random
import shutil

import pytest

from wfs_testlib import sets, shared, st
from wfs_testlib.program import EXIT_SOURCE, EXIT_UNSUPPORTED, weightfs

FOLDERS = sorted({path.parent for path in shared.everything() if path.name == '.metadata' and 'dcp' in path.parts})
FIRST = 64 << 10  # bytes of the first request


def given(name):
    listed = weightfs('ls', '--json', '-l', name, code=None)
    summed = weightfs('sum', '--json', name, code=None, n_errors=None)
    return listed.code, listed.stderr, listed.stdout, summed.code, summed.stderr, summed.stdout


def nameless(found, name, folder):
    """Outputs in which the source, and the folder of its files, have no name."""
    def one(text):
        text = text.replace('the server answers 404 (not found)', 'No such file or directory')
        return text.replace(name + ': ', 'SOURCE: ').replace('"%s"' % name, '"SOURCE"').replace(folder + '/', 'FOLDER/')
    return [one(value) if isinstance(value, str) else value for value in found]


def compare(server, folder):
    """By the folder and by its .metadata: as the local one, but for what the URL is. Returns the exit code."""
    theirs = given(folder)
    for url in server.url(folder / '.metadata'), server.url(folder) + '/':
        ours = nameless(given(url), url, server.url(folder))
        assert ours == nameless(theirs, str(folder), str(folder)), url
    return theirs[0]


@pytest.fixture
def written(folder):
    """A distributed checkpoint with tensors that no compression makes small."""
    tensors = {'t%02d' % i: ('F32', [64, 256], random.Random(i).randbytes(1 << 16)) for i in range(40)}
    st.write(folder / 'in.safetensors', tensors)
    weightfs('convert', folder / 'in.safetensors', '%s/' % (folder / 'dcp'), '--format=dcp')
    return folder, tensors


def test_a_distributed_checkpoint_costs_what_is_looked_at(written, serve):
    folder, tensors = written
    server = serve(folder)
    url = server.url(folder / 'dcp') + '/'
    assert compare(server, folder / 'dcp') == 0
    server.forget()
    assert weightfs('cat', url, 't07').raw == tensors['t07'][2]
    names = [request.path.rsplit('/', 1)[1] for request in server.requests()]
    assert set(names) == {'.metadata', 'meta.pt', *(path.name for path in (folder / 'dcp').glob('*.distcp'))}
    server.forget()
    weightfs('info', url)
    assert server.n_bytes() < sum(path.stat().st_size for path in (folder / 'dcp').iterdir())


@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('part', [0, pytest.param(1, marks=pytest.mark.slow)])
def test_distributed_checkpoints_of_other_programs(serve, part):
    server = serve(shared.FOLDER.resolve())
    chosen = FOLDERS[::9] if part == 0 else FOLDERS
    codes = [compare(server, path.resolve()) for path in chosen]
    assert 0 in codes and len(set(codes)) > 1


def made(folder, files):
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def test_a_folder_is_what_its_first_known_file_is(folder, serve):
    st.write(folder / 'one', {'one': ('U8', [3], b'abc')})
    sets.write(folder / 'set', [{'a': ('U8', [1], b'1')}, {'b': ('U8', [2], b'23')}])
    one = (folder / 'one').read_bytes()
    made(folder / 'single', {'model.safetensors': one, 'other': b'x'})
    shutil.copytree(folder / 'set', folder / 'index')
    (folder / 'set/model.safetensors').write_bytes(one)
    weightfs('convert', folder / 'one', folder / 'one.pth')
    made(folder / 'torch', {'pytorch_model.bin': (folder / 'one.pth').read_bytes()})
    server = serve(folder)
    for name, keys in {'single': ['one'], 'set': ['one'], 'index': ['a', 'b'], 'torch': ['one']}.items():
        server.forget()
        url = server.url(folder / name) + '/'
        assert [tensor['key'] for tensor in json.loads(weightfs('ls', '--json', url).stdout)['tensors']] == keys
        assert [request.path.rsplit('/', 1)[1] for request in server.requests()][0] == '.metadata'
    assert weightfs('cat', server.url(folder / 'index') + '/', 'b').raw == b'23'


# Of several, the libraries take the first.
NAMES = ['model.safetensors', 'model.safetensors.index.json', 'diffusion_pytorch_model.safetensors.index.json', 'diffusion_pytorch_model.safetensors',
         'pytorch_model.bin', 'adapter_model.safetensors', 'adapter_model.bin', 'pytorch_lora_weights.safetensors', 'open_clip_model.safetensors',
         'open_clip_pytorch_model.bin']


@pytest.mark.parametrize('i', range(len(NAMES)), ids=NAMES)
def test_a_folder_is_the_same_checkpoint_by_url_and_by_path(folder, serve, i):
    place = folder / 'place'
    place.mkdir()
    for name in NAMES[i:]:
        key = name.replace('.', '_')
        if name.endswith('.json'):
            shard = name.removesuffix('.safetensors.index.json') + '-00001-of-00001.safetensors'
            st.write(place / shard, {key: ('U8', [3], b'abc')})
            (place / name).write_text(json.dumps({'weight_map': {key: shard}}))
        else:
            st.write(folder / 'one', {key: ('U8', [3], b'abc')})
            weightfs('convert', '--format', 'pytorch' if name.endswith('.bin') else 'safetensors', folder / 'one', place / name)
    (place / 'training_args.bin').write_bytes(b'x')
    local, remote = weightfs('ls', place).stdout, weightfs('ls', serve(place).url() + '/').stdout
    assert local == remote and local.split('\t')[0] == NAMES[i].replace('.', '_')


def test_a_folder_with_nothing_known_is_reported(folder, serve):
    made(folder / 'empty', {'readme': b'x'})
    url = serve(folder).url(folder / 'empty') + '/'
    error = weightfs('ls', url, code=EXIT_SOURCE).error
    assert error.startswith(url + ': ') and error.endswith('the folder has no file of a known name, such as model.safetensors: name the file')


def test_files_of_a_distributed_checkpoint_that_are_not_the_one_to_name(folder, serve):
    weightfs('convert', made(folder / 'x', {}) and st.write(folder / 'in.safetensors', {'a': ('U8', [1], b'1')}) or folder / 'in.safetensors',
             '%s/' % (folder / 'dcp'), '--format=dcp')
    (folder / 'dcp/__0.metadata').write_bytes(b'x')
    server = serve(folder)
    (part,) = (folder / 'dcp').glob('*.distcp')
    assert 'name the .metadata beside it' in weightfs('ls', server.url(part), code=None).error
    assert 'download the directory' in weightfs('ls', server.url(folder / 'dcp/__0.metadata'), code=EXIT_UNSUPPORTED).error


def test_names_in_the_metadata_that_lead_away_are_not_followed(written, serve):
    folder, _ = written
    place = folder / 'dcp'
    (part,) = place.glob('*.distcp')
    metadata = (place / '.metadata').read_bytes()
    name = part.name.encode()
    (folder / 'outside').mkdir()
    os.link(part, folder / 'outside' / part.name)
    server = serve(folder)
    for hostile in (b'../' + name[:-3], b'/' + name[1:], b'x:' + name[2:], b'a/' + name[2:], b'..', b'%2e%2e%2f' + name[:-9]):
        padded = hostile[:len(name)].ljust(len(name), b'x') if hostile != b'..' else b'../..'.ljust(len(name), b'x')
        (place / '.metadata').write_bytes(metadata.replace(name, padded))
        server.forget()
        weightfs('cat', server.url(place) + '/', 't07', code=None)
        asked = {request.path for request in server.requests()}
        assert all(path.startswith('dcp/') and not {'..', '.', ''} & set(path.split('/')) for path in asked), asked


def test_a_folder_may_be_laid_over_and_taken_as_like(written, serve):
    folder, tensors = written
    server = serve(folder)
    url = server.url(folder / 'dcp') + '/'
    st.write(folder / 'small.safetensors', {'t07': ('F32', [64, 256], bytes(1 << 16))})
    assert weightfs('cat', '--overlay', url, folder / 'small.safetensors', 't07').raw == tensors['t07'][2]
    weightfs('plan', '--like', url, folder / 'in.safetensors')
