"""The choice model against a plain log-likelihood: the fit is its optimum, and sums agree."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from hit_lists import find_hits
from trimtab.arrays import Lists, Sets
from trimtab.learn.choice_model import (
    RIDGE,
    Choices,
    coefficient_errors,
    effect_variance,
    fit_coefficients,
    fit_effects,
    sum_effects,
)

QUANTA = 2.0**36


def problem(
    seed: int, n_units: int = 60, n_items: int = 25, n_listed: int = 8, by_relevance: bool = False
):
    """Lists, purchases, features by table, and the units' weights."""
    random = np.random.default_rng(seed)
    items = np.argsort(random.random((n_units, n_items)), axis=1)[:, :n_listed].astype(np.int32)
    indptr = np.arange(n_units + 1, dtype=np.int64) * n_listed
    bought = [np.flatnonzero(random.random(n_items) < 0.15) for _ in range(n_units)]
    sets = Sets(
        np.concatenate([[0], np.cumsum([len(b) for b in bought])]).astype(np.int64),
        np.concatenate(bought).astype(np.int32),
    )
    lists = Lists(indptr, items.ravel(), random.standard_normal(items.size))
    relevance = None
    if by_relevance:
        relevance = np.random.default_rng(seed).choice([0.125, 0.5, 1.0], len(sets.items))
    data = find_hits(lists, sets, relevance=relevance)
    weights = random.integers(0, 4, data.n_units).astype(float)
    table_of = random.integers(0, 3, data.n_units)
    return data, weights, table_of, random.standard_normal((3, n_items, 2))


def units(data):
    """Items, scores and hits of each unit."""
    for start, stop in zip(data.lists.indptr[:-1], data.lists.indptr[1:], strict=True):
        own = slice(start, stop)
        yield data.lists.items[own], data.lists.scores[own], data.hits[own]


def log_likelihood(data, weights, logits_of) -> float:
    total = 0.0
    for unit, (items, scores, hits) in enumerate(units(data)):
        logits = logits_of(unit, items, scores)
        chances = np.exp(logits - logits.max())
        total += weights[unit] * np.average(np.log(chances / chances.sum()), weights=hits)
    return total


def assert_is_maximum(value, at, scale=1e-3):
    """No small step along an axis increases the value."""
    best = value(at)
    for j in range(len(at)):
        for step in (-scale, scale):
            moved = at.copy()
            moved[j] += step
            assert value(moved) < best + 1e-9


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("n_terms", "by_relevance"), [(None, False), (2, False), (2, True)])
def test_coefficients_maximise_the_penalised_likelihood(seed, n_terms, by_relevance):
    data, weights, table_of, tables = problem(seed, by_relevance=by_relevance)
    terms = None
    if n_terms:
        terms = np.random.default_rng(seed).standard_normal((len(data.hits), n_terms))
    choices = Choices(data, weights, table_of, tables, terms)
    found = fit_coefficients(choices)

    def features(unit, items, scores):
        own = slice(*data.lists.indptr[unit : unit + 2])
        columns = [scores, tables[table_of[unit]][items]]
        return np.column_stack(columns if terms is None else [*columns, terms[own]])

    spreads = np.array([features(u, i, s).var(axis=0) for u, (i, s, _) in enumerate(units(data))])
    pull = RIDGE * np.maximum((weights @ spreads) / weights.sum(), 0.05**2)
    prior = np.concatenate([[1.0], np.zeros(len(found.beta) - 1)])

    def value(beta):
        fitted = log_likelihood(data, weights, lambda u, i, s: features(u, i, s) @ beta)
        return fitted - 0.5 * (pull * (beta - prior) ** 2).sum()

    assert_is_maximum(value, found.beta)
    other_start = found._replace(beta=found.beta + 0.3)
    again = fit_coefficients(choices, other_start)
    assert again.beta == pytest.approx(found.beta, abs=1e-6)
    covariance = coefficient_errors(choices, found)
    assert (np.linalg.eigvalsh(covariance) > 0).all()


def sums_at(data, weights, groups, effects):
    return sum_effects(data, weights, data.lists.scores, groups, effects, QUANTA) / QUANTA


def effects_of(data, weights, groups, n_groups, precision):
    return fit_effects(partial(sums_at, data, weights, groups), n_groups, precision)


def test_sums_of_parts_add_up_exactly():
    data, weights, _, _ = problem(3)
    effects = np.linspace(-1, 1, 25)
    half = data.n_units // 3
    found = []
    for chosen in (slice(None), slice(half), slice(half, None)):
        part, own = data.take(np.arange(data.n_units)[chosen]), weights[chosen]
        found.append(sum_effects(part, own, part.lists.scores, part.lists.items, effects, QUANTA))
    whole, *some = found
    assert (whole == sum(some)).all()
    assert np.abs(whole).sum() > 0


@pytest.mark.parametrize("by_relevance", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_effects_maximise_the_penalised_likelihood(seed, by_relevance):
    data, weights, _, _ = problem(seed, by_relevance=by_relevance)
    precision = 4.0
    groups = (data.lists.items // 3).astype(np.int32)
    effects = effects_of(data, weights, groups, 9, precision)

    def value(effect):
        fitted = log_likelihood(data, weights, lambda u, i, s: s + effect[i // 3])
        return fitted - 0.5 * precision * (effect**2).sum()

    assert_is_maximum(value, effects.values, scale=0.02)
    assert (effects.information >= 0).all()


def test_the_variance_of_effects_is_recovered():
    random = np.random.default_rng(5)
    n_units, n_items, n_listed = 20_000, 50, 10
    for truth in (0.0, 0.3, 1.0):
        effects = truth * random.standard_normal(n_items)
        items = np.argsort(random.random((n_units, n_items)), axis=1)[:, :n_listed]
        chances = np.exp(effects[items])
        draws = random.random((n_units, 1)) * chances.sum(axis=1, keepdims=True)
        chosen = np.take_along_axis(items, (chances.cumsum(axis=1) < draws).sum(1)[:, None], 1)
        indptr = np.arange(n_units + 1, dtype=np.int64)
        lists = Lists(indptr * n_listed, items.ravel().astype(np.int32), np.zeros(items.size))
        data = find_hits(lists, Sets(indptr, chosen.ravel().astype(np.int32)))
        sums = sums_at(data, np.ones(n_units), data.lists.items, np.zeros(n_items))
        # The curvature at 0 underestimates a large variance, but never gives 0.
        found = np.sqrt(effect_variance(sums))
        assert found == pytest.approx(effects.std(), rel=0.3, abs=0.05)


def test_the_number_of_threads_does_not_matter(monkeypatch):
    data, weights, table_of, tables = problem(1, n_units=9000)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("TRIMTAB_THREADS", threads)
        beta = fit_coefficients(Choices(data, weights, table_of, tables)).beta
        effects = effects_of(data, weights, data.lists.items, 25, 4.0)
        found.append((beta.tobytes(), effects.values.tobytes()))
    assert found[0] == found[1]


def test_a_heavy_tailed_feature_does_not_make_newton_steps_diverge():
    """Most units buy one item, whose feature is hundreds of times that of any other."""
    random = np.random.default_rng(3)
    n_units, n_items, n_listed = 400, 40, 10
    items = np.argsort(random.random((n_units, n_items - 1)), axis=1)[:, : n_listed - 1] + 1
    items = np.concatenate([np.zeros((n_units, 1), int), np.sort(items, axis=1)], axis=1)
    bought = np.where(random.random(n_units) < 0.8, 0, items[:, 3]).astype(np.int32)
    indptr = np.arange(n_units + 1, dtype=np.int64)
    lists = Lists(indptr * n_listed, items.astype(np.int32).ravel(), -random.random(items.size))
    data = find_hits(lists, Sets(indptr, bought))
    tables = random.standard_normal((1, n_items, 2))
    tables[:, 0, 1] = 440.0
    table_of, weights = np.zeros(n_units, np.int64), np.ones(n_units)
    found = fit_coefficients(Choices(data, weights, table_of, tables))
    assert found.converged

    def value(beta):
        def logits_of(unit, own, scores):
            return beta[0] * scores + tables[table_of[unit]][own] @ beta[1:]

        prior = np.array([1.0, 0.0, 0.0])
        penalty = 0.5 * (found.prior_precision * (beta - prior) ** 2).sum()
        return log_likelihood(data, weights, logits_of) - penalty

    assert_is_maximum(value, found.beta, scale=1e-4)
