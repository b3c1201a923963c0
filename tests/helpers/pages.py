"""All pages of all kinds, in a browser and as parsed HTML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from made_months import MONTHS
from made_results import KINDS
from made_verdicts import VERDICTS
from trimtab.report import write_month, write_report, write_verdict

Pages = Callable[[str], Path]
PAGES = [
    *(f"backtest-{kind}" for kind in KINDS),
    *(f"month-{kind}" for kind in MONTHS),
    *(f"verdict-{kind}" for kind in VERDICTS),
]


def write_any(name: str, path: Path) -> None:
    """Write the page with this name in PAGES."""
    page, _, kind = name.partition("-")
    if page == "backtest":
        write_report(KINDS[kind](), path, all_tables=True)
    elif page == "month":
        write_month(MONTHS[kind](), path)
    else:
        write_verdict(VERDICTS[kind](), path)


UNFOLD = "document.querySelectorAll('details').forEach(fold => { fold.open = true; })"
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

    def resize(self, width: int) -> None:
        """Set the width of the window and wait until all charts are drawn again."""
        self.tab.evaluate("delete document.documentElement.dataset.charts")
        self.tab.set_viewport_size({"width": width, "height": 900})
        self.wait()

    def wait(self) -> None:
        """Wait until all charts are drawn."""
        self.tab.wait_for_selector("html[data-charts=drawn]", timeout=60_000)


def check_drawn(seen: Visit, width: int) -> None:
    """Check that all charts are drawn, nothing is cut off, and the page is silent and narrow.

    Everything is unfolded for that, and folded again.
    """
    seen.tab.evaluate(UNFOLD)
    assert seen.messages == []
    assert seen.dialogs == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert seen.tab.evaluate(SMALL) == []
    assert seen.tab.evaluate(CLIPPED) == []
    assert seen.tab.evaluate("document.documentElement.scrollWidth") <= width
    seen.tab.evaluate(
        "document.querySelectorAll('details').forEach(fold => { fold.open = false; })"
    )


class Reader(HTMLParser):
    """Collects elements, their attributes, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.raw = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.raw = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.raw = False

    def handle_data(self, data: str) -> None:
        if not self.raw:
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        """All text, with single spaces."""
        return " ".join(" ".join(self.text).split())


def read_page(path: Path) -> Reader:
    return Reader(path.read_text("utf-8"))


def read_specs(path: Path) -> dict[str, object]:
    found = re.search(r'id="specs">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert found
    specs: dict[str, object] = json.loads(found[1])
    return specs
