"""Promotions in a generated log: items whose popularity is multiplied for a few days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.arrays import Codes, Floats
from trimtab.checks import MOST_DAYS, require_positive, require_whole
from trimtab.datasets.generated_items import NEW, WITHDRAWN, Items
from trimtab.errors import SettingError

SHORTEST, LONGEST = 3, 7  # days of a drawn promotion
_STRONGEST = 100.0
_PURPOSE = 3


@dataclass(frozen=True)
class Promotion:
    """A few days on which the popularity of an item is multiplied.

    Users buy no more in total: an item of a large share sells a little less than `strength` times
    its usual. The usual popularity is the item's own, drift included.

    Args:
        item: Item code.
        first_day: First day, counted from the first day of the log (0).
        days: Number of days.
        strength: Factor, at most 100. Below 1 the item sells less, as if it were short.
    """

    item: int
    first_day: int
    days: int
    strength: float

    def __post_init__(self) -> None:
        """Raise if a setting is out of range."""
        require_whole("item", self.item, 0)
        require_whole("first_day", self.first_day, 0, MOST_DAYS)
        require_whole("days", self.days, 1, MOST_DAYS)
        require_positive("strength", self.strength, _STRONGEST)

    @property
    def end_day(self) -> int:
        """The first day after the promotion."""
        return self.first_day + self.days


def draw_promotions(
    items: Items,
    n: int,
    strength: float = 20.0,
    *,
    starting: int | None = None,
    ending: int | None = None,
    ranks: tuple[int, int] = (0, 50),
    seed: int = 0,
) -> tuple[Promotion, ...]:
    """Return promotions of 3 to 7 days that all start, or all end, at the same instant.

    Args:
        items: Items to choose from; new and withdrawn ones are never chosen.
        n: Number of promotions, each of another item.
        strength: Factor that multiplies the popularity.
        starting: First day of all promotions.
        ending: First day after all promotions; give this or `starting`.
        ranks: Choose among the items of these ranks by popularity before any change: from the
            first (0 is the most popular) to just before the second.
        seed: Random seed.

    Raises:
        SettingError: A setting is out of range.

    Example:
        >>> from trimtab.datasets import generate_items, generate_log
        >>> items = generate_items(n_items=500)
        >>> promotions = draw_promotions(items, 2, strength=20, ending=30)
        >>> [promotion.end_day for promotion in promotions]
        [30, 30]
        >>> log = generate_log(n_users=100, n_items=500, days=40, promotions=promotions)
    """
    sold = np.flatnonzero((items.kind != NEW) & (items.kind != WITHDRAWN))
    first_rank, end_rank = ranks
    require_whole("ranks[0]", first_rank, 0, len(sold) - 1)
    require_whole("ranks[1]", end_rank, first_rank + 1)
    by_popularity = sold[np.argsort(-items.weight[sold], kind="stable")][first_rank:end_rank]
    require_whole("n", n, 1, len(by_popularity))
    require_whole("seed", seed, 0)
    if (starting is None) == (ending is None):
        raise SettingError(f"starting={starting}, ending={ending}: give exactly one of them")
    random = np.random.default_rng([seed, _PURPOSE])
    chosen = random.permutation(by_popularity)[:n]
    lengths = random.integers(SHORTEST, LONGEST, n, endpoint=True)
    if ending is not None:
        require_whole("ending", ending, LONGEST)
    starts = np.full(n, starting) if ending is None else ending - lengths
    return tuple(
        Promotion(int(item), int(first), int(days), strength)
        for item, first, days in zip(chosen, starts, lengths, strict=True)
    )


def promotion_factors(
    promotions: Sequence[Promotion], n_items: int, days: int
) -> tuple[Codes, Floats, Floats]:
    """Return the row of each item (-1: never promoted), factors by [row, day], and their maximum.

    Factors are divided by the maximum of their row. Several promotions of an item on the same day
    multiply; days after the end of the log are ignored.
    """
    row_of = np.full(n_items, -1, np.int32)
    promoted = np.array(sorted({promotion.item for promotion in promotions}), np.int64)
    if len(promoted) and promoted[-1] >= n_items:
        raise SettingError(f"item={promoted[-1]}: a promotion's item must be below {n_items=}")
    row_of[promoted] = np.arange(len(promoted), dtype=np.int32)
    factors = np.ones((len(promoted), days))
    for promotion in promotions:
        own = slice(promotion.first_day, promotion.end_day)
        factors[row_of[promotion.item], own] *= promotion.strength
    highest = factors.max(axis=1)
    return row_of, factors / highest[:, None], highest
