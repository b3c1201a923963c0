"""What an ascent maximises, and within which limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints
from trimtab.kernels.hit_value import hit_value_table
from trimtab.learn.settings import AscentSettings


@dataclass(frozen=True)
class AscentSetup:
    """The settings of an ascent in numbers, and counts over all units."""

    settings: AscentSettings
    unit: float  # of penalties and caps
    quanta: float  # fixed-point quanta in one unit's metric
    heaviest: float  # weight of a unit
    largest: float  # |score|
    support: Ints  # units that bought each item
    exposure: Ints  # units with the item in the engine's own top k

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
        """The distance that a bias keeps from a breakpoint."""
        from trimtab.kernels.bias_steps import MARGIN

        return MARGIN * self.unit

    @property
    def penalty_rate(self) -> float:
        """Penalty in quanta per unit of bias."""
        return self.settings.penalty / self.unit * self.quanta

    @property
    def most_per_unit(self) -> int:
        """The most that one unit can gain or lose, in quanta."""
        hit_values = hit_value_table(self.settings.metric, self.settings.k) * self.quanta
        return int(np.rint(hit_values).max() * self.heaviest) + 4 * (self.settings.k + 1) ** 2

    @property
    def excluded(self) -> Flags:
        """Items that are never recommended."""
        unsold: Flags = self.support == 0
        return unsold & self.settings.exclude_unsold

    @property
    def candidates(self) -> Flags:
        """Items whose bias may change: bought or shown often enough, and not excluded."""
        settings = self.settings
        often = (self.support >= settings.min_support) | (self.exposure >= settings.min_exposure)
        return ~self.excluded & often

    def starting_biases(self, start: Floats | None) -> Floats:
        """Biases to start from, clipped to the cap; -inf for excluded items."""
        offset = np.zeros(self.n_items) if start is None else np.clip(start, -self.cap, self.cap)
        offset[self.excluded] = -np.inf
        return offset

    def penalties(self, bias: Floats) -> Ints:
        """The penalty of each bias, in quanta; 0 for excluded items."""
        finite = np.where(np.isfinite(bias), bias, 0.0)
        penalties: Ints = np.rint(self.penalty_rate * np.abs(finite)).astype(np.int64)
        return penalties

    def visiting_order(self, matters: Flags) -> Codes:
        """Candidates that matter to some unit, the most shown and bought first."""
        order = np.flatnonzero(self.candidates & matters)
        weight = (self.support + self.exposure)[order]
        return order[np.argsort(-weight, kind="stable")].astype(np.int32)
