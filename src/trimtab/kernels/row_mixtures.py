"""Lists from mixtures: a unit's scores are a weighted sum of sparse rows of item scores.

    score(u, i) = Σ_s weight(u, s) · value(row s, i)

Rows are what is likely after an item, in a category, and so on; the caller says which rows a unit
mixes. Sums are taken in the order the rows are given in, so that a unit's list does not depend on
the others'. Items are numbered by how common they are, the commonest first (their *places*): sums
in use then lie close together, and the best of a list are met early.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.top_k import take_place


@helper
def _add_rows(first, end, rows, weights, row_indptr, row_places, row_values, sums):
    """Add the weighted rows to the sums; returns how many entries they have."""
    work = 0
    for s in range(first, end):
        row = rows[s]
        weight = weights[s]
        for e in range(row_indptr[row], row_indptr[row + 1]):
            sums[row_places[e]] += weight * row_values[e]
        work += row_indptr[row + 1] - row_indptr[row]
    return work


@helper
def _list_all(sums, item_of, n, base, out_items, out_scores):
    """Put the best of all items into a list, and wipe the sums."""
    taken = 0
    lowest = 0.0
    for place in range(len(sums)):
        score = sums[place]
        sums[place] = 0.0
        if score >= lowest and score > 0.0:
            taken = take_place(out_items, out_scores, base, taken, n, score, item_of[place])
            if taken == n:
                lowest = out_scores[base + n - 1]
    return taken


@helper
def _list_used(
    first, end, rows, row_indptr, row_places, sums, item_of, n, base, out_items, out_scores
):
    """Put the best of the rows' items into a list, and wipe their sums."""
    taken = 0
    for s in range(first, end):
        for e in range(row_indptr[rows[s]], row_indptr[rows[s] + 1]):
            place = row_places[e]
            score = sums[place]
            sums[place] = 0.0
            if score > 0.0:
                taken = take_place(out_items, out_scores, base, taken, n, score, item_of[place])
    return taken


@kernel
def mix_rows(
    start, stop, n, indptr, rows, weights, row_indptr, row_places, row_values, item_of,
    out_items, out_scores, lengths,
):  # fmt: skip
    """Write each unit's n best items with scores above 0 at unit * n.

    Args:
        start: first unit.
        stop: one past the last.
        n: places of a list.
        indptr: which rows each unit mixes.
        rows: those rows.
        weights: their weights.
        row_indptr: entries of each row.
        row_places: their items, as places.
        row_values: their values, 0 or more.
        item_of: the item at each place.
        out_items: items of the lists.
        out_scores: their scores.
        lengths: places taken.
    """
    sums = np.empty(len(item_of))
    for place in range(len(item_of)):
        sums[place] = 0.0
    for unit in range(start, stop):
        first = indptr[unit]
        end = indptr[unit + 1]
        work = _add_rows(first, end, rows, weights, row_indptr, row_places, row_values, sums)
        if work >= len(item_of) // 4:  # then looking at every item is cheaper than at every entry
            lengths[unit] = _list_all(sums, item_of, n, unit * n, out_items, out_scores)
        else:
            lengths[unit] = _list_used(
                first, end, rows, row_indptr, row_places, sums, item_of, n, unit * n,
                out_items, out_scores,
            )  # fmt: skip
