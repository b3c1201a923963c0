"""fit: learns biases from Spark data frames with a `BiasLearner`'s settings."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from trimtab.bias import ItemBias
from trimtab.checks import DUPLICATES, require_choice, require_whole
from trimtab.errors import SettingError, warn
from trimtab.learn import BiasLearner
from trimtab.learn.input_checks import check_start, warn_of_unused_tables
from trimtab.progress import Progress, progress_reporter
from trimtab.spark.checkpoint import Checkpoint
from trimtab.spark.fit_session import open_session
from trimtab.spark.spark_ascent_fit import fit_ascent_on_spark
from trimtab.spark.spark_hierarchy_fit import fit_hierarchy_on_spark
from trimtab.spark.spark_tables import SparkTables


def fit(
    learner: BiasLearner,
    recs: Any,
    recent: Any,
    *,
    history: Any | None = None,
    items: Any | None = None,
    weights: Any | None = None,
    start: ItemBias | None = None,
    duplicates: str = "error",
    progress: bool | Progress | None = None,
    max_rounds: int = 50,
    partitions: int | None = None,
    checkpoint: str | None = None,
) -> ItemBias:
    """Return the biases that would have ranked recent purchases best, like `BiasLearner.fit`.

    The hierarchy, which is the default, gives the same biases as the local fit. The ascent makes
    rounds instead of cycles: it finds the best move of every item, then keeps the moves that help
    together.

    Args:
        learner: the settings. `max_rounds` takes the place of its `max_cycles`.
        recs: user_id, item_id, score; like all tables here, a data frame or the name of a table.
        recent: user_id, item_id.
        history: sales before the window.
        items: item_id, category.
        weights: user_id, weight.
        start: biases to start from.
        duplicates: what to do when `recs` has a (user, item) pair twice.
        progress: as for `BiasLearner.fit`.
        max_rounds: maximum rounds of the ascent.
        partitions: number of partitions to divide the users into; the result does not depend on it.
        checkpoint: folder that the cluster can write to and read from. A fit that is started again
            with the same folder, settings and tables continues after its last finished step. Give
            each fit its own folder.
    """
    require_choice("duplicates", duplicates, DUPLICATES)
    require_whole("max_rounds", max_rounds, 1)
    check_start(start)
    if partitions is not None:
        require_whole("partitions", partitions, 1)
    if learner.is_counts:
        raise SettingError(
            f"method={learner.method!r}: not on Spark, where the hierarchy and the ascent are; "
            f"collect the tables and use BiasLearner.fit"
        )
    if not learner.is_hierarchy:
        warn_of_unused_tables(history, items)
        history = items = None
    if learner.max_cycles != BiasLearner.max_cycles:
        warn(f"max_cycles={learner.max_cycles} is not used on Spark; pass max_rounds to fit")
    tables = SparkTables.read(recs, recent, weights, history, items)
    identity = ""
    if checkpoint is not None:
        identity = _identify(learner, max_rounds, tables, start, duplicates)
    steps = Checkpoint(tables.session, checkpoint, identity)
    n_cycles, n_fits = (1, 1) if learner.is_hierarchy else (max_rounds, max(1, learner.n_bags))
    with (
        open_session(tables, learner, duplicates, partitions, steps) as session,
        progress_reporter(progress, n_cycles, n_fits) as report,
    ):
        if learner.is_hierarchy:
            return fit_hierarchy_on_spark(session, report(0)).fit.bias
        return fit_ascent_on_spark(session, start, max_rounds, report)


def _identify(
    learner: BiasLearner,
    max_rounds: int,
    tables: SparkTables,
    start: ItemBias | None,
    duplicates: str,
) -> str:
    """A text that differs between fits; it takes a pass over the tables."""
    settings = json.dumps({**asdict(learner), "max_rounds": max_rounds}, sort_keys=True)
    begun = "" if start is None else hashlib.sha256(start.bias.tobytes()).hexdigest()
    return f"{settings} {duplicates} {tables.digest()} {begun}"
