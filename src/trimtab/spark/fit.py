"""fit: learns biases or a Reranker from Spark data frames with a learner's settings."""

from __future__ import annotations

from typing import Any

from trimtab.bias import ItemBias
from trimtab.checks import require_whole
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.learn.coding import COLUMNS, Reading, is_by_user
from trimtab.learn.counted import SharedTables
from trimtab.parts.spark import open_spark, read_spark_frame, to_arrow
from trimtab.progress import Progress
from trimtab.rerank import Reranker
from trimtab.tables.frames import read_frame


def fit(
    learner: BiasLearner | RerankLearner,
    recs: Any,
    recent: Any,
    *,
    history: Any | None = None,
    items: Any | None = None,
    weights: Any | None = None,
    start: ItemBias | None = None,
    duplicates: str = "error",
    progress: bool | Progress | None = None,
    partitions: int | None = None,
) -> ItemBias | Reranker:
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
    if partitions is not None:
        require_whole("partitions", partitions, 1)
    given = {
        "recs": recs, "recent": recent, "history": history, "items": items, "weights": weights,
    }  # fmt: skip
    frames = {
        name: read_spark_frame(frame, name, *COLUMNS[name])
        for name, frame in given.items()
        if frame is not None
    }
    names = learner.choose_tables({name: frame.columns for name, frame in frames.items()})
    columns = {name: frames[name].columns for name in names}
    reading = Reading.of(columns, learner.biases.unlisted, duplicates)
    by_user = {name: frames[name] for name in names if is_by_user(name, columns[name])}
    others = {
        name: read_frame(to_arrow(frames[name]), name, *columns[name])
        for name in names
        if name not in by_user
    }
    shared = SharedTables(others.get("items"), others.get("history"))
    with open_spark(by_user, partitions) as parts:
        return learner.fit_parts(parts, shared, reading, start, progress)
