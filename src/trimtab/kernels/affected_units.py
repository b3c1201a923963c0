"""Who is special to an item, and where it passes whom in their rankings.

A unit is special when it lists the item, bought it, or has it in its top k without listing it. For
all others the item's breakpoints are the shared ones of `rows.losses`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.kernels.compiling import helper, prefetch, unpacker
from trimtab.kernels.short_sorts import STACK
from trimtab.kernels.top_rows import GROUP, hit_step, tags_of

AHEAD = 8  # rows to ask for before they are needed
LISTER = 1
BUYER = 2


class Scratch(NamedTuple):
    """Room to work in, large enough for any item."""

    who: Ints  # units special to the item: unit * 4 + relevant * 2 + listed
    owns: Floats  # their own scores for it
    later: Ints  # entries of its listers that may matter
    up: Floats  # breakpoints not passed at b = 0, and their deltas
    up_deltas: Ints
    down: Floats  # breakpoints passed at b = 0, and their deltas
    down_deltas: Ints
    sizes: Ints  # how many of both, and how often everybody had to be looked at
    stack: Ints
    stamp: Codes  # unit -> 4 * visit + why it is special


unpack_scratch = unpacker(Scratch)


def make_scratch(n_units: int, n_hits: int, most_buyers: int, k: int) -> Scratch:
    """Room for any item of a problem.

    A unit has at most as many breakpoints as hits, once its own and once to cancel the shared
    ones; one that bought the item has up to k of its own.
    """
    room = 2 * n_hits + most_buyers * (k + 1) + 1
    return Scratch(
        who=np.empty(n_units, np.int64),
        owns=np.empty(n_units),
        later=np.empty(n_units, np.int64),
        up=np.empty(room),
        up_deltas=np.empty(room, np.int64),
        down=np.empty(room),
        down_deltas=np.empty(room, np.int64),
        sizes=np.zeros(3, np.int64),
        stack=np.empty(STACK, np.int64),
        stamp=np.zeros(n_units, np.int32),
    )


@helper
def prefetch_row(problem, rows, unit):
    """Ask for a unit's row."""
    for word in range(unit * problem.stride, (unit + 1) * problem.stride, 8):
        prefetch(rows.scores, word)
    prefetch(rows.floor, unit)
    prefetch(rows.low_hit, unit)
    prefetch(rows.edge, unit)


@helper
def collect(problem, rows, item, scratch, n_who):
    """Append the special units' breakpoints: `up` those not passed at b = 0, `down` those passed.

    Renews both lengths in `sizes`, and returns what the item's current places add to the value at
    b = 0. With a shared curve, also cancels what these units have in it.
    """
    k = problem.k
    who = scratch.who
    up = scratch.up
    up_d = scratch.up_deltas
    down = scratch.down
    down_d = scratch.down_deltas
    n_up = scratch.sizes[0]
    n_down = scratch.sizes[1]
    current = np.int64(0)
    for x in range(n_who):
        if x + AHEAD < n_who:
            prefetch_row(problem, rows, who[x + AHEAD] >> 2)
        unit = who[x] >> 2
        relevant = (who[x] >> 1) & 1
        listed = who[x] & 1
        own = scratch.owns[x]
        base = unit * problem.stride
        tags = tags_of(problem, unit)
        place = np.int64(0)  # among the items besides this one
        hits = np.int64(0)
        all_hits = np.int64(0)  # this one included
        above = False  # whether the item is now above the entry looked at
        for p in range(np.int64(rows.codes[tags + problem.width])):
            code = np.int64(rows.codes[tags + p])
            score = rows.scores[base + p]
            hit = code & 1
            if problem.reaches_unlisted and hit == 1 and p < k:
                if p >= problem.first:
                    step = hit_step(problem, unit, p, all_hits)
                    if step != 0:
                        up[n_up] = max(score, 0.0)
                        up_d[n_up] = step
                        n_up += 1
                all_hits += 1
            if code >> 1 == item:
                above = True
                continue
            if place == k:
                break
            if hit != relevant and place >= problem.first:
                step = hit_step(problem, unit, place, hits)
                if step != 0:
                    delta = step if relevant == 1 else -step
                    passed = own > score or (own == score and item < code >> 1)
                    if listed == 1 and passed:
                        down[n_down] = score - own
                        down_d[n_down] = delta
                        n_down += 1
                        if not above:
                            current -= delta
                    else:
                        up[n_up] = score - own if listed == 1 else max(score, 0.0)
                        up_d[n_up] = delta
                        n_up += 1
                        if above:
                            current += delta
            place += 1
            hits += hit
        if relevant == 1 and listed == 0:
            # Places that nothing claims: the item takes the first of them as soon as b > 0.
            delta = np.int64(0)
            for empty in range(max(place, problem.first), k):
                delta += hit_step(problem, unit, empty, hits)
            if delta != 0:
                up[n_up] = 0.0
                up_d[n_up] = delta
                n_up += 1
                if above:
                    current += delta
    scratch.sizes[0] = n_up
    scratch.sizes[1] = n_down
    return current


@helper
def stamp_special(by_item, item, scratch, visit):
    """Mark who lists the item and who bought it without listing it."""
    for e in range(by_item.indptr[item], by_item.indptr[item + 1]):
        scratch.stamp[by_item.listers[e] >> 1] = visit * 4 + LISTER
    for e in range(by_item.buyers_indptr[item], by_item.buyers_indptr[item + 1]):
        scratch.stamp[by_item.buyers[e]] = visit * 4 + BUYER


@helper
def gather_listers(rows, by_item, item, bias, cap, scratch):
    """The listers that matter whatever happens, into `who`; those that may, into `later`.

    A lister without a relevant item that can lose, or with one only beyond the cap, is neither.
    """
    n_who = np.int64(0)
    n_later = np.int64(0)
    reachable = max(bias, 0.0)
    for e in range(by_item.indptr[item], by_item.indptr[item + 1]):
        lister = np.int64(by_item.listers[e])
        own = by_item.scores[e]
        low_hit = rows.low_hit[lister >> 1]
        if lister & 1 == 1 or low_hit <= own + reachable:
            scratch.who[n_who] = lister * 2 + 1
            scratch.owns[n_who] = own
            n_who += 1
        elif low_hit <= own + cap:
            scratch.later[n_later] = e
            n_later += 1
    return n_who, n_later


@helper
def gather_later(rows, by_item, n_later, limit, scratch):
    """Move from `later` to `who` the listers that a bias up to `limit` reaches."""
    n_who = np.int64(0)
    kept = np.int64(0)
    for x in range(n_later):
        e = scratch.later[x]
        lister = np.int64(by_item.listers[e])
        if rows.low_hit[lister >> 1] <= by_item.scores[e] + limit:
            scratch.who[n_who] = lister * 2 + 1
            scratch.owns[n_who] = by_item.scores[e]
            n_who += 1
        else:
            scratch.later[kept] = e
            kept += 1
    return n_who, kept


@helper
def gather_raised(problem, rows, bias, visit, scratch, n_who):
    """Add the units with a hit that may have the raised item in their top k without listing it."""
    n_units = problem.n_units
    for group in range((n_units + GROUP - 1) // GROUP):
        if rows.group_edge[group] <= bias:
            lowest = np.float32(np.inf)
            for unit in range(group * GROUP, min(n_units, (group + 1) * GROUP)):
                edge = rows.edge[unit]
                lowest = min(lowest, edge)
                special = scratch.stamp[unit] >> 2 == visit
                if edge <= bias and rows.low_hit[unit] < np.inf and not special:
                    scratch.who[n_who] = unit * 4
                    scratch.owns[n_who] = 0.0
                    n_who += 1
            rows.group_edge[group] = lowest
    return n_who


@helper
def gather_buyers(rows, by_item, item, above, limit, scratch, n_who):
    """Add the buyers who do not list the item and whose place k + 1 scores in (above, limit]."""
    for e in range(by_item.buyers_indptr[item], by_item.buyers_indptr[item + 1]):
        unit = np.int64(by_item.buyers[e])
        edge = np.float64(rows.edge[unit])
        if edge <= limit and (edge > above or above == -np.inf):
            scratch.who[n_who] = unit * 4 + 2
            scratch.owns[n_who] = 0.0
            n_who += 1
    return n_who
