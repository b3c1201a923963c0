"""Counts for Markov engines of first and second order: which items users buy after others.

    followers(j, i)       users who bought j, and i at a strictly later time
    followers(j1, j2, i)  users who bought both, and i strictly later than their first of each

Each user counts once. One kernel counts both: a *state* (an item or a pair of items) has seeds, the
users who reached it and the time they did, and its followers are the items that these users last
bought after that time. Purchases are sorted by user, latest first: the scan over a user's items
stops at the first one that is not later. Counts below the least support are dropped at once, as
most counts are 1.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel


@helper
def _with_room(array, n):
    """The array, or a copy of twice its length if it has no room for n entries."""
    if n <= len(array):
        return array
    larger = np.empty(max(n, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


@kernel
def count_followers(
    start, stop, n_items, least, seed_indptr, seed_users, seed_times,
    indptr, items, last, weights, lengths,
):  # fmt: skip
    """Return the items that follow each of the states from `start` to `stop`, with enough support.

    Args:
        start: first state.
        stop: one past the last.
        n_items: number of items.
        least: the least number of users for a follower to be kept.
        seed_indptr: start of each state's seeds.
        seed_users: users who reached the state.
        seed_times: when they reached it.
        indptr: start of each user's purchases, latest first.
        items: items of the purchases, each once per user.
        last: when the user last bought the item.
        weights: weights of the purchases.
        lengths: number of followers of each state; filled.

    Returns:
        The followers of one state after the other (in no order within a state), and the sums of
        their weights.
    """
    counts = np.zeros(n_items, np.int32)
    sums = np.zeros(n_items)
    counted = np.empty(n_items, np.int32)
    out_items = np.empty(1024, np.int32)
    out_sums = np.empty(1024)
    n = 0
    for state in range(start, stop):
        first = seed_indptr[state]
        end = seed_indptr[state + 1]
        if end - first < least:
            continue
        n_counted = 0
        for s in range(first, end):
            after = seed_times[s]
            for e in range(indptr[seed_users[s]], indptr[seed_users[s] + 1]):
                if last[e] <= after:
                    break
                item = items[e]
                if counts[item] == 0:
                    counted[n_counted] = item
                    n_counted += 1
                counts[item] += 1
                sums[item] += weights[e]
        before = n
        out_items = _with_room(out_items, n + n_counted)
        out_sums = _with_room(out_sums, n + n_counted)
        for item in counted[:n_counted]:
            if counts[item] >= least:
                out_items[n] = item
                out_sums[n] = sums[item]
                n += 1
            counts[item] = 0
            sums[item] = 0.0
        lengths[state] = n - before
    return out_items[:n].copy(), out_sums[:n].copy()


@kernel
def seed_pairs(
    start, stop, left, right, seed_indptr, seed_users, seed_times, pair_indptr, pair_users,
    pair_times,
):  # fmt: skip
    """Write the seeds of pairs of items: users who bought both, and when they first had.

    Args:
        start: first pair.
        stop: one past the last.
        left: first item of each pair.
        right: second item of each pair.
        seed_indptr: start of each item's buyers.
        seed_users: buyers, ascending for each item.
        seed_times: when they first bought the item.
        pair_indptr: start of each pair's seeds.
        pair_users: users who bought both; filled.
        pair_times: the later of the two first times; filled.
    """
    for pair in range(start, stop):
        out = pair_indptr[pair]
        a, a_end = seed_indptr[left[pair]], seed_indptr[left[pair] + 1]
        b, b_end = seed_indptr[right[pair]], seed_indptr[right[pair] + 1]
        while a < a_end and b < b_end:
            user, other = seed_users[a], seed_users[b]
            if user == other:
                pair_users[out] = user
                pair_times[out] = max(seed_times[a], seed_times[b])
                out += 1
            a += user <= other
            b += other <= user
