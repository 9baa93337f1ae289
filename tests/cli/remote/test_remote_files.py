# SPDX-License-Identifier: MIT
"""Checkpoints behind nginx: every verb gives what it gives for the file there, and little more than what is looked at goes over the wire."""
import gzip
import hashlib
import json
import os
import re

import pytest

from wfs_testlib import checkpoints, sets, shared, st
from wfs_testlib.program import EXIT_DAMAGED, EXIT_FOREIGN, EXIT_SOURCE, EXIT_UNSUPPORTED, SAMPLE, weightfs

MIB = 1 << 20
N_CATS = 300  # of one file
N_PARTS = 64
N_NAMES = 4000  # of one file, in the slow tests
# Checkpoints that are directories: test_remote_folders.py.
FILES = [path for path in shared.everything() if 'dcp' not in path.relative_to(shared.FOLDER).parts]


def _spelled(key):
    return key.encode('utf-8', 'surrogatepass')


def given(name):
    """All that `ls` and `cat` give, also in failing: code, errors, listing, [(key, code, bytes)]."""
    listed = weightfs('ls', '--json', '-l', name, code=None)
    text = listed.raw.decode('utf-8', 'surrogatepass')
    tensors = json.loads(text)['tensors'] if listed.code == 0 else []
    cats = []
    for tensor in tensors[::len(tensors) // N_CATS + 1]:
        done = weightfs('cat', name, '--', _spelled(tensor['key']), code=None)
        cats.append((tensor['key'], done.code, done.raw))
    return listed.code, listed.stderr, text, cats


def compare(server, path, tls=False):
    """Returns how many tensors were compared."""
    code, stderr, text, cats = given(path)
    assert given(server.url(path, tls)) == (code, server.in_urls(stderr, path, tls), server.in_urls(text, path, tls), cats), path
    return len(cats)


@pytest.fixture
def every_format(folder):
    """A checkpoint of each format, all with the same tensors, and a set."""
    place = folder / 'all formats'
    place.mkdir()
    tensors = {'a.weight': ('F32', [300, 200], os.urandom(240000)), 'a.bias': ('F32', [3], st.f32(1, 2, 3)), 'n': ('I64', [], bytes(8)),
               'none': ('F32', [0, 4], b'')}
    for ending in checkpoints.ENDINGS:
        checkpoints.write(place / ('one.' + ending), tensors)
    sets.write(place / 'set', [dict([item]) for item in tensors.items()])
    weightfs('convert', place / 'one.bpk', place / 'one.mpk')
    (place / 'one.mpk.gz').write_bytes(gzip.compress((place / 'one.mpk').read_bytes()))
    return [*sorted(path for path in place.iterdir() if path.is_file()), place / 'set' / sets.INDEX]


@pytest.mark.parametrize('tls', [False, True], ids=['http', 'TLS'])
def test_every_format_gives_what_the_file_gives(serve, every_format, folder, tls):
    server = serve(folder)
    assert [compare(server, path, tls) for path in every_format] == [4] * 6
    assert {request.protocol for request in server.requests()} == {'HTTP/2.0' if tls else 'HTTP/1.1'}


@pytest.mark.usefixtures('need_shared')
def test_a_sample_of_files_of_other_programs(serve):
    server = serve(shared.FOLDER.resolve())
    assert sum(compare(server, path.resolve()) for path in FILES[::181]) > 10


def of_all(name):
    """What the verbs give that read all tensors in one process: code, errors and output of each."""
    done = [weightfs(*verb, name, code=None) for verb in (['ls', '--json', '-l'], ['sum', '--json'])]
    return [(one.code, one.stderr, one.raw.decode('utf-8', 'surrogatepass')) for one in done]


def compare_all(server, path):
    """`ls` and `sum` by HTTP and TLS are those of the file, and `cat` of each tensor, by one of the two in turns, has the sum that the file
    has. Of the many names that a few bytes can give to a tensor, about N_NAMES are tried."""
    (code, _, listing), (_, _, sums) = theirs = of_all(path)
    for tls in False, True:
        expected = [(code, *(server.in_urls(text, path, tls) for text in texts)) for code, *texts in theirs]
        assert of_all(server.url(path, tls)) == expected, path
    hashes = {tensor['key']: tensor['sha256'] for source in json.loads(sums or '{}').get('sources', []) for tensor in source['tensors']}
    tensors = json.loads(listing)['tensors'] if code == 0 else []
    for i, tensor in enumerate(tensors[::1 + len(tensors) // N_NAMES]):
        done = weightfs('cat', server.url(path, i % 2 == 1), '--', _spelled(tensor['key']), code=None)
        if done.code == 0 and tensor['key'] in hashes:
            assert hashlib.sha256(done.raw).hexdigest() == hashes[tensor['key']], (path, tensor['key'])
        else:
            theirs = weightfs('cat', path, '--', _spelled(tensor['key']), code=None)
            assert (done.code, done.raw) == (theirs.code, theirs.raw), (path, tensor['key'])


@pytest.mark.slow
@pytest.mark.usefixtures('need_shared')
@pytest.mark.parametrize('start', range(N_PARTS))
def test_every_file_of_other_programs(serve, start):
    server = serve(shared.FOLDER.resolve())
    for path in FILES[start::N_PARTS]:
        compare_all(server, path.resolve())


VERBS = [['info', '--json'], ['info'], ['check'], ['check', '--values', '--json'], ['config'], ['plan', '--json'], ['ls', '--tree'], ['show', '--json']]


@pytest.mark.parametrize('ending', checkpoints.ENDINGS)
def test_verbs_give_what_they_give_for_the_file(serve, every_format, folder, ending):
    server = serve(folder)
    path = next(path for path in every_format if path.name == 'one.' + ending)
    for verb in VERBS:
        key = ['a.weight'] if verb[0] == 'show' else []
        ours, theirs = (weightfs(*verb, name, *key, code=None) for name in (server.url(path), path))
        assert ours.code == theirs.code, verb
        assert served_apart(ours.stdout) == served_apart(server.in_urls(theirs.stdout, path)), verb


def served_apart(text):
    """Without what only URLs have: how much of them is in a cache."""
    return re.sub(r', "cached": \d+|, \d+ in the cache', '', text).splitlines()


@pytest.mark.parametrize('ending', checkpoints.ENDINGS)
def test_a_conversion_of_a_url_is_that_of_the_file(serve, every_format, folder, ending):
    server = serve(folder)
    path = next(path for path in every_format if path.name == 'one.' + ending)
    for target in checkpoints.ENDINGS:
        for name, source in (('ours', server.url(path)), ('theirs', path)):
            weightfs('convert', source, folder / ('%s.%s' % (name, target)), has_notices=True)
        assert (folder / ('ours.' + target)).read_bytes() == (folder / ('theirs.' + target)).read_bytes()


def test_like_and_overlay_may_be_urls(serve, small, folder):
    server = serve(folder)
    over = st.write(folder / 'over.safetensors', {'a.c': ('U8', [5], b'other')})
    shape = st.write(folder / 'like.safetensors', {'a.c': ('U8', [5], b'.....')})
    for name in over, server.url(over):
        assert weightfs('cat', '--overlay', name, small, 'a.c').raw == b'other'
    ours, theirs = (weightfs('plan', '--json', '--like', name, small, code=None) for name in (server.url(shape), shape))
    assert (ours.code, ours.stdout) == (theirs.code, server.in_urls(theirs.stdout, shape))


def test_diff_compares_a_url_with_a_file(serve, small, folder):
    server = serve(folder)
    weightfs('diff', small, server.url(small))
    other = st.write(folder / 'other.safetensors', {'a.c': ('U8', [5], b'other')})
    weightfs('diff', server.url(other), server.url(small), code=1)


def test_what_is_not_there_or_no_checkpoint_is_said(serve, folder):
    server = serve(folder)
    (folder / 'text').write_text('<!DOCTYPE html><html>')
    (folder / 'empty').write_bytes(b'')
    st.write(folder / 'cut', {'a': ('U8', [9], bytes(9))})
    os.truncate(folder / 'cut', 40)
    for name, code in (('text', EXIT_FOREIGN), ('cut', EXIT_DAMAGED), ('nothing', EXIT_SOURCE)):
        assert server.url(name) in weightfs('ls', server.url(name), code=code).error
    assert weightfs('ls', server.url('empty'), code=None).code == weightfs('ls', folder / 'empty', code=None).code
    server.die()
    assert server.url('cut') in weightfs('ls', '--retries=0', server.url('cut'), code=EXIT_SOURCE).error


# ---- bytes and requests, as the server counts them ----

def many(folder, n, n_each):
    """A sparse file of n tensors; its path, and how long its header is."""
    each = n_each // 8 * 8
    head = json.dumps({'layers.%d.weight' % i: {'dtype': 'F64', 'shape': [each // 8], 'data_offsets': [i * each, (i + 1) * each]}
                       for i in range(n)}).encode()
    head += b' ' * (-len(head) % 8)
    path = folder / 'many.safetensors'
    path.write_bytes(len(head).to_bytes(8, 'little') + head)
    os.truncate(path, 8 + len(head) + n * each)
    return path, 8 + len(head)


def test_ls_of_a_sparse_file_of_100_gb_costs_its_header(serve, folder):
    path, n_header = many(folder, 100000, 10**6)
    server = serve(folder)
    assert len(weightfs('ls', server.url(path)).stdout.splitlines()) == 100000
    assert n_header <= server.n_bytes() <= 1.1 * n_header


def test_one_tensor_costs_its_bytes(serve, folder):
    path, n_header = many(folder, 100, 10 * MIB)
    server = serve(folder)
    assert len(weightfs('cat', server.url(path), 'layers.57.weight').raw) == 10 * MIB
    assert server.n_bytes() <= n_header + 10 * MIB + 2 * MIB


def test_a_set_of_100_shards_costs_two_requests_each(serve, folder):
    place = sets.write(folder / 'set', [{'t%d' % i: ('U8', [3], b'abc')} for i in range(100)])
    server = serve(folder)
    assert len(weightfs('ls', server.url(place / sets.INDEX)).stdout.splitlines()) == 100
    assert len(server.requests()) <= 210


def test_nothing_is_fetched_twice_by_a_conversion(serve, folder):
    path = st.write(folder / 'x.safetensors', {'t%d' % i: ('U8', [MIB // 2], os.urandom(MIB // 2)) for i in range(40)})
    server = serve(folder)
    weightfs('convert', server.url(path), folder / 'out.pth')
    assert server.n_bytes() <= path.stat().st_size * 1.02


def test_the_sample_over_tls_needs_the_certificate(serve, folder, sample, monkeypatch):
    server = serve(folder)
    assert weightfs('ls', server.url(sample, tls=True)).stdout == weightfs('ls', SAMPLE).stdout
    monkeypatch.delenv('CURL_CA_BUNDLE')
    error = weightfs('ls', server.url(sample, tls=True), code=EXIT_SOURCE).error
    assert 'certificate' in error and 'CURL_CA_BUNDLE' in error
