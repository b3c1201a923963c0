"""Who bought what after what: counts for Markov engines of first and second order.

    followers(j, i)       users who bought j, and i at a strictly later time
    followers(j1, j2, i)  users who bought both, and i strictly later than their first of each

Each user counts once. One kernel counts them all: a *state* (an item, or a pair of items) has
seeds, the users who reached it and since when, and a follower is what a seed's user last bought
after that. Purchases come by user, latest first, so that the scan over a user's items stops at the
first that is not later. Counts below the least support are dropped at once: most occur once.
Items are best numbered by how often they are bought, so that the counters in use share cache lines.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel


@helper
def _grown(array, length):
    larger = np.empty(2 * length, array.dtype)
    for e in range(length):
        larger[e] = array[e]
    return larger


@helper
def _count_later(
    first, end, seed_users, seed_times, indptr, items, last, weights, counts, sums, touched
):
    """Count what the seeds' users bought after; returns how many items `touched` now lists."""
    n_items = len(counts)
    work = 0
    for s in range(first, end):
        work += indptr[seed_users[s] + 1] - indptr[seed_users[s]]
    for s in range(first, end):
        after = seed_times[s]
        for e in range(indptr[seed_users[s]], indptr[seed_users[s] + 1]):
            if last[e] <= after:
                break
            counts[items[e]] += 1
            if len(weights) > 0:
                sums[items[e]] += weights[e]
    n_touched = 0
    if work >= n_items:  # looking at every counter is cheaper than noting which are in use
        for item in range(n_items):
            if counts[item] > 0:
                touched[n_touched] = item
                n_touched += 1
        return n_touched
    for s in range(first, end):
        after = seed_times[s]
        for e in range(indptr[seed_users[s]], indptr[seed_users[s] + 1]):
            if last[e] <= after:
                break
            item = items[e]
            if counts[item] > 0:  # marked by its sign until all are noted
                counts[item] = -counts[item]
                touched[n_touched] = item
                n_touched += 1
    for t in range(n_touched):
        counts[touched[t]] = -counts[touched[t]]
    return n_touched


@kernel
def count_followers(
    start, stop, n_items, least, seed_indptr, seed_users, seed_times,
    indptr, items, last, weights, lengths,
):  # fmt: skip
    """Items that follow each of the states from `start` to `stop`, with enough support.

    Args:
        start: first state.
        stop: one past the last.
        n_items: number of items.
        least: fewest users that make a follower worth keeping.
        seed_indptr: seeds of each state.
        seed_users: users who reached the state.
        seed_times: since when.
        indptr: purchases by user, latest first.
        items: their items, each once a user.
        last: when each was last bought.
        weights: what each counts; empty: 1, and no sums are taken.
        lengths: filled with the number of followers of each state.

    Returns:
        Followers of all the states one after the other (each state's in no order), how many
        users they have, and the sums of their weights, if there are any.
    """
    weighted = len(weights) > 0
    counts = np.empty(n_items, np.int32)
    sums = np.empty(n_items if weighted else 0)
    for item in range(n_items):
        counts[item] = 0
        if weighted:
            sums[item] = 0.0
    touched = np.empty(n_items, np.int32)
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
        n_touched = _count_later(
            first, end, seed_users, seed_times, indptr, items, last, weights, counts, sums, touched
        )
        before = n
        for t in range(n_touched):
            item = touched[t]
            if counts[item] >= least:
                if n == room:
                    out_items = _grown(out_items, room)
                    out_counts = _grown(out_counts, room)
                    if weighted:
                        out_sums = _grown(out_sums, room)
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
    """Write the seeds of pairs of items: users who bought both, and since when.

    Args:
        start: first pair.
        stop: one past the last.
        left: first item of each pair.
        right: second item of each pair.
        seed_indptr: buyers of each item.
        seed_users: the buyers, ascending.
        seed_times: when they first bought it.
        pair_indptr: where each pair's seeds go.
        pair_users: filled with the users.
        pair_times: filled with the later of the two first times.
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
