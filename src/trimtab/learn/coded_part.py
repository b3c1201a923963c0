"""The tables of some users, read, checked and coded: the first step of every fit.

Codes are of these users' own items and windows; `Survey` says what all parts have together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from operator import add, and_
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Codes, Floats, Ints, Lists, Sets
from trimtab.checks import DUPLICATES, require_choice
from trimtab.errors import DataError
from trimtab.learn.sales import Events
from trimtab.metrics.per_user import drop_weightless, largest_weights
from trimtab.parts.packing import packable
from trimtab.tables.columns import (
    CATEGORY,
    COUNT,
    ITEM,
    SCORE,
    TIMESTAMP,
    USER,
    WEIGHT,
    WINDOW,
    Table,
    own_names,
    read_frame,
)
from trimtab.tables.lists import (
    Units,
    code_lists,
    encode_units,
    group_sets,
    read_weights,
    require_windows_in_all,
)
from trimtab.tables.times import (
    DAY,
    as_utc,
    has_zone,
    is_epoch_type,
    microseconds,
    parse_epochs,
)
from trimtab.tables.vocabulary import Vocabulary, plain_type

# The tables of a fit: columns that they must have, and columns that are read if they are there.
COLUMNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "recs": ((USER, ITEM, SCORE), (WINDOW,)),
    "recent": ((USER, ITEM), (WINDOW, TIMESTAMP, WEIGHT)),
    "history": ((ITEM,), (USER, TIMESTAMP, COUNT, WEIGHT)),
    "weights": ((USER, WEIGHT), ()),
    "items": ((ITEM, CATEGORY), ()),
}


def is_by_user(name: str, columns: Collection[str]) -> bool:
    """Whether the rows of a table with these columns belong to users.

    Those of a history do unless it has counts of items, or events without users.
    """
    return name != "items" and USER in columns and COUNT not in columns


def read_tables(**given: Any) -> dict[str, Table]:
    """Read the tables of a fit that are given; refuse those that lack a column or have no rows."""
    return {
        name: read_frame(frame, name, *COLUMNS[name][0], optional=COLUMNS[name][1])
        for name, frame in given.items()
        if frame is not None or name in ("recs", "recent")
    }


@packable
class Reading(NamedTuple):
    """How the tables of a part are read."""

    unlisted: str  # "never" or "zero"
    duplicates: str  # what to do with repeated rows of `recs`
    timed: bool  # whether the times of purchases are needed: they are known in the history, too
    labels: dict[str, str]  # windows of tables of lists that have one each; empty: as in `recs`


SharedTables = dict[str, Table]  # those whose rows belong to no user; they are held in memory


def sort_tables(
    learner: Any, columns: Mapping[str, Collection[str]], read: Callable[[str], Table],
    duplicates: str, labels: dict[str, str] | None = None,
) -> tuple[list[str], SharedTables, Reading]:  # fmt: skip
    """Return the tables whose rows belong to users, the others in memory, and how all are read.

    Args:
        learner: a `BiasLearner` or a `RerankLearner`.
        columns: of the tables that are given, by name.
        read: reads a table into memory.
        duplicates: what to do with repeated rows of `recs`.
        labels: windows of the tables of lists, if each has its own.
    """
    columns = {name: columns[name] for name in learner.choose_tables(columns)}
    by_user = [name for name in columns if is_by_user(name, columns[name])]
    others = {name: read(name) for name in columns if name not in by_user}
    require_choice("duplicates", duplicates, DUPLICATES)
    if not labels:
        require_windows_in_all({name: columns[name] for name in ("recs", "recent")})
    timed = all(TIMESTAMP in columns.get(name, ()) for name in ("recent", "history"))
    return by_user, others, Reading(learner.biases.unlisted, duplicates, timed, labels or {})


@packable
class Survey(NamedTuple):
    """What parts must know of each other before anything is counted; surveys of parts add up."""

    item_ids: Any  # ascending: an int64 array, or Arrow strings
    windows: Any | None  # labels, ascending
    n_units: int
    n_rows: dict[str, int]  # by table
    heaviest: float  # weight of a unit
    heaviest_event: dict[str, float]  # weight, by table of events
    first: tuple[int, str] | None  # purchase: in microseconds, and as text
    last: tuple[int, str] | None
    starts: dict[Any, int]  # first purchase by window label, in microseconds
    last_sale: int | None  # in microseconds
    latest: int | None  # event of the history
    by_day: bool  # whether all times of the history are dates
    zoned: bool | None  # whether purchases have a time zone
    example: tuple[Any, Any] | None  # a purchase and a list, by user and item

    def __add__(self, other: Survey) -> Survey:  # type: ignore[override]
        joined: Survey = join_fields(_TOGETHER, self, other)
        return joined

    @property
    def labels(self) -> list[Any]:
        """The labels of windows, ascending; [None] without windows."""
        return [None] if self.windows is None else _plain(self.windows)


def join_fields(rules: Mapping[str, Callable[[Any, Any], Any]], one: Any, other: Any) -> Any:
    """Return two tuples of named fields as one; fields without a rule add up.

    What only one of them knows is taken as it is; of dictionaries, each entry is joined.
    """

    def join(rule: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
        if one is None or other is None:
            return other if one is None else one
        if isinstance(one, dict):
            return {n: join(rule, one.get(n), other.get(n)) for n in {**one, **other}}
        return rule(one, other)

    pairs = zip(one._fields, one, other, strict=True)
    return type(one)(*(join(rules.get(name, add), *pair) for name, *pair in pairs))


def _join_ids(column: str, *ids: Any) -> Any:
    own = [Vocabulary(values, "recs", column).column for values in ids if len(values)]
    return Vocabulary.encode(*own)[0].ids if own else ids[0]


# How each field of a survey adds up, where both parts know it; of a dictionary, each entry.
_TOGETHER: dict[str, Callable[[Any, Any], Any]] = {
    "item_ids": partial(_join_ids, ITEM), "windows": partial(_join_ids, WINDOW),
    "heaviest": max, "heaviest_event": max, "first": min,
    "last": max, "starts": min, "last_sale": max, "latest": max, "by_day": and_,
    "zoned": lambda one, _: one, "example": lambda one, _: one,
}  # fmt: skip


@packable
class CodedPart(NamedTuple):
    """The tables of some users as arrays, with codes of their own."""

    lists: Lists
    bought: Sets
    event_weights: Floats | None  # of purchases: the heaviest event of each
    weights: Floats  # of units, by user
    hashes: Any  # of units: of the user's id
    windows: Codes  # of units
    users: Codes  # of units: as in the events
    sales: Events  # rows of `recent`
    sale_windows: Codes  # of these rows
    history: Events | None  # rows of `history`
    survey: Survey


for _kind in (Lists, Sets):
    packable(_kind)


def code_part(part: Mapping[str, Any], reading: Reading) -> CodedPart:
    """Check and code the tables of some users."""
    tables = {name: _as_table(name, part[name]) for name in part}
    recs = _stack_lists(tables, reading.labels)
    recent, recent_weights = drop_weightless(tables["recent"])
    history, history_weights = None, None
    if "history" in tables:
        history, history_weights = drop_weightless(tables["history"])
    units, (list_units, sale_units) = encode_units(recs, recent)
    every = [table for table in (recs, recent, history) if table is not None]
    items, (list_items, sale_items, *codes) = Vocabulary.encode(*(t.ids(ITEM) for t in every))
    lists = code_lists(
        recs, list_units, list_items, units, items.ids, reading.unlisted, reading.duplicates
    )
    bought = group_sets(sale_units, sale_items, len(units))
    heaviest = None
    if recent_weights is not None:
        heaviest = largest_weights(sale_units, sale_items, recent_weights)
    users, log = units.user_codes, None
    if history is not None:
        known = Vocabulary(units.users, "recs", USER).column
        _, (ours, theirs) = Vocabulary.encode(known, history.ids(USER))
        users = ours[units.user_codes]
        times = read_times(history) if history.has(TIMESTAMP) else None
        log = Events(codes[0], theirs, times, history_weights)
    times = read_times(recent) if reading.timed else None
    sales = Events(sale_items, users[sale_units], times, recent_weights)
    windows = units.window_codes
    if windows is None:
        windows = np.zeros(len(units), np.int32)
    by_user = np.ones(len(units))
    if "weights" in tables and len(tables["weights"]):
        by_user = read_weights(tables["weights"].columns, units, np.zeros(0, bool), "recs")
    example = _example(units, items, (sale_units, sale_items), (list_units, list_items))
    survey = _survey(tables, reading, units, items, sales, windows[sale_units], log)
    survey = survey._replace(heaviest=float(by_user.max(initial=0.0)), example=example)
    hashes = Vocabulary(units.users, "recs", USER).hashes()[units.user_codes]
    return CodedPart(
        lists, bought, heaviest, by_user, hashes, windows, users, sales, windows[sale_units], log,
        survey,
    )  # fmt: skip


def survey_of(part: CodedPart) -> Survey:
    """Return the survey of a part."""
    return part.survey


def _as_table(name: str, rows: Any) -> Table:
    return rows if isinstance(rows, Table) else Table(name, rows, None, False, own_names(rows))


def _stack_lists(tables: dict[str, Table], labels: dict[str, str]) -> Table:
    """Return the lists of all windows; `labels` are the windows of tables that have one each."""
    if not labels:
        return tables["recs"]
    stacked = []
    for name, label in labels.items():
        rows = tables[name].columns
        kinds = [(field.name, plain_type(field.type)) for field in rows.schema]
        plain = rows.cast(pa.schema(kinds))
        stacked.append(plain.append_column(WINDOW, pa.repeat(pa.scalar(label), len(plain))))
    return replace(tables["recs"], columns=pa.concat_tables(stacked, promote_options="permissive"))


def read_times(table: Table) -> Ints:
    """Return the timestamps of a table in microseconds; those without a time zone count as UTC."""
    name = table.own_name(TIMESTAMP)
    if len(table) == 0:
        return np.empty(0, np.int64)
    return np.array(microseconds(as_utc(table.columns[TIMESTAMP], "UTC", table.name, name)[0]))


def _example(units: Units, items: Vocabulary, *rows: tuple[Codes, Codes]) -> Any:
    """Return the first purchase and the first list entry, by names of users and items."""
    if any(len(of_units) == 0 for of_units, _ in rows):
        return None
    return tuple(
        (units.label(int(of_units[0])), str(items.take(of_items[:1])[0]))
        for of_units, of_items in rows
    )


def _survey(
    tables: Mapping[str, Table], reading: Reading, units: Units, items: Vocabulary, sales: Events,
    sale_windows: Codes, log: Events | None,
) -> Survey:  # fmt: skip
    first, last = _time_bounds(tables["recent"])
    starts = {}
    if sales.times is not None and len(sales.times):
        labels = [None] if units.windows is None else _plain(units.windows)
        for window in np.unique(sale_windows):
            starts[labels[window]] = int(sales.times[sale_windows == window].min())
    times = None if log is None else log.times
    weights = {"recent": sales.weights, "history": None if log is None else log.weights}
    return Survey(
        item_ids=items.ids,
        windows=units.windows,
        n_units=len(units),
        n_rows={name: len(table) for name, table in tables.items()},
        heaviest=1.0,
        heaviest_event={
            name: float(own.max(initial=0.0)) for name, own in weights.items() if own is not None
        },
        first=first,
        last=last,
        starts=starts,
        last_sale=None if not starts else int(sales.times.max()),  # type: ignore[union-attr]
        latest=None if times is None or len(times) == 0 else int(times.max()),
        by_day=times is not None and not np.any(times % DAY),
        zoned=_zones(tables, reading.timed),
        example=None,
    )


def _plain(labels: Any) -> list[Any]:
    found: list[Any] = labels.tolist() if isinstance(labels, np.ndarray) else labels.to_pylist()
    return found


def _zones(tables: Mapping[str, Table], timed: bool) -> bool | None:
    """Return whether purchases have a time zone; refuse one in only one of two tables."""
    zones = {
        name: has_zone(table.columns[TIMESTAMP], name, table.own_name(TIMESTAMP))
        for name, table in tables.items()
        if timed and name in ("recent", "history") and table.has(TIMESTAMP) and len(table)
    }
    check_same_clock(zones)
    return zones.get("recent")


def check_same_clock(zones: Mapping[str, bool]) -> None:
    """Refuse timestamps with a time zone in one table and without one in the other."""
    if len(set(zones.values())) > 1:
        have, lack = ("history", "recent") if zones["history"] else ("recent", "history")
        raise DataError(
            f"column '{TIMESTAMP}' has a time zone in {have} but not in {lack}: add it to both "
            f"tables or remove it from both"
        )


def _time_bounds(recent: Table) -> tuple[Any, Any]:
    """Return the first and the last time of purchases: in microseconds, and as text."""
    if not recent.has(TIMESTAMP) or len(recent) == 0:
        return None, None
    column = recent.columns[TIMESTAMP]
    if is_epoch_type(column.type):
        try:
            column = parse_epochs(column, recent.name, TIMESTAMP)
        except DataError:  # other numbers matter only where times are needed
            return None, None
    times = read_times(replace(recent, columns=pa.table({TIMESTAMP: column})))
    places = (int(times.argmin()), int(times.argmax()))
    first, last = ((int(times[place]), str(column[place].as_py())) for place in places)
    return first, last


def read_categories(table: Table, codes: Codes, n_items: int) -> Ints:
    """Return the category of each item as a number; -1 for unknown."""
    counts = np.bincount(codes, minlength=n_items)
    if counts.max(initial=0) > 1:
        repeated = table.columns[ITEM][int(np.flatnonzero(codes == counts.argmax())[0])]
        raise DataError(
            f"column '{table.own_name(ITEM)}' of items has {repeated} more than once; give each "
            f"item one category"
        )
    try:
        labels = pa.concat_arrays(table.columns[CATEGORY].cast(pa.large_string()).chunks)
    except pa.ArrowNotImplementedError as error:
        raise DataError(
            f"column '{table.own_name(CATEGORY)}' of items has type "
            f"{table.columns[CATEGORY].type}: it must be text or integers; cast the column"
        ) from error
    # Numbered by name, so that the order of rows does not matter.
    numbers = pc.rank(labels, tiebreaker="dense").to_numpy().astype(np.int64) - 1
    categories = np.full(n_items, -1, np.int64)
    categories[codes] = np.where(labels.is_valid().to_numpy(zero_copy_only=False), numbers, -1)
    return categories
