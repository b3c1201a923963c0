"""The line search against brute-force ranking: every interval, and the best of a grid."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from hit_lists import find_hits
from trimtab.arrays import Lists, Sets
from trimtab.kernels.reference import Task, Unit, line_curve
from trimtab.learn.counted import QUANTA
from trimtab.learn.held_out import trace_line, values_at
from trimtab.metrics.per_user import (
    gain_factors,
    in_quanta,
    rank_lists,
    unit_metrics,
    weigh_purchases,
)

LOW, HIGH = -3.0, 3.0
METRICS = ("acc", "map", "ndcg")


def problem(seed: int):
    """Lists, slopes and purchases of a few units; half of the problems have many ties."""
    random = np.random.default_rng(seed)
    n_units, n_items = int(random.integers(1, 6)), int(random.integers(2, 9))
    lengths = random.integers(0, n_items + 1, n_units)
    items = [np.sort(random.permutation(n_items)[:n]) for n in lengths]
    bought = [np.flatnonzero(random.random(n_items) < 0.4) for _ in range(n_units)]
    draw = (
        (lambda n: random.integers(-2, 3, n).astype(float)) if seed % 2 else random.standard_normal
    )
    size = int(lengths.sum())
    lists = Lists(pointers(lengths), np.concatenate([*items, []]).astype(np.int32), draw(size))
    sets = Sets(pointers([len(b) for b in bought]), np.concatenate([*bought, []]).astype(np.int32))
    weights = random.integers(0, 4, n_units).astype(float) if seed % 3 == 0 else np.ones(n_units)
    return lists, draw(size), sets, int(random.integers(1, 5)), weights


def pointers(lengths) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def traced(
    lists: Lists, slopes, sets: Sets, k: int, metric: str, weights=None, low=LOW, high=HIGH
):  # fmt: skip
    """The curve of the units with hits."""
    data = find_hits(lists, sets, weights)
    along = find_hits(lists._replace(scores=slopes), sets, weights).lists.scores
    return trace_line(data, along, k, metric, low, high)


def each_at(lists, slopes, sets, k, weights, metric, t, relevance=None) -> np.ndarray:
    """The weighted metric of each unit at t, by ranking from scratch."""
    top = rank_lists(lists._replace(scores=lists.scores + t * slopes), k, np.zeros(9))
    return weights * getattr(unit_metrics(top, sets, k, relevance), metric)


def intervals(curve) -> list[tuple[float, float]]:
    edges = [curve.low, *curve.breakpoints, curve.high]
    return list(pairwise(edges))


def weigh_events(seed: int, sets: Sets, metric: str, k: int):
    """Relevance of purchases with weights, what hits of relevance 1 count as, and by how much."""
    drawn = np.random.default_rng(seed).choice([0.05, 0.3, 1.0, 7.0], len(sets.items))
    relevance, heaviest = weigh_purchases(sets, in_quanta(drawn))
    return relevance, heaviest, gain_factors(sets, relevance, metric, k)


@pytest.mark.parametrize("by_weight", [False, True])
def test_curve_and_values_equal_ranking_from_scratch_and_beat_a_grid(by_weight):
    for metric, seed in product(METRICS, range(150 if by_weight else 250)):
        lists, slopes, sets, k, weights = problem(seed)
        relevance, factors = None, 1.0
        if by_weight:
            relevance, heaviest, factors = weigh_events(seed, sets, metric, k)
            weights = weights * heaviest
        given = lists, slopes, sets, k, weights, metric
        data = find_hits(lists, sets, weights * factors, relevance)
        moved = lists._replace(scores=slopes)
        along = find_hits(moved, sets, weights * factors, relevance).lists.scores
        curve = trace_line(data, along, k, metric, LOW, HIGH)
        assert (np.diff(curve.breakpoints) > 0).all()
        for (low, high), value in zip(intervals(curve), curve.values, strict=True):
            for share in (0.01, 0.37, 0.99) if high - low > 1e-9 else ():
                t = low + share * (high - low)
                each = each_at(*given, t, relevance)
                assert value / QUANTA == pytest.approx(np.nansum(each), abs=1e-7), (seed, low, high)
                found = values_at(data, along, k, metric, t)
                assert found == pytest.approx(each[data.source], abs=1e-8)
        best, value = curve.best(0.01)
        at_best = np.nansum(each_at(*given, best, relevance))
        assert value / QUANTA == pytest.approx(at_best, abs=1e-7)
        for t in np.linspace(LOW, HIGH, 31)[:-1] + 1e-4 * np.pi:
            assert np.nansum(each_at(*given, t, relevance)) <= at_best + 1e-7


def test_curve_equals_the_reference():
    for metric, seed in product(METRICS, range(0, 120, 2)):
        lists, slopes, sets, k, _ = problem(seed)
        for unit in range(lists.n_units):
            alone, some = lists.take([unit]), sets.take([unit])
            own = slice(*lists.indptr[unit : unit + 2])
            items, bought = alone.items.tolist(), frozenset(some.items.tolist())
            listed, slope = (
                dict(zip(items, column[own].tolist(), strict=True))
                for column in (lists.scores, slopes)
            )
            steps = line_curve(Unit(listed, bought), {}, slope, Task((), k, metric))
            one = traced(alone, slopes[own], some, k, metric, low=-1e9, high=1e9)
            expected = {at: delta for at, delta in sorted(steps.items()) if abs(delta) > 4}
            changes = np.diff(one.values)
            kept = np.abs(changes) > 4
            assert one.breakpoints[kept] == pytest.approx(list(expected))
            assert changes[kept] == pytest.approx(list(expected.values()), abs=4)


def test_the_start_is_kept_unless_another_is_better():
    lists = Lists(pointers([2]), np.array([0, 1], np.int32), np.array([1.0, 0.0]))
    sets = Sets(pointers([1]), np.array([0], np.int32))
    curve = traced(lists, np.array([0.0, 1.0]), sets, 1, "acc", low=-5.0, high=5.0)
    assert curve.breakpoints.tolist() == [1.0]
    assert curve.best(0.25) == (0.25, QUANTA)
    assert curve.best(3.0) == (-2.0, QUANTA)


def test_the_number_of_threads_does_not_matter(monkeypatch):
    random = np.random.default_rng(0)
    n_units, n = 5000, 10
    items = np.argsort(random.random((n_units, 30)), axis=1)[:, :n].astype(np.int32)
    lists = Lists(np.arange(n_units + 1) * n, items.ravel(), random.random(n_units * n))
    sets = Sets(np.arange(n_units + 1), random.integers(0, 30, n_units).astype(np.int32))
    slopes = random.standard_normal(30)[lists.items]
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("TRIMTAB_THREADS", threads)
        found.append(traced(lists, slopes, sets, 5, "ndcg", low=-1.0, high=1.0))
    np.testing.assert_array_equal(found[0].breakpoints, found[1].breakpoints)
    np.testing.assert_array_equal(found[0].values, found[1].values)
