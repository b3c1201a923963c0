"""Scores on the scale of their own list, and back.

A bias on this scale is added to these keys:

    key = (score - best) / gap        0 for the best item, -1 for the k-th

The gap is the list's best score less its k-th, or less its last if the list is shorter or that gap
is 0; a list whose scores are all equal has a gap of 1. Multiplying a list's scores by a number
above 0, or adding one to them, therefore changes no key, but for rounding.

Differences are taken between halves of scores, so that they cannot overflow. Halving is exact,
except for scores below 1e-307.
"""

from __future__ import annotations

from trimtab.kernels.compiling import kernel
from trimtab.kernels.short_sorts import nth_smallest

_LOWEST_KEY = -1e300  # -inf would leave the item out
_SMALLEST = 5e-324


@kernel
def list_keys(start, stop, k, indptr, scores, keys, best, half_gap):
    """Write the keys of a range of lists, and the best score and half the gap of each.

    Args:
        start: first list.
        stop: one past the last.
        k: place of the score that is one gap below the best.
        indptr: start of each list.
        scores: scores of the lists.
        keys: keys of the scores; filled.
        best: best score of each list, 0 for an empty one; filled.
        half_gap: half the gap of each list; filled.
    """
    for unit in range(start, stop):
        best[unit] = 0.0
        half_gap[unit] = 0.5
        own = scores[indptr[unit] : indptr[unit + 1]]
        if len(own) == 0:
            continue
        highest = lowest = own[0]
        for score in own:
            highest = max(highest, score)
            lowest = min(lowest, score)
        last = nth_smallest(own, max(len(own) - k, 0))
        if last == highest:
            last = lowest
        best[unit] = highest
        if last < highest:
            half_gap[unit] = max(0.5 * highest - 0.5 * last, _SMALLEST)
        for entry in range(indptr[unit], indptr[unit + 1]):
            key = (0.5 * scores[entry] - 0.5 * highest) / half_gap[unit]
            keys[entry] = max(key, _LOWEST_KEY)


@kernel
def scores_of_list_keys(start, stop, indptr, keys, best, half_gap, scores):
    """Write the scores of keys that biases were added to."""
    for unit in range(start, stop):
        for entry in range(indptr[unit], indptr[unit + 1]):
            scores[entry] = 2.0 * (0.5 * best[unit] + keys[entry] * half_gap[unit])
