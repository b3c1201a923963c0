"""The readings of a metric: every test of it, with the one to show first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trimtab.abtest import counts as by_count
from trimtab.abtest.covariates import merge_covariates
from trimtab.abtest.cuped import adjust
from trimtab.abtest.judging import Measured
from trimtab.abtest.metrics import AMOUNT, Metric, estimate_rates
from trimtab.abtest.readings import (
    BY_DATE,
    CUPED,
    NAN,
    WELCH,
    Estimate,
    Reading,
    fill_variances,
    pool,
    welch,
)
from trimtab.abtest.redistribution import LEAST_DIFFERENT, Pair
from trimtab.abtest.revenue import bootstrapped, choose_draws, winsorised
from trimtab.abtest.samples import BEFORE, ORDERS, REVENUE, Sample, Sums
from trimtab.abtest.settings import Settings
from trimtab.abtest.strata import stratified
from trimtab.abtest.unequal import is_too_few, observed, redistribute, rename
from trimtab.abtest.verdicts import Side


def measure(sample: Sample, metric: Metric, settings: Settings, uneven: bool) -> Measured:
    """Return all readings of a metric, the one to show first."""
    arms = merge_covariates(sample.arms(), metric)
    first, second = ((arm[metric.numerator], arm[metric.denominator]) for arm in arms)
    by_method = _rates_by_method(sample, arms, metric, uneven)
    estimates = next(iter(by_method.values()))
    readings = [welch(*both, settings.alpha, name) for name, both in by_method.items()]
    by_chance = redistribute(arms, metric, readings[0], settings.seed)
    if by_chance is not None:
        name = rename(readings[0].method)
        main = welch(*estimates, settings.alpha, name, by_chance)
        readings = [main, *(own for own in readings if own.method != name)]
    main = readings[0]
    p = main.p
    if metric.is_rare_event:
        totals = [(float(own.sum()), float(below.sum())) for own, below in (first, second)]
        readings.append(by_count.exact(totals[0], totals[1], settings.alpha))
        if by_chance is None:
            p = max(p, readings[-1].p)  # orders are few: both tests must find a difference
    if metric.kind == AMOUNT:
        readings += _revenue_readings(first, second, settings)
    if uneven and main.method != BY_DATE:
        p = NAN  # the difference may come from the dates
    too_few = not math.isnan(p) and is_too_few(arms, metric)
    sides = _side(*first), _side(*second)
    return Measured(metric, sides, estimates, readings, p, too_few, by_chance)


def _rates_by_method(
    sample: Sample, arms: tuple[Sums, Sums], metric: Metric, uneven: bool
) -> dict[str, tuple[Estimate, Estimate]]:
    """Return both rates by each available method, the one to show first."""
    top, per = metric.numerator, metric.denominator
    both = pool((arms[0][top], arms[0][per]), (arms[1][top], arms[1][per]))
    found = {WELCH: estimate_rates(metric, arms)}
    if BEFORE + top in arms[0]:
        adjusted = adjust(observed(arms[0], metric), observed(arms[1], metric))
        found = {CUPED: fill_variances(*adjusted, both), **found}
    if sample.dates is None or len(sample.date_names) < 2:
        return found
    strata = stratified(sample, top, per)
    if math.isnan(strata.control.rate):
        return found
    dated = {BY_DATE: fill_variances(strata.control, strata.treatment, both)}
    return {**dated, **found} if uneven else {**found, **dated}


def _revenue_readings(control: Pair, treatment: Pair, settings: Settings) -> list[Reading]:
    """Return readings that a few large orders cannot dominate."""
    if min(float(per.sum()) for _, per in (control, treatment)) <= 0:
        return []
    found = [winsorised(control, treatment, settings.quantile, settings.alpha)]
    if draws := choose_draws(control, treatment, settings):
        found.append(bootstrapped(control, treatment, draws, settings.seed, settings.alpha))
    return found


def _side(own: Any, below: Any) -> Side:
    numerator, denominator = float(np.sum(own)), float(np.sum(below))
    return Side(numerator, denominator, numerator / denominator if denominator > 0 else NAN)


def measure_counts(
    arms: tuple[Mapping[str, float], Mapping[str, float]], metric: Metric, settings: Settings
) -> Measured:
    """Return the reading of a metric from totals."""
    pairs = [(arm[metric.numerator], arm[metric.denominator]) for arm in arms]
    too_few = False
    if metric.numerator == ORDERS:
        reading = by_count.exact(pairs[0], pairs[1], settings.alpha)
        estimates = [by_count.frequency(*pair) for pair in pairs]
    elif metric.numerator == REVENUE:
        estimates = [Estimate(_side(*pair).rate, NAN, math.inf) for pair in pairs]
        reading = welch(estimates[0], estimates[1], settings.alpha, "not tested")
    else:
        reading = by_count.pooled_z(pairs[0], pairs[1], settings.alpha)
        estimates = [by_count.share(*pair) for pair in pairs]
        too_few = by_count.expected_least(pairs[0], pairs[1]) < LEAST_DIFFERENT
    sides = [_side(*pair) for pair in pairs]
    both = (estimates[0], estimates[1])
    return Measured(
        metric,
        (sides[0], sides[1]),
        both,
        [reading],
        reading.p,
        too_few and not math.isnan(reading.p),
    )
