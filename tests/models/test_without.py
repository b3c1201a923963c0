"""A reranker with a part left out ranks as if it had never learned that part."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

from trimtab import models
from trimtab.errors import SettingError


@pytest.fixture(scope="module")
def shop(learned, repeat_shop):
    few = pc.less(repeat_shop.tonight["user_id"], 60)
    assert "own" in learned.summary.sources
    return learned, repeat_shop.tonight.filter(few), repeat_shop.known


def pairs(table) -> set[tuple[int, int]]:
    return set(zip(table["user_id"].to_pylist(), table["item_id"].to_pylist(), strict=True))


def test_without_personal_all_users_are_ranked_by_the_biases(shop):
    reranker, tonight, history = shop
    plain = reranker.without("personal")
    assert plain.apply(tonight, 5, history=history).equals(reranker.bias.apply(tonight, 5))
    assert plain.coefficients().num_rows == 0
    assert (plain.summary.kept, plain.summary.sources, plain.summary.forecast) == (0.0, (), None)


def test_without_a_source_nothing_is_added_from_it(shop):
    reranker, tonight, history = shop
    listed, bought = pairs(tonight), pairs(history)
    whole = pairs(reranker.apply(tonight, 5, history=history)) - listed
    assert whole & bought
    narrow = reranker.without("own").without("trending")
    assert pairs(narrow.apply(tonight, 5, history=history)) <= listed
    assert "own" not in narrow.coefficients()["name"].to_pylist()
    assert narrow.summary.kept == reranker.summary.kept


def test_the_reranker_itself_stays_as_it_is_and_what_is_left_can_be_saved(shop, tmp_path):
    reranker, tonight, history = shop
    before = reranker.apply(tonight, 5, history=history)
    for part in ("personal", "trending", "own"):
        left = reranker.without(part)
        assert left.without(part).coefficients().equals(left.coefficients())
        left.save(tmp_path / part)
        loaded, top = models.load(tmp_path / part), left.apply(tonight, 5, history=history)
        assert loaded.apply(tonight, 5, history=history).equals(top)
    assert reranker.apply(tonight, 5, history=history).equals(before)
    assert reranker.summary.forecast is not None
    with pytest.raises(SettingError, match=r"part='trend'.*personal, trending, own"):
        reranker.without("trend")
