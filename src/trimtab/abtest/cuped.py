"""CUPED: use what units did before the test to reduce the variance.

With y the linearised ratio of a unit (see `readings`) and x the same before the test,
y - θ·(x - mean x) has the same expected difference between buckets and a smaller variance: with
θ = cov(x, y) / var(x) within buckets it is 1 - ρ² of the original.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.abtest.readings import Estimate, ratio, spread
from trimtab.arrays import Floats


class Observed(NamedTuple):
    """One bucket: numerator and denominator per unit, in the test and before it."""

    numerator: Floats
    denominator: Floats
    numerator_before: Floats  # nan if unknown
    denominator_before: Floats


def adjust(control: Observed, treatment: Observed) -> tuple[Estimate, Estimate]:
    """Return both rates, adjusted for what units did before the test."""
    arms = (control, treatment)
    plain = [ratio(arm.numerator, arm.denominator) for arm in arms]
    own = [
        linearise(arm.numerator, arm.denominator, e.rate)
        for arm, e in zip(arms, plain, strict=True)
    ]
    before, theta = covary(control, treatment)
    middle = float(np.concatenate(before).mean())
    centred = [x - x.mean() for x in before]
    return tuple(  # type: ignore[return-value]
        Estimate(e.rate - theta * float(x.mean() - middle), spread(y - theta * c), e.n)
        for e, x, c, y in zip(plain, before, centred, own, strict=True)
    )


def covary(control: Observed, treatment: Observed) -> tuple[list[Floats], float]:
    """Return what units did before the test, linearised, and its slope θ."""
    arms = (control, treatment)
    before = _covariates(arms)
    centred = [x - x.mean() for x in before]
    below = sum(float(x @ x) for x in centred)
    if not below:
        return before, 0.0
    own = [linearise(*a[:2], ratio(*a[:2]).rate) for a in arms]
    return before, sum(float(x @ y) for x, y in zip(centred, own, strict=True)) / below


def linearise(numerator: Floats, denominator: Floats, rate: float) -> Floats:
    """Return the ratio of each unit, linearised around a rate."""
    linear: Floats = (numerator - rate * denominator) / denominator.mean()
    return linear


def _covariates(arms: tuple[Observed, Observed]) -> list[Floats]:
    """Return the time before, linearised around the rate of both buckets; 0 if unknown."""
    known = [np.isfinite(a.numerator_before) & np.isfinite(a.denominator_before) for a in arms]
    tops = np.concatenate([a.numerator_before[k] for a, k in zip(arms, known, strict=True)])
    bottoms = np.concatenate([a.denominator_before[k] for a, k in zip(arms, known, strict=True)])
    if bottoms.sum() <= 0:
        return [np.zeros(len(arm.numerator)) for arm in arms]
    rate, scale = tops.sum() / bottoms.sum(), bottoms.mean()
    return [
        np.where(k, (a.numerator_before - rate * a.denominator_before) / scale, 0.0)
        for a, k in zip(arms, known, strict=True)
    ]
