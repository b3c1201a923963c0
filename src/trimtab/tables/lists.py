"""Lists by unit: recommendations coded and grouped, each item once, and weights of their users."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets
from trimtab.checks import DUPLICATES, require_choice
from trimtab.errors import DataError, warn
from trimtab.tables.columns import ITEM, SCORE, USER, WEIGHT, WINDOW
from trimtab.tables.frames import Table, read_frame, read_scores, view_scores
from trimtab.tables.vocabulary import IdColumn, Vocabulary, gather, id_column, require_codable
from trimtab.threads import run_ranges


@dataclass(frozen=True)
class Units:
    """The users, or (user, window) pairs, of unit codes, in ascending order."""

    users: Any
    user_codes: Codes  # by unit
    windows: Any | None
    window_codes: Codes | None

    def __len__(self) -> int:
        return len(self.user_codes)

    def label(self, unit: int, table: Table | None = None) -> str:
        """Return a unit's name for messages, with the names of columns that a table has."""
        own = {} if table is None else table.own
        found = self.columns(np.array([unit], np.int32))
        return " in ".join(f"{own.get(name, name)} {ids[0]}" for name, ids in found.items())

    def columns(self, units: Ints | Codes) -> dict[str, Any]:
        """Return the id columns of the given units."""
        taken = {USER: Vocabulary(self.users).take(gather(self.user_codes, units))}
        if self.windows is not None and self.window_codes is not None:
            codes = gather(self.window_codes, units)
            taken[WINDOW] = Vocabulary(self.windows).take(codes)
        return taken


@dataclass(frozen=True)
class CodedRecs:
    """Recommendations as lists by unit."""

    table: Table
    units: Units
    item_ids: Any
    lists: Lists


def read_lists(recs: Any, unlisted: str, duplicates: str) -> CodedRecs:
    """Return recommendations as lists of codes; the scores may be the caller's, read-only."""
    table = read_frame(recs, "recs", USER, ITEM, SCORE, optional=(WINDOW,))
    runs = find_runs(table)
    items, (item_codes,) = Vocabulary.encode(table.ids(ITEM))
    item_ids = items.ids
    if runs is None:
        units, (unit_codes,) = encode_units(table)
        lists = code_lists(table, unit_codes, item_codes, units, item_ids, unlisted, duplicates)
    else:
        units, indptr = runs
        scores = _checked_scores(view_scores, table, unlisted, duplicates)
        in_order = Lists(indptr, item_codes, scores)
        lists = _each_item_once(in_order, table, units, item_ids, duplicates)
    return CodedRecs(table, units, item_ids, lists)


def code_lists(
    table: Table, unit_codes: Codes, item_codes: Codes, units: Units, item_ids: Any,
    unlisted: str, duplicates: str,
) -> Lists:  # fmt: skip
    """Return lists by unit, each item once; raise for bad scores or repeats."""
    scores = _checked_scores(read_scores, table, unlisted, duplicates)
    lists = group_scored(unit_codes, item_codes, scores, len(units))
    return _each_item_once(lists, table, units, item_ids, duplicates)


def _checked_scores(
    read: Callable[[Table], tuple[Floats, float]], table: Table, unlisted: str, duplicates: str
) -> Floats:
    require_choice("duplicates", duplicates, DUPLICATES)
    scores, lowest = read(table)
    if unlisted == "zero" and lowest < 0:
        raise DataError(
            f"column '{table.own_name(SCORE)}' of recs has {lowest:g}: unlisted='zero' needs "
            f"scores of at least 0; shift the scores or use unlisted='never'"
        )
    return scores


def _each_item_once(
    lists: Lists, table: Table, units: Units, item_ids: Any, duplicates: str
) -> Lists:
    repeated = find_repeat(lists, len(item_ids))
    if repeated and duplicates == "error":
        unit, item = repeated
        raise DataError(
            f"recs has {units.label(unit, table)} with {table.own_name(ITEM)} {item_ids[item]} "
            f"more than once; drop the repeats, or pass duplicates='max', 'mean' or 'sum'"
        )
    return merge_repeats(lists, duplicates) if repeated else lists


def longest_list(lists: Lists) -> int:
    """The number of items on the longest list."""
    return int(np.diff(lists.indptr).max(initial=0))


def warn_if_short(longest: int, k: int) -> None:
    """Warn if no list has k items."""
    if longest < k:
        warn(
            f"k={k}, but the longest list has {longest} items: some slots stay empty; lower k or "
            f"make longer lists"
        )


def encode_units(*tables: Table) -> tuple[Units, list[Codes]]:
    """Return the units of all tables together, and the unit code of each row of each table."""
    vocabulary, user_codes = Vocabulary.encode(*(table.ids(USER) for table in tables))
    users = vocabulary.ids
    if not any(table.has(WINDOW) for table in tables):
        return Units(users, np.arange(len(users), dtype=np.int32), None, None), user_codes
    require_windows_in_all({table.name: table.columns.column_names for table in tables})
    from trimtab.kernels.coding import pair_up

    windows, window_codes = Vocabulary.encode(*map(_window_ids, tables))
    pairs = []
    for table, by_user, by_window in zip(tables, user_codes, window_codes, strict=True):
        pair = np.empty(len(table), np.int64)
        run_ranges(pair_up, len(pair), by_user, by_window, len(windows), pair)
        pair.flags.writeable = False
        pairs.append(IdColumn(table.name, WINDOW, pair))
    distinct, unit_codes = Vocabulary.encode(*pairs)
    by_user, by_window = np.divmod(distinct.ids, len(windows))
    units = Units(users, by_user.astype(np.int32), windows.ids, by_window.astype(np.int32))
    return units, unit_codes


def find_runs(table: Table) -> tuple[Units, Ints] | None:
    """Return the users of a table in the order of users, and where the rows of each begin.

    This is quicker than to give each row the code of its user. None for other tables, for ids of
    text, and if there are windows.
    """
    from trimtab.kernels import coding

    users = table.ids(USER)
    if table.has(WINDOW) or users.kind != "integers" or len(users) == 0:
        return None
    ids = users.values
    starts, runs = np.array(run_ranges(coding.count_runs, len(ids), ids), np.int64).T
    if runs.min() < 0:
        return None
    n_users = int(runs.sum())
    require_codable(n_users)
    distinct, indptr = np.empty(n_users, np.int64), np.empty(n_users + 1, np.int64)
    given = (ids, np.ascontiguousarray(starts), np.cumsum(runs) - runs, distinct, indptr)
    run_ranges(coding.write_runs, len(ids), *given)
    indptr[-1] = len(ids)
    return Units(distinct, np.arange(n_users, dtype=np.int32), None, None), indptr


def require_windows_in_all(columns: Mapping[str, Collection[str]]) -> None:
    """Refuse a window column in one table but not in another; columns are by table."""
    have = [name for name, found in columns.items() if WINDOW in found]
    lack = [name for name in columns if name not in have]
    if have and lack:
        raise DataError(
            f"{have[0]} has a column '{WINDOW}' but {lack[0]} does not; add it to both tables or "
            f"remove it from both"
        )


def _window_ids(table: Table) -> IdColumn:
    """Return window labels: integers, strings, or dates and times as text."""
    column = table.columns[WINDOW]
    if pa.types.is_timestamp(column.type):
        # The same text for any time unit; midnight is written as a date.
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.string())
        column = pc.replace_substring_regex(column, r" 00:00:00\.000000$", "")
    elif pa.types.is_date(column.type):
        column = column.cast(pa.string())
    return id_column(table.name, table.own_name(WINDOW), column)


def group_scored(units: Codes, items: Codes, scores: Floats, n_units: int) -> Lists:
    """Return rows as lists by unit, without a copy if the rows are already in order."""
    from trimtab.kernels import coding

    indptr = np.empty(n_units + 1, np.int64)
    if all(run_ranges(coding.find_starts, len(units), units, indptr)):
        return Lists(indptr, items, scores)
    indptr[:] = 0
    coding.count_rows(units, indptr)
    grouped = Lists(indptr, np.empty_like(items), np.empty_like(scores))
    coding.group_scored_rows(units, items, scores, indptr[:-1].copy(), *grouped[1:])
    return grouped


def group_sets(units: Codes, items: Codes, n_units: int) -> Sets:
    """Return rows as sets by unit, items ascending, each once."""
    from trimtab.kernels import coding

    indptr = np.zeros(n_units + 1, np.int64)
    coding.count_rows(units, indptr)
    grouped = np.empty(len(items), np.int32)
    coding.group_rows(units, items, indptr[:-1].copy(), grouped)
    lengths = np.empty(n_units, np.int64)
    run_ranges(coding.distinct_sorted, n_units, indptr, grouped, lengths)
    if lengths.sum() == len(grouped):
        return Sets(indptr, grouped)
    closed = Sets(np.zeros(n_units + 1, np.int64), np.empty(int(lengths.sum()), np.int32))
    coding.close_gaps(indptr, grouped, lengths, *closed)
    return closed


def find_repeat(lists: Lists, n_items: int) -> tuple[int, int] | None:
    """Return the first (unit, item) that is in a list twice, or None."""
    from trimtab.kernels import coding

    found = run_ranges(coding.find_repeat, lists.n_units, lists.indptr, lists.items, n_items)
    return next(((int(unit), int(item)) for unit, item in found if unit >= 0), None)


def merge_repeats(lists: Lists, how: str) -> Lists:
    """Return lists with each item once, merging repeated scores by max, mean or sum."""
    units = np.repeat(np.arange(lists.n_units), np.diff(lists.indptr))
    order = np.lexsort((lists.scores, lists.items, units))
    units, items, scores = units[order], lists.items[order], lists.scores[order]
    first = np.flatnonzero(np.r_[True, (np.diff(units) != 0) | (np.diff(items) != 0)])
    ends = np.r_[first[1:], len(items)]
    # Scores ascend within a pair, so sums do not depend on the order of rows.
    merged = scores[ends - 1] if how == "max" else np.add.reduceat(scores, first)
    if how == "mean":
        merged = merged / (ends - first)
    indptr = np.searchsorted(units[first], np.arange(lists.n_units + 1)).astype(np.int64)
    return Lists(indptr, np.ascontiguousarray(items[first]), merged)


def read_weights(frame: Any, units: Units, judged: Flags, name: str) -> Floats:
    """Return the weight of each unit's user; 1 for users not in the table.

    Args:
        frame: table with user_id and weight.
        units: units of the other tables.
        judged: units that bought something; at least one of them must have a weight above 0.
        name: name of the table with the units.
    """
    table = read_frame(frame, "weights", USER, WEIGHT)
    values, lowest = read_scores(table, WEIGHT)
    if lowest < 0:
        name = table.own_name(WEIGHT)
        raise DataError(f"column '{name}' of weights has {lowest:g}: weights must be at least 0")
    known = Vocabulary(units.users, name, USER)
    users, (user_codes, weight_codes) = Vocabulary.encode(known.column, table.ids(USER))
    counts = np.bincount(weight_codes)
    if counts.max() > 1:
        raise DataError(
            f"column '{table.own_name(USER)}' of weights has {users[counts.argmax()]} more than "
            f"once; keep one weight per user"
        )
    by_code = np.ones(len(users))
    by_code[weight_codes] = values
    weights: Floats = by_code[user_codes][units.user_codes]
    if judged.any() and not (weights[judged] > 0).any():
        raise DataError(
            f"column '{table.own_name(WEIGHT)}' of weights is 0 for every user who bought "
            f"something: at least one must be above 0"
        )
    return weights
