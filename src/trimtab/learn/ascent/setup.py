"""What an ascent maximises and within which limits; the same for all units, wherever they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints
from trimtab.kernels.hit_value import hit_value_table


@dataclass(frozen=True)
class AscentSettings:
    """What the ascent maximises and when it stops; see `BiasLearner` for the meanings."""

    k: int = 10
    metric: str = "ndcg"
    unlisted: str = "never"
    penalty: float = 1.0
    max_bias: float | None = 0.5
    exclude_unsold: bool = False
    max_cycles: int | None = 2
    min_updates: float = 0.0
    min_support: int = 1
    min_exposure: int = 1


def median_score(kth_score: Floats, full: Flags, scores: Floats) -> float:
    """The unit of penalties and caps: |median k-th score|, or the nearest thing to it above 0."""
    for values in (kth_score[full], kth_score[~np.isnan(kth_score)]):
        if len(values) and np.median(values) != 0:
            return float(abs(np.median(values)))
    return largest_of(scores) or 1.0


@dataclass(frozen=True)
class AscentSetup:
    """What an ascent keeps to, the same for all units, wherever they are."""

    settings: AscentSettings
    unit: float  # of penalties and caps
    quanta: float  # fixed-point quanta in one unit's metric
    weighted: bool
    heaviest: float  # weight of a unit
    largest: float  # |score|
    support: Ints  # units that bought each item
    exposure: Ints  # units with it in their raw top k

    @property
    def n_items(self) -> int:
        """Number of item codes."""
        return len(self.support)

    @property
    def reaches_unlisted(self) -> bool:
        """Whether an item also reaches units that do not list it."""
        return self.settings.unlisted == "zero"

    @property
    def cap(self) -> float:
        """The largest |bias|."""
        most = self.settings.max_bias
        return np.inf if most is None else most * self.unit

    @property
    def margin(self) -> float:
        """How far from a breakpoint a bias stands."""
        from trimtab.kernels.bias_steps import MARGIN

        return MARGIN * self.unit

    @property
    def rate(self) -> float:
        """Penalty in quanta per unit of bias."""
        return self.settings.penalty / self.unit * self.quanta

    @property
    def most(self) -> int:
        """The most that one unit can gain or lose, in quanta."""
        worth = hit_value_table(self.settings.metric, self.settings.k) * self.quanta
        return int(np.rint(worth).max() * self.heaviest) + 4 * (self.settings.k + 1) ** 2

    @property
    def excluded(self) -> Flags:
        """Items that nobody gets."""
        unsold: Flags = self.support == 0
        return unsold & self.settings.exclude_unsold

    @property
    def wanted(self) -> Flags:
        """Items worth a look."""
        settings = self.settings
        often = (self.support >= settings.min_support) | (self.exposure >= settings.min_exposure)
        return ~self.excluded & often

    def begin(self, start: Floats | None) -> Floats:
        """Biases to start from, inside the cap; -inf where excluded."""
        offset = np.zeros(self.n_items) if start is None else np.clip(start, -self.cap, self.cap)
        offset[self.excluded] = -np.inf
        return offset

    def penalties(self, bias: Floats) -> Ints:
        """The penalty of each bias, in quanta; 0 for what is excluded."""
        finite = np.where(np.isfinite(bias), bias, 0.0)
        penalties: Ints = np.rint(self.rate * np.abs(finite)).astype(np.int64)
        return penalties

    def visiting_order(self, alive: Flags) -> Codes:
        """Candidates that anybody can gain or lose by, the most exposed and bought first."""
        candidates = np.flatnonzero(self.wanted & alive)
        weight = (self.support + self.exposure)[candidates]
        return candidates[np.argsort(-weight, kind="stable")].astype(np.int32)


def quanta_for(total_weight: float | None) -> float:
    """Quanta in one unit's metric, so that sums stay below 2**62; of so much weight, if any."""
    from trimtab.kernels.bias_steps import QUANTA

    if total_weight is None:
        return QUANTA
    return float(min(QUANTA, 2.0 ** np.floor(61 - np.log2(max(1.0, total_weight)))))


def largest_of(numbers: Floats) -> float:
    """The largest absolute value, without a copy of it all."""
    return max(float(numbers.max(initial=0.0)), -float(numbers.min(initial=0.0)))
