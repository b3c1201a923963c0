"""Confidence intervals of lifts, by a paired bootstrap over users."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Floats
from trimtab.metrics.per_user import lift

LEVEL = 0.9  # as of forecasts
_NUMBERS_PER_BLOCK = 4_000_000  # drawn at a time, to bound memory


class Interval(NamedTuple):
    """A lift and the bounds of its interval; nan if the baseline is 0."""

    lift: float
    low: float
    high: float


def lift_intervals(
    values: Floats, baseline: Floats, n_draws: int, seed: int, level: float = LEVEL
) -> list[Interval]:
    """Return the lift of each column over the baseline, with paired-bootstrap percentile intervals.

    Args:
        values: one row per user, one column per method and metric.
        baseline: the same users' values to compare each column with, in the same shape.
        n_draws: number of samples, each of as many users, with replacement.
        seed: random seed; the same users are drawn for all columns.
        level: share of draws inside the interval.

    Example:
        >>> one = np.array([[0.2], [0.4], [0.3], [0.3]])
        >>> round(lift_intervals(1.5 * one, one, n_draws=100, seed=0)[0].lift, 12)
        0.5
    """
    sums = np.concatenate([values, baseline], axis=1)
    drawn = np.concatenate(_drawn_sums(sums, n_draws, seed))
    n_columns = values.shape[1]
    lifts = lift(drawn[:, :n_columns], drawn[:, n_columns:])
    tail = (1 - level) / 2
    found = []
    for column in range(n_columns):
        whole = lift(float(values[:, column].sum()), float(baseline[:, column].sum()))
        known = lifts[:, column][~np.isnan(lifts[:, column])]
        bounds = np.quantile(known, [tail, 1 - tail]) if len(known) else (np.nan, np.nan)
        # Rounded, because a change in the order of additions is not a lift.
        found.append(Interval(round(whole, 12), float(bounds[0]), float(bounds[1])))
    return found


def _drawn_sums(sums: Floats, n_draws: int, seed: int) -> list[Floats]:
    n_users = len(sums)
    random = np.random.default_rng(seed)
    block = max(1, min(n_draws, _NUMBERS_PER_BLOCK // max(n_users, 1)))
    parts = []
    for first in range(0, n_draws, block):
        size = min(block, n_draws - first)
        chosen = random.integers(0, n_users, (size, n_users))
        chosen += np.arange(size)[:, None] * n_users
        times = np.bincount(chosen.ravel(), minlength=size * n_users).reshape(size, n_users)
        parts.append(times @ sums)
    return parts
