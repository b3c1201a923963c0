"""Runs the service in a server of its own: granian, with one process or several.

granian does the sockets, the limits of headers and connections, the workers, and the end: requests
that were sent before it are answered. The first process only looks after the workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server import MPServer

from trimtab.errors import SettingError, TrimtabError
from trimtab.serve.settings import COUNTS_FOLDER, REQUEST_SECONDS, Settings, is_loopback
from trimtab.store import Store
from trimtab.tables.files import require_writable_folder

__all__ = ["run"]
OnReady = Callable[[int, str], None]
log = logging.getLogger("trimtab.serve")
_HEADER_BYTES = 65_536
_LOOK_SECONDS = 0.05
# Seconds after SIGTERM, for workers that stay: granian can miss the first under load. Clients that
# do not read keep a worker alive; its exposures are written every 10 seconds, so none are lost.
_HURRY = ((1.0, signal.SIGTERM), (4.0, signal.SIGTERM), (15.0, signal.SIGKILL))
_LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "trimtab: %(asctime)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {
        "trimtab.serve": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "_granian": {"handlers": ["stderr"], "propagate": False},
    },
}


def run(
    store: Store | str | Path, settings: Settings | None = None, on_ready: OnReady | None = None
) -> None:
    """Serve until SIGINT or SIGTERM, and answer the requests that were sent before.

    SIGHUP makes it check the store at once. Call it under `if __name__ == "__main__"`: workers
    are processes that import the script.

    Args:
        store: The daily job's store, or its folder.
        settings: All defaults if left out.
        on_ready: Called with the version and the address when the service is ready.

    Raises:
        StoreError: if the store cannot be read.
        SettingError: if it cannot listen on the address, or have so many workers.
        TrimtabError: if workers end again and again.
    """
    chosen = settings or Settings()
    opened = store if isinstance(store, Store) else Store(store)
    _require_possible(chosen)
    with _own_signals(), _folder_for_counts(), contextlib.closing(_bind(chosen)) as anchor:
        from trimtab.serve import counters
        from trimtab.serve.watcher import StoreWatcher

        watcher = StoreWatcher(opened, chosen)
        watcher.load()  # raises if there is nothing to serve; workers load their own
        version = watcher.served().number
        counters.forget_process(os.getpid())
        if chosen.exposures is not None:
            require_writable_folder(chosen.exposures)

        def report() -> None:
            if on_ready is not None:
                on_ready(version, _format_url(anchor))

        server = _Server(anchor, chosen.workers, report)
        loader = functools.partial(_load_app, opened, chosen, server.ready)
        try:
            server.serve(target_loader=loader, wrap_loader=False)
        except SystemExit:  # also if Ctrl-C reached the workers first
            if not server.interrupt_signal:
                raise TrimtabError(
                    "workers of the service end again and again: see the log for the reason"
                ) from None


class _Server(MPServer):  # type: ignore[misc]
    """granian, which also says when it is ready, and passes SIGHUP on to its workers."""

    def __init__(self, anchor: socket.socket, workers: int, on_ready: Callable[[], None]) -> None:
        self._address = anchor.getsockname()[:2]
        self._on_ready = on_ready
        self.ready = multiprocessing.get_context("spawn").Semaphore(0)
        limits = HTTP1Settings(
            header_read_timeout=int(REQUEST_SECONDS * 1000), max_buffer_size=_HEADER_BYTES
        )
        super().__init__(
            "trimtab", *self._address, interface=Interfaces.ASGI, workers=workers,
            http=HTTPModes.http1, http1_settings=limits, websockets=False,
            log_dictconfig=_LOGGING, log_enabled=False, respawn_failed_workers=True,
        )  # fmt: skip
        self.main_loop_interrupt = _Interrupt(self)

    def signal_handler_reload(self, *_: Any, **__: Any) -> None:
        """Make all workers check the store, instead of replacing them."""
        self._send(signal.SIGHUP)

    def _send(self, number: signal.Signals) -> None:
        for worker in self.wrks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.inner.pid, number)

    def _spawn_workers(self, spawn_target: Any, target_loader: Any) -> None:
        with _without_hangups():
            super()._spawn_workers(spawn_target, target_loader)
        n_ready = 0
        while n_ready < self.workers and not self.main_loop_interrupt.is_set():
            n_ready += self.ready.acquire(timeout=_LOOK_SECONDS)
        while not (self._is_listening() or self.main_loop_interrupt.is_set()):
            time.sleep(_LOOK_SECONDS)
        if not self.main_loop_interrupt.is_set():
            self._on_ready()

    def _is_listening(self) -> bool:
        try:
            socket.create_connection(self._address).close()
        except OSError:
            return False
        return True

    def _respawn_workers(self, workers: list[int], *rest: Any, **more: Any) -> None:
        from trimtab.serve import counters

        for place in workers:
            status = self.wrks[place].inner.exitcode
            log.warning("worker %d ended with status %s; starting another", place + 1, status)
        counters.restarts.inc(len(workers))
        with _without_hangups():
            super()._respawn_workers(workers, *rest, **more)

    def _stop_workers(self) -> None:
        """Let workers finish; wait neither for clients that do not read nor for hanging workers."""
        timers = [threading.Timer(after, self._send, (number,)) for after, number in _HURRY]
        for timer in timers:
            timer.start()
        super()._stop_workers()
        for timer in timers:
            timer.cancel()


class _Interrupt:
    """What granian waits for: a signal to end, or a worker that ended.

    It takes the place of an event, which can lose or block a signal: Python notices one that
    arrives just before a wait only when the wait ends; a handler can find the event's lock taken;
    and granian clears the event of a worker together with that of a signal.
    """

    def __init__(self, server: _Server) -> None:
        self._server = server

    def is_set(self) -> bool:
        return bool(self._server.interrupt_signal or self._server.interrupt_children)

    def wait(self) -> None:
        while not self.is_set():
            time.sleep(_LOOK_SECONDS)

    def set(self) -> None:
        """Do nothing: whoever sets it has noted the reason."""

    clear = set


@contextlib.contextmanager
def _without_hangups() -> Iterator[None]:
    """Start processes in which SIGHUP waits until they are ready for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _load_app(store: Store, settings: Settings, ready: Any) -> Any:
    """Return the application, in a worker process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from trimtab.serve import counters
    from trimtab.serve.app import Service

    counters.forget_dead_processes()
    service = Service(store, settings, on_reload=lambda: os.kill(os.getppid(), signal.SIGHUP))

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        try:
            async with service.lifespan(app):
                # All loaded so far stays: the garbage collector need not scan it during requests.
                gc.collect()
                gc.freeze()
                loop.add_signal_handler(
                    signal.SIGHUP, loop.run_in_executor, None, service.watcher.check
                )
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
                ready.release()
                yield
        except TrimtabError as error:
            log.error("cannot start: %s", error)
            raise

    return service.make_app(lifespan)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    signal.alarm(20)  # ends the process even if the interpreter no longer runs this thread
    for after, number in ((0.0, signal.SIGTERM), *_HURRY):
        time.sleep(after)
        os.kill(os.getpid(), number)


def _require_possible(settings: Settings) -> None:
    """Refuse an address that others can reach without a token, and workers that cannot be had."""
    if settings.token is None and not is_loopback(settings.host):
        raise SettingError(
            f"host={settings.host}: needs a token, because other machines can reach it; set "
            f"TRIMTAB_TOKEN or --token-file, or serve on 127.0.0.1"
        )
    if not 0 <= settings.port <= 65535:
        raise SettingError(f"port={settings.port}: must be from 0 to 65535; 0 picks a free one")
    if not hasattr(socket, "SO_REUSEPORT"):
        raise SettingError("serve: needs Linux or macOS; run make_app in a server of another kind")
    if settings.workers > 1 and sys.platform != "linux":
        raise SettingError(
            f"workers={settings.workers}: only Linux spreads the connections of one port over "
            f"several processes; use 1, or run several services behind a proxy"
        )


def _bind(settings: Settings) -> socket.socket:
    """Return a socket that keeps the port taken and does not listen; each worker has its own."""
    if settings.port != 0:
        _bind_to(settings.host, settings.port, False).close()  # a shared one notices no other
    return _bind_to(settings.host, settings.port, True)


def _bind_to(host: str, port: int, is_shared: bool) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, is_shared)
        bound.bind((host, port))
    except (OSError, UnicodeError) as error:
        bound.close()
        raise SettingError(
            f"port={port}: cannot be used with host={host} ({error}); choose others, or port 0"
        ) from error
    return bound


def _format_url(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Survive SIGHUP until granian handles it; restore the handlers that granian replaces."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _folder_for_counts() -> Iterator[None]:
    """Give prometheus_client a folder that all workers share, before it is imported.

    Workers are started afresh rather than forked, so they see it even if it is imported already.
    """
    method = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("spawn", force=True)
    with tempfile.TemporaryDirectory(prefix="trimtab-counts-") as folder:
        os.environ[COUNTS_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[COUNTS_FOLDER]
            multiprocessing.set_start_method(method, force=True)
