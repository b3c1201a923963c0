"""What each user bought before an instant: by item, how often, when last, and how much of late.

Purchases of one item on one day count once. Days are numbered backwards from the instant: 0 are the
24 hours before it, so the age of a purchase in days is its day + 1.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import kernel
from trimtab.kernels.short_sorts import STACK, sort_curve

DAYS = 1 << 20  # numbers of days in a key
FADING_DAYS = 30.0  # a purchase this old counts 1/e of a new one


@kernel
def group_purchases(users, items, days, counts, starts, keys, grouped_counts):
    """Group purchases by user, as keys that sort by item and then by day.

    Args:
        users: user of each purchase.
        items: item of each purchase.
        days: day of each purchase, from 0; later ones are capped.
        counts: number of days that each purchase stands for.
        starts: index of the first purchase of each user; advanced.
        keys: filled.
        grouped_counts: filled.
    """
    for row in range(len(users)):
        place = starts[users[row]]
        starts[users[row]] = place + 1
        keys[place] = np.int64(items[row]) * DAYS + min(days[row], DAYS - 1)
        grouped_counts[place] = counts[row]


@kernel
def sum_purchases(start, stop, indptr, keys, counts, lengths, items, times, ages, recent):
    """Sum the purchases of each item by a range of users.

    Args:
        start: first user.
        stop: one past the last.
        indptr: start of each user's purchases, and of the user's items in the results.
        keys: from `group_purchases`; sorted here.
        counts: of the keys; sorted with them.
        lengths: number of items of each user; filled.
        items: filled, ascending for each user.
        times: days on which the user bought the item; filled.
        ages: days since the last purchase, from 1; filled.
        recent: `times` with older purchases counting less; filled.
    """
    stack = np.empty(STACK, np.int64)
    for user in range(start, stop):
        first = indptr[user]
        n = indptr[user + 1] - first
        own = keys[first : first + n]
        sort_curve(own, counts[first : first + n], n, stack)
        out = first - 1
        row = 0
        while row < n:
            key = own[row]
            count = counts[first + row]
            row += 1
            while row < n and own[row] == key:
                count = max(count, counts[first + row])
                row += 1
            item = key // DAYS
            age = key - item * DAYS + 1
            if out < first or items[out] != item:
                out += 1
                items[out] = item
                times[out] = 0.0
                ages[out] = age
                recent[out] = 0.0
            times[out] += count
            recent[out] += count * np.exp(-age / FADING_DAYS)
        lengths[user] = out + 1 - first
