"""Markov: recommend what others bought after the user's last items, of first or second order.

    P(i | j)      = users who bought j, and i at a strictly later time / users who bought j
    P(i | j1, j2) = users who bought both, and i strictly later than both / users who bought both

A user's states are the last ten distinct items bought. First order: the score is the mean of
P(i | j) over the states j. Second order: the mean over all pairs of states; a pair with too little
support is replaced by the mean of its two items, so a user without supported pairs gets the
first-order score.

With `decay_days` each user counts with the weight of the last purchase of i (numerator) or j
(denominator) instead of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints, Lists, pointers
from trimtab.checks import require_whole
from trimtab.engines.base import (
    Engine,
    Events,
    Purchases,
    Sparse,
    gather_purchases,
    mix_lists,
    sum_entries,
)
from trimtab.tables.vocabulary import Vocabulary
from trimtab.threads import run_ranges

_ALWAYS = np.iinfo(np.int64).min  # a time before all purchases
_N_CHUNKS = 64  # chunks of states, so threads finish together
_N_STATES = 10  # last distinct items of a user


class _Model(NamedTuple):
    rows: Sparse  # shares of followers of each item, then of each pair
    states: Sparse  # items of each user, with weight 1
    pairs: Ints | None  # first code * number of items + second, ascending; None for first order


@dataclass(kw_only=True)
class Markov(Engine):
    """Engine from the order of purchases.

    Args:
        order: 1 or 2.
        min_support: minimum users for a follower to count.
        pair_support: minimum users who bought both items of a pair (second order).
        max_pairs: maximum pairs to keep, those with the most users (second order).
    """

    order: int = 1
    min_support: int = 3
    pair_support: int = 20
    max_pairs: int = 20_000

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("order", self.order, 1, 2)
        for name in ("min_support", "pair_support", "max_pairs"):
            require_whole(name, getattr(self, name), 1)

    def _learn(self, events: Events, items: Vocabulary) -> _Model:
        bought = gather_last(events.since(self.window_days), self.decay_days)
        buyers = find_buyers(bought)
        rows = count_followers(buyers, bought, self.min_support)
        totals = np.bincount(bought.items, bought.weights, minlength=bought.n_items)
        pairs = None
        if self.order == 2:
            pairs, both = self._choose_pairs(buyers, bought)
            more = count_followers(both, bought, self.min_support)
            indptr = np.concatenate([rows.indptr, more.indptr[1:] + rows.indptr[-1]])
            columns = np.concatenate([rows.columns, more.columns])
            rows = Sparse(indptr, columns, np.concatenate([rows.values, more.values]))
            totals = np.append(totals, _pair_totals(both, pairs, bought))
        factors = np.divide(1.0, totals, out=np.zeros(len(totals)), where=totals > 0)
        rows = rows._replace(values=rows.values * np.repeat(factors, np.diff(rows.indptr)))
        profiles = bought if self.window_days is None else gather_last(events, None)
        return _Model(rows, _last_states(profiles), pairs)

    def _choose_pairs(self, buyers: Sparse, bought: Purchases) -> tuple[Ints, Sparse]:
        """Return the pairs of items with the most common buyers, ascending, and these buyers."""
        from trimtab.kernels.engines import seed_pairs

        plain = bought._replace(weights=np.ones(len(bought.items)))
        ever = buyers._replace(values=np.full(len(buyers.values), _ALWAYS))
        found = count_followers(ever, plain, self.pair_support)
        left = np.repeat(np.arange(bought.n_items), np.diff(found.indptr))
        upper = found.columns > left
        keys = left[upper] * bought.n_items + found.columns[upper]
        n_both = found.values[upper].astype(np.int64)
        best = np.lexsort((keys, -n_both))[: self.max_pairs]
        best = best[np.argsort(keys[best])]
        indptr = np.concatenate([[0], np.cumsum(n_both[best])])
        both = Sparse(indptr, np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int64))
        items = [code.astype(np.int32) for code in np.divmod(keys[best], bought.n_items)]
        seed_pairs(0, len(best), *items, *buyers, *both)
        return keys[best], both

    def _score(self, model: _Model, users: Codes, n: int) -> Lists:
        states = model.states.take(users)
        n_items = len(model.rows.indptr) - 1 - (0 if model.pairs is None else len(model.pairs))
        if model.pairs is None:
            lengths = np.diff(states.indptr)
            weights = states._replace(values=states.values / np.repeat(lengths, lengths))
        else:
            weights = _weigh_pairs(states, model.pairs, n_items)
        return mix_lists(weights, model.rows, n_items, n)


def gather_last(events: Events, decay_days: float | None) -> Purchases:
    """Return the distinct purchases of each user, with the weight of the last of each."""
    bought = gather_purchases(events, np.ones(len(events.times)))
    return bought._replace(weights=events._replace(times=bought.last).weights(decay_days))


def find_buyers(bought: Purchases) -> Sparse:
    """Return the buyers of each item, ascending, and when they first bought it."""
    order = np.argsort(bought.items, kind="stable")
    indptr = pointers(bought.items, bought.n_items)
    return Sparse(indptr, bought.users[order], bought.first[order])


def count_followers(states: Sparse, bought: Purchases, least: int) -> Sparse:
    """Return the weights of users who bought an item after reaching a state, states by items.

    Args:
        states: users who reached each state, and when they first did.
        bought: all purchases.
        least: items that fewer users bought then are left out.
    """
    from trimtab.kernels.compiling import compile_notice
    from trimtab.kernels.engines import count_followers as count

    order = _latest_first(bought)
    often = np.bincount(bought.items, minlength=bought.n_items) >= least
    order = order[often[bought.items[order]]]
    indptr = pointers(bought.users[order], bought.n_users)
    baskets = (indptr, bought.items[order], bought.last[order], bought.weights[order])
    n_states = len(states.indptr) - 1
    lengths = np.zeros(n_states, np.int64)
    arrays: tuple[Any, ...] = (bought.n_items, least, *states, *baskets, lengths)
    with compile_notice():
        parts = run_ranges(count, n_states, *arrays, n_ranges=_N_CHUNKS)
    items, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Sparse(np.concatenate([[0], np.cumsum(lengths)]), items, sums)


def _latest_first(bought: Purchases) -> Ints:
    """Return the order of purchases by user, latest first, then by item."""
    return np.lexsort((bought.items, -bought.last, bought.users))


def _pair_totals(both: Sparse, pairs: Ints, bought: Purchases) -> Floats:
    """Return the summed weights of each pair's buyers; the later of the two purchases counts."""
    keys = bought.users.astype(np.int64) * bought.n_items + bought.items
    by_pair = np.repeat(np.arange(len(pairs)), np.diff(both.indptr))
    users = both.columns.astype(np.int64) * bought.n_items
    weights = [
        bought.weights[np.searchsorted(keys, users + item[by_pair])]
        for item in np.divmod(pairs, bought.n_items)
    ]
    return np.bincount(by_pair, np.maximum(*weights), minlength=len(pairs)).astype(np.float64)


def _last_states(bought: Purchases) -> Sparse:
    """Return the last distinct items of each user, latest first."""
    order = _latest_first(bought)
    indptr = pointers(bought.users, bought.n_users)
    place = np.arange(len(order)) - np.repeat(indptr[:-1], np.diff(indptr))
    order = order[place < _N_STATES]
    kept = pointers(bought.users[order], bought.n_users)
    return Sparse(kept, bought.items[order], np.ones(len(order)))


def _weigh_pairs(states: Sparse, pairs: Ints, n_items: int) -> Sparse:
    """Return weights of items and pairs that give each pair of a user's states the same weight."""
    left, right = np.triu_indices(_N_STATES, 1)
    lengths = np.diff(states.indptr)
    users, pair = np.nonzero(lengths[:, None] > right)
    first, second = (states.columns[states.indptr[users] + side[pair]] for side in (left, right))
    key = np.minimum(first, second).astype(np.int64) * n_items + np.maximum(first, second)
    known = np.isin(key, pairs)
    share = 1.0 / np.bincount(users, minlength=len(lengths))[users]
    half, alone = share[~known] / 2, np.flatnonzero(lengths == 1)
    own = states.columns[states.indptr[alone]]
    place = n_items + np.searchsorted(pairs, key[known])
    user = np.concatenate([users[known], users[~known], users[~known], alone])
    rows = np.concatenate([place, first[~known], second[~known], own])
    weights = np.concatenate([share[known], half, half, np.ones(len(alone))])
    return sum_entries(user, rows, weights, len(lengths), n_items + len(pairs))
