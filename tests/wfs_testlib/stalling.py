# SPDX-License-Identifier: MIT
"""A server of an object that stops to answer for a part of it, on order, and goes on later."""
import threading

from wfs_testlib import bad_server


class StallingServer(bad_server.BadServer):
    """While it is stopped, answers end before the bytes of `stalled`, a range, and go on later."""

    def __init__(self, content, stalled, others=None):
        """others: {name: bytes} of files beside it; None: it is not there."""
        self.others = others or {}
        self.stalled, self._goes_on = stalled, threading.Event()
        self._goes_on.set()
        self.n_waiting = 0
        super().__init__(content, default=self._behave)

    def _behave(self, exchange):
        name = exchange.request.path.rpartition('/')[2]
        if name in self.others:
            exchange.content = self.others[name]
            behave = bad_server.honest if exchange.content is not None else bad_server.status('404 Not Found')
            behave(exchange)
            return
        first, last = exchange.range
        at = max(first, self.stalled[0])
        if at > last or at >= self.stalled[1] or self._goes_on.is_set():
            bad_server.honest(exchange)
            return
        exchange.partial(b'')
        exchange.send(self.content[first:at])
        self.n_waiting += 1
        self._goes_on.wait()
        self.n_waiting -= 1
        exchange.send(self.content[at:last + 1])

    def stop(self):
        self._goes_on.clear()

    def go_on(self):
        self._goes_on.set()

    def __exit__(self, *args):
        self.go_on()
        super().__exit__(*args)
