"""ItemBias: learned biases that re-rank lists, fold into vectors, and can be saved and loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trimtab.arrays import Flags
from trimtab.checks import require_k, require_whole
from trimtab.models.exports import ExportedBias
from trimtab.models.list_ranking import (
    align_lists,
    choose_depth,
    explore_lists,
    rank_on_scale,
    warn_of,
)
from trimtab.models.model import LeftOut, Ranked, require_strength
from trimtab.models.saved import load_bias, save_bias
from trimtab.tables.columns import ITEM, read_frame
from trimtab.tables.lists import read_lists
from trimtab.tables.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False, repr=False)
class ItemBias(ExportedBias):
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

    def apply(
        self,
        recs: Any,
        k: int = 10,
        *,
        exclude: Any | None = None,
        allowed: Any | None = None,
        duplicates: str = "error",
        explore: int = 0,
        seed: int = 0,
        depth: int | str | None = None,
    ) -> Any:
        """Return the top k of every user with the biases added.

        Args:
            recs: user_id, item_id, score (and window, if there are several): the engine's lists.
            k: slots per user; a user with fewer items gets fewer rows.
            exclude: user_id, item_id of pairs that must not be shown.
            allowed: item_id of the only items that may be shown.
            duplicates: what to do if `recs` has a (user, item) pair twice: "error", or merge the
                scores by "max", "mean" or "sum".
            explore: number of slots, the last of the k, for listed items with little data
                (`fresh`, or not in the bias table). They are chosen by Thompson sampling: each
                score gets a bias drawn at random within its uncertainty. If there are too few
                such items, the slots are filled as usual.
            seed: random seed for `explore`.
            depth: number of items, the best of each list by the engine's score, that are
                re-ranked; "all" for whole lists. By default it is the depth of the lists that
                the biases were learned on (`bias.depth`), with a warning if more than 5 % of the
                lists are deeper. Other items come after the re-ranked ones, in the engine's
                order, so they appear only if k is above the depth, or if too many items may not
                be shown. They keep the engine's score, or get the last re-ranked item's if that
                is lower, and are not explored.

        Returns:
            user_id, item_id, score (with bias), rank (from 1), ordered by user and rank, in the
            same type of frame as `recs`. Items that are not in the bias table have bias 0 (see
            `count_unknown`).
        """
        ranked = self.rank(
            recs, k, exclude=exclude, allowed=allowed, duplicates=duplicates, depth=depth,
            explore=explore, seed=seed,
        )  # fmt: skip
        warn_of(self, ranked, k, depth)
        return ranked.top

    def rank(
        self, recs: Any, k: int = 10, *, history: Any | None = None, as_of: Any | None = None,
        exclude: Any | None = None, allowed: Any | None = None, duplicates: str = "error",
        depth: int | str | None = None, explore: int = 0, seed: int = 0,
    ) -> Ranked:  # fmt: skip
        """Return what `apply` returns, for some of all users, with figures instead of warnings."""
        self.refuse_events(history, as_of)
        require_k(k)
        require_whole("explore", explore, 0, k, "k")
        require_whole("seed", seed, 0)
        deepest = choose_depth(self, depth)
        coded = read_lists(recs, self.unlisted, duplicates)
        aligned = align_lists(self, coded, exclude, allowed)
        if explore:
            top = explore_lists(self, aligned, deepest, k, explore, seed)
        else:
            top = rank_on_scale(
                aligned.lists, self.scale, self.summary.k, k, aligned.bias, aligned.excluded,
                deepest, aligned.hidden, self.unlisted == "zero",
            )  # fmt: skip
        return aligned.finish(top, LeftOut())

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

    def with_strength(self, strength: float) -> ItemBias:
        """Return these biases multiplied by a strength, for a cautious start.

        The forecast is that of the strength. Figures that were measured on the window with the
        whole biases (`gain`, `summary.after` and what follows from it) are nan.

        Args:
            strength: from 0 (the engine's own ranking) to 1 (as learned).
        """
        strength = require_strength(strength)
        if strength == 1:
            return self
        names = ("bias", "low", "high", "trend", "category")
        columns = {name: strength * getattr(self, name) for name in names}
        columns["excluded"] = self.excluded & (strength > 0)
        columns["gain"] = np.full(len(self), math.nan)
        summary = self._summary_at(
            strength, after=math.nan, objective_after=math.nan, concentration_after=None
        )
        return replace(self, summary=summary, **columns)

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
