"""TIFU-KNN against the paper's formulas, in plain Python over all pairs of users."""

from __future__ import annotations

import itertools
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from trimtab.datasets import generate_log, make_log
from trimtab.engines import TifuKNN, tifu_knn
from trimtab.errors import SettingError
from trimtab.replay import make_plan

START = datetime(2026, 3, 20, 12, tzinfo=UTC)
AS_OF = START + timedelta(days=30)
DAY = timedelta(days=1)
ZONE = "America/New_York"
Rows = list[tuple[int, int, datetime]]


def random_rows(seed: int, n_users: int = 14, n_items: int = 8, n_events: int = 150) -> Rows:
    """Events at any hour of some days, often the same item more than once a day."""
    random = np.random.default_rng(seed)
    drawn = random.integers(0, (n_users, n_items, 20 * 24), (n_events, 3)).tolist()
    return [(user, item, START + timedelta(hours=hours)) for user, item, hours in drawn]


def recommend(rows: Rows, n: int = 8, **settings: object) -> dict:
    users, items, times = zip(*rows, strict=True)
    log = pa.table({"user_id": users, "item_id": items, "timestamp": times})
    recs = TifuKNN(**settings).fit(log, AS_OF).recommend(n=n)
    return {(u, i): s for u, i, s in zip(*recs.to_pydict().values(), strict=True)}


def brute_vectors(rows: Rows, own: TifuKNN) -> dict[int, dict[int, float]]:
    """The vector of each user, from groups of baskets, newest first."""
    baskets: dict = defaultdict(lambda: defaultdict(dict))
    for user, item, time in sorted(rows, key=lambda row: row[2]):
        weight = 1.0 if own.decay_days is None else np.exp((time - AS_OF) / DAY / own.decay_days)
        baskets[user][time.astimezone(ZoneInfo(own.tz)).date()][item] = weight
    vectors: dict = defaultdict(lambda: defaultdict(float))
    for user, by_day in baskets.items():
        newest = [by_day[day] for day in sorted(by_day, reverse=True)]
        groups = np.array_split(np.array(newest, object), min(own.n_groups, len(newest)))
        for a, group in enumerate(groups):
            for b, basket in enumerate(group):
                share = own.group_decay**a * own.basket_decay**b / len(group) / len(groups)
                for item, weight in basket.items():
                    vectors[user][item] += share * weight
    return vectors


def brute_scores(rows: Rows, own: TifuKNN) -> dict:
    """Scores above 0, from the distances between all users, in quanta."""
    vectors, recent = brute_vectors(rows, own), brute_vectors(rows, own)
    if own.window_days is not None:
        since = AS_OF - own.window_days * DAY
        recent = brute_vectors([row for row in rows if row[2] >= since], own)
    quanta = {u: {i: round(x * tifu_knn._QUANTA) for i, x in v.items()} for u, v in vectors.items()}
    scores = {}
    for user, mine in quanta.items():
        distances = [
            (sum((mine.get(i, 0) - theirs.get(i, 0)) ** 2 for i in {*mine, *theirs}), other)
            for other, theirs in quanta.items()
            if other != user
        ]
        near = [other for _, other in sorted(distances)[: own.n_neighbours]]
        for item in range(8):
            theirs = np.mean([recent[other][item] for other in near]) if near else 0.0
            score = own.alpha * vectors[user][item] + (1 - own.alpha) * theirs
            if score > 0:
                scores[user, item] = score
    return scores


def test_scores_equal_brute_force(monkeypatch):
    monkeypatch.setattr(tifu_knn, "_BLOCK", 5)
    for seed, settings in itertools.product(
        range(8),
        (
            {}, {"n_neighbours": 3, "n_groups": 3, "tz": ZONE}, {"n_neighbours": 1, "alpha": 0.2},
            {"n_neighbours": 4, "window_days": 15, "n_groups": 2}, {"alpha": 1}, {"alpha": 0},
            {"n_neighbours": 5, "decay_days": 9, "basket_decay": 0, "group_decay": 1},
        ),
    ):  # fmt: skip
        rows = random_rows(seed)
        expected = brute_scores(rows, TifuKNN(**settings))
        assert recommend(rows, **settings) == pytest.approx(expected, rel=1e-9)


def test_few_users_many_of_them_alike():
    """With ties everywhere, neighbours are the users with the smallest ids."""
    for seed in range(10):
        rows = random_rows(seed, n_users=12, n_items=2, n_events=25)
        own = TifuKNN(n_neighbours=2)
        assert recommend(rows, n_neighbours=2) == pytest.approx(brute_scores(rows, own))
    alike = [(user, user // 4, START) for user in range(5)]  # 0 to 3 bought item 0, and 4 item 1
    found = recommend(alike, n_neighbours=2)
    assert found == pytest.approx({**{(u, 0): 1.0 for u in range(4)}, (4, 1): 0.7, (4, 0): 0.3})
    assert recommend(alike[:1]) == {(0, 0): 0.7}  # without neighbours


def test_a_vector_by_hand():
    # Baskets of item 1 every day but the newest, of item 2 then: groups of 3 and 2 days.
    days = [START + timedelta(days=day) for day in range(5)]
    rows = [(7, 1, day) for day in days[:4]] + [(7, 2, days[4])]
    found = recommend(rows, alpha=1, n_groups=2, basket_decay=0.5, group_decay=0.1)
    one = ((0.5 + 0.25) / 3 + 0.1 * (1 + 0.5) / 2) / 2
    assert found == pytest.approx({(7, 1): one, (7, 2): 1 / 3 / 2})


def test_days_begin_in_the_shops_time_zone():
    """Two purchases before and after midnight in New York are two baskets, in London one."""
    late = datetime(2026, 3, 21, 3, tzinfo=UTC)
    rows = [(1, 5, late), (1, 6, late + timedelta(hours=2))]
    london = recommend(rows, alpha=1, tz="Europe/London")
    assert london == {(1, 5): 1.0, (1, 6): 1.0}
    new_york = recommend(rows, alpha=1, tz=ZONE)
    assert new_york == pytest.approx({(1, 5): 0.35, (1, 6): 0.5})
    log = make_log(generate_log(n_users=20, n_items=20, days=30), tz=ZONE)
    engines = {"tifu-knn": {}, "near": {"kind": "tifu-knn", "n_neighbours": 9}}
    plan = {"dates": ["2026-01-25"], "engines": [*engines], "engine": {"near": engines["near"]}}
    made = make_plan(plan, log).engines
    assert made == {"tifu-knn": TifuKNN(tz=ZONE), "near": TifuKNN(tz=ZONE, n_neighbours=9)}


def test_wrong_settings_are_refused():
    for setting, value in (
        ("n_neighbours", 0), ("n_groups", 1.5), ("alpha", 1.1), ("basket_decay", -0.1),
        ("group_decay", None), ("tz", "Atlantis"),
    ):  # fmt: skip
        with pytest.raises(SettingError, match=f"{setting}="):
            TifuKNN(**{setting: value})
