"""Events with weights: what is learned, that weights of 1 change nothing, and what is refused."""

from __future__ import annotations

import math
import warnings
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from changed_tables import files_of, shuffled, with_column
from click_shop import ClickShop, weigh
from counted_tables import count
from dated_shop import DatedShop
from trimtab.errors import DataError
from trimtab.learn.units import prepare

# What is clicked lately, or ordered lately, is shown to everybody.
pytestmark = pytest.mark.filterwarnings("ignore::trimtab.errors.GuardWarning")


@pytest.fixture(scope="module")
def shop() -> ClickShop:
    return ClickShop(n_users=400)


@pytest.fixture(scope="module")
def learned(shop) -> tt.ItemBias:
    return tt.BiasLearner().fit(shop.recs, weigh(shop.recent), history=weigh(shop.history))


@pytest.fixture(scope="module")
def dated() -> DatedShop:
    return DatedShop(n_users=600)


def add_weight(table: pa.Table, weight: float) -> pa.Table:
    return with_column(table, "weight", weight)


# What is learned ---------------------------------------------------------------------------------


def test_learning_for_orders_serves_orders(shop, learned):
    """Clicks and orders disagree. The figures are on docs/benchmarks.md."""
    alike = tt.BiasLearner().fit(shop.recs, shop.recent, history=shop.history)
    found, by_clicks = (shop.lift(bias.apply(shop.tonight)) for bias in (learned, alike))
    assert found > 0.3
    assert found > by_clicks + 0.4


def test_a_reranker_for_orders_serves_orders(shop):
    lifts = []
    for make in (weigh, lambda events: events):
        recent, history = make(shop.recent), make(shop.history)
        reranker = tt.RerankLearner().fit(shop.recs, recent, history=history)
        known = pa.concat_tables([history, recent.drop_columns("window")])
        lifts.append(shop.lift(reranker.apply(shop.tonight, history=known)))
    assert lifts[0] > 0.3
    assert lifts[0] > lifts[1] + 0.4


@pytest.mark.parametrize("metric", ["acc", "map", "ndcg"])
def test_the_summary_is_what_evaluate_finds(shop, metric):
    recent = weigh(shop.recent)
    users = pa.table({"user_id": np.arange(0, 400, 3), "weight": np.linspace(0, 3, 134)})
    for weights in (None, users):
        learner = tt.BiasLearner(k=5, metric=metric)
        bias = learner.fit(shop.recs, recent, weights=weights)
        for figure, lists in (("before", shop.recs), ("after", bias.apply(shop.recs, k=5))):
            found = tt.evaluate(lists, recent, 5, weights, weight="weight")
            assert found[metric] == pytest.approx(bias.summary[figure], abs=1e-5)
        assert bias.summary.after > bias.summary.before
        assert bias.gain.sum() == pytest.approx(
            bias.summary.objective_after - bias.summary.objective_before
        )


# What changes nothing ----------------------------------------------------------------------------


def test_equal_weights_change_no_byte(dated, tmp_path):
    """Also if only one table has them: a missing column counts as 1."""
    for number, (learner, recent, history) in enumerate((
        (tt.BiasLearner(), 7.3, 7.3), (tt.BiasLearner(), 1.0, None),
        (tt.BiasLearner.paper(max_cycles=1), 7.3, 7.3), (tt.RerankLearner(), 1.0, 1.0),
    )):  # fmt: skip
        tables = {"recent": (dated.recent, recent), "history": (dated.history, history)}
        given = {n: t if w is None else add_weight(t, w) for n, (t, w) in tables.items()}
        with warnings.catch_warnings(action="ignore"):
            plain = learner.fit(dated.recs, dated.recent, history=dated.history)
            weighed = learner.fit(dated.recs, **given)
        expected = files_of(plain, tmp_path / f"{number}")
        assert files_of(weighed, tmp_path / f"{number}-weighed") == expected


def test_only_ratios_of_weights_count_and_no_order_of_rows(shop, learned, bytes_of):
    recent, history = (
        shuffled(with_column(table, "weight", pc.multiply(table["weight"], 1024.0)))
        for table in (weigh(shop.recent), weigh(shop.history))
    )
    again = tt.BiasLearner().fit(shuffled(shop.recs), recent, history=history)
    assert bytes_of(again.table()) == bytes_of(learned.table())


def test_events_of_weight_0_are_as_if_they_were_not_there(shop, bytes_of):
    found = []
    for keep in (False, True):
        recent, history = (
            weigh(table, {"click": 0.0, "order": 2.0}) for table in (shop.recent, shop.history)
        )
        if not keep:
            recent, history = (t.filter(pc.greater(t["weight"], 0)) for t in (recent, history))
        found.append(tt.BiasLearner().fit(shop.recs, recent, history=history))
    assert bytes_of(found[0].table()) == bytes_of(found[1].table())
    assert found[0].summary == found[1].summary


# What weights are for a fit ----------------------------------------------------------------------


def test_relevance_and_sales_by_hand():
    """Two users; of repeated rows the heaviest counts. Sales are scaled by Σw / Σw² = 7/21."""
    recs = pa.table({"user_id": [1, 1, 2], "item_id": [7, 8, 7], "score": [2.0, 1.0, 1.0]})
    recent = pa.table(
        {"user_id": [1, 1, 1, 2], "item_id": [8, 7, 7, 7], "weight": [4.0, 1.0, 0.5, 2.0]}
    )
    counted = count(recs, recent, tt.BiasLearner(k=1))
    units = prepare(counted.parts.value, counted.plan)
    assert units.relevance.tolist() == [0.25, 1.0, 1.0]
    assert units.sales == pytest.approx(np.array([1, 4, 2]) / 3, abs=1e-6)
    assert units.weights == pytest.approx(np.array([4, 2]) / 3, abs=1e-6)
    events = counted.parts.value.sales
    sold = counted.plan.event_scale.as_sales(events.weights)
    assert sold == pytest.approx(np.array([4, 1, 0.5, 2]) / 3, abs=1e-6)


# What is refused ---------------------------------------------------------------------------------


BAD = [
    (-2.0, "column 'weight' of {} has -2: the weight of an event must be at least 0"),
    (math.nan, "column 'weight' of {} has nan in row 3 (from 0): it must be finite"),
    (None, "column 'weight' of {} has no value in 1 of"),
    ("1", "column 'weight' of {} holds string: it must be numeric"),
    (0.0, "column 'weight' of {} is 0 in every row"),
]


def test_bad_weights_are_refused(dated):
    for table, (weight, message) in product(("recent", "history"), BAD):
        tables = {"recent": dated.recent, "history": dated.history}
        n = tables[table].num_rows
        column = [weight] * n if weight in (0.0, "1") else [1.0] * 3 + [weight] + [1.0] * (n - 4)
        tables[table] = tables[table].append_column("weight", pa.array(column))
        with pytest.raises(DataError) as caught:
            tt.BiasLearner().fit(dated.recs, **tables)
        assert message.format(table) in str(caught.value)


def test_the_ascent_refuses_different_weights(shop):
    for learner in (tt.BiasLearner.paper(), tt.BiasLearner(method="ascent")):
        with pytest.raises(DataError, match="the ascent counts all purchases alike"):
            learner.fit(shop.recs, weigh(shop.recent))


def test_weights_that_do_not_go_together_are_refused(shop):
    counts = pa.table({"item_id": [1, 2], "count": [3, 4], "weight": [1.0, 2.0]})
    with pytest.raises(DataError, match="history has both a column 'count' and a column 'weight'"):
        tt.BiasLearner().fit(shop.recs, shop.recent, history=counts)
    history = add_weight(shop.history, 1e12)
    with pytest.raises(DataError, match="weights must be on the same scale in both"):
        tt.BiasLearner().fit(shop.recs, weigh(shop.recent), history=history)
