"""The sections about lifts: all methods, and all engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab.replay.methods import RERANKER
from trimtab.replay.results import BASELINE
from trimtab.report.backtest import lift_blocks
from trimtab.report.backtest.judged_methods import rank_records
from trimtab.report.backtest.overview import Lift, Overview, find_spread
from trimtab.report.backtest.record_tables import engine_records_table, records_table
from trimtab.report.blocks import Block, Fold, Panels, Section, Table
from trimtab.report.words import capitalize, count, counted, day, is_number, percent

_FACTS = {
    "n_listed": "items per list", "log": "log", "n_events": "purchases", "n_users": "users",
    "n_items": "items", "first_day": "first day", "last_day": "last day", "tz": "time zone",
}  # fmt: skip


def _over_dates(view: Overview) -> str:
    return "" if len(view.dates) == 1 else f" on average over {len(view.dates)} dates"


def describe_dates(view: Overview) -> str:
    """Return the dates and the size of the log, for the line under the page's title."""
    about, n_dates = view.results.about, len(view.dates)
    dates = f"{counted(n_dates, 'date')} from {day(view.dates[0])} to {day(view.dates[-1])}"
    parts = [dates if n_dates > 1 else day(view.dates[0])]
    if isinstance(days := about.get("test_days"), int):
        judged = f"judged on the {counted(days, 'day')} from it on"
        parts[0] += f", {'each ' if n_dates > 1 else ''}{judged}"
    parts += [f"{count(about[f'n_{key}'])} {key}" for key in ("users", "items")
              if is_number(about.get(f"n_{key}"))]  # fmt: skip
    return " · ".join(parts)


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
    weighted = " Events count by their weights." if about.get("weighted") else ""
    return (
        f"Biases were learned on the {recent} before each date{_earlier(view)}. All methods were "
        f"judged on the {test} from it on.{weighted} {capitalize('; '.join(texts))}."
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
    """Return the record of each method on the first engine, and all metrics on demand."""
    if not view.rivals:
        return None
    engine = view.engines[0]
    detail = lift_blocks.lift_blocks(view, lift_blocks.method_cases(view, engine), ["method"])
    if not view.few:
        detail += lift_blocks.lifts_by_date(view, engine)
    ranked = [record.method for record in rank_records(view, engine)]
    lifts = {
        view.names[method].short: view.judged(engine=engine, method=method, metric=view.metric)
        for method in ranked
    }
    made: list[Block] = [records_table(view, engine)] if ranked else []
    made.append(Fold(f"All metrics{_by_date(view)}", detail))
    title = f"Each method against the engine alone ({engine})"
    return Section("methods", title, [describe_range(view, lifts)], made)


def _by_date(view: Overview) -> str:
    return ", date by date" if view.few and len(view.dates) > 1 else ""


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
    """Return what to do on every engine, and engines alone; None if there is only one."""
    if len(view.all_engines) == 1:
        return None
    detail: list[Table | Panels] = []
    if view.learned and len(view.engines) > 1:
        cases = lift_blocks.engine_cases(view)
        detail += lift_blocks.lift_blocks(view, cases, ["engine", "method"])
    if any(row.method == BASELINE for row in view.lifts):
        detail.append(lift_blocks.engines_table(view))
    lifts = {
        f"{view.names[method].short} on {engine}": view.judged(
            engine=engine, method=method, metric=view.metric
        )
        for engine in view.engines
        for method in view.learned
    }
    made: list[Block] = [engine_records_table(view)]
    made.append(Fold(f"All metrics{_by_date(view)}", detail))
    return Section("engines", "The engines", [describe_range(view, lifts)], made)
