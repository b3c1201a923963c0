"""ItemBias: learned biases that re-rank lists, fold into vectors, and can be saved and loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trimtab.arrays import Flags, Lists
from trimtab.models.applying import Model
from trimtab.models.exports import ExportedBias
from trimtab.models.list_ranking import AlignedLists, rank_on_scale
from trimtab.models.model import LeftOut
from trimtab.models.saved import load_bias, save_bias
from trimtab.tables.columns import ITEM, read_frame
from trimtab.tables.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False, repr=False)
class ItemBias(ExportedBias, Model):
    """One bias per item, learned by `BiasLearner.fit`. Immutable.

    Example:
        >>> import pyarrow as pa
        >>> import trimtab as tt
        >>> recs = pa.table({"user_id": [1, 1, 2, 2], "item_id": [7, 8, 7, 8],
        ...                  "score": [0.9, 0.8, 0.6, 0.5]})
        >>> recent = pa.table({"user_id": [1, 2], "item_id": [8, 8]})
        >>> bias = tt.BiasLearner(k=1, penalty=0).fit(recs, recent)
        >>> bias.apply(recs, k=1)["item_id"].to_pylist()
        [8, 8]
    """

    needs_events: ClassVar[bool] = False

    def _rank(
        self, aligned: AlignedLists, k: int, depth: int | None, history: Any, as_of: Any
    ) -> tuple[Lists, LeftOut]:
        top = rank_on_scale(
            aligned.lists, self.scale, self.summary.k, k, aligned.bias, aligned.excluded, depth,
            aligned.hidden, self.unlisted == "zero",
        )  # fmt: skip
        return top, LeftOut()

    def __repr__(self) -> str:
        figures = self.summary
        return (
            f"ItemBias({len(self)} items, {int(np.count_nonzero(self.bias))} with a bias, "
            f"{int(self.excluded.sum())} excluded; "
            f"{figures.metric}@{figures.k} {figures.before:.4f} -> {figures.after:.4f})"
        )

    @property
    def item_bias(self) -> ItemBias:
        """These biases."""
        return self

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

    def _at_strength(self, strength: float, summary: Any) -> ItemBias:
        names = ("bias", "low", "high", "trend", "category")
        columns = {name: strength * getattr(self, name) for name in names}
        columns["excluded"] = self.excluded & (strength > 0)
        columns["gain"] = np.full(len(self), math.nan)
        unknown = {"after": math.nan, "objective_after": math.nan, "concentration_after": None}
        return replace(self, summary=replace(summary, **unknown), **columns)

    def count_unknown(self, recs: Any) -> int:
        """Return the number of distinct items of `recs` that are not in the bias table."""
        table = read_frame(recs, "recs", ITEM)
        both, _ = Vocabulary.encode(table.ids(ITEM), self.vocabulary.column)
        return len(both) - len(self)

    def save(self, folder: str | Path) -> None:
        """Save to a folder. Readers see the old version or the new one, never a mixture."""
        save_bias(self, Path(folder))

    @staticmethod
    def load(folder: str | Path) -> ItemBias:
        """Load a saved bias, or the served version of a store, and verify its checksum."""
        return ItemBias(**load_bias(Path(folder)))
