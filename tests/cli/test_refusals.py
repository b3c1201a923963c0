"""Options that cannot be used as given are refused in one sentence that names them."""

from __future__ import annotations

import pytest

FIT = ("fit", "--recs", "no.csv", "--recent", "no.csv", "--out", "out")
APPLY = ("apply", "--bias", "bias", "--recs", "no.csv", "--out", "out.csv")
LONG = "x" * 300  # no system takes such a name, whoever asks
REFUSALS = {
    "an unknown setting": ((*FIT, "--set", "depth=3"), ["--set depth=3", "penalty"]),
    "a setting without a value": ((*FIT, "--set", "penalty"), ["--set penalty", "name=value"]),
    "a setting out of range": ((*FIT, "--set", "k=0"), ["k=0"]),
    "more slots than can be learned for": ((*FIT, "--k", "1000000"), ["k=1000000", "1000"]),
    "more slots in a refresh": (
        ("refresh", "--lists", "no", "--events", "no.csv", "--store", "no", "--k", "100000"),
        ["k=100000: must be between 1 and 1000"],
    ),
    "more slots in a reranker": (
        ("rerank", *FIT, "--history", "no.csv", "--k", "100000"), ["k=100000"],
    ),
    "an unknown metric": ((*FIT, "--metric", "auc"), ["metric='auc'", "ndcg"]),
    "a share without a test": ((*APPLY, "--share", "0.4"), ["--share 0.4", "--salt"]),
    "a depth that is no number": ((*APPLY, "--depth", "deep"), ["--depth deep", "all"]),
    "a page of another kind": (
        ("report", "--results", "no", "--out", "page.txt"), ["--out page.txt", ".html"],
    ),
    "dates in two ways": (
        ("backtest", "--date", "2026-02-20", "--first", "2026-02-10"), ["--date", "--first"],
    ),
    "a step without a series": (
        ("backtest", "--date", "2026-02-20", "--every", "3"), ["--every 3", "--first", "--last"],
    ),
    "a level without its engine": (
        ("backtest", "--engine", "markov", "--level", "aisle"), ["--level aisle", "category"],
    ),
    "a level of another engine": (("simulate", "--level", "aisle"), ["--level aisle", "category"]),
    "an unknown engine": (("simulate", "--engine", "als"), ["engine='als'", "markov"]),
    "columns of no log": (("simulate", "--columns", "user=a"), ["--columns user=a", "--log"]),
    "columns of no log in a backtest": (
        ("backtest", "--date", "2026-02-20", "--columns", "user=a"), ["--columns user=a", "--log"],
    ),
    "columns of totals": (
        ("abtest", "--control", "emails=4", "--columns", "user=a"), ["--columns user=a", "--contr"],
    ),
    "no rows of a difference": (("diff", "1", "2", "--store", "no", "--top", "0"), ["top=0"]),
    "an empty store": (("history", "--store", "no"), ["no: "]),
    "a project of no name": (("init", LONG), [LONG, "too long"]),
    "results of no name": (("report", "--results", LONG), [LONG, "too long"]),
    "a log of no name": (
        ("backtest", "--date", "2026-02-20", "--log", f"{LONG}.csv"), [LONG, "too long"],
    ),
    "an output of no name": ((*FIT[:-1], LONG), [LONG, "too long"]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_names_the_option_and_its_value(call, tmp_path, case):
    arguments, named = REFUSALS[case]
    run = call(*arguments, cwd=tmp_path)
    assert run.returncode == 2
    assert (run.stdout, run.stderr.count("\n")) == ("", 1)
    assert run.stderr.startswith("trimtab: ")
    assert [text for text in named if text not in run.stderr] == []
    assert list(tmp_path.iterdir()) == []
