"""The tables of a fit: read, checked against each other, and coded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Codes, Floats, Ints, Lists, Sets
from trimtab.bias import ItemBias
from trimtab.errors import DataError, SettingError
from trimtab.learn.history import Histories, History, count_history, days_in
from trimtab.learn.input_checks import (
    check_overlap,
    check_same_clock,
    require_counts,
    warn_of_untimed_windows,
)
from trimtab.tables.columns import CATEGORY, COUNT, ITEM, SCORE, TIMESTAMP, USER, WINDOW
from trimtab.tables.files import plain_type
from trimtab.tables.frames import (
    Table,
    Units,
    as_id_column,
    encode_units,
    group_sets,
    read_frame,
    read_scores,
    read_weights,
    take_ids,
)
from trimtab.tables.ids import encode_ids
from trimtab.tables.rec_lists import code_lists, longest_list, warn_if_short
from trimtab.tables.timestamps import DAY, as_utc, has_zone, microseconds


@dataclass(frozen=True)
class FitTables:
    """The tables of a fit, with the columns that they must have."""

    recs: Table
    recent: Table
    history: Table | None = None
    items: Table | None = None

    @staticmethod
    def read(recs: Any, recent: Any, history: Any = None, items: Any = None) -> FitTables:
        """Read the tables; a missing column is refused before any kernel is loaded."""
        timed = (USER, TIMESTAMP, COUNT)
        return FitTables(
            read_frame(recs, "recs", USER, ITEM, SCORE, optional=(WINDOW,)),
            read_frame(recent, "recent", USER, ITEM, optional=(WINDOW, TIMESTAMP)),
            None if history is None else read_frame(history, "history", ITEM, optional=timed),
            None if items is None else read_frame(items, "items", ITEM, CATEGORY),
        )


@dataclass(frozen=True)
class FitInputs:
    """The tables of a fit as arrays; item codes are shared by all tables."""

    units: Units
    item_ids: Any
    lists: Lists
    bought: Sets
    weights: Floats | None
    window: dict[str, Any]
    histories: Histories
    categories: Ints | None  # of items; -1 for unknown

    @property
    def n_items(self) -> int:
        """Number of item codes."""
        return len(self.item_ids)

    @property
    def windows(self) -> Codes:
        """The window of each unit; all 0 if there is only one."""
        codes = self.units.window_codes
        return np.zeros(len(self.units), np.int32) if codes is None else codes


def encode_inputs(
    tables: FitTables, k: int, unlisted: str, weights: Any, duplicates: str
) -> FitInputs:
    """Check the tables against each other and code them.

    Args:
        tables: as read.
        k: slots per user.
        unlisted: "never" or "zero".
        weights: user_id, weight; or None.
        duplicates: what to do with repeated rows of `recs`.
    """
    recs, recent = tables.recs, tables.recent
    units, (list_units, sale_units) = encode_units(recs, recent)
    others = [table for table in (tables.history, tables.items) if table is not None]
    item_ids, (list_items, sale_items, *codes) = encode_ids(
        [table.ids(ITEM) for table in (recs, recent, *others)]
    )
    _check_units(units, list_units, sale_units)
    _check_items(item_ids, list_items, sale_items)
    lists = code_lists(recs, list_units, list_items, units, item_ids, unlisted, duplicates)
    warn_if_short(longest_list(lists), k)
    bought = group_sets(sale_units, sale_items, len(units))
    buys = np.diff(bought.indptr) > 0
    by_unit = None if weights is None else read_weights(weights, units, buys, "recs")
    histories = Histories()
    if tables.history is not None:
        windows = units.window_codes
        of_sales = np.zeros(len(sale_units), np.int32) if windows is None else windows[sale_units]
        n_windows = 1 if windows is None else int(windows.max(initial=0)) + 1
        histories = _count_histories(
            tables.history, codes[0], recent, sale_items, of_sales, n_windows, len(item_ids)
        )
    categories = None
    if tables.items is not None:
        categories = read_categories(tables.items, codes[-1], len(item_ids))
    return FitInputs(
        units, item_ids, lists, bought, by_unit, _window(recent), histories, categories
    )


def _check_units(units: Units, listed: Codes, bought: Codes) -> None:
    name = USER if units.windows is None else f"({USER}, {WINDOW})"
    example = f" (recent has {units.label(bought[0])}, recs has {units.label(listed[0])})"
    check_overlap(name, _count_matching(listed, bought, len(units)), len(bought), example)


def _check_items(item_ids: Any, listed: Codes, bought: Codes) -> None:
    first = take_ids(item_ids, np.array([bought[0], listed[0]]))
    example = f" (recent has {ITEM} {first[0]}, recs has {ITEM} {first[1]})"
    check_overlap(ITEM, _count_matching(listed, bought, len(item_ids)), len(bought), example)


def _count_matching(listed: Codes, bought: Codes, n_codes: int) -> int:
    in_recs = np.zeros(n_codes, bool)
    in_recs[listed] = True
    return int(np.count_nonzero(in_recs[bought]))


def _count_histories(
    history: Table, items: Codes, recent: Table, sold: Codes, windows: Codes, n_windows: int,
    n_items: int,
) -> Histories:  # fmt: skip
    """Sales before each window and before now."""
    if not (history.has(TIMESTAMP) and recent.has(TIMESTAMP)):
        warn_of_untimed_windows(n_windows)
        return Histories((_Sales(history, items, n_items).before(None),) * n_windows)
    check_same_clock(
        *(has_zone(table.columns[TIMESTAMP], table.name) for table in (history, recent))
    )
    sold_at = _instants(recent)
    starts = []
    for window in range(n_windows):
        own = sold_at[windows == window]
        starts.append(int(own.min() if len(own) else sold_at.min()))
    newest, last = max(starts), int(sold_at.max())
    days = days_in(newest, last)
    known = _Sales(history, items, n_items, days)
    if not known.are_events:
        return Histories(tuple(known.before(start) for start in starts))
    known.add(recent, sold, newest)
    before = tuple(known.before(start) for start in starts)
    return Histories(before, known.until(last), days)


class _Sales:
    """Sales with ids and timestamps coded once, to be counted before any instant."""

    def __init__(self, history: Table, items: Codes, n_items: int, window_days: int = 1) -> None:
        self._history, self._items, self._n_items = history, items, n_items
        self._window_days = window_days
        self._sold = self._users = None
        self.are_events = not history.has(COUNT)
        if not self.are_events:
            self._sold, lowest = read_scores(history, COUNT)
            require_counts(lowest)
        elif history.has(USER):
            self._users = encode_ids([history.ids(USER)])[1][0]
        self._times = _instants(history) if history.has(TIMESTAMP) else None
        self._by_day = self._times is not None and not np.any(self._times % DAY)

    def add(self, recent: Table, items: Codes, newest: int) -> None:
        """Add the purchases of the windows; a user's purchase that is known already counts once.

        Args:
            recent: the purchases.
            items: of the purchases.
            newest: start of the newest window; the history is known up to there.
        """
        assert self._times is not None
        times = _instants(recent)
        early, new = self._times < self._start(newest), np.ones(len(times), bool)
        if self._users is None:
            new = times >= newest  # without users, earlier purchases would count twice
        else:
            _, (before, after) = encode_ids([self._history.ids(USER), recent.ids(USER)])
            self._users = np.concatenate([before[early], after])
        self._items = np.concatenate([self._items[early], items[new]])
        self._times = np.concatenate([self._times[early], times[new]])

    def before(self, start: int | None) -> History:
        """Counts of the sales before an instant; of all without one."""
        if start is not None:
            start = self._start(start)
        if self._sold is None:
            return count_history(
                self._items, self._users, self._times, start, self._n_items, self._window_days
            )
        items, sold = self._items, self._sold
        if self._times is not None and start is not None:
            early = self._times < start
            items, sold = items[early], sold[early]
        return History(np.bincount(items, sold, minlength=self._n_items).astype(np.float64))

    def until(self, last: int) -> History:
        """Counts of the sales up to and including an instant, or the whole of its day."""
        return self.before(last + (DAY if self._by_day else 1))

    def _start(self, instant: int) -> int:
        """Where a window starts; with dates, sales on its first day belong to it."""
        return instant // DAY * DAY if self._by_day else instant


def _instants(table: Table) -> Ints:
    return microseconds(as_utc(table.columns[TIMESTAMP], "UTC", table.name)[0])


def read_categories(table: Table, codes: Codes, n_items: int) -> Ints:
    """The category of each item as a number; -1 for unknown."""
    counts = np.bincount(codes, minlength=n_items)
    if counts.max(initial=0) > 1:
        repeated = table.columns[ITEM][int(np.flatnonzero(codes == counts.argmax())[0])]
        raise DataError(
            f"column '{ITEM}' of items has {repeated} more than once; give each item one category"
        )
    labels = pc.dictionary_encode(_plain_labels(table.columns[CATEGORY]))
    if isinstance(labels, pa.ChunkedArray):
        labels = labels.combine_chunks()
    # Numbered by name, so that the order of rows does not matter.
    order = pc.rank(labels.dictionary).to_numpy().astype(np.int64) - 1
    found = labels.indices.cast(pa.int64()).fill_null(len(order)).to_numpy(zero_copy_only=False)
    categories = np.full(n_items, -1, np.int64)
    categories[codes] = np.append(order, -1)[found]
    return categories


def _plain_labels(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Categories as text or numbers; refuses other types."""
    kind = plain_type(column.type)
    if pa.types.is_null(kind) or pa.types.is_string(kind) or pa.types.is_string_view(kind):
        kind = pa.large_string()
    known = (
        pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_floating,
        pa.types.is_date,
    )  # fmt: skip
    if not any(is_kind(kind) for is_kind in known):
        raise DataError(
            f"column '{CATEGORY}' of items has type {column.type}: it must be text or integers; "
            f"cast the column"
        )
    return column.cast(kind)


def align_start(start: ItemBias | None, item_ids: Any, scale: str) -> Floats | None:
    """The biases to start from, by item code."""
    if start is None:
        return None
    if start.scale != scale:
        raise SettingError(
            f"start has scale='{start.scale}', but the learner has scale='{scale}': they must be "
            f"equal; leave out start"
        )
    ours = as_id_column("recs", ITEM, item_ids)
    theirs = as_id_column("start", ITEM, start.item_ids)
    ids, (our_codes, their_codes) = encode_ids([ours, theirs])
    biases = np.zeros(len(ids))
    biases[their_codes] = start.bias
    return biases[our_codes]


def _window(recent: Table) -> dict[str, Any]:
    """The number of purchases, and the first and last timestamp if known."""
    first = last = None
    if recent.has(TIMESTAMP):
        bounds = pc.min_max(recent.columns[TIMESTAMP]).as_py()
        first, last = str(bounds["min"]), str(bounds["max"])
    return {"rows": len(recent), "first": first, "last": last}
