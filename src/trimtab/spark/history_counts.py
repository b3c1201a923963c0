"""Sales before each window, counted by Spark; the same counts as `learn.history`."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from trimtab.arrays import Floats
from trimtab.errors import DataError
from trimtab.learn.history import MONTH, NEVER, WEEK, History
from trimtab.learn.input_checks import check_same_clock, require_counts, warn_of_untimed_windows
from trimtab.spark.fit_session import FitSession
from trimtab.tables.columns import COUNT, ITEM, TIMESTAMP, USER, WINDOW
from trimtab.tables.frames import as_id_column
from trimtab.tables.ids import encode_ids, id_column
from trimtab.tables.timestamps import DAY

_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


def count_history_on_spark(session: FitSession) -> tuple[History, ...]:
    """Sales before each window; events that fall into a window are left out."""
    history, recent = session.tables.history, session.tables.recent
    if history is None:
        return ()
    if COUNT in history.columns:
        require_counts(float(history.agg(F.min(F.col(COUNT).cast("double"))).collect()[0][0]))
    n_windows = len(session.windows)
    if not (TIMESTAMP in history.columns and TIMESTAMP in recent.columns):
        warn_of_untimed_windows(n_windows)
        return (_count_before(session, history, None),) * n_windows
    zoned = [isinstance(f.schema[TIMESTAMP].dataType, T.TimestampType) for f in (history, recent)]
    check_same_clock(*zoned)
    by_day = _by_day(history)
    started = _window_starts(session, recent)
    first = min(started.values())
    found = []
    for code in range(n_windows):
        start = started.get(code, first)
        found.append(_count_before(session, history, start // DAY * DAY if by_day else start))
    return tuple(found)


def _count_before(session: FitSession, history: DataFrame, start: int | None) -> History:
    """Counts of the rows before an instant; of all rows without one."""
    timed = TIMESTAMP in history.columns
    if COUNT in history.columns:
        if timed and start is not None:
            history = history.where(_micros(history, "history") < start)
        summed = history.groupBy(ITEM).agg(F.sum(F.col(COUNT).cast("double")).alias("long"))
        return History(_by_item(session, summed, "long")["long"])
    known = USER in history.columns
    columns = [ITEM, *([USER] if known else [])]
    rows = history.select(*columns)
    if not timed:
        # Each event is on its own day.
        counts = [F.count(F.lit(1)).alias("long")]
        counts += [F.countDistinct(USER).alias("buyers")] if known else []
        found = _by_item(session, rows.groupBy(ITEM).agg(*counts), *(["long"] + ["buyers"] * known))
        return History(found["long"], found.get("buyers"))
    rows = history.select(*columns, _micros(history, "history").alias("time"))
    if start is None:
        start = int(rows.agg(F.max("time")).collect()[0][0]) + 1
    rows = rows.where(F.col("time") < start)
    rows = rows.withColumn("day", F.floor((F.lit(start - 1) - F.col("time")) / DAY))
    if known:
        rows = rows.select(ITEM, USER, "day").distinct()
    counts = [
        F.count(F.lit(1)).alias("long"),
        F.count_if(F.col("day") < MONTH).alias("month"),
        F.count_if(F.col("day") < WEEK).alias("week"),
        F.min("day").alias("since"),
    ]
    counts += [F.countDistinct(USER).alias("buyers")] if known else []
    names = ["long", "month", "week", "since", *(["buyers"] if known else [])]
    found = _by_item(session, rows.groupBy(ITEM).agg(*counts), *names)
    # As in the local count, `since` is at most NEVER.
    since = np.where(found["long"] > 0, np.minimum(found["since"], NEVER), NEVER)
    return History(found["long"], found.get("buyers"), found["month"], found["week"], since)


def _by_item(session: FitSession, counted: DataFrame, *names: str) -> dict[str, Floats]:
    """Columns of a table with one row per item, by item code; 0 for missing items."""

    def read() -> list[Any]:
        table = counted.toArrow()
        known = as_id_column("all tables", ITEM, session.item_ids)
        _, (_, codes) = encode_ids([known, id_column("history", ITEM, table[ITEM])])
        columns = np.zeros((len(names), len(session.item_ids)))
        for place, name in enumerate(names):
            columns[place, codes] = table[name].to_numpy()
        return [columns]

    (columns,) = session.checkpoint.recall("history", read)
    return dict(zip(names, columns, strict=True))


def _micros(frame: DataFrame, name: str) -> Column:
    """Timestamps as microseconds since 1970; those without a zone are taken as UTC."""
    kind = frame.schema[TIMESTAMP].dataType
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(TIMESTAMP)
    if isinstance(kind, T.TimestampNTZType):
        return F.expr(f"timestampdiff(MICROSECOND, {_EPOCH}, {TIMESTAMP})")
    if isinstance(kind, T.DateType):
        return F.unix_date(TIMESTAMP) * F.lit(DAY)
    raise DataError(
        f"column '{TIMESTAMP}' of {name} has type {kind.simpleString()}: it must be timestamps or "
        f"dates; cast the column"
    )


def _by_day(history: DataFrame) -> bool:
    """Whether timestamps are dates; sales on the first day then belong to the window."""
    odd = _micros(history, "history") % F.lit(DAY) != 0
    return int(history.agg(F.count_if(odd)).collect()[0][0]) == 0


def _window_starts(session: FitSession, recent: DataFrame) -> dict[int, int]:
    """The time of each window's first purchase."""
    time = F.min(_micros(recent, "recent"))
    if WINDOW not in recent.columns:
        return {0: int(recent.agg(time).collect()[0][0])}
    code_of = {label: code for code, label in enumerate(session.windows)}
    return {code_of[row[0]]: int(row[1]) for row in recent.groupBy(WINDOW).agg(time).collect()}
