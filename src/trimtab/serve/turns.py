"""Turns of large requests: one at a time, in steps between which small requests are answered.

Everything is ranked in the event loop. Threads would not help: ranking holds the interpreter's
lock, and each step of a small request would wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

_LARGE = 32_768  # bytes of a body that waits for its turn: about 1,000 items
_STEP_SECONDS = 0.0005


class Turn:
    """The turn of one request."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()

    async def pause(self) -> None:
        """Let other requests go on, if this one has taken its share of time."""
        if time.perf_counter() - self._begun >= _STEP_SECONDS:
            await asyncio.sleep(0)
            self._begun = time.perf_counter()


class Turns:
    """Gives turns to requests: a large one when those before it are done, a small one at once."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def take(self, n_bytes: int) -> AsyncIterator[Turn]:
        """Wait for the turn of a request whose body has `n_bytes`."""
        if n_bytes < _LARGE:
            yield Turn()
            return
        async with self._lock:
            yield Turn()
