"""One worker of a service: the process that a `WorkerPool` starts.

It reads its plan from stdin, which stays open as long as the pool lives, and writes one JSON
message per line to stdout: its version when it is ready, why it cannot start, or that a client
wants the store to be checked.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NamedTuple

from trimtab.errors import TrimtabError
from trimtab.serve.count_board import CountBoard
from trimtab.serve.counters import Counters
from trimtab.serve.service import Service
from trimtab.serve.settings import Settings
from trimtab.serve.socket_server import log_to_stderr, no_hangup, serve_on
from trimtab.store import Store

READY, FAILED, RELOAD = "ready", "failed", "reload"  # kinds of messages


class WorkerPlan(NamedTuple):
    """What a worker needs to know."""

    store: Store
    settings: Settings
    worker: int  # from 0
    listener: int  # descriptors
    board: int
    has_log: bool

    def as_line(self) -> str:
        """Return the plan as a line of JSON."""
        settings = asdict(self.settings)
        if self.settings.exposures is not None:
            settings["exposures"] = str(self.settings.exposures)
        made = {**self._asdict(), "store": str(self.store.folder), "settings": settings}
        return json.dumps(made) + "\n"

    @staticmethod
    def of_line(line: str) -> WorkerPlan:
        """Return the plan in a line that `as_line` made."""
        made = json.loads(line)
        settings = made["settings"]
        if settings["exposures"] is not None:
            settings["exposures"] = Path(settings["exposures"])
        return WorkerPlan(
            **{**made, "store": Store(made["store"]), "settings": Settings(**settings)}
        )


def main() -> None:
    """Run a worker."""
    with no_hangup():
        _run(WorkerPlan.of_line(sys.stdin.readline()))


def _run(plan: WorkerPlan) -> None:
    if plan.has_log:
        log_to_stderr(f"worker {plan.worker + 1}: ")
    messages, sys.stdout = sys.stdout, sys.stderr
    threading.Thread(target=_stop_at_end_of, args=(sys.stdin,), daemon=True).start()
    counters = Counters(CountBoard.shared(plan.board), plan.worker)
    service = Service(plan.store, plan.settings, counters, lambda: _send(messages, RELOAD))
    try:
        with socket.socket(fileno=plan.listener) as listener:
            serve_on(listener, service, lambda version: _send(messages, READY, version))
    except TrimtabError as error:
        _send(messages, FAILED, str(error))
        sys.exit(2)


def _send(messages: IO[str], kind: str, value: Any = None) -> None:
    """Send a message; a pool that is gone gets none."""
    with contextlib.suppress(OSError):
        print(json.dumps([kind, value]), file=messages, flush=True)


def _stop_at_end_of(stdin: IO[str]) -> None:
    """Stop this process when the pool has ended."""
    stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)
