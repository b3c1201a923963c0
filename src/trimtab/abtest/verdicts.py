"""The verdicts of an analysis, one per metric, as plain data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab.abtest.counts import EXACT
from trimtab.abtest.metrics import GUARDRAIL, Metric
from trimtab.abtest.readings import BY_DATE, CUPED, REDISTRIBUTED, WELCH, Reading
from trimtab.abtest.settings import Settings

SIGNIFICANT, INCONCLUSIVE, EQUIVALENT = "significant", "inconclusive", "equivalent"
TOO_FEW = "too few"  # units in which anything happened
BLOCKED = "blocked"  # the split into buckets went wrong
ALARM = 0.001
EMAIL = "email"  # the unit if only totals are known


@dataclass(frozen=True)
class Side:
    """The numbers of one bucket for a metric."""

    numerator: float
    denominator: float
    rate: float


@dataclass(frozen=True)
class Finding:
    """The result for one metric.

    Attributes:
        metric: the metric.
        control: its numbers in the control group.
        treatment: its numbers in the treatment group.
        readings: results of each test method; the interval of the first is shown.
        p: unadjusted two-sided p-value; nan if untested.
        p_adjusted: p-value adjusted by Holm over the metrics of its family.
        detectable: absolute difference that the test could detect with the chosen power.
        detectable_relative: the same relative to the rate of control.
        needed: emails (or users, see `Verdicts.base`) in all buckets needed to detect the
            difference seen.
        needed_for_margin: emails (or users) in all buckets needed to show equivalence if there is
            no difference; None without a margin.
        equivalence: p-value of the two one-sided tests; None without a margin.
        sequence: relative interval that holds at every look; None if there is no test.
        verdict: significant, inconclusive, equivalent or too few; blocked if the split into
            buckets went wrong; None if untested.
    """

    metric: Metric
    control: Side
    treatment: Side
    readings: Sequence[Reading]
    p: float
    p_adjusted: float
    detectable: float
    detectable_relative: float
    needed: float | None
    needed_for_margin: float | None
    equivalence: float | None
    sequence: tuple[float, float] | None
    verdict: str | None

    @property
    def main(self) -> Reading:
        """The reading whose interval is shown."""
        return self.readings[0]

    def alike(self) -> list[Reading]:
        """Return readings that test the same thing in different ways, and should agree.

        CUPED is left out, and so is the combination of dates if their shares are the same: they can
        detect more than the others. So are tests that assume more than the redistribution of
        units, where there is one.
        """
        apart = {CUPED, BY_DATE}
        if self.main.method in (REDISTRIBUTED, BY_DATE):
            apart = {CUPED, BY_DATE, WELCH, EXACT} - {self.main.method}
        return [r for r in self.readings if r.method not in apart and not math.isnan(r.p)]

    def agree(self, alpha: float) -> bool:
        """Return whether readings that should agree are on the same side of alpha."""
        return len({reading.p < alpha for reading in self.alike()}) < 2

    @property
    def is_better(self) -> bool:
        """Whether the treatment is ahead."""
        return self.main.difference > 0


@dataclass(frozen=True)
class SampleRatio:
    """The sizes of the buckets, and a test of whether they are as planned."""

    control: float
    treatment: float
    share: float  # planned for the treatment group
    p: float

    @property
    def alarm(self) -> bool:
        """Whether the sizes are wrong; then no other result can be trusted."""
        return self.p < ALARM


@dataclass(frozen=True)
class Dated:
    """The reading of a metric on one date, or up to it."""

    date: str
    metric: Metric
    reading: Reading
    sequence: tuple[float, float] | None = None


@dataclass(frozen=True)
class Verdicts:
    """The result of an analysis.

    Attributes:
        settings: settings of the analysis.
        unit: the independent unit: user, row or email.
        sample_ratio: sizes of the buckets.
        findings: one per metric.
        dates: readings of each date alone.
        looks: readings of all data up to each date.
        notes: remarks for the reader.
        base: what the test is planned in, and what is needed: email or user.
        treatment: name of the treatment, if there are several.
        n_treatments: number of treatments that are compared with control.
    """

    settings: Settings
    unit: str
    sample_ratio: SampleRatio
    findings: Sequence[Finding]
    dates: Sequence[Dated] = ()
    looks: Sequence[Dated] = ()
    notes: Sequence[str] = field(default_factory=tuple)
    base: str = EMAIL
    treatment: str = ""
    n_treatments: int = 1

    @property
    def level(self) -> float:
        """The significance level of one treatment: alpha is divided by their number."""
        return self.settings.alpha / self.n_treatments

    def of(self, numerator: str, denominator: str) -> Finding:
        """Return the finding for a metric."""
        for finding in self.findings:
            if finding.metric[:2] == (numerator, denominator):
                return finding
        raise KeyError(f"{numerator} per {denominator.removesuffix('s')}")

    @property
    def guardrail(self) -> Finding | None:
        """The finding for opens; None if opens are unknown."""
        return next((f for f in self.findings if f.metric.family == GUARDRAIL), None)

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON; nan becomes None."""
        plain = _plain(dataclasses.asdict(self))
        for finding, row in zip(self.findings, plain["findings"], strict=True):
            row["metric"] = {"title": finding.metric.title, **finding.metric._asdict()}
        plain["sample_ratio"]["alarm"] = self.sample_ratio.alarm
        assert isinstance(plain, dict)
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
