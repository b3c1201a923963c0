"""The ranking order (score descending, then id ascending), and the top k."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.arrays import Lists, Sets
from trimtab.metrics.per_user import rank_lists

N_ITEMS = 6


def as_lists(rows):
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    items = np.array([item for row in rows for item, _ in row], np.int32)
    return Lists(indptr, items, np.array([score for row in rows for _, score in row], float))


def as_sets(rows):
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    return Sets(indptr, np.array([item for row in rows for item in sorted(row)], np.int32))


def as_rows(top):
    return [
        list(zip(top.items[a:b].tolist(), top.scores[a:b].tolist(), strict=True))
        for a, b in zip(top.indptr[:-1], top.indptr[1:], strict=True)
    ]


def plain_top(row, k, bias, excluded, reaches_unlisted, hidden):
    """The definition, as it is written."""
    totals = {item: score + bias[item] for item, score in row}
    if reaches_unlisted and row:
        totals |= {i: b for i, b in enumerate(bias) if b > 0 and i not in totals}
    shown = [i for i in totals if not excluded[i] and i not in hidden]
    shown.sort(key=lambda i: (-totals[i], i))
    return [(i, totals[i]) for i in shown[:k]]


SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
ROWS = st.lists(
    st.dictionaries(st.integers(0, N_ITEMS - 1), SCORES, max_size=N_ITEMS).map(
        lambda row: list(row.items())
    ),
    min_size=1,
    max_size=4,
)
BIASES = st.lists(
    st.sampled_from([-0.5, 0.0, 0.25, 0.5]), min_size=N_ITEMS, max_size=N_ITEMS
)  # few values, so there are many ties


@settings(deadline=None, max_examples=300)
@given(st.data(), ROWS, BIASES, st.integers(1, 8), st.booleans())
def test_the_top_equals_the_definition(data, rows, bias, k, reaches_unlisted):
    flags = st.lists(st.booleans(), min_size=N_ITEMS, max_size=N_ITEMS)
    excluded = np.array(data.draw(flags))
    items = st.sets(st.integers(0, N_ITEMS - 1))
    hidden = data.draw(st.lists(items, min_size=len(rows), max_size=len(rows)))
    top = rank_lists(as_lists(rows), k, np.array(bias), excluded, reaches_unlisted, as_sets(hidden))
    assert as_rows(top) == [
        plain_top(row, k, bias, excluded, reaches_unlisted, unseen)
        for row, unseen in zip(rows, hidden, strict=True)
    ]


@pytest.mark.parametrize("threads", ["1", "2", "3"])
def test_threads_do_not_matter(threads, many, monkeypatch):
    monkeypatch.setenv("TRIMTAB_THREADS", threads)
    bias = np.round(np.random.default_rng(0).normal(0, 0.01, many.n_items), 3)
    top = rank_lists(many.lists, 5, bias, None, True)
    sample = slice(0, many.n_users, 501)
    rows = as_rows(many.lists)[sample]
    nothing = np.zeros(many.n_items, bool)
    assert as_rows(top)[sample] == [plain_top(row, 5, bias, nothing, True, ()) for row in rows]
