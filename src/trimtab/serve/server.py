"""Runs a service by itself: its socket, its signals, its end."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from trimtab.errors import SettingError
from trimtab.serve.app import app_of
from trimtab.serve.connection import Connection
from trimtab.serve.gate import is_loopback
from trimtab.serve.service import Service
from trimtab.serve.settings import Settings
from trimtab.store import Store

_GRACE_SECONDS = 15
_IDLE_SECONDS = 75  # longer than most proxies keep a connection, so that they are who closes it
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
Ready = Callable[[int, str], None]


def run(
    store: Store | str | Path, settings: Settings | None = None, *, host: str = "127.0.0.1",
    port: int = 8000, on_ready: Ready | None = None,
) -> None:  # fmt: skip
    """Serve until a signal to end comes; requests that have begun are finished.

    Args:
        store: of the daily job, or its folder.
        settings: all defaults without.
        host: an address of this machine; other machines reach it only if it is not 127.0.0.1, and
            then a token must be set.
        port: 0 takes a free one.
        on_ready: called with the version and the address when requests are answered.

    Raises:
        StoreError: if the store cannot be read.
        SettingError: if the address cannot be had.
    """
    chosen = settings or Settings()
    _require_guard(host, chosen)
    opened = store if isinstance(store, Store) else Store(store)
    with contextlib.closing(_bound(host, port)) as place:
        service = Service(opened, chosen)
        service.load()
        # What was loaded so far stays: looking through it again and again would delay requests.
        gc.collect()
        gc.freeze()
        server = _Server(_config(service), lambda: _tell(service, place, on_ready))
        server.run(sockets=[place])


def _tell(service: Service, place: socket.socket, on_ready: Ready | None) -> None:
    if on_ready is not None:
        on_ready(service.served().number, _address(place))


def _config(service: Service) -> uvicorn.Config:
    protocol = type("_Connection", (Connection,), {"seconds": service.settings.body_seconds})
    return uvicorn.Config(
        app_of(service), http=protocol, loop=_loop(), ws="none", lifespan="on", log_config=None,
        access_log=False, proxy_headers=False, server_header=False,
        timeout_keep_alive=_IDLE_SECONDS, timeout_graceful_shutdown=_GRACE_SECONDS,
    )  # fmt: skip


def _loop() -> Any:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return "asyncio"
    return "uvloop"


class _Server(uvicorn.Server):
    """Ends with its process' status 0 on a signal, and says when it is ready."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals as a wish to end; they are not raised again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _require_guard(host: str, settings: Settings) -> None:
    if settings.token is None and not is_loopback(host):
        raise SettingError(
            f"host={host}: other machines can reach it, so a token is needed; set TRIMTAB_TOKEN or "
            f"--token-file, or serve on 127.0.0.1"
        )


def _bound(host: str, port: int) -> socket.socket:
    """A socket at an address."""
    if not 0 <= port <= 65535:
        raise SettingError(f"port={port}: must be from 0 to 65535; 0 takes a free one")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise SettingError(f"host={host}: no address of this machine ({error})") from error
    family, kind, protocol, _, address = found[0]
    place = socket.socket(family, kind, protocol)
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(address)
    except OSError as error:
        place.close()
        if error.errno == errno.EADDRINUSE:
            raise SettingError(f"port={port}: in use on {host}; choose another, or 0") from error
        raise SettingError(f"cannot serve on {host}, port {port}: {error.strerror}") from error
    return place


def _address(place: socket.socket) -> str:
    host, port = place.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def log_to_stderr() -> None:
    """Show what the service logs, for one that runs by itself."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("trimtab: %(asctime)s %(message)s"))
    for name, level in (("trimtab.serve", logging.INFO), ("uvicorn", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False
