"""Covariates of one's own: several columns known before the test become one, for CUPED.

The columns, and the metric itself before the test if known, are combined as a regression within
buckets combines them; CUPED then has a single covariate, with a slope of 1.
"""

from __future__ import annotations

import numpy as np

from trimtab.abtest.cuped import covary, linearise
from trimtab.abtest.metrics import Metric, estimate_rate
from trimtab.abtest.samples import BEFORE, COVARIATE, Sums
from trimtab.abtest.unequal import observed
from trimtab.arrays import Floats

_Arms = tuple[Sums, Sums]


def merge_covariates(arms: _Arms, metric: Metric) -> _Arms:
    """Return sums per unit in which all covariates are one column from before the metric."""
    names = [name for name in arms[0] if name.startswith(COVARIATE)]
    rates = [estimate_rate(metric, arm).rate for arm in arms]
    if not names or not np.isfinite(rates).all():
        return arms
    columns = [_scale([arm[name] for arm in arms]) for name in names]
    if BEFORE + metric.numerator in arms[0]:
        before, _ = covary(observed(arms[0], metric), observed(arms[1], metric))
        columns.append(_scale(before))
    known = [np.stack([column[side] for column in columns], axis=1) for side in (0, 1)]
    own = [
        linearise(arm[metric.numerator], arm[metric.denominator], rate)
        for arm, rate in zip(arms, rates, strict=True)
    ]
    centred = np.concatenate([values - values.mean(axis=0) for values in known])
    slopes = np.linalg.lstsq(centred, np.concatenate(own), rcond=1e-10)[0]
    first, second = (
        {**arm, BEFORE + metric.numerator: values @ slopes,
         BEFORE + metric.denominator: np.ones(len(values))}
        for arm, values in zip(arms, known, strict=True)
    )  # fmt: skip
    return first, second


def _scale(column: list[Floats]) -> list[Floats]:
    """Return a covariate of both buckets with mean 0 and variance 1; unknown values are average."""
    both = np.concatenate(column)
    known = both[np.isfinite(both)]
    middle, size = (float(known.mean()), float(known.std())) if len(known) else (0.0, 0.0)
    if not size > 0:
        return [np.zeros(len(values)) for values in column]
    return [np.where(np.isfinite(values), (values - middle) / size, 0.0) for values in column]
