"""The tables of a fit: read, checked against each other, and coded."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Codes, Floats, Ints, Lists, Sets
from trimtab.errors import DataError, SettingError
from trimtab.learn.history import Histories
from trimtab.learn.input_checks import check_overlap
from trimtab.learn.sales_log import SalesLog, count_histories
from trimtab.learn.weighted_events import (
    ALL_ALIKE,
    WeightedEvents,
    read_weighted,
    weigh_events,
)
from trimtab.metrics.event_weights import gain_factors
from trimtab.models import ItemBias
from trimtab.tables.columns import plain_type
from trimtab.tables.columns import CATEGORY, COUNT, ITEM, SCORE, TIMESTAMP, USER, WEIGHT, WINDOW
from trimtab.tables.times import is_epoch_type, parse_epochs
from trimtab.tables.frames import Table
from trimtab.tables.lists import Units, code_lists, encode_units, group_sets, longest_list, read_weights, warn_if_short
from trimtab.tables.times import is_epoch_type, parse_epochs, require_calendar
from trimtab.tables.vocabulary import as_id_column, encode_ids, take_ids


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
        timed = (USER, TIMESTAMP, COUNT, WEIGHT)
        return FitTables(
            read_frame(recs, "recs", USER, ITEM, SCORE, optional=(WINDOW,)),
            read_frame(recent, "recent", USER, ITEM, optional=(WINDOW, TIMESTAMP, WEIGHT)),
            None if history is None else read_frame(history, "history", ITEM, optional=timed),
            None if items is None else read_frame(items, "items", ITEM, CATEGORY),
        )


class UnitGains(NamedTuple):
    """How much units and their hits count, by the weights of users and of events."""

    weights: Floats  # of units in the mean of the metric
    gains: Floats  # by unit: what a hit of relevance 1 counts as, over the value of a hit
    relevance: Floats | None  # of purchases; 1 each if None


@dataclass(frozen=True)
class FitInputs:
    """The tables of a fit as arrays; item codes are shared by all tables."""

    units: Units
    item_ids: Any
    lists: Lists
    bought: Sets
    weights: Floats | None  # of users
    window: dict[str, Any]
    histories: Histories
    categories: Ints | None  # of items; -1 for unknown
    log: SalesLog | None = None  # what the histories count
    log_users: Codes | None = None  # of units, coded as in the log
    weighted: WeightedEvents = ALL_ALIKE

    @property
    def n_items(self) -> int:
        """Number of item codes."""
        return len(self.item_ids)

    @property
    def windows(self) -> Codes:
        """The window of each unit; all 0 if there is only one."""
        codes = self.units.window_codes
        return np.zeros(len(self.units), np.int32) if codes is None else codes

    def unit_gains(self, metric: str, k: int) -> UnitGains:
        """How much units and their hits count in a metric."""
        weights = np.ones(len(self.units)) if self.weights is None else self.weights
        if self.weighted.purchases is None:
            return UnitGains(weights, weights, None)
        relevance, heaviest = self.weighted.purchases
        weights = weights * heaviest
        factors = gain_factors(self.bought, relevance, metric, k)
        return UnitGains(weights, weights * factors, relevance)


def encode_inputs(
    tables: FitTables, k: int, unlisted: str, weights: Any, duplicates: str
) -> FitInputs:
    """Check the tables against each other and code them.

    Args:
        tables: as read.
        k: slots per user.
        unlisted: "never" or "zero".
        weights: of users: user_id, weight; or None.
        duplicates: what to do with repeated rows of `recs`.
    """
    recs, (recent, of_recent) = tables.recs, read_weighted(tables.recent)
    history, of_history = tables.history, None
    if history is not None:
        history, of_history = read_weighted(history)
    units, (list_units, sale_units) = encode_units(recs, recent)
    others = [table for table in (history, tables.items) if table is not None]
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
    weighted = weigh_events(bought, sale_units, sale_items, of_recent, of_history)
    histories, log, log_users = Histories(), None, None
    if history is not None:
        users, log_users = _code_users(history, units)
        log = SalesLog.read(history, codes[0], users, len(item_ids), weighted.history)
        windows = units.window_codes
        of_sales = np.zeros(len(sale_units), np.int32) if windows is None else windows[sale_units]
        n_windows = 1 if windows is None else int(windows.max(initial=0)) + 1
        histories = count_histories(
            log, history, recent, sale_items,
            None if log_users is None else log_users[sale_units], of_sales, n_windows,
            weighted.recent,
        )  # fmt: skip
    categories = None
    if tables.items is not None:
        categories = read_categories(tables.items, codes[-1], len(item_ids))
    return FitInputs(
        units, item_ids, lists, bought, by_unit, _window(recent), histories, categories, log,
        log_users, weighted,
    )  # fmt: skip


def _code_users(history: Table, units: Units) -> tuple[Codes | None, Codes | None]:
    """Users of the history and of the units, in one coding; None if they are not known."""
    if not history.has(USER) or history.has(COUNT):
        return None, None
    ours = as_id_column("recs", USER, units.users)
    _, (known, of_history) = encode_ids([ours, history.ids(USER)])
    return of_history, known[units.user_codes]


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


def read_categories(table: Table, codes: Codes, n_items: int) -> Ints:
    """The category of each item as a number; -1 for unknown."""
    counts = np.bincount(codes, minlength=n_items)
    if counts.max(initial=0) > 1:
        repeated = table.columns[ITEM][int(np.flatnonzero(codes == counts.argmax())[0])]
        raise DataError(
            f"column '{table.own_name(ITEM)}' of items has {repeated} more than once; give each "
            f"item one category"
        )
    labels = pc.dictionary_encode(_plain_labels(table.columns[CATEGORY], table.own_name(CATEGORY)))
    if isinstance(labels, pa.ChunkedArray):
        labels = labels.combine_chunks()
    # Numbered by name, so that the order of rows does not matter.
    order = pc.rank(labels.dictionary).to_numpy().astype(np.int64) - 1
    found = labels.indices.cast(pa.int64()).fill_null(len(order)).to_numpy(zero_copy_only=False)
    categories = np.full(n_items, -1, np.int64)
    categories[codes] = np.append(order, -1)[found]
    return categories


def _plain_labels(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
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
            f"column '{name}' of items has type {column.type}: it must be text or integers; "
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


class TimeBounds:
    """The first and last timestamp of purchases, of one or several tables of them."""

    def __init__(self) -> None:
        self._first: Any = None
        self._last: Any = None

    def add(self, recent: Table) -> None:
        """Add a table of purchases, which may lack timestamps."""
        if not recent.has(TIMESTAMP):
            return
        times = recent.columns[TIMESTAMP]
        if is_epoch_type(times.type):
            with contextlib.suppress(DataError):  # other numbers matter only where times are needed
                times = parse_epochs(times, recent.name, TIMESTAMP)
        require_calendar(times, recent.name, recent.own_name(TIMESTAMP))
        bounds = pc.min_max(times).as_py()
        if bounds["min"] is not None:
            first, last = bounds["min"], bounds["max"]
            self._first = first if self._first is None else min(first, self._first)
            self._last = last if self._last is None else max(last, self._last)

    def describe(self, n_rows: int) -> dict[str, Any]:
        """The number of purchases, and the first and last timestamp if known."""
        known = self._first is not None
        first, last = (str(self._first), str(self._last)) if known else (None, None)
        return {"rows": n_rows, "first": first, "last": last}


def _window(recent: Table) -> dict[str, Any]:
    bounds = TimeBounds()
    bounds.add(recent)
    return bounds.describe(len(recent))
