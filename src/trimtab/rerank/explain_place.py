"""Why an item stands where it does on one user's list."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Floats, Lists
from trimtab.bias.depth import split_lists
from trimtab.bias.scaled_scores import to_scale
from trimtab.errors import DataError
from trimtab.metrics.ranking import rank_lists
from trimtab.rerank.purchases_by_user import Purchases
from trimtab.rerank.rerank_lists import RankedItems, rank_units, widen_block
from trimtab.rerank.rerank_table import RerankTable
from trimtab.rerank.widening import TERMS, WiderLists
from trimtab.tables.columns import ITEM, SCORE, USER, WINDOW
from trimtab.tables.frames import read_frame
from trimtab.tables.lists import CodedRecs, read_lists
from trimtab.tables.vocabulary import as_id_column, encode_ids, take_ids

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
_MOST_SHOWN = 3  # items that passed another, when printed


class Part(NamedTuple):
    """A part of an item's score."""

    name: str
    value: float


class Passed(NamedTuple):
    """An item that the engine ranked lower, or did not list, and that is now ahead."""

    item: Any
    engine_rank: int | None
    rank: int
    part: Part  # in which it is furthest ahead, and by how much


@dataclass(frozen=True)
class Explanation:
    """Where an item stands on a user's list, and why; the parts add up to its score."""

    user: Any
    item: Any
    engine_rank: int | None  # from 1; None if the engine did not list it
    rank: int
    parts: tuple[Part, ...]
    passed_by: tuple[Passed, ...] = ()  # best first; empty if the engine did not list the item

    @property
    def score(self) -> float:
        """The score that the item is ranked by."""
        return sum(part.value for part in self.parts)

    def __str__(self) -> str:
        came = _came(self.engine_rank)
        lines = [
            f"{ITEM} {self.item} for {USER} {self.user}: {came} by the engine, now {self.rank}"
        ]
        lines += [f"  {part.value:+8.3f}  {_WORDS[part.name]}" for part in self.parts]
        shown, more = self.passed_by[:_MOST_SHOWN], len(self.passed_by) - _MOST_SHOWN
        lines += [
            f"  passed by {ITEM} {other.item} ({_came(other.engine_rank)}, now {other.rank}): "
            f"{other.part.value:+.3f} in: {_WORDS[other.part.name]}"
            for other in shown
        ]
        return "\n".join([*lines, f"  and by {more} more"] if more > 0 else lines)


def _came(engine_rank: int | None) -> str:
    return "not listed" if engine_rank is None else f"rank {engine_rank}"


def read_user_list(recs: Any, user: Any, window: Any, duplicates: str) -> CodedRecs:
    """Return one list of one user; raise if there is none. The arguments are those of `explain`.

    Items are coded with those of all lists: what is on another list may be added to this one.
    """
    table = read_frame(recs, "recs", USER, ITEM, SCORE, optional=(WINDOW,))
    own = table.columns.filter(
        pa.compute.equal(table.columns[USER], _as_id(user, table.columns[USER].type))
    )
    if own.num_rows == 0:
        raise DataError(f"user={user!r}: not in column '{USER}' of recs; pass a user with a list")
    coded = read_lists(own, "never", duplicates)
    ids, (_, codes) = encode_ids([table.ids(ITEM), as_id_column("recs", ITEM, coded.item_ids)])
    lists = coded.lists.take(np.array([_find_window(coded, user, window)]))
    return replace(coded, item_ids=ids, lists=lists._replace(items=codes[lists.items]))


def _find_window(coded: CodedRecs, user: Any, window: Any) -> int:
    """The unit of a window; the last one if it is None."""
    if window is None:
        return len(coded.units) - 1
    found = coded.units.columns(np.arange(len(coded.units))).get(WINDOW, ())
    labels = [str(label) for label in found]
    if not labels:
        raise DataError(f"window={window!r}: recs has no column '{WINDOW}'; leave window out")
    if str(window) not in labels:
        raise DataError(
            f"window={window!r}: not a window of user {user!r} in recs; pass one of "
            f"{', '.join(labels)}"
        )
    return labels.index(str(window))


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
        """Return the ranks of an item, the parts of its score, and what passed it."""
        code = self._code(item)
        users = np.zeros(1, np.int32)
        longest = len(self.lists.items) + len(self.items.trending) + int(self.purchases.lengths[0])
        top = rank_units(
            self.table, self.items, self.lists, users, self.purchases, None, longest, depth
        )
        now = _ranks(top)
        if code not in now:
            raise DataError(
                f"item={item!r}: neither on the list of user {user!r} nor added to it; pass an "
                f"item of `apply(recs, k={longest})`"
            )
        before = _ranks(rank_lists(self.lists, longest, np.zeros(len(self.items.bias))))
        parts = self._parts(depth)
        own = parts.get(code, {})
        passed_by = tuple(
            Passed(self._id(other), before.get(other), now[other], _lead(parts[other], own))
            for other in list(now)[: now[code] - 1]
            if code in before and before.get(other, longest + 1) > before[code]
        )
        shares = tuple(Part(name, value) for name, value in own.items() if value)
        return Explanation(user, item, before.get(code), now[code], shares, passed_by)

    def _id(self, code: int) -> Any:
        found = take_ids(self.item_ids, np.array([code]))[0]
        return found.as_py() if isinstance(found, pa.Scalar) else int(found)

    def _code(self, item: Any) -> int:
        """The code of an item; -1 if it is unknown."""
        if isinstance(self.item_ids, np.ndarray):
            found = np.flatnonzero(self.item_ids == _as_id(item, pa.int64()).as_py())
        else:
            found = np.flatnonzero(pc.equal(self.item_ids, _as_id(item, self.item_ids.type)))
        return int(found[0]) if len(found) else -1

    def _parts(self, depth: int | None) -> dict[int, dict[str, float]]:
        """The parts of each item's score, by code; without what is below the depth."""
        if not self.table.learned or self.purchases.lengths[0] == 0:
            best, _ = split_lists(self.lists, depth)
            lists = to_scale(best, self.table.bias.scale, self.table.summary.k).lists
            columns = {"score": lists.scores, "bias": self.items.bias[lists.items]}
        else:
            users = np.zeros(1, np.int32)
            wide, _ = widen_block(self.table, self.items, self.lists, users, self.purchases, depth)
            lists, columns = wide.lists, self._columns(wide)
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        parts = (dict(zip(columns, row, strict=True)) for row in rows)
        return dict(zip(lists.items.tolist(), parts, strict=True))

    def _columns(self, wide: WiderLists) -> dict[str, Floats]:
        """The parts of the choice model's scores, by entry; see `RerankTable.score`."""
        values = {found.name: found.value for found in self.table.learned}
        return {
            "score": values["score"] * wide.lists.scores,
            "item": self.items.item_part[wide.lists.items],
            **{name: values[name] * wide.terms[:, place] for place, name in enumerate(TERMS)},
            **{
                name: values[name] * wide.added(self.table.sources)[:, place]
                for place, name in enumerate(self.table.summary.sources)
            },
        }


def _lead(parts: dict[str, float], others: dict[str, float]) -> Part:
    """The part in which one item is furthest ahead of another."""
    ahead = (Part(name, value - others.get(name, 0.0)) for name, value in parts.items())
    return max(ahead, key=lambda part: part.value)


def _ranks(top: Lists) -> dict[int, int]:
    """The rank of each item of one list, best first."""
    return {code: place + 1 for place, code in enumerate(top.items.tolist())}
