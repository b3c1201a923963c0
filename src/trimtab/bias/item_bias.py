"""ItemBias: learned biases that re-rank lists, fold into vectors, save and load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Lists, Sets
from trimtab.bias.explore import Chances, explore_lists, require_explore
from trimtab.bias.export.folding import Folded, fold
from trimtab.bias.export.search_boosts import write_boosts
from trimtab.bias.saved import load_table, save_table
from trimtab.bias.scales import to_scale, to_scores
from trimtab.bias.table import WIDTH_90, BiasTable
from trimtab.checks import require_k
from trimtab.metrics.ranking import rank_lists
from trimtab.tables.columns import ITEM, RANK, SCORE, USER
from trimtab.tables.frames import group_sets, known_ids, read_frame, take_ids, write_frame
from trimtab.tables.ids import encode_ids
from trimtab.tables.rec_lists import CodedRecs, longest_list, read_lists, warn_if_short


@dataclass(frozen=True, eq=False, repr=False)
class ItemBias(BiasTable):
    """One bias per item, as learned by `BiasLearner.fit`; never changes.

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
    ) -> Any:
        """The top k of every user with the biases added.

        Args:
            recs: user_id, item_id, score (and window, if there are several): the engine's lists.
            k: places per user; a user with fewer items gets fewer rows.
            exclude: user_id, item_id: pairs that must not be shown.
            allowed: item_id: if given, nothing else is shown.
            duplicates: what to do when `recs` has a (user, item) twice: "error", or merge the
                scores by "max", "mean" or "sum".
            explore: keep this many of the k places, the last ones, for listed items that little
                is known of (`fresh`, or not in the bias table), chosen by Thompson sampling: by
                their scores with a bias drawn from its uncertainty. Places that no such item
                claims are filled as usual.
            seed: of the draws.

        Returns:
            user_id, item_id, score (with bias), rank (from 1), ordered by user and rank, as the
            same kind of frame as `recs`. Items that the bias table does not know have bias 0
            (see `count_unknown`).
        """
        require_k(k)
        require_explore(explore, k, seed)
        coded = read_lists(recs, self.unlisted, duplicates)
        items = self._align(coded)
        hidden = None if exclude is None else _read_pairs(exclude, coded, items.ids)
        keep_out = (
            items.excluded if allowed is None else items.excluded | ~_read_allowed(allowed, items)
        )
        lists, exponents = to_scale(coded.lists._replace(items=items.codes), self.scale)
        warn_if_short(longest_list(lists), k)
        top = rank_lists(lists, k, items.bias, keep_out, self.unlisted == "zero", hidden)
        if explore:
            chances = Chances(items.bias, items.spread, items.fresh & ~keep_out)
            top = explore_lists(lists, top, k, explore, chances, hidden, seed)
        return _write_top(top, coded, items.ids, to_scores(top, exponents))

    def count_unknown(self, recs: Any) -> int:
        """How many different items of `recs` the bias table does not know."""
        table = read_frame(recs, "recs", ITEM)
        ids, (_, own) = encode_ids(
            [table.ids(ITEM), known_ids("the bias table", ITEM, self.item_ids)]
        )
        return len(ids) - len(own)

    def fold_into(
        self,
        item_vectors: Any,
        item_ids: Any | None = None,
        *,
        excluded: str = "drop",
        user_vectors: Any | None = None,
        multiplier: float = 1.0,
    ) -> Folded:
        """Vectors for an inner-product index that serves the biased score, as a `Folded`.

        `folded.vectors` go into the index, `folded.queries(user_vectors)` are what to search it
        with, `folded.ids(rows)` are the items found. An additive bias becomes one more coordinate,
        the last one; a log bias scales the item's vector. Products must be the scores that the
        biases were learned on. Every item gets its bias for every user, whatever `unlisted` was;
        items without a learned bias count as 0. Scores are served in float32. Never for an index
        by cosine: it divides the biases out again.

        Args:
            item_vectors: 2-d, a row an item; not changed.
            item_ids: the id of each row. If left out, rows are the items 0, 1, 2, ...
            excluded: "drop": excluded items have no row; `folded.item_ids` tells which row is
                which. "mask": rows stay where they are, and those of excluded items score
                about -2^60 for everybody. For exact float32 indexes only: a graph is built among
                such rows, and a quantized index is trained on them.
            user_vectors: for a log bias and item vectors with coordinates below 0, all users, to
                show that no score is below 0: products are checked.
            multiplier: a power of two that all products are times of; no ranking changes. usearch
                and hnswlib rank by 1 - product in float32, where small scores look the same:
                2.0**20 serves there.

        Example:
            >>> import numpy as np
            >>> import trimtab as tt
            >>> recs = pa.table({"user_id": [1, 1], "item_id": [0, 1], "score": [0.9, 0.8]})
            >>> recent = pa.table({"user_id": [1], "item_id": [1]})
            >>> bias = tt.BiasLearner(k=1, penalty=0).fit(recs, recent)
            >>> folded = bias.fold_into(np.eye(2))
            >>> (folded.queries([[0.9, 0.8]]) @ folded.vectors.T).argmax()
            np.int64(1)
        """
        return fold(self, item_vectors, item_ids, excluded, user_vectors, multiplier)

    def export(self, path: str | Path) -> float:
        """Write numbers for a search engine; returned is what counts for items not in the file.

        Args:
            path: ends in .jsonl (JSON lines) or .csv; appears only when complete. A row an item,
                ids ascending: item_id, bias, factor or boost, excluded. `factor`, for a log bias,
                is above 0 and multiplies scores; `boost`, for an additive one, is at least 0 and
                is added. Items that are excluded must be filtered out.
        """
        return write_boosts(self, Path(path))

    def save(self, folder: str | Path) -> None:
        """Write into a folder; a reader sees the old version or the new one, never a mixture."""
        save_table(self, Path(folder))

    @staticmethod
    def load(folder: str | Path) -> ItemBias:
        """Read what `save` wrote, checked against its checksum."""
        return ItemBias(**load_table(Path(folder)))

    def _align(self, coded: CodedRecs) -> _Aligned:
        """Biases by the codes of `recs`' items and ours together."""
        ours = known_ids("the bias table", ITEM, self.item_ids)
        theirs = known_ids("recs", ITEM, coded.item_ids)
        ids, (from_recs, from_bias) = encode_ids([theirs, ours])
        bias = np.zeros(len(ids))
        bias[from_bias] = self.bias
        excluded = np.zeros(len(ids), bool)
        excluded[from_bias] = self.excluded
        fresh = np.ones(len(ids), bool)
        fresh[from_bias] = self.fresh
        errors = (self.high - self.low) / (2 * WIDTH_90)
        widest = float(np.nanmax(errors)) if np.isfinite(errors).any() else 0.0
        spread = np.full(len(ids), widest)
        spread[from_bias] = np.nan_to_num(errors)
        return _Aligned(ids, from_recs[coded.lists.items], bias, excluded, fresh, spread)


@dataclass(frozen=True)
class _Aligned:
    ids: Any
    codes: Codes  # of the lists' items
    bias: Floats
    excluded: Flags
    fresh: Flags
    spread: Floats  # standard error of the bias


def _read_pairs(exclude: Any, coded: CodedRecs, item_ids: Any) -> Sets | None:
    """What each unit must not get; pairs of other users or items do not matter."""
    pairs = read_frame(exclude, "exclude", USER, ITEM, may_be_empty=True)
    if len(pairs) == 0:
        return None
    users = known_ids("recs", USER, coded.units.users)
    _, (known_users, pair_users) = encode_ids([users, pairs.ids(USER)])
    _, (known_items, pair_items) = encode_ids([known_ids("recs", ITEM, item_ids), pairs.ids(ITEM)])
    user_of = _back_to(known_users, pair_users)
    item_of = _back_to(known_items, pair_items)
    matter = (user_of >= 0) & (item_of >= 0)
    by_user = group_sets(user_of[matter], item_of[matter], len(coded.units.users))
    lengths = np.diff(by_user.indptr)[coded.units.user_codes]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    starts = by_user.indptr[coded.units.user_codes]
    places = np.arange(indptr[-1]) - np.repeat(indptr[:-1] - starts, lengths)
    return Sets(indptr, by_user.items[places])


def _back_to(known: Codes, wanted: Codes) -> Codes:
    """Places in `known` of the wanted codes; -1 where there is none."""
    table = np.full(int(max(known.max(initial=-1), wanted.max(initial=-1))) + 1, -1, np.int32)
    table[known] = np.arange(len(known), dtype=np.int32)
    return table[wanted]


def _read_allowed(allowed: Any, items: _Aligned) -> Flags:
    table = read_frame(allowed, "allowed", ITEM)
    _, (known, wanted) = encode_ids([known_ids("recs", ITEM, items.ids), table.ids(ITEM)])
    flags = np.zeros(len(items.ids), bool)
    places = _back_to(known, wanted)
    flags[places[places >= 0]] = True
    return flags


def _write_top(top: Lists, coded: CodedRecs, item_ids: Any, scores: Floats) -> Any:
    lengths = np.diff(top.indptr)
    units = np.repeat(np.arange(top.n_units, dtype=np.int32), lengths)
    ranks = np.arange(len(units)) - np.repeat(top.indptr[:-1], lengths) + 1
    columns = coded.units.columns(units)
    columns[ITEM] = take_ids(item_ids, top.items)
    columns[SCORE] = scores
    columns[RANK] = ranks.astype(np.int64)
    return write_frame(columns, coded.table)
