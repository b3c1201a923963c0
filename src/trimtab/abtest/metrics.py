"""The metrics: ratios of two columns, and those of a test by email.

A metric of one's own is a count or an amount per anything: clicks per impression, orders per user.
Tests by email have a fixed choice: outcomes per open and per delivered email, and opens as a
guardrail.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from trimtab.abtest.readings import Estimate, ratio
from trimtab.abtest.samples import (
    BEFORE,
    CLICKS,
    DATE,
    EMAILS,
    OPENS,
    ORDERS,
    PER_USER,
    REVENUE,
    Sums,
)
from trimtab.abtest.strata import combine, split
from trimtab.errors import SettingError
from trimtab.tables.columns import BUCKET, USER

PER_OPEN, PER_EMAIL, GUARDRAIL, OWN = "per open", "per email", "guardrail", "own"
COUNT, AMOUNT = "count", "amount"
_RESERVED = (PER_USER, USER, BUCKET, DATE)
_SINGULAR = ((r"ies$", "y"), (r"(ch|sh|ss|x|z)es$", r"\1"), (r"(?<!s)s$", ""))


class Metric(NamedTuple):
    """A ratio of two columns.

    Attributes:
        numerator: name of a column.
        denominator: name of a column, or `user`, which is 1 for every user.
        family: p-values are adjusted within it; `own` for metrics of one's own.
        kind: count, of whole numbers of at least 0, or amount.
    """

    numerator: str
    denominator: str
    family: str = OWN
    kind: str = COUNT

    @property
    def title(self) -> str:
        """The title, like 'Clicks per open'."""
        words = f"{self.numerator} per {make_singular(self.denominator)}".replace("_", " ")
        return words[:1].upper() + words[1:]

    @property
    def is_skewed(self) -> bool:
        """Whether a few units may decide, so that Welch's test needs too many of them."""
        return self.family == OWN or self.numerator in (ORDERS, REVENUE)

    @property
    def is_rare_event(self) -> bool:
        """Whether events are independent of each other and rare, like orders by email."""
        return self.family != OWN and self.numerator == ORDERS


def make_singular(name: str) -> str:
    """Return the singular of an English plural."""
    for ending, singular in _SINGULAR:
        if re.search(ending, name):
            return re.sub(ending, singular, name)
    return name


def estimate_rate(metric: Metric, arm: Sums) -> Estimate:
    """Return the rate of a bucket, from sums per unit."""
    return ratio(arm[metric.numerator], arm[metric.denominator])


def estimate_rates(metric: Metric, arms: tuple[Sums, Sums]) -> tuple[Estimate, Estimate]:
    """Return the rates of both buckets, from sums per unit; over dates, if units have one."""
    return combine(split(arms, metric.numerator, metric.denominator))


def metrics_of(columns: Collection[str]) -> list[Metric]:
    """Return the metrics of a test by email that columns allow, the most important first."""
    kinds = {CLICKS: COUNT, ORDERS: COUNT, REVENUE: AMOUNT}
    outcomes = [name for name in kinds if name in columns]
    found = []
    if OPENS in columns:
        found += [Metric(name, OPENS, PER_OPEN, kinds[name]) for name in outcomes]
    found += [Metric(name, EMAILS, PER_EMAIL, kinds[name]) for name in outcomes]
    if OPENS in columns:
        found.append(Metric(OPENS, EMAILS, GUARDRAIL))
    return found


def own_metrics(counts: Sequence[str] = (), amounts: Sequence[str] = ()) -> list[Metric]:
    """Return metrics of one's own.

    Args:
        counts: counts per anything, like `clicks/impressions` or `orders/user`.
        amounts: amounts per anything, like `revenue/user`.

    Example:
        >>> [metric.title for metric in own_metrics(["clicks/impressions"], ["revenue/user"])]
        ['Clicks per impression', 'Revenue per user']
    """
    found = [_parse(text, COUNT) for text in counts] + [_parse(text, AMOUNT) for text in amounts]
    pairs = [metric[:2] for metric in found]
    if repeated := [pair for pair in pairs if pairs.count(pair) > 1]:
        raise SettingError(f"{'/'.join(repeated[0])} is given twice; give each metric once")
    kinds = {metric.numerator: metric.kind for metric in found}
    for metric in found:
        if kinds[metric.numerator] != metric.kind:
            raise SettingError(f"{metric.numerator} is a count and an amount; choose one of them")
    return found


def _parse(text: str, kind: str) -> Metric:
    parts = [part.strip() for part in text.split("/")] if isinstance(text, str) else []
    if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
        raise SettingError(
            f"{kind} {text}: must be two columns, like clicks/impressions, or a column per user, "
            f"like orders/user"
        )
    for name in (parts[0], parts[1] if parts[1] != PER_USER else ""):
        if name in _RESERVED or name.startswith(BEFORE):
            raise SettingError(f"{kind} {text}: '{name}' is not an outcome; name another column")
    return Metric(parts[0], parts[1], OWN, kind)
