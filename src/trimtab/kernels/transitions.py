"""Counts for Markov engines of first and second order: which items users buy after others.

    followers(j, i)       users who bought j, and i at a strictly later time
    followers(j1, j2, i)  users who bought both, and i strictly later than their first of each

Each user counts once. One kernel counts both: a *state* (an item or a pair of items) has seeds, the
users who reached it and the time they did, and its followers are the items that these users last
bought after that time. Purchases are sorted by user, latest first: the scan over a user's items
stops at the first one that is not later. Counts below the least support are dropped at once, as
most counts are 1. Number items by how often they are bought: the counters in use then share cache
lines.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel


@helper
def _grow(array, length):
    """A copy of the array with twice the length."""
    larger = np.empty(2 * length, array.dtype)
    for e in range(length):
        larger[e] = array[e]
    return larger


@helper
def _count_followers_of_state(
    first, end, seed_users, seed_times, indptr, items, last, weights, counts, sums, counted_items
):
    """Count the items that the seeds' users bought later; returns the number of items counted."""
    n_items = len(counts)
    n_purchases = 0
    for s in range(first, end):
        n_purchases += indptr[seed_users[s] + 1] - indptr[seed_users[s]]
    for s in range(first, end):
        after = seed_times[s]
        for e in range(indptr[seed_users[s]], indptr[seed_users[s] + 1]):
            if last[e] <= after:
                break
            counts[items[e]] += 1
            if len(weights) > 0:
                sums[items[e]] += weights[e]
    n_counted = 0
    if n_purchases >= n_items:  # then a pass over all counters is cheaper
        for item in range(n_items):
            if counts[item] > 0:
                counted_items[n_counted] = item
                n_counted += 1
        return n_counted
    for s in range(first, end):
        after = seed_times[s]
        for e in range(indptr[seed_users[s]], indptr[seed_users[s] + 1]):
            if last[e] <= after:
                break
            item = items[e]
            if counts[item] > 0:  # a negative count marks an item already listed
                counts[item] = -counts[item]
                counted_items[n_counted] = item
                n_counted += 1
    for t in range(n_counted):
        counts[counted_items[t]] = -counts[counted_items[t]]
    return n_counted


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
        weights: weights of the purchases; empty for no sums of weights.
        lengths: number of followers of each state; filled.

    Returns:
        The followers of one state after the other (in no order within a state), their numbers of
        users, and the sums of their weights (empty without weights).
    """
    weighted = len(weights) > 0
    counts = np.empty(n_items, np.int32)
    sums = np.empty(n_items if weighted else 0)
    for item in range(n_items):
        counts[item] = 0
        if weighted:
            sums[item] = 0.0
    counted_items = np.empty(n_items, np.int32)
    room = 1024
    out_items = np.empty(room, np.int32)
    out_counts = np.empty(room, np.int32)
    out_sums = np.empty(room if weighted else 0)
    n = 0
    for state in range(start, stop):
        lengths[state] = 0
        first = seed_indptr[state]
        end = seed_indptr[state + 1]
        if end - first < least:
            continue
        n_counted = _count_followers_of_state(
            first,
            end,
            seed_users,
            seed_times,
            indptr,
            items,
            last,
            weights,
            counts,
            sums,
            counted_items,
        )
        before = n
        for t in range(n_counted):
            item = counted_items[t]
            if counts[item] >= least:
                if n == room:
                    out_items = _grow(out_items, room)
                    out_counts = _grow(out_counts, room)
                    if weighted:
                        out_sums = _grow(out_sums, room)
                    room *= 2
                out_items[n] = item
                out_counts[n] = counts[item]
                if weighted:
                    out_sums[n] = sums[item]
                n += 1
            counts[item] = 0
            if weighted:
                sums[item] = 0.0
        lengths[state] = n - before
    n_sums = n if weighted else 0
    return out_items[:n].copy(), out_counts[:n].copy(), out_sums[:n_sums].copy()


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
        a = seed_indptr[left[pair]]
        a_end = seed_indptr[left[pair] + 1]
        b = seed_indptr[right[pair]]
        b_end = seed_indptr[right[pair] + 1]
        while a < a_end and b < b_end:
            if seed_users[a] < seed_users[b]:
                a += 1
            elif seed_users[a] > seed_users[b]:
                b += 1
            else:
                pair_users[out] = seed_users[a]
                pair_times[out] = max(seed_times[a], seed_times[b])
                out += 1
                a += 1
                b += 1
