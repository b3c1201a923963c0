"""Rival methods on lists small enough to check by hand."""

from __future__ import annotations

import warnings
from collections import Counter
from itertools import product
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from trimtab.datasets import generate_log, make_log
from trimtab.engines import Category, Markov
from trimtab.errors import DataError, SettingError
from trimtab.replay import make_plan, split_log
from trimtab.replay.judge import run_backtest
from trimtab.replay.outcome import Case
from trimtab.replay.plan import Plan
from trimtab.replay.rivals import RIVALS, Method
from trimtab.tables.times import DAY

EVENTS = generate_log(n_users=250, n_items=80, days=70, purchases_per_user=25, drift=1, seed=3)
RECS = pa.table({"user_id": [1, 1, 2, 2], "item_id": [7, 8, 7, 9], "score": [3.0, 1.0, 0.5, 0.5]})
RECENT = pa.table({"user_id": [1, 2, 2, 3], "item_id": [8, 8, 9, 8]})
LONG_RUN = pa.table({"item_id": [7] * 6 + [8] * 2})


def show(kind: str, recs: pa.Table = RECS, recent: pa.Table = RECENT, **settings: object) -> list:
    """The scores that a rival gives these lists."""
    split = SimpleNamespace(recent=recent, train=LONG_RUN)
    case = SimpleNamespace(lists=recs, before=recs, split=split)
    return Method(kind, kind, settings).lists(case)["score"].to_pylist()


def scored(*scores: float) -> pa.Table:
    return RECS.set_column(2, "score", pa.array(scores))


def test_truncating_and_decaying_train_another_engine():
    def engine_of(kind: str, engine: object, **settings: object) -> object:
        return RIVALS[kind](SimpleNamespace(engine=engine, lists_of=lambda own: own), **settings)

    engine = Markov(order=2)
    assert engine_of("truncate", engine, days=9) == Markov(order=2, window_days=9)
    assert engine_of("decay", engine) == Markov(order=2, decay_days=60)
    assert engine == Markov(order=2)
    items = pa.table({"item_id": [1], "category": ["a"]})
    assert engine_of("truncate", Category(items=items, window_days=5), days=9).window_days == 5
    with pytest.raises(SettingError, match="truncate and decay train one of Trimtab's engines"):
        engine_of("decay", object())


def test_scores_by_hand():
    # Shares of recent sales: 8 has 3/4, 9 has 1/4; of the long run: 7 has 3/4, 8 has 1/4.
    gained = (-0.75, 0.5, -0.75, 0.25)
    for factor in (1, 2, 0):
        expected = [x + factor * y for x, y in zip((0.75, 0.25, 0.5, 0.5), gained, strict=True)]
        assert show("distrdiff", factor=factor) == pytest.approx(expected)
    # Scores whose sum is 0 or less stay as they are.
    assert show("distrdiff", scored(1.0, -1.0, 0.0, 0.0), factor=0) == [1.0, -1.0, 0.0, 0.0]
    # In lists: 7 twice, 8 and 9 once each; bought: 8 thrice, 9 once; 4 / 4 = 1 on average.
    ratios = (10 / 12, 13 / 11, 10 / 12, 11 / 11)
    expected = [3 * ratios[0], ratios[1], 0.5 * ratios[2], 0.5 * ratios[3]]
    assert show("ratio", gamma=1) == pytest.approx(expected)
    below = scored(-3.0, -1.0, -0.5, -0.5)  # divided, so that a higher ratio raises them
    assert show("ratio", below, gamma=1)[:2] == pytest.approx([-3 / ratios[0], -1 / ratios[1]])
    assert show("ratio", gamma=0) == show("ratio", recent=pa.table({"item_id": [99]}))
    assert show("ratio", gamma=0) == RECS["score"].to_pylist()
    assert show("recent", gamma=0.5) == pytest.approx([3.0, 2.0, 0.5, 0.5 * 2**0.5])


def test_bad_input_is_refused():
    for kind, settings, message in (
        ("ratio", {"gamma": -1}, "gamma of method ratio=-1"),
        ("distrdiff", {"factor": float("inf")}, "factor of method distrdiff="),
        ("bestsellers", {"days": 0}, "days of method bestsellers=0"),
        ("recent", {"power": 2}, "'power' of method recent: .* choose from gamma"),
        ("long", {"days": 2}, "'days' of method long: .* choose from none"),
    ):
        with pytest.raises(SettingError, match=message):
            Method(kind, kind, settings)
    with pytest.raises(DataError, match="recent"):
        show("ratio", recent=RECENT.slice(0, 0))


NOW = 100 * DAY


def sell(
    items: list[int],
    k: int,
    has: tuple[list[int], list[int]] | None = None,
    categories: dict[int, str] | None = None,
) -> dict:
    """What users 1 and 2 are shown if these items were bought, the last day before `NOW`."""
    users, owned = ([], []) if has is None else has
    times = [NOW - 9 * DAY] * len(users) + [NOW - DAY] * len(items)
    known = {"user_id": [*users, *[0] * len(items)], "item_id": [*owned, *items]}
    stamps = pa.array(times, pa.timestamp("us", tz="UTC"))
    types = [pa.int32(), pa.int32()]  # others than those of the lists
    columns = [pa.array(own, kind) for own, kind in zip(known.values(), types, strict=True)]
    split = SimpleNamespace(
        known=pa.table([*columns, stamps], ["user_id", "item_id", "timestamp"]), test_from=NOW
    )
    lists = pa.table({"user_id": [2, 1, 1], "item_id": [50, 50, 51], "score": [1.0, 2.0, 1.0]})
    case = SimpleNamespace(lists=lists, k=k, split=split, lists_hold_own=has is None)
    kind = "bestsellers"
    if categories is not None:
        kind = "bestsellers_by_category"
        catalogue = pa.table({"item_id": [*categories], "category": [*categories.values()]})
        case.log = SimpleNamespace(catalogue=lambda: catalogue)
    found: dict[int, list[int]] = {}
    last = {1: np.inf, 2: np.inf}
    for row in RIVALS[kind](case).to_pylist():
        found.setdefault(row["user_id"], []).append(row["item_id"])
        assert row["score"] == items.count(row["item_id"]) <= last[row["user_id"]]
        last[row["user_id"]] = row["score"]
    return found


def rank_by_hand(items: list[int]) -> list[int]:
    counts = Counter(items)
    return sorted(counts, key=lambda item: (-counts[item], item))


def test_what_was_bought_most_by_hand():
    """Ties go to the smaller id; what a user has is left out of that user's list only."""
    sold = [9, 8, 9, 7, 6, 8, 9]  # 9: 3, 8: 2, 6 and 7: 1
    assert sell(sold, 3) == {1: [9, 8, 6], 2: [9, 8, 6]}
    assert sell(sold, 10) == {1: [9, 8, 6, 7], 2: [9, 8, 6, 7]}
    assert sell(sold, 2, ([1] * 4, [6, 7, 8, 9])) == {2: [9, 8]}
    assert sell([], 2) == {}
    random = np.random.default_rng(0)
    for k in (1, 3, 10):
        sold = random.integers(0, 12, 30).tolist()
        users, items = random.integers(0, 8, 40), random.integers(0, 15, 40)
        ranked = rank_by_hand(sold)
        wanted = {u: [item for item in ranked if item not in items[users == u]][:k] for u in (1, 2)}
        assert sell(sold, k, (users.tolist(), items.tolist())) == wanted


def test_what_was_bought_most_in_the_users_categories():
    sold = [9, 8, 9, 7, 6, 8, 9]  # 9: 3, 8: 2, 6 and 7: 1
    groups = {6: "a", 9: "a", 7: "b", 8: "b", 5: "b"}
    has = [1, 2], [5, 9]  # a category each; user 2 has 9 already
    assert sell(sold, 3, has, groups) == {1: [8, 7], 2: [6]}
    assert sell(sold, 1, has, groups) == {1: [8], 2: [6]}
    assert sell(sold, 3, ([1], [4]), groups) == {}  # item 4 has no category, like no item sold
    assert sell(sold, 3, ([1], [4]), {6: "a", 9: "a"}) == {1: [8, 7]}
    random = np.random.default_rng(1)
    for k in (1, 3, 10):
        sold = random.integers(0, 12, 30).tolist()
        users, items = random.integers(0, 8, 20), random.integers(0, 15, 20)
        groups = {item: "abcd"[random.integers(4)] for item in range(14)}  # not 14
        wanted = {}
        for user in (1, 2):
            own = {groups.get(item) for item in items[users == user]}
            new = [item for item in rank_by_hand(sold) if item not in items[users == user]]
            wanted[user] = [item for item in new if groups.get(item) in own][:k]
        wanted = {user: shown for user, shown in wanted.items() if shown}
        assert sell(sold, k, (users.tolist(), items.tolist()), groups) == wanted


def test_best_sellers_by_category_need_categories_and_must_be_chosen(tmp_path):
    """Judged where the log has categories; elsewhere they are skipped, with a sentence."""
    kind = "bestsellers_by_category"
    items = pa.table({"item_id": range(80), "category": [f"c{item % 5}" for item in range(80)]})
    given = {"dates": ["2026-03-02"], "engines": ["popularity"], "metrics": ["ndcg"]}
    assert kind not in [method.kind for method in make_plan(given, make_log(EVENTS)).methods]
    for log, judged in ((make_log(EVENTS, items=items), True), (make_log(EVENTS), False)):
        plan = make_plan({**given, "methods": [kind, "ratio"]}, log)
        with warnings.catch_warnings(record=True, action="always") as caught:
            results = run_backtest(plan, log, tmp_path / str(judged))
        said = [str(warning.message) for warning in caught]
        methods = results.table("results")["method"].to_pylist()
        assert methods == ["long", *([kind] if judged else []), "ratio"]
        skipped = f"2026-03-02, engine popularity: {kind} is skipped: the log has no categories; "
        assert any(text.startswith(skipped) for text in said) != judged


def test_lists_that_never_hold_what_users_have_are_told_from_others():
    split = split_log(make_log(EVENTS), "2026-03-02")
    has = split.known.group_by(["user_id", "item_id"]).aggregate([])
    own = has.append_column("score", pa.array(np.ones(has.num_rows)))
    pairs = set(zip(*(has[name].to_pylist() for name in ("user_id", "item_id")), strict=True))
    others = product(has["user_id"].unique().to_pylist(), range(80))
    users, items = zip(*(pair for pair in others if pair not in pairs), strict=True)
    new = pa.table({"user_id": users, "item_id": items, "score": np.ones(len(users))})
    for lists, expected in ((own, True), (new, False)):
        case = Case(None, None, split, 40, 5)
        case.__dict__["lists"] = lists
        assert case.lists_hold_own == expected


def test_best_sellers_are_in_every_plan_unless_methods_are_chosen():
    log, given = make_log(EVENTS), {"dates": ["2026-03-02"], "engines": ["markov"]}
    for made in (make_plan(given, log).methods, Plan.methods):
        sellers = [(own.name, own.settings) for own in made if own.kind == "bestsellers"]
        assert sellers == [(f"bestsellers-{days}", {"days": days}) for days in (1, 3, 7)]
    own = {"fortnight": {"kind": "bestsellers", "days": 14}}
    chosen = make_plan({**given, "methods": ["ratio", "fortnight"], "method": own}, log)
    names = [(method.name, method.settings) for method in chosen.methods]
    assert names == [("long", {}), ("ratio", {}), ("fortnight", {"days": 14})]
