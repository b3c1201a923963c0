"""A sample of the units: their lists, what they bought, and what their users bought before.

Everything is as of the start of each unit's window.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets, take_entries
from trimtab.kernels.list_sources import LISTED, OWN, TRENDING
from trimtab.learn.hierarchy.hierarchy_fit import BiasFit
from trimtab.learn.hierarchy.levels import HierarchyInputs
from trimtab.learn.hierarchy.line_search import gather_hits, values_at
from trimtab.learn.hierarchy.shared_inputs import SharedInputs, folds_of, hash_units
from trimtab.learn.hierarchy.unit_data import UnitData
from trimtab.learn.history import History
from trimtab.learn.units import learning_units
from trimtab.models.scaled_scores import model_scores, to_scale
from trimtab.models.widening import (
    MOST_ADDED,
    Purchases,
    WiderLists,
    days_before,
    sum_purchases,
    widen,
)
from trimtab.threads import run_ranges

_MOST_UNITS, _MOST_ENTRIES = 20_000, 2_000_000  # enough for a few coefficients
_BY_CHANCE = 0.1  # of what chance would put on lists: engines that never list what a user has
_LEAST_BY_CHANCE = 20.0  # entries


@dataclass(frozen=True)
class SampledUnits:
    """Some of the units that can gain or lose.

    Args:
        lists: on the scale of the biases; items ascend in each list.
        model: the same with the scores that the choice model uses.
        bought: by unit.
        weights: by unit.
        users: code of each unit's user.
        windows: of each unit.
        shared: what all units of the fit share.
        relevance: of the purchases, if they have weights.
    """

    lists: Lists
    model: Lists
    bought: Sets
    weights: Floats
    users: Ints
    windows: Ints
    shared: SharedInputs
    relevance: Floats | None = None

    @property
    def n_units(self) -> int:
        """Number of units."""
        return self.lists.n_units

    @cached_property
    def folds(self) -> Ints:
        """The part that each unit is held out with: its window, or a group of users."""
        if self.shared.folds_are_windows:
            return self.windows
        return folds_of(self.users, self.shared.seed)

    def engine_values(self) -> Floats:
        """The weighted metric of each unit with the engine's ranking."""
        data = gather_hits(self.lists, self.bought, self.weights, self.relevance)
        found = np.zeros(self.n_units)
        found[data.source] = values_at(
            data, np.zeros(len(data.hits)), self.shared.k, self.shared.metric, 0.0
        )
        return found

    def bias_values(self, fit: BiasFit, strength: float = 1.0) -> Floats:
        """The weighted metric of each unit with a share of the biases, each unit held out."""
        data = gather_hits(self.lists, self.bought, self.weights, self.relevance)
        units = UnitData(data, self.users[data.source], self.windows[data.source], self.shared)
        found = np.zeros(self.n_units)
        kept = {level: strength * length for level, length in fit.learned.kept.items()}
        found[data.source] = units.held_out_values(list(fit.learned.folds), kept)
        return found


def sample_units(prepared: HierarchyInputs, shared: SharedInputs) -> tuple[SampledUnits, Ints]:
    """A sample of the units of a fit, and their codes among all units."""
    learning = learning_units(prepared.lists, prepared.bought, prepared.weights)
    learning &= prepared.windows >= 0
    units = np.flatnonzero(learning)
    entries = int(np.diff(prepared.lists.indptr)[units].sum())
    units = units[in_sample(units, shared.seed, len(units), entries)]
    sampled = describe_sample(
        sort_items(prepared.lists, units), prepared.bought.take(units), prepared.weights[units],
        prepared.users[units].astype(np.int64), prepared.windows[units].astype(np.int64), shared,
        take_entries(prepared.bought.indptr, prepared.relevance, units),
    )  # fmt: skip
    return sampled, units


def in_sample(units: Ints, seed: int, n_units: int, n_entries: int) -> Flags:
    """Which units are in the sample; the same in any part of the units.

    Args:
        units: codes of learning units.
        seed: of the fit.
        n_units: learning units of all parts.
        n_entries: of their lists.
    """
    share = min(1.0, _MOST_UNITS / max(n_units, 1), _MOST_ENTRIES / max(n_entries, 1))
    chosen: Flags = hash_units(units, seed) < share
    return chosen


def describe_sample(
    lists: Lists, bought: Sets, weights: Floats, users: Ints, windows: Ints, shared: SharedInputs,
    relevance: Floats | None = None,
) -> SampledUnits:  # fmt: skip
    """A sample on the scale of the biases.

    Args:
        lists: with the engine's scores; items ascend in each list.
        bought: by unit.
        weights: by unit.
        users: code of each unit's user.
        windows: of each unit.
        shared: what all units of the fit share.
        relevance: of the purchases, if they have weights.
    """
    scaled = to_scale(lists, shared.scale, shared.k).lists
    model = model_scores(scaled, shared.scale, shared.score_unit, shared.k)
    return SampledUnits(
        scaled, scaled._replace(scores=model), bought, weights, users, windows, shared, relevance
    )


def sort_items(lists: Lists, units: Ints) -> Lists:
    """The lists of some units, with items ascending, so that the order of rows does not matter."""
    from trimtab.kernels.choice_sums import gather_lists

    indptr = np.concatenate([[0], np.cumsum(np.diff(lists.indptr)[units])])
    n = int(indptr[-1])
    out = np.empty(n, np.int32), np.empty(n), np.empty(n, bool)
    none = np.zeros(len(lists.items), bool)
    run_ranges(gather_lists, len(units), units, *lists, none, indptr, out)
    return Lists(indptr, *out[:2])


def trending_items(history: History) -> Codes:
    """The best sellers just before an instant, best first."""
    assert history.window is not None
    order = np.argsort(-history.window, kind="stable")[:MOST_ADDED]
    return order[history.window[order] > 0].astype(np.int32)


class UserLog(NamedTuple):
    """What the users of sampled units bought, and when; others' purchases do not matter."""

    users: Codes  # of purchases
    items: Codes
    times: Ints  # in microseconds
    of_units: Codes  # user of each sampled unit, coded as those of the purchases


def widen_units(sampled: SampledUnits, log: UserLog, widen_by: str) -> tuple[WiderLists, Flags]:
    """The wider lists of sampled units as of their windows, and which have purchases before.

    Args:
        sampled: the units.
        log: of their users.
        widen_by: "any", "listed" or "none".
    """
    shared = sampled.shared
    parts, has_purchases = [], np.zeros(sampled.n_units, bool)
    for window in range(shared.n_windows):
        own = np.flatnonzero(sampled.windows == window)
        purchases = _purchases_before(log, shared.histories.starts[window], log.of_units[own])
        has_purchases[own] = purchases.lengths > 0
        may_add = np.full(shared.n_items, widen_by == "any")
        if widen_by == "listed":
            may_add = shared.counts(window)[1] > 0
        rows = np.arange(len(own), dtype=np.int32)
        trending = trending_items(shared.histories.before[window])
        lists = sampled.model.take(own)
        parts.append((own, widen(lists, rows, purchases, may_add, trending, TRENDING | OWN)))
    return _in_order(parts, sampled.n_units), has_purchases


def _purchases_before(log: UserLog, start: int, users: Codes) -> Purchases:
    """What users bought before a window; one row for each of them, in their order."""
    row_of = np.full(int(max(log.users.max(initial=0), users.max(initial=0))) + 1, -1, np.int32)
    row_of[users] = np.arange(len(users), dtype=np.int32)  # each user is in a window once
    rows = row_of[log.users]
    chosen = np.flatnonzero((rows >= 0) & (log.times < start))
    days = days_before(start, log.times[chosen])
    return sum_purchases(rows[chosen], log.items[chosen], days, len(users))


def _in_order(parts: list[tuple[Ints, WiderLists]], n_units: int) -> WiderLists:
    """Parts of the units as one, in the order of the units."""
    place = np.concatenate([own for own, _ in parts])
    lengths = np.concatenate([np.diff(part.lists.indptr) for _, part in parts])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    joined = WiderLists(
        Lists(indptr, *(np.concatenate([p.lists[c] for _, p in parts]) for c in (1, 2))),
        np.concatenate([part.sources for _, part in parts]),
        np.concatenate([part.terms for _, part in parts]),
    )
    order = np.empty(n_units, np.int64)
    order[place] = np.arange(n_units)
    return joined.take(order)


def lists_hold_own(wide: WiderLists, sampled: SampledUnits, has_purchases: Flags) -> bool:
    """Whether lists hold what the user already has; some engines never list that.

    They do unless it is on far fewer lists than if the same items were dealt to users at random.

    Args:
        wide: the wider lists of the units.
        sampled: the units.
        has_purchases: units whose users bought something before.
    """
    lists = wide.lists
    of_unit = np.repeat(np.arange(lists.n_units), np.diff(lists.indptr))
    listed = (wide.sources == LISTED) & has_purchases[of_unit]
    found = float(wide.terms[listed, 0].sum())
    by_chance, histories = 0.0, sampled.shared.histories
    for window, history in enumerate(histories.before):
        assert history.buyers is not None
        own = listed & (sampled.windows[of_unit] == window)
        by_chance += float(history.buyers[lists.items[own]].sum()) / histories.n_users
    return repeats_own(found, by_chance)


def repeats_own(found: float, by_chance: float) -> bool:
    """Whether lists with so many entries that the user has, and so many by chance, hold them."""
    return by_chance < _LEAST_BY_CHANCE or found >= _BY_CHANCE * by_chance
