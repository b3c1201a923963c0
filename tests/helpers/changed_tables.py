"""Tables with another column, in another order; and saved results as bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa


def with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with a column of these values, or of one value."""
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        values = pa.array(np.broadcast_to(values, table.num_rows))
    if name not in table.column_names:
        return table.append_column(name, values)
    return table.set_column(table.column_names.index(name), name, values)


def as_text(table: pa.Table, name: str) -> pa.Table:
    """The table with a column as text."""
    return with_column(table, name, table[name].cast("string"))


def as_dates(table: pa.Table) -> pa.Table:
    """The table with dates for timestamps."""
    return with_column(table, "timestamp", table["timestamp"].cast("date32", safe=False))


def shuffled(table: pa.Table, seed: int = 0) -> pa.Table:
    """The rows in another order."""
    return table.take(np.random.default_rng(seed).permutation(table.num_rows))


def files_of(result: Any, folder: Path) -> dict[str, bytes]:
    """What a result is saved as."""
    result.save(folder)
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def rows_of(rows: Any, *names: str) -> pa.Table:
    """A table of rows, whose first columns have these names."""
    columns = zip(names, zip(*rows, strict=True), strict=False)
    return pa.table({name: list(column) for name, column in columns})
