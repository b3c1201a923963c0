"""The page as text: what is in it, what is escaped, how it is written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from made_results import HOSTILE, KINDS, make_results, table
from pages import Reader, read, specs_of
from trimtab.errors import TrimtabError
from trimtab.experiments.results import Results
from trimtab.report import build_page, write_report
from trimtab.report.page import embedded

Pages = Callable[[str], Path]
ALL = ["headline", "methods", "engines", "coverage", "objectives", "sellers", "windows", "curves",
       "moved", "guide"]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "sections"),
    [("demo", ALL), ("many", ALL), ("one", ["headline", "methods", "guide"])],
)
def test_sections_that_there_are_rows_for(pages: Pages, kind: str, sections: list[str]) -> None:
    assert [own["id"] for own in read(pages(kind)).all("section")] == sections


@pytest.mark.parametrize("name", [name for name in make_results().tables if name != "results"])
def test_any_table_may_be_missing_or_alone(name: str) -> None:
    results = make_results(methods=["long", "default"], engines=["markov"])
    rest = {key: own for key, own in results.tables.items() if key != name}
    alone = {key: results.tables[key] for key in ("results", name)}

    for tables in (rest, alone):
        assert "<h1>" in build_page(Results({}, tables))


def test_an_engine_judged_alone_is_in_the_table_of_engines() -> None:
    results = make_results(engines=["markov"], methods=["long", "default"])
    rows = results.table("results").to_pylist()
    alone = [{**row, "engine": "popularity"} for row in rows if row["method"] == "long"]
    page = Reader(build_page(Results({}, {"results": table("results", rows + alone)})))

    assert [own["id"] for own in page.all("section")] == [
        "headline", "methods", "engines", "objectives", "guide"
    ]  # fmt: skip
    assert "Each engine alone" in page.text
    assert "popularity" in page.text


@pytest.mark.parametrize("kind", KINDS)
def test_every_chart_has_a_place_and_a_description(pages: Pages, kind: str) -> None:
    boxes = [own for own in read(pages(kind)).all("div") if own.get("class") == "chart"]

    assert [box["id"] for box in boxes] == list(specs_of(pages(kind)))
    assert all(box["role"] == "img" and box["aria-label"] for box in boxes)


@pytest.mark.parametrize("kind", ["demo", "many", "one"])
def test_tables_have_captions_and_scopes(pages: Pages, kind: str) -> None:
    page = read(pages(kind))

    assert len(page.all("caption")) == len(page.all("table"))
    assert all(head.get("scope") in ("row", "col", "colgroup") for head in page.all("th"))


def test_numbers_of_the_tables_are_those_of_the_results(pages: Pages) -> None:
    results = make_results()
    row = next(row for row in results.table("results").to_pylist() if row["method"] == "ratio")
    text = " ".join(read(pages("demo")).text)

    assert f"{row['value']:.4f}" in text
    assert f"{100 * row['lift']:+.1f}".replace("-", "−") in text


def test_a_lift_without_a_baseline_is_a_dash(pages: Pages) -> None:
    text = " ".join(read(pages("one")).text)

    assert "–" in text
    assert "nan" not in text.lower()


def test_names_from_outside_stay_text(pages: Pages) -> None:
    page = read(pages("hostile"))
    text = " ".join(page.text)

    assert not page.all("img")
    assert len(page.all("script")) == 3
    assert text.count(HOSTILE) > 10
    assert "{{ 7 * 7 }}" in text
    assert not any("onerror" in own for _, own in page.elements)


def test_data_in_the_page_cannot_end_its_element(pages: Pages) -> None:
    text = embedded({"name": f"{HOSTILE}<!--\u2028\u2029&"})

    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == {"name": f"{HOSTILE}<!--\u2028\u2029&"}
    assert HOSTILE in json.dumps(specs_of(pages("hostile")))


def test_nothing_in_the_page_points_outside(pages: Pages) -> None:
    page = read(pages("demo"))
    targets = [own[key] for _, own in page.elements for key in ("src", "href") if key in own]

    assert all((target or "").startswith("#") for target in targets)
    assert "url(" not in pages("demo").read_text().partition("</style>")[0]
    assert "http" not in json.dumps(specs_of(pages("demo")))


def test_the_policy_allows_these_scripts_only(pages: Pages) -> None:
    metas = read(pages("demo")).all("meta")
    (policy,) = [own["content"] for own in metas if own.get("http-equiv")]

    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_same_results_same_bytes() -> None:
    assert build_page(make_results()) == build_page(make_results())


def test_the_demo_is_small_enough_to_send(pages: Pages) -> None:
    assert pages("demo").stat().st_size < 3_000_000
    assert pages("many").stat().st_size < 3_000_000


def test_the_page_appears_under_its_name_only(tmp_path: Path) -> None:
    write_report(KINDS["one"](), tmp_path / "new" / "report.html")

    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.html"]


def test_without_rows_there_is_nothing_to_report() -> None:
    with pytest.raises(TrimtabError, match="'results' has no rows"):
        build_page(Results({}, {"results": table("results", [])}))


@pytest.mark.parametrize("library", ["altair", "vl_convert"])
def test_without_the_libraries_that_draw(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(TrimtabError, match=r"pip install 'trimtab\[report\]'"):
        build_page(KINDS["one"]())


def test_importing_the_report_is_light() -> None:
    code = (
        "import sys, trimtab.report, trimtab.report.backtest.sections; "
        "sys.exit(bool({'altair', 'vl_convert', 'jinja2', 'numba'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
