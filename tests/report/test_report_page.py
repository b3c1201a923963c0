"""The pages as text: what is in them, what is escaped, how they are written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from made_months import MONTHS
from made_results import DEMO_DATES, HOSTILE, KINDS, make_results, table, weekly_dates
from made_verdicts import VERDICTS
from pages import PAGES, Pages, Reader, read_page, read_specs
from trimtab.errors import TrimtabError
from trimtab.replay.results import Results
from trimtab.report import build_page, write_report
from trimtab.report.month_page import build_month
from trimtab.report.page import script_json
from trimtab.report.verdict_page import build_verdict

pytestmark = pytest.mark.xdist_group("report-pages")
BACKTEST = ["headline", "methods", "engines", "parts", "forecasts", "moved", "windows",
            "coverage", "objectives", "sellers", "guide"]  # fmt: skip
MONTH = ["headline", "published", "guide"]
TABLE = ["verdict", "intervals", "looks", "guide"]
SECTIONS = {
    "backtest-demo": BACKTEST,
    "backtest-many": BACKTEST,
    "backtest-one": ["headline", "methods", "guide"],
    "month-thirty": MONTH,
    "month-one": MONTH,
    "month-idle": MONTH,
    "month-closed": ["headline", "published", "refused", "guide"],
    "verdict-totals": ["verdict", "intervals", "guide"],
    "verdict-table": TABLE,
    "verdict-plain": ["verdict", "intervals", "guide"],
}
N_CHARTS = {"backtest-demo": 23, "backtest-many": 24, "month-thirty": 1, "month-idle": 0,
            "verdict-totals": 1, "verdict-table": 4}  # fmt: skip


@pytest.mark.parametrize("name", SECTIONS)
def test_sections_with_rows_are_there(pages: Pages, name: str) -> None:
    assert [own["id"] for own in read_page(pages(name)).all("section")] == SECTIONS[name]


@pytest.mark.parametrize("name", N_CHARTS)
def test_number_of_charts(pages: Pages, name: str) -> None:
    assert len(read_specs(pages(name))) == N_CHARTS[name]


@pytest.mark.parametrize("name", PAGES)
def test_charts_have_descriptions_and_tables_have_captions(pages: Pages, name: str) -> None:
    page = read_page(pages(name))
    boxes = [own for own in page.all("div") if own.get("class") == "chart"]

    assert [box["id"] for box in boxes] == list(read_specs(pages(name)))
    assert all(box["role"] == "img" and box["aria-label"] for box in boxes)
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(head.get("scope") in ("row", "col", "colgroup") for head in page.all("th"))
    assert "nan" not in page.words.lower().split()


@pytest.mark.parametrize("name", PAGES)
def test_nothing_points_outside_and_only_known_scripts_run(pages: Pages, name: str) -> None:
    page = read_page(pages(name))
    targets = [own[key] for _, own in page.elements for key in ("src", "href") if key in own]
    (policy,) = [own["content"] for own in page.all("meta") if own.get("http-equiv")]

    assert all((target or "").startswith("#") for target in targets)
    assert "url(" not in pages(name).read_text().partition("</style>")[0]
    assert "http" not in json.dumps(read_specs(pages(name)))
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert len(page.all("script")) == 3
    assert pages(name).stat().st_size < 3_000_000


@pytest.mark.parametrize(
    ("name", "n_names"), [("backtest-hostile", 10), ("month-hostile", 2), ("verdict-hostile", 2)]
)
def test_names_from_outside_stay_text(pages: Pages, name: str, n_names: int) -> None:
    page = read_page(pages(name))

    assert not page.all("img") + page.all("b") + page.all("i")
    assert page.words.count(HOSTILE) > n_names
    assert "{{ 7 * 7 }}" in page.words
    assert not any("onerror" in own for _, own in page.elements)


def test_data_in_the_page_cannot_end_its_element(pages: Pages) -> None:
    text = script_json({"name": f"{HOSTILE}<!--\u2028\u2029&"})

    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == {"name": f"{HOSTILE}<!--\u2028\u2029&"}
    assert HOSTILE in json.dumps(read_specs(pages("backtest-hostile")))


BUILDERS: dict[str, Callable[[], str]] = {
    "backtest-demo": lambda: build_page(make_results(), all_tables=True),
    "month-two": lambda: build_month(MONTHS["two"]()),
    "verdict-totals": lambda: build_verdict(VERDICTS["totals"]()),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_same_results_same_bytes(pages: Pages, name: str) -> None:
    assert BUILDERS[name]() == pages(name).read_text("utf-8")


@pytest.mark.parametrize("library", ["vl_convert"])
def test_without_the_libraries_that_draw(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for build in BUILDERS.values():
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

    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.html"]


@pytest.mark.parametrize("name", [name for name in make_results().tables if name != "results"])
def test_any_table_may_be_missing_or_alone(name: str) -> None:
    results = make_results(DEMO_DATES[:1], ["markov"], ["long", "default", "reranker"])
    rest = {key: own for key, own in results.tables.items() if key != name}
    alone = {key: results.tables[key] for key in ("results", name)}

    for tables in (rest, alone):
        assert "<h1>" in build_page(Results({}, tables), all_tables=True)


@pytest.mark.parametrize(
    ("methods", "title"),
    [
        (["long"], "Nothing to judge"),
        (["long", "ratio"], "Do not switch it on: the popularity ratio did better"),
        (["default"], "Switch on the bias"),
        (["long", "mine"], "Do not switch it on: “mine” did better"),
    ],
)
def test_any_methods_on_one_engine_of_ones_own(methods: list[str], title: str) -> None:
    results = make_results(weekly_dates(8), ["my engine"], methods)
    rows = [
        {**row, "lift": 0.1 + row["lift"], "lift_low": None, "lift_high": None}
        for row in results.table("results").to_pylist()
    ]
    page = Reader(build_page(Results({}, {"results": table("results", rows)})))

    assert f" {title} " in page.words
    assert page.all("section")[0]["id"] == "headline"


def test_only_the_demo_has_what_only_the_paper_needs() -> None:
    page = Reader(build_page(make_results()))
    shown = [key for key in BACKTEST if key not in ("coverage", "objectives", "sellers")]

    assert [own["id"] for own in page.all("section")] == shown
    assert "KL divergence" not in page.words


def test_an_engine_judged_alone_is_in_the_table_of_engines() -> None:
    results = make_results(engines=["markov"], methods=["long", "default"])
    rows = results.table("results").to_pylist()
    alone = [{**row, "engine": "popularity"} for row in rows if row["method"] == "long"]
    page = Reader(build_page(Results({}, {"results": table("results", rows + alone)})))

    assert [own["id"] for own in page.all("section")] == [
        "headline", "methods", "engines", "guide"
    ]  # fmt: skip
    assert "popularity" in page.text


def test_the_tables_show_the_numbers_of_the_results(pages: Pages) -> None:
    rows = [
        row for row in make_results().table("results").to_pylist()
        if (row["method"], row["engine"], row["metric"]) == ("ratio", "markov", "acc")
    ]  # fmt: skip
    words = read_page(pages("backtest-demo")).words

    assert f"{sum(row['value'] for row in rows) / len(rows):.4f}" in words
    for row in rows:
        assert f"{100 * row['lift']:+.1f}".replace("-", "−") in words


def test_a_lift_without_a_baseline_is_a_dash(pages: Pages) -> None:
    assert "–" in read_page(pages("backtest-one")).text


def test_a_backtest_without_rows_is_refused() -> None:
    with pytest.raises(TrimtabError, match="'results'"):
        build_page(Results({}, {"results": table("results", [])}))
