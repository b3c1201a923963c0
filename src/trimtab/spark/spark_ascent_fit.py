"""The ascent on Spark, in rounds: one ascent on all units."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

import numpy as np

from trimtab.arrays import Codes, Floats
from trimtab.bias import ItemBias
from trimtab.learn.ascent.ascent_fit import MetricMeans, build_ascent_result
from trimtab.learn.ascent.cycles import Solution
from trimtab.learn.ascent.rounds import RoundAscent, RoundState
from trimtab.learn.ascent.setup import AscentSetup
from trimtab.learn.inputs import align_start
from trimtab.learn.partitions.exact_median import exact_median
from trimtab.learn.partitions.global_counts import GlobalCounts, Totals, sum_totals
from trimtab.learn.quanta import quanta_for
from trimtab.learn.scales import penalty_unit
from trimtab.progress import Progress
from trimtab.spark.ascent_backend import SparkAscentBackend, learning_partition
from trimtab.spark.fit_session import FitSession

_LOG = logging.getLogger("trimtab.spark")


def fit_ascent_on_spark(
    session: FitSession,
    start: ItemBias | None,
    max_rounds: int,
    progress: Progress | None,
) -> ItemBias:
    """The biases that the ascent finds in rounds."""
    learner = session.learner
    scale = learner.ascent_scale
    counts = session.count_and_check(scale)
    totals = sum_totals(session.units, learner.k, learner.metric, counts)
    first = align_start(start, session.item_ids, scale)
    fits = _AscentFits(session, counts, totals, _penalty_unit(session, counts, scale), max_rounds)
    setup, candidates, state = fits.ascend(first, progress)
    objective_before = state.objectives[0] / setup.quanta
    solution = _as_solution(setup, state, candidates, objective_before)
    means = MetricMeans(
        totals.before / totals.buyers_weight,
        state.value / setup.quanta / totals.buyers_weight,
        counts.n_buyers,
        session.units.n_units - counts.n_buyers,
    )
    return build_ascent_result(
        learner, session.item_ids, session.window, counts.lengths, solution, means
    )


def _penalty_unit(session: FitSession, counts: GlobalCounts, scale: str) -> float:
    if scale != "additive":
        return 1.0
    k = session.learner.k
    numbers = (("full", counts.n_full), ("kth", counts.n_filled))
    medians = (exact_median(session.units, name, k, n) for name, n in numbers)
    return penalty_unit(medians, counts.largest)


@dataclass(frozen=True)
class _AscentFits:
    """What an ascent on all units needs."""

    session: FitSession
    counts: GlobalCounts
    totals: Totals
    unit: float
    max_rounds: int

    def ascend(
        self, start: Floats | None, progress: Progress | None
    ) -> tuple[AscentSetup, Codes, RoundState]:
        """One ascent on all units."""
        setup = self._setup(self.session.weighted)
        candidates = setup.visiting_order(self.counts.reached > 0)
        ascent = RoundAscent(
            self._backend(), setup, candidates, self.counts.reached, self.max_rounds,
            partial(_log_round, setup.quanta), progress,
        )  # fmt: skip
        return setup, candidates, ascent.run(ascent.start(setup.starting_biases(start)))

    def _setup(self, weighted: bool) -> AscentSetup:
        counts, learner = self.counts, self.session.learner
        return AscentSetup(
            settings=learner.ascent,
            unit=self.unit,
            quanta=quanta_for(self.totals.weight if weighted else None),
            weighted=weighted,
            heaviest=max(1.0, counts.heaviest) if weighted else 1.0,
            largest=counts.largest,
            support=counts.support,
            exposure=counts.exposure,
        )

    def _backend(self) -> SparkAscentBackend:
        learner, session = self.session.learner, self.session
        given = (learner.k, learner.ascent_scale, len(session.item_ids))
        return SparkAscentBackend(session.units.derive("learners", learning_partition, *given))


def _as_solution(
    setup: AscentSetup, state: RoundState, candidates: Codes, objective_before: float
) -> Solution:
    nothing = np.empty(0)  # the metric of each unit stays in its partition
    return Solution(
        bias=np.where(setup.excluded, 0.0, state.offset),
        excluded=setup.excluded,
        gain=state.gain / setup.quanta,
        support=setup.support,
        unit=setup.unit,
        before=nothing,
        after=nothing,
        objective_before=objective_before,
        objective_after=state.objectives[-1] / setup.quanta,
        cycles=state.rounds,
        updates=state.updates,
        order=candidates,
        converged=state.finished,
    )


def _log_round(quanta: float, state: RoundState) -> None:
    objective = state.objectives[-1] / quanta
    _LOG.info("round %d: objective %.9g, %d moves so far", state.rounds, objective, state.updates)
