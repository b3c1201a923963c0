"""Draws what users like, what an engine lists for them and what they buy.

    P(c | u) = BASE_SHARE * share_c + sum over f of TASTE_SHARES[f] * [c is favorite f of u]
    p_ui     = P(c_i | u) * within_i                    by taste and popularity
    r_ui     = p_ui * noise                             the user's own liking, of listed items only
    score    = OWN_SHARE * r_ui / sum(r_u) + (1 - OWN_SHARE) * p_ui

share_c is the popularity of category c, within_i the long-run share of item i in its category. The
score is the long-run probability that one purchase of u is i: without drift, the order of a list is
optimal. With drift, every weight of item i is multiplied by change_i.
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
    """Long-run shares of items and categories, and the change of each item since."""

    category: NDArray[np.int32]
    within: NDArray[np.float64]
    category_share: NDArray[np.float64]
    change: NDArray[np.float64]
    by_popularity: NDArray[np.int32]


class Draft(NamedTuple):
    """Working memory for one list; `last_user` holds the last user at each item's hash."""

    items: NDArray[np.int32]
    scores: NDArray[np.float64]
    liking: NDArray[np.float64]
    ranks: NDArray[np.int64]
    last_user: NDArray[np.int32]


class ItemTrends(NamedTuple):
    """How the popularity of each item changes over the days of a log.

    `promoted` is each item's row of `promotion`, or -1; `promotion`, by [row, day], is the factor
    of the day over the highest factor of the item.
    """

    kind: NDArray[np.int8]
    trend: NDArray[np.float64]
    onset: NDArray[np.float64]
    amplitude: NDArray[np.float64]
    period: NDArray[np.float64]
    phase: NDArray[np.float64]
    promoted: NDArray[np.int32]
    promotion: NDArray[np.float64]


@helper
def _draw_favorite(state, favorites):
    """The next state and a favorite category, or -1 for a purchase that ignores taste."""
    state, draw = draw_unit(state)
    draw -= BASE_SHARE
    if draw < 0.0:
        return state, np.int64(-1)
    for rank in range(len(TASTE_SHARES) - 1):
        if draw < TASTE_SHARES[rank]:
            return state, favorites[rank]
        draw -= TASTE_SHARES[rank]
    return state, favorites[len(TASTE_SHARES) - 1]


@helper
def _draw_item_by_taste(state, favorites, mixture):
    """The next state and an item, drawn by taste and popularity."""
    state, category = _draw_favorite(state, favorites)
    if category < 0:
        state, category = draw_category(state, mixture)
    return draw_item(state, category, mixture)


@helper
def _fill_favorites(key, user, mixture, favorites):
    state = start_stream(key, user)
    for rank in range(len(favorites)):
        state, favorites[rank] = draw_category(state, mixture)


@helper
def _add_new(item, count, user, draft):
    """Add an item to the draft unless it is there; returns the new count."""
    position = item & (len(draft.last_user) - 1)
    if draft.last_user[position] == user:
        for earlier in range(count):
            if draft.items[earlier] == item:
                return count
    draft.last_user[position] = user
    draft.items[count] = item
    return count + 1


@helper
def _fill_candidates(state, user, favorites, engine, by_popularity, draft):
    """Fill the draft with distinct items: by taste and popularity, then the most popular ones."""
    n_listed = len(draft.items)
    count = 0
    for _ in range(6 * n_listed + 64):
        state, item = _draw_item_by_taste(state, favorites, engine)
        count = _add_new(item, count, user, draft)
        if count == n_listed:
            return state
    for item in by_popularity:
        count = _add_new(item, count, user, draft)
        if count == n_listed:
            break
    return state


@helper
def _taste_of(category, favorites, category_share):
    """The probability that one purchase by taste is of a category."""
    taste = BASE_SHARE * category_share[category]
    for rank in range(len(favorites)):
        if favorites[rank] == category:
            taste += TASTE_SHARES[rank]
    return taste


@helper
def _fill_scores(state, favorites, world, noise, draft):
    total = 0.0
    for position in range(len(draft.items)):
        item = draft.items[position]
        taste = _taste_of(world.category[item], favorites, world.category_share)
        state, factor = draw_quantile(state, noise)
        draft.scores[position] = taste * world.within[item]
        draft.liking[position] = max(draft.scores[position], _NEVER_SEEN) * factor
        total += draft.liking[position]
    own = OWN_SHARE / total
    for position in range(len(draft.items)):
        taste = (1.0 - OWN_SHARE) * draft.scores[position]
        draft.scores[position] = own * draft.liking[position] + taste


@kernel
def _fill_ranks(items, scores, ranks):
    """Write the rank of each item, by the tie rule of `top_k`.

    Counting the items ahead takes n_listed ** 2 comparisons, but vectorised and without branches:
    for 50 items a sixth of the time of an insertion sort. Ties are rare and corrected at the end.
    """
    n_listed = len(items)
    total = np.int64(0)
    for position in range(n_listed):
        score = scores[position]
        ahead = np.int64(0)
        for other in range(n_listed):
            ahead += np.int64(scores[other] > score)
        ranks[position] = ahead
        total += ahead
    if total == n_listed * (n_listed - 1) // 2:
        return
    for position in range(n_listed):
        for other in range(n_listed):
            if scores[other] == scores[position] and items[other] < items[position]:
                ranks[position] += 1


@helper
def _fill_list(state, user, favorites, world, engine, noise, draft, items, scores, liking):
    """Write one user's list in order, and the user's own liking of its items."""
    state = _fill_candidates(state, user, favorites, engine, world.by_popularity, draft)
    _fill_scores(state, favorites, world, noise, draft)
    _fill_ranks(draft.items, draft.scores, draft.ranks)
    for position in range(len(items)):
        rank = draft.ranks[position]
        items[rank] = draft.items[position]
        scores[rank] = draft.scores[position]
        liking[rank] = draft.liking[position]


@helper
def _draw_listed(state, listed, liking, change, changed):
    """The next state and a listed item, drawn by own liking; -1 if all are withdrawn."""
    total = 0.0
    for position in range(len(listed)):
        total += liking[position] * (change[listed[position]] if changed else 1.0)
    state, share = draw_unit(state)
    left = share * total
    last = np.int64(-1)
    for position in range(len(listed)):
        weight = liking[position] * (change[listed[position]] if changed else 1.0)
        if weight > 0.0:
            last = np.int64(listed[position])
            if left < weight:
                break
        left -= weight
    return state, last


@helper
def _insert(items, count, item):
    """Add an item to an ascending set unless it is there; returns the new count."""
    position = count
    while position > 0 and items[position - 1] > item:
        position -= 1
    if position > 0 and items[position - 1] == item:
        return count
    for right in range(count, position, -1):
        items[right] = items[right - 1]
    items[position] = item
    return count + 1


@helper
def _fill_purchases(state, favorites, mixture, listed, liking, change, changed, bought):
    """Fill `bought` with distinct items, ascending; returns their number after four tries each."""
    count = 0
    for _ in range(4 * len(bought) + 4):
        if count == len(bought):
            break
        state, draw = draw_unit(state)
        item = np.int64(-1)
        if draw < OWN_SHARE:
            state, item = _draw_listed(state, listed, liking, change, changed)
        if item < 0:
            state, item = _draw_item_by_taste(state, favorites, mixture)
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
    """Fill each user's list and purchases in three windows: long run, recent, test.

    keys: random keys of tastes, lists, and each window. noise: quantiles. listed, scores: by [user,
    slot]. bounds[window, user]: start of the user's purchases in bought[window].
    counts[window, user]: number of distinct items written there.
    """
    favorites = np.empty(len(TASTE_SHARES), np.int64)
    liking = np.empty(listed.shape[1])
    draft = _new_draft(listed.shape[1])
    for user in range(start, stop):
        items = listed[user]
        _fill_favorites(keys[0], user, long_run, favorites)
        state = start_stream(keys[1], user)
        _fill_list(state, user, favorites, world, engine, noise, draft, items, scores[user], liking)
        for window in range(3):
            low, high = bounds[window, user], bounds[window, user + 1]
            if low == high:
                continue
            state = start_stream(keys[2 + window], user)
            mixture = long_run if window == 0 else now
            room = bought[window][low:high]
            counts[window, user] = _fill_purchases(
                state, favorites, mixture, items, liking, world.change, window > 0, room
            )


@kernel
def fill_log_changes(
    start, stop, key, world, long_run, within_now, share_now, listed, scores, log_changes
):
    """Write the log of the probability that a purchase is a listed item: now, over before.

    key: random key of tastes. within_now, share_now: as `World` has them, after the change.
    log_changes: by [user, slot].
    """
    favorites = np.empty(len(TASTE_SHARES), np.int64)
    own = np.empty(listed.shape[1])
    for user in range(start, stop):
        _fill_favorites(key, user, long_run, favorites)
        total = 0.0
        for slot in range(len(own)):
            item = listed[user, slot]
            taste = _taste_of(world.category[item], favorites, world.category_share)
            by_taste = (1.0 - OWN_SHARE) * taste * world.within[item]
            own[slot] = max(scores[user, slot] - by_taste, 0.0) * world.change[item]
            total += own[slot]
        own_share = OWN_SHARE if total > 0.0 else 0.0
        for slot in range(len(own)):
            item = listed[user, slot]
            taste = _taste_of(world.category[item], favorites, share_now)
            now = (1.0 - own_share) * taste * within_now[item]
            if total > 0.0:
                now += own_share * own[slot] / total
            log_changes[user, slot] = math.log(now / scores[user, slot]) if now > 0 else -math.inf


@kernel
def pack(start, stop, bounds, indptr, loose, packed):
    """Copy each user's items from `loose`, with gaps, to `packed`, without."""
    for user in range(start, stop):
        shift = bounds[user] - indptr[user]
        for position in range(indptr[user], indptr[user + 1]):
            packed[position] = loose[position + shift]


@helper
def _relative_popularity(item, time, days, trends):
    """Popularity of an item at a time (in days), divided by its highest popularity."""
    popularity = _without_promotions(item, time, days, trends)
    row = trends.promoted[item]
    return popularity if row < 0 else popularity * trends.promotion[row, int(time)]


@helper
def _without_promotions(item, time, days, trends):
    """The same of an item that is never promoted."""
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
def _draw_item_at(state, time, days, favorites, mixture, trends, anchors):
    """The next state and an item, drawn by taste and current popularity (rejection sampling)."""
    state, favorite = _draw_favorite(state, favorites)
    category = favorite
    for _ in range(256):
        if favorite < 0:
            state, category = draw_category(state, mixture)
        state, item = draw_item(state, category, mixture)
        state, chance = draw_unit(state)
        if chance < _relative_popularity(item, time, days, trends):
            return state, item
    return state, np.int64(anchors[category])


@helper
def _draw_time(state, day_slots, hour_slots):
    """The next state and a time in microseconds since the start of the log."""
    state, day = draw_slot(state, 0, len(day_slots), day_slots)
    state, hour = draw_slot(state, 0, len(hour_slots), hour_slots)
    state, share = draw_unit(state)
    return state, day * _DAY + hour * _HOUR + np.int64(share * _HOUR)


@helper
def _draw_event(state, time, days, favorites, mixture, trends, anchors, earlier):
    """The next state and an item bought at a time: one that the user bought earlier, or any."""
    state, draw = draw_unit(state)
    if draw < REPEAT_SHARE and len(earlier) > 0:
        item = earlier[int(draw / REPEAT_SHARE * len(earlier))]
        state, chance = draw_unit(state)
        if chance < _relative_popularity(item, time, days, trends):
            return state, item
    return _draw_item_at(state, time, days, favorites, mixture, trends, anchors)


@kernel
def draw_log(
    start, stop, keys, long_run, highest, trends, anchors, day_slots, hour_slots, bounds, events
):
    """Write each user's events in order of time, starting at bounds[user].

    keys: random keys of tastes and events. highest: alias tables by the highest popularity of each
    item. anchors: a steady item of each category. events: users, items and times, the times in
    microseconds since the start of the log.
    """
    days = len(day_slots)
    users, items, times = events
    favorites = np.empty(len(TASTE_SHARES), np.int64)
    for user in range(start, stop):
        low, high = bounds[user], bounds[user + 1]
        _fill_favorites(keys[0], user, long_run, favorites)
        state = start_stream(keys[1], user)
        for event in range(low, high):
            state, times[event] = _draw_time(state, day_slots, hour_slots)
        times[low:high].sort()
        for event in range(low, high):
            users[event] = user
            time = times[event] / _DAY
            state, items[event] = _draw_event(
                state, time, days, favorites, highest, trends, anchors, items[low:event]
            )
