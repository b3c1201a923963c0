"""Commands for the daily job: refresh, history, rollback, diff."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.checks import require_whole
from trimtab.cli.biases import make_learner
from trimtab.cli.options import (
    AllowedFile,
    AsJson,
    Columns,
    Duplicates,
    ExcludeFile,
    ItemsFile,
    Metric,
    Paper,
    Query,
    RecentDays,
    RepeatsIfAny,
    Settings,
    Slots,
    StoreFolder,
    Strength,
    WidenIfAny,
    Zone,
    defaults_of,
    one_of,
    option,
    refuse_without,
)
from trimtab.cli.printing import print_json, print_numbers, print_table, say
from trimtab.cli.version_lines import describe, metric_of, percent, print_version
from trimtab.daily import RealisedLift, Refresh, realised_lifts
from trimtab.daily import diff as diff_versions
from trimtab.daily.method_choice import AUTO, METHODS, RERANKER
from trimtab.daily.refresh import ACCEPTABLE
from trimtab.learn import BiasLearner
from trimtab.store import Store, Version
from trimtab.tables.columns import ColumnMap
from trimtab.tables.files import require_suffix, write_table

_TEST_DAYS = defaults_of(realised_lifts).test_days
_REALISED = ("", "version", "for", "forecast (90 %)", "lift that came (90 %)", "inside")


def refresh(
    lists: Annotated[
        str, option("FOLDER", "Folder of lists, one file or partition per day.", "--lists")
    ],
    events: Annotated[
        str,
        option(
            "FILE",
            "Purchases: Parquet, CSV, s3://, postgresql://user@host/name or duckdb:path.db.",
            "--events",
        ),
    ],
    store: StoreFolder,
    as_of: Annotated[
        str | None,
        option("DATE", "Day to publish for, like 2026-11-01. Today by default.", "--as-of"),
    ] = None,
    query: Query = None,
    tz: Zone = None,
    items: ItemsFile = None,
    columns: Columns = None,
    k: Slots = BiasLearner.k,
    metric: Metric = BiasLearner.metric,
    paper: Paper = False,
    recent_days: RecentDays = Refresh.recent_days,
    windows: Annotated[
        int,
        option("NUMBER", "Most windows to learn from; fewer if there are no lists or events."),
    ] = Refresh.windows,
    learn_on: Annotated[
        str | None,
        option(
            "DATE", "Date of the lists to learn from. By default, the newest before the window."
        ),
    ] = Refresh.learn_on,
    rerank: Annotated[
        bool, typer.Option("--rerank", help="Also publish the newest lists, re-ranked.")
    ] = Refresh.rerank,
    keep: Annotated[int, option("NUMBER", "Number of days to keep versions of.")] = Refresh.keep,
    duplicates: Duplicates = Refresh.duplicates,
    accept: Annotated[
        list[str] | None,
        option("CHECK", f"Check to override: {one_of(ACCEPTABLE)}. Repeatable."),
    ] = None,
    warm: Annotated[bool, typer.Option(help="Warm-start from the current biases.")] = Refresh.warm,
    reranker: Annotated[
        bool,
        typer.Option(
            "--reranker",
            help="Also learn a reranker, and publish it and the newest lists, finished by it.",
        ),
    ] = Refresh.reranker,
    method: Annotated[
        str | None,
        option(
            "NAME",
            f"Method to learn with: {one_of(METHODS)}; auto: the one with the best forecast, and "
            f"no change on a whim.",
        ),
    ] = Refresh.method,
    strength: Strength = Refresh.strength,
    widen: WidenIfAny = Refresh.widen,
    repeats: RepeatsIfAny = Refresh.repeats,
    exclude: ExcludeFile = None,
    allowed: AllowedFile = None,
    max_concentration: Annotated[
        float | None,
        option(
            "SHARE",
            "Largest share of slots for the ten most shown items, from 0 to 1. By default it "
            "depends on what people bought and on the engine's own lists.",
        ),
    ] = Refresh.max_concentration,
    setting: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Run the daily job: learn one day's biases and publish them.

    With --reranker, lists are also ranked by each user's own purchases, and items are added to
    them; --widen, --repeats, --exclude and --allowed are for these lists.

    Exit status: 0 published, 3 refused by a check, 4 another refresh is running, 2 any other error.
    After an error, the current version stays in place.
    """
    if not reranker and method not in (RERANKER, AUTO):
        given = {"widen": widen, "repeats": repeats, "exclude": exclude, "allowed": allowed}
        refuse_without(f"--reranker or --method {AUTO}", **given)
    job = Refresh(
        lists=lists, events=events, store=store, query=query, tz=tz, items=items,
        learner=make_learner(k, metric, paper, setting), recent_days=recent_days, windows=windows,
        learn_on=learn_on, rerank=rerank, keep=keep, duplicates=duplicates,
        accept=tuple(accept or ()), warm=warm, reranker=reranker, widen=widen, repeats=repeats,
        exclude=exclude, allowed=allowed, method=method, strength=strength,
        columns=ColumnMap.parse(columns), max_concentration=max_concentration,
    )  # fmt: skip
    version = job.run(as_of).version
    if as_json:
        print_json({"number": version.number, **version.manifest})
        return
    print_version(version)


def history(
    store: StoreFolder,
    events: Annotated[
        str | None,
        option("FILE", "Purchases, to compare each forecast with the lift that came.", "--events"),
    ] = None,
    lists: Annotated[
        str | None,
        option("FOLDER", "Folder of lists. By default, the one each version was made from."),
    ] = None,
    query: Query = None,
    tz: Annotated[
        str | None, option("ZONE", "Time zone of the shop. By default, that of the versions.")
    ] = None,
    test_days: Annotated[
        int | None, option("DAYS", f"Days that judge a version; {_TEST_DAYS} by default.")
    ] = None,
    columns: Columns = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of a store and show which one is served.

    With --events, compare each forecast with the lift that came.
    """
    if events is None:
        others = {"query": query, "tz": tz, "test-days": test_days, "columns": columns}
        refuse_without("--events", lists=lists, **others)
    opened = Store(store)
    current = opened.serving()
    rows = [describe(version) for version in opened.history()]
    damaged = sorted(set(opened.numbers()) - {row["number"] for row in rows})
    judged = []
    if events is not None:
        judged = realised_lifts(
            opened, events, lists=lists, query=query, tz=tz,
            test_days=_TEST_DAYS if test_days is None else test_days,
            columns=ColumnMap.parse(columns),
        )  # fmt: skip
        added = {own.version: _realised_fields(own) for own in judged}
        rows = [{**row, **added.get(row["number"], {})} for row in rows]
    if as_json:
        numbered = sorted([*rows, *({"number": n} for n in damaged)], key=lambda r: r["number"])
        print_json(
            [
                {**row, "served": row["number"] == current, "damaged": row["number"] in damaged}
                for row in numbered
            ]
        )
        return
    if events is None:
        _print_history(rows, current)
    else:
        print_numbers(_REALISED, [_realised_cells(own, current) for own in judged])
    for number in damaged:
        say(f"version {number} is damaged or missing")
    if finished := [str(row["number"]) for row in rows if "reranker" in row]:
        say(f"with a reranker, whose forecast is shown: version {', '.join(finished)}")
    say(f"version {current} is served")
    if events is not None:
        _print_realised(judged)


def _realised_fields(own: RealisedLift) -> dict[str, Any]:
    """Return what `history --json` adds about the lift that came."""
    return {
        "forecast_low": own.forecast_low, "forecast_high": own.forecast_high,
        "realised": own.lift, "realised_low": own.lift_low, "realised_high": own.lift_high,
        "inside": own.inside, "n_users": own.n_users, "judged_lists": own.lists,
        "over_on": own.over_on, "is_over": own.is_over, "notes": own.notes, "reason": own.reason,
    }  # fmt: skip


def _realised_cells(own: RealisedLift, current: int) -> tuple[str, ...]:
    came = percent(own.lift) + _bounds(own.lift_low, own.lift_high)
    if not own.is_over:
        came = f"not over yet: {own.over_on}"
    return (
        ">" if own.version == current else "", str(own.version), own.as_of,
        percent(own.forecast) + _bounds(own.forecast_low, own.forecast_high), came,
        {True: "yes", False: "no", None: "-"}[own.inside],
    )  # fmt: skip


def _bounds(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({percent(low)} to {percent(high)})"


def _print_realised(rows: list[RealisedLift]) -> None:
    """Print what to know about single versions, and the means of all that were judged."""
    for row in rows:
        for note in (*row.notes, *([] if row.reason is None else [row.reason])):
            say(f"version {row.version}: {note}")
    judged = [row for row in rows if row.lift is not None]
    if not judged:
        say("no version can be judged yet")
        return
    n_inside = sum(row.inside is True for row in judged)
    forecasts = [row.forecast for row in judged if row.forecast is not None]
    mean = sum(forecasts) / len(forecasts) if forecasts else None
    lift = sum(row.lift for row in judged if row.lift is not None) / len(judged)
    say(
        f"of {len(judged)} judged version{'' if len(judged) == 1 else 's'}, {n_inside} inside "
        f"{'its' if len(judged) == 1 else 'their'} interval; mean forecast {percent(mean)}, mean "
        f"lift {percent(lift)}"
    )


def rollback(
    store: StoreFolder,
    to: Annotated[
        int | None, option("VERSION", "Version to serve. By default, the previous one.")
    ] = None,
) -> None:
    """Switch back to an earlier version."""
    version = Store(store).rollback(to)
    say(f"version {version.number}, made for {version.as_of}, is served from now on")


def diff(
    before: Annotated[int, typer.Argument(metavar="BEFORE", help="Number of the older version.")],
    after: Annotated[int, typer.Argument(metavar="AFTER", help="Number of the newer version.")],
    store: StoreFolder,
    top: Annotated[int, option("NUMBER", "Items to show.")] = 20,
    out: Annotated[Path | None, option("FILE", "File for all changes, .parquet or .csv.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show which biases changed most between two versions."""
    require_whole("top", top, 1)
    if out is not None:
        require_suffix(out)
    opened = Store(store)
    versions = opened.version(before), opened.version(after)
    moves = diff_versions(*versions)
    if out is not None:
        write_table(moves, out)
    largest = moves.slice(0, top).to_pylist()
    if as_json:
        print_json(largest)
        return
    if moves.num_rows == 0:
        say(f"versions {before} and {after} have the same biases")
        return
    header = ("item", "name", f"version {before}", f"version {after}", "move")
    rows = [header, *map(_move_cells, largest)]
    if not any(name for _, name, *_ in rows[1:]):  # no item has one
        rows = [(row[0], *row[2:]) for row in rows]
    print_table(rows[0], rows[1:])
    say(f"{moves.num_rows} items moved" + ("" if out is None else f"; all of them in {out}"))
    _print_other_settings(*versions)


def _print_other_settings(before: Version, after: Version) -> None:
    """Say if versions differ in method or strength, which moves every item."""
    methods, strengths = (
        [read(version.manifest) for version in (before, after)]
        for read in (
            lambda manifest: manifest.get("method", {}).get("used"),
            lambda manifest: f"{manifest.get('strength', 1.0):g}",
        )
    )
    for name, (old, new) in (("method", methods), ("strength", strengths)):
        if old and new and old != new:
            say(f"{name} {old} in version {before.number}, {new} in version {after.number}")


def _move_cells(row: dict[str, Any]) -> tuple[str, ...]:
    values = (
        "excluded" if row[f"excluded_{when}"] else f"{row[when]:+.4f}"
        for when in ("before", "after")
    )
    item = str(row["item_id"])
    name = "" if row["name"] == item else row["name"]  # without a name, the id stands for it
    return item, name, *values, f"{row['move']:+.4f}"


def _print_history(rows: list[dict[str, Any]], current: int | None) -> None:
    """Print one line per version; a metric that all share is said once, in the header."""
    names = {metric_of(row) for row in rows if row["metric"] is not None}
    shared = names.pop() if len(names) == 1 else None
    lift = "on the window" if shared is None else shared
    columns = ("version", "for", "made (UTC)", lift, "forecast (90 %)", "biases")
    print_numbers(columns, [_history_cells(row, current, shared is None) for row in rows])


def _history_cells(row: dict[str, Any], current: int | None, with_metric: bool) -> tuple[str, ...]:
    lift = percent(row["lift"])
    if with_metric and row["metric"] is not None:
        lift = f"{metric_of(row)} {lift}"
    low, high = row["forecast_low"], row["forecast_high"]
    bounds = "" if low is None or high is None else f" ({100 * low:+.1f} to {percent(high)})"
    return (
        f"{'>' if row['number'] == current else ' '} {row['number']}", row["as_of"],
        row["created"][:16].replace("T", " "), lift, percent(row["forecast"]) + bounds,
        "-" if row["n_biases"] is None else str(row["n_biases"]),
    )  # fmt: skip
