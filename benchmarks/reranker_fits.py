"""Fits of the Reranker at a date, as tables and as the arrays that it is learned from."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from typing import Any

import numpy as np

import trimtab as tt
from trimtab.arrays import Ints
from trimtab.experiments.methods import Case
from trimtab.kernels.list_sources import OWN, TRENDING
from trimtab.learn import rerank_fit
from trimtab.learn.bias_fit import BiasFit, fit_biases
from trimtab.learn.bias_learner import divide
from trimtab.learn.coded_part import read_tables
from trimtab.learn.counted import Counted, count_tables
from trimtab.learn.personal_levels import LearnedPersonal
from trimtab.learn.personal_units import (
    SampledUnits,
    lists_hold_own,
    trending_items,
    widen_units,
)
from trimtab.learn.units import join_learning, take_learning
from trimtab.tables.times import as_datetime


def fit_reranker(case: Case, metric: str) -> tt.Reranker:
    """The Reranker of a case, from the windows that the default learns from."""
    recs, recent = case.windows
    learner = tt.RerankLearner(k=case.k, metric=metric)
    with warnings.catch_warnings():  # the lifts themselves show whether it helps
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        return learner.fit(recs, recent, history=case.split.train, items=case.catalogue)


def apply_reranker(reranker: tt.Reranker, case: Case) -> Any:
    """Tonight's lists, with all events before the date."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        return reranker.apply(
            case.lists, case.k, history=case.split.known,
            as_of=as_datetime(case.split.test_from), depth=case.n_listed,
        )  # fmt: skip


class RerankArrays:
    """The arrays of a fit for NDCG: the biases, and what users with purchases are learned from."""

    def __init__(self, case: Case) -> None:
        recs, recent = case.windows
        self._learner = tt.RerankLearner(k=case.k)
        biases = self._learner.biases
        tables = read_tables(
            recs=recs, recent=recent, history=case.split.train, items=case.catalogue
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tt.TrimtabWarning)
            self.counted: Counted = count_tables(biases, *divide(self._learner, tables, "error"))
            self.fit: BiasFit = fit_biases(biases, self.counted, None)
        self.sampled = self._sample()
        self.wide, has_purchases = widen_units(self.sampled, "any")
        self.has_purchases: Ints = np.flatnonzero(has_purchases)
        may_repeat = lists_hold_own(self.wide, self.sampled, has_purchases)
        self.sources = TRENDING | OWN if may_repeat else TRENDING
        if not may_repeat:
            self.wide = self.wide.without_repeats()

    def _sample(self) -> SampledUnits:
        """The units that the Reranker learns from."""
        counted, most = self.counted, (rerank_fit._MOST_UNITS, rerank_fit._MOST_ENTRIES)
        choice = counted.limit(counted.choose_units()[0], *most)
        units = list(counted.parts.map(take_learning, counted.plan, choice, True))
        return SampledUnits.of(join_learning(units), self.fit.shared)

    @property
    def learns_terms(self) -> bool:
        """Whether anything can be learned of users with purchases."""
        return self.fit.shared.as_of and bool(self.fit.learned.folds)

    def reranker(self, personal: LearnedPersonal | None) -> tt.Reranker:
        """The Reranker of these biases and of what was learned of users with purchases."""
        assert self.counted.histories.now is not None
        assert self.counted.histories.end is not None
        coefficients, item_part = rerank_fit._add_up(self.fit, personal)
        return tt.Reranker(
            bias=self.fit.bias,
            item_part=item_part,
            trending=trending_items(self.counted.histories.now),
            learned=coefficients,
            summary=rerank_fit._summarise(self._learner.biases, self.fit, personal),
            settings=asdict(self._learner),
            may_repeat=bool(self.sources & OWN),
            score_unit=self.fit.shared.score_unit,
            learned_until=self.counted.histories.end,
            has_zone=True,
        )
