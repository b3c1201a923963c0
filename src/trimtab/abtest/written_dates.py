"""Dates written as text, in an order that sorting keeps."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import DataError

_DAY_FIRST = r"^\d{1,2}\.\d{1,2}\.\d{4}$"
_SLASHED = r"^\d{1,2}/\d{1,2}/\d{2,4}$"


def parse_dates(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return dates like 30.10.2026 as 2026-10-30; other text stays; 10/11/2026 is refused."""
    known = pc.unique(column).drop_null()
    if len(known) and pc.all(pc.match_substring_regex(known, _DAY_FIRST)).as_py():
        days = {text: _parse_day(text, name) for text in known.to_pylist()}
        return pa.chunked_array([pa.array([days.get(text) for text in column.to_pylist()])])
    slashed = known.filter(pc.match_substring_regex(known, _SLASHED))
    if len(slashed):
        raise DataError(
            f"column '{name}' of table has '{slashed[0].as_py()}': day and month cannot be told "
            f"apart; write 2026-10-30"
        )
    return column


def _parse_day(text: str, name: str) -> str:
    day, month, year = map(int, text.split("."))
    try:
        return date(year, month, day).isoformat()
    except ValueError as error:
        raise DataError(
            f"column '{name}' of table has '{text}': must be a date; write 2026-10-30"
        ) from error
