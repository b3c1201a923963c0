"""The top k of every list under given biases, and the scales that biases are added on.

**The tie rule.** Every ranking in Trimtab (learner, apply, Spark, service) has one order:

    score descending, then item id ascending

Kernels compare item codes, which are numbered in the order of the ids (see `trimtab.arrays`), so
`is_above` is the rule, for all kernels. Unused slots stay empty.

**The scales.** Scores become keys that biases are added to, list by list, and back. On the log
scale a bias multiplies a score above 0 by exp(bias) and divides a score below 0 by it: a positive
bias always raises. A score of 0 stays 0. The keys are:

    score > 0    log(score / 2^e)                from about -1,500 to 0
    score = 0    -ZERO
    score < 0    -2 * ZERO - log(-score / 2^e)

2^e is the power of two above the list's largest |score|. Scores times 1,024 therefore give exactly
the same keys, for each list by itself.

On the scale of each list the keys are:

    key = (score - best) / gap        0 for the best item, -1 for the k-th

The gap is the list's best score less its k-th, or less its last if the list is shorter or that gap
is 0; a list whose scores are all equal has a gap of 1. Multiplying a list's scores by a number
above 0, or adding one to them, therefore changes no key, but for rounding.

Differences are taken between halves of scores, so that they cannot overflow. Halving is exact,
except for scores below 1e-307.
"""

from __future__ import annotations

import math

import numpy as np

from trimtab.kernels.compiling import bare_helper, helper, kernel
from trimtab.kernels.short_arrays import in_range, nth_smallest

ZERO = 4096.0
LOG_2 = math.log(2.0)
_LOWEST_KEY = -1e300  # -inf would leave the item out
_SMALLEST = 5e-324


# The top k ----------------------------------------------------------------------------------------


@bare_helper
def is_above(score, item, other_score, other_item):
    """Whether an item ranks above another: the tie rule."""
    return score > other_score or (score == other_score and item < other_item)


@bare_helper
def insert_in_top_k(out_items, out_scores, base, n, k, score, item):
    """Insert an item into the top k from `base` on, if it belongs there; returns the new length."""
    p = base + n
    if n == k:
        p -= 1
        if is_above(out_scores[p], out_items[p], score, item):
            return n
        n -= 1
    while p > base and is_above(score, item, out_scores[p - 1], out_items[p - 1]):
        out_scores[p] = out_scores[p - 1]
        out_items[p] = out_items[p - 1]
        p -= 1
    out_scores[p] = score
    out_items[p] = item
    return n + 1


@bare_helper
def _is_hidden(item, unit, indptr, hidden):
    """Whether a unit must not get an item; `indptr` is empty if nothing is hidden."""
    return len(hidden) > 0 and in_range(hidden, indptr[unit], indptr[unit + 1], item)


@kernel
def select_top(
    start, stop, k, indptr, items, scores, offset, raised, hidden_indptr, hidden,
    out_items, out_scores, lengths,
):  # fmt: skip
    """Write each unit's top k by score + offset, in the order of the tie rule, at unit * k.

    Args:
        start: first unit.
        stop: one past the last.
        k: slots.
        indptr: start of each unit's list.
        items: items of the lists.
        scores: scores of the lists.
        offset: bias by item; -inf leaves the item out.
        raised: items shown to every unit at score `offset`, in ranking order; may be empty.
        hidden_indptr: start of each unit's hidden items; empty if there are none.
        hidden: items that a unit must not get.
        out_items: items of the top k; filled.
        out_scores: scores of the top k; filled.
        lengths: slots used by each unit; filled.
    """
    for unit in range(start, stop):
        base = unit * k
        n = 0
        first = indptr[unit]
        end = indptr[unit + 1]
        for e in range(first, end):
            item = items[e]
            score = scores[e] + offset[item]
            if score > -np.inf and not _is_hidden(item, unit, hidden_indptr, hidden):
                n = insert_in_top_k(out_items, out_scores, base, n, k, score, item)
        if end > first:
            for x in range(len(raised)):
                item = raised[x]
                score = offset[item]
                if n == k and score < out_scores[base + n - 1]:
                    break
                is_listed = in_range(items, first, end, item)
                if not is_listed and not _is_hidden(item, unit, hidden_indptr, hidden):
                    n = insert_in_top_k(out_items, out_scores, base, n, k, score, item)
        lengths[unit] = n


@kernel
def mark_best(start, stop, n, indptr, items, scores, is_best):
    """Mark the best n entries of each unit's list; all entries of a shorter one.

    Args:
        start: first unit.
        stop: one past the last.
        n: entries to mark; at least 1.
        indptr: start of each unit's list.
        items: items of the lists.
        scores: scores of the lists.
        is_best: whether each entry is among the best n of its list, by the tie rule; filled.
    """
    for unit in range(start, stop):
        first = indptr[unit]
        end = indptr[unit + 1]
        if end - first <= n:
            is_best[first:end] = True
            continue
        own = scores[first:end]
        nth_score = nth_smallest(own, end - first - n)
        tied = items[first:end][own == nth_score]
        last_item = nth_smallest(tied, n - np.sum(own > nth_score) - 1)
        for e in range(first, end):
            is_best[e] = not is_above(nth_score, last_item, scores[e], items[e])


@kernel
def merge_explored(
    start, stop, k, room, n_explored, top_indptr, top_items, top_scores, explored_indptr,
    explored_items, indptr, items, scores, bias, out_items, out_scores, lengths,
):  # fmt: skip
    """Write each unit's top k with its last slots given to items to explore.

    Args:
        start: first unit.
        stop: one past the last.
        k: slots.
        room: slots that can be filled; at most k.
        n_explored: slots for items to explore.
        top_indptr: start of each unit's top k.
        top_items: items of the top k.
        top_scores: scores of the top k.
        explored_indptr: start of each unit's items to explore.
        explored_items: items to explore, the most promising first.
        indptr: start of each unit's list.
        items: items of the lists.
        scores: scores of the lists.
        bias: bias by item.
        out_items: items of the merged top k, at unit * room; filled.
        out_scores: their scores with biases; filled.
        lengths: slots used by each unit; filled.
    """
    for unit in range(start, stop):
        base = unit * room
        n = 0
        end = top_indptr[unit + 1]
        for e in range(top_indptr[unit], min(end, top_indptr[unit] + k - n_explored)):
            out_items[base + n] = top_items[e]
            out_scores[base + n] = top_scores[e]
            n += 1
        n_kept = n
        for t in range(explored_indptr[unit], explored_indptr[unit + 1]):
            if n - n_kept == n_explored or n == room:
                break
            item = explored_items[t]
            if in_range(out_items, base, base + n, item):
                continue
            for e in range(indptr[unit], indptr[unit + 1]):
                if items[e] == item:
                    out_scores[base + n] = scores[e] + bias[item]
            out_items[base + n] = item
            n += 1
        for e in range(top_indptr[unit] + n_kept, end):
            if n == room:
                break
            if not in_range(out_items, base, base + n, top_items[e]):
                out_items[base + n] = top_items[e]
                out_scores[base + n] = top_scores[e]
                n += 1
        lengths[unit] = n


# The log scale ----------------------------------------------------------------------------------


@helper
def _from_log(log, exponent):
    """exp(log) * 2^exponent, without overflow on the way."""
    whole = math.floor(log / LOG_2)
    return math.ldexp(np.exp(log - whole * LOG_2), int(whole) + exponent)


@helper
def log_key(score, exponent):
    """The key of a score on a list with exponent e."""
    mantissa, exponent_of_score = math.frexp(abs(score))
    if mantissa == 0.0:
        return -ZERO
    log = np.log(mantissa) + (exponent_of_score - exponent) * LOG_2
    return log if score > 0.0 else -2.0 * ZERO - log


@kernel
def log_keys(start, stop, indptr, scores, keys, exponents):
    """Write the keys of a range of lists, and the exponent e of each."""
    for unit in range(start, stop):
        largest = 0.0
        for entry in range(indptr[unit], indptr[unit + 1]):
            largest = max(largest, abs(scores[entry]))
        exponent = math.frexp(largest)[1]
        exponents[unit] = exponent
        for entry in range(indptr[unit], indptr[unit + 1]):
            keys[entry] = log_key(scores[entry], exponent)


@kernel
def scores_of_keys(start, stop, indptr, keys, exponents, scores):
    """Write the scores of keys that biases were added to."""
    for unit in range(start, stop):
        exponent = exponents[unit]
        for entry in range(indptr[unit], indptr[unit + 1]):
            key = keys[entry]
            if key > -0.75 * ZERO:
                scores[entry] = _from_log(key, exponent)
            elif key > -1.25 * ZERO:
                scores[entry] = 0.0
            else:
                scores[entry] = -_from_log(-key - 2.0 * ZERO, exponent)


@kernel
def model_logs(start, stop, indptr, keys, logs):
    """Write keys as the choice model takes them: relative to the best of the list.

    Scores of 0 and below get one less than the list's lowest positive score, or at least -20 if
    there is none.
    """
    for unit in range(start, stop):
        best = -np.inf
        lowest = 0.0
        for entry in range(indptr[unit], indptr[unit + 1]):
            key = keys[entry]
            best = max(best, key)
            if key > -0.75 * ZERO:
                lowest = min(lowest, key)
        least = lowest - 1.0 if best > -0.75 * ZERO else best - 20.0
        for entry in range(indptr[unit], indptr[unit + 1]):
            logs[entry] = max(keys[entry], least) - best


# The scale of each list -------------------------------------------------------------------------


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
        highest = own.max()
        last = nth_smallest(own, max(len(own) - k, 0))
        if last == highest:
            last = own.min()
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
