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
from typing import Any

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
_EVERY = slice(None)
_WEEKDAY_SALES = np.array([0.9, 0.9, 0.95, 1.0, 1.15, 1.3, 1.1])
_HOURLY_SALES = np.array(
    [1, 1, 1, 1, 1, 2, 4, 6, 8, 9, 10, 11, 11, 10, 10, 10, 11, 13, 15, 16, 15, 11, 6, 3], np.float64
)

Popularity = Callable[[Ints, Floats], Floats]  # items and times in days; over the highest
Streams = NDArray[np.uint64]  # the state of one random stream per user


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


def generate_items(n_items: int = 2_000, drift: float = 0.5, seed: int = 0) -> Items:
    """Return items of heavy-tailed popularity, as `generate_log` uses them.

    The number of categories is the square root of `n_items`. Some categories have more trending
    items, others more fading items. With more drift there are more new and withdrawn items; the
    others are as many, but change more.

    Args:
        n_items: Number of items.
        drift: Strength of the change: at 0 all items are steady; at 1 trending items sell about
            six times as much.
        seed: Random seed.

    Raises:
        SettingError: A setting is out of range.

    Example:
        >>> items = generate_items(n_items=500, drift=0.0)
        >>> len(items.anchor), float(abs(items.trend).max())
        (22, 0.0)
    """
    require_whole("n_items", n_items, 1, _MOST_CODES)
    require_number("drift", drift, 0, 1)
    require_whole("seed", seed, 0)
    random = np.random.default_rng([seed, 0])
    # A flatter head than Zipf's law, as in real sales.
    weight = (random.permutation(n_items) + 21.0) ** -0.9
    n_categories = max(1, round(n_items**0.5))
    sizes = random.gamma(2.0, size=n_categories) + 1e-3
    category = random.choice(n_categories, n_items, p=sizes / sizes.sum()).astype(np.int32)
    anchor = random.permutation(n_items)[:n_categories].astype(np.int32)
    category[anchor] = np.arange(n_categories, dtype=np.int32)
    tilt = np.clip(random.normal(0.0, 0.7, n_categories), -1.0, 1.0)[category]
    rest = np.outer([0.10, 0.04 * drift, 0.06 * drift], np.ones(n_items))
    shares = np.concatenate([[0.15 * np.exp(tilt), 0.15 * np.exp(-tilt)], rest])
    crossed = (random.random(n_items) >= np.cumsum(shares, axis=0)).sum(axis=0)
    kind = np.where((crossed < len(shares)) & (drift > 0), crossed + 1, STEADY).astype(np.int8)
    kind[anchor] = STEADY
    strong = drift * (1.8 * random.uniform(0.5, 1.5, n_items))
    season = _SEASONAL_AMPLITUDE * np.sin(random.uniform(0.0, 2.0 * np.pi, n_items))
    trend = np.choose(kind, [0.0, strong, -strong, drift * season, np.inf, -np.inf])
    return Items(kind, category, weight / weight.sum(), trend, anchor)


def generate_log(
    n_users: int = 10_000,
    n_items: int = 2_000,
    days: int = 120,
    purchases_per_user: float = 20.0,
    drift: float = 0.5,
    seed: int = 0,
    start: date = date(2026, 1, 5),
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
        seed: Random seed.
        start: First day.

    Raises:
        SettingError: A setting is out of range.

    Example:
        >>> generate_log(n_users=50, n_items=100, days=10).column_names
        ['user_id', 'item_id', 'timestamp']
    """
    items = generate_items(n_items, drift, seed)
    require_whole("n_users", n_users, 1, _MOST_CODES)
    require_positive("purchases_per_user", purchases_per_user, 1_000_000)
    require_whole("days", days, 1, MOST_DAYS)
    if not isinstance(start, date) or isinstance(start, datetime):
        raise SettingError(f"start={start!r}: must be a datetime.date")
    popularity, highest = item_trends(items, days, drift, seed)
    return draw_log(n_users, items, popularity, highest, days, purchases_per_user, seed, start)


def item_trends(items: Items, days: int, drift: float, seed: int) -> tuple[Popularity, Floats]:
    """Return the popularity of items at times, over their highest, and the highest itself."""
    random = np.random.default_rng([seed, _PURPOSE])
    n_items, kind, trend = len(items.kind), items.kind, items.trend
    ramped, sudden = random.uniform(0.1, 0.9, n_items), random.uniform(0.5, 1.0, n_items)
    onset = days * np.where(np.isinf(trend), sudden, ramped)
    period = days * random.uniform(0.3, 0.9, n_items)
    amplitude = _SEASONAL_AMPLITUDE * drift
    end = np.where(kind == SEASONAL, trend, 0.0) / (amplitude or 1.0)
    phase = np.arcsin(np.clip(end, -1.0, 1.0))
    phase = np.where(random.random(n_items) < 0.5, phase, np.pi - phase)

    def popularity(item: Ints, time: Floats) -> Floats:
        ramp = np.clip((time - onset[item]) / (_RAMP_SHARE * days), 0.0, 1.0)
        angle = phase[item] + 2.0 * np.pi * (time - days) / period[item]
        with np.errstate(invalid="ignore"):  # the trend of new and withdrawn items is infinite
            by_kind = [
                1.0, np.exp(trend[item] * (ramp - 1.0)), np.exp(trend[item] * ramp),
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
    tastes, streams, counting = start_streams(seed, _PURPOSE, 3, n_users)
    counts = draw_poisson(counting, draw_lognormal(counting, 1.0, mean))
    bounds = np.concatenate([[0], np.cumsum(counts)])
    users = np.repeat(np.arange(n_users), counts)
    times = _draw_times(streams, users, bounds, (start.weekday() + np.arange(days)) % 7)
    times = times[np.lexsort((times, users))]
    favorites = draw_favorites(tastes, items)
    bought = _draw_items(streams, favorites, items, popularity, highest, bounds, times / DAY)
    order = np.argsort(times, kind="stable")
    since_1970 = times[order] + (start - date(1970, 1, 1)).days * DAY
    stamps = pa.array(since_1970).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"user_id": users[order], "item_id": bought[order], "timestamp": stamps})


def _draw_times(streams: Streams, users: Ints, bounds: Ints, weekdays: Ints) -> Ints:
    """Return the times of all events, in microseconds since the start: day, hour, part of it."""
    place = np.arange(len(users)) - bounds[users]
    ahead = streams[users] + (3 * place).astype(np.uint64) * _GAMMA
    streams += (3 * np.diff(bounds)).astype(np.uint64) * _GAMMA
    day = draw_slots(ahead, alias_slots(_WEEKDAY_SALES[weekdays]))
    hour = draw_slots(ahead, alias_slots(_HOURLY_SALES))
    return day * DAY + hour * _HOUR + (draw_units(ahead) * _HOUR).astype(np.int64)


def _draw_items(
    streams: Streams, favorites: Ints, items: Items, popularity: Popularity, highest: Floats,
    bounds: Ints, days: Floats,
) -> Ints:  # fmt: skip
    """Return the item of each event: one that the user bought earlier, or any, by popularity.

    Items are drawn by their highest popularity and rejected by that of the day. In every round all
    users draw one item each, for the event that they have come to.
    """
    shelves = Shelves(items, highest)
    bought = np.empty(bounds[-1], np.int64)
    event, tries = bounds[:-1].copy(), np.zeros(len(favorites), np.int64)
    taste, category, waits = tries.copy(), tries.copy(), event >= 0

    def buy(users: Ints, chosen: Ints, surely: bool = False) -> None:
        """Let users buy items, by their popularity on the day or surely."""
        takes = surely | (draw_units(streams, users) < popularity(chosen, days[event[users]]))
        bought[event[users[takes]]] = chosen[takes]
        waits[users[takes]] = False

    users = np.flatnonzero(event < bounds[1:])
    while len(users):
        waits[users] = True
        begin = users[tries[users] == 0]
        draws, n_earlier = draw_units(streams, begin), event[begin] - bounds[begin]
        again = (draws < _REPEAT_SHARE) & (n_earlier > 0)
        place = (draws[again] / _REPEAT_SHARE * n_earlier[again]).astype(np.int64)
        buy(begin[again], bought[bounds[begin[again]] + place])
        begin = begin[waits[begin]]
        taste[begin] = draw_tastes(streams, favorites, begin)
        trying = users[waits[users]]
        category[trying] = shelves.draw_categories(streams, taste[trying], trying)
        buy(trying, shelves.draw_items(streams, category[trying], trying))
        tries[users] += 1
        tired = users[waits[users] & (tries[users] == _MOST_TRIES)]
        buy(tired, items.anchor[category[tired]], surely=True)
        done = users[~waits[users]]
        event[done] += 1
        tries[done] = 0
        users = users[event[users] < bounds[users + 1]]
    return bought


# Random draws, one for each of some users ---------------------------------------------------------


def start_streams(seed: int, purpose: int, n: int, n_users: int) -> list[Streams]:
    """Return `n` independent sets of streams for one purpose, each of users 0 to n_users - 1."""
    keys = np.random.SeedSequence([seed, purpose]).generate_state(n, np.uint64)
    users = _mix(np.arange(1, n_users + 1, dtype=np.uint64) * _GAMMA)
    return [_mix(key ^ users) for key in keys]


def _draw_bits(streams: Streams, users: Any) -> NDArray[np.uint64]:
    streams[users] += _GAMMA
    return _mix(streams[users])


def _mix(states: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (states ^ (states >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def draw_units(streams: Streams, users: Any = _EVERY) -> Floats:
    """Return the next number in [0, 1) of each of some users, each given once."""
    return (_draw_bits(streams, users) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw_slots(
    streams: Streams, slots: Codes, users: Any = _EVERY, low: Any = 0, high: Any | None = None
) -> Ints:
    """Return a value for each user from the slots `low` to `high` of `alias_slots`."""
    bits, half = _draw_bits(streams, users), np.uint64(32)
    size = np.asarray((len(slots) if high is None else high) - low, np.uint64)
    slot = low + (((bits >> half) * size) >> half).astype(np.int64)
    takes_other = (bits & np.uint64(2**31 - 1)).astype(np.int64) >= slots[slot, 0]
    return slots[slot, 1 + takes_other].astype(np.int64)


def draw_lognormal(streams: Streams, spread: float, mean: float | None = None) -> Floats:
    """Return a draw for each user from a lognormal of median 1, or of the given mean."""
    chances = (np.arange(1025) + 0.5) / 1025
    quantiles = np.exp([spread * NormalDist().inv_cdf(chance) for chance in chances])
    if mean is not None:
        quantiles *= mean / quantiles.mean()
    return np.interp(draw_units(streams) * 1024, np.arange(1025), quantiles)


def draw_poisson(streams: Streams, rates: Floats) -> Ints:
    """Return a Poisson count for each rate: by inversion, or a rounded normal from 30."""
    draws, often = draw_units(streams), np.flatnonzero(rates >= 30.0)
    counts = np.zeros(len(rates), np.int64)
    left, terms = np.where(rates < 30.0, draws, -1.0), np.exp(-rates)
    for count in range(1, 201):
        more = left >= terms
        counts += more
        left = np.where(more, left - terms, -1.0)
        terms *= rates / count
    turns, rate = draw_units(streams, often), rates[often]
    normal = np.sqrt(-2.0 * np.log(1.0 - draws[often])) * np.cos(2.0 * np.pi * turns)
    counts[often] = np.maximum(0, (rate + np.sqrt(rate) * normal + 0.5).astype(np.int64))
    return counts


def draw_favorites(streams: Streams, items: Items) -> Ints:
    """Return -1 and the favorite categories of each user."""
    slots = Shelves(items, items.long_run).categories
    drawn = [draw_slots(streams, slots) for _ in TASTE_SHARES]
    return np.stack([np.full(len(streams), -1), *drawn], axis=1)


def draw_tastes(streams: Streams, favorites: Ints, users: Ints) -> Ints:
    """Return a favorite category of each user, or -1 for a purchase that ignores taste."""
    edges = np.cumsum([BASE_SHARE, *TASTE_SHARES[:-1]])
    chosen = np.searchsorted(edges, draw_units(streams, users), side="right")
    return favorites[users, chosen]


class Shelves:
    """Alias tables of a catalogue: categories by weight, items within them by weight ** power."""

    def __init__(self, items: Items, weights: Floats, power: float = 1.0) -> None:
        order = np.argsort(items.category, kind="stable").astype(np.int32)
        self.bounds = np.concatenate([[0], np.cumsum(np.bincount(items.category))])
        self.items = alias_slots(weights[order] ** power, self.bounds)
        self.items[:, 1:] = order[self.items[:, 1:]]
        sums: Any = np.bincount(items.category, weights)
        self.categories = alias_slots(sums)

    def draw_categories(self, streams: Streams, tastes: Ints, users: Any) -> Ints:
        """Return each user's category: the one of the taste, or any if that is below 0."""
        drawn, anything = tastes.copy(), tastes < 0
        drawn[anything] = draw_slots(streams, self.categories, users[anything])
        return drawn

    def draw_items(self, streams: Streams, categories: Ints, users: Any) -> Ints:
        """Return an item of each user's category."""
        low, high = self.bounds[categories], self.bounds[categories + 1]
        return draw_slots(streams, self.items, users, low, high)


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
