"""SparkBiasLearner: the learner's settings; `fit` takes Spark data frames."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from trimtab.ascent import Solution
from trimtab.bias import ItemBias, warn
from trimtab.coded import Codes, Floats
from trimtab.errors import SettingError
from trimtab.ground import Course, quanta_for
from trimtab.learn import BiasLearner, Judged, check_start
from trimtab.progress import Progress, progress_reporter
from trimtab.reading import start_biases
from trimtab.rounds import Climb, Standing
from trimtab.schema import DUPLICATES, require_choice, require_whole
from trimtab.spark.crowd import MOST_DRAWN, SparkCrowd, learners
from trimtab.spark.facts import sum_totals, unit_of_scores
from trimtab.spark.ledger import Ledger
from trimtab.spark.reading import SparkTables
from trimtab.spark.stage import Stage

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
        ledger = Ledger(tables.session, checkpoint, identity)
        with Stage.set(tables, self, duplicates, partitions, ledger) as stage:
            report, close = progress_reporter(progress, self._steps, max(1, self.n_bags))
            try:
                if self.is_hierarchy:
                    from trimtab.spark.hierarchy import learn_robust

                    return learn_robust(self, stage, report(0))
                return self._climb(stage, start, report)
            finally:
                close()

    @property
    def _steps(self) -> int:
        return 1 if self.is_hierarchy else self.max_rounds

    def _identity(self, tables: SparkTables, start: ItemBias | None, duplicates: str) -> str:
        """Tells this fit from others; costs a pass over the tables."""
        begun = "" if start is None else hashlib.sha256(start.bias.tobytes()).hexdigest()
        return f"{json.dumps(asdict(self), sort_keys=True)} {duplicates} {tables.digest()} {begun}"

    def _climb(self, stage: Stage, start: ItemBias | None, report: Any) -> ItemBias:
        """The ascent, in rounds."""
        scale = "log" if self.scale == "log" else "additive"
        facts = stage.count_facts(scale)
        unit = 1.0 if scale == "log" else unit_of_scores(stage.population, self.k, facts)
        totals = sum_totals(stage.population, self.k, self.metric, facts)
        first = start_biases(start, stage.item_ids, scale)
        given = (stage, scale, unit, totals.weight)
        bags: list[int | None] = [None] if self.n_bags == 0 else list(range(self.n_bags))
        found = [self._one_climb(*given, first, bag, report(bag or 0)) for bag in bags]
        course, candidates, standing = found[0]
        began = standing.objectives[0] / course.quanta
        if self.n_bags > 0:
            course, standing = self._average(*given, [bag for _, _, bag in found])
            began = totals.before
        excluded = course.excluded
        solution = Solution(
            bias=np.where(excluded, 0.0, standing.offset),
            excluded=excluded,
            gain=standing.gain / course.quanta,
            support=facts.support,
            unit=unit,
            before=np.empty(0),
            after=np.empty(0),
            objective_before=began,
            objective_after=standing.objectives[-1] / course.quanta,
            cycles=standing.rounds,
            updates=standing.updates,
            order=candidates,
            converged=standing.finished,
        )
        judged = Judged(
            totals.before / totals.judged_weight,
            standing.value / course.quanta / totals.judged_weight,
            facts.n_judged,
            stage.population.n_units - facts.n_judged,
        )
        return self._result(stage.item_ids, stage.window, solution, judged, scale)

    def _one_climb(
        self, stage: Stage, scale: str, unit: float, weight: float, first: Floats | None,
        bag: int | None, progress: Progress | None,
    ) -> tuple[Course, Codes, Standing]:  # fmt: skip
        """One ascent, on all units or on a sample of them."""
        course = self._course(stage, unit, weight, weighted=stage.weighted or bag is not None)
        crowd = self._learners(stage, scale, bag)
        candidates = course.visiting_order(stage.facts.reached > 0)
        climb = Climb(
            crowd, course, candidates, stage.facts.reached, self.max_rounds,
            partial(_log_round, course.quanta), progress,
        )  # fmt: skip
        return course, candidates, climb.run(climb.begin(course.begin(first)))

    def _course(self, stage: Stage, unit: float, weight: float, weighted: bool) -> Course:
        facts = stage.facts
        times = MOST_DRAWN if weighted and self.n_bags else 1
        return Course(
            settings=self.ascent,
            unit=unit,
            quanta=quanta_for(times * weight if weighted else None),
            weighted=weighted,
            heaviest=times * max(1.0, facts.heaviest) if weighted else 1.0,
            largest=facts.largest,
            support=facts.support,
            exposure=facts.exposure,
        )

    def _learners(self, stage: Stage, scale: str, bag: int | None) -> SparkCrowd:
        drawn = None if bag is None else (self.seed, bag)
        name = "learners" if bag is None else f"learners-{bag}"
        given = (self.k, scale, len(stage.item_ids), drawn)
        return SparkCrowd(stage.derive(name, learners, *given))

    def _average(
        self, stage: Stage, scale: str, unit: float, weight: float, bags: list[Standing]
    ) -> tuple[Course, Standing]:
        """The mean of several ascents, judged on all units."""
        course = self._course(stage, unit, weight, stage.weighted)
        offset = np.mean([bag.offset for bag in bags], axis=0)
        gain = np.mean([bag.gain for bag in bags], axis=0)
        none = np.empty(0, np.int32), np.empty(0)
        seen = self._learners(stage, scale, None).check(course, offset, *none)
        objective = seen.value - int(course.penalties(offset).sum())
        longest = max(bags, key=lambda bag: bag.rounds)
        return course, replace(
            longest,
            offset=offset,
            gain=gain,
            value=seen.value,
            objectives=(*longest.objectives[:-1], objective),
            updates=sum(bag.updates for bag in bags),
            finished=all(bag.finished for bag in bags),
        )


def _log_round(quanta: float, standing: Standing) -> None:
    now, objective = standing.rounds, standing.objectives[-1] / quanta
    _LOG.info("round %d: objective %.9g, %d moves so far", now, objective, standing.updates)
