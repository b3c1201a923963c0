"""Promotions in generated logs: sales on their days, and nothing else changed."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from trimtab.datasets import KINDS, Promotion, draw_promotions, generate_items, generate_log
from trimtab.errors import SettingError

SETTINGS = {"n_users": 20_000, "n_items": 300, "days": 40, "drift": 0.0}
START = int(datetime(2026, 1, 5, tzinfo=UTC).timestamp())


def sales(log: pa.Table, n_items: int = 300, days: int = 40) -> np.ndarray:
    """Sales by [item, day]."""
    day = log["timestamp"].cast(pa.int64()).to_numpy() // 1_000_000 - START
    counts = np.zeros((n_items, days), np.int64)
    np.add.at(counts, (log["item_id"].to_numpy(), day // 86_400), 1)
    return counts


@pytest.fixture(scope="module")
def rare() -> int:
    """An item of a small share: others hardly notice its promotion."""
    return int(np.argsort(generate_items(300, 0.0).weight)[0])


def share_ratio(counts: np.ndarray, item: int, on: slice) -> float:
    """Share of all sales on some days, over the share on all other days."""
    off = np.ones(counts.shape[1], bool)
    off[on] = False
    inside = counts[item, on].sum() / counts[:, on].sum()
    return float(inside / (counts[item, off].sum() / counts[:, off].sum()))


@pytest.mark.parametrize("strength", [0.2, 5.0, 20.0])
def test_an_item_sells_strength_times_its_usual(rare: int, strength: float) -> None:
    promotion = Promotion(rare, first_day=10, days=20, strength=strength)
    counts = sales(generate_log(**SETTINGS, promotions=[promotion]))
    assert share_ratio(counts, rare, slice(10, 30)) == pytest.approx(strength, rel=0.2)


def test_sales_start_and_end_with_the_days(rare: int) -> None:
    promotion = Promotion(rare, first_day=20, days=4, strength=50.0)
    counts = sales(generate_log(**SETTINGS, promotions=[promotion]))[rare]
    assert counts[20:24].min() > 3 * max(counts[19], counts[24])


def test_promotions_of_the_same_day_multiply(rare: int) -> None:
    both = [Promotion(rare, 10, 20, 4.0), Promotion(rare, 10, 20, 5.0)]
    counts = sales(generate_log(**SETTINGS, promotions=both))
    once = sales(generate_log(**SETTINGS, promotions=[Promotion(rare, 10, 20, 20.0)]))
    assert np.array_equal(counts, once)


def test_users_buy_no_more_in_total(rare: int) -> None:
    plain = generate_log(**SETTINGS)
    promoted = generate_log(**SETTINGS, promotions=[Promotion(rare, 10, 5, 20.0)])
    assert plain.num_rows == promoted.num_rows
    assert plain["timestamp"].equals(promoted["timestamp"])


def test_promotions_that_change_nothing_change_no_byte(rare: int) -> None:
    after_the_end = Promotion(rare, first_day=40, days=5, strength=20.0)
    same = Promotion(rare, first_day=3, days=5, strength=1.0)
    assert generate_log(**SETTINGS, promotions=[after_the_end, same]).equals(
        generate_log(**SETTINGS)
    )


def test_drawn_promotions_start_or_end_together() -> None:
    items = generate_items(500, drift=1.0)
    starting = draw_promotions(items, 20, 5.0, starting=12)
    ending = draw_promotions(items, 20, 5.0, ending=12)
    assert {promotion.first_day for promotion in starting} == {12}
    assert {promotion.end_day for promotion in ending} == {12}
    for drawn in (starting, ending):
        assert len({promotion.item for promotion in drawn}) == 20
        assert {promotion.days for promotion in drawn} == {3, 4, 5, 6, 7}
        assert {promotion.strength for promotion in drawn} == {5.0}


def test_drawn_items_are_popular_and_on_sale() -> None:
    items = generate_items(500, drift=1.0)
    rank = np.argsort(np.argsort(-items.weight))
    chosen = [promotion.item for promotion in draw_promotions(items, 20, starting=0)]
    assert (rank[chosen] < 60).all()
    lower = draw_promotions(items, 20, starting=0, ranks=(100, 130))
    assert (rank[[promotion.item for promotion in lower]] >= 100).all()
    assert not {"new", "withdrawn"} & {KINDS[kind] for kind in items.kind[chosen]}


def test_the_seed_decides_the_draw() -> None:
    items = generate_items(500)
    first, again, other = (draw_promotions(items, 5, starting=0, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"item": -1}, "item=-1"),
        ({"first_day": -1}, "first_day=-1"),
        ({"days": 0}, "days=0"),
        ({"strength": 0}, "strength=0"),
        ({"strength": 1_000}, "strength=1000"),
    ],
)
def test_bad_promotions_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(SettingError, match=f"^{message}: "):
        Promotion(**({"item": 1, "first_day": 2, "days": 3, "strength": 4.0} | settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "starting=None, ending=None"),
        ({"starting": 1, "ending": 9}, "starting=1, ending=9"),
        ({"ending": 6}, "ending=6"),
        ({"starting": 1, "n": 51}, "n=51"),
        ({"starting": 1, "ranks": (-1, 5)}, r"ranks\[0\]=-1"),
        ({"starting": 1, "ranks": (5, 5)}, r"ranks\[1\]=5"),
    ],
)
def test_bad_draws_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(SettingError, match=f"^{message}: "):
        draw_promotions(generate_items(300), **({"n": 2} | settings))


def test_unknown_items_are_refused() -> None:
    with pytest.raises(SettingError, match=r"^item=300: "):
        generate_log(**SETTINGS, promotions=[Promotion(300, 1, 1, 2.0)])
