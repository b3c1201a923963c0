"""Commands on the versions of a store: history, rollback, diff; and what they print of one."""

from __future__ import annotations

from typing import Any

from trimtab.checks import require_whole
from trimtab.cli.options import changed, refuse_without
from trimtab.cli.options_from import options_from
from trimtab.cli.printing import (
    percent,
    print_json,
    print_numbers,
    print_table,
    say,
    say_about,
)
from trimtab.daily import RealisedLift, realised_lifts
from trimtab.daily import diff as diff_versions
from trimtab.store import Store, Version
from trimtab.store.versions import LISTS, TOP
from trimtab.tables.columns import ColumnMap

_REALISED = ("", "version", "for", "forecast (90 %)", "lift that came (90 %)", "inside")


@options_from((realised_lifts, "lists query tz test"))
def history(
    store: str, events: str | None = None, columns: str | None = None, as_json: bool = False,
    **judging: Any,
) -> None:  # fmt: skip
    """List the versions of a store and show which one is served.

    With --events, compare each forecast with the lift that came.

    Options:
        events: Purchases, to compare each forecast with the lift that came.
    """
    opened = Store(store)
    current = opened.serving()
    rows = {version.number: _describe(version) for version in opened.history()}
    damaged = sorted(set(opened.numbers()) - set(rows))
    judged: list[RealisedLift] = []
    if events is None:
        refuse_without("--events", **changed(realised_lifts, judging), columns=columns)
    else:
        judged = realised_lifts(opened, events, columns=ColumnMap.parse(columns), **judging)
    if as_json:
        came = {own.version: _realised_fields(own) for own in judged}
        every = {n: rows.get(n, {"number": n}) for n in sorted([*rows, *damaged])}
        print_json([
            {**row, **came.get(n, {}), "served": n == current, "damaged": n in damaged}
            for n, row in every.items()
        ])  # fmt: skip
        return
    if events is None:
        _print_history(list(rows.values()), current)
    else:
        print_numbers(_REALISED, [_realised_cells(own, current) for own in judged])
    finished = [number for number, row in rows.items() if "reranker" in row]
    say_about("served", current, damaged, finished)
    if events is not None:
        say_about("realised", judged)


def _describe(version: Version) -> dict[str, Any]:
    """Return what `history` prints about a version."""
    manifest = version.manifest
    summary = manifest.get("summary", {})  # a version that was published by hand may have none
    before, after = summary.get("before"), summary.get("after")
    names = ("forecast", "forecast_low", "forecast_high")
    return {
        "number": version.number, "as_of": version.as_of, "created": manifest["created"],
        "metric": summary.get("metric"), "k": summary.get("k"),
        "lift": after / before - 1 if before and after is not None else None,
        **{name: version.forecast.get(name) for name in names},
        **{name: manifest.get(name) for name in ("n_biases", "lists", "seconds", "warnings")},
        **({"reranker": manifest["reranker"]} if "reranker" in manifest else {}),
    }  # fmt: skip


def _metric_of(row: dict[str, Any]) -> str:
    return f"{row['metric'].upper()}@{row['k']}"


def _print_history(rows: list[dict[str, Any]], current: int | None) -> None:
    """Print one line per version; a metric that all share is said once, in the header."""
    names = {_metric_of(row) for row in rows if row["metric"] is not None}
    shared = names.pop() if len(names) == 1 else None
    lift = "on the window" if shared is None else shared
    columns = ("version", "for", "made (UTC)", lift, "forecast (90 %)", "biases")
    print_numbers(columns, [_history_cells(row, current, shared is None) for row in rows])


def _history_cells(row: dict[str, Any], current: int | None, with_metric: bool) -> tuple[str, ...]:
    lift = percent(row["lift"])
    if with_metric and row["metric"] is not None:
        lift = f"{_metric_of(row)} {lift}"
    low, high = row["forecast_low"], row["forecast_high"]
    bounds = "" if low is None or high is None else f" ({100 * low:+.1f} to {percent(high)})"
    return (
        f"{'>' if row['number'] == current else ' '} {row['number']}", row["as_of"],
        row["created"][:16].replace("T", " "), lift, percent(row["forecast"]) + bounds,
        "-" if row["n_biases"] is None else str(row["n_biases"]),
    )  # fmt: skip


def _realised_fields(own: RealisedLift) -> dict[str, Any]:
    """Return what `history --json` adds about the lift that came."""
    names = {
        "forecast_low": "forecast_low", "forecast_high": "forecast_high", "realised": "lift",
        "realised_low": "lift_low", "realised_high": "lift_high", "inside": "inside",
        "n_users": "n_users", "judged_lists": "lists", "over_on": "over_on", "is_over": "is_over",
        "notes": "notes", "reason": "reason",
    }  # fmt: skip
    return {told: getattr(own, name) for told, name in names.items()}


def _realised_cells(own: RealisedLift, current: int | None) -> tuple[str, ...]:
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


@options_from()
def rollback(store: str, to: int | None = None) -> None:
    """Switch back to an earlier version, or to any other with --to.

    Options:
        to: Number of the version to serve; by default the previous one.
    """
    version = Store(store).rollback(to)
    say(f"version {version.number}, made for {version.as_of}, is served from now on")


@options_from(arguments="before after")
def diff(
    before: int, after: int, store: str, top: int = 20, as_json: bool = False
) -> None:  # fmt: skip
    """Show which biases changed most between two versions.

    Options:
        before: Number of the older version.
        after: Number of the newer version.
        top: Number of items to show.
    """
    require_whole("top", top, 1)
    opened = Store(store)
    versions = opened.version(before), opened.version(after)
    moves = diff_versions(*versions)
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
    say(f"{moves.num_rows} items moved")
    method, strength = zip(*map(_told_settings, versions), strict=True)
    say_about("changed", "method", method, before, after)
    say_about("changed", "strength", strength, before, after)


def _told_settings(version: Version) -> tuple[str | None, str]:
    """Return the method and the strength, which move every item if they differ."""
    manifest = version.manifest
    return manifest.get("method", {}).get("used"), f"{manifest.get('strength', 1.0):g}"


def _move_cells(row: dict[str, Any]) -> tuple[str, ...]:
    values = (
        "excluded" if row[f"excluded_{when}"] else f"{row[when]:+.4f}"
        for when in ("before", "after")
    )
    item = str(row["item_id"])
    name = "" if row["name"] == item else row["name"]  # without a name, the id stands for it
    return item, name, *values, f"{row['move']:+.4f}"


def print_version(version: Version) -> None:
    """Print what was published."""
    files = version.manifest["files"]
    kinds = ((LISTS, "finished"), (TOP, "re-ranked"))
    written = [(kind, version.folder / name) for name, kind in kinds if name in files]
    say_about("published", version.manifest, _describe(version), version.forecast, written)
