"""What is compared: outcomes per open, the same per delivered mail, and opens as a guardrail."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from trimtab.abtest.samples import CLICKS, MAILS, OPENS, ORDERS, REVENUE

PER_OPEN, PER_MAIL, GUARDRAIL = "per open", "per mail", "guardrail"
FAMILIES = (PER_OPEN, PER_MAIL, GUARDRAIL)
_WORDS = {CLICKS: "Clicks", ORDERS: "Orders", REVENUE: "Revenue", OPENS: "Opens"}


class Metric(NamedTuple):
    """A ratio of two columns; p's are adjusted within its family."""

    numerator: str
    denominator: str
    family: str

    @property
    def title(self) -> str:
        """'Clicks per open'."""
        return f"{_WORDS[self.numerator]} {PER_MAIL if self.denominator == MAILS else PER_OPEN}"


def metrics_of(columns: Collection[str]) -> list[Metric]:
    """The metrics that columns allow, the most important first."""
    outcomes = [name for name in (CLICKS, ORDERS, REVENUE) if name in columns]
    found = []
    if OPENS in columns:
        found += [Metric(name, OPENS, PER_OPEN) for name in outcomes]
    found += [Metric(name, MAILS, PER_MAIL) for name in outcomes]
    if OPENS in columns:
        found.append(Metric(OPENS, MAILS, GUARDRAIL))
    return found
