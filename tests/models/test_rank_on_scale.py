"""Top lists by logs of few scores equal those by logs of all, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.arrays import Lists, Sets
from trimtab.metrics.ranking import rank_lists
from trimtab.models.scaled_scores import rank_on_scale, to_scale, to_scores

N_ITEMS = 30
TINY, HUGE = 5e-324, 1.7e308
SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 0.5, np.nextafter(1.0, 0), TINY, 2.3e-308, HUGE, -1.0, -TINY]),
    st.floats(1e-3, 1e3),
    st.floats(allow_nan=False, allow_infinity=False),
)
BIASES = st.one_of(st.sampled_from([0.0, -0.0, 1e300, -1e300]), st.floats(-5, 5))


@st.composite
def shops(draw):
    lengths = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6))
    items = [draw(st.permutations(range(N_ITEMS)))[:length] for length in lengths]
    scores = draw(st.lists(SCORES, min_size=sum(lengths), max_size=sum(lengths)))
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    flat = np.array([item for own in items for item in own], np.int32)
    biases = np.array(draw(st.lists(BIASES, min_size=N_ITEMS, max_size=N_ITEMS)))
    excluded = np.array(draw(st.lists(st.booleans(), min_size=N_ITEMS, max_size=N_ITEMS)))
    hides = draw(st.lists(st.integers(0, 3), min_size=len(lengths), max_size=len(lengths)))
    hidden = [np.sort(draw(st.permutations(range(N_ITEMS)))[:n]) for n in hides]
    starts = np.concatenate([[0], np.cumsum(hides)]).astype(np.int64)
    sets = Sets(starts, np.array([item for own in hidden for item in own], np.int32))
    return Lists(indptr, flat, np.array(scores, np.float64)), biases, excluded, sets


@settings(max_examples=400, deadline=None)
@given(shop=shops(), k=st.integers(1, 14), hides=st.booleans())
def test_the_same_as_by_all_logs(shop, k, hides):
    lists, bias, excluded, hidden = shop
    own = hidden if hides else None
    scaled, units = to_scale(lists, "log", 10)
    expected = rank_lists(scaled, k, bias, excluded, hidden=own)
    found = rank_on_scale(lists, "log", 10, k, bias, excluded, hidden=own)
    assert found.indptr.tolist() == expected.indptr.tolist()
    assert found.items.tolist() == expected.items.tolist()
    assert found.scores.tobytes() == to_scores(expected, units).tobytes()


def test_many_lists_in_the_order_of_scores():
    rng = np.random.default_rng(4)
    n_units, length, n_items = 5_000, 50, 400
    items = np.argsort(rng.random((n_units, n_items)), axis=1)[:, :length].astype(np.int32)
    scores = -np.sort(-rng.lognormal(0, 2, (n_units, length)), axis=1)
    lists = Lists(np.arange(0, n_units * length + 1, length), items.ravel(), scores.ravel())
    bias, excluded = rng.normal(0, 1, n_items), rng.random(n_items) < 0.1
    scaled, units = to_scale(lists, "log", 10)
    expected = rank_lists(scaled, 10, bias, excluded)
    found = rank_on_scale(lists, "log", 10, 10, bias, excluded)
    assert found.items.tobytes() == expected.items.tobytes()
    assert found.scores.tobytes() == to_scores(expected, units).tobytes()


@pytest.mark.parametrize("scale", ["additive", "list"])
def test_other_scales(scale):
    lists = Lists(np.array([0, 3]), np.array([0, 1, 2], np.int32), np.array([3.0, 2.0, 1.0]))
    bias, excluded = np.array([0.0, 5.0, 0.0]), np.array([False, False, True])
    top = rank_on_scale(lists, scale, 10, 2, bias, excluded)
    assert top.items.tolist() == [1, 0]
