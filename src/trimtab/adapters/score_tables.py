"""Lists from a table of scores: cleaned, and the best n of each user."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.adapters.numbered_ids import NumberedIds
from trimtab.adapters.numbered_lists import ScoredRows
from trimtab.adapters.request import Request
from trimtab.arrays import Floats, find_positions
from trimtab.errors import DataError
from trimtab.tables.columns import ITEM, SCORE, USER, WINDOW
from trimtab.tables.frames import Table, read_frame, require_numbers, write_frame
from trimtab.tables.vocabulary import encode_ids, take_ids

_REMEDIES = {
    "data": "leave it out: a table needs nothing else",
    "user_ids": "leave it out: the table has the ids",
    "item_ids": "leave it out: the table has the ids",
    "exclude_known": "drop those rows, or pass the pairs to bias.apply(exclude=...)",
}


def make_recs(model: Any, request: Request) -> Any:
    """Return lists from rows of user_id, item_id, score, in the same type of frame.

    Rows without a finite score are left out; a repeated pair keeps its best score.
    """
    request.refuse_features("a table")
    request.refuse("a table", _REMEDIES)
    table = read_frame(model, "the table", USER, ITEM, SCORE, optional=(WINDOW,))
    _refuse_windows(table)
    user_ids, (users,) = encode_ids([table.ids(USER)])
    item_ids, (items,) = encode_ids([table.ids(ITEM)])
    wanted = NumberedIds.ascending(USER, user_ids).find(request.users)
    units = find_positions(wanted.astype(np.int32), users)
    scores = np.where(units >= 0, _read_scores(table), np.nan)
    rows = ScoredRows(units, items, scores).with_codes(NumberedIds.ascending(ITEM, item_ids))
    lists = rows.rank(len(wanted), request.n, len(item_ids))
    user_codes = np.repeat(wanted, np.diff(lists.indptr)).astype(np.int32)
    columns = {USER: take_ids(user_ids, user_codes), ITEM: take_ids(item_ids, lists.items)}
    return write_frame({**columns, SCORE: lists.scores}, table)


def _refuse_windows(table: Table) -> None:
    if table.has(WINDOW):
        raise DataError(
            f"the table has a column '{WINDOW}', but recs_from makes one list per user; pass the "
            f"table to fit as it is, or drop the column"
        )


def _read_scores(table: Table) -> Floats:
    """Return scores as float64, nan where they are missing."""
    require_numbers(table)
    values = pc.fill_null(table.columns[SCORE].cast(pa.float64(), safe=False), float("nan"))
    scores: Floats = values.to_numpy()
    return scores
