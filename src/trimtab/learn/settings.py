"""The settings of a learner: what each means, its default, and which go together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from trimtab.checks import (
    METRICS,
    UNLISTED,
    require_choice,
    require_flag,
    require_number,
    require_whole,
)
from trimtab.errors import SettingError
from trimtab.learn.ascent.setup import AscentSettings

_METHODS = ("auto", "hierarchy", "ascent")
_SCALES = ("auto", "additive", "log")
_WHOLE = {"k": 1, "max_cycles": 1, "min_support": 0, "min_exposure": 0, "n_bags": 0, "seed": 0}
_NUMBERS = {"penalty": (0,), "max_bias": (0,), "min_updates": (0, 1)}
_MAY_BE_NONE = ("max_bias", "max_cycles")
_OF_BOTH = ("k", "metric", "method", "scale", "seed")  # settings of either method


@dataclass(frozen=True)
class LearnerSettings:
    """What to learn and how; see `BiasLearner` for the meanings."""

    k: int = 10
    metric: str = "ndcg"
    method: str = "auto"
    scale: str = "auto"
    seed: int = 0
    unlisted: str = "never"
    penalty: float = 1.0
    max_bias: float | None = 0.5
    exclude_unsold: bool = False
    max_cycles: int | None = 2
    min_updates: float = 0.0
    min_support: int = 1
    min_exposure: int = 1
    n_bags: int = 0

    def __post_init__(self) -> None:
        for name, choices in (
            ("metric", METRICS), ("method", _METHODS), ("scale", _SCALES), ("unlisted", UNLISTED)
        ):  # fmt: skip
            require_choice(name, getattr(self, name), choices)
        for name, least in _WHOLE.items():
            self._settle(name, require_whole, int, least)
        for name, bounds in _NUMBERS.items():
            self._settle(name, require_number, float, *bounds)
        require_flag("exclude_unsold", self.exclude_unsold)
        if self.scale == "log" and self.unlisted != "never":
            raise SettingError(
                f"unlisted={self.unlisted!r} with scale='log': a score of 0 stays 0 when "
                f"multiplied; use unlisted='never'"
            )
        if self.method == "hierarchy" and self._of_ascent:
            name = self._of_ascent[0]
            raise SettingError(
                f"{name}={getattr(self, name)!r} with method='hierarchy': only the ascent has it; "
                f"leave it out or use method='ascent'"
            )

    @property
    def _of_ascent(self) -> list[str]:
        """Settings that only the ascent has and that are not at their defaults."""
        own = (field for field in fields(self) if field.name not in _OF_BOTH)
        return [field.name for field in own if getattr(self, field.name) != field.default]

    @property
    def is_hierarchy(self) -> bool:
        """Whether it learns the hierarchy; otherwise it ascends item by item."""
        return self.method == "hierarchy" or (self.method == "auto" and not self._of_ascent)

    @property
    def ascent(self) -> AscentSettings:
        """The settings that the ascent has."""
        own = {field.name: getattr(self, field.name) for field in fields(AscentSettings)}
        return AscentSettings(**own)

    def _settle(
        self, name: str, check: Callable[..., None], kind: type[int | float], *bounds: float
    ) -> None:
        """Check a number and keep it as a plain one, which can be saved."""
        value = getattr(self, name)
        if value is None and name in _MAY_BE_NONE:
            return
        check(name, value, *bounds)
        object.__setattr__(self, name, kind(value))
