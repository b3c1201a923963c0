"""Every page, built once, and a browser to open it in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pages import Pages, Visit, write_any


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """Returns the path of a page, which is built at the first call."""
    folder = tmp_path_factory.mktemp("pages")

    def page(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            write_any(name, path)
        return path

    return page


@pytest.fixture
def visit(browser: Any, pages: Pages) -> Iterator[Callable[..., Visit]]:
    contexts = []

    def open_page(name: str, width: int = 1280, scheme: str = "light") -> Visit:
        size = {"width": width, "height": 900}
        contexts.append(browser.new_context(viewport=size, color_scheme=scheme))
        seen = Visit(contexts[-1].new_page())
        seen.tab.on("console", lambda message: seen.messages.append(message.text))
        seen.tab.on("pageerror", lambda error: seen.messages.append(str(error)))
        seen.tab.on("request", lambda request: seen.requests.append(request.url))
        seen.tab.on(
            "dialog", lambda dialog: (seen.dialogs.append(dialog.message), dialog.dismiss())
        )
        seen.tab.goto(pages(name).as_uri())
        seen.wait()
        return seen

    yield open_page
    for context in contexts:
        context.close()
