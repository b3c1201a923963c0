"""The best step along one direction, exactly: lists move as scores + t·slopes, all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Flags, Floats, Ints, Lists, Sets, entries_of
from trimtab.threads import run_ranges

QUANTA = 2.0**32
N_BINS = 2**15
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


class HitLists(NamedTuple):
    """Lists of the units that bought something of what they list; items ascend in each."""

    lists: Lists
    hits: Flags  # whether the unit bought it, by entry
    n_bought: Ints  # by unit, listed or not
    weights: Floats  # by unit
    source: Ints  # codes of the units

    @property
    def n_units(self) -> int:
        """Units with a hit."""
        return self.lists.n_units

    @property
    def n_hits(self) -> Ints:
        """Listed items that each unit bought."""
        counted: Ints = np.diff(np.concatenate([[0], np.cumsum(self.hits)])[self.lists.indptr])
        return counted

    def take(self, chosen: Ints) -> HitLists:
        """Some of the units."""
        indptr, entries = entries_of(self.lists.indptr, chosen)
        return HitLists(
            Lists(indptr, self.lists.items[entries], self.lists.scores[entries]),
            self.hits[entries],
            self.n_bought[chosen],
            self.weights[chosen],
            self.source[chosen],
        )


def gather_hits(lists: Lists, bought: Sets, weights: Floats | None = None) -> HitLists:
    """The units that a metric can change for: with a hit on their list, and a weight above 0.

    Args:
        lists: scored items by unit.
        bought: by the same units.
        weights: of units; all 1 when absent.
    """
    from trimtab.kernels.choice_sums import gather_lists, mark_bought

    hits = np.zeros(len(lists.items), bool)
    has_hit = np.zeros(lists.n_units, bool)
    run_ranges(mark_bought, lists.n_units, lists.indptr, lists.items, *bought, hits, has_hit)
    if weights is not None:
        has_hit &= weights > 0
    source = np.flatnonzero(has_hit)
    indptr = np.concatenate([[0], np.cumsum(np.diff(lists.indptr)[source])])
    n = int(indptr[-1])
    out = np.empty(n, np.int32), np.empty(n), np.empty(n, bool)
    run_ranges(gather_lists, len(source), source, *lists, hits, indptr, out)
    weight = np.ones(len(source)) if weights is None else weights[source]
    return HitLists(Lists(indptr, *out[:2]), out[2], np.diff(bought.indptr)[source], weight, source)


def trace_line(
    data: HitLists, slopes: Floats, k: int, metric: str, low: float, high: float
) -> LineCurve:
    """The curve of a metric when every listed score moves by t times its slope.

    Args:
        data: the units that the metric can change for.
        slopes: one per entry of the lists.
        k: places that count.
        metric: "acc", "map" or "ndcg".
        low: smallest t.
        high: largest t.
    """
    at, delta, value = _steps(data, slopes, k, metric, low, high)
    return _sum_up(at, delta, value, low, high)


def _steps(
    data: HitLists, slopes: Floats, k: int, metric: str, low: float, high: float
) -> tuple[Floats, Ints, int]:
    """Breakpoints in no order, the changes there, and the value at `low`."""
    crossings = data.n_hits * np.diff(data.lists.indptr)
    room = np.concatenate([[0], np.cumsum(crossings)]).astype(np.int64)
    at, delta = np.empty(room[-1]), np.empty(room[-1], np.int64)
    counts = room[:-1].copy()
    values = _trace(data, slopes, k, metric, low, high, at, delta, counts)
    places = np.arange(room[-1]) - np.repeat(room[:-1], np.diff(room))
    used = places < np.repeat(counts, np.diff(room))
    return at[used], delta[used], int(values.sum())


def outline_line(
    data: HitLists, slopes: Floats, k: int, metric: str, low: float, high: float
) -> Ints:
    """What a curve does in each of many bins; those of parts of the units add up.

    Returns:
        By [what, bin]: breakpoints, the sum of their changes, and that of the changes upwards; in
        the last column, first row, the value at `low`.
    """
    at, delta, value = _steps(data, slopes, k, metric, low, high)
    bins = _bin_of(at, low, high)
    out = np.zeros((3, N_BINS + 1), np.int64)
    out[0, :N_BINS] = np.bincount(bins, minlength=N_BINS)
    # Not by weights of bincount, which are floats.
    np.add.at(out[1], bins, delta)
    np.add.at(out[2], bins, np.maximum(delta, 0))
    out[0, N_BINS] = value
    return out


def detail_line(
    data: HitLists, slopes: Floats, k: int, metric: str, low: float, high: float, bins: Flags
) -> tuple[Floats, Ints]:
    """The breakpoints in some bins, and the changes there."""
    at, delta, _ = _steps(data, slopes, k, metric, low, high)
    wanted = bins[_bin_of(at, low, high)]
    return at[wanted], delta[wanted]


def _bin_of(at: Floats, low: float, high: float) -> Ints:
    bins = ((at - low) / (high - low) * N_BINS).astype(np.int64)
    return np.clip(bins, 0, N_BINS - 1)


def best_by_bins(
    outline: Ints, fetch: Callable[[Flags], tuple[Floats, Ints]], low: float, high: float,
    start: float, most: int,
) -> float:  # fmt: skip
    """Where a curve is best, as `LineCurve.best` would say, without all its breakpoints at once.

    Args:
        outline: of the curve.
        fetch: gives the breakpoints in some bins.
        low: where the curve begins.
        high: where it ends.
        start: stays unless another place is strictly better.
        most: so many breakpoints can be looked at together; then only bins that may hold the best.
    """
    counts, net, up = outline[:, :N_BINS]
    begins = outline[0, N_BINS] + np.concatenate([[0], np.cumsum(net)[:-1]])
    bar = int(begins.max())
    while True:
        bins: Flags = np.full(N_BINS, counts.sum() <= most)
        bins |= begins + up >= bar
        bins[_bin_of(np.array([start]), low, high)] = True
        bins = _with_neighbours(bins, counts)
        best, value = _curve_of_bins(outline, bins, *fetch(bins), low, high).best(start)
        higher = ~bins & (begins + up >= value)
        if not higher.any():
            return best
        # What a bin begins with can be too narrow to stand on: then others may be better.
        bar = value


def _with_neighbours(bins: Flags, counts: Ints) -> Flags:
    """Bins, and the nearest ones with breakpoints: every interval has both its ends."""
    filled, chosen = np.flatnonzero(counts > 0), np.flatnonzero(bins)
    before = np.searchsorted(filled, chosen) - 1
    after = np.searchsorted(filled, chosen, side="right")
    wider = bins.copy()
    wider[filled[before[before >= 0]]] = True
    wider[filled[after[after < len(filled)]]] = True
    return wider


def _curve_of_bins(
    outline: Ints, bins: Flags, at: Floats, delta: Ints, low: float, high: float
) -> LineCurve:
    """A curve that is known in some bins; elsewhere it counts as lower than anything."""
    counts, net, _ = outline[:, :N_BINS]
    hidden = np.flatnonzero(~bins & (counts > 0))
    # A bin that is not seen becomes one breakpoint in its middle, with all its changes.
    middles = low + (hidden + 0.5) * (high - low) / N_BINS
    value = int(outline[0, N_BINS])
    curve = _sum_up(
        np.concatenate([at, middles]), np.concatenate([delta, net[hidden]]), value, low, high
    )
    unseen = np.isin(curve.breakpoints, middles)
    values = curve.values.copy()
    values[:-1][unseen] = _LEAST
    values[1:][unseen] = _LEAST
    return curve._replace(values=values)


def values_at(data: HitLists, slopes: Floats, k: int, metric: str, t: float) -> Floats:
    """The weighted metric of each unit when every listed score has moved by t times its slope."""
    none = np.zeros(data.n_units, np.int64)
    nowhere = np.empty(0), np.empty(0, np.int64)
    # No end above the start: nothing is passed on the way.
    return _trace(data, slopes, k, metric, t, -np.inf, *nowhere, none) / QUANTA


def _trace(
    data: HitLists, slopes: Floats, k: int, metric: str, low: float, high: float,
    at: Floats, delta: Ints, counts: Ints,
) -> Ints:  # fmt: skip
    """Each unit's value at `low`, in quanta; fills its breakpoints."""
    from trimtab.kernels.hit_value import hit_value_table
    from trimtab.kernels.line_crossings import trace_units

    values = np.zeros(data.n_units, np.int64)
    run_ranges(
        trace_units, data.n_units, k, metric == "map", low, high, QUANTA, *data.lists, slopes,
        data.hits, data.n_bought, data.weights, hit_value_table(metric, k), at, delta, counts,
        values,
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
