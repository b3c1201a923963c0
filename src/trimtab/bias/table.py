"""BiasTable: the learned bias of each item, and the summary of the fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.arrays import Flags, Floats, Ints
from trimtab.errors import SettingError
from trimtab.tables.columns import ITEM

WIDTH_90 = 1.6448536269514722  # half the width of a 90 % interval, in standard errors


class Figures(Mapping[str, Any]):
    """A dataclass whose fields can also be read by key."""

    def __getitem__(self, key: str) -> Any:
        return asdict(self)[key]  # type: ignore[call-overload]

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in fields(self))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(fields(self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Summary(Figures):
    """Figures of a fit, as attributes and as keys."""

    metric: str
    k: int
    before: float  # weighted mean of the metric on (recs, recent) with the engine's ranking
    after: float  # the same with the biases
    objective_before: float  # weighted sum of the metric minus penalties, at the start
    objective_after: float
    n_users: int  # users (or user-window pairs) that bought something
    n_skipped: int  # users (or pairs) with a list that bought nothing
    n_items: int
    n_candidates: int
    n_excluded: int
    cycles: int
    updates: int
    converged: bool
    # On the scale "additive" the |median k-th score| (ascent), or the median gap from the first to
    # the k-th score (other methods); 1 on other scales.
    unit: float
    method: str = "ascent"
    # Expected lift in the week that follows; None if there is too little to tell, or no clear gain.
    forecast: float | None = None
    forecast_low: float | None = None  # bounds of its 90 % interval
    forecast_high: float | None = None
    forecast_windows: int = 0  # windows held out for it; 0: users of the same window
    n_windows: int = 1  # windows learned from
    concentration_before: float | None = None  # share of slots taken by the 10 most shown items
    concentration_after: float | None = None
    # Share of each level (trend, category, own) that was kept.
    kept: Mapping[str, float] = field(default_factory=dict, hash=False)
    # Coefficients of the trend's features.
    coefficients: Mapping[str, float] = field(default_factory=dict, hash=False)
    strength: float = 1.0  # of what was learned; see `ItemBias.with_strength`
    # The forecast and its interval at other strengths.
    forecast_by_strength: Mapping[str, Sequence[float]] = field(default_factory=dict, hash=False)

    @property
    def lift(self) -> float:
        """The lift, after / before - 1; nan if before is 0."""
        return self.after / self.before - 1 if self.before else float("nan")


@dataclass(frozen=True, eq=False)
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

    def __post_init__(self) -> None:
        for column in fields(self):
            array = getattr(self, column.name)
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))
        object.__setattr__(self, "window", MappingProxyType(dict(self.window)))

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (getattr(self, field.name) for field in fields(self))
        return type(self), tuple(dict(p) if isinstance(p, MappingProxyType) else p for p in parts)

    def __len__(self) -> int:
        return len(self.bias)

    def __repr__(self) -> str:
        moved = int(np.count_nonzero(self.bias))
        return (
            f"{type(self).__name__}({len(self)} items, {moved} with a bias, "
            f"{int(self.excluded.sum())} excluded; "
            f"{self.summary.metric}@{self.summary.k} {self.summary.before:.4f} -> "
            f"{self.summary.after:.4f})"
        )

    @property
    def at_work(self) -> Flags:
        """Items whose bias changed a hit in the window.

        With the ascent these are all items with a bias. The hierarchy gives every item a bias, so
        only items with a gain or loss count.
        """
        moved: Flags = self.bias != 0
        return moved if self.summary.method == "ascent" else moved & (self.gain != 0)

    def table(self) -> pa.Table:
        """Return an Arrow table with one row per item, ids ascending.

        Columns: item_id, bias, excluded, gain, support; low and high, the bounds of the bias's
        90 % interval; trend, category and own, the parts that add up to the bias; fresh, for items
        with little data.
        """
        ids = self.item_ids
        return pa.table(
            {
                ITEM: pa.array(ids) if isinstance(ids, np.ndarray) else ids,
                "bias": self.bias,
                "excluded": pa.array(self.excluded),
                "gain": self.gain,
                "support": self.support,
                "low": self.low,
                "high": self.high,
                "trend": self.trend,
                "category": self.category,
                "own": self.bias - self.trend - self.category,
                "fresh": pa.array(self.fresh),
            }
        )


def require_common_scale(bias: BiasTable, purpose: str) -> None:
    """Raise if the biases are on the scale of each list, which no number per item can follow.

    Args:
        bias: the biases.
        purpose: what they are needed for, as in "cannot be written as boosts".
    """
    if bias.scale == "list":
        raise SettingError(
            f"biases with scale='list' cannot {purpose}, because every list has its own scale; "
            f"learn with scale='log' or scale='additive'"
        )


def text_columns(bias: BiasTable | None) -> tuple[str, ...]:
    """Return the columns that must be read from files as text to match the biases."""
    return () if bias is None or isinstance(bias.item_ids, np.ndarray) else (ITEM,)
