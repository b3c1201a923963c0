"""Several dates combined: buckets are compared within each date, then dates are weighted.

The weight of a date is its share of the denominator over both buckets. It is the same for both, so
a share of the treatment that changes from date to date does not look like an effect.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trimtab.abtest.readings import Estimate, spread
from trimtab.abtest.samples import Sample, sum_by
from trimtab.arrays import Codes, Flags, Floats


class Strata(NamedTuple):
    """Both estimates over dates (nan without comparable dates), and the share left out."""

    control: Estimate
    treatment: Estimate
    left_out: float  # share of the denominator


def stratified(sample: Sample, numerator: str, denominator: str) -> Strata:
    """Return rates over dates, each date with the same weight in both buckets."""
    assert sample.dates is not None
    n = len(sample.date_names)
    per = sample.columns[denominator]
    sums = [np.bincount(sample.dates[side], per[side], n) for side in _sides(sample)]
    rows = [np.bincount(sample.dates[side], minlength=n) for side in _sides(sample)]
    usable = (np.minimum(*sums) > 0) & (np.minimum(*rows) > 1)
    weights = np.where(usable, sums[0] + sums[1], 0.0)
    if not weights.any():
        none = Estimate(math.nan, math.nan, 0)
        return Strata(none, none, 1.0)
    left_out = 1 - float(weights.sum() / (sums[0] + sums[1]).sum())
    weights /= weights.sum()
    found = [
        _estimate_bucket(sample, side, sample.columns[numerator], per, weights)
        for side in _sides(sample)
    ]
    return Strata(found[0], found[1], left_out)


def _sides(sample: Sample) -> tuple[Flags, Flags]:
    return ~sample.treated, sample.treated


def _estimate_bucket(
    sample: Sample, side: Flags, top: Floats, per: Floats, weights: Floats
) -> Estimate:
    assert sample.dates is not None
    dates, own, below = sample.dates[side], top[side], per[side]
    n = len(weights)
    sums = np.bincount(dates, below, n)
    rates = np.divide(np.bincount(dates, own, n), sums, out=np.zeros(n), where=weights > 0)
    scale = np.divide(weights, sums, out=np.zeros(n), where=weights > 0)
    shares = scale[dates] * (
        own - rates[dates] * below
    )  # contribution of each row to the error of the rate
    users = None if sample.users is None else sample.users[side]
    n_units = len(shares) if users is None else len(np.unique(users))
    return Estimate(float(weights @ rates), _variance(shares, dates, users, n), n_units)


def _variance(shares: Floats, dates: Codes, users: Codes | None, n: int) -> float:
    """Return the variance of a sum over rows; rows of one user belong together."""
    if users is not None:
        _, own = np.unique(users, return_inverse=True)
        sums = sum_by(own, shares)
        return spread(sums) * len(sums) ** 2
    rows = np.bincount(dates, minlength=n)
    squares = np.bincount(dates, shares**2, n)
    factor = np.divide(rows, rows - 1, out=np.zeros(n), where=rows > 1)
    return float(squares @ factor)
