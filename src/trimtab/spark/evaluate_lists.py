"""evaluate: metrics on Spark, by the local functions on the users of each partition."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial, reduce
from operator import add
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from trimtab.checks import require_k
from trimtab.metrics.evaluation import Judged, finish, judge
from trimtab.metrics.event_weights import read_event_weights
from trimtab.spark.spark_frames import (
    batches_of_many_rows,
    check_rows,
    check_same_ids,
    read_spark_frame,
)
from trimtab.spark.user_batches import map_users, read_units, rows_with_tag, tag_rows
from trimtab.tables.columns import COUNT, ITEM, RANK, SCORE, USER, WEIGHT, WINDOW
from trimtab.tables.frames import Table, require_windows_in_all


def evaluate(
    topk: Any,
    truth: Any,
    k: int = 10,
    weights: Any | None = None,
    *,
    weight: str | None = None,
    baseline: Any | None = None,
    history: Any | None = None,
) -> dict[str, float | int]:
    """Return what `trimtab.evaluate` returns for the same tables, for any partitions.

    A few numbers of each user who bought something come to the driver, about 100 bytes before they
    are compressed; so do `weights`, and `history` if it has counts.

    Args:
        topk: user_id, item_id and rank (from 1), or score if there is no rank; rows beyond k do
            not count. Ties in rank or score go to the smaller item id. Like all tables here, a data
            frame or the name of a table.
        truth: user_id, item_id: what was bought; repeated rows count once.
        k: number of slots to evaluate.
        weights: user_id, weight; users not in it weigh 1.
        weight: a column of `truth` with the weight of each purchase.
        baseline: other lists for the same users, to compare with.
        history: earlier sales, one row each or with a column `count`, for novelty.
    """
    require_k(k)
    given = {"topk": topk} if baseline is None else {"topk": topk, "baseline": baseline}
    orders = {name: _order_of(frame, name) for name, frame in given.items()}
    frames = {name: _read_rows(frame, name, orders[name]) for name, frame in given.items()}
    frames["truth"] = _read_truth(truth, weight)
    require_windows_in_all({name: frame.columns for name, frame in frames.items()})
    for column in (c for c in (USER, WINDOW, ITEM) if c in frames["truth"].columns):
        check_same_ids(column, frames)
    by_user = None if weights is None else _read_weights(weights)
    sales = None if history is None else _read_history(history)
    values = {**orders, "truth": weight}
    tagged = [
        tag_rows(frames[name], tag, value) for tag, (name, value) in enumerate(values.items())
    ]
    rows = reduce(lambda some, more: some.unionByName(more), tagged)
    job = partial(_judge_users, k=int(k), values=values)
    with batches_of_many_rows(rows.sparkSession):
        parts = map_users(rows, job, "judged binary", in_order=False).toArrow()
    judged = reduce(add, (Judged.from_bytes(part.as_buffer()) for part in parts["judged"]))
    return finish(judged, by_user, sales)


def _judge_users(rows: pa.Table, k: int, values: Mapping[str, str | None]) -> pa.Table:
    """The users in a table, judged, as one row; `values` are the columns of values by table."""
    own = {n: rows_with_tag(rows, tag, value) for tag, (n, value) in enumerate(values.items())}
    truth = own.pop("truth")
    judged = judge(own, truth, k, values["truth"], is_part=True)
    return pa.table({"judged": pa.array([judged.to_bytes()], pa.binary())})


def _order_of(frame: Any, name: str) -> str:
    """The column that orders lists."""
    return RANK if RANK in read_spark_frame(frame, name, optional=(RANK,)).columns else SCORE


def _read_rows(frame: Any, name: str, *numbers: str) -> DataFrame:
    rows, _ = read_units(frame, name, *numbers)
    check_rows(rows, name, numbers)
    return rows


def _read_truth(truth: Any, weight: str | None) -> DataFrame:
    """The purchases that count."""
    if weight is None:
        return _read_rows(truth, "truth")
    rows = _read_rows(truth, "truth", weight)
    value = F.col(weight).cast("double")
    lowest, highest = rows.agg(F.min(value), F.max(value)).collect()[0]
    if lowest < 0 or highest == 0:
        refused = Table("truth", pa.table({weight: [lowest]}), None, False)
        read_event_weights(refused, weight)
    return rows.filter(value > 0)


def _read_weights(weights: Any) -> pa.Table:
    rows = read_spark_frame(weights, "weights", USER, WEIGHT, ids=(USER,))
    check_rows(rows, "weights", (WEIGHT,))
    return rows.toArrow()


def _read_history(history: Any) -> pa.Table:
    """Sales by item, or the rows if they have counts already."""
    sales = read_spark_frame(history, "history", ITEM, ids=(ITEM,), optional=(COUNT,))
    if COUNT not in sales.columns:
        sales = sales.groupBy(ITEM).agg(F.count(F.lit(1)).alias(COUNT))
    check_rows(sales, "history", (COUNT,))
    return sales.toArrow()
