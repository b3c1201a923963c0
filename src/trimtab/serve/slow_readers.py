"""Clients that do not read their answers: closed after a while, and when they hold too much."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from trimtab.serve.counters import Counters

log = logging.getLogger("trimtab.serve")
MAX_UNSENT = 128 * 2**20  # bytes of answers that clients have not read, of all connections
_MIN_READ = 65_536  # bytes that a client must read each time
_LOG_SECONDS = 60.0


class SlowReaders:
    """The connections with more unsent bytes than the system takes, longest waiting first.

    A connection is closed if its client read less than 64 KiB of them in `seconds`. While all
    of them hold more than `MAX_UNSENT`, the one that has waited longest is closed.
    """

    def __init__(self, seconds: float, counters: Counters) -> None:
        self._seconds = seconds
        self._counters = counters
        self._timers: dict[Any, asyncio.TimerHandle] = {}
        self._reports = {"did not read": _Report(), "left": _Report()}

    def add(self, connection: Any) -> None:
        """Wait for the client of a connection, if anything is unsent."""
        n_unsent = _count_unsent(connection)
        if connection in self._timers or n_unsent == 0:
            return
        self._wait(connection, n_unsent)
        total = sum(map(_count_unsent, self._timers))
        while total > MAX_UNSENT:
            slowest = next(iter(self._timers))
            total -= _count_unsent(slowest)
            self._abort(slowest)

    def discard(self, connection: Any) -> None:
        """Wait no longer."""
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def close_one(self) -> bool:
        """Close the connection that has waited longest; return whether there is one."""
        for slowest in self._timers:
            self._abort(slowest)
            return True
        return False

    def note_left(self) -> None:
        """Note a client that closed its connection before its answer."""
        self._note("left", "left before their answer")

    def _wait(self, connection: Any, n_unsent: int) -> None:
        self._timers[connection] = connection.loop.call_later(
            self._seconds, self._check, connection, n_unsent
        )

    def _check(self, connection: Any, n_unsent: int) -> None:
        left = _count_unsent(connection)
        if 0 < left <= n_unsent - _MIN_READ:
            self._wait(connection, left)
        else:
            self._abort(connection)

    def _abort(self, connection: Any) -> None:
        self.discard(connection)
        self._counters.unread.add()
        self._note("did not read", f"did not read for {self._seconds:g} s and were disconnected")
        connection.abort()

    def _note(self, name: str, words: str) -> None:
        n = self._reports[name].count(time.monotonic())
        if n:
            log.info("clients that %s: %d", words, n)


class _Report:
    """A number that is reported at most once a minute."""

    def __init__(self) -> None:
        self._n = 0
        self._last = -_LOG_SECONDS

    def count(self, now: float) -> int:
        """Add 1; return the number since the last report if another is due, else 0."""
        self._n += 1
        if now - self._last < _LOG_SECONDS:
            return 0
        n, self._n, self._last = self._n, 0, now
        return n


def _count_unsent(connection: Any) -> int:
    return int(connection.transport.get_write_buffer_size())
