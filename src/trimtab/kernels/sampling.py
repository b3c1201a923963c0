"""Draws users' tastes, lists and purchases; the same bytes for any number of threads.

Every user has random streams of its own: splitmix64 (Steele, Lea and Flood 2014) started from a
hash of (stream key, user). Items are drawn in constant time from alias tables (Vose 1991), one
segment of slots per category.

    P(c | u) = BASE_SHARE * share_c + sum over f of TASTE_SHARES[f] * [c is favourite f of u]
    p_ui     = P(c_i | u) * within_i            the taste part of a purchase
    r_ui     = p_ui * lognormal noise           what this user likes of its own, listed items only
    score    = OWN_SHARE * r_ui / sum(r_u) + (1 - OWN_SHARE) * p_ui

The score is the long-run chance that one purchase of u is i, so without drift the engine's order
cannot be improved. With drift every weight of item i is multiplied by change_i.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.kernels.jit import helper, kernel

BASE_SHARE = 0.60
TASTE_SHARES = (0.20, 0.12, 0.08)
OWN_SHARE = 0.06
REPEAT_SHARE = 0.2
RAMP_SHARE = 0.1

STEADY, TRENDING, FADING, SEASONAL, NEW, WITHDRAWN = range(6)

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S11, _S27, _S30, _S31, _S32 = (np.uint64(shift) for shift in (11, 27, 30, 31, 32))
_LOW_HALF = np.uint64(0xFFFFFFFF)
_TO_UNIT = 2.0**-53
_HALF_TO_UNIT = 2.0**-32
_NEVER_SEEN = 1e-12
_HOUR = 3_600_000_000
_DAY = 24 * _HOUR


class Mixture(NamedTuple):
    """Alias tables over slots; `pointers` cuts the slots into one segment per category.

    A slot gives the first of its pair of items by its chance, otherwise the second.
    """

    pointers: NDArray[np.int64]
    item_pair: NDArray[np.int32]
    chance: NDArray[np.float64]
    category_pair: NDArray[np.int32]
    category_chance: NDArray[np.float64]


class World(NamedTuple):
    """What is true of items in the long run, and how they changed."""

    category: NDArray[np.int32]
    within: NDArray[np.float64]
    category_share: NDArray[np.float64]
    change: NDArray[np.float64]
    by_popularity: NDArray[np.int32]


class Draft(NamedTuple):
    """Room for a list as it is drawn; `seen[item]` is the last user it was drawn for."""

    items: NDArray[np.int32]
    scores: NDArray[np.float64]
    liking: NDArray[np.float64]
    ranks: NDArray[np.int64]
    seen: NDArray[np.int32]


class Course(NamedTuple):
    """How each item's popularity runs over the days of a log."""

    kind: NDArray[np.int8]
    trend: NDArray[np.float64]
    onset: NDArray[np.float64]
    amplitude: NDArray[np.float64]
    period: NDArray[np.float64]
    phase: NDArray[np.float64]


class Calendar(NamedTuple):
    """Alias tables over the days of a log and the hours of a day."""

    day_pair: NDArray[np.int32]
    day_chance: NDArray[np.float64]
    hour_pair: NDArray[np.int32]
    hour_chance: NDArray[np.float64]


@helper
def _mix(value):
    value = (value ^ (value >> _S30)) * _FIRST
    value = (value ^ (value >> _S27)) * _SECOND
    return value ^ (value >> _S31)


@helper
def _stream(key, user):
    return _mix(key ^ _mix((np.uint64(user) + np.uint64(1)) * _GAMMA))


@helper
def _unit(bits):
    return np.float64(bits >> _S11) * _TO_UNIT


@helper
def _alias(bits, low, high, pair, chance):
    """A value from the slots low to high; picking it by index spares a branch."""
    slot = low + np.int64(((bits >> _S32) * np.uint64(high - low)) >> _S32)
    leaves = np.float64(bits & _LOW_HALF) * _HALF_TO_UNIT >= chance[slot]
    return pair[slot, np.int64(leaves)]


@helper
def _quantile(bits, quantiles):
    place = _unit(bits) * (len(quantiles) - 1)
    below = int(place)
    return quantiles[below] + (place - below) * (quantiles[below + 1] - quantiles[below])


@helper
def _draw_item(state, category, mixture):
    """One item of a category."""
    state += _GAMMA
    low, high = mixture.pointers[category], mixture.pointers[category + 1]
    return state, _alias(_mix(state), low, high, mixture.item_pair, mixture.chance)


@helper
def _draw_favoured(state, favourites):
    """A favourite category, or -1 for a purchase that taste has no part in."""
    state += _GAMMA
    place = _unit(_mix(state)) - BASE_SHARE
    if place < 0.0:
        return state, np.int64(-1)
    for rank in range(len(TASTE_SHARES) - 1):
        if place < TASTE_SHARES[rank]:
            return state, favourites[rank]
        place -= TASTE_SHARES[rank]
    return state, favourites[len(TASTE_SHARES) - 1]


@helper
def _draw_any_category(state, mixture):
    state += _GAMMA
    chance = mixture.category_chance
    return state, np.int64(_alias(_mix(state), 0, len(chance), mixture.category_pair, chance))


@helper
def _draw(state, favourites, mixture):
    """One item by taste and popularity."""
    state, category = _draw_favoured(state, favourites)
    if category < 0:
        state, category = _draw_any_category(state, mixture)
    return _draw_item(state, category, mixture)


@helper
def _fill_favourites(key, user, mixture, favourites):
    state = _stream(key, user)
    for rank in range(len(favourites)):
        state, category = _draw_any_category(state, mixture)
        favourites[rank] = category


@helper
def _poisson(state, rate):
    """A Poisson count by inversion; from a rate of 30, a rounded normal."""
    state += _GAMMA
    place = _unit(_mix(state))
    if rate >= 30.0:
        state += _GAMMA
        angle = 2.0 * math.pi * _unit(_mix(state))
        spread = math.sqrt(-2.0 * math.log(1.0 - place)) * math.cos(angle)
        return state, max(0, int(rate + math.sqrt(rate) * spread + 0.5))
    count = 0
    term = math.exp(-rate)
    while place >= term and count < 200:
        place -= term
        count += 1
        term *= rate / count
    return state, count


@kernel
def build_alias(pointers, weights, chance, other):
    """Fill alias tables, one per segment; a slot of weight 0 is never drawn."""
    large = np.empty(len(weights), np.int64)
    small = np.empty(len(weights), np.int64)
    for segment in range(len(pointers) - 1):
        low, high = pointers[segment], pointers[segment + 1]
        if low == high:
            continue
        heaviest = low + np.argmax(weights[low:high])
        scale = (high - low) / weights[low:high].sum()
        n_large = n_small = 0
        for slot in range(low, high):
            chance[slot] = weights[slot] * scale
            other[slot] = heaviest
            if chance[slot] < 1.0:
                small[n_small] = slot
                n_small += 1
            else:
                large[n_large] = slot
                n_large += 1
        while n_small > 0 and n_large > 0:
            n_small -= 1
            poor, rich = small[n_small], large[n_large - 1]
            other[poor] = rich
            chance[rich] -= 1.0 - chance[poor]
            if chance[rich] < 1.0:
                n_large -= 1
                small[n_small] = rich
                n_small += 1
        # What is left over differs from 1 by rounding only, unless its weight is 0.
        for left in range(n_small):
            chance[small[left]] = 1.0 if weights[small[left]] > 0.0 else 0.0
        for left in range(n_large):
            chance[large[left]] = 1.0


@kernel
def draw_counts(start, stop, key, rates, counts):
    """Fill counts[window, user]: Poisson around the user's own rate, of which `rates` has quantiles."""
    for user in range(start, stop):
        state = _stream(key, user) + _GAMMA
        rate = _quantile(_mix(state), rates)
        for window in range(counts.shape[0]):
            state, count = _poisson(state, rate)
            counts[window, user] = count


@helper
def _fill_candidates(state, user, favourites, engine, by_popularity, items, seen):
    """Distinct items for a list: by taste and popularity, the rest from the most popular."""
    n_listed = len(items)
    count = 0
    for _ in range(6 * n_listed + 64):
        state, item = _draw(state, favourites, engine)
        if seen[item] != user:
            seen[item] = user
            items[count] = item
            count += 1
            if count == n_listed:
                return state
    for item in by_popularity:
        if seen[item] != user:
            seen[item] = user
            items[count] = item
            count += 1
            if count == n_listed:
                break
    return state


@helper
def _fill_scores(state, favourites, world, noise, items, scores, liking):
    total = 0.0
    for place in range(len(items)):
        item = items[place]
        category = world.category[item]
        taste = BASE_SHARE * world.category_share[category]
        for rank in range(len(favourites)):
            if favourites[rank] == category:
                taste += TASTE_SHARES[rank]
        state += _GAMMA
        scores[place] = taste * world.within[item]
        liking[place] = max(scores[place], _NEVER_SEEN) * _quantile(_mix(state), noise)
        total += liking[place]
    for place in range(len(items)):
        scores[place] = OWN_SHARE * liking[place] / total + (1.0 - OWN_SHARE) * scores[place]


@helper
def _fill_ranks(items, scores, ranks):
    """Rank of each item: score descending, then item ascending.

    Counting who is ahead takes n_listed ** 2 comparisons, but vectorised and without a branch:
    at 50 listed a sixth of the time of an insertion sort. Ties, which are rare, come after.
    """
    n_listed = len(items)
    total = 0
    for place in range(n_listed):
        score = scores[place]
        ahead = np.int64(0)
        for rival in range(n_listed):
            ahead += np.int64(scores[rival] > score)
        ranks[place] = ahead
        total += ahead
    if total == n_listed * (n_listed - 1) // 2:
        return
    for place in range(n_listed):
        for rival in range(n_listed):
            if scores[rival] == scores[place] and items[rival] < items[place]:
                ranks[place] += 1


@helper
def _insert(items, count, item):
    """Add an item to an ascending set; the new count, unchanged when it was there."""
    place = count
    while place > 0 and items[place - 1] > item:
        place -= 1
    if place > 0 and items[place - 1] == item:
        return count
    for right in range(count, place, -1):
        items[right] = items[right - 1]
    items[place] = item
    return count + 1


@helper
def _fill_purchases(state, favourites, mixture, listed, liked, bought):
    """Fill `bought` with distinct items; `liked` is the running sum over the list's own part."""
    total = liked[-1]
    count = 0
    for _ in range(4 * len(bought) + 4):
        if count == len(bought):
            break
        state += _GAMMA
        place = _unit(_mix(state)) * total / OWN_SHARE
        if place < total:
            slot = 0
            while liked[slot] <= place:
                slot += 1
            item = listed[slot]
        else:
            state, item = _draw(state, favourites, mixture)
        count = _insert(bought, count, item)
    return count


@helper
def _fill_list(user, keys, favourites, world, engine, noise, draft, items, scores, liking):
    """One user's list in order, and the liking of its items."""
    state = _stream(keys[1], user)
    state = _fill_candidates(
        state, user, favourites, engine, world.by_popularity, draft.items, draft.seen
    )
    _fill_scores(state, favourites, world, noise, draft.items, draft.scores, draft.liking)
    _fill_ranks(draft.items, draft.scores, draft.ranks)
    for place in range(len(items)):
        rank = draft.ranks[place]
        items[rank] = draft.items[place]
        scores[rank] = draft.scores[place]
        liking[rank] = draft.liking[place]


@kernel
def draw_users(
    start, stop, keys, world, engine, long_run, now, noise, listed, scores, bounds, bought, counts
):
    """Fill each user's list and the purchases of its three windows: long run, recent, test.

    keys: tastes, lists, then one per window. noise: its quantiles. listed, scores: (users,
    n_listed). bounds[window, user]: where the user's purchases start in bought[window];
    counts[window, user] becomes the number of distinct items put there.
    """
    n_listed = listed.shape[1]
    favourites = np.empty(len(TASTE_SHARES), np.int64)
    liking, liked_before, liked_now = np.empty(n_listed), np.empty(n_listed), np.empty(n_listed)
    draft = Draft(
        np.empty(n_listed, np.int32),
        np.empty(n_listed),
        np.empty(n_listed),
        np.empty(n_listed, np.int64),
        np.full(len(world.category), -1, np.int32),
    )
    for user in range(start, stop):
        items = listed[user]
        _fill_favourites(keys[0], user, long_run, favourites)
        _fill_list(user, keys, favourites, world, engine, noise, draft, items, scores[user], liking)
        before = current = 0.0
        for place in range(n_listed):
            before += liking[place]
            current += liking[place] * world.change[items[place]]
            liked_before[place] = before
            liked_now[place] = current
        for window in range(3):
            low, high = bounds[window, user], bounds[window, user + 1]
            if low < high:
                mixture = long_run if window == 0 else now
                liked = liked_before if window == 0 else liked_now
                state = _stream(keys[2 + window], user)
                counts[window, user] = _fill_purchases(
                    state, favourites, mixture, items, liked, bought[window][low:high]
                )


@kernel
def pack(start, stop, bounds, indptr, loose, packed):
    """Copy each user's first items from where it had room to where they belong."""
    for user in range(start, stop):
        shift = bounds[user] - indptr[user]
        for place in range(indptr[user], indptr[user + 1]):
            packed[place] = loose[place + shift]


@helper
def _keep_chance(item, time, days, course):
    """Popularity of an item at a time (in days), over the highest it ever has."""
    kind = course.kind[item]
    if kind == STEADY:
        return 1.0
    if kind == NEW:
        return 1.0 if time >= course.onset[item] else 0.0
    if kind == WITHDRAWN:
        return 1.0 if time < course.onset[item] else 0.0
    if kind == SEASONAL:
        angle = course.phase[item] + 2.0 * math.pi * (time - days) / course.period[item]
        return math.exp(course.amplitude[item] * (math.sin(angle) - 1.0))
    ramp = min(1.0, max(0.0, (time - course.onset[item]) / (RAMP_SHARE * days)))
    if kind == TRENDING:
        ramp -= 1.0
    return math.exp(course.trend[item] * ramp)


@helper
def _draw_at(state, time, days, favourites, mixture, course, anchors):
    """One item by taste and the popularity of the moment; rejection from the highest ever."""
    state, favoured = _draw_favoured(state, favourites)
    category = favoured
    for _ in range(256):
        if favoured < 0:
            state, category = _draw_any_category(state, mixture)
        state, item = _draw_item(state, category, mixture)
        state += _GAMMA
        if _unit(_mix(state)) < _keep_chance(item, time, days, course):
            return state, item
    return state, anchors[category]


@helper
def _draw_time(state, calendar):
    """Microseconds since the log's start."""
    state += _GAMMA
    days, hours = calendar.day_chance, calendar.hour_chance
    day = _alias(_mix(state), 0, len(days), calendar.day_pair, days)
    state += _GAMMA
    hour = _alias(_mix(state), 0, len(hours), calendar.hour_pair, hours)
    state += _GAMMA
    return state, day * _DAY + hour * _HOUR + int(_unit(_mix(state)) * _HOUR)


@kernel
def draw_log(
    start, stop, keys, long_run, highest, course, anchors, calendar, bounds, users, items, times
):
    """Fill each user's events in order of time, from bounds[user] on.

    keys: tastes, events. anchors: a steady item of each category. times: microseconds since the
    log's start.
    """
    days = len(calendar.day_chance)
    favourites = np.empty(len(TASTE_SHARES), np.int64)
    for user in range(start, stop):
        low, high = bounds[user], bounds[user + 1]
        _fill_favourites(keys[0], user, long_run, favourites)
        state = _stream(keys[1], user)
        for event in range(low, high):
            state, times[event] = _draw_time(state, calendar)
        times[low:high].sort()
        for event in range(low, high):
            users[event] = user
            time = times[event] / _DAY
            state += _GAMMA
            place = _unit(_mix(state)) / REPEAT_SHARE
            if place < 1.0 and event > low:
                item = items[low + int(place * (event - low))]
                state += _GAMMA
                if _unit(_mix(state)) < _keep_chance(item, time, days, course):
                    items[event] = item
                    continue
            state, items[event] = _draw_at(state, time, days, favourites, highest, course, anchors)
