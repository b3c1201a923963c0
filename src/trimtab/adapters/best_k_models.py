"""Lists of a library that only answers "the best k of these users"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trimtab.adapters.numbered_lists import Found
from trimtab.arrays import Flags, Ints, Lists
from trimtab.tables.id_labels import Labels

Ask = Callable[[Ints, int], Found]


@dataclass(frozen=True)
class Asking:
    """A source that asks for one place more, and on, where scores tie across the n-th place.

    A library cuts its lists between equal scores in an order of its own; asked until the scores
    fall, it gives all that tie, and the smaller ids are taken.
    """

    ask: Ask  # numbers of users, and k, to at most k items each
    n_users: int
    n_items: int
    at_once: int = 4096

    def lists(self, rows: Ints, n: int, items: Labels) -> Lists:
        """The n best items of each row, as codes."""
        settled, waiting = [], np.arange(len(rows))
        k = min(n + 1, self.n_items)
        while len(waiting):
            found = self.ask(rows[waiting], k).coded(items)
            ranked = found.ranked(len(waiting), k, self.n_items)
            done = _settled(ranked, n, k) | (k == self.n_items)
            units = np.repeat(np.arange(len(waiting)), np.diff(ranked.indptr))
            keep = done[units]
            settled.append(Found(waiting[units[keep]], ranked.items[keep], ranked.scores[keep]))
            waiting = waiting[~done]
            k = min(2 * k, self.n_items)
        units, codes, scores = (np.concatenate(parts) for parts in zip(*settled, strict=True))
        return Found(units.astype(np.int32), codes, scores).ranked(len(rows), n, self.n_items)


def _settled(ranked: Lists, n: int, k: int) -> Flags:
    """Whether the n-th score is above the k-th, or there is no k-th."""
    full = np.diff(ranked.indptr) == k
    settled: Flags = ~full
    starts = ranked.indptr[:-1][full]
    settled[full] = ranked.scores[starts + n - 1] > ranked.scores[starts + k - 1]
    return settled
