"""What a Reranker needs on Spark: events as days before an instant, and its parts to send."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from trimtab.models import Reranker
from trimtab.models.events import choose_instant
from trimtab.models.reranker import RankingParts
from trimtab.spark.array_bytes import as_ids
from trimtab.spark.spark_frames import check_rows, microseconds_of, read_spark_frame
from trimtab.tables.columns import ITEM, TIMESTAMP, USER, WEIGHT
from trimtab.tables.times import DAY, as_datetime

DAYS = "days"  # before the instant; the column of numbers that events travel with


class SparkEvents(NamedTuple):
    """Events before an instant."""

    frame: DataFrame | None  # user_id, item_id, days
    instant: int  # in microseconds


def read_spark_events(
    reranker: Reranker, lists: DataFrame, history: Any, as_of: Any
) -> SparkEvents:
    """Events before an instant; refuses what `Reranker.apply` refuses.

    Args:
        reranker: that ranks.
        lists: checked, not empty.
        history: user_id, item_id, timestamp; or None.
        as_of: the instant; None for the end of what is known.
    """
    if history is None:
        return SparkEvents(None, choose_instant(as_of, np.empty(0, np.int64), reranker))
    ids = (USER, ITEM)
    events = read_spark_frame(history, "history", *ids, TIMESTAMP, ids=ids, optional=(WEIGHT,))
    weighted = (WEIGHT,) if WEIGHT in events.columns else ()
    if check_rows(events, "history", weighted, may_be_empty=True):
        reranker.count_left_out(lists.limit(1).toArrow(), _worst(events), as_of)
    time = microseconds_of(events, "history")
    if weighted:
        events = events.where(F.col(WEIGHT) > 0)
    instant = _choose_instant(reranker, events, time, as_of)
    before = F.lit(instant - 1) - time
    days = (before - before % F.lit(DAY)) / F.lit(DAY)  # whole
    return SparkEvents(events.where(time < instant).select(*ids, days.alias(DAYS)), instant)


def _worst(events: DataFrame) -> pa.Table:
    """One event, for the checks of a local table: with the weight that is wrong if one is."""
    if WEIGHT not in events.columns:
        return events.limit(1).toArrow()
    least = events.orderBy(WEIGHT).limit(1).toArrow()
    return (
        least if least[WEIGHT][0].as_py() < 0 else events.orderBy(F.desc(WEIGHT)).limit(1).toArrow()
    )


def _choose_instant(reranker: Reranker, events: DataFrame, time: Any, as_of: Any) -> int:
    found: list[Any] = []
    if as_of is None:
        by_day = events.groupBy(F.floor(time / F.lit(DAY)))
        found = by_day.agg(F.max(time), F.count(F.lit(1))).collect()
    times, counts = (np.array([row[place] for row in found], np.int64) for place in (1, 2))
    return choose_instant(as_of, times, reranker, counts)


def send_reranker(reranker: Reranker, lists: DataFrame) -> RankingParts:
    """The parts of a Reranker that knows the items on all lists."""
    if reranker.learned:
        listed = lists.select(ITEM).distinct().toArrow().column(ITEM)
        reranker = reranker.prepare(as_ids(listed))
    return RankingParts.of(reranker)


def as_moment(instant: int, reranker: Reranker) -> datetime:
    """An instant as the Reranker's tables have it: with or without a time zone."""
    moment = as_datetime(instant)
    return moment if reranker.has_zone else moment.replace(tzinfo=None)


def dated(events: pa.Table, instant: int, reranker: Reranker) -> pa.Table:
    """Events with timestamps, as many days before the instant."""
    days = events[DAYS].to_numpy().astype(np.int64)
    times = pa.array(instant - 1 - days * DAY).cast(
        pa.timestamp("us", tz="UTC" if reranker.has_zone else None)
    )
    return pa.table({USER: events[USER], ITEM: events[ITEM], TIMESTAMP: times})
