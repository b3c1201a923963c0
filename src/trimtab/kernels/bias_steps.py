"""The one rule for where a bias may stand, and which of two is better.

A bias stands at 0, where it is, or inside an open interval between two neighbouring breakpoints
(those whose deltas do not cancel), at the end nearer to 0: half the interval from that end, or
`margin` if that is less. Intervals of a few ulps are skipped: there, `a + b` may round to either
side of a breakpoint computed as `t - a`. The cap ends the outermost intervals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.kernels.compiling import helper

MARGIN = 1e-6  # in units of the median k-th score
QUANTA = 2.0**32  # fixed-point quanta in one unit's metric
_ULPS = 2.0**-46  # 64 ulps of the largest number that takes part


class Rules(NamedTuple):
    """Limits for the steps of one item."""

    cap: float  # inf: none
    margin: float
    narrow: float  # intervals up to this width are skipped
    rate: float  # penalty in quanta per unit of bias


@helper
def make_rules(cap, margin, rate, magnitude):
    """Rules when scores and biases add up to at most `magnitude`."""
    narrow = _ULPS * magnitude
    return Rules(cap, max(margin, narrow / 2), narrow, rate)


@helper
def too_narrow(width, rules):
    """Whether an interval is too narrow to stand in."""
    return not width > rules.narrow


@helper
def penalty_of(bias, rules):
    """The penalty of a bias, in quanta."""
    return np.int64(np.rint(rules.rate * abs(bias)))


@helper
def better(value, bias, best_value, best_bias):
    """Whether a bias is better: higher value, then smaller |bias|, then the lower one."""
    if value != best_value:
        return value > best_value
    if abs(bias) != abs(best_bias):
        return abs(bias) < abs(best_bias)
    return bias < best_bias
