"""Lists by unit: recommendations coded and grouped, each item once, and weights of their users."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets, pointers, read_only
from trimtab.checks import DUPLICATES, require_choice
from trimtab.errors import DataError, warn
from trimtab.tables.columns import ITEM, SCORE, USER, WEIGHT, WINDOW, Table, read_frame, read_scores
from trimtab.tables.vocabulary import IdColumn, Vocabulary, gather, id_column
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
    """Return recommendations as lists of codes."""
    table = read_frame(recs, "recs", USER, ITEM, SCORE, optional=(WINDOW,))
    units, (unit_codes,) = encode_units(table)
    items, (item_codes,) = Vocabulary.encode(table.ids(ITEM))
    lists = code_lists(table, unit_codes, item_codes, units, items.ids, unlisted, duplicates)
    return CodedRecs(table, units, items.ids, lists)


def code_lists(
    table: Table, unit_codes: Codes, item_codes: Codes, units: Units, item_ids: Any,
    unlisted: str, duplicates: str,
) -> Lists:  # fmt: skip
    """Return lists by unit, each item once; raise for bad scores or repeats."""
    require_choice("duplicates", duplicates, DUPLICATES)
    rule = "unlisted='zero' needs scores of at least 0; shift the scores or use unlisted='never'"
    scores = read_scores(table, SCORE, rule if unlisted == "zero" else "")
    lists = group_scored(unit_codes, item_codes, scores, len(units))
    repeated = find_repeat(lists, len(item_ids))
    if repeated is None:
        return lists
    if duplicates != "error":
        return merge_repeats(lists, duplicates)
    unit, item = repeated
    raise DataError(
        f"recs has {units.label(unit, table)} with {table.own_name(ITEM)} {item_ids[item]} more "
        f"than once; drop the repeats, or pass duplicates='max', 'mean' or 'sum'"
    )


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
    windows, window_codes = Vocabulary.encode(*map(_window_ids, tables))
    pairs = [
        IdColumn("", WINDOW, read_only(by_user.astype(np.int64) * len(windows) + by_window))
        for by_user, by_window in zip(user_codes, window_codes, strict=True)
    ]
    distinct, unit_codes = Vocabulary.encode(*pairs)
    by_user, by_window = np.divmod(distinct.ids, len(windows))
    units = Units(users, by_user.astype(np.int32), windows.ids, by_window.astype(np.int32))
    return units, unit_codes


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
    from trimtab.kernels.counting import group_scored_rows

    indptr = pointers(units, n_units)
    if not np.any(units[1:] < units[:-1]):
        return Lists(indptr, items, scores)
    grouped = Lists(indptr, np.empty_like(items), np.empty_like(scores))
    group_scored_rows(units, items, scores, indptr[:-1].copy(), *grouped[1:])
    return grouped


def group_sets(units: Codes, items: Codes, n_units: int) -> Sets:
    """Return rows as sets by unit, items ascending, each once."""
    pairs = np.unique((units.astype(np.int64) << 32) + items)
    indptr = np.searchsorted(pairs, np.arange(n_units + 1) << 32)
    return Sets(indptr, (pairs & 0xFFFFFFFF).astype(np.int32))


def find_repeat(lists: Lists, n_items: int) -> tuple[int, int] | None:
    """Return the first (unit, item) that is in a list twice, or None."""
    from trimtab.kernels import counting

    found = run_ranges(counting.find_repeat, lists.n_units, lists.indptr, lists.items, n_items)
    return next(((int(unit), int(item)) for unit, item in found if unit >= 0), None)


def merge_repeats(lists: Lists, how: str) -> Lists:
    """Return lists with each item once, merging repeated scores by max, mean or sum."""
    units = np.repeat(np.arange(lists.n_units), np.diff(lists.indptr))
    keys = (units << 32) + lists.items
    order = np.lexsort((lists.scores, keys))
    keys, scores = keys[order], lists.scores[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    ends = np.r_[first[1:], len(keys)]
    # Scores ascend within a pair, so sums do not depend on the order of rows.
    merged = scores[ends - 1] if how == "max" else np.add.reduceat(scores, first)
    if how == "mean":
        merged = merged / (ends - first)
    return Lists(pointers(units[order][first], lists.n_units), lists.items[order][first], merged)


def read_weights(frame: Any, units: Units, judged: Flags, name: str) -> Floats:
    """Return the weight of each unit's user; 1 for users not in the table.

    Args:
        frame: table with user_id and weight.
        units: units of the other tables.
        judged: units that bought something; at least one of them must have a weight above 0.
        name: name of the table with the units.
    """
    table = read_frame(frame, "weights", USER, WEIGHT)
    values = read_scores(table, WEIGHT, "weights must be at least 0")
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
