"""ItemBias: learned biases that re-rank lists, fold into vectors, and can be saved and loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trimtab.arrays import Flags
from trimtab.checks import require_flag, require_k, require_whole
from trimtab.models.exports import search_body, write_boosts, write_query
from trimtab.models.folding import Folded, fold, require_deep
from trimtab.models.list_ranking import (
    align_lists,
    append_rest,
    choose_depth,
    explore_lists,
    split_lists,
    warn_of,
)
from trimtab.models.model import BiasTable, LeftOut, Ranked, forecast_at, require_strength
from trimtab.models.saved import load_bias, save_bias
from trimtab.models.scaled_scores import rank_on_scale
from trimtab.tables.columns import ITEM, GivenColumns
from trimtab.tables.frames import read_frame
from trimtab.tables.lists import read_lists
from trimtab.tables.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False, repr=False)
class ItemBias(BiasTable):
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
        best, rest = split_lists(aligned.lists, deepest)
        if explore:
            top = explore_lists(self, aligned, best, k, explore, seed)
        else:
            top = rank_on_scale(
                best, self.scale, self.summary.k, k, aligned.bias, aligned.excluded,
                self.unlisted == "zero", aligned.hidden, best.scores.flags.writeable,
            )  # fmt: skip
        top = append_rest(top, rest, k, aligned.excluded, aligned.hidden)
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

    def prepare(self, listed: Any) -> ItemBias:
        """Return these biases: nobody's list depends on the lists of others."""
        return self

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
        summary = replace(
            self.summary, strength=strength * self.summary.strength, after=math.nan,
            objective_after=math.nan, concentration_after=None, forecast_by_strength={},
            **forecast_at(strength, self.summary.forecast_by_strength)._asdict(),
        )  # fmt: skip
        parts = {
            name: strength * getattr(self, name)
            for name in ("bias", "low", "high", "trend", "category")
        }
        unknown = np.full(len(self), np.nan)
        excluded = self.excluded if strength else np.zeros_like(self.excluded)
        return replace(self, **parts, gain=unknown, excluded=excluded, summary=summary)

    def count_unknown(self, recs: Any) -> int:
        """Return the number of distinct items of `recs` that are not in the bias table."""
        table = read_frame(recs, "recs", ITEM)
        both, _ = Vocabulary.encode(table.ids(ITEM), self.vocabulary.column)
        return len(both) - len(self)

    def fold_into(
        self,
        item_vectors: Any,
        item_ids: Any | None = None,
        *,
        multiplier: float = 1.0,
        allow_shallow: bool = False,
    ) -> Folded:
        """Return item vectors for an inner-product index that ranks by score plus bias.

        Learn such biases on deep lists, for example those of `tt.recs_from(model, n=1000)`: an
        index ranks all items, and a bias learned on short lists was never tested further down.
        Judge what the index returns with `tt.evaluate`, on purchases later than those learned from.

        Put `folded.vectors` into the index, search it with `folded.queries(user_vectors)`, and get
        the item ids with `folded.ids(rows)`. A log bias scales the item's vector, which gives the
        right ranking as far down as a user's scores are at least 0; an additive bias becomes one
        more coordinate, the last; a bias on the scale of each list (scale="list") cannot be folded.
        The products must be the scores that the biases were learned on. Every user gets the bias of
        every item, for any setting of `unlisted`; items without a learned bias have bias 0. Scores
        are float32. Rows of excluded items are left out: `folded.item_ids` gives the id of each
        remaining row. Do not use a cosine index: it normalises the vectors, which removes the
        biases.

        Args:
            item_vectors: 2-d array, one row per item; not modified.
            item_ids: id of each row; by default rows are the items 0, 1, 2, ...
            multiplier: power of two that multiplies all products, without changing any ranking.
                Use 2.0**20 with usearch and hnswlib: they rank by 1 - product in float32, which
                loses small scores.
            allow_shallow: fold biases even if they were learned on lists that are too short for an
                index. By default the depth (`bias.depth`) must be at least 500 and 20 k, and for
                additive biases a quarter of the rows; all rows are always enough.

        Example:
            >>> import numpy as np
            >>> import pyarrow as pa
            >>> import trimtab as tt
            >>> recs = pa.table({"user_id": [1, 1], "item_id": [0, 1], "score": [0.9, 0.8]})
            >>> recent = pa.table({"user_id": [1], "item_id": [1]})
            >>> bias = tt.BiasLearner(k=1, penalty=0).fit(recs, recent)
            >>> folded = bias.fold_into(np.eye(2))
            >>> (folded.queries([[0.9, 0.8]]) @ folded.vectors.T).argmax()
            np.int64(1)
        """
        require_flag("allow_shallow", allow_shallow)
        folded = fold(self, item_vectors, item_ids, multiplier)
        if not allow_shallow:
            require_deep(self, len(item_vectors))
        return folded

    def export(self, path: str | Path, *, escape: bool = False) -> float:
        """Write boosts for a search engine, and return the boost of items not in the file.

        Args:
            path: file that ends in .jsonl (JSON lines), .csv, or .ndjson (bulk updates for
                Elasticsearch and OpenSearch, to be used with `search_body`); it appears only when
                complete. One row per item, ids ascending: item_id, bias, factor or boost,
                excluded. `factor` (log bias) is above 0 and multiplies the score; `boost`
                (additive bias) is at least 0 and is added to it; biases on the scale of each list
                (scale="list") cannot be written as boosts. Filter out excluded items in the
                search engine.
            escape: in CSV, put an apostrophe before text ids that a spreadsheet may run as
                formulas. It changes these ids.
        """
        return write_boosts(self, Path(path), escape)

    def search_body(self, query: Mapping[str, Any], k: int = 10) -> dict[str, Any]:
        """Return the body of a search in Elasticsearch or OpenSearch that ranks with the biases.

        The documents must have the fields of the bulk updates that `export` writes to a file that
        ends in .ndjson, with the item's id as the document's id. Excluded items are left out;
        documents without the fields have bias 0. Scores are float32, and the engine breaks ties
        in its own way. Write the body anew after each export: additive biases change the value of
        documents without the fields.

        Args:
            query: query whose scores the biases were learned on.
            k: number of documents.

        Example:
            >>> import pyarrow as pa
            >>> import trimtab as tt
            >>> recs = pa.table({"user_id": [1, 1], "item_id": [7, 8], "score": [0.9, 0.8]})
            >>> recent = pa.table({"user_id": [1], "item_id": [8]})
            >>> bias = tt.BiasLearner(k=1, penalty=0, scale="log").fit(recs, recent)
            >>> body = bias.search_body({"match": {"title": "green tea"}})
            >>> body["query"]["function_score"]["field_value_factor"]
            {'field': 'trimtab_factor', 'missing': 1.0}
        """
        require_k(k)
        return search_body(self, query, k)

    def sql(
        self,
        k: int = 10,
        *,
        lists: str = "lists",
        biases: str = "biases",
        exclude: str | None = None,
        allowed: str | None = None,
        columns: GivenColumns = None,
        depth: int | str | None = None,
    ) -> str:
        """Return a query that does what `apply` does inside DuckDB or PostgreSQL.

        The database must have the lists and `table()` as tables; it may have other biases of the
        same scale, depth and kind of ids, so tomorrow's biases need no new query. Each (user,
        item) pair must be on the lists once. Scores are score + bias, or score * exp(bias) for
        log biases; ties go to the smaller item id, also among scores of 0 that `apply` orders by
        log bias. Biases with scale="list" or unlisted="zero", and reserved slots (`explore`),
        are not possible in SQL.

        Args:
            k: slots per user; a user with fewer items gets fewer rows.
            lists: table with user_id, item_id, score. Dots separate the parts of a name, like
                shop.lists. All names are quoted.
            biases: table with item_id, bias, excluded.
            exclude: table with user_id, item_id of pairs that must not be shown.
            allowed: table with item_id of the only items that may be shown.
            columns: names of columns in lists, exclude, allowed and the result, like
                {"user": "customer", "item": "sku", "rank": "slot"}.
            depth: number of items of each list that are re-ranked, as in `apply`.

        Example:
            >>> import duckdb
            >>> import pyarrow as pa
            >>> import trimtab as tt
            >>> recs = pa.table({"user_id": [1, 1, 2, 2], "item_id": [7, 8, 7, 8],
            ...                  "score": [0.9, 0.8, 0.6, 0.5]})
            >>> recent = pa.table({"user_id": [1, 2], "item_id": [8, 8]})
            >>> bias = tt.BiasLearner(k=1, penalty=0).fit(recs, recent)
            >>> lists, biases = recs, bias.table()
            >>> duckdb.sql(bias.sql(k=1)).fetchall() == [
            ...     tuple(row.values()) for row in bias.apply(recs, k=1).to_pylist()
            ... ]
            True
        """
        return write_query(self, k, lists, biases, exclude, allowed, columns, depth)

    def save(self, folder: str | Path) -> None:
        """Save to a folder. Readers see the old version or the new one, never a mixture."""
        save_bias(self, Path(folder))

    @staticmethod
    def load(folder: str | Path) -> ItemBias:
        """Load a saved bias, or the served version of a store, and verify its checksum."""
        return ItemBias(**load_bias(Path(folder)))
