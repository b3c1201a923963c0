"""The verdict's page: its sentences and numbers."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from made_verdicts import CONTROL, TREATMENT, VERDICTS, make_rows
from pages import Pages, read_page
from trimtab.abtest import Settings, analyse, analyse_counts
from trimtab.cli.abtest_printing import print_verdicts
from trimtab.report.verdict.verdict_words import (
    adjusted,
    disagreement,
    guardrail,
    lift,
    mood,
    outcome,
    overall,
    roughly,
    sentences,
)

pytestmark = pytest.mark.xdist_group("report-pages")


def test_the_numbers_of_the_totals(pages: Pages) -> None:
    words = read_page(pages("verdict-totals")).words

    assert "Yes: better in clicks per open" in words
    assert "+3.3 % (95 % interval +0.6 to +6.1 %), significant" in words
    assert "Orders per open: +74.7 %" in words
    assert "2.6M emails" in words
    assert "9,320 of 60,120" in words


def test_the_line_on_top() -> None:
    assert overall(VERDICTS["alarm"]()) == "The split into buckets went wrong"
    assert overall(VERDICTS["nothing"]()) == "Nothing to test"
    assert overall(analyse_counts(TREATMENT, CONTROL)) == "No: worse in clicks per open"
    same = analyse_counts(CONTROL, CONTROL, Settings(margin=0.5))
    assert overall(replace(same, findings=same.findings[:1])) == "No difference that matters"
    assert overall(analyse_counts(CONTROL, CONTROL)) == "Not clear yet"


def test_the_sentence_on_a_metric() -> None:
    worse = analyse_counts(TREATMENT, CONTROL)
    assert "behind" in outcome(worse.of("clicks", "opens"), worse)
    same = analyse_counts(CONTROL, CONTROL, Settings(margin=0.5))
    assert "within ±50\N{NO-BREAK SPACE}%" in outcome(same.findings[0], same)
    nothing = VERDICTS["nothing"]()
    assert "nothing can be tested" in outcome(nothing.findings[0], nothing)


def test_opens_that_differ_move_the_verdict_to_metrics_per_email() -> None:
    fewer = analyse_counts(CONTROL, {**TREATMENT, "opens": 58_000})
    per_email = fewer.of("clicks", "emails").metric.title.lower()

    assert "less often" in guardrail(fewer)
    assert overall(fewer) == f"Yes: better in {per_email}"
    assert guardrail(analyse(make_rows().select(["bucket", "clicks"]))) == ""


def test_numbers_of_emails_have_two_digits() -> None:
    assert [roughly(n) for n in (950, 4_812, 480_123, 999_900, 12_345_678, 2.6e9)] == [
        "950", "4.8K", "480K", "1.0M", "12M", "2.6B",
    ]  # fmt: skip


def test_a_negative_rate_has_a_difference_but_no_lift() -> None:
    money = np.random.default_rng(1).normal(-5.0, 1.0, 200)  # more returned than bought
    table = pa.table({"bucket": ["control", "treatment"] * 100, "revenue": money})
    found = analyse(table)
    said = outcome(found.of("revenue", "emails"), found)
    assert "no lift, because the rate of control is below 0" in said
    assert "no rate in control" not in said


def test_tests_that_disagree_are_named() -> None:
    n = 2_000
    money = np.zeros(n)
    money[1:400:2] = 12.0  # many small orders more in the treatment,
    money[0:360:2] = 10.0
    money[0] = 40_000.0  # and one huge one in control
    table = pa.table(
        {"bucket": ["control", "treatment"] * (n // 2), "opens": np.ones(n), "revenue": money}
    )
    found, others = disagreement(analyse(table).of("revenue", "opens"), 0.05).split(" found ")

    assert "“capped at" in found
    assert "“redistributed”" in others
    assert disagreement(analyse(make_rows()).of("clicks", "opens"), 0.05) == ""


def test_a_lift_that_is_not_that_of_its_rates_is_marked(
    pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    found = VERDICTS["table"]()
    clicks, orders = found.of("clicks", "opens"), found.of("orders", "opens")
    rates = clicks.treatment.rate / clicks.control.rate - 1

    assert clicks.main.method == "CUPED"
    assert abs(clicks.main.relative - rates) > 0.001
    assert lift(clicks).endswith("*")
    assert not lift(orders).endswith("*")
    assert "by CUPED" in adjusted(found)
    assert "so not the ratio of the two rates beside it" in read_page(pages("verdict-table")).words
    assert adjusted(VERDICTS["totals"]()) == ""
    print_verdicts(found)
    printed = capsys.readouterr().out
    assert re.search(r"Clicks per open .*%\s\*  ", printed)
    assert "* adjusted by CUPED" in printed


def test_the_first_sentence_is_about_what_decides() -> None:
    assert sentences(VERDICTS["totals"]())[0].startswith("Clicks per open")
    assert sentences(VERDICTS["alarm"]())[0].startswith("Stop: the buckets")
    assert [mood(VERDICTS[name]()) for name in ("totals", "alarm", "nothing")] == [
        "gain", "loss", ""
    ]  # fmt: skip
