"""The tables of an evaluation: lists and purchases, read and coded together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Lists, Sets
from trimtab.checks import require_columns, require_k
from trimtab.errors import DataError, warn
from trimtab.metrics.event_weights import (
    EventWeights,
    largest_weights,
    read_event_weights,
    weigh_purchases,
)
from trimtab.metrics.ranking import rank_lists
from trimtab.tables.columns import COUNT, ITEM, RANK, SCORE, USER, WINDOW
from trimtab.tables.frames import Table, read_frame, read_scores
from trimtab.tables.lists import Units, encode_units, group_scored, group_sets, read_weights
from trimtab.tables.vocabulary import encode_ids


@dataclass(frozen=True)
class CodedTables:
    """The tables of an evaluation, with common codes."""

    k: int
    units: Units
    item_ids: Any
    list_units: dict[str, Codes]  # of the rows of each table of lists
    lists: dict[str, Lists]  # the first k, in rank order
    bought_units: Codes
    bought: Sets
    event_weights: EventWeights | None
    sales: Floats | None  # by item, in the history

    @property
    def n_items(self) -> int:
        """The number of items of all tables."""
        return len(self.item_ids)

    @property
    def buys(self) -> Flags:
        """Which units bought something."""
        found: Flags = np.diff(self.bought.indptr) > 0
        return found

    def has_common_users(self, name: str) -> bool:
        """Return whether some purchases are of users with a list in a table."""
        return bool(np.isin(self.bought_units, self.list_units[name]).any())

    def require_common_users(self) -> None:
        """Raise if lists and purchases have no user in common."""
        for name, listed in self.list_units.items():
            if not self.has_common_users(name):
                raise DataError(
                    f"no {USER} of truth is in {name} (truth has "
                    f"{self.units.label(self.bought_units[0])}, {name} "
                    f"{self.units.label(listed[0])}): they must share users; check that both use "
                    f"the same ids"
                )

    def count_missing_lists(self) -> int:
        """Return how many users who bought something have a list in one of two tables only."""
        ours, theirs = (np.diff(lists.indptr) > 0 for lists in self.lists.values())
        return int(((ours != theirs) & self.buys).sum())

    def unit_weights(self, weights: Any | None) -> Floats | None:
        """Return how much each unit counts: by the weights of users and of events."""
        by_user = None
        if weights is not None:
            by_user = read_weights(weights, self.units, self.buys, "topk")
        if self.event_weights is None:
            return by_user
        heaviest = self.event_weights.heaviest
        return heaviest if by_user is None else by_user * heaviest


def warn_of_missing_lists(n_missing: int, n_buyers: int, names: Iterable[str]) -> None:
    """Warn if one table has lists that the other lacks.

    Args:
        n_missing: number of users who bought something and have a list in one of them only.
        n_buyers: number of users who bought something.
        names: of the two tables.
    """
    if n_missing:
        warn(
            f"{n_missing} of {n_buyers} users who bought something have a list in only one of "
            f"{' and '.join(names)}, and count as 0 in the other; compare lists of the same users"
        )


def code_tables(
    lists: Mapping[str, Any],
    truth: Any,
    k: int,
    weight: str | None,
    history: Any | None,
    may_be_empty: bool = False,
    is_weighted: bool | None = None,
) -> CodedTables:
    """Return the tables with common codes.

    Args:
        lists: tables of lists, by name.
        truth: purchases.
        k: slots.
        weight: column of `truth` that purchases count by; None: all alike.
        history: earlier sales; or None.
        may_be_empty: whether tables may have no rows.
        is_weighted: whether the weights of purchases differ; None to look.
    """
    require_k(k)
    tables = [_read_lists(lists[name], name, may_be_empty) for name in lists]
    bought, weights = _read_truth(truth, weight, may_be_empty)
    units, (*list_units, bought_units) = encode_units(*tables, bought)
    past = None if history is None else read_frame(history, "history", ITEM, optional=(COUNT,))
    others = [bought] if past is None else [bought, past]
    item_ids, codes = encode_ids([table.ids(ITEM) for table in (*tables, *others)])
    bought_items = codes[len(tables)]
    sets = group_sets(bought_units, bought_items, len(units))
    event_weights = None
    if weights is not None and is_weighted is None:
        is_weighted = bool(np.any(weights != weights[0]))
    if weights is not None and is_weighted:
        event_weights = weigh_purchases(sets, largest_weights(bought_units, bought_items, weights))
    ranked = {
        table.name: _rank(table, own, items, len(units), k, len(item_ids))
        for table, own, items in zip(tables, list_units, codes, strict=False)
    }
    return CodedTables(
        k, units, item_ids, dict(zip(lists, list_units, strict=True)), ranked, bought_units,
        sets, event_weights, None if past is None else count_sales(past, codes[-1], len(item_ids)),
    )  # fmt: skip


def _read_lists(frame: Any, name: str, may_be_empty: bool) -> Table:
    top = read_frame(
        frame, name, USER, ITEM, optional=(RANK, SCORE, WINDOW), may_be_empty=may_be_empty
    )
    if not top.has(RANK):
        require_columns(name, top.columns.column_names, [SCORE], top.own)
    return top


def _read_truth(truth: Any, weight: str | None, may_be_empty: bool) -> tuple[Table, Floats | None]:
    """Return the purchases, and their weights if they count by a column."""
    needed = dict.fromkeys((USER, ITEM) if weight is None else (USER, ITEM, weight))
    table = read_frame(truth, "truth", *needed, optional=(WINDOW,), may_be_empty=may_be_empty)
    if weight is None or not len(table):
        return table, None if weight is None else np.empty(0)
    return read_event_weights(table, weight)


def _rank(table: Table, units: Codes, items: Codes, n_units: int, k: int, n_items: int) -> Lists:
    """Return the first k of each unit, best first."""
    height = -read_scores(table, RANK)[0] if table.has(RANK) else read_scores(table, SCORE)[0]
    return rank_lists(group_scored(units, items, height, n_units), k, np.zeros(n_items))


def count_sales(history: Table, items: Codes, n_items: int) -> Floats:
    """Return the sales of each item."""
    counts = None
    if history.has(COUNT):
        counts, lowest = read_scores(history, COUNT)
        if lowest < 0:
            raise DataError(
                f"column '{COUNT}' of history has {lowest:g}: counts must be at least 0; drop "
                f"those rows"
            )
    return np.bincount(items, counts, minlength=n_items).astype(np.float64)
