"""What there is to see about items and training windows, said from the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trimtab.report.backtest.figures import Overview, Row, mean_by
from trimtab.report.words import (
    capital,
    count,
    counted,
    day,
    decimal,
    listed,
    metric_name,
    month,
    window,
)

if TYPE_CHECKING:
    from trimtab.report.backtest.item_sections import Learned


def sellers(rows: Sequence[Row], names: Mapping[str, str]) -> str:
    """How many best sellers stayed on top, and which moved farthest."""
    ranks: dict[str, list[tuple[int, str]]] = {}
    for row in rows:
        ranks.setdefault(row["item_id"], []).append((row["rank"], row["month"]))
    steady = sum(max(own)[0] <= len(ranks) for own in ranks.values())
    widest = max(ranks, key=lambda item: (max(ranks[item])[0] / max(1, min(ranks[item])[0]), item))
    (high, high_month), (low, low_month) = min(ranks[widest]), max(ranks[widest])
    start = (
        f"Of the {counted(len(ranks), 'best seller')} of the whole log, {steady} stayed among the "
        f"top {len(ranks)} in every month"
    )
    return (
        f"{start}; {names[widest]} moved farthest, between rank {count(high)} "
        f"({month(high_month)}) and rank {count(low)} ({month(low_month)})."
    )


def windows(rows: Sequence[Row], lengths: Sequence[int], metric: str) -> str:
    """Which training window is best for each engine."""
    shown = metric if any(row["metric"] == metric for row in rows) else rows[0]["metric"]
    own = [row for row in rows if row["metric"] == shown]
    means = mean_by(own, ("engine", "days"), "relative")
    parts = []
    for engine in dict.fromkeys(row["engine"] for row in own):
        values = {days: means[engine, days] for days in lengths if (engine, days) in means}
        best = max(values, key=lambda days: values[days])
        parts.append(f"{engine} is best on {window(best)} ({decimal(values[best], 2)} times)")
    return f"In {metric_name(shown)}, relative to {window(lengths[0])}: {listed(parts)}."


def curves(view: Overview, fits: Sequence[Learned]) -> str:
    """How many items each method raises and lowers."""
    parts = []
    for method in dict.fromkeys(fit.method for fit in fits):
        own = [fit.rows for fit in fits if fit.method == method]
        up = [sum(row["bias"] > 0 for row in rows) for rows in own]
        down = [len(rows) - n_up for rows, n_up in zip(own, up, strict=True)]
        name = view.names[method].said
        parts.append(f"{name} raises {_from_least(up)} items and lowers {_from_least(down)}")
    return f"{capital('; '.join(parts))}.{_shown_dates(view)}"


def _from_least(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return count(least) if least == most else f"{count(least)} to {count(most)}"


def _shown_dates(view: Overview) -> str:
    if view.few:
        return ""
    dates = listed([day(date) for date in view.shown_dates()])
    return f" Shown are the best, the worst and the last date: {dates}."


def moved(view: Overview, fits: Sequence[Learned]) -> str:
    """Whether what was raised did sell more, and what was lowered less."""
    up = [row for fit in fits for row in fit.raised]
    down = [row for fit in fits for row in fit.lowered]
    more = sum(_sold(row, "after") > _sold(row, "before") for row in up)
    less = sum(_sold(row, "after") < _sold(row, "before") for row in down)
    return (
        f"Of the {count(len(up))} items raised most (all tables together), {count(more)} sold more "
        f"in the test than in the week before the window; of the {count(len(down))} lowered "
        f"most, {count(less)} sold less.{_shown_dates(view)}"
    )


def _sold(row: Row, when: str) -> float:
    return float(row[f"sales_{when}"] or 0.0)
