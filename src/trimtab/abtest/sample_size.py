"""The number of emails, or users, needed to detect a lift."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from trimtab.abtest import counts as by_count
from trimtab.abtest.analyse import require_scipy
from trimtab.abtest.metrics import Metric, estimate_rate, metrics_of, own_metrics
from trimtab.abtest.readings import Estimate, detection_factor
from trimtab.abtest.sample_reading import read_baseline
from trimtab.abtest.samples import EMAILS, LABELS, ORDERS, PER_USER, REVENUE
from trimtab.abtest.settings import Settings
from trimtab.abtest.totals import Counts
from trimtab.errors import DataError, SettingError

LIFTS = (0.01, 0.02, 0.03, 0.05, 0.10, 0.20)
_FEW_EVENTS = 2_000  # up to so many, the power of the exact test is computed
_STEPS = 30
_LEAST_LIFT = 1e-6


class Baseline(NamedTuple):
    """A metric without a treatment.

    Attributes:
        metric: the metric.
        rate: its rate.
        variance: variance of the rate times the number of emails.
        events: events per email if they are tested as rare events; otherwise None.
        binomial: whether the rate is a share, with the variance of a share.
    """

    metric: Metric
    rate: float
    variance: float
    events: float | None
    binomial: bool

    def after(self, lift: float) -> float:
        """Return the variance with a lift: of a share, or growing with the rate as for counts."""
        if self.binomial:
            return self.variance * (1 + lift) * (1 - self.rate * (1 + lift)) / (1 - self.rate)
        return self.variance * (1 + lift)


@dataclass(frozen=True)
class Planned:
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
        table: as for `analyse`; with counts or amounts, as for `analyse_users`.
        labels: names of control and treatment in the column bucket, if there is one.
        counts: counts per anything, like `clicks/impressions`; plans are then in users.
        amounts: amounts per anything, like `revenue/user`.
    """
    own_choice = own_metrics(counts, amounts)
    arm = read_baseline(table, labels, own_choice)
    emails = float(arm[PER_USER if own_choice else EMAILS].sum())
    found = []
    for metric in own_choice or metrics_of(arm):
        own = estimate_rate(metric, arm)
        events = float(arm[ORDERS].sum()) / emails if metric.is_rare_event else None
        found.append(_baseline(metric, own, emails, events, binomial=False))
    return found


def baseline_of_counts(totals: Mapping[str, float]) -> list[Baseline]:
    """Return baselines from totals; revenue is left out because its variance is unknown."""
    known = Counts(totals).totals
    emails = known[EMAILS]
    found = []
    for metric in metrics_of([name for name in known if name != REVENUE]):
        pair = known[metric.numerator], known[metric.denominator]
        if metric.numerator == ORDERS:
            own, events = by_count.frequency(*pair), known[ORDERS] / emails
            found.append(_baseline(metric, own, emails, events, binomial=False))
        else:
            found.append(_baseline(metric, by_count.share(*pair), emails, None, binomial=True))
    return found


def _baseline(
    metric: Metric, own: Estimate, emails: float, events: float | None, binomial: bool
) -> Baseline:
    return Baseline(metric, own.rate, own.variance * emails, events, binomial)


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
        Planned(known.metric, known.rate, lift, _needed_emails(known, lift, settings))
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
    low, high = 0.0, 1.0
    most = 0.999999 * (1 / known.rate - 1) if known.binomial and known.rate > 0 else 1e6
    while high < most and not _needed_emails(known, high, settings) <= emails:
        high *= 2
    high = min(high, most)
    if not _needed_emails(known, high, settings) <= emails:
        return math.nan
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if _needed_emails(known, middle, settings) <= emails else (middle, high)
        )
    return high


def _needed_emails(known: Baseline, lift: float, settings: Settings) -> float:
    """Return the emails needed in both buckets."""
    if not known.rate > 0 or not known.variance > 0:
        return math.nan
    if known.binomial and known.rate * (1 + lift) >= 1:
        return math.nan
    share = settings.share
    spread = known.variance / (1 - share) + known.after(lift) / share
    factor = detection_factor(settings.alpha, settings.power)
    emails = spread * (factor / (lift * known.rate)) ** 2
    if known.events is not None and emails * known.events < _FEW_EVENTS:
        emails = max(emails, _needed_by_exact(known.events, lift, settings, emails))
    return math.ceil(emails)


def _needed_by_exact(events: float, lift: float, settings: Settings, guess: float) -> float:
    """Return the emails that give the exact test its power, searched from a guess."""
    share = settings.share

    def power(emails: float) -> float:
        control = emails * (1 - share) * events
        treated = emails * share * events * (1 + lift)
        return by_count.exact_power(control, treated, share, settings.alpha)

    low, high = 0.5 * guess, guess
    while power(high) < settings.power:
        low, high = high, 1.5 * high
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= settings.power else (middle, high)
    return high
