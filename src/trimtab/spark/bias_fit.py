"""SparkBiasLearner: the learner's settings; `fit` takes Spark data frames."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from trimtab.arrays import Codes, Floats
from trimtab.bias import ItemBias
from trimtab.checks import DUPLICATES, require_choice, require_whole
from trimtab.errors import SettingError, warn
from trimtab.learn.ascent.cycles import Solution
from trimtab.learn.ascent.rounds import RoundAscent, RoundState
from trimtab.learn.ascent.setup import AscentSetup, quanta_for
from trimtab.learn.bias_learner import BiasLearner, Judged, check_start
from trimtab.learn.inputs import start_biases
from trimtab.progress import Progress, progress_reporter
from trimtab.spark.ascent_backend import MOST_DRAWN, SparkAscentBackend, learning_partition
from trimtab.spark.checkpoint import Checkpoint
from trimtab.spark.global_counts import sum_totals, unit_of_scores
from trimtab.spark.inputs import SparkTables
from trimtab.spark.session import FitSession

_LOG = logging.getLogger("trimtab.spark")
_MOST_ROUNDS = 50


@dataclass(frozen=True)
class SparkBiasLearner(BiasLearner):
    """Learns one bias per item from Spark data frames; settings as of `BiasLearner`.

    The hierarchy, which is the default, gives the biases of the local learner. The ascent goes in
    rounds instead of cycles: all items are looked at together, and those that help together move.

    Args:
        max_rounds: at most so many rounds; takes the place of `max_cycles`.
    """

    max_rounds: int = _MOST_ROUNDS

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("max_rounds", self.max_rounds, 1)
        if self.max_cycles != BiasLearner.max_cycles:
            raise SettingError(
                f"max_cycles={self.max_cycles}: on Spark the ascent goes in rounds; use max_rounds"
            )

    def fit(
        self,
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
        checkpoint: str | None = None,
    ) -> ItemBias:
        """Biases that would have served the recent purchases best; as `BiasLearner.fit`.

        Args:
            recs: user_id, item_id, score; a data frame or the name of a table, as all tables here.
            recent: user_id, item_id.
            history: sales before the window.
            items: item_id, category.
            weights: user_id, weight.
            start: biases to start from.
            duplicates: what to do when `recs` has a (user, item) twice.
            progress: as for `BiasLearner.fit`.
            partitions: into how many parts to divide the users; changes no byte of the result.
            checkpoint: a folder that the cluster can write to and read from. A fit that is started
                again with the same folder, settings and tables goes on after its last finished
                step. Give each fit its own.
        """
        require_choice("duplicates", duplicates, DUPLICATES)
        check_start(start)
        if partitions is not None:
            require_whole("partitions", partitions, 1)
        if not self.is_hierarchy and (history is not None or items is not None):
            history = items = None
            warn("history and items are used by the hierarchy only: this ascent learns without")
        tables = SparkTables.read(recs, recent, weights, history, items)
        identity = "" if checkpoint is None else self._identity(tables, start, duplicates)
        steps = Checkpoint(tables.session, checkpoint, identity)
        with FitSession.set(tables, self, duplicates, partitions, steps) as session:
            report, close = progress_reporter(progress, self._steps, max(1, self.n_bags))
            try:
                if self.is_hierarchy:
                    from trimtab.spark.hierarchy_fit import fit_hierarchy

                    return fit_hierarchy(self, session, report(0))
                return self._climb(session, start, report)
            finally:
                close()

    @property
    def _steps(self) -> int:
        return 1 if self.is_hierarchy else self.max_rounds

    def _identity(self, tables: SparkTables, start: ItemBias | None, duplicates: str) -> str:
        """Tells this fit from others; costs a pass over the tables."""
        begun = "" if start is None else hashlib.sha256(start.bias.tobytes()).hexdigest()
        return f"{json.dumps(asdict(self), sort_keys=True)} {duplicates} {tables.digest()} {begun}"

    def _climb(self, session: FitSession, start: ItemBias | None, report: Any) -> ItemBias:
        """The ascent, in rounds."""
        scale = "log" if self.scale == "log" else "additive"
        counts = session.count_globally(scale)
        unit = 1.0 if scale == "log" else unit_of_scores(session.units, self.k, counts)
        totals = sum_totals(session.units, self.k, self.metric, counts)
        first = start_biases(start, session.item_ids, scale)
        given = (session, scale, unit, totals.weight)
        bags: list[int | None] = [None] if self.n_bags == 0 else list(range(self.n_bags))
        found = [self._one_climb(*given, first, bag, report(bag or 0)) for bag in bags]
        setup, candidates, state = found[0]
        began = state.objectives[0] / setup.quanta
        if self.n_bags > 0:
            setup, state = self._average(*given, [bag for _, _, bag in found])
            began = totals.before
        excluded = setup.excluded
        solution = Solution(
            bias=np.where(excluded, 0.0, state.offset),
            excluded=excluded,
            gain=state.gain / setup.quanta,
            support=counts.support,
            unit=unit,
            before=np.empty(0),
            after=np.empty(0),
            objective_before=began,
            objective_after=state.objectives[-1] / setup.quanta,
            cycles=state.rounds,
            updates=state.updates,
            order=candidates,
            converged=state.finished,
        )
        judged = Judged(
            totals.before / totals.judged_weight,
            state.value / setup.quanta / totals.judged_weight,
            counts.n_judged,
            session.units.n_units - counts.n_judged,
        )
        return self._result(session.item_ids, session.window, solution, judged, scale)

    def _one_climb(
        self, session: FitSession, scale: str, unit: float, weight: float, first: Floats | None,
        bag: int | None, progress: Progress | None,
    ) -> tuple[AscentSetup, Codes, RoundState]:  # fmt: skip
        """One ascent, on all units or on a sample of them."""
        setup = self._course(session, unit, weight, weighted=session.weighted or bag is not None)
        backend = self._learners(session, scale, bag)
        candidates = setup.visiting_order(session.counts.reached > 0)
        climb = RoundAscent(
            backend, setup, candidates, session.counts.reached, self.max_rounds,
            partial(_log_round, setup.quanta), progress,
        )  # fmt: skip
        return setup, candidates, climb.run(climb.begin(setup.begin(first)))

    def _course(
        self, session: FitSession, unit: float, weight: float, weighted: bool
    ) -> AscentSetup:
        counts = session.counts
        times = MOST_DRAWN if weighted and self.n_bags else 1
        return AscentSetup(
            settings=self.ascent,
            unit=unit,
            quanta=quanta_for(times * weight if weighted else None),
            weighted=weighted,
            heaviest=times * max(1.0, counts.heaviest) if weighted else 1.0,
            largest=counts.largest,
            support=counts.support,
            exposure=counts.exposure,
        )

    def _learners(self, session: FitSession, scale: str, bag: int | None) -> SparkAscentBackend:
        drawn = None if bag is None else (self.seed, bag)
        name = "learners" if bag is None else f"learners-{bag}"
        given = (self.k, scale, len(session.item_ids), drawn)
        return SparkAscentBackend(session.derive(name, learning_partition, *given))

    def _average(
        self, session: FitSession, scale: str, unit: float, weight: float, bags: list[RoundState]
    ) -> tuple[AscentSetup, RoundState]:
        """The mean of several ascents, judged on all units."""
        setup = self._course(session, unit, weight, session.weighted)
        offset = np.mean([bag.offset for bag in bags], axis=0)
        gain = np.mean([bag.gain for bag in bags], axis=0)
        none = np.empty(0, np.int32), np.empty(0)
        seen = self._learners(session, scale, None).try_moves(setup, offset, *none)
        objective = seen.value - int(setup.penalties(offset).sum())
        longest = max(bags, key=lambda bag: bag.rounds)
        return setup, replace(
            longest,
            offset=offset,
            gain=gain,
            value=seen.value,
            objectives=(*longest.objectives[:-1], objective),
            updates=sum(bag.updates for bag in bags),
            finished=all(bag.finished for bag in bags),
        )


def _log_round(quanta: float, state: RoundState) -> None:
    now, objective = state.rounds, state.objectives[-1] / quanta
    _LOG.info("round %d: objective %.9g, %d moves so far", now, objective, state.updates)
