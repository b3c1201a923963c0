from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plain_metrics import plain_metrics
from trimtab.arrays import Lists, Sets
from trimtab.metrics.per_user import coverage, kl_divergence, lift, unit_metrics, weighted_mean

NAN = math.nan


def rows(lists):
    indptr = np.cumsum([0, *map(len, lists)])
    items = np.array([item for row in lists for item in row], dtype=np.int32)
    return Sets(indptr.astype(np.int64), items)


def sets(lists):
    return rows([sorted(row) for row in lists])


def random_rows(rng, n_units, n_items, longest):
    lengths = rng.integers(0, longest + 1, n_units)
    order = np.argsort(rng.random((n_units, n_items)), axis=1)
    return [row[:length].tolist() for row, length in zip(order, lengths, strict=True)]


# By hand ---------------------------------------------------------------------------------------


def test_by_hand():
    second = 1 / math.log2(3)
    for top, bought, k, expected in (
        # (1/log2(2) + 1/log2(4)) / (1/log2(2) + 1/log2(3) + 1/log2(4)) = 1.5 / 2.13092975
        ([7, 2, 5, 9], [5, 7, 8], 4, (2 / 4, (1 / 1 + 2 / 3) / 3, 0.7039180890341347)),
        ([1, 2, 3], [3], 2, (0, 0, 0)),
        ([1, 2, 3], [2], 2, (1 / 2, 1 / 2, second)),
        ([4], [4], 10, (1 / 10, 1, 1)),
        ([4], [4, 5], 10, (1 / 10, 1 / 2, 0.6131471927654584)),
        ([1, 2], [2], 10**9, (1e-9, 1 / 2, second)),
        ([], [4, 5], 3, (0, 0, 0)),
        ([1, 2], [], 3, (NAN, NAN, NAN)),
        ([], [], 3, (NAN, NAN, NAN)),
        ([1, 2], [1, 2, 3, 4, 5], 2, (1, 1, 1)),
        ([9, 2], [1, 2, 3, 4, 5], 2, (1 / 2, (1 / 2) / 2, second / (1 + second))),
        # An item listed twice counts once, at its first rank.
        ([3, 3], [3], 2, (1 / 2, 1, 1)),
        (
            [3, 3, *range(100, 160)],
            [3, *range(200, 260)],
            62,
            (1 / 62, 1 / 61, 1 / sum(1 / math.log2(1 + p) for p in range(1, 62))),
        ),
    ):
        units = unit_metrics(rows([top]), sets([bought]), k)
        assert [values[0] for values in units[:3]] == pytest.approx(
            expected, abs=1e-15, nan_ok=True
        )
    assert [len(values) for values in unit_metrics(rows([]), rows([]), k=3)] == [0] * 6


def test_scored_lists_are_taken_in_the_order_given_and_arrays_of_any_kind():
    top = Lists(np.array([0, 2]), np.array([5, 6], dtype=np.int32), np.array([0.1, 0.9]))
    assert unit_metrics(top, rows([[5]]), k=1).acc[0] == 1
    top = Sets(np.array([0, 2], dtype=np.int32), np.array([7, 2], dtype=np.int64))
    truth = rows([[7]])
    for array in (*top, *truth):
        array.flags.writeable = False
    assert unit_metrics(top, truth, k=2).acc[0] == 0.5


# Against the definition ------------------------------------------------------------------------

items = st.integers(0, 30)
relevances = st.sampled_from([0.125, 0.5, 1.0])
units_of_items = st.lists(
    st.tuples(
        st.lists(items, unique=True, max_size=25), st.dictionaries(items, relevances, max_size=25)
    ),
    max_size=6,
)


def check(units, k: int, relevance):
    """Check the metrics of units: lists, and the relevance of what each bought."""
    bought = sets([own for _, own in units])
    got = unit_metrics(rows([top for top, _ in units]), bought, k, relevance)._asdict()
    for unit, (top, own) in enumerate(units):
        values = {name: column[unit] for name, column in got.items()}
        assert values == pytest.approx(plain_metrics(top, own, k), abs=1e-14, nan_ok=True)


@given(units=units_of_items, k=st.integers(1, 30))
@settings(deadline=None)
def test_equals_the_definition(units, k):
    check(units, k, np.array([own[item] for _, own in units for item in sorted(own)], float))
    check([(top, dict.fromkeys(own, 1.0)) for top, own in units], k, None)


def test_same_bytes_for_any_number_of_threads(monkeypatch):
    rng = np.random.default_rng(3)
    top, truth = rows(random_rows(rng, 9001, 40, 30)), sets(random_rows(rng, 9001, 40, 20))
    relevance = rng.random(len(truth.items))
    seen = set()
    for threads in ("1", "2", "3", "7"):
        monkeypatch.setenv("TRIMTAB_THREADS", threads)
        units = unit_metrics(top, truth, 10, relevance)
        seen.add(tuple(values.tobytes() for values in units))
    assert len(seen) == 1


# Means -----------------------------------------------------------------------------------------


def test_weighted_mean_of_units_in_any_order():
    values = np.array([1.0, 0.25])
    assert weighted_mean(values, np.array([1.0, 3.0])) == (1 * 1 + 3 * 0.25) / 4
    assert weighted_mean(values, np.ones(2)) == 0.625
    assert math.isnan(weighted_mean(np.empty(0), np.empty(0)))
    assert math.isnan(weighted_mean(np.ones(2), np.zeros(2)))
    rng = np.random.default_rng(5)
    values, weights = rng.random(5000), rng.random(5000)
    shuffled = rng.permutation(5000)
    assert weighted_mean(values[shuffled], weights[shuffled]) == weighted_mean(values, weights)


# Lift, coverage, KL ----------------------------------------------------------------------------


def test_lift():
    assert (lift(3.0, 2.0), lift(1.0, 2.0)) == (0.5, -0.5)
    assert isinstance(lift(3, 2), float)
    assert np.isnan([lift(1.0, 0.0), lift(0.0, 0.0)]).all()
    lifts = lift(np.array([3.0, 1.0, 0.0]), np.array([2.0, 0.0, 4.0]))
    np.testing.assert_array_equal(lifts, [0.5, NAN, -1.0])
    np.testing.assert_array_equal(lift(np.array([3.0, 1.0]), 2.0), [0.5, -0.5])


def test_coverage_by_hand():
    recommended = [0] * 5 + [1] * 4 + [2] * 3 + [3] * 2
    bought = [3] * 5 + [2] * 4 + [1] * 3 + [9]
    # most recommended: 0 1 2 3; most bought: 3 2 1 9
    covered = coverage(recommended, bought, n_items=12, sizes=(1, 2, 3, 4, 100))
    assert covered == {1: 0, 2: 0, 3: 2, 4: 3, 100: 3}
    assert list(coverage([0], [0], n_items=1)) == [10, 20, 50, 100, 200, 500, 1000]
    # ties go to the smaller code, and items of count 0 never count
    assert coverage([5, 1], [1, 7], n_items=8, sizes=(1,)) == {1: 1}
    assert coverage([1, 5], [5, 7], n_items=8, sizes=(1, 2)) == {1: 0, 2: 1}

    assert coverage([], [], n_items=3, sizes=(2,)) == {2: 0}
    assert coverage([0], [], n_items=3, sizes=(2,)) == {2: 0}
    assert coverage([0], [1], n_items=3, sizes=(3,)) == {3: 0}


@given(
    recommended=st.lists(st.integers(0, 9), max_size=30),
    bought=st.lists(st.integers(0, 9), max_size=30),
    size=st.integers(1, 12),
)
def test_coverage_equals_the_definition(recommended, bought, size):
    def most(codes):
        return set(sorted(set(codes), key=lambda code: (-codes.count(code), code))[:size])

    expected = len(most(recommended) & most(bought))
    assert coverage(recommended, bought, n_items=10, sizes=(size,)) == {size: expected}


def test_kl_by_hand():
    assert kl_divergence([0, 1, 1], [0, 1, 1, 0, 1, 1], n_items=5) == 0
    # halves against 1/4 and 3/4
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert kl_divergence([2, 4], [2, 4, 4, 4], n_items=5) == pytest.approx(expected)
    assert math.isnan(kl_divergence([], [], n_items=4))
    # counts of 0 become 0.01: item 0 was bought 3 times, item 1 shown once
    bought, shown = (3 / 3.01, 0.01 / 3.01), (0.01 / 1.01, 1 / 1.01)
    expected = sum(p * math.log(p / q) for p, q in zip(bought, shown, strict=True))
    assert kl_divergence([0, 0, 0], [1], n_items=2) == pytest.approx(expected)


# Another library, the docstrings, the import -----------------------------------------------------


def ranx_table(lists, relevance):
    """Rows of (item, relevance), padded with an item nobody has: what ranx takes as arrays."""
    table = np.full((len(lists), max(map(len, lists)), 2), (-1.0, 0.0))
    for row, items_of_row in zip(table, lists, strict=True):
        row[: len(items_of_row), 0] = items_of_row
        row[: len(items_of_row), 1] = relevance
    return table


def test_equals_ranx(monkeypatch):
    rng = np.random.default_rng(1)
    top, bought = random_rows(rng, 300, 30, 15), random_rows(rng, 300, 30, 12)
    sizes = np.array([len(row) for row in bought])
    assert 0 < np.count_nonzero(sizes == 0) < 100
    ours = [unit_metrics(rows(top), sets(bought), k)[:3] for k in (1, 5, 10)]
    monkeypatch.setattr("numba.config.DISABLE_JIT", True)  # compiling takes it a minute
    import ranx

    for k, units in zip((1, 5, 10), ours, strict=True):
        wanted = [f"precision@{k}", f"map@{k}", f"ndcg@{k}"]
        tables = ranx_table(bought, relevance=1), ranx_table(top, relevance=0)
        theirs = ranx.evaluate(*tables, wanted, return_mean=False)
        theirs[wanted[1]] *= np.maximum(1, sizes / k)  # its AP is over R instead of min(k, R)
        for own, name in zip(units, wanted, strict=True):
            np.testing.assert_allclose(own[sizes > 0], theirs[name][sizes > 0], rtol=0, atol=1e-12)
