"""The page in a real browser, from a file: drawn, silent, and nowhere wider than the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from made_results import HOSTILE, KINDS

Pages = Callable[[str], Path]
SMALL = """() => [...document.querySelectorAll('.chart')].filter(box => {
    const drawing = box.querySelector('svg');
    const size = drawing ? drawing.getBoundingClientRect() : {width: 0, height: 0};
    return size.width < 150 || size.height < 30 || !drawing.querySelector('.role-mark path, .role-mark line');
}).map(box => box.id)"""  # noqa: E501
CLIPPED = """() => [...document.querySelectorAll('.chart')].flatMap(box => {
    const frame = box.querySelector('svg').getBoundingClientRect();
    return [...box.querySelectorAll('text')].filter(text => {
        const own = text.getBoundingClientRect();
        return own.left < frame.left - 1 || own.right > frame.right + 1
            || own.top < frame.top - 1 || own.bottom > frame.bottom + 1;
    }).map(text => box.id + ': ' + text.textContent);
})"""
CONTRAST = """() => {
    const light = colour => {
        const parts = colour.match(/[0-9.]+/g).slice(0, 3).map(part => {
            const share = part / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const ground = light(getComputedStyle(document.body).backgroundColor);
    const against = colour => {
        const own = light(colour);
        return (Math.max(own, ground) + 0.05) / (Math.min(own, ground) + 0.05);
    };
    const texts = [...document.querySelectorAll('p, h1, h2, h3, td, th, a, summary, li')]
        .map(text => against(getComputedStyle(text).color));
    const labels = [...document.querySelectorAll('.chart .role-axis-label text')]
        .map(text => against(getComputedStyle(text).fill));
    const marks = [...document.querySelectorAll('.mark')]
        .map(mark => against(getComputedStyle(mark).color));
    return [Math.min(...texts, ...labels), Math.min(...marks)];
}"""


@dataclass
class Visit:
    """A page in a tab, and what happened there."""

    tab: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)


@pytest.fixture
def visit(browser: Any, pages: Pages) -> Iterator[Callable[..., Visit]]:
    contexts = []

    def open_page(kind: str, width: int = 1280, scheme: str = "light") -> Visit:
        size = {"width": width, "height": 900}
        contexts.append(browser.new_context(viewport=size, color_scheme=scheme))
        seen = Visit(contexts[-1].new_page())
        seen.tab.on("console", lambda message: seen.messages.append(message.text))
        seen.tab.on("pageerror", lambda error: seen.messages.append(str(error)))
        seen.tab.on("request", lambda request: seen.requests.append(request.url))
        seen.tab.on(
            "dialog", lambda dialog: (seen.dialogs.append(dialog.message), dialog.dismiss())
        )
        seen.tab.goto(pages(kind).as_uri())
        seen.tab.wait_for_selector("html[data-charts=drawn]", timeout=60_000)
        return seen

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_and_silent(visit: Callable[..., Visit], kind: str, width: int, scheme: str) -> None:
    check_silent(visit(kind, width, scheme), width)


def check_silent(seen: Visit, width: int) -> None:
    """Nothing is said, asked of others, drawn too small, cut off or wider than the window."""
    assert seen.messages == []
    assert seen.dialogs == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert seen.tab.evaluate(SMALL) == []
    assert seen.tab.evaluate(CLIPPED) == []
    assert seen.tab.evaluate("document.documentElement.scrollWidth") <= width


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
