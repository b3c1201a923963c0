"""The tables of a Spark fit: checked, then brought together user by user."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from trimtab.errors import DataError, TrimtabError
from trimtab.learn.partitions.partition import Partition
from trimtab.learn.partitions.partitioned_units import count_parts
from trimtab.spark.array_bytes import ids_to_bytes
from trimtab.spark.packed_rows import choose_ranges, pack_rows, schema_of, unpack_rows
from trimtab.spark.spark_frames import (
    Batches,
    check_rows,
    check_same_ids,
    keep_in_memory,
    map_arrow,
    read_spark_frame,
    use_own_cores,
)
from trimtab.spark.spark_units import SparkUnits, chunk_rows
from trimtab.spark.user_batches import read_units
from trimtab.tables.columns import CATEGORY, COUNT, ITEM, SCORE, TIMESTAMP, USER, WEIGHT, WINDOW
from trimtab.tables.frames import Table
from trimtab.tables.lists import (
    code_lists,
    encode_units,
    group_sets,
    read_weights,
    require_windows_in_all,
)
from trimtab.tables.times import as_datetime
from trimtab.tables.user_ranges import UserRanges
from trimtab.tables.vocabulary import as_id_column, encode_ids, id_column, take_ids

_LIST, _SALE, _WEIGHT = 0, 1, 2  # kinds of rows
_BUILT = "part int, place int, data binary, users long, units long, problem string, ids binary"
_ROWS_PER_PART = 10_000_000


@dataclass(frozen=True)
class SparkTables:
    """The tables of a fit, each checked."""

    recs: DataFrame
    recent: DataFrame
    weights: DataFrame | None
    history: DataFrame | None
    items: DataFrame | None
    n_recs: int
    n_recent: int
    n_history: int

    @staticmethod
    def read(
        recs: Any, recent: Any, weights: Any = None, history: Any = None, items: Any = None
    ) -> SparkTables:
        """Read and check the tables."""
        ids = (USER, ITEM)
        lists, _ = read_units(recs, "recs", SCORE)
        sales, _ = read_units(recent, "recent", optional=(TIMESTAMP,))
        for frame, name in ((recent, "recent"), (history, "history")):
            _refuse_event_weights(frame, name)
        require_windows_in_all({"recs": lists.columns, "recent": sales.columns})
        for column in (*ids, *([WINDOW] if WINDOW in lists.columns else [])):
            check_same_ids(column, {"recs": lists, "recent": sales})
        weighed = None
        if weights is not None:
            weighed = read_spark_frame(weights, "weights", USER, WEIGHT, ids=(USER,))
            check_same_ids(USER, {"recs": lists, "weights": weighed})
            check_rows(weighed, "weights", (WEIGHT,))
        n_history = 0
        if history is not None:
            timed = (USER, TIMESTAMP, COUNT)
            history = read_spark_frame(history, "history", ITEM, ids=ids, optional=timed)
            check_same_ids(ITEM, {"recs": lists, "history": history})
            if USER in history.columns and COUNT not in history.columns:
                check_same_ids(USER, {"recs": lists, "history": history})
            n_history = check_rows(history, "history", (COUNT,) if COUNT in history.columns else ())
        if items is not None:
            items = read_spark_frame(items, "items", ITEM, CATEGORY, ids=ids)
            check_same_ids(ITEM, {"recs": lists, "items": items})
            check_rows(items.select(ITEM), "items")
        n_recs, n_recent = check_rows(lists, "recs", (SCORE,)), check_rows(sales, "recent")
        return SparkTables(lists, sales, weighed, history, items, n_recs, n_recent, n_history)

    @property
    def session(self) -> SparkSession:
        """The session of the tables."""
        return self.recs.sparkSession

    @property
    def has_windows(self) -> bool:
        """Whether each (user, window) pair counts as one user."""
        return WINDOW in self.recs.columns

    def bring_together(self) -> dict[str, pa.Table]:
        """Lists, purchases and weights on the driver, as a local fit takes them."""
        frames = {"recs": self.recs, "recent": self.recent, "weights": self.weights}
        return {
            name: _in_utc(frame.toArrow()) for name, frame in frames.items() if frame is not None
        }

    def user_ranges(self, wanted: int | None) -> UserRanges:
        """Ranges of user ids: as many as asked for, or few enough users in each for memory."""
        return choose_ranges(self.recs, self.n_recs, wanted or self._count_partitions())

    def _count_partitions(self) -> int:
        # Not every kind of session knows how many tasks run at a time.
        context = getattr(self.session, "_sc", None)
        at_a_time = max(1, context.defaultParallelism if context is not None else 8)
        waves = -(-max(self.n_recs, self.n_history) // (_ROWS_PER_PART * at_a_time))
        return int(at_a_time * max(1, waves))

    def item_ids(self) -> Any:
        """All different items, ascending: an int64 array or Arrow strings."""
        every = self.recs.select(ITEM)
        for frame in (self.recent, self.history, self.items):
            if frame is not None:
                every = every.union(frame.select(ITEM))
        column = every.distinct().toArrow().column(ITEM)
        return encode_ids([id_column("all tables", ITEM, column)])[0]

    def first_and_last_purchase(self) -> tuple[str | None, str | None]:
        """Timestamps of the first and last purchase, if known; those with a time zone in UTC."""
        if TIMESTAMP not in self.recent.columns:
            return None, None
        time = F.col(TIMESTAMP)
        zoned = isinstance(self.recent.schema[TIMESTAMP].dataType, T.TimestampType)
        if zoned:
            time = F.unix_micros(TIMESTAMP)
        found = self.recent.agg(F.min(time), F.max(time)).collect()[0]
        first, last = (str(as_datetime(value) if zoned else value) for value in found)
        return first, last

    def window_labels(self) -> list[Any]:
        """Labels of the windows, ascending; [None] without windows."""
        if not self.has_windows:
            return [None]
        both = self.recs.select(WINDOW).union(self.recent.select(WINDOW)).distinct()
        return sorted(row[WINDOW] for row in both.collect())


def _in_utc(table: pa.Table) -> pa.Table:
    """A table with timestamps in UTC instead of the session's time zone."""
    fields = (
        field.with_type(pa.timestamp("us", "UTC")) if getattr(field.type, "tz", None) else field
        for field in table.schema
    )
    return table.cast(pa.schema(fields))


def _refuse_event_weights(frame: Any, name: str) -> None:
    """Refuse weights of events, which a local fit would use."""
    if frame is not None and WEIGHT in read_spark_frame(frame, name, optional=(WEIGHT,)).columns:
        raise DataError(
            f"{name} has a column '{WEIGHT}': a Spark fit counts all events alike; drop the "
            f"column, or fit on local tables"
        )


def partition_users(
    tables: SparkTables, item_ids: Any, windows: list[Any], unlisted: str, duplicates: str,
    ranges: UserRanges, held: ExitStack, with_ids: bool = False,
) -> SparkUnits:  # fmt: skip
    """Users with their lists, purchases and weights, partitioned by ranges of user ids.

    Args:
        tables: checked.
        item_ids: of all tables, ascending.
        windows: labels, ascending.
        unlisted: "never" or "zero".
        duplicates: what to do with repeated rows of `recs`.
        ranges: of user ids; a partition for each.
        held: releases what is kept in Spark's memory.
        with_ids: whether to keep the ids of users, to find some of them later.
    """
    frames = _frames(tables, windows)
    build = partial(
        _build, schemas={kind: schema_of(frame) for kind, frame in frames.items()},
        item_ids=item_ids, unlisted=unlisted, duplicates=duplicates, with_ids=with_ids,
    )  # fmt: skip
    with pack_rows(frames, ranges) as packs:
        built = keep_in_memory(map_arrow(packs, build, _BUILT), held)
        firsts = built.where("place = 0").select("part", "users", "units", "problem").collect()
    for row in sorted(firsts, key=lambda row: row["part"]):
        if row["problem"]:
            raise DataError(row["problem"])
    counted = {row["part"]: (row["users"], row["units"]) for row in firsts}
    chunks, ids = built.select("part", "place", "data"), None
    if with_ids:
        ids = built.where("place = 0").select("part", "ids")
    return SparkUnits(chunks, count_parts(counted), held, ids)


def _frames(tables: SparkTables, windows: list[Any]) -> dict[int, DataFrame]:
    """Lists, purchases and weights by kind, with codes instead of labels of windows."""
    pairs = [F.lit(part) for code, label in enumerate(windows) for part in (label, code)]
    window = []
    if tables.has_windows:
        window = [F.element_at(F.create_map(*pairs), F.col(WINDOW)).cast("int").alias(WINDOW)]
    score = F.col(SCORE).cast("double").alias(SCORE)
    frames = {
        _LIST: tables.recs.select(USER, *window, ITEM, score),
        _SALE: tables.recent.select(USER, *window, ITEM),
    }
    if tables.weights is not None:
        weight = F.col(WEIGHT).cast("double").alias(WEIGHT)
        frames[_WEIGHT] = tables.weights.select(USER, weight)
    return frames


def _build(
    batches: Batches, schemas: dict[int, pa.Schema], item_ids: Any, unlisted: str, duplicates: str,
    with_ids: bool,
) -> Batches:  # fmt: skip
    """The rows of a partition, coded and cut into chunks; or the error message."""
    use_own_cores()
    for number, tables in unpack_rows(batches, schemas):
        problem, n_users, n_units, chunks, ids = "", 0, 0, [b""], None
        try:
            partition, users = _encode(tables, item_ids, unlisted, duplicates)
            n_users, n_units, chunks = len(users), partition.n_units, list(partition.chunks())
            ids = ids_to_bytes(users) if with_ids else None
        except TrimtabError as error:
            problem = str(error)
        for place, row in enumerate(chunk_rows(number, chunks)):
            yield pa.RecordBatch.from_arrays(
                [
                    *row.columns, pa.array([n_users]), pa.array([n_units]), pa.array([problem]),
                    pa.array([None if place else ids], pa.binary()),
                ],
                names=[*row.schema.names, "users", "units", "problem", "ids"],
            )  # fmt: skip


def _encode(
    tables: dict[int, pa.Table], item_ids: Any, unlisted: str, duplicates: str
) -> tuple[Partition, Any]:
    """The tables of a partition, coded as by a local fit, and the ids of its users, ascending."""
    lists, sales = (
        Table(name, tables[kind], None, False)
        for name, kind in (("recs", _LIST), ("recent", _SALE))
    )
    units, (list_units, sale_units) = encode_units(lists, sales)
    known = as_id_column("all tables", ITEM, item_ids)
    _, (_, list_items, sale_items) = encode_ids([known, lists.ids(ITEM), sales.ids(ITEM)])
    coded = code_lists(lists, list_units, list_items, units, item_ids, unlisted, duplicates)
    bought = group_sets(sale_units, sale_items, len(units))
    weights = np.ones(len(units))
    if _WEIGHT in tables and len(tables[_WEIGHT]):
        weights = read_weights(tables[_WEIGHT], units, np.zeros(0, bool), "recs")
    windows = np.zeros(len(units), np.int32)
    if units.windows is not None and units.window_codes is not None:
        windows = np.asarray(take_ids(units.windows, units.window_codes)).astype(np.int32)
    users = units.user_codes.astype(np.int64)
    own = np.arange(len(units), dtype=np.int64)
    partition = Partition(coded, bought, weights, users, windows, own, np.empty(0, bool))
    return partition, units.users
