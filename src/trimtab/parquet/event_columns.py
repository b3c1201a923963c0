"""Weights of events in files, checked over all rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trimtab.arrays import Floats
from trimtab.metrics.event_weights import read_event_weights
from trimtab.tables.frames import Table, require_numbers
from trimtab.tables.rows import Rows, find_lowest, require_values


def weights_differ(name: str, rows: Rows, column: str) -> bool:
    """Return whether the weights above 0 differ; raise if one is no weight, or if all are 0.

    Args:
        name: name of the table.
        rows: events, at least one.
        column: with their weights.
    """
    own = {column: rows.own_name(column)}
    require_values(name, rows, column)
    require_numbers(Table(name, rows.schema.empty_table(), None, False, own), column)
    lowest = find_lowest(name, rows, column)
    above = [values[values > 0] for values in _read(rows, column)]
    ends = np.array([end(own) for own in above if len(own) for end in (np.min, np.max)])
    if lowest < 0 or not len(ends):
        shown = Table(name, pa.table({column: [lowest]}), None, False, own)
        read_event_weights(shown, column)  # refuses it
    return bool(np.any(ends != ends[0]))


def _read(rows: Rows, column: str) -> list[Floats]:
    batches = rows.batches(columns=[rows.source_of(column)])
    return [np.unique(_as_floats(batch, 0)) for batch in batches]


def drop_weightless(events: pa.Table, column: str) -> pa.Table:
    """Return the events of a weight above 0."""
    return events.filter(pa.array(_as_floats(events, column) > 0))


def _as_floats(table: pa.Table, column: str | int) -> Floats:
    values: Floats = table[column].cast(pa.float64(), safe=False).to_numpy()
    return values
