"""The pages as text: what is in them, what is escaped, how they are written."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from made_months import MONTHS
from made_results import (
    DEMO_DATES,
    HOSTILE,
    KINDS,
    make_results,
    one_row,
    plain,
    table,
    weekly_dates,
)
from made_verdicts import VERDICTS
from pages import PAGES, Pages, Reader, read_page, read_specs
from trimtab.errors import TrimtabError
from trimtab.replay.results import Results
from trimtab.report import build_page, words, write_report
from trimtab.report.console import print_summary, print_tables
from trimtab.report.month_page import build_month
from trimtab.report.page import script_json
from trimtab.report.verdict_page import build_verdict

pytestmark = pytest.mark.xdist_group("report-pages")
SECTIONS = {
    "backtest-demo": "headline methods engines parts forecasts moved windows coverage objectives "
                     "sellers guide",
    "backtest-one": "headline methods guide",
    "month-idle": "headline published guide",
    "month-closed": "headline published refused guide",
    "verdict-totals": "verdict intervals guide",
    "verdict-table": "verdict intervals looks guide",
}  # fmt: skip


def test_sections_with_rows_are_there(pages: Pages) -> None:
    for name, sections in SECTIONS.items():
        assert [own["id"] for own in read_page(pages(name)).all("section")] == sections.split()
    page = Reader(build_page(make_results()))  # only the demo has what only the paper needs
    shown = SECTIONS["backtest-demo"].replace("coverage objectives sellers ", "").split()
    assert [own["id"] for own in page.all("section")] == shown
    assert "KL divergence" not in page.words


@pytest.mark.parametrize("name", PAGES)
def test_pages_can_be_read_by_all_and_load_nothing(pages: Pages, name: str) -> None:
    page, specs = read_page(pages(name)), read_specs(pages(name))
    boxes = [own for own in page.all("div") if own.get("class") == "chart"]
    assert [box["id"] for box in boxes] == list(specs)
    assert all(box["role"] == "img" and box["aria-label"] for box in boxes)
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(head.get("scope") in ("row", "col") for head in page.all("th"))
    assert "nan" not in page.words.lower().split()

    targets = [own[key] for _, own in page.elements for key in ("src", "href") if key in own]
    (policy,) = [own["content"] or "" for own in page.all("meta") if own.get("http-equiv")]
    assert all((target or "").startswith("#") for target in targets)
    assert "url(" not in pages(name).read_text().partition("</style>")[0]
    assert "http" not in json.dumps(specs)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert len(page.all("script")) == 3
    assert pages(name).stat().st_size < 3_000_000


def test_names_from_outside_stay_text(pages: Pages) -> None:
    for name, n_names in (("backtest-hostile", 10), ("month-hostile", 2), ("verdict-hostile", 2)):
        page = read_page(pages(name))
        assert not page.all("img") + page.all("b") + page.all("i")
        assert page.words.count(HOSTILE) > n_names
        assert "{{ 7 * 7 }}" in page.words
        assert not any("onerror" in own for _, own in page.elements)
    text = script_json({"name": f"{HOSTILE}<!--\u2028\u2029&"})
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == {"name": f"{HOSTILE}<!--\u2028\u2029&"}
    assert HOSTILE in json.dumps(read_specs(pages("backtest-hostile")))


def test_same_results_same_bytes_and_errors_without_the_library(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    builders: dict[str, Callable[[], str]] = {
        "backtest-demo": lambda: build_page(make_results(), all_tables=True),
        "month-two": lambda: build_month(MONTHS["two"]()),
        "verdict-totals": lambda: build_verdict(VERDICTS["totals"]()),
    }
    for name, build in builders.items():
        assert build() == pages(name).read_text("utf-8")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for build in builders.values():
        with pytest.raises(TrimtabError, match=r"pip install 'trimtab\[report\]'"):
            build()


def test_importing_the_pages_is_light() -> None:
    code = (
        "import sys, trimtab.report; "
        "sys.exit(bool({'vl_convert', 'jinja2', 'numba', 'scipy'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_page_appears_under_its_name_only(tmp_path: Path) -> None:
    write_report(KINDS["one"](), tmp_path / "new" / "report.html")

    (path,) = (tmp_path / "new").iterdir()
    assert path.name == "report.html"
    assert "–" in read_page(path).text  # a lift without a baseline


def test_any_table_may_be_missing_or_alone() -> None:
    results = make_results(DEMO_DATES[:1], ["markov"], ["long", "default", "reranker"])
    for name in set(results.tables) - {"results"}:
        rest = {key: own for key, own in results.tables.items() if key != name}
        alone = {key: results.tables[key] for key in ("results", name)}
        for tables in (rest, alone):
            assert "<h1>" in build_page(Results({}, tables), all_tables=True)
    with pytest.raises(TrimtabError, match="'results'"):
        build_page(Results({}, {"results": table("results", [])}))


# In the terminal, and in words


def print_at(
    results: Results, width: int, show: Callable[[Results, Console], None] = print_tables
) -> str:
    console = Console(width=width, file=io.StringIO())
    show(results, console)
    printed: str = console.file.getvalue()  # type: ignore[attr-defined]
    return printed


def test_tables_fit_the_terminal_with_all_numbers() -> None:
    for width, dates in ((80, 1), (80, 26), (200, 26)):
        results = make_results(weekly_dates(dates), engines=["markov"])
        printed = print_at(results, width)
        assert max(map(len, printed.splitlines())) <= width
        assert "…" not in printed
        for row in results.table("results").to_pylist() if dates == 1 else ():
            if row["objective"] in ("", row["metric"]) and row["method"][-2:] not in ("-1", "-7"):
                assert f"{row['value']:.4f}" in printed
                lift = f"{100 * row['lift']:+.1f}".replace("-", "−")
                assert row["method"] == "long" or lift in printed
    assert "–" in print_at(one_row(), 80)


def test_the_summary_fits_one_screen() -> None:
    for n_dates in (1, 2, 26):
        lines = print_at(make_results(weekly_dates(n_dates)), 80, print_summary).splitlines()
        wrapped = sum(max(1, -(-len(line) // 80)) for line in lines)
        assert lines[0].startswith("Switch on the reranker")
        assert wrapped <= 22  # the commands print three lines more, one of them the link
        for name in ("reranker", "bias, default", "truncate", "popularity ratio"):
            assert any(line.startswith(f" {name} ") for line in lines)
    assert "Nothing to judge" in print_at(one_row(), 80, print_summary)


def test_numbers() -> None:
    for value, text in (
        (0.0864, "+8.6 %"), (-0.005, "−0.5 %"), (0.0, "0.0 %"), (-0.0001, "0.0 %"),
        (2.265, "+226.5 %"), (31.0, "+3,100 %"), (None, "–"), (math.nan, "–"), (math.inf, "–"),
    ):  # fmt: skip
        assert plain(words.percent(value)) == text
    for value, text in (
        (0, "0"), (1234.4, "+1,234"), (12.34, "+12.3"), (-0.01234, "−0.0123"),
        (1e-7, "+1.00e−07"), (None, "–"),
    ):  # fmt: skip
        assert words.compact(value) == text
    assert plain(words.interval(-0.012, 0.034)) == "−1.2 to +3.4 %"
    assert words.interval(0.1, None) == words.interval(math.nan, 0.1) == ""


def test_dates_lists_and_names() -> None:
    assert words.day("2017-11-01") == "1 Nov 2017"
    assert words.day("week 7") == "week 7"
    for parts, text in (([], ""), (["a"], "a"), (["a", "b", "c"], "a, b and c")):
        assert words.join_words(parts) == text
    names = words.method_names(["long", "default", "x", "y"])
    assert names["x"].short == "x"
    assert len({name.colour for name in names.values()}) == 4
