"""Random problems in coded and in readable form; half of them have many ties."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ascents import count_for_ascent
from paper_loop import ascend_by_paper_loop
from trimtab.arrays import Lists, Sets
from trimtab.kernels.reference import Task, Unit
from trimtab.learn.ascent import Solution, ascend
from trimtab.learn.settings import LearnerSettings

METRICS = ("acc", "map", "ndcg")
MODES = ("never", "zero")
PAIRS = [(metric, unlisted) for metric in METRICS for unlisted in MODES]


@dataclass(frozen=True)
class Case:
    """Everything that `ascend` is given."""

    lists: Lists
    bought: Sets
    n_items: int
    settings: LearnerSettings
    weights: np.ndarray | None
    start: np.ndarray | None

    def units(self) -> tuple[Unit, ...]:
        units = []
        for u in range(self.lists.n_units):
            lists, bought = self.lists.take([u]), self.bought.take([u])
            listed = dict(zip(lists.items.tolist(), lists.scores.tolist(), strict=True))
            weight = 1.0 if self.weights is None else float(self.weights[u])
            units.append(Unit(listed, frozenset(bought.items.tolist()), weight))
        return tuple(units)

    def solve(self) -> Solution:
        lists, bought, n_items, settings = self.lists, self.bought, self.n_items, self.settings
        counted = count_for_ascent(lists, bought, n_items, settings.k, self.weights)
        return ascend(lists, bought, n_items, settings, **{**counted, "start": self.start})

    def solve_by_paper_loop(self, found: Solution, keep_zero_steps: bool = True) -> np.ndarray:
        return ascend_by_paper_loop(
            self.lists, self.bought, self.n_items, self.settings, found.order, found.unit,
            found.excluded, self.weights, self.start, found.cycles, keep_zero_steps,
        )  # fmt: skip

    def task(self, found: Solution) -> Task:
        """The same problem for the reference."""
        settings = self.settings
        return Task(
            units=self.units(),
            k=settings.k,
            metric=settings.metric,
            unlisted=settings.unlisted,
            penalty_rate=settings.penalty / found.unit,
            cap=np.inf if settings.max_bias is None else settings.max_bias * found.unit,
            unit_score=found.unit,
            excluded=frozenset(np.flatnonzero(found.excluded).tolist()),
        )

    def first_biases(self, found: Solution) -> np.ndarray:
        """Starting biases: within the cap, -inf for excluded items."""
        cap = np.inf if self.settings.max_bias is None else self.settings.max_bias * found.unit
        bias = np.zeros(self.n_items) if self.start is None else np.clip(self.start, -cap, cap)
        return np.where(found.excluded, -np.inf, bias)

    def permuted(self, rng: np.random.Generator) -> Case:
        """The same problem with units and list entries in another order."""
        order = rng.permutation(self.lists.n_units)
        rows = [rng.permutation(np.arange(*self.lists.indptr[[u, u + 1]])) for u in order]
        sets = [np.arange(*self.bought.indptr[[u, u + 1]]) for u in order]
        entries, chosen = np.concatenate(rows), np.concatenate(sets)
        lists = Lists(ends_of(rows), self.lists.items[entries], self.lists.scores[entries])
        bought = Sets(ends_of(sets), self.bought.items[chosen])
        weights = None if self.weights is None else self.weights[order]
        return replace(self, lists=lists, bought=bought, weights=weights)

    def scaled(self, factor: float) -> Case:
        """The same problem with scores and starting biases times a factor."""
        lists = self.lists._replace(scores=self.lists.scores * factor)
        return replace(self, lists=lists, start=None if self.start is None else self.start * factor)


def ends_of(rows: list) -> np.ndarray:
    return np.cumsum([0, *map(len, rows)]).astype(np.int64)


def to_csr(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    return ends_of(rows), np.array([i for row in rows for i in row], np.int32)


def case_of(lists: list, scores: list, bought: list, n_items: int, *rest) -> Case:
    indptr, items = to_csr(lists)
    return Case(Lists(indptr, items, np.array(scores)), Sets(*to_csr(bought)), int(n_items), *rest)


def generator(seed: int, metric: str, unlisted: str, *more: int) -> np.random.Generator:
    return np.random.default_rng([seed, METRICS.index(metric), MODES.index(unlisted), *more])


def draw_settings(rng: np.random.Generator, k: int, metric: str, unlisted: str) -> LearnerSettings:
    drawn = {
        "penalty": float(rng.choice([0.0, 0.0, 0.3, 1.0])),
        "max_bias": rng.choice([None, None, 0.5, 2.0]),
        "exclude_unsold": bool(rng.integers(0, 2)),
        "max_cycles": int(rng.integers(1, 4)),
    }
    return LearnerSettings(k=k, metric=metric, unlisted=unlisted, **drawn)


def draw_small(seed: int, metric: str, unlisted: str) -> Case:
    """Up to 9 units, 8 items, k up to 5; short lists, weights, penalties, caps, starts."""
    rng = generator(seed, metric, unlisted)
    n_units, n_items = rng.integers(1, 10), rng.integers(2, 9)
    ties = seed % 2 == 0
    lists, scores, bought = [], [], []
    for _ in range(n_units):
        size = rng.integers(0, n_items + 1)
        items = rng.permutation(n_items)[:size]
        raw = rng.integers(0, 5, size) / 4 if ties else rng.random(size)
        shift = 0.0 if unlisted == "zero" else rng.choice([0.0, -0.5])
        lists.append(items.tolist())
        scores.extend((raw + shift).tolist())
        some = rng.permutation(n_items)[: rng.integers(0, min(4, n_items) + 1)]
        bought.append(sorted(some.tolist()))
    settings = draw_settings(rng, int(rng.integers(1, 6)), metric, unlisted)
    weights = None if rng.random() < 0.5 else rng.choice([0.0, 0.5, 1.0, 2.0, 1 / 3], n_units)
    start = None
    if rng.random() < 0.4:
        start = rng.normal(size=n_items) * rng.choice([0.5, 3.0])
        if ties:
            start = np.round(start * 4) / 4  # on breakpoints: scores are quarters too
    return case_of(lists, scores, bought, n_items, settings, weights, start)


def draw_medium(
    seed: int, metric: str, unlisted: str, k: int, n_listed: int, n_units: int = 300
) -> Case:
    """Lists much longer than rows; even seeds have many ties, some start warm."""
    rng = generator(seed, metric, unlisted, k)
    n_items = 2 * n_listed
    popular = np.sort(rng.random(n_items))
    lists, scores, bought = [], [], []
    for _ in range(n_units):
        size = n_listed if rng.random() < 0.9 else int(rng.integers(0, n_listed))
        liking = popular + rng.random(n_items) * 0.7
        items = np.argsort(-liking)[:size]
        raw = np.round(liking[items] * 8) / 8 if seed % 2 == 0 else liking[items]
        lists.append(items.tolist())
        scores.extend(raw.tolist())
        trend = rng.random(n_items) * (1.2 - np.abs(popular - 0.6))
        bought.append(sorted(np.argsort(-trend)[: rng.integers(0, 5)].tolist()))
    settings = replace(draw_settings(rng, k, metric, unlisted), max_cycles=4)
    weights = None if seed % 3 == 0 else rng.choice([0.0, 0.5, 1.0, 1 / 3], n_units)
    start = None
    if seed % 4 >= 2:
        start = np.round(rng.normal(size=n_items) * rng.choice([2, 16])) / 8
    return case_of(lists, scores, bought, n_items, settings, weights, start)


def draw_narrow(seed: int, metric: str, unlisted: str) -> Case:
    """Scores a fraction of the narrowest interval apart, beside one 2**30 times as large."""
    rng = generator(seed, metric, unlisted, 99)
    n_units, n_items = int(rng.choice([10, 40])), 6
    step = 2.0**-46 * 2.0**30 * rng.choice([0.1, 0.3, 0.6, 0.9])
    levels = int(rng.choice([12, 60]))
    lists, scores, bought = [], [], []
    for _ in range(n_units):
        lists.append(rng.permutation(n_items)[: rng.integers(1, n_items + 1)].tolist())
        scores.extend((1 + rng.integers(0, levels, len(lists[-1])) * step).tolist())
        bought.append(sorted(rng.permutation(n_items)[: rng.integers(1, 3)].tolist()))
    scores[0] = 2.0**30
    settings = draw_settings(rng, int(rng.integers(1, 4)), metric, unlisted)
    start = None if rng.random() < 0.5 else rng.integers(-20, 20, n_items) * step
    return case_of(lists, scores, bought, n_items, settings, None, start)


def draw_ulps(seed: int, metric: str, unlisted: str) -> Case:
    """Scores and biases a few units in the last place apart."""
    rng = generator(seed, metric, unlisted, 98)
    case = draw_small(seed, metric, unlisted)
    scores = rng.choice([0.1, 0.3, 1 / 3, 0.7, 1.1], len(case.lists.scores))
    for _ in range(int(rng.integers(0, 4))):
        moved = rng.random(len(scores)) < 0.5
        scores = np.where(moved, np.nextafter(scores, np.inf), scores)
    start = None if case.start is None else rng.choice([0.0, 0.2, 0.1, 0.7, -0.6], case.n_items)
    return replace(case, lists=case.lists._replace(scores=scores), start=start)
