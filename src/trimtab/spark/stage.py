"""What a fit on Spark works with: users in partitions, items by number, and what is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trimtab.bias import warn
from trimtab.errors import DataError
from trimtab.schema import ITEM, SCORE, USER, WINDOW
from trimtab.spark.facts import Facts, count_facts
from trimtab.spark.ledger import Ledger
from trimtab.spark.population import Population
from trimtab.spark.reading import SparkTables, spread
from trimtab.spark.share import Share

if TYPE_CHECKING:
    from trimtab.spark.learn import SparkBiasLearner

_LEAST_OVERLAP = 0.05  # of purchases by listed users, or of listed items; below it, `fit` warns


@dataclass
class Stage:
    """Users in partitions, and what goes with them."""

    learner: SparkBiasLearner
    tables: SparkTables
    ledger: Ledger
    item_ids: Any
    windows: list[Any]
    window: dict[str, Any]  # what is known of when the purchases were made
    population: Population
    _facts: Facts | None = None

    @staticmethod
    @contextmanager
    def set(
        tables: SparkTables, learner: SparkBiasLearner, duplicates: str, partitions: int | None,
        ledger: Ledger,
    ) -> Iterator[Stage]:  # fmt: skip
        """Bring the tables together; what is kept of them in Spark is let go in the end."""
        try:
            item_ids = ledger_ids(ledger, tables.item_ids)
            windows = tables.window_ids()
            n_parts = tables.partitions(partitions)
            population = spread(
                tables, item_ids, windows, learner.unlisted, duplicates, n_parts, ledger
            )
            first, last = tables.times()
            window = {"rows": tables.n_recent, "first": first, "last": last}
            yield Stage(learner, tables, ledger, item_ids, windows, window, population)
        finally:
            ledger.release()

    @property
    def weighted(self) -> bool:
        """Whether users have weights."""
        return self.tables.weights is not None

    @property
    def facts(self) -> Facts:
        """What was counted."""
        assert self._facts is not None
        return self._facts

    def count_facts(self, scale: str) -> Facts:
        """Count over all units; refuses and warns of what a local fit would."""
        learner = self.learner
        n_items = len(self.item_ids)
        facts = count_facts(self.population, learner.k, learner.metric, n_items, scale)
        if scale == "log" and not learner.is_hierarchy and facts.lowest <= 0:
            raise DataError(
                f"column '{SCORE}' of recs has {facts.lowest:g}: scale='log' needs scores above 0 "
                f"when ascending; drop such rows or use scale='additive'"
            )
        unit = f"({USER}, {WINDOW})" if self.tables.has_windows else USER
        _check_overlap(unit, facts.n_sales_of_listed, facts.n_sales)
        of_listed = int(facts.support[facts.listed > 0].sum())
        _check_overlap(ITEM, of_listed, facts.n_sales)
        if facts.longest < learner.k:
            warn(
                f"k={learner.k} is longer than the longest list ({facts.longest}): places stay "
                f"empty; lower k or list more"
            )
        self._facts = facts
        return facts

    def derive(self, name: str, function: Callable[..., Share], *given: Any) -> Population:
        """Units made of these, partition by partition; kept in Spark."""
        frame = self.ledger.keep_frame(name, self.population.change(function, *given))
        coded = {
            number: part._replace(users_before=0, units_before=0)
            for number, part in self.population.parts.items()
        }
        return Population(frame, coded, self.ledger)


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


def ledger_ids(ledger: Ledger, read: Callable[[], Any]) -> Any:
    """Ids that are read once, and found again after a restart."""

    def make() -> list[Any]:
        column = pa.array(read())
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, pa.schema([(ITEM, column.type)])) as writer:
            writer.write_batch(pa.record_batch([column], names=[ITEM]))
        return [np.frombuffer(out.getvalue(), np.uint8)]

    (stored,) = ledger.recall("items", make)
    column = pa.ipc.open_stream(pa.py_buffer(stored.tobytes())).read_all().column(ITEM)
    ids = column.combine_chunks()
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.chunk(0)
    return np.array(ids) if pa.types.is_integer(ids.type) else ids
