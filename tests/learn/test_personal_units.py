"""What is known of a user at the start of a window: counted again from the log, without leaks."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest

import trimtab as tt
from counted_tables import count
from repeat_shop import RepeatShop
from trimtab.arrays import OWN, TRENDING
from trimtab.kernels import reference as plain
from trimtab.learn.bias_fit import BiasFit, fit_biases
from trimtab.learn.counted import Counted
from trimtab.learn.personal_units import sample_units, widen_units
from trimtab.learn.units import Units
from trimtab.tables.times import DAY
from trimtab.tables.vocabulary import Vocabulary


def prepare(shop: RepeatShop) -> tuple[BiasFit, Counted]:
    counted = count(shop.recs, shop.recent, history=shop.history)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        return fit_biases(tt.BiasLearner(), counted, None), counted


def users_of(shop: RepeatShop, sampled: Units) -> list[int]:
    """The user of each unit, found by the hash of the id."""
    ids = np.unique(shop.recs["user_id"].to_numpy())
    by_hash = dict(zip(Vocabulary(ids).hashes().tolist(), ids.tolist(), strict=True))
    assert len(by_hash) == len(ids)
    return [by_hash[own] for own in sampled.hashes.tolist()]


@pytest.fixture(scope="module")
def shop() -> RepeatShop:
    return RepeatShop(repeats=0.5, n_users=60, drift=1.0)


@pytest.fixture(scope="module")
def prepared(shop) -> tuple[BiasFit, Counted]:
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
    fit, counted = prepared
    sampled = sample_units(counted, fit.shared)
    wide, has_purchases = widen_units(sampled, fit.shared, widen_by)
    labels = sorted(set(shop.recent["window"].to_pylist()))
    window_of = np.array(shop.recent["window"].to_pylist())
    starts = fit.shared.histories.starts  # on the grid of days, at or before the first purchase
    firsts = [times_of(shop.recent)[window_of == label].min() for label in labels]
    assert all(0 <= first - start < DAY for first, start in zip(firsts, starts, strict=True))
    users, windows = users_of(shop, sampled), sampled.windows
    ids = np.array(counted.plan.item_ids)
    assert len(set(windows)) == 3
    for unit in range(sampled.n_units):
        bought = bought_before(shop, users[unit], starts[windows[unit]])
        assert has_purchases[unit] == bool(bought)
        own = slice(*wide.lists.indptr[unit : unit + 2])
        items, sources = ids[wide.lists.items[own]], wide.sources[own]
        for item, terms in zip(items.tolist(), wide.terms[own].tolist(), strict=True):
            assert terms == pytest.approx(plain.terms_of(bought.get(item)), rel=1e-12)
        may_add = set(ids.tolist())
        if widen_by == "listed":
            of_window = np.array(shop.recs["window"].to_pylist()) == labels[windows[unit]]
            may_add = set(shop.recs["item_id"].to_numpy()[of_window].tolist())
        listed = set(items[sources == 0].tolist())
        expected = set(plain.choose_own(bought, may_add, 30)) - listed
        assert set(items[(sources & OWN) > 0].tolist()) == expected
        assert set(items[(sources & TRENDING) > 0].tolist()) <= may_add - listed


def test_the_newest_purchases_are_not_known_in_their_window(shop, prepared):
    """Other purchases in the newest window, at the same times: all wider lists are the same."""
    newest = np.array(shop.recent["window"].to_pylist()) == max(shop.recent["window"].to_pylist())
    items = shop.recent["item_id"].to_numpy().copy()
    items[newest] = np.roll(items[newest], 5)
    other = RepeatShop(repeats=0.5, n_users=60, drift=1.0)
    other.recent = shop.recent.set_column(1, "item_id", pa.array(items))
    for one, two in zip(widen_all(*prepared), widen_all(*prepare(other)), strict=True):
        assert one.tolist() == two.tolist()


def widen_all(fit: BiasFit, counted: Counted) -> list[np.ndarray]:
    sampled = sample_units(counted, fit.shared)
    wide, _ = widen_units(sampled, fit.shared, "any")
    return [sampled.hashes, *wide.lists[:2], wide.sources, wide.terms]
