"""Lists from a library that only returns the best k items of given users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trimtab.adapters.numbered_ids import NumberedIds
from trimtab.adapters.numbered_lists import ScoredRows
from trimtab.arrays import Flags, Ints, Lists

BestKQuery = Callable[[Ints, int], ScoredRows]


@dataclass(frozen=True)
class BestKSource:
    """A source that asks for more items while scores tie at the n-th slot.

    A library orders equal scores in its own way. Asking until the score drops returns all tied
    items, and the smaller ids are kept.
    """

    query: BestKQuery  # user numbers and k to at most k items per user
    n_users: int
    n_items: int
    users_per_block: int = 4096

    def lists(self, rows: Ints, n: int, items: NumberedIds) -> Lists:
        """Return the n best items of each user, as codes."""
        settled, waiting = [], np.arange(len(rows))
        k = min(n + 1, self.n_items)
        while len(waiting):
            found = self.query(rows[waiting], k).with_codes(items)
            ranked = found.rank(len(waiting), k, self.n_items)
            done = _is_settled(ranked, n, k) | (k == self.n_items)
            units = np.repeat(np.arange(len(waiting)), np.diff(ranked.indptr))
            keep = done[units]
            settled.append(
                ScoredRows(waiting[units[keep]], ranked.items[keep], ranked.scores[keep])
            )
            waiting = waiting[~done]
            k = min(2 * k, self.n_items)
        units, codes, scores = (np.concatenate(parts) for parts in zip(*settled, strict=True))
        return ScoredRows(units.astype(np.int32), codes, scores).rank(len(rows), n, self.n_items)


def _is_settled(ranked: Lists, n: int, k: int) -> Flags:
    """Return whether the n-th score is above the k-th, or there is no k-th."""
    full = np.diff(ranked.indptr) == k
    settled: Flags = ~full
    starts = ranked.indptr[:-1][full]
    settled[full] = ranked.scores[starts + n - 1] > ranked.scores[starts + k - 1]
    return settled
