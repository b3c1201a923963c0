"""Fits of the Reranker at a date, as tables and as the arrays that it is learned from."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from typing import Any

import numpy as np

import trimtab as tt
from trimtab.arrays import OWN, TRENDING, Ints
from trimtab.learn.bias_fit import BiasFit, fit_biases
from trimtab.learn.counted import Counted, count_tables
from trimtab.learn.learners import divide
from trimtab.learn.personal import LearnedPersonal, build_reranker
from trimtab.learn.personal_units import lists_hold_own, sample_units, widen_units
from trimtab.replay.outcome import Case
from trimtab.tables.times import as_datetime


def fit_reranker(case: Case, metric: str) -> tt.Reranker:
    """The Reranker of a case, from the windows that the default learns from."""
    with warnings.catch_warnings():  # the lifts themselves show whether it helps
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        return case.training.fit(tt.RerankLearner(k=case.k, metric=metric))


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
        learned = case.training
        self._learner = tt.RerankLearner(k=case.k)
        biases = self._learner.biases
        tables = {"recs": learned.listed, "recent": learned.recent, "history": learned.history}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tt.TrimtabWarning)
            divided = divide(self._learner, "error", items=learned.catalogue, **tables)
            self.counted: Counted = count_tables(biases, *divided)
            self.fit: BiasFit = fit_biases(biases, self.counted, None)
        self.sampled = sample_units(self.counted, self.fit.shared)
        self.wide, has_purchases = widen_units(self.sampled, self.fit.shared, "any")
        self.has_purchases: Ints = np.flatnonzero(has_purchases)
        may_repeat = lists_hold_own(
            self.wide, self.sampled.windows, self.fit.shared.histories, has_purchases
        )
        self.sources = TRENDING | OWN if may_repeat else TRENDING
        if not may_repeat:
            self.wide = self.wide.without_repeats()

    @property
    def learns_terms(self) -> bool:
        """Whether anything can be learned of users with purchases."""
        return self.fit.shared.as_of and bool(self.fit.learned.folds)

    def reranker(self, personal: LearnedPersonal) -> tt.Reranker:
        """The Reranker of these biases and of what was learned of users with purchases."""
        return build_reranker(
            asdict(self._learner), self.counted, self.fit, personal, bool(self.sources & OWN)
        )
