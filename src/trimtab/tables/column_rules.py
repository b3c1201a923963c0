"""Rules for the columns of saved tables: types, ids in order, numbers within bounds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.tables.arrow_types import is_text
from trimtab.tables.columns import ITEM
from trimtab.tables.json_rules import RuleError


def check_schema(schema: pa.Schema, kinds: Mapping[str, pa.DataType]) -> None:
    """Raise RuleError unless a table has ids and columns of the given types, each once."""
    for name in (ITEM, *kinds):
        n = schema.names.count(name)
        if n != 1:
            raise RuleError(f"the table has {n} columns '{name}', but must have one")
    ids = schema.field(ITEM).type
    if not (ids == pa.int64() or is_text(ids)):
        raise RuleError(f"column '{ITEM}' holds {ids}, but must hold int64 or text")
    for name, kind in kinds.items():
        found = schema.field(name).type
        if found != kind:
            raise RuleError(f"column '{name}' holds {found}, but must hold {kind}")


def check_ids(ids: pa.ChunkedArray) -> None:
    """Raise RuleError unless each id is above the one before."""
    check_no_nulls(ITEM, ids)
    ids.validate(full=True)  # text in UTF-8
    n = max(len(ids) - 1, 0)
    row = pc.index(pc.greater_equal(ids.slice(0, n), ids.slice(1)), True).as_py()
    if row >= 0:
        before, after = (str(ids[at].as_py())[:60] for at in (row, row + 1))
        raise RuleError(
            f"column '{ITEM}' has {after!r} after {before!r} in row {row + 1} (from 0), but must "
            f"ascend, with each id once"
        )


def check_no_nulls(name: str, column: pa.ChunkedArray) -> None:
    """Raise RuleError if a column lacks a value."""
    if column.null_count:
        raise RuleError(
            f"column '{name}' has no value in {column.null_count} of {len(column)} rows, but must "
            f"have one in each"
        )


def check_numbers(
    name: str, column: pa.ChunkedArray, most: float, may_be_nan: bool = False
) -> None:
    """Raise RuleError unless all numbers of a column are within ± a bound."""
    values = column.to_numpy()
    wrong = ~(np.abs(values) <= most)
    if may_be_nan:
        wrong &= ~np.isnan(values)
    if wrong.any():
        row = int(wrong.argmax())
        raise RuleError(
            f"column '{name}' has {values[row]:g} in row {row} (from 0), but must be from "
            f"{-most:g} to {most:g}"
        )
