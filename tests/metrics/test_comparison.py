"""All metrics against brute force in plain Python, with and without weights; lifts over others."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pyarrow as pa
import pytest

import trimtab as tt
from plain_metrics import METRICS, plain_metrics
from trimtab.errors import DataError, TrimtabWarning
from trimtab.metrics.per_user import lift

# Brute force -------------------------------------------------------------------------------------


def brute(topk, truth, k: int, weight=None, user_weights=None) -> dict[str, float]:
    """The means over users who bought something, one user after the other."""
    bought: dict = {}
    for row in truth.to_pylist():
        own, worth = bought.setdefault(row["user_id"], {}), row[weight] if weight else 1.0
        own[row["item_id"]] = max(own.get(row["item_id"], 0.0), worth)
    bought = {u: {i: w for i, w in own.items() if w > 0} for u, own in bought.items()}
    lists: dict = {}
    for row in sorted(topk.to_pylist(), key=lambda row: (row["rank"], row["item_id"])):
        lists.setdefault(row["user_id"], []).append(row["item_id"])
    totals, total = dict.fromkeys(METRICS, 0.0), 0.0
    for user, own in bought.items():
        if own:
            heaviest = max(own.values())
            relevance = {item: worth / heaviest for item, worth in own.items()}
            counts = heaviest * (user_weights or {}).get(user, 1.0)
            total += counts
            for name, value in plain_metrics(lists.get(user, []), relevance, k).items():
                totals[name] += counts * value
    buyers = {user for user, own in bought.items() if own}
    counts = {"n_users": len(buyers), "n_skipped": len(lists.keys() - buyers)}
    return {name: value / total for name, value in totals.items()} | counts


def problem(seed: int):
    """Two tables of lists, purchases with prices (some of 0, some repeated), and user weights."""
    random = np.random.default_rng(seed)
    n_users, n_items, n = 12, 15, int(random.integers(1, 9))

    def lists():
        users = [user for user in range(n_users) if random.random() < 0.9 or user == 0]
        items = [random.permutation(n_items)[:n] for _ in users]
        return pa.table(
            {
                "user_id": np.repeat(users, n), "item_id": np.concatenate(items),
                "rank": np.tile(np.arange(1, n + 1), len(users)),
            }
        )  # fmt: skip

    rows = 60
    truth = pa.table(
        {
            "user_id": np.r_[0, random.integers(0, n_users, rows)],
            "item_id": np.r_[0, random.integers(0, n_items, rows)],
            "price": np.r_[1.0, random.choice([0.0, 0.25, 3.0, 10.0, 1.7], rows)],
        }
    )
    weights = np.r_[random.uniform(0.1, 5, 5), 0.0, 5.0]  # half of the users, and a stranger
    users = pa.table({"user_id": [*range(0, n_users, 2), 99], "weight": weights})
    return lists(), lists(), truth, users, int(random.integers(1, 8))


def test_metrics_equal_brute_force():
    for seed in range(25):
        topk, _, truth, users, k = problem(seed)
        for given, weight in itertools.product((None, users), (None, "price")):
            found = tt.evaluate(topk, truth, k, given, weight=weight)
            by_user = given and dict(zip(*given.to_pydict().values(), strict=True))
            expected = brute(topk, truth, k, weight, by_user)
            assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-5)
            assert all(0 <= found[name] <= 1 for name in METRICS)


def test_coverage_equals_brute_force():
    for seed in range(10):
        topk, _, truth, _, k = problem(seed)
        shown = [row["item_id"] for row in topk.to_pylist() if row["rank"] <= k]
        every = {*topk["item_id"].to_pylist(), *truth["item_id"].to_pylist()}
        assert tt.evaluate(topk, truth, k)["coverage"] == len(set(shown)) / len(every)


# Weights -----------------------------------------------------------------------------------------


def test_by_hand():
    """An order of 1 and a click of 0.25, the click listed first."""
    topk = pa.table({"user_id": [1, 1, 2], "item_id": [7, 8, 7], "rank": [1, 2, 1]})
    truth = pa.table({"user_id": [1, 1, 2], "item_id": [7, 8, 9], "weight": [0.25, 1.0, 1.0]})
    found = tt.evaluate(topk, truth, k=2, weight="weight")
    dcg, best = 0.25 + 1 / math.log2(3), 1 + 0.25 / math.log2(3)
    assert found["ndcg"] == pytest.approx(dcg / best / 2)
    assert found["map"] == pytest.approx((0.0625 + 1.25 / 2) / (1 + 0.25 * 1.25 / 2) / 2)
    assert (found["hit_rate"], found["recall"], found["mrr"]) == (0.5, 0.5, 0.25)
    assert found["acc"] == 1.25 / 2 / 2


def test_rows_with_weight_0_are_as_if_they_were_not_there():
    topk, _, truth, _, k = problem(4)
    bought = pa.Table.from_pylist([row for row in truth.to_pylist() if row["price"] > 0])
    found, expected = (tt.evaluate(topk, t, k, weight="price") for t in (truth, bought))
    names = [name for name in found if name not in ("n_users", "n_skipped")]
    assert {n: found[n] for n in names} == {n: expected[n] for n in names}


BAD_PRICES = {
    -1.0: "column 'price' of truth has -1: the weight of an event must be at least 0",
    math.nan: "column 'price' of truth has nan in row 2 (from 0): it must be finite",
    math.inf: "column 'price' of truth has inf in row 2 (from 0): it must be finite",
    None: "column 'price' of truth has no value in 1 of 3 rows; drop those rows",
}


def test_bad_weights_are_refused():
    topk = pa.table({"user_id": [1], "item_id": [7], "rank": [1]})
    for price, message in BAD_PRICES.items():
        truth = pa.table({"user_id": [1, 1, 1], "item_id": [7, 8, 9], "price": [1.0, 2.0, price]})
        with pytest.raises(DataError) as caught:
            tt.evaluate(topk, truth, 1, weight="price")
        assert message in str(caught.value)
    with pytest.raises(DataError, match=r"missing column 'margin' in truth; found .*price"):
        tt.evaluate(topk, truth, 1, weight="margin")
    free = pa.table({"user_id": [1], "item_id": [7], "price": [0]})
    with pytest.raises(DataError, match="is 0 in every row"):
        tt.evaluate(topk, free, 1, weight="price")


# Lifts -------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::trimtab.errors.TrimtabWarning")
@pytest.mark.parametrize("weight", [None, "price"])
def test_the_lift_is_that_of_the_two_values(weight):
    topk, other, truth, users, k = problem(6)
    options = {"weight": weight}
    found = tt.evaluate(topk, truth, k, users, baseline=other, **options)
    alone, before = (tt.evaluate(t, truth, k, users, **options) for t in (topk, other))
    assert set(found) - set(alone) == {
        f"{name}_{part}"
        for name in (*METRICS, "coverage")
        for part in ("baseline", "lift", *(("low", "high") if name in METRICS else ()))
    }
    assert {name: found[name] for name in METRICS} == {name: alone[name] for name in METRICS}
    for name in METRICS:
        assert found[f"{name}_baseline"] == before[name]
        assert found[f"{name}_lift"] == pytest.approx(lift(alone[name], before[name]))
        assert found[f"{name}_low"] <= found[f"{name}_lift"] <= found[f"{name}_high"]


def test_a_user_with_several_windows_is_drawn_as_one():
    """Eight windows of two users say no more than the two users."""
    windows = [f"w{n}" for n in range(8)]
    users = np.repeat([1, 2], 8)
    table = {"user_id": users, "window": windows * 2, "item_id": np.repeat([7, 8], 8)}
    truth = pa.table({**table, "item_id": np.full(16, 7)})
    topk = pa.table({**table, "rank": np.ones(16, int)})
    other = pa.table({**table, "item_id": np.full(16, 7), "rank": np.ones(16, int)})
    found = tt.evaluate(topk, truth, 1, baseline=other)
    assert (found["acc_lift"], found["acc_low"], found["acc_high"]) == (-0.5, -1.0, 0.0)


def test_lists_that_only_one_table_has_are_said():
    rows = {"item_id": [7, 7], "rank": [1, 1]}
    truth = pa.table({"user_id": [1, 2], "item_id": [7, 7]})
    both, one = pa.table({"user_id": [1, 2], **rows}), pa.table({"user_id": [1, 9], **rows})
    with pytest.warns(TrimtabWarning, match="1 of 2 users who bought something have a list in"):
        assert tt.evaluate(both, truth, 1, baseline=one)["acc_lift"] == 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tt.evaluate(both, truth, 1, baseline=both)
    with pytest.raises(DataError, match="no user_id of truth is in baseline"):
        tt.evaluate(both, truth, 1, baseline=pa.table({"user_id": [8, 9], **rows}))


def test_a_lift_over_0_is_not_known():
    truth = pa.table({"user_id": [1], "item_id": [7]})
    hit, miss = (pa.table({"user_id": [1], "item_id": [i], "rank": [1]}) for i in (7, 8))
    found = tt.evaluate(hit, truth, 1, baseline=miss)
    assert math.isnan(found["acc_lift"])
    assert math.isnan(found["acc_low"])
