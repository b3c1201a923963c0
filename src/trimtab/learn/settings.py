"""The settings of a learner: defaults, ranges, and which of them go together."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from trimtab.checks import (
    METRICS,
    SCALES,
    UNLISTED,
    require_choice,
    require_flag,
    require_number,
    require_whole,
)
from trimtab.errors import SettingError
from trimtab.tables.times import duration_name, read_duration

_CHOICES = {
    "metric": METRICS, "method": ("auto", "hierarchy", "ascent"), "scale": ("auto", *SCALES),
    "unlisted": UNLISTED,
}  # fmt: skip
_NUMBERS: dict[str, tuple[Any, ...]] = {  # type, check and bounds
    "k": (int, require_whole, 1, 1_000),  # tables of learners have k x k cells
    "seed": (int, require_whole, 0),
    "penalty": (float, require_number, 0),
    "max_bias": (float, require_number, 0),
    "max_cycles": (int, require_whole, 1),
    "min_updates": (float, require_number, 0, 1),
    "min_support": (int, require_whole, 0),
    "min_exposure": (int, require_whole, 0),
}
_MAY_BE_NONE = ("max_bias", "max_cycles")
_NO_UNLISTED = {  # scales without unlisted items, and why
    "log": "a score of 0 stays 0 when multiplied",
    "list": "an unlisted item has no place on a list's own scale",
}
_SHARED = ("k", "metric", "method", "scale", "seed", "window")  # by both methods


@dataclass(frozen=True)
class LearnerSettings:
    """What to learn and how; see `BiasLearner` for the meanings."""

    k: int = 10
    metric: str = "ndcg"
    method: str = "auto"
    scale: str = "auto"
    seed: int = 0
    window: str | None = None
    unlisted: str = "never"
    penalty: float = 1.0
    max_bias: float | None = 0.5
    exclude_unsold: bool = False
    max_cycles: int | None = 2
    min_updates: float = 0.0
    min_support: int = 1
    min_exposure: int = 1

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            require_choice(name, getattr(self, name), choices)
        for name, (kind, check, *bounds) in _NUMBERS.items():
            value = getattr(self, name)
            if value is not None or name not in _MAY_BE_NONE:
                check(name, value, *bounds)
                object.__setattr__(self, name, kind(value))  # a plain number, which can be saved
        if self.window is not None:
            object.__setattr__(self, "window", duration_name(read_duration("window", self.window)))
        require_flag("exclude_unsold", self.exclude_unsold)
        if self.scale in _NO_UNLISTED and self.unlisted != "never":
            raise SettingError(
                f"unlisted={self.unlisted!r} does not work with scale={self.scale!r}, because "
                f"{_NO_UNLISTED[self.scale]}; use unlisted='never'"
            )
        if self.method == "hierarchy" and self._changed:
            name = self._changed[0]
            raise SettingError(
                f"{name}={getattr(self, name)!r} is a setting of the ascent, but "
                f"method={self.method!r}; leave it out or use method='ascent'"
            )

    @property
    def window_length(self) -> int | None:
        """The length of a window, in microseconds; None if it is to be found in the purchases."""
        return None if self.window is None else read_duration("window", self.window)

    @property
    def _changed(self) -> list[str]:
        """Names of the ascent's settings that differ from their defaults."""
        own = (field for field in fields(self) if field.name not in _SHARED)
        return [field.name for field in own if getattr(self, field.name) != field.default]

    @property
    def is_hierarchy(self) -> bool:
        """Whether the method is the hierarchy; otherwise it is the ascent."""
        return self.method == "hierarchy" or (self.method == "auto" and not self._changed)

    @property
    def ascent_scale(self) -> str:
        """The scale that an ascent learns on."""
        return "additive" if self.scale == "auto" else self.scale
