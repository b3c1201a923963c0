"""Rules that every engine follows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from trimtab.datasets import generate_log
from trimtab.datasets.generated_log import generate_items
from trimtab.engines import Category, Engine, Factorization, Markov, Popularity, Repeat, TifuKNN
from trimtab.errors import DataError, SettingError, TrimtabError

N_ITEMS = 60
LOG = generate_log(n_users=300, n_items=N_ITEMS, days=60, purchases_per_user=12, seed=5)
AS_OF = datetime(2026, 3, 6, tzinfo=UTC)  # the log begins on 5 January and has 60 days
ITEMS = pa.table(
    {
        "item_id": np.arange(N_ITEMS),
        "category": [f"c{c}" for c in generate_items(N_ITEMS, 0.5, 5).category],
    }
)
ENGINES: dict[str, Callable[[], Engine]] = {
    "markov": lambda: Markov(min_support=1),
    "markov, second order": lambda: Markov(order=2, min_support=1, pair_support=3),
    "markov, last weeks": lambda: Markov(min_support=1, window_days=21),
    "markov, decayed": lambda: Markov(min_support=1, decay_days=20),
    "markov, second order, decayed": lambda: Markov(
        order=2, min_support=1, pair_support=3, decay_days=20
    ),
    "factorization": lambda: Factorization(n_factors=8),
    "factorization, decayed, last weeks": lambda: Factorization(
        n_factors=8, decay_days=60, window_days=21
    ),
    "category": lambda: Category(items=ITEMS),
    "category, decayed": lambda: Category(items=ITEMS, decay_days=20, window_days=None),
    "popularity": Popularity,
    "popularity, last week": lambda: Popularity(window_days=7),
    "repeat": Repeat,
    "repeat, decayed": lambda: Repeat(decay_days=20),
    "tifu-knn": lambda: TifuKNN(n_neighbours=20),
    "tifu-knn, decayed, last weeks": lambda: TifuKNN(
        n_neighbours=20, decay_days=60, window_days=21
    ),
}
GREETS_STRANGERS = ("popularity", "popularity, last week")


@pytest.fixture(params=ENGINES)
def name(request) -> str:
    return str(request.param)


def fit(name: str, events=LOG, as_of: datetime = AS_OF) -> Engine:
    return ENGINES[name]().fit(events, as_of)


@functools.cache
def fitted(name: str) -> Engine:
    return fit(name)


def test_lists_are_sorted_without_repeats_and_longer_ones_begin_with_shorter_ones(name):
    recs = fitted(name).recommend(n=20).to_pandas()
    assert list(recs.columns) == ["user_id", "item_id", "score"]
    assert (recs.score > 0).all()
    assert np.isfinite(recs.score).all()
    assert not recs.duplicated(["user_id", "item_id"]).any()
    assert recs.groupby("user_id").size().max() <= 20
    ordered = recs.sort_values(["user_id", "score", "item_id"], ascending=[True, False, True])
    pd.testing.assert_frame_equal(recs, ordered.reset_index(drop=True))
    long = fitted(name).recommend(n=N_ITEMS).to_pandas().groupby("user_id").head(20)
    pd.testing.assert_frame_equal(recs, long.reset_index(drop=True))


def test_a_second_fit_equals_a_first_fit(name, bytes_of):
    earlier = AS_OF - timedelta(days=20)
    stamps = LOG["timestamp"].to_numpy()
    before = LOG.filter(pa.array(stamps < np.datetime64(earlier.replace(tzinfo=None))))
    again = fit(name).fit(before, earlier).recommend()
    assert bytes_of(again) == bytes_of(fit(name, before, earlier).recommend())
    assert bytes_of(again) != bytes_of(fitted(name).recommend())


def test_threads_and_the_order_of_rows_change_no_bit(name, monkeypatch, bytes_of):
    many = np.tile(np.arange(300), 20)  # asked for more than once
    shuffled = LOG.take(np.random.default_rng(1).permutation(len(LOG)))
    lists = []
    for threads, log in (("1", LOG), ("3", LOG), ("3", shuffled)):
        monkeypatch.setenv("TRIMTAB_THREADS", threads)
        lists.append(bytes_of(fit(name, log).recommend(many)))
    assert lists[0] == lists[1] == lists[2]


def test_one_user_alone_gets_the_same_list_and_a_stranger_nothing_or_popular_items(name):
    engine = fitted(name)
    together = engine.recommend(n=10).to_pandas()
    for user in together.user_id.unique()[:7]:
        alone = engine.recommend([int(user)], n=10).to_pandas()
        expected = together[together.user_id == user].reset_index(drop=True)
        pd.testing.assert_frame_equal(alone, expected, check_exact=True)
    users = set(engine.recommend([10**6, 3, 10**6 + 1], n=4)["user_id"].to_pylist())
    assert users == ({3, 10**6, 10**6 + 1} if name in GREETS_STRANGERS else {3})
    assert len(engine.recommend([])) == 0


def test_users_in_any_form():
    popular = fitted("popularity")
    for users in (
        [3, 5], np.array([5, 3, 3]), pd.Series([3, 5]), pl.Series([3, 5]), (u for u in (3, 5)),
        pa.array([3, 5]), pd.DataFrame({"user_id": [3, 5]}), pl.LazyFrame({"user_id": [3, 5]}),
    ):  # fmt: skip
        assert popular.recommend(users, n=2)["user_id"].to_pylist() == [3, 3, 5, 5]
    for users, message in (
        ([2**70], "users is a list"),
        (3, "users is a int"),
        (["3"], "integers in events.*strings in users"),
        (pd.Series([1, None], dtype="Int64"), "'user_id' of users"),
    ):
        with pytest.raises(DataError, match=message):
            popular.recommend(users)


def test_lists_have_the_frame_type_of_the_events_which_are_not_changed(name):
    for kind, events in ((pd.DataFrame, LOG.to_pandas()), (pl.DataFrame, pl.from_arrow(LOG))):
        recs = fit(name, events).recommend(n=3)
        assert isinstance(recs, kind)
        assert len(recs) == len(fitted(name).recommend(n=3))
        assert pl.DataFrame(events).equals(pl.from_arrow(LOG))  # unchanged


def test_text_ids_give_the_same_lists(name):
    texts = [f"u{user:06}" for user in LOG["user_id"].to_pylist()]
    as_text = LOG.set_column(0, "user_id", pa.array(texts))
    lists = fit(name, as_text).recommend(["u000003"], n=5)
    assert lists["item_id"].to_pylist() == fitted(name).recommend([3], n=5)["item_id"].to_pylist()


def test_future_events_and_times_without_a_zone_are_refused(name):
    with pytest.raises(DataError, match=r"events has \d+ rows.*2026-03-01 00:00"):
        fit(name, as_of=datetime(2026, 3, 1, tzinfo=UTC))
    at = LOG["timestamp"][-1].as_py()
    with pytest.raises(DataError, match="events has 1 rows"):  # at the instant itself
        fit(name, as_of=at)
    fit(name, as_of=at + timedelta(microseconds=1))
    naive = LOG.set_column(2, "timestamp", LOG["timestamp"].cast(pa.timestamp("us")))
    with pytest.raises(DataError, match="'timestamp' of events"):
        fit(name, naive)
    with pytest.raises(SettingError, match="as_of="):
        fit(name, as_of=datetime(2026, 3, 6))


def test_an_engine_must_be_fitted_first_and_lengths_be_whole(name):
    with pytest.raises(TrimtabError, match="fit"):
        ENGINES[name]().recommend()
    for n in (0, -1, 2.5, True):
        with pytest.raises(SettingError, match="n="):
            fitted(name).recommend(n=n)


def test_wrong_days_and_empty_windows_are_refused():
    for kind in (Markov, Factorization, Popularity, Repeat, TifuKNN):
        for setting in ("window_days", "decay_days"):
            for value in (0, -3, float("nan"), "week"):
                with pytest.raises(SettingError, match=f"{setting}="):
                    kind(**{setting: value})
    with pytest.raises(DataError, match="window_days=7"):
        fit("popularity, last week", as_of=AS_OF + timedelta(days=30))


def test_users_get_items_of_their_own_colour():
    """What is likely is plain to see on a checkerboard: even users buy even items, odd ones odd."""
    board = [(user, item) for user in range(20) for item in range(10) if (user + item) % 2 == 0]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    events = {
        "user_id": [user for user, _ in board],
        "item_id": [item for _, item in board],
        "timestamp": [start + timedelta(hours=(7 * u + 3 * i) % 24 + i) for u, i in board],
    }
    parity = pa.table({"item_id": np.arange(10), "category": ["even", "odd"] * 5})
    for engine in (
        Markov(min_support=1), Markov(order=2, min_support=1, pair_support=2),
        Factorization(n_factors=2), Category(items=parity), Repeat(), TifuKNN(n_neighbours=3),
    ):  # fmt: skip
        recs = engine.fit(pa.table(events), start + timedelta(days=3)).recommend(n=3)
        users, items = recs["user_id"].to_numpy(), recs["item_id"].to_numpy()
        assert len(np.unique(users)) == 20
        assert ((users + items) % 2 == 0).all()
