"""Markov: recommend what others bought after the user's last items, of first or second order.

    P(i | j)      = users who bought j, and i at a strictly later time / users who bought j
    P(i | j1, j2) = users who bought both, and i strictly later than both / users who bought both

A user's states are the last few distinct items bought. First order: the score is the mean of
P(i | j) over the states j. Second order: the mean over all pairs of states; a pair with too little
support is replaced by the mean of its two items, so a user without supported pairs gets the
first-order score.

With `decay_days` each user counts with the weight of the last purchase of i (numerator) or j
(denominator) instead of 1.
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
from trimtab.threads import ranges, thread_count

_ALWAYS = np.iinfo(np.int64).min  # a time before all purchases
_NO_WEIGHTS = np.empty(0)
_N_CHUNKS = 64  # chunks of states, so threads finish together


class Followers(NamedTuple):
    """The items that follow each state, in CSR form: number of users, and sum of weights if any.

    Places number the items by how many users bought them, most first.
    """

    indptr: Ints
    places: Codes
    counts: Codes
    sums: Floats
    item_of: Codes  # item code by place

    @property
    def items(self) -> Codes:
        """Item codes of the followers."""
        return self.item_of[self.places]


class StateUsers(NamedTuple):
    """The users who reached each state, and when they first did, in CSR form."""

    indptr: Ints
    users: Codes
    times: Ints


class _Model(NamedTuple):
    rows: Rows  # followers of each item, then of each pair
    states: Mix  # states of each user, with weight 1
    n_items: int
    pairs: Ints  # pairs as first code * n_items + second code, ascending
    order: int


@dataclass(kw_only=True)
class Markov(Engine):
    """Engine from the order of purchases.

    Args:
        order: 1 or 2.
        n_states: number of a user's last distinct items to use.
        min_support: minimum users for a follower to count.
        pair_support: minimum users who bought both items of a pair (second order).
        max_pairs: maximum pairs to keep, those with the most users (second order).
    """

    order: int = 1
    n_states: int = 10
    min_support: int = 3
    pair_support: int = 20
    max_pairs: int = 20_000

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("order", self.order, 1, 2)
        for name in ("n_states", "min_support", "pair_support", "max_pairs"):
            require_whole(name, getattr(self, name), 1)

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
    """Return how many users bought i strictly after j, by j, and how many bought j."""
    bought = gather_purchases(events, np.ones(len(events.times)))
    buyers = StateUsers(*bought.by_item())
    return _count_followers(buyers, bought, _NO_WEIGHTS, min_support), np.diff(buyers.indptr)


def _first_order(bought: Purchases, weights: Floats, least: int) -> Rows:
    followers = _count_followers(StateUsers(*bought.by_item()), bought, weights, least)
    purchase_weights = weights if len(weights) else None
    totals = np.bincount(bought.items, purchase_weights, minlength=bought.n_items)
    return _follower_shares(followers, totals.astype(np.float64))


def _second_order(bought: Purchases, weights: Floats, engine: Markov) -> tuple[Ints, Rows]:
    """Return the pairs with enough buyers, and their followers."""
    buyers = StateUsers(*bought.by_item())
    pairs, n_both = _choose_pairs(buyers, bought, engine.pair_support, engine.max_pairs)
    left, right = np.divmod(pairs, bought.n_items)
    both = _pair_users(left.astype(np.int32), right.astype(np.int32), n_both, buyers)
    followers = _count_followers(both, bought, weights, engine.min_support)
    if engine.decay_days is None:
        totals = n_both.astype(np.float64)
    else:
        totals = _pair_totals(both, left, right, bought, weights)
    return pairs, _follower_shares(followers, totals)


def _choose_pairs(
    buyers: StateUsers, bought: Purchases, least: int, most: int
) -> tuple[Ints, Ints]:
    """Return the pairs of items with the most common buyers, ascending, and their number."""
    n_buyers = np.diff(buyers.indptr)
    often = n_buyers >= least
    keep = np.repeat(often, n_buyers)
    frequent = StateUsers(
        np.concatenate([[0], np.cumsum(np.where(often, n_buyers, 0))]),
        buyers.users[keep],
        np.full(int(keep.sum()), _ALWAYS),
    )
    found = _count_followers(frequent, bought, _NO_WEIGHTS, least)
    left = np.repeat(np.arange(bought.n_items), np.diff(found.indptr))
    right = found.items
    upper = right > left
    keys = left[upper] * bought.n_items + right[upper]
    counts = found.counts[upper].astype(np.int64)
    best = np.lexsort((keys, -counts))[:most]
    best = best[np.argsort(keys[best])]
    return keys[best], counts[best]


def _pair_users(left: Codes, right: Codes, n_both: Ints, buyers: StateUsers) -> StateUsers:
    """Return the users who bought both items of each pair."""
    from trimtab.kernels.transitions import seed_pairs

    indptr = np.concatenate([[0], np.cumsum(n_both)]).astype(np.int64)
    both = StateUsers(indptr, np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int64))
    seed_pairs(0, len(left), left, right, *buyers, *both)
    return both


def _pair_totals(
    both: StateUsers, left: Ints, right: Ints, bought: Purchases, weights: Floats
) -> Floats:
    """Return the summed weights of each pair's buyers; the later of the two purchases counts."""
    keys = bought.users.astype(np.int64) * bought.n_items + bought.items
    by_pair = np.repeat(np.arange(len(left)), np.diff(both.indptr))
    users = both.users.astype(np.int64) * bought.n_items
    heavier = np.maximum(
        weights[np.searchsorted(keys, users + left[by_pair])],
        weights[np.searchsorted(keys, users + right[by_pair])],
    )
    return np.bincount(by_pair, heavier, minlength=len(left)).astype(np.float64)


def _count_followers(
    state_users: StateUsers, bought: Purchases, weights: Floats, least: int
) -> Followers:
    """Return the followers of every state, the same for any number of threads."""
    from trimtab.kernels.compiling import compile_notice
    from trimtab.kernels.transitions import count_followers

    item_of, baskets = _frequent_purchases(bought, weights, least)
    n_states = len(state_users.indptr) - 1
    lengths = np.zeros(n_states, np.int64)
    arrays: tuple[Any, ...] = (len(item_of), least, *state_users, *baskets, lengths)
    with compile_notice():
        count_followers(0, 0, *arrays)
    with ThreadPoolExecutor(thread_count()) as pool:
        jobs = [
            pool.submit(count_followers, first, end, *arrays)
            for first, end in ranges(n_states, _N_CHUNKS)
        ]
        parts = [job.result() for job in jobs]
    places, counts, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Followers(indptr, places, counts, sums, item_of)


def _frequent_purchases(
    bought: Purchases, weights: Floats, least: int
) -> tuple[Codes, tuple[Ints, Codes, Ints, Floats]]:
    """Return the items with enough buyers, most bought first, and their purchases by user."""
    n_buyers = np.bincount(bought.items, minlength=bought.n_items)
    item_of = np.argsort(-n_buyers, kind="stable")[: np.count_nonzero(n_buyers >= least)]
    place_of = np.full(bought.n_items, -1, np.int32)
    place_of[item_of] = np.arange(len(item_of), dtype=np.int32)
    order = bought.latest_first()
    order = order[place_of[bought.items[order]] >= 0]
    indptr = pointers(bought.users[order], bought.n_users)
    places, last = place_of[bought.items[order]], bought.last[order]
    used = weights[order] if len(weights) else weights
    return item_of.astype(np.int32), (indptr, places, last, used)


def _follower_shares(followers: Followers, totals: Floats) -> Rows:
    """Return users, or sums of weights, divided by the total of each state."""
    shares = followers.sums if len(followers.sums) else followers.counts.astype(np.float64)
    factors = np.divide(1.0, totals, out=np.zeros(len(totals)), where=totals > 0)
    shares *= np.repeat(factors, np.diff(followers.indptr))
    return Rows(followers.indptr, followers.places, shares, followers.item_of)


def _last_states(bought: Purchases, n_states: int) -> Mix:
    """Return the last distinct items of each user, latest first."""
    order = bought.latest_first()
    indptr = pointers(bought.users, bought.n_users)
    place = np.arange(len(order)) - np.repeat(indptr[:-1], np.diff(indptr))
    order = order[place < n_states]
    kept = pointers(bought.users[order], bought.n_users)
    return Mix(kept, bought.items[order], np.ones(len(order)))


def _mix_pairs(states: Mix, pairs: Ints, n_items: int) -> Mix:
    """Return weights of items and pairs that give each pair of a user's states the same weight."""
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
    return _sum_repeated_rows(unit, rows, weights, len(states.indptr) - 1)


def _state_pairs(states: Mix) -> tuple[Ints, Codes, Codes]:
    """Return all pairs of states of each unit: unit, first item, second item."""
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


def _sum_repeated_rows(units: Ints, rows: Ints, weights: Floats, n_units: int) -> Mix:
    """Return a mix with each row once per unit, ascending, weights summed."""
    width = int(rows.max(initial=0)) + 1
    key = units * width + rows
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    summed = np.add.reduceat(weights[order], starts) if len(starts) else np.empty(0)
    kept_units, kept_rows = np.divmod(key[order][starts], width)
    return Mix(pointers(kept_units.astype(np.int32), n_units), kept_rows.astype(np.int32), summed)
