"""The method for reading: plain Python that follows the definitions, without speed.

Unit u has a list of items with scores f_ui and has bought some items (y_ui = 1). Item i has bias
b_i. The ranking is by f_ui + b_i, in the order that `ranking` defines. With i taken out of the
ranking of u, let t_p and r_p be score and relevance of the item in slot p, and a = f_ui. As b_i
grows, i passes slot p at

    b = t_p - a        and the metric changes by        (y_ui - r_p) * w_p

where w_p is what the metric loses when a hit falls from slot p to the next. Adding up the changes
of all units gives a staircase; the best step on it is the item's new bias. The compiled kernels
must give the same numbers.

What users bought, and their wider lists, come last; `user_purchases` has the compiled versions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from trimtab.kernels.hit_value import hit_value_table

MARGIN = 1e-6
ULPS = 2.0**-46
_hit_values = functools.cache(hit_value_table)


@dataclass(frozen=True)
class Unit:
    """One user (or user and window): the engine's list, the purchases and the weight."""

    listed: Mapping[int, float]
    bought: frozenset[int]
    weight: float = 1.0


@dataclass(frozen=True)
class Task:
    """The objective and the units it is summed over."""

    units: tuple[Unit, ...]
    k: int
    metric: str
    unlisted: str = "never"
    penalty_rate: float = 0.0  # penalty per unit of bias
    cap: float = math.inf
    unit_score: float = 1.0  # the median k-th score
    excluded: frozenset[int] = frozenset()
    quanta: float = 2.0**32


@dataclass(frozen=True)
class Curve:
    """The metric as a function of one bias, relative to its value at bias 0."""

    steps: Mapping[float, int]  # breakpoint -> change where the bias rises past it
    passed: Mapping[float, int]  # the part of `steps` that is passed at bias 0 already
    current: int  # value at the current bias, read from the ranking


def ranking(unit: Unit, bias: Mapping[int, float], task: Task) -> list[tuple[float, int]]:
    """(score, item) of all items in the unit's ranking, best first."""
    scores = {i: f + bias.get(i, 0.0) for i, f in unit.listed.items()}
    if task.unlisted == "zero":
        scores |= {i: b for i, b in bias.items() if b > 0 and i not in unit.listed}
    present = [(s, i) for i, s in scores.items() if i not in task.excluded]
    return sorted(present, key=lambda entry: (-entry[0], entry[1]))


def hit_value(unit: Unit, slot: int, task: Task) -> int:
    """The value of a hit in a slot (from 0), in quanta."""
    max_hits = min(task.k, len(unit.bought))
    if slot >= task.k:
        return 0
    worth = float(_hit_values(task.metric, task.k)[max_hits, slot])
    return round(unit.weight * (worth * task.quanta))


def value(unit: Unit, top: Iterable[int], task: Task) -> int:
    """The unit's metric of a list of items, best first, in quanta."""
    total = hits = 0
    for slot, item in enumerate(top):
        if slot < task.k and item in unit.bought:
            hits += 1
            total += hit_value(unit, slot, task) * (hits if task.metric == "map" else 1)
    return total


def objective(bias: Mapping[int, float], task: Task) -> int:
    """The weighted sum of the metric less the penalties, in quanta."""
    metric = sum(
        value(u, [i for _, i in ranking(u, bias, task)], task) for u in task.units if u.listed
    )
    return metric - sum(penalty(b, task) for b in bias.values())


def penalty(bias: float, task: Task) -> int:
    """The penalty of one bias, in quanta."""
    return round(task.penalty_rate * task.quanta * abs(bias))


def item_curve(item: int, bias: Mapping[int, float], task: Task) -> Curve:
    """The exact staircase of the metric over one item's bias."""
    steps: dict[float, int] = {}
    passed_at_0: dict[float, int] = {}
    current = 0
    for unit in task.units:
        if not unit.bought or not unit.listed:
            continue
        current_ranking = [i for _, i in ranking(unit, bias, task)]
        others = [entry for entry in ranking(unit, bias, task) if entry[1] != item]
        own_score = unit.listed.get(item)
        bought = item in unit.bought
        hits = 0
        for slot in range(task.k):
            t, other = others[slot] if slot < len(others) else (-math.inf, -1)
            relevant = other in unit.bought
            step = hit_value(unit, slot, task) - hit_value(unit, slot + 1, task)
            delta = (bought - relevant) * step * (1 + hits if task.metric == "map" else 1)
            hits += relevant
            if delta == 0 or (own_score is None and task.unlisted == "never"):
                continue
            if own_score is None:
                at, at_0 = max(t, 0.0), False
            else:
                at, at_0 = t - own_score, own_score > t or (own_score == t and item < other)
            if at == -math.inf:
                continue  # an empty slot: always passed
            is_above = item in current_ranking and (
                other not in current_ranking
                or current_ranking.index(item) < current_ranking.index(other)
            )
            current += delta * (is_above - at_0)
            steps[at] = steps.get(at, 0) + delta
            if at_0:
                passed_at_0[at] = passed_at_0.get(at, 0) + delta
    return Curve(steps, passed_at_0, current)


def value_at(curve: Curve, bias: float) -> int:
    """The curve's value at a bias of 0 or off all breakpoints."""
    if bias == 0:
        return 0
    passed = sum(delta for at, delta in curve.steps.items() if at < bias)
    return passed - sum(curve.passed.values())


def candidate_biases(curve: Curve, task: Task, magnitude: float) -> list[float]:
    """The biases to try: 0, and one in each open interval that is wide enough, near 0."""
    narrow = ULPS * magnitude
    margin = max(MARGIN * task.unit_score, narrow / 2)
    not_passed = {at: d - curve.passed.get(at, 0) for at, d in curve.steps.items()}
    ups = sorted(at for at, d in not_passed.items() if d != 0 and at >= 0)
    downs = sorted((at for at, d in curve.passed.items() if d != 0 and at <= 0), reverse=True)
    biases = [0.0]
    for low, high in pairwise([*ups, math.inf]):
        width = min(high, task.cap) - low
        if width > narrow:
            biases.append(low + min(width / 2, margin))
    for high, low in pairwise([*downs, -math.inf]):
        width = high - max(low, -task.cap)
        if width > narrow:
            biases.append(high - min(width / 2, margin))
    return biases


def best_step(curve: Curve, bias: float, task: Task, magnitude: float) -> tuple[float, int]:
    """The best bias and what it adds to the metric; the current bias unless another is better."""
    biases = candidate_biases(curve, task, magnitude)
    total = {b: value_at(curve, b) - penalty(b, task) for b in biases}
    best = min(biases, key=lambda b: (-total[b], abs(b), b))
    if total[best] > curve.current - penalty(bias, task):
        return best, value_at(curve, best) - curve.current
    return bias, 0


def ascend(
    task: Task, candidates: Iterable[int], bias: dict[int, float], cycles: int
) -> dict[int, float]:
    """The biases after visiting every candidate `cycles` times."""
    bias = dict(bias)
    order = list(candidates)
    largest = max((abs(f) for u in task.units for f in u.listed.values()), default=0.0)
    highest = max((abs(b) for b in bias.values()), default=0.0)
    for _ in range(cycles):
        for item in order:
            curve = item_curve(item, bias, task)
            new, _gain = best_step(curve, bias.get(item, 0.0), task, largest + highest)
            bias[item] = new
            highest = max(highest, abs(new))
    return bias


def line_curve(
    unit: Unit, bias: Mapping[int, float], direction: Mapping[int, float], task: Task
) -> dict[float, int]:
    """One unit's staircase along a direction x: s -> metric of the ranking by f + b + s * x.

    Only for listed items. With the indicator of one item as x, it is that item's own staircase.
    """
    lines = [
        (f + bias.get(i, 0.0), direction.get(i, 0.0), i)
        for i, f in unit.listed.items()
        if i not in task.excluded
    ]
    crossings = sorted({(g - f) / (x - z) for f, x, _ in lines for g, z, _ in lines if x > z})

    def at(s: float) -> int:
        order = sorted(lines, key=lambda line: (-(line[0] + s * line[1]), line[2]))
        return value(unit, [i for _, _, i in order], task)

    ends = [crossings[0] - 1, *crossings, crossings[-1] + 1] if crossings else []
    middles = [(a + b) / 2 for a, b in pairwise(ends)]
    values = [at(s) for s in middles]
    changes = zip(crossings, values[:-1], values[1:], strict=True)
    return {s: after - before for s, before, after in changes if after != before}


# What users bought, and wider lists -------------------------------------------------------------

FADING = 30.0  # ticks
BY_TIMES = 1e-3


class Bought(NamedTuple):
    """What a user did with one item before an instant."""

    times: float  # different ticks in which the user bought it
    age: float  # ticks since the last of them, from 1
    lately: float  # `times`, where a purchase of 30 ticks ago counts 1/e


class Entry(NamedTuple):
    """An item on a wider list."""

    item: int
    score: float
    sources: frozenset[str]  # empty for listed items
    terms: tuple[float, float, float, float]


def sum_purchases(purchases: Iterable[tuple[int, int]]) -> dict[int, Bought]:
    """What a user bought, by item in ascending order.

    Args:
        purchases: item and day of each; day 0 are the 24 hours before the instant. Purchases of an
            item on one day count once.
    """
    days_of: dict[int, set[int]] = {}
    for item, day in purchases:
        days_of.setdefault(item, set()).add(day)
    return {
        item: Bought(
            times=float(len(days)),
            age=float(min(days) + 1),
            lately=sum(math.exp(-(day + 1) / FADING) for day in sorted(days)),
        )
        for item, days in sorted(days_of.items())
    }


def choose_own(bought: Mapping[int, Bought], may_add: Collection[int], most: int) -> list[int]:
    """The items that a user bought most and last, best first; of equals the first in order."""

    def worth(item: int) -> float:
        return bought[item].lately + BY_TIMES * bought[item].times

    return sorted((i for i in sorted(bought) if i in may_add), key=lambda i: -worth(i))[:most]


def wider_list(
    listed: Mapping[int, float], bought: Mapping[int, Bought], may_add: Collection[int],
    trending: Sequence[int], most_own: int,
) -> list[Entry]:  # fmt: skip
    """A user's list with what trends and what the user bought most and last.

    What is added has the score of the list's last item. An empty list stays empty.

    Args:
        listed: scores by item.
        bought: by the user, before the list is shown.
        may_add: items that may be added.
        trending: items to add, best first.
        most_own: number of the user's own items to add at most.
    """
    if not listed:
        return []
    own = choose_own(bought, may_add, most_own)
    sources: dict[int, set[str]] = {item: set() for item in listed}
    for name, items in (("trending", trending), ("own", own)):
        for item in items:
            if item in may_add and item not in listed:
                sources.setdefault(item, set()).add(name)
    last = min(listed.values())
    return [
        Entry(item, listed.get(item, last), frozenset(found), terms_of(bought.get(item)))
        for item, found in sources.items()
    ]


def terms_of(bought: Bought | None) -> tuple[float, float, float, float]:
    """The personal terms of an item: 0 for what the user never bought."""
    if bought is None:
        return (0.0, 0.0, 0.0, 0.0)
    return (1.0, math.log(bought.times), math.log(bought.age), math.log(1.0 + bought.lately))
