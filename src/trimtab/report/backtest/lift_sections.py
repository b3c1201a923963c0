"""The sections about lifts: the headline, all methods, and all engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab.experiments.methods import RERANKER
from trimtab.experiments.results import BASELINE
from trimtab.report.backtest import lift_blocks
from trimtab.report.backtest.holes_section import describe_holes
from trimtab.report.backtest.overview import HARMLESS, Lift, Overview, find_spread
from trimtab.report.blocks import Block, Section, Tile, sign_class
from trimtab.report.words import capitalize, count, counted, day, interval, is_number, percent

_FACTS = {
    "n_listed": "items per list", "log": "log", "n_events": "purchases", "n_users": "users",
    "n_items": "items", "first_day": "first day", "last_day": "last day", "tz": "time zone",
}  # fmt: skip


def headline(view: Overview) -> Section:
    """Return the lifts of the default settings and of the reranker, and what was done."""
    tiles = [tile for method in view.headlined for tile in _make_tiles(view, method)]
    sentences = [describe_outcomes(view), describe_setup(view)]
    if view.marked_dates:
        sentences.append(describe_holes(view))
    return Section("headline", "In short", sentences, tiles=tiles)


def _make_tiles(view: Overview, method: str) -> list[Tile]:
    """Return the lift of a method, and how many of its lifts do no harm.

    A method that is alone has a lift for each metric; of two, each has one for the metric shown.
    """
    start, metrics = "", view.metrics
    if len(view.headlined) > 1:
        start, metrics = f"{view.names[method].short}: ", [view.metric]
    tiles = [_lift_tile(view, method, metric, start) for metric in metrics]
    lifts = [row.lift for row in view.judged(method=method) if row.lift is not None]
    harmless = f"{sum(lift >= HARMLESS for lift in lifts)} of {len(lifts)}"
    note = "lifts at or above −0.5 %, over all dates, engines and metrics"
    return [*tiles, *([Tile(f"{start}no harm", harmless, note)] if lifts else [])]


def _lift_tile(view: Overview, method: str, metric: str, start: str) -> Tile:
    rows = view.judged(engine=view.engines[0], method=method, metric=metric)
    label = f"{start}{view.name_metric(metric)}, {view.engines[0]}"
    found = find_spread(rows)
    if found is None:
        return Tile(label, percent(None), "no lift to show")
    note = f"mean of {found.n_dates} dates; worst {percent(found.worst)}"
    if found.n_dates == 1:
        note = interval(rows[0].low, rows[0].high)
    return Tile(label, percent(found.mean), note, sign_class(found.mean))


def describe_outcomes(view: Overview) -> str:
    """Return the mean and the lowest lift of each method of the headline."""
    found = [_describe_outcome(view, method) for method in view.headlined]
    return " ".join(found) or "Only the engine alone was judged."


def _describe_outcome(view: Overview, method: str) -> str:
    rows = view.judged(engine=view.engines[0], method=method, metric=view.metric)
    start = f"{capitalize(view.names[method].in_text)} on {view.engines[0]}"
    metric, found = view.name_metric(view.metric), find_spread(rows)
    if found is None:
        return f"{start}: no lift in {metric} to show."
    known = [row for row in view.judged(method=method) if row.lift is not None]
    worst = min(known, key=lambda row: (row.lift or 0.0, row.date, row.engine))
    where = f"{view.name_metric(worst.metric)} on {worst.engine}, {day(worst.date)}"
    return (
        f"{start} changed {metric} by {percent(found.mean)}{_over_dates(view)}. Its lowest lift "
        f"over all engines and metrics is {percent(worst.lift)} ({where})."
    )


def _over_dates(view: Overview) -> str:
    return "" if len(view.dates) == 1 else f" on average over {len(view.dates)} dates"


def describe_setup(view: Overview) -> str:
    """Return the days that taught and judged, and what else is known about the backtest."""
    about = view.results.about
    days = [about.get(name) for name in ("recent_days", "test_days")]
    recent, test = (counted(n, "day") if isinstance(n, int) else "days" for n in days)
    dates = ", ".join(day(date) for date in view.dates)
    if not view.few:
        dates = f"{len(view.dates)} from {day(view.dates[0])} to {day(view.dates[-1])}"
    known = {name: about[key] for key, name in _FACTS.items() if about.get(key)}
    facts = {"dates": dates, "engines": ", ".join(view.engines), **known}
    texts = [f"{name}: {count(v) if is_number(v) else day(str(v))}" for name, v in facts.items()]
    return (
        f"Biases were learned on the {recent} before each date{_earlier(view)}. All methods were "
        f"judged on the {test} after it. {capitalize('; '.join(texts))}."
    )


def _earlier(view: Overview) -> str:
    """Return which windows were learned from in addition; nothing if none, or if unknown."""
    windows = view.results.about.get("windows")
    if not isinstance(windows, int) or windows < 2:
        return ""
    who = "with default settings and by the reranker" if RERANKER in view.methods else ""
    who = who or "with default settings"
    return f", {who} also on up to {counted(windows - 1, 'window')} before them"


def methods_section(view: Overview) -> Section | None:
    """Return the lift of each method on the first engine."""
    if not view.rivals:
        return None
    engine = view.engines[0]
    blocks = lift_blocks.lift_blocks(view, lift_blocks.method_cases(view, engine), ["method"])
    if not view.few:
        blocks += lift_blocks.lifts_by_date(view, engine)
    lifts = {
        view.names[method].short: view.judged(engine=engine, method=method, metric=view.metric)
        for method in view.rivals
    }
    title = f"Each method against the engine alone ({engine})"
    return Section("methods", title, [describe_range(view, lifts)], blocks)


def describe_range(view: Overview, lifts: Mapping[str, Sequence[Lift]]) -> str:
    """Return the names with the highest and the lowest mean lift."""
    found = {name: spread for name, rows in lifts.items() if (spread := find_spread(rows))}
    if not found:
        return "There is no lift to show."
    order = sorted(found, key=lambda name: -found[name].mean)
    ends = [f"{name} ({percent(found[name].mean)})" for name in (order[0], order[-1])]
    lowest = f"; the lowest: {ends[1]}" if len(order) > 1 else ""
    metric = view.name_metric(view.metric)
    return f"Highest lift in {metric}{_over_dates(view)}: {ends[0]}{lowest}."


def engines_section(view: Overview) -> Section | None:
    """Return learned methods on every engine, and engines alone; None if there is only one."""
    if len(view.all_engines) == 1:
        return None
    blocks: list[Block] = []
    if view.learned and len(view.engines) > 1:
        cases = lift_blocks.engine_cases(view)
        blocks += lift_blocks.lift_blocks(view, cases, ["engine", "method"])
    if any(row.method == BASELINE for row in view.lifts):
        blocks.append(lift_blocks.engines_table(view))
    lifts = {
        f"{view.names[method].short} on {engine}": view.judged(
            engine=engine, method=method, metric=view.metric
        )
        for engine in view.engines
        for method in view.learned
    }
    return Section("engines", "The engines", [describe_range(view, lifts)], blocks)
