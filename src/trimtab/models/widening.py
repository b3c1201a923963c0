"""What each user bought before an instant, and lists with added items and these purchases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, entries_of
from trimtab.kernels.list_sources import LISTED, OWN, TRENDING
from trimtab.tables.times import DAY
from trimtab.threads import run_ranges

SOURCES = {"trending": TRENDING, "own": OWN}
TERMS = ("bought_before", "times_bought", "days_since", "bought_lately")
MOST_ADDED = 30  # items from each source
WIDEN = ("any", "listed", "none")  # what may be added to lists


class Purchases(NamedTuple):
    """The items that each user bought, ascending; one row per user.

    The items of user u are at indptr[u] to indptr[u] + lengths[u]. Purchases of one item on one day
    count once.
    """

    indptr: Ints
    lengths: Ints
    items: Codes
    times: Floats  # days on which the user bought the item
    ages: Floats  # days since the last time, from 1
    recent: Floats  # `times` with older purchases counting less


def days_before(instant: int, times: Ints) -> Ints:
    """Days from each time to a later instant; 0 for the 24 hours before it."""
    days: Ints = (instant - 1 - times) // DAY
    return days


def sum_purchases(
    users: Codes, items: Codes, days: Ints, n_users: int, counts: Floats | None = None
) -> Purchases:
    """What each user bought, from single purchases in any order.

    Args:
        users: of purchases, from 0 to n_users - 1.
        items: of purchases.
        days: before the instant; from 0.
        n_users: number of users.
        counts: number of days that each purchase stands for; 1 each if None.
    """
    from trimtab.kernels import user_purchases as kernels

    indptr = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=n_users))])
    n = len(users)
    keys, counted = np.empty(n, np.int64), np.empty(n)
    each = np.ones(n) if counts is None else counts
    kernels.group_purchases(users, items, days, each, indptr[:-1].copy(), keys, counted)
    lengths = np.empty(n_users, np.int64)
    columns = np.empty(n, np.int32), np.empty(n), np.empty(n), np.empty(n)
    run_ranges(kernels.sum_purchases, n_users, indptr, keys, counted, lengths, *columns)
    return Purchases(indptr, lengths, *columns)


class WiderLists(NamedTuple):
    """Lists with added items, which have the score of the list's last item."""

    lists: Lists
    sources: NDArray[np.int8]  # by entry
    terms: Floats  # by [entry, term]; see TERMS

    def take(self, units: Ints) -> WiderLists:
        """The lists of some units."""
        indptr, entries = entries_of(self.lists.indptr, units)
        lists = Lists(indptr, self.lists.items[entries], self.lists.scores[entries])
        return WiderLists(lists, self.sources[entries], self.terms[entries])

    def only(self, sources: int) -> tuple[WiderLists, Flags]:
        """These lists with additions from some sources, and the entries that are left."""
        kept: Flags = (self.sources == LISTED) | ((self.sources & sources) > 0)
        chosen = self._choose(kept)
        return chosen._replace(sources=chosen.sources & np.int8(sources)), kept

    def without_repeats(self) -> WiderLists:
        """These lists without added items that the user already bought."""
        return self._choose((self.sources == LISTED) | (self.terms[:, 0] == 0))

    def _choose(self, kept: Flags) -> WiderLists:
        indptr = np.concatenate([[0], np.cumsum(kept)])[self.lists.indptr]
        lists = Lists(indptr, self.lists.items[kept], self.lists.scores[kept])
        return WiderLists(lists, self.sources[kept], self.terms[kept])

    def added(self, sources: int) -> Floats:
        """Whether an entry was added, by [entry, source].

        What is both trending and the user's own counts as the user's own.
        """
        flags = {TRENDING: self.sources == TRENDING, OWN: (self.sources & OWN) > 0}
        added = np.stack([*flags.values()], axis=1).astype(np.float64)
        return added[:, [bool(source & sources) for source in flags]]


def widen(
    lists: Lists, users: Codes, purchases: Purchases, may_add: Flags, trending: Codes, sources: int
) -> WiderLists:
    """Lists with what trends and with what the user bought most and last.

    Args:
        lists: scored items by unit.
        users: row of each unit's user in the purchases; -1 for none.
        purchases: by user.
        may_add: by item: whether it may be added.
        trending: items to add, best first.
        sources: to add from: TRENDING, OWN, their sum, or 0.
    """
    from trimtab.kernels.user_purchases import N_TERMS, widen_lists

    trending = trending[:MOST_ADDED] if sources & TRENDING else trending[:0]
    most_own = MOST_ADDED if sources & OWN else 0
    room = np.diff(lists.indptr) + len(trending) + most_own
    indptr = np.concatenate([[0], np.cumsum(room)])
    n = int(indptr[-1])
    items, scores = np.empty(n, np.int32), np.empty(n)
    found, terms = np.empty(n, np.int8), np.empty((n, N_TERMS))
    lengths = np.empty(lists.n_units, np.int64)
    run_ranges(
        widen_lists, lists.n_units, *lists, users, *purchases, may_add, trending, most_own, indptr,
        items, scores, found, terms, lengths,
    )  # fmt: skip
    filled = np.arange(n) < np.repeat(indptr[:-1] + lengths, room)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return WiderLists(Lists(ends, items[filled], scores[filled]), found[filled], terms[filled])
