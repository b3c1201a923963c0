"""Trend features: counts against plain groupings, formulas against figures computed by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from trimtab.learn.hierarchy.features import count_groups
from trimtab.learn.history import count_history

from trimtab.arrays import Lists, Sets
from trimtab.learn.features import WindowFeatures
from trimtab.learn.sales import History
from trimtab.tables.times import DAY

WINDOW_FROM = 400 * DAY


def events(seed: int, n: int = 3000) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "item": random.integers(0, 20, n).astype(np.int32),
            "user": random.integers(0, 15, n).astype(np.int32),
            "time": random.integers(WINDOW_FROM - 90 * DAY, WINDOW_FROM, n),
        }
    )
    return frame.sort_values("time", ignore_index=True)


def counted(frame: pd.DataFrame, before: int | None = WINDOW_FROM, n_items: int = 21) -> History:
    columns = (frame[name].to_numpy() for name in ("item", "user", "time"))
    return count_history(*columns, before, n_items)


def test_history_counts_equal_a_plain_grouping():
    for seed in range(5):
        frame = events(seed)
        found = counted(frame)
        days = frame.assign(day=(WINDOW_FROM - 1 - frame["time"]) // DAY)
        visits = days.drop_duplicates(["item", "user", "day"])
        for part, span in ((found.long, np.inf), (found.month, 30), (found.week, 7)):
            plain = (
                visits[visits["day"] < span].groupby("item").size().reindex(range(21), fill_value=0)
            )
            assert part.tolist() == plain.tolist()
        buyers = days.groupby("item")["user"].nunique().reindex(range(21), fill_value=0)
        assert found.buyers.tolist() == buyers.tolist()
        since = days.groupby("item")["day"].min().reindex(range(21), fill_value=400)
        assert found.since.tolist() == since.tolist()


def test_events_in_any_order_count_and_those_in_the_window_do_not():
    frame = events(7)
    late = pd.DataFrame({"item": [3, 4], "user": [1, 2], "time": [WINDOW_FROM, WINDOW_FROM + 9]})
    mixed = pd.concat([frame, late.astype(frame.dtypes)]).sample(frac=1, random_state=1)
    for one, other in zip(
        vars(counted(frame)).values(), vars(counted(mixed)).values(), strict=True
    ):
        assert one.tobytes() == other.tobytes()


def test_counts_without_users_or_times_are_missing():
    frame = events(3)
    items, users, times = (frame[name].to_numpy() for name in ("item", "user", "time"))
    plain = np.bincount(items, minlength=21)
    alone = count_history(items, None, None, None, 21)
    assert (alone.buyers, alone.month, alone.since) == (None, None, None)
    assert alone.long.tolist() == plain.tolist()
    with_users = count_history(items, users, None, None, 21)
    assert with_users.long.tolist() == plain.tolist()
    assert with_users.buyers.tolist() == counted(frame).buyers.tolist()
    timed = count_history(items, None, times, WINDOW_FROM, 21)
    assert timed.long.tolist() == plain.tolist()
    assert timed.buyers is None
    assert timed.week.sum() == (times >= WINDOW_FROM - 7 * DAY).sum()


def test_groups_are_counted_separately():
    lists = Lists(np.array([0, 2, 4, 6]), np.array([0, 1, 1, 2, 0, 2], np.int32), np.zeros(6))
    bought = Sets(np.array([0, 1, 2, 4]), np.array([1, 3, 0, 3], np.int32))
    sold, listed = count_groups(lists, bought, np.array([0, 1, -1]), 2, 4)
    assert listed.tolist() == [[1, 1, 0, 0], [0, 1, 1, 0]]
    assert sold.tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]


def test_features_by_hand():
    bought, listed = np.array([6.0, 2.0, 0.0, 2.0]), np.array([40.0, 40.0, 20.0, 0.0])
    history = History(
        long=np.array([50.0, 30.0, 20.0, 0.0]),
        buyers=np.array([40.0, 30.0, 10.0, 0.0]),
        month=np.array([9.0, 0.0, 1.0, 0.0]),
        week=np.array([3.0, 0.0, 0.0, 0.0]),
        since=np.array([0.0, 40.0, 8.0, 400.0]),
    )
    made = WindowFeatures(history)
    table = dict(zip(made.names, made.build(bought, listed).T, strict=True))
    rate = 8 / 100  # purchases per listed item
    expected = {
        "bought_per_listed": [
            (6 + 10 * rate) / 50 / rate, (2 + 10 * rate) / 50 / rate, 10 * rate / 30 / rate,
            (2 + 10 * rate) / 10 / rate,
        ],
        "recent_sales": [7, 3, 1, 3],
        "rise": [(6 + 10.5) / (5 + 10.5), (2 + 6.5) / (3 + 6.5), 4.5 / 6.5, 2.5 / 0.5],
        "long_run_sales": [51, 31, 21, 1],
        "rise_of_month": [(9 + 10.5) / (5 + 10.5), 6.5 / 9.5, (1 + 4.5) / (2 + 4.5), 1.0],
        "rise_of_week": [3.5 / (2.7 + 0.5), 1.0, 0.5 / (0.3 + 0.5), 1.0],
        "days_unsold": [1, 11, 3, 101],
        "repeat_rate": [11 / 55 / 0.2, 1 / 35 / 0.2, 11 / 25 / 0.2, 1.0],
    }  # fmt: skip
    for name, values in expected.items():
        assert np.exp(table[name]) == pytest.approx(values), name
    assert table["share_difference"] == pytest.approx([100.0, -100.0, -200.0, 200.0])
    some = made.build(bought, listed, np.array([2, 0]))
    assert some.tolist() == made.build(bought, listed)[[2, 0]].tolist()
    assert WindowFeatures(None).build(bought, listed).shape == (4, 2)
