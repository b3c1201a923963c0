"""implicit's alternating least squares as an engine, which Trimtab does not bring itself.

Unseen engines never list what the user already has, as for films.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.arrays import Lists, Sets, close_lists, pointers
from trimtab.engines import Engine, Markov, Popularity
from trimtab.engines.base import Events, gather_purchases
from trimtab.metrics.per_user import rank_lists
from trimtab.tables.lists import group_sets


@dataclass(kw_only=True)
class ALS(Engine):
    """Factors of confidences 5 log(1 + purchases); see `Engine` for windows and decay."""

    n_factors: int = 64
    iterations: int = 12

    def _learn(self, events: Events, items: Any) -> Any:
        from implicit.als import AlternatingLeastSquares
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1, "blas"):
            model = AlternatingLeastSquares(
                factors=self.n_factors, iterations=self.iterations, random_state=0
            )
            model.fit(self._matrix(events.since(self.window_days)), show_progress=False)
        return model, self._matrix(events)

    def _matrix(self, events: Events) -> Any:
        from scipy.sparse import csr_matrix

        bought = gather_purchases(events, events.weights(self.decay_days))
        values = 5 * np.log1p(bought.weights).astype(np.float32)
        rows = pointers(bought.users, bought.n_users)
        return csr_matrix((values, bought.items, rows), shape=(bought.n_users, bought.n_items))

    def _score(self, model: Any, users: Any, n: int) -> Any:
        als, matrix = model
        known = np.flatnonzero(users >= 0)
        items, scores = als.recommend(
            users[known], matrix[users[known]], N=n, filter_already_liked_items=False,
            recalculate_user=self.window_days is not None,
        )  # fmt: skip
        order = np.lexsort((items, -scores), axis=1)
        items, scores = (np.take_along_axis(a, order, axis=1) for a in (items, scores))
        lengths = np.zeros(len(users), np.int64)
        lengths[known] = (scores > 0).sum(axis=1)
        places, values = np.zeros((2, len(users), n))
        places[known], values[known] = items, scores
        return close_lists(places.ravel().astype(np.int32), values.ravel(), lengths, n)


class _Unseen:
    """Leaves out what users have; lists stay as long as they were."""

    def _learn(self, events: Events, item_ids: Any) -> Any:
        own = group_sets(events.users, events.items, events.n_users)
        own = Sets(np.append(own.indptr, own.indptr[-1]), own.items)  # unknown users, -1, have none
        return super()._learn(events, item_ids), own, len(item_ids)

    def _score(self, model: Any, users: Any, n: int) -> Lists:
        inner, own, n_items = model
        hidden = own.take(users)
        longest = min(n + int(np.diff(hidden.indptr).max(initial=0)), n_items)
        lists = super()._score(inner, users, longest)
        return rank_lists(lists, n, np.zeros(n_items), hidden=hidden)


@dataclass(kw_only=True)
class UnseenMarkov(_Unseen, Markov):
    """A Markov engine without what the user has."""


@dataclass(kw_only=True)
class UnseenALS(_Unseen, ALS):
    """implicit's ALS without what the user has, as with its `filter_already_liked_items`."""


@dataclass(kw_only=True)
class UnseenPopularity(_Unseen, Popularity):
    """What sells most, without what the user has."""
