"""The command that re-ranks lists over HTTP: serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimtab.cli.options_from import options_from
from trimtab.cli.printing import say
from trimtab.serve.settings import ADMIN_TOKEN, TOKEN, Settings, read_token


@options_from((Settings, "host port workers strength salt share exposures"))
def serve(
    store: str, token_file: str | None = None, admin_token_file: str | None = None, **options: Any
) -> None:
    """Re-rank lists over HTTP with the served version of a store.

    New versions are picked up without a restart; SIGHUP checks for one at once. On SIGTERM or
    Ctrl-C, requests that were sent before are answered, and the exit status is 0.

    Options:
        token_file: File with the token, or set TRIMTAB_TOKEN.
        admin_token_file: File with the admin token, or set TRIMTAB_ADMIN_TOKEN.
    """
    from trimtab.serve import run

    exposures, token, admin_token = (
        None if name is None else Path(name)
        for name in (options.pop("exposures"), token_file, admin_token_file)
    )
    settings = Settings(
        **options,
        exposures=exposures,
        token=read_token(TOKEN, "--token-file", token),
        admin_token=read_token(ADMIN_TOKEN, "--admin-token-file", admin_token),
    )

    def announce(version: int, address: str) -> None:
        say(f"serving version {version} of {store} at {address}, described at /openapi.json")

    run(Path(store), settings, on_ready=announce)
