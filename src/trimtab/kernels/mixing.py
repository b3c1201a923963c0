"""Lists from mixtures: a unit's scores are a weighted sum of sparse rows of item scores.

    score(u, i) = Σ_s weight(u, s) · value(row s, i)

Rows are what is likely after an item, in a category, and so on; the caller says which rows a unit
mixes. Sums are taken in the order the rows are given in, so that a unit's list does not depend on
the others'.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.jit import helper, kernel
from trimtab.kernels.select import take_place


@helper
def _place_touched(sums, touched, n_touched, n, base, out_items, out_scores):
    """Write the n best of the touched items, scores above 0, and wipe the sums."""
    taken = 0
    for t in range(n_touched):
        item = touched[t]
        score = sums[item]
        sums[item] = 0.0
        if score > 0.0:
            taken = take_place(out_items, out_scores, base, taken, n, score, item)
    return taken


@kernel
def mix_rows(
    start, stop, n, n_items, indptr, rows, weights, row_indptr, row_items, row_values,
    out_items, out_scores, lengths,
):  # fmt: skip
    """Write each unit's n best items at unit * n.

    Args:
        start: first unit.
        stop: one past the last.
        n: places.
        n_items: one more than the largest item.
        indptr: which rows each unit mixes.
        rows: those rows.
        weights: their weights.
        row_indptr: items of each row.
        row_items: the items.
        row_values: their values, 0 or more.
        out_items: items of the lists.
        out_scores: their scores.
        lengths: places taken.
    """
    sums = np.empty(n_items)
    for item in range(n_items):
        sums[item] = 0.0
    touched = np.empty(n_items, np.int32)
    for unit in range(start, stop):
        n_touched = 0
        for s in range(indptr[unit], indptr[unit + 1]):
            row = rows[s]
            weight = weights[s]
            for e in range(row_indptr[row], row_indptr[row + 1]):
                value = weight * row_values[e]
                if value <= 0.0:
                    continue
                item = row_items[e]
                if sums[item] == 0.0:
                    touched[n_touched] = item
                    n_touched += 1
                sums[item] += value
        lengths[unit] = _place_touched(sums, touched, n_touched, n, unit * n, out_items, out_scores)
