"""Sales before each window and before now, counted by Spark; the same as `learn.history`."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from trimtab.arrays import Floats
from trimtab.learn.history import MONTH, NEVER, QUARTER, WEEK, Histories, History, days_in
from trimtab.learn.input_checks import check_same_clock, require_counts, warn_of_untimed_windows
from trimtab.spark.fit_session import FitSession
from trimtab.spark.spark_frames import microseconds_of
from trimtab.tables.columns import COUNT, ITEM, TIMESTAMP, USER, WINDOW
from trimtab.tables.frames import as_id_column
from trimtab.tables.ids import encode_ids, id_column
from trimtab.tables.timestamps import DAY


def count_histories_on_spark(session: FitSession) -> Histories:
    """Sales before each window and before now."""
    history, recent = session.tables.history, session.tables.recent
    if history is None:
        return Histories()
    if COUNT in history.columns:
        require_counts(float(history.agg(F.min(F.col(COUNT).cast("double"))).collect()[0][0]))
    n_windows = len(session.windows)
    if not (TIMESTAMP in history.columns and TIMESTAMP in recent.columns):
        warn_of_untimed_windows(n_windows)
        return Histories((_count_before(session, history, None),) * n_windows)
    zoned = [isinstance(f.schema[TIMESTAMP].dataType, T.TimestampType) for f in (history, recent)]
    check_same_clock(*zoned)
    started, last = _window_times(session, recent)
    first, newest = min(started.values()), max(started.values())
    starts = [started.get(code, first) for code in range(n_windows)]
    by_day = _by_day(history)
    if by_day:
        starts = [start // DAY * DAY for start in starts]
    days = days_in(newest, last)
    if COUNT in history.columns:
        before = tuple(_count_before(session, history, start) for start in starts)
        return Histories(before, window_days=days)
    sales = all_sales(history, recent, max(starts), newest)
    end = last + (DAY if by_day else 1)
    now = end // DAY * DAY if by_day else end
    *counted, until_now = (_count_visits(session, sales, time, days) for time in (*starts, now))
    return Histories(tuple(counted), until_now, days, tuple(starts), end)


def _count_before(session: FitSession, history: DataFrame, start: int | None) -> History:
    """Sales before an instant, of counts or of events without timestamps; all without one."""
    if COUNT in history.columns:
        if start is not None:
            history = history.where(microseconds_of(history, "history") < start)
        summed = history.groupBy(ITEM).agg(F.sum(F.col(COUNT).cast("double")).alias("long"))
        return History(_by_item(session, summed, "long")["long"])
    if TIMESTAMP in history.columns:
        rows = _sales(history, "history")
        return _count_visits(session, rows, int(rows.agg(F.max("time")).collect()[0][0]) + 1)
    # Each event is on its own day.
    counts = {"long": F.count(F.lit(1))}
    if USER in history.columns:
        counts["buyers"] = F.countDistinct(USER)
    found = _count_by_item(session, history, counts)
    return History(found["long"], found.get("buyers"))


def all_sales(history: DataFrame, recent: DataFrame, start: int, newest: int) -> DataFrame:
    """The history before the newest window, and the purchases of the windows.

    Args:
        history: events with timestamps.
        recent: purchases with timestamps.
        start: of the newest window; with dates, of its first day.
        newest: time of its first purchase.
    """
    before, after = _sales(history, "history"), _sales(recent, "recent")
    if USER not in history.columns:
        # Without users, earlier purchases would count twice.
        after = after.where(F.col("time") >= newest).drop(USER)
    return before.where(F.col("time") < start).unionByName(after)


def _sales(frame: DataFrame, name: str) -> DataFrame:
    columns = [ITEM, *([USER] if USER in frame.columns else [])]
    return frame.select(*columns, microseconds_of(frame, name).alias("time"))


def _count_visits(
    session: FitSession, sales: DataFrame, before: int, window_days: int = WEEK
) -> History:
    """Counts of the sales before an instant."""
    known = USER in sales.columns
    rows = sales.where(F.col("time") < before)
    rows = rows.withColumn("day", F.floor((F.lit(before - 1) - F.col("time")) / DAY)).drop("time")
    if known:
        rows = rows.distinct()
    horizons = {"quarter": QUARTER, "month": MONTH, "week": WEEK, "window": window_days}
    counts = {
        "long": F.count(F.lit(1)),
        **{name: F.count_if(F.col("day") < days) for name, days in horizons.items()},
        "since": F.min("day"),
        "age": F.max("day"),
    }
    if known:
        counts["buyers"] = F.countDistinct(USER)
    found = _count_by_item(session, rows, counts)
    # As in the local count, `since` is at most NEVER.
    since = np.where(found["long"] > 0, np.minimum(found["since"], NEVER), NEVER)
    return History(**{**found, "since": since})


def _count_by_item(
    session: FitSession, rows: DataFrame, counts: dict[str, Column]
) -> dict[str, Floats]:
    named = [count.alias(name) for name, count in counts.items()]
    return _by_item(session, rows.groupBy(ITEM).agg(*named), *counts)


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


def _by_day(history: DataFrame) -> bool:
    """Whether timestamps are dates; sales on the first day then belong to the window."""
    odd = microseconds_of(history, "history") % F.lit(DAY) != 0
    return int(history.agg(F.count_if(odd)).collect()[0][0]) == 0


def _window_times(session: FitSession, recent: DataFrame) -> tuple[dict[int, int], int]:
    """The time of each window's first purchase, and that of the last of all."""
    time = microseconds_of(recent, "recent")
    last = int(recent.agg(F.max(time)).collect()[0][0])
    if WINDOW not in recent.columns:
        return {0: int(recent.agg(F.min(time)).collect()[0][0])}, last
    code_of = {label: code for code, label in enumerate(session.windows)}
    found = recent.groupBy(WINDOW).agg(F.min(time)).collect()
    return {code_of[row[0]]: int(row[1]) for row in found}, last
