"""Why an item stands where it does on one user's list."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Lists
from trimtab.bias.scaled_scores import to_scale
from trimtab.errors import DataError
from trimtab.metrics.ranking import rank_lists
from trimtab.rerank.purchases_by_user import Purchases
from trimtab.rerank.rerank_lists import RankedItems, rank_units, widen_block
from trimtab.rerank.rerank_table import RerankTable
from trimtab.rerank.widening import TERMS, WiderLists
from trimtab.tables.columns import ITEM, SCORE, USER
from trimtab.tables.frames import as_id_column, read_frame
from trimtab.tables.ids import encode_ids
from trimtab.tables.rec_lists import CodedRecs, read_lists

_WORDS = {
    "score": "the engine's score",
    "item": "trend of the item",
    "bias": "bias of the item",
    "bought_before": "the user bought it before",
    "times_bought": "how often",
    "days_since": "how long ago",
    "bought_lately": "how much of late",
    "trending": "added because it sells well",
    "own": "added because the user bought it",
}


class Part(NamedTuple):
    """A part of an item's score."""

    name: str
    value: float


@dataclass(frozen=True)
class Explanation:
    """Where an item stands on a user's list, and why; the parts add up to its score."""

    user: Any
    item: Any
    engine_rank: int | None  # from 1; None if the engine did not list it
    rank: int
    parts: tuple[Part, ...]

    @property
    def score(self) -> float:
        """The score that the item is ranked by."""
        return sum(part.value for part in self.parts)

    def __str__(self) -> str:
        came = "not listed" if self.engine_rank is None else f"rank {self.engine_rank}"
        lines = [
            f"{ITEM} {self.item} for {USER} {self.user}: {came} by the engine, now {self.rank}"
        ]
        lines += [f"  {part.value:+8.3f}  {_WORDS[part.name]}" for part in self.parts]
        return "\n".join(lines)


def read_user_lists(recs: Any, user: Any) -> CodedRecs:
    """Return the list of one user; raise if there is none.

    Items are coded with those of all lists: what is on another list may be added to this one.
    """
    table = read_frame(recs, "recs", USER, ITEM, SCORE)
    own = table.columns.filter(
        pa.compute.equal(table.columns[USER], _as_id(user, table.columns[USER].type))
    )
    if own.num_rows == 0:
        raise DataError(f"user={user!r}: not in column '{USER}' of recs; pass a user with a list")
    coded = read_lists(own, "never", "error")
    ids, (_, codes) = encode_ids([table.ids(ITEM), as_id_column("recs", ITEM, coded.item_ids)])
    return replace(coded, item_ids=ids, lists=coded.lists._replace(items=codes[coded.lists.items]))


def _as_id(value: Any, kind: pa.DataType) -> pa.Scalar:
    try:
        return pa.scalar(value).cast(kind.value_type if pa.types.is_dictionary(kind) else kind)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{value!r} is not an id like those of recs ({kind})") from error


class ListPlace(NamedTuple):
    """One user's list, with what is needed to rank it."""

    table: RerankTable
    items: RankedItems
    lists: Lists
    purchases: Purchases
    item_ids: Any

    def explain(self, user: Any, item: Any, depth: int | None) -> Explanation:
        """Return the ranks of an item and the parts of its score."""
        code = self._code(item)
        users = np.zeros(1, np.int32)
        longest = len(self.lists.items) + len(self.items.trending) + int(self.purchases.lengths[0])
        top = rank_units(
            self.table, self.items, self.lists, users, self.purchases, None, longest, depth
        )
        rank = np.flatnonzero(top.items == code)
        if len(rank) == 0:
            raise DataError(
                f"item={item!r}: neither on the list of user {user!r} nor added to it; pass an "
                f"item of `apply(recs, k={longest})`"
            )
        listed = rank_lists(self.lists, longest, np.zeros(len(self.items.bias)))
        before = np.flatnonzero(listed.items == code)
        parts = tuple(part for part in self._parts(code, depth) if part.value)
        return Explanation(
            user, item, int(before[0]) + 1 if len(before) else None, int(rank[0]) + 1, parts
        )

    def _code(self, item: Any) -> int:
        """The code of an item; -1 if it is unknown."""
        if isinstance(self.item_ids, np.ndarray):
            found = np.flatnonzero(self.item_ids == _as_id(item, pa.int64()).as_py())
        else:
            found = np.flatnonzero(pc.equal(self.item_ids, _as_id(item, self.item_ids.type)))
        return int(found[0]) if len(found) else -1

    def _parts(self, code: int, depth: int | None) -> list[Part]:
        users = np.zeros(1, np.int32)
        if not self.table.learned or self.purchases.lengths[0] == 0:
            scaled = to_scale(self.lists, self.table.bias.scale, self.table.summary.k).lists
            own = np.flatnonzero(scaled.items == code)
            score = float(scaled.scores[own[0]]) if len(own) else 0.0
            return [Part("score", score), Part("bias", float(self.items.bias[code]))]
        wide, _ = widen_block(self.table, self.items, self.lists, users, self.purchases, depth)
        return self._parts_of_entry(wide, code)

    def _parts_of_entry(self, wide: WiderLists, code: int) -> list[Part]:
        values = {found.name: found.value for found in self.table.learned}
        entry = np.flatnonzero(wide.lists.items == code)
        if len(entry) == 0:  # below the depth
            return []
        at = int(entry[0])
        parts = [Part("score", values["score"] * float(wide.lists.scores[at]))]
        parts.append(Part("item", float(self.items.item_part[code])))
        parts += [
            Part(name, values[name] * float(wide.terms[at, place]))
            for place, name in enumerate(TERMS)
        ]
        added = wide.added(self.table.sources)[at]
        parts += [
            Part(name, values[name] * float(flag))
            for name, flag in zip(self.table.summary.sources, added, strict=True)
        ]
        return parts
