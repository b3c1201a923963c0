"""The page of a simulated month: its numbers."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from made_months import MONTHS, make_month
from made_results import plain
from pages import Pages, read_page, read_specs
from trimtab.daily.simulate import BIASES_ALONE, SCHEMA, WITH_RERANKER, Month, lift_of
from trimtab.errors import TrimtabError
from trimtab.report.month_page import (
    build_month,
    find_interval,
    say,
)

pytestmark = pytest.mark.xdist_group("report-pages")


def write_percent(value: float) -> str:
    return f"{100 * value:+.1f}\N{NO-BREAK SPACE}%".replace("-", "−")


def test_all_days_are_in_the_table_and_in_the_chart(pages: Pages) -> None:
    page = read_page(pages("month-thirty"))
    chart = json.dumps(read_specs(pages("month-thirty"))["chart-1"], ensure_ascii=False)

    assert len(page.all("details")) == 2
    for row in MONTHS["thirty"]().rows:
        assert f"{row['value']:.4f}" in page.words
        assert plain(write_percent(lift_of(row) or 0)) in page.words
        assert f"{write_percent(lift_of(row) or 0)}; {row['n_users']} buyers" in chart
    assert "30 Dec 2017" in page.words


def test_refused_mornings_are_shown_with_their_reason(pages: Pages) -> None:
    month, page = MONTHS["closed"](), read_page(pages("month-closed"))
    (refused,) = [row["refused"] for row in month.rows if row["refused"] is not None]

    assert refused in page.words
    assert "the shop kept the version that it had" in page.words
    assert "3 of 4" in say("days", month)
    assert "square" in str(read_specs(pages("month-closed")))
    assert "square" not in str(read_specs(pages("month-thirty")))


def test_sentences_have_the_numbers() -> None:
    month = MONTHS["thirty"]()
    lifts = [lift_of(row) or 0 for row in month.rows]

    assert write_percent(month.lift()) in say("outcome", month)
    assert "{} of {} days".format(*month.days_above()) in say("outcome", month)
    for extreme in (min(lifts), max(lifts)):
        assert write_percent(extreme) in say("guide", month)
    assert "every 7 nights" in say("setup", MONTHS["closed"]())
    assert "1 day without buyers" in say("guide", MONTHS["closed"]())
    assert "no lift" in say("outcome", MONTHS["idle"]())
    with pytest.raises(TrimtabError, match="days"):
        build_month(Month({}, SCHEMA.empty_table()))


def test_the_first_line_says_whether_to_switch_it_on() -> None:
    for name, action, reason in (
        ("thirty", "Switch it on", ""),
        ("closed", "Do not switch it on", "not a sure gain"),  # two days vary too much
        ("one", "Do not switch it on", "one day says nothing about the next"),
        ("idle", "Nothing to judge", ""),
    ):
        assert say("action", MONTHS[name]()) == action
        assert reason in say("outcome", MONTHS[name]())
        assert ("not a sure gain" in say("outcome", MONTHS[name]())) == bool(reason)
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
