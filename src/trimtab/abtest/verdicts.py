"""Verdicts: what an analysis found, metric by metric, as plain data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab.abtest.metrics import GUARDRAIL, Metric
from trimtab.abtest.readings import BY_DATE, CUPED, Reading
from trimtab.abtest.settings import Settings

SIGNIFICANT, INCONCLUSIVE, EQUIVALENT = "significant", "inconclusive", "equivalent"
ALARM = 0.001
MAIL = "mail"  # the unit where only totals are known


@dataclass(frozen=True)
class Side:
    """One bucket's numbers for a metric."""

    numerator: float
    denominator: float
    rate: float


@dataclass(frozen=True)
class Finding:
    """One metric in both buckets.

    Attributes:
        metric: what is compared.
        control: its numbers in control.
        treatment: its numbers in the treatment.
        readings: ways of testing it; the first is the one whose interval is shown.
        p: raw; where two tests must agree, the larger; nan where nothing can be told.
        p_adjusted: by Holm over the metrics of its family.
        detectable: the absolute difference that could have been found with the asked-for power.
        detectable_relative: the same over control's rate.
        needed: mails in both buckets that would show a difference like the one seen.
        needed_for_margin: mails in both buckets that would show equivalence, were there no
            difference at all; None without a margin.
        equivalence: p of the two one-sided tests; None without a margin.
        sequence: relative interval that holds at every look; None without a plan.
        verdict: significant, inconclusive or equivalent; None where nothing can be tested.
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
        """Readings that answer one question in several ways, and should agree.

        CUPED and dates put together are not among them: they are there to see what others do not.
        """
        apart = (CUPED, BY_DATE)
        return [r for r in self.readings if r.method not in apart and not math.isnan(r.p)]

    def agree(self, alpha: float) -> bool:
        """Whether readings that should agree are on the same side of alpha."""
        return len({reading.p < alpha for reading in self.alike()}) < 2

    @property
    def is_better(self) -> bool:
        """Whether the treatment is ahead."""
        return self.main.difference > 0


@dataclass(frozen=True)
class SampleRatio:
    """Whether the buckets have the sizes that they should have."""

    control: float
    treatment: float
    share: float  # that the treatment should have
    p: float

    @property
    def alarm(self) -> bool:
        """Whether the division went wrong: nothing else should be believed then."""
        return self.p < ALARM


@dataclass(frozen=True)
class Dated:
    """A metric on one date, or up to it."""

    date: str
    metric: Metric
    reading: Reading
    sequence: tuple[float, float] | None = None


@dataclass(frozen=True)
class Verdicts:
    """What an analysis found.

    Attributes:
        settings: how it was made.
        unit: what was counted as independent: user, row or mail.
        sample_ratio: whether the buckets have the right sizes.
        findings: a metric each.
        dates: each date by itself.
        looks: all up to each date.
        notes: what a reader should know, a sentence each.
    """

    settings: Settings
    unit: str
    sample_ratio: SampleRatio
    findings: Sequence[Finding]
    dates: Sequence[Dated] = ()
    looks: Sequence[Dated] = ()
    notes: Sequence[str] = field(default_factory=tuple)

    def of(self, numerator: str, denominator: str) -> Finding:
        """The finding on a metric."""
        for finding in self.findings:
            if finding.metric[:2] == (numerator, denominator):
                return finding
        raise KeyError(f"{numerator} per {denominator.removesuffix('s')}")

    @property
    def guardrail(self) -> Finding | None:
        """The finding on opens, if opens are known."""
        return next((f for f in self.findings if f.metric.family == GUARDRAIL), None)

    def to_dict(self) -> dict[str, Any]:
        """All of it for JSON: what is not a number becomes None."""
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
