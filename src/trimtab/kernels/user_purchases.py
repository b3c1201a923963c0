"""What each user bought before an instant, and lists with what the engine did not list.

Purchases are summed by item: how often, when last, and how much of late. Purchases of one item in
one tick (a day, or less) count once. Ticks are numbered backwards from the instant: 0 ends with it,
so the age of a purchase in ticks is its tick + 1.

To the list of a user are added the items that trend, and the items that the user bought most and
last. Added items get the score of the list's last item. Each entry gets four terms, all 0 for what
the user never bought:

    bought before    1
    times            log of the number of ticks in which the user bought it
    time since       log of the ticks since the last time
    lately           log of 1 + purchases, where older ones count less
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import LISTED, OWN, TRENDING
from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.short_arrays import STACK, sort_curve

TICKS = 1 << 20  # numbers of ticks in a key
N_TERMS = 4
_BY_TIMES = 1e-3  # weight of the number of purchases, next to the recent ones


@kernel
def group_purchases(users, items, ticks, counts, starts, keys, grouped_counts):
    """Group purchases by user, as keys that sort by item and then by tick.

    Args:
        users: user of each purchase.
        items: item of each purchase.
        ticks: tick of each purchase, from 0; later ones are capped.
        counts: number of ticks that each purchase stands for.
        starts: index of the first purchase of each user; advanced.
        keys: filled.
        grouped_counts: filled.
    """
    for row in range(len(users)):
        place = starts[users[row]]
        starts[users[row]] = place + 1
        keys[place] = np.int64(items[row]) * TICKS + min(ticks[row], TICKS - 1)
        grouped_counts[place] = counts[row]


@kernel
def sum_purchases(start, stop, indptr, keys, counts, fading, lengths, items, times, ages, recent):
    """Sum the purchases of each item by a range of users.

    Args:
        start: first user.
        stop: one past the last.
        indptr: start of each user's purchases, and of the user's items in the results.
        keys: from `group_purchases`; sorted here.
        counts: of the keys; sorted with them.
        fading: ticks; a purchase this old counts 1/e of a new one.
        lengths: number of items of each user; filled.
        items: filled, ascending for each user.
        times: ticks in which the user bought the item; filled.
        ages: ticks since the last purchase, from 1; filled.
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
            item = key // TICKS
            age = key - item * TICKS + 1
            if out < first or items[out] != item:
                out += 1
                items[out] = item
                times[out] = 0.0
                ages[out] = age
                recent[out] = 0.0
            times[out] += count
            recent[out] += count * np.exp(-age / fading)
        lengths[user] = out + 1 - first


@helper
def _choose_own(first, stop, items, times, recent, may_add, most, places, values):
    """Write the places of the items bought most and last, best first; returns their number."""
    n = 0
    for place in range(first, stop):
        if most == 0 or not may_add[items[place]]:
            continue
        value = recent[place] + _BY_TIMES * times[place]
        if n == most and value <= values[n - 1]:
            continue
        at = n if n < most else n - 1
        while at > 0 and values[at - 1] < value:
            values[at] = values[at - 1]
            places[at] = places[at - 1]
            at -= 1
        values[at] = value
        places[at] = place
        n = min(n + 1, most)
    return n


@kernel
def widen_lists(
    start, stop, indptr, items, scores, users, own_indptr, own_lengths, own_items, own_times,
    own_ages, own_recent, may_add, trending, most_own, out_indptr, out_items, out_scores,
    out_sources, out_terms, out_lengths,
):  # fmt: skip
    """Write the wider list of each unit of a range, and the terms of its entries.

    Args:
        start: first unit.
        stop: one past the last.
        indptr: start of each unit's list.
        items: items of the lists.
        scores: scores of the lists.
        users: user of each unit, a row of what users bought; -1 for none.
        own_indptr: start of each user's items.
        own_lengths: number of each user's items.
        own_items: what the users bought.
        own_times: ticks in which they bought it.
        own_ages: ticks since the last time.
        own_recent: `own_times` with older purchases counting less.
        may_add: whether an item may be added, by item.
        trending: items to add to every list.
        most_own: number of the user's own items to add at most.
        out_indptr: start of each unit's wider list; there must be room for all additions.
        out_items: filled.
        out_scores: filled.
        out_sources: LISTED, or the sources of what is added; filled.
        out_terms: by [entry, term]; filled.
        out_lengths: length of each wider list; filled. An empty list stays empty.
    """
    entry_of = np.full(len(may_add), -1, np.int64)
    places = np.empty(max(most_own, 1), np.int64)
    values = np.empty(max(most_own, 1))
    for unit in range(start, stop):
        first = out_indptr[unit]
        end = first
        last = np.inf
        for e in range(indptr[unit], indptr[unit + 1]):
            out_items[end] = items[e]
            out_scores[end] = scores[e]
            out_sources[end] = LISTED
            entry_of[items[e]] = end
            last = min(last, scores[e])
            end += 1
        listed_end = end
        own_first = 0
        own_stop = 0
        if users[unit] >= 0:
            own_first = own_indptr[users[unit]]
            own_stop = own_first + own_lengths[users[unit]]
        if listed_end > first:
            for t in range(len(trending)):
                item = trending[t]
                if may_add[item] and entry_of[item] < 0:
                    out_items[end] = item
                    out_scores[end] = last
                    out_sources[end] = TRENDING
                    entry_of[item] = end
                    end += 1
            n_own = _choose_own(
                own_first, own_stop, own_items, own_times, own_recent, may_add, most_own, places,
                values,
            )  # fmt: skip
            for o in range(n_own):
                item = own_items[places[o]]
                if entry_of[item] < 0:
                    out_items[end] = item
                    out_scores[end] = last
                    out_sources[end] = OWN
                    entry_of[item] = end
                    end += 1
                elif entry_of[item] >= listed_end:
                    out_sources[entry_of[item]] = TRENDING + OWN
        for e in range(first, end):
            for term in range(N_TERMS):
                out_terms[e, term] = 0.0
        for place in range(own_first, own_stop):
            e = entry_of[own_items[place]]
            if e >= 0:
                out_terms[e, 0] = 1.0
                out_terms[e, 1] = np.log(own_times[place])
                out_terms[e, 2] = np.log(own_ages[place])
                out_terms[e, 3] = np.log(1.0 + own_recent[place])
        for e in range(first, end):
            entry_of[out_items[e]] = -1
        out_lengths[unit] = end - first
