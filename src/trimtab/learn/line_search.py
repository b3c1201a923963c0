"""The exact best step along one direction: all scores of all lists move as score + t·slope."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Floats, Ints
from trimtab.learn.counts import QUANTA
from trimtab.learn.units import HitLists
from trimtab.threads import run_ranges

_NARROW = 1e-9  # of the whole line
_LEAST = np.iinfo(np.int64).min


class LineCurve(NamedTuple):
    """The weighted sum of a metric along t in [low, high], in quanta.

    Between breakpoints the value is constant: `values[p]` holds from breakpoint p - 1 (from `low`
    for p = 0) to breakpoint p (to `high` for the last). Breakpoints where changes cancel are kept:
    exactly on them a tie may rank differently.
    """

    breakpoints: Floats  # ascending, each once
    values: Ints  # one more than breakpoints
    low: float
    high: float

    def at(self, t: float) -> int:
        """The value at a t that is not a breakpoint."""
        return int(self.values[np.searchsorted(self.breakpoints, t)])

    def best(self, start: float = 0.0) -> tuple[float, int]:
        """The middle of the best interval and its value; `start` unless another is strictly better.

        Of equal intervals, the one nearest to `start` wins.
        """
        edges = np.concatenate([[self.low], self.breakpoints, [self.high]])
        widths = np.diff(edges)
        middles = edges[:-1] + widths / 2
        # Very narrow intervals come from rounding: the crossings coincide.
        values = np.where(widths > _NARROW * (self.high - self.low), self.values, _LEAST)
        top = np.flatnonzero(values == values.max())
        nearest = top[np.argmin(np.abs(middles[top] - start))]
        if self.values[nearest] <= self.at(start):
            return start, self.at(start)
        return float(middles[nearest]), int(self.values[nearest])


def trace_line(
    data: HitLists, slopes: Floats, k: int, metric: str, low: float, high: float
) -> LineCurve:
    """The curve of a metric when every listed score moves by t times its slope.

    Args:
        data: the units whose metric can change.
        slopes: one per list entry.
        k: slots that count.
        metric: "acc", "map" or "ndcg".
        low: smallest t.
        high: largest t.
    """
    at, delta, value = _steps(data, slopes, k, metric, low, high)
    return _sum_up(at, delta, value, low, high)


def _steps(
    data: HitLists, slopes: Floats, k: int, metric: str, low: float, high: float
) -> tuple[Floats, Ints, int]:
    """Breakpoints in any order, the change at each, and the value at `low`."""
    crossings = data.n_hits * np.diff(data.lists.indptr)
    room = np.concatenate([[0], np.cumsum(crossings)]).astype(np.int64)
    at, delta = np.empty(room[-1]), np.empty(room[-1], np.int64)
    counts = room[:-1].copy()
    values = _trace(data, slopes, k, metric, low, high, at, delta, counts)
    places = np.arange(room[-1]) - np.repeat(room[:-1], np.diff(room))
    used = places < np.repeat(counts, np.diff(room))
    return at[used], delta[used], int(values.sum())


def values_at(data: HitLists, slopes: Floats, k: int, metric: str, t: float) -> Floats:
    """The weighted metric of each unit when every listed score has moved by t times its slope."""
    none = np.zeros(data.n_units, np.int64)
    nowhere = np.empty(0), np.empty(0, np.int64)
    # An end below the start: no breakpoint is passed.
    return _trace(data, slopes, k, metric, t, -np.inf, *nowhere, none) / QUANTA


def _trace(
    data: HitLists, slopes: Floats, k: int, metric: str, low: float, high: float,
    at: Floats, delta: Ints, counts: Ints,
) -> Ints:  # fmt: skip
    """The value of each unit at `low`, in quanta; writes its breakpoints."""
    from trimtab.kernels.hit_value import counts_hits_above, hit_value_table
    from trimtab.kernels.line_crossings import trace_units

    values = np.zeros(data.n_units, np.int64)
    run_ranges(
        trace_units, data.n_units, k, counts_hits_above(metric), low, high, QUANTA, *data.lists,
        slopes, data.hits, data.n_bought, data.weights, hit_value_table(metric, k), at, delta,
        counts, values,
    )  # fmt: skip
    return values


def _sum_up(at: Floats, delta: Ints, value: int, low: float, high: float) -> LineCurve:
    order = np.argsort(at)
    at, delta = at[order], delta[order]
    starts = np.flatnonzero(np.diff(at, prepend=-np.inf))
    if len(starts) == 0:
        return LineCurve(at, np.array([value]), low, high)
    values = value + np.concatenate([[0], np.cumsum(np.add.reduceat(delta, starts))])
    return LineCurve(at[starts], values, low, high)
