"""ACC, MAP and NDCG of top-k lists per unit, their means, lift, coverage and KL divergence.

For a unit with R bought items and hits y(p) at rank p:

    ACC@k  = Σ y(p) / k
    AP@k   = Σ y(p)·Precision(p) / min(k, R)
    NDCG@k = Σ y(p)/log2(1+p) / Z,  Z is the same sum with hits at the first min(k, R) ranks

Means leave out units with R = 0; units with R > 0 and no list count as 0. Other libraries differ:
ranx, trec_eval and RecTools divide AP by R, and RecTools divides NDCG by the full-k ideal unless
`divide_by_achievable=True`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.arrays import Flags, Floats, Ints, Lists, Sets
from trimtab.checks import require_whole
from trimtab.errors import DataError
from trimtab.threads import run_ranges

COVERAGE_SIZES = (10, 20, 50, 100, 200, 500, 1000)
_ZERO_COUNT = 0.01  # replaces a count of 0 in KL


class UnitMetrics(NamedTuple):
    """The metrics of each unit (nan if it bought nothing), and how many items it bought."""

    acc: Floats
    map: Floats
    ndcg: Floats
    n_relevant: Ints


def unit_metrics(top: Sets | Lists, truth: Sets, k: int) -> UnitMetrics:
    """Return ACC@k, AP@k and NDCG@k of each unit, the same bytes for any number of threads.

    Args:
        top: One list of items per unit in rank order. Only the first k count, and an item listed
            twice counts at its first rank. Scores are ignored.
        truth: Items each unit bought; row u of both is the same unit.
        k: Length of the lists to evaluate, at least 1.

    Returns:
        One value per unit and metric: nan for units that bought nothing, 0 for units that bought
        something but have no list.

    Example:
        >>> import numpy as np
        >>> from trimtab.arrays import Sets
        >>> top = Sets(np.array([0, 3]), np.array([7, 2, 5], dtype=np.int32))
        >>> truth = Sets(np.array([0, 2]), np.array([5, 7], dtype=np.int32))
        >>> unit_metrics(top, truth, k=4).map  # hits at ranks 1 and 3: (1/1 + 2/3) / 2
        array([0.83333333])
    """
    from trimtab.kernels.metric_values import score_units

    k = _require_size("k", k)
    if top.n_units != truth.n_units:
        raise DataError(
            f"top has {top.n_units} units, truth {truth.n_units}: row u of both must be the same "
            f"unit"
        )
    n_relevant = np.diff(truth.indptr)
    gains, ideal = _discounts(_last_rank(top, truth, k))
    acc, average_precision, ndcg = np.empty((3, truth.n_units))
    inputs = (*_arrays(top), *_arrays(truth), gains, ideal, k)
    run_ranges(score_units, truth.n_units, *inputs, acc, average_precision, ndcg)
    return UnitMetrics(acc, average_precision, ndcg, n_relevant)


def mean_metrics(units: UnitMetrics, weights: ArrayLike | None = None) -> dict[str, float]:
    """Return the mean of each metric over the units that bought something, and their number.

    The means are the same to the bit for any number of threads and any order of units.

    Args:
        units: Metrics of each unit.
        weights: One weight per unit, finite and not negative; equal weights by default.

    Returns:
        `acc`, `map`, `ndcg` (nan if no unit bought anything, or if their weights sum to 0),
        `n_users` (units with R > 0) and `n_skipped` (units with R = 0).

    Example:
        >>> import numpy as np
        >>> one = np.array([1.0, 0.0, np.nan])
        >>> mean_metrics(UnitMetrics(one, one, one, np.array([2, 1, 0])), weights=[3, 1, 5])
        {'acc': 0.75, 'map': 0.75, 'ndcg': 0.75, 'n_users': 2, 'n_skipped': 1}
    """
    bought = units.n_relevant > 0
    n_users = int(np.count_nonzero(bought))
    used = None if weights is None else _require_weights(weights, len(bought))[bought]
    return {
        "acc": weighted_mean(units.acc[bought], used),
        "map": weighted_mean(units.map[bought], used),
        "ndcg": weighted_mean(units.ndcg[bought], used),
        "n_users": n_users,
        "n_skipped": len(bought) - n_users,
    }


def weighted_mean(values: Floats, weights: Floats | None) -> float:
    """Return the weighted mean; nan if the weights sum to 0."""
    if weights is None:
        total, weight = _sum(values), float(len(values))
    else:
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
        sizes: Values of N, each at least 1.

    Example:
        >>> coverage([4, 4, 1, 2], [2, 2, 4, 0], n_items=5, sizes=(1, 2, 3))
        {1: 0, 2: 0, 3: 2}
    """
    sizes = [_require_size("sizes", size) for size in sizes]
    recommended = _popularity_ranks(_item_counts("recommended_items", recommended_items, n_items))
    bought = _popularity_ranks(_item_counts("bought_items", bought_items, n_items))
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
    bought = _item_counts("bought_items", bought_items, n_items)
    recommended = _item_counts("recommended_items", recommended_items, n_items)
    seen = (bought > 0) | (recommended > 0)
    if not seen.any():
        return math.nan
    target, shown = _shares(bought, seen), _shares(recommended, seen)
    return float(np.sum(target * np.log(target / shown)))


def _arrays(rows: Sets | Lists) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the arrays in the types the kernel is compiled for, copied only if needed."""
    indptr = np.require(rows.indptr, np.int64, ["C", "W"])
    return indptr, np.require(rows.items, np.int32, ["C", "W"])


def _last_rank(top: Sets | Lists, truth: Sets, k: int) -> int:
    """Return the last rank that can matter: k, or the longest list or set if that is shorter."""
    lengths = (np.diff(rows.indptr).max(initial=0) for rows in (top, truth))
    return min(k, int(max(lengths)))


def _discounts(n: int) -> tuple[Floats, Floats]:
    """Return the gain of a hit at each of the first n ranks, and its sums over the first 0..n."""
    gains = 1 / np.log2(np.arange(2, n + 2))
    return gains, np.concatenate(([0.0], np.cumsum(gains)))


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


def _item_counts(name: str, items: ArrayLike, n_items: int) -> Ints:
    """Return how often each item occurs."""
    codes = np.asarray(items).ravel()
    if codes.size == 0:
        return np.zeros(n_items, np.int64)
    if not np.issubdtype(codes.dtype, np.integer):
        raise DataError(f"{name} holds {codes.dtype}: must be integer item codes")
    for code in (codes.min(), codes.max()):
        if not 0 <= code < n_items:
            raise DataError(
                f"{name} holds code {code}: must be at least 0, below n_items={n_items}"
            )
    return np.bincount(codes.astype(np.int64, copy=False), minlength=n_items)


def _require_size(name: str, size: int) -> int:
    require_whole(name, size, 1)
    return int(size)


def _require_weights(weights: ArrayLike, n_units: int) -> Floats:
    """Return the weights as floats; raise unless each unit has a valid one."""
    checked = np.asarray(weights, np.float64)
    if checked.shape != (n_units,):
        raise DataError(f"weights has shape {checked.shape}: must be ({n_units},), one per unit")
    wrong = np.flatnonzero(~(np.isfinite(checked) & (checked >= 0)))
    if len(wrong):
        raise DataError(f"weights[{wrong[0]}]={checked[wrong[0]]}: must be finite and not negative")
    return checked
