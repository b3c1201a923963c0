"""Serves on one socket: uvicorn with our limits, signals, shutdown and log."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import uvicorn

from trimtab.serve.app import make_service_app
from trimtab.serve.connection import Connection
from trimtab.serve.service import Service
from trimtab.serve.slow_readers import SlowReaders

GRACE_SECONDS = 15
_IDLE_SECONDS = 75  # longer than most proxies, so the proxy closes an idle connection
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
HANGUP = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()


def serve_on(listener: socket.socket, service: Service, on_ready: Callable[[int], None]) -> None:
    """Load the version, and serve on a socket until a signal.

    Args:
        listener: The socket, bound to an address.
        service: The service.
        on_ready: Called with the version when the service is ready.
    """
    service.load()
    # All loaded so far stays, so the garbage collector need not scan it during requests.
    gc.collect()
    gc.freeze()

    def report() -> None:
        on_ready(service.served().number)

    _Server(_configure(service), report, service.reload).run(sockets=[listener])


def _configure(service: Service) -> uvicorn.Config:
    settings = service.settings
    limits = {
        "request_seconds": settings.body_seconds,
        "max_connections": settings.max_connections,
        "waiting": {},
        "slow_readers": SlowReaders(settings.send_seconds, service.counters),
    }
    protocol = type("_Connection", (Connection,), limits)
    return uvicorn.Config(
        make_service_app(service), http=protocol, loop=_choose_loop(), ws="none", lifespan="on",
        log_config=None, access_log=False, proxy_headers=False, server_header=False,
        timeout_keep_alive=_IDLE_SECONDS, timeout_graceful_shutdown=GRACE_SECONDS,
    )  # fmt: skip


def _choose_loop() -> Any:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return "asyncio"
    return "uvloop"


class _Server(uvicorn.Server):
    """Exits with status 0 after a signal, reloads on SIGHUP, and reports when it is ready."""

    def __init__(
        self, config: uvicorn.Config, on_ready: Callable[[], None], reload: Callable[[], object]
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._reload = reload
        self._must_reload = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        """Reload after SIGHUP; called ten times a second."""
        if self._must_reload:
            self._must_reload = False
            asyncio.get_running_loop().run_in_executor(None, self._reload)
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Shut down on a signal, without raising it again afterwards."""
        handlers = dict.fromkeys(STOP_SIGNALS, self.handle_exit)
        with handling({**handlers, **dict.fromkeys(HANGUP, self._note_hangup)}):
            yield

    def _note_hangup(self, *_: Any) -> None:
        self._must_reload = True


@contextlib.contextmanager
def handling(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """Handle signals for a while; other threads than the main one cannot."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def no_hangup() -> contextlib.AbstractContextManager[None]:
    """Survive SIGHUP while the version is being loaded, and after the last request."""
    return handling(dict.fromkeys(HANGUP, signal.SIG_IGN))


def log_to_stderr(prefix: str = "") -> None:
    """Print the log of the service to stderr, each line with a prefix."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"trimtab: %(asctime)s {prefix}%(message)s"))
    for name, level in (("trimtab.serve", logging.INFO), ("uvicorn", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False
