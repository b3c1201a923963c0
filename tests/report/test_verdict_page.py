"""The verdict's page: what is said, and how it looks in a real browser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from made_results import HOSTILE
from pages import check_silent, read, specs_of
from trimtab.abtest import Settings, analyse, analyse_counts
from trimtab.abtest.simulated_test import Loop
from trimtab.errors import TrimtabError
from trimtab.report.verdict.simulated_test_page import write_run
from trimtab.report.verdict.verdict_page import build_verdict, write_verdict
from trimtab.report.verdict.verdict_words import disagreement, guardrail, outcome, overall, roughly

Pages = Callable[[str], Path]
CONTROL = {"mails": 400_000, "opens": 60_000, "clicks": 9_000, "orders": 12}
TREATMENT = {"mails": 400_000, "opens": 60_120, "clicks": 9_320, "orders": 21}


def rows(dates=("2026-11-02", "2026-11-03", "2026-11-04"), n=900, lift=0.08):
    random = np.random.default_rng(1)
    treated = np.arange(n) % 2 == 1
    opens = 1 + random.poisson(0.7, n)
    orders = random.poisson(0.05 * opens)
    return pa.table(
        {
            "bucket": np.where(treated, "treatment", "control"), "opens": opens,
            "clicks": random.binomial(opens, 0.2 + lift * treated), "orders": orders,
            "revenue": orders * random.lognormal(3, 1, n), "pre_clicks": random.poisson(1, n),
            "date": [dates[place] for place in random.integers(0, len(dates), n)],
        }
    )  # fmt: skip


def uneven():
    table = rows()
    return analyse(table.filter(pa.array(np.arange(table.num_rows) % 4 != 1)))


VERDICTS = {
    "totals": lambda: analyse_counts(CONTROL, TREATMENT, Settings(margin=0.02)),
    "table": lambda: analyse(rows(), Settings(planned=3_000, margin=0.3)),
    "plain": lambda: analyse(rows().select(["bucket", "opens", "clicks"])),
    "alarm": uneven,
    "nothing": lambda: analyse_counts(
        {"mails": 10, "opens": 0, "clicks": 0}, {"mails": 10, "opens": 0, "clicks": 0}
    ),
    "hostile": lambda: analyse(rows((HOSTILE, "{{ 7 * 7 }}<b>", "datum.x"))),
}
PAGES = [*VERDICTS, "online"]


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """The page of a kind of test; built when first asked for."""
    folder = tmp_path_factory.mktemp("verdicts")

    def page(kind: str) -> Path:
        path = folder / f"{kind}.html"
        if path.exists():
            return path
        if kind == "online":
            write_run(Loop(users=300, days=3, items=100, listed=20, drift=1.0).run(), path)
        else:
            write_verdict(VERDICTS[kind](), path)
        return path

    return page


SECTIONS = {
    "totals": ["verdict", "intervals", "guide"],
    "table": ["verdict", "intervals", "readings", "dates", "looks", "guide"],
    "plain": ["verdict", "intervals", "guide"],
    "online": ["verdict", "truth", "intervals", "readings", "dates", "looks", "guide"],
}


@pytest.mark.parametrize("kind", SECTIONS)
def test_sections_and_charts(pages: Pages, kind: str) -> None:
    page = read(pages(kind))
    boxes = [own for own in page.all("div") if own.get("class") == "chart"]
    assert [own["id"] for own in page.all("section")] == SECTIONS[kind]
    assert [box["id"] for box in boxes] == list(specs_of(pages(kind)))
    assert all(box["role"] == "img" and box["aria-label"] for box in boxes)
    assert "nan" not in " ".join(page.text).lower().split()


def test_the_totals_in_words(pages: Pages) -> None:
    text = " ".join(" ".join(read(pages("totals")).text).split())
    assert "Yes: better in clicks per open" in text
    assert "+3.3 % (95 % interval +0.6 to +6.1 %), significant." in text
    assert "Orders per open: +74.7 %" in text
    assert "would take about 2,600,000 mails in all" in text
    assert "9,320 of 60,120" in text


def test_what_is_said() -> None:
    found = VERDICTS["totals"]()
    assert "behind by more than chance explains" in outcome(
        (worse := analyse_counts(TREATMENT, CONTROL)).of("clicks", "opens"), worse
    )
    assert overall(worse) == "No: worse in clicks per open"
    same = analyse_counts(CONTROL, CONTROL, Settings(margin=0.5))
    assert overall(replace(same, findings=same.findings[:1])) == "No difference that matters"
    assert "surely within ±50\N{NO-BREAK SPACE}%" in outcome(same.findings[0], same)
    assert overall(VERDICTS["alarm"]()) == "The division into buckets went wrong"
    assert "nothing can be tested" in outcome(VERDICTS["nothing"]().findings[0], found)
    fewer = analyse_counts(CONTROL, {**TREATMENT, "opens": 58_000})
    assert "opened less often" in guardrail(fewer)
    assert overall(fewer) == "Yes: better in clicks per mail"  # not per open, as opens differ
    assert guardrail(analyse(rows().select(["bucket", "clicks"]))) == ""
    assert [roughly(n) for n in (950, 4_812, 480_123, 999_900, 12_345_678, 2.6e9)] == [
        "950", "4.8K", "480K", "1.0M", "12M", "2.6B",
    ]  # fmt: skip


def test_readings_that_disagree_are_named() -> None:
    n = 2_000
    money = np.zeros(n)
    money[1:400:2] = 12.0  # many small orders more in the treatment,
    money[0:360:2] = 10.0
    money[0] = 40_000.0  # and one huge one in control
    table = pa.table(
        {"bucket": ["control", "treatment"] * (n // 2), "opens": np.ones(n), "revenue": money}
    )
    finding = analyse(table).of("revenue", "opens")
    assert "A difference is found by “capped at" in disagreement(finding, 0.05)
    assert "not by “Welch”" in disagreement(finding, 0.05)
    assert disagreement(analyse(rows()).of("clicks", "opens"), 0.05) == ""


def test_names_from_outside_stay_text(pages: Pages) -> None:
    page = read(pages("hostile"))
    assert not page.all("img") + page.all("b")
    assert len(page.all("script")) == 3
    assert HOSTILE in " ".join(page.text)


def test_same_verdicts_same_bytes() -> None:
    assert build_verdict(VERDICTS["table"]()) == build_verdict(VERDICTS["table"]())


def test_without_the_libraries_that_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(TrimtabError, match=r"pip install 'trimtab\[report\]'"):
        build_verdict(VERDICTS["totals"]())


def test_importing_it_is_light() -> None:
    code = (
        "import sys, trimtab.report.verdict.verdict_page, trimtab.abtest; "
        "sys.exit(bool({'altair', 'vl_convert', 'jinja2', 'scipy'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


WIDE, NARROW = (1280, "light"), (390, "dark")
VIEWS = [*((kind, *WIDE) for kind in PAGES), ("table", *NARROW), ("online", *NARROW)]


@pytest.mark.parametrize(("kind", "width", "scheme"), VIEWS)
def test_drawn_and_silent(visit: Callable[..., Any], kind: str, width: int, scheme: str) -> None:
    check_silent(visit(kind, width, scheme), width)
