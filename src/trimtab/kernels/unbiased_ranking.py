"""The engine's own ranking of every list, before any bias."""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import kernel
from trimtab.kernels.membership import in_ascending_range
from trimtab.kernels.top_k import insert_in_top_k


@kernel
def rank_by_engine(
    start, stop, k, counts_hits_above, indptr, items, scores, bought_indptr, bought_items,
    hit_values, kth_score, value, exposure,
):  # fmt: skip
    """Rank each list by the engine's scores: k-th score, metric, and how often a top k has an item.

    The k-th score of a shorter list is its last score, of an empty list nan; the metric of a unit
    that bought nothing is nan. `hit_values` are v_p by [min(k, relevant items), slot].
    """
    top_scores = np.empty(k, np.float64)
    top_items = np.empty(k, np.int32)
    first_slot = np.int64(0)  # numba would compile again for a literal
    for row in range(start, stop):
        n = 0
        for e in range(indptr[row], indptr[row + 1]):
            n = insert_in_top_k(top_items, top_scores, first_slot, n, k, scores[e], items[e])
        kth_score[row] = top_scores[n - 1] if n > 0 else np.nan
        low = bought_indptr[row]
        high = bought_indptr[row + 1]
        total = 0.0 if high > low else np.nan
        hits = 0
        for p in range(n):
            exposure[top_items[p]] += 1
            if high > low and in_ascending_range(bought_items, low, high, top_items[p]):
                hits += 1
                total += hit_values[min(k, high - low), p] * (hits if counts_hits_above else 1)
        value[row] = total
