"""The one rule for which biases are tried, and which of two is better.

An item's bias is tried at 0, at its current value, and once in each open interval between two
neighboring breakpoints (those whose deltas do not cancel): at the end nearer to 0, `margin` away
from that end, or half the interval if that is less. Intervals of a few ulps are skipped: there,
`a + b` may round to either side of a breakpoint computed as `t - a`. The cap ends the outermost
intervals.

Values are whole numbers of quanta, 2^-32 of one unit's metric, and so sums do not depend on their
order. The penalty of a bias is rate * |b|.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.kernels.compiling import helper

MARGIN = 1e-6  # in units of the median k-th score
QUANTA = 2.0**32  # in one unit's metric
_ULPS = 2.0**-46  # 64 ulps of the largest number involved


class Rules(NamedTuple):
    """Limits of one item's biases."""

    cap: float  # inf: none
    margin: float
    narrow: float  # intervals of at most this width are skipped
    penalty_rate: float  # penalty in quanta per unit of bias


@helper
def make_rules(cap, margin, penalty_rate, magnitude):
    """Rules if no |score| plus |bias| exceeds `magnitude`."""
    narrow = _ULPS * magnitude
    return Rules(cap, max(margin, narrow / 2), narrow, penalty_rate)


@helper
def is_too_narrow(width, rules):
    """Whether an interval is too narrow for a bias."""
    return not width > rules.narrow


@helper
def penalty_of(bias, rules):
    """The penalty of a bias, in quanta."""
    return np.int64(np.rint(rules.penalty_rate * abs(bias)))


@helper
def is_better(value, bias, best_value, best_bias):
    """Whether a bias is better: higher value, then smaller |bias|, then the negative one."""
    if value != best_value:
        return value > best_value
    if abs(bias) != abs(best_bias):
        return abs(bias) < abs(best_bias)
    return bias < best_bias
