"""Biased lists and their figures on Spark: the local functions, run on whole users."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from trimtab.arrays import Floats
from trimtab.checks import DUPLICATES, METRICS, require_choice, require_k
from trimtab.errors import TrimtabWarning
from trimtab.metrics import evaluation
from trimtab.spark.data_frames import (
    Batches,
    check_rows,
    check_same_ids,
    map_arrow,
    read_frame,
    use_own_cores,
)
from trimtab.tables.columns import ITEM, RANK, SCORE, USER, WEIGHT, WINDOW
from trimtab.tables.frames import known_ids
from trimtab.tables.ids import IdColumn, check_same_kind

if TYPE_CHECKING:
    from trimtab.bias import ItemBias

_BATCH_ROWS = 2**19  # that a worker takes at once, besides those of a user not yet complete
_TAG = "tag"  # which table a row is of
_VALUE = "value"
_TOPK, _TRUTH, _WEIGHTS, _EXCLUDE = range(4)
_BITS = 53  # of a float
_HALF = 26  # they are summed in two halves, so that sums of 2^36 floats fit 64 bits
_SUMS = {"figure": "string", "exponent": "int", "high": "bigint", "low": "bigint"}
_NARROW: dict[T.DataType, Any] = {
    T.ByteType(): np.int8,
    T.ShortType(): np.int16,
    T.IntegerType(): np.int32,
}


def apply(
    bias: ItemBias,
    recs: Any,
    k: int = 10,
    *,
    exclude: Any | None = None,
    allowed: Any | None = None,
    duplicates: str = "error",
) -> DataFrame:
    """The top k of every user with the biases added: what `ItemBias.apply` gives, on Spark.

    Tables are read more than once, to be checked first; cache what is costly to make.

    Args:
        bias: the biases.
        recs: user_id, item_id, score (and window, if there are several): the engine's lists, as a
            data frame or the name of a table, like all tables here.
        k: places per user; a user with fewer items gets fewer rows.
        exclude: user_id, item_id: pairs that must not be shown.
        allowed: item_id: if given, nothing else is shown. Collected on the driver.
        duplicates: what to do when `recs` has a (user, item) twice: "error", or merge the scores
            by "max", "mean" or "sum". Looking for them costs a shuffle of `recs`; where there
            are none, "max" gives the same lists without it.

    Returns:
        user_id, item_id, score (with bias), rank (from 1), ids in the types they came in.
        Partitions follow the order of users, and rows that of users and ranks.
    """
    require_k(k)
    require_choice("duplicates", duplicates, DUPLICATES)
    lists, kinds = _read_units(recs, "recs", SCORE)
    check_rows(lists, "recs", (SCORE,))
    check_same_kind([_kind_of(lists, "recs"), known_ids("the bias table", ITEM, bias.item_ids)])
    _check_lists(bias, lists, duplicates)
    rows = _tagged(lists, _TOPK, SCORE)
    if exclude is not None:
        rows = rows.unionByName(_read_excluded(exclude, lists), allowMissingColumns=True)
    shown = None if allowed is None else _read_allowed(allowed, lists)
    columns = [column for column in (USER, WINDOW, ITEM) if column in lists.columns]
    schema = [f"`{c}` {lists.schema[c].dataType.simpleString()}" for c in columns]
    schema += [f"{SCORE} double", f"{RANK} bigint"]
    job = partial(_apply_to, bias=bias, k=int(k), allowed=shown, duplicates=duplicates)
    top = map_users(rows, job, ", ".join(schema))
    kinds[ITEM] = _fitting(kinds[ITEM], bias)
    return top.select(*(_as_given(column, kinds[column]) for column in columns), SCORE, RANK)


def evaluate(
    topk: Any, truth: Any, k: int = 10, weights: Any | None = None
) -> dict[str, float | int]:
    """ACC@k, MAP@k and NDCG@k of recommendations: what `trimtab.evaluate` gives, on Spark.

    Sums are exact, so the figures are the same for any partitions.

    Args:
        topk: user_id, item_id and rank (from 1), or score where there is no rank; rows beyond k do
            not count. Ties in rank or score go to the smaller item id.
        truth: user_id, item_id: what was bought; repeated rows count once.
        k: places that count.
        weights: user_id, weight; users not in it weigh 1.

    Returns:
        `acc`, `map`, `ndcg` (means over users who bought something; those without a list count as
        0), `n_users` (how many those are) and `n_skipped` (users with a list who bought nothing).
    """
    require_k(k)
    top, bought, height = _read_judged(topk, truth, k)
    rows = _tagged(top, _TOPK, height).unionByName(_tagged(bought, _TRUTH))
    if weights is not None:
        weighed = _read_weights(weights, top)
        rows = rows.unionByName(_tagged(weighed, _WEIGHTS, WEIGHT), allowMissingColumns=True)
    job = partial(_judge, k=int(k), height=height)
    schema = ", ".join(f"{name} {kind}" for name, kind in _SUMS.items())
    totals = _add_up(map_users(rows, job, schema, in_order=False))
    if not totals["n_shared"]:
        _compare_first(top, bought, k)
    if not totals[WEIGHT]:
        _refuse_weights([0.0])
    means = {metric: float(totals[metric] / totals[WEIGHT]) for metric in METRICS}
    return {**means, "n_users": int(totals["n_users"]), "n_skipped": int(totals["n_skipped"])}


def map_users(
    frame: DataFrame,
    function: Callable[[pa.Table], pa.Table | None],
    schema: str,
    in_order: bool = True,
    then: tuple[str, ...] = (),
) -> DataFrame:
    """Run a function on Arrow tables that hold all rows of the users in them.

    Args:
        frame: has a column user_id.
        function: takes a table, sorted by user, and gives one, or None.
        schema: of what it gives.
        in_order: whether partitions must follow the order of users; that costs one look at the
            frame more.
        then: columns to sort by, after users.
    """
    placed = frame.repartitionByRange(F.col(USER)) if in_order else frame.repartition(F.col(USER))
    placed = placed.sortWithinPartitions(USER, *then)
    return map_arrow(placed, partial(_run_on_users, function=function), schema)


def _run_on_users(batches: Batches, function: Callable[[pa.Table], pa.Table | None]) -> Batches:
    use_own_cores()
    for rows in _whole_users(batches):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrimtabWarning)  # of these users, not of all
            found = function(rows)
        if found is not None:
            yield from found.to_batches()


def _whole_users(batches: Batches) -> Iterator[pa.Table]:
    """Rows sorted by user, in tables of bounded size that end where a user does."""
    held: list[pa.RecordBatch] = []
    n_rows = 0
    for batch in batches:
        held.append(batch)
        n_rows += batch.num_rows
        if n_rows >= _BATCH_ROWS:
            table = pa.Table.from_batches(held)
            unfinished = pc.sum(pc.equal(table[USER], table[USER][-1])).as_py()
            n_rows = unfinished
            if unfinished < table.num_rows:
                yield table.slice(0, table.num_rows - unfinished)
            held = table.slice(table.num_rows - unfinished).to_batches()
    if n_rows:
        yield pa.Table.from_batches(held)


def _read_units(frame: Any, name: str, *numbers: str) -> tuple[DataFrame, dict[str, T.DataType]]:
    """Rows with ids as long or string, and the types that the ids came in."""
    given = read_frame(frame, name, USER, ITEM, *numbers, optional=(WINDOW,))
    kinds = {field.name: field.dataType for field in given.schema.fields}
    if WINDOW in kinds:
        given = given.withColumn(WINDOW, _window_label(kinds[WINDOW]))
    ids = (USER, ITEM, WINDOW)
    return read_frame(given, name, *given.columns, ids=ids), kinds


def _window_label(kind: T.DataType) -> Column:
    """Windows as they are, dates as text, instants as whole numbers: all sort as they did."""
    window = F.col(WINDOW)
    if isinstance(kind, T.DateType):
        return window.cast("string")
    if isinstance(kind, T.TimestampNTZType):  # that of a date for midnight
        return F.regexp_replace(window.cast("string"), " 00:00:00$", "")
    return F.unix_micros(window) if isinstance(kind, T.TimestampType) else window


def _as_given(column: str, kind: T.DataType) -> Column:
    """Ids in the type that they came in."""
    instant = column == WINDOW and isinstance(kind, T.TimestampType)
    found = F.timestamp_micros(column) if instant else F.col(column).cast(kind)
    return found.alias(column)


def _kind_of(frame: DataFrame, name: str) -> IdColumn:
    whole = isinstance(frame.schema[ITEM].dataType, T.LongType)
    return IdColumn(name, ITEM, np.empty(0, np.int64) if whole else pa.chunked_array([[""]]))


def _tagged(frame: DataFrame, tag: int, value: str | None = None) -> DataFrame:
    number = F.lit(None) if value is None else F.col(value)
    ids = [column for column in (USER, WINDOW, ITEM) if column in frame.columns]
    return frame.select(*ids, number.cast("double").alias(_VALUE), F.lit(tag).alias(_TAG))


def _untagged(rows: pa.Table, tag: int, value: str | None = None) -> pa.Table:
    found = rows.filter(pc.equal(rows[_TAG], tag)).drop_columns([_TAG])
    if value is None:
        return found.drop_columns([_VALUE])
    return found.rename_columns([value if c == _VALUE else c for c in found.column_names])


# Biased lists ------------------------------------------------------------------------------------


def _check_lists(bias: ItemBias, lists: DataFrame, duplicates: str) -> None:
    """Refuse what `ItemBias.apply` refuses: it is given the row at fault, and says why."""
    if bias.unlisted == "zero":
        bias.apply(lists.orderBy(SCORE).limit(1).toArrow(), 1)
    if duplicates == "error":
        ids = [column for column in (USER, WINDOW, ITEM) if column in lists.columns]
        counted = lists.groupBy(*ids).agg(F.count(F.lit(1)).alias("n"), F.max(SCORE).alias(SCORE))
        repeated = counted.filter(F.col("n") > 1).orderBy(*ids).limit(1).drop("n").toArrow()
        if repeated.num_rows:
            bias.apply(pa.concat_tables([repeated, repeated]), 1)


def _read_excluded(exclude: Any, lists: DataFrame) -> DataFrame:
    pairs = read_frame(exclude, "exclude", USER, ITEM, ids=(USER, ITEM))
    for column in (USER, ITEM):
        check_same_ids(column, {"recs": lists, "exclude": pairs})
    check_rows(pairs, "exclude", may_be_empty=True)
    return _tagged(pairs, _EXCLUDE)


def _read_allowed(allowed: Any, lists: DataFrame) -> pa.Table:
    items = read_frame(allowed, "allowed", ITEM, ids=(ITEM,))
    check_same_ids(ITEM, {"recs": lists, "allowed": items})
    check_rows(items, "allowed")
    return items.distinct().toArrow()


def _fitting(kind: T.DataType, bias: ItemBias) -> T.DataType:
    """The type that item ids came in, or long where biases bring in items beyond it."""
    if kind not in _NARROW or bias.unlisted != "zero" or len(bias) == 0:
        return kind
    limits = np.iinfo(_NARROW[kind])
    fits = limits.min <= bias.item_ids[0] and bias.item_ids[-1] <= limits.max
    return kind if fits else T.LongType()


def _apply_to(
    rows: pa.Table, bias: ItemBias, k: int, allowed: pa.Table | None, duplicates: str
) -> pa.Table | None:
    lists = _untagged(rows, _TOPK, SCORE)
    if lists.num_rows == 0:
        return None
    hidden = _untagged(rows, _EXCLUDE)
    return bias.apply(lists, k, exclude=hidden, allowed=allowed, duplicates=duplicates)


# Figures -----------------------------------------------------------------------------------------


def _read_judged(topk: Any, truth: Any, k: int) -> tuple[DataFrame, DataFrame, str]:
    """Lists, purchases, and the column that lists are ordered by."""
    found = read_frame(topk, "topk", optional=(RANK,)).columns
    height = RANK if RANK in found else SCORE
    top, _ = _read_units(topk, "topk", height)
    bought, _ = _read_units(truth, "truth")
    check_rows(top, "topk", (height,))
    check_rows(bought, "truth")
    if (WINDOW in top.columns) != (WINDOW in bought.columns):
        _compare_first(top, bought, k)
    for column in (c for c in (USER, WINDOW, ITEM) if c in bought.columns):
        check_same_ids(column, {"topk": top, "truth": bought})
    return top, bought, height


def _compare_first(top: DataFrame, bought: DataFrame, k: int) -> None:
    """Let the local function say why two tables do not go together."""
    evaluation.evaluate(top.limit(1).toArrow(), bought.limit(1).toArrow(), k)


def _read_weights(weights: Any, top: DataFrame) -> DataFrame:
    weighed = read_frame(weights, "weights", USER, WEIGHT, ids=(USER,))
    check_same_ids(USER, {"topk": top, "weights": weighed})
    check_rows(weighed, "weights", (WEIGHT,))
    lowest = weighed.agg(F.min(F.col(WEIGHT).cast("double"))).collect()[0][0]
    if lowest < 0:
        _refuse_weights([lowest])
    counted = weighed.groupBy(USER).agg(F.count(F.lit(1)).alias("n")).filter(F.col("n") > 1)
    repeated = counted.orderBy(F.desc("n"), USER).limit(1).collect()
    if repeated:
        _refuse_weights([1.0, 1.0], repeated[0][USER])
    return weighed


def _refuse_weights(weights: list[float], user: Any = 0) -> None:
    """Let the local function say what is wrong with one user's weights."""
    pair = pa.table({USER: [user], ITEM: [0], RANK: [1]})
    users = [user] * len(weights)
    evaluation.evaluate(pair, pair, 1, pa.table({USER: users, WEIGHT: weights}))


def _judge(rows: pa.Table, k: int, height: str) -> pa.Table:
    """Sums over the users in a table, in parts that `_add_up` adds."""
    topk, truth = _untagged(rows, _TOPK, height), _untagged(rows, _TRUTH)
    if truth.num_rows:
        figures = _sum_metrics(topk, truth, _untagged(rows, _WEIGHTS, WEIGHT), k)
    else:
        figures = {"n_skipped": np.array([float(_units(topk).num_rows)])}
    parts = [_part(name, values) for name, values in figures.items()]
    return pa.concat_tables(parts)


def _sum_metrics(topk: pa.Table, truth: pa.Table, weights: pa.Table, k: int) -> dict[str, Floats]:
    """What is to be summed, by name."""
    judged = evaluation.judge_units(topk, truth, k)
    bought = judged.metrics.n_relevant > 0
    listed = np.diff(judged.top.indptr) > 0
    found = judged.buyers()
    partitions = _shares(truth, weights)
    counts = {
        "n_users": np.count_nonzero(bought),
        "n_skipped": np.count_nonzero(~bought),
        "n_shared": np.count_nonzero(bought & listed),
    }
    figures = {metric: getattr(found, metric) * partitions for metric in METRICS}
    figures |= {name: np.array([float(count)]) for name, count in counts.items()}
    return {**figures, WEIGHT: partitions}


def _units(rows: pa.Table) -> pa.Table:
    """The different users, or (user, window) pairs, ascending."""
    ids = [column for column in (USER, WINDOW) if column in rows.column_names]
    return rows.group_by(ids).aggregate([]).sort_by([(column, "ascending") for column in ids])


def _shares(truth: pa.Table, weights: pa.Table) -> Floats:
    """The weight of each unit that bought something; 1 for users without one."""
    places = pc.index_in(_units(truth)[USER], weights[USER].combine_chunks())
    partitions: Floats = pc.fill_null(weights[WEIGHT].take(places), 1.0).to_numpy()
    return partitions


def _part(name: str, values: Floats) -> pa.Table:
    """An exact sum of floats: whole numbers by exponent, which add up the same in any order."""
    fractions, exponents = np.frexp(values)
    whole = (fractions * 2.0**_BITS).astype(np.int64)
    distinct, places = np.unique(exponents, return_inverse=True)
    high, low = np.zeros((2, len(distinct)), np.int64)
    np.add.at(high, places, whole >> _HALF)
    np.add.at(low, places, whole & (2**_HALF - 1))
    names = pa.array([name] * len(distinct), pa.string())
    columns = [names, pa.array(distinct.astype(np.int32)), pa.array(high), pa.array(low)]
    return pa.table(columns, names=list(_SUMS))


def _add_up(parts: DataFrame) -> dict[str, Fraction]:
    """The sums themselves, by name."""
    figure, exponent, high, low = _SUMS
    summed = parts.groupBy(figure, exponent).agg(F.sum(high).alias(high), F.sum(low).alias(low))
    totals: dict[str, Fraction] = defaultdict(Fraction)
    for row in summed.collect():
        whole = row[high] * 2**_HALF + row[low]
        totals[row[figure]] += whole * Fraction(2) ** (row[exponent] - _BITS)
    return totals
