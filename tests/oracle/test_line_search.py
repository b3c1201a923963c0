"""The line search against brute-force ranking: every interval, and the best of a grid."""

from __future__ import annotations

from itertools import pairwise

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
    data, along = gathered(lists, slopes, sets, weights)
    return trace_line(data, along, k, metric, low, high)


def gathered(lists: Lists, slopes, sets: Sets, weights=None):
    """The units with hits, and the slopes of their entries."""
    data = find_hits(lists, sets, weights)
    return data, find_hits(lists._replace(scores=slopes), sets, weights).lists.scores


def brute(lists: Lists, slopes, sets: Sets, k: int, metric: str, weights, t: float) -> float:
    """The weighted sum of the metric at t, by ranking from scratch."""
    n_items = int(max(lists.items.max(initial=0), sets.items.max(initial=0))) + 1
    moved = Lists(lists.indptr, lists.items, lists.scores + t * slopes)
    top = rank_lists(moved, k, np.zeros(n_items))
    return float(np.nansum(weights * getattr(unit_metrics(top, sets, k), metric)))


def intervals(curve) -> list[tuple[float, float]]:
    edges = [curve.low, *curve.breakpoints, curve.high]
    return list(pairwise(edges))


def test_curve_equals_brute_force_and_beats_a_grid():
    for hundred in range(10):
        for metric in ["acc", "map", "ndcg"]:
            for seed in range(100 * hundred, 100 * hundred + 100):
                lists, slopes, sets, k, weights = problem(seed)
                curve = traced(lists, slopes, sets, k, metric, weights)
                assert (np.diff(curve.breakpoints) > 0).all()
                for (low, high), value in zip(intervals(curve), curve.values, strict=True):
                    if high - low > 1e-9:  # several points in each interval
                        for share in (0.01, 0.37, 0.5, 0.99):
                            found = brute(
                                lists, slopes, sets, k, metric, weights, low + share * (high - low)
                            )
                            assert value / QUANTA == pytest.approx(found, abs=1e-7), (
                                seed,
                                low,
                                high,
                            )
                best, value = curve.best(0.01)
                at_best = brute(lists, slopes, sets, k, metric, weights, best)
                assert value / QUANTA == pytest.approx(at_best, abs=1e-7)
                grid = np.linspace(LOW, HIGH, 61) + 1e-4 * np.pi
                for t in grid[grid < HIGH]:
                    assert brute(lists, slopes, sets, k, metric, weights, t) <= at_best + 1e-7


def test_curve_equals_the_reference():
    for metric in ["acc", "map", "ndcg"]:
        for seed in range(0, 200, 2):
            lists, slopes, sets, k, _ = problem(seed)
            task = Task((), k, metric)
            for unit in range(lists.n_units):
                own = slice(lists.indptr[unit], lists.indptr[unit + 1])
                bought = sets.items[sets.indptr[unit] : sets.indptr[unit + 1]].tolist()
                listed = dict(
                    zip(lists.items[own].tolist(), lists.scores[own].tolist(), strict=True)
                )
                slope = dict(zip(lists.items[own].tolist(), slopes[own].tolist(), strict=True))
                steps = line_curve(Unit(listed, frozenset(bought)), {}, slope, task)
                one = traced(
                    Lists(pointers([len(listed)]), lists.items[own], lists.scores[own]),
                    slopes[own], Sets(pointers([len(bought)]), np.array(bought, np.int32)),
                    k, metric, low=-1e9, high=1e9,
                )  # fmt: skip
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


def test_values_of_units_equal_ranking_from_scratch():
    for metric in ["acc", "map", "ndcg"]:
        for seed in range(0, 300, 7):
            lists, slopes, sets, k, weights = problem(seed)
            data, along = gathered(lists, slopes, sets, weights)
            for t in (0.0, 0.7310585, 2.0 / np.pi):
                moved = Lists(lists.indptr, lists.items, lists.scores + t * slopes)
                top = rank_lists(moved, k, np.zeros(9))
                each = weights * getattr(unit_metrics(top, sets, k), metric)
                found = values_at(data, along, k, metric, t)
                assert found == pytest.approx(each[data.source], abs=1e-8)
                assert np.nansum(each) == pytest.approx(found.sum(), abs=1e-8)


def weighted_problem(seed: int, metric: str):
    """A problem whose purchases have weights; and what hits of relevance 1 count as."""
    lists, slopes, sets, k, weights = problem(seed)
    random = np.random.default_rng(seed)
    relevance, heaviest = weigh_purchases(
        sets, in_quanta(random.choice([0.05, 0.3, 1.0, 7.0], len(sets.items)))
    )
    counted = weights * heaviest
    return lists, slopes, sets, k, counted, relevance, gain_factors(sets, relevance, metric, k)


def test_with_weights_of_events_curve_and_values_equal_ranking_from_scratch():
    for hundred in range(3):
        for metric in ["acc", "map", "ndcg"]:
            for seed in range(100 * hundred, 100 * hundred + 100):
                lists, slopes, sets, k, counted, relevance, factors = weighted_problem(seed, metric)
                gains = counted * factors
                data = find_hits(lists, sets, gains, relevance)
                along = find_hits(
                    lists._replace(scores=slopes), sets, gains, relevance
                ).lists.scores
                curve = trace_line(data, along, k, metric, LOW, HIGH)
                for (low, high), value in zip(intervals(curve), curve.values, strict=True):
                    if high - low <= 1e-9:
                        continue
                    t = low + 0.37 * (high - low)
                    top = rank_lists(
                        lists._replace(scores=lists.scores + t * slopes), k, np.zeros(9)
                    )
                    each = counted * getattr(unit_metrics(top, sets, k, relevance), metric)
                    assert value / QUANTA == pytest.approx(np.nansum(each), abs=1e-7), (
                        seed,
                        low,
                        high,
                    )
                    found = values_at(data, along, k, metric, t)
                    assert found == pytest.approx(each[data.source], abs=1e-8)
