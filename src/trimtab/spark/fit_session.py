"""What a Spark fit works with: users in partitions, item ids, and counts over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.learn import BiasLearner
from trimtab.learn.input_checks import require_positive_scores
from trimtab.learn.partitions.global_counts import GlobalCounts, check_counts, count_all_units
from trimtab.learn.partitions.unit_survey import Survey, survey_units
from trimtab.spark.array_bytes import ids_from_bytes, ids_to_bytes
from trimtab.spark.checkpoint import Checkpoint, log_seconds
from trimtab.spark.spark_tables import SparkTables, partition_users
from trimtab.spark.spark_units import SparkUnits
from trimtab.tables.range_choice import UserRanges


@dataclass(frozen=True)
class FitSession:
    """A fit's tables, with users in partitions."""

    learner: BiasLearner
    tables: SparkTables
    checkpoint: Checkpoint
    item_ids: Any
    windows: list[Any]  # labels, ascending
    window: dict[str, Any]  # number of purchases, first and last timestamp
    ranges: UserRanges  # of user ids, one for each partition
    units: SparkUnits

    @property
    def weighted(self) -> bool:
        """Whether users have weights."""
        return self.tables.weights is not None

    def survey(self) -> Survey:
        """All counts for the hierarchy, after the checks that a local fit makes on them."""
        found = survey_units(self.units, self.learner, len(self.item_ids), len(self.windows))
        check_counts(found.counts, self.tables.has_windows, self.learner.k)
        return found

    def count_and_check(self, scale: str) -> GlobalCounts:
        """Counts for the ascent, after the checks that a local fit makes on them."""
        learner = self.learner
        counts = count_all_units(self.units, learner.k, learner.metric, len(self.item_ids), scale)
        if scale == "log":
            require_positive_scores(counts.lowest)
        check_counts(counts, self.tables.has_windows, learner.k)
        return counts


@contextmanager
def open_session(
    tables: SparkTables,
    learner: BiasLearner,
    duplicates: str,
    partitions: int | None,
    checkpoint: Checkpoint,
    with_ids: bool = False,
) -> Iterator[FitSession]:
    """A session for one fit; what it keeps in Spark's memory is released at the end.

    Args:
        tables: checked.
        learner: the settings.
        duplicates: what to do with repeated rows of `recs`.
        partitions: number of partitions, if given.
        checkpoint: saves results.
        with_ids: whether to keep the ids of users.
    """
    try:
        item_ids = _recall_ids(checkpoint, tables.item_ids)
        windows = tables.window_labels()
        with log_seconds("users partitioned"):
            ranges = tables.user_ranges(partitions)
            units = partition_users(
                tables, item_ids, windows, learner.unlisted, duplicates, ranges, checkpoint,
                with_ids,
            )  # fmt: skip
        first, last = tables.first_and_last_purchase()
        window = {"rows": tables.n_recent, "first": first, "last": last}
        yield FitSession(learner, tables, checkpoint, item_ids, windows, window, ranges, units)
    finally:
        checkpoint.release()


def _recall_ids(checkpoint: Checkpoint, read: Callable[[], Any]) -> Any:
    """Item ids that are read once, and found in the checkpoint after a restart."""
    (stored,) = checkpoint.recall("items", lambda: [np.frombuffer(ids_to_bytes(read()), np.uint8)])
    return ids_from_bytes(stored.tobytes())
