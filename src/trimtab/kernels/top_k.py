"""The top k of every list under given biases: what is recommended.

**The tie rule.** Every ranking in Trimtab (learner, apply, Spark, service) has one order:

    score descending, then item id ascending

Kernels compare item codes, which are numbered in the order of the ids (see `trimtab.arrays`).
Unused slots stay empty. `insert_in_top_k` implements the rule.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import bare_helper, kernel
from trimtab.kernels.membership import in_range
from trimtab.kernels.short_sorts import nth_smallest


@bare_helper
def insert_in_top_k(out_items, out_scores, base, n, k, score, item):
    """Insert an item into the top k that starts at `base`, if it belongs; returns the new length.

    This is the tie rule: score descending, then item ascending.
    """
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
    """Write each unit's top k by score + offset, in the order of the tie rule, at unit * k.

    Args:
        start: first unit.
        stop: one past the last.
        k: slots.
        indptr: start of each unit's list.
        items: items of the lists.
        scores: scores of the lists.
        offset: bias by item; -inf leaves the item out.
        raised: items shown to every unit at score `offset`, in ranking order; may be empty.
        hidden_indptr: start of each unit's hidden items; empty if there are none.
        hidden: items that a unit must not get.
        out_items: items of the top k; filled.
        out_scores: scores of the top k; filled.
        lengths: slots used by each unit; filled.
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
            if has_hidden and in_range(hidden, hidden_indptr[unit], hidden_indptr[unit + 1], item):
                continue
            n = insert_in_top_k(out_items, out_scores, base, n, k, score, item)
        if end > first:
            for x in range(len(raised)):
                item = raised[x]
                score = offset[item]
                if n == k and score < out_scores[base + n - 1]:
                    break
                if in_range(items, first, end, item):
                    continue
                if has_hidden and in_range(
                    hidden, hidden_indptr[unit], hidden_indptr[unit + 1], item
                ):
                    continue
                n = insert_in_top_k(out_items, out_scores, base, n, k, score, item)
        lengths[unit] = n


@kernel
def mark_best(start, stop, n, indptr, items, scores, is_best):
    """Mark the best n entries of each unit's list; all entries of a shorter one.

    Args:
        start: first unit.
        stop: one past the last.
        n: entries to mark; at least 1.
        indptr: start of each unit's list.
        items: items of the lists.
        scores: scores of the lists.
        is_best: whether each entry is among the best n of its list, by the tie rule; filled.
    """
    for unit in range(start, stop):
        first = indptr[unit]
        end = indptr[unit + 1]
        if end - first <= n:
            is_best[first:end] = True
            continue
        nth_score = nth_smallest(scores[first:end], end - first - n)
        n_tied = 0
        room = n
        for e in range(first, end):
            if scores[e] > nth_score:
                room -= 1
            elif scores[e] == nth_score:
                n_tied += 1
        tied = np.empty(n_tied, np.int32)
        n_tied = 0
        for e in range(first, end):
            if scores[e] == nth_score:
                tied[n_tied] = items[e]
                n_tied += 1
        last_item = nth_smallest(tied, room - 1)
        for e in range(first, end):
            is_best[e] = scores[e] > nth_score or (scores[e] == nth_score and items[e] <= last_item)


@kernel
def merge_explored(
    start, stop, k, room, n_explored, top_indptr, top_items, top_scores, explored_indptr,
    explored_items, indptr, items, scores, bias, out_items, out_scores, lengths,
):  # fmt: skip
    """Write each unit's top k with its last slots given to items to explore.

    Args:
        start: first unit.
        stop: one past the last.
        k: slots.
        room: slots that can be filled; at most k.
        n_explored: slots for items to explore.
        top_indptr: start of each unit's top k.
        top_items: items of the top k.
        top_scores: scores of the top k.
        explored_indptr: start of each unit's items to explore.
        explored_items: items to explore, the most promising first.
        indptr: start of each unit's list.
        items: items of the lists.
        scores: scores of the lists.
        bias: bias by item.
        out_items: items of the merged top k, at unit * room; filled.
        out_scores: their scores with biases; filled.
        lengths: slots used by each unit; filled.
    """
    for unit in range(start, stop):
        base = unit * room
        n = 0
        end = top_indptr[unit + 1]
        for e in range(top_indptr[unit], min(end, top_indptr[unit] + k - n_explored)):
            out_items[base + n] = top_items[e]
            out_scores[base + n] = top_scores[e]
            n += 1
        n_kept = n
        for t in range(explored_indptr[unit], explored_indptr[unit + 1]):
            if n - n_kept == n_explored or n == room:
                break
            item = explored_items[t]
            if in_range(out_items, base, base + n, item):
                continue
            for e in range(indptr[unit], indptr[unit + 1]):
                if items[e] == item:
                    out_scores[base + n] = scores[e] + bias[item]
            out_items[base + n] = item
            n += 1
        for e in range(top_indptr[unit] + n_kept, end):
            if n == room:
                break
            if not in_range(out_items, base, base + n, top_items[e]):
                out_items[base + n] = top_items[e]
                out_scores[base + n] = top_scores[e]
                n += 1
        lengths[unit] = n
