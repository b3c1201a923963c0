"""What there is to see in each section, said from the numbers, good or bad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trimtab.experiments.results import BASELINE
from trimtab.report.backtest.figures import Lift, Overview, Row, Spread, mean_by, spread
from trimtab.report.words import (  # fmt: skip
    capital,
    count,
    counted,
    day,
    decimal,
    interval,
    listed,
    metric_name,
    ordinal,
    percent,
    share,
)

if TYPE_CHECKING:
    pass


def what_was_done(view: Overview) -> str:
    """The experiment in a sentence or two; what is not known is left out."""
    about = view.about
    when = listed([day(date) for date in view.dates]) if view.few else _from_to(view)
    learned = _days_of(about.get("recent_days"), "the {} before")
    judged = _days_of(about.get("test_days"), "the {} from then on")
    first = f"For {when}, "
    if any(row.objective for row in view.lifts):
        first += f"biases were learned on {learned or 'the days before'} and "
    first += f"every method was judged on {judged or 'the days after'}"
    first += f", over {_engines(view.engines)}"
    lists = f"; lists of {view.cutoff}" if view.cutoff is not None else ""
    return f"{first}{lists}.{_log(view)}"


def _from_to(view: Overview) -> str:
    first, last = day(view.dates[0]), day(view.dates[-1])
    return f"each of {len(view.dates)} dates from {first} to {last}"


def _days_of(days: object, words: str) -> str:
    return words.format(counted(days, "day")) if isinstance(days, int) else ""


def _engines(engines: Sequence[str]) -> str:
    noun = "the engine" if len(engines) == 1 else "the engines"
    return f"{noun} {listed(engines)}"


def _log(view: Overview) -> str:
    about = view.about
    sizes = [
        f"{count(about[key])} {noun}"
        for key, noun in (("n_events", "purchases"), ("n_users", "users"), ("n_items", "items"))
        if about.get(key) is not None
    ]
    span = [day(str(about[key])) for key in ("first_day", "last_day") if about.get(key)]
    facts = [listed(sizes)] if sizes else []
    facts += [f"from {' to '.join(span)}"] if len(span) == 2 else []
    if not facts and not about.get("log"):
        return ""
    name = f"The log {about['log']}" if about.get("log") else "The log"
    return f" {name} holds {', '.join(facts)}." if facts else f" The log is {about['log']}."


def outcome(view: Overview) -> str:
    """How the featured method fared over the first engine, and where it fared worst."""
    if view.featured is None:
        return "Only the engine alone was judged."
    rows = view.judged(engine=view.engines[0], method=view.featured, metric=view.metric)
    metric = metric_name(view.metric, view.cutoff)
    start = f"{capital(view.names[view.featured].said)}, over {view.engines[0]},"
    known = [row for row in rows if row.lift is not None]
    if not known:
        return f"{start} has no lift in {metric} that could be given."
    if view.few:
        parts = [f"{_lift_text(row)} on {day(row.date)}" for row in known]
        return f"{start} changed {metric} by {listed(parts)}. {_worst(view)}"
    found = spread(known)
    assert found is not None
    return (
        f"{start} changed {metric} by {percent(found.mean)} on average; "
        f"{share(found.harmless)} of dates are at or above −0.5 %. {_worst(view)}"
    )


def _lift_text(row: Lift) -> str:
    within = interval(row.low, row.high)
    return percent(row.lift) + (f" ({within})" if within else "")


def _worst(view: Overview) -> str:
    rows = [row for row in view.judged(method=view.featured or "") if row.lift is not None]
    worst = min(rows, key=lambda row: (row.lift or 0.0, row.date, row.engine))
    where = f"{metric_name(worst.metric)} over {worst.engine} on {day(worst.date)}"
    return f"Its lowest lift of all is {percent(worst.lift)} ({where})."


def methods(view: Overview) -> str:
    """Which method gained most, and where the featured one stands."""
    dates = [[date] for date in view.dates] if view.few else [view.dates]
    parts = [text for group in dates if (text := _ranking(view, group))]
    return " ".join(parts) or "No lift can be given."


def _ranking(view: Overview, dates: Sequence[str]) -> str:
    found = _means(view, dates)
    if not found:
        return ""
    order = sorted(found, key=lambda method: -found[method])
    when = f"On {day(dates[0])}" if len(dates) == 1 else f"On average over {len(dates)} dates"
    best = order[0]
    verb = "gains the most" if found[best] > 0 else "gains nothing but loses least"
    text = f"{when}, {view.names[best].said} {verb} in {metric_name(view.metric, view.cutoff)}"
    text += f" ({percent(found[best])})"
    if view.featured in found and view.featured != best and view.featured is not None:
        place = order.index(view.featured) + 1
        name = view.names[view.featured].said
        text += f"; {name} comes {ordinal(place)} of {len(order)} ({percent(found[view.featured])})"
    return f"{text}.{_clear(view, dates)}"


def _means(view: Overview, dates: Sequence[str]) -> dict[str, float]:
    means = {}
    for method in view.rivals:
        rows = view.judged(engine=view.engines[0], method=method, metric=view.metric)
        found = spread(row for row in rows if row.date in dates)
        if found is not None:
            means[method] = found.mean
    return means


def _clear(view: Overview, dates: Sequence[str]) -> str:
    """How many lifts are clear of 0, on one date."""
    if len(dates) != 1:
        return ""
    rows = view.judged(engine=view.engines[0], date=dates[0])
    rows = [row for row in rows if row.method != BASELINE and row.low is not None]
    if not rows:
        return ""
    up, down = (sum(row.sign == sign for row in rows) for sign in (1, -1))
    return f" Clearly above 0: {up} of {len(rows)} lifts; clearly below: {down}."


def engines(view: Overview) -> str:
    """Over which engines each bias gains, in the metric shown, and which engine is best alone."""
    parts = []
    for method in view.biased:
        rows = [(e, view.judged(engine=e, method=method, metric=view.metric)) for e in view.engines]
        known = {engine: found for engine, own in rows if (found := spread(own)) is not None}
        if known:
            parts.append(f"{view.names[method].said} {_extremes(known)}")
    mean = "" if len(view.dates) == 1 else ", mean over dates"
    metric = metric_name(view.metric, view.cutoff)
    lifts = f"In {metric}{mean}: {'; '.join(parts)}." if parts else ""
    return " ".join(text for text in (lifts, _best_alone(view)) if text) or "No lift can be given."


def _best_alone(view: Overview) -> str:
    rows = [vars(row) for row in view.judged(method=BASELINE, metric=view.metric)]
    means = mean_by(rows, ("engine",), "value")
    if len(means) < 2:
        return ""
    (best,) = max(means, key=lambda key: means[key])
    return f"By itself {best} is best ({metric_name(view.metric)} {decimal(means[(best,)])})."


def _extremes(found: Mapping[str, Spread]) -> str:
    order = sorted(found, key=lambda engine: -found[engine].mean)
    best, worst = order[0], order[-1]
    if best == worst:
        return f"changes it by {percent(found[best].mean)} ({best})"
    return (
        f"changes it by {percent(found[worst].mean)} ({worst}) to {percent(found[best].mean)} "
        f"({best})"
    )


def coverage(view: Overview, covered: Sequence[Row], divergence: Sequence[Row]) -> str:
    """Whether the featured method shows more of what sells than the engine alone."""
    parts = [_covered(view, covered), _diverges(view, divergence)]
    return " ".join(part for part in parts if part) or "The table has no row to compare with."


def _covered(view: Overview, rows: Sequence[Row]) -> str:
    means = mean_by(_own(view, rows), ("method", "size"), "covered")
    sizes = sorted({size for _, size in means})
    both = [s for s in sizes if (BASELINE, s) in means and (view.featured, s) in means]
    if not both or view.featured is None:
        return ""
    more = sum(means[view.featured, s] > means[BASELINE, s] for s in both)
    fewer = sum(means[view.featured, s] < means[BASELINE, s] for s in both)
    size = both[min(len(both) - 1, 3)]
    return (
        f"Over {view.engines[0]}, {view.names[view.featured].said} covers more best sellers than "
        f"the engine alone at {more} of {len(both)} sizes and fewer at {fewer}; of the top "
        f"{count(size)}, {decimal(means[view.featured, size], 0)} against "
        f"{decimal(means[BASELINE, size], 0)}."
    )


def _diverges(view: Overview, rows: Sequence[Row]) -> str:
    means = mean_by(_own(view, rows), ("method",), "kl")
    before, after = means.get((BASELINE,)), means.get((view.featured,))
    if before is None or after is None:
        return ""
    change = "closer to" if after < before else "further from" if after > before else "as far from"
    return (
        f"What it shows is {change} what is bought: KL {decimal(after, 3)} against "
        f"{decimal(before, 3)}."
    )


def _own(view: Overview, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["engine"] == view.engines[0]]


def objectives(view: Overview, learned: Sequence[Lift]) -> str:
    """How often it is best to learn for the metric that one is judged by."""
    groups: dict[tuple[str, str], dict[str, float]] = {}
    for (method, metric, objective), mean in _objective_means(learned).items():
        groups.setdefault((method, metric), {})[objective] = mean
    compared = {key: means for key, means in groups.items() if len(means) > 1 and key[1] in means}
    if not compared:
        return "How many items got a bias."
    best = sum(means[metric] >= max(means.values()) for (_, metric), means in compared.items())
    note = "" if len(view.dates) == 1 else f", lifts taken as means over {len(view.dates)} dates"
    return (
        f"Learning for the metric that is judged by is best in {best} of {len(compared)} "
        f"comparisons (each method and metric{note})."
    )


def _objective_means(learned: Sequence[Lift]) -> dict[tuple[str, ...], float]:
    rows = [{"method": row.method, "metric": row.metric, "objective": row.objective,
             "lift": row.lift} for row in learned]  # fmt: skip
    return mean_by(rows, ("method", "metric", "objective"), "lift")
