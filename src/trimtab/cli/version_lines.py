"""What commands print about a version of a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.cli.printing import say, say_weighted
from trimtab.cli.reranking import describe_left_out, describe_parts
from trimtab.models import LeftOut
from trimtab.store import Version
from trimtab.store.versions import LISTS, TOP

_FORECAST = ("forecast", "forecast_low", "forecast_high")


def describe(version: Version) -> dict[str, Any]:
    """Return what `history` prints about a version."""
    manifest = version.manifest
    summary = manifest.get("summary", {})  # a version that was published by hand may have none
    before, after = summary.get("before"), summary.get("after")
    reranker = {"reranker": manifest["reranker"]} if "reranker" in manifest else {}
    return {
        "number": version.number, "as_of": version.as_of, "created": manifest["created"],
        "metric": summary.get("metric"), "k": summary.get("k"),
        "lift": after / before - 1 if before and after is not None else None,
        **{name: version.forecast.get(name) for name in _FORECAST},
        "n_biases": manifest.get("n_biases"), "lists": manifest.get("lists"),
        "seconds": manifest.get("seconds"), "warnings": manifest.get("warnings"), **reranker,
    }  # fmt: skip


def metric_of(row: dict[str, Any]) -> str:
    """Return the metric of a version, like NDCG@10."""
    return f"{row['metric'].upper()}@{row['k']}"


def percent(value: float | None) -> str:
    """Return a lift as text; '-' if there is none."""
    return "-" if value is None else f"{value:+.1%}"


def _lift_or_none(value: float | None) -> str:
    """Return a forecast as text in a sentence: without a gain on held-out data, there is none."""
    return "none" if value is None else percent(value)


def _forecast(version: Version) -> str:
    """Return the expected lift with its interval."""
    summary = version.forecast
    low, high = summary["forecast_low"], summary["forecast_high"]
    if low is None:
        return _lift_or_none(summary["forecast"])
    interval = f" (90 % interval {percent(low)} to {percent(high)})"
    held_out = summary.get("forecast_windows", 0)
    return (
        f"{percent(summary['forecast'])}{interval}, from "
        f"{f'{held_out} held-out windows' if held_out else 'held-out users of the window'}"
    )


def _windows(window: dict[str, Any]) -> str:
    """Return what the lift of a version was measured on: also windows too poor to learn from."""
    n = window["windows"]
    return "the window" if n == 1 else f"all {n} windows"


def _count_windows(window: dict[str, Any]) -> str:
    """Return '1 window of 3 days' or '6 windows of 3 days'."""
    n, days = window["windows"], window["days"]
    return f"{n} window{'' if n == 1 else 's'} of {days} day{'' if days == 1 else 's'}"


def print_version(version: Version) -> None:
    """Print what was published."""
    row, manifest = describe(version), version.manifest
    window = manifest["window"]
    say(
        f"version {row['number']} for {row['as_of']} is served: {row['n_biases']} biases from "
        f"{window['events']} events since {window['first']}, in {_count_windows(window)}, on lists "
        f"of {', '.join(row['lists'])}"
    )
    on = f"{metric_of(row)} on {_windows(window)} {percent(row['lift'])}"
    say_weighted(manifest.get("weighted", False))
    _print_method(manifest)
    if "reranker" not in manifest:
        said = f"forecast for the coming days {_forecast(version)}"
        say(said if row["lift"] is None else f"{on}; {said}")
        if LISTS in manifest["files"]:
            say(f"finished lists of {manifest['reranked']}: {version.folder / LISTS}")
    else:
        if row["lift"] is not None:
            say(f"biases alone: {on}")
        _print_reranker(version)
    _print_concentration(manifest["concentration"])
    if TOP in manifest["files"]:
        say(f"re-ranked lists of {manifest['reranked']}: {version.folder / TOP}")


def _print_concentration(told: Mapping[str, Mapping[str, float]]) -> None:
    """Print how much of the lists falls on a few items, beside the engine's own and purchases."""
    (ten, one), (engine_ten, engine_one), (bought_ten, bought_one) = (
        (told[name]["ten_items"], told[name]["one_item"])
        for name in ("finished", "engine", "bought")
    )
    say(
        f"the ten most shown items take {ten:.0%} of slots (engine {engine_ten:.0%}; the ten most "
        f"bought {bought_ten:.0%} of purchases); one item is on {one:.0%} of lists (engine "
        f"{engine_one:.0%}; bought by {bought_one:.0%} of buyers)"
    )


def _print_method(manifest: Mapping[str, Any]) -> None:
    """Print how the method was chosen, and the strength if it is not 1."""
    told = manifest.get("method", {})
    if "why" in told:
        others = ", ".join(
            f"{name} {_lift_or_none(own['lift'])}" for name, own in told["forecasts"].items()
        )
        say(f"method {told['used']}: {told['why']} (forecasts: {others})")
    if manifest.get("strength", 1.0) != 1.0:
        say(f"strength {manifest['strength']:g} of what was learned")


def _print_reranker(version: Version) -> None:
    """Print what the reranker of a version adds, and where its lists are."""
    told = version.manifest["reranker"]
    lifts = told["summary"]["lifts"]
    if lifts:
        say(f"lift over the engine on held-out data: {describe_parts(lifts)}")
    if not told["summary"]["kept"]:
        say("no gain by each user's own purchases: all users are ranked by the biases")
    say(f"forecast for the coming days {_forecast(version)}")
    left_out = LeftOut(**told["events_left_out"])
    say(
        f"finished lists of {version.manifest['reranked']}: {version.folder / LISTS}; "
        f"{describe_left_out(left_out)}"
    )
