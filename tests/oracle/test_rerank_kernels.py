"""What users bought and their wider lists: the kernels against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trimtab.arrays import OWN, TRENDING, Lists
from trimtab.kernels import reference as plain
from trimtab.kernels.user_purchases import TICKS
from trimtab.models.widening import (
    MOST_ADDED,
    SOURCES,
    Purchases,
    WiderLists,
    sum_purchases,
    widen,
)
from trimtab.tables.times import DAY, tick_length

N_ITEMS = 8
ITEMS = st.integers(0, N_ITEMS - 1)
SCORES = st.sampled_from([-1.0, 0.0, 0.5, 0.5 + 2**-40, 3.0])
EVENTS = st.lists(st.tuples(st.integers(0, 3), ITEMS, st.integers(0, 4)), max_size=30)


def columns_of(rows, kinds):
    """Columns of rows, each as an array of its kind."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in kinds)
    return [np.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]


def sums_of(events, n_users: int, window: int = 3 * DAY) -> Purchases:
    """Events have a user, an item and ticks before the instant."""
    users, items, ticks = columns_of(events, (np.int32, np.int32, np.int64))
    times = -1 - ticks * tick_length(window)
    return sum_purchases(users, items, times, 0, window, n_users)


def bought_by(purchases: Purchases, user: int) -> dict[int, plain.Bought]:
    own = slice(purchases.indptr[user], purchases.indptr[user] + purchases.lengths[user])
    rows = (column[own].tolist() for column in purchases[2:])
    return {item: plain.Bought(*found) for item, *found in zip(*rows, strict=True)}


def entries_of_unit(wide: WiderLists, unit: int) -> list[plain.Entry]:
    own = slice(*wide.lists.indptr[unit : unit + 2])
    names = [
        frozenset(name for name, source in SOURCES.items() if source & found)
        for found in wide.sources[own].tolist()
    ]
    rows = wide.lists.items[own].tolist(), wide.lists.scores[own].tolist(), names
    terms = [tuple(row) for row in wide.terms[own].tolist()]
    return [plain.Entry(*row) for row in zip(*rows, terms, strict=True)]


def assert_same_purchases(found: dict[int, plain.Bought], expected: dict[int, plain.Bought]):
    assert list(found) == list(expected)
    for item, bought in expected.items():
        assert found[item] == pytest.approx(bought, rel=1e-12)


# What users bought --------------------------------------------------------------------------


@settings(deadline=None)
@given(EVENTS, st.randoms(use_true_random=False))
@example([], None)
@example([(0, 5, 9), (0, 5, 0), (0, 2, 59), (0, 5, 0)], None)  # twice on the later of two days
@example([(0, 3, 2), (0, 3, 2), (0, 3, 2)], None)  # three times on one day
@example([(2, 0, 0)], None)  # users before and after it without purchases
def test_what_users_bought(events, random):
    expected = [plain.sum_purchases([row[1:] for row in events if row[0] == u]) for u in range(4)]
    if random is not None:
        random.shuffle(events)
    found = sums_of(events, 4)
    for user in range(4):
        assert_same_purchases(bought_by(found, user), expected[user])


def test_thousands_of_years_are_capped():
    found = sums_of([(0, 1, 2 * TICKS), (0, 2, 3)], 1)
    assert bought_by(found, 0)[1].age == TICKS
    assert bought_by(found, 0)[2].age == 4.0


@pytest.mark.parametrize("window", [3 * DAY, DAY // 24])
def test_ticks_count_back_from_the_instant(window):
    tick, instant = tick_length(window), 100 * DAY + 7
    times = np.array([instant - 1, instant - tick, instant - tick - 1, instant - 2 * tick, 7])
    items, users = np.arange(5, dtype=np.int32), np.zeros(5, np.int32)
    found = sum_purchases(users, items, times, instant, window, 1)
    assert found.ages.tolist() == [1, 1, 2, 2, 100 * DAY // tick]
    assert found.recent == pytest.approx(np.exp(-found.ages * tick / (10 * window)))


# Wider lists --------------------------------------------------------------------------------

LISTED = st.dictionaries(ITEMS, SCORES, max_size=N_ITEMS)
BOUGHT = st.dictionaries(
    ITEMS,
    st.builds(
        plain.Bought,
        st.sampled_from([1.0, 2.0, 7.0]),
        st.sampled_from([1.0, 30.0, 400.0]),
        st.sampled_from([1e-9, 0.25, 0.25 + 1e-3, 3.0]),  # with ties, and ties against `times`
    ),
    max_size=N_ITEMS,
)


def packed(bought: list[dict[int, plain.Bought]]) -> Purchases:
    rows = [(item, *found) for own in bought for item, found in sorted(own.items())]
    columns = columns_of(rows, (np.int32, np.float64, np.float64, np.float64))
    lengths = np.array([len(own) for own in bought], np.int64)
    return Purchases(np.concatenate([[0], np.cumsum(lengths)]), lengths, *columns)


def lists_of(units: list[dict[int, float]]) -> Lists:
    rows = [entry for unit in units for entry in unit.items()]
    ends = np.concatenate([[0], np.cumsum([len(unit) for unit in units], dtype=np.int64)])
    return Lists(ends, *columns_of(rows, (np.int32, np.float64)))


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(LISTED, st.integers(-1, 2)), max_size=4),
    st.lists(BOUGHT, min_size=3, max_size=3),
    st.sets(ITEMS),
    st.lists(ITEMS, unique=True),
    st.sampled_from([0, TRENDING, OWN, TRENDING | OWN]),
)
@example([], [{}, {}, {}], set(), [], 0)
@example([({}, 0)], [{1: plain.Bought(1.0, 1.0, 1.0)}, {}, {}], {1, 2}, [2], TRENDING | OWN)
@example([({0: 1.0}, -1)], [{0: plain.Bought(1.0, 1.0, 1.0)}, {}, {}], {0, 1}, [1], TRENDING | OWN)
@example([({0: 1.0}, 0)], [{1: plain.Bought(1.0, 1.0, 1.0)}, {}, {}], {1}, [1], TRENDING | OWN)
def test_wider_lists(units, bought, may_add, trending, sources):
    flags = np.array([item in may_add for item in range(N_ITEMS)])
    users = np.array([user for _, user in units], np.int32)
    wide = widen(
        lists_of([listed for listed, _ in units]), users, packed(bought), flags,
        np.array(trending, np.int32), sources,
    )  # fmt: skip
    for unit, (listed, user) in enumerate(units):
        expected = plain.wider_list(
            listed,
            {} if user < 0 else bought[user],
            may_add,
            trending if sources & TRENDING else [],
            MOST_ADDED if sources & OWN else 0,
        )
        found = entries_of_unit(wide, unit)
        assert [entry[:3] for entry in found] == [entry[:3] for entry in expected]
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.terms == pytest.approx(theirs.terms, rel=1e-12, abs=1e-300)


def test_a_wider_list_by_hand():
    bought = {0: plain.Bought(2.0, 3.0, 1.5), 4: plain.Bought(1.0, 1.0, 0.9)}
    wide = widen(
        lists_of([{3: 0.2, 0: 0.9}]), np.zeros(1, np.int32), packed([bought]),
        np.ones(N_ITEMS, bool), np.array([3, 4, 1], np.int32), TRENDING | OWN,
    )  # fmt: skip
    terms_of_0 = (1.0, np.log(2.0), np.log(3.0), np.log(2.5))
    terms_of_4 = (1.0, 0.0, 0.0, np.log(1.9))
    none = (0.0, 0.0, 0.0, 0.0)
    assert entries_of_unit(wide, 0) == [
        plain.Entry(3, 0.2, frozenset(), none),
        plain.Entry(0, 0.9, frozenset(), pytest.approx(terms_of_0)),
        plain.Entry(4, 0.2, frozenset({"trending", "own"}), pytest.approx(terms_of_4)),
        plain.Entry(1, 0.2, frozenset({"trending"}), none),
    ]


@settings(deadline=None)
@given(st.lists(st.tuples(LISTED, st.integers(0, 2)), max_size=4),
       st.lists(BOUGHT, min_size=3, max_size=3), st.lists(ITEMS, unique=True),
       st.sampled_from([0, TRENDING, OWN, TRENDING | OWN]))  # fmt: skip
def test_leaving_out_a_source_is_as_never_adding_from_it(units, bought, trending, sources):
    arguments = (
        lists_of([listed for listed, _ in units]), np.array([u for _, u in units], np.int32),
        packed(bought), np.ones(N_ITEMS, bool), np.array(trending, np.int32),
    )  # fmt: skip
    both, _ = widen(*arguments, TRENDING | OWN).only(sources)
    alone = widen(*arguments, sources)
    for unit in range(len(units)):
        entries, expected = (
            sorted(entries_of_unit(wide, unit), key=lambda entry: entry.item)
            for wide in (both, alone)
        )
        assert entries == expected
