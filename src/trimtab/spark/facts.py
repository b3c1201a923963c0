"""What all units together say before learning begins: counts, bounds, and exact medians."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trimtab.coded import Floats, Ints
from trimtab.errors import DataError
from trimtab.ground import learning_units, raw_tops
from trimtab.ranking import rank_lists
from trimtab.scales import to_scale
from trimtab.schema import WEIGHT
from trimtab.spark.arrays import Arrays
from trimtab.spark.population import Population, join_arrays
from trimtab.spark.share import Share

_DIGIT = 16  # bits of a number settled at a time
_FEW = 100_000  # numbers that may come to the driver
_WEIGHT_QUANTA = 2.0**40  # in the largest weight, of at most 2**21 million units


class Facts(NamedTuple):
    """Counts over all units."""

    support: Ints  # by item: units that bought it
    exposure: Ints  # raw top k's that have it
    listed: Ints  # lists that have it
    reached: Ints  # units that can learn and list it or bought it
    n_judged: int  # units that bought something
    n_full: int  # lists of at least k items
    n_filled: int  # lists of at least one
    n_sales: int  # purchases, each once
    n_sales_of_listed: int  # those by units with a list
    largest: float  # |score|
    heaviest: float  # weight of a unit
    lowest: float  # score, as given
    longest: int  # list


def count_facts(population: Population, k: int, metric: str, n_items: int, scale: str) -> Facts:
    """Count over all units, with scores on a scale."""
    found = population.run(_facts, k, metric, n_items, scale, add=_add_facts)
    numbers = (int(number) for number in found[4])
    largest, heaviest, depth, longest = (float(bound) for bound in found[5])
    bounds = (largest, heaviest, -depth, int(longest))
    return Facts._make([*found[:4], *numbers, *bounds])


def _facts(share: Share, k: int, metric: str, n_items: int, scale: str) -> Arrays:
    lists, bought = to_scale(share.lists, scale).lists, share.bought
    raw = raw_tops(lists, bought, k, metric, n_items)
    lengths, sizes = np.diff(lists.indptr), np.diff(bought.indptr)
    learning = np.flatnonzero(learning_units(lists, bought, share.weights))
    in_lists = np.bincount(lists.take(learning).items, minlength=n_items)
    in_sales = np.bincount(bought.take(learning).items, minlength=n_items)
    counts = [
        np.count_nonzero(sizes), np.count_nonzero(lengths >= k), np.count_nonzero(lengths),
        len(bought.items), int(sizes[lengths > 0].sum()),
    ]  # fmt: skip
    bounds = (
        np.abs(lists.scores).max(initial=0.0), share.weights.max(initial=0.0),
        (-share.lists.scores).max(initial=-np.inf), lengths.max(initial=0),
    )  # fmt: skip
    return [
        np.bincount(bought.items, minlength=n_items), raw.exposure,
        np.bincount(lists.items, minlength=n_items), in_lists + in_sales,
        np.array(counts, np.int64), np.array(bounds),
    ]  # fmt: skip


def _add_facts(parts: list[Arrays]) -> Arrays:
    *sums, bounds = (list(column) for column in zip(*parts, strict=True))
    return [*(np.sum(column, axis=0) for column in sums), np.max(bounds, axis=0)]


class Totals(NamedTuple):
    """Weighted sums over units that bought something; and all weight there is."""

    before: float  # of the metric, as the engine ranks
    judged_weight: float
    weight: float


def sum_totals(population: Population, k: int, metric: str, facts: Facts) -> Totals:
    """Sums in fixed point, the same for any partitions."""
    found = population.run(_totals, k, metric, len(facts.support), facts.heaviest)
    scale = facts.heaviest / _WEIGHT_QUANTA
    totals = Totals(*(float(total * scale) for total in found[0]))
    if totals.judged_weight == 0:
        raise DataError(
            f"column '{WEIGHT}' of weights is 0 for every user who bought something: give at "
            f"least one a weight above 0"
        )
    return totals


def _totals(share: Share, k: int, metric: str, n_items: int, heaviest: float) -> Arrays:
    raw = raw_tops(share.lists, share.bought, k, metric, n_items)
    quanta = share.weights * (_WEIGHT_QUANTA / heaviest) if heaviest > 0 else share.weights
    judged = share.judged
    before = np.rint(raw.value[judged] * quanta[judged]).astype(np.int64).sum()
    heavy = np.rint(quanta).astype(np.int64)
    return [np.array([before, heavy[judged].sum(), heavy.sum()])]


def unit_of_scores(population: Population, k: int, facts: Facts) -> float:
    """As `ground.median_score`: |median k-th score|, or the nearest thing to it above 0."""
    for name, count in (("full", facts.n_full), ("kth", facts.n_filled)):
        middle = exact_median(population, name, k, count)
        if count and middle != 0:
            return abs(middle)
    return facts.largest or 1.0


def exact_median(population: Population, name: str, k: int, count: int) -> float:
    """The median of one number per unit, found digit by digit.

    Args:
        population: all units.
        name: "full": k-th scores of lists that long; "kth": k-th or last scores; "gap": how far
            those are below the best.
        k: places.
        count: how many units have the number; nan for none.
    """
    if count == 0:
        return np.nan
    ranks = np.array([(count - 1) // 2, count // 2])
    prefixes = np.zeros(2, np.uint64)
    left = count
    for shift in range(64 - _DIGIT, -1, -_DIGIT):
        if shift < 64 - _DIGIT and left <= _FEW:
            keys = population.run(_with_prefix, name, k, prefixes, shift, add=join_arrays)
            found = [np.sort(some)[rank] for some, rank in zip(keys, ranks, strict=True)]
            return float(np.mean(_from_keys(np.array(found))))
        (counts,) = population.run(_digits, name, k, prefixes, shift)
        left = 0
        for place in range(2):
            below = np.concatenate([[0], np.cumsum(counts[place])])
            digit = int(np.searchsorted(below, ranks[place], side="right")) - 1
            ranks[place] -= below[digit]
            left = max(left, int(counts[place][digit]))
            prefixes[place] = (prefixes[place] << np.uint64(_DIGIT)) | np.uint64(digit)
    return float(np.mean(_from_keys(prefixes)))


def _with_prefix(share: Share, name: str, k: int, prefixes: Any, shift: int) -> Arrays:
    """Keys that begin with each of the prefixes."""
    keys = _to_keys(_numbers(share, name, k))
    if shift == 64 - _DIGIT:  # nothing is settled yet, and shifting by all 64 bits is not defined
        return [keys for _ in prefixes]
    return [keys[keys >> np.uint64(shift + _DIGIT) == prefix] for prefix in prefixes]


def _digits(share: Share, name: str, k: int, prefixes: Any, shift: int) -> Arrays:
    """How often each next digit comes after each of the prefixes."""
    counts = []
    for same in _with_prefix(share, name, k, prefixes, shift):
        digits = (same >> np.uint64(shift)) & np.uint64(2**_DIGIT - 1)
        counts.append(np.bincount(digits.astype(np.int64), minlength=2**_DIGIT))
    return [np.array(counts)]


def _numbers(share: Share, name: str, k: int) -> Floats:
    top = rank_lists(share.lists, k, np.zeros(int(share.lists.items.max(initial=0)) + 1))
    lengths = np.diff(share.lists.indptr)
    wanted = lengths >= (k if name == "full" else 1)
    last = top.scores[top.indptr[1:][wanted] - 1]
    if name != "gap":
        return last
    gaps: Floats = top.scores[top.indptr[:-1][wanted]] - last
    return gaps


def _to_keys(values: Floats) -> Any:
    """Whole numbers in the order of the floats."""
    bits = (values + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    negative = bits >> np.uint64(63) == 1
    return np.where(negative, ~bits, bits | np.uint64(1 << 63))


def _from_keys(keys: Any) -> Floats:
    negative = keys >> np.uint64(63) == 0
    floats: Floats = np.where(negative, ~keys, keys & np.uint64((1 << 63) - 1)).view(np.float64)
    return floats
