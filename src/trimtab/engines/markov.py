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
from trimtab.engines.base import (
    Engine,
    Events,
    Purchases,
    Sparse,
    gather_purchases,
    mix_lists,
    pointers,
    sum_entries,
)
from trimtab.tables.vocabulary import Vocabulary
from trimtab.threads import ranges, thread_count

_ALWAYS = np.iinfo(np.int64).min  # a time before all purchases
_N_CHUNKS = 64  # chunks of states, so threads finish together


class StateUsers(NamedTuple):
    """The users who reached each state, ascending, and when they first did, in CSR form."""

    indptr: Ints
    users: Codes
    times: Ints


class _Model(NamedTuple):
    rows: Sparse  # shares of followers of each item, then of each pair
    states: Sparse  # items of each user, with weight 1
    n_items: int
    pairs: Ints | None  # first code * n_items + second code, ascending; None for first order


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

    def _learn(self, events: Events, items: Vocabulary) -> _Model:
        bought = gather_last(events.since(self.window_days), self.decay_days)
        buyers = find_buyers(bought)
        followers = count_followers(buyers, bought, self.min_support)
        totals = np.bincount(bought.items, bought.weights, minlength=bought.n_items)
        pairs = None
        if self.order == 2:
            pairs, both = self._choose_pairs(buyers, bought)
            followers = _stack(followers, count_followers(both, bought, self.min_support))
            totals = np.append(totals, _pair_totals(both, pairs, bought))
        factors = np.divide(1.0, totals, out=np.zeros(len(totals)), where=totals > 0)
        shares = followers.values * np.repeat(factors, np.diff(followers.indptr))
        rows = followers._replace(values=shares)
        profiles = bought if self.window_days is None else gather_last(events, None)
        return _Model(rows, _last_states(profiles, self.n_states), events.n_items, pairs)

    def _choose_pairs(self, buyers: StateUsers, bought: Purchases) -> tuple[Ints, StateUsers]:
        """Return the pairs of items with the most common buyers, ascending, and these buyers."""
        from trimtab.kernels.transitions import seed_pairs

        plain = bought._replace(weights=np.ones(len(bought.items)))
        ever = buyers._replace(times=np.full(len(buyers.users), _ALWAYS))
        found = count_followers(ever, plain, self.pair_support)
        left = np.repeat(np.arange(bought.n_items), np.diff(found.indptr))
        upper = found.columns > left
        keys = left[upper] * bought.n_items + found.columns[upper]
        n_both = found.values[upper].astype(np.int64)
        best = np.lexsort((keys, -n_both))[: self.max_pairs]
        best = best[np.argsort(keys[best])]
        indptr = np.concatenate([[0], np.cumsum(n_both[best])])
        both = StateUsers(indptr, np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int64))
        items = [code.astype(np.int32) for code in np.divmod(keys[best], bought.n_items)]
        seed_pairs(0, len(best), *items, *buyers, *both)
        return keys[best], both

    def _score(self, model: _Model, users: Codes, n: int) -> Lists:
        states = model.states.take(users)
        if model.pairs is None:
            lengths = np.diff(states.indptr)
            weights = states._replace(values=states.values / np.repeat(lengths, lengths))
        else:
            weights = _weigh_pairs(states, model.pairs, model.n_items)
        return mix_lists(weights, model.rows, model.n_items, n)


def gather_last(events: Events, decay_days: float | None) -> Purchases:
    """Return the distinct purchases of each user, with the weight of the last of each."""
    bought = gather_purchases(events, np.ones(len(events.times)))
    return bought._replace(weights=events._replace(times=bought.last).weights(decay_days))


def find_buyers(bought: Purchases) -> StateUsers:
    """Return the buyers of each item, and when they first bought it."""
    order = np.argsort(bought.items, kind="stable")
    indptr = pointers(bought.items, bought.n_items)
    return StateUsers(indptr, bought.users[order], bought.first[order])


def count_followers(states: StateUsers, bought: Purchases, least: int) -> Sparse:
    """Return the weights of users who bought an item after reaching a state, states by items.

    Items that fewer than `least` users bought then are left out.
    """
    from trimtab.kernels.compiling import compile_notice
    from trimtab.kernels.transitions import count_followers as count

    order = _latest_first(bought)
    often = np.bincount(bought.items, minlength=bought.n_items) >= least
    order = order[often[bought.items[order]]]
    indptr = pointers(bought.users[order], bought.n_users)
    baskets = (indptr, bought.items[order], bought.last[order], bought.weights[order])
    n_states = len(states.indptr) - 1
    lengths = np.zeros(n_states, np.int64)
    arrays: tuple[Any, ...] = (bought.n_items, least, *states, *baskets, lengths)
    with compile_notice():
        count(0, 0, *arrays)
    with ThreadPoolExecutor(thread_count()) as pool:
        jobs = [pool.submit(count, *part, *arrays) for part in ranges(n_states, _N_CHUNKS)]
        parts = [job.result() for job in jobs]
    items, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Sparse(np.concatenate([[0], np.cumsum(lengths)]), items, sums)


def _latest_first(bought: Purchases) -> Ints:
    """Return the order of purchases by user, latest first, then by item."""
    order: Ints = np.lexsort((bought.items, -bought.last, bought.users))
    return order


def _stack(first: Sparse, second: Sparse) -> Sparse:
    """Return the rows of the first, then those of the second."""
    indptr = np.concatenate([first.indptr, second.indptr[1:] + first.indptr[-1]])
    columns = np.concatenate([first.columns, second.columns])
    return Sparse(indptr, columns, np.concatenate([first.values, second.values]))


def _pair_totals(both: StateUsers, pairs: Ints, bought: Purchases) -> Floats:
    """Return the summed weights of each pair's buyers; the later of the two purchases counts."""
    keys = bought.users.astype(np.int64) * bought.n_items + bought.items
    by_pair = np.repeat(np.arange(len(pairs)), np.diff(both.indptr))
    users = both.users.astype(np.int64) * bought.n_items
    weights = [
        bought.weights[np.searchsorted(keys, users + item[by_pair])]
        for item in np.divmod(pairs, bought.n_items)
    ]
    return np.bincount(by_pair, np.maximum(*weights), minlength=len(pairs)).astype(np.float64)


def _last_states(bought: Purchases, n_states: int) -> Sparse:
    """Return the last distinct items of each user, latest first."""
    order = _latest_first(bought)
    indptr = pointers(bought.users, bought.n_users)
    place = np.arange(len(order)) - np.repeat(indptr[:-1], np.diff(indptr))
    order = order[place < n_states]
    kept = pointers(bought.users[order], bought.n_users)
    return Sparse(kept, bought.items[order], np.ones(len(order)))


def _weigh_pairs(states: Sparse, pairs: Ints, n_items: int) -> Sparse:
    """Return weights of items and pairs that give each pair of a user's states the same weight."""
    n_users, lengths = len(states.indptr) - 1, np.diff(states.indptr)
    users, first, second = _state_pairs(states)
    key = np.minimum(first, second).astype(np.int64) * n_items + np.maximum(first, second)
    place = np.minimum(np.searchsorted(pairs, key), max(len(pairs) - 1, 0))
    known = pairs[place] == key if len(pairs) else np.zeros(len(key), bool)
    share = 1.0 / np.bincount(users, minlength=n_users)[users]
    alone = np.flatnonzero(lengths == 1)
    user = np.concatenate([users[known], users[~known], users[~known], alone])
    own = states.columns[states.indptr[alone]]
    rows = np.concatenate([n_items + place[known], first[~known], second[~known], own])
    half = share[~known] / 2
    weights = np.concatenate([share[known], half, half, np.ones(len(alone))])
    return sum_entries(user, rows, weights, n_users, n_items + len(pairs))


def _state_pairs(states: Sparse) -> tuple[Ints, Codes, Codes]:
    """Return all pairs of states of each user: user, first item, second item."""
    lengths = np.diff(states.indptr)
    longest = int(lengths.max(initial=0))
    users, first, second = [np.empty(0, np.int64)], [states.columns[:0]], [states.columns[:0]]
    for a in range(longest):
        for b in range(a + 1, longest):
            have = np.flatnonzero(lengths > b)
            users.append(have)
            first.append(states.columns[states.indptr[have] + a])
            second.append(states.columns[states.indptr[have] + b])
    return np.concatenate(users), np.concatenate(first), np.concatenate(second)
