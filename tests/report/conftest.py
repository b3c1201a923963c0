"""Pages of several kinds of results, each built once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from made_results import KINDS
from pages import Pages, Visit
from trimtab.report import write_report


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The page of a kind of results; built when first asked for."""
    folder = tmp_path_factory.mktemp("pages")

    def page(kind: str) -> Path:
        path = folder / f"{kind}.html"
        if not path.exists():
            write_report(KINDS[kind](), path)
        return path

    return page


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
