"""ACC@k, AP@k and NDCG@k of every unit.

For a unit with R bought items and a list with y(p) = 1 if the item at rank p was bought, else 0:

    ACC@k  = sum of y(p) over p = 1..k, / k
    AP@k   = sum of y(p) * (y(1) + ... + y(p)) / p over p = 1..k, / min(k, R)
    NDCG@k = sum of y(p) * gain(p) over p = 1..k, / ideal(min(k, R))

with gain(p) = 1 / log2(1 + p) and ideal(r) = gain(1) + ... + gain(r). In the code p counts from 0.

Each unit is computed by itself, in rank order: any division into ranges gives the same bytes.
Helpers take whole arrays and offsets, because slices share a reference count that threads compete
for (two threads would take as long as one).
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel

# Cost of one insertion or lookup in the hash table, in plain comparisons (measured).
_TABLE_COST = 8
# Knuth's multiplicative hashing: 2^32 over the golden ratio.
_MULTIPLIER = 2654435769


@helper
def table_bits(n):
    """Exponent of the smallest power of two of at least 2 n: a table at most half full."""
    bits = 1
    while (1 << bits) < 2 * n:
        bits += 1
    return bits


@helper
def find_slot(item, items, first, slots, bits):
    """The slot that holds the rank of `item`, or the free slot for it."""
    mask = (1 << bits) - 1
    slot = ((np.int64(item) * _MULTIPLIER) >> (32 - bits)) & mask
    while slots[slot] >= 0 and items[first + slots[slot]] != item:
        slot = (slot + 1) & mask
    return slot


@helper
def mark_by_scan(items, first, length, bought, start, stop, hits):
    """Set `hits` at the first rank of each bought item, comparing all pairs."""
    for e in range(start, stop):
        for p in range(length):
            if items[first + p] == bought[e]:
                hits[p] = True
                break


@helper
def mark_by_table(items, first, length, bought, start, stop, hits, slots):
    """Set `hits` at the first rank of each bought item, in linear time with a hash table."""
    bits = table_bits(length)
    slots[: 1 << bits] = -1
    for p in range(length):
        slot = find_slot(items[first + p], items, first, slots, bits)
        if slots[slot] < 0:
            slots[slot] = p
    for e in range(start, stop):
        slot = find_slot(bought[e], items, first, slots, bits)
        if slots[slot] >= 0:
            hits[slots[slot]] = True


@helper
def mark_hits(items, first, length, bought, start, stop, hits, slots):
    """Write y(p) of a list into `hits`; an item listed twice counts only at its first rank."""
    for p in range(length):
        hits[p] = False
    n_bought = stop - start
    if length * n_bought <= _TABLE_COST * (length + n_bought):
        mark_by_scan(items, first, length, bought, start, stop, hits)
    else:
        mark_by_table(items, first, length, bought, start, stop, hits, slots)


@helper
def sum_hits(hits, length, gains):
    """Number of hits, sum of the precisions at the hits, and sum of their gains."""
    n_hits = 0
    precisions = 0.0
    gained = 0.0
    for p in range(length):
        if hits[p]:
            n_hits += 1
            precisions += n_hits / (p + 1)
            gained += gains[p]
    return n_hits, precisions, gained


@kernel
def score_units(
    start, stop, top_indptr, top_items, truth_indptr, truth_items, gains, ideal, k, acc, ap, ndcg
):
    """Write the three metrics of a range of units; nan for a unit that bought nothing.

    `gains` and `ideal` must cover the longest list and set, or k if that is less.
    """
    longest = 0
    for unit in range(start, stop):
        longest = max(longest, min(k, top_indptr[unit + 1] - top_indptr[unit]))
    hits = np.zeros(longest, np.bool_)
    slots = np.empty(1 << table_bits(longest), np.int32)
    for unit in range(start, stop):
        first, begin, end = top_indptr[unit], truth_indptr[unit], truth_indptr[unit + 1]
        if begin == end:
            acc[unit], ap[unit], ndcg[unit] = np.nan, np.nan, np.nan
            continue
        length = min(k, top_indptr[unit + 1] - first)
        mark_hits(top_items, first, length, truth_items, begin, end, hits, slots)
        n_hits, precisions, gained = sum_hits(hits, length, gains)
        best = min(k, end - begin)
        acc[unit] = n_hits / k
        ap[unit] = precisions / best
        ndcg[unit] = gained / ideal[best]
