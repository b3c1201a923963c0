"""Generated items whose popularity changes in a known way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab.arrays import Codes, Floats
from trimtab.checks import require_number, require_positive, require_whole

KINDS = ("steady", "trending", "fading", "seasonal", "new", "withdrawn")
STEADY, TRENDING, FADING, SEASONAL, NEW, WITHDRAWN = range(len(KINDS))

_MOST_CODES = 2**31 - 1
_MOST_PURCHASES = 1_000_000

# Shares of the items. With more drift there are more new and withdrawn items; the others are as
# many, but change more.
_TRENDING_SHARE = _FADING_SHARE = 0.15
_SEASONAL_SHARE = 0.10
_NEW_SHARE = 0.04
_WITHDRAWN_SHARE = 0.06
_STRONG_CHANGE = 1.8
SEASONAL_AMPLITUDE = 1.5

# Weight (rank + offset) ** -exponent: a flatter head than Zipf's law, as in real sales.
_RANK_OFFSET = 20.0
_RANK_EXPONENT = 0.9


@dataclass(frozen=True, eq=False)
class Items:
    """A catalogue with the true trends of its items; item codes are 0 to n_items - 1.

    Attributes:
        kind: Index into `KINDS`.
        category: Category code, from 0.
        weight: Popularity before any change; for a new item, its popularity once it exists.
        trend: Log of the popularity now over before: 0 for steady, -inf for withdrawn, +inf for
            new items.
        anchor: One steady item per category, so no category becomes empty.
    """

    kind: NDArray[np.int8]
    category: Codes
    weight: Floats
    trend: Floats
    anchor: Codes

    @property
    def n_items(self) -> int:
        """Number of items, including new and withdrawn ones."""
        return len(self.kind)

    @property
    def n_categories(self) -> int:
        """Number of categories; each has at least one item."""
        return len(self.anchor)

    @cached_property
    def long_run(self) -> Floats:
        """Popularity before the change, 0 for new items."""
        return np.where(self.kind == NEW, 0.0, self.weight)

    @cached_property
    def change(self) -> Floats:
        """Popularity now divided by `weight`: exp(trend), 1 for new items."""
        return np.exp(np.where(self.kind == NEW, 0.0, self.trend))

    @property
    def now(self) -> Floats:
        """Popularity in the recent and test windows, 0 for withdrawn items."""
        return self.weight * self.change

    def catalogue(self) -> pa.Table:
        """Return what a shop knows: item_id, category."""
        ids = np.arange(self.n_items, dtype=np.int64)
        return pa.table({"item_id": ids, "category": self.category})

    def truth(self) -> pa.Table:
        """Return what only the generator knows: item_id, kind (its name), trend, long_run, now."""
        columns = {
            "item_id": np.arange(self.n_items, dtype=np.int64),
            "kind": np.array(KINDS)[self.kind],
            "trend": self.trend,
            "long_run": self.long_run,
            "now": self.now,
        }
        return pa.table(columns)


def generate_items(
    n_items: int = 2_000, drift: float = 0.5, n_categories: int | None = None, seed: int = 0
) -> Items:
    """Return items of heavy-tailed popularity, as `generate_drift` and `generate_log` use them.

    Some categories have more trending items, others more fading items.

    Args:
        n_items: Number of items.
        drift: Strength of the change: at 0 all items are steady; at 1 trending items sell about
            six times as much.
        n_categories: Number of categories; by default the square root of `n_items`.
        seed: Random seed.

    Raises:
        SettingError: A setting is out of range.

    Example:
        >>> items = generate_items(n_items=500, drift=0.0)
        >>> items.n_categories, float(abs(items.trend).max())
        (22, 0.0)
    """
    require_item_settings(n_items, n_categories, drift, seed)
    if n_categories is None:
        n_categories = max(1, round(n_items**0.5))
    random = np.random.default_rng([seed, 0])
    weight = (random.permutation(n_items) + 1 + _RANK_OFFSET) ** -_RANK_EXPONENT
    category, anchor = _assign_categories(random, n_items, n_categories)
    kind = _assign_kinds(random, category, anchor, drift)
    return Items(kind, category, weight / weight.sum(), _assign_trends(random, kind, drift), anchor)


def require_item_settings(n_items: Any, n_categories: Any, drift: Any, seed: Any) -> None:
    """Raise if a setting of the catalogue is out of range."""
    require_whole("n_items", n_items, 1, _MOST_CODES)
    if n_categories is not None:
        require_whole("n_categories", n_categories, 1, n_items, "n_items")
    require_number("drift", drift, 0, 1)
    require_whole("seed", seed, 0)


def require_user_settings(n_users: Any, purchases_per_user: Any) -> None:
    """Raise if a setting of the users is out of range."""
    require_whole("n_users", n_users, 1, _MOST_CODES)
    require_positive("purchases_per_user", purchases_per_user, _MOST_PURCHASES)


def _assign_categories(
    random: np.random.Generator, n_items: int, n_categories: int
) -> tuple[Codes, Codes]:
    """Return the category of each item, of uneven sizes, and one item of each category."""
    sizes = random.gamma(2.0, size=n_categories) + 1e-3
    category = random.choice(n_categories, n_items, p=sizes / sizes.sum()).astype(np.int32)
    anchor = random.permutation(n_items)[:n_categories].astype(np.int32)
    category[anchor] = np.arange(n_categories, dtype=np.int32)
    return category, anchor


def _assign_kinds(
    random: np.random.Generator, category: Codes, anchor: Codes, drift: float
) -> NDArray[np.int8]:
    """Return the kind of each item; anchors are steady, and all items are without drift."""
    tilt = np.clip(random.normal(0.0, 0.7, len(anchor)), -1.0, 1.0)[category]
    shares = [
        _TRENDING_SHARE * np.exp(tilt),
        _FADING_SHARE * np.exp(-tilt),
        np.full(len(category), _SEASONAL_SHARE),
        np.full(len(category), _NEW_SHARE * drift),
        np.full(len(category), _WITHDRAWN_SHARE * drift),
    ]
    edges = np.cumsum(shares, axis=0)
    crossed = (random.random(len(category)) >= edges).sum(axis=0)
    kind = np.where(crossed < len(shares), crossed + 1, STEADY).astype(np.int8)
    kind[anchor] = STEADY
    return kind if drift > 0 else np.zeros_like(kind)


def _assign_trends(random: np.random.Generator, kind: NDArray[np.int8], drift: float) -> Floats:
    """Return the log change of each item, proportional to the drift."""
    strong = _STRONG_CHANGE * random.uniform(0.5, 1.5, len(kind))
    season = SEASONAL_AMPLITUDE * np.sin(random.uniform(0.0, 2.0 * np.pi, len(kind)))
    trend = np.zeros(len(kind))
    trend[kind == TRENDING] = drift * strong[kind == TRENDING]
    trend[kind == FADING] = -drift * strong[kind == FADING]
    trend[kind == SEASONAL] = drift * season[kind == SEASONAL]
    trend[kind == NEW] = np.inf
    trend[kind == WITHDRAWN] = -np.inf
    return trend
