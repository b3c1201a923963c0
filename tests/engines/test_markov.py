"""Markov counts and scores against plain definitions."""

from __future__ import annotations

import itertools
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from trimtab.engines import Markov, markov
from trimtab.engines.base import Events
from trimtab.engines.markov import count_followers, gather_last
from trimtab.errors import SettingError

START = datetime(2026, 1, 1, tzinfo=UTC)
AS_OF = START + timedelta(days=30)
DAY = 86_400_000_000


def random_log(seed: int, n_users: int = 12, n_items: int = 7, n_events: int = 90) -> pa.Table:
    """Events with few distinct times, so many purchases happen at once."""
    random = np.random.default_rng(seed)
    days = random.integers(0, 8, n_events)
    return pa.table(
        {
            "user_id": random.integers(0, n_users, n_events),
            "item_id": random.integers(0, n_items, n_events),
            "timestamp": [START + timedelta(days=int(day)) for day in days],
        }
    )


def rows_of(log: pa.Table) -> list[tuple[int, int, datetime]]:
    return list(zip(*(log[c].to_pylist() for c in log.column_names), strict=True))


def brute_counts(log: pa.Table) -> tuple[dict, dict]:
    """Users who bought i strictly after j, and users who bought j."""
    rows, after, bought = rows_of(log), defaultdict(set), defaultdict(set)
    for user, j, earlier in rows:
        bought[j].add(user)
        for other, i, later in rows:
            if user == other and later > earlier:
                after[j, i].add(user)
    return {k: len(v) for k, v in after.items()}, {k: len(v) for k, v in bought.items()}


def coded(log: pa.Table, n_users: int = 12, n_items: int = 7) -> Events:
    times = log["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    users = log["user_id"].to_numpy().astype(np.int32)
    items = log["item_id"].to_numpy().astype(np.int32)
    return Events(users, items, times, n_users, n_items, int(AS_OF.timestamp() * 1_000_000))


def test_first_order_counts_equal_brute_force():
    for least, seed in itertools.product((1, 3), range(40)):
        log = random_log(seed)
        after, _ = brute_counts(log)
        found = count_followers(gather_last(coded(log), None), least)
        counts = {
            (j, int(found.columns[e])): int(found.values[e])
            for j in range(7)
            for e in range(found.indptr[j], found.indptr[j + 1])
        }
        assert counts == {pair: count for pair, count in after.items() if count >= least}


def learned(log: pa.Table, **settings: object) -> dict:
    """What each row of a fitted engine says: by item, the value of each follower."""
    engine = Markov(**settings).fit(log, AS_OF)
    model, ids = engine._fitted.model, engine._fitted.items.ids
    rows = model.rows
    return {
        (ids[j], ids[rows.columns[e]]): rows.values[e]
        for j in range(len(ids))
        for e in range(rows.indptr[j], rows.indptr[j + 1])
    }


def test_shares_are_counts_over_buyers():
    for support, seed in itertools.product((1, 2), range(25)):
        log = random_log(seed)
        after, bought = brute_counts(log)
        assert learned(log, min_support=support) == pytest.approx(
            {(j, i): n / bought[j] for (j, i), n in after.items() if n >= support}
        )


def test_decay_weighs_by_the_age_of_the_last_purchase():
    for seed in range(15):
        log = random_log(seed)
        first, last = {}, {}
        for user, item, time in rows_of(log):
            first[user, item] = min(time, first.get((user, item), time))
            last[user, item] = max(time, last.get((user, item), time))
        weight = {key: np.exp(-(AS_OF - time) / timedelta(days=5)) for key, time in last.items()}
        expected = {}
        for j, i in {(j, i) for j in range(7) for i in range(7)}:
            above = sum(
                weight[user, i]
                for user in range(12)
                if (user, j) in first and (user, i) in last and last[user, i] > first[user, j]
            )
            below = sum(weight[user, j] for user in range(12) if (user, j) in weight)
            if above:
                expected[j, i] = above / below
        assert learned(log, min_support=1, decay_days=5) == pytest.approx(expected)


def test_scores_are_means_over_states(monkeypatch):
    monkeypatch.setattr(markov, "_N_STATES", 4)
    for seed in range(10):
        log = random_log(seed)
        rows = learned(log, min_support=1)
        recs = Markov(min_support=1).fit(log, AS_OF).recommend(n=7)
        scores = {(u, i): s for u, i, s in zip(*recs.to_pydict().values(), strict=True)}
        expected = {}
        for user in range(12):
            states = last_items(log, user, 4)
            for item in range(7):
                chance = [rows.get((j, item), 0.0) for j in states]
                if sum(chance) > 0:
                    expected[user, item] = np.mean(chance)
        assert scores == pytest.approx(expected)


def last_items(log: pa.Table, user: int, n: int) -> list[int]:
    """A user's different items, last bought first, ties by id."""
    last: dict = {}
    for other, item, time in rows_of(log):
        if other == user:
            last[item] = max(time, last.get(item, time))
    return sorted(last, key=lambda item: (-last[item].timestamp(), item))[:n]


def test_a_window_limits_transitions_but_not_states():
    log = pa.table(
        {
            "user_id": [1, 1, 2, 2, 3],
            "item_id": [7, 8, 7, 9, 7],
            "timestamp": [START + timedelta(days=d) for d in (1, 2, 20, 21, 3)],
        }
    )
    recent = Markov(min_support=1, window_days=12).fit(log, AS_OF)
    assert recent.recommend([3]).to_pylist() == [{"user_id": 3, "item_id": 9, "score": 1.0}]
    everything = Markov(min_support=1).fit(log, AS_OF).recommend([3])
    assert everything["score"].to_pylist() == pytest.approx([1 / 3, 1 / 3])


def test_wrong_settings_are_refused():
    for value in (0, 1.5, True):
        with pytest.raises(SettingError, match="min_support="):
            Markov(min_support=value)
