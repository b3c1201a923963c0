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
from trimtab.abtest.redistribution import LEAST_DIFFERENT
from trimtab.abtest.revenue import bootstrapped, choose_draws, winsorised
from trimtab.abtest.samples import BEFORE, ORDERS, REVENUE, Sample
from trimtab.abtest.settings import Settings
from trimtab.abtest.strata import Arms, keep_comparable
from trimtab.abtest.unequal import is_too_few, observed, redistribute, rename
from trimtab.abtest.verdicts import Side


def measure(sample: Sample, metric: Metric, settings: Settings, uneven: bool) -> Measured:
    """Return all readings of a metric, the one to show first."""
    arms = merge_covariates(sample.arms(), metric)
    first, second = ((arm[metric.numerator], arm[metric.denominator]) for arm in arms)
    dated = _arms_by_date(sample, metric)
    by_method = _rates_by_method(arms, dated, metric, uneven)
    estimates = next(iter(by_method.values()))
    readings = [welch(*both, settings.alpha, name) for name, both in by_method.items()]
    is_by_date = readings[0].method == BY_DATE
    compared = dated if dated is not None and is_by_date else arms
    by_chance = redistribute(compared, metric, readings[0], settings.seed)
    if by_chance is not None:
        name = rename(readings[0].method)
        main = welch(*estimates, settings.alpha, name, by_chance)
        readings = [main, *(own for own in readings if own.method != name)]
    p = readings[0].p
    if metric.is_rare_event and not is_by_date:
        totals = [(float(own.sum()), float(below.sum())) for own, below in (first, second)]
        readings.append(by_count.exact(totals[0], totals[1], settings.alpha))
    if metric.kind == AMOUNT:
        readings += _amount_readings(compared, metric, settings)
    if uneven and not is_by_date:
        p = NAN  # the difference may come from the dates
    too_few = not math.isnan(p) and is_too_few(compared, metric)
    sides = _side(*first), _side(*second)
    return Measured(metric, sides, estimates, readings, p, too_few, by_chance)


def _arms_by_date(sample: Sample, metric: Metric) -> Arms | None:
    """Return sums per unit that can be compared by date; None if there are none."""
    if sample.dates is None or len(sample.date_names) < 2:
        return None
    found = keep_comparable(sample.arms_by_date(), metric.denominator)
    return found if len(found[0][metric.numerator]) else None


def _rates_by_method(
    arms: Arms, dated: Arms | None, metric: Metric, uneven: bool
) -> dict[str, tuple[Estimate, Estimate]]:
    """Return both rates by each available method, the one to show first."""
    found = {WELCH: estimate_rates(metric, arms)}
    if BEFORE + metric.numerator in arms[0]:
        first, second = ((arm[metric.numerator], arm[metric.denominator]) for arm in arms)
        adjusted = adjust(observed(arms[0], metric), observed(arms[1], metric))
        found = {CUPED: fill_variances(*adjusted, pool(first, second)), **found}
    if dated is None:
        return found
    by_date = {BY_DATE: estimate_rates(metric, dated)}
    return {**by_date, **found} if uneven else {**found, **by_date}


def _amount_readings(arms: Arms, metric: Metric, settings: Settings) -> list[Reading]:
    """Return readings that a few large orders cannot dominate."""
    if min(float(arm[metric.denominator].sum()) for arm in arms) <= 0:
        return []
    found = [winsorised(arms, metric, settings.quantile, settings.alpha)]
    if draws := choose_draws(arms, metric, settings):
        found.append(bootstrapped(arms, metric, draws, settings.seed, settings.alpha))
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
