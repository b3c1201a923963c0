"""Markov: recommend what others bought after the user's last items.

    P(i | j) = users who bought j, and i at a strictly later time / users who bought j

A user's states are the last ten distinct items bought; the score is the mean of P(i | j) over the
states j. With `decay_days` each user counts with the weight of the last purchase of i (numerator)
or j (denominator) instead of 1.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Ints, Lists
from trimtab.checks import require_whole
from trimtab.engines.base import (
    Engine,
    Events,
    Purchases,
    Sparse,
    gather_purchases,
    mix_lists,
    pointers,
)
from trimtab.tables.vocabulary import Vocabulary
from trimtab.threads import ranges, thread_count

_N_CHUNKS = 64  # chunks of items, so threads finish together
_N_STATES = 10  # last distinct items of a user


class _Model(NamedTuple):
    rows: Sparse  # shares of followers of each item
    states: Sparse  # items of each user, with weight 1


@dataclass(kw_only=True)
class Markov(Engine):
    """Engine from the order of purchases.

    Args:
        min_support: minimum users for a follower to count.
    """

    min_support: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("min_support", self.min_support, 1)

    def _learn(self, events: Events, items: Vocabulary) -> _Model:
        bought = gather_last(events.since(self.window_days), self.decay_days)
        rows = count_followers(bought, self.min_support)
        totals = np.bincount(bought.items, bought.weights, minlength=bought.n_items)
        factors = np.divide(1.0, totals, out=np.zeros(len(totals)), where=totals > 0)
        rows = rows._replace(values=rows.values * np.repeat(factors, np.diff(rows.indptr)))
        profiles = bought if self.window_days is None else gather_last(events, None)
        return _Model(rows, _last_states(profiles))

    def _score(self, model: _Model, users: Codes, n: int) -> Lists:
        states = model.states.take(users)
        lengths = np.diff(states.indptr)
        weights = states._replace(values=states.values / np.repeat(lengths, lengths))
        return mix_lists(weights, model.rows, len(model.rows.indptr) - 1, n)


def gather_last(events: Events, decay_days: float | None) -> Purchases:
    """Return the distinct purchases of each user, with the weight of the last of each."""
    bought = gather_purchases(events, np.ones(len(events.times)))
    return bought._replace(weights=events._replace(times=bought.last).weights(decay_days))


def count_followers(bought: Purchases, least: int) -> Sparse:
    """Return the weights of users who bought an item after another, items by items.

    Args:
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
    # The buyers of each item, ascending, and when they first bought it.
    by_item = np.argsort(bought.items, kind="stable")
    starts = pointers(bought.items, bought.n_items)
    buyers = (starts, bought.users[by_item], bought.first[by_item])
    lengths = np.zeros(bought.n_items, np.int64)
    arrays: tuple[Any, ...] = (bought.n_items, least, *buyers, *baskets, lengths)
    with compile_notice():
        count(0, 0, *arrays)
    with ThreadPoolExecutor(thread_count()) as pool:
        jobs = [pool.submit(count, *part, *arrays) for part in ranges(bought.n_items, _N_CHUNKS)]
        parts = [job.result() for job in jobs]
    items, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Sparse(np.concatenate([[0], np.cumsum(lengths)]), items, sums)


def _latest_first(bought: Purchases) -> Ints:
    """Return the order of purchases by user, latest first, then by item."""
    order: Ints = np.lexsort((bought.items, -bought.last, bought.users))
    return order


def _last_states(bought: Purchases) -> Sparse:
    """Return the last distinct items of each user, latest first."""
    order = _latest_first(bought)
    indptr = pointers(bought.users, bought.n_users)
    place = np.arange(len(order)) - np.repeat(indptr[:-1], np.diff(indptr))
    order = order[place < _N_STATES]
    kept = pointers(bought.users[order], bought.n_users)
    return Sparse(kept, bought.items[order], np.ones(len(order)))
