"""The top k of every list under given biases: what is recommended."""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel


@helper
def _in_range(items, first, end, item):
    for e in range(first, end):
        if items[e] == item:
            return True
    return False


@helper
def take_place(out_items, out_scores, base, n, k, score, item):
    """Put an item into the sorted top k at `base`, if it belongs there; returns the new length."""
    p = base + n
    if n == k:
        last = out_scores[p - 1]
        if score < last or (score == last and item > out_items[p - 1]):
            return n
        p -= 1
        n -= 1
    while p > base and (
        out_scores[p - 1] < score or (out_scores[p - 1] == score and out_items[p - 1] > item)
    ):
        out_scores[p] = out_scores[p - 1]
        out_items[p] = out_items[p - 1]
        p -= 1
    out_scores[p] = score
    out_items[p] = item
    return n + 1


@kernel
def select_top(
    start, stop, k, indptr, items, scores, offset, raised, hidden_indptr, hidden,
    out_items, out_scores, lengths,
):  # fmt: skip
    """Write each unit's top k by (score + offset descending, item ascending) at unit * k.

    Args:
        start: first unit.
        stop: one past the last.
        k: places.
        indptr: lists by unit.
        items: their items.
        scores: their scores.
        offset: what is added by item; -inf leaves the item out.
        raised: items that everybody gets at score `offset`, in ranking order; may be empty.
        hidden_indptr: items that a unit must not get; empty when there are none.
        hidden: those items.
        out_items: items of the top k.
        out_scores: their scores.
        lengths: places taken.
    """
    has_hidden = len(hidden) > 0
    for unit in range(start, stop):
        base = unit * k
        n = 0
        first = indptr[unit]
        end = indptr[unit + 1]
        for e in range(first, end):
            item = items[e]
            score = scores[e] + offset[item]
            if score == -np.inf:
                continue
            if has_hidden and _in_range(hidden, hidden_indptr[unit], hidden_indptr[unit + 1], item):
                continue
            n = take_place(out_items, out_scores, base, n, k, score, item)
        if end > first:
            for x in range(len(raised)):
                item = raised[x]
                score = offset[item]
                if n == k and score < out_scores[base + n - 1]:
                    break
                if _in_range(items, first, end, item):
                    continue
                if has_hidden and _in_range(
                    hidden, hidden_indptr[unit], hidden_indptr[unit + 1], item
                ):
                    continue
                n = take_place(out_items, out_scores, base, n, k, score, item)
        lengths[unit] = n


@kernel
def merge_explored(
    start, stop, k, room, n_explored, top_indptr, top_items, top_scores, tried_indptr, tried_items,
    indptr, items, scores, bias, out_items, out_scores, lengths,
):  # fmt: skip
    """Write each unit's top k with its last places given to items that are tried.

    Args:
        start: first unit.
        stop: one past the last.
        k: places.
        room: places that can be filled; at most k.
        n_explored: places to give away.
        top_indptr: the top k by unit.
        top_items: their items.
        top_scores: their scores.
        tried_indptr: items to try by unit, the most promising first.
        tried_items: those items.
        indptr: lists by unit.
        items: their items.
        scores: their scores.
        bias: by item.
        out_items: items of the merged top k, at unit * room.
        out_scores: their scores with biases.
        lengths: places taken.
    """
    for unit in range(start, stop):
        base = unit * room
        n = 0
        end = top_indptr[unit + 1]
        for e in range(top_indptr[unit], min(end, top_indptr[unit] + k - n_explored)):
            out_items[base + n] = top_items[e]
            out_scores[base + n] = top_scores[e]
            n += 1
        settled = n
        for t in range(tried_indptr[unit], tried_indptr[unit + 1]):
            if n - settled == n_explored or n == room:
                break
            item = tried_items[t]
            if _in_range(out_items, base, base + n, item):
                continue
            for e in range(indptr[unit], indptr[unit + 1]):
                if items[e] == item:
                    out_scores[base + n] = scores[e] + bias[item]
            out_items[base + n] = item
            n += 1
        for e in range(top_indptr[unit] + settled, end):
            if n == room:
                break
            if not _in_range(out_items, base, base + n, top_items[e]):
                out_items[base + n] = top_items[e]
                out_scores[base + n] = top_scores[e]
                n += 1
        lengths[unit] = n
