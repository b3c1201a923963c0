"""Pages of several kinds of results, each built once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_results import KINDS

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
