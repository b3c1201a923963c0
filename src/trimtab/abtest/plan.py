"""The number of emails, or users, needed to detect a lift."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trimtab.abtest.table import EMAIL, LABELS, Metric, own_metrics, read_past, read_totals
from trimtab.abtest.test import estimate, moments_of, sum_cells, take_sample
from trimtab.abtest.verdict import Settings, detection_factor, require_scipy
from trimtab.errors import DataError, SettingError

LIFTS = (0.01, 0.02, 0.03, 0.05, 0.10, 0.20)
_LEAST_LIFT = 1e-6


class Planned(NamedTuple):
    """What is needed in both buckets together to detect a lift of a metric.

    Attributes:
        metric: the metric.
        rate: its rate without a treatment.
        lift: the lift to detect.
        needed: number of emails, or of users; nan if there is none.
        base: what is needed: email or user.
    """

    metric: Metric
    rate: float
    lift: float
    needed: float
    base: str


def plan(
    data: Any, lifts: Sequence[float] = LIFTS, settings: Settings | None = None, *,
    labels: Sequence[str] = LABELS, counts: Sequence[str] = (), amounts: Sequence[str] = (),
) -> list[Planned]:  # fmt: skip
    """Return what is needed in both buckets, for every metric and lift.

    Args:
        data: a table as for `analyse`, from before any test (with a column bucket, control only);
            or the totals of one bucket, as for `analyse_counts`.
        lifts: relative lifts, like 0.03; below 1, negative for a loss.
        settings: its alpha, power and share are used.
        labels: names of control and treatment in the column bucket.
        counts: counts per anything, like `clicks/impressions`; plans are then in users.
        amounts: amounts per anything, like `revenue/user`.

    Example:
        >>> totals = {"emails": 100_000, "opens": 15_000, "clicks": 2_250}
        >>> round(plan(totals, [0.05])[0].needed, -4)
        480000
    """
    require_scipy()
    settings = settings or Settings()
    for lift in lifts:
        if not _LEAST_LIFT <= abs(lift) < 1:
            hint = f"{lift:g} % is {lift / 100:g} or {lift:g}%" if lift > 0 else "3 % is 0.03 or 3%"
            raise SettingError(f"lift={lift:g}: must be below 100 % and not near 0; {hint}")
    totals = isinstance(data, Mapping)
    rows = read_totals(data) if totals else read_past(data, own_metrics(counts, amounts), labels)
    sample, found = take_sample(rows, ramp=False), []
    for metric in rows.metrics:
        y, d = (sample.columns[name] for name in metric[:2])
        sums = sum_cells(moments_of(y, d, 0.0), sample, np.ones(len(y), bool))
        rate, variance = (float(own[0]) for own in estimate(sums, np.zeros(1)))
        varies = variance * rows.size()
        for lift in lifts:
            needed = _needed(rate, varies, rows.unit == EMAIL, lift, settings)
            found.append(Planned(metric, rate, lift, needed, rows.base))
    if all(math.isnan(row.needed) for row in found):
        raise DataError("no metric varies: a test cannot be planned; give more data")
    return found


def _needed(rate: float, variance: float, is_share: bool, lift: float, settings: Settings) -> float:
    """Return the units needed, each of which adds `variance` to that of the rate."""
    if not rate > 0 or not variance > 0:
        return math.nan
    after = variance * (1 + lift)  # as for counts
    if is_share:
        after *= (1 - rate * (1 + lift)) / (1 - rate)
    if not after > 0:
        return math.nan
    spread = variance / (1 - settings.share) + after / settings.share
    factor = detection_factor(settings.alpha, settings.power)
    return math.ceil(spread * (factor / (lift * rate)) ** 2)
