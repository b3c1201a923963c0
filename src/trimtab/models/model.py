"""What was learned: figures of fits, forecasts, and a bias for each item; lists as ranked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Meta

from trimtab.arrays import Flags, Floats, Ints
from trimtab.checks import METRICS, MOST_K, require_number
from trimtab.errors import DataError, SettingError
from trimtab.tables.columns import ITEM
from trimtab.tables.vocabulary import Vocabulary

WHOLE = 1.0  # the strength of what was learned, as it was learned
_MOST_LOG = 87.0  # exp of a number beyond ± this is not a normal float32
WIDTH_90 = 1.6448536269514722  # half the width of a 90 % interval, in standard errors

# What a saved file may hold is what these types say.
Count = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
_Metric = Annotated[str, Meta(pattern=f"^({'|'.join(METRICS)})$")]
_Source = Annotated[str, Meta(pattern="^(trending|own)$")]
_Slots = Annotated[int, Meta(ge=1, le=MOST_K)]
_ByStrength = Mapping[
    Annotated[str, Meta(pattern=r"^[01](\.\d+)?$")],
    Annotated[Sequence[float], Meta(min_length=3, max_length=3)],
]


class Figures(Mapping[str, Any]):
    """A dataclass whose fields can also be read by key."""

    def __getitem__(self, key: str) -> Any:
        return vars(self)[key]

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def __len__(self) -> int:
        return len(vars(self))

    def as_json(self) -> dict[str, Any]:
        """Return the figures as JSON values; nan becomes null."""
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in self.items()
        }


@dataclass(frozen=True)
class Summary(Figures):
    """Figures of a fit, as attributes and as keys."""

    metric: _Metric
    k: _Slots
    before: float  # weighted mean of the metric on (recs, recent) with the engine's ranking
    after: float  # the same with the biases
    objective_before: float  # weighted sum of the metric minus penalties, at the start
    objective_after: float
    n_users: Count  # users (or user-window pairs) that bought something
    n_skipped: Count  # users (or pairs) with a list that bought nothing
    n_items: Count
    n_candidates: Count
    n_excluded: Count
    cycles: Count
    updates: Count
    converged: bool
    # On the scale "additive" the |median k-th score| (ascent), or the median gap from the first to
    # the k-th score (other methods); 1 on other scales.
    unit: float
    method: str = "ascent"
    # Expected lift in the week that follows; None if there is too little to tell, or no clear gain.
    forecast: float | None = None
    forecast_low: float | None = None  # bounds of its 90 % interval
    forecast_high: float | None = None
    forecast_windows: Count = 0  # windows held out for it; 0: users of the same window
    n_windows: Count = 1  # windows learned from
    concentration_before: float | None = None  # share of slots taken by the 10 most shown items
    concentration_after: float | None = None
    # Share of each level (trend, category, own) that was kept.
    kept: Mapping[str, float] = field(default_factory=dict, hash=False)
    # Coefficients of the trend's features.
    coefficients: Mapping[str, float] = field(default_factory=dict, hash=False)
    strength: Share = WHOLE  # of what was learned; see `ItemBias.with_strength`
    # The forecast and its interval at other strengths.
    forecast_by_strength: _ByStrength = field(default_factory=dict, hash=False)

    @property
    def lift(self) -> float:
        """The lift, after / before - 1; nan if before is 0."""
        return self.after / self.before - 1 if self.before else math.nan


@dataclass(frozen=True)
class RerankSummary(Figures):
    """Figures of a fit, as attributes and as keys."""

    metric: _Metric
    k: _Slots
    n_windows: Count  # windows learned from
    n_users: Count  # users (or user-window pairs) with earlier purchases, learned from
    # Of what users with purchases add; 0: all users are ranked by the biases.
    kept: Annotated[float, Meta(ge=0)]
    sources: tuple[_Source, ...]  # of wider lists
    # Expected lift over the engine in the week that follows; None if no clear gain.
    forecast: float | None = None
    forecast_low: float | None = None  # bounds of its 90 % interval
    forecast_high: float | None = None
    forecast_windows: Count = 0  # windows held out for it; 0: users of the same window
    # Lift over the engine on held-out data: with the biases ("trend"), then with personal terms,
    # then with each source of wider lists.
    lifts: Mapping[str, float] = field(default_factory=dict, hash=False)
    strength: Share = WHOLE  # of what was learned; see `Reranker.with_strength`
    to_popularity: Share = 0.0  # how far it goes from the choice model to what sold most of late
    # The forecast and its interval at other strengths.
    forecast_by_strength: _ByStrength = field(default_factory=dict, hash=False)


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


class Forecast(NamedTuple):
    """The lift in the week that follows, with its 90 % interval; None for each if there is none."""

    forecast: float | None
    forecast_low: float | None
    forecast_high: float | None


def require_strength(strength: float) -> float:
    """Return a strength as a plain number; raise unless it is from 0 to 1."""
    require_number("strength", strength, 0, 1)
    return float(strength)


def forecast_at(strength: float, by_strength: Mapping[str, Sequence[float]]) -> Forecast:
    """Return the forecast at a strength, on a straight line between those that were measured.

    Args:
        strength: from 0, the engine alone, to 1.
        by_strength: forecast and interval at some strengths, 1 among them.
    """
    if not by_strength:
        return Forecast(None, None, None)
    known = sorted((float(name), figures) for name, figures in by_strength.items())
    places = [0.0, *(place for place, _ in known)]
    columns = zip((0.0, 0.0, 0.0), *(figures for _, figures in known), strict=True)
    return Forecast(*(float(np.interp(strength, places, column)) for column in columns))


class LeftOut(NamedTuple):
    """Events that are not used, each counted once."""

    later: int = 0  # at or after the instant
    unknown_users: int = 0  # of users without a list
    unknown_items: int = 0  # of items that were neither learned nor listed


@dataclass(frozen=True)
class Ranked:
    """Ranked lists of some users, and figures that add up over all parts of the users."""

    top: Any  # in the caller's type of frame; None in a sum, whose lists are those of its parts
    lengths: Ints  # number of the engine's lists by length
    longest: int  # items on the longest ranked list
    unknown: Vocabulary  # listed items that were not learned
    left_out: LeftOut

    def __add__(self, other: Ranked) -> Ranked:
        shorter, longer = sorted((self.lengths, other.lengths), key=len)
        lengths = np.pad(shorter, (0, len(longer) - len(shorter))) + longer
        unknown, _ = Vocabulary.encode(self.unknown.column, other.unknown.column)
        left_out = LeftOut(*map(sum, zip(self.left_out, other.left_out, strict=True)))
        return Ranked(None, lengths, max(self.longest, other.longest), unknown, left_out)


_COLUMNS = ("bias", "excluded", "gain", "support", "low", "high", "trend", "category", "fresh")
BIAS_COLUMNS = {  # of a table of biases, besides the ids
    **dict.fromkeys(_COLUMNS, pa.float64()),
    **{"excluded": pa.bool_(), "support": pa.int64(), "fresh": pa.bool_()},
}


@dataclass(frozen=True, eq=False, repr=False)
class BiasTable:
    """One bias per item, with its details; arrays are by item, ids ascending."""

    item_ids: Any  # int64 array or Arrow strings, ascending
    bias: Floats
    excluded: Flags
    gain: Floats
    support: Ints
    low: Floats  # bounds of the bias's 90 % interval; nan if the method gives none
    high: Floats
    trend: Floats  # part of the bias that comes from the item's features
    category: Floats  # part that comes from the category; the rest is the item's own
    fresh: Flags  # items with little data
    scale: str
    unlisted: str
    summary: Summary
    settings: Mapping[str, Any]
    window: Mapping[str, Any]
    # Depth of the lists that the biases were learned on; deeper lists are re-ranked that far down.
    # None: whole lists are re-ranked.
    depth: int | None = None

    def __len__(self) -> int:
        return len(self.bias)

    @property
    def vocabulary(self) -> Vocabulary:
        """The ids of the items, by code."""
        return Vocabulary(self.item_ids, "the bias table", ITEM)

    def table(self) -> pa.Table:
        """Return an Arrow table with one row per item, ids ascending.

        Columns: item_id, bias, excluded, gain, support; low and high, the bounds of the bias's
        90 % interval; trend, category and own, the parts that add up to the bias; fresh, for items
        with little data.
        """
        columns = {name: pa.array(getattr(self, name)) for name in BIAS_COLUMNS}
        fresh, own = columns.pop("fresh"), pa.array(self.bias - self.trend - self.category)
        return pa.table({ITEM: pa.array(self.item_ids), **columns, "own": own, "fresh": fresh})

    def require_factors(self, purpose: str) -> None:
        """Raise unless each bias is one number for all lists: added to a score, or a factor."""
        if self.scale == "list":
            raise SettingError(
                f"biases with scale='list' cannot {purpose}, because every list has its own scale; "
                f"learn with scale='log' or scale='additive'"
            )
        row = int(np.abs(self.bias).argmax()) if len(self) else 0
        if self.scale == "log" and len(self) and abs(self.bias[row]) > _MOST_LOG:
            raise DataError(
                f"{ITEM} {self.vocabulary[row]} has a log bias of {self.bias[row]:g}, beyond "
                f"±{_MOST_LOG:g}: its factor does not fit in a float32; learn with max_bias="
            )


def text_columns(bias: BiasTable | None) -> tuple[str, ...]:
    """Return the columns that must be read from files as text to match the biases."""
    return () if bias is None or isinstance(bias.item_ids, np.ndarray) else (ITEM,)
