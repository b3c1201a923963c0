"""The tables of a fit, read, checked and coded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Codes, Floats, Ints, Lists, Sets
from trimtab.bias.item_bias import ItemBias
from trimtab.errors import DataError, SettingError, warn
from trimtab.learn.history import History, count_history
from trimtab.tables.columns import CATEGORY, COUNT, ITEM, SCORE, TIMESTAMP, USER, WINDOW
from trimtab.tables.files import plain_type
from trimtab.tables.frames import (
    Table,
    Units,
    encode_units,
    group_sets,
    known_ids,
    read_frame,
    read_scores,
    read_weights,
    take_ids,
)
from trimtab.tables.ids import encode_ids
from trimtab.tables.rec_lists import code_lists, warn_if_short
from trimtab.tables.timestamps import DAY, as_utc, has_zone, microseconds

_LEAST_OVERLAP = 0.05  # of purchases by listed users, or of listed items; below it, `fit` warns


@dataclass(frozen=True)
class FitTables:
    """The tables of a fit; refused before any kernel is loaded when a column is missing."""

    recs: Table
    recent: Table
    history: Table | None = None
    items: Table | None = None

    @staticmethod
    def read(recs: Any, recent: Any, history: Any = None, items: Any = None) -> FitTables:
        """Read what was given."""
        timed = (USER, TIMESTAMP, COUNT)
        return FitTables(
            read_frame(recs, "recs", USER, ITEM, SCORE, optional=(WINDOW,)),
            read_frame(recent, "recent", USER, ITEM, optional=(WINDOW, TIMESTAMP)),
            None if history is None else read_frame(history, "history", ITEM, optional=timed),
            None if items is None else read_frame(items, "items", ITEM, CATEGORY),
        )


@dataclass(frozen=True)
class FitInputs:
    """The tables of a fit as arrays; item codes go over all tables."""

    units: Units
    item_ids: Any
    lists: Lists
    bought: Sets
    weights: Floats | None
    window: dict[str, Any]
    history: tuple[History, ...]  # of each window, or empty
    categories: Ints | None  # of items; -1 where not known

    @property
    def n_items(self) -> int:
        """Number of item codes."""
        return len(self.item_ids)

    @property
    def data(self) -> tuple[Lists, Sets, int]:
        """What coordinate ascent takes."""
        return self.lists, self.bought, self.n_items

    @property
    def windows(self) -> Codes:
        """The window of each unit; 0 where there is but one."""
        codes = self.units.window_codes
        return np.zeros(len(self.units), np.int32) if codes is None else codes


def encode_inputs(
    tables: FitTables, k: int, unlisted: str, weights: Any, duplicates: str
) -> FitInputs:
    """Check the tables against each other and code them.

    Args:
        tables: as read.
        k: places per user.
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
    unit_name = USER if units.windows is None else f"({USER}, {WINDOW})"
    _check_overlap(unit_name, list_units, sale_units, len(units), units.label)
    _check_overlap(
        ITEM, list_items, sale_items, len(item_ids),
        lambda item: f"{ITEM} {take_ids(item_ids, np.array([item]))[0]}",
    )  # fmt: skip
    lists = code_lists(recs, list_units, list_items, units, item_ids, unlisted, duplicates)
    warn_if_short(lists, k)
    bought = group_sets(sale_units, sale_items, len(units))
    judged = np.diff(bought.indptr) > 0
    by_unit = None if weights is None else read_weights(weights, units, judged, "recs")
    history: tuple[History, ...] = ()
    if tables.history is not None:
        codes_of_units = units.window_codes
        windows = np.zeros(1, np.int32) if codes_of_units is None else codes_of_units
        of_sales = np.zeros(len(sale_units), np.int32)
        if codes_of_units is not None:
            of_sales = codes_of_units[sale_units]
        n_windows = int(windows.max(initial=0)) + 1
        history = _count_history(
            tables.history, codes[0], recent, of_sales, n_windows, len(item_ids)
        )
    categories = None
    if tables.items is not None:
        categories = read_categories(tables.items, codes[-1], len(item_ids))
    return FitInputs(units, item_ids, lists, bought, by_unit, _window(recent), history, categories)


def _count_history(
    history: Table, items: Codes, recent: Table, windows: Codes, n_windows: int, n_items: int
) -> tuple[History, ...]:
    """Long-run sales before each window; what was sold in a window is left out by its time."""
    if not (history.has(TIMESTAMP) and recent.has(TIMESTAMP)):
        if n_windows > 1:
            warn(
                f"recent has {n_windows} windows, but history or recent has no '{TIMESTAMP}': "
                f"what earlier windows learn of the long run may hold their own sales; give both "
                f"their times"
            )
        times = _instants(history) if history.has(TIMESTAMP) and not history.has(COUNT) else None
        return (_count_before(history, items, times, None, n_items),) * n_windows
    _check_same_clock(history, recent)
    times, sold_at = _instants(history), _instants(recent)
    by_day = not np.any(times % DAY)  # dates: what was sold on the first day is of the window
    found = []
    for window in range(n_windows):
        own = sold_at[windows == window]
        start = int(own.min()) if len(own) else int(sold_at.min())
        start = start // DAY * DAY if by_day else start
        found.append(_count_before(history, items, times, start, n_items))
    return tuple(found)


def _count_before(
    history: Table, items: Codes, times: Ints | None, start: int | None, n_items: int
) -> History:
    """Counts of the rows before an instant; of all rows without one."""
    if not history.has(COUNT):
        users = encode_ids([history.ids(USER)])[1][0] if history.has(USER) else None
        return count_history(items, users, times, start, n_items)
    sold, lowest = read_scores(history, COUNT)
    if lowest < 0:
        raise DataError(
            f"column '{COUNT}' of history has {lowest:g}: counts must be at least 0; drop such rows"
        )
    if times is not None and start is not None:
        items, sold = items[times < start], sold[times < start]
    return History(np.bincount(items, sold, minlength=n_items).astype(np.float64))


def _instants(table: Table) -> Ints:
    return microseconds(as_utc(table.columns[TIMESTAMP], "UTC", table.name)[0])


def _check_same_clock(history: Table, recent: Table) -> None:
    """Refuse instants beside local times: their order is not known."""
    zoned = [has_zone(table.columns[TIMESTAMP], table.name) for table in (history, recent)]
    if zoned[0] != zoned[1]:
        have, lack = ("history", "recent") if zoned[0] else ("recent", "history")
        raise DataError(
            f"column '{TIMESTAMP}' has a time zone in {have} but none in {lack}: give it to both "
            f"or to neither"
        )


def read_categories(table: Table, codes: Codes, n_items: int) -> Ints:
    """The category of each item; one for all tables."""
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
    """Categories as text or numbers; refuses what is neither."""
    kind = plain_type(column.type)
    if pa.types.is_null(kind) or pa.types.is_string(kind) or pa.types.is_string_view(kind):
        kind = pa.large_string()
    known = (
        pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_floating,
        pa.types.is_date,
    )  # fmt: skip
    if not any(is_kind(kind) for is_kind in known):
        raise DataError(
            f"column '{CATEGORY}' of items holds {column.type}: it must be text or whole numbers; "
            f"cast the column"
        )
    return column.cast(kind)


def _check_overlap(
    name: str, listed: Codes, bought: Codes, n: int, label: Callable[[int], str]
) -> None:
    """Refuse purchases of nothing that is listed; warn of few that are."""
    in_recs = np.zeros(n, bool)
    in_recs[listed] = True
    common = int(np.count_nonzero(in_recs[bought]))
    if common == 0:
        raise DataError(
            f"no {name} of recent is in recs (recent has {label(bought[0])}, recs "
            f"{label(listed[0])}): nothing can be learned; check that both use the same ids"
        )
    if common < _LEAST_OVERLAP * len(bought):
        warn(
            f"only {common} of {len(bought)} rows of recent have {name} that is in recs: little "
            f"can be learned; check that both tables are of the same log"
        )


def start_biases(start: ItemBias | None, item_ids: Any, scale: str) -> Floats | None:
    """Biases to start from, by item code."""
    if start is None:
        return None
    if start.scale != scale:
        raise SettingError(
            f"start has scale='{start.scale}', the learner scale='{scale}': they must be "
            f"the same; start without it"
        )
    ours = known_ids("recs", ITEM, item_ids)
    theirs = known_ids("start", ITEM, start.item_ids)
    ids, (our_codes, their_codes) = encode_ids([ours, theirs])
    biases = np.zeros(len(ids))
    biases[their_codes] = start.bias
    return biases[our_codes]


def _window(sales: Table) -> dict[str, Any]:
    """What is known of when the purchases were made."""
    first = last = None
    if sales.has(TIMESTAMP):
        bounds = pc.min_max(sales.columns[TIMESTAMP]).as_py()
        first, last = str(bounds["min"]), str(bounds["max"])
    return {"rows": len(sales), "first": first, "last": last}
