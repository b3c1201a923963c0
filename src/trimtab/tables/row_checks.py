"""Checks of columns that are too long to be held in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trimtab.checks import require_no_nulls
from trimtab.tables.columns import USER
from trimtab.tables.frames import not_finite
from trimtab.tables.parquet_rows import Rows


class _Counted:
    """A column whose nulls are counted."""

    def __init__(self, null_count: int, length: int) -> None:
        self.null_count, self._length = null_count, length

    def __len__(self) -> int:
        return self._length


def require_values(name: str, rows: Rows, column: str) -> None:
    """Raise if a column has missing values; those of users are counted in the files' footers."""
    own = rows.own_name(column)
    counts = [group.n_nulls if column == USER else None for group in rows.row_groups]
    if None in counts:
        counts = [batch[0].null_count for batch in rows.batches(columns=[rows.source_of(column)])]
    n_nulls = sum(count for count in counts if count is not None)
    require_no_nulls(name, own, _Counted(n_nulls, rows.n_rows))


def find_lowest(name: str, rows: Rows, column: str) -> float:
    """Return the lowest number of a column; raise if one is not finite. Not for missing values."""
    first, lowest = 0, np.inf
    for batch in rows.batches(columns=[rows.source_of(column)]):
        values = batch[0].cast(pa.float64(), safe=False).to_numpy()
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise not_finite(name, rows.own_name(column), values[wrong[0]], first + int(wrong[0]))
        first, lowest = first + len(values), min(lowest, values.min(initial=np.inf))
    return float(lowest)
