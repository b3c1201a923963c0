"""Plain tables of scores: cleaned, and the best n of each user."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.adapters.numbered_lists import Found
from trimtab.adapters.request import Request
from trimtab.arrays import Floats
from trimtab.errors import DataError
from trimtab.tables.columns import ITEM, SCORE, USER, WINDOW
from trimtab.tables.frames import Table, read_frame, require_numbers, take_ids, write_frame
from trimtab.tables.id_labels import Labels
from trimtab.tables.ids import encode_ids

_INSTEAD = {
    "data": "leave it out: the table is all that is needed",
    "user_ids": "the table has the ids",
    "item_ids": "the table has the ids",
    "exclude_known": "drop those rows, or pass the pairs to bias.apply(exclude=...)",
}


def recs(model: Any, request: Request) -> Any:
    """Lists from rows of user_id, item_id, score in any order; the same kind of frame.

    Rows without a finite score are left out; of a pair that is there twice the best counts.
    """
    request.refuse_features("a table")
    request.refuse("a table", _INSTEAD)
    table = read_frame(model, "the table", USER, ITEM, SCORE, optional=(WINDOW,))
    _refuse_windows(table)
    user_ids, (users,) = encode_ids([table.ids(USER)])
    item_ids, (items,) = encode_ids([table.ids(ITEM)])
    wanted = Labels(USER, user_ids, np.arange(len(user_ids), dtype=np.int32)).find(request.users)
    place = np.full(len(user_ids), -1, np.int32)
    place[wanted] = np.arange(len(wanted), dtype=np.int32)
    units = place[users]
    scores = np.where(units >= 0, _scores(table), np.nan)
    as_codes = Labels(ITEM, item_ids, np.arange(len(item_ids), dtype=np.int32))
    lists = (
        Found(units, items, scores).coded(as_codes).ranked(len(wanted), request.n, len(item_ids))
    )
    rows = np.repeat(wanted, np.diff(lists.indptr)).astype(np.int32)
    columns = {USER: take_ids(user_ids, rows), ITEM: take_ids(item_ids, lists.items)}
    return write_frame({**columns, SCORE: lists.scores}, table)


def _refuse_windows(table: Table) -> None:
    if table.has(WINDOW):
        raise DataError(
            f"the table has a column '{WINDOW}': lists are made by user here; pass the table to "
            f"fit as it is, or drop the column"
        )


def _scores(table: Table) -> Floats:
    """Scores as float64, nan where there is none."""
    require_numbers(table)
    values = pc.fill_null(table.columns[SCORE].cast(pa.float64(), safe=False), float("nan"))
    scores: Floats = values.to_numpy()
    return scores
