"""Rerankers with parts left out.

Parts are left out of the arrays that the choice model is fitted on: a term that is 0 everywhere has
a coefficient of 0. Everything else is learned as always, the length and the sources included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

import trimtab as tt
from reranker_fits import RerankArrays
from trimtab.arrays import OWN, TRENDING, Floats
from trimtab.learn.personal import LearnedPersonal, PersonalFits, nothing_personal
from trimtab.learn.personal_units import PersonalUnits
from trimtab.models.widening import SOURCES, TERMS, WiderLists


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
