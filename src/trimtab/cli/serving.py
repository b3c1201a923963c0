"""The command that re-ranks lists over HTTP: serve."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from typing import Annotated, Any

from trimtab.cli.options import Salt, ShareOfTest, StoreFolder, option, share_of_test
from trimtab.cli.printing import say

# The package trimtab.serve needs optional libraries; the file with its settings does not.
_SETTINGS_FILE = Path(__file__).parents[1] / "serve" / "settings.py"
_DEFAULT: Any = run_path(str(_SETTINGS_FILE))["Settings"]


def serve(
    store: StoreFolder,
    host: Annotated[
        str,
        option("ADDRESS", "Address to listen on. One that other machines can reach needs a token."),
    ] = "127.0.0.1",
    port: Annotated[int, option("NUMBER", "Port to listen on, or 0 for any free port.")] = 8000,
    poll: Annotated[
        float, option("SECONDS", "Seconds between checks for a new version.")
    ] = _DEFAULT.poll,
    salt: Salt = None,
    share: ShareOfTest = None,
    exposures: Annotated[
        Path | None, option("FOLDER", "Folder for a log of the lists shown to each user.")
    ] = None,
    token_file: Annotated[
        Path | None, option("FILE", "File with the token. Or set TRIMTAB_TOKEN.")
    ] = None,
    admin_token_file: Annotated[
        Path | None, option("FILE", "File with the admin token. Or set TRIMTAB_ADMIN_TOKEN.")
    ] = None,
    max_body: Annotated[int, option("BYTES", "Maximum bytes in a request.")] = _DEFAULT.max_body,
    max_items: Annotated[int, option("NUMBER", "Maximum items in a list.")] = _DEFAULT.max_items,
    max_lists: Annotated[int, option("NUMBER", "Maximum lists in a batch.")] = _DEFAULT.max_lists,
    max_batch_items: Annotated[
        int, option("NUMBER", "Maximum items, and slots, in a batch.")
    ] = _DEFAULT.max_batch_items,
    max_filter: Annotated[
        int, option("NUMBER", "Maximum ids in exclude, and in allowed.")
    ] = _DEFAULT.max_filter,
    max_id_length: Annotated[
        int, option("NUMBER", "Maximum characters in an id.")
    ] = _DEFAULT.max_id_length,
    max_k: Annotated[int, option("NUMBER", "Maximum slots in a list.")] = _DEFAULT.max_k,
    max_requests: Annotated[
        int, option("NUMBER", "Maximum requests at the same time.")
    ] = _DEFAULT.max_requests,
    body_seconds: Annotated[
        float, option("SECONDS", "Seconds allowed for a request to arrive.")
    ] = _DEFAULT.body_seconds,
    exposure_rows: Annotated[
        int, option("NUMBER", "Maximum lists in a file of --exposures.")
    ] = _DEFAULT.exposure_rows,
    exposure_seconds: Annotated[
        float, option("SECONDS", "Seconds between files of --exposures.")
    ] = _DEFAULT.exposure_seconds,
) -> None:
    """Re-rank lists over HTTP with the served version of a store.

    A new version is picked up while serving. On SIGTERM or Ctrl-C, requests that have begun are
    answered, and the exit status is 0.
    """
    from trimtab.serve import Settings, run
    from trimtab.serve.server import log_to_stderr
    from trimtab.serve.settings import ADMIN_TOKEN, TOKEN, read_token

    settings = Settings(
        poll=poll, salt=salt, share=share_of_test(salt, share), exposures=exposures,
        exposure_rows=exposure_rows, exposure_seconds=exposure_seconds,
        token=read_token(TOKEN, "--token-file", token_file),
        admin_token=read_token(ADMIN_TOKEN, "--admin-token-file", admin_token_file),
        max_body=max_body, max_items=max_items, max_lists=max_lists,
        max_batch_items=max_batch_items, max_filter=max_filter, max_id_length=max_id_length,
        max_k=max_k, max_requests=max_requests, body_seconds=body_seconds,
    )  # fmt: skip

    def announce(version: int, address: str) -> None:
        say(f"serving version {version} of {store} at {address}, documentation at /docs")

    log_to_stderr()
    run(store, settings, host=host, port=port, on_ready=announce)
