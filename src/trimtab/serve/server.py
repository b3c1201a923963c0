"""Runs the service in a server of its own: socket, signals, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import uvicorn

from trimtab.errors import SettingError
from trimtab.serve.app import make_service_app
from trimtab.serve.connection import Connection
from trimtab.serve.gate import is_loopback
from trimtab.serve.service import Service
from trimtab.serve.settings import HOST, PORT, Settings
from trimtab.serve.slow_readers import SlowReaders
from trimtab.store import Store

_GRACE_SECONDS = 15
_IDLE_SECONDS = 75  # longer than most proxies, so the proxy closes an idle connection
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
HANGUP = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
OnReady = Callable[[int, str], None]


def run(
    store: Store | str | Path, settings: Settings | None = None, *, host: str = HOST,
    port: int = PORT, on_ready: OnReady | None = None,
) -> None:  # fmt: skip
    """Serve until SIGINT or SIGTERM, and finish the requests that have begun.

    SIGHUP makes it check the store at once.

    Args:
        store: The daily job's store, or its folder.
        settings: All defaults if left out.
        host: Address to listen on; one that other machines can reach needs a token.
        port: Port to listen on; 0 picks a free one.
        on_ready: Called with the version and the address when the service is ready.

    Raises:
        StoreError: if the store cannot be read.
        SettingError: if it cannot listen on the address.
    """
    chosen = settings or Settings()
    _require_token_for(host, chosen)
    opened = store if isinstance(store, Store) else Store(store)
    with _no_hangup(), contextlib.closing(_bind(host, port)) as listener:
        service = Service(opened, chosen)
        service.load()
        # All loaded so far stays, so the garbage collector need not scan it during requests.
        gc.collect()
        gc.freeze()

        def report() -> None:
            if on_ready is not None:
                on_ready(service.served().number, _format_url(listener))

        _Server(_configure(service), report, service.reload).run(sockets=[listener])


def _configure(service: Service) -> uvicorn.Config:
    settings = service.settings
    limits = {
        "request_seconds": settings.body_seconds,
        "slow_readers": SlowReaders(settings.send_seconds, service.counters),
    }
    protocol = type("_Connection", (Connection,), limits)
    return uvicorn.Config(
        make_service_app(service), http=protocol, loop=_choose_loop(), ws="none", lifespan="on",
        log_config=None, access_log=False, proxy_headers=False, server_header=False,
        timeout_keep_alive=_IDLE_SECONDS, timeout_graceful_shutdown=_GRACE_SECONDS,
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


def _no_hangup() -> contextlib.AbstractContextManager[None]:
    """Survive SIGHUP while the version is being loaded, and after the last request."""
    return handling(dict.fromkeys(HANGUP, signal.SIG_IGN))


def _require_token_for(host: str, settings: Settings) -> None:
    if settings.token is None and not is_loopback(host):
        raise SettingError(
            f"host={host}: needs a token, because other machines can reach it; set TRIMTAB_TOKEN "
            f"or --token-file, or serve on 127.0.0.1"
        )


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address."""
    if not 0 <= port <= 65535:
        raise SettingError(f"port={port}: must be from 0 to 65535; 0 picks a free one")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise SettingError(f"host={host}: not an address of this machine ({error})") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise SettingError(
                f"port={port}: in use on {host}; choose another one, or 0"
            ) from error
        raise SettingError(
            f"host={host}, port={port}: cannot be used ({error.strerror}); choose another"
        ) from error
    return listener


def _format_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def log_to_stderr() -> None:
    """Print the log of the service to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("trimtab: %(asctime)s %(message)s"))
    for name, level in (("trimtab.serve", logging.INFO), ("uvicorn", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False
