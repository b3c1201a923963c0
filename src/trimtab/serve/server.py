"""Runs the service in a server of its own: one process, or several that share a port."""

from __future__ import annotations

import contextlib
from pathlib import Path

from trimtab.serve.listeners import bind, format_url, require_token_for
from trimtab.serve.service import Service
from trimtab.serve.settings import HOST, PORT, WORKERS, Settings
from trimtab.serve.socket_server import log_to_stderr, no_hangup, serve_on
from trimtab.serve.worker_pool import OnReady, WorkerPool, require_workers
from trimtab.store import Store

__all__ = ["log_to_stderr", "run"]


def run(
    store: Store | str | Path, settings: Settings | None = None, *, host: str = HOST,
    port: int = PORT, workers: int = WORKERS, on_ready: OnReady | None = None,
) -> None:  # fmt: skip
    """Serve until SIGINT or SIGTERM, and finish the requests that have begun.

    SIGHUP makes it check the store at once.

    Args:
        store: The daily job's store, or its folder.
        settings: All defaults if left out.
        host: Address to listen on; one that other machines can reach needs a token.
        port: Port to listen on; 0 picks a free one.
        workers: Number of processes that share the port; more than one needs Linux.
        on_ready: Called with the version and the address when the service is ready.

    Raises:
        StoreError: if the store cannot be read.
        SettingError: if it cannot listen on the address, or have so many workers.
    """
    chosen = settings or Settings()
    require_token_for(host, chosen)
    require_workers(workers)
    opened = store if isinstance(store, Store) else Store(store)
    if workers > 1:
        WorkerPool(opened, chosen, host, port, workers).run(on_ready)
        return
    with no_hangup(), contextlib.closing(bind(host, port)) as listener:
        service = Service(opened, chosen)

        def report(version: int) -> None:
            if on_ready is not None:
                on_ready(version, format_url(listener))

        serve_on(listener, service, report)
