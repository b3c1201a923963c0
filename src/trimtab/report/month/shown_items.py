"""What customers saw: how many users the published lists show an item to, and the engine alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.report.blocks import Cell, Table, name_cell
from trimtab.report.words import count, day
from trimtab.store import Version
from trimtab.tables.columns import ITEM, NAME, SCORE, USER

_N_ITEMS = 8  # raised, and lowered


class ShownItem(NamedTuple):
    """An item, and the number of users who see it in the lists of both kinds."""

    name: str
    alone: int
    published: int

    @property
    def change(self) -> int:
        """How many users more see it."""
        return self.published - self.alone


class ShownItems(NamedTuple):
    """The items of one morning's lists whose number of users changed, most gained first."""

    day: str
    items: Sequence[ShownItem]


def find_shown(version: Version, listed: pa.Table, k: int) -> ShownItems:
    """Return what a version shows instead of the engine's first k items.

    Args:
        version: version with re-ranked lists, by its reranker if it has one.
        listed: the engine's lists that it re-ranked.
        k: number of slots.
    """
    finished = version.lists()
    alone = count_shown(listed, k)
    published = count_shown(version.top() if finished is None else finished, k)
    names = _read_names(version)
    found = [
        ShownItem(str(names.get(item) or f"item {item}"), alone[item], published[item])
        for item in {**alone, **published}
        if alone[item] != published[item]
    ]
    return ShownItems(version.as_of, sorted(found, key=lambda own: (-own.change, own.name)))


def count_shown(lists: pa.Table, k: int) -> Counter[Any]:
    """Return the number of users who see each item in the first k slots; ties go by item id."""
    order = [(USER, "ascending"), (SCORE, "descending"), (ITEM, "ascending")]
    rows = lists.select([USER, ITEM, SCORE]).sort_by(order)
    users = rows[USER].to_numpy()
    is_first = np.ones(len(users), bool)
    is_first[1:] = users[1:] != users[:-1]
    starts = np.flatnonzero(is_first)
    lengths = np.diff(np.append(starts, len(users)))
    places = np.arange(len(users)) - np.repeat(starts, lengths)
    return Counter(rows[ITEM].filter(pa.array(places < k)).to_pylist())


def _read_names(version: Version) -> Mapping[Any, str]:
    names = version.names()
    if names is None:
        return {}
    return dict(zip(names[ITEM].to_pylist(), names[NAME].to_pylist(), strict=True))


def shown_table(shown: ShownItems) -> Table:
    """Return the items that most users more, and most users fewer, see."""
    raised = [item for item in shown.items if item.change > 0][:_N_ITEMS]
    lowered = [item for item in reversed(shown.items) if item.change < 0][:_N_ITEMS]
    body = [
        [name_cell(item.name), Cell(count(item.alone)), Cell(count(item.published)),
         Cell(f"{item.change:+,}".replace("-", "\N{MINUS SIGN}"))]
        for item in (*raised, *lowered)
    ]  # fmt: skip
    caption = f"Items shown to more and to fewer users on {day(shown.day)}"
    return Table(caption, ["item", "engine alone", "published", "change"], body, folded=True)


def describe_shown(shown: ShownItems) -> str:
    """Return the largest change, in a sentence; empty if there is none."""
    if not shown.items or shown.items[0].change <= 0:
        return ""
    first = shown.items[0]
    return (
        f"On {day(shown.day)}, {first.name} gained most: {count(first.published)} users see it, "
        f"{count(first.alone)} with the engine alone."
    )
