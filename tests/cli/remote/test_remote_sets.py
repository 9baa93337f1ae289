# SPDX-License-Identifier: MIT
"""Sets by the URL of their index: what is asked for at the same time, and over how many connections."""
import json
import threading
import time

import pytest

from wfs_testlib import sets, st
from wfs_testlib.bad_server import BadServer, honest
from wfs_testlib.engine import WHY_NOT
from wfs_testlib.program import weightfs

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
N_SHARDS, PATIENCE = 100, 30


class Folder(BadServer):
    """The files of a folder; `behave` gets the requests for shards, with the name and the number of the request for it."""

    def __init__(self, folder, behave):
        super().__init__(b'', default=self._answer)
        self.folder, self.behave, self.counting = folder, behave, threading.Lock()
        self.n_asked, self.n_bytes = {}, 0

    def _answer(self, exchange):
        name = exchange.request.path[1:]
        exchange.content = (self.folder / name).read_bytes()
        first, last = exchange.range
        with self.counting:
            self.n_bytes += last - first + 1
        if name == sets.INDEX:
            honest(exchange)
            return
        with self.counting:
            self.n_asked[name] = n = self.n_asked.get(name, 0) + 1
        self.behave(exchange, name, n)

    def index(self):
        return self.url('/' + sets.INDEX)


def make(folder, n_shards, n_keys):
    """Returns the folder of a set and its keys."""
    shards = [{'shard%d.tensor%05d' % (i, k): ('U8', [1], b'x') for k in range(n_keys)} for i in range(n_shards)]
    return sets.write(folder / 'set', shards), sorted(key for shard in shards for key in shard)


def keys(result):
    return sorted(line.split()[0] for line in result.stdout.splitlines())


@pytest.mark.parametrize('n_keys', [1, 250], ids=['short headers', 'long headers'])
def test_the_headers_of_all_shards_are_asked_for_at_the_same_time(folder, n_keys):
    place, expected = make(folder, N_SHARDS, n_keys)
    gates = [threading.Barrier(N_SHARDS, timeout=PATIENCE) for _ in range(2)]

    def behave(exchange, _, n):
        gates[n - 1].wait()  # for the requests of all others
        honest(exchange)

    with Folder(place, behave) as server:
        assert keys(weightfs('ls', server.index())) == expected
        n_index = sum(request.path.endswith(sets.INDEX) for request in server.requests)
        assert set(server.n_asked.values()) == {1 if n_keys == 1 else 2} and n_index <= 9
        assert len(server.requests) <= 210
        assert server.n_connections <= N_SHARDS + n_index
        assert server.n_bytes == sum(path.stat().st_size for path in place.iterdir())  # none twice


def test_a_small_set_takes_few_connections(folder):
    place, expected = make(folder, 3, 10)
    with Folder(place, lambda exchange, *_: honest(exchange)) as server:
        assert keys(weightfs('ls', server.index())) == expected
        assert len(server.requests) == 4 and server.n_connections <= 4


def test_a_server_that_refuses_some_gets_fewer_at_a_time(folder):
    place, expected = make(folder, N_SHARDS, 1)
    most, working = 16, set()

    def behave(exchange, name, _):
        working.add(name)
        if len(working) > most:
            exchange.answer('503 Service Unavailable')
        else:
            time.sleep(0.1)
            honest(exchange)
        working.discard(name)

    with Folder(place, behave) as server:
        assert keys(weightfs('ls', server.index())) == expected
        assert max(server.n_asked.values()) <= 3  # one more where the machine is slow


def test_names_that_tell_another_number_of_shards_do_no_harm(folder):
    place, _ = make(folder, 2, 1)
    index = place / sets.INDEX
    for number in '00000', '99999', '99999999999999999999999', 'x':
        for path in place.glob('*.safetensors'):
            path.rename(path.with_name(path.name.split('-of-')[0] + '-of-%s.safetensors' % number))
        found = {key: 'model-%05d-of-%s.safetensors' % (i, number) for i, key in ((1, 'shard0.tensor00000'), (2, 'shard1.tensor00000'))}
        index.write_text(json.dumps({'weight_map': found}))
        with Folder(place, lambda exchange, *_: honest(exchange)) as server:
            assert keys(weightfs('ls', server.index())) == sorted(found)
            assert server.n_connections <= 1 + 100


def test_a_file_is_open_when_its_first_bytes_have_come(folder):
    """The rest of the first request never comes, and is not needed."""
    st.write(folder / 'x', {'w': ('U8', [1 << 20], bytes(1 << 20))})

    def stall(exchange):
        exchange.partial(exchange.wanted()[:8192])
        exchange.connection.settimeout(None)
        exchange.connection.recv(1)

    with BadServer((folder / 'x').read_bytes(), [stall], forever=True) as server:
        assert keys(weightfs('ls', '--retries=0', '--timeout=2', server.url())) == ['w']
