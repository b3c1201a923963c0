"""Markov: what people buy after what you bought last, of first or second order.

    P(i | j)      = users who bought j, and i at a strictly later time / users who bought j
    P(i | j1, j2) = users who bought both, and i strictly later than both / users who bought both

A user's states are the few different items bought last. With first order the score is the mean of
P(i | j) over the states j: the chance of i when one state, drawn at random, leads on. With second
order it is the mean over all pairs of states, where a pair with too little support stands back for
the mean of its two items; so a user without any supported pair has the first-order score.

With `decay_days` users count with the weight of their last purchase of i (above the line) and of j
(below it) instead of 1.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints, Lists
from trimtab.checks import require_whole
from trimtab.engines.base import Engine, Events
from trimtab.engines.purchases import Purchases, gather_purchases, pointers
from trimtab.engines.sparse_mixture import Mix, Rows, mix_lists, stack_rows
from trimtab.errors import SettingError
from trimtab.threads import ranges, thread_count

_EVER = np.iinfo(np.int64).min  # since when a user may have bought anything
_NO_WEIGHTS = np.empty(0)
_CHUNKS = 64  # of states, so that threads finish together


class Followers(NamedTuple):
    """What follows each state, in CSR form: how many users, and the sum of weights if any.

    Items are numbered by how many users bought them, the commonest first.
    """

    indptr: Ints
    places: Codes
    counts: Codes
    sums: Floats
    item_of: Codes  # by place

    @property
    def items(self) -> Codes:
        """The followers themselves."""
        return self.item_of[self.places]


class Seeds(NamedTuple):
    """Who reached each state, and since when, in CSR form."""

    indptr: Ints
    users: Codes
    times: Ints


class _Model(NamedTuple):
    rows: Rows  # what follows each item, then what follows each pair
    states: Mix  # each user's states, with weight 1
    n_items: int
    pairs: Ints  # item codes of the pairs as first * n_items + second, ascending
    order: int


@dataclass(kw_only=True)
class Markov(Engine):
    """Engine from what was bought after what.

    Args:
        order: 1 or 2.
        n_states: how many of a user's last different purchases count.
        min_support: fewest users that make a follower count.
        pair_support: fewest users who bought both items of a pair, for second order.
        max_pairs: at most so many pairs, those with the most users, for second order.
    """

    order: int = 1
    n_states: int = 10
    min_support: int = 3
    pair_support: int = 20
    max_pairs: int = 20_000

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("order", "n_states", "min_support", "pair_support", "max_pairs"):
            require_whole(name, getattr(self, name), 1)
        if self.order > 2:
            raise SettingError(f"order={self.order}: must be 1 or 2")

    def _learn(self, events: Events, item_ids: Any) -> _Model:
        recent = events.since(self.window_days)
        bought = gather_purchases(recent, np.ones(len(recent.times)))
        weights = _NO_WEIGHTS
        if self.decay_days is not None:
            weights = recent._replace(times=bought.last).weights(self.decay_days)
        rows = _first_order(bought, weights, self.min_support)
        pairs = np.empty(0, np.int64)
        if self.order == 2:
            pairs, pair_rows = _second_order(bought, weights, self)
            rows = stack_rows(rows, pair_rows)
        if self.window_days is not None:
            bought = gather_purchases(events, np.ones(len(events.times)))
        states = _last_states(bought, self.n_states)
        return _Model(rows, states, events.n_items, pairs, self.order)

    def _score(self, model: _Model, users: Codes, n: int) -> Lists:
        states = model.states.take(users)
        if model.order == 1:
            lengths = np.repeat(np.diff(states.indptr), np.diff(states.indptr))
            mix = Mix(states.indptr, states.rows, states.weights / lengths)
        else:
            mix = _mix_pairs(states, model.pairs, model.n_items)
        return mix_lists(mix, model.rows, n)


def count_first_order(events: Events, min_support: int = 1) -> tuple[Followers, Ints]:
    """How many users bought i strictly after j, by j, and how many bought j."""
    bought = gather_purchases(events, np.ones(len(events.times)))
    seeds = Seeds(*bought.by_item())
    return _count(seeds, bought, _NO_WEIGHTS, min_support), np.diff(seeds.indptr)


def _first_order(bought: Purchases, weights: Floats, least: int) -> Rows:
    followers = _count(Seeds(*bought.by_item()), bought, weights, least)
    by_row = weights if len(weights) else None
    totals = np.bincount(bought.items, by_row, minlength=bought.n_items).astype(np.float64)
    return _rows(followers, totals)


def _second_order(bought: Purchases, weights: Floats, engine: Markov) -> tuple[Ints, Rows]:
    """Pairs with enough buyers, and what follows them; triples are formed for those only."""
    seeds = Seeds(*bought.by_item())
    pairs, n_both = _choose_pairs(seeds, bought, engine.pair_support, engine.max_pairs)
    left, right = np.divmod(pairs, bought.n_items)
    both = _pair_seeds(left.astype(np.int32), right.astype(np.int32), n_both, seeds)
    followers = _count(both, bought, weights, engine.min_support)
    if engine.decay_days is None:
        totals = n_both.astype(np.float64)
    else:
        totals = _pair_totals(both, left, right, bought, weights)
    return pairs, _rows(followers, totals)


def _choose_pairs(seeds: Seeds, bought: Purchases, least: int, most: int) -> tuple[Ints, Ints]:
    """Pairs of items with the most users who bought both, ascending, and how many those are."""
    often = np.diff(seeds.indptr) >= least
    keep = np.repeat(often, np.diff(seeds.indptr))
    frequent = Seeds(
        np.concatenate([[0], np.cumsum(np.where(often, np.diff(seeds.indptr), 0))]),
        seeds.users[keep],
        np.full(int(keep.sum()), _EVER),
    )
    found = _count(frequent, bought, _NO_WEIGHTS, least)
    left = np.repeat(np.arange(bought.n_items), np.diff(found.indptr))
    right = found.items
    upper = right > left
    keys = left[upper] * bought.n_items + right[upper]
    counts = found.counts[upper].astype(np.int64)
    best = np.lexsort((keys, -counts))[:most]
    best = best[np.argsort(keys[best])]
    return keys[best], counts[best]


def _pair_seeds(left: Codes, right: Codes, n_both: Ints, seeds: Seeds) -> Seeds:
    from trimtab.kernels.transitions import seed_pairs

    indptr = np.concatenate([[0], np.cumsum(n_both)]).astype(np.int64)
    both = Seeds(indptr, np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int64))
    seed_pairs(0, len(left), left, right, *seeds, *both)
    return both


def _pair_totals(
    both: Seeds, left: Ints, right: Ints, bought: Purchases, weights: Floats
) -> Floats:
    """Sums over the buyers of both: the weight of the purchase that was made last."""
    keys = bought.users.astype(np.int64) * bought.n_items + bought.items
    by_pair = np.repeat(np.arange(len(left)), np.diff(both.indptr))
    users = both.users.astype(np.int64) * bought.n_items
    heavier = np.maximum(
        weights[np.searchsorted(keys, users + left[by_pair])],
        weights[np.searchsorted(keys, users + right[by_pair])],
    )
    return np.bincount(by_pair, heavier, minlength=len(left)).astype(np.float64)


def _count(seeds: Seeds, bought: Purchases, weights: Floats, least: int) -> Followers:
    """Followers of every state; the same for any number of threads."""
    from trimtab.kernels.compiling import compile_notice
    from trimtab.kernels.transitions import count_followers

    by_place, baskets = _baskets(bought, weights, least)
    n_states = len(seeds.indptr) - 1
    lengths = np.zeros(n_states, np.int64)
    arrays: tuple[Any, ...] = (len(by_place), least, *seeds, *baskets, lengths)
    with compile_notice():
        count_followers(0, 0, *arrays)
    with ThreadPoolExecutor(thread_count()) as pool:
        jobs = [
            pool.submit(count_followers, first, end, *arrays)
            for first, end in ranges(n_states, _CHUNKS)
        ]
        parts = [job.result() for job in jobs]
    places, counts, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Followers(indptr, places, counts, sums, by_place)


def _baskets(
    bought: Purchases, weights: Floats, least: int
) -> tuple[Codes, tuple[Ints, Codes, Ints, Floats]]:
    """Items with enough buyers, most bought first, and users' purchases of those, latest first."""
    n_buyers = np.bincount(bought.items, minlength=bought.n_items)
    by_place = np.argsort(-n_buyers, kind="stable")[: np.count_nonzero(n_buyers >= least)]
    place_of = np.full(bought.n_items, -1, np.int32)
    place_of[by_place] = np.arange(len(by_place), dtype=np.int32)
    order = bought.latest_first()
    order = order[place_of[bought.items[order]] >= 0]
    indptr = pointers(bought.users[order], bought.n_users)
    places, last = place_of[bought.items[order]], bought.last[order]
    return by_place.astype(np.int32), (
        indptr,
        places,
        last,
        weights[order] if len(weights) else weights,
    )


def _rows(followers: Followers, totals: Floats) -> Rows:
    """Users, or sums of weights, over totals, by state."""
    above = followers.sums if len(followers.sums) else followers.counts.astype(np.float64)
    share = np.divide(1.0, totals, out=np.zeros(len(totals)), where=totals > 0)
    above *= np.repeat(share, np.diff(followers.indptr))
    return Rows(followers.indptr, followers.places, above, followers.item_of)


def _last_states(bought: Purchases, n_states: int) -> Mix:
    """The last different purchases of each user, latest first."""
    order = bought.latest_first()
    indptr = pointers(bought.users, bought.n_users)
    place = np.arange(len(order)) - np.repeat(indptr[:-1], np.diff(indptr))
    order = order[place < n_states]
    kept = pointers(bought.users[order], bought.n_users)
    return Mix(kept, bought.items[order], np.ones(len(order)))


def _mix_pairs(states: Mix, pairs: Ints, n_items: int) -> Mix:
    """Weights of items and pairs such that each pair of a user's states counts the same."""
    units, first, second = _state_pairs(states)
    low, high = np.minimum(first, second), np.maximum(first, second)
    key = low.astype(np.int64) * n_items + high
    place = np.minimum(np.searchsorted(pairs, key), max(len(pairs) - 1, 0))
    known = pairs[place] == key if len(pairs) else np.zeros(len(key), bool)
    share = 1.0 / np.bincount(units, minlength=len(states.indptr) - 1)[units]
    alone = np.flatnonzero(np.diff(states.indptr) == 1)
    unit = np.concatenate([units[known], units[~known], units[~known], alone])
    rows = np.concatenate(
        [n_items + place[known], first[~known], second[~known], states.rows[states.indptr[alone]]]
    )
    half = share[~known] / 2
    weights = np.concatenate([share[known], half, half, np.ones(len(alone))])
    return _gathered(unit, rows, weights, len(states.indptr) - 1)


def _state_pairs(states: Mix) -> tuple[Ints, Codes, Codes]:
    """All pairs of states of each unit: unit, first item, second item."""
    longest = int(np.diff(states.indptr).max(initial=0))
    lengths = np.diff(states.indptr)
    units, first, second = [], [], []
    for a in range(longest):
        for b in range(a + 1, longest):
            have = np.flatnonzero(lengths > b)
            units.append(have)
            first.append(states.rows[states.indptr[have] + a])
            second.append(states.rows[states.indptr[have] + b])
    if not units:
        return np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32)
    return np.concatenate(units), np.concatenate(first), np.concatenate(second)


def _gathered(units: Ints, rows: Ints, weights: Floats, n_units: int) -> Mix:
    """A mix with each row once a unit, in the order of rows."""
    width = int(rows.max(initial=0)) + 1
    key = units * width + rows
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    summed = np.add.reduceat(weights[order], starts) if len(starts) else np.empty(0)
    kept_units, kept_rows = np.divmod(key[order][starts], width)
    return Mix(pointers(kept_units.astype(np.int32), n_units), kept_rows.astype(np.int32), summed)
