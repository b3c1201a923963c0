"""Totals of one bucket, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.abtest.samples import CLICKS, COLUMNS, EMAILS, MOST, OPENS, REVENUE
from trimtab.errors import DataError


@dataclass(frozen=True)
class Counts:
    """Totals of one bucket: emails, opens, clicks, orders, revenue."""

    totals: Mapping[str, float]

    def __post_init__(self) -> None:
        for name, value in self.totals.items():
            if name not in COLUMNS:
                raise DataError(f"{name}={value}: must be one of {', '.join(COLUMNS)}")
            if name != REVENUE and not (value >= 0 and float(value).is_integer()):
                raise DataError(f"{name}={value:g}: must be whole and at least 0")
            if not abs(value) < MOST:
                raise DataError(f"{name}={value:g}: must be a number below {MOST:g}")
        if not self.totals.get(EMAILS, 0) > 0:
            raise DataError("emails: missing or 0; give the emails delivered, like emails=400000")
        self._check_order()

    def _check_order(self) -> None:
        """Refuse more clicks than opens, or more of either than emails."""
        pairs = ((OPENS, EMAILS), (CLICKS, OPENS), (CLICKS, EMAILS))
        for part, whole in pairs:
            if self.totals.get(part, 0) > self.totals.get(whole, math.inf):
                raise DataError(
                    f"{part}={self.totals[part]:g} is more than {whole}={self.totals[whole]:g}: "
                    f"count each email once, or give a table with one row per user"
                )
