"""Counts over all units, made before anything is learned; counts of parts add up.

Sums are integers, or multiples of a quantum: the number and the order of parts change no byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists
from trimtab.kernels.hit_value import counts_hits_above, hit_value_table
from trimtab.learn.coded_part import CodedPart, Survey
from trimtab.learn.sales import Sales, count_sales
from trimtab.learn.units import N_FOLDS, Plan, Units, folds_of, log_of, prepare
from trimtab.metrics.ranking import rank_lists
from trimtab.models.scaled_scores import to_scale
from trimtab.parts.packing import packable

QUANTA = 2.0**32  # of one unit's metric


def quanta_below(most: float) -> float:
    """The largest power of two that keeps sums of up to `most` below 2**62."""
    return float(2.0 ** np.floor(61 - np.log2(max(1.0, most))))


def sum_counts(parts: Iterator[Any]) -> Any:
    """Return the counts of all parts together."""
    total = next(parts)
    for part in parts:
        total = total + part
    return total


@packable
class TopK(NamedTuple):
    """What the top k of some units show."""

    shown: Ints  # by item: slots it takes
    hit_values: Ints  # by item: the part of the weighted metric that its hits make, in quanta

    def __add__(self, other: TopK) -> TopK:  # type: ignore[override]
        return TopK(self.shown + other.shown, self.hit_values + other.hit_values)


@packable
class Counts(NamedTuple):
    """Counts over some or all units."""

    support: Ints  # by item: units that bought it
    listed: Ints  # by item: lists that contain it
    lengths: Ints  # by length: number of lists
    before: TopK  # by the engine's scores
    learning: Ints  # by window: units that can gain or lose
    # Of learning units, by [(window, fold), item]: buyers, by the weights of events; and lists.
    bought_by_fold: Floats
    listed_by_fold: Ints
    shown_by_window: Ints  # slots in the engine's own top k, by [window, item]
    ends: Floats  # of lists: best and k-th (or last) score, by [list, end]
    is_full: Flags  # of these lists: whether they have k items
    numbers: Ints  # buyers; different purchases; those of units with a list; weights, in quanta
    largest: Floats  # absolute score, and the lowest score with its sign turned
    sales: Sales | None

    def __add__(self, other: Counts) -> Counts:  # type: ignore[override]
        pairs: Iterator[tuple[str, Any, Any]] = zip(self._fields, self, other, strict=True)
        found: dict[str, Any] = {n: one + two for n, one, two in pairs if n not in _NOT_ADDED}
        size = max(len(self.lengths), len(other.lengths))
        lengths = (np.pad(own.lengths, (0, size - len(own.lengths))) for own in (self, other))
        sales = self.sales if other.sales is None else other.sales
        if self.sales is not None and other.sales is not None:
            sales = self.sales + other.sales
        return Counts(
            **found,
            lengths=np.add(*lengths),
            ends=np.concatenate([self.ends, other.ends]),
            is_full=np.concatenate([self.is_full, other.is_full]),
            largest=np.maximum(self.largest, other.largest),
            sales=sales,
        )

    @property
    def n_buyers(self) -> int:
        """Units that bought something."""
        return int(self.numbers[0])

    def weight_of_buyers(self, plan: Plan, gains: bool = False) -> float:
        """Return the summed weights, or gains, of units that bought something."""
        return float(self.numbers[4 if gains else 3] * (plan.heaviest / plan.weight_quanta))

    def median_ends(self, full_only: bool = False) -> tuple[float, float]:
        """Return the median k-th score and gap from the best to it; nan without any list."""
        best, kth = (self.ends[self.is_full] if full_only else self.ends).T
        return tuple(float(np.median(v)) if len(v) else np.nan for v in (kth, best - kth))  # type: ignore[return-value]


_NOT_ADDED = ("lengths", "ends", "is_full", "largest", "sales")


def survey_of(part: CodedPart) -> Survey:
    """Return the survey of a part."""
    return part.survey


def count_part(part: CodedPart, plan: Plan) -> Counts:
    """Return all counts over the units of a part."""
    units = prepare(part, plan)
    lists, bought, n_items = units.lists, units.bought, plan.n_items
    top = rank_lists(lists, plan.k, np.zeros(n_items))
    sizes, lengths = np.diff(bought.indptr), np.diff(lists.indptr)
    learning, buys = units.learning, sizes > 0
    window = np.where(learning, units.windows, -1).astype(np.int64)
    group = np.where(learning, window * N_FOLDS + folds_of(units.hashes, plan.seed), -1)
    filled = lengths > 0
    ends = np.stack([top.scores[top.indptr[:-1][filled]], top.scores[top.indptr[1:][filled] - 1]])
    weights, gains = (
        int(np.rint(own[buys] / plan.heaviest * plan.weight_quanta).astype(np.int64).sum())
        for own in (units.weights, units.gains)
    )
    numbers = buys.sum(), sizes.sum(), sizes[filled].sum(), weights, gains
    scores, lowest = lists.scores, lists.scores.min(initial=np.inf)
    return Counts(
        support=np.bincount(bought.items, minlength=n_items),
        listed=np.bincount(lists.items, minlength=n_items),
        lengths=np.bincount(lengths),
        before=_count_top(top, units, plan),
        learning=np.bincount(window[learning], minlength=plan.n_windows),
        bought_by_fold=_count_bought(units, group, plan),
        listed_by_fold=_count_by_group(lists, group, plan.n_windows * N_FOLDS, n_items),
        shown_by_window=_count_by_group(top, window, plan.n_windows, n_items),
        ends=ends.T,
        is_full=lengths[filled] >= plan.k,
        numbers=np.array(numbers, np.int64),
        largest=np.array([max(scores.max(initial=0.0), -lowest), -lowest]),
        sales=_count_sales(part, plan),
    )  # fmt: skip


def _count_by_group(lists: Lists, group: Ints, n_groups: int, n_items: int) -> Ints:
    """Lists that hold an item, by [group of units, item]; units of group -1 are ignored."""
    from trimtab.kernels.counting import count_listed

    counts = np.zeros((n_groups, n_items), np.int64)
    count_listed(0, lists.n_units, lists.indptr, lists.items, group, counts)
    return counts


def _count_bought(units: Units, group: Ints, plan: Plan) -> Floats:
    """Purchases by [(window, fold), item], by what they count as."""
    n_groups = plan.n_windows * N_FOLDS
    if units.sales is None:
        from trimtab.kernels.counting import count_listed

        counts = np.zeros((n_groups, plan.n_items), np.int64)
        bought = units.bought
        count_listed(0, bought.n_units, bought.indptr, bought.items, group, counts)
        return counts.astype(np.float64)
    by_purchase = np.repeat(group, np.diff(units.bought.indptr))
    used = by_purchase >= 0
    sold = np.zeros((n_groups, plan.n_items))
    np.add.at(sold, (by_purchase[used], units.bought.items[used]), units.sales[used])
    return sold


def _count_sales(part: CodedPart, plan: Plan) -> Sales | None:
    """Sales to the users of a part, by item and tick; None without a history by user."""
    if part.history is None and plan.newest is None:
        return None
    events = log_of(part, plan)
    ticks: Codes | None = None
    if plan.grid is not None and events.times is not None:
        ticks = plan.grid.ticks(events.times)
    return count_sales(events, ticks, plan.n_items)


def count_top_k(
    part: CodedPart, plan: Plan, scale: str, bias: Floats, excluded: Flags | None = None,
    reaches_unlisted: bool = False,
) -> TopK:  # fmt: skip
    """Return what the top k of a part's units show with given biases; see `rank_lists`."""
    units = prepare(part, plan)
    scaled = to_scale(units.lists, scale, plan.k).lists
    return _count_top(rank_lists(scaled, plan.k, bias, excluded, reaches_unlisted), units, plan)


def _count_top(top: Lists, units: Units, plan: Plan) -> TopK:
    from trimtab.kernels.counting import add_hit_values

    bought, hit_values = units.bought, np.zeros(plan.n_items, np.int64)
    each = np.ones(len(bought.items), bool) if units.relevance is None else units.relevance
    add_hit_values(
        0, top.n_units, plan.k, counts_hits_above(plan.metric), top.indptr, top.items, *bought,
        each, units.gains, hit_value_table(plan.metric, plan.k), plan.quanta, hit_values,
    )  # fmt: skip
    return TopK(np.bincount(top.items, minlength=plan.n_items), hit_values)


def sum_event_weights(part: CodedPart, most: float, quanta: float) -> Ints:
    """Return sums of purchases, of their weights over the largest, and of the squares of these."""
    weights = part.event_weights
    each = np.ones(len(part.bought.items)) if weights is None else weights / most
    columns = (np.ones(len(each)), each, each * each)
    return np.array([np.rint(c * quanta).astype(np.int64).sum() for c in columns])
