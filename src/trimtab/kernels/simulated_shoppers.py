"""Draws what users like, what an engine lists for them and what they buy.

    P(c | u) = BASE_SHARE * share_c + sum over f of TASTE_SHARES[f] * [c is favourite f of u]
    p_ui     = P(c_i | u) * within_i            taste and popularity
    r_ui     = p_ui * noise                     the user's own liking, of listed items only
    score    = OWN_SHARE * r_ui / sum(r_u) + (1 - OWN_SHARE) * p_ui

within_i is the item's long-run share of its category. The score is the long-run chance that one
purchase of u is i, so without drift the order of a list cannot be improved. With drift every
weight of item i is multiplied by change_i.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.random_draws import (
    draw_category,
    draw_item,
    draw_quantile,
    draw_slot,
    draw_unit,
    start_stream,
)

BASE_SHARE = 0.60
TASTE_SHARES = (0.20, 0.12, 0.08)
OWN_SHARE = 0.06
REPEAT_SHARE = 0.2
RAMP_SHARE = 0.1

_STEADY, _TRENDING, _FADING, _SEASONAL, _NEW, _WITHDRAWN = range(6)
_NEVER_SEEN = 1e-12
_HOUR = 3_600_000_000
_DAY = 24 * _HOUR


class World(NamedTuple):
    """What is true of items in the long run, and how they changed since."""

    category: NDArray[np.int32]
    within: NDArray[np.float64]
    category_share: NDArray[np.float64]
    change: NDArray[np.float64]
    by_popularity: NDArray[np.int32]


class Draft(NamedTuple):
    """Room for one list while it is drawn; `stamps` has the last user at each item's hash."""

    items: NDArray[np.int32]
    scores: NDArray[np.float64]
    liking: NDArray[np.float64]
    ranks: NDArray[np.int64]
    stamps: NDArray[np.int32]


class ItemTrends(NamedTuple):
    """How each item's popularity runs over the days of a log."""

    kind: NDArray[np.int8]
    trend: NDArray[np.float64]
    onset: NDArray[np.float64]
    amplitude: NDArray[np.float64]
    period: NDArray[np.float64]
    phase: NDArray[np.float64]


@helper
def _draw_favoured(state, favourites):
    """A favourite category, or -1 for a purchase that taste has no part in."""
    state, place = draw_unit(state)
    place -= BASE_SHARE
    if place < 0.0:
        return state, np.int64(-1)
    for rank in range(len(TASTE_SHARES) - 1):
        if place < TASTE_SHARES[rank]:
            return state, favourites[rank]
        place -= TASTE_SHARES[rank]
    return state, favourites[len(TASTE_SHARES) - 1]


@helper
def _draw(state, favourites, mixture):
    """One item by taste and popularity."""
    state, category = _draw_favoured(state, favourites)
    if category < 0:
        state, category = draw_category(state, mixture)
    return draw_item(state, category, mixture)


@helper
def _fill_favourites(key, user, mixture, favourites):
    state = start_stream(key, user)
    for rank in range(len(favourites)):
        state, favourites[rank] = draw_category(state, mixture)


@helper
def _add_new(item, count, user, draft):
    """Add an item to the draft unless it is there; the new count."""
    place = item & (len(draft.stamps) - 1)
    if draft.stamps[place] == user:
        for earlier in range(count):
            if draft.items[earlier] == item:
                return count
    draft.stamps[place] = user
    draft.items[count] = item
    return count + 1


@helper
def _fill_candidates(state, user, favourites, engine, by_popularity, draft):
    """Distinct items for a list: by taste and popularity, the rest from the most popular."""
    n_listed = len(draft.items)
    count = 0
    for _ in range(6 * n_listed + 64):
        state, item = _draw(state, favourites, engine)
        count = _add_new(item, count, user, draft)
        if count == n_listed:
            return state
    for item in by_popularity:
        count = _add_new(item, count, user, draft)
        if count == n_listed:
            break
    return state


@helper
def _fill_scores(state, favourites, world, noise, draft):
    total = 0.0
    for place in range(len(draft.items)):
        item = draft.items[place]
        category = world.category[item]
        taste = BASE_SHARE * world.category_share[category]
        for rank in range(len(favourites)):
            if favourites[rank] == category:
                taste += TASTE_SHARES[rank]
        state, factor = draw_quantile(state, noise)
        draft.scores[place] = taste * world.within[item]
        draft.liking[place] = max(draft.scores[place], _NEVER_SEEN) * factor
        total += draft.liking[place]
    own = OWN_SHARE / total
    for place in range(len(draft.items)):
        taste = (1.0 - OWN_SHARE) * draft.scores[place]
        draft.scores[place] = own * draft.liking[place] + taste


@kernel
def _fill_ranks(items, scores, ranks):
    """Rank of each item: score descending, then item ascending.

    Counting who is ahead takes n_listed ** 2 comparisons, but vectorised and without a branch:
    at 50 listed a sixth of the time of an insertion sort. Ties, which are rare, come after.
    """
    n_listed = len(items)
    total = np.int64(0)
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
def _fill_list(state, user, favourites, world, engine, noise, draft, items, scores, liking):
    """One user's list in order, and the user's own liking of its items."""
    state = _fill_candidates(state, user, favourites, engine, world.by_popularity, draft)
    _fill_scores(state, favourites, world, noise, draft)
    _fill_ranks(draft.items, draft.scores, draft.ranks)
    for place in range(len(items)):
        rank = draft.ranks[place]
        items[rank] = draft.items[place]
        scores[rank] = draft.scores[place]
        liking[rank] = draft.liking[place]


@helper
def _draw_listed(state, listed, liking, change, changed):
    """A listed item by the user's own liking; -1 when all of them are withdrawn."""
    total = 0.0
    for place in range(len(listed)):
        total += liking[place] * (change[listed[place]] if changed else 1.0)
    state, share = draw_unit(state)
    left = share * total
    last = np.int64(-1)
    for place in range(len(listed)):
        weight = liking[place] * (change[listed[place]] if changed else 1.0)
        if weight > 0.0:
            last = np.int64(listed[place])
            if left < weight:
                break
        left -= weight
    return state, last


@helper
def _insert(items, count, item):
    """Add an item to an ascending set unless it is there; the new count."""
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
def _fill_purchases(state, favourites, mixture, listed, liking, change, changed, bought):
    """Fill `bought` with distinct items, ascending; how many there are, after four tries each."""
    count = 0
    for _ in range(4 * len(bought) + 4):
        if count == len(bought):
            break
        state, place = draw_unit(state)
        item = np.int64(-1)
        if place < OWN_SHARE:
            state, item = _draw_listed(state, listed, liking, change, changed)
        if item < 0:
            state, item = _draw(state, favourites, mixture)
        count = _insert(bought, count, item)
    return count


@helper
def _new_draft(n_listed):
    size = 1024
    while size < 16 * n_listed:
        size *= 2
    return Draft(
        np.empty(n_listed, np.int32),
        np.empty(n_listed),
        np.empty(n_listed),
        np.empty(n_listed, np.int64),
        np.full(size, -1, np.int32),
    )


@kernel
def draw_users(
    start, stop, keys, world, engine, long_run, now, noise, listed, scores, bounds, bought, counts
):
    """Fill each user's list and the purchases of its three windows: long run, recent, test.

    keys: tastes, lists, then one per window. noise: its quantiles. listed, scores: (users,
    n_listed). bounds[window, user]: where the user's purchases start in bought[window];
    counts[window, user] becomes the number of distinct items put there.
    """
    favourites = np.empty(len(TASTE_SHARES), np.int64)
    liking = np.empty(listed.shape[1])
    draft = _new_draft(listed.shape[1])
    for user in range(start, stop):
        items = listed[user]
        _fill_favourites(keys[0], user, long_run, favourites)
        state = start_stream(keys[1], user)
        _fill_list(
            state, user, favourites, world, engine, noise, draft, items, scores[user], liking
        )
        for window in range(3):
            low, high = bounds[window, user], bounds[window, user + 1]
            if low == high:
                continue
            state = start_stream(keys[2 + window], user)
            mixture = long_run if window == 0 else now
            room = bought[window][low:high]
            counts[window, user] = _fill_purchases(
                state, favourites, mixture, items, liking, world.change, window > 0, room
            )


@kernel
def pack(start, stop, bounds, indptr, loose, packed):
    """Copy each user's items from where they had room to where they belong."""
    for user in range(start, stop):
        shift = bounds[user] - indptr[user]
        for place in range(indptr[user], indptr[user + 1]):
            packed[place] = loose[place + shift]


@helper
def _keep_chance(item, time, days, trends):
    """Popularity of an item at a time (in days), over the highest it can have."""
    kind = trends.kind[item]
    if kind == _STEADY:
        return 1.0
    if kind == _NEW:
        return 1.0 if time >= trends.onset[item] else 0.0
    if kind == _WITHDRAWN:
        return 1.0 if time < trends.onset[item] else 0.0
    if kind == _SEASONAL:
        angle = trends.phase[item] + 2.0 * math.pi * (time - days) / trends.period[item]
        return math.exp(trends.amplitude[item] * (math.sin(angle) - 1.0))
    ramp = min(1.0, max(0.0, (time - trends.onset[item]) / (RAMP_SHARE * days)))
    if kind == _TRENDING:
        ramp -= 1.0
    return math.exp(trends.trend[item] * ramp)


@helper
def _draw_at(state, time, days, favourites, mixture, trends, anchors):
    """One item by taste and the popularity of the moment: rejection from the highest ever."""
    state, favoured = _draw_favoured(state, favourites)
    category = favoured
    for _ in range(256):
        if favoured < 0:
            state, category = draw_category(state, mixture)
        state, item = draw_item(state, category, mixture)
        state, coin = draw_unit(state)
        if coin < _keep_chance(item, time, days, trends):
            return state, item
    return state, np.int64(anchors[category])


@helper
def _draw_time(state, day_slots, hour_slots):
    """Microseconds since the log's start."""
    state, day = draw_slot(state, 0, len(day_slots), day_slots)
    state, hour = draw_slot(state, 0, len(hour_slots), hour_slots)
    state, share = draw_unit(state)
    return state, day * _DAY + hour * _HOUR + np.int64(share * _HOUR)


@helper
def _draw_event(state, time, days, favourites, mixture, trends, anchors, earlier):
    """What a user buys at a time: something it bought earlier, or anything."""
    state, place = draw_unit(state)
    if place < REPEAT_SHARE and len(earlier) > 0:
        item = earlier[int(place / REPEAT_SHARE * len(earlier))]
        state, coin = draw_unit(state)
        if coin < _keep_chance(item, time, days, trends):
            return state, item
    return _draw_at(state, time, days, favourites, mixture, trends, anchors)


@kernel
def draw_log(
    start, stop, keys, long_run, highest, trends, anchors, day_slots, hour_slots, bounds, events
):
    """Fill each user's events in order of time, from bounds[user] on.

    keys: tastes, events. highest: tables by the highest popularity of each item. anchors: a
    steady item of each category. events: rows user, item, microseconds since the log's start.
    """
    days = len(day_slots)
    users, items, times = events
    favourites = np.empty(len(TASTE_SHARES), np.int64)
    for user in range(start, stop):
        low, high = bounds[user], bounds[user + 1]
        _fill_favourites(keys[0], user, long_run, favourites)
        state = start_stream(keys[1], user)
        for event in range(low, high):
            state, times[event] = _draw_time(state, day_slots, hour_slots)
        times[low:high].sort()
        for event in range(low, high):
            users[event] = user
            time = times[event] / _DAY
            state, items[event] = _draw_event(
                state, time, days, favourites, highest, trends, anchors, items[low:event]
            )
