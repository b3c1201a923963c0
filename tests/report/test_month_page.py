"""The page of a simulated month: its numbers."""

from __future__ import annotations

import json

import pytest

from made_months import MONTHS
from pages import Pages, read_page, read_specs
from trimtab.daily.simulated_month import SCHEMA, Month, lift_of
from trimtab.errors import TrimtabError
from trimtab.report.month.month_page import (
    build_month,
    describe_days,
    describe_lifts,
    describe_outcome,
    describe_setup,
)

pytestmark = pytest.mark.xdist_group("report-pages")


def write_percent(value: float) -> str:
    return f"{100 * value:+.1f}\N{NO-BREAK SPACE}%".replace("-", "−")


def test_the_table_has_all_days(pages: Pages) -> None:
    page = read_page(pages("month-thirty"))

    assert len(page.all("details")) == 1
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
    assert "3 of 4" in describe_days(MONTHS["closed"]())
    assert "square" in str(read_specs(pages("month-closed")))
    assert "square" not in str(read_specs(pages("month-thirty")))


def test_sentences_have_the_numbers() -> None:
    month = MONTHS["thirty"]()
    lifts = {row["day"]: lift_of(row) or 0 for row in month.rows}

    assert write_percent(month.lift()) in describe_outcome(month)
    assert "{} of {} days".format(*month.days_above()) in describe_outcome(month)
    for extreme in (min(lifts.values()), max(lifts.values())):
        assert write_percent(extreme) in describe_lifts(month)
    assert "every 7 nights" in describe_setup(MONTHS["closed"]())
    assert "1 day without buyers" in describe_lifts(MONTHS["closed"]())
    assert "no lift" in describe_outcome(MONTHS["idle"]())


def test_a_month_without_days_is_refused() -> None:
    with pytest.raises(TrimtabError, match="days"):
        build_month(Month({}, SCHEMA.empty_table()))
