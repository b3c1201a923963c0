"""The page in a real browser, from a file: drawn, silent, and nowhere wider than the screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from made_results import HOSTILE, KINDS
from pages import CONTRAST, Visit, check_silent


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_and_silent(visit: Callable[..., Visit], kind: str, width: int, scheme: str) -> None:
    check_silent(visit(kind, width, scheme), width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_readable_in_both_schemes(visit: Callable[..., Visit], scheme: str) -> None:
    text, mark = visit("demo", 1280, scheme).tab.evaluate(CONTRAST)

    assert text >= 4.5
    assert mark >= 3


def test_schemes_differ_and_change_at_once(visit: Callable[..., Visit]) -> None:
    tab = visit("demo").tab
    label = "getComputedStyle(document.querySelector('.role-axis-label text')).fill"
    light = tab.evaluate(label)
    tab.emulate_media(color_scheme="dark")

    assert tab.evaluate(label) != light


def test_hostile_names_are_text_in_tables_charts_and_tips(visit: Callable[..., Visit]) -> None:
    seen = visit("hostile")
    tab = seen.tab

    assert HOSTILE in tab.text_content("#moved table")
    assert HOSTILE in tab.title()
    labels = tab.eval_on_selector_all("svg text", "all => all.map(one => one.textContent)")
    assert any(label.startswith("</script><img src=x") for label in labels)
    tips = _tips(tab, "#moved .chart .mark-symbol path")
    assert any(HOSTILE in tip for tip in tips)
    assert seen.messages == []
    assert seen.dialogs == []
    assert tab.query_selector("img") is None


def _tips(tab: Any, selector: str) -> set[str]:
    tips = set()
    for mark in tab.query_selector_all(selector)[:12]:
        mark.scroll_into_view_if_needed()
        box = mark.bounding_box()
        tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        tips.add(tab.text_content("#tip"))
    return tips


def test_the_policy_holds(visit: Callable[..., Visit]) -> None:
    seen = visit("one")
    went = seen.tab.evaluate(
        "fetch('https://example.org/').then(() => 'went out', () => 'refused')"
    )
    ran = seen.tab.evaluate(
        "() => { const own = document.createElement('script'); own.textContent = 'window.ran = 1';"
        " document.body.append(own); return window.ran ?? 'refused'; }"
    )

    assert (went, ran) == ("refused", "refused")
    assert [url for url in seen.requests if url.startswith("http")] == []


def test_charts_follow_the_width_of_the_window(visit: Callable[..., Visit]) -> None:
    tab = visit("demo", 1280).tab
    tab.set_viewport_size({"width": 390, "height": 900})
    tab.wait_for_function(
        "document.querySelector('#chart-1 svg').getAttribute('width') <= 390", timeout=20_000
    )

    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_tables_unfold_for_print(visit: Callable[..., Visit]) -> None:
    tab = visit("demo").tab
    assert tab.eval_on_selector_all("details[open]", "all => all.length") == 0
    tab.pdf()

    assert tab.eval_on_selector_all("details:not([open])", "all => all.length") == 0
