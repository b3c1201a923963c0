"""Baselines: popular items, and the user's own repeat purchases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Lists
from trimtab.engines.base import Engine, Events
from trimtab.engines.sparse_mixture import Mix, Rows, commonest_first, mix_lists, share_rows


@dataclass(kw_only=True)
class Popularity(Engine):
    """Engine with the same list for everybody: the score is an item's share of all purchases."""

    def _learn(self, events: Events, item_ids: Any) -> Rows:
        recent = events.since(self.window_days)
        one_group = np.zeros(len(recent.items), np.int32)
        weights = recent.weights(self.decay_days)
        shares = share_rows(one_group, recent.items, weights, 1, events.n_items)
        return commonest_first(shares, events.n_items)

    def _score(self, model: Rows, users: Codes, n: int) -> Lists:
        one_list = Mix(np.array([0, 1]), np.zeros(1, np.int32), np.ones(1))
        _, items, scores = mix_lists(one_list, model, n)
        indptr = np.arange(len(users) + 1) * len(items)
        return Lists(indptr, np.tile(items, len(users)), np.tile(scores, len(users)))


class _UserShares(NamedTuple):
    mix: Mix
    rows: Rows


@dataclass(kw_only=True)
class Repeat(Engine):
    """Engine of repeat purchases: the score is an item's share of the user's purchases."""

    def _learn(self, events: Events, item_ids: Any) -> _UserShares:
        recent = events.since(self.window_days)
        weights = recent.weights(self.decay_days)
        shares = share_rows(recent.users, recent.items, weights, events.n_users, events.n_items)
        own_row = np.arange(events.n_users, dtype=np.int32)
        mix = Mix(np.arange(events.n_users + 1), own_row, np.ones(events.n_users))
        return _UserShares(mix, commonest_first(shares, events.n_items))

    def _score(self, model: _UserShares, users: Codes, n: int) -> Lists:
        return mix_lists(model.mix.take(users), model.rows, n)
