"""The page of a month: what is in it, and how it looks in a real browser."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from made_months import MONTHS, make_month
from made_results import HOSTILE
from pages import check_silent, read, specs_of
from trimtab.daily.simulated_month import DEFAULT, SCHEMA, WARM, Month, lift_of
from trimtab.errors import TrimtabError
from trimtab.report.month.month_page import build_month, write_month
from trimtab.report.month.month_words import lift_by_day, outcome, warm_start, what_was_done

Pages = Callable[[str], Path]
SECTIONS = ["headline", "lift", "seconds", "objective", "moves", "days", "guide"]


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """The page of a kind of month; built when first asked for."""
    folder = tmp_path_factory.mktemp("months")

    def page(kind: str) -> Path:
        path = folder / f"{kind}.html"
        if not path.exists():
            write_month(MONTHS[kind](), path)
        return path

    return page


@pytest.mark.parametrize("kind", MONTHS)
def test_sections_and_charts(pages: Pages, kind: str) -> None:
    page = read(pages(kind))
    found = [own["id"] for own in page.all("section")]
    boxes = [own for own in page.all("div") if own.get("class") == "chart"]

    assert found == (SECTIONS if kind != "one" else ["headline", "lift", "days", "guide"])
    assert [box["id"] for box in boxes] == list(specs_of(pages(kind)))
    assert len(boxes) == {"one": 1, "idle": 4}.get(kind, 6)
    assert all(box["role"] == "img" and box["aria-label"] for box in boxes)
    assert "nan" not in " ".join(page.text).lower().split()


def test_the_tables_have_all_days(pages: Pages) -> None:
    text = " ".join(read(pages("thirty")).text)
    month = MONTHS["thirty"]()

    assert len(read(pages("thirty")).all("details")) == 3
    for row in month.of(WARM):
        assert f"{row['value']:.4f}" in text
        assert f"{100 * (lift_of(row) or 0):+.1f}".replace("-", "−") in text
    assert text.count("30 Dec 2017") >= 3


def test_tips_say_how_many_bought(pages: Pages) -> None:
    month = MONTHS["thirty"]()
    lifts = specs_of(pages("thirty"))["chart-1"]
    row = month.of(DEFAULT)[4]

    assert f"{row['n_users']} users bought" in str(lifts)
    assert "over all days together" in str(lifts)


def test_names_from_outside_stay_text(pages: Pages) -> None:
    page = read(pages("hostile"))
    text = " ".join(page.text)

    assert not page.all("img")
    assert not page.all("b") + page.all("i")
    assert len(page.all("script")) == 3
    assert HOSTILE in text
    assert "{{ 7 * 7 }}<b>" in text


def test_nothing_points_outside_and_the_policy_is_the_reports(pages: Pages) -> None:
    page = read(pages("thirty"))
    targets = [own[key] for _, own in page.elements for key in ("src", "href") if key in own]
    (policy,) = [own["content"] for own in page.all("meta") if own.get("http-equiv")]

    assert all((target or "").startswith("#") for target in targets)
    assert (policy or "").startswith("default-src 'none'; script-src 'sha256-")
    assert "http" not in str(specs_of(pages("thirty")))


def test_same_month_same_bytes() -> None:
    assert build_month(make_month(4)) == build_month(make_month(4))


def test_what_a_warm_start_buys_is_said_in_numbers() -> None:
    month = make_month(30)
    time, reached = month.time_ratio(), month.objective_ratio()

    assert f"takes {time:.2f} times the seconds of a start from nothing" in warm_start(month)
    assert "0.50 times the cycles in all" in warm_start(month)
    assert ("higher" in warm_start(month)) == (reached >= 0.0005)
    assert "from the second day on" in warm_start(make_month(1))
    assert re.search(rf"{100 * month.lift(DEFAULT):.1f}.% higher than that of the", outcome(month))
    assert "trained every 7 nights" in what_was_done(MONTHS["closed"]())
    assert "there is no lift" in outcome(MONTHS["idle"]())
    assert "On 1 day nobody bought anything." in lift_by_day(MONTHS["closed"]())


def test_a_month_without_days_is_refused() -> None:
    with pytest.raises(TrimtabError, match="the month has no days"):
        build_month(Month({}, SCHEMA.empty_table()))


def test_without_the_libraries_that_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(TrimtabError, match=r"pip install 'trimtab\[report\]'"):
        build_month(make_month(2))


def test_importing_it_is_light() -> None:
    code = (
        "import sys, trimtab.report.month.month_page; "
        "sys.exit(bool({'altair', 'vl_convert', 'jinja2', 'numba'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize("kind", MONTHS)
def test_drawn_and_silent(visit: Callable[..., Any], kind: str, width: int, scheme: str) -> None:
    check_silent(visit(kind, width, scheme), width)


def test_days_are_labelled_once_each(visit: Callable[..., Any]) -> None:
    tab = visit("thirty").tab
    labels = tab.eval_on_selector_all(
        "#chart-1 .role-axis-label text", "all => all.map(one => one.textContent)"
    )
    days = [label for label in labels if "Dec" in label]

    assert days == ["1 Dec", "6 Dec", "11 Dec", "16 Dec", "21 Dec", "26 Dec"]
