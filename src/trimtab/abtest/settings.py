"""The settings of an analysis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from trimtab.checks import require_whole
from trimtab.errors import SettingError

_LEAST_ALPHA = 1e-9  # no tail of a distribution is known better


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of an analysis.

    Args:
        alpha: significance level, at least 1e-9; 0.05 gives 95 % intervals.
        power: power for detectable differences and emails needed.
        margin: relative difference below which buckets count as equivalent. None: no such verdict.
        share: planned share of units in the treatment group, for the sample-ratio check.
        planned: planned number of emails in both buckets: intervals that hold at every look are
            tightest there, and verdicts are made with them. None: verdicts are for one look.
        draws: bootstrap draws for revenue, more if alpha is small; 0: no bootstrap. An alpha for
            which it would take minutes has none either, unless enough draws are given.
        quantile: quantile of units with revenue at which revenue is capped.
        seed: seed of the bootstrap.
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
        if self.alpha < _LEAST_ALPHA:
            raise SettingError(
                f"alpha={self.alpha:g}: must be at least {_LEAST_ALPHA:g}, like 0.05"
            )
        if self.margin is not None:
            require_share("margin", self.margin)
        if self.planned is not None:
            require_whole("planned", self.planned, 1)
        require_whole("draws", self.draws, 0)
        require_whole("seed", self.seed, 0)


def require_share(name: str, value: Any) -> None:
    """Refuse values that are not a number between 0 and 1."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value < 1:
        raise SettingError(f"{name}={value}: must be above 0 and below 1, like 0.05 or 5%")


def parse_share(name: str, text: str) -> float:
    """Return a number written as 0.02 or as 2%."""
    try:
        digits = text.strip().removesuffix("%")
        value = float(digits) / (100 if digits != text.strip() else 1)
    except ValueError as error:
        raise SettingError(f"{name}={text}: must be a number like 0.02 or 2%") from error
    return value
