"""apply: finished lists on Spark, by the local `apply` on the users of each partition."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from trimtab.checks import DUPLICATES, require_choice, require_k
from trimtab.errors import SettingError
from trimtab.models import ItemBias, Reranker
from trimtab.models.list_ranking import choose_depth
from trimtab.models.reranker import RankingParts
from trimtab.spark.reranker_events import (
    DAYS,
    as_moment,
    dated,
    read_spark_events,
    send_reranker,
)
from trimtab.spark.spark_frames import check_rows, check_same_ids, id_type, read_spark_frame
from trimtab.spark.user_batches import map_users, read_units, rows_with_tag, tag_rows
from trimtab.tables.columns import ITEM, RANK, SCORE, USER, WINDOW
from trimtab.tables.vocabulary import as_id_column, require_same_id_type

_LISTS, _EXCLUDE, _EVENTS = range(3)
_NARROW: dict[T.DataType, Any] = {
    T.ByteType(): np.int8,
    T.ShortType(): np.int16,
    T.IntegerType(): np.int32,
}


def apply(
    bias: ItemBias | Reranker,
    recs: Any,
    k: int = 10,
    *,
    history: Any | None = None,
    as_of: Any | None = None,
    exclude: Any | None = None,
    allowed: Any | None = None,
    duplicates: str = "error",
    depth: int | str | None = None,
) -> DataFrame:
    """Return the top k of every user: the same rows as `ItemBias.apply` or `Reranker.apply`.

    Tables are checked before they are used, so they are read more than once; cache a table that is
    expensive to compute.

    Args:
        bias: the biases, or a Reranker.
        recs: user_id, item_id, score (and window, if there are several): the engine's lists, as a
            data frame or the name of a table, like all tables here.
        k: slots per user; a user with fewer items gets fewer rows.
        history: for a Reranker: user_id, item_id, timestamp: what users bought before `as_of`. A
            user's lists and events meet on one partition. As locally, events at or after `as_of`,
            of users without a list and of unknown items are left out; here they are not counted,
            and there is no warning of them.
        as_of: for a Reranker: the instant that the lists are for, as for `Reranker.apply`.
        exclude: user_id, item_id: pairs that must not be shown.
        allowed: item_id: if given, only these are shown. Collected on the driver.
        duplicates: what to do if `recs` has a (user, item) pair twice: "error", or merge the scores
            by "max", "mean" or "sum". "error" shuffles `recs` to find them; if you know that there
            are none, "max" gives the same lists without the shuffle.
        depth: number of items, the best of each list, that are re-ranked; "all" for whole lists.
            By default it is the depth of the lists that the biases were learned on, without the
            warning of `ItemBias.apply` for deeper lists.

    Returns:
        user_id, item_id, score (with bias), rank (from 1); ids keep their types. Partitions are in
        the order of users, rows in the order of users and ranks.
    """
    table = bias.bias if isinstance(bias, Reranker) else bias
    require_k(k)
    require_choice("duplicates", duplicates, DUPLICATES)
    choose_depth(table, depth)
    _refuse_events(bias, history, as_of)
    lists, kinds = read_units(recs, "recs", SCORE)
    check_rows(lists, "recs", (SCORE,))
    require_same_id_type(
        [id_type(lists, "recs", ITEM), as_id_column("the bias table", ITEM, table.item_ids)]
    )
    _check_lists(table, lists, duplicates)
    rows = tag_rows(lists, _LISTS, SCORE)
    if exclude is not None:
        rows = rows.unionByName(_read_excluded(exclude, lists), allowMissingColumns=True)
    shown = None if allowed is None else _read_allowed(allowed, lists)
    options = {"k": int(k), "allowed": shown, "duplicates": duplicates, "depth": depth}
    job: Any = partial(_apply_to_users, bias=table, options=options)
    adds = table.unlisted == "zero"
    if isinstance(bias, Reranker):
        events = read_spark_events(bias, lists, history, as_of)
        if events.frame is not None:
            marked = tag_rows(events.frame, _EVENTS, DAYS)
            rows = rows.unionByName(marked, allowMissingColumns=True)
        adds, parts = bool(bias.sources), send_reranker(bias, lists)
        job = partial(_rerank_users, parts=parts, instant=events.instant, options=options)
    kinds[ITEM] = _item_type(kinds[ITEM], table, adds)
    columns = [column for column in (USER, WINDOW, ITEM) if column in lists.columns]
    schema = [f"`{c}` {lists.schema[c].dataType.simpleString()}" for c in columns]
    schema += [f"{SCORE} double", f"{RANK} bigint"]
    top = map_users(rows, job, ", ".join(schema))
    return top.select(*(_original(column, kinds[column]) for column in columns), SCORE, RANK)


def _refuse_events(bias: ItemBias | Reranker, history: Any, as_of: Any) -> None:
    """Raise if events are given to biases, which know nothing of them."""
    for name, given in (("history", history), ("as_of", as_of)):
        if given is not None and not isinstance(bias, Reranker):
            raise SettingError(f"{name} is given, but only a Reranker uses it; leave it out")


def _check_lists(bias: ItemBias, lists: DataFrame, duplicates: str) -> None:
    """Refuse what `ItemBias.apply` refuses, by passing it the rows at fault."""
    if bias.unlisted == "zero":
        bias.apply(lists.orderBy(SCORE).limit(1).toArrow(), 1)
    if duplicates == "error":
        ids = [column for column in (USER, WINDOW, ITEM) if column in lists.columns]
        counted = lists.groupBy(*ids).agg(F.count(F.lit(1)).alias("n"), F.max(SCORE).alias(SCORE))
        repeated = counted.filter(F.col("n") > 1).orderBy(*ids).limit(1).drop("n").toArrow()
        if repeated.num_rows:
            bias.apply(pa.concat_tables([repeated, repeated]), 1)


def _read_excluded(exclude: Any, lists: DataFrame) -> DataFrame:
    pairs = read_spark_frame(exclude, "exclude", USER, ITEM, ids=(USER, ITEM))
    for column in (USER, ITEM):
        check_same_ids(column, {"recs": lists, "exclude": pairs})
    check_rows(pairs, "exclude", may_be_empty=True)
    return tag_rows(pairs, _EXCLUDE)


def _read_allowed(allowed: Any, lists: DataFrame) -> pa.Table:
    items = read_spark_frame(allowed, "allowed", ITEM, ids=(ITEM,))
    check_same_ids(ITEM, {"recs": lists, "allowed": items})
    check_rows(items, "allowed")
    return items.distinct().toArrow()


def _item_type(kind: T.DataType, bias: ItemBias, adds: bool) -> T.DataType:
    """The original type of item ids, or long if items that do not fit it may be added."""
    if kind not in _NARROW or not adds or len(bias) == 0:
        return kind
    limits = np.iinfo(_NARROW[kind])
    fits = limits.min <= bias.item_ids[0] and bias.item_ids[-1] <= limits.max
    return kind if fits else T.LongType()


def _apply_to_users(rows: pa.Table, bias: ItemBias, options: dict[str, Any]) -> pa.Table | None:
    lists = rows_with_tag(rows, _LISTS, SCORE)
    if lists.num_rows == 0:
        return None
    return bias.apply(lists, exclude=rows_with_tag(rows, _EXCLUDE), **options)


def _rerank_users(
    rows: pa.Table, parts: RankingParts, instant: int, options: dict[str, Any]
) -> pa.Table | None:
    lists = rows_with_tag(rows, _LISTS, SCORE)
    if lists.num_rows == 0:
        return None
    reranker = parts.build()
    events = rows_with_tag(rows, _EVENTS, DAYS)
    return reranker.rank(
        lists, history=dated(events, instant, reranker), as_of=as_moment(instant, reranker),
        exclude=rows_with_tag(rows, _EXCLUDE), **options,
    ).top  # fmt: skip


def _original(column: str, kind: T.DataType) -> Column:
    """Ids in their original type."""
    instant = column == WINDOW and isinstance(kind, T.TimestampType)
    found = F.timestamp_micros(column) if instant else F.col(column).cast(kind)
    return found.alias(column)
