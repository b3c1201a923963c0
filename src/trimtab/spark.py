"""Fits, lists and metrics on Apache Spark: the local functions run on partitions of the users."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from trimtab import from_parts
from trimtab.checks import require_whole
from trimtab.errors import TrimtabError
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.models import ItemBias, Model, Reranker
from trimtab.models.applying import item_type, look_ahead, look_at, rank_part
from trimtab.progress import Progress
from trimtab.tables.columns import ITEM, RANK, SCORE, USER, WINDOW

try:
    from pyspark.sql import DataFrame
except ImportError as error:
    raise TrimtabError("Spark support is not installed: pip install trimtab[spark]") from error

from trimtab.parts.spark import SparkTable, open_spark

__all__ = ["apply", "evaluate", "fit"]


def fit(
    learner: BiasLearner | RerankLearner, recs: Any, recent: Any, *, history: Any | None = None,
    items: Any | None = None, weights: Any | None = None, start: ItemBias | None = None,
    duplicates: str = "error", progress: bool | Progress | None = None,
    partitions: int | None = None,
) -> ItemBias | Reranker:  # fmt: skip
    """Return what the learner's own `fit` returns for the same tables, to the byte.

    All users are counted in Spark's partitions; the units that are learned from come to the driver:
    lists with 60 million entries at most.

    Args:
        learner: the settings, a `BiasLearner` or a `RerankLearner`.
        recs: user_id, item_id, score; like all tables here, a data frame or the name of a table.
        recent: user_id, item_id; for a Reranker also timestamp.
        history: sales before the window; for a Reranker user_id, item_id, timestamp. Counts of
            items, and events without users, are read into the driver's memory.
        items: item_id, category; read into the driver's memory.
        weights: user_id, weight.
        start: biases to start from; not for a Reranker.
        duplicates: what to do when `recs` has a (user, item) pair twice.
        progress: as for `BiasLearner.fit`.
        partitions: number of partitions to divide the users into; the result does not depend on it.
    """
    return from_parts.fit(
        SparkTable, _divide_into(partitions), learner, start, duplicates, progress,
        recs=recs, recent=recent, history=history, items=items, weights=weights,
    )  # fmt: skip


def apply(
    model: Model, recs: Any, k: int = 10, *, history: Any | None = None, as_of: Any | None = None,
    exclude: Any | None = None, allowed: Any | None = None, duplicates: str = "error",
    depth: int | str | None = None, partitions: int | None = None,
) -> DataFrame:  # fmt: skip
    """Return the top k of every user: the same rows as `ItemBias.apply` or `Reranker.apply`.

    Tables are checked before they are used, so they are read more than once; cache a table that is
    expensive to compute.

    Args:
        model: the biases, or a Reranker.
        recs: user_id, item_id, score (and window, if there are several): the engine's lists, as a
            data frame or the name of a table, like all tables here.
        k: slots per user; a user with fewer items gets fewer rows.
        history: for a Reranker: user_id, item_id, timestamp: what users bought before `as_of`. As
            locally, events at or after `as_of`, of users without a list and of unknown items are
            left out; here they are not counted, and there is no warning of them.
        as_of: for a Reranker: the instant that the lists are for, as for `Reranker.apply`.
        exclude: user_id, item_id: pairs that must not be shown.
        allowed: item_id: if given, only these are shown. Collected on the driver.
        duplicates: what to do if `recs` has a (user, item) pair twice: "error", or merge the scores
            by "max", "mean" or "sum".
        depth: number of items, the best of each list, that are re-ranked; "all" for whole lists.
            By default it is the depth of the lists that the biases were learned on, without the
            warning of `ItemBias.apply` for deeper lists.
        partitions: number of partitions to divide the users into; the rows do not depend on it.

    Returns:
        user_id, item_id, score (with bias), rank (from 1); ids keep their types. Partitions are in
        the order of users, rows in the order of users and ranks.
    """
    divide = _divide_into(partitions)
    if allowed is not None:
        allowed = SparkTable("allowed", allowed, (ITEM,)).frame.distinct()
    tables, options = from_parts.open_apply(
        SparkTable, model, k, recs, exclude, allowed, history,
        duplicates=duplicates, depth=depth, as_of=as_of,
    )  # fmt: skip
    with divide(tables) as parts:
        if history is not None:
            options |= look_ahead(model, parts, as_of, duplicates, None)
        else:
            for _ in parts.map(look_at, model.item_bias.unlisted, duplicates, None):
                pass  # refuses lists before a frame of them is returned
        # So does a row of each table, which is ranked here as the local `apply` ranks it.
        _rank_rows({name: own.read(1) for name, own in tables.items()}, model, int(k), options)
        recs = tables["recs"].frame
        types = {c: recs.schema[c].dataType.simpleString() for c in recs.columns if c != SCORE}
        kind = parts.schemas["recs"].field(ITEM).type
        if not item_type(model, kind).equals(kind):
            types[ITEM] = "bigint"
        ids = [f"`{c}` {types[c]}" for c in (USER, WINDOW, ITEM) if c in types]
        schema = ", ".join([*ids, f"{SCORE} double", f"{RANK} bigint"])
        return parts.to_frame(_rank_rows, schema, model, int(k), options)


def _divide_into(partitions: int | None) -> Any:
    if partitions is not None:
        require_whole("partitions", partitions, 1)
    return partial(open_spark, n_parts=partitions)


def _rank_rows(
    part: Mapping[str, pa.Table], model: Model, k: int, options: Mapping[str, Any]
) -> pa.Table | None:
    return rank_part(part, model, k, options, None).top


def evaluate(
    topk: Any, truth: Any, k: int = 10, weights: Any | None = None, *, weight: str | None = None,
    baseline: Any | None = None, partitions: int | None = None,
) -> dict[str, float | int]:  # fmt: skip
    """Return what `trimtab.evaluate` returns for the same tables, for any partitions.

    A few numbers of each user who bought something come to the driver, about 100 bytes before they
    are compressed; so do `weights`.

    Args:
        topk: user_id, item_id and rank (from 1), or score if there is no rank; rows beyond k do
            not count. Ties in rank or score go to the smaller item id. Like all tables here, a data
            frame or the name of a table.
        truth: user_id, item_id: what was bought; repeated rows count once.
        k: number of slots to evaluate.
        weights: user_id, weight; users not in it weigh 1.
        weight: a column of `truth` with the weight of each purchase.
        baseline: other lists for the same users, to compare with.
        partitions: number of partitions to divide the users into; no digit depends on it.
    """
    return from_parts.evaluate(
        SparkTable, _divide_into(partitions), topk, truth, k, weights, weight, baseline,
    )  # fmt: skip
