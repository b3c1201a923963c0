"""The method as a person can read it: plain Python, no speed.

Everything here follows the definitions directly: rank, score, take one item out, write down where
it passes whom, add up, take the best step. The compiled kernels must give the same numbers.

Glossary: unit u has a list of items with scores f_ui and has bought some items (y_ui = 1). Item i
has bias b_i. With i taken out, t_p and r_p are score and relevance of the p-th item left; a is i's
own score without bias; w_p is what a hit loses by falling from place p to the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from trimtab.kernels.hit_value import hit_value_table

MARGIN = 1e-6
ULPS = 2.0**-46


@dataclass(frozen=True)
class Unit:
    """One user (or user and window): the engine's list, the purchases, the weight."""

    listed: Mapping[int, float]
    bought: frozenset[int]
    weight: float = 1.0


@dataclass(frozen=True)
class Task:
    """What is maximised over which units."""

    units: tuple[Unit, ...]
    k: int
    metric: str
    unlisted: str = "never"
    rate: float = 0.0  # penalty per unit of bias
    cap: float = math.inf
    unit_score: float = 1.0  # the median k-th score
    excluded: frozenset[int] = frozenset()
    quanta: float = 2.0**32
    hit_values: list[list[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hit_values", hit_value_table(self.metric, self.k).tolist())


@dataclass(frozen=True)
class Curve:
    """The objective's metric part as a function of one number, relative to its value at 0."""

    steps: Mapping[float, int]  # breakpoint -> change when passing it upwards
    passed: Mapping[float, int]  # the part of it that is already passed at exactly 0
    current: int  # at the current bias, read from the ranking


def ranking(unit: Unit, bias: Mapping[int, float], task: Task) -> list[tuple[float, int]]:
    """(score, item) of all that is in the unit's ranking, best first."""
    scores = {i: f + bias.get(i, 0.0) for i, f in unit.listed.items()}
    if task.unlisted == "zero":
        scores |= {i: b for i, b in bias.items() if b > 0 and i not in unit.listed}
    present = [(s, i) for i, s in scores.items() if i not in task.excluded]
    return sorted(present, key=lambda entry: (-entry[0], entry[1]))


def hit_values(unit: Unit, place: int, task: Task) -> int:
    """What a hit at this place (from 0) is worth, in quanta."""
    need = min(task.k, len(unit.bought))
    if place >= task.k:
        return 0
    return round(unit.weight * (task.hit_values[need][place] * task.quanta))


def value(unit: Unit, top: Iterable[int], task: Task) -> int:
    """The unit's metric for a list of items, best first, in quanta."""
    total = hits = 0
    for place, item in enumerate(top):
        if place < task.k and item in unit.bought:
            hits += 1
            total += hit_values(unit, place, task) * (hits if task.metric == "map" else 1)
    return total


def objective(bias: Mapping[int, float], task: Task) -> int:
    """The weighted sum of the metric less the penalties, in quanta."""
    metric = sum(
        value(u, [i for _, i in ranking(u, bias, task)], task) for u in task.units if u.listed
    )
    return metric - sum(penalty(b, task) for b in bias.values())


def penalty(bias: float, task: Task) -> int:
    """The penalty of one bias, in quanta."""
    return round(task.rate * task.quanta * abs(bias))


def item_curve(item: int, bias: Mapping[int, float], task: Task) -> Curve:
    """The exact staircase of the objective over one item's bias."""
    steps: dict[float, int] = {}
    passed_at_0: dict[float, int] = {}
    current = 0
    for unit in task.units:
        if not unit.bought or not unit.listed:
            continue
        now = [i for _, i in ranking(unit, bias, task)]
        rest = [entry for entry in ranking(unit, bias, task) if entry[1] != item]
        own = unit.listed.get(item)
        bought = item in unit.bought
        hits = 0
        for place in range(task.k):
            t, other = rest[place] if place < len(rest) else (-math.inf, -1)
            relevant = other in unit.bought
            fall = hit_values(unit, place, task) - hit_values(unit, place + 1, task)
            delta = (bought - relevant) * fall * (1 + hits if task.metric == "map" else 1)
            hits += relevant
            if delta == 0 or (own is None and task.unlisted == "never"):
                continue
            if own is None:
                at, at_0 = max(t, 0.0), False
            else:
                at, at_0 = t - own, own > t or (own == t and item < other)
            if at == -math.inf:
                continue  # nothing to pass: always there
            is_above = item in now and (other not in now or now.index(item) < now.index(other))
            current += delta * (is_above - at_0)
            steps[at] = steps.get(at, 0) + delta
            if at_0:
                passed_at_0[at] = passed_at_0.get(at, 0) + delta
    return Curve(steps, passed_at_0, current)


def value_at(curve: Curve, bias: float) -> int:
    """The curve's value at a bias that is on no breakpoint, or at 0."""
    if bias == 0:
        return 0
    passed = sum(delta for at, delta in curve.steps.items() if at < bias)
    return passed - sum(curve.passed.values())


def standing_points(curve: Curve, task: Task, magnitude: float) -> list[float]:
    """0, and one bias in each open interval wide enough, at the end nearer to 0."""
    narrow = ULPS * magnitude
    margin = max(MARGIN * task.unit_score, narrow / 2)
    not_passed = {at: d - curve.passed.get(at, 0) for at, d in curve.steps.items()}
    ups = sorted(at for at, d in not_passed.items() if d != 0 and at >= 0)
    downs = sorted((at for at, d in curve.passed.items() if d != 0 and at <= 0), reverse=True)
    points = [0.0]
    for low, high in pairwise([*ups, math.inf]):
        width = min(high, task.cap) - low
        if width > narrow:
            points.append(low + min(width / 2, margin))
    for high, low in pairwise([*downs, -math.inf]):
        width = high - max(low, -task.cap)
        if width > narrow:
            points.append(high - min(width / 2, margin))
    return points


def best_step(curve: Curve, bias: float, task: Task, magnitude: float) -> tuple[float, int]:
    """The best bias and what it adds to the metric; the current one unless strictly beaten."""
    points = standing_points(curve, task, magnitude)
    total = {b: value_at(curve, b) - penalty(b, task) for b in points}
    best = min(points, key=lambda b: (-total[b], abs(b), b))
    if total[best] > curve.current - penalty(bias, task):
        return best, value_at(curve, best) - curve.current
    return bias, 0


def climb(
    task: Task, candidates: Iterable[int], bias: dict[int, float], cycles: int
) -> dict[int, float]:
    """Visit every candidate `cycles` times; returns the new biases."""
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
    """One unit's staircase along any direction x: s -> metric of the ranking by f + b + s*x.

    For listed items only. An item's indicator as the direction gives that item's own staircase.
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
