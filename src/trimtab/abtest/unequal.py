"""When Welch's test does not hold: unequal buckets, rare orders, skewed revenue, too few units."""

from __future__ import annotations

import numpy as np

from trimtab.abtest.cuped import Observed, covary
from trimtab.abtest.metrics import Metric
from trimtab.abtest.readings import BY_DATE, CUPED, REDISTRIBUTED, WELCH, Reading
from trimtab.abtest.redistribution import (
    LEAST_DIFFERENT,
    NoEffect,
    Units,
    expected_different,
    without_effect,
)
from trimtab.abtest.samples import BEFORE, JOINED, Sums

_BALANCED = 0.45  # share of units in the smaller bucket from which errors cancel out


def redistribute(
    arms: tuple[Sums, Sums], metric: Metric, main: Reading, seed: int
) -> NoEffect | None:
    """Return the distribution of a reading without an effect; None if Welch's test holds."""
    sizes = [len(arm[metric.numerator]) for arm in arms]
    balanced = min(sizes) >= _BALANCED * sum(sizes) and main.method != BY_DATE
    if not main.error > 0 or (balanced and not metric.is_skewed):
        return None
    units = _units(arms, metric)
    if main.method == CUPED:
        before, slope = covary(observed(arms[0], metric), observed(arms[1], metric))
        units = units._replace(covariate=np.concatenate(before), slope=slope)
    return without_effect(units, main.freedom, seed=seed)


def _units(arms: tuple[Sums, Sums], metric: Metric) -> Units:
    """Return the units of both buckets, in strata if the arms are by date."""
    sizes = [len(arm[metric.numerator]) for arm in arms]
    own, below = (np.concatenate([arm[name] for arm in arms]) for name in metric[:2])
    strata = np.concatenate([arm[JOINED] for arm in arms]) if JOINED in arms[0] else None
    return Units(own, below, None, 0.0, np.repeat([False, True], sizes), strata)


def rename(method: str) -> str:
    """Return the name of a method with redistribution."""
    return REDISTRIBUTED if method == WELCH else method


def is_too_few(arms: tuple[Sums, Sums], metric: Metric) -> bool:
    """Return whether too little happened in the smaller bucket for any test."""
    return expected_different(_units(arms, metric)) < LEAST_DIFFERENT


def observed(arm: Sums, metric: Metric) -> Observed:
    """Return a metric of one bucket, in the test and before it."""
    top, per = metric.numerator, metric.denominator
    ones = np.ones(len(arm[top]))
    return Observed(arm[top], arm[per], arm[BEFORE + top], arm.get(BEFORE + per, ones))
