"""Best sellers for everyone as a rival: lists and figures are those computed by hand."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from trimtab.datasets import generate_log, make_log
from trimtab.errors import SettingError
from trimtab.replay import best_sellers, make_plan, run_backtest
from trimtab.tables.log import Log

RECS = pa.table({"user_id": [2, 1, 1], "item_id": [50, 50, 51], "score": [1.0, 2.0, 1.0]})
SOLD = pa.table({"item_id": [9, 8, 9, 7, 6, 8, 9]})  # 9: 3, 8: 2, 6 and 7: 1


def lists_of(table: Any) -> dict[int, list[int]]:
    """Items of each user in the order of rows; scores must not ascend."""
    found = defaultdict(list)
    for row in table.to_pylist():
        found[row["user_id"]].append((row["item_id"], row["score"]))
    for rows in found.values():
        assert rows == sorted(rows, key=lambda row: (-row[1], row[0]))
    return {user: [item for item, _ in rows] for user, rows in found.items()}


def test_what_was_bought_most_by_hand() -> None:
    """Ties go to the smaller id; what a user has is left out of that user's list only."""
    assert lists_of(best_sellers(RECS, SOLD, k=3)) == {1: [9, 8, 6], 2: [9, 8, 6]}
    assert lists_of(best_sellers(RECS, SOLD)) == {1: [9, 8, 6, 7], 2: [9, 8, 6, 7]}
    assert best_sellers(RECS, SOLD, k=1)["score"].to_pylist() == [3.0, 3.0]
    everything = pa.table({"user_id": [1] * 4, "item_id": [6, 7, 8, 9]})
    assert lists_of(best_sellers(RECS, SOLD, 2, everything)) == {2: [9, 8]}
    random = np.random.default_rng(0)
    for k in (1, 3, 10):
        sold = pa.table({"item_id": random.integers(0, 12, 30)})
        users, items = random.integers(0, 8, 40), random.integers(0, 15, 40)
        ranked = rank_by_hand(sold["item_id"].to_pylist())
        wanted = {u: [item for item in ranked if item not in items[users == u]][:k] for u in (1, 2)}
        has = pa.table({"user_id": users, "item_id": items})
        assert lists_of(best_sellers(RECS, sold, k, has)) == wanted


def rank_by_hand(items: list[int]) -> list[int]:
    counts = Counter(items)
    return sorted(counts, key=lambda item: (-counts[item], item))


def test_nothing_sold_and_other_frames() -> None:
    assert best_sellers(RECS, SOLD.slice(0, 0)).num_rows == 0
    frame = best_sellers(RECS.to_pandas(), SOLD, k=1)
    assert isinstance(frame, pd.DataFrame)
    assert frame.to_dict("list") == {"user_id": [1, 2], "item_id": [9, 9], "score": [3.0, 3.0]}
    with pytest.raises(SettingError, match="k=0"):
        best_sellers(RECS, SOLD, k=0)


DAY, K = date(2026, 3, 2), 5
EVENTS = generate_log(n_users=250, n_items=80, days=70, purchases_per_user=25, drift=1, seed=3)
ONCE = pa.Table.from_pandas(
    EVENTS.to_pandas().drop_duplicates(["user_id", "item_id"]), preserve_index=False
)


class Shelf:
    """An engine with the same few items for all; perhaps without what the user has."""

    def __init__(self, items: list[int], without_own: bool) -> None:
        self._items, self._without_own = items, without_own

    def describe(self) -> dict[str, Any]:
        return {"kind": "shelf", "items": self._items, "without_own": self._without_own}

    def fit(self, events: pa.Table, as_of: Any) -> Self:
        self._has = events.to_pandas().groupby("user_id").item_id.agg(set)
        return self

    def recommend(self, users: Any | None = None, n: int = 50) -> pa.Table:
        wanted = self._has.index if users is None else set(users.to_pylist())
        rows = [
            {"user_id": user, "item_id": item, "score": 1.0 / (2 + place)}
            for user in sorted(set(wanted) & set(self._has.index))
            for place, item in enumerate(self._items[:n])
            if not (self._without_own and item in self._has[user])
        ]
        return pa.Table.from_pylist(rows)


def judge(log: Log, engine: Any, folder: Path, **more: Any) -> dict[str, dict[str, Any]]:
    """Rows by method of a backtest with best sellers, judged by NDCG."""
    settings = {"dates": [DAY], "methods": ["bestsellers"], "metrics": ["ndcg"], **more}
    made = make_plan({**settings, "k": K, "n_listed": 40, "n_draws": 20}, log)
    found = (
        run_backtest(replace(made, engines={"shelf": engine}), log, folder)
        .table("results")
        .to_pylist()
    )
    return {row["method"]: row for row in found}


def ndcg_by_hand(log: Log, engine: Shelf, days: int, without_own: bool) -> float:
    start, events = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC), log.events.to_pandas()
    known = events[events.timestamp < start]
    recent = known[known.timestamp >= start - timedelta(days)]
    test = events[(events.timestamp >= start) & (events.timestamp < start + timedelta(7))]
    ranked, has = rank_by_hand(list(recent.item_id)), known.groupby("user_id").item_id.agg(set)
    rows = [
        {"user_id": user, "item_id": item, "rank": rank}
        for user in has.index
        for rank, item in enumerate(
            [item for item in ranked if not (without_own and item in has[user])][:K], 1
        )
    ]
    return tt.evaluate(pd.DataFrame(rows), test, k=K)["ndcg"]


@pytest.mark.parametrize("without_own", [False, True])
def test_figures_are_those_by_hand_also_for_items_on_no_list(
    tmp_path: Path, without_own: bool
) -> None:
    # Lists that never hold what users have: best sellers leave it out as well.
    log = make_log(ONCE if without_own else EVENTS, name="generated")
    engine = Shelf(list(range(40)), without_own)
    found = judge(log, engine, tmp_path)
    assert list(found) == ["long", "bestsellers-1", "bestsellers-3", "bestsellers-7"]
    for days in (1, 3, 7):
        row = found[f"bestsellers-{days}"]
        value = ndcg_by_hand(log, engine, days, without_own)
        assert value != pytest.approx(ndcg_by_hand(log, engine, days, not without_own))
        assert row["value"] == pytest.approx(value, rel=1e-12)
        assert row["lift"] == pytest.approx(value / found["long"]["value"] - 1)
        assert row["n_users"] == found["long"]["n_users"]
    late = log.events.filter(pc.greater_equal(log.events["timestamp"], pa.scalar(
        datetime(2026, 2, 27, tzinfo=UTC))))  # fmt: skip
    assert not set(rank_by_hand(late["item_id"].to_pylist())[:K]) <= set(range(40))


def test_a_day_without_sales_gives_no_lists(tmp_path: Path) -> None:
    times = EVENTS["timestamp"].to_numpy()
    open_days = (times < np.datetime64("2026-03-01")) | (times >= np.datetime64("2026-03-02"))
    log = make_log(EVENTS.filter(pa.array(open_days)), name="closed on Sunday")
    with pytest.warns(tt.TrimtabWarning, match="2026-03-01, in the recent window, has 0 events"):
        found = judge(log, Shelf(list(range(40)), False), tmp_path)
    assert found["bestsellers-1"]["value"] == 0.0
    assert found["bestsellers-3"]["value"] > 0.0


def test_they_are_in_every_plan_unless_methods_are_chosen() -> None:
    log = make_log(EVENTS, name="generated")
    given: dict[str, Any] = {"dates": [DAY], "engines": ["markov"]}
    for made in (make_plan(given, log).methods, tt.replay.Plan.methods):
        sellers = [(m.name, m.settings) for m in made if m.kind == "bestsellers"]
        assert sellers == [(f"bestsellers-{days}", {"days": days}) for days in (1, 3, 7)]
    own = {"fortnight": {"kind": "bestsellers", "days": 14}}
    chosen = make_plan({**given, "methods": ["ratio", "fortnight"], "method": own}, log)
    assert [m.name for m in chosen.methods] == ["long", "ratio", "fortnight"]
    assert chosen.methods[2].settings == {"days": 14}
    none = {"bestsellers": {"days": 0}}
    with pytest.raises(SettingError, match="days of method bestsellers=0"):
        make_plan({**given, "methods": ["bestsellers"], "method": none}, log)
