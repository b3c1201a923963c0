"""Weights of events in files, checked over all rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trimtab.arrays import Floats
from trimtab.metrics.event_weights import read_event_weights
from trimtab.tables.frames import Table, require_numbers
from trimtab.tables.rows import Rows, find_lowest, require_values


def check_weights(name: str, rows: Rows, column: str) -> None:
    """Raise if a weight of events is none, or if all are 0."""
    own = {column: rows.own_name(column)}
    require_values(name, rows, column)
    require_numbers(Table(name, rows.schema.empty_table(), None, False, own), column)
    lowest = find_lowest(name, rows, column)
    batches = rows.batches(columns=[rows.source_of(column)])
    if lowest < 0 or not any(np.any(_as_floats(batch, 0) > 0) for batch in batches):
        shown = Table(name, pa.table({column: [lowest]}), None, False, own)
        read_event_weights(shown, column)  # refuses it


def drop_weightless(events: pa.Table, column: str) -> pa.Table:
    """Return the events of a weight above 0."""
    return events.filter(pa.array(_as_floats(events, column) > 0))


def _as_floats(table: pa.Table, column: str | int) -> Floats:
    values: Floats = table[column].cast(pa.float64(), safe=False).to_numpy()
    return values
