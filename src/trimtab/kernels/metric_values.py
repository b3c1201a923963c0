"""The relevance of listed items, and the sums that the metrics of a unit are made of.

A listed item has the relevance r of the unit's purchase of it, or 0 if there is none. With r(p) at
rank p and gain(p) = 1 / log2(1 + p), a list of relevances has the sums

    total      = sum of r(p)
    precisions = sum of r(p) * (r(1) + ... + r(p)) / p
    gained     = sum of r(p) * gain(p)
    highest    = the largest r(p)
    first      = the largest r(p) / p

over p = 1..k. In the code p counts from 0. `metrics/per_user.py` makes metrics of them.

Each unit is computed by itself, in rank order: any division into ranges gives the same bytes.
Helpers take whole arrays and offsets, because slices share a reference count that threads compete
for (two threads would take as long as one).
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import kernel
from trimtab.kernels.membership import first_not_below


@kernel
def find_relevance(start, stop, top_indptr, top_items, indptr, bought, relevance, k, top_relevance):
    """Write the relevance of each of the first k listed items; a repeated item has it once.

    `bought` is ascending within each unit.
    """
    most = 0
    for unit in range(start, stop):
        most = max(most, indptr[unit + 1] - indptr[unit])
    left = np.empty(most, np.float64)
    for unit in range(start, stop):
        begin, end = indptr[unit], indptr[unit + 1]
        for e in range(begin, end):
            left[e - begin] = relevance[e]
        for p in range(top_indptr[unit], min(top_indptr[unit] + k, top_indptr[unit + 1])):
            e = first_not_below(bought, begin, end, top_items[p])
            if e < end and bought[e] == top_items[p]:
                top_relevance[p] = left[e - begin]
                left[e - begin] = 0.0


@kernel
def sum_lists(start, stop, indptr, relevance, gains, k, sums):
    """Write the sums of each unit's list of relevances, by [sum, unit], in the order above."""
    for unit in range(start, stop):
        first = indptr[unit]
        total, precisions, gained, highest, quickest = 0.0, 0.0, 0.0, 0.0, 0.0
        for p in range(min(k, indptr[unit + 1] - first)):
            r = relevance[first + p]
            if r > 0:
                total += r
                precisions += r * total / (p + 1)
                gained += r * gains[p]
                highest = max(highest, r)
                quickest = max(quickest, r / (p + 1))
        sums[0, unit], sums[1, unit], sums[2, unit] = total, precisions, gained
        sums[3, unit], sums[4, unit] = highest, quickest
