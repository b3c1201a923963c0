"""How an analysis is made; checked when made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from trimtab.checks import require_whole
from trimtab.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an analysis is asked for.

    Args:
        alpha: of the tests, and of intervals: 0.05 for intervals of 95 %.
        power: for which detectable differences and needed samples are told.
        margin: relative; differences surely below it are called equivalent. None: no such verdict.
        share: of units that should be in the treatment, for the sample-ratio check.
        planned: mails in both buckets that the test is planned to end at, for intervals that hold
            at every look. None: no such intervals.
        draws: of the bootstrap of revenue; 0 leaves it out.
        quantile: of units with revenue, above which revenue is capped in the capped reading.
        seed: of the bootstrap.
    """

    alpha: float = 0.05
    power: float = 0.8
    margin: float | None = None
    share: float = 0.5
    planned: int | None = None
    draws: int = 2_000
    quantile: float = 0.99
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("alpha", "power", "share", "quantile"):
            require_share(name, getattr(self, name))
        if self.margin is not None:
            require_share("margin", self.margin)
        if self.planned is not None:
            require_whole("planned", self.planned, 1)
        require_whole("draws", self.draws, 0)
        require_whole("seed", self.seed, 0)


def require_share(name: str, value: Any) -> None:
    """Refuse anything but a number between 0 and 1."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value < 1:
        raise SettingError(f"{name}={value}: must be above 0 and below 1, like 0.05 or 5%")


def parse_share(name: str, text: str) -> float:
    """A number written as 0.02 or as 2%."""
    try:
        digits = text.strip().removesuffix("%")
        value = float(digits) / (100 if digits != text.strip() else 1)
    except ValueError as error:
        raise SettingError(f"{name}={text}: must be a number like 0.02 or 2%") from error
    return value
