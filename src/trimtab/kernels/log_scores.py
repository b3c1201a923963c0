"""Scores as logs and back, list by list.

A bias on the log scale multiplies a score above 0 by exp(bias) and divides a score below 0 by it:
a positive bias always raises. A score of 0 stays 0. The bias is added to these keys:

    score > 0    log(score / 2^e)                from about -1,500 to 0
    score = 0    -ZERO
    score < 0    -2 * ZERO - log(-score / 2^e)

2^e is the power of two above the list's largest |score|. Scores times 1,024 therefore give exactly
the same keys, for each list by itself.
"""

from __future__ import annotations

import math

import numpy as np

from trimtab.kernels.compiling import helper, kernel

ZERO = 4096.0
LOG_2 = math.log(2.0)


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
