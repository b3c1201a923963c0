"""How many mails it takes to see a lift."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from trimtab.abtest import counts as by_count
from trimtab.abtest.analyse import require_scipy
from trimtab.abtest.metrics import Metric, metrics_of
from trimtab.abtest.readings import Estimate, detection_factor, ratio
from trimtab.abtest.samples import LABELS, MAILS, ORDERS, REVENUE, Counts, read_baseline
from trimtab.abtest.settings import Settings
from trimtab.errors import DataError, SettingError

LIFTS = (0.01, 0.02, 0.03, 0.05, 0.10, 0.20)
_FEW = 2_000  # events up to which the exact test's own power is looked for
_STEPS = 30
_LEAST_LIFT = 1e-6


class Baseline(NamedTuple):
    """What a metric is without a treatment.

    Attributes:
        metric: which one.
        rate: its rate.
        variance: of the rate, times the mails that it comes from.
        events: per mail, where they are tested as rare events; None otherwise.
        binomial: whether a rate is a share, whose variance is that of a share.
    """

    metric: Metric
    rate: float
    variance: float
    events: float | None
    binomial: bool

    def after(self, lift: float) -> float:
        """The variance with a lift: that of a share, or grown like the rate, as counts' do."""
        if self.binomial:
            return self.variance * (1 + lift) * (1 - self.rate * (1 + lift)) / (1 - self.rate)
        return self.variance * (1 + lift)


@dataclass(frozen=True)
class Planned:
    """How many mails, in both buckets together, show a lift of a metric."""

    metric: Metric
    rate: float
    lift: float
    mails: float


def baseline_of(table: Any, labels: Sequence[str] = LABELS) -> list[Baseline]:
    """What metrics are, from a table with a row a user or a mail: all rows, or control's."""
    arm = read_baseline(table, labels)
    mails = float(arm[MAILS].sum())
    found = []
    for metric in metrics_of(arm):
        own = ratio(arm[metric.numerator], arm[metric.denominator])
        events = float(arm[ORDERS].sum()) / mails if metric.numerator == ORDERS else None
        found.append(_baseline(metric, own, mails, events, binomial=False))
    return found


def baseline_of_counts(totals: Mapping[str, float]) -> list[Baseline]:
    """What metrics are, from totals; revenue is left out, as its variance is not known."""
    known = Counts(totals).totals
    mails = known[MAILS]
    found = []
    for metric in metrics_of([name for name in known if name != REVENUE]):
        pair = known[metric.numerator], known[metric.denominator]
        if metric.numerator == ORDERS:
            own, events = by_count.frequency(*pair), known[ORDERS] / mails
            found.append(_baseline(metric, own, mails, events, binomial=False))
        else:
            found.append(_baseline(metric, by_count.share(*pair), mails, None, binomial=True))
    return found


def _baseline(
    metric: Metric, own: Estimate, mails: float, events: float | None, binomial: bool
) -> Baseline:
    return Baseline(metric, own.rate, own.variance * mails, events, binomial)


def plan(
    baseline: Sequence[Baseline], lifts: Sequence[float] = LIFTS, settings: Settings | None = None
) -> list[Planned]:
    """Mails in both buckets for every metric and lift.

    Args:
        baseline: of `baseline_of` or `baseline_of_counts`.
        lifts: relative, like 0.03; below 0 for a loss.
        settings: alpha, power and share are used.

    Example:
        >>> base = baseline_of_counts({"mails": 100_000, "opens": 15_000, "clicks": 2_250})
        >>> [round(row.mails, -4) for row in plan(base[:1], [0.05])]
        [480000]
    """
    require_scipy()
    settings = settings or Settings()
    for lift in lifts:
        if not _LEAST_LIFT <= abs(lift) <= 1 / _LEAST_LIFT or lift <= -1:
            raise SettingError(
                f"lift={lift:g}: must be above -100 % and not 0 or next to it, like 0.03 or 3%"
            )
    if not any(known.rate > 0 and known.variance > 0 for known in baseline):
        raise DataError("nothing varies in what is known: there is no lift to plan for")
    return [
        Planned(known.metric, known.rate, lift, _mails(known, lift, settings))
        for known in baseline
        for lift in lifts
    ]


def detectable_lift(known: Baseline, mails: float, settings: Settings) -> float:
    """The lift that so many mails show with the asked-for power; nan where there is none."""
    low, high = 0.0, 1.0
    most = 0.999999 * (1 / known.rate - 1) if known.binomial and known.rate > 0 else 1e6
    while high < most and not _mails(known, high, settings) <= mails:
        high *= 2
    high = min(high, most)
    if not _mails(known, high, settings) <= mails:
        return math.nan
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if _mails(known, middle, settings) <= mails else (middle, high)
    return high


def _mails(known: Baseline, lift: float, settings: Settings) -> float:
    """Mails in both buckets."""
    if not known.rate > 0 or not known.variance > 0:
        return math.nan
    if known.binomial and known.rate * (1 + lift) >= 1:
        return math.nan
    share = settings.share
    spread = known.variance / (1 - share) + known.after(lift) / share
    factor = detection_factor(settings.alpha, settings.power)
    mails = spread * (factor / (lift * known.rate)) ** 2
    if known.events is not None and mails * known.events < _FEW:
        mails = max(mails, _exact_mails(known.events, lift, settings, mails))
    return math.ceil(mails)


def _exact_mails(events: float, lift: float, settings: Settings, guess: float) -> float:
    """Mails with which the exact test has the asked-for power, near those of the normal one."""
    share = settings.share

    def power(mails: float) -> float:
        control = mails * (1 - share) * events
        treated = mails * share * events * (1 + lift)
        return by_count.exact_power(control, treated, share, settings.alpha)

    low, high = 0.5 * guess, guess
    while power(high) < settings.power:
        low, high = high, 1.5 * high
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= settings.power else (middle, high)
    return high
