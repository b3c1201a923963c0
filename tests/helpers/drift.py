"""Generated lists of an engine that knows only the past, and purchases that drifted from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from drift_kernels import World, draw_counts, draw_users, fill_log_changes, pack
from trimtab.arrays import Codes, Floats, Ints, Lists, Sets
from trimtab.datasets.generated_log import (
    NEW,
    Items,
    generate_items,
    lognormal_quantiles,
    mixture,
    stream_keys,
)
from trimtab.kernels.compiling import compile_notice
from trimtab.threads import run_ranges

_PURPOSE = 1
# Above 1, the engine ranks popular items higher than purchases do.
_ENGINE_POWER = 1.15
_NOISE_SPREAD = 0.8


@dataclass(frozen=True, eq=False)
class DriftData:
    """Lists and purchases of the same users, and the true trends of the items.

    User and item ids are the codes, from 0.

    Attributes:
        seed: Random seed.
        items: The catalogue, with each item's kind and trend.
        lists: The engine's lists before the change: score descending, then item ascending. The
            score is the chance that one purchase of the user is that item.
        history: Purchases in a window before the change.
        recent: Purchases in the window to learn from, after the change.
        test: Purchases in the next window, with the same trends.
    """

    seed: int
    items: Items
    lists: Lists
    history: Sets
    recent: Sets
    test: Sets

    @property
    def n_users(self) -> int:
        """Number of users, including those who bought nothing."""
        return self.lists.n_units

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue."""
        return len(self.items.kind)

    @property
    def category(self) -> Codes:
        """Category of each item."""
        return self.items.category

    @property
    def trend(self) -> Floats:
        """Log of each item's popularity now over before; +inf for new, -inf for withdrawn items."""
        return self.items.trend

    @cached_property
    def effective_trend(self) -> Floats:
        """Log change of an item's share of purchases, as its listers saw it; nan if not listed.

        An item that rises by less than the rest of its category sells less, whatever its `trend`.
        This is the mean, over the users who list the item, of the log of the probability that one
        of their purchases is this item: now, over before. -inf for withdrawn items.
        """
        with np.errstate(invalid="ignore"):
            sums = np.bincount(self.lists.items, self.log_changes(), minlength=self.n_items)
            return sums / np.bincount(self.lists.items, minlength=self.n_items)

    def log_changes(self) -> Floats:
        """Return log(probability now / before) that a purchase is the listed item, by list row."""
        items, current = self.items, popularity_now(self.items)
        now = np.bincount(items.category, current)
        changes = np.empty((self.n_users, int(self.lists.indptr[1])))
        run_compiled(
            fill_log_changes, self.n_users, stream_keys(self.seed, _PURPOSE, 6)[0], _world(items),
            mixture(items, items.long_run), current / now[items.category], now / now.sum(),
            self.lists.items.reshape(changes.shape), self.lists.scores.reshape(changes.shape),
            changes,
        )  # fmt: skip
        return changes.reshape(-1)

    def recs(self) -> pa.Table:
        """Return the lists: user_id, item_id, score."""
        return _table(self.lists.indptr, self.lists.items, score=self.lists.scores)

    def history_events(self) -> pa.Table:
        """Return the purchases before the change: user_id, item_id."""
        return _table(*self.history)

    def recent_events(self) -> pa.Table:
        """Return the purchases of the recent window: user_id, item_id."""
        return _table(*self.recent)

    def test_events(self) -> pa.Table:
        """Return the purchases of the test window: user_id, item_id."""
        return _table(*self.test)

    def catalogue(self) -> pa.Table:
        """Return item_id and category."""
        return self.items.catalogue()


def generate_drift(
    n_users: int = 10_000,
    n_items: int = 2_000,
    n_listed: int = 50,
    purchases_per_user: float = 3.0,
    drift: float = 0.5,
    n_categories: int | None = None,
    seed: int = 0,
) -> DriftData:
    """Return lists and purchases in which the change of each item's popularity is known.

    Users have favourite categories and favourite items. The engine knows both, and the popularity
    before the change. With `drift=0` its order is already the best. The same settings give the
    same bytes for any number of threads.

    Args:
        n_users: Number of users, each with a list; some buy nothing in a window.
        n_items: Number of items. New items are listed only if there are too few others.
        n_listed: Number of items in each list.
        purchases_per_user: Mean number of distinct items a user buys in a window; heavy-tailed.
        drift: Strength of the change, from 0 (none) to 1 (strong).
        n_categories: Number of categories; by default the square root of `n_items`.
        seed: Random seed.
    """
    assert n_listed <= n_items
    items = generate_items(n_items, drift, n_categories, seed)
    keys = stream_keys(seed, _PURPOSE, 6)
    counts = np.zeros((3, n_users), np.int32)
    rates = lognormal_quantiles(1.0, float(purchases_per_user))
    run_compiled(draw_counts, n_users, keys[5], rates, counts)
    bounds = np.zeros((3, n_users + 1), np.int64)
    np.cumsum(counts, axis=1, out=bounds[:, 1:])
    bought = tuple(np.empty(total, np.int32) for total in bounds[:, -1])
    listed, scores = np.empty((n_users, n_listed), np.int32), np.empty((n_users, n_listed))
    tables = (
        _world(items),
        mixture(items, items.long_run, _ENGINE_POWER),
        mixture(items, items.long_run),
        mixture(items, popularity_now(items)),
        lognormal_quantiles(_NOISE_SPREAD),
    )
    outputs = (listed, scores, bounds, bought, counts)
    run_compiled(draw_users, n_users, keys[:5], *tables, *outputs)
    indptr = np.arange(n_users + 1, dtype=np.int64) * n_listed
    lists = Lists(indptr, listed.reshape(-1), scores.reshape(-1))
    windows = [_packed(*window) for window in zip(bounds, counts, bought, strict=True)]
    return DriftData(seed, items, lists, *windows)


def popularity_change(items: Items) -> Floats:
    """Return popularity now divided by `weight`: exp(trend), 1 for new items."""
    return np.exp(np.where(items.kind == NEW, 0.0, items.trend))


def popularity_now(items: Items) -> Floats:
    """Return the popularity in the recent and test windows, 0 for withdrawn items."""
    return items.weight * popularity_change(items)


def run_compiled(kernel: Any, n: int, *arrays: Any) -> None:
    """Run a kernel over 0..n, after compiling it under a notice."""
    with compile_notice():
        kernel(0, 0, *arrays)
    run_ranges(kernel, n, *arrays)


def _world(items: Items) -> World:
    sums = np.bincount(items.category, items.long_run)
    order = np.lexsort((-items.weight, items.kind == NEW)).astype(np.int32)
    within = items.long_run / sums[items.category]
    return World(items.category, within, sums / sums.sum(), popularity_change(items), order)


def _packed(bounds: Ints, counts: Codes, loose: Codes) -> Sets:
    """Return sets without the gaps that repeated purchases left."""
    indptr = np.zeros(len(bounds), np.int64)
    np.cumsum(counts, out=indptr[1:])
    packed = np.empty(indptr[-1], np.int32)
    run_compiled(pack, len(counts), bounds, indptr, loose, packed)
    return Sets(indptr, packed)


def _table(indptr: Ints, items: Codes, **columns: Floats) -> pa.Table:
    users = np.repeat(np.arange(len(indptr) - 1, dtype=np.int64), np.diff(indptr))
    return pa.table({"user_id": users, "item_id": items.astype(np.int64), **columns})
