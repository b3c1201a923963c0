"""evaluate: metrics on Spark, by the local functions on the users of each partition.

Sums are fixed-point integers, so the means are the same for any partitions.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from trimtab.arrays import Floats
from trimtab.checks import METRICS, require_k
from trimtab.metrics import evaluation
from trimtab.metrics.hit_metrics import HIT_METRICS
from trimtab.spark.spark_frames import (
    batches_of_many_rows,
    check_rows,
    check_same_ids,
    read_spark_frame,
)
from trimtab.spark.user_batches import map_users, read_units, rows_with_tag, tag_rows
from trimtab.tables.columns import ITEM, RANK, SCORE, USER, WEIGHT, WINDOW

_TOPK, _TRUTH, _WEIGHTS = range(3)
_QUANTA = 2.0**43  # in the largest weight; sums over a batch of users stay below 2**63
_COUNTS = ("n_users", "n_skipped", "n_listed_buyers")
_MEANS = (*METRICS, *HIT_METRICS)
_SUMS = (*_MEANS, WEIGHT, *_COUNTS)


def evaluate(
    topk: Any, truth: Any, k: int = 10, weights: Any | None = None
) -> dict[str, float | int]:
    """Return the metrics of recommendations: the same means over users as `trimtab.evaluate`.

    Args:
        topk: user_id, item_id and rank (from 1), or score if there is no rank; rows beyond k do
            not count. Ties in rank or score go to the smaller item id.
        truth: user_id, item_id: what was bought; repeated rows count once.
        k: number of slots to evaluate.
        weights: user_id, weight; users not in it weigh 1.

    Returns:
        `acc`, `map`, `ndcg`, `hit_rate`, `recall` and `mrr` (means over users who bought
        something; those without a list count as 0), `n_users` (how many those are) and `n_skipped`
        (users with a list who bought nothing). Coverage, novelty, lifts and weights of purchases
        are for local tables only.
    """
    require_k(k)
    top, bought, order = _read_tables(topk, truth, k)
    rows = tag_rows(top, _TOPK, order).unionByName(tag_rows(bought, _TRUTH))
    heaviest = 1.0
    if weights is not None:
        weighed, heaviest = _read_weights(weights, top)
        rows = rows.unionByName(tag_rows(weighed, _WEIGHTS, WEIGHT), allowMissingColumns=True)
    job = partial(_sum_users, k=int(k), order=order, heaviest=heaviest)
    parts = map_users(rows, job, ", ".join(f"{name} long" for name in _SUMS), in_order=False)
    sums = [F.sum(F.col(name).cast("decimal(38,0)")).alias(name) for name in _SUMS]
    with batches_of_many_rows(rows.sparkSession):
        found = parts.agg(*sums).collect()[0]
    totals = {name: int(found[name]) for name in _SUMS}
    if not totals["n_listed_buyers"]:
        _compare_first_rows(top, bought, k)
    if not totals[WEIGHT]:
        _refuse_weights([0.0])
    means = {metric: totals[metric] / totals[WEIGHT] for metric in _MEANS}
    return {**means, "n_users": totals["n_users"], "n_skipped": totals["n_skipped"]}


def _read_tables(topk: Any, truth: Any, k: int) -> tuple[DataFrame, DataFrame, str]:
    """Lists, purchases, and the column that orders the lists."""
    found = read_spark_frame(topk, "topk", optional=(RANK,)).columns
    order = RANK if RANK in found else SCORE
    top, _ = read_units(topk, "topk", order)
    bought, _ = read_units(truth, "truth")
    check_rows(top, "topk", (order,))
    check_rows(bought, "truth")
    if (WINDOW in top.columns) != (WINDOW in bought.columns):
        _compare_first_rows(top, bought, k)
    for column in (c for c in (USER, WINDOW, ITEM) if c in bought.columns):
        check_same_ids(column, {"topk": top, "truth": bought})
    return top, bought, order


def _compare_first_rows(top: DataFrame, bought: DataFrame, k: int) -> None:
    """Let the local function refuse two tables that do not go together."""
    evaluation.evaluate(top.limit(1).toArrow(), bought.limit(1).toArrow(), k)


def _read_weights(weights: Any, top: DataFrame) -> tuple[DataFrame, float]:
    """The weights, checked, and the largest; at least 1, the weight of users without one."""
    weighed = read_spark_frame(weights, "weights", USER, WEIGHT, ids=(USER,))
    check_same_ids(USER, {"topk": top, "weights": weighed})
    check_rows(weighed, "weights", (WEIGHT,))
    weight = F.col(WEIGHT).cast("double")
    lowest, highest = weighed.agg(F.min(weight), F.max(weight)).collect()[0]
    if lowest < 0:
        _refuse_weights([lowest])
    counted = weighed.groupBy(USER).agg(F.count(F.lit(1)).alias("n")).filter(F.col("n") > 1)
    repeated = counted.orderBy(F.desc("n"), USER).limit(1).collect()
    if repeated:
        _refuse_weights([1.0, 1.0], repeated[0][USER])
    return weighed, max(1.0, float(highest))


def _refuse_weights(weights: list[float], user: Any = 0) -> None:
    """Let the local function refuse one user's weights."""
    pair = pa.table({USER: [user], ITEM: [0], RANK: [1]})
    users = [user] * len(weights)
    evaluation.evaluate(pair, pair, 1, pa.table({USER: users, WEIGHT: weights}))


def _sum_users(rows: pa.Table, k: int, order: str, heaviest: float) -> pa.Table:
    """Sums over the users in a table, as one row of integers."""
    topk, truth = rows_with_tag(rows, _TOPK, order), rows_with_tag(rows, _TRUTH)
    sums = dict.fromkeys(_SUMS, 0)
    if truth.num_rows:
        weights = _weights_of(truth, rows_with_tag(rows, _WEIGHTS, WEIGHT)) / heaviest
        sums |= _sum_metrics(topk, truth, weights, k)
    else:
        sums["n_skipped"] = _units(topk).num_rows
    return pa.table({name: pa.array([int(value)], pa.int64()) for name, value in sums.items()})


def _sum_metrics(topk: pa.Table, truth: pa.Table, weights: Floats, k: int) -> dict[str, int]:
    judged = evaluation.evaluate_units(topk, truth, k)
    buys = judged.metrics.n_relevant > 0
    listed = np.diff(judged.top.indptr) > 0
    found = judged.buyers()._asdict() | {n: v[buys] for n, v in judged.hit_metrics().items()}
    figures = {metric: found[metric] * weights for metric in _MEANS}
    sums = {name: _quantised(values) for name, values in {**figures, WEIGHT: weights}.items()}
    counts = {"n_users": buys, "n_skipped": ~buys, "n_listed_buyers": buys & listed}
    return sums | {name: int(np.count_nonzero(flags)) for name, flags in counts.items()}


def _quantised(values: Floats) -> int:
    return int(np.rint(values * _QUANTA).astype(np.int64).sum())


def _units(rows: pa.Table) -> pa.Table:
    """The different users, or (user, window) pairs, ascending."""
    ids = [column for column in (USER, WINDOW) if column in rows.column_names]
    return rows.group_by(ids).aggregate([]).sort_by([(column, "ascending") for column in ids])


def _weights_of(truth: pa.Table, weights: pa.Table) -> Floats:
    """The weight of each unit that bought something; 1 for users without one."""
    places = pc.index_in(_units(truth)[USER], weights[USER].combine_chunks())
    found: Floats = pc.fill_null(weights[WEIGHT].take(places), 1.0).to_numpy()
    return found
