"""Engines whose lists never hold what the user already has, as for films."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from als_engine import ALS
from trimtab.arrays import Lists, Sets
from trimtab.engines import Markov
from trimtab.engines.base import Events
from trimtab.metrics.ranking import rank_lists
from trimtab.tables.lists import group_sets


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
