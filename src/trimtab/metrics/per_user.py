"""The top k of each unit; its metrics, their means, lift, coverage and KL divergence.

Ranks follow the tie rule of `kernels/ranking.py`. For a unit that bought R items, with relevance
r(p) of the item at rank p, which is 1 if it was bought and 0 if not:

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

**Weights of events.** An event has a weight: 1 for an order and 0.1 for a click, a price, a margin.
With w_i the weight of what a unit bought and W the largest of them, the unit counts W times as much
as one of weight 1, and item i has the relevance r_i = w_i / W, between 0 and 1. A metric adds up
relevances where it counted hits, and is divided by what the best list would get. With weights of 1
all of this is as without weights. These are not the weights of users, which only say how much each
unit counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets, close_lists, read_only
from trimtab.checks import METRICS, require_columns
from trimtab.errors import DataError
from trimtab.kernels.hit_value import discounts
from trimtab.tables.columns import COUNT, WEIGHT, Table, read_scores
from trimtab.threads import run_ranges

COVERAGE_SIZES = (10, 20, 50, 100, 200, 500, 1000)
_ZERO_COUNT = 0.01  # replaces a count of 0 in KL
_N_SUMS = 5  # that `sum_lists` writes
_QUANTA = 2.0**20  # sums of such fractions are exact, so the order of adding changes nothing
NOTHING_HIDDEN = Sets(np.zeros(1, np.int64), np.empty(0, np.int32))


def rank_lists(
    lists: Lists,
    k: int,
    bias: Floats,
    excluded: Flags | None = None,
    reaches_unlisted: bool = False,
    hidden: Sets | None = None,
) -> Lists:
    """Return the top k of every unit, best first, with the biases added to the scores.

    Args:
        lists: scored items by unit.
        k: number of slots; a unit with fewer items gets fewer.
        bias: one number per item code.
        excluded: items to leave out for all units.
        reaches_unlisted: whether items with a positive bias are also added to lists that lack
            them, with the bias as their score. Empty lists stay empty.
        hidden: items to leave out for each unit.
    """
    from trimtab.kernels.ranking import select_top

    offset = np.array(bias, np.float64)
    if excluded is not None:
        offset[excluded] = -np.inf
    raised = np.empty(0, np.int32)
    if reaches_unlisted:
        positive = np.flatnonzero(offset > 0)
        raised = positive[np.argsort(-offset[positive], kind="stable")].astype(np.int32)
    # No more slots than can be filled, for any k.
    k = max(1, min(k, int(np.diff(lists.indptr).max(initial=0)) + len(raised)))
    given = (*lists[:2], read_only(lists.scores), offset, raised, *(hidden or NOTHING_HIDDEN))
    return rank_each(select_top, lists.n_units, k, *given)


def rank_each(kernel: Any, n_units: int, n: int, *given: Any) -> Lists:
    """Return the lists that a kernel makes: at most n items of each unit, best first."""
    items, scores = np.empty(n_units * n, np.int32), np.empty(n_units * n)
    lengths = np.zeros(n_units, np.int64)
    run_ranges(kernel, n_units, n, *given, items, scores, lengths)
    return close_lists(items, scores, lengths, n)


# Metrics ------------------------------------------------------------------------------------------


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
    from trimtab.kernels.counting import find_relevance

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


def best_sums(indptr: Ints, relevance: Floats, k: int) -> Floats:
    """Return the best sums that ACC, AP and NDCG are made of: of what was bought, best first."""
    if np.any(relevance != relevance[:1]):
        units = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        relevance = relevance[np.lexsort((-relevance, units))]
    return _sum_lists(indptr, relevance, k)[:3]


def _sum_lists(indptr: Ints, relevance: Floats, k: int) -> Floats:
    """Return the sums of each unit's list of relevances, by [sum, unit]."""
    from trimtab.kernels.counting import sum_lists

    n_units = len(indptr) - 1
    gains = discounts("ndcg", max(1, min(k, int(np.diff(indptr).max(initial=0)))))
    sums = np.empty((_N_SUMS, n_units))
    run_ranges(sum_lists, n_units, indptr, relevance, gains, k, sums)
    return sums


def weighted_mean(values: Floats, weights: Floats) -> float:
    """Return the weighted mean, the same bits for any order; nan if the weights sum to 0."""
    # In ascending order, so that the order of units does not change a bit.
    total, weight = (float(np.sum(np.sort(each))) for each in (values * weights, weights))
    return total / weight if weight > 0 else math.nan


def lift(value: Any, baseline: Any) -> Any:
    """Return the relative gain over the baseline, value / baseline - 1; nan if the baseline is 0.

    Example:
        >>> lift(0.75, 0.5), lift(0.75, 0.0)
        (0.5, nan)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(np.equal(baseline, 0), np.nan, np.divide(value, baseline))
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
    ranks = (_popularity_ranks(items, n_items) for items in (recommended_items, bought_items))
    covered_from = np.maximum(*ranks)
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
    counts = np.stack([_item_counts(i, n_items) for i in (bought_items, recommended_items)])
    counts = counts[:, counts.any(axis=0)]
    if counts.size == 0:
        return math.nan
    smoothed = np.where(counts == 0, _ZERO_COUNT, counts)
    target, shown = smoothed / smoothed.sum(axis=1, keepdims=True)
    return float(np.sum(target * np.log(target / shown)))


def _popularity_ranks(items: ArrayLike, n_items: int) -> Ints:
    """Return the rank of each item, from 0, by count descending, then code; count 0 ranks last."""
    counts = _item_counts(items, n_items)
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    ranks = np.full(len(counts), np.iinfo(np.int64).max)
    ranks[order] = np.arange(len(order))
    return ranks


def _item_counts(items: ArrayLike, n_items: int) -> Ints:
    """Return how often each item occurs."""
    return np.bincount(np.asarray(items, np.int64), minlength=n_items)


# Weights of events --------------------------------------------------------------------------------


def drop_weightless(events: Table) -> tuple[Table, Floats | None]:
    """Return events of some users without those of weight 0, and the weights if there are any."""
    if not events.has(WEIGHT):
        return events, None
    if events.has(COUNT):
        raise DataError(
            f"{events.name} has both a column '{COUNT}' and a column '{WEIGHT}': multiply them "
            f"into '{COUNT}', and drop '{WEIGHT}'"
        )
    return read_event_weights(events, WEIGHT, is_part=True)


def read_event_weights(table: Table, column: str, is_part: bool = False) -> tuple[Table, Floats]:
    """Return the rows of a table with a weight above 0, and their weights.

    Args:
        table: events, with the column.
        column: of weights: numbers of at least 0; rows with 0 are left out.
        is_part: whether there may be other events, so that none of these needs to count.
    """
    require_columns(table.name, table.columns.column_names, [column])
    rule = "the weight of an event must be at least 0; fix or drop such rows"
    weights = read_scores(table, column, rule)
    counting = weights > 0
    if counting.all():
        return table, weights
    if not (counting.any() or is_part):
        raise DataError(
            f"column '{table.own_name(column)}' of {table.name} is 0 in every row: at least one "
            f"event must have a weight above 0"
        )
    return replace(table, columns=table.columns.filter(pa.array(counting))), weights[counting]


def largest_weights(units: Codes, items: Codes, weights: Floats) -> Floats:
    """Return the largest weight of each (unit, item), in ascending order of both: as in `Sets`.

    Args:
        units: of events.
        items: of events.
        weights: of events.
    """
    keys = (units.astype(np.int64) << 32) + items
    order = np.lexsort((weights, keys))
    return weights[order][np.diff(keys[order], append=-1) != 0]


def weigh_purchases(bought: Sets, weights: Floats) -> tuple[Floats, Floats]:
    """Return the relevance of each purchase, and the heaviest weight of each unit.

    The relevance is the weight over the heaviest of the unit; a unit without purchases has 1.

    Args:
        bought: items by unit.
        weights: of these purchases; above 0.
    """
    heaviest = np.ones(bought.n_units)
    lengths = np.diff(bought.indptr)
    buys = lengths > 0
    if buys.any():
        heaviest[buys] = np.maximum.reduceat(weights, bought.indptr[:-1][buys])
    return in_quanta(weights / np.repeat(heaviest, lengths)), heaviest


def in_quanta(numbers: Floats) -> Floats:
    """Return numbers above 0 rounded so that their sums are exact; none becomes 0."""
    return np.maximum(np.rint(numbers * _QUANTA), 1.0) / _QUANTA


def gain_factors(bought: Sets, relevance: Floats, metric: str, k: int) -> Floats:
    """Return what the best list of each unit would get with relevances of 1, over what it gets.

    A hit is worth that much more than its relevance times the value of a hit without weights.

    Args:
        bought: items by unit.
        relevance: of these purchases.
        metric: "acc", "map" or "ndcg"; 1 for ACC, which is not divided by the best list.
        k: slots.
    """
    factors = np.ones(bought.n_units)
    if metric != "acc":
        alike, own = (
            best_sums(bought.indptr, each, k)[METRICS.index(metric)]
            for each in (np.ones(len(relevance)), relevance)
        )
        np.divide(alike, own, out=factors, where=own > 0)
    return factors
