"""Figures and sentences of nine generated tests, one of each kind."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from made_tests import TOTALS, emails, five, ramp, treatments
from trimtab.abtest import Settings, Verdicts, analyse, analyse_counts
from trimtab.report.verdict_page import build_verdict

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text("utf-8"))
PLAIN = ["bucket", "opens", "clicks"]
ORDERS = {"counts": ["orders/user"], "amounts": ["revenue/user"]}
DESIGNS = {"labels": ["old", "red", "blue"], "counts": ["clicks/impressions", "orders/user"]}
CASES = {
    "plain": lambda: analyse(emails().select(PLAIN)),
    "skewed": lambda: analyse(emails(1_500, 150), Settings(share=0.1), **ORDERS),
    "ramp": lambda: analyse(ramp(), Settings(share=0.2), **ORDERS),
    "cuped": lambda: analyse(emails().select([*PLAIN, "pre_clicks"])),
    "metrics": lambda: analyse(emails().drop(["pre_clicks"]), Settings(margin=0.3, planned=1_000)),
    "wrong split": lambda: analyse(emails(800, 300).select(PLAIN)),
    "too few": lambda: analyse(
        emails(60, 6).select(["bucket", "opens", "orders"]), Settings(share=0.1)
    ),
    "treatments": lambda: analyse(treatments(), **DESIGNS),
    "totals": lambda: analyse_counts(*TOTALS, Settings(margin=0.02)),
}


def figures(found: Verdicts) -> dict[str, dict[str, object]]:
    """What JSON says of each metric, with five digits."""
    every = {}
    for row in found.to_dict()["findings"]:
        own, title = row["reading"], row["metric"]["title"]
        sequence = own["relative_sequence"]
        every[f"{row['bucket']}: {title}" if len(found.treatments) > 1 else title] = {
            "rates": [five(row[side]["rate"]) for side in ("control", "treatment")],
            "difference": [five(own[name]) for name in ("difference", "low", "high")],
            "relative": [five(own[name]) for name in ("relative", "relative_low", "relative_high")],
            "p": [five(own["p"]), five(row["p_adjusted"])],
            "sequence": sequence and [five(end) for end in sequence],
            "needed": row["needed"],
            "verdict": row["verdict"],
        }
    return every


def sentences(page: str) -> list[str]:
    """The titles and sentences on a page before its details."""
    main = page[page.index("<main>") : page.index('id="guide"')]
    found = re.findall(r'<h2 id="[vi][^>]*>.*?</h2>|<p class="sentence">.*?</p>', main, re.DOTALL)
    return [" ".join(re.sub("<[^>]+>", "", text).split(" ")) for text in found]


@pytest.mark.parametrize("name", CASES)
def test_figures_and_sentences(name):
    found = CASES[name]()
    made = {"figures": figures(found), "page": sentences(build_verdict(found))}
    assert json.loads(json.dumps(made)) == GOLDEN[name]
