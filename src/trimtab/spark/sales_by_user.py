"""Sales to known users, counted in the partitions of their users."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from trimtab.arrays import Codes, Floats, Ints, find_positions
from trimtab.learn.history import NEVER, History
from trimtab.learn.partitions.coded_part import PartLog
from trimtab.learn.partitions.part_histories import LogTimes, PartCounts, add_counts, count_part
from trimtab.learn.partitions.partitioned_units import Arrays
from trimtab.learn.sales_log import window_start
from trimtab.spark.array_bytes import to_bytes
from trimtab.spark.fit_session import FitSession
from trimtab.spark.packed_rows import pack_rows, schema_of, unpack_rows
from trimtab.spark.spark_frames import (
    Batches,
    log_seconds,
    map_arrow,
    microseconds_of,
    use_own_cores,
)
from trimtab.spark.spark_tables import SparkTables
from trimtab.spark.spark_units import RESULT, add_results
from trimtab.tables.columns import ITEM, TIMESTAMP, USER
from trimtab.tables.vocabulary import as_id_column, encode_ids, id_column

TIME = "time"  # of a sale, in microseconds
_HISTORY, _RECENT = 0, 1  # kinds of rows
_COUNTS = tuple(History.__dataclass_fields__)


def sales_of(frame: DataFrame, name: str) -> DataFrame:
    """Items of events, with users and times if they are known."""
    columns = [F.col(column) for column in (USER, ITEM) if column in frame.columns]
    if TIMESTAMP in frame.columns:
        columns.append(microseconds_of(frame, name).alias(TIME))
    return frame.select(*columns)


def sales_of_all(tables: SparkTables, start: int) -> tuple[DataFrame, DataFrame]:
    """The history before the newest window, and the purchases of the windows.

    Args:
        tables: history and purchases have timestamps.
        start: of the newest window.
    """
    assert tables.history is not None
    early = sales_of(tables.history, "history").where(F.col(TIME) < start)
    return early, sales_of(tables.recent, "recent")


def count_by_user(session: FitSession, times: LogTimes) -> PartCounts:
    """Sales before each window and before now, or all if times are missing."""
    tables = session.tables
    assert tables.history is not None
    if times.timed:
        given = sales_of_all(tables, window_start(times.newest, times.by_day))
        frames = dict(zip((_HISTORY, _RECENT), given, strict=True))
    else:
        frames = {_HISTORY: sales_of(tables.history, "history")}
    schemas = {kind: schema_of(frame) for kind, frame in frames.items()}
    count = partial(_count, schemas=schemas, item_ids=session.item_ids, times=times)

    with log_seconds("sales counted"), pack_rows(frames, session.ranges) as packs:
        found = add_results(map_arrow(packs, count, RESULT), session.ranges.n_parts, _add)
    return _from_arrays(found, np.arange(len(session.item_ids), dtype=np.int32))


def _count(
    batches: Batches, schemas: dict[int, pa.Schema], item_ids: Any, times: LogTimes
) -> Batches:
    use_own_cores()
    known = as_id_column("all tables", ITEM, item_ids)
    for _, tables in unpack_rows(batches, schemas):
        log, sold = _code(tables)
        counted = count_part(log, times, len(sold))
        _, (_, items) = encode_ids([known, as_id_column("history", ITEM, sold)])
        yield pa.RecordBatch.from_pydict({"data": [to_bytes(_to_arrays(counted, items))]})


def _code(tables: dict[int, pa.Table]) -> tuple[PartLog, Any]:
    """The sales to the users of a partition, coded, and the ids of the items sold, ascending.

    Of a large catalogue few items are sold to the users of one partition: it returns numbers for
    these only.
    """
    history = tables[_HISTORY]
    both = history, tables.get(_RECENT, history.slice(0, 0))
    sold, (items, bought) = encode_ids([id_column("history", ITEM, table[ITEM]) for table in both])
    _, (users, buyers) = encode_ids([id_column("history", USER, table[USER]) for table in both])
    times, bought_at = map(_times, both)
    nothing = np.empty(0, np.int32)
    return PartLog(users, items, times, buyers, bought, bought_at, nothing, nothing), sold


def _times(table: pa.Table) -> Ints:
    if TIME not in table.column_names:
        return np.empty(0, np.int64)
    found: Ints = table[TIME].to_numpy()
    return found


def _to_arrays(counted: PartCounts, items: Codes) -> Arrays:
    """Counts of some items as arrays; what is not known is empty."""
    columns = [getattr(history, name) for history in counted.before for name in _COUNTS]
    known = [np.empty(0) if column is None else column for column in columns]
    return [np.int64(counted.n_users), items, *known]


def _from_arrays(arrays: Arrays, items: Codes) -> PartCounts:
    """Counts of more items than the arrays are of; both have them in ascending order."""
    n_users, own, *columns = arrays
    places = find_positions(items, own)
    starts = range(0, len(columns), len(_COUNTS))
    before = [
        History(
            **{
                name: _spread(name, column, places, len(items))
                for name, column in zip(_COUNTS, columns[start:], strict=False)
            }
        )
        for start in starts
    ]
    return PartCounts(before, int(n_users))


def _spread(name: str, column: Floats, places: Codes, n_items: int) -> Any:
    """A count of all items; None if it is not known."""
    if not len(column):
        return None
    found = np.full(n_items, NEVER if name == "since" else 0.0)
    found[places] = column
    return found


def _add(parts: list[Arrays]) -> Arrays:
    items = np.unique(np.concatenate([part[1] for part in parts]))
    return _to_arrays(add_counts([_from_arrays(part, items) for part in parts]), items)
