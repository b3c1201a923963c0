"""Why a Reranker ranks as it does: an item's place on one user's list, and every coefficient."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Codes, Floats
from trimtab.errors import DataError
from trimtab.models.model import Coefficient
from trimtab.tables.columns import ITEM, SCORE, USER, WINDOW, read_frame
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
_TWICE = math.log(2.0)
_ONE_MORE = {  # how much of a term one compares, and the words for it
    "score": (1.0, "a score e times as high"),
    "bought_before": (1.0, "bought before by the user"),
    "times_bought": (_TWICE, "bought twice as often by the user"),
    "days_since": (_TWICE, "twice as long since the user's last purchase"),
    "bought_lately": (_TWICE, "twice as many purchases of late by the user"),
    "trending": (1.0, "added because it sells well, instead of the last item of the list"),
    "own": (1.0, "added because the user bought it, instead of the last item of the list"),
    "long_run_share": (_TWICE, "twice the share of all sales"),
    "rise_of_quarter": (_TWICE, "twice the share in the last three months, against all time"),
    "rise_of_month": (_TWICE, "twice the share in the last month, against three months"),
    "rise_of_week": (_TWICE, "twice the share in the last week, against the month"),
    "rise_of_window": (_TWICE, "twice the share in the last days, against the week"),
    "bought_per_listed": (_TWICE, "bought twice as often per list that holds it"),
    "share_shown": (_TWICE, "shown twice as often by the engine"),
    "days_unsold": (_TWICE, "twice as long unsold"),
    "age": (_TWICE, "twice as long on sale"),
    "repeat_rate": (_TWICE, "twice as often bought again"),
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


def read_user_list(recs: Any, user: Any, duplicates: str) -> CodedRecs:
    """Return the last list of one user; raise if there is none.

    Items are coded with those of all lists: what is on another list may be added to this one.
    """
    table = read_frame(recs, "recs", USER, ITEM, SCORE, optional=(WINDOW,))
    users = table.columns[USER]
    own = table.columns.filter(pc.equal(users, _as_id(user, users.type)))
    if own.num_rows == 0:
        raise DataError(f"user={user!r}: not in column '{USER}' of recs; pass a user with a list")
    coded = read_lists(own, "never", duplicates)
    items, (_, codes) = Vocabulary.encode(table.ids(ITEM), Vocabulary(coded.item_ids).column)
    lists = coded.lists.take(np.array([len(coded.units) - 1]))
    return replace(coded, item_ids=items.ids, lists=lists._replace(items=codes[lists.items]))


def _as_id(value: Any, kind: pa.DataType) -> pa.Scalar:
    try:
        return pa.scalar(value).cast(kind.value_type if pa.types.is_dictionary(kind) else kind)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{value!r} is not an id like those of recs ({kind})") from error


def explain_place(
    user: Any, item: Any, known: Vocabulary, engine: Codes, top: Codes, scored: Codes,
    parts: Mapping[str, Floats],
) -> Explanation:  # fmt: skip
    """Return the ranks of an item, the parts of its score, and what passed it.

    Args:
        user: whose list it is.
        item: id of the item.
        known: ids of all items.
        engine: items as the engine ranks them.
        top: items as they are ranked now.
        scored: items down to the depth.
        parts: of the scores of these, by name.
    """
    before, now = (
        {code: place + 1 for place, code in enumerate(codes.tolist())} for codes in (engine, top)
    )
    kind = pa.int64() if isinstance(known.ids, np.ndarray) else pa.large_string()
    wanted = pa.chunked_array([pa.array([_as_id(item, kind).as_py()], kind)])
    code = int(known.codes(id_column("item", ITEM, wanted))[0])
    if code not in now:
        raise DataError(
            f"item={item!r}: neither on the list of user {user!r} nor added to it; pass an item of "
            f"`apply(recs, k={len(top)})`"
        )
    rows = {other: row for row, other in enumerate(scored.tolist())}

    def value(name: str, of: int) -> float:
        return float(parts[name][rows[of]]) if of in rows else 0.0

    def lead(other: int) -> Part:
        """The part in which another item is furthest ahead."""
        ahead = (Part(name, value(name, other) - value(name, code)) for name in parts)
        return max(ahead, key=lambda part: part.value)

    passed_by = tuple(
        Passed(pa.scalar(known[other]).as_py(), before.get(other), now[other], lead(other))
        for other in top[: now[code] - 1].tolist()
        if code in before and before.get(other, math.inf) > before[code]
    )
    own = tuple(Part(name, value(name, code)) for name in parts if value(name, code))
    return Explanation(user, item, before.get(code), now[code], own, passed_by)


def coefficient_table(learned: Sequence[Coefficient], scale: str) -> pa.Table:
    """Return coefficients as a table, each with a sentence; the scale is that of the biases."""
    kinds = {"name": pa.string(), "kind": pa.string(), "value": pa.float64(), "error": pa.float64()}
    columns = {name: pa.array([getattr(c, name) for c in learned], kinds[name]) for name in kinds}
    columns["meaning"] = pa.array([_explain(c, scale) for c in learned], pa.string())
    return pa.table(columns)


def _explain(coefficient: Coefficient, scale: str) -> str:
    """Return what a coefficient means, as in "bought before by the user: 3.1 x as likely".

    Where a term hardly varies within lists, the prior's 0 is left, with a large error.
    """
    step, words = _ONE_MORE.get(coefficient.name, (_TWICE, f"twice the {coefficient.name}"))
    if coefficient.kind == "score" and scale != "log":
        words = "a score higher by the gap from the first to the k-th of the list"
    if coefficient.error > _UNKNOWN and abs(coefficient.value) < coefficient.error / 10:
        return f"{words}: not learned"
    ratio = math.exp(min(step * coefficient.value, 700.0))
    times = f"{ratio:.2f} x" if 0.8 < ratio < 1.25 else f"{ratio:.2g} x"
    return f"{words}: {times} as likely"
