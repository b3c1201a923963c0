"""Backtests, reports and the demo from the command line, and what they refuse."""

from __future__ import annotations

import signal
import subprocess
import sysconfig
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.datasets import generate_items, generate_log, make_log
from trimtab.experiments.demo import HOLIDAY, REGULAR, demo_plan
from trimtab.tables.files import write_table

HOSTILE = "</script><img src=x onerror=alert(1)>"
N_ITEMS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("experiments")
    log = generate_log(
        n_users=150, n_items=N_ITEMS, days=60, purchases_per_user=20, drift=1, seed=6
    )
    write_table(log, place / "events.parquet")
    naive = log.set_column(2, "timestamp", log["timestamp"].cast(pa.timestamp("us")))
    write_table(naive, place / "naive.parquet")
    categories = [f"c{c}" for c in generate_items(N_ITEMS, 1, None, 6).category]
    names = [f"{HOSTILE} {item}" for item in range(N_ITEMS)]
    catalogue = pa.table({"item_id": np.arange(N_ITEMS), "name": names, "aisle": categories})
    write_table(catalogue, place / "items.parquet")
    return place


FLAGS = (
    "--log", "events.parquet", "--items", "items.parquet", "--engine", "markov", "--engine",
    "category", "--method", "default", "--metric", "ndcg", "--k", "5", "--n-listed", "15",
)  # fmt: skip


def test_flags_results_and_page(folder, trimtab_with_extras):
    run = trimtab_with_extras(
        "backtest", *FLAGS, "--date", "2026-02-20", "--out", "out", cwd=folder
    )
    assert run.returncode == 0, run.stderr
    assert "4 results in out/results.parquet" in run.stdout
    table = pq.read_table(folder / "out" / "results.parquet")
    assert set(table["method"].to_pylist()) == {"long", "default"}
    page = (folder / "out" / "report.html").read_text()
    assert HOSTILE not in page
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;" in page

    again = trimtab_with_extras("report", "--results", "out", "--out", "again.html", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert (folder / "again.html").read_text() == page


def test_a_file_with_flags_over_it(folder, trimtab_with_extras):
    (folder / "plan.toml").write_text(
        'log = "events.parquet"\ndates = ["2026-02-20"]\nengines = ["popularity"]\n'
        'methods = ["ratio"]\nmetrics = ["acc"]\n'
    )
    run = trimtab_with_extras(
        "backtest", "plan.toml", "--first", "2026-02-10", "--last", "2026-02-20", "--every", "10",
        "--out", "filed", "--no-report", cwd=folder,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    table = pq.read_table(folder / "filed" / "results.parquet")
    assert set(table["date"].to_pylist()) == {"2026-02-10", "2026-02-20"}
    assert set(table["engine"].to_pylist()) == {"popularity"}
    assert not (folder / "filed" / "report.html").exists()


REFUSALS = {
    "a date outside the log": (
        [*FLAGS, "--date", "2031-01-01"],
        "as_of=2031-01-01: must be after the log's first day, 2026-01-05, and not after its last",
    ),
    "an empty window": (
        [*FLAGS, "--date", "2026-01-06", "--recent-days", "1", "--log", "gap.parquet"],
        "the recent window, 2026-01-05 to 2026-01-05, has no events; choose another day",
    ),
    "no returning users": (
        [*FLAGS, "--date", "2026-01-06", "--recent-days", "3"],
        "no buyer of the recent window, 2026-01-03 to 2026-01-05, bought anything before it",
    ),
    "an unknown category level": (
        [*FLAGS, "--date", "2026-02-20", "--level", "shelf"],
        "level='shelf' of engine category: must be one of aisle",
    ),
    "a time without a zone": (
        [*FLAGS, "--log", "naive.parquet", "--date", "2026-02-20"],
        "column 'timestamp' of events says no time zone: pass tz=, the shop's own",
    ),
    "no dates": ([*FLAGS], "no dates: give dates, or first and last"),
    "dates twice": (
        [*FLAGS, "--date", "2026-02-20", "--first", "2026-02-10", "--last", "2026-02-20"],
        "--date and --first or --last: give one or the other",
    ),
    "a level without its engine": (
        [
            "--log",
            "events.parquet",
            "--engine",
            "markov",
            "--date",
            "2026-02-20",
            "--level",
            "aisle",
        ],
        "--level aisle: goes with --engine category, which is not there",
    ),
    "every without a first": (
        [*FLAGS, "--date", "2026-02-20", "--every", "3"],
        "--every goes with --first and --last: dates are given already",
    ),
    "no such plan": (["nothing.toml"], "nothing.toml: no such file"),
    "a plan that is no TOML": (["broken.toml"], "broken.toml: not a readable TOML file"),
    "a plan with unknown words": (["odd.toml"], "'colour' in odd.toml: unknown; known are log, tz"),
    "no such log": ([*FLAGS, "--log", "no.parquet", "--date", "2026-02-20"], "no such file"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_in_one_sentence(name, folder, trimtab_with_extras):
    events = pq.read_table(folder / "events.parquet")
    late = events.filter(pa.array(events["timestamp"].to_numpy() >= np.datetime64("2026-01-06")))
    first = pa.table({**late.slice(0, 1).to_pydict()}, schema=late.schema)
    early = first.set_column(
        2, "timestamp", pa.array([np.datetime64("2026-01-01", "us")]).cast(late.schema[2].type)
    )
    write_table(pa.concat_tables([early, late]), folder / "gap.parquet")
    (folder / "broken.toml").write_text("dates = [")
    (folder / "odd.toml").write_text('colour = "red"')
    arguments, message = REFUSALS[name]
    run = trimtab_with_extras("backtest", *arguments, "--out", "refused", cwd=folder)
    assert run.returncode == 2
    assert run.stderr.startswith("trimtab: ")
    assert message in run.stderr
    assert run.stderr.count("\n") == 1
    assert not (folder / "refused").exists()


def test_a_stop_is_said_and_gone_on_from(folder):
    script = Path(sysconfig.get_path("scripts")) / "trimtab"
    days = ("--first", "2026-01-20", "--last", "2026-02-20", "--every", "1")
    command = [script, "backtest", *FLAGS, *days, "--out", "stopped", "--no-report"]
    run = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        patience = time.monotonic() + 120
        while not list((folder / "stopped").rglob("about.json")):
            assert time.monotonic() < patience
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        _, words = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 130
    assert words == "trimtab: stopped; what was finished is kept\n"


def test_a_naive_log_with_its_zone(folder, trimtab_with_extras):
    run = trimtab_with_extras(
        "backtest", *FLAGS, "--log", "naive.parquet", "--tz", "Europe/London", "--date",
        "2026-02-20", "--out", "zoned", "--no-report", cwd=folder,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr


def test_without_the_libraries_it_says_what_to_install(folder, trimtab):
    run = trimtab("backtest", *FLAGS, "--date", "2026-02-20", "--out", "bare", cwd=folder)
    assert (run.returncode, run.stderr) == (
        2, "trimtab: charts need altair and vl-convert: pip install 'trimtab[report]'\n",
    )  # fmt: skip
    run = trimtab(
        "backtest", "--log", "events.parquet", "--engine", "factorization", "--method", "ratio",
        "--date", "2026-02-20", "--out", "bare", "--no-report", cwd=folder,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (
        2, "trimtab: matrix factorization needs SciPy: pip install 'trimtab[engines]'\n",
    )  # fmt: skip


def test_a_report_of_nothing_is_refused(folder, trimtab_with_extras):
    run = trimtab_with_extras("report", "--results", "nowhere", cwd=folder)
    assert run.returncode == 2
    assert "nowhere holds no finished backtest" in run.stderr


def test_the_demo_is_the_papers_experiment(folder):
    """The demo itself takes minutes: here, that it asks for the right things."""
    catalogue = pa.table({"item_id": np.arange(N_ITEMS), "aisle": ["a"] * N_ITEMS})
    plan = demo_plan(make_log(pq.read_table(folder / "events.parquet"), items=catalogue))
    assert [str(day) for day in plan.dates] == [REGULAR, HOLIDAY] == ["2017-11-01", "2017-12-11"]
    assert (plan.k, plan.recent_days, plan.test_days, plan.n_listed) == (10, 3, 7, 50)
    assert set(plan.engines) == {"markov", "category", "factorization"}
    assert [method.name for method in plan.methods] == [
        "long", "truncate", "decay", "distrdiff", "ratio", "paper", "default",
    ]  # fmt: skip
    assert plan.training_windows == (7, 30, 91, 182)
