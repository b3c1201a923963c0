"""Commands for the daily job: refresh, history, rollback, diff."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Column, Table
from rich.text import Text

from trimtab.cli.biases import make_learner
from trimtab.cli.options import (
    AsJson,
    ItemsFile,
    Merge,
    Metric,
    Paper,
    Places,
    RecentDays,
    Settings,
    Zone,
)
from trimtab.cli.printing import console, say

_HISTORY = ("", "version", "for", "made (UTC)", "on the window", "forecast", "biases")
StoreFolder = Annotated[Path, typer.Option("--store", help="Folder of versions.")]


def refresh(
    lists: Annotated[
        Path, typer.Option("--lists", help="Folder of lists, one file or partition a day.")
    ],
    events: Annotated[
        str,
        typer.Option(
            "--events", help="Parquet, CSV, postgresql://user@host/name or duckdb:path.db."
        ),
    ],
    store: StoreFolder,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", help="The day they are for, like 2026-11-01; today if not given."),
    ] = None,
    query: Annotated[str | None, typer.Option(help="What to ask a database for.")] = None,
    tz: Zone = None,
    items: ItemsFile = None,
    k: Places = 10,
    metric: Metric = "ndcg",
    paper: Paper = False,
    recent_days: RecentDays = 3,
    windows: Annotated[
        int | None,
        typer.Option(help="So many windows of that length; by the number of buyers if not given."),
    ] = None,
    learn_on: Annotated[
        str | None,
        typer.Option(
            help="Teach with the lists of this day; by default the newest before the window."
        ),
    ] = None,
    rerank: Annotated[
        bool, typer.Option("--rerank", help="Also publish the newest lists, re-ranked.")
    ] = False,
    keep: Annotated[int, typer.Option(help="Versions to keep, with their lists.")] = 14,
    duplicates: Merge = "error",
    accept: Annotated[
        list[str] | None,
        typer.Option(help="guard, incomplete, older or unlike: let it through; may be repeated."),
    ] = None,
    warm: Annotated[bool, typer.Option(help="Start from the biases that are served.")] = True,
    setting: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Learn biases for a day and publish them: the daily job.

    Exits with 0 when a version was published, 3 when it was refused, 4 when another refresh is
    running, 2 for anything else; the version that is served stays served then.
    """
    from trimtab.daily import Refresh

    job = Refresh(
        lists=lists, events=events, store=store, query=query, tz=tz, items=items,
        learner=make_learner(k, metric, paper, setting), recent_days=recent_days, windows=windows,
        learn_on=learn_on, rerank=rerank, keep=keep, duplicates=duplicates,
        accept=tuple(accept or ()), warm=warm,
    )  # fmt: skip
    version = job.run(as_of).version
    if as_json:
        print(json.dumps({"number": version.number, **version.manifest}))
        return
    _print_version(version)


def history(store: StoreFolder, as_json: AsJson = False) -> None:
    """The versions of a store, the newest last, and which is served."""
    from trimtab.store import Store

    opened = Store(store)
    current = opened.serving()
    versions = opened.history()
    damaged = sorted(set(opened.numbers()) - {version.number for version in versions})
    if as_json:
        rows = [_row(version) for version in versions] + [{"number": n} for n in damaged]
        shown = [
            {**row, "served": row["number"] == current, "damaged": row["number"] in damaged}
            for row in sorted(rows, key=lambda row: row["number"])
        ]
        print(json.dumps(shown))
        return
    columns = (Column(name, no_wrap=True) for name in _HISTORY)
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for version in versions:
        row = _row(version)
        table.add_row(
            ">" if version.number == current else "",
            str(row["number"]), row["as_of"], row["created"][5:16].replace("T", " "),
            "-" if row["metric"] is None else f"{_metric(row)} {_percent(row['lift'])}",
            _percent(row["forecast"]), "-" if row["n_biases"] is None else str(row["n_biases"]),
        )  # fmt: skip
    console.print(table)
    for number in damaged:
        say(f"version {number} is damaged or missing")
    say(f"version {current} is served")


def rollback(
    store: StoreFolder,
    to: Annotated[
        int | None, typer.Option(help="Version to serve; the one before the current one.")
    ] = None,
) -> None:
    """Serve an earlier version again, at once."""
    from trimtab.store import Store

    version = Store(store).rollback(to)
    say(f"version {version.number}, made for {version.as_of}, is served from now on")


def diff(
    before: Annotated[int, typer.Argument(help="A version's number.")],
    after: Annotated[int, typer.Argument(help="Another one's.")],
    store: StoreFolder,
    top: Annotated[int, typer.Option(help="Items to show.")] = 20,
    out: Annotated[Path | None, typer.Option(help="All moves as a file, .parquet or .csv.")] = None,
    as_json: AsJson = False,
) -> None:
    """What moved most between two versions."""
    from trimtab.checks import require_whole
    from trimtab.daily import diff as diff_versions
    from trimtab.store import Store
    from trimtab.tables.files import require_kind, write_table

    require_whole("top", top, 1)
    if out is not None:
        require_kind(out)
    opened = Store(store)
    moves = diff_versions(opened.version(before), opened.version(after))
    if out is not None:
        write_table(moves, out)
    if as_json:
        print(json.dumps(moves.slice(0, top).to_pylist()))
        return
    if moves.num_rows == 0:
        say(f"versions {before} and {after} have the same biases")
        return
    table = Table("item", "name", f"version {before}", f"version {after}", "move")
    for row in moves.slice(0, top).to_pylist():
        table.add_row(*(Text(text) for text in _move(row)))
    console.print(table)
    say(f"{moves.num_rows} items moved" + ("" if out is None else f"; all of them in {out}"))


def _move(row: dict[str, Any]) -> tuple[str, ...]:
    values = (
        "excluded" if row[f"excluded_{when}"] else f"{row[when]:+.4f}"
        for when in ("before", "after")
    )
    return str(row["item_id"]), row["name"], *values, f"{row['move']:+.4f}"


def _row(version: Any) -> dict[str, Any]:
    """What history tells of a version."""
    manifest = version.manifest
    summary = manifest.get("summary", {})  # one that was published by hand may have none
    before, after = summary.get("before"), summary.get("after")
    return {
        "number": version.number, "as_of": version.as_of, "created": manifest["created"],
        "metric": summary.get("metric"), "k": summary.get("k"),
        "lift": after / before - 1 if before else None, "forecast": summary.get("forecast"),
        "n_biases": manifest.get("n_biases"), "lists": manifest.get("lists"),
        "seconds": manifest.get("seconds"), "warnings": manifest.get("warnings"),
    }  # fmt: skip


def _metric(row: dict[str, Any]) -> str:
    return f"{row['metric'].upper()}@{row['k']}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"


def _forecast(summary: dict[str, Any]) -> str:
    """The lift to expect, with its interval."""
    low, high = summary["forecast_low"], summary["forecast_high"]
    interval = "" if low is None else f" (90 % interval {_percent(low)} to {_percent(high)})"
    return _percent(summary["forecast"]) + interval


def _print_version(version: Any) -> None:
    row, manifest = _row(version), version.manifest
    window = manifest["window"]
    say(
        f"version {row['number']} for {row['as_of']} is served: {row['n_biases']} biases from "
        f"{window['events']} events since {window['first']}, on lists of {', '.join(row['lists'])}"
    )
    say(
        f"{_metric(row)} on the window {_percent(row['lift'])}; forecast for the days to come "
        f"{_forecast(manifest['summary'])}"
    )
    if manifest["reranked"]:
        say(f"the lists of {manifest['reranked']}, re-ranked: {version.folder / 'top.parquet'}")
