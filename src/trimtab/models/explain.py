"""Why a Reranker ranks as it does: an item's place on one user's list, and every coefficient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Lists
from trimtab.errors import DataError
from trimtab.metrics.ranking import rank_lists
from trimtab.models.list_ranking import AlignedLists, split_lists
from trimtab.models.model import Coefficient
from trimtab.models.personal_ranking import RankedItems, RerankTable, rank_units, widen_block
from trimtab.models.scaled_scores import to_scale
from trimtab.models.widening import Purchases
from trimtab.tables.columns import ITEM, SCORE, USER, WINDOW
from trimtab.tables.frames import read_frame
from trimtab.tables.lists import CodedRecs, read_lists
from trimtab.tables.vocabulary import Vocabulary, id_column

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
_THE_USER = np.zeros(1, np.int32)
_ONE_MORE = {  # how much of a term one compares, and the words for it
    "score": (1.0, "a score e times as high"),
    "bought_before": (1.0, "bought before by the user"),
    "times_bought": (math.log(2.0), "bought twice as often by the user"),
    "days_since": (math.log(2.0), "twice as long since the user's last purchase"),
    "bought_lately": (math.log(2.0), "twice as many purchases of late by the user"),
    "trending": (1.0, "added because it sells well, instead of the last item of the list"),
    "own": (1.0, "added because the user bought it, instead of the last item of the list"),
}
_ITEM = {
    "long_run_share": "twice the share of all sales",
    "rise_of_quarter": "twice the share in the last three months, against all time",
    "rise_of_month": "twice the share in the last month, against three months",
    "rise_of_week": "twice the share in the last week, against the month",
    "rise_of_window": "twice the share in the last days, against the week",
    "bought_per_listed": "bought twice as often per list that holds it",
    "share_shown": "shown twice as often by the engine",
    "days_unsold": "twice as long unsold",
    "age": "twice as long on sale",
    "repeat_rate": "twice as often bought again",
}
_UNKNOWN = 1.0  # standard error: from a fifth to five times as likely


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
        pc.equal(table.columns[USER], _as_id(user, table.columns[USER].type))
    )
    if own.num_rows == 0:
        raise DataError(f"user={user!r}: not in column '{USER}' of recs; pass a user with a list")
    coded = read_lists(own, "never", duplicates)
    items, (_, codes) = Vocabulary.encode(table.ids(ITEM), Vocabulary(coded.item_ids).column)
    lists = coded.lists.take(np.array([_find_window(coded, user, window)]))
    return replace(coded, item_ids=items.ids, lists=lists._replace(items=codes[lists.items]))


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
    aligned: AlignedLists
    items: RankedItems
    purchases: Purchases
    depth: int | None

    def explain(self, user: Any, item: Any) -> Explanation:
        """Return the ranks of an item, the parts of its score, and what passed it."""
        lists, code = self.aligned.lists, self._code(item)
        longest = len(lists.items) + len(self.items.trending) + int(self.purchases.lengths[0])
        top = rank_units(
            self.table, self.items, lists, _THE_USER, self.purchases, None, longest, self.depth
        )
        now = _ranks(top)
        if code not in now:
            raise DataError(
                f"item={item!r}: neither on the list of user {user!r} nor added to it; pass an "
                f"item of `apply(recs, k={longest})`"
            )
        before = _ranks(rank_lists(lists, longest, np.zeros(len(self.items.bias))))
        parts = self._parts()
        own = parts.get(code, {})
        passed_by = tuple(
            Passed(self._id(other), before.get(other), now[other], _lead(parts[other], own))
            for other in list(now)[: now[code] - 1]
            if code in before and before.get(other, longest + 1) > before[code]
        )
        shares = tuple(Part(name, value) for name, value in own.items() if value)
        return Explanation(user, item, before.get(code), now[code], shares, passed_by)

    def _id(self, code: int) -> Any:
        (found,) = self.aligned.items.take(np.array([code]))
        return found.as_py() if isinstance(found, pa.Scalar) else int(found)

    def _code(self, item: Any) -> int:
        """The code of an item; -1 if it is unknown."""
        known = self.aligned.items
        kind = pa.int64() if isinstance(known.ids, np.ndarray) else pa.large_string()
        wanted = pa.chunked_array([pa.array([_as_id(item, kind).as_py()], kind)])
        return int(known.codes(id_column("item", ITEM, wanted))[0])

    def _parts(self) -> dict[int, dict[str, float]]:
        """The parts of each item's score, by code; without what is below the depth."""
        table, items, lists = self.table, self.items, self.aligned.lists
        if not table.learned or self.purchases.lengths[0] == 0:
            best, _ = split_lists(lists, self.depth)
            lists = to_scale(best, table.bias.scale, table.summary.k).lists
            columns = {"score": lists.scores, "bias": items.bias[lists.items]}
        else:
            wide, _ = widen_block(table, items, lists, _THE_USER, self.purchases, self.depth)
            lists, columns = wide.lists, dict(table.parts(wide, items.item_part))
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        parts = (dict(zip(columns, row, strict=True)) for row in rows)
        return dict(zip(lists.items.tolist(), parts, strict=True))


def _lead(parts: dict[str, float], others: dict[str, float]) -> Part:
    """The part in which one item is furthest ahead of another."""
    ahead = (Part(name, value - others.get(name, 0.0)) for name, value in parts.items())
    return max(ahead, key=lambda part: part.value)


def _ranks(top: Lists) -> dict[int, int]:
    """The rank of each item of one list, best first."""
    return {code: place + 1 for place, code in enumerate(top.items.tolist())}


def coefficient_table(learned: Sequence[Coefficient], scale: str) -> pa.Table:
    """Return coefficients as a table, each with a sentence.

    Args:
        learned: the coefficients.
        scale: of the biases, on which scores are compared.
    """
    return pa.table(
        {
            "name": pa.array([c.name for c in learned], pa.string()),
            "kind": pa.array([c.kind for c in learned], pa.string()),
            "value": pa.array([c.value for c in learned], pa.float64()),
            "error": pa.array([c.error for c in learned], pa.float64()),
            "meaning": pa.array([explain(c, scale) for c in learned], pa.string()),
        }
    )


def explain(coefficient: Coefficient, scale: str = "log") -> str:
    """Return what a coefficient means, as in "bought before by the user: 3.1 x as likely".

    Where a term hardly varies within lists, the prior's 0 is left, with a large error.
    """
    step, words = _ONE_MORE.get(
        coefficient.name,
        (math.log(2.0), _ITEM.get(coefficient.name, f"twice the {coefficient.name}")),
    )
    if coefficient.kind == "score" and scale != "log":
        words = "a score higher by the gap from the first to the k-th of the list"
    if coefficient.error > _UNKNOWN and abs(coefficient.value) < coefficient.error / 10:
        return f"{words}: not learned"
    return f"{words}: {_times(math.exp(min(step * coefficient.value, 700.0)))} as likely"


def _times(ratio: float) -> str:
    """Return a ratio like "3.1 x", or "0.95 x" close to 1."""
    return f"{ratio:.2f} x" if 0.8 < ratio < 1.25 else f"{ratio:.2g} x"
