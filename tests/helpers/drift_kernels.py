"""Draws what users like, what an engine lists for them and what they buy.

    P(c | u) = BASE_SHARE * share_c + sum over f of TASTE_SHARES[f] * [c is favorite f of u]
    p_ui     = P(c_i | u) * within_i                    by taste and popularity
    r_ui     = p_ui * noise                             the user's own liking, of listed items only
    score    = OWN_SHARE * r_ui / sum(r_u) + (1 - OWN_SHARE) * p_ui

share_c is the popularity of category c, within_i the long-run share of item i in its category. The
score is the long-run probability that one purchase of u is i: without drift, the order of a list is
optimal. With drift, every weight of item i is multiplied by change_i.

Every user has random streams of their own, as in `trimtab.datasets.generated_log`: any number of
threads gives the same bytes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.datasets.generated_log import BASE_SHARE, TASTE_SHARES
from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.redistribute import GAMMA, mix, start_stream

OWN_SHARE = 0.06
_NEVER_SEEN = 1e-12
_S11, _S32 = np.uint64(11), np.uint64(32)
_COIN = np.uint64(2**31 - 1)


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


@helper
def draw_unit(state):
    """The next state and a number in [0, 1)."""
    state += GAMMA
    return state, np.float64(mix(state) >> _S11) * 2.0**-53


@helper
def draw_slot(state, low, high, slots):
    """The next state and a value drawn from the slots low to high."""
    state += GAMMA
    bits = mix(state)
    slot = low + np.int64(((bits >> _S32) * np.uint64(high - low)) >> _S32)
    takes_other = np.int64(np.int64(bits & _COIN) >= slots[slot, 0])
    return state, np.int64(slots[slot, 1 + takes_other])


@helper
def draw_category(state, mixture):
    """The next state and a category, drawn by popularity."""
    return draw_slot(state, 0, len(mixture.category_slots), mixture.category_slots)


@helper
def draw_item(state, category, mixture):
    """The next state and an item of a category, drawn by popularity."""
    low, high = mixture.pointers[category], mixture.pointers[category + 1]
    return draw_slot(state, low, high, mixture.item_slots)


@helper
def draw_quantile(state, quantiles):
    """The next state and a draw from the distribution with these evenly spaced quantiles."""
    state, draw = draw_unit(state)
    draw *= len(quantiles) - 1
    below = int(draw)
    step = quantiles[below + 1] - quantiles[below]
    return state, quantiles[below] + (draw - below) * step


@helper
def draw_poisson(state, rate):
    """The next state and a Poisson count: by inversion, or a rounded normal for rates from 30."""
    state, draw = draw_unit(state)
    if rate >= 30.0:
        state, turn = draw_unit(state)
        normal = math.sqrt(-2.0 * math.log(1.0 - draw)) * math.cos(2.0 * math.pi * turn)
        return state, max(0, int(rate + math.sqrt(rate) * normal + 0.5))
    count = 0
    term = math.exp(-rate)
    while draw >= term and count < 200:
        draw -= term
        count += 1
        term *= rate / count
    return state, count


@kernel
def draw_counts(start, stop, key, rates, counts):
    """Fill counts[window, user]: Poisson with a rate per user, drawn from the quantiles `rates`."""
    for user in range(start, stop):
        state, rate = draw_quantile(start_stream(key, user), rates)
        for window in range(counts.shape[0]):
            state, counts[window, user] = draw_poisson(state, rate)


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
