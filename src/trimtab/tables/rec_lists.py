"""Read recommendations as lists by unit, each item once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.arrays import Codes, Floats, Lists
from trimtab.checks import DUPLICATES, require_choice
from trimtab.errors import DataError, warn
from trimtab.tables.columns import ITEM, SCORE, USER, WINDOW
from trimtab.tables.frames import (
    Table,
    Units,
    encode_units,
    find_repeat,
    find_runs,
    group_scored,
    merge_repeats,
    read_frame,
    read_scores,
    take_ids,
    view_scores,
)
from trimtab.tables.vocabulary import encode_ids


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
    item_ids, (item_codes,) = encode_ids([table.ids(ITEM)])
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
    require_for_unlisted(unlisted, lowest, table.own_name(SCORE))
    return scores


def _each_item_once(
    lists: Lists, table: Table, units: Units, item_ids: Any, duplicates: str
) -> Lists:
    repeated = find_repeat(lists, len(item_ids))
    if repeated and duplicates == "error":
        unit, item = repeated
        (shown,) = take_ids(item_ids, np.array([item]))
        raise DataError(
            f"recs has {units.label(unit, table)} with {table.own_name(ITEM)} {shown} more "
            f"than once; drop the repeats, or pass duplicates='max', 'mean' or 'sum'"
        )
    return merge_repeats(lists, duplicates) if repeated else lists


def require_for_unlisted(unlisted: str, lowest: float, name: str) -> None:
    """Raise if scores are too low for the setting of unlisted items.

    Args:
        unlisted: "never" or "zero".
        lowest: the lowest score.
        name: the caller's name of the column.
    """
    if unlisted == "zero" and lowest < 0:
        raise DataError(
            f"column '{name}' of recs has {lowest:g}: unlisted='zero' needs scores of at least 0; "
            f"shift the scores or use unlisted='never'"
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
