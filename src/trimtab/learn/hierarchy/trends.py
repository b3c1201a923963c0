"""The trend: coefficients of the features, on all units and without each fold; and the scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.learn.hierarchy.choice_model import fit_coefficients
from trimtab.learn.hierarchy.unit_data import Fit, Subset, UnitData
from trimtab.learn.scales import Scale

RIDGE = 10.0  # units; weight of the prior of coefficients
_PREFERRED = 2.0  # standard errors by which another scale than the first must be better


def fit_trend(sample: UnitData, subset: Subset, start: Fit | None) -> Fit:
    """The coefficients of the trend on some of the units."""
    begin = None if start is None else start.coefficients
    return Fit(subset, fit_coefficients(sample.choices(subset), RIDGE, begin))


def choose_scale(engine_scores: UnitData, scales: Sequence[Scale]) -> Scale:
    """The scale on which the trend gains most on what is held out; the first unless it is clear.

    Scales on which the coefficients do not converge do not count.

    Args:
        engine_scores: a sample of the units, with the engine's scores as they are.
        scales: to choose from.
    """
    if len(scales) == 1 or engine_scores.data.n_units == 0:
        return scales[0]
    first, best = None, (0.0, scales[0])
    for scale in scales:
        sample = engine_scores.on_scale(scale)
        whole = fit_trend(sample, Subset(), None)
        folds = [fit_trend(sample, Subset(fold), whole) for fold in range(sample.shared.n_folds)]
        if not all(fit.coefficients.converged for fit in (whole, *folds)):
            continue
        values = sample.held_out_values(folds, {"trend": 1.0})
        if first is None:
            first, best = values, (0.0, scale)
        better = values - first
        gain, error = float(better.sum()), float(np.sqrt((better * better).sum()))
        if gain > max(best[0], _PREFERRED * error):
            best = gain, scale
    return best[1]
