"""The exact best bias on a staircase of breakpoints, by the rules of `bias_steps`.

Item i's value as a function of its bias b is a sum of deltas: value(b) = sum of the deltas of the
breakpoints between 0 and b, less the shared losses that b has passed. The best bias is in an
interval just above a breakpoint that gains (b > 0), just below one that loses (b < 0), or 0.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.bias_steps import is_better, is_too_narrow, penalty_of
from trimtab.kernels.compiling import helper
from trimtab.kernels.ordered_multiset import BLOCK


@helper
def possible_gain(up_deltas, n_up):
    """Sum of all gains, without any loss."""
    total = np.int64(0)
    for e in range(n_up):
        total += max(up_deltas[e], 0)
    return total


@helper
def highest_gaining_breakpoint(up, up_deltas, n_up):
    """The highest breakpoint that gains; -1 if there is none."""
    highest = -1.0
    for e in range(n_up):
        if up_deltas[e] > 0 and up[e] > highest:
            highest = up[e]
    return highest


@helper
def bring_to_front(up, up_deltas, n_up, limit):
    """Move the breakpoints up to the limit to the front; returns their number."""
    n = 0
    for e in range(n_up):
        if up[e] <= limit:
            value = up[e]
            delta = up_deltas[e]
            up[e] = up[n]
            up_deltas[e] = up_deltas[n]
            up[n] = value
            up_deltas[n] = delta
            n += 1
    return n


@helper
def best_below(down, down_deltas, n_down, rules):
    """The best value and bias at or below 0; `down` is in ascending order."""
    best_value = np.int64(0)
    best_bias = 0.0
    value = np.int64(0)
    has_risen = False  # since the last bias tried
    high = 0.0
    e = n_down - 1
    while e >= 0:
        at = down[e]
        net = np.int64(0)
        while e >= 0 and down[e] == at:
            net -= down_deltas[e]
            e -= 1
        if net == 0:
            continue
        if has_risen and not is_too_narrow(high - max(at, -rules.cap), rules):
            bias = high - min((high - max(at, -rules.cap)) / 2, rules.margin)
            total = value - penalty_of(bias, rules)
            if is_better(total, bias, best_value, best_bias):
                best_value, best_bias = total, bias
            has_risen = False
        if at <= -rules.cap:
            return best_value, best_bias
        value += net
        if net > 0:
            has_risen = True
        high = at
    if has_risen and not is_too_narrow(high + rules.cap, rules):
        bias = high - min((high + rules.cap) / 2, rules.margin)
        total = value - penalty_of(bias, rules)
        if is_better(total, bias, best_value, best_bias):
            best_value, best_bias = total, bias
    return best_value, best_bias


@helper
def best_above(
    reaches_unlisted,
    losses,
    up,
    up_deltas,
    n_up,
    limit,
    rules,
    value_to_beat,
    best_value,
    best_bias,
):
    """The best value and bias above 0, or those given if they are better; and a flag.

    Merges the item's own breakpoints `up`, in ascending order, with the shared losses. Only values
    above `value_to_beat` are searched, and only biases up to `limit`. Own breakpoints more than
    four margins above the limit may be missing; the flag says that the answer may depend on them.
    """
    gain_left = possible_gain(up_deltas, n_up)
    value = np.int64(0)
    has_risen = False  # since the last bias tried
    low = 0.0
    e = 0
    block_position = 0
    n_blocks = losses.counts[0] if reaches_unlisted else 0
    entry = np.int64(0)
    end = np.int64(0)
    if n_blocks > 0:
        entry = np.int64(losses.order[0]) * BLOCK
        end = entry + losses.lengths[losses.order[0]]
    while True:
        if not has_risen and (value + gain_left < best_value or value + gain_left <= value_to_beat):
            return best_value, best_bias, False
        own_next = up[e] if e < n_up else np.inf
        if not has_risen and own_next > limit:
            return best_value, best_bias, False
        # The next shared loss; blocks that lie below the next own breakpoint are subtracted whole.
        shared_next = np.inf
        while block_position < n_blocks:
            if entry < end:
                shared_next = losses.keys[entry]
                break
            block_position += 1
            while (
                not has_risen
                and block_position + 1 < n_blocks
                and value + gain_left > value_to_beat
                and losses.lowest_keys[block_position + 1] < own_next
            ):
                value -= losses.sums[losses.order[block_position]]
                block_position += 1
            if block_position < n_blocks:
                entry = np.int64(losses.order[block_position]) * BLOCK
                end = entry + losses.lengths[losses.order[block_position]]
        if shared_next < own_next and not has_risen:
            while entry < end and losses.keys[entry] < own_next:
                value -= losses.weights[entry]
                entry += 1
            continue
        at = min(own_next, shared_next)
        if at == np.inf:
            break
        net = np.int64(0)
        while e < n_up and up[e] == at:
            net += up_deltas[e]
            gain_left -= max(up_deltas[e], 0)
            e += 1
        while block_position < n_blocks:
            if entry < end:
                if losses.keys[entry] != at:
                    break
                net -= losses.weights[entry]
                entry += 1
            else:
                block_position += 1
                if block_position < n_blocks:
                    entry = np.int64(losses.order[block_position]) * BLOCK
                    end = entry + losses.lengths[losses.order[block_position]]
        if net == 0:
            continue
        if has_risen and not is_too_narrow(min(at, rules.cap) - low, rules):
            if low > limit + 2 * rules.margin:
                return best_value, best_bias, True
            bias = low + min((min(at, rules.cap) - low) / 2, rules.margin)
            total = value - penalty_of(bias, rules)
            if is_better(total, bias, best_value, best_bias):
                best_value, best_bias = total, bias
            has_risen = False
        if at >= rules.cap:
            return best_value, best_bias, False
        value += net
        if net > 0:
            has_risen = True
        low = at
    if has_risen and not is_too_narrow(rules.cap - low, rules):
        if low > limit + 2 * rules.margin:
            return best_value, best_bias, True
        bias = low + min((rules.cap - low) / 2, rules.margin)
        total = value - penalty_of(bias, rules)
        if is_better(total, bias, best_value, best_bias):
            best_value, best_bias = total, bias
    return best_value, best_bias, False
