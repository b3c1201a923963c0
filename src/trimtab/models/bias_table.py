"""BiasTable: the learned bias of each item, with its details."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.arrays import Flags, Floats, Ints
from trimtab.errors import SettingError
from trimtab.models.model import Model, Summary
from trimtab.tables.columns import ITEM
from trimtab.tables.vocabulary import Vocabulary

COLUMNS = {  # by item, besides the ids
    **dict.fromkeys(("bias", "gain", "low", "high", "trend", "category"), pa.float64()),
    **dict.fromkeys(("excluded", "fresh"), pa.bool_()),
    "support": pa.int64(),
}


@dataclass(frozen=True, eq=False)
class BiasTable(Model):
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

    def __repr__(self) -> str:
        moved = int(np.count_nonzero(self.bias))
        return (
            f"{type(self).__name__}({len(self)} items, {moved} with a bias, "
            f"{int(self.excluded.sum())} excluded; "
            f"{self.summary.metric}@{self.summary.k} {self.summary.before:.4f} -> "
            f"{self.summary.after:.4f})"
        )

    @property
    def vocabulary(self) -> Vocabulary:
        """The ids of the items, by code."""
        return Vocabulary(self.item_ids, "the bias table", ITEM)

    @property
    def at_work(self) -> Flags:
        """Items whose bias changed a hit in the window.

        With the ascent these are all items with a bias. The hierarchy gives every item a bias, so
        only items with a gain or loss count.
        """
        moved: Flags = self.bias != 0
        return moved if self.summary.method == "ascent" else moved & (self.gain != 0)

    @property
    def adds_items(self) -> bool:
        """Whether raised items reach lists that lack them."""
        return self.unlisted == "zero"

    @property
    def changes_lists(self) -> bool:
        """Whether any item has a bias."""
        return bool(np.any(self.bias))

    def table(self) -> pa.Table:
        """Return an Arrow table with one row per item, ids ascending.

        Columns: item_id, bias, excluded, gain, support; low and high, the bounds of the bias's
        90 % interval; trend, category and own, the parts that add up to the bias; fresh, for items
        with little data.
        """
        return pa.table(
            {
                ITEM: pa.array(self.item_ids),
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
