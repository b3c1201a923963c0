"""Rules that every adapter follows, tested with the real libraries."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import trimtab as tt
from adapter_cases import CASES, PERSONAL, Case, case, checkerboard, events, random_counts
from trimtab import DataError, SettingError
from trimtab.adapters import UserItems
from trimtab.tables.columns import read_frame

N = 8
COLUMNS = ["user_id", "item_id", "score"]
COUNTS = random_counts()
N_USERS, N_ITEMS = COUNTS.shape
pytestmark = pytest.mark.filterwarnings("ignore:Method expects CSR input")  # implicit, of its own


@pytest.fixture(params=CASES)
def name(request) -> str:
    return str(request.param)


def recs_of(given: Case, users=None, n=N, **options) -> pd.DataFrame:
    recs = tt.recs_from(given.model, users, n, **given.options, **options)
    return read_frame(recs, "recs", *COLUMNS, may_be_empty=True).columns.to_pandas()


def in_order(recs: pd.DataFrame) -> pd.DataFrame:
    by = ["user_id", "score", "item_id"]
    return recs.sort_values(by, ascending=[True, False, True]).reset_index(drop=True)


def assert_same(given: Case, ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    exactly = {"check_exact": True} if given.exact else {"rtol": 1e-5, "atol": 1e-6}
    pd.testing.assert_frame_equal(
        ours.reset_index(drop=True), theirs.reset_index(drop=True), **exactly
    )


def assert_best(recs: pd.DataFrame, scores: np.ndarray, n: int) -> None:
    """The listed scores are the library's, and nothing better was left out."""
    listed = np.full(scores.shape, np.nan)
    listed[recs.user_id, recs.item_id] = recs.score
    there = np.isfinite(listed)
    np.testing.assert_allclose(listed[there], scores[there], rtol=1e-4, atol=2e-5)
    assert (there.sum(axis=1) == np.minimum(np.isfinite(scores).sum(axis=1), n)).all()
    worst = np.where(there, listed, np.inf).min(axis=1)
    best_left_out = np.where(there | np.isnan(scores), -np.inf, scores).max(axis=1)
    assert (worst >= best_left_out - 2e-5 - 1e-4 * np.abs(worst)).all()


def test_lists_are_typed_sorted_and_without_repeats(name):
    given = case(name)
    table = read_frame(tt.recs_from(given.model, n=N, **given.options), "recs", *COLUMNS).columns
    assert table.column_names == COLUMNS
    assert table.schema.types == [pa.int64(), pa.int64(), pa.float64()]
    assert not any(column.null_count for column in table.columns)
    for data in ("random", "checkerboard"):
        recs = recs_of(case(name, data))
        assert len(recs) > 0
        assert np.isfinite(recs.score).all()
        assert not recs.duplicated(["user_id", "item_id"]).any()
        assert recs.groupby("user_id").size().max() <= N
        pd.testing.assert_frame_equal(recs, in_order(recs), check_exact=True)


def test_scores_are_the_librarys_and_the_best_are_listed_at_any_length(name):
    given = case(name)
    assert_best(recs_of(given), given.scores, N)
    whole = recs_of(given, n=N_ITEMS)
    assert (whole.score < 0).sum() == (given.scores < 0).sum()
    longer = recs_of(given, n=10 * N_ITEMS)
    assert_same(given, longer, whole)
    assert_best(longer, given.scores, N_ITEMS)
    for data in ("random", "checkerboard"):
        given = case(name, data)
        short, long = recs_of(given, n=3), recs_of(given, n=N_ITEMS)
        assert_same(given, short, long.groupby("user_id").head(3))
    for n in (0, -1, 2.5, True, None):
        with pytest.raises(SettingError, match="n="):
            recs_of(given, n=n)


def test_some_models_have_scores_below_0():
    assert any((case(name).scores < 0).any() for name in CASES)


def test_some_users_get_their_lists_in_the_order_of_ids_and_others_are_counted(name):
    given = case(name)
    together = recs_of(given)
    for user in (0, 17, N_USERS - 1):
        assert_same(given, recs_of(given, [user]), together[together.user_id == user])
    some = recs_of(given, np.array([40, 3, 40, 8, 3]))
    assert some.user_id.unique().tolist() == [3, 8, 40]
    assert_same(given, some, together[together.user_id.isin([3, 8, 40])])
    with pytest.warns(tt.TrimtabWarning, match=r"^2 of 3 users get no list: .* same ids$"):
        known = recs_of(given, [10**6, 3, -1, 3, -1])
    assert_same(given, known, recs_of(given, [3]))
    with pytest.warns(tt.TrimtabWarning, match="^1 of 1 users get no list"):
        assert recs_of(given, [10**6]).empty
    for nobody in ([], pd.DataFrame({"user_id": np.empty(0, int)})):
        recs = recs_of(given, nobody)
        assert recs.columns.tolist() == COLUMNS
        assert recs.empty
    with pytest.raises(DataError, match="users is a int"):
        recs_of(given, 3)


def test_text_ids_give_the_same_lists(name):
    given, named = case(name), case(name, names="text")
    texts = recs_of(named)
    assert texts.user_id.iloc[0] == "u000"
    numbers = texts.assign(
        user_id=texts.user_id.str[1:].astype(int), item_id=texts.item_id.str[1:].astype(int)
    )
    assert_same(given, numbers, recs_of(given))
    with pytest.warns(tt.TrimtabWarning, match="^1 of 2 users get no list"):
        alone = recs_of(named, ["u017", "nobody"])
    assert alone.user_id.unique().tolist() == ["u017"]
    with pytest.raises(DataError, match=r"(strings|integers) in .*(integers|strings) in "):
        recs_of(named, [3])


def test_known_items_are_left_out_on_request(name):
    given = case(name)
    if not given.excludes:
        with pytest.raises(SettingError, match="exclude_known=True"):
            recs_of(given, exclude_known=True)
        return
    recs = recs_of(given, n=N, exclude_known=True)
    assert (COUNTS[recs.user_id, recs.item_id] == 0).all()
    assert_best(recs, np.where(COUNTS > 0, np.nan, given.scores), N)
    assert (COUNTS[recs_of(given).user_id, recs_of(given).item_id] > 0).any()


def test_input_is_not_changed(name):
    given = case(name)
    arrays = _arrays(given)
    before = copy.deepcopy(arrays)
    recs_of(given, exclude_known=given.excludes)
    for array, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, old)


def _arrays(given: Case) -> list[np.ndarray]:
    """What of a case can be looked into: matrices and factors."""
    found = [given.scores]
    for part in (given.model, *given.options.values()):
        matrix = part.matrix if isinstance(part, UserItems) else part
        if sparse.issparse(matrix):
            found += [matrix.data, *matrix.nonzero()]
        elif isinstance(part, tuple):
            found += list(part)
        elif isinstance(part, pd.DataFrame):
            found += [part[name].to_numpy() for name in part.columns]
    return found


def test_lists_have_the_frame_type_of_users(name):
    given, users = case(name), [3, 5, 8]
    for frame in (pd.DataFrame({"user_id": users}), pl.DataFrame({"user_id": users}),
                  pl.LazyFrame({"user_id": users})):  # fmt: skip
        recs = tt.recs_from(given.model, frame, N, **given.options)
        expected = type(frame)
        if not given.options:  # a table: like that
            expected = pd.DataFrame if isinstance(given.model, pd.DataFrame) else pa.Table
        assert isinstance(recs, expected)
        assert_same(given, recs_of(given, frame), recs_of(given, users))


def test_users_get_items_of_their_own_colour():
    for name in PERSONAL:
        recs = recs_of(case(name, "checkerboard"), n=3)
        assert recs.user_id.nunique() == len(checkerboard())
        assert ((recs.user_id + recs.item_id) % 2 == 0).all()


def test_lists_can_be_learned_from(name):
    given = case(name)
    recs = tt.recs_from(given.model, n=N, **given.options)
    bias = tt.BiasLearner(k=3, method="ascent").fit(recs, events("random", "numbers"))
    top = read_frame(bias.apply(recs, k=3), "top", "user_id", "item_id", "rank").columns
    assert bias.summary.after >= bias.summary.before > 0
    assert top["rank"].to_pylist()[:3] == [1, 2, 3]


def test_an_unknown_model_is_refused():
    with pytest.raises(DataError, match=r"model is a dict.*implicit.*LensKit"):
        tt.recs_from({"a": 1})
