"""fit: learns biases or a Reranker from Spark data frames with a learner's settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from trimtab.checks import DUPLICATES, require_choice, require_whole
from trimtab.errors import SettingError
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.learn.input_checks import check_start, warn_of_unused_tables
from trimtab.learn.partitions.partitioned_fit import fit_partitioned
from trimtab.learn.rerank_learner import require_history
from trimtab.models import ItemBias
from trimtab.progress import Progress, progress_reporter
from trimtab.spark.fit_session import open_session
from trimtab.spark.spark_frames import log_seconds
from trimtab.spark.spark_inputs import read_partitioned
from trimtab.spark.spark_rerank_fit import check_events, fit_rerank_on_spark
from trimtab.spark.spark_tables import SparkTables

Result_co = TypeVar("Result_co", covariant=True)


class Learner(Protocol[Result_co]):
    """A `BiasLearner`, whose result is an `ItemBias`, or a `RerankLearner`: a `Reranker`."""

    @property
    def fit(self) -> Callable[..., Result_co]:
        """The local fit."""
        ...


def fit(
    learner: Learner[Result_co],
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
) -> Result_co:
    """Return what the learner's own `fit` returns: biases, or a Reranker.

    The hierarchy, which is the default, gives the same biases as the local fit, and a
    `RerankLearner` the same Reranker; with weights of users, to nine digits. The ascent is the
    local fit, run on the driver: all rows of `recs`, `recent` and `weights` come there. Its memory
    must hold them and the fit, about 80 bytes per row of `recs`, and the setting
    `spark.driver.maxResultSize` must allow each table.

    Args:
        learner: the settings, a `BiasLearner` or a `RerankLearner`.
        recs: user_id, item_id, score; like all tables here, a data frame or the name of a table.
        recent: user_id, item_id; for a Reranker also timestamp.
        history: sales before the window; for a Reranker user_id, item_id, timestamp. It learns from
            the events of at most 20,000 users, which come to the driver.
        items: item_id, category.
        weights: user_id, weight.
        start: biases to start from; not for a Reranker.
        duplicates: what to do when `recs` has a (user, item) pair twice.
        progress: as for `BiasLearner.fit`.
        partitions: number of partitions to divide the users into; the result does not depend on it.
    """
    require_choice("duplicates", duplicates, DUPLICATES)
    check_start(start)
    if partitions is not None:
        require_whole("partitions", partitions, 1)
    given: BiasLearner | RerankLearner = cast(Any, learner)
    biases = given.biases if isinstance(given, RerankLearner) else given
    _check_learner(given, biases, history, start)
    if not biases.is_hierarchy:
        warn_of_unused_tables(history, items)
        history = items = None
    with log_seconds("tables read and checked"):
        tables = SparkTables.read(recs, recent, weights, history, items)
    with_users = isinstance(given, RerankLearner)
    if with_users:
        check_events(tables)
    if not biases.is_hierarchy:
        with log_seconds("tables brought to the driver"):
            brought = tables.bring_together()
        return cast(
            "Result_co",
            biases.fit(**brought, start=start, duplicates=duplicates, progress=progress),
        )
    with (
        open_session(tables, biases, duplicates, partitions, with_users) as session,
        progress_reporter(progress, 1) as report,
    ):
        inputs = read_partitioned(session)
        if isinstance(given, RerankLearner):
            return cast("Result_co", fit_rerank_on_spark(given, session, inputs, report))
        return cast("Result_co", fit_partitioned(biases, inputs, report).fit.bias)


def _check_learner(
    learner: BiasLearner | RerankLearner, biases: BiasLearner, history: Any, start: ItemBias | None
) -> None:
    """Refuse settings that Spark does not know, and tables that do not suit a learner."""
    if isinstance(learner, RerankLearner):
        require_history(history)
        if start is not None:
            raise SettingError("start is given, but a RerankLearner does not use it; leave it out")
    if biases.is_counts:
        raise SettingError(
            f"method={biases.method!r}: not on Spark, where the hierarchy and the ascent are; "
            f"collect the tables and use BiasLearner.fit"
        )
