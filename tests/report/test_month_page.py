"""The page of a simulated month: its numbers."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from made_months import MONTHS, make_month
from pages import Pages, read_page, read_specs
from trimtab.daily.simulated_month import BIASES_ALONE, SCHEMA, WITH_RERANKER, Month, lift_of
from trimtab.errors import TrimtabError
from trimtab.report.month_page import (
    ShownItem,
    ShownItems,
    build_month,
    count_shown,
    find_interval,
    say,
    shown_table,
)

pytestmark = pytest.mark.xdist_group("report-pages")


def write_percent(value: float) -> str:
    return f"{100 * value:+.1f}\N{NO-BREAK SPACE}%".replace("-", "−")


def test_the_table_has_all_days(pages: Pages) -> None:
    page = read_page(pages("month-thirty"))

    assert len(page.all("details")) == 2
    for row in MONTHS["thirty"]().rows:
        assert f"{row['value']:.4f}" in page.words
        assert f"{100 * (lift_of(row) or 0):+.1f}".replace("-", "−") in page.words
    assert "30 Dec 2017" in page.words


def test_tips_show_the_number_of_buyers(pages: Pages) -> None:
    row = MONTHS["thirty"]().rows[4]
    lifts = json.dumps(read_specs(pages("month-thirty"))["chart-1"], ensure_ascii=False)

    assert f"{row['n_users']} buyers" in lifts
    assert write_percent(lift_of(row) or 0) in lifts


def test_refused_mornings_are_shown_with_their_reason(pages: Pages) -> None:
    (refused,) = [row for row in MONTHS["closed"]().rows if row["refused"] is not None]

    assert refused["refused"] in read_page(pages("month-closed")).words
    assert "3 of 4" in say("days", MONTHS["closed"]())
    assert "square" in str(read_specs(pages("month-closed")))
    assert "square" not in str(read_specs(pages("month-thirty")))
    assert "the shop kept the version that it had" in read_page(pages("month-closed")).words


def test_sentences_have_the_numbers() -> None:
    month = MONTHS["thirty"]()
    lifts = {row["day"]: lift_of(row) or 0 for row in month.rows}

    assert write_percent(month.lift()) in say("outcome", month)
    assert "{} of {} days".format(*month.days_above()) in say("outcome", month)
    for extreme in (min(lifts.values()), max(lifts.values())):
        assert write_percent(extreme) in say("guide", month)
    assert "every 7 nights" in say("setup", MONTHS["closed"]())
    assert "1 day without buyers" in say("guide", MONTHS["closed"]())
    assert "no lift" in say("outcome", MONTHS["idle"]())


def test_users_who_see_an_item_are_counted_by_hand() -> None:
    lists = pa.table(
        {"user_id": ["b", "a", "a", "a", "b"], "item_id": [1, 3, 2, 1, 2],
         "score": [0.5, 0.9, 0.5, 0.5, 0.1]}
    )  # fmt: skip

    assert count_shown(lists, 1) == {3: 1, 1: 1}
    assert count_shown(lists, 2) == {3: 1, 1: 2, 2: 1}  # of equal scores, the smaller id
    assert count_shown(lists.slice(0, 0), 2) == {}


def test_the_items_that_gain_and_lose_most() -> None:
    items = [ShownItem(f"item {n}", 100, 100 + n) for n in range(20, -21, -1) if n]
    table = shown_table(ShownItems("2020-01-06", items))

    assert [row[0].text for row in table.rows][::8] == ["item 20", "item -20"]
    assert table.rows[0][3].text == "+20"
    page = build_month(MONTHS["two"](), ShownItems("2020-01-06", items))
    assert "item 20 gained most: 120 users see it, 100 with" in page
    assert "gained most" not in build_month(MONTHS["two"](), ShownItems("2020-01-06", []))


def test_a_month_without_days_is_refused() -> None:
    with pytest.raises(TrimtabError, match="days"):
        build_month(Month({}, SCHEMA.empty_table()))


def test_the_first_line_says_whether_to_switch_it_on() -> None:
    for name, action in (
        ("thirty", "Switch it on"),
        ("closed", "Do not switch it on"),  # two days vary too much
        ("one", "Do not switch it on"),  # and one day says nothing
        ("idle", "Nothing to judge"),
    ):
        assert say("action", MONTHS[name]()) == action
    assert "one day says nothing about the next" in say("outcome", MONTHS["one"]())
    assert "not a sure gain" not in say("outcome", MONTHS["thirty"]())


def test_the_reranker_is_switched_on_if_it_is_ahead_of_its_biases() -> None:
    for ahead, what in ((0.05, "reranker"), (0.0, "bias")):
        month = make_month(30, reranker=True)
        rows = [{**row, BIASES_ALONE: row["value"] - ahead * row["baseline"]} for row in month.rows]
        both = Month(month.about, pa.Table.from_pylist(rows, WITH_RERANKER))
        assert say("action", both) == f"Switch on the {what}"
        assert "The biases alone changed it by" in say("outcome", both)


def test_the_interval_is_that_of_a_ratio_of_sums() -> None:
    same = make_month(8)
    rows = [{**row, "value": 1.2 * row["baseline"]} for row in same.rows]
    low, high = find_interval(Month(same.about, pa.Table.from_pylist(rows, SCHEMA)))
    assert (low, high) == pytest.approx((0.2, 0.2))
    low, high = find_interval(same)
    lifts = [(lift_of(row) or 0) for row in same.rows]
    assert low < same.lift() < high
    assert high - low == pytest.approx(2 * 2.365 * np.std(lifts, ddof=1) / 8**0.5, rel=0.2)
