"""Lists from mixtures: a unit's scores are a weighted sum of sparse rows of item scores.

    score(u, i) = sum over s of weight(u, s) * value(row s, i)

A row holds, for example, what is likely after an item or in a category; the caller says which rows
a unit mixes. Sums are taken in the order of the rows, so lists do not depend on other units.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import kernel
from trimtab.kernels.top_k import insert_in_top_k


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
