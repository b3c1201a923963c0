"""Metrics of top-k lists per unit, their means, lift, coverage and KL divergence.

For a unit that bought R items, with relevance r(p) of the item at rank p, which is 1 if it was
bought and 0 if not (weights of events give relevances in between, see `event_weights.py`):

    ACC@k    = Σ r(p) / k
    AP@k     = Σ r(p)·(Σ r(q) for q ≤ p) / p, over the same of the best list
    NDCG@k   = Σ r(p) / log2(1+p), over the same of the best list
    HIT@k    = the largest r(p): 1 if there is a hit
    recall@k = Σ r(p), over the relevance of all that the unit bought
    MRR@k    = the largest r(p) / p: one over the rank of the first hit

The best list has all that the unit bought, the most relevant first; so AP is divided by min(k, R).
Means leave out units with R = 0; units with R > 0 and no list count as 0. Other libraries differ:
ranx, trec_eval and RecTools divide AP by R, and RecTools divides NDCG by the full-k ideal unless
`divide_by_achievable=True`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike

from trimtab.arrays import Flags, Floats, Ints, Lists, Sets
from trimtab.kernels.hit_value import discounts
from trimtab.threads import run_ranges

COVERAGE_SIZES = (10, 20, 50, 100, 200, 500, 1000)
_ZERO_COUNT = 0.01  # replaces a count of 0 in KL
_N_SUMS = 5  # that `sum_lists` writes


class UnitMetrics(NamedTuple):
    """The metrics of each unit; nan if it bought nothing, 0 if it did but has no list."""

    acc: Floats
    map: Floats
    ndcg: Floats
    hit_rate: Floats
    recall: Floats
    mrr: Floats


ALL_METRICS = UnitMetrics._fields


def unit_metrics(
    top: Sets | Lists, bought: Sets, k: int, relevance: Floats | None = None
) -> UnitMetrics:
    """Return the metrics of each unit, the same bytes for any number of threads.

    Args:
        top: One list of items per unit in rank order. Only the first k count, and an item listed
            twice counts at its first rank. Scores are ignored.
        bought: Items of each unit, ascending; row u of both is the same unit.
        k: Length of the lists to evaluate, at least 1.
        relevance: Of these purchases, above 0; 1 each if None.

    Example:
        >>> import numpy as np
        >>> from trimtab.arrays import Sets
        >>> top = Sets(np.array([0, 3]), np.array([7, 2, 5], dtype=np.int32))
        >>> bought = Sets(np.array([0, 2]), np.array([5, 7], dtype=np.int32))
        >>> unit_metrics(top, bought, k=4).map  # hits at ranks 1 and 3: (1/1 + 2/3) / 2
        array([0.83333333])
    """
    from trimtab.kernels.metric_values import find_relevance

    assert top.n_units == bought.n_units
    each = np.ones(len(bought.items)) if relevance is None else relevance
    shown = np.zeros(len(top.items))
    run_ranges(find_relevance, top.n_units, top.indptr, top.items, *bought, each, k, shown)
    total, precisions, gained, highest, first = _sum_lists(top.indptr, shown, k)
    everything = _sum_lists(bought.indptr, each, len(each))[0]
    _, best_precisions, best_gained = best_sums(bought.indptr, each, k)
    one = np.where(np.diff(bought.indptr) > 0, 1.0, np.nan)
    sums = (total, precisions, gained, highest, total, first)
    best = (k * one, best_precisions, best_gained, one, everything, one)
    with np.errstate(invalid="ignore"):  # 0 / 0 for units that bought nothing
        return UnitMetrics(*map(np.divide, sums, best))


def best_sums(indptr: Ints, relevance: Floats, k: int) -> tuple[Floats, Floats, Floats]:
    """Return the best sums that ACC, AP and NDCG are made of: of what was bought, best first."""
    if np.any(relevance != relevance[:1]):
        units = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        relevance = relevance[np.lexsort((-relevance, units))]
    total, precisions, gained, *_ = _sum_lists(indptr, relevance, k)
    return total, precisions, gained


def _sum_lists(indptr: Ints, relevance: Floats, k: int) -> Floats:
    """Return the sums of each unit's list of relevances, by [sum, unit]."""
    from trimtab.kernels.metric_values import sum_lists

    n_units = len(indptr) - 1
    gains = discounts("ndcg", max(1, min(k, int(np.diff(indptr).max(initial=0)))))
    sums = np.empty((_N_SUMS, n_units))
    run_ranges(sum_lists, n_units, indptr, relevance, gains, k, sums)
    return sums


def weighted_mean(values: Floats, weights: Floats) -> float:
    """Return the weighted mean, the same bits for any order; nan if the weights sum to 0."""
    total, weight = _sum(values * weights), _sum(weights)
    return total / weight if weight > 0 else math.nan


@overload
def lift(value: float, baseline: float) -> float: ...
@overload
def lift(value: Floats, baseline: Floats | float) -> Floats: ...
@overload
def lift(value: Floats | float, baseline: Floats) -> Floats: ...


def lift(value: Floats | float, baseline: Floats | float) -> Floats | float:
    """Return the relative gain over the baseline, value / baseline - 1; nan if the baseline is 0.

    Example:
        >>> lift(0.75, 0.5), lift(0.75, 0.0)
        (0.5, nan)
    """
    above, below = np.broadcast_arrays(np.asarray(value, float), np.asarray(baseline, float))
    ratio = np.full(above.shape, np.nan)
    np.divide(above, below, out=ratio, where=below != 0)
    return ratio - 1 if ratio.ndim else float(ratio) - 1


def coverage(
    recommended_items: ArrayLike,
    bought_items: ArrayLike,
    n_items: int,
    sizes: Sequence[int] = COVERAGE_SIZES,
) -> dict[int, int]:
    """Return how many of the N most bought items are among the N most recommended, for each N.

    Ties go to the smaller code. Items that were never recommended or never bought do not count,
    even for a large N.

    Args:
        recommended_items: Item codes, one entry per slot of a recommendation list.
        bought_items: Item codes, one entry per purchase in the test.
        n_items: Number of items; codes are below it.
        sizes: Values of N.

    Example:
        >>> coverage([4, 4, 1, 2], [2, 2, 4, 0], n_items=5, sizes=(1, 2, 3))
        {1: 0, 2: 0, 3: 2}
    """
    recommended = _popularity_ranks(_item_counts(recommended_items, n_items))
    bought = _popularity_ranks(_item_counts(bought_items, n_items))
    covered_from = np.maximum(recommended, bought)
    return {size: int(np.count_nonzero(covered_from < size)) for size in sizes}


def kl_divergence(bought_items: ArrayLike, recommended_items: ArrayLike, n_items: int) -> float:
    """Return KL(bought ‖ recommended) in nats: how much recommendations differ from purchases.

    The sum is over all items in either; counts of 0 become 0.01, then both are normalised. 0 if
    the shares are equal; nan if nothing was bought or recommended.

    Args:
        bought_items: Item codes, one entry per purchase.
        recommended_items: Item codes, one entry per slot of a recommendation list.
        n_items: Number of items; codes are below it.

    Example:
        >>> round(kl_divergence([0, 0, 0, 1], [0, 1], n_items=3), 6)  # 3/4 and 1/4 against halves
        0.130812
    """
    bought, recommended = (_item_counts(i, n_items) for i in (bought_items, recommended_items))
    seen = (bought > 0) | (recommended > 0)
    if not seen.any():
        return math.nan
    target, shown = _shares(bought, seen), _shares(recommended, seen)
    return float(np.sum(target * np.log(target / shown)))


def _sum(values: Floats) -> float:
    """Return the sum in ascending order of the values, so their order does not change a bit."""
    return float(np.sum(np.sort(values)))


def _shares(counts: Ints, seen: Flags) -> Floats:
    """Return the shares of the items seen, with counts of 0 smoothed."""
    smoothed: Floats = np.where(counts == 0, _ZERO_COUNT, counts)[seen]
    return smoothed / float(np.sum(smoothed))


def _popularity_ranks(counts: Ints) -> Ints:
    """Return the rank of each item, from 0, by count descending, then code; count 0 ranks last."""
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    ranks = np.full(len(counts), np.iinfo(np.int64).max)
    ranks[order] = np.arange(len(order))
    return ranks


def _item_counts(items: ArrayLike, n_items: int) -> Ints:
    """Return how often each item occurs."""
    return np.bincount(np.asarray(items, np.int64), minlength=n_items)
