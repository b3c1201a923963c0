"""Random draws that depend only on (key, user): any number of threads gives the same bytes.

Every user has its own random streams: splitmix64 (Steele, Lea and Flood 2014), started from a hash
of (key, user). The state of a stream is one uint64, passed from draw to draw. Items are drawn in
constant time from alias tables (Vose 1991), one segment of slots per category.

A slot is one row (threshold, own, other): a 31-bit random number below the threshold gives `own`,
otherwise `other`. One row costs one cache miss, and choosing by index avoids a branch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.kernels.compiling import helper, kernel

GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_ONE = np.uint64(1)
_S11, _S27, _S30, _S31, _S32 = (np.uint64(shift) for shift in (11, 27, 30, 31, 32))
_COIN = np.uint64(2**31 - 1)
_TO_UNIT = 2.0**-53


class Mixture(NamedTuple):
    """Alias tables of a catalogue; `pointers` holds the bounds of each category's item slots."""

    pointers: NDArray[np.int64]
    item_slots: NDArray[np.int32]
    category_slots: NDArray[np.int32]


@helper
def mix(state):
    """The random bits of a state."""
    bits = (state ^ (state >> _S30)) * _FIRST
    bits = (bits ^ (bits >> _S27)) * _SECOND
    return bits ^ (bits >> _S31)


@helper
def start_stream(key, user):
    """The first state of a user's stream."""
    return mix(key ^ mix((np.uint64(user) + _ONE) * GAMMA))


@helper
def draw_unit(state):
    """The next state and a number in [0, 1)."""
    state += GAMMA
    return state, np.float64(mix(state) >> _S11) * _TO_UNIT


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


@kernel
def build_alias(
    pointers: NDArray[np.int64],
    weights: NDArray[np.float64],
    probability: NDArray[np.float64],
    other: NDArray[np.int32],
) -> None:
    """Fill the probability of `own` and the other slot, by segment; weight 0 is never drawn."""
    large = np.empty(len(weights), np.int64)
    small = np.empty(len(weights), np.int64)
    for segment in range(len(pointers) - 1):
        low, high = pointers[segment], pointers[segment + 1]
        heaviest = low + np.argmax(weights[low:high])
        scale = (high - low) / weights[low:high].sum()
        n_large = n_small = 0
        for slot in range(low, high):
            probability[slot] = weights[slot] * scale
            other[slot] = heaviest
            if probability[slot] < 1.0:
                small[n_small] = slot
                n_small += 1
            else:
                large[n_large] = slot
                n_large += 1
        while n_small > 0 and n_large > 0:
            n_small -= 1
            lighter, heavier = small[n_small], large[n_large - 1]
            other[lighter] = heavier
            probability[heavier] -= 1.0 - probability[lighter]
            if probability[heavier] < 1.0:
                n_large -= 1
                small[n_small] = heavier
                n_small += 1
        # The rest differs from 1 only by rounding, unless its weight is 0.
        for e in range(n_small):
            probability[small[e]] = 1.0 if weights[small[e]] > 0.0 else 0.0
        for e in range(n_large):
            probability[large[e]] = 1.0
