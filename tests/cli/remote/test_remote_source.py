# SPDX-License-Identifier: MIT
"""Sources by URL, behind a real server."""
import json
import os
import random
import re
import shutil

import pytest

from wfs_testlib import program, st, terminal
from wfs_testlib.program import EXIT_SOURCE, EXIT_UNSUPPORTED, EXIT_USAGE, weightfs

MIB = 1 << 20
SECRETS = ('hunter2', 'tok3n', 'alice')


@pytest.fixture
def files(folder):
    """A folder to serve: one file of some MiB, and a set."""
    tensors = {'t%d' % i: ('U8', [3 * MIB + i], random.Random(i).randbytes(3 * MIB + i)) for i in range(4)}
    st.write(folder / 'one.safetensors', tensors)
    names = {}
    for i in range(5):
        name = 'model-%05d-of-00005.safetensors' % (i + 1)
        st.write(folder / name, {'s%d.w' % i: ('U8', [100], bytes([i] * 100))})
        names['s%d.w' % i] = name
    (folder / 'model.safetensors.index.json').write_text(json.dumps({'metadata': {}, 'weight_map': names}))
    return folder


@pytest.mark.parametrize('name', ['one.safetensors', 'model.safetensors.index.json'])
def test_a_url_is_listed_as_the_file_is(files, serve, name):
    server = serve(files)
    assert weightfs('ls', server.url(name)).stdout == weightfs('ls', files / name).stdout


@pytest.mark.skipif(program.IS_INSTRUMENTED, reason='a sanitizer prints in the same place')
def test_only_a_url_loads_what_fetches(files, serve):
    def libraries(source):
        weightfs('ls', source, env={**os.environ, 'LD_DEBUG': 'files', 'LD_DEBUG_OUTPUT': str(files / 'log')})
        logs = list(files.glob('log.*'))
        text = ''.join(log.read_text() for log in logs)
        for log in logs:
            log.unlink()
        assert 'libweightfs' in text
        return text
    assert 'libcurl' not in libraries(files / 'one.safetensors')
    assert 'libcurl' in libraries(serve(files).url('one.safetensors'))


def test_without_the_module_a_url_is_refused_in_one_line(files):
    """The program is copied without it, as a package may do. One that is installed here too has it."""
    folder = os.path.dirname(os.path.realpath(program.COMMAND[-1]))
    for name in ('weightfs', 'libweightfs.so.0'):
        shutil.copy(os.path.join(folder, name), files / name)
    done = program.tool(files / 'weightfs', 'ls', 'http://127.0.0.1:1/x', code=None, env={**os.environ, 'LD_LIBRARY_PATH': files})
    if 'cannot connect' in done.stderr:
        pytest.skip('weightfs is installed here')
    assert done.code == EXIT_UNSUPPORTED and done.stderr.count('\n') == 1
    assert 'URLs cannot be read: ' in done.stderr and 'weightfs-fetch.so' in done.stderr


def test_a_module_beside_the_program_is_not_loaded(files):
    """It may have been downloaded to the same folder. The library, here in another one, is what the program trusts."""
    folder = os.path.dirname(os.path.realpath(program.COMMAND[-1]))
    library = files / 'library'
    library.mkdir()
    shutil.copy(os.path.join(folder, 'libweightfs.so.0'), library)
    shutil.copy(program.COMMAND[-1], files / 'weightfs')
    shutil.copy(os.path.join(folder, 'weightfs-fetch.so'), files)
    for copy, is_found in ((None, False), (library, True)):
        if copy is not None:
            shutil.copy(os.path.join(folder, 'weightfs-fetch.so'), copy)
        env = {**os.environ, 'LD_LIBRARY_PATH': library, 'LD_DEBUG': 'files', 'LD_DEBUG_OUTPUT': str(files / 'log')}
        program.tool(files / 'weightfs', 'ls', '--retries=0', 'http://127.0.0.1:1/x', code=None, env=env)
        text = ''.join(log.read_text() for log in files.glob('log.*'))
        assert str(files / 'weightfs-fetch.so') not in text and (str(library / 'weightfs-fetch.so') in text) == is_found


def test_a_tensor_of_a_url_costs_its_bytes_and_little_more(files, serve):
    server = serve(files)
    assert weightfs('cat', server.url('one.safetensors'), 't2').raw == st.read(files / 'one.safetensors').tensors['t2'][2]
    assert server.n_bytes() < 3 * MIB + 2 * MIB


def test_the_options_of_a_url_are_taken_by_verbs(files, serve):
    url = serve(files).url('one.safetensors')
    weightfs('ls', '--retries=0', '--timeout=7', url)
    assert "'x'" in weightfs('ls', '--retries=x', url, code=EXIT_USAGE).error
    assert 'http' in weightfs('ls', '--endpoint=ftp://x', url, code=EXIT_USAGE).error


def test_what_is_secret_of_a_url_is_not_shown(files, serve):
    server = serve(files)
    url = server.url('one.safetensors').replace('//', '//alice:hunter2@') + '?sig=tok3n#tok3n'
    missing = url.replace('one.', 'none.')
    shown = [weightfs('info', url), weightfs('info', '--json', url), weightfs('plan', '--like=' + url, files / 'one.safetensors'),
             weightfs('plan', '--overlay=' + url, files / 'one.safetensors'),
             weightfs('info', missing, code=EXIT_SOURCE), weightfs('diff', url, missing, code=EXIT_SOURCE)]
    for result in shown:
        assert not any(secret in result.stdout + result.stderr for secret in SECRETS)
    assert server.url('one.safetensors') in shown[0].stdout
    assert any('sig=tok3n' in request.path for request in server.requests())


def test_a_server_that_is_not_there_is_one_line(files, serve):
    server = serve(files)
    url = server.url('one.safetensors')
    server.die()
    assert weightfs('ls', '--retries=0', url, code=EXIT_SOURCE).error


def test_a_shard_that_leads_away_is_refused(files, serve):
    index = files / 'model.safetensors.index.json'
    index.write_text(json.dumps({'weight_map': {'s0.w': 'https:evil.safetensors'}}))
    assert 'beside' in weightfs('ls', serve(files).url(index), code=EXIT_USAGE).error


def test_names_of_shards_are_escaped_in_their_urls(files, serve):
    odd = 'a b%20?#&+é.safetensors'
    os.rename(files / 'model-00001-of-00005.safetensors', files / odd)
    index = files / 'odd.index.json'
    index.write_text(json.dumps({'weight_map': {'s0.w': odd}}))
    assert 's0.w' in weightfs('ls', serve(files).url(index)).stdout


def test_info_tells_how_much_of_a_url_is_in_the_cache(files, serve):
    url = serve(files).url('one.safetensors')
    shown = int(re.search(r', (\d+) in the cache', weightfs('info', url).stdout)[1])
    cached = json.loads(weightfs('info', '--json', url).stdout)['sources'][0]['files'][0]['cached']
    assert 4096 <= shown <= 65536 and 4096 <= cached <= 65536  # more may be on its way
    assert 'cache' not in weightfs('info', files / 'one.safetensors').stdout


def test_a_change_that_may_not_be_noticed_is_a_finding(files, serve):
    server = serve(files, more='etag off; add_header Last-Modified "";')
    assert 'a change of the same size may not be noticed' in weightfs('info', server.url('one.safetensors')).stdout
    assert 'is noticed' not in weightfs('info', serve(files).url('one.safetensors')).stdout


def test_a_conversion_reads_a_url_in_few_requests(files, serve):
    server = serve(files)
    weightfs('convert', server.url('one.safetensors'), files / 'out.safetensors')
    assert st.read(files / 'out.safetensors').tensors == st.read(files / 'one.safetensors').tensors
    assert len(server.requests()) < 20
    assert server.n_bytes() < os.path.getsize(files / 'one.safetensors') * 1.02


def test_the_progress_of_opening_is_what_was_fetched_of_what_is_needed(folder, serve):
    path = st.write(folder / 'many.safetensors', {'tensor%05d' % i: ('U8', [1], b'x') for i in range(3000)})
    n_header = path.stat().st_size - 3000
    assert n_header > 3 * (64 << 10)  # more than the first request
    code, stdout, drawn = terminal.run('ls', serve(folder, more='limit_rate 60k;').url(path))
    shown = [tuple(map(float, numbers)) for numbers in re.findall(r' ([\d.]+) KiB of ([\d.]+) KiB', drawn)]
    assert code == 0 and len(stdout.splitlines()) == 3000
    assert len(set(shown)) > 1 and shown == sorted(shown) and all(n_done <= n_total for n_done, n_total in shown)
    assert abs(shown[-1][1] * 1024 - n_header) < 8192 and any(n_done < n_total for n_done, n_total in shown), shown
