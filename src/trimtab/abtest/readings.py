"""One way of testing one metric: two estimates become a difference, an interval and a p.

A rate is a ratio of sums over units, R = sum(y) / sum(d). By the delta method its variance is that
of the mean of y - R·d, over mean(d)². Two of them are compared as Welch does. Relative differences
have Fieller's interval: all ratios r for which R_treatment - r·R_control may be 0; it excludes
0 % just when the interval of the difference excludes 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from trimtab.arrays import Floats

NAN = math.nan
WELCH, CUPED, BY_DATE = "Welch", "CUPED", "by date"


class Estimate(NamedTuple):
    """A rate, the variance of that rate, and how many units it comes from."""

    rate: float
    variance: float
    n: float


@dataclass(frozen=True)
class Reading:
    """A difference, treatment less control, with its intervals and its p.

    Attributes:
        method: how it was come by, in a few words.
        difference: of the rates.
        low: of its interval.
        high: of its interval.
        relative: the difference over control's rate; nan if that is not above 0.
        relative_low: of its interval; nan where it has no end.
        relative_high: of its interval.
        p: that chance alone would give as much, either way.
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

    def detectable(self, alpha: float, power: float) -> float:
        """The difference that would have been found with the given power."""
        return detection_factor(alpha, power, self.freedom) * self.error


def ratio(numerator: Floats, denominator: Floats) -> Estimate:
    """A ratio of sums over independent units, by the delta method."""
    n, total = len(numerator), float(denominator.sum())
    if n == 0 or total <= 0:
        return Estimate(NAN, NAN, n)
    rate = float(numerator.sum()) / total
    rest = numerator - rate * denominator
    return Estimate(rate, spread(rest / (total / n)), n)


def spread(values: Floats) -> float:
    """The variance of the mean of values whose mean is 0."""
    n = len(values)
    return float(values @ values) / (n * (n - 1)) if n > 1 else NAN


def welch(control: Estimate, treatment: Estimate, alpha: float, method: str) -> Reading:
    """Welch's t on two estimates."""
    from scipy.stats import t

    error = math.sqrt(control.variance + treatment.variance)
    freedom = _freedom(control, treatment)
    difference = treatment.rate - control.rate
    if not error > 0:
        return _untested(method, control, treatment)
    width = float(t.isf(alpha / 2, freedom))
    p = 2 * float(t.sf(abs(difference) / error, freedom))
    ends = fieller(control, treatment, width)
    low, high = difference - width * error, difference + width * error
    return Reading(method, difference, low, high, *ends, p, error, freedom)


def _untested(method: str, control: Estimate, treatment: Estimate) -> Reading:
    """Where nothing varies there is nothing to test by."""
    difference = treatment.rate - control.rate
    relative = difference / control.rate if control.rate > 0 else NAN
    return Reading(method, difference, NAN, NAN, relative, NAN, NAN, NAN, 0.0, NAN)


def _freedom(control: Estimate, treatment: Estimate) -> float:
    """Satterthwaite's degrees of freedom; infinitely many for estimates of infinitely many."""
    parts = [(e.variance, e.n - 1) for e in (control, treatment)]
    below = sum(variance**2 / n for variance, n in parts if n > 0)
    if math.isinf(control.n) and math.isinf(treatment.n):
        return math.inf
    return sum(variance for variance, _ in parts) ** 2 / below if below > 0 else NAN


def fieller(control: Estimate, treatment: Estimate, width: float) -> tuple[float, float, float]:
    """The relative difference and its interval, `width` standard errors to both sides."""
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


def equivalence(control: Estimate, treatment: Estimate, margin: float) -> float:
    """P of two one-sided tests: small if the relative difference is surely within the margin."""
    from scipy.stats import t

    if not control.rate > 0:
        return NAN
    found = []
    for edge, side in ((1 - margin, 1), (1 + margin, -1)):
        scaled = Estimate(edge * control.rate, edge**2 * control.variance, control.n)
        error = math.sqrt(scaled.variance + treatment.variance)
        if not error > 0:
            return NAN
        distance = side * (treatment.rate - scaled.rate) / error
        found.append(float(t.sf(distance, _freedom(scaled, treatment))))
    return max(found)


def detection_factor(alpha: float, power: float, freedom: float = math.inf) -> float:
    """How many standard errors a difference must be to be found with the given power."""
    from scipy.stats import norm, t

    if not math.isfinite(freedom):
        return float(norm.isf(alpha / 2) + norm.ppf(power))
    return float(t.isf(alpha / 2, freedom) + t.ppf(power, freedom))


def holm(ps: list[float]) -> list[float]:
    """P's for the question whether any of several metrics differs, in the order given.

    The smallest is multiplied by their number, the next by one less, and so on; none falls below
    one before it. What is not a number stays so and does not count.
    """
    order = sorted((place for place, p in enumerate(ps) if not math.isnan(p)), key=lambda i: ps[i])
    adjusted = list(ps)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * ps[place]))
        adjusted[place] = highest
    return adjusted
