"""What a fit on Spark works with: users in partitions, items by number, and what is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trimtab.errors import DataError, warn
from trimtab.spark.checkpoint import Checkpoint
from trimtab.spark.global_counts import GlobalCounts, count_globally
from trimtab.spark.inputs import SparkTables, spread
from trimtab.spark.partition import Partition
from trimtab.spark.partitioned_units import PartitionedUnits
from trimtab.tables.columns import ITEM, SCORE, USER, WINDOW

if TYPE_CHECKING:
    from trimtab.spark.bias_fit import SparkBiasLearner

_LEAST_OVERLAP = 0.05  # of purchases by listed users, or of listed items; below it, `fit` warns


@dataclass
class FitSession:
    """Users in partitions, and what goes with them."""

    learner: SparkBiasLearner
    tables: SparkTables
    checkpoint: Checkpoint
    item_ids: Any
    windows: list[Any]
    window: dict[str, Any]  # what is known of when the purchases were made
    units: PartitionedUnits
    _counts: GlobalCounts | None = None

    @staticmethod
    @contextmanager
    def set(
        tables: SparkTables, learner: SparkBiasLearner, duplicates: str, partitions: int | None,
        checkpoint: Checkpoint,
    ) -> Iterator[FitSession]:  # fmt: skip
        """Bring the tables together; what is kept of them in Spark is let go in the end."""
        try:
            item_ids = recall_ids(checkpoint, tables.item_ids)
            windows = tables.window_ids()
            n_parts = tables.partitions(partitions)
            units = spread(
                tables, item_ids, windows, learner.unlisted, duplicates, n_parts, checkpoint
            )
            first, last = tables.times()
            window = {"rows": tables.n_recent, "first": first, "last": last}
            yield FitSession(learner, tables, checkpoint, item_ids, windows, window, units)
        finally:
            checkpoint.release()

    @property
    def weighted(self) -> bool:
        """Whether users have weights."""
        return self.tables.weights is not None

    @property
    def counts(self) -> GlobalCounts:
        """What was counted."""
        assert self._counts is not None
        return self._counts

    def count_globally(self, scale: str) -> GlobalCounts:
        """Count over all units; refuses and warns of what a local fit would."""
        learner = self.learner
        n_items = len(self.item_ids)
        counts = count_globally(self.units, learner.k, learner.metric, n_items, scale)
        if scale == "log" and not learner.is_hierarchy and counts.lowest <= 0:
            raise DataError(
                f"column '{SCORE}' of recs has {counts.lowest:g}: scale='log' needs scores above 0 "
                f"when ascending; drop such rows or use scale='additive'"
            )
        unit = f"({USER}, {WINDOW})" if self.tables.has_windows else USER
        _check_overlap(unit, counts.n_sales_of_listed, counts.n_sales)
        of_listed = int(counts.support[counts.listed > 0].sum())
        _check_overlap(ITEM, of_listed, counts.n_sales)
        if counts.longest < learner.k:
            warn(
                f"k={learner.k} is longer than the longest list ({counts.longest}): places stay "
                f"empty; lower k or list more"
            )
        self._counts = counts
        return counts

    def derive(
        self, name: str, function: Callable[..., Partition], *given: Any
    ) -> PartitionedUnits:
        """Units made of these, partition by partition; kept in Spark."""
        frame = self.checkpoint.keep_frame(name, self.units.change(function, *given))
        coded = {
            number: part._replace(users_before=0, units_before=0)
            for number, part in self.units.parts.items()
        }
        return PartitionedUnits(frame, coded, self.checkpoint)


def _check_overlap(name: str, common: int, n_sales: int) -> None:
    """Refuse purchases of nothing that is listed; warn of few that are."""
    if common == 0:
        raise DataError(
            f"no {name} of recent is in recs: nothing can be learned; check that both use the same "
            f"ids"
        )
    if common < _LEAST_OVERLAP * n_sales:
        warn(
            f"only {common} of {n_sales} different purchases of recent have {name} that is in "
            f"recs: little can be learned; check that both tables are of the same log"
        )


def recall_ids(checkpoint: Checkpoint, read: Callable[[], Any]) -> Any:
    """Ids that are read once, and found again after a restart."""

    def make() -> list[Any]:
        column = pa.array(read())
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, pa.schema([(ITEM, column.type)])) as writer:
            writer.write_batch(pa.record_batch([column], names=[ITEM]))
        return [np.frombuffer(out.getvalue(), np.uint8)]

    (stored,) = checkpoint.recall("items", make)
    column = pa.ipc.open_stream(pa.py_buffer(stored.tobytes())).read_all().column(ITEM)
    ids = column.combine_chunks()
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.chunk(0)
    return np.array(ids) if pa.types.is_integer(ids.type) else ids
