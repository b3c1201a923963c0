"""A generated log of purchases in which items rise, fall, appear and disappear.

    P(c | u) = BASE_SHARE * share_c + sum over f of TASTE_SHARES[f] * [c is favorite f of u]

share_c is the popularity of category c before the change; within a category, items are bought by
their popularity at the time. Every user has random streams of their own, so that the first users of
a larger log are the users of a smaller one: splitmix64 (Steele, Lea and Flood 2014), started from a
hash of a key and the user. Items are drawn in constant time from alias tables (Vose 1991).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from itertools import pairwise
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab.arrays import Codes, Floats, Ints
from trimtab.checks import MOST_DAYS, require_number, require_positive, require_whole
from trimtab.errors import SettingError
from trimtab.tables.times import DAY

KINDS = ("steady", "trending", "fading", "seasonal", "new", "withdrawn")
STEADY, TRENDING, FADING, SEASONAL, NEW, WITHDRAWN = range(len(KINDS))
BASE_SHARE = 0.60
TASTE_SHARES = (0.20, 0.12, 0.08)
_REPEAT_SHARE = 0.2
_RAMP_SHARE = 0.1
_SEASONAL_AMPLITUDE = 1.5
_MOST_TRIES = 256
_MOST_CODES = 2**31 - 1
_PURPOSE = 2
_HOUR = DAY // 24
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_WEEKDAY_SALES = np.array([0.9, 0.9, 0.95, 1.0, 1.15, 1.3, 1.1])
_HOURLY_SALES = np.array(
    [1, 1, 1, 1, 1, 2, 4, 6, 8, 9, 10, 11, 11, 10, 10, 10, 11, 13, 15, 16, 15, 11, 6, 3], np.float64
)
_START = date(2026, 1, 5)

Popularity = Callable[[Ints, Floats], Floats]  # items and times in days; over the highest


@dataclass(frozen=True, eq=False)
class Items:
    """A catalogue with the true trends of its items; item codes are 0 to n_items - 1.

    Attributes:
        kind: Index into `KINDS`.
        category: Category code, from 0.
        weight: Popularity before any change; for a new item, its popularity once it exists.
        trend: Log of the popularity now over before: 0 for steady, -inf for withdrawn, +inf for
            new items.
        anchor: One steady item per category, so no category becomes empty.
    """

    kind: NDArray[np.int8]
    category: Codes
    weight: Floats
    trend: Floats
    anchor: Codes

    @property
    def long_run(self) -> Floats:
        """Popularity before the change, 0 for new items."""
        return np.where(self.kind == NEW, 0.0, self.weight)

    def catalogue(self) -> pa.Table:
        """Return what a shop knows: item_id, category."""
        return pa.table({"item_id": np.arange(len(self.kind)), "category": self.category})


def generate_items(
    n_items: int = 2_000, drift: float = 0.5, n_categories: int | None = None, seed: int = 0
) -> Items:
    """Return items of heavy-tailed popularity, as `generate_log` uses them.

    Some categories have more trending items, others more fading items.

    Args:
        n_items: Number of items.
        drift: Strength of the change: at 0 all items are steady; at 1 trending items sell about
            six times as much.
        n_categories: Number of categories; by default the square root of `n_items`.
        seed: Random seed.

    Raises:
        SettingError: A setting is out of range.

    Example:
        >>> items = generate_items(n_items=500, drift=0.0)
        >>> len(items.anchor), float(abs(items.trend).max())
        (22, 0.0)
    """
    require_whole("n_items", n_items, 1, _MOST_CODES)
    if n_categories is None:
        n_categories = max(1, round(n_items**0.5))
    require_whole("n_categories", n_categories, 1, n_items, "n_items")
    require_number("drift", drift, 0, 1)
    require_whole("seed", seed, 0)
    random = np.random.default_rng([seed, 0])
    # A flatter head than Zipf's law, as in real sales.
    weight = (random.permutation(n_items) + 21.0) ** -0.9
    sizes = random.gamma(2.0, size=n_categories) + 1e-3
    category = random.choice(n_categories, n_items, p=sizes / sizes.sum()).astype(np.int32)
    anchor = random.permutation(n_items)[:n_categories].astype(np.int32)
    category[anchor] = np.arange(n_categories, dtype=np.int32)
    kind = _assign_kinds(random, category, anchor, drift)
    return Items(kind, category, weight / weight.sum(), _assign_trends(random, kind, drift), anchor)


def _assign_kinds(
    random: np.random.Generator, category: Codes, anchor: Codes, drift: float
) -> NDArray[np.int8]:
    """Return the kind of each item; anchors are steady, and all items are without drift.

    With more drift there are more new and withdrawn items; the others are as many, but change more.
    """
    tilt = np.clip(random.normal(0.0, 0.7, len(anchor)), -1.0, 1.0)[category]
    ones = np.ones(len(category))
    shares = [
        0.15 * np.exp(tilt), 0.15 * np.exp(-tilt), 0.10 * ones, 0.04 * drift * ones,
        0.06 * drift * ones,
    ]  # fmt: skip
    crossed = (random.random(len(category)) >= np.cumsum(shares, axis=0)).sum(axis=0)
    kind = np.where(crossed < len(shares), crossed + 1, STEADY).astype(np.int8)
    kind[anchor] = STEADY
    return kind if drift > 0 else np.zeros_like(kind)


def _assign_trends(random: np.random.Generator, kind: NDArray[np.int8], drift: float) -> Floats:
    """Return the log change of each item, proportional to the drift."""
    strong = 1.8 * random.uniform(0.5, 1.5, len(kind))
    season = _SEASONAL_AMPLITUDE * np.sin(random.uniform(0.0, 2.0 * np.pi, len(kind)))
    never, always = np.full(len(kind), -np.inf), np.full(len(kind), np.inf)
    by_kind = [np.zeros(len(kind)), drift * strong, -drift * strong, drift * season, always, never]
    trend: Floats = np.choose(kind, by_kind)
    return trend


def generate_log(
    n_users: int = 10_000,
    n_items: int = 2_000,
    days: int = 120,
    purchases_per_user: float = 20.0,
    drift: float = 0.5,
    n_categories: int | None = None,
    seed: int = 0,
    start: date = _START,
) -> pa.Table:
    """Return events user_id, item_id, timestamp (UTC), in time order.

    Items are those of `generate_items` with the same settings. A trending or fading item changes
    over a tenth of the days, from its own start day, and reaches its full `trend` by the end. A
    seasonal item oscillates and ends at its trend. New items appear, and withdrawn items disappear,
    in the second half. A fifth of the purchases repeat an earlier one.

    Args:
        n_users: Number of users; those who bought nothing are not in the log.
        n_items: Number of items.
        days: Length of the log; events are in [start, start + days).
        purchases_per_user: Mean number of events per user over all days; heavy-tailed.
        drift: Strength of the change, from 0 (none) to 1 (strong).
        n_categories: Number of categories; by default the square root of `n_items`.
        seed: Random seed.
        start: First day.

    Raises:
        SettingError: A setting is out of range.

    Example:
        >>> generate_log(n_users=50, n_items=100, days=10).column_names
        ['user_id', 'item_id', 'timestamp']
    """
    items = generate_items(n_items, drift, n_categories, seed)
    require_whole("n_users", n_users, 1, _MOST_CODES)
    require_positive("purchases_per_user", purchases_per_user, 1_000_000)
    require_whole("days", days, 1, MOST_DAYS)
    if not isinstance(start, date) or isinstance(start, datetime):
        raise SettingError(f"start={start!r}: must be a datetime.date")
    popularity, highest = item_trends(items, days, drift, seed)
    return draw_log(
        n_users, items, popularity, highest, days, float(purchases_per_user), seed, start
    )


def item_trends(items: Items, days: int, drift: float, seed: int) -> tuple[Popularity, Floats]:
    """Return the popularity of items at times, over their highest, and the highest itself."""
    random = np.random.default_rng([seed, _PURPOSE])
    n_items, kind, trend = len(items.kind), items.kind, items.trend
    ramped = random.uniform(0.1, 0.9, n_items)
    sudden = random.uniform(0.5, 1.0, n_items)
    onset = days * np.where(np.isinf(trend), sudden, ramped)
    period = days * random.uniform(0.3, 0.9, n_items)
    amplitude = _SEASONAL_AMPLITUDE * drift
    end = trend / amplitude if amplitude > 0 else trend
    phase = np.arcsin(np.clip(np.where(kind == SEASONAL, end, 0.0), -1.0, 1.0))
    phase = np.where(random.random(n_items) < 0.5, phase, np.pi - phase)

    def popularity(item: Ints, time: Floats) -> Floats:
        ramp = np.clip((time - onset[item]) / (_RAMP_SHARE * days), 0.0, 1.0)
        angle = phase[item] + 2.0 * np.pi * (time - days) / period[item]
        with np.errstate(invalid="ignore"):  # the trend of new and withdrawn items is infinite
            by_kind = [
                np.ones(len(item)), np.exp(trend[item] * (ramp - 1.0)), np.exp(trend[item] * ramp),
                np.exp(amplitude * (np.sin(angle) - 1.0)), time >= onset[item], time < onset[item],
            ]  # fmt: skip
        return np.choose(kind[item], by_kind)

    rise = np.where(kind == TRENDING, trend, 0.0)
    return popularity, items.weight * np.exp(np.where(kind == SEASONAL, amplitude, rise))


def draw_log(
    n_users: int, items: Items, popularity: Popularity, highest: Floats,
    days: int, mean: float, seed: int, start: date,
) -> pa.Table:  # fmt: skip
    """Return the events of all users in time order; see `item_trends` for the two of popularity."""
    keys = stream_keys(seed, _PURPOSE, 3)
    counts = _draw_counts(Streams.start(keys[2], n_users), mean)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    users = np.repeat(np.arange(n_users), counts)
    streams = Streams.start(keys[1], n_users)
    times = _draw_times(streams, users, bounds, (start.weekday() + np.arange(days)) % 7)
    times = times[np.lexsort((times, users))]
    favorites = _draw_favorites(Streams.start(keys[0], n_users), items)
    tables = mixture(items, highest)
    bought = _draw_items(streams, favorites, tables, popularity, items.anchor, bounds, times / DAY)
    order = np.argsort(times, kind="stable")
    since_1970 = times[order] + (start - date(1970, 1, 1)).days * DAY
    stamps = pa.array(since_1970).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"user_id": users[order], "item_id": bought[order], "timestamp": stamps})


def _draw_counts(streams: Streams, mean: float) -> Ints:
    """Return the number of events of each user: Poisson, with a rate per user, heavy-tailed."""
    everybody = np.arange(len(streams.states))
    quantiles = lognormal_quantiles(1.0, mean)
    place = streams.draw_units(everybody) * (len(quantiles) - 1)
    below = place.astype(np.int64)
    rates = quantiles[below] + (place - below) * (quantiles[below + 1] - quantiles[below])
    draws, turns = streams.draw_units(everybody), streams.draw_units(everybody)
    normal = np.sqrt(-2.0 * np.log(1.0 - draws)) * np.cos(2.0 * np.pi * turns)
    rounded = np.maximum(0, (rates + np.sqrt(rates) * normal + 0.5).astype(np.int64))
    counts = np.zeros(len(rates), np.int64)  # by inversion, for rates below 30
    left, terms = np.where(rates < 30.0, draws, -1.0), np.exp(-rates)
    for count in range(1, 201):
        more = left >= terms
        counts += more
        left = np.where(more, left - terms, -1.0)
        terms *= rates / count
    return np.where(rates < 30.0, counts, rounded)


def _draw_times(streams: Streams, users: Ints, bounds: Ints, weekdays: Ints) -> Ints:
    """Return the times of all events, in microseconds since the start: day, hour, part of it."""
    place = np.arange(len(users)) - bounds[users]
    ahead = Streams(streams.states[users] + (3 * place).astype(np.uint64) * _GAMMA)
    streams.states += (3 * np.diff(bounds)).astype(np.uint64) * _GAMMA
    every = np.arange(len(users))
    day = ahead.draw_slots(every, alias_slots(_WEEKDAY_SALES[weekdays]))
    hour = ahead.draw_slots(every, alias_slots(_HOURLY_SALES))
    return day * DAY + hour * _HOUR + (ahead.draw_units(every) * _HOUR).astype(np.int64)


def _draw_favorites(streams: Streams, items: Items) -> Ints:
    """Return -1 and the favorite categories of each user."""
    slots = mixture(items, items.long_run).category_slots
    everybody = np.arange(len(streams.states))
    drawn = [streams.draw_slots(everybody, slots) for _ in TASTE_SHARES]
    return np.stack([np.full(len(everybody), -1), *drawn], axis=1)


def _draw_items(
    streams: Streams, favorites: Ints, tables: Mixture, popularity: Popularity, anchors: Codes,
    bounds: Ints, days: Floats,
) -> Ints:  # fmt: skip
    """Return the item of each event: one that the user bought earlier, or any, by popularity.

    Items are drawn by their highest popularity and rejected by that of the day. In every round all
    users draw one item each, for the event that they have come to.
    """
    n_users = len(favorites)
    bought = np.empty(bounds[-1], np.int64)
    event, tries = bounds[:-1].copy(), np.zeros(n_users, np.int64)
    taste, category, waits = np.zeros(n_users, np.int64), np.zeros(n_users, np.int64), event >= 0
    edges = np.cumsum([BASE_SHARE, *TASTE_SHARES[:-1]])

    def buy(users: Ints, items: Ints, surely: bool = False) -> None:
        """Let users buy items, by their popularity on the day or surely."""
        takes = surely | (streams.draw_units(users) < popularity(items, days[event[users]]))
        bought[event[users[takes]]] = items[takes]
        waits[users[takes]] = False

    users = np.flatnonzero(event < bounds[1:])
    while len(users):
        waits[users] = True
        begin = users[tries[users] == 0]
        draws, n_earlier = streams.draw_units(begin), event[begin] - bounds[begin]
        again = (draws < _REPEAT_SHARE) & (n_earlier > 0)
        place = (draws[again] / _REPEAT_SHARE * n_earlier[again]).astype(np.int64)
        buy(begin[again], bought[bounds[begin[again]] + place])
        begin = begin[waits[begin]]
        chosen = np.searchsorted(edges, streams.draw_units(begin), side="right")
        taste[begin] = favorites[begin, chosen]
        trying = users[waits[users]]
        category[trying] = taste[trying]
        anything = trying[taste[trying] < 0]
        category[anything] = streams.draw_slots(anything, tables.category_slots)
        low, high = tables.pointers[category[trying]], tables.pointers[category[trying] + 1]
        buy(trying, streams.draw_slots(trying, tables.item_slots, low, high))
        tries[users] += 1
        tired = users[waits[users] & (tries[users] == _MOST_TRIES)]
        buy(tired, anchors[category[tired]], surely=True)
        done = users[~waits[users]]
        event[done] += 1
        tries[done] = 0
        users = users[event[users] < bounds[users + 1]]
    return bought


class Streams:
    """A random stream per user."""

    def __init__(self, states: NDArray[np.uint64]) -> None:
        self.states = states

    @staticmethod
    def start(key: np.uint64, n_users: int) -> Streams:
        """Return the streams of users 0 to n_users - 1."""
        numbers = np.arange(1, n_users + 1, dtype=np.uint64)
        return Streams(_mix(key ^ _mix(numbers * _GAMMA)))

    def _draw_bits(self, users: Ints) -> NDArray[np.uint64]:
        self.states[users] += _GAMMA
        bits: NDArray[np.uint64] = _mix(self.states[users])
        return bits

    def draw_units(self, users: Ints) -> Floats:
        """Return the next number in [0, 1) of each of some users, each given once."""
        return (self._draw_bits(users) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def draw_slots(self, users: Ints, slots: Codes, low: Any = 0, high: Any | None = None) -> Ints:
        """Return a value for each user from the slots `low` to `high` of `alias_slots`."""
        bits, half = self._draw_bits(users), np.uint64(32)
        size = np.asarray((len(slots) if high is None else high) - low, np.uint64)
        slot = low + (((bits >> half) * size) >> half).astype(np.int64)
        takes_other = (bits & np.uint64(2**31 - 1)).astype(np.int64) >= slots[slot, 0]
        drawn: Ints = slots[slot, 1 + takes_other].astype(np.int64)
        return drawn


def _mix(states: Any) -> Any:
    bits = (states ^ (states >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def stream_keys(seed: int, purpose: int, n: int) -> NDArray[np.uint64]:
    """Return keys of `n` independent random streams for one purpose."""
    return np.random.SeedSequence([seed, purpose]).generate_state(n, np.uint64).astype(np.uint64)


def lognormal_quantiles(spread: float, mean: float | None = None) -> Floats:
    """Return evenly spaced quantiles of a lognormal of median 1, or of the given mean."""
    chances = (np.arange(1025) + 0.5) / 1025
    values = np.exp([spread * NormalDist().inv_cdf(chance) for chance in chances])
    return values if mean is None else values * (mean / values.mean())


class Mixture(NamedTuple):
    """Alias tables of a catalogue; `pointers` holds the bounds of each category's item slots."""

    pointers: Ints
    item_slots: Codes
    category_slots: Codes


def mixture(items: Items, weights: Floats, power: float = 1.0) -> Mixture:
    """Return tables that draw categories by weight, and items within them by weight ** power."""
    order = np.argsort(items.category, kind="stable").astype(np.int32)
    pointers = np.concatenate([[0], np.cumsum(np.bincount(items.category))])
    slots = alias_slots(weights[order] ** power, pointers)
    slots[:, 1:] = order[slots[:, 1:]]
    sums: Any = np.bincount(items.category, weights)
    return Mixture(pointers, slots, alias_slots(sums))


def alias_slots(weights: Floats, pointers: Ints | None = None) -> Codes:
    """Return an alias table that draws an index by its weight, for each segment of `pointers`.

    A slot is one row (threshold, own, other): a 31-bit random number below the threshold gives
    `own`, otherwise `other`. A weight of 0 is never drawn.
    """
    own = np.arange(len(weights), dtype=np.int32)
    chance, other = np.ones(len(weights)), own.copy()
    for low, high in pairwise([0, len(weights)] if pointers is None else pointers):
        segment = weights[low:high]
        other[low:high] = low + segment.argmax()
        share = (segment * ((high - low) / segment.cumsum()[-1])).tolist()
        small = [slot for slot in range(high - low) if share[slot] < 1.0]
        large = [slot for slot in range(high - low) if share[slot] >= 1.0]
        while small and large:
            lighter, heavier = small.pop(), large[-1]
            chance[low + lighter], other[low + lighter] = share[lighter], low + heavier
            share[heavier] -= 1.0 - share[lighter]
            if share[heavier] < 1.0:
                small.append(large.pop())
        # The rest differs from 1 only by rounding, unless its weight is 0.
        for slot in small:
            chance[low + slot] = float(segment[slot] > 0.0)
    thresholds = np.minimum(chance * 2.0**31, 2.0**31 - 1).astype(np.int32)
    return np.stack([thresholds, own, other], axis=1)
