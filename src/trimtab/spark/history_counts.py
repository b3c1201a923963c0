"""Sales before each window and before now, counted by Spark; the same as `learn.history`."""

from __future__ import annotations

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from trimtab.arrays import Floats
from trimtab.learn.history import MONTH, NEVER, QUARTER, WEEK, Histories, History
from trimtab.learn.input_checks import check_same_clock, require_counts
from trimtab.learn.partitions.part_histories import LogTimes, PartCounts, join_counts
from trimtab.learn.sales_log import window_end, window_start
from trimtab.spark.fit_session import FitSession
from trimtab.spark.sales_by_user import TIME, count_by_user, sales_of
from trimtab.spark.spark_frames import log_seconds, microseconds_of
from trimtab.tables.columns import COUNT, ITEM, TIMESTAMP, USER, WINDOW
from trimtab.tables.times import DAY
from trimtab.tables.vocabulary import as_id_column, encode_ids, id_column


def count_histories_on_spark(session: FitSession) -> Histories:
    """Sales before each window and before now."""
    history, n_windows = session.tables.history, len(session.windows)
    if history is None:
        return Histories()
    if COUNT in history.columns:
        require_counts(float(history.agg(F.min(F.col(COUNT).cast("double"))).collect()[0][0]))
    times = _read_times(session)
    if COUNT in history.columns:
        starts = [window_start(start, times.by_day) for start in times.starts]
        before = [_sum_counts(session, history, start) for start in (*starts,) or (None,)]
        if times.timed:
            return Histories(tuple(before))
        counted = PartCounts(before, 0)
    elif USER in history.columns:
        counted = count_by_user(session, times)
    else:
        counted = PartCounts(_count_unknown_users(session, history, times), 0)
    return join_counts(counted, times, n_windows)


def _sum_counts(session: FitSession, history: DataFrame, start: int | None) -> History:
    """Sums of counts before an instant; of all without one."""
    if start is not None:
        history = history.where(microseconds_of(history, "history") < start)
    summed = history.groupBy(ITEM).agg(F.sum(F.col(COUNT).cast("double")).alias("long"))
    return History(_by_item(session, summed, "long")["long"])


def _count_unknown_users(session: FitSession, history: DataFrame, times: LogTimes) -> list[History]:
    """Sales before each window and before now, or all if times are missing."""
    if not times.timed:
        if TIMESTAMP in history.columns:
            return [_count_before(session, sales_of(history, "history"), times.latest + 1)]
        # Each event is on its own day.
        return [History(_count_by_item(session, history, {"long": F.count(F.lit(1))})["long"])]
    before = F.col(TIME) < window_start(times.newest, times.by_day)
    after = sales_of(session.tables.recent, "recent").drop(USER)
    # Purchases of earlier windows would count twice.
    sales = (
        sales_of(history, "history")
        .where(before)
        .unionByName(after.where(F.col(TIME) >= times.newest))
    )
    instants = (*times.starts, window_end(times.last, times.by_day))
    return [
        _count_before(session, sales, window_start(instant, times.by_day), times.window_days)
        for instant in instants
    ]


def _count_before(
    session: FitSession, sales: DataFrame, before: int, window_days: int = WEEK
) -> History:
    """Counts of the sales before an instant."""
    day = F.floor((F.lit(before - 1) - F.col(TIME)) / DAY)
    rows = sales.where(F.col(TIME) < before).select(ITEM, day.alias("day"))
    horizons = {"quarter": QUARTER, "month": MONTH, "week": WEEK, "window": window_days}
    counts = {
        "long": F.count(F.lit(1)),
        **{name: F.count_if(F.col("day") < days) for name, days in horizons.items()},
        "since": F.min("day"),
        "age": F.max("day"),
    }
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
    with log_seconds("sales counted"):
        table = counted.toArrow()
    known = as_id_column("all tables", ITEM, session.item_ids)
    _, (_, codes) = encode_ids([known, id_column("history", ITEM, table[ITEM])])
    columns = {name: np.zeros(len(session.item_ids)) for name in names}
    for name, column in columns.items():
        column[codes] = table[name].to_numpy()
    return columns


def _read_times(session: FitSession) -> LogTimes:
    """The times of purchases and history that must be known before sales are counted."""
    history, recent = session.tables.history, session.tables.recent
    assert history is not None
    if TIMESTAMP not in history.columns:
        return LogTimes(False, False, (), 0, -1)
    time = microseconds_of(history, "history")
    odd = F.count_if(time % F.lit(DAY) != 0)  # timestamps are dates if there are none
    latest, n_odd = history.agg(F.max(time), odd).collect()[0]
    if TIMESTAMP not in recent.columns:
        return LogTimes(False, n_odd == 0, (), 0, int(latest))
    zoned = [isinstance(f.schema[TIMESTAMP].dataType, T.TimestampType) for f in (history, recent)]
    check_same_clock(*zoned)
    started, last = _window_times(session, recent)
    first = min(started.values())
    starts = tuple(started.get(code, first) for code in range(len(session.windows)))
    return LogTimes(True, n_odd == 0, starts, last, int(latest))


def _window_times(session: FitSession, recent: DataFrame) -> tuple[dict[int, int], int]:
    """The time of each window's first purchase, and that of the last of all."""
    time = microseconds_of(recent, "recent")
    last = int(recent.agg(F.max(time)).collect()[0][0])
    if WINDOW not in recent.columns:
        return {0: int(recent.agg(F.min(time)).collect()[0][0])}, last
    code_of = {label: code for code, label in enumerate(session.windows)}
    found = recent.groupBy(WINDOW).agg(F.min(time)).collect()
    return {code_of[row[0]]: int(row[1]) for row in found}, last
