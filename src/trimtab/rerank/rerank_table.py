"""RerankTable: what a Reranker has learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, NamedTuple

from trimtab.arrays import Codes, Floats, Lists
from trimtab.bias import ItemBias
from trimtab.bias.table import Figures
from trimtab.rerank.widening import SOURCES, TERMS, WiderLists


@dataclass(frozen=True)
class RerankSummary(Figures):
    """Figures of a fit, as attributes and as keys."""

    metric: str
    k: int
    n_windows: int  # windows learned from
    n_users: int  # users (or user-window pairs) with earlier purchases, learned from
    kept: float  # of what users with purchases add; 0: all users are ranked by the biases
    sources: tuple[str, ...]  # of wider lists: "trending", "own"
    # Expected lift over the engine in the week that follows; None if no clear gain.
    forecast: float | None = None
    forecast_low: float | None = None  # bounds of its 90 % interval
    forecast_high: float | None = None
    forecast_windows: int = 0  # windows held out for it; 0: users of the same window
    # Lift over the engine on held-out data: with the biases ("trend"), then with personal terms,
    # then with each source of wider lists.
    lifts: Mapping[str, float] = field(default_factory=dict, hash=False)
    strength: float = 1.0  # of what was learned; see `Reranker.with_strength`
    # The forecast and its interval at other strengths.
    forecast_by_strength: Mapping[str, Sequence[float]] = field(default_factory=dict, hash=False)


class Coefficient(NamedTuple):
    """A coefficient of the choice model."""

    name: str
    kind: str  # "score", "item", "personal" or "added"
    value: float
    error: float  # its standard error

    def at_strength(self, strength: float) -> Coefficient:
        """The coefficient at a strength; that of the score is drawn to at least 1."""
        at_none = max(self.value, 1.0) if self.kind == "score" else 0.0
        value = (1.0 - strength) * at_none + strength * self.value
        return self._replace(value=value, error=strength * self.error)


@dataclass(frozen=True, eq=False)
class RerankTable:
    """What a Reranker has learned; arrays are by item, in the order of the biases."""

    bias: ItemBias
    item_part: Floats  # what the choice model says of each item, for users with purchases
    trending: Codes  # items that sold most, best first; indices of items
    learned: tuple[Coefficient, ...]  # empty: all users are ranked by the biases
    summary: RerankSummary
    settings: Mapping[str, Any]
    may_repeat: bool  # whether items that the user already bought may be added
    score_unit: float  # the size, in scores, of 1 in the choice model
    learned_until: int  # end of the newest window, in microseconds of UTC
    has_zone: bool  # whether timestamps had a time zone

    def __post_init__(self) -> None:
        for array in (self.item_part, self.trending):
            array.flags.writeable = False
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (getattr(self, field.name) for field in fields(self))
        return type(self), tuple(dict(p) if isinstance(p, MappingProxyType) else p for p in parts)

    @property
    def sources(self) -> int:
        """The sources of wider lists."""
        return sum(SOURCES[name] for name in self.summary.sources)

    def score(self, wide: WiderLists, item_part: Floats) -> Lists:
        """Return wider lists with the scores of the choice model.

        Args:
            wide: with the scores that the choice model uses.
            item_part: by item code of these lists.
        """
        values = {coefficient.name: coefficient.value for coefficient in self.learned}
        scores = values["score"] * wide.lists.scores + item_part[wide.lists.items]
        for place, name in enumerate(TERMS):
            scores += values[name] * wide.terms[:, place]
        for place, name in enumerate(self.summary.sources):
            scores += values[name] * wide.added(self.sources)[:, place]
        return wide.lists._replace(scores=scores)
