"""The number of emails, or users, needed to detect a lift."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trimtab.abtest.table import (
    LABELS,
    Metric,
    Rows,
    email_metrics,
    own_metrics,
    read_past,
    read_totals,
)
from trimtab.abtest.test import estimate, moments_of, sum_cells, take_sample
from trimtab.abtest.verdict import Settings, detection_factor, require_scipy
from trimtab.errors import DataError, SettingError

LIFTS = (0.01, 0.02, 0.03, 0.05, 0.10, 0.20)
_STEPS = 30
_LEAST_LIFT = 1e-6


class Baseline(NamedTuple):
    """A metric without a treatment.

    Attributes:
        metric: the metric.
        rate: its rate.
        variance: variance of the rate times the number of emails, or of users.
        binomial: whether the rate is a share, with the variance of a share.
        base: what a test is planned in: email or user.
    """

    metric: Metric
    rate: float
    variance: float
    binomial: bool
    base: str

    def after(self, lift: float) -> float:
        """Return the variance with a lift: of a share, or growing with the rate as for counts."""
        if self.binomial:
            return self.variance * (1 + lift) * (1 - self.rate * (1 + lift)) / (1 - self.rate)
        return self.variance * (1 + lift)


class Planned(NamedTuple):
    """The emails in both buckets needed to detect a lift of a metric; users if it is per user."""

    metric: Metric
    rate: float
    lift: float
    emails: float


def baseline_of(
    table: Any,
    labels: Sequence[str] = LABELS,
    *,
    counts: Sequence[str] = (),
    amounts: Sequence[str] = (),
) -> list[Baseline]:
    """Return baselines from a table with one row per user or email: all rows, or control.

    Args:
        table: as for `analyse`.
        labels: names of control and treatment in the column bucket, if there is one.
        counts: counts per anything, like `clicks/impressions`; plans are then in users.
        amounts: amounts per anything, like `revenue/user`.
    """
    metrics = own_metrics(counts, amounts)
    return _measure(read_past(table, labels, metrics), metrics)


def baseline_of_counts(totals: Mapping[str, float]) -> list[Baseline]:
    """Return baselines from totals; revenue is left out because its variance is unknown."""
    return _measure(read_totals(totals), ())


def _measure(rows: Rows, metrics: Sequence[Metric]) -> list[Baseline]:
    """Return the rate of each metric, and its variance."""
    sample, n = take_sample(rows, ramp=False), rows.size()
    found = []
    for metric in metrics or email_metrics(rows.columns):
        y, d = (sample.columns[name] for name in metric[:2])
        sums = sum_cells(moments_of(y, d, 0.0), sample, np.ones(len(y), bool))
        rate, variance = (float(own[0]) for own in estimate(sums, np.zeros(1)))
        is_share = rows.repeats is not None
        found.append(Baseline(metric, rate, variance * n, is_share, rows.base))
    return found


def plan(
    baseline: Sequence[Baseline], lifts: Sequence[float] = LIFTS, settings: Settings | None = None
) -> list[Planned]:
    """Return the emails needed in both buckets, for every metric and lift.

    Args:
        baseline: from `baseline_of` or `baseline_of_counts`.
        lifts: relative lifts, like 0.03; at most 1, negative for a loss.
        settings: its alpha, power and share are used.

    Example:
        >>> base = baseline_of_counts({"emails": 100_000, "opens": 15_000, "clicks": 2_250})
        >>> [round(row.emails, -4) for row in plan(base[:1], [0.05])]
        [480000]
    """
    require_scipy()
    settings = settings or Settings()
    for lift in lifts:
        if not _LEAST_LIFT <= abs(lift) < math.inf or lift <= -1:
            raise SettingError(
                f"lift={lift:g}: must be above -100 % and not near 0, like 0.03 or 3%"
            )
        if lift > 1:
            raise SettingError(f"lift={lift:g}: must be at most 1; {explain_lift(lift)}")
    if not any(known.rate > 0 and known.variance > 0 for known in baseline):
        raise DataError("no metric varies: a test cannot be planned; give more data")
    return [
        Planned(known.metric, known.rate, lift, _needed(known, lift, settings))
        for known in baseline
        for lift in lifts
    ]


def explain_lift(number: float) -> str:
    """Return how to write a lift that was given as a number of percent."""
    return (
        f"as a share it is {100 * number:+.0f} %; write {number:g} % as {number / 100:g} or "
        f"{number:g}%"
    )


def detectable_lift(known: Baseline, emails: float, settings: Settings) -> float:
    """Return the lift that a number of emails can detect; nan without one."""
    most = 0.999999 * (1 / known.rate - 1) if known.binomial and known.rate > 0 else 1e6
    if not _needed(known, most, settings) <= emails:
        return math.nan
    low, high = 0.0, min(1.0, most)
    while not _needed(known, high, settings) <= emails:
        high = min(2 * high, most)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        enough = _needed(known, middle, settings) <= emails
        low, high = (low, middle) if enough else (middle, high)
    return high


def _needed(known: Baseline, lift: float, settings: Settings) -> float:
    """Return the emails needed in both buckets."""
    if not known.rate > 0 or not known.variance > 0:
        return math.nan
    if known.binomial and known.rate * (1 + lift) >= 1:
        return math.nan
    share = settings.share
    spread = known.variance / (1 - share) + known.after(lift) / share
    factor = detection_factor(settings.alpha, settings.power)
    return math.ceil(spread * (factor / (lift * known.rate)) ** 2)
