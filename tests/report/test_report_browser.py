"""The pages in a real browser, from files: drawn, silent, and never wider than the screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from made_results import HOSTILE
from pages import CONTRAST, PAGES, Visit, check_drawn

pytestmark = pytest.mark.xdist_group("report-pages")
Open = Callable[..., Visit]


HEIGHTS = {  # before pages were folded
    "backtest-demo": 16_400, "backtest-many": 13_182, "month-thirty": 1_708,
    "verdict-totals": 2_282, "verdict-table": 4_314,
}  # fmt: skip
CUT = """() => [...document.querySelectorAll('.scroll')]
    .filter(table => table.scrollWidth > table.clientWidth + 1).map(table => table.ariaLabel)"""
FIRST = "() => document.querySelector('.first .chart svg').getBoundingClientRect()"


@pytest.mark.parametrize("name", PAGES)
def test_drawn_on_a_dark_phone_and_on_a_light_screen(visit: Open, name: str) -> None:
    seen = visit(name, 390, "dark")
    check_drawn(seen, 390)
    if name in HEIGHTS:
        assert seen.tab.evaluate(FIRST)["top"] < 700
    seen.tab.emulate_media(color_scheme="light")
    seen.resize(1280)
    check_drawn(seen, 1280)
    if name in HEIGHTS:
        check_first_screen(seen.tab)
        assert seen.tab.evaluate("document.body.offsetHeight") <= HEIGHTS[name] / 2


def check_first_screen(tab: Any) -> None:
    """Check that the decision and the whole chart are on the first screen."""
    assert tab.locator(".first h2").bounding_box()["y"] < 150
    assert tab.evaluate(FIRST)["bottom"] < 800


def test_no_table_is_cut_at_1280_and_a_phone_says_that_it_is(visit: Open) -> None:
    seen = visit("verdict-table")
    tab = seen.tab
    tab.click("#unfold")
    assert tab.evaluate(CUT) == []
    seen.resize(390)
    table = tab.locator("#intervals .scroll").first
    cue = "own => getComputedStyle(own, '::before').content"

    assert "Scroll sideways" in table.evaluate(cue)
    assert table.get_attribute("data-more") == "yes  right"
    table.evaluate("own => { own.scrollLeft = own.scrollWidth; }")
    tab.wait_for_selector("#intervals .scroll[data-more='yes left ']")


def test_readable_in_both_schemes_which_switch_without_a_reload(visit: Open) -> None:
    tab = visit("backtest-demo").tab
    label = "getComputedStyle(document.querySelector('.role-axis-label text')).fill"
    colours = []
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        colours.append(tab.evaluate(label))
        text, mark = tab.evaluate(CONTRAST)
        assert text >= 4.5
        assert mark >= 3
    assert colours[0] != colours[1]


def test_hostile_names_are_text_in_tables_charts_and_tips(visit: Open) -> None:
    seen = visit("backtest-hostile")
    tab = seen.tab

    assert HOSTILE in tab.text_content("#moved table")
    assert HOSTILE in tab.title()
    labels = tab.eval_on_selector_all("svg text", "all => all.map(one => one.textContent)")
    assert any(label.startswith("</script><img src=x") for label in labels)
    tab.click("#unfold")
    tips = _read_tips(tab, "#moved .chart .mark-symbol path")
    assert any(HOSTILE in tip for tip in tips)
    assert seen.messages == []
    assert seen.dialogs == []
    assert tab.query_selector("img") is None


def _read_tips(tab: Any, selector: str) -> set[str]:
    tips = set()
    for mark in tab.query_selector_all(selector)[:12]:
        mark.scroll_into_view_if_needed()
        box = mark.bounding_box()
        tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        tips.add(tab.text_content("#tip"))
    return tips


def test_the_policy_blocks_requests_and_other_scripts(visit: Open) -> None:
    seen = visit("backtest-one")
    fetched = seen.tab.evaluate(
        "fetch('https://example.org/').then(() => 'fetched', () => 'refused')"
    )
    ran = seen.tab.evaluate(
        "() => { const own = document.createElement('script'); own.textContent = 'window.ran = 1';"
        " document.body.append(own); return window.ran ?? 'refused'; }"
    )

    assert (fetched, ran) == ("refused", "refused")
    assert [url for url in seen.requests if url.startswith("http")] == []


def test_days_have_labels_at_equal_steps_and_folds_open_by_link_and_for_print(visit: Open) -> None:
    tab = visit("month-thirty").tab
    labels = tab.eval_on_selector_all(
        "#chart-1 .role-axis-label text", "all => all.map(one => one.textContent)"
    )
    assert [label for label in labels if "Dec" in label] == [
        "1 Dec", "6 Dec", "11 Dec", "16 Dec", "21 Dec", "26 Dec"
    ]  # fmt: skip
    assert tab.locator("details[open]").count() == 0
    tab.evaluate("location.hash = '#guide'")
    tab.wait_for_selector("#guide details[open]")
    assert tab.locator("details:not([open])").count() > 0
    tab.pdf()
    assert tab.locator("details:not([open])").count() == 0
