"""Units: users, or pairs of user and window, with their lists and purchases.

Everything is counted over all units and learned from some of them. Which ones, and which are held
out together, depends on hashes of user ids, the window and the seed alone: it is the same in
memory, from files and on Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.arrays import (
    Codes,
    Flags,
    Floats,
    Ints,
    Lists,
    Sets,
    entries_of,
    find_positions,
    take_entries,
)
from trimtab.kernels.hit_value import discounts
from trimtab.learn.coded_part import CodedPart
from trimtab.learn.sales import Events, Grid
from trimtab.metrics.per_user import best_sums, gain_factors, in_quanta, weigh_purchases
from trimtab.parts.packing import packable
from trimtab.tables.vocabulary import Vocabulary
from trimtab.threads import run_ranges

N_FOLDS = 4
Hashes = NDArray[np.uint64]


@packable
class EventScale(NamedTuple):
    """What weights of events count as.

    Sales are sums of weights, of the heaviest event of a user, an item and a tick, scaled by

        (Σ w) / (Σ w²)        over the purchases of the windows

    so that they add up to the number of events of equal weight that would say as much: priors are
    counts of sales, and ten clicks of weight 0.1 must not count like ten orders.
    """

    most: float  # weight of a purchase
    factor: float
    differ: bool  # whether purchases count differently

    def as_sales(self, weights: Floats) -> Floats:
        """Return the sales that events count as."""
        return in_quanta(weights / self.most * self.factor)


ALIKE = EventScale(1.0, 1.0, differ=False)


@packable
class Plan(NamedTuple):
    """What all parts are counted by: common codes, and what depends on all users."""

    item_ids: Any
    windows: Any | None  # labels
    k: int
    metric: str
    seed: int
    heaviest: float  # weight of a unit
    event_scale: EventScale
    grid: Grid | None  # None: times are not known, or there is no history by user
    newest: int | None  # start of the newest window; None: purchases are not added to the history
    quanta: float  # per 1 of the metric
    weight_quanta: float  # per weight of the heaviest unit

    @property
    def n_items(self) -> int:
        """Number of item codes."""
        return len(self.item_ids)

    @property
    def n_windows(self) -> int:
        """Number of windows."""
        return 1 if self.windows is None else len(self.windows)

    def ticks_of(self, events: Events) -> Codes | None:
        """Return the ticks of events; None if they are not known."""
        known = self.grid is not None and events.times is not None
        return self.grid.ticks(events.times) if known else None  # type: ignore[union-attr, arg-type]


@packable
class Units(NamedTuple):
    """All or some units of a part, with codes of all parts."""

    lists: Lists
    bought: Sets
    weights: Floats  # in the mean of the metric, by user and by the heaviest event
    gains: Floats  # what a hit of relevance 1 counts as, over the value of a hit
    relevance: Floats | None  # of purchases; 1 each if None
    sales: Floats | None  # that each purchase counts as; 1 each if None
    hashes: Hashes  # of the users
    windows: Any  # numbers of the windows
    users: Any  # as in the events
    events: Events | None = None  # of these users

    @property
    def n_units(self) -> int:
        """Number of units."""
        return self.lists.n_units

    @property
    def learning(self) -> Flags:
        """Units that can gain or lose: those with a list, a purchase and a weight above 0."""
        filled: Flags = (np.diff(self.bought.indptr) > 0) & (np.diff(self.lists.indptr) > 0)
        return filled & (self.gains > 0)

    @property
    def with_hits(self) -> HitLists:
        """The units whose metric can change: those with a hit and a gain above 0."""
        hits = find_bought(self.lists, self.bought, self.relevance)
        source = np.flatnonzero((_count_hits(self.lists, hits) > 0) & (self.gains > 0))
        ordered, own = sort_items(self.lists, source, hits)
        n_bought = np.diff(self.bought.indptr)[source]
        by_unit = self.gains[source], source, self.hashes[source], self.windows[source]
        return HitLists(ordered, own, n_bought, *by_unit)

    def hits_on(self, lists: Lists, chosen: Ints) -> HitLists:
        """Some of the units on other lists, those without a hit included."""
        bought = self.bought.take(chosen)
        relevance = take_entries(self.bought.indptr, self.relevance, chosen)
        hits, n_bought = find_bought(lists, bought, relevance), np.diff(bought.indptr)
        by_unit = self.gains[chosen], chosen, self.hashes[chosen], self.windows[chosen]
        return HitLists(lists, hits, n_bought, *by_unit)


def prepare(part: CodedPart, plan: Plan) -> Units:
    """Return the units of a part with common codes and weights."""
    lists, bought, windows = part.lists, part.bought, part.windows
    items = item_codes(part, plan)
    if items is not None:
        lists = lists._replace(items=items[lists.items])
        bought = bought._replace(items=items[bought.items])
    if plan.windows is not None:
        windows = _codes(plan.windows, part.survey.windows)[windows]
    weights, relevance, sales = part.weights, None, None
    gains = weights
    if plan.event_scale.differ:
        each = np.ones(len(bought.items)) if part.event_weights is None else part.event_weights
        sales = plan.event_scale.as_sales(each)
        relevance, heaviest = weigh_purchases(bought, sales)
        weights = weights * heaviest
        gains = weights * gain_factors(bought, relevance, plan.metric, plan.k)
    return Units(lists, bought, weights, gains, relevance, sales, part.hashes, windows, part.users)


def item_codes(part: CodedPart, plan: Plan) -> Codes | None:
    """Return the common code of each of a part's items; None if they are the same."""
    own = part.survey.item_ids
    return None if len(own) == plan.n_items else _codes(plan.item_ids, own)


def _codes(every: Any, own: Any) -> Codes:
    return Vocabulary(every).codes(Vocabulary(own).column)


def folds_of(hashes: Hashes, seed: int) -> Ints:
    """Return the group of users that each user is held out with."""
    return (_mix(hashes, seed) >> np.uint64(62)).astype(np.int64)


# What units are drawn for; each draw is independent of the others.
FOR_LEARNING, FOR_CURVES, FOR_TREND = range(3)


def hash_units(hashes: Hashes, windows: Codes | Ints, seed: int, purpose: int) -> Floats:
    """Return a number in [0, 1) for each unit, from its user and window."""
    mixed = _mix(_mix(hashes, 1 + 3 * seed + purpose) ^ windows.astype(np.uint64), 2)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(numbers: Hashes, salt: int) -> Hashes:
    """Return the numbers mixed by splitmix64."""
    with np.errstate(over="ignore"):
        x = numbers + np.uint64(salt + 1) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        return x ^ (x >> np.uint64(31))


def join(values: Sequence[Any]) -> Any:
    """Return values of several parts as one, row after row; None stays None."""
    first = values[0]
    if len(values) == 1 or first is None:
        return first
    if isinstance(first, Lists | Sets):
        lengths = np.concatenate([np.diff(value.indptr) for value in values])
        columns = zip(*(value[1:] for value in values), strict=True)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        return type(first)(ends, *(np.concatenate(column) for column in columns))
    if isinstance(first, tuple):
        return type(first)(*(join(column) for column in zip(*values, strict=True)))
    return np.concatenate(values)


@packable
class HitLists(NamedTuple):
    """Lists of the units that bought at least one listed item; items ascend in each list."""

    lists: Lists
    hits: Flags | Floats  # by list entry: whether the unit bought it; or how relevant it was
    n_bought: Ints  # by unit: items bought, listed or not
    weights: Floats  # by unit
    source: Ints  # codes of the units
    hashes: Hashes  # of the users
    windows: Ints  # numbers of those that are learned from

    @property
    def n_units(self) -> int:
        """Units with a hit."""
        return self.lists.n_units

    @property
    def n_hits(self) -> Ints:
        """Listed items that each unit bought."""
        return _count_hits(self.lists, self.hits)

    def take(self, chosen: Ints) -> HitLists:
        """Return some of the units."""
        _, entries = entries_of(self.lists.indptr, chosen)
        by_unit: list[Any] = [column[chosen] for column in self[2:]]
        return HitLists(self.lists.take(chosen), self.hits[entries], *by_unit)

    def most_to_gain(self, k: int, metric: str) -> Floats:
        """Return the most that the hits on each unit's list can add to the metric."""
        max_hits = np.minimum(self.n_bought, k)
        summed = np.concatenate([[1.0], np.cumsum(discounts(metric, k))])[max_hits]
        ideal = {"acc": np.ones(len(max_hits)), "map": max_hits.astype(np.float64), "ndcg": summed}
        hits = np.minimum(self.n_hits, k)
        if self.hits.dtype != bool:
            hits = best_sums(self.lists.indptr, self.hits.astype(np.float64), k)[0]
        gains: Floats = self.weights * hits / ideal[metric]
        return gains


def sort_items(lists: Lists, units: Ints, values: Any) -> tuple[Lists, Any]:
    """Return the lists of some units with items ascending, and values of entries in that order."""
    from trimtab.kernels.counting import gather_lists

    indptr = np.concatenate([[0], np.cumsum(np.diff(lists.indptr)[units])])
    n = int(indptr[-1])
    out = np.empty(n, np.int32), np.empty(n), np.empty_like(values, shape=n)
    run_ranges(gather_lists, len(units), units, *lists, values, indptr, out)
    return Lists(indptr, *out[:2]), out[2]


def _count_hits(lists: Lists, hits: Flags | Floats) -> Ints:
    units = np.searchsorted(lists.indptr, np.flatnonzero(hits), "right") - 1
    return np.bincount(units, minlength=lists.n_units)


def find_bought(lists: Lists, bought: Sets, relevance: Floats | None) -> Flags | Floats:
    """Return what each unit bought of its list, by entry: as flags, or by relevance."""
    from trimtab.kernels.counting import find_relevance

    each = np.ones(len(bought.items), bool) if relevance is None else relevance
    hits = np.zeros(len(lists.items), each.dtype)
    longest = int(np.diff(lists.indptr).max(initial=0))
    run_ranges(
        find_relevance, lists.n_units, lists.indptr, lists.items, *bought, each, longest, hits
    )
    return hits


class Choice(NamedTuple):
    """Which units are learned from."""

    windows: Codes  # new numbers of the windows; -1: not learned from
    typical: float  # the weight that counts as 1
    share: float  # of the learning units

    @property
    def learned_from(self) -> Ints:
        """The windows that are learned from; the newest if there are none."""
        used = np.flatnonzero(self.windows >= 0)
        return used if len(used) else np.array([len(self.windows) - 1])


def _choose(part: CodedPart, plan: Plan, choice: Choice) -> Units:
    """Return the units of a part; those that are not learned from have a gain of 0."""
    units = prepare(part, plan)
    windows = choice.windows[units.windows].astype(np.int64)
    chosen = units.learning & (windows >= 0)
    if choice.share < 1:
        chosen &= hash_units(units.hashes, units.windows, plan.seed, FOR_LEARNING) < choice.share
    gains = np.where(chosen, units.gains / choice.typical, 0.0)
    return units._replace(gains=gains, windows=windows)


def take_hits(part: CodedPart, plan: Plan, choice: Choice) -> HitLists:
    """Return the units of a part with a hit."""
    return _choose(part, plan, choice).with_hits


def take_learning(part: CodedPart, plan: Plan, choice: Choice, with_events: bool) -> Units:
    """Return units of a part that can gain or lose, and the events of their users if wanted.

    Items ascend in each list.
    """
    units = _choose(part, plan, choice)
    chosen = np.flatnonzero(units.gains)
    users, events = units.users[chosen].astype(np.int64), None
    if with_events:
        known, users = np.unique(users, return_inverse=True)
        events = _events_of(part, plan, known)
    lists, _ = sort_items(units.lists, chosen, np.zeros(len(units.lists.items), bool))
    return Units(
        lists, units.bought.take(chosen), units.weights[chosen], units.gains[chosen],
        take_entries(units.bought.indptr, units.relevance, chosen), None, units.hashes[chosen],
        units.windows[chosen], users, events,
    )  # fmt: skip


def _events_of(part: CodedPart, plan: Plan, users: Ints) -> Events:
    """Return the events of some users, numbered in their order."""
    events = log_of(part, plan)
    assert events.users is not None
    numbers = find_positions(users, events.users)
    rows = np.flatnonzero(numbers >= 0)
    return events.take(rows)._replace(users=numbers[rows], weights=None)


def log_of(part: CodedPart, plan: Plan) -> Events:
    """Return the events of a part's users: the history, then the purchases of the windows.

    A purchase that the history has, too, is in the same tick there, so it counts once.
    """
    items = item_codes(part, plan)
    sales = _recode(part.sales, items, plan)
    if part.history is None:  # it has no users, and is counted by itself
        assert sales.times is not None
        assert plan.newest is not None
        return sales.take(np.flatnonzero(sales.times >= plan.newest))._replace(users=None)
    history = _recode(part.history, items, plan)
    if plan.newest is None:
        return history
    assert history.times is not None
    early = history.take(np.flatnonzero(history.times < plan.newest))
    both = [early, sales]
    if any(own.weights is not None for own in both):
        both = [
            own._replace(weights=np.ones(len(own.items)) if own.weights is None else own.weights)
            for own in both
        ]
    joined: Events = join(both)
    return joined


def _recode(events: Events, items: Codes | None, plan: Plan) -> Events:
    weights = None if events.weights is None else plan.event_scale.as_sales(events.weights)
    own = events.items if items is None else items[events.items]
    return events._replace(items=own, weights=weights)


def join_learning(parts: Sequence[Units]) -> Units:
    """Return units of several parts as one; users are numbered over all parts."""
    before, shifted = 0, []
    for part in parts:
        events = part.events
        if events is not None:
            assert events.users is not None
            events = events._replace(users=events.users + np.int32(before))
        shifted.append(part._replace(users=part.users + before, events=events))
        before += int(part.users.max(initial=-1)) + 1
    joined: Units = join(shifted)
    return joined
