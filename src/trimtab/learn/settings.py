"""The settings of a learner: defaults, ranges, and which of them go together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from trimtab.checks import (
    COUNT_METHODS,
    METRICS,
    SCALES,
    UNLISTED,
    require_choice,
    require_flag,
    require_number,
    require_whole,
)
from trimtab.errors import SettingError

_METHODS = ("auto", "hierarchy", "ascent", *COUNT_METHODS)
_SCALES = ("auto", *SCALES)
_WHOLE = {"k": 1, "max_cycles": 1, "min_support": 0, "min_exposure": 0, "seed": 0}
_MOST_SLOTS = 1_000  # tables of learners have k x k cells
_NUMBERS = {"penalty": (0,), "max_bias": (0,), "min_updates": (0, 1), "gamma": (0, 100)}
_MAY_BE_NONE = ("max_bias", "max_cycles", "gamma")
_NO_UNLISTED = {  # scales without unlisted items, and why
    "log": "a score of 0 stays 0 when multiplied",
    "list": "an unlisted item has no place on a list's own scale",
}
_SHARED = ("k", "metric", "method", "scale", "seed")  # by all methods
_OF_COUNTS = ("gamma",)


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
    gamma: float | None = None

    def __post_init__(self) -> None:
        for name, choices in (
            ("metric", METRICS), ("method", _METHODS), ("scale", _SCALES), ("unlisted", UNLISTED)
        ):  # fmt: skip
            require_choice(name, getattr(self, name), choices)
        for name, least in _WHOLE.items():
            self._check_number(name, require_whole, int, least)
        require_whole("k", self.k, 1, _MOST_SLOTS)
        for name, bounds in _NUMBERS.items():
            self._check_number(name, require_number, float, *bounds)
        require_flag("exclude_unsold", self.exclude_unsold)
        if self.scale in _NO_UNLISTED and self.unlisted != "never":
            raise SettingError(
                f"unlisted={self.unlisted!r} does not work with scale={self.scale!r}, because "
                f"{_NO_UNLISTED[self.scale]}; use unlisted='never'"
            )
        self._refuse_settings_of_others()

    def _refuse_settings_of_others(self) -> None:
        """Refuse settings that the method does not have."""
        takes_ascent = self.method in ("auto", "ascent")
        for name in self._changed:
            if name in _OF_COUNTS and not self.is_counts:
                owner, remedy = "methods that count", "method='ratio'"
            elif name not in _OF_COUNTS and not takes_ascent:
                owner, remedy = "the ascent", "method='ascent'"
            else:
                continue
            raise SettingError(
                f"{name}={getattr(self, name)!r} is a setting of {owner}, but "
                f"method={self.method!r}; leave it out or use {remedy}"
            )
        if self.is_counts and self.scale != "auto":
            raise SettingError(
                f"scale={self.scale!r}: method={self.method!r} has its own scale; leave it out"
            )

    @property
    def _changed(self) -> list[str]:
        """Names of the settings that not all methods have and that differ from their defaults."""
        own = (field for field in fields(self) if field.name not in _SHARED)
        return [field.name for field in own if getattr(self, field.name) != field.default]

    @property
    def is_counts(self) -> bool:
        """Whether the method makes biases from counts."""
        return self.method in COUNT_METHODS

    @property
    def is_hierarchy(self) -> bool:
        """Whether the method is the hierarchy; otherwise it is the ascent."""
        return self.method == "hierarchy" or (self.method == "auto" and not self._changed)

    @property
    def uses_history(self) -> bool:
        """Whether the method learns from earlier sales; the ascent does not."""
        return self.is_hierarchy or self.is_counts

    @property
    def ascent_scale(self) -> str:
        """The scale that an ascent learns on."""
        return "additive" if self.scale == "auto" else self.scale

    @property
    def ascent(self) -> AscentSettings:
        """The settings that the ascent uses."""
        own = {field.name: getattr(self, field.name) for field in fields(AscentSettings)}
        return AscentSettings(**own)

    def _check_number(
        self, name: str, check: Callable[..., None], kind: type[int | float], *bounds: float
    ) -> None:
        """Check a number and store it as a plain int or float, which can be saved."""
        value = getattr(self, name)
        if value is None and name in _MAY_BE_NONE:
            return
        check(name, value, *bounds)
        object.__setattr__(self, name, kind(value))
