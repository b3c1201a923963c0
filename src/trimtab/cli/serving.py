"""The command that answers over HTTP: serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.daily import StoreFolder
from trimtab.cli.options import Salt, ShareOfTest, share_of_test
from trimtab.cli.printing import say


def serve(
    store: StoreFolder,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    poll: Annotated[float, typer.Option(help="Seconds between looks at the store.")] = 1.0,
    salt: Salt = None,
    share: ShareOfTest = None,
    exposures: Annotated[
        Path | None, typer.Option(help="Folder to log in what was shown to whom.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token; or set TRIMTAB_TOKEN.")
    ] = None,
    admin_token_file: Annotated[
        Path | None, typer.Option(help="File with the admin's; or set TRIMTAB_ADMIN_TOKEN.")
    ] = None,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.")] = 2 * 2**20,
    max_items: Annotated[int, typer.Option(help="Items of a list.")] = 10_000,
    max_lists: Annotated[int, typer.Option(help="Lists of a batch.")] = 1_000,
    max_batch_items: Annotated[int, typer.Option(help="Items, and places, of a batch.")] = 100_000,
    max_filter: Annotated[int, typer.Option(help="Ids in exclude, and in allowed.")] = 10_000,
    max_id_length: Annotated[int, typer.Option(help="Characters of an id.")] = 256,
    max_k: Annotated[int, typer.Option(help="Places.")] = 10_000,
    max_requests: Annotated[int, typer.Option(help="Requests at once.")] = 128,
    body_seconds: Annotated[float, typer.Option(help="Until a request must have arrived.")] = 10.0,
    exposure_rows: Annotated[int, typer.Option(help="Lists in a file of exposures.")] = 10_000,
    exposure_seconds: Annotated[float, typer.Option(help="Seconds between such files.")] = 10.0,
) -> None:
    """Re-rank over HTTP by the version of a store that is served; new ones are taken up at once.

    Ends with 0 on SIGTERM or Ctrl-C, when what was begun is answered.
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

    def tell(version: int, address: str) -> None:
        say(f"serving version {version} of {store} at {address}, documentation at /docs")

    log_to_stderr()
    run(store, settings, host=host, port=port, on_ready=tell)
