"""What each user bought before an instant, by item."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.tables.times import DAY
from trimtab.threads import run_ranges


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
