"""Category, popularity and repeat engines on logs small enough to check by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from trimtab.engines import Category, Popularity, Repeat
from trimtab.errors import DataError, SettingError

AS_OF = datetime(2026, 2, 1, tzinfo=UTC)


def log(*rows: tuple[int, int, int]) -> pa.Table:
    """(user, item, days ago) as events."""
    users, items, days = zip(*rows, strict=True)
    stamps = [AS_OF - timedelta(days=ago) for ago in days]
    return pa.table({"user_id": users, "item_id": items, "timestamp": stamps})


CATALOGUE = pa.table(
    {"item_id": [1, 2, 3, 4], "category": ["a", "a", "b", None], "aisle": ["x", "x", "x", "x"]}
)


def scores(engine, events, users=None):
    recs = engine.fit(events, AS_OF).recommend(users)
    return {(u, i): s for u, i, s in zip(*recs.to_pydict().values(), strict=True)}


def test_category_sums_over_categories():
    # User 7 bought 2 of 3 times in a; in the last 10 days a sold item 1 once, item 2 thrice.
    events = log((7, 1, 20), (7, 1, 9), (7, 3, 30), (8, 2, 5), (8, 2, 4), (8, 2, 3), (9, 3, 2))
    found = scores(Category(items=CATALOGUE, window_days=10), events, [7])
    assert found == pytest.approx({(7, 1): 2 / 3 / 4, (7, 2): 2 / 3 * 3 / 4, (7, 3): 1 / 3})


def test_category_at_another_level():
    events = log((7, 1, 2), (8, 2, 3), (9, 3, 4))
    found = scores(Category(items=CATALOGUE, level="aisle"), events, [7])
    assert found == pytest.approx({(7, 1): 1 / 3, (7, 2): 1 / 3, (7, 3): 1 / 3})


def test_items_without_a_category_are_one_category():
    events = log((7, 4, 2), (8, 5, 3), (8, 1, 3))  # 5 is not in the catalogue
    found = scores(Category(items=CATALOGUE), events, [7])
    assert found == pytest.approx({(7, 4): 0.5, (7, 5): 0.5})


def test_unknown_levels_and_ids_of_another_kind_are_refused():
    with pytest.raises(SettingError, match=r"level='shelf'.*category, aisle"):
        Category(items=CATALOGUE, level="shelf")
    catalogue = pa.table({"item_id": ["1"], "category": ["a"]})
    with pytest.raises(DataError, match=r"integers in events.*strings in items"):
        Category(items=catalogue).fit(log((7, 1, 2)), AS_OF)


def test_popularity_is_a_share_of_sales_and_decays():
    events = log((1, 5, 1), (2, 5, 2), (3, 6, 3), (3, 7, 40))
    assert scores(Popularity(), events, [99]) == {(99, 5): 0.5, (99, 6): 0.25, (99, 7): 0.25}
    recent = scores(Popularity(window_days=7), events, [99])
    assert recent == pytest.approx({(99, 5): 2 / 3, (99, 6): 1 / 3})
    events = log((1, 5, 0.5), (2, 6, 10.5))
    found = scores(Popularity(decay_days=10), events, [1])
    assert found[1, 5] / found[1, 6] == pytest.approx(2.718281828)


def test_repeat_is_a_share_of_the_users_purchases():
    events = log((1, 5, 1), (1, 5, 2), (1, 6, 3), (2, 7, 1))
    assert scores(Repeat(), events) == pytest.approx({(1, 5): 2 / 3, (1, 6): 1 / 3, (2, 7): 1.0})
