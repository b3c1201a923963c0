"""The verdict's page: its sentences and numbers."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest

from made_verdicts import CONTROL, TREATMENT, VERDICTS, make_rows
from pages import Pages, read_page
from trimtab.abtest import Settings, analyse, analyse_counts
from trimtab.cli.abtest import print_verdicts
from trimtab.report.verdict_page import lift, mood, roughly, say

pytestmark = pytest.mark.xdist_group("report-pages")
SPACE = "\N{NO-BREAK SPACE}"


def test_the_numbers_of_the_totals(pages: Pages) -> None:
    words = read_page(pages("verdict-totals")).words

    assert "Yes: better in clicks per open" in words
    assert re.search(r"\+3\.3 % \(95 % interval \+0\.\d to \+6\.\d %\), significant", words)
    assert "Orders per open: +74.7 %" in words
    assert "2.6M emails" in words
    assert "9,320 of 60,120" in words


def test_a_page_names_experiment_period_counts_and_primary_metric(pages: Pages) -> None:
    words = read_page(pages("verdict-table")).words

    assert (
        "november. 2 Nov 2026 to 4 Nov 2026. 450 rows in control, 450 rows in treatment." in words
    )
    assert "Primary metric: clicks per open." in words
    assert "400,000 emails in control" in read_page(pages("verdict-totals")).words


def test_the_line_on_top() -> None:
    totals = {"alarm": VERDICTS["alarm"](), "nothing": VERDICTS["nothing"]()}
    assert say("headline", totals["alarm"]) == "The split into buckets went wrong"
    assert say("headline", totals["nothing"]) == "Nothing to test in clicks per open"
    worse = analyse_counts(TREATMENT, CONTROL)
    assert say("headline", worse) == "No: worse in clicks per open"
    same = analyse_counts(CONTROL, CONTROL, Settings(margin=0.5))
    assert say("headline", same) == "No difference that matters in clicks per open"
    unclear = analyse_counts(CONTROL, CONTROL)
    assert say("headline", unclear) == "Not clear yet in clicks per open"
    found = [VERDICTS["totals"](), *totals.values(), worse, same, unclear]
    assert [mood(own) for own in found] == ["gain", "loss", "", "loss", "", ""]


def test_no_green_yes_over_an_inconclusive_primary_metric(pages: Pages) -> None:
    """Clicks are better, but the verdict is about orders."""
    found = analyse_counts(CONTROL, TREATMENT, Settings(primary="orders/opens"))
    assert found.of("clicks", "opens").is_better
    assert (say("headline", found), mood(found)) == ("Not clear yet in orders per open", "")
    fewer = analyse_counts({**CONTROL, "orders": 90}, TREATMENT)
    text = "Better in clicks per open, but worse in orders per open"
    assert (say("headline", fewer), mood(fewer)) == (text, "mixed")


def test_several_treatments(pages: Pages) -> None:
    found = VERDICTS["three"]()
    assert say("headline", found) == "Better than control: A"
    assert mood(found) == "gain"
    assert say("line", found, "A") == "better in clicks per impression"
    assert say("line", found, "B") == "no difference that matters in clicks per impression"
    assert f"97.5{SPACE}%" in say("treatments", found)
    assert "multiplied by 2" in say("treatments", found)
    assert "300, 300 and 300 users" in say("sizes", found)
    other = analyse_counts(CONTROL, TREATMENT)
    assert say("treatments", other) == ""
    words = read_page(pages("verdict-three")).words
    assert "A: better in clicks per impression. B: no difference" in words


def test_the_sentence_on_a_metric() -> None:
    worse = analyse_counts(TREATMENT, CONTROL)
    assert "behind" in say("outcome", worse.of("clicks", "opens"), worse)
    same = analyse_counts(CONTROL, CONTROL, Settings(margin=0.5))
    assert f"within ±50{SPACE}%" in say("outcome", same.findings[0], same)
    nothing = VERDICTS["nothing"]()
    assert "nothing can be tested" in say("outcome", nothing.findings[0], nothing)


def test_a_wrong_split_says_which_share_it_fits() -> None:
    lost = analyse_counts({"emails": 700, "clicks": 70}, {"emails": 300, "clicks": 30})
    assert "Pass --share 0.3 if that was intended" in say("sizes", lost)


def test_opens_that_differ() -> None:
    fewer = analyse_counts(CONTROL, {**TREATMENT, "opens": 58_000})

    assert "less often" in say("guardrail", fewer, "treatment")
    assert say("headline", fewer) == "Yes: better in clicks per email"
    assert say("guardrail", analyse(make_rows().select(["bucket", "clicks"])), "treatment") == ""


def test_numbers_of_emails_have_two_digits() -> None:
    assert [roughly(n) for n in (950, 4_812, 480_123, 999_900, 12_345_678, 2.6e9)] == [
        "950", "4.8K", "480K", "1.0M", "12M", "2.6B",
    ]  # fmt: skip


def test_a_negative_rate_has_a_difference_but_no_lift() -> None:
    money = np.random.default_rng(1).normal(-5.0, 1.0, 200)  # more returned than bought
    found = analyse(pa.table({"bucket": ["control", "treatment"] * 100, "revenue": money}))
    said = say("outcome", found.of("revenue", "emails"), found)
    assert "no lift, because the rate of control is below 0" in said


def test_a_lift_that_is_not_that_of_its_rates_is_marked(
    pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    found = VERDICTS["table"]()
    clicks, orders = found.of("clicks", "opens"), found.of("orders", "opens")
    rates = clicks.treatment.rate / clicks.control.rate - 1

    assert clicks.reading.cuped
    assert abs(clicks.reading.relative - rates) > 0.001
    assert lift(clicks, found).endswith("*")
    assert not lift(orders, found).endswith("*")
    assert "by CUPED" in say("adjusted", found)
    assert "so not the ratio of the two rates beside it" in read_page(pages("verdict-table")).words
    assert say("adjusted", VERDICTS["totals"]()) == ""
    print_verdicts(found)
    printed = capsys.readouterr().out
    assert re.search(r"Clicks per open .*%\s\*  ", printed)
    assert "* adjusted by CUPED" in printed
