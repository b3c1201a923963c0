"""What engines count, and the lists that they make: followers, mixtures of rows, factors."""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.ranking import insert_in_top_k

BLOCK = 512  # items; their scores fit into the L1 cache
TILE = 64  # units per pass over a block, while its factors are in the L2 cache


# Followers ----------------------------------------------------------------------------------------
#
# Counts for Markov engines: which items users buy after others.
#
#     followers(j, i)       users who bought j, and i at a strictly later time
#
# Each user counts once. A *state*, an item, has seeds: the users who bought it and when they first
# did. Its followers are the items that these users last bought after that time. Purchases are
# sorted by user, latest first: the scan over a user's items stops at the first one that is not
# later. Counts below the least support are dropped at once, as most counts are 1.


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
        seed_users: users who bought the item.
        seed_times: when they first did.
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


# Mixtures -----------------------------------------------------------------------------------------
#
# Lists from mixtures: a unit's scores are a weighted sum of sparse rows of item scores.
#
#     score(u, i) = sum over s of weight(u, s) * value(row s, i)
#
# A row holds, for example, what is likely after an item or in a category; the caller says which
# rows a unit mixes. Sums are taken in the order of the rows, so lists do not depend on other units.


@kernel
def mix_rows(
    start, stop, n, n_items, indptr, rows, weights, row_indptr, row_items, row_values,
    out_items, out_scores, lengths,
):  # fmt: skip
    """Write each unit's n best items with scores above 0 at unit * n.

    Args:
        start: first unit.
        stop: one past the last.
        n: slots of a list.
        n_items: number of items.
        indptr: start of each unit's mixture.
        rows: rows of the mixtures.
        weights: weights of the rows.
        row_indptr: start of each row's entries.
        row_items: items of the entries.
        row_values: values of the entries, 0 or more.
        out_items: items of the lists; filled.
        out_scores: scores of the lists; filled.
        lengths: slots used by each unit; filled.
    """
    sums = np.zeros(n_items)
    for unit in range(start, stop):
        for s in range(indptr[unit], indptr[unit + 1]):
            for e in range(row_indptr[rows[s]], row_indptr[rows[s] + 1]):
                sums[row_items[e]] += weights[s] * row_values[e]
        length = 0
        lowest = 0.0
        for s in range(indptr[unit], indptr[unit + 1]):
            for e in range(row_indptr[rows[s]], row_indptr[rows[s] + 1]):
                item = row_items[e]
                score = sums[item]
                sums[item] = 0.0
                if score >= lowest and score > 0.0:
                    length = insert_in_top_k(
                        out_items, out_scores, unit * n, length, n, score, item
                    )
                    if length == n:
                        lowest = out_scores[unit * n + n - 1]
        lengths[unit] = length


# Factors ------------------------------------------------------------------------------------------
#
# Lists from factors: a unit's score of an item is the dot product of their factors.
#
# score(u, i) = sum over f of unit_factor(u, f) * item_factor(i, f)


@helper
def _score_block(unit, block, units, blocks, scores):
    """Write a unit's scores of a block of items; four factors at a time spare memory traffic."""
    size = len(scores)
    scores[:] = 0.0
    n_factors = units.shape[1]
    whole = n_factors - n_factors % 4
    for f in range(0, whole, 4):
        a, b, c, d = units[unit, f], units[unit, f + 1], units[unit, f + 2], units[unit, f + 3]
        for x in range(size):
            scores[x] += (a * blocks[block, f, x] + b * blocks[block, f + 1, x]) + (
                c * blocks[block, f + 2, x] + d * blocks[block, f + 3, x]
            )
    for f in range(whole, n_factors):
        a = units[unit, f]
        for x in range(size):
            scores[x] += a * blocks[block, f, x]


@kernel
def rank_factors(
    start, stop, n, n_items, above, limit, units, blocks, hidden_indptr, hidden,
    out_items, out_scores, lengths,
):  # fmt: skip
    """Write each unit's n best items at unit * n, in the precision of the factors.

    Unlike in a matrix product, a unit's scores do not depend on the other units in the range.

    Args:
        start: first unit.
        stop: one past the last.
        n: slots of a list.
        n_items: number of items, without the padding of the last block.
        above: only scores above this are listed.
        limit: items with |score| >= limit are left out.
        units: factors of units, by [unit, factor].
        blocks: factors of items, by [block, factor, item in block], padded.
        hidden_indptr: start of each unit's hidden items.
        hidden: items that a unit must not get, ascending for each unit.
        out_items: items of the lists; filled.
        out_scores: scores of the lists; filled.
        lengths: slots used by each unit; filled.
    """
    scores = np.empty(BLOCK, blocks.dtype)
    next_hidden = np.empty(TILE, np.int64)  # by unit of the tile
    for base in range(start, stop, TILE):
        end = min(base + TILE, stop)
        lengths[base:end] = 0
        next_hidden[: end - base] = hidden_indptr[base:end]
        for block in range(blocks.shape[0]):
            first = block * BLOCK
            for unit in range(base, end):
                _score_block(unit, block, units, blocks, scores)
                h = next_hidden[unit - base]
                while h < hidden_indptr[unit + 1] and hidden[h] < first + BLOCK:
                    scores[hidden[h] - first] = np.nan
                    h += 1
                next_hidden[unit - base] = h
                length = lengths[unit]
                lowest = out_scores[unit * n + n - 1] if length == n else above
                for x in range(min(BLOCK, n_items - first)):
                    # Items come in ascending order, so by the tie rule an equal score comes later.
                    if scores[x] > lowest and abs(scores[x]) < limit:
                        length = insert_in_top_k(
                            out_items, out_scores, unit * n, length, n, scores[x], first + x
                        )
                        lowest = out_scores[unit * n + n - 1] if length == n else above
                lengths[unit] = length
