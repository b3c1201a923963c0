"""Tables in files: how they are written, changed, and compared with tables in memory."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from changed_tables import with_column

Tables = dict[str, pa.Table]


def as_text(table: pa.Table) -> pa.Table:
    """Ids as text, whose order is another one."""
    for name in (name for name in ("user_id", "item_id") if name in table.column_names):
        text = pa.array([f"{name[0]}ü{value}" for value in table[name].to_pylist()])
        table = with_column(table, name, text)
    return table


def change(table: pa.Table, column: str, row: int, value: float | None) -> pa.Table:
    """Another value in one row."""
    values = table[column].to_pylist()
    values[row] = value
    return with_column(table, column, pa.array(values, table[column].type))


def store(tables: Tables, folder: Path, rows: int = 100) -> dict[str, Path]:
    """Write tables in row groups of some rows; return their files."""
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=rows)
    return {name: folder / f"{name}.parquet" for name in tables}


def weighed(table: pa.Table, seed: int = 1) -> pa.Table:
    """Weights of events; some are 0."""
    weights = np.random.default_rng(seed).choice([0.0, 0.1, 1.0, 2.5], table.num_rows)
    return table.append_column("weight", pa.array(weights))


def heard(function: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a function returns, and its warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = function()
    return result, [str(own.message) for own in found]


def require_same_refusal(
    in_memory: Callable[[], Any], in_parts: Callable[[], Any], but: str | None = None
) -> None:
    """Both refuse in the same words, but for what matches: some rows are those of a part."""
    with pytest.raises(tt.TrimtabError) as expected:
        in_memory()
    with pytest.raises(type(expected.value)) as found:
        in_parts()
    words = [str(own.value) for own in (expected, found)]
    if but is not None:
        words = [re.sub(but, "n", own) for own in words]
    assert words[0] == words[1]
