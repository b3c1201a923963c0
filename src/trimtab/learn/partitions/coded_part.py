"""The tables of some users, coded: their lists and purchases, and what they bought before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Ints
from trimtab.learn.partitions.partition import Partition
from trimtab.learn.sales_log import read_instants
from trimtab.tables.columns import ITEM, TIMESTAMP, USER
from trimtab.tables.frames import Table
from trimtab.tables.lists import Units, code_lists, encode_units, group_sets, read_weights
from trimtab.tables.vocabulary import as_id_column, encode_ids


class PartLog(NamedTuple):
    """Events of some users: of the history, and the purchases of the windows.

    Users are coded among those of the log and of the units; times are in microseconds.
    """

    users: Codes
    items: Codes
    times: Ints
    sale_users: Codes
    sale_items: Codes
    sale_times: Ints
    sale_windows: Codes
    of_users: Codes  # of the partition's users


@dataclass(frozen=True)
class PartTables:
    """The rows of some users in all tables."""

    recs: Table
    recent: Table
    history: Table | None
    weights: Table | None


class CodedPart(NamedTuple):
    """A partition whose codes are of its own users, items and windows."""

    partition: Partition
    n_users: int
    item_ids: Any
    windows: Any | None  # labels
    log: PartLog | None


def code_part(tables: PartTables, unlisted: str, duplicates: str) -> CodedPart:
    """Code the rows of some users, as a fit in memory codes those of all.

    Args:
        tables: rows of the users.
        unlisted: "never" or "zero".
        duplicates: what to do with repeated rows of `recs`.
    """
    recs, recent, history = tables.recs, tables.recent, tables.history
    units, (list_units, sale_units) = encode_units(recs, recent)
    others = [history] if history is not None else []
    item_ids, (list_items, sale_items, *codes) = encode_ids(
        [table.ids(ITEM) for table in (recs, recent, *others)]
    )
    lists = code_lists(recs, list_units, list_items, units, item_ids, unlisted, duplicates)
    bought = group_sets(sale_units, sale_items, len(units))
    weights = np.ones(len(units))
    if tables.weights is not None and len(tables.weights):
        weights = read_weights(tables.weights.columns, units, np.zeros(0, bool), "recs")
    windows = units.window_codes
    if windows is None:
        windows = np.zeros(len(units), np.int32)
    partition = Partition(
        lists, bought, weights, units.user_codes.astype(np.int64), windows,
        np.arange(len(units), dtype=np.int64), np.empty(0, bool),
    )  # fmt: skip
    log = None
    if history is not None:
        log = _code_log(history, recent, units, codes[0], sale_items, sale_units, windows)
    return CodedPart(partition, len(units.users), item_ids, units.windows, log)


def _code_log(
    history: Table, recent: Table, units: Units, items: Codes, sale_items: Codes,
    sale_units: Codes, windows: Codes,
) -> PartLog:  # fmt: skip
    ours = as_id_column("recs", USER, units.users)
    _, (known, users) = encode_ids([ours, history.ids(USER)])
    return PartLog(
        users, items, _times(history), known[units.user_codes[sale_units]], sale_items,
        _times(recent), windows[sale_units], known,
    )  # fmt: skip


def _times(table: Table) -> Ints:
    """Timestamps in microseconds; none without the column."""
    if not table.has(TIMESTAMP):
        return np.empty(0, np.int64)
    return np.array(read_instants(table)) if len(table) else np.empty(0, np.int64)
