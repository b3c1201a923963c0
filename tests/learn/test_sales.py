"""Sales by item and tick: against plain groupings, for any parts of the users and any grid."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from counted_tables import count, history_of
from trimtab.learn.sales import (
    NEVER,
    NO_SALES,
    Events,
    Grid,
    History,
    Sales,
    count_sales,
    history_before,
)
from trimtab.metrics.per_user import in_quanta
from trimtab.tables.times import DAY

WINDOW_FROM = 400 * DAY
N_ITEMS = 21  # the last one is never sold
HORIZONS = {"long": np.inf, "27_windows": 135, "9_windows": 45, "3_windows": 15, "window": 5}


def events(seed: int, n: int = 3000) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "item": random.integers(0, N_ITEMS - 1, n).astype(np.int32),
            "user": random.integers(0, 15, n).astype(np.int32),
            "time": random.integers(WINDOW_FROM - 120 * DAY, WINDOW_FROM, n),
        }
    )
    return frame.sort_values("time", ignore_index=True)


def counted(frame: pd.DataFrame, before: int = WINDOW_FROM, weights=None) -> History:
    columns = (frame[name].to_numpy() for name in ("item", "user", "time"))
    return history_of(*columns, before, N_ITEMS, 5, weights)


def by_item(values: pd.Series, fill: float = 0) -> list[float]:
    return values.reindex(range(N_ITEMS), fill_value=fill).tolist()


def columns_of(values: History | Sales) -> list[object]:
    own = values.values() if isinstance(values, dict) else values
    return [(v.dtype, v.tolist()) if isinstance(v, np.ndarray) else v for v in own]


# Against plain groupings --------------------------------------------------------------------------


def test_history_equals_a_plain_grouping():
    for seed in range(5):
        frame = events(seed)
        found = counted(frame)
        days = frame.assign(day=(WINDOW_FROM - 1 - frame["time"]) // DAY)
        visits = days.drop_duplicates(["item", "user", "day"])
        for name, span in HORIZONS.items():
            plain = visits[visits["day"] < span].groupby("item").size()
            assert found[name].tolist() == by_item(plain), name
        buyers = by_item(days.groupby("item")["user"].nunique())
        assert found["buyers"].tolist() == buyers
        assert found["again"].tolist() == (found["long"] - np.array(buyers)).tolist()
        assert found["since"].tolist() == by_item(days.groupby("item")["day"].min() / 5, NEVER)
        assert found["age"].tolist() == by_item(days.groupby("item")["day"].max() / 5)


def test_events_in_any_order_count_and_those_in_the_window_do_not():
    frame = events(7)
    late = pd.DataFrame({"item": [3, 4], "user": [1, 2], "time": [WINDOW_FROM, WINDOW_FROM + 9]})
    mixed = pd.concat([frame, late.astype(frame.dtypes)]).sample(frac=1, random_state=1)
    assert columns_of(counted(frame)) == columns_of(counted(mixed))


def test_counts_without_users_or_times_are_missing():
    frame = events(3)
    items, users, times = (frame[name].to_numpy() for name in ("item", "user", "time"))
    plain = np.bincount(items, minlength=N_ITEMS)
    alone = history_of(items, None, None, None, N_ITEMS)
    assert list(alone) == ["long"]
    assert alone["long"].tolist() == plain.tolist()
    with_users = history_of(items, users, None, None, N_ITEMS)
    assert with_users["long"].tolist() == plain.tolist()
    assert with_users["buyers"].tolist() == counted(frame)["buyers"].tolist()
    timed = history_of(items, None, times, WINDOW_FROM, N_ITEMS)
    assert timed["long"].tolist() == plain.tolist()
    assert "buyers" not in timed
    assert timed["3_windows"].sum() == (times >= WINDOW_FROM - 9 * DAY).sum()


def test_sales_are_sums_of_the_heaviest_event_of_a_user_and_day():
    for seed in range(5):
        frame = events(seed, 400)
        weights = in_quanta(np.random.default_rng(seed).choice([0.1, 1.0, 2.5], 400))
        found = counted(frame, weights=weights)
        days = frame.assign(day=(WINDOW_FROM - 1 - frame["time"]) // DAY, weight=weights)
        visits = days.groupby(["item", "user", "day"])["weight"].max().reset_index()
        for name, span in HORIZONS.items():
            plain = visits[visits["day"] < span].groupby("item")["weight"].sum()
            assert found[name].tolist() == by_item(plain), name
        first = visits.sort_values("day").drop_duplicates(["item", "user"], keep="last")
        assert found["buyers"].tolist() == by_item(first.groupby("item").size())
        repeated = found["long"] - by_item(first.groupby("item")["weight"].sum())
        assert found["again"].tolist() == repeated.tolist()
        assert columns_of(counted(frame)) == columns_of(counted(frame, weights=np.ones(400)))


# Parts of the users -------------------------------------------------------------------------------


def sales_of(frame: pd.DataFrame, grid: Grid | None, weighted: bool) -> Sales:
    """Users of a part have codes of their own, as in a fit."""
    users = np.unique(frame["user"], return_inverse=True)[1].astype(np.int32)
    weights = frame["weight"].to_numpy() if weighted else None
    times = frame["time"].to_numpy()
    own = Events(frame["item"].to_numpy(), users, times, weights)
    return count_sales(own, None if grid is None else grid.ticks(times), N_ITEMS)


def test_sales_by_hand():
    """Item 0: user 0 twice on day 1, again on day 3; user 1 on day 3. Item 1: user 1 on day -1."""
    items, users, ticks = (
        np.array(own, np.int32) for own in ([0, 1, 0, 0, 0], [0, 1, 0, 1, 0], [3, -1, 1, 3, 1])
    )
    weights = np.array([4.0, 1.0, 0.5, 1.0, 2.0])
    found = count_sales(Events(items, users, None, weights), ticks, 3)
    assert [own.tolist() for own in found[:5]] == [
        [0, 0, 1], [1, 3, -1], [2.0, 5.0, 1.0], [1, 1, 1], [2.0, 1.0, 1.0]
    ]  # fmt: skip
    assert found.n_users == 2
    before = history_before(found, 3, 3, window=2)
    assert before["long"].tolist() == [2.0, 1.0, 0.0]
    assert before["window"].tolist() == [2.0, 0.0, 0.0]
    assert before["since"].tolist() == [0.5, 1.5, NEVER]
    assert history_before(found, 4, 3, window=2)["again"].tolist() == [4.0, 0.0, 0.0]


def test_nothing_added_to_nothing():
    none = NO_SALES + NO_SALES
    assert columns_of(none) == columns_of(NO_SALES)
    assert history_before(none, 5, 3, window=1)["long"].tolist() == [0.0] * 3


def test_time_is_counted_in_windows():
    """The same log 288 times as fast: windows of 12 days become windows of an hour."""
    for seed in range(3):
        frame = events(seed, 900)
        users, items, times = (frame[own].to_numpy() for own in ("user", "item", "time"))
        slow, fast = Grid(0), Grid.of(DAY // 24)
        assert Grid.of(DAY) is None
        sold = Events(items, users)
        by_day = count_sales(sold, slow.ticks(times), N_ITEMS)
        by_minute = count_sales(sold, fast.ticks(times // 288), N_ITEMS)
        counted = [history_before(by_day, 400, N_ITEMS, 12)]
        counted.append(history_before(by_minute, 400, N_ITEMS, 12, short=True))
        ago = 399 - times // DAY
        for name, ticks in (("third", 4), ("twelfth", 1)):
            chosen = frame[ago < ticks].assign(day=ago[ago < ticks])
            visits = chosen.drop_duplicates(["item", "user", "day"]).groupby("item").size()
            assert counted[1].pop(name).tolist() == by_item(visits)
        assert columns_of(counted[0]) == columns_of(counted[1])


def test_ticks_before_1970_and_of_an_odd_origin():
    for origin in (0, 1, DAY - 1, 7 * 3_600_000_000 + 123):
        grid = Grid(origin)
        times = np.array([-3 * DAY, -1, 0, origin - 1, origin, origin + DAY - 1, 5 * DAY])
        ticks = [int(np.floor((time - origin) / DAY)) for time in times.tolist()]
        assert grid.ticks(times).tolist() == ticks == [grid.tick(int(time)) for time in times]
        starts = [grid.start(tick) for tick in ticks]
        assert all(0 <= t - start < DAY for t, start in zip(times.tolist(), starts, strict=True))
    for seed in range(3):  # a history on such a grid, before an instant on it
        frame, origin = events(seed, 600), 5 * 3_600_000_000 + 7
        grid = Grid(origin)
        before = WINDOW_FROM - 10 * DAY + origin
        found = history_before(sales_of(frame, grid, False), grid.tick(before), N_ITEMS, 5)
        assert columns_of(found) == columns_of(counted(frame, before))


# The grid through all windows ---------------------------------------------------------------------


def latest_origin(starts: list[int]) -> int:
    """By trying all: the origin that lies closest before the starts, over all of them."""
    return min(starts, key=lambda origin: max((start - origin) % DAY for start in starts)) % DAY


def test_no_purchase_of_a_window_counts_as_before_it():
    random, minute = np.random.default_rng(0), 60_000_000
    for case in range(200):
        n = int(random.integers(1, 7))
        midnight = int(random.integers(0, 1440)) * minute  # of the shop, around the clock
        spread = (30 * minute, 90 * minute)[case % 2]
        starts = [
            (20_000 + 3 * window) * DAY + midnight + int(random.integers(0, spread))
            for window in range(n)
        ]
        grid = Grid.through(starts)
        assert grid.origin == latest_origin(starts)
        for start in starts:
            begin = grid.start(grid.tick(start))
            assert begin <= start < begin + spread  # and no more than that is lost of its past


def test_histories_hold_no_purchase_of_their_window_and_all_of_earlier_days():
    """Windows begin some minutes apart, one of them after a clock change; brute force."""
    random, minute = np.random.default_rng(4), 60_000_000
    for shift in (0, 60 * minute):
        midnights = np.array([100, 103, 106]) * DAY + 5 * 60 * minute - np.array([0, 0, shift])
        lists, rows = [], []
        for label, midnight in zip("abc", midnights, strict=True):
            times = midnight + random.integers(minute, 3 * DAY - 60 * minute, 40)
            users, items = random.integers(0, 8, 40), random.integers(0, 6, 40)
            own = {"user_id": users, "item_id": items, "time": times, "window": label}
            rows.append(pd.DataFrame(own))
            lists.append(pd.DataFrame([(u, i, 1.0, label) for u in range(8) for i in range(6)]))
        recent = pd.concat(rows)
        past = pd.DataFrame(
            {
                "user_id": random.integers(0, 8, 300),
                "item_id": random.integers(0, 6, 300),
                "time": random.integers(60 * DAY, midnights[-1], 300),
            }
        )
        recs = pd.concat(lists).set_axis(["user_id", "item_id", "score", "window"], axis=1)
        found = count(recs, dated(recent), history=dated(past)).histories
        log = pd.concat([past, recent.drop(columns="window")])
        for label, start, history in zip("abc", found.starts, found.before, strict=True):
            first = recent[recent["window"] == label]["time"].min()
            assert start <= first < start + (minute * 120) + DAY // 4
            early = log[log["time"] < start]
            days = early.assign(day=(start - 1 - early["time"]) // DAY).drop(columns="time")
            visits = days.drop_duplicates().groupby("item_id").size()
            assert history["long"].tolist() == visits.reindex(range(6), fill_value=0).tolist()
            last = days[days["day"] < found.window // DAY].drop_duplicates()
            assert history["window"].sum() == len(last)


def dated(frame: pd.DataFrame) -> pa.Table:
    table = pa.Table.from_pandas(frame.drop(columns="time"), preserve_index=False)
    times = pa.array(frame["time"].to_numpy(np.int64)).cast(pa.timestamp("us", "UTC"))
    return table.append_column("timestamp", times)
