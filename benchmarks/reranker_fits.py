"""Fits of the Reranker at a date, whole and with parts left out.

Parts are left out of the arrays that the choice model is fitted on: a term that is 0 everywhere has
a coefficient of 0. Everything else is learned as always, the length and the sources included.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

import trimtab as tt
from trimtab.arrays import OWN, TRENDING, Floats, Ints
from trimtab.learn.bias_fit import BiasFit, fit_biases
from trimtab.learn.counted import Counted, count_tables
from trimtab.learn.learners import divide
from trimtab.learn.personal import (
    LearnedPersonal,
    PersonalFits,
    build_reranker,
    nothing_personal,
)
from trimtab.learn.personal_units import (
    PersonalUnits,
    lists_hold_own,
    sample_units,
    widen_units,
)
from trimtab.models.widening import SOURCES, TERMS, WiderLists
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


class Included(NamedTuple):
    """What the choice model of users with purchases is fitted on."""

    wide: WiderLists
    sources: int
    item_terms: bool = True

    def without_terms(self, *names: str) -> Included:
        """Personal terms left out."""
        terms = self.wide.terms.copy()
        terms[:, [TERMS.index(name) for name in names]] = 0.0
        return self._replace(wide=self.wide._replace(terms=terms))

    def without_item_terms(self) -> Included:
        """All features of items left out; the biases stay as they are."""
        return self._replace(item_terms=False)

    def without_source(self, source: int) -> Included:
        """Nothing added from some sources."""
        return self._replace(sources=self.sources & ~source)


LEFT_OUT: dict[str, Callable[[Included], Included]] = {
    **{f"without {name}": lambda own, name=name: own.without_terms(name) for name in TERMS},
    "without personal terms": lambda own: own.without_terms(*TERMS),
    "without item terms": Included.without_item_terms,
    **{
        f"without source {name}": lambda own, source=source: own.without_source(source)
        for name, source in SOURCES.items()
    },
    "without added items": lambda own: own.without_source(TRENDING | OWN),
}


def leave_out(arrays: RerankArrays) -> Iterator[tuple[str, tt.Reranker]]:
    """What is left out, and the Reranker without it; the whole one first."""
    whole = Included(arrays.wide, arrays.sources)
    for name, change in {"whole": lambda own: own, **LEFT_OUT}.items():
        yield name, arrays.reranker(learn_from(arrays, change(whole)))


def learn_from(arrays: RerankArrays, included: Included) -> LearnedPersonal:
    """What is learned of users with purchases."""
    if not arrays.learns_terms:
        return nothing_personal(arrays.fit)
    kind = PersonalFits if included.item_terms else _NoItemFits
    fits = kind(arrays.sampled, included.wide, arrays.has_purchases, arrays.fit)
    return fits.learn(included.sources)


class _NoItemUnits(PersonalUnits):
    """Units whose item features are 0."""

    @cached_property
    def _tables(self) -> Floats:
        return np.zeros_like(self.shared.tables(self._items))


class _NoItemFits(PersonalFits):
    kind = _NoItemUnits
