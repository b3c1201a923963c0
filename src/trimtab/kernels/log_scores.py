"""Scores as logs and back, list by list.

A bias on the log scale multiplies a score by exp(bias); a score below 0 is divided by it, so that
a positive bias always raises, and a score of 0 stays. As keys that a bias adds to:

    above 0    log(score / 2**e)               from about -1,500 to 0
    0          -ZERO
    below 0    -2·ZERO - log(-score / 2**e)

2**e is the power of two above the list's largest absolute score: scores times 1,024 give the same
keys to the last bit, for any list by itself.
"""

from __future__ import annotations

import math

import numpy as np

from trimtab.kernels.compiling import helper, kernel

ZERO = 4096.0
LOG_2 = math.log(2.0)


@helper
def _from_log(size, exponent):
    """exp(size)·2**exponent, without a detour beyond what a number can hold."""
    whole = math.floor(size / LOG_2)
    return math.ldexp(np.exp(size - whole * LOG_2), int(whole) + exponent)


@kernel
def log_keys(start, stop, indptr, scores, keys, exponents):
    """Keys of a range of lists, and the exponent e of each."""
    for unit in range(start, stop):
        largest = 0.0
        for place in range(indptr[unit], indptr[unit + 1]):
            largest = max(largest, abs(scores[place]))
        exponent = math.frexp(largest)[1]
        exponents[unit] = exponent
        for place in range(indptr[unit], indptr[unit + 1]):
            mantissa, own = math.frexp(abs(scores[place]))
            if mantissa == 0.0:
                keys[place] = -ZERO
                continue
            size = np.log(mantissa) + (own - exponent) * LOG_2
            keys[place] = size if scores[place] > 0.0 else -2.0 * ZERO - size


@kernel
def scores_of_keys(start, stop, indptr, keys, exponents, scores):
    """Scores of keys that biases were added to."""
    for unit in range(start, stop):
        exponent = exponents[unit]
        for place in range(indptr[unit], indptr[unit + 1]):
            key = keys[place]
            if key > -0.75 * ZERO:
                scores[place] = _from_log(key, exponent)
            elif key > -1.25 * ZERO:
                scores[place] = 0.0
            else:
                scores[place] = -_from_log(-key - 2.0 * ZERO, exponent)


@kernel
def model_logs(start, stop, indptr, keys, logs):
    """Keys as the choice model takes them: 0 for the best of a list, scores of 0 and below floored.

    The floor is one below the list's lowest key above 0.
    """
    for unit in range(start, stop):
        top = -np.inf
        low = 0.0
        for place in range(indptr[unit], indptr[unit + 1]):
            key = keys[place]
            top = max(top, key)
            if key > -0.75 * ZERO:
                low = min(low, key)
        floor = low - 1.0 if top > -0.75 * ZERO else top - 20.0
        for place in range(indptr[unit], indptr[unit + 1]):
            logs[place] = max(keys[place], floor) - top
