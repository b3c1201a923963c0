"""The top k of every list under biases on the log scale, with few logarithms.

Most entries of a list are too low for its top k. A bound of their key shows that: the bits of a
positive number hold the exponent and the first digits of the mantissa, and the logarithm of these
is looked up in a small table. Only entries whose bound reaches the k-th key so far get a logarithm.
"""

from __future__ import annotations

import math

import numpy as np

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.log_scores import LOG_2, log_key
from trimtab.kernels.membership import in_range
from trimtab.kernels.top_k import insert_in_top_k

_DIGITS = 6  # of the mantissa
_PARTS = 2**_DIGITS
_FIRST_DIGITS = 52 - _DIGITS
# Upper bounds of log(mantissa) for mantissas from 0.5 to 1, by their first digits.
_LOGS = np.log((np.arange(_PARTS) + _PARTS + 1) / (2 * _PARTS)) + 1e-9


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
