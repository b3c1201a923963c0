"""The metrics: outcomes per open and per delivered email, and opens as a guardrail."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from trimtab.abtest.readings import Estimate, rates, ratio
from trimtab.abtest.samples import CLICKS, EMAILS, OPENS, ORDERS, REVENUE, Sums

PER_OPEN, PER_EMAIL, GUARDRAIL = "per open", "per email", "guardrail"
FAMILIES = (PER_OPEN, PER_EMAIL, GUARDRAIL)
_WORDS = {CLICKS: "Clicks", ORDERS: "Orders", REVENUE: "Revenue", OPENS: "Opens"}


class Metric(NamedTuple):
    """A ratio of two columns; p-values are adjusted within its family."""

    numerator: str
    denominator: str
    family: str

    @property
    def title(self) -> str:
        """The title, like 'Clicks per open'."""
        return f"{_WORDS[self.numerator]} {PER_EMAIL if self.denominator == EMAILS else PER_OPEN}"


def estimate_rate(metric: Metric, arm: Sums) -> Estimate:
    """Return the rate of a bucket, from sums per unit."""
    return ratio(arm[metric.numerator], arm[metric.denominator])


def estimate_rates(metric: Metric, arms: tuple[Sums, Sums]) -> tuple[Estimate, Estimate]:
    """Return the rates of both buckets, from sums per unit."""
    first, second = ((arm[metric.numerator], arm[metric.denominator]) for arm in arms)
    return rates(first, second)


def metrics_of(columns: Collection[str]) -> list[Metric]:
    """Return the metrics that can be computed from columns, the most important first."""
    outcomes = [name for name in (CLICKS, ORDERS, REVENUE) if name in columns]
    found = []
    if OPENS in columns:
        found += [Metric(name, OPENS, PER_OPEN) for name in outcomes]
    found += [Metric(name, EMAILS, PER_EMAIL) for name in outcomes]
    if OPENS in columns:
        found.append(Metric(OPENS, EMAILS, GUARDRAIL))
    return found
