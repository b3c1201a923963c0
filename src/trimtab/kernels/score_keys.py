"""Scores as keys that biases are added to, list by list, and back.

On the log scale a bias multiplies a score above 0 by exp(bias) and divides a score below 0 by it: a
positive bias always raises. A score of 0 stays 0. The keys are:

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

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.membership import in_range
from trimtab.kernels.short_sorts import nth_smallest
from trimtab.kernels.top_k import insert_in_top_k

ZERO = 4096.0
LOG_2 = math.log(2.0)
_LOWEST_KEY = -1e300  # -inf would leave the item out
_SMALLEST = 5e-324
_DIGITS = 6  # of the mantissa
_PARTS = 2**_DIGITS
_FIRST_DIGITS = 52 - _DIGITS
# Upper bounds of log(mantissa) for mantissas from 0.5 to 1, by their first digits.
_LOGS = np.log((np.arange(_PARTS) + _PARTS + 1) / (2 * _PARTS)) + 1e-9


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


# The top k on the log scale, with few logarithms ------------------------------------------------
#
# Most entries of a list are too low for its top k. A bound of their key shows that: the bits of a
# positive number hold the exponent and the first digits of the mantissa, and the logarithm of these
# is looked up in a small table. Only entries whose bound reaches the k-th key so far get a
# logarithm.


@helper
def _bound(bits, exponent):
    """An upper bound of the key of a positive score that is not subnormal, from its bits."""
    return _LOGS[(bits >> _FIRST_DIGITS) & (_PARTS - 1)] + ((bits >> 52) - 1022 - exponent) * LOG_2


@kernel
def select_top_by_logs(
    start, stop, k, indptr, items, scores, bits, offset, hidden_indptr, hidden, out_items, out_keys,
    lengths, exponents,
):  # fmt: skip
    """Write what `log_keys` and then `select_top` would, at unit * k.

    Args:
        start: first unit.
        stop: one past the last.
        k: slots.
        indptr: start of each unit's list.
        items: items of the lists.
        scores: scores of the lists.
        bits: the same scores as integers of 64 bits.
        offset: bias by item; -inf leaves the item out.
        hidden_indptr: start of each unit's hidden items; empty if there are none.
        hidden: items that a unit must not get.
        out_items: items of the top k; filled.
        out_keys: their keys with the biases; filled.
        lengths: slots used by each unit; filled.
        exponents: of each unit, as of `log_keys`; filled.
    """
    has_hidden = len(hidden) > 0
    for unit in range(start, stop):
        first = indptr[unit]
        end = indptr[unit + 1]
        largest = 0.0
        for e in range(first, end):
            largest = max(largest, abs(scores[e]))
        exponent = math.frexp(largest)[1]
        exponents[unit] = exponent
        base = unit * k
        n = 0
        for e in range(first, end):
            item = items[e]
            bias = offset[item]
            if bias == -np.inf:
                continue
            # Rounding keeps the order: a bound that is too low with the bias has a key that is.
            if (
                n == k
                and bits[e] >> 52 > 0
                and _bound(bits[e], exponent) + bias < out_keys[base + n - 1]
            ):
                continue
            if has_hidden and in_range(hidden, hidden_indptr[unit], hidden_indptr[unit + 1], item):
                continue
            key = log_key(scores[e], exponent) + bias
            n = insert_in_top_k(out_items, out_keys, base, n, k, key, item)
        lengths[unit] = n


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
