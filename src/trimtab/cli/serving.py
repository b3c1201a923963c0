"""The command that re-ranks lists over HTTP: serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from trimtab.cli.options import Salt, ShareOfTest, StoreFolder, Strength, option, share_of_test
from trimtab.cli.printing import say
from trimtab.serve.settings import ADMIN_TOKEN, HOST, PORT, TOKEN, WORKERS, Settings, read_token


def serve(
    store: StoreFolder,
    host: Annotated[
        str,
        option("ADDRESS", "Address to listen on. A non-local address needs a token."),
    ] = HOST,
    port: Annotated[int, option("NUMBER", "Port to listen on, or 0 for any free port.")] = PORT,
    workers: Annotated[
        int, option("NUMBER", "Processes that share the port, one per core; more than 1 on Linux.")
    ] = WORKERS,
    poll: Annotated[
        float, option("SECONDS", "Seconds between checks for a new version.")
    ] = Settings.poll,
    strength: Strength = Settings.strength,
    salt: Salt = None,
    share: ShareOfTest = None,
    exposures: Annotated[
        Path | None, option("FOLDER", "Folder for a log of the lists shown to each user.")
    ] = None,
    token_file: Annotated[
        Path | None, option("FILE", "File with the token, or set TRIMTAB_TOKEN.")
    ] = None,
    admin_token_file: Annotated[
        Path | None, option("FILE", "File with the admin token, or set TRIMTAB_ADMIN_TOKEN.")
    ] = None,
    max_body: Annotated[int, option("BYTES", "Maximum bytes in a request.")] = Settings.max_body,
    max_items: Annotated[int, option("NUMBER", "Maximum items in a list.")] = Settings.max_items,
    max_lists: Annotated[int, option("NUMBER", "Maximum lists in a batch.")] = Settings.max_lists,
    max_batch_items: Annotated[
        int, option("NUMBER", "Maximum items, recent items, and slots, in a batch.")
    ] = Settings.max_batch_items,
    max_filter: Annotated[
        int, option("NUMBER", "Maximum ids in exclude or in allowed.")
    ] = Settings.max_filter,
    max_recent: Annotated[
        int, option("NUMBER", "Maximum recent items of a user.")
    ] = Settings.max_recent,
    max_id_length: Annotated[
        int, option("NUMBER", "Maximum characters in an id.")
    ] = Settings.max_id_length,
    max_k: Annotated[int, option("NUMBER", "Maximum slots in a list.")] = Settings.max_k,
    max_requests: Annotated[
        int, option("NUMBER", "Maximum concurrent requests.")
    ] = Settings.max_requests,
    max_connections: Annotated[
        int, option("NUMBER", "Maximum open connections; above it, the one idle longest is closed.")
    ] = Settings.max_connections,
    body_seconds: Annotated[
        float, option("SECONDS", "Seconds allowed for a request to arrive.")
    ] = Settings.body_seconds,
    send_seconds: Annotated[
        float, option("SECONDS", "Seconds a client may take to read 64 KiB of its answers.")
    ] = Settings.send_seconds,
    exposure_rows: Annotated[
        int, option("NUMBER", "Maximum lists in a file of --exposures.")
    ] = Settings.exposure_rows,
    exposure_seconds: Annotated[
        float, option("SECONDS", "Seconds between files of --exposures.")
    ] = Settings.exposure_seconds,
) -> None:
    """Re-rank lists over HTTP with the served version of a store.

    New versions are picked up without a restart; SIGHUP checks for one at once. On SIGTERM or
    Ctrl-C, requests in progress are finished, and the exit status is 0.
    """
    from trimtab.serve import run
    from trimtab.serve.server import log_to_stderr

    settings = Settings(
        poll=poll, strength=strength, salt=salt, share=share_of_test(salt, share),
        exposures=exposures,
        exposure_rows=exposure_rows, exposure_seconds=exposure_seconds,
        token=read_token(TOKEN, "--token-file", token_file),
        admin_token=read_token(ADMIN_TOKEN, "--admin-token-file", admin_token_file),
        max_body=max_body, max_items=max_items, max_lists=max_lists,
        max_batch_items=max_batch_items, max_filter=max_filter, max_recent=max_recent,
        max_id_length=max_id_length, max_k=max_k, max_requests=max_requests,
        max_connections=max_connections,
        body_seconds=body_seconds, send_seconds=send_seconds,
    )  # fmt: skip

    def announce(version: int, address: str) -> None:
        say(f"serving version {version} of {store} at {address}, documentation at /docs")

    log_to_stderr()
    run(store, settings, host=host, port=port, workers=workers, on_ready=announce)
