"""Generated lists of an engine that knows only the past, and purchases that drifted from it.

    P(c | u) = BASE_SHARE * share_c + sum over f of TASTE_SHARES[f] * [c is favorite f of u]
    p_ui     = P(c_i | u) * within_i                    by taste and popularity
    r_ui     = p_ui * noise                             the user's own liking, of listed items only
    score    = OWN_SHARE * r_ui / sum(r_u) + (1 - OWN_SHARE) * p_ui

share_c is the popularity of category c, within_i the long-run share of item i in its category. The
score is the long-run probability that one purchase of u is i: without drift, the order of a list is
optimal. With drift, every weight of item i is multiplied by its change.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.arrays import Codes, Floats, Ints, Lists, Sets
from trimtab.datasets.generated_log import (
    BASE_SHARE,
    NEW,
    TASTE_SHARES,
    Items,
    Shelves,
    Streams,
    draw_favorites,
    draw_lognormal,
    draw_poisson,
    draw_tastes,
    draw_units,
    generate_items,
    start_streams,
)

_PURPOSE = 1
_OWN_SHARE = 0.06
_ENGINE_POWER = 1.15  # above 1, the engine ranks popular items higher than purchases do
_NOISE_SPREAD = 0.8
_NEVER_SEEN = 1e-12
_BLOCK = 20_000  # users to draw together


@dataclass(frozen=True, eq=False)
class DriftData:
    """Lists and purchases of the same users, and the true trends of the items.

    User and item ids are the codes, from 0.

    Attributes:
        items: The catalogue, with each item's kind and trend.
        favorites: -1 and the favorite categories of each user.
        lists: The engine's lists before the change: score descending, then item ascending.
        history: Purchases in a window before the change.
        recent: Purchases in the window to learn from, after the change.
        test: Purchases in the next window, with the same trends.
    """

    items: Items
    favorites: Ints
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
        items, change = self.items, _change(self.items)
        listed, scores = (a.reshape(self.n_users, -1) for a in self.lists[1:])
        before = _by_taste(listed, self.favorites, items, items.long_run)
        own = np.maximum(scores - (1.0 - _OWN_SHARE) * before, 0.0) * change[listed]
        totals = own.sum(axis=1, keepdims=True)
        own_share = np.where(totals > 0.0, _OWN_SHARE, 0.0)
        by_taste = _by_taste(listed, self.favorites, items, items.weight * change)
        now = (1.0 - own_share) * by_taste + own_share * own / np.where(totals > 0.0, totals, 1.0)
        with np.errstate(divide="ignore"):
            return np.log(now / scores).ravel()

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
        return pa.table({"item_id": np.arange(self.n_items), "category": self.items.category})


class _Drawn(NamedTuple):
    """Some users' lists, in order, and the items that they bought in each window, -1 for none."""

    favorites: Ints
    items: Ints
    scores: Floats
    windows: list[Ints]


def generate_drift(
    n_users: int = 10_000,
    n_items: int = 2_000,
    n_listed: int = 50,
    purchases_per_user: float = 3.0,
    drift: float = 0.5,
    seed: int = 0,
) -> DriftData:
    """Return lists and purchases in which the change of each item's popularity is known.

    Users have favourite categories and favourite items. The engine knows both, and the popularity
    before the change. With `drift=0` its order is already the best.

    Args:
        n_users: Number of users, each with a list; some buy nothing in a window.
        n_items: Number of items. New items are listed only if there are too few others.
        n_listed: Number of items in each list.
        purchases_per_user: Mean number of distinct items a user buys in a window; heavy-tailed.
        drift: Strength of the change, from 0 (none) to 1 (strong).
        seed: Random seed.
    """
    assert n_listed <= n_items
    items = generate_items(n_items, drift, seed)
    streams, mean = start_streams(seed, _PURPOSE, 6, n_users), float(purchases_per_user)
    parts = [
        _draw_users([part[first : first + _BLOCK] for part in streams], items, n_listed, mean)
        for first in range(0, n_users, _BLOCK)
    ]
    favorites, listed, scores = (np.concatenate([part[n] for part in parts]) for n in range(3))
    indptr = np.arange(n_users + 1, dtype=np.int64) * n_listed
    windows = (_as_sets([part.windows[window] for part in parts]) for window in range(3))
    lists = Lists(indptr, listed.ravel().astype(np.int32), scores.ravel())
    return DriftData(items, favorites, lists, *windows)


def _draw_users(streams: list[Streams], items: Items, n_listed: int, mean: float) -> _Drawn:
    """Return the lists and purchases of users; streams: tastes, lists, each window, counts."""
    change = _change(items)
    long_run = Shelves(items, items.long_run)
    now = Shelves(items, items.weight * change)
    favorites = draw_favorites(streams[0], items)
    engine = Shelves(items, items.long_run, _ENGINE_POWER)
    listed = _fill(streams[1], favorites, engine, np.full(len(favorites), n_listed), 6, 64)
    _add_popular(listed, items)
    by_taste = _by_taste(listed, favorites, items, items.long_run)
    noise = [draw_lognormal(streams[1], _NOISE_SPREAD) for _ in range(n_listed)]
    liking = np.maximum(by_taste, _NEVER_SEEN) * np.stack(noise, axis=1)
    own = _OWN_SHARE / liking.cumsum(axis=1)[:, -1:]
    scores = own * liking + (1.0 - _OWN_SHARE) * by_taste
    order = np.lexsort((listed, -scores))
    listed, scores, liking = (np.take_along_axis(a, order, 1) for a in (listed, scores, liking))
    rate = draw_lognormal(streams[5], 1.0, mean)
    counts = [draw_poisson(streams[5], rate) for _ in range(3)]
    before, after = (listed, liking), (listed, liking * change[listed])
    windows = [
        _fill(stream, favorites, shelves, count, 4, 4, own)
        for stream, shelves, count, own in zip(
            streams[2:5], (long_run, now, now), counts, (before, after, after), strict=True
        )
    ]
    return _Drawn(favorites, listed, scores, windows)


def _fill(
    streams: Streams, favorites: Ints, shelves: Shelves, counts: Ints, tries: int, more: int,
    own: tuple[Ints, Floats] | None = None,
) -> Ints:  # fmt: skip
    """Return distinct items of each user in the order drawn, -1 where tries did not suffice.

    Each user has `tries * count + more` tries. With `own`, listed items and how much users like
    them, a small share of the draws are of these.
    """
    filled = np.full((len(counts), counts.max(initial=0)), -1)
    done = np.zeros(len(counts), np.int64)
    for turn in range(tries * filled.shape[1] + more):
        users = np.flatnonzero((done < counts) & (turn < tries * counts + more))
        if len(users) == 0:
            break
        items = np.full(len(users), -1)
        if own is not None:
            chosen = draw_units(streams, users) < _OWN_SHARE
            items[chosen] = _draw_listed(streams, users[chosen], *own)
        others = items < 0
        buying = users[others]
        tastes = draw_tastes(streams, favorites, buying)
        categories = shelves.draw_categories(streams, tastes, buying)
        items[others] = shelves.draw_items(streams, categories, buying)
        new = (filled[users] != items[:, None]).all(axis=1)
        filled[users[new], done[users[new]]] = items[new]
        done[users[new]] += 1
    return filled


def _draw_listed(streams: Streams, users: Ints, listed: Ints, liking: Floats) -> Ints:
    """Return a listed item of each user, by the user's liking; -1 if all are withdrawn."""
    sums = liking[users].cumsum(axis=1)
    left = draw_units(streams, users) * sums[:, -1]
    place = np.minimum((sums <= left[:, None]).sum(axis=1), listed.shape[1] - 1)
    return np.where(sums[:, -1] > 0, listed[users, place], -1)


def _add_popular(listed: Ints, items: Items) -> None:
    """Fill short lists with the most popular items; new ones come last."""
    popular = np.lexsort((-items.weight, items.kind == NEW))
    for user in np.flatnonzero((listed < 0).any(axis=1)):
        missing = listed[user] < 0
        listed[user, missing] = popular[~np.isin(popular, listed[user])][: missing.sum()]


def _change(items: Items) -> Floats:
    """Return popularity now divided by `weight`: exp(trend), 1 for new items."""
    return np.exp(np.where(items.kind == NEW, 0.0, items.trend))


def _by_taste(listed: Ints, favorites: Ints, items: Items, weights: Floats) -> Floats:
    """Return the probability that a purchase by taste and popularity is the listed item."""
    sums = np.bincount(items.category, weights)
    category = items.category[listed]
    taste = BASE_SHARE * (sums / sums.sum())[category]
    for rank, share in enumerate(TASTE_SHARES, start=1):
        taste += share * (category == favorites[:, rank, None])
    return taste * (weights / sums[items.category])[listed]


def _as_sets(parts: list[Ints]) -> Sets:
    counts = np.concatenate([(part >= 0).sum(axis=1) for part in parts])
    ordered = (np.sort(part, axis=1) for part in parts)
    bought = np.concatenate([part[part >= 0] for part in ordered]).astype(np.int32)
    return Sets(np.concatenate([[0], np.cumsum(counts)]), bought)


def _table(indptr: Ints, items: Codes, **columns: Floats) -> pa.Table:
    users = np.repeat(np.arange(len(indptr) - 1, dtype=np.int64), np.diff(indptr))
    return pa.table({"user_id": users, "item_id": items.astype(np.int64), **columns})
