"""The best step on a staircase of breakpoints: exact, by the rule of `steps.py`."""

from __future__ import annotations

import numpy as np

from trimtab.kernels.bias_steps import better, penalty_of, too_narrow
from trimtab.kernels.compiling import helper
from trimtab.kernels.ordered_multiset import BLOCK


@helper
def gain_left(up_d, n_up):
    """All that can still be gained."""
    total = np.int64(0)
    for e in range(n_up):
        total += max(up_d[e], 0)
    return total


@helper
def highest_gain(up, up_d, n_up):
    """The highest breakpoint that gains; -1 when there is none."""
    highest = -1.0
    for e in range(n_up):
        if up_d[e] > 0 and up[e] > highest:
            highest = up[e]
    return highest


@helper
def split_at(up, up_d, n_up, limit):
    """Bring the entries up to the limit to the front; returns their number."""
    n = 0
    for e in range(n_up):
        if up[e] <= limit:
            value = up[e]
            delta = up_d[e]
            up[e] = up[n]
            up_d[e] = up_d[n]
            up[n] = value
            up_d[n] = delta
            n += 1
    return n


@helper
def best_below(down, down_d, n_down, rules):
    """Best bias at or below 0: walk down from 0, dropping breakpoints."""
    best_value = np.int64(0)
    best_bias = 0.0
    value = np.int64(0)
    pending = False
    high = 0.0
    e = n_down - 1
    while e >= 0:
        at = down[e]
        net = np.int64(0)
        while e >= 0 and down[e] == at:
            net -= down_d[e]
            e -= 1
        if net == 0:
            continue
        if pending and not too_narrow(high - max(at, -rules.cap), rules):
            bias = high - min((high - max(at, -rules.cap)) / 2, rules.margin)
            total = value - penalty_of(bias, rules)
            if better(total, bias, best_value, best_bias):
                best_value, best_bias = total, bias
            pending = False
        if at <= -rules.cap:
            return best_value, best_bias
        value += net
        if net > 0:
            pending = True
        high = at
    if pending and not too_narrow(high + rules.cap, rules):
        bias = high - min((high + rules.cap) / 2, rules.margin)
        total = value - penalty_of(bias, rules)
        if better(total, bias, best_value, best_bias):
            best_value, best_bias = total, bias
    return best_value, best_bias


@helper
def best_above(problem, losses, up, up_d, n_up, bound, rules, bar, best_value, best_bias):
    """Best bias above 0: merge the item's own breakpoints with the shared losses.

    Looks only for values above `bar`. Nothing beyond `bound` can be the best; own breakpoints
    four margins beyond it may be missing, and the last value returned says whether the answer
    could depend on them.
    """
    left = np.int64(0)
    for e in range(n_up):
        left += max(up_d[e], 0)
    value = np.int64(0)
    pending = False
    low = 0.0
    e = 0
    block_place = 0
    n_blocks = losses.counts[0] if problem.reaches_unlisted else 0
    entry = np.int64(0)
    end = np.int64(0)
    if n_blocks > 0:
        entry = np.int64(losses.order[0]) * BLOCK
        end = entry + losses.lengths[losses.order[0]]
    while True:
        if not pending and (value + left < best_value or value + left <= bar):
            return best_value, best_bias, False
        own = up[e] if e < n_up else np.inf
        if not pending and own > bound:
            return best_value, best_bias, False
        # The next shared loss; whole blocks below the next own breakpoint are taken at once.
        shared = np.inf
        while block_place < n_blocks:
            if entry < end:
                shared = losses.keys[entry]
                break
            block_place += 1
            while (
                not pending
                and block_place + 1 < n_blocks
                and value + left > bar
                and losses.floor_keys[block_place + 1] < own
            ):
                value -= losses.sums[losses.order[block_place]]
                block_place += 1
            if block_place < n_blocks:
                entry = np.int64(losses.order[block_place]) * BLOCK
                end = entry + losses.lengths[losses.order[block_place]]
        if shared < own and not pending:
            while entry < end and losses.keys[entry] < own:
                value -= losses.weights[entry]
                entry += 1
            continue
        at = min(own, shared)
        if at == np.inf:
            break
        net = np.int64(0)
        while e < n_up and up[e] == at:
            net += up_d[e]
            left -= max(up_d[e], 0)
            e += 1
        while block_place < n_blocks:
            if entry < end:
                if losses.keys[entry] != at:
                    break
                net -= losses.weights[entry]
                entry += 1
            else:
                block_place += 1
                if block_place < n_blocks:
                    entry = np.int64(losses.order[block_place]) * BLOCK
                    end = entry + losses.lengths[losses.order[block_place]]
        if net == 0:
            continue
        if pending and not too_narrow(min(at, rules.cap) - low, rules):
            if low > bound + 2 * rules.margin:
                return best_value, best_bias, True
            bias = low + min((min(at, rules.cap) - low) / 2, rules.margin)
            total = value - penalty_of(bias, rules)
            if better(total, bias, best_value, best_bias):
                best_value, best_bias = total, bias
            pending = False
        if at >= rules.cap:
            return best_value, best_bias, False
        value += net
        if net > 0:
            pending = True
        low = at
    if pending and not too_narrow(rules.cap - low, rules):
        if low > bound + 2 * rules.margin:
            return best_value, best_bias, True
        bias = low + min((rules.cap - low) / 2, rules.margin)
        total = value - penalty_of(bias, rules)
        if better(total, bias, best_value, best_bias):
            best_value, best_bias = total, bias
    return best_value, best_bias, False
