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


def test_a_page_names_experiment_period_counts_and_primary_metric(pages: Pages) -> None:
    words, totals = (read_page(pages(f"verdict-{name}")).words for name in ("table", "totals"))
    period = "november. 2 Nov 2026 to 4 Nov 2026. 450 rows in control, 450 rows in treatment."
    assert period in words
    assert "Primary metric: clicks per open." in words
    assert "400,000 emails in control" in totals
    assert "9,320 of 60,120" in totals
    assert "2.6M emails" in totals


def test_the_line_on_top_and_its_colour() -> None:
    same = analyse_counts(CONTROL, CONTROL, Settings(margin=0.5))
    other, nothing = Settings(primary="orders/opens"), VERDICTS["nothing"]()
    cases = [
        (VERDICTS["totals"](), "Yes: better in clicks per open", "gain"),
        (VERDICTS["alarm"](), "The split into buckets went wrong", "loss"),
        (nothing, "Nothing to test in clicks per open", ""),
        (worse := analyse_counts(TREATMENT, CONTROL), "No: worse in clicks per open", "loss"),
        (same, "No difference that matters in clicks per open", ""),
        (analyse_counts(CONTROL, CONTROL), "Not clear yet in clicks per open", ""),
        # Clicks are better, but the verdict is about orders: no green "Yes".
        (analyse_counts(CONTROL, TREATMENT, other), "Not clear yet in orders per open", ""),
        (analyse_counts({**CONTROL, "orders": 90}, TREATMENT),
         "Better in clicks per open, but worse in orders per open", "mixed"),
    ]  # fmt: skip
    for found, line, colour in cases:
        assert (say("headline", found), mood(found)) == (line, colour)
    assert cases[6][0].of("clicks", "opens").is_better
    assert "behind" in say("outcome", worse.findings[0], worse)
    assert f"within ±50{SPACE}%" in say("outcome", same.findings[0], same)
    assert "nothing can be tested" in say("outcome", nothing.findings[0], nothing)


def test_several_treatments(pages: Pages) -> None:
    found = VERDICTS["three"]()
    assert (say("headline", found), mood(found)) == ("Better than control: A", "gain")
    assert say("line", found, "A") == "better in clicks per impression"
    assert say("line", found, "B") == "no difference that matters in clicks per impression"
    assert f"97.5{SPACE}%" in say("treatments", found)
    assert "multiplied by 2" in say("treatments", found)
    assert "300, 300 and 300 users" in say("sizes", found)
    assert say("treatments", analyse_counts(CONTROL, TREATMENT)) == ""
    words = read_page(pages("verdict-three")).words
    assert "A: better in clicks per impression. B: no difference" in words


def test_splits_and_opens_that_differ() -> None:
    lost = analyse_counts({"emails": 700, "clicks": 70}, {"emails": 300, "clicks": 30})
    assert "Pass --share 0.3 if that was intended" in say("sizes", lost)
    fewer = analyse_counts(CONTROL, {**TREATMENT, "opens": 58_000})
    assert "less often" in say("guardrail", fewer, "treatment")
    assert say("headline", fewer) == "Yes: better in clicks per email"
    assert say("guardrail", analyse(make_rows().select(["bucket", "clicks"])), "treatment") == ""


def test_numbers_of_emails_have_two_digits() -> None:
    texts = {950: "950", 4_812: "4.8K", 480_123: "480K", 999_900: "1.0M", 12_345_678: "12M",
             2.6e9: "2.6B"}  # fmt: skip
    assert {n: roughly(n) for n in texts} == texts


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
    assert (lift(clicks, found)[-1], lift(orders, found)[-1]) == ("*", "%")
    assert "by CUPED" in say("adjusted", found)
    assert "so not the ratio of the two rates beside it" in read_page(pages("verdict-table")).words
    assert say("adjusted", VERDICTS["totals"]()) == ""
    print_verdicts(found)
    printed = capsys.readouterr().out
    assert re.search(r"Clicks per open .*%\s\*  ", printed)
    assert "* adjusted by CUPED" in printed
