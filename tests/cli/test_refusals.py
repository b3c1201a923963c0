"""Options that cannot be used as given are refused in one sentence that names them."""

from __future__ import annotations

import pytest

FIT = ("fit", "--lists", "no.csv", "--events", "no.csv", "--out", "out")
APPLY = ("apply", "--model", "bias", "--lists", "no.csv", "--out", "out.csv")
REFRESH = ("refresh", "--lists", "no", "--events", "no.csv", "--store", "no")
BACKTEST = ("backtest", "--date", "2026-02-20")
LONG = "x" * 300  # no system takes such a name, whoever asks
REFUSALS = {
    "an unknown setting": ((*FIT, "--set", "depth=3"), ["--set depth=3", "penalty"]),
    "a setting without a value": ((*FIT, "--set", "penalty"), ["--set penalty", "name=value"]),
    "a setting out of range": ((*FIT, "--k", "0"), ["--k 0: must be"]),
    "a setting that has an option": ((*FIT, "--set", "k=5"), ["--set k=5: unknown name k"]),
    "a setting of the job": ((*REFRESH, "--set", "keep=0"), ["--set keep=0: must be"]),
    "more slots than can be learned for": ((*FIT, "--k", "1000000"), ["--k 1000000", "1000"]),
    "more slots in a refresh": (
        (*REFRESH, "--k", "100000"), ["--k 100000: must be between 1 and 1000"],
    ),
    "more slots in a reranker": (
        (*FIT, "--method", "reranker", "--history", "no.csv", "--k", "100000"), ["--k 100000"],
    ),
    "an unknown metric": ((*FIT, "--metric", "auc"), ["--metric auc", "ndcg"]),
    "an unknown check": ((*REFRESH, "--accept", "all"), ["--accept all: must be", "guard"]),
    "a share without a test": ((*APPLY, "--share", "0.4"), ["--share 0.4", "--salt"]),
    "an option of Python only": ((*FIT, "--weights", "w.csv"), ["--weights is in Python only"]),
    "dates in two ways": ((*BACKTEST, "--first", "2026-02-10"), ["--date", "--first"]),
    "a step without a series": (
        (*BACKTEST, "--set", "every=3d"), ["--set every=3d: needs", "--first", "--last"],
    ),
    "a method of refresh": ((*BACKTEST, "--method", "auto"), ["--method auto: must be one"]),
    "a date after the log": (("backtest", "--date", "2030-01-01"), ["--date 2030-01-01: must be"]),
    "an unknown file of boosts": (("export", "--model", "no", "--out", "b.txt"), [".csv or .sql"]),
    "an unknown engine": (("simulate", "--engine", "als"), ["--engine als", "markov"]),
    "columns of no log": (("simulate", "--columns", "user=a"), ["--columns user=a", "--events"]),
    "columns of no log in a backtest": (
        (*BACKTEST, "--columns", "user=a"), ["--columns user=a", "--events"],
    ),
    "columns of totals": (
        ("abtest", "--control", "emails=4", "--columns", "user=a"), ["--columns user=a", "--contr"],
    ),
    "no rows of a difference": (("diff", "1", "2", "--store", "no", "--top", "0"), ["--top 0"]),
    "an empty store": (("history", "--store", "no"), ["no: "]),
    "a project of no name": (("init", LONG), [LONG, "too long"]),
    "results of no name": (("report", "--results", LONG), [LONG, "too long"]),
    "a log of no name": ((*BACKTEST, "--events", f"{LONG}.csv"), [LONG, "too long"]),
    "an output of no name": ((*FIT[:-1], LONG), [LONG, "too long"]),
    "old names of lists": (("fit", "--recs", "a.csv"), ["--recs is now --lists; use that"]),
    "old names of what is judged": (("evaluate", "--topk=a"), ["--topk is now --lists"]),
    "old names of purchases": (("backtest", "--log", "a.csv"), ["--log is now --events"]),
    "old names of a model": (("apply", "--bias", "b"), ["--bias is now --model"]),
    "an old flag of refresh": ((*REFRESH, "--rerank"), ["--rerank is now --finish-lists"]),
    "an old flag of methods": (("simulate", "--reranker"), ["is now --method reranker"]),
    "an option that is a setting": (
        (*REFRESH, "--max-concentration", "1"), ["is now --set max_concentration=VALUE"],
    ),
    "an option of Python": ((*APPLY, "--start", "2"), ["--start is in Python only"]),
    "an old command": (("rerank", "fit"), ["rerank is now fit --method reranker, and apply"]),
    "another old command": (("sql", "--bias", "b"), ["sql is now export --out QUERY.sql"]),
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
