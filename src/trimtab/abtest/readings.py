"""Readings: the result of one test of one metric, with its interval and p-value.

A rate is a ratio of sums over units, R = sum(y) / sum(d). By the delta method its variance is the
variance of the mean of y - R·d, over mean(d)². Two rates are compared by Welch's t-test. Relative
differences have Fieller's interval: all ratios r for which R_treatment - r·R_control may be 0; it
excludes 0 % exactly when the interval of the difference excludes 0.

A bucket in which nothing happened is not without variance: chance alone can do that. Its units
then count as varying like those of both buckets together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trimtab.abtest.redistribution import NO_VARIANCE, NoEffect, Pair
from trimtab.arrays import Floats

NAN = math.nan
WELCH, CUPED, BY_DATE = "Welch", "CUPED", "by date"
REDISTRIBUTED = "redistributed"


class Estimate(NamedTuple):
    """A rate, its variance, and its number of units."""

    rate: float
    variance: float
    n: float


@dataclass(frozen=True)
class Reading:
    """The result of one test: treatment minus control, with its intervals and p-value.

    Attributes:
        method: name of the test.
        difference: difference of the rates.
        low: lower end of its interval.
        high: upper end of its interval.
        relative: difference over the rate of control; nan if that rate is not above 0.
        relative_low: lower end of its interval; nan if it is unbounded.
        relative_high: upper end of its interval; nan if it is unbounded.
        p: two-sided p-value.
        error: standard error of the difference.
        freedom: degrees of freedom of the t distribution; inf for a normal one.
    """

    method: str
    difference: float
    low: float
    high: float
    relative: float
    relative_low: float
    relative_high: float
    p: float
    error: float
    freedom: float

    def is_within(self, margin: float) -> bool:
        """Return whether the interval of the relative difference is within a margin."""
        return -margin < self.relative_low and self.relative_high < margin

    def detectable(self, alpha: float, power: float) -> float:
        """Return the difference that the test could detect with the given power."""
        return detection_factor(alpha, power, self.freedom) * self.error


def ratio(numerator: Floats, denominator: Floats) -> Estimate:
    """Return the estimate of a ratio of sums over independent units, by the delta method."""
    n, total = len(numerator), float(denominator.sum())
    if n == 0 or total <= 0:
        return Estimate(NAN, NAN, n)
    rate = float(numerator.sum()) / total
    rest = numerator - rate * denominator
    return Estimate(rate, spread(rest / (total / n)), n)


def spread(values: Floats) -> float:
    """Return the variance of the mean of values whose mean is 0."""
    n = len(values)
    return float(values @ values) / (n * (n - 1)) if n > 1 else NAN


def rates(control: Pair, treatment: Pair) -> tuple[Estimate, Estimate]:
    """Return the estimates of both buckets, with a variance if it is 0 in one of them."""
    return fill_variances(ratio(*control), ratio(*treatment), pool(control, treatment))


def pool(control: Pair, treatment: Pair) -> Estimate:
    """Return the estimate of both buckets together."""
    both = zip(control, treatment, strict=True)
    numerator, denominator = (np.concatenate(values) for values in both)
    return ratio(numerator, denominator)


def fill_variances(
    control: Estimate, treatment: Estimate, both: Estimate
) -> tuple[Estimate, Estimate]:
    """Return estimates in which buckets without variance vary like both together."""
    first, second = (
        own._replace(variance=both.variance * both.n / own.n)
        if own.n > 0 and not own.variance > NO_VARIANCE * both.variance * both.n / own.n
        else own
        for own in (control, treatment)
    )
    return first, second


def welch(
    control: Estimate, treatment: Estimate, alpha: float, method: str,
    by_chance: NoEffect | None = None,
) -> Reading:  # fmt: skip
    """Compare two estimates by Welch's t-test.

    Args:
        control: estimate of the control group.
        treatment: estimate of the treatment group.
        alpha: significance level.
        method: name of the test.
        by_chance: distribution of the statistic without an effect; default a t distribution.
    """
    from scipy.stats import t

    error = math.sqrt(control.variance + treatment.variance)
    freedom = welch_freedom(control, treatment)
    difference = treatment.rate - control.rate
    if not error > 0:
        return untested(method, difference, difference / control.rate if control.rate > 0 else NAN)
    if by_chance is None:
        least, most = float(t.ppf(alpha / 2, freedom)), float(t.isf(alpha / 2, freedom))
        p = 2 * float(t.sf(abs(difference) / error, freedom))
    else:
        (least, most), p = by_chance.ends(alpha), by_chance.p()
    relative, _, relative_high = fieller(control, treatment, -least)
    _, relative_low, _ = fieller(control, treatment, most)
    low, high = difference - most * error, difference - least * error
    return Reading(
        method, difference, low, high, relative, relative_low, relative_high, p, error, freedom
    )


def untested(method: str, difference: float, relative: float = NAN) -> Reading:
    """Return a reading without a test: nothing varies."""
    return Reading(method, difference, NAN, NAN, relative, NAN, NAN, NAN, 0.0, math.inf)


def welch_freedom(control: Estimate, treatment: Estimate) -> float:
    """Return Satterthwaite's degrees of freedom; infinite if both estimates have infinite n."""
    parts = [(e.variance, e.n - 1) for e in (control, treatment)]
    below = sum(variance**2 / n for variance, n in parts if n > 0)
    if math.isinf(control.n) and math.isinf(treatment.n):
        return math.inf
    return sum(variance for variance, _ in parts) ** 2 / below if below > 0 else NAN


def fieller(control: Estimate, treatment: Estimate, width: float) -> tuple[float, float, float]:
    """Return the relative difference and its interval, `width` standard errors to each side."""
    if not control.rate > 0:
        return NAN, NAN, NAN
    relative = treatment.rate / control.rate - 1
    # (t - r·c)² <= width²·(vt + r²·vc), for r.
    square = control.rate**2 - width**2 * control.variance
    if not square > 0:
        return relative, NAN, NAN
    half = treatment.rate * control.rate
    rest = treatment.rate**2 - width**2 * treatment.variance
    root = math.sqrt(max(half**2 - square * rest, 0.0))
    return relative, (half - root) / square - 1, (half + root) / square - 1


def equivalence(
    control: Estimate, treatment: Estimate, margin: float, by_chance: NoEffect | None = None
) -> float:
    """Return p of two one-sided tests: small if the relative difference is within the margin."""
    from scipy.stats import t

    if not control.rate > 0:
        return NAN
    found = []
    for edge, side in ((1 - margin, 1), (1 + margin, -1)):
        scaled = Estimate(edge * control.rate, edge**2 * control.variance, control.n)
        error = math.sqrt(scaled.variance + treatment.variance)
        if not error > 0:
            return NAN
        statistic = (treatment.rate - scaled.rate) / error
        if by_chance is None:
            found.append(float(t.sf(side * statistic, welch_freedom(scaled, treatment))))
        else:
            found.append(by_chance.tails(statistic)[1 if side > 0 else 0])
    return max(found)


def detection_factor(alpha: float, power: float, freedom: float = math.inf) -> float:
    """Return the standard errors a difference needs to be detected with the given power."""
    from scipy.stats import norm, t

    if not math.isfinite(freedom):
        return float(norm.isf(alpha / 2) + norm.ppf(power))
    return float(t.isf(alpha / 2, freedom) + t.ppf(power, freedom))


def holm(ps: list[float]) -> list[float]:
    """Return p-values adjusted for several metrics by Holm's method, in the order given.

    The smallest is multiplied by their number, the next by one less, and so on; none is smaller
    than the one before it. nan stays nan and does not count.
    """
    order = sorted((place for place, p in enumerate(ps) if not math.isnan(p)), key=lambda i: ps[i])
    adjusted = list(ps)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * ps[place]))
        adjusted[place] = highest
    return adjusted
