"""Each library has a page with the whole path in under ten lines, and the page is true.

The pages of the libraries that install beside ours are run with all other pages; those of LensKit
and RecTools are run here, in environments of their own.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from adapter_cases import LIBRARY

FOLDER = Path(__file__).parents[2] / "docs" / "engines"
PAGES = ("implicit", "lightfm", "lenskit", "rectools", "matrices", "tables")


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", (FOLDER / f"{page}.md").read_text(), re.M | re.S)


@pytest.mark.parametrize("page", PAGES)
def test_the_whole_path_takes_under_ten_lines(page):
    (code,) = blocks(page, "python")
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) < 10
    assert max(map(len, lines)) <= 100
    assert ";" not in code
    path = ("split_log(", "recs_from(", "n=50", ".fit(", "split.recent", ".apply(", "split.test")
    assert [step for step in path if step not in code] == []
    assert len(blocks(page, "text")) == 1


if LIBRARY:

    def test_the_page_prints_what_it_says():
        (code,), (shown,) = blocks(LIBRARY, "python"), blocks(LIBRARY, "text")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{LIBRARY}.md", "exec"), {})
        assert printed.getvalue() == shown
