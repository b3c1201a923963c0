"""The best step along one direction, exactly: lists move as scores + t·slopes, all at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.coded import Flags, Floats, Ints, Lists, Sets
from trimtab.threads import run_ranges

QUANTA = 2.0**32
_NARROW = 1e-9  # of the whole line
_LEAST = np.iinfo(np.int64).min


class LineCurve(NamedTuple):
    """The weighted sum of a metric along t in [low, high], in quanta.

    Between breakpoints the value is constant: `values[p]` holds from breakpoint p - 1 (from `low`
    for p = 0) to breakpoint p (to `high` for the last). Breakpoints where changes cancel are there
    too: exactly on them ties may decide otherwise.
    """

    breakpoints: Floats  # ascending, each once
    values: Ints  # one more than breakpoints
    low: float
    high: float

    def at(self, t: float) -> int:
        """The value at a t that is on no breakpoint."""
        return int(self.values[np.searchsorted(self.breakpoints, t)])

    def best(self, start: float = 0.0) -> tuple[float, int]:
        """The middle of the best interval and its value; `start` unless another is strictly better.

        Among equals the interval nearest to `start` wins.
        """
        edges = np.concatenate([[self.low], self.breakpoints, [self.high]])
        widths = np.diff(edges)
        middles = edges[:-1] + widths / 2
        # Between crossings that coincide but for rounding lies nothing.
        values = np.where(widths > _NARROW * (self.high - self.low), self.values, _LEAST)
        top = np.flatnonzero(values == values.max())
        nearest = top[np.argmin(np.abs(middles[top] - start))]
        if self.values[nearest] <= self.at(start):
            return start, self.at(start)
        return float(middles[nearest]), int(self.values[nearest])


def trace_line(
    lists: Lists, slopes: Floats, bought: Sets, k: int, metric: str, low: float, high: float,
    weights: Floats | None = None,
) -> LineCurve:  # fmt: skip
    """The curve of a metric when every listed score moves by t times its slope.

    Args:
        lists: scored items by unit.
        slopes: one per entry of the lists.
        bought: by unit; units that bought nothing do not count.
        k: places that count.
        metric: "acc", "map" or "ndcg".
        low: smallest t.
        high: largest t.
        weights: of units.
    """
    from trimtab.kernels.direction import trace_units
    from trimtab.kernels.worth import worth_table

    hits = mark_bought(lists, bought)
    n_units = lists.n_units
    lengths = np.diff(lists.indptr)
    n_hits = np.diff(np.concatenate([[0], np.cumsum(hits)])[lists.indptr])
    room = np.concatenate([[0], np.cumsum(n_hits * lengths)]).astype(np.int64)
    at, delta = np.empty(room[-1]), np.empty(room[-1], np.int64)
    counts, values = room[:-1].copy(), np.zeros(n_units, np.int64)
    weight = np.ones(n_units) if weights is None else weights
    run_ranges(
        trace_units, n_units, k, metric == "map", low, high, QUANTA, *lists, slopes, hits,
        np.diff(bought.indptr), weight, worth_table(metric, k), at, delta, counts, values,
    )  # fmt: skip
    places = np.arange(room[-1]) - np.repeat(room[:-1], np.diff(room))
    used = places < np.repeat(counts, np.diff(room))
    return _sum_up(at[used], delta[used], int(values.sum()), low, high)


def mark_bought(lists: Lists, bought: Sets) -> Flags:
    """Whether the unit bought it, for each entry of the lists."""
    n_items = int(max(lists.items.max(initial=0), bought.items.max(initial=0))) + 1
    listed = np.repeat(np.arange(lists.n_units), np.diff(lists.indptr)) * n_items + lists.items
    sold = np.repeat(np.arange(bought.n_units), np.diff(bought.indptr)) * n_items + bought.items
    return np.isin(listed, sold)


def _sum_up(at: Floats, delta: Ints, value: int, low: float, high: float) -> LineCurve:
    order = np.argsort(at)
    at, delta = at[order], delta[order]
    starts = np.flatnonzero(np.diff(at, prepend=-np.inf))
    if len(starts) == 0:
        return LineCurve(at, np.array([value]), low, high)
    values = value + np.concatenate([[0], np.cumsum(np.add.reduceat(delta, starts))])
    return LineCurve(at[starts], values, low, high)
