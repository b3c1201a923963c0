"""The fit of a Reranker on Spark: units in partitions, and the log of a sample of users."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from trimtab.arrays import Ints, find_positions
from trimtab.learn import RerankLearner
from trimtab.learn.hierarchy.hierarchy_fit import BiasFit
from trimtab.learn.hierarchy.shared_inputs import SharedInputs
from trimtab.learn.partitions.partitioned_fit import PartitionedInputs, fit_partitioned
from trimtab.learn.partitions.sampled_partitions import sample_partitioned
from trimtab.learn.rerank.rerank_fit import fit_rerank
from trimtab.learn.rerank.sampled_units import SampledUnits, UserLog
from trimtab.learn.rerank_learner import require_events
from trimtab.models import Reranker
from trimtab.progress import Progress
from trimtab.spark.fit_session import FitSession
from trimtab.spark.sales_by_user import TIME, sales_of_all
from trimtab.spark.spark_frames import log_seconds
from trimtab.spark.spark_tables import SparkTables
from trimtab.tables.columns import ITEM, TIMESTAMP, USER
from trimtab.tables.vocabulary import as_id_column, encode_ids, id_column


def fit_rerank_on_spark(
    learner: RerankLearner, session: FitSession, inputs: PartitionedInputs,
    progress: Progress | None,
) -> Reranker:  # fmt: skip
    """The Reranker that a local fit learns from the same tables."""
    kind = session.tables.recent.schema[TIMESTAMP].dataType
    source = SparkSource(session, inputs, progress)
    return fit_rerank(learner.biases, asdict(learner), source, isinstance(kind, T.TimestampType))


def check_events(tables: SparkTables) -> None:
    """Raise what a local fit raises unless it is known who bought what and when."""
    assert tables.history is not None
    for name, frame in (("history", tables.history), ("recent", tables.recent)):
        require_events(name, frame.columns, {})


class SparkSource:
    """Units in Spark's partitions.

    Args:
        session: of the fit; ids of users are kept.
        inputs: its tables, with users in partitions.
        progress: called after each step of the biases.
    """

    def __init__(
        self, session: FitSession, inputs: PartitionedInputs, progress: Progress | None
    ) -> None:
        self._session, self._inputs, self._progress = session, inputs, progress
        self.histories = inputs.histories

    def fit_biases(self) -> BiasFit:
        """The fit of the biases."""
        found = fit_partitioned(self._session.learner, self._inputs, self._progress)
        self._windows = found.windows
        return found.fit

    def sample(self, shared: SharedInputs) -> tuple[SampledUnits, UserLog]:
        """A sample of the units, and the log of their users, brought to the driver."""
        sampled = sample_partitioned(self._inputs, self._windows, shared)
        chosen, of_units = np.unique(sampled.users, return_inverse=True)
        with log_seconds("events of the sample"):
            users, items, times = self._read_log(chosen)
        return sampled, UserLog(users, items, times, of_units.astype(np.int32))

    def _read_log(self, users: Ints) -> list[Any]:
        """Events of some users: user, item and time of each."""
        tables = self._session.tables
        before, after = sales_of_all(tables, max(self.histories.starts))
        ids = self._session.units.find_users(users)
        wanted = tables.session.createDataFrame(pa.table({USER: pa.array(ids)}))
        found = before.unionByName(after).join(F.broadcast(wanted), USER).toArrow()
        known = as_id_column("recs", USER, ids), as_id_column("all tables", ITEM, self._item_ids)
        places = []
        for own in known:
            other = id_column("history", own.name, found[own.name])
            _, (codes, of_events) = encode_ids([own, other])
            places.append(find_positions(codes, of_events))
        return [*places, found[TIME].to_numpy()]

    @property
    def _item_ids(self) -> Any:
        return self._session.item_ids
