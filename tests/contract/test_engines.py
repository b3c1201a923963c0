"""Rules that every engine follows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from trimtab.datasets import generate_items, generate_log
from trimtab.engines import Category, Engine, Factorization, Markov, Popularity, Repeat
from trimtab.errors import DataError, SettingError, TrimtabError

N_ITEMS = 60
LOG = generate_log(n_users=300, n_items=N_ITEMS, days=60, purchases_per_user=12, seed=5)
AS_OF = datetime(2026, 3, 6, tzinfo=UTC)  # the log begins on 5 January and has 60 days
ITEMS = pa.table(
    {
        "item_id": np.arange(N_ITEMS),
        "category": [f"c{c}" for c in generate_items(N_ITEMS, 0.5, None, 5).category],
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
    "factorization, binary": lambda: Factorization(n_factors=8, weighting="binary"),
    "factorization, recency, last weeks": lambda: Factorization(
        n_factors=8, weighting="recency", window_days=21
    ),
    "category": lambda: Category(items=ITEMS),
    "category, decayed": lambda: Category(items=ITEMS, decay_days=20, window_days=None),
    "popularity": Popularity,
    "popularity, last week": lambda: Popularity(window_days=7),
    "repeat": Repeat,
    "repeat, decayed": lambda: Repeat(decay_days=20),
}
GREETS_STRANGERS = ("popularity", "popularity, last week")


@pytest.fixture(params=ENGINES)
def name(request) -> str:
    return str(request.param)


@pytest.fixture
def engine(name: str) -> Engine:
    return ENGINES[name]().fit(LOG, AS_OF)


def test_lists_are_sorted_and_without_repeats(engine):
    recs = engine.recommend(n=20).to_pandas()
    assert list(recs.columns) == ["user_id", "item_id", "score"]
    assert (recs.score > 0).all()
    assert np.isfinite(recs.score).all()
    assert not recs.duplicated(["user_id", "item_id"]).any()
    assert recs.groupby("user_id").size().max() <= 20
    ordered = recs.sort_values(["user_id", "score", "item_id"], ascending=[True, False, True])
    pd.testing.assert_frame_equal(recs, ordered.reset_index(drop=True))


def test_a_longer_list_begins_with_the_shorter_one(engine):
    short = engine.recommend(n=5).to_pandas()
    long = engine.recommend(n=N_ITEMS).to_pandas().groupby("user_id").head(5)
    pd.testing.assert_frame_equal(short, long.reset_index(drop=True))


def test_a_second_fit_equals_a_first_fit(name, engine, bytes_of):
    earlier = AS_OF - timedelta(days=20)
    stamps = LOG["timestamp"].to_numpy()
    before = LOG.filter(pa.array(stamps < np.datetime64(earlier.replace(tzinfo=None))))
    again = engine.fit(before, earlier).recommend()
    fresh = ENGINES[name]().fit(before, earlier).recommend()
    assert bytes_of(again) == bytes_of(fresh)
    assert bytes_of(again) != bytes_of(ENGINES[name]().fit(LOG, AS_OF).recommend())


def test_one_user_alone_gets_the_same_list(engine, bytes_of):
    together = engine.recommend(n=10).to_pandas()
    for user in together.user_id.unique()[:7]:
        alone = engine.recommend([int(user)], n=10).to_pandas()
        expected = together[together.user_id == user].reset_index(drop=True)
        pd.testing.assert_frame_equal(alone, expected, check_exact=True)


def test_threads_change_no_bit(name, monkeypatch, bytes_of):
    lists = []
    for threads in ("1", "3"):
        monkeypatch.setenv("TRIMTAB_THREADS", threads)
        many = np.tile(np.arange(300), 20)  # asked for more than once
        lists.append(bytes_of(ENGINES[name]().fit(LOG, AS_OF).recommend(many)))
    assert lists[0] == lists[1]


def test_the_order_of_rows_changes_no_bit(name, engine, bytes_of):
    shuffled = LOG.take(np.random.default_rng(1).permutation(len(LOG)))
    assert bytes_of(ENGINES[name]().fit(shuffled, AS_OF).recommend()) == bytes_of(
        engine.recommend()
    )


def test_unknown_users_get_nothing_or_popular_items(name, engine):
    recs = engine.recommend([10**6, 3, 10**6 + 1], n=4).to_pandas()
    users = set(recs.user_id)
    assert 3 in users
    assert users == ({3, 10**6, 10**6 + 1} if name in GREETS_STRANGERS else {3})


@pytest.mark.parametrize(
    "users",
    [[3, 5], np.array([5, 3, 3]), pd.Series([3, 5]), pl.Series([3, 5]), (u for u in (3, 5)),
     pa.array([3, 5]), pd.DataFrame({"user_id": [3, 5]}), pl.LazyFrame({"user_id": [3, 5]})],
    ids=lambda users: type(users).__name__,
)  # fmt: skip
def test_users_in_any_form(users):
    recs = Popularity().fit(LOG, AS_OF).recommend(users, n=2)
    assert recs["user_id"].to_pylist() == [3, 3, 5, 5]


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ([2**70], "users is a list"),
        (3, "users is a int"),
        (["3"], "integers in events.*strings in users"),
        (pd.Series([1, None], dtype="Int64"), "'user_id' of users"),
    ],
)
def test_invalid_users_are_refused(users, message):
    with pytest.raises(DataError, match=message):
        Popularity().fit(LOG, AS_OF).recommend(users)


def test_no_users_no_rows(engine):
    assert len(engine.recommend([])) == 0


def test_input_is_not_changed(name):
    events = LOG.to_pandas()
    before = events.copy(deep=True)
    ENGINES[name]().fit(events, AS_OF)
    pd.testing.assert_frame_equal(events, before)


def test_lists_have_the_frame_type_of_the_events(name, engine):
    for kind, convert in (
        (pd.DataFrame, LOG.to_pandas),
        (pl.DataFrame, lambda: pl.from_arrow(LOG)),
    ):
        recs = ENGINES[name]().fit(convert(), AS_OF).recommend(n=3)
        assert isinstance(recs, kind)
        assert len(recs) == len(engine.recommend(n=3))


def test_text_ids_give_the_same_lists(name, engine):
    as_text = LOG.set_column(
        0, "user_id", pa.array([f"u{u:06}" for u in LOG["user_id"].to_pylist()])
    )
    lists = ENGINES[name]().fit(as_text, AS_OF).recommend(["u000003"], n=5)
    assert lists["item_id"].to_pylist() == engine.recommend([3], n=5)["item_id"].to_pylist()


def test_future_events_are_refused(name):
    with pytest.raises(DataError, match=r"events has \d+ rows.*2026-03-01 00:00"):
        ENGINES[name]().fit(LOG, datetime(2026, 3, 1, tzinfo=UTC))


def test_an_event_at_the_instant_itself_is_the_future(name):
    at = LOG["timestamp"][-1].as_py()
    with pytest.raises(DataError, match="events has 1 rows"):
        ENGINES[name]().fit(LOG, at)
    ENGINES[name]().fit(LOG, at + timedelta(microseconds=1))


def test_times_without_a_zone_are_refused(name):
    naive = LOG.set_column(2, "timestamp", LOG["timestamp"].cast(pa.timestamp("us")))
    with pytest.raises(DataError, match="'timestamp' of events"):
        ENGINES[name]().fit(naive, AS_OF)
    with pytest.raises(SettingError, match="as_of="):
        ENGINES[name]().fit(LOG, datetime(2026, 3, 6))


def test_an_engine_must_be_fitted_first(name):
    with pytest.raises(TrimtabError, match="fit"):
        ENGINES[name]().recommend()


def test_a_wrong_length_is_refused(engine):
    for n in (0, -1, 2.5, True):
        with pytest.raises(SettingError, match="n="):
            engine.recommend(n=n)


@pytest.mark.parametrize("kind", [Markov, Factorization, Popularity, Repeat])
def test_wrong_days_are_refused(kind):
    for setting in ("window_days", "decay_days"):
        for value in (0, -3, float("nan"), "week"):
            with pytest.raises(SettingError, match=f"{setting}="):
                kind(**{setting: value})


def test_an_empty_window_is_refused():
    later = AS_OF + timedelta(days=30)
    with pytest.raises(DataError, match="window_days=7"):
        Popularity(window_days=7).fit(LOG, later)


# What is likely is plain to see on a checkerboard: even users buy even items, odd ones odd items.

BOARD = [(user, item) for user in range(20) for item in range(10) if (user + item) % 2 == 0]
START = datetime(2026, 1, 1, tzinfo=UTC)
CHECKERBOARD = pa.table(
    {
        "user_id": [user for user, _ in BOARD],
        "item_id": [item for _, item in BOARD],
        "timestamp": [START + timedelta(hours=(7 * u + 3 * i) % 24 + i) for u, i in BOARD],
    }
)
PARITY = pa.table({"item_id": np.arange(10), "category": ["even", "odd"] * 5})
BOARD_ENGINES = {
    "markov": lambda: Markov(min_support=1),
    "markov, second order": lambda: Markov(order=2, min_support=1, pair_support=2),
    "factorization": lambda: Factorization(n_factors=2),
    "category": lambda: Category(items=PARITY),
    "repeat": Repeat,
}


@pytest.mark.parametrize("kind", BOARD_ENGINES)
def test_users_get_items_of_their_own_colour(kind):
    engine = BOARD_ENGINES[kind]().fit(CHECKERBOARD, START + timedelta(days=3))
    recs = engine.recommend(n=3)
    users, items = recs["user_id"].to_numpy(), recs["item_id"].to_numpy()
    assert len(np.unique(users)) == 20
    assert ((users + items) % 2 == 0).all()
