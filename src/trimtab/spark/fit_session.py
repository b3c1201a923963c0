"""What a Spark fit works with: users in partitions, item ids, and counts over all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from trimtab.learn import BiasLearner
from trimtab.learn.partitions.global_counts import check_counts
from trimtab.learn.partitions.unit_survey import Survey, survey_units
from trimtab.spark.spark_frames import log_seconds
from trimtab.spark.spark_tables import SparkTables, partition_users
from trimtab.spark.spark_units import SparkUnits
from trimtab.tables.user_ranges import UserRanges


@dataclass(frozen=True)
class FitSession:
    """A fit's tables, with users in partitions."""

    learner: BiasLearner
    tables: SparkTables
    item_ids: Any
    windows: list[Any]  # labels, ascending
    window: dict[str, Any]  # number of purchases, first and last timestamp
    ranges: UserRanges  # of user ids, one for each partition
    units: SparkUnits

    def survey(self) -> Survey:
        """All counts for the hierarchy, after the checks that a local fit makes on them."""
        found = survey_units(self.units, self.learner, len(self.item_ids), len(self.windows))
        check_counts(found.counts, self.tables.has_windows, self.learner.k)
        return found


@contextmanager
def open_session(
    tables: SparkTables,
    learner: BiasLearner,
    duplicates: str,
    partitions: int | None,
    with_ids: bool = False,
) -> Iterator[FitSession]:
    """A session for one fit; what it keeps in Spark's memory is released at the end.

    Args:
        tables: checked.
        learner: the settings.
        duplicates: what to do with repeated rows of `recs`.
        partitions: number of partitions, if given.
        with_ids: whether to keep the ids of users.
    """
    with ExitStack() as held:
        item_ids = tables.item_ids()
        windows = tables.window_labels()
        with log_seconds("users partitioned"):
            ranges = tables.user_ranges(partitions)
            units = partition_users(
                tables, item_ids, windows, learner.unlisted, duplicates, ranges, held, with_ids
            )  # fmt: skip
        first, last = tables.first_and_last_purchase()
        window = {"rows": tables.n_recent, "first": first, "last": last}
        yield FitSession(learner, tables, item_ids, windows, window, ranges, units)
