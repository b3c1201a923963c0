"""Markov counts and scores against plain definitions."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from trimtab.engines import Markov, markov
from trimtab.errors import SettingError

START = datetime(2026, 1, 1, tzinfo=UTC)
AS_OF = START + timedelta(days=30)


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


def brute_pair_counts(log: pa.Table) -> tuple[Counter, Counter]:
    """Users who bought both of a pair, and i strictly after a purchase of each; users with both."""
    rows = rows_of(log)
    after, both = Counter(), Counter()
    for pair in itertools.combinations(sorted({item for _, item, _ in rows}), 2):
        for user in {user for user, _, _ in rows}:
            times = [[t for u, i, t in rows if (u, i) == (user, item)] for item in pair]
            if all(times):
                both[pair] += 1
                since = max(min(own) for own in times)
                after.update({(*pair, i) for u, i, t in rows if u == user and t > since})
    return after, both


def learned(log: pa.Table, **settings: object) -> dict:
    """What each row of a fitted engine says: by state, the value of each item."""
    engine = Markov(**settings).fit(log, AS_OF)
    model, ids = engine._fitted.model, engine._fitted.items.ids
    n_items = len(ids)
    states = [(ids[j],) for j in range(n_items)]
    pairs = () if model.pairs is None else model.pairs
    states += [(ids[pair // n_items], ids[pair % n_items]) for pair in pairs]
    scores = model.rows
    return {
        (*state, ids[scores.columns[e]]): scores.values[e]
        for row, state in enumerate(states)
        for e in range(scores.indptr[row], scores.indptr[row + 1])
    }


def test_second_order_equals_brute_force():
    for support, seed in itertools.product((1, 2), range(25)):
        log = random_log(seed)
        after, both = brute_pair_counts(log)
        rows = learned(log, order=2, min_support=support, pair_support=2 * support)
        triples = {state: value for state, value in rows.items() if len(state) == 3}
        expected = {
            state: count / both[state[:2]]
            for state, count in after.items()
            if count >= support and both[state[:2]] >= 2 * support
        }
        assert triples == pytest.approx(expected)
        first, bought = brute_counts(log)
        pairs = {state: value for state, value in rows.items() if len(state) == 2}
        assert pairs == pytest.approx(
            {(j, i): n / bought[j] for (j, i), n in first.items() if n >= support}
        )


def test_the_most_supported_pairs_are_kept():
    for seed in range(10):
        log = random_log(seed)
        _, both = brute_pair_counts(log)
        best = sorted(both, key=lambda pair: (-both[pair], pair))[:4]
        engine = Markov(order=2, min_support=1, pair_support=1, max_pairs=4).fit(log, AS_OF)
        assert [divmod(int(key), 7) for key in engine._fitted.model.pairs] == sorted(best)


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
    for order, seed in itertools.product((1, 2), range(10)):
        log = random_log(seed)
        settings = {"order": order, "min_support": 1, "pair_support": 3}
        rows = learned(log, **settings)
        recs = Markov(**settings).fit(log, AS_OF).recommend(n=7)
        scores = {(u, i): s for u, i, s in zip(*recs.to_pydict().values(), strict=True)}
        _, both = brute_pair_counts(log)
        expected = {}
        for user in range(12):
            states = last_items(log, user, 4)
            for item in range(7):
                chance = [rows.get((j, item), 0.0) for j in states]
                if order == 2 and len(states) > 1:
                    chance = [
                        rows.get((*sorted(pair), item), 0.0)
                        if both.get(tuple(sorted(pair)), 0) >= 3
                        else (rows.get((pair[0], item), 0.0) + rows.get((pair[1], item), 0.0)) / 2
                        for pair in itertools.combinations(states, 2)
                    ]
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
    for setting, value in (
        ("order", 0), ("order", 3), ("min_support", 1.5), ("max_pairs", 0), ("pair_support", True),
    ):  # fmt: skip
        with pytest.raises(SettingError, match=f"{setting}="):
            Markov(**{setting: value})
