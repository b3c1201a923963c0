"""Several processes that share one port: started, watched, replaced and stopped by this one."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from trimtab.checks import require_whole
from trimtab.errors import SettingError, StoreError, TrimtabError
from trimtab.serve.count_board import CountBoard, make_shared_file
from trimtab.serve.counters import Counters
from trimtab.serve.listeners import bind, bind_shared, format_url
from trimtab.serve.settings import Settings
from trimtab.serve.socket_server import GRACE_SECONDS, HANGUP, STOP_SIGNALS, handling
from trimtab.serve.worker_process import FAILED, READY, RELOAD, WorkerPlan
from trimtab.store import Store

log = logging.getLogger("trimtab.serve")
OnReady = Callable[[int, str], None]
_LOOK_SECONDS = 0.05
_STOP_SECONDS = GRACE_SECONDS + 90.0  # for requests, threads and the rest of the exposures
_GOOD_ENDS = (0, -signal.SIGTERM)  # finished, or not ready yet when it was stopped
_SHORT_LIFE, _LONGEST_PAUSE = 10.0, 30.0  # seconds
_CODE = "from trimtab.serve.worker_process import main; main()"


def require_workers(n: int) -> None:
    """Refuse a number of workers that cannot be had."""
    require_whole("workers", n, 1)
    if n > 1 and sys.platform != "linux":
        raise SettingError(
            f"workers={n}: only Linux spreads the connections of one port over several processes; "
            f"use 1, or run several services behind a proxy"
        )


class Worker:
    """One worker process, and what it has reported."""

    def __init__(self, plan: WorkerPlan, on_reload: Callable[[], None]) -> None:
        self.number = plan.worker + 1
        self.version: int | None = None
        self.failure: str | None = None
        self.begun = time.monotonic()
        self.ended: float | None = None
        self._on_reload = on_reload
        paths = os.pathsep.join(filter(None, sys.path))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths}, pass_fds=(plan.listener, plan.board),
            start_new_session=True,  # Ctrl-C in a terminal goes to the pool only
        )  # fmt: skip
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(plan.as_line().encode())
            self.process.stdin.flush()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def has_ended(self) -> bool:
        """Return whether the process has ended, and all it reported was read."""
        if self.process.poll() is None:
            return False
        self._reader.join()
        return True

    def send(self, number: signal.Signals) -> None:
        """Send a signal; a hangup only to a worker that is ready for it."""
        if self.process.poll() is None and (number not in HANGUP or self.version is not None):
            self.process.send_signal(number)

    def describe_end(self) -> str:
        """Return how the process ended."""
        reason = "" if self.failure is None else f" ({self.failure})"
        return f"worker {self.number} ended with status {self.process.returncode}{reason}"

    def close(self) -> None:
        """Close the pipes of a process that has ended."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            kind, value = json.loads(line)
            if kind == READY:
                self.version = value
            elif kind == FAILED:
                self.failure = value
            elif kind == RELOAD:
                self._on_reload()


class WorkerPool:
    """The workers of a service.

    Each has a socket of its own on the same port. This process has one too, which does not
    listen: the port stays taken while a worker is replaced.
    """

    def __init__(
        self, store: Store, settings: Settings, host: str, port: int, n_workers: int
    ) -> None:
        self._store = store
        self._settings = settings
        self._n_workers = n_workers
        self._anchor = bind_shared(host, port)
        self._address = host, self._anchor.getsockname()[1]
        self._board = make_shared_file(n_workers)
        board = CountBoard.shared(self._board)
        self._counters = [Counters(board, worker) for worker in range(n_workers)]
        self._workers: list[Worker] = []
        self._pauses = [0.0] * n_workers
        self._n_stops = 0
        self._must_reload = False

    def run(self, on_ready: OnReady | None = None) -> None:
        """Serve until SIGINT or SIGTERM; see `trimtab.serve.run`."""
        handlers = dict.fromkeys(STOP_SIGNALS, self._note_stop)
        with self._resources(), handling({**handlers, **dict.fromkeys(HANGUP, self._note_hangup)}):
            try:
                self._store.current()  # raises at once if there is nothing to serve
                self._workers = [self._start(worker) for worker in range(self._n_workers)]
                self._wait_until_ready()
                if on_ready is not None and not self._n_stops:
                    on_ready(self._counters[0].version.value, format_url(self._anchor))
                self._watch()
            finally:
                self._stop()
        for worker in self._workers:
            if worker.process.returncode not in _GOOD_ENDS:
                raise TrimtabError(f"{worker.describe_end()}: see the log for the reason")

    @contextlib.contextmanager
    def _resources(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._anchor.close()
            os.close(self._board)

    def _start(self, worker: int) -> Worker:
        with bind(*self._address, is_shared=True) as listener:
            has_log = bool(log.handlers)
            plan = WorkerPlan(
                self._store, self._settings, worker, listener.fileno(), self._board, has_log
            )
            return Worker(plan, self._note_hangup)

    def _wait_until_ready(self) -> None:
        while not self._n_stops and any(worker.version is None for worker in self._workers):
            for worker in self._workers:
                if worker.has_ended():
                    raise StoreError(worker.failure or worker.describe_end())
            time.sleep(_LOOK_SECONDS)

    def _watch(self) -> None:
        while not self._n_stops:
            if self._must_reload:
                self._must_reload = False
                self._send(*HANGUP)
            for place, worker in enumerate(self._workers):
                if worker.has_ended():
                    self._replace(place, worker)
            time.sleep(_LOOK_SECONDS)

    def _replace(self, place: int, worker: Worker) -> None:
        """Start another worker; wait longer each time if they end soon."""
        now = time.monotonic()
        if worker.ended is None:
            worker.ended = now
            pause = 2 * self._pauses[place] + 1
            is_old = now - worker.begun >= _SHORT_LIFE
            self._pauses[place] = 0.0 if is_old else min(pause, _LONGEST_PAUSE)
            self._counters[place].clear_gauges()
            log.warning("%s; starting another", worker.describe_end())
        if now >= worker.ended + self._pauses[place]:
            worker.close()
            self._counters[place].restarts.add()
            self._workers[place] = self._start(place)

    def _stop(self) -> None:
        """Stop all workers, and wait for them; after a second signal, not for their requests."""
        self._send(signal.SIGTERM)
        until, n_stops = time.monotonic() + _STOP_SECONDS, self._n_stops
        while not all(worker.has_ended() for worker in self._workers):
            if self._n_stops > max(n_stops, 1):
                n_stops = self._n_stops
                self._send(signal.SIGINT)
            if time.monotonic() > until:
                self._send(signal.SIGKILL)
            time.sleep(_LOOK_SECONDS)
        for worker in self._workers:
            worker.close()

    def _send(self, number: signal.Signals) -> None:
        for worker in self._workers:
            worker.send(number)

    def _note_stop(self, *_: Any) -> None:
        self._n_stops += 1

    def _note_hangup(self, *_: Any) -> None:
        self._must_reload = True
