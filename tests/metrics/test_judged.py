"""Parts of the users, judged one by one, add up to the digits of all users together."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from trimtab.errors import DataError
from trimtab.metrics.evaluation import finish, judge
from trimtab.parts.packing import pack, unpack

N_USERS, N_ITEMS = 60, 25
WEIGHT = "revenue"


def draw(seed: int, n: int, **columns) -> pa.Table:
    """Rows of some users, and any columns made from the random numbers."""
    rng = np.random.default_rng(seed)
    users, items = rng.integers(0, N_USERS, n), rng.integers(0, N_ITEMS, n)
    own = {name: make(rng, n) for name, make in columns.items()}
    rows = pa.table({"user_id": users, "item_id": items, **own})
    return (
        rows.group_by(["user_id", "item_id"])
        .aggregate([(name, "max") for name in own])
        .rename_columns(rows.column_names)
    )


def tables(windows: bool, text: bool):
    """Lists, other lists, and purchases, some of them of weight 0."""
    found = [
        draw(0, 400, score=lambda rng, n: rng.random(n)),
        draw(1, 400, score=lambda rng, n: rng.random(n)),
        draw(2, 200, revenue=lambda rng, n: rng.choice([0.1, 0.7, 3.3], n)),
    ]
    found[1] = found[1].filter(pc.greater(found[1]["user_id"], 9))  # some have no list there
    if windows:
        found = [
            t.append_column("window", pa.array([f"w{r % 3}" for r in range(len(t))])) for t in found
        ]
    if text:
        for name in ("user_id", "item_id"):
            place = found[0].column_names.index(name)
            found = [t.set_column(place, name, t[name].cast(pa.string())) for t in found]
    return found


def parts_of(given, n_parts: int):
    """The tables of each part of the users, in random order."""
    part_of = np.random.default_rng(n_parts).integers(0, n_parts, N_USERS)
    own = [part_of[t["user_id"].cast(pa.int64()).to_numpy()] for t in given]
    for part in np.random.default_rng(1).permutation(n_parts):
        yield [t.filter(pa.array(place == part)) for t, place in zip(given, own, strict=True)]


@pytest.mark.filterwarnings("ignore::trimtab.errors.TrimtabWarning")
@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("text", [False, True])
def test_parts_add_up_to_the_whole(windows, text):
    topk, baseline, truth = given = tables(windows, text)
    users = pa.table({"user_id": pc.unique(truth["user_id"])[::2]})
    weights = users.append_column("weight", pa.array(np.linspace(0, 2, len(users))))
    for weight in (None, WEIGHT):
        whole = tt.evaluate(topk, truth, 5, weights, weight=weight, baseline=baseline)
        for n_parts in (1, 2, 7, 70):  # more parts than users
            parts = (
                judge({"topk": a, "baseline": b, "truth": bought}, 5, weight, is_part=True)
                for a, b, bought in parts_of(given, n_parts)
            )
            judged = reduce(add, (unpack(pack(part)) for part in parts))
            assert finish(judged, weights) == whole


@pytest.mark.parametrize("windows", [False, True])
def test_users_in_common_are_looked_for_in_all_parts(windows):
    topk, _, truth = tables(windows, text=False)
    strangers = truth.set_column(0, "user_id", pc.add(truth["user_id"], N_USERS))
    with pytest.raises(DataError, match="no user_id of truth is in topk") as told:
        tt.evaluate(topk, strangers, 5)
    parts = [judge({"topk": topk, "truth": strangers.slice(0, 0)}, 5, None, is_part=True)]
    parts += [judge({"topk": topk.slice(0, 0), "truth": strangers}, 5, None, is_part=True)]
    for order in (parts, parts[::-1]):
        with pytest.raises(DataError) as found:
            finish(reduce(add, order), None)
        assert str(found.value) == str(told.value)


def test_equal_weights_change_no_digit():
    topk, baseline, truth = tables(windows=False, text=False)
    users = pa.table({"user_id": np.arange(N_USERS), "weight": np.full(N_USERS, 0.7)})
    with pytest.warns(tt.TrimtabWarning, match="in only one of topk and baseline"):
        plain = tt.evaluate(topk, truth, 5, baseline=baseline)
    for price in (1.0, 0.1, 1e9):
        alike = truth.set_column(2, WEIGHT, pa.array(np.full(len(truth), price)))
        with pytest.warns(tt.TrimtabWarning, match="in only one of topk and baseline"):
            assert tt.evaluate(topk, alike, 5, users, weight=WEIGHT, baseline=baseline) == plain
