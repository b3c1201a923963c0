"""What is known of a user at the start of a window: counted again from the log, without leaks."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest
from trimtab.learn.hierarchy.hierarchy_fit import HierarchyFit, fit_hierarchy
from trimtab.learn.inputs import FitInputs, FitTables, encode_inputs
from trimtab.learn.rerank import sampled_units
from trimtab.learn.rerank.sampled_units import UserLog, sample_units

import trimtab as tt
from repeat_shop import RepeatShop
from trimtab.kernels import rerank_reference as plain
from trimtab.kernels.list_sources import OWN, TRENDING
from trimtab.learn.personal_units import SampledUnits, lists_hold_own, widen_units
from trimtab.tables.times import DAY


def prepare(shop: RepeatShop) -> tuple[HierarchyFit, FitInputs]:
    tables = FitTables.read(shop.recs, shop.recent, shop.history)
    inputs = encode_inputs(tables, 10, "never", None, "error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        return fit_hierarchy(tt.BiasLearner(), inputs, None), inputs


def sample(fit: HierarchyFit, inputs: FitInputs) -> tuple[SampledUnits, np.ndarray, UserLog]:
    sampled, units = sample_units(fit.inputs, fit.fit.shared)
    log = inputs.log
    return sampled, units, UserLog(log.users, log.items, log.times, inputs.log_users[units])


@pytest.fixture(scope="module")
def shop() -> RepeatShop:
    return RepeatShop(repeats=0.5, n_users=60, drift=1.0)


@pytest.fixture(scope="module")
def prepared(shop) -> tuple[HierarchyFit, FitInputs]:
    return prepare(shop)


def times_of(table: pa.Table) -> np.ndarray:
    return table["timestamp"].cast(pa.int64()).to_numpy()


def bought_before(shop: RepeatShop, user: int, start: int) -> dict[int, plain.Bought]:
    """What a user bought before an instant, from the whole log, its future included."""
    log, times = shop.log, times_of(shop.log)
    own = (log["user_id"].to_numpy() == user) & (times < start)
    days = (start - 1 - times[own]) // DAY
    return plain.sum_purchases(zip(log["item_id"].to_numpy()[own], days, strict=True))


@pytest.mark.parametrize("widen_by", ["any", "listed"])
def test_wider_lists_are_as_of_the_start_of_their_window(shop, prepared, widen_by):
    fit, inputs = prepared
    sampled, units, log = sample(fit, inputs)
    wide, has_purchases = widen_units(sampled, log, widen_by)
    labels = sorted(set(shop.recent["window"].to_pylist()))
    window_of = np.array(shop.recent["window"].to_pylist())
    starts = [times_of(shop.recent)[window_of == label].min() for label in labels]
    users = np.array(inputs.units.users)[inputs.units.user_codes[units]]
    ids = np.array(inputs.item_ids)
    assert len(set(sampled.windows)) == 3
    for unit in range(sampled.n_units):
        bought = bought_before(shop, users[unit], starts[sampled.windows[unit]])
        assert has_purchases[unit] == bool(bought)
        own = slice(*wide.lists.indptr[unit : unit + 2])
        items, sources = ids[wide.lists.items[own]], wide.sources[own]
        for item, terms in zip(items.tolist(), wide.terms[own].tolist(), strict=True):
            assert terms == pytest.approx(plain.terms_of(bought.get(item)), rel=1e-12)
        may_add = set(ids.tolist())
        if widen_by == "listed":
            windows = np.array(shop.recs["window"].to_pylist()) == labels[sampled.windows[unit]]
            may_add = set(shop.recs["item_id"].to_numpy()[windows].tolist())
        listed = set(items[sources == 0].tolist())
        expected = set(plain.choose_own(bought, may_add, 30)) - listed
        assert set(items[(sources & OWN) > 0].tolist()) == expected
        assert set(items[(sources & TRENDING) > 0].tolist()) <= may_add - listed


def test_the_newest_purchases_are_not_known_in_their_window(shop, prepared):
    """Other purchases in the newest window, at the same times: all wider lists are the same."""
    fit, inputs = prepared
    newest = np.array(shop.recent["window"].to_pylist()) == max(shop.recent["window"].to_pylist())
    items = shop.recent["item_id"].to_numpy().copy()
    items[newest] = np.roll(items[newest], 5)
    other = RepeatShop(repeats=0.5, n_users=60, drift=1.0)
    other.recent = shop.recent.set_column(1, "item_id", pa.array(items))
    fit_2, inputs_2 = prepare(other)
    for one, two in zip(widen_all(fit, inputs), widen_all(fit_2, inputs_2), strict=True):
        assert one.tolist() == two.tolist()


def widen_all(fit, inputs) -> list[np.ndarray]:
    sampled, units, log = sample(fit, inputs)
    wide, _ = widen_units(sampled, log, "any")
    return [units, *wide.lists[:2], wide.sources, wide.terms]


def test_a_sample_is_some_of_the_units_with_the_same_lists(prepared, monkeypatch):
    fit, inputs = prepared
    whole, all_units, _ = sample(fit, inputs)
    assert len(all_units) == whole.n_units > 100
    monkeypatch.setattr(sampled_units, "_MOST_UNITS", 50)
    some, units, _ = sample(fit, inputs)
    assert 20 < some.n_units < 80
    places = np.searchsorted(all_units, units)
    expected = whole.model.take(places)
    assert some.model.items.tolist() == expected.items.tolist()
    assert some.model.scores.tolist() == expected.scores.tolist()
    assert some.folds.tolist() == whole.folds[places].tolist()


@pytest.mark.parametrize("lists_own", [True, False])
def test_whether_lists_hold_what_users_have(lists_own):
    fit, inputs = prepare(RepeatShop(repeats=0.5, n_users=60, lists_own=lists_own))
    sampled, _, log = sample(fit, inputs)
    wide, has_purchases = widen_units(sampled, log, "any")
    assert lists_hold_own(wide, sampled, has_purchases) == lists_own
