"""Promotions in a generated log: items whose popularity is multiplied for a few days."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.arrays import Floats, Ints
from trimtab.datasets import Items, generate_items
from trimtab.datasets.generated_log import NEW, WITHDRAWN, draw_log, item_trends

SHORTEST, LONGEST = 3, 7  # days of a drawn promotion
_PURPOSE = 3


class Promotion(NamedTuple):
    """Some days of a log, counted from its first day, on which an item's popularity is multiplied.

    Users buy no more in total: an item of a large share sells a little less than `strength` times
    its usual.
    """

    item: int
    first_day: int
    days: int
    strength: float


def draw_promotions(
    items: Items,
    n: int,
    strength: float = 20.0,
    *,
    starting: int | None = None,
    ending: int = 0,
    ranks: tuple[int, int] = (0, 50),
    seed: int = 0,
) -> list[Promotion]:
    """Return promotions of 3 to 7 days that all start on a day, or all end before one.

    Args:
        items: Items to choose from; new and withdrawn ones are never chosen.
        n: Number of promotions, each of another item.
        strength: Factor that multiplies the popularity.
        starting: First day of all promotions.
        ending: Without `starting`, the first day after all promotions.
        ranks: Choose among the items of these ranks by popularity before any change.
        seed: Random seed.
    """
    sold = np.flatnonzero((items.kind != NEW) & (items.kind != WITHDRAWN))
    by_popularity = sold[np.argsort(-items.weight[sold], kind="stable")][slice(*ranks)]
    random = np.random.default_rng([seed, _PURPOSE])
    chosen = random.permutation(by_popularity)[:n]
    lengths = random.integers(SHORTEST, LONGEST, n, endpoint=True)
    starts = ending - lengths if starting is None else np.full(n, starting)
    return [
        Promotion(int(item), int(first), int(days), strength)
        for item, first, days in zip(chosen, starts, lengths, strict=True)
    ]


def generate_promoted_log(
    n_users: int, n_items: int, days: int, purchases: float, drift: float, seed: int, start: date,
    promotions: Sequence[Promotion],
) -> pa.Table:  # fmt: skip
    """Return the events of `generate_log`, with promotions; several of an item multiply."""
    items = generate_items(n_items, drift, seed=seed)
    usual, highest = item_trends(items, days, drift, seed)
    factors = np.ones((n_items, days))
    for item, first, length, strength in promotions:
        factors[item, first : first + length] *= strength
    most = factors.max(axis=1)

    def popularity(item: Ints, time: Floats) -> Floats:
        return usual(item, time) * factors[item, time.astype(np.int64)] / most[item]

    return draw_log(n_users, items, popularity, highest * most, days, purchases, seed, start)
