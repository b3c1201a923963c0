"""Tests on counts alone: pooled z for shares, the exact conditional test for rare events."""

from __future__ import annotations

import math
from typing import Any

from trimtab.abtest.readings import NAN, Estimate, Reading, fieller, untested

POOLED, EXACT = "pooled z", "exact"
_ROUND_OFF = 1 + 1e-7  # two probabilities this close count as equal


def share(events: float, trials: float) -> Estimate:
    """Return the estimate of a share: events over trials, each counted at most once."""
    if trials <= 0:
        return Estimate(NAN, NAN, math.inf)
    rate = events / trials
    return Estimate(rate, rate * (1 - rate) / trials, math.inf)


def frequency(events: float, exposure: float) -> Estimate:
    """Return the estimate of a rate of independent events per unit of exposure."""
    if exposure <= 0:
        return Estimate(NAN, NAN, math.inf)
    return Estimate(events / exposure, events / exposure**2, math.inf)


def pooled_z(control: tuple[float, float], treatment: tuple[float, float], alpha: float) -> Reading:
    """Compare two shares, each (events, trials): pooled variance for p, separate for intervals."""
    from scipy.stats import norm

    method = POOLED
    first, second = share(*control), share(*treatment)
    difference = second.rate - first.rate
    if math.isnan(difference):
        return untested(method, difference)
    both = (control[0] + treatment[0]) / (control[1] + treatment[1])
    error = math.sqrt(max(both * (1 - both), 0.0) * (1 / control[1] + 1 / treatment[1]))
    if error == 0:
        return untested(method, 0.0, 0.0 if both else NAN)
    width = float(norm.isf(alpha / 2))
    first, second = _fill_shares(first, second, both * (1 - both), (control[1], treatment[1]))
    apart = math.sqrt(first.variance + second.variance)
    p = 2 * float(norm.sf(abs(difference) / error))
    low, high = difference - width * apart, difference + width * apart
    return Reading(
        method, difference, low, high, *fieller(first, second, width), p, error, math.inf
    )


def _fill_shares(
    control: Estimate, treatment: Estimate, usual: float, trials: tuple[float, float]
) -> tuple[Estimate, Estimate]:
    """Return shares in which a bucket without variance varies like both together."""
    first, second = (
        own if own.variance > 0 else own._replace(variance=usual / n)
        for own, n in zip((control, treatment), trials, strict=True)
    )
    return first, second


def expected_least(control: tuple[float, float], treatment: tuple[float, float]) -> float:
    """Return the events, or trials without, that the smaller bucket would have by chance."""
    events, trials = (sum(both) for both in zip(control, treatment, strict=True))
    if not trials > 0:
        return 0.0
    return min(events, trials - events) * min(control[1], treatment[1]) / trials


def exact(control: tuple[float, float], treatment: tuple[float, float], alpha: float) -> Reading:
    """Compare two counts, each (events, exposure), given their sum.

    Without a difference, an event falls in the treatment group with probability equal to its share
    of the exposure. p adds up all outcomes at most as likely as the one seen; the interval is
    Clopper and Pearson's, which may be a little wider than p suggests.
    """
    method = EXACT
    before, after = frequency(*control), frequency(*treatment)
    total = round(control[0] + treatment[0])
    difference = after.rate - before.rate
    error = math.sqrt(before.variance + after.variance)
    if total == 0 or math.isnan(difference):
        return untested(method, difference)
    found = exact_test(control, treatment)
    ends = found.proportion_ci(1 - alpha)
    low, high = (
        total * (end / treatment[1] - (1 - end) / control[1]) for end in (ends.low, ends.high)
    )
    relative_low, relative_high = (
        _relative(end, control[1] / treatment[1]) for end in (ends.low, ends.high)
    )
    ratio = after.rate / before.rate - 1 if before.rate > 0 else NAN
    return Reading(
        method, difference, low, high, ratio, relative_low, relative_high, float(found.pvalue),
        error, math.inf,
    )  # fmt: skip


def exact_test(control: tuple[float, float], treatment: tuple[float, float]) -> Any:
    """Return the binomial test of two counts, each (events, exposure)."""
    from scipy.stats import binomtest

    exposed = control[1] + treatment[1]
    return binomtest(round(treatment[0]), round(control[0] + treatment[0]), treatment[1] / exposed)


def _relative(share_treated: float, exposures: float) -> float:
    """Return the relative difference at which the treatment has a share of the events."""
    if share_treated >= 1:
        return NAN
    return share_treated / (1 - share_treated) * exposures - 1


def exact_power(control: float, treatment: float, share_exposed: float, alpha: float) -> float:
    """Return the power of `exact` for given numbers of expected events.

    Args:
        control: expected events in control.
        treatment: expected events in treatment.
        share_exposed: share of the exposure in treatment.
        alpha: significance level.
    """
    import numpy as np
    from scipy.stats import poisson

    expected = control + treatment
    reach = 5 * math.sqrt(expected) + 5
    totals = np.arange(max(0, math.floor(expected - reach)), math.ceil(expected + reach) + 1)
    chosen = totals[:: max(1, len(totals) // 60)]  # power changes slowly with the total
    weights = poisson.pmf(chosen, expected)
    found = [_rejected(int(n), share_exposed, treatment / expected, alpha) for n in chosen]
    return float(np.dot(weights, found) / weights.sum())


def _rejected(total: int, null: float, truth: float, alpha: float) -> float:
    """Return the probability under `truth` that the exact test rejects."""
    import numpy as np
    from scipy.stats import binom

    outcomes = np.arange(total + 1)
    chances = binom.pmf(outcomes, total, null)
    ordered = np.sort(chances)
    # p of an outcome: the sum over all outcomes at most as likely.
    last = np.searchsorted(ordered, chances * _ROUND_OFF, side="right") - 1
    ps = np.cumsum(ordered)[last]
    return float(binom.pmf(outcomes, total, truth)[ps < alpha].sum())
